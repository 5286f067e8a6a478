//! Options of UDP sockets that no safe crate has. No state.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// linux/udp.h
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// Has an IPv6 socket accept datagrams whose UDP checksum is 0. The invariant CRC of RoCE protects them (RFC 6935),
/// and the kernel's `rxe` sends such (udp(7), `UDP_NO_CHECK6_RX`). Needs no right.
pub fn accept_zero_checksum(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let (fd, len) = (socket.as_fd().as_raw_fd(), size_of_val(&on) as libc::socklen_t);
    let place = (&raw const on).cast();
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_UDP, UDP_NO_CHECK6_RX, place, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
