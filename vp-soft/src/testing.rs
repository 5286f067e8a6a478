//! Fixtures for tests of providers: memory, protection domains and services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use vp_api::{Access, Addressing, LogLevel, MemRange, MrInit, PdId, QpId, Services};

use crate::memory::grant::Caller;
use crate::memory::meta::PdUse;
use crate::memory::mr::Regions;
use crate::memory::stag_table::StagTable;
use crate::objects::{InUse, Objects};

/// A protection domain.
pub const PD: PdId = PdId(1);
/// Another one.
pub const OTHER_PD: PdId = PdId(2);
/// All rights.
pub const FULL: Access = Access::all();

/// Services that pin up to a limit and count what is pinned.
pub struct FakeServices {
    /// Octets that may be pinned.
    pub limit: usize,
    /// Octets that are pinned.
    pub pinned: AtomicUsize,
    /// The time.
    pub now: AtomicU64,
}

impl Services for FakeServices {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}

    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn pin(&self, _: usize, len: usize) -> std::io::Result<()> {
        if self.pinned.load(Ordering::Relaxed) + len > self.limit {
            return Err(std::io::Error::other("limit of 8192 octets reached"));
        }
        self.pinned.fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    fn unpin(&self, _: usize, len: usize) {
        self.pinned.fetch_sub(len, Ordering::Relaxed);
    }
}

/// Zeroed, 8-aligned memory that is freed when the last range on it is dropped.
pub struct Buffer {
    memory: Arc<Words>,
    len: usize,
}

struct Words(Box<[std::cell::UnsafeCell<u64>]>);

// SAFETY: the words are reached through raw pointers only, and the tests order their accesses.
unsafe impl Sync for Words {}
// SAFETY: as for `Sync`.
unsafe impl Send for Words {}

impl Buffer {
    /// `len` octets.
    pub fn new(len: usize) -> Self {
        let words = (0..len.div_ceil(8)).map(|_| std::cell::UnsafeCell::new(0));
        Self { memory: Arc::new(Words(words.collect())), len }
    }

    /// The first octet.
    pub fn ptr(&self) -> *mut u8 {
        self.memory.0.as_ptr().cast::<u8>().cast_mut()
    }

    /// Its address, the TO of an absolute region.
    pub fn addr(&self) -> u64 {
        self.ptr().addr() as u64
    }

    /// All of it, with its owner.
    pub fn range(&self) -> MemRange {
        let addr = std::ptr::NonNull::new(self.ptr()).expect("not null");
        // SAFETY: one live allocation kept by its owner; no references to its octets are made.
        unsafe { MemRange::owned(addr, self.len, self.memory.clone()) }
    }

    /// Octets.
    #[allow(clippy::len_without_is_empty)] // as long as the test said
    pub fn len(&self) -> usize {
        self.len
    }

    /// Ranges and clones that keep the memory.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.memory) - 1
    }

    /// A copy of `len` octets at `at`.
    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        // SAFETY: inside the allocation (just checked), initialised, and no test writes meanwhile.
        (at..at + len).map(|at| unsafe { self.ptr().wrapping_add(at).read() }).collect()
    }
}

/// Services that pin up to `limit` octets.
pub fn services(limit: usize) -> Arc<FakeServices> {
    Arc::new(FakeServices { limit, pinned: AtomicUsize::new(0), now: AtomicU64::new(0) })
}

/// An empty table with its verbs.
pub fn regions() -> Regions {
    Regions {
        table: Arc::new(StagTable::new().expect("a table")),
        services: services(8192),
        probes: false,
    }
}

/// A use of a protection domain.
pub fn pd(id: PdId) -> PdUse {
    PdUse { id, hold: hold() }
}

/// A use of some object.
pub fn hold() -> InUse {
    let objects = Objects::new("thing", 1);
    objects.insert(|id| Ok(Arc::new(id))).expect("room");
    objects.hold(1).expect("there").1
}

/// How to register a buffer.
pub fn init(buffer: &Buffer, access: Access) -> MrInit {
    MrInit {
        pd: PD,
        range: buffer.range(),
        addressing: Addressing::Absolute,
        access,
        key: 0x5a,
        pin: false,
    }
}

/// The identity of a QP in [`PD`], with all rights.
pub fn caller(qp: u32) -> Caller {
    Caller { pd: PD, qp: QpId(qp), allow: FULL, privileged: false }
}
