//! The progress engine: application threads inside the library serve the sockets; while there are none,
//! a thread of the engine does.
//!
//! One engine per RNIC. Its epoll set holds the socket of every connected QP (edge-triggered), the
//! netlink socket that watches the ports, and an eventfd that wakes the leader. Three kinds of thread
//! serve it:
//!
//! - pollers ([`Engine::poll`]): never sleep;
//! - the leader among the waiters ([`Engine::wait`], [`Engine::lead`]): sleeps in `epoll_wait`;
//! - the engine's own thread: watches while no other thread does ([`kal_os::progress`]), and runs the timers.
//!
//! Event mode: a consumer that arms a CQ sleeps in an epoll of its own, where the engine cannot see it. From
//! then on the engine's thread watches the sockets without back-off, and polls of that CQ leave the sockets to
//! it, until the consumer's last few polls were empty and it has not armed.
//!
//! When a peer dies its socket becomes readable; a silent peer is detected by a timer of its QP.

mod alarm;
mod descriptor;
mod thread;
mod timers;
mod unregistered;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use vp_api::state_page::layout::Waiting;
use vp_api::{DeviceRef, LogLevel, Services, VpError, VpResult};

use crate::fork::Ours;
use crate::stream::socket::{Sockets, Stream};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::tuning;
use alarm::Alarm;
use kal_os::progress::{Departure, Leadership, Progress, Waker};
use timers::Timers;
use unregistered::Unregistered;

pub(crate) use kal_os::Slept;
pub(crate) use kal_os::progress::Waited;
pub(crate) use timers::Timer;

/// What the engine serves: a QP, a lingering stream, or the netlink socket of the ports.
pub(crate) trait Member: Send + Sync {
    /// Its socket became readable, writable, or both.
    fn on_ready(&self, ready: Ready);
    /// A deadline passed that was set for the stream with this generation.
    fn on_timer(&self, stream: u32, timer: Timer);
    /// For a socket that is not in the engine's set: registers it again and returns false, unless it was
    /// polled during the back-off with this number.
    fn stays_unregistered(&self, _back_off: Option<u32>) -> bool {
        false
    }
    /// A thread polls for it. True: there was work.
    fn poll_as_other(&self) -> bool {
        false
    }
}

/// The readiness of a socket besides being readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ready {
    /// There is room to send.
    pub(crate) writable: bool,
    /// An end or an error may follow what can be read: read until it shows.
    pub(crate) over: bool,
    /// It is the life line of a stream that goes through shared memory.
    pub(crate) life_line: bool,
}

/// The thread that serves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// A consumer's thread that waits, and sleeps on the sockets.
    Leader,
    /// A consumer's thread that polls, or the engine's own.
    Other,
}

/// The token of the wake-up eventfd; QPs have 32-bit ids.
const WAKEUP: u64 = u64::MAX;
/// Beside the id: the life line of the QP's stream.
const LIFE_LINE: u64 = 1 << 32;
/// Beside the id: what is watched is the doorbell of the QP's stream.
const DOORBELL: u64 = 1 << 33;

/// The wake-up eventfd in the epoll set, level-triggered.
struct WakeupFd(Ours<OwnedFd>);

impl Waker for WakeupFd {
    fn wake(&self) {
        // The counter cannot overflow in practice; if it did, it would be readable all the same.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl WakeupFd {
    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// The engine of one RNIC.
pub(crate) struct Engine {
    epoll: Ours<OwnedFd>,
    leadership: Leadership<WakeupFd>,
    progress: Progress,
    unregistered: Unregistered,
    /// Number of the present back-off: counts the decisions of the engine's thread.
    back_off: AtomicU32,
    alarm: Alarm,
    /// How long the engine's thread leaves the sockets alone after a leader has left, in nanoseconds.
    absence: AtomicU64,
    timers: Timers,
    /// The id for the next stream that its QP leaves.
    next_lingering: AtomicU32,
    /// Lingering streams, oldest first: id and generation.
    lingering: Mutex<VecDeque<(u32, u32)>>,
    members: RwLock<BTreeMap<u32, Arc<dyn Member>>>,
    services: Arc<dyn Services>,
    stopping: AtomicBool,
    thread: Mutex<Option<kal_os::Thread>>,
    /// In the process's state page.
    record: OnceLock<DeviceRef>,
}

impl Engine {
    /// Starts an engine and its thread, named `name`.
    pub(crate) fn start(services: Arc<dyn Services>, name: &str) -> VpResult<Arc<Self>> {
        let os = |what: &str| {
            let what = format!("starting the progress engine: {what}");
            move |error: io::Error| VpError::os(&what, &error)
        };
        let epoll = Ours::make(|| Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        let epoll = epoll.map_err(os("epoll_create"))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakeup = Ours::make(|| Ok(eventfd(0, flags)?)).map_err(os("eventfd"))?;
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)
            .map_err(|errno| os("epoll_ctl")(errno.into()))?;
        let alarm = Alarm::new().map_err(|e| VpError::os("starting the engine: timerfd", &e))?;
        let engine = Arc::new(Self {
            epoll,
            leadership: Leadership::new(WakeupFd(wakeup)),
            progress: Progress::new(),
            unregistered: Unregistered::new(),
            back_off: AtomicU32::new(0),
            alarm,
            absence: AtomicU64::new(tuning::FIRST_BACK_OFF_NS),
            timers: Timers::default(),
            next_lingering: AtomicU32::new(u32::MAX),
            lingering: Mutex::new(VecDeque::with_capacity(tuning::LINGERING + 1)),
            members: RwLock::default(),
            services,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
            record: OnceLock::new(),
        });
        let run = engine.clone();
        let thread = kal_os::spawn(name, move || run.run())
            .map_err(|e| VpError::os("starting the progress engine's thread", &e))?;
        *lock(&engine.thread) = Some(thread);
        Ok(engine)
    }

    /// Ends the thread. QPs that are still attached are no longer served.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.alarm.set(0, 0);
        let thread = lock(&self.thread).take();
        // Called by the thread itself (a handler dropped the last reference): it then ends by itself.
        if let Some(thread) = thread {
            thread.join();
        }
        self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// Counts in this record from now on; a second one is not used.
    pub(crate) fn publish(&self, record: DeviceRef) {
        let _ = self.record.set(record);
    }

    /// A thread of the consumer's is about to sleep.
    pub(crate) fn count_sleep(&self) {
        if let Some(record) = self.record.get() {
            record.sleeps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A poll found no completion.
    pub(crate) fn count_vain_poll(&self) {
        if let Some(record) = self.record.get() {
            record.count_vain_poll();
        }
    }

    /// A thread of the consumer's asks to be notified.
    pub(crate) fn count_arm(&self) {
        if let Some(record) = self.record.get() {
            record.arms.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A thread of the consumer's waits for completions, until the result is dropped.
    pub(crate) fn count_waiting(&self) -> Option<Waiting<'_>> {
        self.record.get().map(|record| record.wait())
    }

    /// The engine's own thread served so many streams.
    fn count_served(&self, streams: u32) {
        if let Some(record) = self.record.get().filter(|_| streams > 0) {
            record.engine_served.fetch_add(streams.into(), Ordering::Relaxed);
        }
    }

    /// The services' clock.
    pub(crate) fn now(&self) -> u64 {
        self.services.now_ns()
    }

    /// Begins to serve a QP's socket, or, with id 0, which no QP has, the netlink socket of the ports.
    /// Room to send is not reported before the first [`Engine::rearm`]: every new socket has room, and
    /// the report would wake the engine for nothing. Returns the generation of the stream, which its deadlines name.
    pub(crate) fn attach(
        &self,
        id: u32,
        member: Arc<dyn Member>,
        socket: &impl Watched,
    ) -> io::Result<u32> {
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.insert(id, member);
        let qps = members.len();
        drop(members);
        if !self.unregistered.reserve(qps) || !self.timers.reserve(qps) {
            self.forget(id);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        match epoll::add(&self.epoll, socket, socket.token(id), socket.octets()) {
            Ok(()) => Ok(self.timers.begin(id)),
            Err(errno) => {
                self.forget(id);
                Err(errno.into())
            }
        }
    }

    /// Watches the life line of a stream, too: readable, it is an event of its own kind. Not to be taken out
    /// while the stream is attached.
    pub(crate) fn watch_life_line(&self, id: u32, socket: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, life_line(id), octets())?)
    }

    /// Ends the service of a socket and cancels its deadlines; the socket is still open.
    pub(crate) fn detach(&self, id: u32, stream: &Sockets) {
        self.timers.end(id);
        // This fails only if the socket was never added.
        let _ = epoll::delete(&self.epoll, stream);
        if let Some(socket) = stream.life_line() {
            let _ = epoll::delete(&self.epoll, socket);
        }
        lock(&self.lingering).retain(|(lingers, _)| *lingers != id);
        self.forget(id);
    }

    fn forget(&self, id: u32) {
        let gone =
            self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
        // Dropped without the lock of the members: it may be the last reference.
        drop(gone);
    }

    /// Makes the stream that QP `id` leaves a member of its own; `make` builds it from its id and
    /// generation. Events may be lost in between, so the new member must check the socket once. If too
    /// many streams linger, the oldest, which had the most time, ends.
    pub(crate) fn let_linger(
        &self,
        id: u32,
        stream: &Sockets,
        make: impl FnOnce(u32, u32) -> Arc<dyn Member>,
    ) {
        // QP ids count up from 1; these count down.
        let own = self.next_lingering.fetch_sub(1, Ordering::Relaxed);
        let generation = self.timers.replace(id, own);
        let member = make(own, generation);
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.insert(own, member);
        drop(members);
        // This fails only if the socket is not in the set; then a deadline ends the stream.
        let _ = epoll::modify(&self.epoll, stream, stream.token(own), stream.octets());
        if let Some(socket) = stream.life_line() {
            let _ = epoll::modify(&self.epoll, socket, life_line(own), octets());
        }
        self.forget(id);
        self.limit_lingering((own, generation));
    }

    fn limit_lingering(&self, youngest: (u32, u32)) {
        let mut lingering = lock(&self.lingering);
        lingering.push_back(youngest);
        let oldest = if lingering.len() > tuning::LINGERING { lingering.pop_front() } else { None };
        drop(lingering);
        if let Some((id, generation)) = oldest
            && let Some(member) = self.member(id)
        {
            member.on_timer(generation, Timer::Close);
        }
    }

    /// Whether it serves others than so many QPs.
    pub(crate) fn serves_more_than(&self, qps: usize) -> bool {
        let members = self.members.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The watch on the ports has time until the engine's thread looks.
        members.len() - usize::from(members.contains_key(&0)) > qps
    }

    /// Reports the socket's readiness once more to the next thread that looks, and room to send from now
    /// on. For a QP that has used its budget and has more to do, or that waits for room.
    pub(crate) fn rearm(&self, id: u32, socket: &impl Watched) {
        let events = socket.octets() | socket.room();
        // This fails only if the socket is not in the set; then no thread waits for it.
        let _ = epoll::modify(&self.epoll, socket, socket.token(id), events);
    }

    /// The number of the present back-off of the engine's thread.
    pub(crate) fn back_off(&self) -> u32 {
        self.back_off.load(Ordering::Relaxed)
    }

    /// Removes the socket of a QP that is polled all the time from the epoll set; false if it must stay.
    /// Called under the QP's lock.
    pub(crate) fn unregister(&self, id: u32, stream: &Stream) -> bool {
        let unregistered = self.unregistered.add(id);
        match stream.shared() {
            _ if !unregistered => {}
            None => _ = epoll::delete(&self.epoll, &**stream),
            // Its descriptor is silent until the peer rings.
            Some(local) => local.stay_awake(),
        }
        unregistered
    }

    /// Adds the socket again; what is ready is reported, and with `room` also room to send. False: it
    /// cannot be watched, and the log says why. Called under the QP's lock.
    pub(crate) fn register_again(&self, id: u32, stream: &Stream, room: bool) -> bool {
        if let Some(local) = stream.shared() {
            local.sleep();
            return true;
        }
        let events = if room { stream.octets() | stream.room() } else { stream.octets() };
        let put = epoll::add(&self.epoll, &**stream, stream.token(id), events);
        if let Err(errno) = put {
            let message = format!(
                "QP {id} ends its stream, for its socket cannot be watched again: {errno}; raise \
                 fs.epoll.max_user_watches, or free memory"
            );
            self.services.log(LogLevel::Error, "softrdma::engine", &message);
        }
        put.is_ok()
    }

    /// The log says why a stream through shared memory ends.
    pub(crate) fn log_corrupt(&self, id: u32) {
        let message = format!(
            "QP {id} ends its stream (local-ring-corrupt): the peer wrote a position into the shared memory \
             that cannot be; use `local = \"off\"` for peers that are not trusted to be sound"
        );
        self.services.log(LogLevel::Error, "softrdma::stream", &message);
    }

    /// The log says why a stream ends whose octets the kernel could not copy.
    pub(crate) fn log_unmapped(&self, id: u32) {
        let message = format!(
            "QP {id} ends its stream: the kernel cannot access the memory of a request (EFAULT); it was unmapped \
             or protected while it was registered: deregister memory first"
        );
        self.services.log(LogLevel::Error, "softrdma::stream", &message);
    }

    /// Calls the QP `id` at `at` or a little later, unless this stream of the QP is over by then.
    pub(crate) fn set_timer(&self, at: u64, id: u32, stream: u32, timer: Timer) {
        let now = self.now();
        let at = timers::shared(at, now);
        self.timers.set(at, id, stream, timer);
        self.alarm.set(at, now);
    }

    /// The next deadline.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.timers.next()
    }

    /// An application thread polls: the engine's thread backs off for a moment.
    pub(crate) fn mark_polled(&self) {
        self.progress.mark_polled();
    }

    /// Serves what is ready, without sleeping.
    pub(crate) fn poll(&self) {
        self.serve(Some(Duration::ZERO), &|| {}, By::Other, |_| {});
    }

    /// The same; returns one that was served and is not the caller's own.
    pub(crate) fn poll_others(&self, is_own: impl Fn(u32) -> bool) -> Option<u32> {
        let mut other = None;
        self.serve(Some(Duration::ZERO), &|| {}, By::Other, |id| {
            if !is_own(id) {
                other = Some(id);
            }
        });
        other
    }

    /// Serves one member, if it still exists; true if there was work.
    pub(crate) fn poll_member(&self, id: u32) -> bool {
        self.member(id).is_some_and(|member| member.poll_as_other())
    }

    /// A member is no longer polled: its socket is registered again, if it was not.
    pub(crate) fn watch_again(&self, id: u32) {
        if let Some(member) = self.member(id) {
            member.stays_unregistered(None);
        }
    }

    /// A consumer relies on notifications: from now on the engine's thread watches without back-off,
    /// until [`Engine::end_events`].
    pub(crate) fn begin_events(&self) {
        if self.progress.rely() {
            self.alarm.set(0, 0);
        }
    }

    /// The consumer polls instead.
    pub(crate) fn end_events(&self) {
        self.progress.withdraw();
    }

    /// True while some consumer relies on notifications.
    pub(crate) fn has_events(&self) -> bool {
        self.progress.is_relied_on()
    }

    /// Wakes the threads that wait for `waited`; called after publishing, if any were announced.
    pub(crate) fn wake(&self, waited: &dyn Waited) {
        self.leadership.wake(waited);
    }

    /// Sleeps, as the leader or as a follower, until `done` (after a [`Engine::wake`] of `waited`), the
    /// deadline, or a signal. The leader calls `linger` each time it wakes, before it sleeps again.
    pub(crate) fn wait(
        &self,
        waited: &dyn Waited,
        deadline: Option<Instant>,
        done: impl Fn() -> bool,
        linger: impl Fn(),
    ) -> Slept {
        self.count_sleep();
        let (left, slept) = self.leadership.wait(
            waited,
            done,
            || deadline.map(|at| at.saturating_duration_since(Instant::now())),
            |left, awake| {
                let slept = self.serve(left, awake, By::Leader, |_| {});
                if slept == Slept::Woken {
                    linger();
                }
                slept
            },
        );
        let back_off = if self.has_events() { 0 } else { tuning::BACK_OFF_NS };
        self.hand_back(left, back_off);
        slept
    }

    /// A leader has left. If no other thread watches the sockets, the engine's thread does in `back_off`
    /// nanoseconds.
    fn hand_back(&self, left: Departure, back_off: u64) {
        if left == Departure::Unwatched && self.progress.is_unwatched() {
            let now = self.now();
            self.alarm.set(now + back_off, now);
        }
    }

    /// One `epoll_wait`, and the handling of its events; `served` is called for each with its member's id.
    fn serve(
        &self,
        timeout: Option<Duration>,
        awake: &dyn Fn(),
        by: By,
        mut served: impl FnMut(u32),
    ) -> Slept {
        let mut events = [const { MaybeUninit::uninit() }; tuning::EVENTS];
        let timeout = timeout.map(kal_os::timespec);
        let ready = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        awake();
        let ready = match ready {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Slept::Signal,
            Err(_) => return Slept::Woken,
        };
        for event in ready {
            match event.data.u64() {
                WAKEUP if by == By::Leader => self.leadership.waker().clear(),
                // The wake-up is meant for the leader, if there is one.
                WAKEUP => self.leadership.without_leader(WakeupFd::clear),
                token => {
                    self.serve_member(token, event.flags);
                    served(token as u32);
                }
            }
        }
        Slept::Woken
    }

    fn serve_member(&self, token: u64, flags: epoll::EventFlags) {
        use epoll::EventFlags as E;
        let room = if token & DOORBELL != 0 { E::IN } else { E::OUT };
        if let Some(member) = self.member(token as u32) {
            member.on_ready(Ready {
                life_line: token & LIFE_LINE != 0,
                writable: flags.contains(room),
                over: flags.intersects(E::RDHUP | E::HUP | E::ERR),
            });
        }
    }

    fn member(&self, id: u32) -> Option<Arc<dyn Member>> {
        let members = self.members.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.get(&id).cloned()
    }
}

fn life_line(id: u32) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(id) | LIFE_LINE)
}

/// What the engine watches for a member.
pub(crate) trait Watched: AsFd {
    /// A ring of a doorbell ([`kal_os::ring`]) is an event of room to write there, and never one of octets.
    fn is_doorbell(&self) -> bool {
        false
    }

    /// Events of data to read and of its end.
    fn octets(&self) -> epoll::EventFlags {
        use epoll::EventFlags as E;
        if self.is_doorbell() { E::OUT | E::ET } else { octets() }
    }

    /// The event that reports room to send.
    fn room(&self) -> epoll::EventFlags {
        use epoll::EventFlags as E;
        if self.is_doorbell() { E::IN } else { E::OUT }
    }

    fn token(&self, id: u32) -> epoll::EventData {
        let doorbell = if self.is_doorbell() { DOORBELL } else { 0 };
        epoll::EventData::new_u64(u64::from(id) | doorbell)
    }
}

impl Watched for OwnedFd {}

/// Events of data to read and of its end, of a socket.
fn octets() -> epoll::EventFlags {
    use epoll::EventFlags as E;
    E::IN | E::RDHUP | E::ET
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "engine_tests.rs"]
mod tests;
