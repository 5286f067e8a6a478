//! Conversion of work completions to libibverbs: opcodes, flags and status. Plain values; the status
//! table is total.

use ibv_sys::*;
use vp_api::{AsyncEvent, QpInfo, Terminate, WcOpcode, WcStatus, WorkCompletion};

/// A completion as programs read it; status and opcode are those of success.
#[inline]
pub(crate) fn of(wc: &WorkCompletion, qp_num: u32) -> ibv_wc {
    let (imm_or_rkey, flags) = match (wc.immediate, wc.invalidated) {
        // 32 bits, in network order as the application gave them.
        (Some(data), _) => ((data as u32).to_be(), IBV_WC_WITH_IMM),
        (None, Some(stag)) => (stag.0, IBV_WC_WITH_INV),
        (None, None) => (0, 0),
    };
    ibv_wc {
        wr_id: wc.wr_id,
        status: IBV_WC_SUCCESS,
        opcode: opcode(wc.opcode),
        vendor_err: 0,
        byte_len: wc.octets,
        imm_or_rkey,
        qp_num,
        src_qp: 0,
        wc_flags: flags,
        ..ibv_wc::default()
    }
}

fn opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::Send => IBV_WC_SEND,
        WcOpcode::Write | WcOpcode::WriteImmediate => IBV_WC_RDMA_WRITE,
        WcOpcode::Read => IBV_WC_RDMA_READ,
        WcOpcode::Atomic => IBV_WC_FETCH_ADD,
        WcOpcode::BindMw => IBV_WC_BIND_MW,
        WcOpcode::InvalidateLocal | WcOpcode::FastRegister => IBV_WC_LOCAL_INV,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvImmediate => IBV_WC_RECV_RDMA_WITH_IMM,
        _ => IBV_WC_SEND,
    }
}

/// Whether it belongs to a send queue.
pub(crate) fn is_send(opcode: WcOpcode) -> bool {
    !matches!(opcode, WcOpcode::Recv | WcOpcode::RecvImmediate)
}

/// The status of a completion with an error, from the completion alone.
pub(crate) fn status(wc: &WorkCompletion) -> u32 {
    match wc.status {
        WcStatus::Success => IBV_WC_SUCCESS,
        WcStatus::Flushed => IBV_WC_WR_FLUSH_ERR,
        WcStatus::Bounds if is_send(wc.opcode) => IBV_WC_LOC_PROT_ERR,
        WcStatus::Bounds | WcStatus::InvalidLength => IBV_WC_LOC_LEN_ERR,
        WcStatus::InvalidStag
        | WcStatus::AccessViolation
        | WcStatus::InvalidPd
        | WcStatus::Wrap => IBV_WC_LOC_PROT_ERR,
        WcStatus::InvalidWqe | WcStatus::ZeroReadResources | WcStatus::NotPrivileged => {
            IBV_WC_LOC_QP_OP_ERR
        }
        WcStatus::StagNotInvalid | WcStatus::InvalidWindow => IBV_WC_MW_BIND_ERR,
        WcStatus::CannotInvalidate => IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemoteTermination => IBV_WC_REM_OP_ERR,
        WcStatus::LocalCatastrophic => IBV_WC_GENERAL_ERR,
        _ => IBV_WC_GENERAL_ERR,
    }
}

/// The status of the first send that was lost with the stream; `None`: as the others.
pub(crate) fn first_lost(qp: &QpInfo) -> Option<u32> {
    match (qp.terminate, qp.ended) {
        (Some(terminate), _) if !terminate.sent => Some(remote(terminate)),
        (_, Some(AsyncEvent::ConnectionReset | AsyncEvent::ConnectionLost)) => {
            Some(IBV_WC_RETRY_EXC_ERR)
        }
        _ => None,
    }
}

/// The status if the peer's Terminate belongs to it (RFC 5040 section 4.8).
pub(crate) fn remote(terminate: Terminate) -> u32 {
    match (terminate.layer, terminate.etype, terminate.code) {
        // 0xff: RoCE does not say which.
        (0, 1, 0..=4 | 0xff) | (1, 1, 0..=3) => IBV_WC_REM_ACCESS_ERR,
        // No receive was posted.
        (1, 2, 2) => IBV_WC_RNR_RETRY_EXC_ERR,
        (0, 0, _) | (1, 0, _) | (0, 2, 7 | 8) => IBV_WC_REM_OP_ERR,
        (2, _, _) => IBV_WC_RETRY_EXC_ERR,
        _ => IBV_WC_REM_INV_REQ_ERR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vp_api::{QpId, Stag};

    fn failed(opcode: WcOpcode, status: WcStatus) -> WorkCompletion {
        WorkCompletion { opcode, status, ..WorkCompletion::BLANK }
    }

    #[test]
    fn a_message_too_long_for_its_receive_is_a_length_error() {
        assert_eq!(status(&failed(WcOpcode::Recv, WcStatus::Bounds)), IBV_WC_LOC_LEN_ERR);
        assert_eq!(status(&failed(WcOpcode::Send, WcStatus::Bounds)), IBV_WC_LOC_PROT_ERR);
        assert_eq!(status(&failed(WcOpcode::Send, WcStatus::Flushed)), IBV_WC_WR_FLUSH_ERR);
    }

    #[test]
    fn the_first_lost_send_reports_the_cause() {
        let mut qp = QpInfo::new(QpId(1));
        assert_eq!(first_lost(&qp), None);
        qp.ended = Some(AsyncEvent::ConnectionReset);
        assert_eq!(first_lost(&qp), Some(IBV_WC_RETRY_EXC_ERR));
        qp.terminate = Some(Terminate::new(false, 1, 2, 2));
        assert_eq!(first_lost(&qp), Some(IBV_WC_RNR_RETRY_EXC_ERR));
        qp.terminate = Some(Terminate::new(false, 0, 1, 0xff));
        assert_eq!(first_lost(&qp), Some(IBV_WC_REM_ACCESS_ERR));
        qp.terminate = Some(Terminate::new(false, 1, 1, 1));
        assert_eq!(first_lost(&qp), Some(IBV_WC_REM_ACCESS_ERR));
        // An error that this end found in the peer's request concerns none of its own.
        qp = QpInfo::new(QpId(1));
        qp.terminate = Some(Terminate::new(true, 1, 1, 1));
        assert_eq!(first_lost(&qp), None);
    }

    #[test]
    fn immediate_data_comes_back_in_network_order() {
        let immediate = Some(u64::from(u32::from_be(0x0102_0304)));
        let wc = of(&WorkCompletion { immediate, ..WorkCompletion::BLANK }, 7);
        assert_eq!((wc.imm_or_rkey, wc.wc_flags, wc.qp_num), (0x0102_0304, IBV_WC_WITH_IMM, 7));
        let invalidated = Some(Stag(0x700));
        let wc = of(&WorkCompletion { invalidated, ..WorkCompletion::BLANK }, 7);
        assert_eq!((wc.imm_or_rkey, wc.wc_flags), (0x700, IBV_WC_WITH_INV));
    }
}
