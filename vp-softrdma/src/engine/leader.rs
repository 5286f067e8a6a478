//! Leader and followers: which of the threads that wait for completions sleeps in `epoll_wait`.
//!
//! One [`Leadership`] per engine, shared by all its threads. At most one of the waiting threads, the
//! leader, sleeps at the gate (in `epoll_wait`). The others, the followers, each sleep on a futex of
//! their own, or on a descriptor if that is what ends their wait ([`Leadership::try_lead`]). A wait ends
//! early when a signal handler ran in its thread. A thread that publishes a completion wakes the threads
//! that wait on that CQ. A leader that leaves promotes a follower; if there is none, the engine's thread
//! takes over a moment later.
//!
//! No wake-up is lost. A thread that is about to sleep enters itself as a waiter, *then* announces
//! itself at its CQ, *then* looks for completions, *then* sleeps. A publisher publishes, *then* looks
//! for announcements, *then* takes the lock of the waiters to wake those of its CQ. Both sides execute a
//! sequentially consistent fence between their two steps, so at least one sees the other's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Gate as Futex, Mutex, Slept, lock};

/// Where the leader sleeps.
pub(crate) trait Gate {
    /// Ends the present sleep at the gate, or else the next one. Called with the waiters locked.
    fn wake(&self);
}

/// A CQ, as far as waiting threads need one.
pub(crate) trait Waited {
    /// Identifies the CQ.
    fn id(&self) -> u32;
    /// A thread is about to look for completions and then to sleep. The implementation ends with a
    /// fence.
    fn announce(&self);
    /// The thread is awake again.
    fn withdraw(&self);
}

struct Follower {
    waited: u32,
    ticket: u64,
    futex: Arc<Futex>,
}

/// What the leader waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leader {
    Cq(u32),
    Descriptor,
}

struct Waiters {
    leader: Option<Leader>,
    followers: VecDeque<Follower>,
    tickets: u64,
}

/// The role of a thread while it waits.
enum Role {
    Leader,
    /// `seen`: the futex's value before this thread looked for completions.
    Follower {
        ticket: u64,
        futex: Arc<Futex>,
        seen: u32,
    },
}

/// Outcome of [`Leadership::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Departure {
    /// Another thread sleeps at the gate, or no thread has left it.
    Watched,
    /// No thread watches the sockets now.
    Unwatched,
}

/// The threads that wait for completions of one engine, and the gate where the leader sleeps.
pub(crate) struct Leadership<G> {
    waiters: Mutex<Waiters>,
    gate: G,
}

impl<G: Gate> Leadership<G> {
    /// Without waiters; the leader will sleep at `gate`.
    pub(crate) fn new(gate: G) -> Self {
        let waiters = Waiters { leader: None, followers: VecDeque::new(), tickets: 0 };
        Self { waiters: Mutex::new(waiters), gate }
    }

    /// The gate.
    pub(crate) fn gate(&self) -> &G {
        &self.gate
    }

    /// True while an application thread sleeps at the gate, or is about to.
    pub(crate) fn has_leader(&self) -> bool {
        lock(&self.waiters).leader.is_some()
    }

    /// Runs `act` if there is no leader. No thread becomes the leader before `act` returns.
    pub(crate) fn without_leader(&self, act: impl FnOnce(&G)) {
        let waiters = lock(&self.waiters);
        if waiters.leader.is_none() {
            act(&self.gate);
        }
        drop(waiters);
    }

    /// Wakes the threads that wait on `waited`.
    pub(crate) fn wake(&self, waited: &dyn Waited) {
        let waiters = lock(&self.waiters);
        if waiters.leader == Some(Leader::Cq(waited.id())) {
            self.gate.wake();
        }
        for follower in waiters.followers.iter().filter(|f| f.waited == waited.id()) {
            follower.futex.open();
        }
    }

    /// Waits until `done` returns true. It must do so once `waited` has been published to or a signal
    /// handler ran in this thread. Also returns which.
    ///
    /// `remaining` returns the time left (`None`: no limit; zero: the wait is over). `lead` sleeps at
    /// the gate for at most the time given, calls its second argument when it wakes, and then serves
    /// what is ready.
    pub(crate) fn wait(
        &self,
        waited: &dyn Waited,
        done: impl Fn() -> bool,
        remaining: impl Fn() -> Option<Duration>,
        lead: impl Fn(Option<Duration>, &dyn Fn()) -> Slept,
    ) -> (Departure, Slept) {
        let mut role = self.take_role(waited);
        let mut slept = Slept::Woken;
        loop {
            waited.announce();
            let left = remaining();
            if slept == Slept::Signal || done() || left == Some(Duration::ZERO) {
                waited.withdraw();
                return (self.leave(role), slept);
            }
            (role, slept) = match role {
                // The leader is awake: it sees what it publishes to its own CQ itself.
                Role::Leader => (Role::Leader, lead(left, &|| waited.withdraw())),
                Role::Follower { ticket, futex, seen } => {
                    let slept = futex.wait(seen, left);
                    waited.withdraw();
                    (self.role_of(ticket, futex), slept)
                }
            };
        }
    }

    /// Makes the calling thread the leader if there is none. The event that it waits for must end its
    /// sleep without [`Leadership::wake`]. After true the caller must call [`Leadership::end_lead`].
    pub(crate) fn try_lead(&self) -> bool {
        let mut waiters = lock(&self.waiters);
        let free = waiters.leader.is_none();
        if free {
            waiters.leader = Some(Leader::Descriptor);
        }
        free
    }

    /// The calling thread is no longer the leader.
    pub(crate) fn end_lead(&self) -> Departure {
        self.leave(Role::Leader)
    }

    fn take_role(&self, waited: &dyn Waited) -> Role {
        let mut waiters = lock(&self.waiters);
        if waiters.leader.is_none() {
            waiters.leader = Some(Leader::Cq(waited.id()));
            return Role::Leader;
        }
        waiters.tickets += 1;
        let (ticket, futex) = (waiters.tickets, Arc::new(Futex::default()));
        let follower = Follower { waited: waited.id(), ticket, futex: futex.clone() };
        waiters.followers.push_back(follower);
        let seen = futex.ticket();
        Role::Follower { ticket, futex, seen }
    }

    /// A promoted follower is no longer among the followers.
    fn role_of(&self, ticket: u64, futex: Arc<Futex>) -> Role {
        let seen = futex.ticket();
        let follows = lock(&self.waiters).followers.iter().any(|f| f.ticket == ticket);
        if follows { Role::Follower { ticket, futex, seen } } else { Role::Leader }
    }

    fn leave(&self, role: Role) -> Departure {
        let mut waiters = lock(&self.waiters);
        if let Role::Follower { ticket, .. } = role {
            let before = waiters.followers.len();
            waiters.followers.retain(|f| f.ticket != ticket);
            if waiters.followers.len() < before {
                return Departure::Watched;
            }
            // It was promoted while it was leaving: it promotes the next one.
        }
        match waiters.followers.pop_front() {
            Some(next) => {
                waiters.leader = Some(Leader::Cq(next.waited));
                next.futex.open();
                Departure::Watched
            }
            None => {
                waiters.leader = None;
                Departure::Unwatched
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicBool, AtomicU32, AtomicUsize, Condvar, Ordering, fence};
    use loom::sync::Arc;
    use loom::thread;

    /// A gate made of a flag under a lock: a model of epoll with an eventfd.
    #[derive(Default)]
    struct Flag {
        awake: Mutex<bool>,
        wakeup: Condvar,
    }

    impl Gate for Flag {
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
                    leadership.gate().pass();
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
    fn loom_last_one_out_says_so() {
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
}
