//! The callers' side of connecting: what is refused before anything changes, and the start of TCP,
//! so that errors of the callers' making are theirs. No state.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use kal_shim::sock;

use super::table::options;
use super::{ConnectParams, FailReason, PrivateData, busy_or_os, check_length};
use crate::error::{Error, Result};
use crate::policy::Policy;

/// How the caller started a connection.
pub(super) enum Started {
    /// TCP is on its way, or could not be.
    Tcp(io::Result<OwnedFd>),
    /// The provider's connection manager makes it.
    Native,
}

/// Starts TCP in the caller's context. Errors that its parameters or this process are to blame for
/// are the caller's; what the network says will be an event.
pub(super) fn start(params: &ConnectParams, policy: &Policy) -> Result<Started> {
    let attempt = || match local_of(params) {
        Some(local) => format!("connect to {} from {local}", params.remote),
        None => format!("connect to {}", params.remote),
    };
    let socket = match sock::open(params.remote, local_of(params), &options(policy)) {
        Ok(socket) => socket,
        // Not an address of this machine: as unreachable as the peer may be.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            return Ok(Started::Tcp(Err(error)));
        }
        Err(error) => return Err(busy_or_os(attempt())(error)),
    };
    match sock::start(&socket, params.remote) {
        Ok(()) => Ok(Started::Tcp(Ok(socket))),
        // This port has a connection to the same peer, or had one a moment ago.
        Err(error) if params.local_port != 0 && error.kind() == io::ErrorKind::AddrNotAvailable => {
            Err(Error::AddressInUse(attempt()))
        }
        Err(error) => Ok(Started::Tcp(Err(error))),
    }
}

/// Where to connect from, as far as the application cares.
pub(super) fn local_of(params: &ConnectParams) -> Option<SocketAddr> {
    match (params.local, params.local_port) {
        (None, 0) => None,
        (local, port) => Some((local.unwrap_or(unspecified(params).ip()), port).into()),
    }
}

pub(super) fn unspecified(params: &ConnectParams) -> SocketAddr {
    match params.remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Refuses what cannot work before anything changes.
pub(crate) fn check_connect(params: &ConnectParams, most: PrivateData) -> Result<()> {
    check_length(params.private_data.len(), most.connect)?;
    if params.remote.port() == 0 {
        return Err(Error::InvalidArgument(format!(
            "cannot connect to {}: port 0 is not a port",
            params.remote
        )));
    }
    match params.local {
        Some(ip) if ip.is_ipv4() != params.remote.is_ipv4() => Err(Error::InvalidArgument(
            format!("cannot connect from {ip} to {}: one is IPv4, the other IPv6", params.remote),
        )),
        _ => Ok(()),
    }
}

/// What a failed TCP connect means.
pub(super) fn tcp_reason(error: &io::Error) -> FailReason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => FailReason::Refused,
        io::ErrorKind::ConnectionReset => FailReason::PeerClosed { have: 0 },
        io::ErrorKind::TimedOut => FailReason::Unreachable(error.to_string()),
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => FailReason::Unreachable(error.to_string()),
        _ => FailReason::Resources(format!("TCP connect: {error}")),
    }
}
