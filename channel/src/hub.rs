//! Drives channels: one dispatcher of completions for one channel, or for all channels of a server.
//!
//! Owner: everything that was made from it. Completions are taken by one thread at a time, so that they
//! are handled in order: of the threads that wait, one *leads* and waits for the dispatcher, the others wait
//! for the end of its round. In a hub of tasks the dispatcher's callback leads. Connection events come by a
//! callback, too. Order of locks: the batch, then a channel's state, then one of the others here, which are
//! held for a few instructions. When a peer dies, its completions and its event report it; other channels
//! are not affected. The dispatcher has room for all completions of its channels.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use itapi::{AccessError, Capabilities, Completion, ConnEvd, EpId, Evd, Ia};

use crate::core::ChannelEnd;
use crate::error::{Error, Result};
use crate::link::{self, Link, same};
use crate::state::State;
use crate::tuning::END_CHECK;

/// Drives channels, see the module.
pub(crate) struct Hub {
    pub(crate) ia: Ia,
    pub(crate) evd: Evd,
    pub(crate) events: ConnEvd,
    /// Completions of all its members, as far as that is known before.
    most: u32,
    /// By the number of the adapter and the endpoint.
    members: Mutex<BTreeMap<(usize, EpId), Weak<ChannelEnd>>>,
    /// The one member, if it is not a server's.
    only: OnceLock<(EpId, Weak<ChannelEnd>)>,
    /// Completions that were taken. The thread that holds the lock is the leader; before it unlocks, it counts a
    /// new round.
    batch: Mutex<Vec<Completion>>,
    /// A thread waits for completions.
    led: AtomicBool,
    /// Changes with each round.
    round: AtomicU64,
    /// Threads that wait for the next round, under `round_lock`.
    waiting: AtomicU32,
    round_lock: Mutex<()>,
    next_round: Condvar,
    /// The callback leads.
    called: AtomicBool,
    /// Members with events, if it is a server's.
    listed: Option<Mutex<VecDeque<Weak<ChannelEnd>>>>,
    /// Most completions of all its members.
    room: Mutex<u32>,
    /// Of further adapters, to which members have moved.
    lines: Mutex<BTreeMap<usize, Line>>,
    /// Further adapters so far.
    adapters: AtomicUsize,
    /// Counts how often no completion was left.
    emptied: AtomicU64,
}

/// The dispatchers of a further adapter. Their callbacks lead: a thread that waits for the first adapter is interrupted.
struct Line {
    ia: Ia,
    evd: Evd,
    events: ConnEvd,
    room: u32,
    /// Completions that were taken: held by the thread that handles them.
    batch: Arc<Mutex<Vec<Completion>>>,
}

/// A dispatcher that grows with the members; on an adapter whose dispatchers cannot, for all of them.
fn dispatcher(ia: &Ia, most: u32) -> Result<Evd> {
    let attrs = ia.attrs();
    let grows = attrs.capabilities.contains(Capabilities::CQ_RESIZE);
    Ok(ia.evd(if grows { 64 } else { most.min(attrs.max_cqe) })?)
}

/// Makes room in a dispatcher that has some for `room` completions.
fn make_room(evd: &Evd, room: &mut u32, completions: u32) -> Result<()> {
    let more = *room + completions;
    if more > evd.depth() {
        // Each change copies what is queued: not for every member.
        evd.resize(more.next_power_of_two())?;
    }
    *room = more;
    Ok(())
}

/// Longest single wait.
fn left(until: Option<Instant>) -> Duration {
    until.map_or(END_CHECK, |until| until.saturating_duration_since(Instant::now()).min(END_CHECK))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code of ours panics while one is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// `serves`: members with events are listed. `most`: completions of all its members.
    pub(crate) fn new(ia: &Ia, serves: bool, most: u32) -> Result<Arc<Self>> {
        let hub = Arc::new(Self {
            ia: ia.clone(),
            evd: dispatcher(ia, most)?,
            most,
            events: ia.conn_evd()?,
            members: Mutex::default(),
            only: OnceLock::new(),
            batch: Mutex::default(),
            led: AtomicBool::new(false),
            round: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            round_lock: Mutex::default(),
            next_round: Condvar::new(),
            called: AtomicBool::new(false),
            listed: serves.then(Mutex::default),
            room: Mutex::new(0),
            lines: Mutex::default(),
            adapters: AtomicUsize::new(0),
            emptied: AtomicU64::new(0),
        });
        hub.hear(&hub.events, 0)?;
        Ok(hub)
    }

    /// Handles the connection events of an adapter, by its number.
    fn hear(self: &Arc<Self>, events: &ConnEvd, adapter: usize) -> Result<()> {
        let weak = Arc::downgrade(self);
        events.on_event(move |events| {
            while let Ok(Some((id, event))) = events.poll() {
                let Some(hub) = weak.upgrade() else { return };
                if let Some(core) = hub.member(adapter, id) {
                    core.connection(adapter, id, event);
                }
                if hub.called.load(Ordering::Acquire) {
                    hub.take_all();
                }
                hub.changed();
            }
        })?;
        Ok(())
    }

    fn member(&self, adapter: usize, id: EpId) -> Option<Arc<ChannelEnd>> {
        lock(&self.members).get(&(adapter, id)).and_then(Weak::upgrade)
    }

    /// The number of an adapter, which is new if the hub has not used it before.
    fn adapter(self: &Arc<Self>, ia: &Ia) -> Result<usize> {
        if same(ia, &self.ia) {
            return Ok(0);
        }
        let mut lines = lock(&self.lines);
        if let Some((adapter, _)) = lines.iter().find(|(_, line)| same(ia, &line.ia)) {
            return Ok(*adapter);
        }
        let adapter = self.adapters.fetch_add(1, Ordering::Relaxed) + 1;
        let (evd, events) = (dispatcher(ia, self.most)?, ia.conn_evd()?);
        let line = Line { ia: ia.clone(), evd, events, room: 0, batch: Arc::default() };
        self.hear(&line.events, adapter)?;
        let (weak, batch) = (Arc::downgrade(self), line.batch.clone());
        line.evd.on_event(move |evd| {
            if let Some(hub) = weak.upgrade() {
                hub.take_line(adapter, evd, &batch);
            }
        })?;
        lines.insert(adapter, line);
        Ok(adapter)
    }

    /// Makes the dispatcher's callback lead: for tasks.
    pub(crate) fn call(self: &Arc<Self>) -> Result<()> {
        if self.called.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        self.evd.on_event(move |_| {
            if let Some(hub) = weak.upgrade() {
                hub.take_all();
            }
        })?;
        // Completions from before the callback.
        self.take_all();
        Ok(())
    }

    /// Makes room for the completions of a new member at an adapter; returns its dispatchers.
    fn room_for(&self, adapter: usize, completions: u32) -> Result<(Evd, ConnEvd)> {
        if adapter == 0 {
            make_room(&self.evd, &mut lock(&self.room), completions)?;
            return Ok((self.evd.clone(), self.events.clone()));
        }
        let mut lines = lock(&self.lines);
        // It was made before.
        let Some(line) = lines.get_mut(&adapter) else { return Err(Error::Lost(None)) };
        make_room(&line.evd, &mut line.room, completions)?;
        Ok((line.evd.clone(), line.events.clone()))
    }

    /// An endpoint on an adapter, for so many receives.
    pub(crate) fn link(self: &Arc<Self>, ia: &Ia, line: u32, receives: u32) -> Result<Link> {
        let (pz, adapter) = (ia.pz()?, self.adapter(ia)?);
        let completions = link::completions(receives);
        let dispatchers = self.room_for(adapter, completions)?;
        let link = Link::new(adapter, line, pz, dispatchers, receives);
        if link.is_err() {
            self.no_room_for(adapter, completions);
        }
        link
    }

    /// A member needs no room any more.
    pub(crate) fn no_room_for(&self, adapter: usize, completions: u32) {
        match adapter {
            0 => *lock(&self.room) -= completions,
            _ => {
                if let Some(line) = lock(&self.lines).get_mut(&adapter) {
                    line.room -= completions;
                }
            }
        }
    }

    /// Lets a member get what happens at its endpoint.
    pub(crate) fn join(&self, link: &Link, core: &Arc<ChannelEnd>) {
        lock(&self.members).insert((link.adapter, link.ep.id()), Arc::downgrade(core));
        if self.listed.is_none() && link.adapter == 0 {
            // Set once: such a hub has one member.
            self.only.get_or_init(|| (link.ep.id(), Arc::downgrade(core)));
        }
    }

    pub(crate) fn remove(&self, link: &Link) {
        lock(&self.members).remove(&(link.adapter, link.ep.id()));
        self.no_room_for(link.adapter, link.completions);
    }

    /// Closes the dispatchers of further adapters whose devices were lost, and that have no members any more. Without a lock of a
    /// channel: it waits for their callbacks.
    pub(crate) fn forget_lost(&self) {
        let mut lines = lock(&self.lines);
        let left = |line: &Line| line.room == 0 && line.ia.is_lost();
        let gone: Vec<_> = lines.iter().filter(|(_, line)| left(line)).map(|(at, _)| *at).collect();
        let gone: Vec<_> = gone.into_iter().filter_map(|at| lines.remove(&at)).collect();
        drop(lines);
        drop(gone);
    }

    /// Returns once all completions were handled that an adapter has queued before this call.
    pub(crate) fn drain(&self, adapter: usize) {
        if adapter > 0 {
            let line =
                lock(&self.lines).get(&adapter).map(|line| (line.evd.clone(), line.batch.clone()));
            if let Some((evd, batch)) = line {
                self.take_line(adapter, &evd, &batch);
            }
            return;
        }
        let before = self.emptied.load(Ordering::SeqCst);
        loop {
            let seen = self.round();
            // A thread that leads finds none left before it waits again.
            self.take_all();
            if self.emptied.load(Ordering::SeqCst) > before {
                return;
            }
            self.changed();
            // It returns at the latest after a second.
            let _ = self.follow(seen + 1, Some(Instant::now() + Duration::from_millis(1)));
        }
    }

    /// Handles the completions of a further adapter.
    fn take_line(&self, adapter: usize, evd: &Evd, batch: &Mutex<Vec<Completion>>) {
        let mut batch = lock(batch);
        while evd.poll_into(&mut batch).is_ok_and(|taken| taken > 0) {
            self.distribute(adapter, &mut batch);
        }
        drop(batch);
        self.changed();
    }

    /// The number of the round; read it before checking for a result, then pass it to [`Hub::advance`].
    #[inline]
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::SeqCst)
    }

    /// Begins a new round: something may have changed.
    pub(crate) fn changed(&self) {
        self.begin();
        if self.led.load(Ordering::SeqCst) {
            self.evd.interrupt();
        }
    }

    #[inline]
    fn begin(&self) {
        self.round.fetch_add(1, Ordering::SeqCst);
        // A waiting thread has recorded that before it read the round.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.round_lock));
            self.next_round.notify_all();
        }
    }

    /// Leads a round, or waits for its end, unless round `seen` is over; for a short time, not beyond `until`.
    pub(crate) fn advance(&self, seen: u64, until: Option<Instant>) -> Result<()> {
        if self.called.load(Ordering::Acquire) {
            return self.follow(seen, until);
        }
        match self.batch.try_lock() {
            Ok(mut batch) => {
                let led = self.lead(&mut batch, seen, left(until));
                drop(batch);
                // Others may lead now.
                self.begin();
                led
            }
            // The leader begins a new round when it is done.
            Err(TryLockError::WouldBlock) => self.follow(seen, until),
            Err(TryLockError::Poisoned(_)) => Err(Error::Lost(None)),
        }
    }

    /// Waits for the end of a round that another thread leads, or for a connection event.
    pub(crate) fn follow(&self, seen: u64, until: Option<Instant>) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let still = |_: &mut ()| self.round() == seen;
        let waited = self.next_round.wait_timeout_while(lock(&self.round_lock), left(until), still);
        drop(waited);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Takes the queued completions, or waits for one.
    fn lead(&self, batch: &mut Vec<Completion>, seen: u64, wait: Duration) -> Result<()> {
        if self.round() != seen {
            // Another thread took them concurrently.
            return Ok(());
        }
        if self.evd.poll_into(batch)? == 0 {
            self.emptied.fetch_add(1, Ordering::SeqCst);
            self.led.store(true, Ordering::SeqCst);
            // From here on a change interrupts the wait; one from before did not.
            let waited = (self.round() == seen).then(|| self.evd.wait(wait));
            // Seen late, it makes for one interrupt too many.
            self.led.store(false, Ordering::Release);
            let Some(waited) = waited else { return Ok(()) };
            match waited {
                // Others are taken in the next round: a look for them would delay this one.
                Ok(Some(completion)) => batch.push(completion),
                Ok(None) => self.drained(),
                Err(itapi::Error::Access(AccessError::Interrupted)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.distribute(0, batch);
        Ok(())
    }

    /// Takes the queued completions, unless a thread leads.
    pub(crate) fn take_all(&self) {
        let Ok(mut batch) = self.batch.try_lock() else { return };
        // A provider that fails here fails the next wait, too.
        while self.evd.poll_into(&mut batch).is_ok_and(|taken| taken > 0) {
            self.distribute(0, &mut batch);
        }
        self.emptied.fetch_add(1, Ordering::SeqCst);
        if self.called.load(Ordering::Acquire) {
            self.drained();
        }
        drop(batch);
        self.changed();
    }

    /// Passes each completion to its channel, in order.
    fn distribute(&self, adapter: usize, batch: &mut Vec<Completion>) {
        while let Some(first) = batch.first() {
            let id = first.ep;
            let run = batch.iter().take_while(|completion| completion.ep == id).count();
            let core = match self.only.get() {
                Some((only, core)) if *only == id && adapter == 0 => core.upgrade(),
                _ => self.member(adapter, id),
            };
            // If the channel is gone, the memory is freed.
            if let Some(core) = core {
                core.complete(adapter, id, &mut batch[..run]);
            }
            batch.drain(..run);
        }
    }

    /// No completion is left: marks ended connections as over.
    fn drained(&self) {
        let members: Vec<Arc<ChannelEnd>> =
            lock(&self.members).values().filter_map(Weak::upgrade).collect();
        members.iter().for_each(ChannelEnd::drained);
    }

    /// Lists a member that has an event for the server.
    pub(crate) fn list(&self, core: &Arc<ChannelEnd>, state: &mut State) {
        if let Some(listed) = &self.listed
            && !state.listed
            && state.has_event()
        {
            state.listed = true;
            lock(listed).push_back(Arc::downgrade(core));
        }
    }

    /// The member with the oldest event.
    pub(crate) fn next_listed(&self) -> Option<Arc<ChannelEnd>> {
        let listed = self.listed.as_ref()?;
        loop {
            let next = lock(listed).pop_front()?;
            if let Some(core) = next.upgrade() {
                return Some(core);
            }
        }
    }
}
