//! Connection management ([`ual_cm`]) as the access layer offers it: its types, and its calls that name no
//! object.

use std::os::fd::OwnedFd;

pub use ual_cm::{
    AcceptParams, Bound, BrokenCause, CmCounters, ConnEvent, ConnRequest, ConnectError,
    ConnectParams, ConnectionEnd, ConvertParams, Disconnect, Established, FailReason, Handoff,
    ListenerId, Lost, PrivateData, RequestId, ServiceReply, ServiceRequest,
};
use vp_api::{ServiceRefusal, UdAddress};

use crate::error::{Error, Result};

/// A socket that stays what it was, and why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ConvertError {
    /// Why.
    #[source]
    pub error: Error,
    /// The socket, untouched.
    pub socket: OwnedFd,
}

impl From<ual_cm::ConvertError> for ConvertError {
    fn from(refused: ual_cm::ConvertError) -> Self {
        Self { error: refused.error.into(), socket: refused.socket }
    }
}

/// Rejects a connection request of any adapter, with private data for the peer (IT-API
/// `it_reject`).
pub fn reject(request: RequestId, private_data: &[u8]) -> Result<()> {
    Ok(ual_cm::reject(request, private_data)?)
}

/// Gives a request to another listener of the process, of this or of another adapter (IT-API
/// `it_handoff`). Its id is stale then; the other listener's dispatcher gets it under a new one. If
/// that listener closes meanwhile the request is rejected.
///
/// [`Error::NoListener`]: nobody listens there; the request can still be answered. A request of a
/// provider with its own connection manager goes to listeners of its own adapter only.
pub fn handoff(request: RequestId, to: Handoff) -> Result<()> {
    Ok(ual_cm::handoff(request, to)?)
}

/// Replies to a service request with a queue pair, or says why not (IT-API `it_ud_service_reply`).
pub fn reply(
    request: RequestId,
    answer: std::result::Result<UdAddress, ServiceRefusal>,
    private_data: &[u8],
) -> Result<()> {
    Ok(ual_cm::reply(request, answer, private_data)?)
}
