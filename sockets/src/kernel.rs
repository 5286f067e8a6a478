//! What the kernel knows about a socket: by system calls that leave `errno` as it is. No state.

use std::ffi::{c_int, c_uint};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, getpeername, getsockname, ipproto,
    socket_with, sockopt,
};

use crate::connection::{Connection, Way};
use crate::next::{errno, set_errno};

/// A descriptor of the program, for the length of a call.
fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: not -1. The program may close it at any moment; then these calls fail, or tell about another one, which
    // `cookie` shows.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Whether it is a stream socket of TCP.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    let Some(fd) = borrow(fd) else { return false };
    let protocol: Option<Protocol> = sockopt::socket_protocol(fd).ok().flatten();
    protocol == Some(ipproto::TCP) && sockopt::socket_type(fd) == Ok(SocketType::STREAM)
}

/// This end and the peer's.
pub(crate) fn ends(fd: c_int) -> Option<[SocketAddr; 2]> {
    let fd = borrow(fd)?;
    let this = SocketAddr::try_from(getsockname(fd).ok()?).ok()?;
    Some([this, SocketAddr::try_from(getpeername(fd).ok()??).ok()?])
}

/// The socket's number, which no other socket gets; not 0.
pub(crate) fn cookie(fd: c_int) -> Option<u64> {
    sockopt::socket_cookie(borrow(fd)?).ok()
}

/// Whether an address is of this host, as the kernel decides when a socket is bound to it. Without descriptors for that: no.
pub(crate) fn is_here(ip: IpAddr) -> bool {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let made = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    made.is_ok_and(|socket| {
        let bound = bind(&socket, &SocketAddr::new(ip, 0));
        close(socket);
        bound.is_ok()
    })
}

/// Closes a descriptor of this library by the system call: close(3) is a cancellation point (pthreads(7)), and frames of this
/// library are not prepared to be unwound there.
pub(crate) fn close(own: OwnedFd) {
    // SAFETY: a descriptor without another owner.
    unsafe { rustix::io::close(own.into_raw_fd()) };
}

/// Whether a descriptor is open.
pub(crate) fn is_open(fd: c_int) -> bool {
    borrow(fd).is_some_and(|fd| rustix::io::fcntl_getfd(fd).is_ok())
}

/// Octets that were moved on a connection by other means than the calls that were counted: written, and read. `None`: the
/// kernel does not know any more, because the connection is reset or closed in both directions.
///
/// The figures are of several calls, between which some may change: those that are none, or the same again, count.
pub(crate) fn others(fd: c_int, connection: &Connection) -> Option<[u64; 2]> {
    let before = errno();
    let mut last = Some([0, 0]);
    let found = (0..8).find_map(|_| {
        let now = others_now(fd, connection);
        let again = now.is_none() || now == Some([0, 0]) || now == last;
        last = now;
        again.then_some(now)
    });
    set_errno(before);
    found.flatten()
}

fn others_now(fd: c_int, connection: &Connection) -> Option<[u64; 2]> {
    let info = tcp_info(fd)?;
    let (unacked, unread) = (queue(fd, SIOCOUTQ)?, queue(fd, libc::FIONREAD)?);
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| info[at + i]));
    // A SYN of this end counts as an octet, and so does a FIN of either.
    let syn = u64::from(!connection.is_accepted());
    let (fin, peer_fin) = match info[0] {
        ESTABLISHED => (0, 0),
        CLOSE_WAIT => (0, 1),
        FIN_WAIT1 | FIN_WAIT2 => (1, 0),
        _ => return None,
    };
    let written = (word(ACKED) + unacked).checked_sub(syn + fin)?;
    let read = word(RECEIVED).checked_sub(peer_fin + unread)?;
    let other = |all: u64, way| all.saturating_sub(connection.octets(way));
    Some([other(written, Way::Out), other(read, Way::In)])
}

/// States of `tcpi_state`.
const ESTABLISHED: u8 = 1;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE_WAIT: u8 = 8;

/// Places in `struct tcp_info` (linux/tcp.h), which only grows at its end.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
const LEN: usize = 136;

/// Octets sent and not acknowledged (tcp(7)).
const SIOCOUTQ: libc::Ioctl = libc::TIOCOUTQ;

fn queue(fd: c_int, request: libc::Ioctl) -> Option<u64> {
    let mut octets: c_int = 0;
    // SAFETY: both requests write one int.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd, request, &raw mut octets) };
    u64::try_from(octets).ok().filter(|_| done == 0)
}

/// The first octets of `struct tcp_info`.
fn tcp_info(fd: c_int) -> Option<[u8; LEN]> {
    let mut info = [0; LEN];
    let mut len = LEN as c_uint;
    let (at, room) = (info.as_mut_ptr(), &raw mut len);
    // SAFETY: the kernel writes at most `len` octets, and their number.
    let done = unsafe {
        libc::syscall(libc::SYS_getsockopt, fd, libc::IPPROTO_TCP, libc::TCP_INFO, at, room)
    };
    (done == 0 && len as usize == LEN).then_some(info)
}
