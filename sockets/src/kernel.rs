//! What the kernel knows about a socket: by system calls that leave `errno` as it is. No state.

use std::ffi::{c_int, c_uint};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, getpeername, getsockname, ipproto,
    socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::next::system;

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

/// Octets that were moved on a connection by other means than the calls that were `counted`: written, and read. `None`: the
/// kernel does not know any more, because the connection is reset or closed in both directions.
///
/// The figures are of several calls, between which some may change: those that are none, or the same again, count.
pub(crate) fn others(fd: c_int, accepted: bool, counted: [u64; 2]) -> Option<[u64; 2]> {
    let mut last = Some([0, 0]);
    let found = (0..8).find_map(|_| {
        let now = others_now(fd, accepted, counted);
        let again = now.is_none() || now == Some([0, 0]) || now == last;
        last = now;
        again.then_some(now)
    });
    found.flatten()
}

fn others_now(fd: c_int, accepted: bool, counted: [u64; 2]) -> Option<[u64; 2]> {
    let [written, read] = moved(fd, accepted)?;
    Some([written.saturating_sub(counted[0]), read.saturating_sub(counted[1])])
}

/// Octets that all processes have written to a connection, and read from it.
fn moved(fd: c_int, accepted: bool) -> Option<[u64; 2]> {
    let info = tcp_info(fd)?;
    let (unacked, unread) = (queue(fd, SIOCOUTQ)?, queue(fd, libc::FIONREAD)?);
    let word = |at| word(&info, at);
    // A SYN of this end counts as an octet, and so does a FIN of either.
    let syn = u64::from(!accepted);
    let (fin, peer_fin) = match info[0] {
        ESTABLISHED => (0, 0),
        CLOSE_WAIT => (0, 1),
        FIN_WAIT1 | FIN_WAIT2 => (1, 0),
        _ => return None,
    };
    let written = (word(ACKED) + unacked).checked_sub(syn + fin)?;
    let read = word(RECEIVED).checked_sub(peer_fin + unread)?;
    Some([written, read])
}

/// Octets that were written to a connection by TCP; `None`: it is not open in both directions, or others write meanwhile.
pub(crate) fn written(fd: c_int, accepted: bool) -> Option<u64> {
    let syn = u64::from(!accepted);
    settled(fd, ACKED, SIOCOUTQ, |state, acked, unacked| {
        (state == ESTABLISHED).then(|| (acked + unacked).checked_sub(syn))?
    })
}

/// Octets that were read from a connection by TCP; `None`: the kernel does not tell, after a reset or before an urgent octet.
pub(crate) fn read_so_far(fd: c_int) -> Option<u64> {
    if ready(fd, PollFlags::PRI).contains(PollFlags::PRI) {
        return None;
    }
    settled(fd, RECEIVED, libc::FIONREAD, |state, received, unread| {
        let fin = match state {
            ESTABLISHED | FIN_WAIT1 | FIN_WAIT2 => 0,
            CLOSE_WAIT => 1,
            _ => return None,
        };
        received.checked_sub(fin + unread)
    })
}

/// What a count of the kernel's and the length of a queue show together, while the count stays the same.
fn settled(
    fd: c_int,
    count: usize,
    queued: libc::Ioctl,
    figure: impl Fn(u8, u64, u64) -> Option<u64>,
) -> Option<u64> {
    let state = || Some(tcp_info(fd)?).map(|info| (info[0], word(&info, count)));
    let mut before = state()?;
    for _ in 0..64 {
        let queue = queue(fd, queued)?;
        let after = state()?;
        if after == before {
            return figure(after.0, after.1, queue);
        }
        before = after;
    }
    None
}

/// A word of `struct tcp_info`.
fn word(info: &[u8; LEN], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| info[at + i]))
}

/// Whether a connection is open in both directions, as far as this end knows.
pub(crate) fn is_established(fd: c_int) -> bool {
    tcp_info(fd).is_some_and(|info| info[0] == ESTABLISHED)
}

/// Whether a peer will send no more, and all that it sent has arrived.
pub(crate) fn has_ended(fd: c_int) -> bool {
    tcp_info(fd).is_none_or(|info| ![ESTABLISHED, FIN_WAIT1, FIN_WAIT2].contains(&info[0]))
}

/// What a descriptor is ready for now.
pub(crate) fn ready(fd: c_int, events: PollFlags) -> PollFlags {
    let Some(fd) = borrow(fd) else { return PollFlags::NVAL };
    let mut one = [PollFd::from_borrowed_fd(fd, events)];
    match poll(&mut one, Some(&Timespec::default())) {
        Ok(_) => one[0].revents(),
        Err(_) => PollFlags::ERR,
    }
}

/// Waits until there is something to read. False: a signal came.
pub(crate) fn wait_readable(fd: c_int) -> bool {
    let Some(fd) = borrow(fd) else { return true };
    let mut one = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut one, Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 })) != Err(Errno::INTR)
}

/// Waits until there is room to write, if calls on the descriptor wait. False: there is none.
pub(crate) fn wait_writable(fd: c_int) -> bool {
    let limit = if blocks(fd) { None } else { Some(Timespec::default()) };
    let Some(fd) = borrow(fd) else { return false };
    let mut one = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    poll(&mut one, limit.as_ref()).is_ok_and(|n| n > 0)
}

/// The error that the next call would return.
pub(crate) fn take_error(fd: c_int) -> Option<c_int> {
    let error = sockopt::socket_error(borrow(fd)?).ok()?.err()?;
    Some(error.raw_os_error())
}

/// Whether an urgent octet is next, before which reads end (tcp(7)).
pub(crate) fn is_at_mark(fd: c_int) -> bool {
    queue(fd, SIOCATMARK) == Some(1)
}

/// Whether few octets are sent at once.
pub(crate) fn no_delay(fd: c_int) -> Option<bool> {
    sockopt::tcp_nodelay(borrow(fd)?).ok()
}

/// From now on they are.
pub(crate) fn send_without_delay(fd: c_int) {
    if let Some(fd) = borrow(fd) {
        let _ = sockopt::set_tcp_nodelay(fd, true);
    }
}

/// Octets by TCP that wait to be read.
pub(crate) fn unread(fd: c_int) -> u64 {
    queue(fd, libc::FIONREAD).unwrap_or(0)
}

/// Whether the kernel has neither octets nor an end nor an error for a reader. To ask takes none of them.
pub(crate) fn is_quiet(fd: c_int) -> bool {
    ready(fd, PollFlags::IN | PollFlags::RDHUP).is_empty()
}

/// Whether the next call would return an error, or the connection is closed in both directions. To ask takes no error.
pub(crate) fn has_failed(fd: c_int) -> bool {
    !ready(fd, PollFlags::empty()).is_empty()
}

/// Whether calls on a descriptor wait.
pub(crate) fn blocks(fd: c_int) -> bool {
    let Some(fd) = borrow(fd) else { return false };
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
}

/// Whether a descriptor stays open when the process becomes another program.
pub(crate) fn survives_exec(fd: c_int) -> bool {
    let Some(fd) = borrow(fd) else { return false };
    rustix::io::fcntl_getfd(fd).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Ends a connection at once: the peer gets a reset.
pub(crate) fn reset(fd: c_int) {
    if let Some(fd) = borrow(fd) {
        let _ = rustix::net::connect_unspec(fd);
    }
}

/// From now on the close of the last descriptor resets the connection, as it does with octets that nobody has read.
pub(crate) fn reset_at_close(fd: c_int) {
    if let Some(fd) = borrow(fd) {
        let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
    }
}

/// Whether a process has ended, as far as a descriptor of it shows.
pub(crate) fn has_exited(process: u32) -> bool {
    let Some(process) = Pid::from_raw(process.cast_signed()) else { return false };
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(fd) => {
            let mut one = [PollFd::new(&fd, PollFlags::IN)];
            let exited = poll(&mut one, Some(&Timespec::default())).is_ok_and(|n| n > 0);
            close(fd);
            exited
        }
        Err(errno) => errno == Errno::SRCH,
    }
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
/// Whether an urgent octet is next (sockatmark(3)).
pub(crate) const SIOCATMARK: libc::Ioctl = 0x8905;

fn queue(fd: c_int, request: libc::Ioctl) -> Option<u64> {
    let mut octets: c_int = 0;
    let arguments = [fd as usize, request as usize, (&raw mut octets).expose_provenance(), 0, 0, 0];
    // All these requests write one int.
    system(libc::SYS_ioctl, arguments).ok()?;
    u64::try_from(octets).ok()
}

/// The first octets of `struct tcp_info`.
fn tcp_info(fd: c_int) -> Option<[u8; LEN]> {
    let mut info = [0; LEN];
    let mut len = LEN as c_uint;
    let (level, name) = (libc::IPPROTO_TCP as usize, libc::TCP_INFO as usize);
    // The kernel writes at most `len` octets, and their number.
    let (at, room) = (info.as_mut_ptr().expose_provenance(), (&raw mut len).expose_provenance());
    system(libc::SYS_getsockopt, [fd as usize, level, name, at, room, 0]).ok()?;
    (len as usize == LEN).then_some(info)
}
