//! Sockets that are apart from the engine's set, because a thread looks at them all the time.
//!
//! Each packet for a socket in an epoll set calls the set back, in the thread of the peer that sends
//! it: 3 % of a half round trip. So a QP that is polled without pause takes its socket out. One list
//! per engine, of QPs by their ids: pollers add to it, under their QP's lock; the engine's thread
//! empties it. It has room for every QP from when that is attached: who polls allocates nothing. A peer
//! that dies shows to who polls.
//!
//! No socket stays apart with nobody looking: it goes apart only while the engine's thread naps, and
//! when a nap ends the thread has those put back that nobody looked at meanwhile; all of them if it
//! does not nap again. Who goes to sleep, or relies on a notification, puts back what is its own.

use crate::sync::{Mutex, lock};

/// The list.
pub(super) struct Apart(Mutex<List>);

struct List {
    /// The engine's thread looks at the list within a nap.
    napping: bool,
    ids: Vec<u32>,
}

impl Apart {
    /// Nothing is apart.
    pub(super) fn new() -> Self {
        Self(Mutex::new(List { napping: false, ids: Vec::new() }))
    }

    /// Makes room for so many QPs; false: there is no memory for that.
    pub(super) fn reserve(&self, qps: usize) -> bool {
        let ids = &mut lock(&self.0).ids;
        ids.try_reserve(qps.saturating_sub(ids.len())).is_ok()
    }

    /// Adds a QP; false if it must stay in the set.
    pub(super) fn add(&self, id: u32) -> bool {
        let mut list = lock(&self.0);
        if list.napping && !list.ids.contains(&id) {
            list.ids.push(id);
        }
        list.napping
    }

    /// Moves the list's ids to `taken`. `napping`: until the next call more may be added.
    pub(super) fn take(&self, napping: bool, taken: &mut Vec<u32>) {
        let mut list = lock(&self.0);
        list.napping = napping;
        taken.append(&mut list.ids);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn taken(apart: &Apart, napping: bool) -> Vec<u32> {
        let mut taken = Vec::new();
        apart.take(napping, &mut taken);
        taken
    }

    #[test]
    fn takes_while_the_engine_naps() {
        let apart = Apart::new();
        assert!(!apart.add(1));
        assert!(taken(&apart, true).is_empty());
        assert!(apart.add(1) && apart.add(2) && apart.add(1));
        assert_eq!(taken(&apart, true), [1, 2]);
        assert!(apart.add(2));
        assert_eq!(taken(&apart, false), [2]);
        assert!(!apart.add(2));
    }

    #[test]
    fn keeps_its_room() {
        let apart = Apart::new();
        assert!(apart.reserve(100));
        let room = || lock(&apart.0).ids.capacity();
        let before = room();
        assert!(before >= 100);
        for _ in 0..3 {
            taken(&apart, true);
            assert!((0..100).all(|id| apart.add(id)));
            apart.reserve(100);
        }
        assert_eq!(room(), before);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::super::duty::{Duty, Rota};
    use super::*;
    use crate::sync::Mutex;
    use loom::sync::Arc;
    use loom::thread;

    /// A poller takes its socket out and stops polling, while the engine decides: the socket is in
    /// the set again, or the engine comes round.
    #[test]
    fn loom_no_socket_stays_apart() {
        loom::model(|| {
            let (rota, apart) = (Arc::new(Rota::new()), Arc::new(Apart::new()));
            // The socket is in the set; under the QP's lock.
            let socket = Arc::new(Mutex::new(true));
            rota.note_poll();
            assert_eq!(rota.decide(|| false), Duty::Nap);
            let mut taken = Vec::new();
            apart.take(true, &mut taken);
            assert!(taken.is_empty());
            let poller = {
                let (rota, apart, socket) = (rota.clone(), apart.clone(), socket.clone());
                thread::spawn(move || {
                    rota.note_poll();
                    let mut socket = lock(&socket);
                    *socket = !apart.add(1);
                })
            };
            let duty = rota.decide(|| false);
            apart.take(duty == Duty::Nap, &mut taken);
            for _ in taken {
                *lock(&socket) = true;
            }
            poller.join().unwrap();
            assert!(duty == Duty::Nap || *lock(&socket));
        });
    }
}
