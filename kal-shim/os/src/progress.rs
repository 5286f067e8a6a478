//! Progress: which thread serves the sockets, and who wakes it.
//!
//! Two threads of ours serve sockets: a provider's engine those of its queue pairs, the thread of a connection
//! manager those of start-ups and listeners. Threads of the application serve the same sockets while they are
//! inside the library. Each of our two threads has a [`Progress`]. Each time before it waits it decides how
//! ([`Mode`]), by what the others announced:
//!
//! | another thread | what it does | what our thread does |
//! |---|---|---|
//! | polls ([`Progress::mark_polled`]) | serves the sockets, does not sleep | backs off, so as not to compete: serves what is ready, then stays away for a moment |
//! | leads ([`Leadership`]; at the engine) | one of those that wait for completions sleeps on the sockets and serves them; the others follow, each on a futex | sleeps until its timer |
//! | relies on notifications ([`Progress::rely`], until [`Progress::withdraw`]) | sleeps elsewhere: on the descriptor of an armed CQ, or on a dispatcher of connection events | watches, whatever others poll |
//! | none of these | | watches: sleeps on the sockets and serves them |
//!
//! Who wakes whom:
//!
//! | event | wakes |
//! |---|---|
//! | a thread begins to rely | our thread, unless it watches |
//! | the leader leaves | a follower, which leads; without followers our thread, unless it watches, a moment later, because the leader mostly comes back |
//! | a completion is published | of the threads that wait for that CQ, the leader and every follower |
//! | a command is sent to the connection manager, by a caller or by the engine ([`WakeState`]) | its thread, unless it is awake |
//! | a connection event is delivered | the threads that wait at its dispatcher; one that leads the engine meanwhile sleeps on a descriptor of its own, too |
//!
//! A back-off ends by its time at the latest; the owner chooses it (`tuning.rs` of SoftRDMA and of `ual-cm`).
//!
//! No lock, and no thread waits for another. No wake-up is lost: a thread that relies, or a leader that
//! leaves, announces it, *then* checks whether the sockets are watched; our thread announces that it does not
//! watch, *then* checks for leaders and for threads that rely on it. Both execute a sequentially consistent
//! fence between the two steps, so at least one sees the other. Leaders and commands follow the same rule.
//! Peers play no part. One model has all of it at once: an engine, a connection manager, a peer, and a thread that
//! connects, receives and waits for the end (`progress/loom_tests.rs`).

mod leader;
mod wake;

pub use leader::{Departure, Leadership, Waited, Waker};
pub use wake::WakeState;

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
    pub fn mark_polled(&self) {
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
        // Against `decide`: that thread announces that it does not watch before it checks; we check after our change.
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
            progress.mark_polled();
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
    fn sockets_are_watched_while_the_thread_announces_it() {
        let progress = Progress::new();
        assert!(progress.is_unwatched() && progress.rely());
        for (has_leader, mode) in [(false, Mode::Watch), (true, Mode::Sleep)] {
            assert_eq!(progress.decide(|| has_leader), mode);
            assert_eq!(progress.is_unwatched(), has_leader);
            assert_eq!(progress.rely(), has_leader);
        }
        let progress = Progress::new();
        progress.mark_polled();
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
            progress.mark_polled();
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
                    progress.mark_polled();
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

#[cfg(all(test, loom))]
#[path = "progress/loom_tests.rs"]
mod both_loom_tests;
