//! State for providers with a connection manager of their own: connections being made, and requests that
//! arrived before their listener was known. Plain data.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::{Duration, Instant};

use vp_api::{NativeParams, Role};

use crate::connection::Connectee;
use crate::handle::Handle;
use crate::node::Ends;
use crate::policy::Policy;
use crate::ruled::Admission;

/// A request as the provider reports it.
pub(crate) struct NativeRequest {
    /// The provider's listener.
    pub(crate) listener: u64,
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    /// The address that the peer connected to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) asked: NativeParams,
}

/// Requests for listeners that are not in the table: those not added yet, since `listen` returns before
/// the table knows of it, and those that ended while the request was on its way. If the peer leaves
/// meanwhile, the accept or reject fails.
#[derive(Default)]
pub(crate) struct UnmatchedRequests {
    /// For listeners that are not added yet.
    pub(crate) early: Vec<NativeRequest>,
    /// The listeners that ended last; ids are not reused soon.
    ended: VecDeque<u64>,
}

impl UnmatchedRequests {
    /// Most of either kind.
    const MOST: usize = 64;

    /// A listener ended.
    pub(crate) fn ended(&mut self, id: u64) {
        if self.ended.len() == Self::MOST {
            self.ended.pop_front();
        }
        self.ended.push_back(id);
    }

    /// Keeps a request for a listener that is not added yet; `Some`: it is to be rejected.
    pub(crate) fn keep(&mut self, request: NativeRequest) -> Option<u64> {
        if self.ended.contains(&request.listener) || self.early.len() == Self::MOST {
            return Some(request.id);
        }
        self.early.push(request);
        None
    }
}

/// An attempt to connect that is repeated if it fails early: a server may listen anew between two connections.
pub(crate) struct Again {
    pub(crate) remote: SocketAddr,
    pub(crate) wishes: NativeParams,
    /// Later failures are final.
    pub(crate) until: Instant,
    /// The end of the whole attempt.
    pub(crate) deadline: Instant,
    /// It failed, and waits to be repeated.
    pub(crate) paused: bool,
    /// Why the last attempt failed, unless it is the first.
    pub(crate) failed: Option<String>,
}

/// A connection that the provider is making.
pub(crate) enum Pending {
    /// For this endpoint.
    Endpoint {
        party: Weak<dyn Connectee>,
        ends: Ends,
        role: Role,
        policy: Policy,
        timeout: Duration,
        again: Option<Box<Again>>,
    },
    /// The application has the request.
    Request {
        request: u64,
        handle: Handle,
        asked: NativeParams,
        ends: Ends,
        policy: Policy,
        /// Until the application's reply, which passes it on.
        admission: Option<Admission>,
    },
    /// The application has the request for a queue pair that takes datagrams.
    Service { handle: Handle, asked: ServiceAsked },
}

/// A request for a queue pair that takes datagrams, as it arrived.
pub(crate) struct ServiceAsked {
    pub(crate) request: u64,
    pub(crate) spigot: u32,
    pub(crate) private_data: Vec<u8>,
    pub(crate) ends: Ends,
}

impl Pending {
    /// The request that the application has.
    pub(crate) fn request(&self) -> Option<Handle> {
        match self {
            Self::Request { handle, .. } | Self::Service { handle, .. } => Some(*handle),
            Self::Endpoint { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Every request gets a reply: one for a listener that has ended is rejected, one for a listener
    /// that is about to be added waits for it, and neither list grows without bound.
    #[test]
    fn requests_of_unknown_listeners_wait_or_are_rejected() {
        let mut unmatched = UnmatchedRequests::default();
        let peer = (Ipv4Addr::LOCALHOST, 7).into();
        let request = |listener, id| {
            let asked = NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
            NativeRequest { listener, id, peer, local: None, asked }
        };
        unmatched.ended(1);
        assert_eq!(unmatched.keep(request(1, 10)), Some(10));
        for id in 0..UnmatchedRequests::MOST as u64 {
            assert_eq!(unmatched.keep(request(2, id)), None);
            unmatched.ended(100 + id);
        }
        assert_eq!(unmatched.keep(request(2, 99)), Some(99));
        assert_eq!(
            (unmatched.early.len(), unmatched.ended.len()),
            (UnmatchedRequests::MOST, UnmatchedRequests::MOST)
        );
    }
}
