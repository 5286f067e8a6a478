//! Maps events to `it_event_type_t`; some events have none. No state.

use ual::vp_api::AsyncEvent;
use ual::{AsyncSource, ConnEvent, ConnectError, Event, FailReason};

use super::affiliated;
use crate::types::*;

/// Whether there is an `it_event_type_t` for it.
pub(super) fn has_number(event: &Event) -> bool {
    match event {
        Event::Affiliated { source: AsyncSource::Ep(_), event } => {
            affiliated::of_ep(*event).is_some()
        }
        Event::Unaffiliated { event, .. } => unaffiliated(*event).is_some(),
        _ => true,
    }
}

/// An endpoint lost its stream without a protocol error; its connection event reports it, too.
pub(super) fn is_loss(event: &Event) -> bool {
    let Event::Affiliated { source: AsyncSource::Ep(_), event } = event else { return false };
    affiliated::is_loss(*event)
}

/// Of a connection event.
pub(super) fn connection_number(event: &ConnEvent) -> it_event_type_t {
    match event {
        ConnEvent::Established(_) => IT_CM_MSG_CONN_ESTABLISHED_EVENT,
        ConnEvent::Rejected { .. } => IT_CM_MSG_CONN_PEER_REJECT_EVENT,
        // it_ep_disconnect ended the attempt, as requested.
        ConnEvent::Failed(ConnectError { reason: FailReason::Cancelled, .. })
        | ConnEvent::Disconnected { .. } => IT_CM_MSG_CONN_DISCONNECT_EVENT,
        ConnEvent::Failed(_) => IT_CM_MSG_CONN_NONPEER_REJECT_EVENT,
        _ => IT_CM_MSG_CONN_BROKEN_EVENT,
    }
}

/// Of an event of the adapter and its ports.
pub(super) fn unaffiliated(event: AsyncEvent) -> Option<it_event_type_t> {
    match event {
        AsyncEvent::PortState { online: true } => Some(IT_ASYNC_UNAFF_SPIGOT_ONLINE),
        AsyncEvent::PortState { online: false } => Some(IT_ASYNC_UNAFF_SPIGOT_OFFLINE),
        AsyncEvent::ListenShortage { .. } => Some(IT_ASYNC_UNAFF_LISTEN_SHORTAGE),
        // IT-API 2.x has no event for a failed adapter: its calls fail.
        _ => None,
    }
}
