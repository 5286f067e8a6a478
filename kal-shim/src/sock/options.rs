//! TCP options of a stream, and its EMSS. No state.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::sockopt;

/// When an idle peer counts as gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Idle time before the first probe, in whole seconds from 1.
    pub idle: Duration,
    /// Time between probes, in whole seconds from 1.
    pub interval: Duration,
    /// Probes without a response.
    pub count: u32,
}

/// Options of a stream. The default: no delay (always), everything else as the system has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Keep-alive.
    pub keep_alive: Option<KeepAlive>,
    /// How long sent octets may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// Congestion control; `None`: `cubic`, or `reno`, if the path is loopback, because others pace
    /// there.
    pub congestion: Option<String>,
    /// Send and receive buffers in octets.
    pub buffer: Option<u32>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Octets a second that the kernel sends, at most (SO_MAX_PACING_RATE of socket(7)).
    pub rate: Option<u64>,
}

impl Options {
    /// Applies them to a stream to or from `remote`.
    pub fn apply(&self, socket: impl AsFd, remote: SocketAddr) -> io::Result<()> {
        let socket = socket.as_fd();
        self.apply_common(socket)?;
        self.apply_congestion(socket, remote)?;
        self.apply_dscp(socket, remote)
    }

    /// Applies to a listener at `address` the options that accepted sockets inherit (tcp(7)); for the
    /// others see [`Options::apply_accepted`].
    pub fn apply_listening(&self, socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
        let socket = socket.as_fd();
        self.apply_common(socket)?;
        self.apply_congestion(socket, address)
    }

    /// Applies to a stream from `remote` the options that it did not inherit from its listener at
    /// `address`.
    pub fn apply_accepted(
        &self,
        socket: impl AsFd,
        address: SocketAddr,
        remote: SocketAddr,
    ) -> io::Result<()> {
        let socket = socket.as_fd();
        if self.congestion.is_none() && !address.ip().to_canonical().is_loopback() {
            self.apply_congestion(socket, remote)?;
        }
        self.apply_dscp(socket, remote)
    }

    fn apply_common(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        sockopt::set_tcp_nodelay(socket, true)?;
        if let Some(keep_alive) = self.keep_alive {
            // tcp(7): the most that the kernel accepts.
            let (least, most) = (Duration::from_secs(1), Duration::from_secs(32_767));
            sockopt::set_socket_keepalive(socket, true)?;
            sockopt::set_tcp_keepidle(socket, keep_alive.idle.clamp(least, most))?;
            sockopt::set_tcp_keepintvl(socket, keep_alive.interval.clamp(least, most))?;
            sockopt::set_tcp_keepcnt(socket, keep_alive.count.clamp(1, 127))?;
        }
        if let Some(timeout) = self.user_timeout {
            // The kernel reads it as a signed number.
            let ms = timeout.as_millis().min(i32::MAX as u128) as u32;
            sockopt::set_tcp_user_timeout(socket, ms)?;
        }
        if let Some(octets) = self.buffer {
            sockopt::set_socket_send_buffer_size(socket, octets as usize)?;
            sockopt::set_socket_recv_buffer_size(socket, octets as usize)?;
        }
        self.rate.map_or(Ok(()), |rate| set_rate(socket, rate))
    }

    fn apply_congestion(&self, socket: impl AsFd, remote: SocketAddr) -> io::Result<()> {
        match &self.congestion {
            Some(name) => sockopt::set_tcp_congestion(&socket, name).map_err(|e| {
                let why = format!(
                    "congestion control `{name}`: {e}; see tcp_available_congestion_control"
                );
                io::Error::new(e.kind(), why)
            }),
            None if remote.ip().to_canonical().is_loopback() => {
                // Only for speed: a system without it keeps its default. Without privileges only the
                // algorithms that the system allows can be set, which need not include cubic; reno,
                // which does not pace either, is always available.
                let _ = sockopt::set_tcp_congestion(&socket, "cubic")
                    .or_else(|_| sockopt::set_tcp_congestion(&socket, "reno"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn apply_dscp(&self, socket: impl AsFd, remote: SocketAddr) -> io::Result<()> {
        let octet = self.dscp << 2;
        match remote {
            _ if octet == 0 => Ok(()),
            SocketAddr::V4(_) => Ok(sockopt::set_ip_tos(socket, octet)?),
            SocketAddr::V6(_) => Ok(sockopt::set_ipv6_tclass(socket, octet.into())?),
        }
    }
}

fn set_rate(socket: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    let (fd, len) = (socket.as_raw_fd(), size_of::<u64>() as libc::socklen_t);
    let place = (&raw const rate).cast();
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets.
    let result =
        unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, place, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The effective maximum segment size of a connected stream in octets (RFC 5044 section 4.5).
pub fn emss(socket: impl AsFd) -> io::Result<u16> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    let place = (&raw mut value).cast();
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, place, &mut len) };
    match result {
        0 => Ok(u16::try_from(value).unwrap_or(u16::MAX)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::reactor::{Interest, ready_within};

    const HANG: Duration = Duration::from_secs(20);

    fn options() -> Options {
        let second = Duration::from_secs(1);
        Options {
            keep_alive: Some(KeepAlive { idle: 10 * second, interval: second, count: 5 }),
            user_timeout: Some(20 * second),
            congestion: None,
            buffer: Some(65536),
            dscp: 46,
            rate: Some(25_000_000),
        }
    }

    fn check(stream: &TcpStream) {
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(stream).unwrap(), Duration::from_secs(10));
        assert_eq!(sockopt::tcp_keepintvl(stream).unwrap(), Duration::from_secs(1));
        assert_eq!(sockopt::tcp_keepcnt(stream).unwrap(), 5);
        assert_eq!(sockopt::tcp_user_timeout(stream).unwrap(), 20_000);
        assert!(sockopt::socket_send_buffer_size(stream).unwrap() >= 65536);
        assert_eq!(rate(stream), 25_000_000);
    }

    fn rate(stream: &TcpStream) -> u64 {
        let (mut rate, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
        let place = (&raw mut rate).cast();
        let (fd, level) = (stream.as_raw_fd(), libc::SOL_SOCKET);
        // SAFETY: the descriptor is open while `stream` is borrowed; `place` has `len` octets.
        let result =
            unsafe { libc::getsockopt(fd, level, libc::SO_MAX_PACING_RATE, place, &mut len) };
        assert_eq!(result, 0);
        rate
    }

    #[test]
    fn accepted_streams_have_them_too() {
        for (at, to) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let listener = super::super::listen(at.parse().unwrap(), 16).unwrap();
            options().apply_listening(&listener.socket, listener.address).unwrap();
            let port = listener.address.port();
            let client = TcpStream::connect((to, port)).unwrap();
            assert!(ready_within(listener.socket.as_fd(), Interest::READ, HANG));
            let accepted = super::super::accept(&listener, &options()).unwrap();
            let (socket, remote) = accepted.expect("it waits");
            assert_eq!(remote, client.local_addr().unwrap());
            let stream = TcpStream::from(socket);
            check(&stream);
            let reference = TcpStream::connect((to, port)).unwrap();
            options().apply(&reference, SocketAddr::new(to.parse().unwrap(), port)).unwrap();
            let congestion = |stream| sockopt::tcp_congestion(stream).unwrap();
            assert_eq!(congestion(&stream), congestion(&reference));
        }
    }

    #[test]
    fn every_option_arrives_at_the_socket() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            options().apply(&stream, listener.local_addr().unwrap()).unwrap();
            check(&stream);
            assert!(emss(&stream).unwrap() >= 536);
        }
    }

    #[test]
    fn an_unknown_congestion_control_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let options = Options { congestion: Some("nonesuch".into()), ..Options::default() };
        let error = options.apply(&listener, listener.local_addr().unwrap()).unwrap_err();
        assert!(error.to_string().contains("`nonesuch`"), "{error}");
    }
}
