//! Options of UDP sockets that no safe crate has, and datagrams of one flow in one call ([`segments`]). No state.

pub mod segments;

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// linux/udp.h
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// linux/sock_diag.h: numbers that `SO_MEMINFO` has, the first two being those of the receive buffer, and the one of
/// drops.
const SK_MEMINFO_VARS: usize = 9;
const SK_MEMINFO_DROPS: usize = 8;

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

/// What a socket's receive buffer holds, and what it lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffered {
    /// Octets that are taken, with what the kernel adds to each datagram.
    pub taken: u32,
    /// Octets that may be.
    pub most: u32,
    /// Datagrams that were dropped since the socket was made, modulo 2^32: the buffer was full, or a checksum was wrong.
    pub dropped: u32,
}

/// The state of a socket's receive buffer (sock_diag(7), `SO_MEMINFO`; of Linux 4.12).
pub fn buffered(socket: impl AsFd) -> io::Result<Buffered> {
    let mut words = [0u32; SK_MEMINFO_VARS];
    let mut len = size_of_val(&words) as libc::socklen_t;
    let (fd, place) = (socket.as_fd().as_raw_fd(), words.as_mut_ptr().cast());
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `len` octets, and any octets are valid there.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, place, &raw mut len) };
    match result {
        0 => Ok(Buffered { taken: words[0], most: words[1], dropped: words[SK_MEMINFO_DROPS] }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An instruction of a classic BPF program (linux/filter.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// How many instructions to skip if a comparison is true.
    pub if_true: u8,
    /// How many if it is false.
    pub if_false: u8,
    /// Operand.
    pub operand: u32,
}

/// `sock_fprog` of linux/filter.h, of which every octet that the kernel reads is initialised.
#[repr(C)]
struct Program {
    len: libc::c_ushort,
    padding: [u8; size_of::<*mut libc::sock_filter>() - size_of::<libc::c_ushort>()],
    filter: *mut libc::sock_filter,
}

/// Has the kernel choose by this program which socket of a group gets a datagram (socket(7),
/// `SO_ATTACH_REUSEPORT_CBPF`): the one with the index that the program returns. Needs no right.
pub fn steer(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter = Vec::new();
    filter.try_reserve_exact(program.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    filter.extend(program.iter().map(|one| libc::sock_filter {
        code: one.code,
        jt: one.if_true,
        jf: one.if_false,
        k: one.operand,
    }));
    let len = libc::c_ushort::try_from(filter.len()).map_err(io::Error::other)?;
    let program = Program { len, padding: Default::default(), filter: filter.as_mut_ptr() };
    let (fd, size) = (socket.as_fd().as_raw_fd(), size_of_val(&program) as libc::socklen_t);
    let (option, place) = (libc::SO_ATTACH_REUSEPORT_CBPF, (&raw const program).cast());
    // SAFETY: the descriptor is open while `socket` is borrowed; `place` has `size` octets, and points to `len`
    // instructions, which live until the end of this function. The kernel copies them.
    let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, place, size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
