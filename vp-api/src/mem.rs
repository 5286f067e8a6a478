//! Memory ranges that a provider may read and write on behalf of a peer.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// A range of this process's memory that may be registered.
///
/// # Invariants
///
/// From construction until the last clone is dropped, `len` octets at `addr` are mapped and may be
/// read (and written, if registered with a write right) through raw pointers from any thread. A
/// provider keeps a clone for as long as a region covers the range and drops it before
/// deregistration returns, so memory is never freed under a peer.
#[derive(Clone)]
pub struct MemRange {
    addr: NonNull<u8>,
    len: usize,
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the pointer is only an address here; by the invariant the octets may be accessed from any
// thread, and code that dereferences it does so with raw, unsynchronised copies.
unsafe impl Send for MemRange {}
// SAFETY: as for `Send`; no method mutates.
unsafe impl Sync for MemRange {}

impl MemRange {
    /// A range that `owner` keeps alive; `owner` is dropped when no region covers the range any more.
    ///
    /// # Safety
    ///
    /// `addr..addr + len` must be one live allocation, readable and writable, for as long as
    /// `owner` lives; no code may hold a Rust reference to its octets while work requests or peers
    /// may write them.
    pub unsafe fn owned(addr: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { addr, len, owner: Some(owner) }
    }

    /// A range whose lifetime the caller manages (a C application's buffer).
    ///
    /// # Safety
    ///
    /// As for [`MemRange::owned`], until every region that covers the range has been deregistered
    /// and that call has returned.
    pub unsafe fn unowned(addr: NonNull<u8>, len: usize) -> Self {
        Self { addr, len, owner: None }
    }

    /// Address of the first octet.
    pub fn addr(&self) -> NonNull<u8> {
        self.addr
    }

    /// Length in octets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether an owner keeps the memory. Then the code that made the range has proven that it is accessible, so a
    /// provider need not ask the kernel.
    pub fn is_owned(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether the range has no octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl std::fmt::Debug for MemRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemRange({:p}+{}, owned: {})", self.addr, self.len, self.owner.is_some())
    }
}
