//! Calls that bind and listen, in the caller's thread: sockets first, so that errors are returned to the
//! caller; then the table.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kal_os::Use;
use kal_shim::reactor::Interest;
use kal_shim::sock::{self, Sharing};
use vp_api::{Datagrams, NativeCm, VpError, VpStatus};

use crate::error::{Error, Result};
use crate::face::RequestSink;
use crate::listener::{
    BACKLOG, Bound, Listening, NativeListener, Serves, Service, ServiceListener,
};
use crate::mailbox::{Command, Target};
use crate::manager::Cm;
use crate::policy::Policies;
use crate::registry;
use crate::types::ListenerId;

/// Free ports for connections that are tried until one is free for datagrams, too.
const TRIES: usize = 16;

impl Cm {
    /// Binds all the addresses, or none: with the port of the first, or with any port that is free at
    /// all of them. [`Error::AddressInUse`]: one of them is in use. [`Error::InvalidArgument`]: the list
    /// is empty.
    pub fn bind(&self, addresses: &[SocketAddr], serves: Serves) -> Result<Bound> {
        if addresses.is_empty() {
            return Err(Error::InvalidArgument("a listener needs an address".into()));
        }
        let any_port = addresses.iter().all(|address| address.port() == 0);
        let (mut addresses, mut sockets) = (addresses.to_vec(), Vec::new());
        if serves != Serves::Datagrams && self.native().is_none() {
            sockets = sock::bind_all(&addresses).map_err(|(address, error)| {
                Error::at(format!("bind to {address}"), address, Use::Bind)(error)
            })?;
            addresses = sockets.iter().map(|bound| bound.address).collect();
        }
        Ok(Bound { addresses, serves, sockets, any_port, is_aside: false })
    }

    /// Binds one address for connections, which others may share as `sharing` allows; errors as for
    /// [`Cm::bind`]. At a provider with a connection manager of its own the address is reserved by
    /// listening, and any free port is one that is free for TCP, too, which is held until then.
    pub fn bind_shared(&self, address: SocketAddr, sharing: Sharing) -> Result<Bound> {
        let any_port = address.port() == 0;
        let serves = Serves::Connections;
        if self.native().is_some() && !any_port {
            let addresses = everywhere(address, sharing);
            return Ok(Bound { addresses, serves, sockets: Vec::new(), any_port, is_aside: false });
        }
        let attempt = format!("bind to {address}");
        let socket =
            sock::bind(address, sharing).map_err(Error::at(attempt, address, Use::Bind))?;
        let addresses = match self.native() {
            Some(_) => everywhere(socket.address, sharing),
            None => vec![socket.address],
        };
        Ok(Bound { addresses, serves, sockets: vec![socket], any_port, is_aside: false })
    }

    /// Lets peers connect to bound addresses; their requests wait until [`Cm::serve`].
    pub fn listen(&self, bound: Bound) -> Result<Listening> {
        // Listeners have odd tokens; the table gives even ones to connections.
        let id = ListenerId(self.listeners.fetch_add(1, Ordering::Relaxed) * 2 + 1);
        match (bound.serves, &self.datagrams) {
            (Serves::Datagrams, None) => {
                let why = "this device has no datagrams: its transport has connections only";
                Err(Error::verb("listen for datagrams")(VpError::new(VpStatus::Unsupported, why)))
            }
            (Serves::Datagrams, Some(datagrams)) => {
                let services = self.listen_services(datagrams, &bound.addresses)?;
                let addresses = services.iter().map(|service| service.address).collect();
                Ok(Listening { id, addresses, sockets: Vec::new(), native: Vec::new(), services })
            }
            (Serves::Both, Some(datagrams)) => self.listen_both(id, bound, datagrams),
            (Serves::Connections, _) | (Serves::Both, None) => self.listen_connections(id, bound),
        }
    }

    /// The same ports for both. If any port will do, searches one that is free for both.
    fn listen_both(
        &self,
        id: ListenerId,
        mut bound: Bound,
        datagrams: &Arc<dyn Datagrams>,
    ) -> Result<Listening> {
        let (serves, any_port) = (bound.serves, bound.any_port);
        let mut tries = if any_port { TRIES } else { 1 };
        loop {
            let listening = self.listen_connections(id, bound)?;
            tries -= 1;
            match self.listen_services(datagrams, &listening.addresses) {
                Ok(services) => return Ok(Listening { services, ..listening }),
                Err(Error::AddressInUse(_)) if tries > 0 => {
                    let any = |address: &SocketAddr| SocketAddr::new(address.ip(), 0);
                    let anywhere: Vec<_> = listening.addresses.iter().map(any).collect();
                    drop(listening);
                    bound = self.bind(&anywhere, serves)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn listen_connections(&self, id: ListenerId, bound: Bound) -> Result<Listening> {
        let services = Vec::new();
        if let Some(native) = self.native() {
            let native = listen_native(native, &bound)?;
            let addresses = native.iter().map(|native| native.address).collect();
            return Ok(Listening { id, addresses, sockets: Vec::new(), native, services });
        }
        let Bound { addresses, sockets, .. } = bound;
        let attempt = || format!("listen on {}", list(&addresses));
        for socket in &sockets {
            sock::listen_on(&socket.socket, BACKLOG).map_err(Error::at(
                attempt(),
                socket.address,
                Use::Bind,
            ))?;
            // Until it knows the token, the table ignores events for it.
            self.sleeper.add(&socket.socket, id.0, Interest::READ).map_err(Error::os(attempt()))?;
        }
        Ok(Listening { id, addresses, sockets, native: Vec::new(), services })
    }

    /// Listens for service requests at all these addresses, or at none.
    fn listen_services(
        &self,
        datagrams: &Arc<dyn Datagrams>,
        addresses: &[SocketAddr],
    ) -> Result<Vec<ServiceListener>> {
        let mut services: Vec<ServiceListener> = Vec::new();
        for address in addresses {
            let port = services.first().map_or(address.port(), |first| first.address.port());
            let id = self.service_queries.token();
            match datagrams.listen(id, SocketAddr::new(address.ip(), port), BACKLOG) {
                Ok(address) => {
                    services.push(ServiceListener { datagrams: datagrams.clone(), id, address });
                }
                Err(error) => {
                    let what = format!("serve service requests at {address}");
                    return Err(Error::busy_or_verb("serve requests for services", what, error));
                }
            }
        }
        Ok(services)
    }

    /// Begins to deliver requests to `sink`, handled by `policies`. `suppress_ird_ord`: leave IRD and
    /// ORD out of the replies.
    pub fn serve(
        &self,
        listening: Listening,
        sink: &Arc<dyn RequestSink>,
        policies: Policies,
        suppress_ird_ord: bool,
    ) {
        let (token, addresses) = (listening.id.0, listening.addresses.clone());
        let port = addresses.first().map_or(0, SocketAddr::port);
        let sink = Arc::downgrade(sink);
        let service = Box::new(Service { sink, policies, suppress_ird_ord, port });
        self.mailbox.send(Command::Listen { listening, service });
        // After the command, so that the table knows the listener before it gets a request.
        registry::add(Target { owner: self.mailbox.clone(), token }, addresses);
    }

    /// Stops listening. The addresses are free when this returns. Start-ups without a whole request are
    /// dropped; requests already delivered can still be accepted or rejected.
    pub fn unlisten(&self, id: ListenerId) {
        registry::remove(&self.mailbox, id.0);
        self.driver.execute_in_order(Command::Unlisten { token: id.0 });
    }
}

/// Listens at all addresses through the provider, or at none.
fn listen_native(native: &Arc<dyn NativeCm>, bound: &Bound) -> Result<Vec<NativeListener>> {
    let mut listening: Vec<NativeListener> = Vec::new();
    for address in &bound.addresses {
        let port = listening.first().map_or(address.port(), |first| first.address.port());
        let at = SocketAddr::new(address.ip(), port);
        let made = match bound.is_aside {
            true => native.listen_aside(at, BACKLOG),
            false => native.listen(at, BACKLOG),
        };
        match made {
            Ok((id, address)) => {
                listening.push(NativeListener { manager: native.clone(), id, address });
            }
            Err(error) => {
                let what = format!("listen on {address}");
                return Err(Error::busy_or_verb("listen", what, error));
            }
        }
    }
    Ok(listening)
}

/// An address, and that of IPv4 beside the unspecified one of IPv6, which includes it for sockets.
fn everywhere(address: SocketAddr, sharing: Sharing) -> Vec<SocketAddr> {
    let both = address.is_ipv6() && address.ip().is_unspecified() && !sharing.v6_only;
    let v4 = both.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
    std::iter::once(address).chain(v4).collect()
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}
