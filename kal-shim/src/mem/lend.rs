//! Borrowed memory: registered within one call, and its owner's again when the call returns.
//!
//! The borrow lasts as long as [`lend`] runs, as with `std::thread::scope`; there is no guard that could
//! be forgotten. Clones of the region may outlive it: their copies are refused from then on. A range that
//! is still registered then cannot be taken back, so the process ends; a face deregisters first.

use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use vp_api::MemRange;

use super::{Origin, Region};

/// The time for which memory is lent; ranges that are registered keep one.
pub(super) struct Loan {
    /// Copies are allowed; they hold the lock.
    open: RwLock<bool>,
}

impl Loan {
    /// Until this is dropped, the loan goes on; `None`: it is over.
    pub(super) fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        // Nothing panics while the lock is held.
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.then_some(open)
    }

    /// The lent octets as a provider takes them; none when the loan is over.
    pub(super) fn mem_range(self: &Arc<Self>, addr: NonNull<u8>, len: usize) -> MemRange {
        let open = self.enter();
        let len = if open.is_some() { len } else { 0 };
        // SAFETY: the octets are borrowed mutably by `lend`, which does not return before the owner
        // passed along is gone. It is counted under the lock, so a range of an open loan is counted.
        unsafe { MemRange::owned(addr, len, self.clone()) }
    }
}

/// Ends the loan however `lend` ends.
struct End(Arc<Loan>);

impl Drop for End {
    fn drop(&mut self) {
        let mut open = self.0.open.write().unwrap_or_else(PoisonError::into_inner);
        *open = false;
        // One is this, and one the region's, which clones of it share. The others are ranges that some
        // provider may touch.
        if Arc::strong_count(&self.0) > 2 {
            eprintln!("borrowed memory is still registered when its owner wants it back");
            std::process::abort();
        }
    }
}

/// Lends `octets` to `with`, as a region that is good until `with` returns or panics. Every range made
/// of it must be gone by then: deregister it first.
pub fn lend<T>(octets: &mut [u8], with: impl FnOnce(&Region) -> T) -> T {
    let (addr, len) = (NonNull::from(&mut *octets).cast(), octets.len());
    let loan = Arc::new(Loan { open: RwLock::new(true) });
    let region = Region::of(addr, len, Origin::Lent(loan.clone()));
    // Dropped before the region: it counts on that one's share.
    let _end = End(loan);
    with(&region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_handle_cannot_be_used_afterwards() {
        let mut octets = *b"hello";
        let kept = lend(&mut octets, |region| {
            region.write_at(0, b"J").unwrap();
            drop(region.mem_range());
            region.clone()
        });
        assert_eq!(&octets, b"Jello");
        assert!(kept.write_at(0, b"C").is_err() && kept.read_at(0, &mut [0]).is_err());
        assert!(kept.fill(0, 1, 0).is_err() && kept.mem_range().is_empty());
        assert_eq!(&octets, b"Jello");
    }

    #[test]
    fn a_panic_ends_the_loan() {
        let (mut octets, mut kept) = ([0u8; 4], None);
        let lent = std::panic::AssertUnwindSafe(|| {
            lend(&mut octets, |region| {
                kept = Some(region.clone());
                panic!("on purpose");
            })
        });
        assert!(std::panic::catch_unwind(lent).is_err());
        assert!(kept.unwrap().write_at(0, b"x").is_err());
    }
}
