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
use super::ports::Held;
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
    /// Binds to an address of this machine, and to the device that has it. The wildcard names no device, nor does
    /// loopback, as in the kernel: libfabric offers other hosts each address that has one.
    pub(super) fn bind(&mut self, address: SocketAddr) -> Result<(), Errno> {
        let adapter = self.bind_port(address)?;
        let ip = address.ip().to_canonical();
        self.adapter = (!ip.is_unspecified() && !ip.is_loopback()).then_some(adapter);
        Ok(())
    }

    /// Binds to an address; returns the device that has it.
    fn bind_port(&mut self, address: SocketAddr) -> Result<Arc<Adapter>, Errno> {
        check_scope(address)?;
        let adapter = adapter_of(address.ip(), self.is_datagrams)?;
        let sharing = self.options.sharing;
        let given = Held::take(address, sharing, self.is_datagrams)?;
        let bound = adapter.cm().bind_shared(port::wire(address), sharing)?;
        let bound = if self.is_datagrams { bound.for_datagrams() } else { bound };
        self.local = bound.addresses().first().copied().map(port::from_wire);
        let chosen = self.local.filter(|_| address.port() == 0);
        self.held = Some(match chosen {
            Some(local) => Held::take(local, sharing, self.is_datagrams)?,
            None => given,
        });
        self.bound = Some(bound);
        Ok(adapter)
    }

    /// Determines local address and device for a peer, and binds a port there if none is bound yet.
    fn resolve(&mut self, remote: SocketAddr) -> Result<(), Errno> {
        let specific = self.local.filter(|local| !local.ip().is_unspecified());
        let source = match specific {
            Some(mut local) => {
                local.set_port(0);
                local
            }
            None => source_for(remote)?,
        };
        match self.local {
            None => self.adapter = Some(self.bind_port(source)?),
            Some(local) => {
                self.adapter = Some(Adapter::for_address(source.ip(), self.is_datagrams)?);
                let mut seen = source;
                seen.set_port(local.port());
                self.local = Some(seen);
            }
        }
        self.remote = Some(remote);
        Ok(())
    }
}

/// A link-local address needs its interface, which must have it: EINVAL, ENODEV or EADDRNOTAVAIL otherwise.
fn check_scope(address: SocketAddr) -> Result<(), Errno> {
    match address {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_port(0);
            Ok(UdpSocket::bind(v6).map(drop)?)
        }
        _ => Ok(()),
    }
}

/// The device with an address; if several listen everywhere, the first.
fn adapter_of(ip: IpAddr, datagrams: bool) -> Result<Arc<Adapter>, Errno> {
    match Adapter::for_address(ip, datagrams) {
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
