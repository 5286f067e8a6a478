//! Sockets that are not in the engine's epoll set because a thread polls them all the time.
//!
//! Each packet for a socket in an epoll set calls the set's callback in the thread of the peer that
//! sends it: 3 % of a half round trip. So a QP that is polled without pause removes its socket from the
//! set. There is one list of such QPs, by id, per engine: pollers add to it under their QP's lock, and
//! the engine's thread empties it. Room for a QP is made when it is attached, so a poller allocates
//! nothing. The poller detects the death of a peer.
//!
//! No socket stays unregistered without being polled. It is removed only during a back-off of the
//! engine's thread; when the back-off ends, the thread registers again those that were not polled
//! meanwhile, or all if no other back-off follows. A thread that goes to sleep or relies on a
//! notification registers its own sockets again.

use crate::sync::{Mutex, lock};

/// The list.
pub(super) struct Unregistered(Mutex<List>);

struct List {
    /// The engine's thread processes the list when its back-off ends.
    backing_off: bool,
    ids: Vec<u32>,
}

impl Unregistered {
    /// An empty list.
    pub(super) fn new() -> Self {
        Self(Mutex::new(List { backing_off: false, ids: Vec::new() }))
    }

    /// Makes room for this many QPs; false: there is no memory for that.
    pub(super) fn reserve(&self, qps: usize) -> bool {
        let ids = &mut lock(&self.0).ids;
        ids.try_reserve(qps.saturating_sub(ids.len())).is_ok()
    }

    /// Adds a QP; false if its socket must stay in the set.
    pub(super) fn add(&self, id: u32) -> bool {
        let mut list = lock(&self.0);
        if list.backing_off && !list.ids.contains(&id) {
            list.ids.push(id);
        }
        list.backing_off
    }

    /// Moves the list's ids to `taken`. `backing_off`: more may be added until the next call.
    pub(super) fn take(&self, backing_off: bool, taken: &mut Vec<u32>) {
        let mut list = lock(&self.0);
        list.backing_off = backing_off;
        taken.append(&mut list.ids);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn taken(unregistered: &Unregistered, backing_off: bool) -> Vec<u32> {
        let mut taken = Vec::new();
        unregistered.take(backing_off, &mut taken);
        taken
    }

    #[test]
    fn takes_while_the_engine_backs_off() {
        let unregistered = Unregistered::new();
        assert!(!unregistered.add(1));
        assert!(taken(&unregistered, true).is_empty());
        assert!(unregistered.add(1) && unregistered.add(2) && unregistered.add(1));
        assert_eq!(taken(&unregistered, true), [1, 2]);
        assert!(unregistered.add(2));
        assert_eq!(taken(&unregistered, false), [2]);
        assert!(!unregistered.add(2));
    }

    #[test]
    fn keeps_its_room() {
        let unregistered = Unregistered::new();
        assert!(unregistered.reserve(100));
        let room = || lock(&unregistered.0).ids.capacity();
        let before = room();
        assert!(before >= 100);
        for _ in 0..3 {
            taken(&unregistered, true);
            assert!((0..100).all(|id| unregistered.add(id)));
            unregistered.reserve(100);
        }
        assert_eq!(room(), before);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::sync::Mutex;
    use kal_os::progress::{Mode, Progress};
    use loom::sync::Arc;
    use loom::thread;

    /// A poller removes its socket and stops polling while the engine decides: either the socket is in
    /// the set again, or the engine checks once more.
    #[test]
    fn loom_no_socket_stays_unregistered() {
        loom::model(|| {
            let (progress, unregistered) =
                (Arc::new(Progress::new()), Arc::new(Unregistered::new()));
            // True: the socket is in the set. Under the QP's lock.
            let socket = Arc::new(Mutex::new(true));
            progress.mark_polled();
            assert_eq!(progress.decide(|| false), Mode::BackOff);
            let mut taken = Vec::new();
            unregistered.take(true, &mut taken);
            assert!(taken.is_empty());
            let poller = {
                let (progress, unregistered, socket) =
                    (progress.clone(), unregistered.clone(), socket.clone());
                thread::spawn(move || {
                    progress.mark_polled();
                    let mut socket = lock(&socket);
                    *socket = !unregistered.add(1);
                })
            };
            let mode = progress.decide(|| false);
            unregistered.take(mode == Mode::BackOff, &mut taken);
            for _ in taken {
                *lock(&socket) = true;
            }
            poller.join().unwrap();
            assert!(mode == Mode::BackOff || *lock(&socket));
        });
    }
}
