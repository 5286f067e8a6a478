//! Event dispatchers for completions: where they are taken from, and matched with the memory of
//! their work requests. Any number of threads; each completion goes to one of them. No lock that
//! endpoints share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ual::{Event, NOTIFY, Stream};
use vp_api::{QpId, WcStatus, WorkCompletion, room};

use crate::completion::{Completion, EpId, Operation, WorkId, receive_of};
use crate::directory::Directory;
use crate::dispatcher::{Dispatcher, EvdBuilder, EvdId, Make};
use crate::error::{Error, Result};
use crate::flight::{RecvFlight, SendFlight, Sent};
use crate::ia::Ia;
use crate::remote::RmrContext;
use crate::srq::Srq;
use crate::work::Local;

/// Completions taken from the provider in one go.
const BATCH: usize = 16;

/// Event dispatcher for completions (IT-API `it_evd_create`, DTO stream). Clones share it. What all
/// dispatchers can is in [`Dispatcher`].
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Ia, Work};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&ia.evd(16)?).build()?);
/// # let listen = ia.listen("127.0.0.1:0")?;
/// # std::thread::scope(|scope| {
/// #     scope.spawn(|| listen.request()?.accept(&peer, b""));
/// #     ep.connect(listen.address(), b"")
/// # })?;
/// # peer.post_recv(pz.buffers(2, 8)?)?;
/// assert!(evd.poll()?.is_none()); // never waits
/// let id = ep.post(Work::send(b"first"))?;
/// let done = evd.wait_success(Duration::from_secs(20))?;
/// assert_eq!((done.ep, done.id), (ep.id(), id));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Evd(Arc<Core>);

struct Core {
    evd: Dispatcher,
    directory: Directory,
}

/// All dispatchers by name, for those who take their completions through an aggregate one.
fn open() -> MutexGuard<'static, BTreeMap<EvdId, Weak<Core>>> {
    static OPEN: Mutex<BTreeMap<EvdId, Weak<Core>>> = Mutex::new(BTreeMap::new());
    // Nothing panics while the lock is held.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Core {
    fn drop(&mut self) {
        open().remove(&self.evd.id());
    }
}

/// What an endpoint has under way.
pub(crate) struct Flights {
    send: Mutex<SendFlight>,
    recv: Receives,
    /// Its endpoint is.
    gone: AtomicBool,
}

/// Where an endpoint's receives come from.
pub(crate) enum Receives {
    Own(Mutex<RecvFlight>),
    Shared(Srq),
    /// Datagrams, which the endpoint knows the source of.
    Datagrams(Mutex<RecvFlight>, Arc<ual::UdEp>),
}

impl Flights {
    /// Of an endpoint with a send queue of `depth`.
    pub(crate) fn new(depth: u32, recv: Receives) -> Arc<Self> {
        let (send, gone) = (Mutex::new(SendFlight::new(depth)), AtomicBool::new(false));
        Arc::new(Self { send, recv, gone })
    }

    #[cfg(test)]
    pub(crate) fn idle() -> Arc<Self> {
        let recv = RecvFlight::new(0).expect("room for none");
        Self::new(0, Receives::Own(Mutex::new(recv)))
    }

    /// No dispatcher needs to know it any more.
    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn send(&self) -> MutexGuard<'_, SendFlight> {
        // Nothing panics while the lock is held.
        self.send.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn recv(&self) -> MutexGuard<'_, RecvFlight> {
        match &self.recv {
            Receives::Own(flight) | Receives::Datagrams(flight, _) => {
                flight.lock().unwrap_or_else(PoisonError::into_inner)
            }
            Receives::Shared(srq) => srq.flight(),
        }
    }

    /// Its endpoint is gone.
    pub(crate) fn left(&self, qp: QpId) {
        if let Receives::Shared(srq) = &self.recv {
            srq.left(qp);
        }
    }

    /// The application's view of a completion; `None` if its request is unknown, which a provider that
    /// completes each request once never causes.
    #[inline]
    fn complete(&self, wc: &WorkCompletion) -> Option<Completion> {
        if is_receive(wc) { self.received(wc) } else { sent(&mut self.send(), wc) }
    }

    fn received(&self, wc: &WorkCompletion) -> Option<Completion> {
        match &self.recv {
            Receives::Datagrams(_, ep) => datagram(&mut self.recv(), ep, wc),
            _ => received(&mut self.recv(), wc),
        }
    }

    /// The same of completions of one queue, under one lock.
    fn complete_run(&self, run: &[WorkCompletion], out: &mut Vec<Completion>) {
        if run.first().is_some_and(is_receive) {
            let mut flight = self.recv();
            match &self.recv {
                Receives::Datagrams(_, ep) => {
                    out.extend(run.iter().filter_map(|wc| datagram(&mut flight, ep, wc)));
                }
                _ => out.extend(run.iter().filter_map(|wc| received(&mut flight, wc))),
            }
        } else {
            let mut flight = self.send();
            out.extend(run.iter().filter_map(|wc| sent(&mut flight, wc)));
        }
    }
}

fn is_receive(wc: &WorkCompletion) -> bool {
    receive_of(wc.opcode).is_some()
}

fn received(flight: &mut RecvFlight, wc: &WorkCompletion) -> Option<Completion> {
    let operation = receive_of(wc.opcode)?;
    let mut local = flight.complete(wc.wr_id & !NOTIFY, wc.qp)?;
    let arrived = if wc.status == WcStatus::Success { wc.octets as usize } else { 0 };
    local.set_received(arrived);
    Some(completion(wc, operation, local, Vec::new()))
}

fn datagram(flight: &mut RecvFlight, ep: &ual::UdEp, wc: &WorkCompletion) -> Option<Completion> {
    let source = ep.take_source(wc.wr_id).map(Box::new);
    Some(Completion { source, ..received(flight, wc)? })
}

#[inline]
fn sent(flight: &mut SendFlight, wc: &WorkCompletion) -> Option<Completion> {
    let good = wc.status == WcStatus::Success;
    let Sent { operation, mut local, .. } = flight.complete(wc.wr_id & !NOTIFY, good)?;
    let earlier = flight.take_earlier();
    let arrives = matches!(operation, Operation::Read | Operation::Atomic);
    if arrives && good {
        local.set_received(wc.octets as usize);
    }
    Some(completion(wc, operation, local, earlier))
}

#[inline]
fn completion(
    wc: &WorkCompletion,
    operation: Operation,
    local: Local,
    earlier: Vec<Local>,
) -> Completion {
    Completion {
        ep: EpId(wc.qp.0),
        id: WorkId(wc.wr_id & !NOTIFY),
        operation,
        status: wc.status,
        octets: wc.octets,
        solicited: wc.solicited,
        invalidated: wc.invalidated.map(|stag| RmrContext(stag.0)),
        immediate: wc.immediate,
        source: None,
        end: None,
        local,
        earlier,
    }
}

impl Make for Evd {
    const STREAM: Stream = Stream::Completion;
    fn make(evd: Arc<ual::Evd>) -> Self {
        let id = EvdId::of(&evd);
        let core = Arc::new(Core { evd: Dispatcher::new(evd), directory: Directory::default() });
        open().insert(id, Arc::downgrade(&core));
        Self(core)
    }
}

impl Evd {
    /// Chooses thresholds and the like; at least `depth` completions fit.
    pub fn builder(ia: &Ia, depth: u32) -> EvdBuilder<'_, Self> {
        EvdBuilder::new(ia, depth)
    }

    /// The oldest completion, if there is one (`it_evd_dequeue`).
    pub fn poll(&self) -> Result<Option<Completion>> {
        let mut one = [WorkCompletion::BLANK];
        while self.ual().poll(&mut one)? == 1 {
            if let Some(completion) = self.complete(&one[0]) {
                return Ok(Some(completion));
            }
        }
        Ok(None)
    }

    /// Adds the completions that there are to `out`, oldest first, at most 16; returns how many
    /// (`it_evd_dequeue_n`).
    pub fn poll_into(&self, out: &mut Vec<Completion>) -> Result<usize> {
        // Before anything is taken: what is taken is given.
        out.try_reserve(BATCH)
            .map_err(|_| Error::no_room(room::none::<Completion>("completions", BATCH)))?;
        let mut batch = [WorkCompletion::BLANK; BATCH];
        let found = self.ual().poll(&mut batch)?;
        let before = out.len();
        let same_queue =
            |a: &WorkCompletion, b: &WorkCompletion| a.qp == b.qp && is_receive(a) == is_receive(b);
        for run in batch[..found].chunk_by(same_queue) {
            self.0.directory.with(run[0].qp, |flights| {
                flights.complete_run(run, out);
                Some(())
            });
        }
        let failed = |completion: &&mut Completion| completion.status != WcStatus::Success;
        out[before..].iter_mut().filter(failed).for_each(|completion| self.explain(completion));
        Ok(out.len() - before)
    }

    /// The oldest completion, waiting until the dispatcher notifies (`it_evd_wait`): `None` after
    /// the time-out. A waiting thread does the work of its connections itself. Errors:
    /// [`ual::Error::Interrupted`], [`ual::Error::Signal`], [`ual::Error::Aborted`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        crate::events::next(self.ual(), Some(timeout), |event, _| match event {
            Event::Completion(wc) => self.complete(&wc),
            _ => None,
        })
    }

    /// The oldest completion, waiting for one, if it succeeded. Errors: [`Error::Incomplete`],
    /// [`Error::Timeout`].
    pub fn wait_success(&self, timeout: Duration) -> Result<Completion> {
        let completion = self.wait(timeout)?.ok_or(Error::Timeout(timeout))?;
        completion.check()?;
        Ok(completion)
    }

    /// Calls a function on a thread of the adapter whenever the dispatcher notifies
    /// (`it_evd_callback_attach`). It takes the completions itself, and must not wait. The
    /// dispatcher is given so that the function need not keep it. Errors:
    /// [`ual::Error::CallbackExists`].
    pub fn on_event(&self, callback: impl Fn(&Self) + Send + Sync + 'static) -> Result<()> {
        let weak = Arc::downgrade(&self.0);
        let callback = move |_: &Arc<ual::Evd>| {
            if let Some(core) = weak.upgrade() {
                callback(&Self(core));
            }
        };
        Ok(self.ual().attach_callback(Box::new(callback))?)
    }

    /// Its endpoint may be gone, and with it the memory.
    #[inline]
    fn complete(&self, wc: &WorkCompletion) -> Option<Completion> {
        let mut complete = self.0.directory.with(wc.qp, |flights| flights.complete(wc));
        if wc.status != WcStatus::Success {
            complete.iter_mut().for_each(|completion| self.explain(completion));
        }
        complete
    }

    #[cold]
    fn explain(&self, completion: &mut Completion) {
        let ep = self.ual().ia().ep(QpId(completion.ep.0));
        completion.end = ep.and_then(|ep| ep.connection_end()).map(Box::new);
    }

    pub(crate) fn ual(&self) -> &Arc<ual::Evd> {
        self.0.evd.ual()
    }

    pub(crate) fn add(&self, qp: QpId, flights: &Arc<Flights>) -> Result<()> {
        self.0.directory.add(qp, flights).map_err(Error::no_room)
    }

    pub(crate) fn remove(&self, qp: QpId) {
        self.0.directory.remove(qp);
    }

    /// A completion that came to the dispatcher of this name.
    pub(crate) fn complete_at(name: EvdId, wc: &WorkCompletion) -> Option<Completion> {
        let evd = open().get(&name)?.upgrade().map(Self)?;
        evd.complete(wc)
    }
}

impl Deref for Evd {
    type Target = Dispatcher;
    fn deref(&self) -> &Dispatcher {
        &self.0.evd
    }
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.evd.fmt(f)
    }
}
