//! Buffers that a QP borrows only while octets are on their way.
//!
//! Owner: each thread has its own few; a buffer may be given back on another thread than it was
//! taken on. An idle QP holds none. When a peer dies its QP gives back what it holds.

use std::cell::{Cell, RefCell};

use crate::tx::Batch;

/// Octets asked of the socket at once: as large as still stays in the cache.
const STAGING: usize = 256 << 10;
/// A buffer for the head of one FPDU: the largest, its markers, and what else `Want::Octets` allows.
const LARGE: usize = 68 << 10;
/// The same for FPDUs of an Ethernet segment.
const SMALL: usize = 2 << 10;
/// Buffers of a size that a thread keeps.
const KEPT: usize = 4;

thread_local! {
    static STAGED: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static BATCH: Cell<Option<Box<Batch>>> = const { Cell::new(None) };
    static TAILS: RefCell<[Vec<Box<[u8]>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Calls `f` with this thread's staging buffer.
pub(crate) fn with_staging<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut staging = STAGED.take().unwrap_or_else(|| vec![0; STAGING].into());
    let result = f(&mut staging);
    STAGED.set(Some(staging));
    result
}

/// An empty batch.
pub(crate) fn take_batch() -> Box<Batch> {
    BATCH.take().unwrap_or_default()
}

/// Gives one back.
pub(crate) fn give_batch(mut batch: Box<Batch>) {
    batch.clear();
    // A thread that is ending has no place for it.
    let _ = BATCH.try_with(|kept| kept.set(Some(batch)));
}

/// A buffer for at least `len` octets; larger than [`LARGE`] only if a caller breaks its contract.
pub(crate) fn take_tail(len: usize) -> Box<[u8]> {
    let (class, size) = if len <= SMALL { (0, SMALL) } else { (1, LARGE.max(len)) };
    let kept = TAILS.with_borrow_mut(|tails| tails[class].pop());
    kept.filter(|tail| tail.len() >= len).unwrap_or_else(|| vec![0; size].into())
}

/// Gives one back.
pub(crate) fn give_tail(tail: Box<[u8]>) {
    let class = usize::from(tail.len() > SMALL);
    let _ = TAILS.try_with(|tails| {
        let kept = &mut tails.borrow_mut()[class];
        if kept.len() < KEPT {
            kept.push(tail);
        }
    });
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn tails_come_back_in_their_size() {
        let (small, large) = (take_tail(1), take_tail(SMALL + 1));
        assert_eq!((small.len(), large.len()), (SMALL, LARGE));
        let at = large.as_ptr();
        give_tail(small);
        give_tail(large);
        let again = take_tail(LARGE);
        assert_eq!(again.as_ptr(), at);
    }

    #[test]
    fn staging_may_be_asked_for_while_in_use() {
        with_staging(|outer| with_staging(|inner| assert_ne!(outer.as_ptr(), inner.as_ptr())));
    }
}
