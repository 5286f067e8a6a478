//! Maps asynchronous events of the provider to IT-API's affiliated events. No state.

use ual::vp_api::{AsyncEvent, Terminate};
use ual::{AsyncSource, Ia};

use crate::types::*;

/// Event number and the handle of its cause. `None`: the object is gone, or it is no error.
pub(super) fn of(
    source: AsyncSource,
    event: AsyncEvent,
    ia: &Ia,
) -> Option<(it_event_type_t, u64)> {
    Some(match source {
        AsyncSource::Ep(qp) => {
            let datagrams = || ia.ud_ep(qp).map(|ep| ep.tag().get());
            let cause = ia.ep(qp).map(|ep| ep.tag().get()).or_else(datagrams)?;
            (of_ep(event)?, cause)
        }
        AsyncSource::Srq(srq) => (of_srq(event), ia.srq(srq)?.tag().get()),
        AsyncSource::Evd(cq) => (of_evd(event), ia.evd(cq)?.tag().get()),
        AsyncSource::Queue(tag) => (of_evd(event), tag),
    })
}

/// The LLP stream ended: reset, timed out, or closed in the middle of work.
pub(super) fn is_loss(event: AsyncEvent) -> bool {
    matches!(event, AsyncEvent::ConnectionReset | AsyncEvent::ConnectionLost | AsyncEvent::BadClose)
}

pub(super) fn of_ep(event: AsyncEvent) -> Option<it_event_type_t> {
    Some(match event {
        AsyncEvent::Established | AsyncEvent::CloseComplete => return None,
        AsyncEvent::TerminateReceived(terminate) => received(terminate),
        AsyncEvent::TerminateSent(terminate) => sent(terminate),
        event if is_loss(event) => IT_ASYNC_AFF_EP_L_LLP_ERROR,
        AsyncEvent::CqOverrun => IT_ASYNC_AFF_SEVD_ENQUEUE_FAILURE,
        AsyncEvent::RecvLimit => IT_ASYNC_AFF_EP_SOFT_HI_WATERMARK,
        AsyncEvent::SrqLimit => IT_ASYNC_AFF_EP_SRQ_ERROR,
        _ => IT_ASYNC_AFF_EP_FAILURE,
    })
}

/// The peer found an error of ours (RFC 5040 4.8, RFC 5041 6.2).
fn received(terminate: Terminate) -> it_event_type_t {
    match (terminate.layer, terminate.etype, terminate.code) {
        (0, 1, _) | (1, 1, 0..=3) => IT_ASYNC_AFF_EP_R_ACCESS_VIOLATION,
        (1, 2, 5) => IT_ASYNC_AFF_EP_R_RECV_LENGTH_ERROR,
        (1, 2, 2..=4) => IT_ASYNC_AFF_EP_R_RECV_ACCESS_VIOLATION,
        _ => IT_ASYNC_AFF_EP_R_ERROR,
    }
}

/// This end found an error: of the peer, or of its own.
fn sent(terminate: Terminate) -> it_event_type_t {
    match (terminate.layer, terminate.etype, terminate.code) {
        // RFC 5040 4.8: local, or of the stream or of all streams.
        (0 | 1, 0, _) | (0, 2, 7 | 8) => IT_ASYNC_AFF_EP_FAILURE,
        // The STag cannot be invalidated.
        (0, 1, 9) => IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION,
        // RDMAP's other protection errors are of the source of the peer's RDMA Reads.
        (0, 1, _) => IT_ASYNC_AFF_EP_RDMAR_ACCESS_VIOLATION,
        (1, 1, 0..=3) => IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION,
        (1, 2, 2..=5) => IT_ASYNC_AFF_EP_L_RECV_ACCESS_VIOLATION,
        (0 | 1, _, _) => IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR,
        _ => IT_ASYNC_AFF_EP_L_LLP_ERROR,
    }
}

fn of_srq(event: AsyncEvent) -> it_event_type_t {
    match event {
        AsyncEvent::SrqLimit => IT_ASYNC_AFF_SRQ_LOW_WATERMARK,
        _ => IT_ASYNC_AFF_SRQ_CATASTROPHIC,
    }
}

fn of_evd(event: AsyncEvent) -> it_event_type_t {
    match event {
        AsyncEvent::CqOverrun => IT_ASYNC_AFF_SEVD_FULL_ERROR,
        _ => IT_ASYNC_AFF_SEVD_OP_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminate_names_the_end_at_fault() {
        let is = Terminate::new;
        let event = |t: Terminate| match t.sent {
            true => of_ep(AsyncEvent::TerminateSent(t)).unwrap(),
            false => of_ep(AsyncEvent::TerminateReceived(t)).unwrap(),
        };
        let cases = [
            (is(false, 0, 0, 0), IT_ASYNC_AFF_EP_R_ERROR),
            (is(false, 0, 1, 2), IT_ASYNC_AFF_EP_R_ACCESS_VIOLATION),
            (is(false, 0, 2, 5), IT_ASYNC_AFF_EP_R_ERROR),
            (is(false, 1, 1, 1), IT_ASYNC_AFF_EP_R_ACCESS_VIOLATION),
            (is(false, 1, 2, 2), IT_ASYNC_AFF_EP_R_RECV_ACCESS_VIOLATION),
            (is(false, 1, 2, 5), IT_ASYNC_AFF_EP_R_RECV_LENGTH_ERROR),
            (is(false, 2, 0, 2), IT_ASYNC_AFF_EP_R_ERROR),
            (is(true, 0, 0, 0), IT_ASYNC_AFF_EP_FAILURE),
            (is(true, 0, 1, 0), IT_ASYNC_AFF_EP_RDMAR_ACCESS_VIOLATION),
            (is(true, 0, 1, 9), IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION),
            (is(true, 0, 2, 6), IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR),
            (is(true, 0, 2, 7), IT_ASYNC_AFF_EP_FAILURE),
            (is(true, 1, 1, 0), IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION),
            (is(true, 1, 1, 4), IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR),
            (is(true, 1, 2, 1), IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR),
            (is(true, 1, 2, 5), IT_ASYNC_AFF_EP_L_RECV_ACCESS_VIOLATION),
            (is(true, 2, 0, 2), IT_ASYNC_AFF_EP_L_LLP_ERROR),
        ];
        for (terminate, expected) in cases {
            assert_eq!(event(terminate), expected, "{terminate:?}");
        }
        assert_eq!(of_ep(AsyncEvent::Established), None);
        // An overflow has an event for the dispatcher and one for the endpoint.
        let overrun = AsyncEvent::CqOverrun;
        assert_eq!(of_ep(overrun), Some(IT_ASYNC_AFF_SEVD_ENQUEUE_FAILURE));
        assert_eq!(of_evd(overrun), IT_ASYNC_AFF_SEVD_FULL_ERROR);
    }
}
