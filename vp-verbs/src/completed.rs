//! Completions not yet polled. Values only; a CQ's backlog or a queue's late posts own them.

use vp_api::{DatagramSource, QpId, WcOpcode, WcStatus, WorkCompletion};

use crate::ring::Untaken;

/// A completion as the consumer gets it.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) completion: WorkCompletion,
    /// Where the datagram came from if it is one that was received.
    pub(crate) source: Option<DatagramSource>,
    /// What taking it frees.
    pub(crate) untaken: Untaken,
}

/// What a work request becomes that was not done.
pub(crate) fn flushed(qp: QpId, wr_id: u64, opcode: WcOpcode) -> WorkCompletion {
    WorkCompletion { wr_id, qp, opcode, status: WcStatus::Flushed, ..WorkCompletion::BLANK }
}
