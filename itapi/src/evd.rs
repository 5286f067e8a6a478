//! Event dispatchers for completions, which match them with the memory of their work requests. Any number of
//! threads may take completions; each goes to one of them. Endpoints share no lock.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kal_os::fork::{Descriptors, Owner, PerProcess};
use ual::{Event, Stream};
use vp_api::{QpId, WcStatus, WorkCompletion, room};

use crate::completion::Completion;
use crate::directory::Directory;
use crate::dispatcher::{Dispatcher, EvdBuilder, Make, next};
use crate::error::{Error, Result};
use crate::ia::Ia;
use crate::ids::EvdId;
use crate::outstanding::{Flights, is_receive};
use crate::tuning::POLL_BATCH;

/// Event dispatcher for completions (IT-API `it_evd_create`, DTO stream). Clones share it. The calls that all
/// dispatchers have are in [`Dispatcher`].
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
pub struct Evd(Arc<EvdInner>);

struct EvdInner {
    evd: Dispatcher,
    directory: Directory,
}

type Open = Mutex<BTreeMap<EvdId, Weak<EvdInner>>>;

/// All dispatchers of this process by id, for threads that take their completions through an aggregate one.
fn open() -> MutexGuard<'static, BTreeMap<EvdId, Weak<EvdInner>>> {
    static OPEN: PerProcess<Open> = PerProcess::new();
    // Nothing panics while the lock is held.
    OPEN.get::<Here>().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The owner of this crate's table of descriptors, which counts forks; the crate makes none.
struct Here;

impl Owner for Here {
    fn table() -> &'static Descriptors {
        static TABLE: Descriptors = Descriptors::new();
        &TABLE
    }
}

impl Drop for EvdInner {
    fn drop(&mut self) {
        open().remove(&self.evd.id());
    }
}

impl Make for Evd {
    const STREAM: Stream = Stream::Completion;
    fn make(evd: Arc<ual::Evd>) -> Self {
        let id = EvdId::of(&evd);
        let core =
            Arc::new(EvdInner { evd: Dispatcher::new(evd), directory: Directory::default() });
        open().insert(id, Arc::downgrade(&core));
        Self(core)
    }
}

impl Ia {
    /// Creates an event dispatcher for at least `depth` completions.
    pub fn evd(&self, depth: u32) -> Result<Evd> {
        Evd::builder(self, depth).build()
    }
}

impl Evd {
    /// A builder with thresholds and other settings; at least `depth` completions fit.
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

    /// Appends the queued completions to `out`, oldest first, at most 16; returns how many
    /// (`it_evd_dequeue_n`).
    pub fn poll_into(&self, out: &mut Vec<Completion>) -> Result<usize> {
        // Before anything is taken: what was taken cannot be put back.
        out.try_reserve(POLL_BATCH)
            .map_err(|_| Error::no_room(room::none::<Completion>("completions", POLL_BATCH)))?;
        let mut batch = [WorkCompletion::BLANK; POLL_BATCH];
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

    /// Waits until the dispatcher notifies and returns the oldest completion (`it_evd_wait`); `None` after the
    /// time-out. The waiting thread makes progress for its connections itself. Signal handlers do not end the wait;
    /// [`Dispatcher::interrupt`] does. Errors: [`ual::Error::Interrupted`], [`ual::Error::Aborted`].
    pub fn wait(&self, timeout: Duration) -> Result<Option<Completion>> {
        next(self.ual(), Some(timeout), |event, _| match event {
            Event::Completion(wc) => self.complete(&wc),
            _ => None,
        })
    }

    /// Waits for a completion and returns the oldest if it succeeded. Errors: [`Error::Incomplete`],
    /// [`Error::Timeout`].
    pub fn wait_success(&self, timeout: Duration) -> Result<Completion> {
        let completion = self.wait(timeout)?.ok_or(Error::Timeout(timeout))?;
        completion.check()?;
        Ok(completion)
    }

    /// Calls a function on a thread of the adapter whenever the dispatcher notifies (`it_evd_callback_attach`).
    /// The function takes the completions itself, and must not wait. It gets the dispatcher as argument, so
    /// that it need not keep it. Errors: [`ual::Error::CallbackExists`].
    pub fn on_event(&self, callback: impl Fn(&Self) + Send + Sync + 'static) -> Result<()> {
        let weak = Arc::downgrade(&self.0);
        let callback = move |_: &Arc<ual::Evd>| {
            if let Some(core) = weak.upgrade() {
                callback(&Self(core));
            }
        };
        Ok(self.ual().attach_callback(Box::new(callback))?)
    }

    /// The completion with the memory of its request; `None` if its endpoint was destroyed.
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

    /// A completion that came to the dispatcher with this id.
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
