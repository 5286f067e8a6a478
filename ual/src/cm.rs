//! Connection management ([`ual_cm`]) for users of the access layer: its types, and the calls that need
//! no object.

use std::os::fd::OwnedFd;

pub use ual_cm::{
    AcceptParams, Bound, BrokenCause, CmCounters, ConnEvent, ConnRequest, ConnectError,
    ConnectParams, ConnectionEnd, ConvertParams, Disconnect, Established, FailReason, Handoff,
    ListenerId, Lost, PrivateData, RequestId, ServiceReply, ServiceRequest,
};
use vp_api::{ServiceRefusal, UdAddress};

use crate::error::{Error, Result};

/// A socket that was not converted, and why.
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
/// `it_handoff`). Its id is stale then; the other listener's dispatcher gets it under a new one. If that
/// listener closes meanwhile the request is rejected.
///
/// [`Error::NoListener`]: there is no such listener; the request can still be accepted or rejected. A
/// request of a provider with its own connection manager goes only to listeners of its own adapter.
pub fn handoff(request: RequestId, to: Handoff) -> Result<()> {
    Ok(ual_cm::handoff(request, to)?)
}

/// Replies to a service request with a queue pair, or with the reason why not (IT-API
/// `it_ud_service_reply`).
pub fn reply(
    request: RequestId,
    answer: std::result::Result<UdAddress, ServiceRefusal>,
    private_data: &[u8],
) -> Result<()> {
    Ok(ual_cm::reply(request, answer, private_data)?)
}
