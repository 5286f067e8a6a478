//! What the engine's own thread is to do: it watches the sockets exactly when nobody else does.
//!
//! One per engine. Written by application threads as they come and go, read by the engine's thread.
//! An application thread never waits for the engine here, and wakes it (through the alarm) only
//! when the engine is not watching already.

use crate::sync::{AtomicBool, AtomicU32, Ordering, fence};

/// The engine thread's mode until its next alarm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProgressMode {
    /// Sleep on the sockets and serve them.
    Watch,
    /// Application threads poll: serve what they left, then stay away for a moment.
    BackOff,
    /// A leader watches the sockets: sleep until the alarm.
    Rest,
}

/// Who watches the sockets.
pub(crate) struct Progress {
    /// An application thread has polled since the engine last looked.
    polled: AtomicBool,
    /// The engine's thread sleeps on the sockets, or is about to.
    watching: AtomicBool,
    /// CQs whose consumers sleep until they are notified.
    armed: AtomicU32,
}

impl Progress {
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

    /// The engine's next mode. Whoever changes the answer later finds `is_unwatched` right.
    pub(crate) fn decide(&self, has_leader: impl Fn() -> bool) -> ProgressMode {
        self.watching.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_leader() {
            return ProgressMode::Rest;
        }
        if self.polled.swap(false, Ordering::Relaxed) && !self.has_events() {
            return ProgressMode::BackOff;
        }
        self.watching.store(true, Ordering::Relaxed);
        ProgressMode::Watch
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_engine_naps_while_all_poll() {
        let progress = Progress::new();
        let decide = || {
            progress.note_poll();
            progress.decide(|| false)
        };
        assert_eq!(decide(), ProgressMode::BackOff);
        progress.begin_events();
        assert_eq!(decide(), ProgressMode::Watch);
        progress.end_events();
        assert_eq!(decide(), ProgressMode::BackOff);
    }

    // Who relies on it wakes the engine, unless it watches.
    #[test]
    fn it_is_watched_while_the_engine_says_so() {
        let progress = Progress::new();
        assert!(progress.is_unwatched() && progress.begin_events());
        for (has_leader, mode) in [(false, ProgressMode::Watch), (true, ProgressMode::Rest)] {
            assert_eq!(progress.decide(|| has_leader), mode);
            assert_eq!(progress.is_unwatched(), has_leader);
            assert_eq!(progress.begin_events(), has_leader);
        }
        let progress = Progress::new();
        progress.note_poll();
        assert_eq!(progress.decide(|| false), ProgressMode::BackOff);
        assert!(progress.is_unwatched());
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
            let progress = Arc::new(Progress::new());
            let leader = Arc::new(crate::sync::Mutex::new(true));
            assert_eq!(progress.decide(|| false), ProgressMode::Watch);
            let leaver = {
                let (progress, leader) = (progress.clone(), leader.clone());
                thread::spawn(move || {
                    *crate::sync::lock(&leader) = false;
                    progress.is_unwatched()
                })
            };
            let mode = progress.decide(|| *crate::sync::lock(&leader));
            let alarm = leaver.join().unwrap();
            assert!(mode == ProgressMode::Watch || alarm);
        });
    }

    /// A consumer arms a notification while the engine decides to back off.
    #[test]
    fn loom_armed_consumer_gets_the_engine() {
        loom::model(|| {
            let progress = Arc::new(Progress::new());
            assert_eq!(progress.decide(|| false), ProgressMode::Watch);
            progress.note_poll();
            let consumer = {
                let progress = progress.clone();
                thread::spawn(move || progress.begin_events())
            };
            let mode = progress.decide(|| false);
            let alarm = consumer.join().unwrap();
            assert!(mode == ProgressMode::Watch || alarm);
        });
    }
}
