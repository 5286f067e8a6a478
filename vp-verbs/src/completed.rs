//! Completions not yet polled. Plain values; they are owned by a CQ's backlog or by the late posts of a queue.

use vp_api::{DatagramSource, QpId, WcOpcode, WcStatus, WorkCompletion};

use crate::ring::Untaken;

/// A completion for the consumer.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) completion: WorkCompletion,
    /// The source of a received datagram.
    pub(crate) source: Option<DatagramSource>,
    /// The slots that are freed when it is polled.
    pub(crate) untaken: Untaken,
}

/// The completion of a flushed work request.
pub(crate) fn flushed(qp: QpId, wr_id: u64, opcode: WcOpcode) -> WorkCompletion {
    WorkCompletion { wr_id, qp, opcode, status: WcStatus::Flushed, ..WorkCompletion::BLANK }
}
