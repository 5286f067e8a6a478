//! What the table keeps for a provider's own connection manager: connections under way, and requests that came
//! before their listener was known. Plain data.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Duration;

use vp_api::{NativeParams, Role};

use crate::connection::Connectee;
use crate::handle::Handle;
use crate::node::Ends;
use crate::policy::Policy;

/// A request as the provider tells it.
pub(crate) struct NativeRequest {
    /// The provider's listener.
    pub(crate) listener: u64,
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    /// Where the peer connected to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) asked: NativeParams,
}

/// Requests that the provider tells of listeners that the table does not know: those that it does not
/// know yet, since `listen` returns before the table hears of it, and those that ended while the
/// request was on its way. A peer that leaves meanwhile is heard of when the request is answered.
#[derive(Default)]
pub(crate) struct Strays {
    /// For listeners to come.
    pub(crate) early: Vec<NativeRequest>,
    /// Listeners that ended last; ids are not soon used again.
    ended: VecDeque<u64>,
}

impl Strays {
    /// Most of either kind.
    const MOST: usize = 64;

    /// A listener ended.
    pub(crate) fn ended(&mut self, id: u64) {
        if self.ended.len() == Self::MOST {
            self.ended.pop_front();
        }
        self.ended.push_back(id);
    }

    /// Keeps a request for a listener to come; `Some`: it is to be rejected.
    pub(crate) fn park(&mut self, request: NativeRequest) -> Option<u64> {
        if self.ended.contains(&request.listener) || self.early.len() == Self::MOST {
            return Some(request.id);
        }
        self.early.push(request);
        None
    }
}

/// A connection that the provider is making.
pub(crate) enum Pending {
    /// For this endpoint.
    Endpoint {
        party: Weak<dyn Connectee>,
        ends: Ends,
        role: Role,
        policy: Policy,
        patience: Duration,
    },
    /// The application has the request.
    Request { request: u64, handle: Handle, asked: NativeParams, ends: Ends, policy: Policy },
    /// The application has the request for a queue pair that takes datagrams.
    Service { handle: Handle, asked: ServiceAsked },
}

/// A request for a queue pair that takes datagrams, as it came.
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

    /// Nobody is left without an answer: who asks a listener that has ended is rejected, who asks one
    /// that is about to be known waits for it, and neither list grows.
    #[test]
    fn requests_of_unknown_listeners_wait_or_are_rejected() {
        let mut strays = Strays::default();
        let peer = (Ipv4Addr::LOCALHOST, 7).into();
        let request = |listener, id| {
            let asked = NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
            NativeRequest { listener, id, peer, local: None, asked }
        };
        strays.ended(1);
        assert_eq!(strays.park(request(1, 10)), Some(10));
        for id in 0..Strays::MOST as u64 {
            assert_eq!(strays.park(request(2, id)), None);
            strays.ended(100 + id);
        }
        assert_eq!(strays.park(request(2, 99)), Some(99));
        assert_eq!((strays.early.len(), strays.ended.len()), (Strays::MOST, Strays::MOST));
    }
}
