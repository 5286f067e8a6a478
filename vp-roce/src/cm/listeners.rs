//! Listeners of the process, and the choice of their ports.
//!
//! Owner: the connection manager's table. The port numbers are rdma_cm's: two listeners of the process have one number
//! only at different addresses. A listener holds its sockets open.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vp_api::{VpError, VpResult, VpStatus};

use super::Events;
use crate::engine::Socket;

/// First port of the range from which free ports are chosen.
pub(super) const FIRST_PORT: u16 = 32_768;

/// A listener.
pub(super) struct Listener {
    pub(super) events: Arc<Events>,
    pub(super) address: IpAddr,
    /// 0: a free port is chosen.
    pub(super) port: u16,
    pub(super) backlog: usize,
    pub(super) _sockets: Vec<Arc<Socket>>,
}

impl Listener {
    fn hears(&self, address: IpAddr, port: u16) -> bool {
        let here = self.address == address
            || (self.address.is_unspecified() && self.address.is_ipv4() == address.is_ipv4());
        here && self.port == port
    }

    /// Whether another listener with this port would hear the same requests.
    fn overlaps(&self, address: IpAddr, port: u16) -> bool {
        self.port == port
            && (self.address == address
                || self.address.is_unspecified()
                || address.is_unspecified())
    }
}

/// The listeners, by token.
#[derive(Default)]
pub(super) struct Listeners {
    last: u64,
    all: BTreeMap<u64, Listener>,
}

impl Listeners {
    /// Adds a listener, and returns its token and its port.
    pub(super) fn add(&mut self, mut listener: Listener) -> VpResult<(u64, u16)> {
        let address = listener.address;
        let taken = |port| self.all.values().any(|one| one.overlaps(address, port));
        if listener.port == 0 {
            let free = (FIRST_PORT..=u16::MAX).find(|port| !taken(*port));
            listener.port = free.ok_or_else(|| {
                VpError::new(VpStatus::InsufficientResources, "all ports of RoCE are in use")
            })?;
        } else if taken(listener.port) {
            let address = SocketAddr::new(address, listener.port);
            let detail = format!("another listener of this process has {address} for RoCE");
            return Err(VpError::new(VpStatus::Os, detail));
        }
        let port = listener.port;
        self.last += 1;
        self.all.insert(self.last, listener);
        Ok((self.last, port))
    }

    /// Removes a listener of the RNIC with these events; false if it has none with this token.
    pub(super) fn remove(&mut self, token: u64, events: &Arc<Events>) -> bool {
        let is_own = self.all.get(&token).is_some_and(|one| Arc::ptr_eq(&one.events, events));
        is_own && self.all.remove(&token).is_some()
    }

    /// Removes all listeners of an RNIC.
    pub(super) fn remove_all(&mut self, events: &Arc<Events>) {
        self.all.retain(|_, one| !Arc::ptr_eq(&one.events, events));
    }

    /// The listener for a request to this address and port, with its token.
    pub(super) fn find(&self, address: IpAddr, port: u16) -> Option<(u64, &Listener)> {
        let found = self.all.iter().find(|(_, one)| one.hears(address, port));
        found.map(|(token, one)| (*token, one))
    }
}
