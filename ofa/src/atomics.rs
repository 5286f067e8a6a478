//! The kinds of a queue pair's outstanding atomic operations: a provider's completion does not show which
//! one it was.
//!
//! One per queue pair. Atomic operations that will have a completion are recorded in the order of
//! posting, which is that of completion; after a failure the order does not matter, because opcodes of
//! failed requests have no meaning.

use std::collections::VecDeque;
use std::sync::Mutex;

use ibv_sys::{IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD};
use kal_os::lock;
use vp_api::{AtomicOp, PostFailure, SendFlags, SendOp, SendWr};

/// The outstanding atomic operations of a queue pair.
#[derive(Default)]
pub(crate) struct Atomics(Mutex<VecDeque<u32>>);

impl Atomics {
    /// Whether a request is recorded.
    #[inline]
    pub(crate) fn counts(wr: &SendWr<'_>) -> bool {
        matches!(wr.op, SendOp::Atomic { .. }) && wr.flags.contains(SendFlags::SIGNALED)
    }

    /// Posts a list that contains some.
    #[cold]
    pub(crate) fn post(
        &self,
        wrs: &[SendWr<'_>],
        post: impl FnOnce(&[SendWr<'_>]) -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        // Before the post: they may complete at once. Locked, so that lists of several threads are
        // recorded in order.
        let mut noted = lock(&self.0);
        let before = noted.len();
        noted.extend(wrs.iter().filter(|wr| Self::counts(wr)).map(opcode));
        let result = post(wrs);
        if let Err(PostFailure { posted, .. }) = result {
            let taken = wrs.iter().take(posted).filter(|wr| Self::counts(wr)).count();
            noted.truncate(before + taken);
        }
        result
    }

    /// The kind of the one that completed next.
    pub(crate) fn next(&self) -> u32 {
        lock(&self.0).pop_front().unwrap_or(IBV_WC_FETCH_ADD)
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}

fn opcode(wr: &SendWr<'_>) -> u32 {
    match wr.op {
        SendOp::Atomic { op: AtomicOp::CmpSwap { .. }, .. } => IBV_WC_COMP_SWAP,
        _ => IBV_WC_FETCH_ADD,
    }
}
