//! Loom tests of leader and followers.

use super::*;
use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Condvar, Ordering, fence};
use loom::sync::Arc;
use loom::thread;

/// A flag under a lock: a model of epoll with an eventfd.
#[derive(Default)]
struct Flag {
    awake: Mutex<bool>,
    wakeup: Condvar,
}

impl Waker for Flag {
    fn wake(&self) {
        *lock(&self.awake) = true;
        self.wakeup.notify_one();
    }
}

impl Flag {
    fn pass(&self) {
        let mut awake = lock(&self.awake);
        while !*awake {
            awake = self.wakeup.wait(awake).unwrap();
        }
        *awake = false;
    }
}

struct Queue {
    id: u32,
    announced: AtomicU32,
    entries: AtomicUsize,
}

impl Waited for Queue {
    fn id(&self) -> u32 {
        self.id
    }
    fn announce(&self) {
        self.announced.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
    fn withdraw(&self) {
        self.announced.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Queue {
    fn new(id: u32) -> Self {
        Self { id, announced: AtomicU32::new(0), entries: AtomicUsize::new(0) }
    }

    fn publish(&self, leadership: &Leadership<Flag>) {
        self.entries.fetch_add(1, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.announced.load(Ordering::Relaxed) != 0 {
            leadership.wake(self);
        }
    }

    fn wait(&self, leadership: &Leadership<Flag>) -> Departure {
        let (left, _) = leadership.wait(
            self,
            || self.entries.load(Ordering::Acquire) != 0,
            || None,
            |_, awake| {
                leadership.waker().pass();
                awake();
                Slept::Woken
            },
        );
        left
    }
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

// [VERBS-21]
#[test]
fn loom_leader_never_sleeps_through_a_completion() {
    model(|| {
        let leadership = Arc::new(Leadership::new(Flag::default()));
        let queue = Arc::new(Queue::new(1));
        let publisher = {
            let (leadership, queue) = (leadership.clone(), queue.clone());
            thread::spawn(move || queue.publish(&leadership))
        };
        assert_eq!(queue.wait(&leadership), Departure::Unwatched);
        publisher.join().unwrap();
    });
}

// [VERBS-21]
#[test]
fn loom_follower_is_woken_or_promoted() {
    model(|| {
        let leadership = Arc::new(Leadership::new(Flag::default()));
        let queues = Arc::new([Queue::new(1), Queue::new(2)]);
        let waiter = {
            let (leadership, queues) = (leadership.clone(), queues.clone());
            thread::spawn(move || queues[1].wait(&leadership))
        };
        let publisher = {
            let (leadership, queues) = (leadership.clone(), queues.clone());
            thread::spawn(move || queues.iter().for_each(|queue| queue.publish(&leadership)))
        };
        queues[0].wait(&leadership);
        waiter.join().unwrap();
        publisher.join().unwrap();
        assert!(!leadership.has_leader());
    });
}

/// Of two waiters the one that leaves last must report that no thread watches the sockets.
#[test]
fn loom_the_last_to_leave_is_reported() {
    model(|| {
        let leadership = Arc::new(Leadership::new(Flag::default()));
        let queue = Arc::new(Queue::new(1));
        let unguarded = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (leadership, queue, unguarded) =
                (leadership.clone(), queue.clone(), unguarded.clone());
            thread::spawn(move || {
                if queue.wait(&leadership) == Departure::Unwatched {
                    unguarded.store(true, Ordering::Relaxed);
                }
            })
        };
        queue.publish(&leadership);
        if queue.wait(&leadership) == Departure::Unwatched {
            unguarded.store(true, Ordering::Relaxed);
        }
        waiter.join().unwrap();
        assert!(unguarded.load(Ordering::Relaxed));
    });
}
