//! Functions that move octets, from and to plain memory, lists of it, and files. No state of their own.

use std::ffi::{c_int, c_uint, c_void};

use crate::connection::{Obstacle, Way};
use crate::names::Call;
use crate::next::calls;
use crate::table::{cannot, moved};

type Memory = *mut c_void;
type Octets = *const c_void;
/// An array of `iovec`.
type Pieces = *const c_void;
type Place = *mut c_void;

calls! {
    read(fd: c_int, to: Memory, len: usize) -> isize,
        after |n| moved(fd, Call::read, Way::In, *n);
    __read(fd: c_int, to: Memory, len: usize) -> isize,
        after |n| moved(fd, Call::__read, Way::In, *n);
    __read_chk(fd: c_int, to: Memory, len: usize, room: usize) -> isize,
        after |n| moved(fd, Call::__read_chk, Way::In, *n);
    readv(fd: c_int, to: Pieces, count: c_int) -> isize,
        after |n| moved(fd, Call::readv, Way::In, *n);
    preadv2(fd: c_int, to: Pieces, count: c_int, at: i64, flags: c_int) -> isize,
        after |n| moved(fd, Call::preadv2, Way::In, *n);
    preadv64v2(fd: c_int, to: Pieces, count: c_int, at: i64, flags: c_int) -> isize,
        after |n| moved(fd, Call::preadv64v2, Way::In, *n);
    recv(fd: c_int, to: Memory, len: usize, flags: c_int) -> isize,
        after |n| received(fd, Call::recv, flags, *n);
    __recv_chk(fd: c_int, to: Memory, len: usize, room: usize, flags: c_int) -> isize,
        after |n| received(fd, Call::__recv_chk, flags, *n);
    recvfrom(fd: c_int, to: Memory, len: usize, flags: c_int, from: Memory, room: *mut c_uint) -> isize,
        after |n| received(fd, Call::recvfrom, flags, *n);
    __recvfrom_chk(
        fd: c_int, to: Memory, len: usize, all: usize, flags: c_int, from: Memory, room: *mut c_uint
    ) -> isize,
        after |n| received(fd, Call::__recvfrom_chk, flags, *n);
    write(fd: c_int, from: Octets, len: usize) -> isize,
        after |n| moved(fd, Call::write, Way::Out, *n);
    __write(fd: c_int, from: Octets, len: usize) -> isize,
        after |n| moved(fd, Call::__write, Way::Out, *n);
    writev(fd: c_int, from: Pieces, count: c_int) -> isize,
        after |n| moved(fd, Call::writev, Way::Out, *n);
    pwritev2(fd: c_int, from: Pieces, count: c_int, at: i64, flags: c_int) -> isize,
        after |n| moved(fd, Call::pwritev2, Way::Out, *n);
    pwritev64v2(fd: c_int, from: Pieces, count: c_int, at: i64, flags: c_int) -> isize,
        after |n| moved(fd, Call::pwritev64v2, Way::Out, *n);
    send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize,
        after |n| sent(fd, Call::send, flags, *n);
    __send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize,
        after |n| sent(fd, Call::__send, flags, *n);
    sendto(fd: c_int, from: Octets, len: usize, flags: c_int, to: Octets, room: c_uint) -> isize,
        after |n| sent(fd, Call::sendto, flags, *n);
    sendfile(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize,
        after |n| between(file, out, Call::sendfile, *n);
    sendfile64(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize,
        after |n| between(file, out, Call::sendfile64, *n);
    splice(from: c_int, at: Place, to: c_int, there: Place, len: usize, flags: c_uint) -> isize,
        after |n| spliced(from, to, *n);
}

/// Octets with these flags are not taken from the stream.
const LEAVES: c_int = libc::MSG_PEEK | libc::MSG_ERRQUEUE;

/// A call has received so many octets, of which none are counted if they stay where they were.
pub(super) fn received(fd: c_int, call: Call, flags: c_int, octets: isize) {
    obstruct(fd, flags);
    moved(fd, call, Way::In, if flags & LEAVES != 0 { 0 } else { octets });
}

/// A call has sent so many octets.
pub(super) fn sent(fd: c_int, call: Call, flags: c_int, octets: isize) {
    obstruct(fd, flags);
    moved(fd, call, Way::Out, octets);
}

fn obstruct(fd: c_int, flags: c_int) {
    if flags & libc::MSG_OOB != 0 {
        cannot(fd, Obstacle::OutOfBand);
    }
    if flags & libc::MSG_ZEROCOPY != 0 {
        cannot(fd, Obstacle::ZeroCopy);
    }
}

/// Octets went from one descriptor to another; one or both may be connections.
fn between(from: c_int, to: c_int, call: Call, octets: isize) {
    moved(from, call, Way::In, octets);
    moved(to, call, Way::Out, octets);
}

fn spliced(from: c_int, to: c_int, octets: isize) {
    for fd in [from, to] {
        cannot(fd, Obstacle::Splice);
    }
    between(from, to, Call::splice, octets);
}
