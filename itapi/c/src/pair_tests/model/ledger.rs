//! Requests that were posted and have not completed, by owner: an endpoint or a shared receive queue, one [`Life`]
//! for each that was ever created, so that a second one in the same slot is another.
//!
//! A request is known by its cookie, which no other one of the world has, and has a cell of memory of its
//! own. So completions are compared with posts without trust in the handles that are tested.
//! Posters hold the lock of their life while they post; takers never while they take.

use std::collections::HashMap;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::super::*;

/// Octets of the longest message: every cell holds it.
pub(super) const MESSAGE: usize = 64;
/// More requests than a world posts.
pub(super) const CELLS: usize = 1 << 15;
/// The content that peers read.
pub(super) const READABLE: u64 = u64::MAX;

/// An endpoint or a shared receive queue, from its creation to its end.
#[derive(Debug)]
pub(super) struct Life {
    /// The endpoint's handle; `None`: a shared receive queue.
    ep: Option<u64>,
    /// When it was destroyed, by the ledger's clock; 0 before.
    gone: AtomicU64,
    posted_by_cookie: Mutex<HashMap<u64, Posted>>,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    /// The type of its completion event.
    event: it_event_type_t,
    signalled: bool,
    /// Unsignalled, and something after it completed, or its stream is over: may occupy no slot.
    over: bool,
}

impl Posted {
    fn is_receive(self) -> bool {
        self.event == IT_DTO_RC_RECV_CMPL_EVENT
    }
}

impl Life {
    pub(super) fn new(ep: Option<u64>) -> Arc<Self> {
        Arc::new(Self { ep, gone: AtomicU64::new(0), posted_by_cookie: Mutex::default() })
    }

    /// Requests of a queue that have not completed: at least and at most so many occupy slots.
    pub(super) fn open(&self, receives: bool) -> (usize, usize) {
        let posted_by_cookie = self.posted_by_cookie.lock().unwrap();
        let open = || posted_by_cookie.values().filter(|posted| posted.is_receive() == receives);
        (open().filter(|posted| !posted.over).count(), open().count())
    }

    /// The stream is over and another may begin.
    pub(super) fn end_stream(&self) {
        let mut posted_by_cookie = self.posted_by_cookie.lock().unwrap();
        posted_by_cookie.values_mut().for_each(|posted| posted.over |= !posted.signalled);
    }

    /// Requests that must complete and have not.
    pub(super) fn missing(&self) -> Vec<String> {
        let posted_by_cookie = self.posted_by_cookie.lock().unwrap();
        let due = posted_by_cookie.iter().filter(|(_, posted)| posted.signalled);
        due.map(|(cookie, posted)| format!("{cookie}: {posted:?}")).collect()
    }
}

pub(super) struct Ledger {
    /// Counts ends of lives.
    clock: AtomicU64,
    cookies: AtomicU64,
    lives: Mutex<HashMap<u64, Arc<Life>>>,
    /// To which endpoint, of messages that did not arrive, or not yet.
    messages: Mutex<HashMap<u64, u64>>,
    /// Held by takers from before they take until all of it is recorded.
    taking: RwLock<()>,
    /// A cell for each cookie.
    cells: AtomicPtr<u8>,
    lmr: u64,
}

impl Ledger {
    pub(super) fn new(memory: &Memory) -> Self {
        assert_eq!(memory.len, CELLS * MESSAGE);
        Self {
            clock: AtomicU64::new(0),
            cookies: AtomicU64::new(0),
            lives: Mutex::default(),
            messages: Mutex::default(),
            taking: RwLock::default(),
            cells: AtomicPtr::new(memory.first),
            lmr: memory.lmr.addr() as u64,
        }
    }

    /// How many requests there were.
    pub(super) fn posted(&self) -> u64 {
        self.cookies.load(Ordering::Relaxed)
    }

    fn cell(&self, cookie: u64) -> *mut u8 {
        assert!((cookie as usize) < CELLS, "more requests than cells");
        self.cells.load(Ordering::Relaxed).wrapping_add(cookie as usize * MESSAGE)
    }

    /// The octets of a request's cell.
    fn read(&self, cookie: u64, len: usize) -> Vec<u8> {
        assert!(len <= MESSAGE);
        // The memory is registered: its octets are copied one by one.
        (0..len).map(|at| c!(self.cell(cookie).add(at).read_volatile())).collect()
    }

    /// The first octets of a request's cell as the segment of a request.
    pub(super) fn segment(&self, cookie: u64, len: usize) -> it_lmr_triplet_t {
        let addr = it_lmr_addr_u { rel: self.cell(cookie).addr() as u64 };
        it_lmr_triplet_t { lmr: object::handle(self.lmr), addr, length: len as u64 }
    }

    /// The same, filled with the content of this cookie.
    pub(super) fn filled(&self, cookie: u64) -> it_lmr_triplet_t {
        let octets = content(cookie);
        for (at, octet) in octets.iter().enumerate() {
            c!(self.cell(cookie).add(at).write_volatile(*octet));
        }
        self.segment(cookie, octets.len())
    }

    /// Posts one request to a queue of `depth` by `post`, which gets its cookie, and records it. It must not
    /// be refused as one too many if fewer are recorded. `to`: the endpoint that a message is for.
    pub(super) fn post(
        &self,
        (life, depth): (&Arc<Life>, usize),
        (event, signalled): (it_event_type_t, bool),
        to: Option<u64>,
        post: impl FnOnce(u64) -> Status,
    ) -> Status {
        let mut posted_by_cookie = life.posted_by_cookie.lock().unwrap();
        let cookie = self.cookies.fetch_add(1, Ordering::Relaxed);
        self.lives.lock().unwrap().insert(cookie, life.clone());
        to.map(|to| self.messages.lock().unwrap().insert(cookie, to));
        let status = post(cookie);
        let posted = Posted { event, signalled, over: false };
        match status {
            IT_SUCCESS => drop(posted_by_cookie.insert(cookie, posted)),
            IT_ERR_TOO_MANY_POSTS => {
                let open = posted_by_cookie
                    .values()
                    .filter(|p| p.is_receive() == posted.is_receive())
                    .count();
                assert!(open >= depth, "{life:?} holds {open} of {depth}: {}", last());
            }
            _ => (),
        }
        status
    }

    /// The object is destroyed, and all that was posted on it with it.
    pub(super) fn gone(&self, life: &Life) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        life.gone.store(now, Ordering::Release);
    }

    /// Runs `calm` while no taker has a completion that is not recorded.
    pub(super) fn calmly<T>(&self, calm: impl FnOnce() -> T) -> T {
        let _calm = self.taking.write().unwrap();
        calm()
    }

    /// Records what `take` takes.
    pub(super) fn round(&self, take: impl FnOnce() -> Vec<Dto>) {
        let _taking = self.taking.read().unwrap();
        let begun = self.clock.load(Ordering::Acquire);
        take().iter().for_each(|dto| self.came(dto, begun));
    }

    fn came(&self, dto: &Dto, begun: u64) {
        let posted = self.strike(dto, begun);
        assert_eq!(posted.event, dto.event, "{dto:?} of {posted:?}");
        let good = dto.status == IT_DTO_SUCCESS;
        assert!(posted.signalled || !good, "{posted:?} is unsignalled: {dto:?}");
        match posted.event {
            IT_DTO_RC_RECV_CMPL_EVENT if good => self.arrived(dto),
            IT_DTO_RDMA_READ_CMPL_EVENT if good => {
                let octets = self.read(dto.cookie, dto.length as usize);
                assert_eq!(octets, content(READABLE), "{dto:?}");
            }
            _ => {}
        }
    }

    /// Removes the request that completed.
    fn strike(&self, dto: &Dto, begun: u64) -> Posted {
        let life = self.lives.lock().unwrap().get(&dto.cookie).cloned();
        let life = life.unwrap_or_else(|| panic!("nothing was posted with this cookie: {dto:?}"));
        let gone = life.gone.load(Ordering::Acquire);
        assert!(gone == 0 || gone > begun, "of what was destroyed before: {dto:?}");
        let ep = dto.ep.addr() as u64;
        assert!(life.ep.is_none_or(|of| of == ep), "of {life:?}: {dto:?}");
        let mut posted_by_cookie = life.posted_by_cookie.lock().unwrap();
        let posted = posted_by_cookie.remove(&dto.cookie);
        let posted = posted.unwrap_or_else(|| panic!("completed twice, or was refused: {dto:?}"));
        if !posted.is_receive() {
            // Unsignalled ones before it have ended, too.
            let before = posted_by_cookie.iter_mut().filter(|(cookie, _)| **cookie < dto.cookie);
            before.for_each(|(_, before)| before.over |= !before.signalled);
        }
        posted
    }

    fn arrived(&self, dto: &Dto) {
        let octets = self.read(dto.cookie, dto.length as usize);
        let message = octets.first_chunk().map(|tag| u64::from_le_bytes(*tag));
        let message = message.unwrap_or_else(|| panic!("{octets:?} is no message: {dto:?}"));
        let sent = self.messages.lock().unwrap().remove(&message);
        let sent = sent.unwrap_or_else(|| panic!("message {message} arrived twice: {dto:?}"));
        assert_eq!(
            sent,
            dto.ep.addr() as u64,
            "message {message} arrived at another endpoint: {dto:?}"
        );
        assert_eq!(octets, content(message), "message {message}: {dto:?}");
    }
}

/// The octets of message `number`, of different lengths.
pub(super) fn content(number: u64) -> Vec<u8> {
    let len = 8 + number as usize % (MESSAGE - 7);
    let filling = (8..len).map(|at| (number as u8).wrapping_mul(31).wrapping_add(at as u8));
    number.to_le_bytes().into_iter().chain(filling).collect()
}
