//! Arbiter of progress: the sockets are watched by the thread that owns them, a leader among the waiting
//! threads, or threads that poll.
//!
//! One [`Progress`] for each thread that serves sockets: that of a provider's engine, and that of a
//! connection manager. Each time before it waits, the thread decides how ([`Mode`]); other threads
//! announce what they do:
//!
//! - a thread that polls serves the sockets itself ([`Progress::note_poll`]): the thread backs off, so
//!   as not to compete for them;
//! - a leader sleeps on the sockets in the thread's place: the thread sleeps until its timer;
//! - a thread that relies on notifications sleeps elsewhere ([`Progress::rely`], until
//!   [`Progress::withdraw`]): the thread watches, whatever others poll.
//!
//! No lock, and no thread waits for the other. No wake-up is lost: a thread that relies, or a leader that
//! leaves, announces it, *then* checks whether the sockets are watched; the thread announces that it does not
//! watch, *then* looks for leaders and for threads that rely on it. Both execute a sequentially consistent
//! fence between the two steps, so at least one sees the other. Peers play no part.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// What the thread does until it is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Sleep on the sockets and serve them.
    Watch,
    /// Application threads poll: serve what is ready, then stay away for a moment.
    BackOff,
    /// A leader watches the sockets: sleep until the timer expires.
    Sleep,
}

/// Which threads serve the sockets of one engine or manager.
#[derive(Default)]
pub struct Progress {
    /// A thread has polled since the last decision.
    polled: AtomicBool,
    /// The thread sleeps on the sockets, or decides again before it sleeps.
    watching: AtomicBool,
    /// Number of threads that rely on notifications.
    relying: AtomicU32,
}

impl Progress {
    /// No thread polls or watches.
    pub fn new() -> Self {
        Self::default()
    }

    /// The calling thread polls the sockets itself.
    #[inline]
    pub fn note_poll(&self) {
        // Mostly read, so that pollers on several cores share the cache line.
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// A thread relies on notifications from now on. Returns true if the socket thread must be woken for it.
    pub fn rely(&self) -> bool {
        self.relying.fetch_add(1, Ordering::Relaxed);
        self.is_unwatched()
    }

    /// It no longer relies on the socket thread.
    pub fn withdraw(&self) {
        self.relying.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether any thread relies on notifications.
    pub fn is_relied_on(&self) -> bool {
        self.relying.load(Ordering::Relaxed) != 0
    }

    /// True if the socket thread does not watch; called after a leader has left.
    pub fn is_unwatched(&self) -> bool {
        // Against `decide`: that thread announces that it does not watch before it looks; we look after our change.
        fence(Ordering::SeqCst);
        !self.watching.load(Ordering::Relaxed)
    }

    /// The next mode. A thread that changes an input of it later gets a correct result from `is_unwatched`.
    pub fn decide(&self, has_leader: impl Fn() -> bool) -> Mode {
        self.watching.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_leader() {
            return Mode::Sleep;
        }
        if self.polled.swap(false, Ordering::Relaxed) && !self.is_relied_on() {
            return Mode::BackOff;
        }
        self.watching.store(true, Ordering::Relaxed);
        Mode::Watch
    }

    /// The thread is awake and decides again before it waits: no other need wake it.
    pub fn end_wait(&self) {
        self.watching.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_thread_backs_off_while_all_poll() {
        let progress = Progress::new();
        let decide = || {
            progress.note_poll();
            progress.decide(|| false)
        };
        assert_eq!(decide(), Mode::BackOff);
        progress.rely();
        assert_eq!(decide(), Mode::Watch);
        progress.withdraw();
        assert_eq!(decide(), Mode::BackOff);
    }

    // A thread that relies on it wakes it, unless it watches.
    #[test]
    fn it_is_watched_while_the_thread_says_so() {
        let progress = Progress::new();
        assert!(progress.is_unwatched() && progress.rely());
        for (has_leader, mode) in [(false, Mode::Watch), (true, Mode::Sleep)] {
            assert_eq!(progress.decide(|| has_leader), mode);
            assert_eq!(progress.is_unwatched(), has_leader);
            assert_eq!(progress.rely(), has_leader);
        }
        let progress = Progress::new();
        progress.note_poll();
        assert_eq!(progress.decide(|| false), Mode::BackOff);
        assert!(progress.is_unwatched());
        progress.end_wait();
        assert!(!progress.is_unwatched());
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A leader leaves while the thread decides: the thread watches, or is woken.
    #[test]
    fn loom_sockets_never_stay_unwatched() {
        loom::model(|| {
            let progress = Arc::new(Progress::new());
            let leader = Arc::new(crate::sync::Mutex::new(true));
            assert_eq!(progress.decide(|| false), Mode::Watch);
            let leaver = {
                let (progress, leader) = (progress.clone(), leader.clone());
                thread::spawn(move || {
                    *crate::sync::lock(&leader) = false;
                    progress.is_unwatched()
                })
            };
            let mode = progress.decide(|| *crate::sync::lock(&leader));
            let alarm = leaver.join().unwrap();
            assert!(mode == Mode::Watch || alarm);
        });
    }

    /// A thread begins to rely on it while it decides to back off.
    #[test]
    fn loom_a_thread_that_relies_on_the_engine_gets_its_events() {
        loom::model(|| {
            let progress = Arc::new(Progress::new());
            assert_eq!(progress.decide(|| false), Mode::Watch);
            progress.note_poll();
            let consumer = {
                let progress = progress.clone();
                thread::spawn(move || progress.rely())
            };
            let mode = progress.decide(|| false);
            let alarm = consumer.join().unwrap();
            assert!(mode == Mode::Watch || alarm);
        });
    }

    /// All at once, after a back-off: a poller, a leader that leaves, and a thread that begins to rely on it.
    #[test]
    fn loom_a_poller_a_leader_and_a_thread_that_relies_on_them() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let progress = Arc::new(Progress::new());
            let leader = Arc::new(crate::sync::Mutex::new(true));
            progress.end_wait();
            let leaver = {
                let (progress, leader) = (progress.clone(), leader.clone());
                thread::spawn(move || {
                    progress.note_poll();
                    *crate::sync::lock(&leader) = false;
                    progress.is_unwatched()
                })
            };
            let sleeper = {
                let progress = progress.clone();
                thread::spawn(move || progress.rely())
            };
            let mode = progress.decide(|| *crate::sync::lock(&leader));
            let woken = [leaver.join().unwrap(), sleeper.join().unwrap()];
            assert!(mode == Mode::Watch || woken.contains(&true));
            // Woken, it finds what it is to do.
            progress.end_wait();
            assert_eq!(progress.decide(|| *crate::sync::lock(&leader)), Mode::Watch);
        });
    }
}
