//! Which atomic operations a queue pair has under way: a completion says that it was one, but not which.
//!
//! One per queue pair. Those that complete with a completion are noted in the order of posting, which is that
//! of completion; after a failure the order does not matter, for opcodes of failed requests mean nothing.

use std::collections::VecDeque;
use std::sync::Mutex;

use ibv_sys::{IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD};
use kal_os::lock;
use vp_api::{AtomicOp, PostFailure, SendFlags, SendOp, SendWr};

/// See the module.
#[derive(Default)]
pub(crate) struct Atomics(Mutex<VecDeque<u32>>);

impl Atomics {
    /// Whether a request is noted.
    #[inline]
    pub(crate) fn counts(wr: &SendWr<'_>) -> bool {
        matches!(wr.op, SendOp::Atomic { .. }) && wr.flags.contains(SendFlags::SIGNALED)
    }

    /// Posts a list with some.
    #[cold]
    pub(crate) fn post(
        &self,
        wrs: &[SendWr<'_>],
        post: impl FnOnce(&[SendWr<'_>]) -> Result<(), PostFailure>,
    ) -> Result<(), PostFailure> {
        // Before: they may complete at once. Held, so that several who post are noted in their order.
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

    /// The one that completed next.
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
