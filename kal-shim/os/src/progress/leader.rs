//! Leader and followers: which of the threads that wait for completions sleeps on the sockets.
//!
//! One [`Leadership`] per engine, shared by all its threads. At most one of the waiting threads, the
//! leader, sleeps on the sockets (in `epoll_wait`). The others, the followers, each sleep on a futex of
//! their own, or on a descriptor if that is what ends their wait ([`Leadership::try_lead`]). A wait ends
//! early when a signal handler ran in its thread. A thread that publishes a completion wakes the threads
//! that wait on that CQ. A leader that leaves promotes a follower; if there is none, the engine's thread
//! takes over a moment later.
//!
//! No wake-up is lost. A thread that is about to sleep enters itself as a waiter, *then* announces
//! itself at its CQ, *then* checks for completions, *then* sleeps. A publisher publishes, *then* checks
//! for announcements, *then* takes the lock of the waiters to wake those of its CQ. Both sides execute a
//! sequentially consistent fence between their two steps, so at least one sees the other's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Gate, Mutex, Slept, lock};

/// Wakes the leader, who sleeps on the sockets.
pub trait Waker {
    /// Ends the leader's present sleep, or else its next one. Called with the waiters locked.
    fn wake(&self);
}

/// A CQ, as far as waiting threads need one.
pub trait Waited {
    /// Identifies the CQ.
    fn id(&self) -> u32;
    /// A thread is about to check for completions and then to sleep. The implementation ends with a
    /// fence.
    fn announce(&self);
    /// The thread is awake again.
    fn withdraw(&self);
}

struct Follower {
    waited: u32,
    ticket: u64,
    futex: Arc<Gate>,
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
        futex: Arc<Gate>,
        seen: u32,
    },
}

/// Outcome of [`Leadership::wait`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Departure {
    /// Another thread watches the sockets, or the thread that left was not the leader.
    Watched,
    /// No thread watches the sockets now.
    Unwatched,
}

/// The threads that wait for completions of one engine, and what wakes their leader.
pub struct Leadership<W> {
    waiters: Mutex<Waiters>,
    waker: W,
}

impl<W: Waker> Leadership<W> {
    /// Without waiters.
    pub fn new(waker: W) -> Self {
        let waiters = Waiters { leader: None, followers: VecDeque::new(), tickets: 0 };
        Self { waiters: Mutex::new(waiters), waker }
    }

    /// What wakes the leader.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// True while an application thread sleeps on the sockets, or is about to.
    pub fn has_leader(&self) -> bool {
        lock(&self.waiters).leader.is_some()
    }

    /// Runs `act` if there is no leader. No thread becomes the leader before `act` returns.
    pub fn without_leader(&self, act: impl FnOnce(&W)) {
        let waiters = lock(&self.waiters);
        if waiters.leader.is_none() {
            act(&self.waker);
        }
        drop(waiters);
    }

    /// Wakes the threads that wait on `waited`.
    pub fn wake(&self, waited: &dyn Waited) {
        let waiters = lock(&self.waiters);
        if waiters.leader == Some(Leader::Cq(waited.id())) {
            self.waker.wake();
        }
        for follower in waiters.followers.iter().filter(|f| f.waited == waited.id()) {
            follower.futex.open();
        }
    }

    /// Waits until `done` returns true. It must do so once `waited` has been published to or a signal
    /// handler ran in this thread. Also returns which.
    ///
    /// `remaining` returns the time left (`None`: no limit; zero: the wait is over). `lead` sleeps on
    /// the sockets for at most the time given, calls its second argument when it wakes, and then serves
    /// what is ready.
    pub fn wait(
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
                return (self.depart(role), slept);
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
    pub fn try_lead(&self) -> bool {
        let mut waiters = lock(&self.waiters);
        let free = waiters.leader.is_none();
        if free {
            waiters.leader = Some(Leader::Descriptor);
        }
        free
    }

    /// The calling thread is no longer the leader.
    pub fn end_lead(&self) -> Departure {
        self.depart(Role::Leader)
    }

    fn take_role(&self, waited: &dyn Waited) -> Role {
        let mut waiters = lock(&self.waiters);
        if waiters.leader.is_none() {
            waiters.leader = Some(Leader::Cq(waited.id()));
            return Role::Leader;
        }
        waiters.tickets += 1;
        let (ticket, futex) = (waiters.tickets, Arc::new(Gate::default()));
        let follower = Follower { waited: waited.id(), ticket, futex: futex.clone() };
        waiters.followers.push_back(follower);
        let seen = futex.ticket();
        Role::Follower { ticket, futex, seen }
    }

    /// A promoted follower is no longer among the followers.
    fn role_of(&self, ticket: u64, futex: Arc<Gate>) -> Role {
        let seen = futex.ticket();
        let follows = lock(&self.waiters).followers.iter().any(|f| f.ticket == ticket);
        if follows { Role::Follower { ticket, futex, seen } } else { Role::Leader }
    }

    fn depart(&self, role: Role) -> Departure {
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

#[cfg(all(test, loom))]
#[path = "leader_loom_tests.rs"]
mod loom_tests;
