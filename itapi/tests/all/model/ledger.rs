//! The model: outstanding work requests by owner, which is an endpoint or a shared receive queue. Each that was
//! ever created has a [`Life`], so that the second one in a slot is distinct.
//!
//! A request is identified by the capacity of its buffer, unique among those outstanding, so that the model
//! does not rely on the ids under test. Posters lock their life's `Outstanding` while they post; takers do not
//! while they take.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use itapi::{Buffer, Completion, EpId, Error, Operation, Pz, Result, VpStatus, WcStatus, WorkId};

/// Octets of the longest message, which fits every buffer.
pub(super) const MESSAGE: usize = 64;
/// Capacities that distinguish buffers.
const KEYS: u64 = 8192;

/// An endpoint or a shared receive queue, from its creation to its end.
#[derive(Debug)]
pub(super) struct Life {
    /// None: a shared receive queue.
    ep: Option<EpId>,
    /// When it was destroyed, by the ledger's clock; 0 before.
    gone: AtomicU64,
    outstanding: Mutex<Outstanding>,
}

#[derive(Default, Debug)]
struct Outstanding {
    open: HashMap<usize, Posted>,
    /// The last signalled request of the send queue that completed.
    reported: Option<WorkId>,
}

#[derive(Debug)]
struct Posted {
    id: WorkId,
    operation: Operation,
    signalled: bool,
    /// Unsignalled, and its stream is over: occupies no slot if it succeeded.
    old: bool,
}

impl Posted {
    fn is_receive(&self) -> bool {
        self.operation == Operation::Recv
    }
}

impl Life {
    pub(super) fn new(ep: Option<EpId>) -> Arc<Self> {
        Arc::new(Self { ep, gone: AtomicU64::new(0), outstanding: Mutex::default() })
    }

    /// Bounds of the number of slots that outstanding requests of a queue occupy.
    pub(super) fn open(&self, receives: bool) -> (usize, usize) {
        let outstanding = self.outstanding.lock().unwrap();
        let open = || outstanding.open.values().filter(|posted| posted.is_receive() == receives);
        (open().filter(|posted| !posted.old).count(), open().count())
    }

    /// The stream is over and another may begin.
    pub(super) fn end_stream(&self) {
        let mut outstanding = self.outstanding.lock().unwrap();
        outstanding.open.values_mut().for_each(|posted| posted.old |= !posted.signalled);
    }

    /// Requests that must complete and have not.
    pub(super) fn missing(&self) -> Vec<String> {
        let outstanding = self.outstanding.lock().unwrap();
        let behind =
            |posted: &Posted| outstanding.reported.is_some_and(|reported| posted.id < reported);
        let due = |posted: &&Posted| posted.signalled || behind(posted);
        outstanding.open.values().filter(due).map(|posted| format!("{posted:?}")).collect()
    }
}

#[derive(Default)]
pub(super) struct Ledger {
    /// Counts ends of lives.
    clock: AtomicU64,
    serial: AtomicU64,
    lives: Mutex<HashMap<usize, Arc<Life>>>,
    /// Receivers of messages that have not arrived.
    messages: Mutex<HashMap<u64, EpId>>,
    /// Takers hold it from before they take until all completions are recorded.
    taking: RwLock<()>,
}

impl Ledger {
    /// The approximate number of requests and messages so far.
    pub(super) fn posted(&self) -> u64 {
        self.serial.load(Ordering::Relaxed)
    }

    /// A buffer for a request of `life`, with a unique capacity.
    pub(super) fn buffer(&self, pz: &Pz, life: &Arc<Life>) -> Buffer {
        loop {
            let serial = self.serial.fetch_add(1, Ordering::Relaxed);
            let key = MESSAGE + (serial % KEYS) as usize;
            let mut lives = self.lives.lock().unwrap();
            if lives.get(&key).is_none_or(|life| life.gone.load(Ordering::Acquire) != 0) {
                lives.insert(key, life.clone());
                drop(lives);
                return pz.buffer(key).unwrap();
            }
        }
    }

    /// Posts one request to a queue of `depth` and records it. Asserts that it is refused as one too many only
    /// if `depth` are outstanding.
    pub(super) fn post(
        &self,
        (life, depth): (&Arc<Life>, usize),
        (key, operation, signalled): (usize, Operation, bool),
        post: impl FnOnce() -> Result<WorkId>,
    ) -> Result<()> {
        let mut outstanding = life.outstanding.lock().unwrap();
        match post() {
            Ok(id) => {
                outstanding.open.insert(key, Posted { id, operation, signalled, old: false });
                Ok(())
            }
            Err(error) => {
                if matches!(error, Error::Post { status: VpStatus::TooManyWrs, .. }) {
                    let receives = operation == Operation::Recv;
                    let open =
                        outstanding.open.values().filter(|p| p.is_receive() == receives).count();
                    assert!(open >= depth, "{life:?} holds {open} of {depth}: {error}");
                }
                self.lives.lock().unwrap().remove(&key);
                Err(error)
            }
        }
    }

    /// The content of a new message to an endpoint.
    pub(super) fn message(&self, to: EpId) -> Vec<u8> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        self.messages.lock().unwrap().insert(serial, to);
        content(serial)
    }

    /// Records that the object was destroyed, with all that was posted on it.
    pub(super) fn gone(&self, life: &Life) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        life.gone.store(now, Ordering::Release);
    }

    /// Runs `calm` at a moment when all taken completions are recorded.
    pub(super) fn calmly<T>(&self, calm: impl FnOnce() -> T) -> T {
        let _calm = self.taking.write().unwrap();
        calm()
    }

    /// Records the completions that `take` takes.
    pub(super) fn round(&self, take: impl FnOnce() -> Vec<Completion>) {
        let _taking = self.taking.read().unwrap();
        let begun = self.clock.load(Ordering::Acquire);
        take().into_iter().for_each(|completion| self.came(completion, begun));
    }

    fn came(&self, mut completion: Completion, begun: u64) {
        for buffer in
            std::mem::take(&mut completion.earlier).into_iter().flat_map(itapi::Local::into_buffers)
        {
            let posted = self.strike(&buffer, &completion, begun);
            assert!(!posted.signalled, "{posted:?} came as unsignalled, with {completion:?}");
        }
        let Some(buffer) = std::mem::take(&mut completion.local).into_buffer() else {
            // Its memory came with a completion that another thread took.
            assert_ne!(completion.status, WcStatus::Success, "without memory: {completion:?}");
            return;
        };
        let posted = self.strike(&buffer, &completion, begun);
        let names = (posted.id, posted.operation);
        assert_eq!(names, (completion.id, completion.operation), "{completion:?} of {posted:?}");
        let good = completion.status == WcStatus::Success;
        assert!(posted.signalled || !good, "{posted:?} is unsignalled: {completion:?}");
        match posted.operation {
            Operation::Recv if good => self.arrived(&buffer, &completion),
            Operation::Read if good => {
                assert_eq!(buffer.to_vec(), content(READABLE), "{completion:?}")
            }
            _ => {}
        }
    }

    /// Removes the request whose buffer was returned.
    fn strike(&self, buffer: &Buffer, completion: &Completion, begun: u64) -> Posted {
        let key = buffer.capacity();
        let life = self.lives.lock().unwrap().get(&key).cloned();
        let life =
            life.unwrap_or_else(|| panic!("nothing was posted with {buffer:?}: {completion:?}"));
        let gone = life.gone.load(Ordering::Acquire);
        assert!(gone == 0 || gone > begun, "of what was destroyed before: {completion:?}");
        assert!(life.ep.is_none_or(|ep| ep == completion.ep), "of {life:?}: {completion:?}");
        let mut outstanding = life.outstanding.lock().unwrap();
        let posted = outstanding.open.remove(&key);
        let posted = posted.unwrap_or_else(|| panic!("came twice: {completion:?}"));
        if posted.signalled && !posted.is_receive() {
            outstanding.reported = outstanding.reported.max(Some(posted.id));
        }
        drop(outstanding);
        let mut lives = self.lives.lock().unwrap();
        if lives.get(&key).is_some_and(|now| Arc::ptr_eq(now, &life)) {
            lives.remove(&key);
        }
        posted
    }

    fn arrived(&self, buffer: &Buffer, completion: &Completion) {
        let octets = buffer.to_vec();
        let serial = octets.first_chunk().map(|tag| u64::from_le_bytes(*tag));
        let serial = serial.unwrap_or_else(|| panic!("{octets:?} is no message: {completion:?}"));
        let sent = self.messages.lock().unwrap().remove(&serial);
        let sent = sent.unwrap_or_else(|| panic!("message {serial} arrived twice: {completion:?}"));
        assert_eq!(sent, completion.ep, "message {serial} went astray: {completion:?}");
        assert_eq!(octets, content(serial), "message {serial}: {completion:?}");
    }
}

/// The message in memory that peers read.
pub(super) const READABLE: u64 = u64::MAX;

/// The octets of message `serial`, of different lengths.
pub(super) fn content(serial: u64) -> Vec<u8> {
    let len = 8 + serial as usize % (MESSAGE - 7);
    let filling = (8..len).map(|at| (serial as u8).wrapping_mul(31).wrapping_add(at as u8));
    serial.to_le_bytes().into_iter().chain(filling).collect()
}
