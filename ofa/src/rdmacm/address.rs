//! Binding and resolving: rdma_bind_addr(3), rdma_resolve_addr(3), rdma_resolve_route(3).
//!
//! A bound address is a bound TCP socket: its port is known and reserved before it is listened on or
//! connected from. The local address for a peer comes from the system's routing table at once, so
//! time-outs do not matter, and failures are reported by events.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use ibv_sys::*;
use kal_os::lock;

use super::event::Event;
use super::id::{Id, Inner, State};
use super::port;
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};

const ENODEV: Errno = Errno(libc::ENODEV);

impl Id {
    /// Binds to a local address, which may be unspecified, with port 0 for any.
    pub(super) fn bind(&self, address: SocketAddr) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        inner.expect(State::Idle)?;
        inner.bind(address)?;
        inner.state = State::Bound;
        Ok(())
    }

    /// Determines device and local address for a peer. An event reports the result.
    pub(super) fn resolve_address(
        self: &Arc<Self>,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        match inner.state {
            State::Idle | State::Bound => {}
            _ => return Err(EINVAL),
        }
        let local = local.filter(|local| !local.ip().is_unspecified() || local.port() != 0);
        if let (State::Idle, Some(local)) = (inner.state, local) {
            inner.bind(local)?;
            inner.state = State::Bound;
        }
        if inner.local.is_some_and(|local| local.is_ipv4() != remote.is_ipv4()) {
            return Err(EINVAL);
        }
        let event = match inner.resolve(remote) {
            Ok(()) => {
                inner.state = State::AddressResolved;
                Event::plain(RDMA_CM_EVENT_ADDR_RESOLVED)
            }
            Err(Errno(errno)) => Event::failed(RDMA_CM_EVENT_ADDR_ERROR, errno),
        };
        self.queue_event(event);
        Ok(())
    }

    /// Paths are left to TCP: there is one.
    pub(super) fn resolve_route(self: &Arc<Self>) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        inner.expect(State::AddressResolved)?;
        inner.state = State::RouteResolved;
        self.queue_event(Event::plain(RDMA_CM_EVENT_ROUTE_RESOLVED));
        Ok(())
    }
}

impl Inner {
    /// Binds to an address of this machine, and to the device that has it unless it is unspecified.
    pub(super) fn bind(&mut self, address: SocketAddr) -> Result<(), Errno> {
        let adapter = adapter_of(address.ip())?;
        let bound = adapter.cm().bind_shared(port::wire(address), self.options.sharing)?;
        let bound = if self.is_datagrams { bound.for_datagrams() } else { bound };
        self.local = bound.addresses().first().copied().map(port::from_wire);
        self.bound = Some(bound);
        self.adapter = (!address.ip().is_unspecified()).then_some(adapter);
        Ok(())
    }

    /// Determines local address and device for a peer, and binds a port there if none is bound yet.
    fn resolve(&mut self, remote: SocketAddr) -> Result<(), Errno> {
        let specific = self.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let source = match specific {
            Some(ip) => SocketAddr::new(ip, 0),
            None => source_for(remote)?,
        };
        match self.local {
            None => self.bind(source)?,
            Some(local) => {
                self.adapter = Some(Adapter::for_address(source.ip())?);
                let mut seen = source;
                seen.set_port(local.port());
                self.local = Some(seen);
            }
        }
        self.remote = Some(remote);
        Ok(())
    }
}

/// The device with an address; if several listen everywhere, the first.
fn adapter_of(ip: IpAddr) -> Result<Arc<Adapter>, Errno> {
    match Adapter::for_address(ip) {
        // An address of another machine, or of a network without a device?
        Err(ENODEV) => match UdpSocket::bind((ip, 0)) {
            Err(error) => Err(error.into()),
            Ok(_) => Err(ENODEV),
        },
        found => found,
    }
}

/// The address that the system would send from, with port 0. Nothing is sent.
fn source_for(remote: SocketAddr) -> Result<SocketAddr, Errno> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Any port will do.
    let mut remote = remote;
    remote.set_port(9);
    socket.connect(remote)?;
    let mut source = socket.local_addr()?;
    source.set_port(0);
    Ok(source)
}
