//! The progress engine: whoever is inside the library serves the sockets; when nobody is, a thread
//! of ours does.
//!
//! One engine per RNIC. Its epoll set holds the socket of every connected QP, edge-triggered, that of
//! the watch on the ports, and a bell that ends the leader's sleep. Three kinds of thread serve it:
//!
//! - pollers ([`Engine::poll`]): never sleep;
//! - the leader among the waiters ([`Engine::wait`], [`station`]): sleeps in `epoll_wait`;
//! - the engine's own thread: watches while nobody else does ([`duty`]), and runs the timers.
//!
//! A dead peer shows as an event on its socket, a silent one by a timer of its QP.

mod alarm;
mod apart;
mod chime;
mod duty;
mod station;
mod thread;
mod timers;

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use vp_api::{LogLevel, Services, VpError, VpResult};

use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use alarm::Alarm;
use apart::Apart;
use duty::Rota;
use station::{Gate, Left, Station};
use timers::Timers;

pub(crate) use chime::Slept;
pub(crate) use station::Waited;
pub(crate) use timers::Timer;

/// What the engine serves: a QP, or the watch on the ports.
pub(crate) trait Member: Send + Sync {
    /// Its socket became readable, writable, or both.
    fn on_ready(&self, ready: Ready);
    /// A deadline passed.
    fn on_timer(&self, timer: Timer);
    /// Its socket is apart from the engine's set: puts it back and answers false, unless it was polled
    /// in the engine's nap of this number.
    fn stays_apart(&self, _nap: Option<u32>) -> bool {
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

/// Events taken per `epoll_wait`.
const EVENTS: usize = 64;
/// The bell's token; QPs have their 32-bit ids.
const BELL: u64 = u64::MAX;

/// An eventfd in the epoll set, level-triggered.
struct Bell(OwnedFd);

impl Gate for Bell {
    fn ring(&self) {
        // The counter cannot overflow in practice; if it did, it would be readable all the same.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Bell {
    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// The engine of one RNIC.
pub(crate) struct Engine {
    epoll: OwnedFd,
    station: Station<Bell>,
    rota: Rota,
    apart: Apart,
    /// Counts what the engine's thread decided.
    nap: AtomicU32,
    alarm: Alarm,
    timers: Timers,
    members: RwLock<HashMap<u32, Arc<dyn Member>>>,
    services: Arc<dyn Services>,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts an engine and its thread, named `name`.
    pub(crate) fn start(services: Arc<dyn Services>, name: &str) -> VpResult<Arc<Self>> {
        let os = |what: &str| {
            let what = format!("starting the progress engine: {what}");
            move |errno: Errno| VpError::os(&what, &errno.into())
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(os("eventfd"))?;
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)
            .map_err(os("epoll_ctl"))?;
        let alarm = Alarm::new().map_err(|e| VpError::os("starting the engine: timerfd", &e))?;
        let engine = Arc::new(Self {
            epoll,
            station: Station::new(Bell(bell)),
            rota: Rota::new(),
            apart: Apart::new(),
            nap: AtomicU32::new(0),
            alarm,
            timers: Timers::default(),
            members: RwLock::default(),
            services,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let run = engine.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run.run())
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
    /// wake the engine to say so.
    pub(crate) fn attach(
        &self,
        id: u32,
        member: Arc<dyn Member>,
        socket: impl AsFd,
    ) -> io::Result<()> {
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        members.insert(id, member);
        self.apart.reserve(members.len());
        drop(members);
        let added = epoll::add(&self.epoll, socket, token(id), octets());
        added.map_err(|errno| {
            self.forget(id);
            errno.into()
        })
    }

    /// Ends it; the socket is still open.
    pub(crate) fn detach(&self, id: u32, socket: impl AsFd) {
        // It fails only if the socket was never added.
        let _ = epoll::delete(&self.epoll, socket);
        self.forget(id);
    }

    fn forget(&self, id: u32) {
        let gone =
            self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&id);
        // Dropped without the table's lock: it may be the last reference.
        drop(gone);
    }

    /// Has another member take the place of `id`, whose socket stays. Events may have been lost
    /// between the two: the new one must look for itself.
    pub(crate) fn replace(&self, id: u32, member: Arc<dyn Member>) {
        let mut members = self.members.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = members.insert(id, member);
        drop(members);
        // Without the table's lock: it may be the last reference.
        drop(old);
    }

    /// Reports the socket's readiness once more, to whoever looks next, and room to send from now
    /// on: for a QP that had its share of time and has more to do, or that waits for room.
    pub(crate) fn rearm(&self, id: u32, socket: impl AsFd) {
        let events = octets() | epoll::EventFlags::OUT;
        // It fails only if the socket is not in the set, and then nobody waits for it.
        let _ = epoll::modify(&self.epoll, socket, token(id), events);
    }

    /// The number of the present nap of the engine's thread.
    pub(crate) fn nap(&self) -> u32 {
        self.nap.load(Ordering::Relaxed)
    }

    /// Takes the socket of a QP that is polled all the time out of the set; false if it must stay.
    /// Under the QP's lock.
    pub(crate) fn set_apart(&self, id: u32, socket: impl AsFd) -> bool {
        let apart = self.apart.add(id);
        if apart {
            let _ = epoll::delete(&self.epoll, socket);
        }
        apart
    }

    /// Puts it back; what is ready is reported. `room`: so is room to send. Under the QP's lock.
    pub(crate) fn put_back(&self, id: u32, socket: impl AsFd, room: bool) {
        let events = if room { octets() | epoll::EventFlags::OUT } else { octets() };
        if let Err(errno) = epoll::add(&self.epoll, socket, token(id), events) {
            let message = format!(
                "QP {id} moves only while it is polled: its socket cannot be watched again: {errno}; \
                 raise fs.epoll.max_user_watches, or free memory"
            );
            self.services.log(LogLevel::Error, "softrdma::engine", &message);
        }
    }

    /// Calls the QP `id` at `at` or a little later, unless it is detached by then.
    pub(crate) fn set_timer(&self, at: u64, id: u32, timer: Timer) {
        let now = self.now();
        let at = timers::shared(at, now);
        self.timers.set(at, id, timer);
        self.alarm.set(at, now);
    }

    /// The next deadline.
    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.timers.next()
    }

    /// An application thread polls: keeps the engine's thread away for a moment.
    pub(crate) fn note_poll(&self) {
        self.rota.note_poll();
    }

    /// Serves what is ready, without sleeping.
    pub(crate) fn poll(&self) {
        self.serve(Some(Duration::ZERO), &|| {}, false);
    }

    /// A consumer relies on a notification: the engine's thread watches from now on.
    pub(crate) fn hand_over(&self) {
        if self.rota.hand_over() {
            self.alarm.set(0, 0);
        }
    }

    /// Wakes the threads that wait for `waited`; after publishing, if any were announced.
    pub(crate) fn wake(&self, waited: &dyn Waited) {
        self.station.wake(waited);
    }

    /// Sleeps until `done` (after a [`Engine::wake`] of `waited`), the deadline, or a signal, as the
    /// leader or as a follower.
    pub(crate) fn wait(
        &self,
        waited: &dyn Waited,
        deadline: Option<Instant>,
        done: impl Fn() -> bool,
    ) -> Slept {
        let (left, slept) = self.station.wait(
            waited,
            done,
            || deadline.map(|at| at.saturating_duration_since(Instant::now())),
            |left, awake| self.serve(left, awake, true),
        );
        if left == Left::Unguarded && self.rota.is_unwatched() {
            let now = self.now();
            self.alarm.set(now + thread::NAP_NS, now);
        }
        slept
    }

    /// One `epoll_wait` and what follows from it.
    fn serve(&self, timeout: Option<Duration>, awake: &dyn Fn(), leading: bool) -> Slept {
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let timeout = timeout.map(timespec);
        let ready = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        awake();
        let ready = match ready {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Slept::Signalled,
            Err(_) => return Slept::Awake,
        };
        for event in ready {
            match event.data.u64() {
                BELL if leading => self.station.gate().silence(),
                // Meant for the leader, if there is one.
                BELL => self.station.without_leader(Bell::silence),
                id => self.serve_member(id as u32, event.flags),
            }
        }
        Slept::Awake
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

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
