//! Waiting for descriptors, timers and other threads at once (epoll, eventfd, timerfd).
//!
//! The holder of a [`Reactor`] owns its state. A thread sleeps at its [`Sleeper`] without it, so that
//! others may change and serve it meanwhile. Descriptors are level-triggered: an event that is not
//! handled is reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kal_os::fork::Ours;
use kal_os::{Timer, timespec};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::clock;
use crate::fork::Host;
use crate::notifier::Notifier;

/// What to wait for on a descriptor. Errors and hang-ups are always reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Interest {
    pub readable: bool,
    pub writable: bool,
}

#[allow(missing_docs)]
impl Interest {
    pub const READ: Self = Self { readable: true, writable: false };
    pub const NONE: Self = Self { readable: false, writable: false };
    pub const WRITE: Self = Self { readable: false, writable: true };

    fn epoll(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.readable);
        flags.set(EventFlags::OUT, self.writable);
        flags
    }
}

/// Something to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// A descriptor can be read, written, or has an error or hang-up (which a read or write returns).
    Io {
        /// As registered.
        token: u64,
    },
    /// A timer expired, and is removed.
    Timer {
        /// As set.
        token: u64,
    },
}

/// Tokens of the reactor's own descriptors; users' tokens are below.
const WAKER: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Reported events that were not taken yet.
#[derive(Debug, Default)]
pub struct Fired(Vec<u64>);

/// Where a thread sleeps until there is an event, and where other threads add descriptors.
#[derive(Clone, Debug)]
pub struct Sleeper(Arc<Epoll>);

/// Readable while there is something to report: to be watched by another reactor.
impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

#[derive(Debug)]
struct Epoll {
    fd: Ours<Host, OwnedFd>,
    /// Tests make the kernel refuse descriptors, as it does at its limit of watches.
    #[cfg(feature = "faults")]
    refuses: std::sync::atomic::AtomicBool,
}

impl Sleeper {
    /// Sleeps until an event is reported, or spuriously less. For [`Reactor::take`].
    pub fn sleep(&self, fired: &mut Fired) -> io::Result<()> {
        self.wait(None, fired)
    }

    /// The same without sleeping.
    pub fn poll(&self, fired: &mut Fired) -> io::Result<()> {
        self.wait(Some(&timespec(Duration::ZERO)), fired)
    }

    /// As [`Reactor::add`], from any thread.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        #[cfg(feature = "faults")]
        if self.0.refuses.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Errno::NOSPC.into());
        }
        Ok(epoll::add(&self.0.fd, fd, EventData::new_u64(token), interest.epoll())?)
    }

    /// From now on no descriptor is added, or all are again.
    #[cfg(feature = "faults")]
    pub fn refuse_watches(&self, refuse: bool) {
        self.0.refuses.store(refuse, std::sync::atomic::Ordering::Relaxed);
    }

    fn wait(&self, timeout: Option<&Timespec>, fired: &mut Fired) -> io::Result<()> {
        let mut buffer = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        match epoll::wait(&self.0.fd, &mut buffer, timeout) {
            Ok((events, _)) => fired.0.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Waits for descriptors, timers and a waker.
pub struct Reactor {
    epoll: Sleeper,
    waker: Arc<Notifier>,
    timer: Ours<Host, Timer>,
    due: BTreeSet<(Instant, u64)>,
    timers: BTreeMap<u64, Instant>,
    armed: Option<Instant>,
}

impl Reactor {
    /// An empty reactor: three descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = Ours::make(|| Ok(epoll::create(CreateFlags::CLOEXEC)?))?;
        let waker = Arc::new(Notifier::new()?);
        let timer = Ours::make(Timer::new)?;
        epoll::add(&epoll, waker.as_fd(), EventData::new_u64(WAKER), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        let epoll = Sleeper(Arc::new(Epoll {
            fd: epoll,
            #[cfg(feature = "faults")]
            refuses: false.into(),
        }));
        Ok(Self { epoll, waker, timer, due: BTreeSet::new(), timers: BTreeMap::new(), armed: None })
    }

    /// Where to sleep.
    pub fn sleeper(&self) -> Sleeper {
        self.epoll.clone()
    }

    /// For other threads: [`Notifier::signal`] ends the sleep.
    pub fn waker(&self) -> Arc<Notifier> {
        self.waker.clone()
    }

    /// Reports `fd` as `token` from now on.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        self.epoll.add(fd, token, interest)
    }

    /// Changes the interest in `fd`.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll.0.fd, fd, EventData::new_u64(token), interest.epoll())?)
    }

    /// Reports `fd` no more. Closing a descriptor does this too.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll.0.fd, fd)?)
    }

    /// Sets the one timer of `token`, replacing an earlier one.
    pub fn set_timer(&mut self, token: u64, at: Instant) {
        self.clear_timer(token);
        self.timers.insert(token, at);
        self.due.insert((at, token));
    }

    /// Clears the timer of `token`, if there is one.
    pub fn clear_timer(&mut self, token: u64) {
        if let Some(at) = self.timers.remove(&token) {
            self.due.remove(&(at, token));
        }
    }

    /// Appends the present events, without sleeping. The waker's signal stays for the sleeper.
    pub fn poll(&mut self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut fired = Fired::default();
        self.epoll.poll(&mut fired)?;
        fired.0.retain(|token| *token != WAKER);
        self.take(&mut fired, ready);
        Ok(())
    }

    /// Appends the events that a sleeper found. Other threads may have handled many of them meanwhile.
    pub fn take(&mut self, fired: &mut Fired, ready: &mut Vec<Ready>) {
        for token in fired.0.drain(..) {
            match token {
                WAKER => {
                    self.waker.clear();
                }
                TIMER => {
                    self.armed = None;
                    self.timer.acknowledge();
                }
                token => ready.push(Ready::Io { token }),
            }
        }
        self.expire(ready);
    }

    fn expire(&mut self, ready: &mut Vec<Ready>) {
        let now = Instant::now();
        while let Some(&(at, token)) = self.due.first() {
            if at > now {
                break;
            }
            self.clear_timer(token);
            ready.push(Ready::Timer { token });
        }
    }

    /// Sets the timer descriptor to the first timer, or earlier: a timer that was cleared meanwhile
    /// costs a check at its time, and not two system calls. Called after changes, before a sleep.
    pub fn arm(&mut self) -> io::Result<()> {
        let Some(&(first, _)) = self.due.first() else { return Ok(()) };
        if self.armed.is_some_and(|armed| armed <= first) {
            return Ok(());
        }
        self.timer.set(first.saturating_duration_since(Instant::now()))?;
        self.armed = Some(first);
        Ok(())
    }
}

/// True if `fd` is readable now.
pub fn readable(fd: BorrowedFd<'_>) -> bool {
    ready_within(fd, Interest::READ, Duration::ZERO)
}

/// True once `fd` is ready (or has an error), false after `timeout`.
pub fn ready_within(fd: BorrowedFd<'_>, interest: Interest, timeout: Duration) -> bool {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.readable);
    flags.set(PollFlags::OUT, interest.writable);
    let deadline = clock::after(timeout);
    loop {
        let left = timespec(deadline.saturating_duration_since(Instant::now()));
        match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&left)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(reactor: &mut Reactor) -> Vec<Ready> {
        let (mut fired, mut ready) = (Fired::default(), Vec::new());
        while ready.is_empty() {
            reactor.arm().unwrap();
            reactor.sleeper().sleep(&mut fired).unwrap();
            reactor.take(&mut fired, &mut ready);
        }
        ready
    }

    #[test]
    fn timers_go_off_once_and_in_order() {
        let mut reactor = Reactor::new().unwrap();
        let now = Instant::now();
        let ms = Duration::from_millis;
        reactor.set_timer(3, now + ms(30));
        reactor.set_timer(1, now + ms(500));
        reactor.set_timer(1, now + ms(1));
        reactor.set_timer(2, now + ms(10));
        reactor.set_timer(4, now + ms(20));
        reactor.clear_timer(4);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            seen.extend(next(&mut reactor));
        }
        let order = [1, 2, 3].map(|token| Ready::Timer { token });
        assert_eq!(seen, order);
        assert!(Instant::now() >= now + ms(30));
        assert!(reactor.timers.is_empty() && reactor.due.is_empty());
    }

    #[test]
    fn a_timer_in_the_past_goes_off() {
        let mut reactor = Reactor::new().unwrap();
        reactor.set_timer(1, Instant::now());
        assert_eq!(next(&mut reactor), [Ready::Timer { token: 1 }]);
    }

    #[test]
    fn other_threads_wake_it() {
        let mut reactor = Reactor::new().unwrap();
        let waker = reactor.waker();
        let thread = std::thread::spawn(move || waker.signal());
        let (mut fired, mut ready) = (Fired::default(), Vec::new());
        while fired.0.is_empty() {
            reactor.sleeper().sleep(&mut fired).unwrap();
        }
        thread.join().unwrap();
        // A thread that only polls leaves it to the sleeper.
        reactor.poll(&mut ready).unwrap();
        assert!(readable(reactor.waker.as_fd()));
        reactor.take(&mut fired, &mut ready);
        assert!(ready.is_empty() && !readable(reactor.waker.as_fd()));
    }

    #[test]
    fn a_polling_thread_serves_what_a_sleeping_one_would() {
        let mut reactor = Reactor::new().unwrap();
        let notifier = Notifier::new().unwrap();
        reactor.add(&notifier, 7, Interest::READ).unwrap();
        let mut ready = Vec::new();
        reactor.poll(&mut ready).unwrap();
        assert_eq!(ready, []);
        notifier.signal();
        reactor.set_timer(9, Instant::now());
        reactor.poll(&mut ready).unwrap();
        assert_eq!(ready, [Ready::Io { token: 7 }, Ready::Timer { token: 9 }]);
    }

    #[test]
    fn descriptors_are_level_triggered_until_removed() {
        let mut reactor = Reactor::new().unwrap();
        let notifier = Notifier::new().unwrap();
        reactor.add(&notifier, 7, Interest::READ).unwrap();
        notifier.signal();
        assert_eq!(next(&mut reactor), [Ready::Io { token: 7 }]);
        assert_eq!(next(&mut reactor), [Ready::Io { token: 7 }]);
        reactor.modify(&notifier, 8, Interest::WRITE).unwrap();
        assert_eq!(next(&mut reactor), [Ready::Io { token: 8 }]);
        reactor.remove(&notifier).unwrap();
        reactor.set_timer(1, Instant::now());
        assert_eq!(next(&mut reactor), [Ready::Timer { token: 1 }]);
    }
}
