//! What the engine's own thread is to do: it guards the sockets exactly when nobody else does.
//!
//! One per engine. Written by application threads as they come and go, read by the engine's thread.
//! An application thread never waits for the engine here, and wakes it (through the alarm) only
//! when the engine is not watching already.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// The engine thread's duty until its next alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Duty {
    /// Sleep on the sockets and serve them.
    Watch,
    /// Application threads poll: serve what they leave lying, then stay away for a moment.
    Nap,
    /// A leader guards the sockets: sleep until the alarm.
    Rest,
}

/// Who guards the sockets.
pub(crate) struct Rota {
    /// An application thread has polled since the engine last looked.
    polled: AtomicBool,
    /// The engine's thread sleeps on the sockets, or is about to.
    watching: AtomicBool,
    /// CQs whose consumers sleep until they are notified.
    armed: AtomicU32,
}

impl Rota {
    /// Nobody polls, nobody watches.
    pub(crate) fn new() -> Self {
        let (polled, watching) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { polled, watching, armed: AtomicU32::new(0) }
    }

    /// An application thread polls the sockets itself.
    #[inline]
    pub(crate) fn note_poll(&self) {
        // Mostly read, so that pollers on several cores share the cache line.
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// A consumer relies on notifications from now on: true if the engine must be woken for it.
    pub(crate) fn begin_events(&self) -> bool {
        self.armed.fetch_add(1, Ordering::Relaxed);
        self.is_unwatched()
    }

    /// It polls instead.
    pub(crate) fn end_events(&self) {
        self.armed.fetch_sub(1, Ordering::Relaxed);
    }

    /// Some consumer relies on notifications.
    pub(crate) fn has_events(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != 0
    }

    /// True if the engine does not watch; asked after a leader has left.
    pub(crate) fn is_unwatched(&self) -> bool {
        // Against `decide`: it takes back its word before it looks, we look after our change.
        fence(Ordering::SeqCst);
        !self.watching.load(Ordering::Relaxed)
    }

    /// The engine's next duty. Whoever changes the answer later finds `is_unwatched` right.
    pub(crate) fn decide(&self, has_leader: impl Fn() -> bool) -> Duty {
        self.watching.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_leader() {
            return Duty::Rest;
        }
        if self.polled.swap(false, Ordering::Relaxed) && !self.has_events() {
            return Duty::Nap;
        }
        self.watching.store(true, Ordering::Relaxed);
        Duty::Watch
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_engine_naps_while_all_poll() {
        let rota = Rota::new();
        let decide = || {
            rota.note_poll();
            rota.decide(|| false)
        };
        assert_eq!(decide(), Duty::Nap);
        rota.begin_events();
        assert_eq!(decide(), Duty::Watch);
        rota.end_events();
        assert_eq!(decide(), Duty::Nap);
    }

    // Who relies on it wakes the engine, unless it watches.
    #[test]
    fn it_is_watched_while_the_engine_says_so() {
        let rota = Rota::new();
        assert!(rota.is_unwatched() && rota.begin_events());
        for (has_leader, duty) in [(false, Duty::Watch), (true, Duty::Rest)] {
            assert_eq!(rota.decide(|| has_leader), duty);
            assert_eq!(rota.is_unwatched(), has_leader);
            assert_eq!(rota.begin_events(), has_leader);
        }
        let rota = Rota::new();
        rota.note_poll();
        assert_eq!(rota.decide(|| false), Duty::Nap);
        assert!(rota.is_unwatched());
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// A leader leaves while the engine decides: the engine watches, or the alarm is set.
    #[test]
    fn loom_sockets_never_stay_unguarded() {
        loom::model(|| {
            let rota = Arc::new(Rota::new());
            let leader = Arc::new(crate::sync::Mutex::new(true));
            assert_eq!(rota.decide(|| false), Duty::Watch);
            let leaver = {
                let (rota, leader) = (rota.clone(), leader.clone());
                thread::spawn(move || {
                    *crate::sync::lock(&leader) = false;
                    rota.is_unwatched()
                })
            };
            let duty = rota.decide(|| *crate::sync::lock(&leader));
            let alarm = leaver.join().unwrap();
            assert!(duty == Duty::Watch || alarm);
        });
    }

    /// A consumer arms a notification while the engine decides to nap.
    #[test]
    fn loom_armed_consumer_gets_the_engine() {
        loom::model(|| {
            let rota = Arc::new(Rota::new());
            assert_eq!(rota.decide(|| false), Duty::Watch);
            rota.note_poll();
            let consumer = {
                let rota = rota.clone();
                thread::spawn(move || rota.begin_events())
            };
            let duty = rota.decide(|| false);
            let alarm = consumer.join().unwrap();
            assert!(duty == Duty::Watch || alarm);
        });
    }
}
