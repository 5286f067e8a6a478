//! The progress engine: whoever is inside the library serves the sockets; when nobody is, a thread
//! of ours does.
//!
//! One engine per RNIC. Its epoll set holds the socket of every connected QP, edge-triggered, that of
//! the watch on the ports, and a bell that ends the leader's sleep. Three kinds of thread serve it:
//!
//! - pollers ([`Engine::poll`]): never sleep;
//! - the leader among the waiters ([`Engine::wait`], [`Engine::lead`], [`leader`]): sleeps in `epoll_wait`;
//! - the engine's own thread: watches while nobody else does ([`kal_os::progress`]), and runs the timers.
//!
//! Event mode: a consumer that arms a CQ sleeps where we cannot see it, in an epoll of its own. From
//! then on the engine's thread watches without back-off, and polls of that CQ leave the sockets to it,
//! until the consumer has polled in vain a few times without arming.
//!
//! A dead peer shows as an event on its socket, a silent one by a timer of its QP.

mod alarm;
mod descriptor;
mod leader;
mod thread;
mod timers;
mod unregistered;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use vp_api::{LogLevel, Services, VpError, VpResult};

use crate::fork::Ours;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::tuning;
use alarm::Alarm;
use kal_os::progress::Progress;
use leader::{Departure, Gate, Leadership};
use timers::Timers;
use unregistered::Unregistered;

pub(crate) use kal_os::Slept;
pub(crate) use leader::Waited;
pub(crate) use timers::Timer;

/// What the engine serves: a QP, or the watch on the ports.
pub(crate) trait Member: Send + Sync {
    /// Its socket became readable, writable, or both.
    fn on_ready(&self, ready: Ready);
    /// A deadline passed that was set for the stream of this generation.
    fn on_timer(&self, stream: u32, timer: Timer);
    /// Its socket is not in the engine's set: registers it again and returns false, unless it was polled
    /// in the engine's back-off of this number.
    fn stays_unregistered(&self, _nap: Option<u32>) -> bool {
        false
    }
}

/// What became of a socket besides being readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ready {
    /// There is room to send.
    pub(crate) writable: bool,
    /// There may be an end or an error behind what can be read, so read until it shows.
    pub(crate) over: bool,
}

/// Streams at most that linger without their QPs: peers that never close hold no more descriptors.
const LINGERING: usize = 256;
/// The bell's token; QPs have their 32-bit ids.
const BELL: u64 = u64::MAX;

/// An eventfd in the epoll set, level-triggered.
struct Bell(Ours<OwnedFd>);

impl Gate for Bell {
    fn ring(&self) {
        // The counter cannot overflow in practice; if it did, it would be readable all the same.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl Bell {
    fn silence(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

/// The engine of one RNIC.
pub(crate) struct Engine {
    epoll: Ours<OwnedFd>,
    leadership: Leadership<Bell>,
    progress: Progress,
    unregistered: Unregistered,
    /// Counts what the engine's thread decided.
    back_off: AtomicU32,
    alarm: Alarm,
    timers: Timers,
    /// The id of the next stream that its QP leaves.
    parted: AtomicU32,
    /// Those that linger, the oldest first: id and generation.
    lingering: Mutex<VecDeque<(u32, u32)>>,
    members: RwLock<BTreeMap<u32, Arc<dyn Member>>>,
    services: Arc<dyn Services>,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
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
        let bell = Ours::make(|| Ok(eventfd(0, flags)?)).map_err(os("eventfd"))?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)
            .map_err(|errno| os("epoll_ctl")(errno.into()))?;
        let alarm = Alarm::new().map_err(|e| VpError::os("starting the engine: timerfd", &e))?;
        let engine = Arc::new(Self {
            epoll,
            leadership: Leadership::new(Bell(bell)),
            progress: Progress::new(),
            unregistered: Unregistered::new(),
            back_off: AtomicU32::new(0),
            alarm,
            timers: Timers::default(),
            parted: AtomicU32::new(u32::MAX),
            lingering: Mutex::new(VecDeque::with_capacity(LINGERING + 1)),
            members: RwLock::default(),
            services,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let run = engine.clone();
        let thread = kal_os::spawn(name, move || run.run())
            .map_err(|e| VpError::os("starting the progress engine's thread", &e))?;
        *lock(&engine.thread) = Some(thread);
        Ok(engine)
    }

    /// Ends the thread. QPs still attached get no service any more.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.alarm.set(0, 0);
        let thread = lock(&self.thread).take();
        // Called from the thread itself (the last reference went in a handler): it ends by itself.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }

    /// The services' clock.
    pub(crate) fn now(&self) -> u64 {
        self.services.now_ns()
    }

    /// Begins to serve a QP's socket, or with the id 0, which no QP has, the watch on the ports. Room
    /// to send is no event before the first [`Engine::rearm`]: a fresh socket has it, and each would
    /// wake the engine to say so. Returns the generation of the stream, for its deadlines.
    pub(crate) fn attach(
        &self,
        id: u32,
        member: Arc<dyn Member>,
        socket: impl AsFd,
    ) -> io::Result<u32> {
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.insert(id, member);
        let qps = members.len();
        drop(members);
        if !self.unregistered.reserve(qps) || !self.timers.reserve(qps) {
            self.forget(id);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        match epoll::add(&self.epoll, socket, token(id), octets()) {
            Ok(()) => Ok(self.timers.begin(id)),
            Err(errno) => {
                self.forget(id);
                Err(errno.into())
            }
        }
    }

    /// Ends it, and its deadlines; the socket is still open.
    pub(crate) fn detach(&self, id: u32, socket: impl AsFd) {
        self.timers.end(id);
        // It fails only if the socket was never added.
        let _ = epoll::delete(&self.epoll, socket);
        lock(&self.lingering).retain(|(lingers, _)| *lingers != id);
        self.forget(id);
    }

    fn forget(&self, id: u32) {
        let gone =
            self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
        // Dropped without the table's lock: it may be the last reference.
        drop(gone);
    }

    /// Has a stream that its QP `id` leaves served as a member of its own, which `make` makes of its
    /// id and generation. Events may have been lost between the two: it must look for itself. If too
    /// many linger the oldest ends, which had the most time.
    pub(crate) fn part(
        &self,
        id: u32,
        socket: impl AsFd,
        make: impl FnOnce(u32, u32) -> Arc<dyn Member>,
    ) {
        // QPs count up, from 1.
        let own = self.parted.fetch_sub(1, Ordering::Relaxed);
        let generation = self.timers.replace(id, own);
        let member = make(own, generation);
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.insert(own, member);
        drop(members);
        // It fails only if the socket is not in the set, and then a deadline ends it.
        let _ = epoll::modify(&self.epoll, socket, token(own), octets());
        self.forget(id);
        self.limit_lingering((own, generation));
    }

    fn limit_lingering(&self, youngest: (u32, u32)) {
        let mut lingering = lock(&self.lingering);
        lingering.push_back(youngest);
        let oldest = if lingering.len() > LINGERING { lingering.pop_front() } else { None };
        drop(lingering);
        if let Some((id, generation)) = oldest
            && let Some(member) = self.member(id)
        {
            member.on_timer(generation, Timer::Close);
        }
    }

    /// Reports the socket's readiness once more, to whoever looks next, and room to send from now
    /// on: for a QP that had its share of time and has more to do, or that waits for room.
    pub(crate) fn rearm(&self, id: u32, socket: impl AsFd) {
        let events = octets() | epoll::EventFlags::OUT;
        // It fails only if the socket is not in the set, and then nobody waits for it.
        let _ = epoll::modify(&self.epoll, socket, token(id), events);
    }

    /// The number of the present back-off of the engine's thread: it counts its decisions.
    pub(crate) fn back_off(&self) -> u32 {
        self.back_off.load(Ordering::Relaxed)
    }

    /// Takes the socket of a QP that is polled all the time out of the set; false if it must stay.
    /// Under the QP's lock.
    pub(crate) fn unregister(&self, id: u32, socket: impl AsFd) -> bool {
        let unregistered = self.unregistered.add(id);
        if unregistered {
            let _ = epoll::delete(&self.epoll, socket);
        }
        unregistered
    }

    /// Puts it back; what is ready is reported. `room`: so is room to send. False: it cannot be watched,
    /// and the log says why. Under the QP's lock.
    pub(crate) fn register_again(&self, id: u32, socket: impl AsFd, room: bool) -> bool {
        let events = if room { octets() | epoll::EventFlags::OUT } else { octets() };
        let put = epoll::add(&self.epoll, socket, token(id), events);
        if let Err(errno) = put {
            let message = format!(
                "QP {id} ends its stream, for its socket cannot be watched again: {errno}; raise \
                 fs.epoll.max_user_watches, or free memory"
            );
            self.services.log(LogLevel::Error, "softrdma::engine", &message);
        }
        put.is_ok()
    }

    /// Calls the QP `id` at `at` or a little later, unless this stream of its is over by then.
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

    /// An application thread polls: keeps the engine's thread away for a moment.
    pub(crate) fn note_poll(&self) {
        self.progress.note_poll();
    }

    /// Serves what is ready, without sleeping.
    pub(crate) fn poll(&self) {
        self.serve(Some(Duration::ZERO), &|| {}, false);
    }

    /// A consumer relies on notifications: the engine's thread watches, and does not back off, until
    /// [`Engine::end_events`].
    pub(crate) fn begin_events(&self) {
        if self.progress.rely() {
            self.alarm.set(0, 0);
        }
    }

    /// The consumer polls instead.
    pub(crate) fn end_events(&self) {
        self.progress.withdraw();
    }

    /// Some consumer relies on notifications.
    pub(crate) fn has_events(&self) -> bool {
        self.progress.is_relied_on()
    }

    /// Wakes the threads that wait for `waited`; after publishing, if any were announced.
    pub(crate) fn wake(&self, waited: &dyn Waited) {
        self.leadership.wake(waited);
    }

    /// Sleeps until `done` (after a [`Engine::wake`] of `waited`), the deadline, or a signal, as the
    /// leader or as a follower. The leader calls `linger` each time it wakes, before it sleeps again.
    pub(crate) fn wait(
        &self,
        waited: &dyn Waited,
        deadline: Option<Instant>,
        done: impl Fn() -> bool,
        linger: impl Fn(),
    ) -> Slept {
        let (left, slept) = self.leadership.wait(
            waited,
            done,
            || deadline.map(|at| at.saturating_duration_since(Instant::now())),
            |left, awake| {
                let slept = self.serve(left, awake, true);
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

    /// A leader has left: if nobody watches the sockets the engine's thread does, in `back_off` nanoseconds.
    fn hand_back(&self, left: Departure, back_off: u64) {
        if left == Departure::Unwatched && self.progress.is_unwatched() {
            let now = self.now();
            self.alarm.set(now + back_off, now);
        }
    }

    /// One `epoll_wait` and what follows from it.
    fn serve(&self, timeout: Option<Duration>, awake: &dyn Fn(), leading: bool) -> Slept {
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
                BELL if leading => self.leadership.gate().silence(),
                // Meant for the leader, if there is one.
                BELL => self.leadership.without_leader(Bell::silence),
                id => self.serve_member(id as u32, event.flags),
            }
        }
        Slept::Woken
    }

    fn serve_member(&self, id: u32, flags: epoll::EventFlags) {
        use epoll::EventFlags as E;
        if let Some(member) = self.member(id) {
            member.on_ready(Ready {
                writable: flags.contains(E::OUT),
                over: flags.intersects(E::RDHUP | E::HUP | E::ERR),
            });
        }
    }

    fn member(&self, id: u32) -> Option<Arc<dyn Member>> {
        let members = self.members.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.get(&id).cloned()
    }
}

fn token(id: u32) -> epoll::EventData {
    epoll::EventData::new_u64(id.into())
}

/// Octets, and the end of them.
fn octets() -> epoll::EventFlags {
    use epoll::EventFlags as E;
    E::IN | E::RDHUP | E::ET
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
#[path = "engine_tests.rs"]
mod tests;
