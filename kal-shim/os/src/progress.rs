//! Who watches the sockets: the thread that owns them, a leader among the waiting threads, or threads that poll.
//!
//! One [`Progress`] for each thread that serves sockets: a provider's engine, and a connection manager. The
//! thread decides, each time before it rests, what it is to do ([`Mode`]); other threads say what they do:
//!
//! - one that polls serves the sockets itself ([`Progress::note_poll`]): the thread backs off, so as not to
//!   fight for them;
//! - a leader sleeps on the sockets in the thread's place: the thread rests;
//! - one that relies on being told sleeps elsewhere ([`Progress::rely`], until [`Progress::withdraw`]): the
//!   thread watches, whoever else polls.
//!
//! No lock, and no thread waits for the other. No wake-up is lost: a thread that relies, or a leader that
//! leaves, says so, *then* looks whether the sockets are watched; the thread takes back that it watches,
//! *then* looks for leaders and for who relies on it. Both put a sequentially consistent fence between the
//! two steps, so at least one sees the other. Peers have no part in it.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// What the thread does until it is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Sleep on the sockets and serve them.
    Watch,
    /// Application threads poll: serve what they left, then stay away for a moment.
    BackOff,
    /// A leader watches the sockets: sleep until the alarm.
    Rest,
}

/// See the module.
#[derive(Default)]
pub struct Progress {
    /// A thread has polled since the last decision.
    polled: AtomicBool,
    /// The thread sleeps on the sockets, or decides again before it sleeps.
    watching: AtomicBool,
    /// So many rely on it.
    relying: AtomicU32,
}

impl Progress {
    /// Nobody polls, nobody watches.
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

    /// Somebody relies on being told from now on: true if the thread must be woken for that.
    pub fn rely(&self) -> bool {
        self.relying.fetch_add(1, Ordering::Relaxed);
        self.is_unwatched()
    }

    /// It relies on the thread no more.
    pub fn withdraw(&self) {
        self.relying.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether anybody relies on it.
    pub fn is_relied_on(&self) -> bool {
        self.relying.load(Ordering::Relaxed) != 0
    }

    /// True if the thread does not watch; asked after a leader has left.
    pub fn is_unwatched(&self) -> bool {
        // Against `decide`: it says that it does not watch before it looks, we look after our change.
        fence(Ordering::SeqCst);
        !self.watching.load(Ordering::Relaxed)
    }

    /// The thread's next mode. Whoever changes what it depends on later finds `is_unwatched` right.
    pub fn decide(&self, has_leader: impl Fn() -> bool) -> Mode {
        self.watching.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_leader() {
            return Mode::Rest;
        }
        if self.polled.swap(false, Ordering::Relaxed) && !self.is_relied_on() {
            return Mode::BackOff;
        }
        self.watching.store(true, Ordering::Relaxed);
        Mode::Watch
    }

    /// The thread is awake, and decides again before it rests: nobody need wake it.
    pub fn rise(&self) {
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

    // Who relies on the thread wakes it, unless it watches.
    #[test]
    fn it_is_watched_while_the_thread_says_so() {
        let progress = Progress::new();
        assert!(progress.is_unwatched() && progress.rely());
        for (has_leader, mode) in [(false, Mode::Watch), (true, Mode::Rest)] {
            assert_eq!(progress.decide(|| has_leader), mode);
            assert_eq!(progress.is_unwatched(), has_leader);
            assert_eq!(progress.rely(), has_leader);
        }
        let progress = Progress::new();
        progress.note_poll();
        assert_eq!(progress.decide(|| false), Mode::BackOff);
        assert!(progress.is_unwatched());
        progress.rise();
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

    /// Somebody relies on the thread while it decides to back off.
    #[test]
    fn loom_who_relies_on_the_thread_gets_it() {
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

    /// All at once, behind a back-off: a poller, a leader that leaves, and somebody who relies on the thread.
    #[test]
    fn loom_a_poller_a_leader_and_who_relies() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let progress = Arc::new(Progress::new());
            let leader = Arc::new(crate::sync::Mutex::new(true));
            progress.rise();
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
            progress.rise();
            assert_eq!(progress.decide(|| *crate::sync::lock(&leader)), Mode::Watch);
        });
    }
}
