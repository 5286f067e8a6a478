//! Completion events in C's terms, and the IT-API status for each completion status. Plain values.

use ual::vp_api::{Terminate, WcOpcode, WcStatus};

use super::types::*;

/// A completion event in C's terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// Its event number.
    pub(crate) event: it_event_type_t,
    /// The endpoint's handle.
    pub(crate) ep: u64,
    /// As posted; one of 8 octets is the first number.
    pub(crate) cookie: [u64; 3],
    /// Its status.
    pub(crate) status: it_dto_status_t,
    /// Octets.
    pub(crate) length: u32,
    /// The handle of the memory that it unlinked, or 0.
    pub(crate) unlinked: u64,
    /// Immediate Data that came with it (receives only): see [`IMMEDIATE`].
    pub(crate) immediate: Option<u64>,
}

/// In the `flags` of an `it_all_dto_cmpl_event_t`: its `src_path.timeout` is Immediate Data. A receive
/// on a connection uses neither member for anything else.
pub(crate) const IMMEDIATE: it_dto_ud_flags_t = 1 << 31;

/// The `it_dto_status_t` of a completion. `terminate`: the peer's Terminate, if that was the cause.
pub(crate) fn status_of(
    event: it_event_type_t,
    opcode: WcOpcode,
    status: WcStatus,
    terminate: Option<Terminate>,
) -> it_dto_status_t {
    match (event, status) {
        (_, WcStatus::Success) => return IT_DTO_SUCCESS,
        (_, WcStatus::Flushed) => return IT_DTO_ERR_FLUSHED,
        (IT_LMR_LINK_CMPL_EVENT, _) => return IT_DTO_ERR_LOCAL_MM_OPERATION,
        // One number for link and unlink; IT-API distinguishes them by the status.
        (IT_RMR_LINK_CMPL_EVENT, _) if opcode == WcOpcode::InvalidateLocal => {
            return IT_DTO_ERR_LOCAL_MM_OPERATION;
        }
        (IT_RMR_LINK_CMPL_EVENT, _) => return IT_RMR_OPERATION_FAILED,
        _ => (),
    }
    match status {
        // The message was longer than its receive; else outside a local region.
        WcStatus::Bounds
            if matches!(event, IT_DTO_RC_RECV_CMPL_EVENT | IT_DTO_UD_RECV_CMPL_EVENT) =>
        {
            IT_DTO_ERR_LOCAL_LENGTH
        }
        WcStatus::InvalidLength => IT_DTO_ERR_LOCAL_LENGTH,
        WcStatus::InvalidStag
        | WcStatus::Bounds
        | WcStatus::AccessViolation
        | WcStatus::InvalidPd
        | WcStatus::Wrap
        | WcStatus::CannotInvalidate
        | WcStatus::NotPrivileged => IT_DTO_ERR_LOCAL_PROTECTION,
        WcStatus::StagNotInvalid | WcStatus::InvalidWindow => IT_DTO_ERR_LOCAL_MM_OPERATION,
        WcStatus::RemoteTermination => terminated(terminate),
        // InvalidWqe, LocalCatastrophic, ZeroReadResources: the endpoint itself. And statuses that a
        // provider adds.
        _ => IT_DTO_ERR_LOCAL_EP,
    }
}

// RFC 5040 4.8: layer and error type.
fn terminated(terminate: Option<Terminate>) -> it_dto_status_t {
    match terminate.map(|terminate| (terminate.layer, terminate.etype)) {
        Some((0 | 1, 1)) => IT_DTO_ERR_REMOTE_ACCESS,
        Some((2, _)) => IT_DTO_ERR_TRANSPORT,
        _ => IT_DTO_ERR_REMOTE_RESPONDER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(WcStatus, it_dto_status_t); 17] = [
        (WcStatus::Success, 0),
        (WcStatus::InvalidStag, 3),
        (WcStatus::Flushed, 4),
        (WcStatus::InvalidWqe, 2),
        (WcStatus::LocalCatastrophic, 2),
        (WcStatus::RemoteTermination, 8),
        (WcStatus::Bounds, 3),
        (WcStatus::AccessViolation, 3),
        (WcStatus::InvalidPd, 3),
        (WcStatus::Wrap, 3),
        (WcStatus::CannotInvalidate, 3),
        (WcStatus::ZeroReadResources, 2),
        (WcStatus::NotPrivileged, 3),
        (WcStatus::StagNotInvalid, 12),
        (WcStatus::InvalidWindow, 12),
        (WcStatus::InvalidLength, 1),
        (WcStatus::Flushed, 4),
    ];

    #[test]
    fn each_completion_status_has_one_of_it_api() {
        for (status, expected) in ALL {
            let found = status_of(IT_DTO_SEND_CMPL_EVENT, WcOpcode::Send, status, None);
            assert_eq!(found, expected, "{status:?}");
            for (event, opcode, failed) in [
                (IT_LMR_LINK_CMPL_EVENT, WcOpcode::FastRegister, IT_DTO_ERR_LOCAL_MM_OPERATION),
                (IT_RMR_LINK_CMPL_EVENT, WcOpcode::BindMw, IT_RMR_OPERATION_FAILED),
                (IT_RMR_LINK_CMPL_EVENT, WcOpcode::InvalidateLocal, IT_DTO_ERR_LOCAL_MM_OPERATION),
            ] {
                let expected = match status {
                    WcStatus::Success => IT_DTO_SUCCESS,
                    WcStatus::Flushed => IT_DTO_ERR_FLUSHED,
                    _ => failed,
                };
                assert_eq!(status_of(event, opcode, status, None), expected, "{status:?}");
            }
        }
        let too_long = status_of(IT_DTO_RC_RECV_CMPL_EVENT, WcOpcode::Recv, WcStatus::Bounds, None);
        assert_eq!(too_long, IT_DTO_ERR_LOCAL_LENGTH);
    }

    #[test]
    fn a_terminate_names_the_error_that_the_peer_found() {
        let terminate = |layer, etype| Terminate::new(false, layer, etype, 0);
        for (layer, etype, expected) in [
            (0, 1, IT_DTO_ERR_REMOTE_ACCESS),
            (1, 1, IT_DTO_ERR_REMOTE_ACCESS),
            (1, 2, IT_DTO_ERR_REMOTE_RESPONDER),
            (0, 2, IT_DTO_ERR_REMOTE_RESPONDER),
            (2, 0, IT_DTO_ERR_TRANSPORT),
        ] {
            assert_eq!(terminated(Some(terminate(layer, etype))), expected);
        }
    }
}
