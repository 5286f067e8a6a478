//! Listeners of the process, for connections or for datagram services, and the choice of their ports.
//!
//! Owner: the connection manager's table. The port numbers are rdma_cm's: two listeners of the process have one number
//! only at different addresses. A listener holds its sockets open.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use vp_api::{VpError, VpResult, VpStatus};

use crate::engine::Socket;

/// First port of the range from which free ports are chosen.
pub(super) const FIRST_PORT: u16 = 32_768;

/// A listener.
pub(crate) struct Listener<O> {
    /// Who gets its requests.
    pub(crate) owner: O,
    pub(crate) address: IpAddr,
    /// 0: a free port is chosen.
    pub(crate) port: u16,
    pub(crate) backlog: usize,
    pub(crate) sockets: Vec<Arc<Socket>>,
}

impl<O> Listener<O> {
    fn hears(&self, address: IpAddr, port: u16) -> bool {
        let here = self.address == address
            || (self.address.is_unspecified() && self.address.is_ipv4() == address.is_ipv4());
        here && self.port == port
    }

    /// Whether another listener with this port would hear the same requests.
    fn overlaps(&self, address: IpAddr, port: u16) -> bool {
        let both_of = self.address.is_ipv4() == address.is_ipv4();
        let one_is_all = self.address.is_unspecified() || address.is_unspecified();
        self.port == port && (self.address == address || both_of && one_is_all)
    }
}

/// The listeners, by token.
pub(super) struct Listeners<O> {
    last: u64,
    /// From where a free port is searched.
    free: u16,
    all: BTreeMap<u64, Listener<O>>,
}

impl<O> Default for Listeners<O> {
    fn default() -> Self {
        Self { last: 0, free: 0, all: BTreeMap::new() }
    }
}

impl<O> Listeners<O> {
    /// Adds a listener, and returns its token and its port. `elsewhere`: whether another process has a port.
    pub(super) fn add(
        &mut self,
        mut listener: Listener<O>,
        elsewhere: impl Fn(u16) -> bool,
    ) -> VpResult<(u64, u16)> {
        let address = listener.address;
        let taken =
            |port| self.all.values().any(|one| one.overlaps(address, port)) || elsewhere(port);
        if listener.port == 0 {
            // Behind the last one that was free, so that many listeners are not searched each time.
            let behind = self.free.max(FIRST_PORT)..=u16::MAX;
            let free = behind.chain(FIRST_PORT..=u16::MAX).find(|port| !taken(*port));
            listener.port = free.ok_or_else(|| {
                VpError::new(VpStatus::InsufficientResources, "all ports of RoCE are in use")
            })?;
        } else if taken(listener.port) {
            let address = SocketAddr::new(address, listener.port);
            let detail = format!("another listener of this user has {address} for RoCE");
            return Err(VpError::new(VpStatus::InUse, detail));
        }
        let port = listener.port;
        self.free = port.saturating_add(1);
        self.last += 1;
        self.all.insert(self.last, listener);
        Ok((self.last, port))
    }

    /// Removes the listeners with such a token and owner; false if there are none.
    pub(super) fn remove(&mut self, is: impl Fn(u64, &O) -> bool) -> bool {
        let before = self.all.len();
        self.all.retain(|token, one| !is(*token, &one.owner));
        self.all.len() != before
    }

    /// Whether there is a listener with such an owner.
    pub(super) fn has(&self, is: impl Fn(&O) -> bool) -> bool {
        self.all.values().any(|one| is(&one.owner))
    }

    /// The ports for which requests to this address have a listener.
    pub(super) fn ports(&self, address: IpAddr) -> impl Iterator<Item = u16> {
        self.all.values().filter(move |one| one.hears(address, one.port)).map(|one| one.port)
    }

    /// The listener for a request to this address and port, with its token.
    pub(super) fn find(&self, address: IpAddr, port: u16) -> Option<(u64, &Listener<O>)> {
        let found = self.all.iter().find(|(_, one)| one.hears(address, port));
        found.map(|(token, one)| (*token, one))
    }
}
