//! The callers' side of listening: sockets first, so that every error is theirs; then the thread.
//! No state.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use kal_shim::reactor::Interest;
use kal_shim::sock;
use vp_api::{Datagrams, NativeCm};

use super::places::Place;
use super::service::TRIES;
use super::{Cm, Command, ListenerId, busy_or_os, busy_or_verb, places};
use crate::error::{Error, Result};
use crate::event::Evd;
use crate::policy::{Policies, Policy};
use crate::resource::{Listen, Serves};

/// Connections that the kernel may hold for us before the thread accepts them.
const BACKLOG: u32 = 1024;

/// Bound, and nobody told yet.
pub(crate) struct Bound {
    pub(crate) id: ListenerId,
    /// With the real port.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(super) sockets: Vec<sock::Listener>,
    /// Names and addresses in the provider's own connection manager, if that is its model.
    pub(super) native: Vec<(u64, SocketAddr)>,
    /// Tokens and addresses of requests for queue pairs that take datagrams.
    pub(super) services: Vec<(u64, SocketAddr)>,
}

/// Who gets the requests, and how they are treated.
pub(super) struct Service {
    pub(super) listen: Weak<Listen>,
    pub(super) evd: Weak<Evd>,
    pub(super) policies: Policies,
    pub(super) suppress_ird_ord: bool,
    pub(super) port: u16,
}

impl Service {
    /// How connections from an address are treated.
    pub(super) fn policy(&self, peer: IpAddr) -> Policy {
        let mut policy = self.policies.of(peer).clone();
        policy.negotiate_ird_ord &= !self.suppress_ird_ord;
        policy
    }
}

impl Cm {
    /// Takes the addresses, or none.
    pub(crate) fn bind(
        &self,
        addresses: &[SocketAddr],
        serves: Serves,
        datagrams: Option<&dyn Datagrams>,
    ) -> Result<Bound> {
        // Odd tokens are listeners; the thread gives the even ones to connections.
        let id = ListenerId(self.listeners.fetch_add(1, Ordering::Relaxed) * 2 + 1);
        match (serves, datagrams) {
            (Serves::Datagrams, Some(datagrams)) => {
                let services = self.bind_services(datagrams, addresses)?;
                let addresses = services.iter().map(|(_, address)| *address).collect();
                Ok(Bound { id, addresses, sockets: Vec::new(), native: Vec::new(), services })
            }
            (Serves::Both, Some(datagrams)) => self.bind_both(id, addresses, datagrams),
            _ => self.bind_connections(id, addresses),
        }
    }

    /// The same ports for both. Where any port will do, one that is free for both is looked for.
    fn bind_both(
        &self,
        id: ListenerId,
        addresses: &[SocketAddr],
        datagrams: &dyn Datagrams,
    ) -> Result<Bound> {
        let chosen = addresses.iter().any(|address| address.port() != 0);
        let mut tries = if chosen { 1 } else { TRIES };
        loop {
            let bound = self.bind_connections(id, addresses)?;
            tries -= 1;
            match self.bind_services(datagrams, &bound.addresses) {
                Ok(services) => return Ok(Bound { services, ..bound }),
                Err(error) => {
                    if let Some(native) = self.native() {
                        unbind_native(native, bound.native);
                    }
                    match error {
                        Error::AddressInUse(_) if tries > 0 => {}
                        error => return Err(error),
                    }
                }
            }
        }
    }

    fn bind_connections(&self, id: ListenerId, addresses: &[SocketAddr]) -> Result<Bound> {
        let services = Vec::new();
        if let Some(native) = self.native() {
            let native = listen_native(native, addresses)?;
            let addresses = native.iter().map(|(_, address)| *address).collect();
            return Ok(Bound { id, addresses, sockets: Vec::new(), native, services });
        }
        let list: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        let attempt = || format!("listen on {}", list.join(", "));
        let sockets = sock::listen_all(addresses, BACKLOG).map_err(busy_or_os(attempt()))?;
        for listener in &sockets {
            // Of a token that the thread does not know yet it hears, and does nothing.
            self.sleeper
                .add(&listener.socket, id.0, Interest::READ)
                .map_err(Error::os(attempt()))?;
        }
        let addresses = sockets.iter().map(|listener| listener.address).collect();
        Ok(Bound { id, addresses, sockets, native: Vec::new(), services })
    }

    /// Begins to take requests.
    pub(crate) fn serve(
        &self,
        bound: Bound,
        listen: &Arc<Listen>,
        policies: Policies,
        suppress_ird_ord: bool,
    ) {
        let (token, addresses) = (bound.id.0, bound.addresses.clone());
        let port = addresses.first().map_or(0, SocketAddr::port);
        let (evd, listen) = (Arc::downgrade(listen.evd()), Arc::downgrade(listen));
        let service = Service { listen, evd, policies, suppress_ird_ord, port };
        self.mailbox.send(Command::Listen { bound, service: Box::new(service) });
        // Behind the command: the thread knows the listener before anything is handed to it.
        places::add(Place { owner: self.mailbox.clone(), token, addresses });
    }

    pub(crate) fn unlisten(&self, id: ListenerId) {
        places::remove(&self.mailbox, id.0);
        self.mailbox.send(Command::Unlisten { token: id.0 });
    }
}

/// What was begun is undone as far as it goes.
fn unbind_native(native: &dyn NativeCm, ids: Vec<(u64, SocketAddr)>) {
    for (id, _) in ids {
        let _ = native.unlisten(id);
    }
}

/// Listens at all addresses through the provider, or at none.
fn listen_native(
    native: &dyn NativeCm,
    addresses: &[SocketAddr],
) -> Result<Vec<(u64, SocketAddr)>> {
    let mut ids = Vec::new();
    let mut port = addresses.first().map_or(0, SocketAddr::port);
    for address in addresses {
        match native.listen(SocketAddr::new(address.ip(), port), BACKLOG) {
            Ok((id, real)) => {
                port = real.port();
                ids.push((id, real));
            }
            Err(error) => {
                unbind_native(native, ids);
                return Err(busy_or_verb("listen", format!("listen on {address}"), error));
            }
        }
    }
    Ok(ids)
}
