//! Who drives channels: one dispatcher of completions for one channel, or for all of a server.
//!
//! Owner: everything that was made from it. Completions are taken by one thread at a time, so that they
//! are handled in their order: of the threads that wait for anything, one *leads* and waits for the
//! dispatcher, the others for a round of it. A hub of tasks is led by its callback. Ends of connections come
//! by a callback, too. Order of locks: the batch, then a channel's state, then one of the others here, which
//! are held for a few instructions. When a peer dies, its completions and its event say so; others notice
//! nothing. The dispatcher has room for all completions of its channels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use itapi::{AccessError, Completion, ConnEvd, EpId, Evd, Ia};

use crate::core::Core;
use crate::error::Result;
use crate::state::State;

/// A connection that ended without flushing anything is noticed after this: its peer has used up every
/// receive, against the protocol.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Hub {
    pub(crate) ia: Ia,
    pub(crate) evd: Evd,
    pub(crate) news: ConnEvd,
    members: Mutex<BTreeMap<EpId, Weak<Core>>>,
    /// Completions that were taken; whoever holds it leads.
    batch: Mutex<Vec<Completion>>,
    turn: Mutex<Turn>,
    next_round: Condvar,
    /// Changes with each round.
    round: AtomicU64,
    /// The callback leads.
    called: AtomicBool,
    /// Members with news, if it is a server's.
    listed: Option<Mutex<VecDeque<Weak<Core>>>>,
    /// Completions that its members may have.
    room: Mutex<u32>,
}

#[derive(Default)]
struct Turn {
    led: bool,
    waiting: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing of ours panics while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// `serves`: members with news are listed.
    pub(crate) fn new(ia: &Ia, serves: bool) -> Result<Arc<Self>> {
        let hub = Arc::new(Self {
            ia: ia.clone(),
            evd: ia.evd(64)?,
            news: ia.conn_evd()?,
            members: Mutex::default(),
            batch: Mutex::default(),
            turn: Mutex::default(),
            next_round: Condvar::new(),
            round: AtomicU64::new(0),
            called: AtomicBool::new(false),
            listed: serves.then(Mutex::default),
            room: Mutex::new(0),
        });
        let weak = Arc::downgrade(&hub);
        hub.news.on_event(move |news| {
            while let Ok(Some((id, event))) = news.poll() {
                let Some(hub) = weak.upgrade() else { return };
                let core = lock(&hub.members).get(&id).and_then(Weak::upgrade);
                if let Some(core) = core {
                    core.connection(event);
                }
                if hub.called.load(Ordering::Acquire) {
                    hub.take_all();
                }
                hub.tell();
            }
        })?;
        Ok(hub)
    }

    /// From now on the dispatcher's callback leads: for tasks.
    pub(crate) fn call(self: &Arc<Self>) -> Result<()> {
        if self.called.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        self.evd.on_event(move |_| {
            if let Some(hub) = weak.upgrade() {
                hub.take_all();
                hub.tell();
            }
        })?;
        // What came before there was a callback.
        self.take_all();
        Ok(())
    }

    /// A member with so many completions is to come.
    pub(crate) fn room_for(&self, completions: u32) -> Result<()> {
        let mut room = lock(&self.room);
        let more = *room + completions;
        if more > self.evd.depth() {
            // Each change copies what is queued: not for every member.
            self.evd.resize(more.next_power_of_two())?;
        }
        *room = more;
        Ok(())
    }

    pub(crate) fn join(&self, core: &Arc<Core>) {
        lock(&self.members).insert(core.id(), Arc::downgrade(core));
    }

    pub(crate) fn leave(&self, id: EpId, completions: u32) {
        lock(&self.members).remove(&id);
        *lock(&self.room) -= completions;
    }

    /// Which round it is, to be asked before one looks for what [`Hub::advance`] is to bring.
    #[inline]
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Begins a new round: something may have changed.
    pub(crate) fn tell(&self) {
        let turn = lock(&self.turn);
        self.round.fetch_add(1, Ordering::Release);
        if turn.waiting > 0 {
            self.next_round.notify_all();
        }
        if turn.led {
            self.evd.interrupt();
        }
    }

    /// Leads a round, or waits for its end, unless `seen` is over; a moment at most, and not beyond `until`.
    pub(crate) fn advance(&self, seen: u64, until: Option<Instant>) -> Result<()> {
        self.pass(seen, until, true)
    }

    /// Waits for the end of a round that somebody else leads, or for news of a connection.
    pub(crate) fn follow(&self, seen: u64, until: Option<Instant>) -> Result<()> {
        self.pass(seen, until, false)
    }

    fn pass(&self, seen: u64, until: Option<Instant>, leads: bool) -> Result<()> {
        let wait =
            until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()).min(LOOK));
        let mut turn = lock(&self.turn);
        if self.round() != seen {
            return Ok(());
        }
        if turn.led || !leads || self.called.load(Ordering::Acquire) {
            turn.waiting += 1;
            let still = |_: &mut Turn| self.round() == seen;
            let (mut turn, _) = self
                .next_round
                .wait_timeout_while(turn, wait, still)
                .unwrap_or_else(PoisonError::into_inner);
            turn.waiting -= 1;
            return Ok(());
        }
        turn.led = true;
        drop(turn);
        let led = self.lead(seen, wait);
        let mut turn = lock(&self.turn);
        turn.led = false;
        self.round.fetch_add(1, Ordering::Release);
        if turn.waiting > 0 {
            self.next_round.notify_all();
        }
        led
    }

    /// Takes what there is, or waits for something.
    fn lead(&self, seen: u64, wait: Duration) -> Result<()> {
        let mut batch = lock(&self.batch);
        if self.round() != seen {
            // Somebody took what there was in this moment.
            return Ok(());
        }
        if self.evd.poll_into(&mut batch)? == 0 {
            match self.evd.wait(wait) {
                Ok(Some(completion)) => {
                    batch.push(completion);
                    self.evd.poll_into(&mut batch)?;
                }
                Ok(None) => self.drained(),
                Err(itapi::Error::Access(AccessError::Signal | AccessError::Interrupted)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.hand_out(&mut batch);
        Ok(())
    }

    /// Takes what there is now, unless a thread leads.
    pub(crate) fn take_all(&self) {
        let Ok(mut batch) = self.batch.try_lock() else { return };
        // A provider that fails here fails whoever waits next.
        while self.evd.poll_into(&mut batch).is_ok_and(|taken| taken > 0) {
            self.hand_out(&mut batch);
            self.tell();
        }
        if self.called.load(Ordering::Acquire) {
            self.drained();
        }
    }

    /// Every channel gets its own, in order.
    fn hand_out(&self, batch: &mut Vec<Completion>) {
        let mut rest = batch.drain(..).peekable();
        while let Some(first) = rest.next() {
            let id = first.ep;
            let core = lock(&self.members).get(&id).and_then(Weak::upgrade);
            let run = std::iter::from_fn(|| rest.next_if(|completion| completion.ep == id));
            let run = std::iter::once(first).chain(run);
            match core {
                Some(core) => core.complete(run),
                // It is gone, and its memory goes.
                None => run.for_each(drop),
            }
        }
    }

    /// There is no completion left: connections that have ended are over.
    fn drained(&self) {
        let members: Vec<Arc<Core>> =
            lock(&self.members).values().filter_map(Weak::upgrade).collect();
        members.iter().for_each(Core::drained);
    }

    /// Lists a member that has news for the server.
    pub(crate) fn list(&self, core: &Arc<Core>, state: &mut State) {
        if let Some(listed) = &self.listed
            && !state.listed
            && state.has_news()
        {
            state.listed = true;
            lock(listed).push_back(Arc::downgrade(core));
        }
    }

    /// The member whose news are oldest.
    pub(crate) fn next_listed(&self) -> Option<Arc<Core>> {
        let listed = self.listed.as_ref()?;
        loop {
            let next = lock(listed).pop_front()?;
            if let Some(core) = next.upgrade() {
                return Some(core);
            }
        }
    }
}
