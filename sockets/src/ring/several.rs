//! The connections with shared memory among the descriptors of one wait. Owner: the stack of the call.

use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use shm_ring::Companion;

use super::link::Link;
use super::spin::{self, Seen};
use crate::kernel;
use crate::tuning::{ATTACHED, FAIR_NS};

/// Most of them: as many as a process has, and some twice.
const ROOM: usize = 2 * ATTACHED as usize;

/// One of them.
#[derive(Clone, Copy)]
pub(super) struct One<'a> {
    /// Its place in what the program passed.
    pub(super) place: usize,
    fd: c_int,
    link: &'a Link,
    ring: &'a Companion,
}

impl One<'_> {
    /// Whether a call that reads would return octets of the ring.
    pub(super) fn is_ready(&self) -> bool {
        is_ready(self.fd, self.link, self.ring)
    }
}

/// Whether a call that reads would return octets of the ring, or find that it is corrupt.
pub(super) fn is_ready(fd: c_int, link: &Link, ring: &Companion) -> bool {
    match (ring.octets(), link.low_water()) {
        (Ok(0), _) => false,
        (Ok(octets), low) if low > 1 => u64::from(octets) + kernel::unread(fd) >= u64::from(low),
        _ => true,
    }
}

/// All of them, held until [`Several::release`].
pub(super) struct Several<'a> {
    all: [Option<One<'a>>; ROOM],
    len: usize,
}

impl<'a> Several<'a> {
    pub(super) fn new() -> Self {
        Self { all: [None; ROOM], len: 0 }
    }

    /// Adds a connection that is to be read, if it has shared memory and there is room.
    pub(super) fn add(&mut self, place: usize, fd: c_int, link: &'a Link) {
        if let Some(room) = self.all.get_mut(self.len)
            && let Some(ring) = link.hold()
        {
            *room = Some(One { place, fd, link, ring });
            self.len += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn iter(&self) -> impl Iterator<Item = &One<'a>> {
        self.all.iter().take(self.len).flatten()
    }

    pub(super) fn release(&self) {
        self.iter().for_each(|one| one.link.release());
    }

    /// Those that can be read from the ring.
    pub(super) fn ready(&self) -> impl Iterator<Item = &One<'a>> {
        self.iter().filter(|one| one.is_ready())
    }

    pub(super) fn any_ready(&self) -> bool {
        self.ready().next().is_some()
    }

    /// Looks at the rings for a while, and sometimes asks the `kernel`.
    pub(super) fn spin(&self, limit: u64, kernel: impl FnMut() -> bool) -> Seen {
        let Some(first) = self.iter().next() else { return Seen::Nothing };
        if !first.link.patience.tries() {
            return Seen::Nothing;
        }
        self.iter().for_each(|one| {
            one.link.look(one.ring);
        });
        let seen = spin::look(limit, || self.any_ready(), kernel);
        first.link.patience.learn(seen);
        seen
    }

    /// Waits in the kernel.
    pub(super) fn sleep(&self, real: impl Fn() -> c_int) -> c_int {
        let first = self.iter().next().map(|one| (one.link, one.link.patience.falls_asleep()));
        let n = real();
        if let Some((link, begin)) = first {
            link.patience.wakes(begin);
        }
        n
    }

    /// When the kernel is to be asked for others, too: not if it was a moment ago, and `limit` is not 0.
    pub(super) fn asks(&self, limit: u64) -> bool {
        let Some(first) = self.iter().next() else { return true };
        let now = spin::now();
        let asks = limit == 0 || now.wrapping_sub(first.link.asked.load(Relaxed)) >= FAIR_NS;
        if asks {
            first.link.asked.store(now, Relaxed);
        }
        asks
    }

    /// Pins all, to wait in the kernel. False, and none is: one has octets in its ring.
    pub(super) fn pin(&self) -> bool {
        for (index, one) in self.iter().enumerate() {
            if one.ring.pin() != Ok(true) {
                self.iter().take(index).for_each(|one| one.ring.unpin());
                return false;
            }
        }
        true
    }

    pub(super) fn unpin(&self) {
        self.iter().for_each(|one| one.ring.unpin());
    }
}
