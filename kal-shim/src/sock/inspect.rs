//! Examining a socket without changing it. No state.
//!
//! For sockets of unknown origin: everything is learnt from `getsockopt`, `getpeername` or a peek.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, sockopt};
use thiserror::Error;

/// Why a socket is not a connected TCP stream that RDMA can take over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The descriptor is something else.
    #[error("it is not a socket; pass a connected TCP socket")]
    NotSocket,
    /// A socket of another kind.
    #[error("it is not a TCP socket over IPv4 or IPv6; connect one")]
    NotTcp,
    /// It listens.
    #[error("it listens; convert a connection that it accepted")]
    Listening,
    /// No connection, or not yet.
    #[error("it is not connected; connect it first")]
    NotConnected,
    /// The stream is over at one end at least.
    #[error("its stream has ended: one end has closed or shut it down; make a new connection")]
    Ended,
    /// The system does not report it.
    #[error("it cannot be examined: {0}")]
    Unknown(io::Error),
}

/// Refuses everything but an established TCP stream, open both ways. The socket, its blocking mode,
/// its pending error and its octets stay as they are.
pub fn check_stream(socket: impl AsFd) -> Result<(), Unfit> {
    let socket = socket.as_fd();
    let kind = sockopt::socket_type(socket).map_err(|errno| match errno {
        Errno::NOTSOCK => Unfit::NotSocket,
        other => Unfit::Unknown(other.into()),
    })?;
    let unknown = |errno: Errno| Unfit::Unknown(errno.into());
    let family = sockopt::socket_domain(socket).map_err(unknown)?;
    let inet = family == AddressFamily::INET || family == AddressFamily::INET6;
    if !inet || kind != SocketType::STREAM {
        return Err(Unfit::NotTcp);
    }
    if sockopt::socket_protocol(socket).map_err(unknown)? != Some(ipproto::TCP) {
        return Err(Unfit::NotTcp);
    }
    if sockopt::socket_acceptconn(socket).map_err(unknown)? {
        return Err(Unfit::Listening);
    }
    match state(socket).map_err(Unfit::Unknown)? {
        State::Established => Ok(()),
        State::Unconnected => Err(Unfit::NotConnected),
        State::Ending => Err(Unfit::Ended),
    }
}

/// Octets that wait in the receive queue, and stay there; at most as many as fit into `out`.
pub fn peek(socket: impl AsFd, out: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::net::recv(&socket, &mut *out, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            result => return Ok(result?.1),
        }
    }
}

/// The phase of a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Not connected yet, or not any more.
    Unconnected,
    /// Open both ways.
    Established,
    /// Closed at one end at least.
    Ending,
}

/// The phase of a connection.
pub fn state(socket: impl AsFd) -> io::Result<State> {
    const TCP_ESTABLISHED: u8 = 1;
    const TCP_SYN_SENT: u8 = 2;
    const TCP_SYN_RECV: u8 = 3;
    const TCP_CLOSE: u8 = 7;
    Ok(match tcp_info(socket)?.tcpi_state {
        TCP_ESTABLISHED => State::Established,
        TCP_SYN_SENT | TCP_SYN_RECV | TCP_CLOSE => State::Unconnected,
        _ => State::Ending,
    })
}

fn tcp_info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    let place = info.as_mut_ptr().cast();
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain numbers, zeroed before; what the kernel did not fill is 0.
    Ok(unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::reactor::{Interest, ready_within};

    const HANG: Duration = Duration::from_secs(20);

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn an_established_stream_is_fit_and_its_octets_stay() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut client, server) = pair(address);
            check_stream(&client).unwrap();
            let mut out = [0; 8];
            assert_eq!(peek(&server, &mut out).unwrap(), 0);
            client.write_all(b"abc").unwrap();
            assert!(ready_within(server.as_fd(), Interest::READ, HANG));
            for _ in 0..2 {
                assert_eq!(peek(&server, &mut out).unwrap(), 3);
            }
            assert_eq!(&out[..3], b"abc");
        }
    }

    #[test]
    fn all_other_sockets_are_distinguished() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(matches!(check_stream(&file), Err(Unfit::NotSocket)));
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(matches!(check_stream(&datagrams), Err(Unfit::NotTcp)));
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(check_stream(&unix), Err(Unfit::NotTcp)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(check_stream(&listener), Err(Unfit::Listening)));
        let fresh = super::super::socket("127.0.0.1:1".parse().unwrap()).unwrap();
        assert!(matches!(check_stream(&fresh), Err(Unfit::NotConnected)));
        let (client, server) = pair("127.0.0.1:0");
        client.shutdown(Shutdown::Write).unwrap();
        assert!(matches!(check_stream(&client), Err(Unfit::Ended)));
        assert!(ready_within(server.as_fd(), Interest::READ, HANG));
        assert!(matches!(check_stream(&server), Err(Unfit::Ended)));
    }
}
