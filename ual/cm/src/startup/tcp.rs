//! The TCP connection under a start-up: parameters are checked before anything changes, connecting
//! begins in the caller's thread so that the caller gets the errors it caused, and errors of TCP are
//! mapped. No state.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use kal_os::Use;
use kal_shim::sock::{self, KeepAlive, Options};

use crate::error::{Error, Result, check_length};
use crate::policy::{Policies, Policy, Rule, RuleRole};
use crate::private::PrivateData;
use crate::ruled::{AdapterRules, Denied};
use crate::types::{ConnectParams, FailReason};

/// How the caller started a connection.
pub(crate) enum Started {
    /// TCP is connecting, or could not begin.
    Tcp(io::Result<OwnedFd>),
    /// The provider's own connection manager connects.
    Native,
}

/// Begins a TCP connect in the caller's thread. Errors that its parameters or this process cause are
/// returned; errors of the network become an event.
pub(crate) fn start(params: &ConnectParams, policy: &Policy) -> Result<Started> {
    let attempt = || match local_of(params) {
        Some(local) => format!("connect to {} from {local}", params.remote),
        None => format!("connect to {}", params.remote),
    };
    let socket = match sock::open(params.remote, local_of(params), &options(policy)) {
        Ok(socket) => socket,
        // Not an address of this machine: reported like an unreachable peer.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            return Ok(Started::Tcp(Err(error)));
        }
        Err(error) => {
            let local = local_of(params).unwrap_or(unspecified(params));
            return Err(Error::at(attempt(), local, Use::Bind)(error));
        }
    };
    start_on(socket, params, attempt)
}

/// The same from a socket that is already bound to the address in `params`.
pub(crate) fn start_bound(
    socket: OwnedFd,
    params: &ConnectParams,
    policy: &Policy,
) -> Result<Started> {
    let attempt = || format!("connect to {} from a bound socket", params.remote);
    options(policy).apply(&socket, params.remote).map_err(Error::os(attempt()))?;
    start_on(socket, params, attempt)
}

fn start_on(
    socket: OwnedFd,
    params: &ConnectParams,
    attempt: impl Fn() -> String,
) -> Result<Started> {
    match sock::start(&socket, params.remote) {
        Ok(()) => Ok(Started::Tcp(Ok(socket))),
        // This port has a connection to the same peer, or had one a moment ago.
        Err(error) if params.local_port != 0 && error.kind() == io::ErrorKind::AddrNotAvailable => {
            Err(Error::AddressInUse(attempt()))
        }
        Err(error) => Ok(Started::Tcp(Err(error))),
    }
}

/// The address to connect from, as far as the application chose it.
pub(crate) fn local_of(params: &ConnectParams) -> Option<SocketAddr> {
    match (params.local, params.local_port) {
        (None, 0) => None,
        (local, port) => {
            let mut chosen = SocketAddr::new(local.unwrap_or(unspecified(params).ip()), port);
            // Both ends of a link-local connection are on one link.
            if let (SocketAddr::V6(chosen), SocketAddr::V6(remote)) = (&mut chosen, params.remote)
                && chosen.ip().is_unicast_link_local()
            {
                chosen.set_scope_id(remote.scope_id());
            }
            Some(chosen)
        }
    }
}

pub(crate) fn unspecified(params: &ConnectParams) -> SocketAddr {
    match params.remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Refuses parameters that cannot work before anything changes.
pub(crate) fn check_connect(params: &ConnectParams, most: PrivateData) -> Result<()> {
    check_length(params.private_data.len(), most.connect)?;
    if params.remote.port() == 0 {
        return Err(Error::InvalidArgument(format!(
            "cannot connect to {}: 0 is no port; name the port of the peer",
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

/// The policy for connecting with `params`, and the rule that it meets.
pub(crate) fn policy_for(
    policies: &Policies,
    rules: &AdapterRules,
    params: &ConnectParams,
) -> (Policy, Option<Arc<Rule>>) {
    let mut policy = match &params.policy {
        Some(policy) => policy.clone(),
        None => policies.of(params.remote.ip()).clone(),
    };
    policy.negotiate_ird_ord &= !params.suppress_ird_ord;
    let rule =
        rules.apply(&mut policy, params.remote.ip(), params.remote.port(), RuleRole::Connect);
    (policy, rule)
}

/// TCP options of a policy (CONN-14).
pub(crate) fn options(policy: &Policy) -> Options {
    Options {
        keep_alive: policy.keep_alive.map(|idle| KeepAlive {
            idle,
            interval: policy.keep_alive_interval,
            count: policy.keep_alive_count,
        }),
        user_timeout: policy.user_timeout,
        congestion: policy.congestion.clone(),
        buffer: policy.socket_buffer,
        dscp: policy.dscp,
        rate: policy.rate,
    }
}

/// Sends the rest of `octets`; true when all of them are sent.
pub(crate) fn send_rest(socket: impl AsFd, octets: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < octets.len() {
        match sock::send(&socket, &octets[*sent..]) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The reason of a failed TCP connect to `remote`.
pub(crate) fn tcp_reason(error: &io::Error, remote: &SocketAddr) -> FailReason {
    if let Some(denied) = error.get_ref().and_then(|inner| inner.downcast_ref::<Denied>()) {
        return FailReason::Denied(denied.clone());
    }
    if let Some(remedy) = kal_os::address_remedy(error, remote, Use::Connect) {
        return FailReason::Host { why: error.to_string(), remedy };
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => FailReason::Refused,
        io::ErrorKind::ConnectionReset => FailReason::PeerClosed { have: 0 },
        io::ErrorKind::OutOfMemory => FailReason::Resources(format!("TCP connect: {error}")),
        _ if kal_os::remedy(error).is_some() => {
            FailReason::Resources(format!("TCP connect: {error}"))
        }
        // No route, no reply, no address or free port to connect from.
        _ => FailReason::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_tcp_has_its_own_reason() {
        let remote = "[fe80::1]:7".parse().unwrap();
        let of = |kind: io::ErrorKind| tcp_reason(&kind.into(), &remote);
        assert_eq!(of(io::ErrorKind::ConnectionRefused), FailReason::Refused);
        assert_eq!(of(io::ErrorKind::ConnectionReset), FailReason::PeerClosed { have: 0 });
        for kind in [
            io::ErrorKind::TimedOut,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::NetworkDown,
            io::ErrorKind::AddrNotAvailable,
        ] {
            assert!(matches!(of(kind), FailReason::Unreachable(_)), "{kind}");
        }
        assert!(matches!(of(io::ErrorKind::OutOfMemory), FailReason::Resources(_)));
        let of = |errno: i32| tcp_reason(&io::Error::from_raw_os_error(errno), &remote);
        for limit in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert!(matches!(of(limit), FailReason::Resources(_)), "{limit}");
        }
        let of_this_host =
            [libc::EINVAL, libc::ENODEV, libc::EACCES, libc::EPERM, libc::EAFNOSUPPORT].map(of);
        let mut remedies: Vec<_> = of_this_host.iter().map(FailReason::remedy).collect();
        assert!(of_this_host.iter().all(|reason| reason.code() == "cm-host"), "{of_this_host:?}");
        remedies.dedup();
        assert_eq!(remedies.len(), 4, "a link-local address lacks its interface: {remedies:?}");
    }
}
