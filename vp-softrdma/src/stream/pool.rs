//! Buffers that a QP borrows only while octets are in transit.
//!
//! Owner: each thread keeps a few; a buffer may be returned on another thread than it was taken on. An
//! idle QP holds none. Buffers that a QP holds when its stream ends are freed. A thread that is ending,
//! whose other destructors may still drive QPs, keeps none.

use std::cell::{Cell, RefCell};

use vp_api::room;

use crate::stream::tx::Batch;
use crate::tuning;

/// The same, on the stack, for a thread without memory for one: slower, but nothing is lost.
const STAGING_WITHOUT_MEMORY: usize = 4 << 10;
/// A buffer for the head of one FPDU: the largest, with markers, and the most that `Want::Octets` asks
/// for.
const LARGE: usize = 68 << 10;
/// The same for FPDUs of an Ethernet segment.
const SMALL: usize = 2 << 10;

thread_local! {
    static STAGED: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
    static BATCH: Cell<Option<Box<Batch>>> = const { Cell::new(None) };
    static TAILS: RefCell<[Vec<Box<[u8]>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

/// Calls `f` with this thread's staging buffer.
#[inline]
pub(crate) fn with_staging<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    let kept = STAGED.try_with(Cell::take).ok().flatten();
    let mut kept = kept.or_else(|| room::try_filled(tuning::STAGING, 0));
    let mut without_memory;
    // One call of `f`, so that it is inlined.
    let result = f(match &mut kept {
        Some(staging) => staging,
        None => {
            without_memory = [0; STAGING_WITHOUT_MEMORY];
            &mut without_memory
        }
    });
    let _ = STAGED.try_with(|staged| staged.set(kept));
    result
}

/// An empty batch; `None`: there is no memory for one.
pub(crate) fn take_batch() -> Option<Box<Batch>> {
    BATCH.try_with(Cell::take).ok().flatten().or_else(|| Batch::new().map(Box::new))
}

/// Returns it to this thread's buffers.
pub(crate) fn give_batch(mut batch: Box<Batch>) {
    batch.clear();
    let _ = BATCH.try_with(|kept| kept.set(Some(batch)));
}

/// A buffer for at least `len` octets; larger than [`LARGE`] only if a caller breaks its contract.
/// `None`: there is no memory for it.
pub(crate) fn take_tail(len: usize) -> Option<Box<[u8]>> {
    let (class, size) = if len <= SMALL { (0, SMALL) } else { (1, LARGE.max(len)) };
    let kept = TAILS.try_with(|tails| tails.borrow_mut()[class].pop()).ok().flatten();
    kept.filter(|tail| tail.len() >= len).or_else(|| room::try_filled(size, 0))
}

/// Returns it to this thread's buffers.
pub(crate) fn give_tail(tail: Box<[u8]>) {
    let class = usize::from(tail.len() > SMALL);
    let _ = TAILS.try_with(|tails| {
        let kept = &mut tails.borrow_mut()[class];
        if kept.len() < tuning::KEPT_BUFFERS {
            kept.push(tail);
        }
    });
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn tails_are_read_in_their_size() {
        let (small, large) = (take_tail(1).unwrap(), take_tail(SMALL + 1).unwrap());
        assert_eq!((small.len(), large.len()), (SMALL, LARGE));
        let at = large.as_ptr();
        give_tail(small);
        give_tail(large);
        let again = take_tail(LARGE).unwrap();
        assert_eq!(again.as_ptr(), at);
        let small = take_tail(SMALL).unwrap();
        let at = small.as_ptr();
        give_tail(small);
        let (one, other) = (take_tail(SMALL).unwrap(), take_tail(LARGE).unwrap());
        assert_eq!((one.as_ptr(), other.len()), (at, LARGE));
    }

    // Otherwise a buffer would be too short, or a thread would keep any number of them.
    #[test]
    fn a_thread_keeps_few_tails_and_takes_none_that_is_too_short() {
        (0..=tuning::KEPT_BUFFERS).for_each(|_| give_tail(room::try_filled(LARGE, 0).unwrap()));
        assert_eq!(TAILS.with(|tails| tails.borrow()[1].len()), tuning::KEPT_BUFFERS);
        assert_eq!(take_tail(LARGE + 1).unwrap().len(), LARGE + 1);
        assert_eq!(take_tail(LARGE).unwrap().len(), LARGE);
        assert_eq!(TAILS.with(|tails| tails.borrow()[1].len()), tuning::KEPT_BUFFERS - 2);
    }

    #[test]
    fn a_batch_is_returned_empty() {
        let batch = take_batch().unwrap();
        let at = std::ptr::from_ref(&*batch);
        give_batch(batch);
        let fresh = Box::new(Batch::new().unwrap());
        assert_ne!(std::ptr::from_ref(&*fresh), at, "it was freed");
        assert_eq!(std::ptr::from_ref(&*take_batch().unwrap()), at);
    }

    #[test]
    fn staging_may_be_asked_for_while_in_use() {
        with_staging(|outer| with_staging(|inner| assert_ne!(outer.as_ptr(), inner.as_ptr())));
    }
}
