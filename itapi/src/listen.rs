//! Listeners and the requests that come to them. A request that is dropped unanswered is rejected,
//! so no peer waits in vain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ual::{
    AcceptParams, ConnRequest, Ends, Established, EvdInit, Event, ListenInit, Policy, Stream,
};

use crate::ep::Ep;
use crate::error::Result;
use crate::events::next;
use crate::ia::Ia;

/// Requests that wait to be taken; more are rejected.
const BACKLOG: u32 = 256;

/// Listener (IT-API `it_listen_create`). Dropping it stops listening.
#[derive(Clone)]
pub struct Listen {
    listen: Arc<ual::Listen>,
    evd: Arc<ual::Evd>,
    ia: Ia,
}

/// Makes a [`Listen`].
pub struct ListenBuilder<'a> {
    ia: &'a Ia,
    addresses: Vec<SocketAddr>,
    policy: Option<Policy>,
    backlog: u32,
}

impl<'a> ListenBuilder<'a> {
    pub(crate) fn new(ia: &'a Ia, addresses: Vec<SocketAddr>) -> Self {
        Self { ia, addresses, policy: None, backlog: BACKLOG }
    }

    /// Policy for its connections instead of the adapter's.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Requests that may wait to be taken; more are rejected.
    pub fn backlog(mut self, requests: u32) -> Self {
        self.backlog = requests;
        self
    }

    /// Listens.
    pub fn listen(self) -> Result<Listen> {
        let init = EvdInit::new(Stream::Request, self.backlog);
        let evd = self.ia.ual().create_evd(init)?;
        let addresses = self.addresses;
        let listen = ListenInit {
            addresses,
            evd: evd.clone(),
            policy: self.policy,
            suppress_ird_ord: false,
        };
        Ok(Listen { listen: self.ia.ual().listen(listen)?, evd, ia: self.ia.clone() })
    }
}

impl Listen {
    /// The first address, with the real port.
    pub fn address(&self) -> SocketAddr {
        // A listener has at least one address.
        self.addresses()[0]
    }

    /// Where it listens, with the real port.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.listen.addresses()
    }

    /// The oldest request, waiting for one; `None` after the time-out.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Request>> {
        let request = next(&self.evd, Some(timeout), |event| match event {
            Event::Request(request) => Some(request),
            _ => None,
        })?;
        Ok(request.map(|request| Request { request, ia: self.ia.clone(), answered: false }))
    }

    /// The oldest request, waiting for one as long as it takes.
    pub fn request(&self) -> Result<Request> {
        loop {
            if let Some(request) = self.wait(Duration::MAX)? {
                return Ok(request);
            }
        }
    }
}

/// Someone wants to connect.
#[derive(Debug)]
pub struct Request {
    request: Box<ConnRequest>,
    ia: Ia,
    answered: bool,
}

impl Request {
    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Both ends.
    pub fn ends(&self) -> &Ends {
        &self.request.ends
    }

    /// All that is known of it.
    pub fn details(&self) -> &ConnRequest {
        &self.request
    }

    /// Accepts onto an endpoint and waits until it is connected, or not; the policy bounds the wait.
    pub fn accept(self, ep: &Ep, private_data: &[u8]) -> Result<Established> {
        self.start_accept(ep, private_data)?;
        ep.wait_established()
    }

    /// Accepts; a connection event says what became of it.
    pub fn start_accept(mut self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        let params = AcceptParams { private_data: private_data.to_vec(), ..Default::default() };
        ep.ual().accept(self.request.request, params)?;
        self.answered = true;
        Ok(())
    }

    /// Rejects, telling the peer why.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.answered = true;
        Ok(self.ia.ual().reject(self.request.request, private_data)?)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.answered {
            // A peer that gave up in the meantime needs no answer.
            let _ = self.ia.ual().reject(self.request.request, &[]);
        }
    }
}
