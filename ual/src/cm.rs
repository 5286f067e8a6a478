//! Connection management: from addresses to connected queue pairs and back.
//!
//! One thread per Ia (`warpline-cm`) owns every socket and machine of connections that are not
//! established yet. Callers send it commands and never wait for it; it never waits for a peer: a
//! slow or hostile one costs a table entry until its timer fires. When a connection is established
//! its socket belongs to the provider, and the thread only hears of its end.

mod message;
mod types;

use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::{QpId, Rnic};

pub use types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectError, ConnectParams, Disconnect,
    Established, FailReason, ListenerId, Lost, RequestId,
};

use crate::error::{Error, Result};
use crate::event::Evd;
use crate::policy::Policy;
use crate::resource::{Directory, Ep};

/// The callers' side of the connection thread.
pub(crate) struct Cm {}

impl Cm {
    pub(crate) fn start(_rnic: Arc<dyn Rnic>, _directory: Arc<Directory>) -> Result<Self> {
        Ok(Self {})
    }
    pub(crate) fn check_connect(&self, _p: &ConnectParams, _policy: &Policy) -> Result<()> {
        Ok(())
    }
    pub(crate) fn connect(&self, _ep: &Arc<Ep>, _p: ConnectParams) {}
    pub(crate) fn accept(&self, _ep: &Arc<Ep>, _r: RequestId, _p: AcceptParams) -> Result<()> {
        Err(Error::Closed(crate::error::Object::Request))
    }
    pub(crate) fn reject(&self, _r: RequestId, _data: &[u8]) -> Result<()> {
        Err(Error::Closed(crate::error::Object::Request))
    }
    pub(crate) fn cancel(&self, _ep: &Arc<Ep>) {}
    pub(crate) fn disconnecting(&self, _ep: &Arc<Ep>, _how: Disconnect) {}
    pub(crate) fn forget(&self, _qp: QpId) {}
    pub(crate) fn listen(
        &self,
        addresses: &[SocketAddr],
        _evd: &Arc<Evd>,
        _policy: Policy,
    ) -> Result<(ListenerId, Vec<SocketAddr>)> {
        Ok((ListenerId(0), addresses.to_vec()))
    }
    pub(crate) fn unlisten(&self, _id: ListenerId) {}
    pub(crate) fn stop(&self) {}
}
