//! The stream under a QP: gathered sends, scattered receives, and the ways to end it. It is a TCP socket that carries
//! the octets, or, where both ends are on one host, shared memory does ([`local`](super::local)).
//!
//! Owned by one QP and used under that QP's lock, by whichever thread makes progress. When the peer
//! dies a call returns [`Fault`]; nothing here keeps state about it. `unsafe` because the kernel
//! reads from and writes to registered memory, of which no Rust slice may exist.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use vp_api::{Carrier, LocalStream, TcpInfo};

use crate::engine::Watched;
use crate::fork::Ours;
use crate::stream::capture::Facts;
use crate::stream::local::{Line, Local};

/// Memory to send from, alive and unmoved for `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Piece<'a> {
    iovec: libc::iovec,
    life: PhantomData<&'a [u8]>,
}

impl<'a> Piece<'a> {
    /// No octets.
    pub(crate) const EMPTY: Self = Self { iovec: NOTHING, life: PhantomData };

    /// Octets of ours.
    pub(crate) fn of(octets: &'a [u8]) -> Self {
        // SAFETY: the octets outlive `'a`.
        unsafe { Self::raw(octets.as_ptr(), octets.len()) }
    }

    /// Registered memory.
    ///
    /// # Safety
    ///
    /// `len` octets at `addr` must stay mapped for `'a`.
    pub(crate) unsafe fn raw(addr: *const u8, len: usize) -> Self {
        let iovec = libc::iovec { iov_base: addr.cast_mut().cast(), iov_len: len };
        Self { iovec, life: PhantomData }
    }

    pub(super) fn raw_parts(&self) -> (*const u8, usize) {
        (self.iovec.iov_base.cast_const().cast(), self.iovec.iov_len)
    }
}

/// Memory to fill, alive and unmoved for `'a`.
#[repr(transparent)]
pub(crate) struct Room<'a> {
    iovec: libc::iovec,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a> Room<'a> {
    /// No octets.
    pub(crate) const EMPTY: Self = Self { iovec: NOTHING, life: PhantomData };

    /// Octets of ours.
    pub(crate) fn of(octets: &'a mut [u8]) -> Self {
        // SAFETY: the octets outlive `'a` and are borrowed exclusively for it.
        unsafe { Self::raw(octets.as_mut_ptr(), octets.len()) }
    }

    /// Registered memory.
    ///
    /// # Safety
    ///
    /// `len` octets at `addr` must stay mapped and writable for `'a`.
    pub(crate) unsafe fn raw(addr: *mut u8, len: usize) -> Self {
        let iovec = libc::iovec { iov_base: addr.cast(), iov_len: len };
        Self { iovec, life: PhantomData }
    }

    pub(super) fn raw_parts(&self) -> (*mut u8, usize) {
        (self.iovec.iov_base.cast(), self.iovec.iov_len)
    }
}

const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// The result of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// This many octets were sent.
    Octets(usize),
    /// The socket is full.
    Full,
    /// The stream broke.
    Broken(Fault),
}

/// The result of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// This many octets were received.
    Octets(usize),
    /// Nothing has arrived.
    Empty,
    /// The peer's FIN.
    Fin,
    /// The stream broke.
    Broken(Fault),
}

/// How a stream breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The peer, or something on the path, reset it.
    Reset,
    /// Retransmissions or keep-alive probes were not acknowledged.
    TimedOut,
    /// The peer broke the rules of the memory that both share.
    Corrupt,
    /// The kernel cannot access memory that was registered.
    Unmapped,
}

/// A connected, nonblocking TCP socket; with shared memory it carries no octets.
#[derive(Debug)]
pub(crate) struct Stream {
    sockets: Arc<Sockets>,
    local: Option<Box<Local>>,
    /// For captures.
    pub(crate) facts: Facts,
}

/// The descriptors of a stream, which any thread may use at any time.
#[derive(Debug)]
pub(crate) struct Sockets {
    socket: Ours<OwnedFd>,
    remote: Option<SocketAddr>,
    /// Of a stream that goes through shared memory.
    doorbell: Option<Arc<Ours<OwnedFd>>>,
}

/// What reports that there are octets.
impl AsFd for Sockets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_ref().map_or(self.socket.as_fd(), |doorbell| doorbell.as_fd())
    }
}

impl Watched for Sockets {
    fn is_doorbell(&self) -> bool {
        self.doorbell.is_some()
    }
}

impl Deref for Stream {
    type Target = Sockets;
    fn deref(&self) -> &Sockets {
        &self.sockets
    }
}

impl Stream {
    /// Takes over a connected socket and sets it nonblocking and without Nagle (one `sendmsg` already
    /// carries all there is).
    pub(crate) fn adopt(socket: OwnedFd, local: Option<LocalStream>) -> io::Result<Self> {
        let socket = Ours::make(|| Ok(socket))?;
        let remote = rustix::net::getpeername(&socket)?.and_then(|remote| remote.try_into().ok());
        rustix::io::ioctl_fionbio(&socket, true)?;
        // RFC 5044 5.1: FPDUs start segments when they can [MPA-32].
        sockopt::set_tcp_nodelay(&socket, true)?;
        let local = local.map(|local| Local::adopt(local).map(Box::new)).transpose()?;
        let doorbell = local.as_ref().map(|local| local.doorbell());
        let sockets = Arc::new(Sockets { socket, remote, doorbell });
        Ok(Self { sockets, local, facts: Facts::default() })
    }

    /// Its descriptors.
    pub(crate) fn sockets(&self) -> Arc<Sockets> {
        self.sockets.clone()
    }

    /// A socket of whatever kind.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn of(socket: impl Into<OwnedFd>) -> Self {
        let socket = Ours::make(|| Ok(socket.into())).expect("memory for its entry");
        let sockets = Arc::new(Sockets { socket, remote: None, doorbell: None });
        Self { sockets, local: None, facts: Facts::default() }
    }

    /// The shared memory, if octets go through it.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Local> {
        self.local.as_deref()
    }

    /// Reads the socket, which became readable although no octets go through it.
    pub(crate) fn check_life_line(&self) -> Line {
        self.local.as_ref().map_or(Line::Known, |local| local.check_life_line(&self.socket))
    }

    /// What carries its octets.
    pub(crate) fn carrier(&self) -> Carrier {
        match &self.local {
            None => Carrier::Tcp,
            Some(local) if local.is_corrupt() => Carrier::LocalCorrupt,
            Some(_) => Carrier::Local,
        }
    }

    /// Sends our octets, as many as fit.
    pub(crate) fn send(&self, octets: &[u8]) -> Sent {
        match &self.local {
            None => self.send_by_tcp(octets),
            Some(local) => local.send(octets),
        }
    }

    /// Sends by the socket in any case.
    pub(crate) fn send_by_tcp(&self, octets: &[u8]) -> Sent {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::send(&self.socket, octets, flags) {
                Ok(octets) => return Sent::Octets(octets),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Sent::Full,
                Err(errno) => return Sent::Broken(Fault::from_errno(errno.raw_os_error())),
            }
        }
    }

    /// Sends from `pieces`, in order, as much as fits.
    pub(crate) fn gather(&self, pieces: &[Piece<'_>]) -> Sent {
        if let Some(local) = &self.local {
            return local.gather(pieces);
        }
        // `Piece` is transparent over `iovec`.
        let message = header(pieces.as_ptr().cast(), pieces.len());
        loop {
            // SAFETY: the header names `pieces`, each readable for its life time.
            let done = unsafe {
                libc::sendmsg(
                    self.socket.as_raw_fd(),
                    &message,
                    libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
                )
            };
            if let Ok(octets) = usize::try_from(done) {
                return Sent::Octets(octets);
            }
            match last_errno() {
                libc::EINTR => {}
                libc::EAGAIN => return Sent::Full,
                errno => return Sent::Broken(Fault::from_errno(errno)),
            }
        }
    }

    /// Receives what has arrived into a buffer of ours.
    pub(crate) fn recv(&self, octets: &mut [u8]) -> Received {
        if let Some(local) = &self.local {
            return local.scatter(&[Room::of(octets)]);
        }
        loop {
            match rustix::net::recv(&self.socket, &mut *octets, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Received::Fin,
                Ok((octets, _)) => return Received::Octets(octets),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Received::Empty,
                Err(errno) => return Received::Broken(Fault::from_errno(errno.raw_os_error())),
            }
        }
    }

    /// Receives what has arrived into `rooms`, in order.
    pub(crate) fn scatter(&self, rooms: &mut [Room<'_>]) -> Received {
        if let Some(local) = &self.local {
            return local.scatter(rooms);
        }
        // `Room` is transparent over `iovec`.
        let mut message = header(rooms.as_ptr().cast(), rooms.len());
        loop {
            // SAFETY: the header names `rooms`, each writable for its life time.
            let done = unsafe {
                libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
            };
            match usize::try_from(done) {
                Ok(0) => return Received::Fin,
                Ok(octets) => return Received::Octets(octets),
                Err(_) => {}
            }
            match last_errno() {
                libc::EINTR => {}
                libc::EAGAIN => return Received::Empty,
                errno => return Received::Broken(Fault::from_errno(errno)),
            }
        }
    }

    /// Sends a FIN after what was sent.
    pub(crate) fn finish(&self) {
        if let Some(local) = &self.local {
            local.close();
        }
        // An error means that the stream is gone already, which the next receive reports.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }
}

impl Sockets {
    /// The socket, if no octets go through it.
    pub(crate) fn life_line(&self) -> Option<BorrowedFd<'_>> {
        self.doorbell.as_ref().map(|_| self.socket.as_fd())
    }

    /// Whether the peer's TCP has everything that was sent.
    pub(crate) fn is_delivered(&self) -> bool {
        // What is in the shared memory stays there for the peer.
        if self.doorbell.is_some() {
            return true;
        }
        let mut queued: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one `int`, and `queued` is one.
        // An error, which writes nothing, means that the stream is gone: nothing is on its way.
        let _ = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        queued == 0
    }

    /// Makes the closing of this socket a reset (RST).
    pub(crate) fn reset_on_close(&self) {
        // It can fail only for a descriptor that is not a socket.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }

    /// Effective maximum segment size now, in octets (RFC 5044 section 3).
    pub(crate) fn emss(&self) -> io::Result<u16> {
        let value: libc::c_int = self.tcp_option(libc::TCP_MAXSEG, 0)?;
        Ok(u16::try_from(value).unwrap_or(u16::MAX))
    }

    /// What TCP knows of the stream.
    pub(crate) fn tcp_info(&self) -> io::Result<TcpInfo> {
        // linux/tcp.h: the C library's `tcp_info` ends before what kernels tell since 4.10. What an older one
        // does not fill is zero.
        let info: [u8; 192] = self.tcp_option(libc::TCP_INFO, [0; 192])?;
        let half = |at: usize| u32::from_ne_bytes(std::array::from_fn(|n| info[at + n]));
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| info[at + n]));
        let micros = Duration::from_micros;
        Ok(TcpInfo {
            mss: half(16),
            rtt: micros(half(68).into()),
            rtt_variation: micros(half(72).into()),
            congestion_window: half(80),
            retransmitted: half(100),
            busy: micros(word(168)),
            rwnd_limited: micros(word(176)),
            sndbuf_limited: micros(word(184)),
            min_rtt: micros(half(148).into()),
            delivery_rate: word(160),
            unsent: half(144),
        })
    }

    /// A TCP option of plain integers; fields that the kernel does not fill keep their values.
    fn tcp_option<T: Copy>(&self, option: libc::c_int, mut value: T) -> io::Result<T> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: `value` and `len` are live and of the size that is passed; all callers' types
        // consist of integers, for which any octets are a value.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                option,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value)
    }

    /// Our address.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok().and_then(|a| a.try_into().ok())
    }

    /// The peer's address.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }
}

impl Fault {
    pub(super) fn from_errno(errno: i32) -> Self {
        match errno {
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN => {
                Self::TimedOut
            }
            libc::EFAULT => Self::Unmapped,
            _ => Self::Reset,
        }
    }
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A message header for so many vectors, which the kernel only reads.
fn header(vectors: *const libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = count as _;
    message
}

#[cfg(test)]
#[cfg(not(any(loom, miri)))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        (Stream::adopt(near.into(), None).unwrap(), far)
    }

    #[test]
    fn gathers_and_scatters() {
        use std::io::{Read, Write};
        let (near, mut far) = pair();
        assert_eq!(near.gather(&[Piece::of(b"ab"), Piece::of(b"cd")]), Sent::Octets(4));
        let mut got = [0; 4];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"abcd");
        far.write_all(b"wxyz").unwrap();
        let (mut first, mut second) = ([0; 1], [0; 8]);
        let received = loop {
            match near.scatter(&mut [Room::of(&mut first), Room::of(&mut second)]) {
                Received::Empty => std::thread::yield_now(),
                other => break other,
            }
        };
        assert_eq!(received, Received::Octets(4));
        assert_eq!((&first, &second[..3]), (b"w", &b"xyz"[..]));
    }

    #[test]
    fn reports_outstanding_requests() {
        use std::io::Read;
        let (near, mut far) = pair();
        assert!(near.is_delivered());
        let chunk = vec![0; 1 << 20];
        let mut sent = 0;
        while let Sent::Octets(octets) = near.send(&chunk) {
            sent += octets;
        }
        assert!(!near.is_delivered());
        far.read_exact(&mut vec![0; sent]).unwrap();
        while !near.is_delivered() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn reports_the_state_of_tcp() {
        let (near, far) = pair();
        assert_eq!(near.local(), Some(far.peer_addr().unwrap()));
        assert_eq!(near.remote(), Some(far.local_addr().unwrap()));
        let info = near.tcp_info().unwrap();
        assert!(info.mss > 500 && info.congestion_window > 0, "{info:?}");
        // A socket of another protocol has no segments.
        let (other, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(Stream::of(other).emss().is_err());
    }

    #[test]
    fn a_peer_that_does_not_respond_is_no_reset() {
        for errno in [libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ENETDOWN] {
            assert_eq!(Fault::from_errno(errno), Fault::TimedOut, "{errno}");
        }
        for errno in [libc::ECONNRESET, libc::EPIPE] {
            assert_eq!(Fault::from_errno(errno), Fault::Reset, "{errno}");
        }
    }

    #[test]
    fn reports_full_fin_and_reset() {
        let (near, far) = pair();
        let chunk = vec![0; 1 << 20];
        while near.send(&chunk) != Sent::Full {}
        drop(near);
        let (near, quiet) = pair();
        drop(quiet);
        let mut octets = [0; 8];
        let end = loop {
            match near.recv(&mut octets) {
                Received::Empty => std::thread::yield_now(),
                other => break other,
            }
        };
        assert_eq!(end, Received::Fin);
        drop(far);
        assert!(near.emss().unwrap() > 500);
    }
}
