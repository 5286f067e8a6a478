//! Calls for services that offer queue pairs for datagrams: requests to other machines, and
//! replies. Run in the caller's thread.

use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::{ServiceRefusal, UdAddress, VpError, VpStatus};

use crate::error::{Error, Result};
use crate::face::ReplySink;
use crate::manager::Cm;
use crate::requests::{self, Asker};
use crate::types::RequestId;

/// Replies to a service request with a queue pair, or with the reason why not (IT-API
/// `it_ud_service_reply`).
pub fn reply(
    request: RequestId,
    answer: std::result::Result<UdAddress, ServiceRefusal>,
    private_data: &[u8],
) -> Result<()> {
    let Asker { datagrams, request } = requests::claim_to_reply(request, private_data.len())?;
    let answered = match answer {
        Ok(address) => datagrams.accept(request, address, private_data),
        Err(why) => datagrams.reject(request, why, private_data),
    };
    answered.map_err(Error::verb("reply to a service request"))
}

impl Cm {
    /// Sends a service request to `peer`. `sink` gets one reply, unless the request is cancelled before.
    pub fn request_service(
        &self,
        sink: &Arc<dyn ReplySink>,
        peer: SocketAddr,
        private_data: &[u8],
    ) -> Result<()> {
        let attempt = "ask a service";
        let Some(datagrams) = &self.datagrams else {
            let why = "this device has no datagrams: its transport has connections only";
            return Err(Error::verb(attempt)(VpError::new(VpStatus::Unsupported, why)));
        };
        let token = self.service_queries.token();
        self.service_queries.add(token, Arc::downgrade(sink));
        datagrams.resolve(token, peer, private_data).map_err(|error| {
            self.service_queries.finish(token);
            Error::verb(attempt)(error)
        })
    }

    /// Cancels the service requests whose replies `sink` waits for.
    pub fn stop_asking(&self, sink: &dyn ReplySink) {
        let tokens = self.service_queries.take_of(sink);
        if let Some(datagrams) = &self.datagrams {
            // The reply may arrive concurrently.
            tokens.into_iter().for_each(|token| drop(datagrams.cancel(token)));
        }
    }
}
