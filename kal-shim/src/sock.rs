//! Nonblocking TCP over IPv4 and IPv6: connect, listen, accept, options.
//!
//! A socket belongs to the holder of its descriptor; this module keeps no state. No call waits for a
//! peer. When a peer dies, reads return 0 or an error, and [`Options`] bound how long that takes.

mod inspect;
mod options;

pub use inspect::{State, Unfit, check_stream, peek, state};
pub use options::{KeepAlive, Options, emss};

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use kal_os::fork::Descriptors;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, sockopt,
};
use vp_api::Shortage;

use crate::fork::Host;

/// A socket that is bound, or listens, and where.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Its address with the real port.
    pub address: SocketAddr,
}

fn socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Descriptors::make::<Host, _>(|| {
        Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
    })
}

/// A socket to connect to `remote` with, bound to `local`; port 0: any.
pub fn open(
    remote: SocketAddr,
    local: Option<SocketAddr>,
    options: &Options,
) -> io::Result<OwnedFd> {
    let socket = socket(remote)?;
    options.apply(&socket, remote)?;
    if let Some(local) = local {
        // A given port may still be in TIME-WAIT from the connection before.
        sockopt::set_socket_reuseaddr(&socket, local.port() != 0)?;
        rustix::net::bind(&socket, &local)?;
    }
    Ok(socket)
}

/// Starts to connect; when the socket is writable, [`connected`] returns the result.
pub fn start(socket: impl AsFd, remote: SocketAddr) -> io::Result<()> {
    match rustix::net::connect(socket, &remote) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Starts to connect once more with a socket whose first attempt failed, as [`connected`] returned, from
/// the same address if it was bound to `local`.
pub fn restart(socket: impl AsFd, local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<()> {
    // Linux releases a port that it chose itself.
    if let Some(local) = local {
        match rustix::net::bind(&socket, &local) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match start(&socket, remote) {
        // connect(2) of Linux: the end of the first attempt is still to be reported.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => start(socket, remote),
        started => started,
    }
}

/// [`open`] and [`start`].
pub fn connect(
    remote: SocketAddr,
    local: Option<SocketAddr>,
    options: &Options,
) -> io::Result<OwnedFd> {
    let socket = open(remote, local, options)?;
    start(&socket, remote)?;
    Ok(socket)
}

/// The result of a connect.
pub fn connected(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::socket_error(socket)??)
}

/// Listens on one address. `[::]` takes IPv4 connections too.
pub fn listen(address: SocketAddr, backlog: u32) -> io::Result<Listener> {
    let bound = bind_one(address, false)?;
    listen_on(&bound.socket, backlog)?;
    Ok(bound)
}

/// Listens on a bound socket.
pub fn listen_on(socket: impl AsFd, backlog: u32) -> io::Result<()> {
    // Its connections inherit this: a later listener may bind the address while the kernel keeps them.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?)
}

/// Binds to several addresses with one port: the first's, or if that is 0 one that is free at all of
/// them. No other socket can bind them.
///
/// # Errors
/// The system's, and the address that it refuses.
pub fn bind_all(addresses: &[SocketAddr]) -> Result<Vec<Listener>, (SocketAddr, io::Error)> {
    // A port that is free at the first address may be taken at another; a few tries find one.
    const TRIES: usize = 32;
    let wanted = addresses.first().map_or(0, SocketAddr::port);
    for _ in 1..TRIES {
        match bind_at(addresses, wanted) {
            Err((_, error)) if wanted == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            result => return result,
        }
    }
    bind_at(addresses, wanted)
}

fn bind_at(
    addresses: &[SocketAddr],
    wanted: u16,
) -> Result<Vec<Listener>, (SocketAddr, io::Error)> {
    let v6_only = addresses.iter().any(SocketAddr::is_ipv4);
    let mut port = wanted;
    let mut bound = Vec::with_capacity(addresses.len());
    for address in addresses {
        let mut address = *address;
        address.set_port(port);
        let socket = bind_one(address, v6_only).map_err(|error| (address, error))?;
        port = socket.address.port();
        bound.push(socket);
    }
    Ok(bound)
}

/// How an address may be shared with other sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sharing {
    /// `[::]` leaves IPv4 to another socket (IPV6_V6ONLY).
    pub v6_only: bool,
    /// Others may bind to it, too, until one of them listens (SO_REUSEADDR).
    pub address: bool,
}

/// Binds to an address, which other sockets may share as `sharing` allows.
pub fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<Listener> {
    if !sharing.address {
        return bind_one(address, sharing.v6_only);
    }
    let socket = socket_for(address, sharing.v6_only)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(Listener { address: local_addr(&socket)?, socket })
}

fn socket_for(address: SocketAddr, v6_only: bool) -> io::Result<OwnedFd> {
    let socket = socket(address)?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    Ok(socket)
}

fn bind_one(address: SocketAddr, v6_only: bool) -> io::Result<Listener> {
    let socket = socket_for(address, v6_only)?;
    // Sockets that may share an address can all bind it, until one of them listens. So this one may not
    // share, except for a moment if only connections of an earlier listener, which the kernel keeps, are
    // in its way.
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            sockopt::set_socket_reuseaddr(&socket, false)?;
        }
        bound => bound?,
    }
    let address = local_addr(&socket)?;
    Ok(Listener { socket, address })
}

/// The next connection with its peer's address; `None`: there is none. The options apply to it if
/// [`Options::apply_listening`] was called for the listener.
pub fn accept(listener: &Listener, options: &Options) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let mut from = None;
    let accepted = Descriptors::make::<Host, _>(|| {
        let (socket, peer) = rustix::net::acceptfrom_with(&listener.socket, flags)?;
        from = peer;
        Ok(socket)
    });
    match accepted {
        Ok(socket) => {
            let peer = from.map_or_else(|| peer_addr(&socket), plain)?;
            options.apply_accepted(&socket, listener.address, peer)?;
            Ok(Some((socket, peer)))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Local address; IPv4 as such, even on an IPv6 socket.
pub fn local_addr(socket: impl AsFd) -> io::Result<SocketAddr> {
    plain(rustix::net::getsockname(socket)?)
}

/// The peer's address; IPv4 as such, even on an IPv6 socket.
pub fn peer_addr(socket: impl AsFd) -> io::Result<SocketAddr> {
    match rustix::net::getpeername(socket)? {
        Some(address) => plain(address),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

fn plain(address: SocketAddrAny) -> io::Result<SocketAddr> {
    let mut address = SocketAddr::try_from(address)?;
    // Keeps the scope of link-local addresses.
    if let IpAddr::V4(v4) = address.ip().to_canonical() {
        address.set_ip(v4.into());
    }
    Ok(address)
}

/// Sends what fits; [`io::ErrorKind::WouldBlock`] if nothing does.
pub fn send(socket: impl AsFd, octets: &[u8]) -> io::Result<usize> {
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(&socket, octets, flags) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Receives what has arrived; 0 at the end of the stream; [`io::ErrorKind::WouldBlock`] if nothing has.
pub fn recv(socket: impl AsFd, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(&socket, &mut *out, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return Ok(result?.1),
        }
    }
}

/// Sends a FIN.
pub fn finish(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

/// The exhausted resource, if that is the error: the same call fails until some are freed.
pub fn shortage(error: &io::Error) -> Option<Shortage> {
    let shortages = [
        (Errno::MFILE, Shortage::Descriptors),
        (Errno::NFILE, Shortage::MachineDescriptors),
        (Errno::NOBUFS, Shortage::Memory),
        (Errno::NOMEM, Shortage::Memory),
        // Returned only by epoll.
        (Errno::NOSPC, Shortage::Watches),
    ];
    let raw = error.raw_os_error()?;
    shortages.iter().find(|(errno, _)| errno.raw_os_error() == raw).map(|(_, lacks)| *lacks)
}

/// Sends what an application held back (`TCP_CORK`), and turns that option off.
pub fn uncork(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_tcp_cork(socket, false)?)
}

/// Makes the close of a socket reset the connection.
pub fn reset_on_close(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::{Interest, ready_within};
    use std::time::Duration;

    const HANG: Duration = Duration::from_secs(20);

    fn pair(address: &str) -> (OwnedFd, OwnedFd) {
        let options = Options::default();
        let listener = listen(address.parse().unwrap(), 4).unwrap();
        let client = connect(listener.address, None, &options).unwrap();
        assert!(ready_within(client.as_fd(), Interest::WRITE, HANG));
        connected(&client).unwrap();
        assert!(ready_within(listener.socket.as_fd(), Interest::READ, HANG));
        let (server, peer) = accept(&listener, &options).unwrap().unwrap();
        assert_eq!(peer, local_addr(&client).unwrap());
        assert_eq!(peer_addr(&client).unwrap(), listener.address);
        assert!(accept(&listener, &options).unwrap().is_none());
        (client, server)
    }

    #[test]
    fn carries_octets_over_both_families() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (client, server) = pair(address);
            assert_eq!(send(&client, b"hello").unwrap(), 5);
            assert!(ready_within(server.as_fd(), Interest::READ, HANG));
            let mut out = [0; 8];
            assert_eq!(recv(&server, &mut out).unwrap(), 5);
            let nothing = recv(&server, &mut out).unwrap_err();
            assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
            drop(client);
            assert!(ready_within(server.as_fd(), Interest::READ, HANG));
            assert_eq!(recv(&server, &mut out).unwrap(), 0);
        }
    }

    #[test]
    fn reset_on_close_is_seen_as_a_reset() {
        let (client, server) = pair("127.0.0.1:0");
        reset_on_close(&client).unwrap();
        drop(client);
        assert!(ready_within(server.as_fd(), Interest::READ, HANG));
        let error = recv(&server, &mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn several_addresses_get_one_port() {
        let addresses = ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"].map(|a| a.parse().unwrap());
        let listeners = bind_all(&addresses).unwrap();
        let port = listeners[0].address.port();
        assert!(port != 0 && listeners.iter().all(|l| l.address.port() == port));
        let busy = [SocketAddr::from(([127, 0, 0, 1], port))];
        let (address, error) = bind_all(&busy).unwrap_err();
        assert_eq!((address, error.kind()), (busy[0], io::ErrorKind::AddrInUse));
    }

    #[test]
    fn the_wildcard_takes_both_families() {
        let listener = listen("[::]:0".parse().unwrap(), 4).unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let remote = SocketAddr::new(ip.parse().unwrap(), listener.address.port());
            let _client = connect(remote, None, &Options::default()).unwrap();
            assert!(ready_within(listener.socket.as_fd(), Interest::READ, HANG));
            let (_, peer) = accept(&listener, &Options::default()).unwrap().unwrap();
            assert_eq!(peer.ip(), remote.ip());
        }
        let both = ["0.0.0.0:0", "[::]:0"].map(|a| a.parse().unwrap());
        assert_eq!(bind_all(&both).unwrap().len(), 2);
    }

    #[test]
    fn refused_connections_say_so() {
        let address = listen("127.0.0.1:0".parse().unwrap(), 1).unwrap().address;
        let client = match connect(address, None, &Options::default()) {
            Ok(client) => client,
            Err(error) => return assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused),
        };
        assert!(ready_within(client.as_fd(), Interest::WRITE, HANG));
        assert_eq!(connected(&client).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn connects_from_a_given_address() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), 4).unwrap();
        let local = "127.0.0.7:0".parse().unwrap();
        let client = connect(listener.address, Some(local), &Options::default()).unwrap();
        assert_eq!(local_addr(&client).unwrap().ip(), local.ip());
        // A port that is connected, and even one that listens, is in use.
        let taken = [local_addr(&client).unwrap(), listener.address];
        let busy = taken.map(|local| connect(listener.address, Some(local), &Options::default()));
        let kinds = busy.map(|result| result.unwrap_err().kind());
        assert_eq!(kinds, [io::ErrorKind::AddrInUse; 2]);
    }
}
