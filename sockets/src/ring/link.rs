//! A connection's part in shared memory: the memory while it is used, and what decides whether it may be.
//!
//! Owner: the table. Any thread or signal handler attaches, uses, detaches at any moment. Memory is unmapped when it is
//! detached and no call uses it any more; a thread that leaves a call by longjmp(3) or is cancelled there keeps it
//! mapped. Full: a process has [`crate::tuning::ATTACHED`] of them at most.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

use shm_ring::Companion;

use crate::kernel;
use crate::tuning::ATTACHED;
use crate::way::Way;

/// Connections of this process that have shared memory.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Why a connection was ended by this library.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
    /// Positions that no peer with this library writes.
    Corrupt = 1,
    /// Octets by TCP that the peer's library has not sent.
    Stray,
    /// Another process got the descriptor while there were octets in the ring.
    Passed,
}

const FAILURES: [&str; 4] = ["", "ring-corrupt", "sockets-stray", "passed-unread"];

/// One connection's part.
pub(crate) struct Link {
    companion: AtomicPtr<Companion>,
    /// Detached, and to be unmapped when no call uses it.
    retired: AtomicPtr<Companion>,
    /// Calls that use the memory.
    users: AtomicU32,
    /// Calls in the kernel that began without it.
    plain: AtomicU32,
    /// TCP only, from now on.
    closed: AtomicBool,
    /// Another process has a copy of the descriptor.
    forked: AtomicBool,
    /// This one is a copy of the parent's.
    copy: AtomicBool,
    /// `SO_RCVLOWAT`; 0: as if 1.
    low: AtomicU32,
    /// Whether calls wait: 0, not known; 1, no; 2, yes.
    blocks: AtomicU8,
    failure: AtomicU8,
    /// What the program has set for `TCP_NODELAY`: 0, this library has not changed it; 1, off; 2, on.
    no_delay: AtomicU8,
    /// When the state of TCP was looked at last.
    looked: AtomicU32,
    /// What it must have moved before the ends try to meet next; and before the name is made known again.
    pub(super) next: AtomicU64,
    pub(super) known: AtomicU64,
    /// A thread tries now.
    pub(super) tries: AtomicBool,
    by_ring: [AtomicU64; 2],
    /// When the kernel was asked for other descriptors of a wait.
    pub(super) asked: AtomicU64,
    pub(crate) patience: super::spin::Patience,
    pub(crate) watch: super::sets::Watch,
}

impl Link {
    pub(crate) const fn new() -> Self {
        Self {
            companion: AtomicPtr::new(null_mut()),
            retired: AtomicPtr::new(null_mut()),
            users: AtomicU32::new(0),
            plain: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            copy: AtomicBool::new(false),
            low: AtomicU32::new(0),
            blocks: AtomicU8::new(0),
            failure: AtomicU8::new(0),
            no_delay: AtomicU8::new(0),
            looked: AtomicU32::new(0),
            next: AtomicU64::new(0),
            known: AtomicU64::new(0),
            tries: AtomicBool::new(false),
            by_ring: [AtomicU64::new(0), AtomicU64::new(0)],
            asked: AtomicU64::new(0),
            patience: super::spin::Patience::new(),
            watch: super::sets::Watch::new(),
        }
    }

    /// For another connection.
    pub(crate) fn clear(&self) {
        self.plain.store(0, SeqCst);
        for flag in [&self.closed, &self.forked, &self.copy, &self.tries] {
            flag.store(false, SeqCst);
        }
        self.low.store(0, Relaxed);
        self.blocks.store(0, Relaxed);
        self.failure.store(0, Relaxed);
        self.no_delay.store(0, Relaxed);
        [&self.next, &self.known].into_iter().for_each(|word| word.store(0, Relaxed));
        self.by_ring.iter().for_each(|word| word.store(0, Relaxed));
        self.patience.clear();
        self.watch.clear();
    }

    // ---- attached --------------------------------------------------------------------------

    /// Whether it has shared memory.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        !self.companion.load(Relaxed).is_null()
    }

    /// The right to share memory, of which a process has so many. Given back by [`give_permit`], or with the memory.
    pub(super) fn permit() -> bool {
        let more = |now| (now < ATTACHED).then_some(now + 1);
        COUNT.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives it back.
    pub(super) fn give_permit() {
        COUNT.fetch_sub(1, Relaxed);
    }

    /// Begins to use memory. The caller has a permit. False: there is other memory.
    pub(super) fn attach(&self, fd: c_int, companion: NonNull<Companion>) -> bool {
        let (place, order) = (&self.companion, SeqCst);
        let attached = self.retired.load(SeqCst).is_null()
            && place.compare_exchange(null_mut(), companion.as_ptr(), order, order).is_ok();
        if attached && let Some(set) = kernel::no_delay(fd) {
            self.set_no_delay(fd, set);
        }
        attached
    }

    /// The program has set `TCP_NODELAY`. With octets by memory between, acknowledgements are late, and few octets that
    /// waited for one by TCP would be, too: so they never wait.
    pub(crate) fn set_no_delay(&self, fd: c_int, set: bool) {
        self.no_delay.store(1 + u8::from(set), Relaxed);
        kernel::send_without_delay(fd);
    }

    /// What the program has set for `TCP_NODELAY`, if this library has changed it.
    pub(crate) fn no_delay(&self) -> Option<bool> {
        match self.no_delay.load(Relaxed) {
            0 => None,
            set => Some(set == 2),
        }
    }

    /// The connection is closed here.
    pub(crate) fn detach(&self, fd: c_int) {
        let companion = self.companion.swap(null_mut(), SeqCst);
        // SAFETY: null, or memory that nobody unmaps before it is retired here.
        let Some(found) = (unsafe { companion.as_ref() }) else { return };
        if !self.forked.load(Relaxed) {
            if found.octets().is_ok_and(|octets| octets > 0) {
                kernel::reset_at_close(fd);
            }
            found.freeze();
        }
        self.retired.store(companion, SeqCst);
        if self.users.load(SeqCst) == 0 {
            self.unmap();
        }
    }

    fn unmap(&self) {
        if let Some(end) = NonNull::new(self.retired.swap(null_mut(), SeqCst)) {
            // SAFETY: it was made by `Companion::map`; no call uses it, and none can begin to.
            unsafe { Companion::unmap(end) };
            Self::give_permit();
        }
    }

    /// The memory, until [`Link::release`].
    #[inline]
    pub(crate) fn hold(&self) -> Option<&Companion> {
        if !self.is_attached() {
            return None;
        }
        self.users.fetch_add(1, SeqCst);
        // SAFETY: null, or mapped: who detaches it sees this user.
        let found = unsafe { self.companion.load(SeqCst).as_ref() };
        if found.is_none() {
            self.release();
        }
        found
    }

    /// A call does not use it any more.
    #[inline]
    pub(crate) fn release(&self) {
        if self.users.fetch_sub(1, SeqCst) == 1 && !self.retired.load(SeqCst).is_null() {
            self.unmap();
        }
    }

    /// A call: `with` the memory; or `plain`, and it is one that began without.
    #[inline]
    pub(super) fn call<T>(
        &self,
        plain: impl FnOnce() -> T,
        with: impl FnOnce(&Companion) -> T,
    ) -> T {
        if let Some(companion) = self.hold() {
            return self.used(companion, with);
        }
        self.plain.fetch_add(1, SeqCst);
        let Some(companion) = self.hold() else {
            let result = plain();
            self.plain.fetch_sub(1, SeqCst);
            return result;
        };
        self.plain.fetch_sub(1, SeqCst);
        self.used(companion, with)
    }

    fn used<T>(&self, companion: &Companion, with: impl FnOnce(&Companion) -> T) -> T {
        let result = with(companion);
        self.release();
        result
    }

    // ---- what may be -----------------------------------------------------------------------

    /// All octets go by TCP from now on, in both directions.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        if let Some(companion) = self.hold() {
            companion.freeze();
            // Others may send, who do not know of the ring.
            companion.mark();
            self.release();
        }
    }

    /// The descriptor may become another program's.
    pub(crate) fn survives_exec(&self) {
        if self.is_attached() {
            self.close();
        }
    }

    /// It does, beside this one, or may.
    pub(crate) fn leave_to_tcp(&self) {
        self.fork();
        if !self.is_closed() {
            self.close();
        }
    }

    /// Another program has the descriptor, and cannot read the octets in the ring.
    pub(crate) fn pass(&self) {
        if let Some(companion) = self.hold() {
            companion.pass();
            self.release();
        }
    }

    /// The last descriptor of this process is closed: ends the connection if another program would go on behind octets
    /// in the ring that nobody has read.
    pub(crate) fn ends(&self, fd: c_int) {
        let Some(companion) = self.hold() else { return };
        let lost = companion.is_passed() && companion.octets() != Ok(0) && !self.is_copy();
        self.release();
        if lost {
            self.fail(fd, Failure::Passed);
        }
    }

    /// Octets of the ring that were not read here, at most so many as were when it was asked.
    pub(crate) fn unread(&self) -> u32 {
        let Some(companion) = self.hold() else { return 0 };
        let unread = companion.octets().unwrap_or(0);
        self.release();
        unread
    }

    /// Octets of the ring that the peer has not read.
    pub(crate) fn unread_by_peer(&self) -> u64 {
        let Some(companion) = self.hold() else { return 0 };
        let unread = companion.unread().unwrap_or(0);
        self.release();
        unread
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Another process has the descriptor, too.
    pub(crate) fn fork(&self) {
        self.forked.store(true, SeqCst);
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Relaxed)
    }

    /// Whether it is one that a parent has made.
    pub(crate) fn is_copy(&self) -> bool {
        self.copy.load(Relaxed)
    }

    /// In a child: calls of its parent's other threads do not return here.
    pub(crate) fn renew(&self) {
        self.fork();
        self.copy.store(true, SeqCst);
        self.patience.clear();
    }

    /// Whether no call is in the kernel that began without the memory.
    pub(super) fn is_settled(&self) -> bool {
        self.plain.load(SeqCst) == 0
    }

    /// Looks at the ring before it waits, from now on, unless the wait is another's.
    pub(super) fn look(&self, companion: &Companion) -> bool {
        self.may_look() && !self.watch.is_set() && companion.look()
    }

    /// Whether the peer may be asked for octets by the ring.
    pub(super) fn may_look(&self) -> bool {
        self.is_settled() && !self.is_closed() && self.low_water() == 1
    }

    pub(crate) fn set_low_water(&self, octets: u32) {
        self.low.store(octets, SeqCst);
        if let Some(companion) = self.hold() {
            while !companion.look_away(companion.position()) {}
            self.release();
        }
    }

    pub(super) fn low_water(&self) -> u32 {
        self.low.load(SeqCst).max(1)
    }

    /// Whether calls wait.
    pub(super) fn blocks(&self, fd: c_int) -> bool {
        match self.blocks.load(Relaxed) {
            0 => {
                let blocks = kernel::blocks(fd);
                self.blocks.store(1 + u8::from(blocks), Relaxed);
                blocks
            }
            known => known == 2,
        }
    }

    /// That may have changed.
    pub(crate) fn forget_blocks(&self) {
        self.blocks.store(0, Relaxed);
    }

    /// Whether the state of TCP was looked at in this tick of the clock already.
    pub(super) fn has_looked(&self, now: u32) -> bool {
        self.looked.load(Relaxed) == now
    }

    pub(super) fn set_looked(&self, now: u32) {
        self.looked.store(now, Relaxed);
    }

    // ---- for the record --------------------------------------------------------------------

    pub(super) fn count(&self, way: Way, octets: usize) {
        self.by_ring[way as usize].fetch_add(octets as u64, Relaxed);
    }

    /// Octets that went by the ring.
    pub(crate) fn by_ring(&self, way: Way) -> u64 {
        self.by_ring[way as usize].load(Relaxed)
    }

    /// Whether the process has as many connections with memory as it may.
    pub(crate) fn is_full() -> bool {
        COUNT.load(Relaxed) >= ATTACHED
    }

    /// Ends the connection: the peer gets a reset.
    pub(crate) fn fail(&self, fd: c_int, failure: Failure) {
        self.failure.store(failure as u8, Relaxed);
        self.close();
        kernel::reset(fd);
    }

    /// Whether, and why, it was ended.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        match self.failure.load(Relaxed) {
            0 => None,
            some => FAILURES.get(usize::from(some)).copied(),
        }
    }
}
