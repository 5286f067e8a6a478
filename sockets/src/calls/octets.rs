//! Functions that move octets, from and to plain memory, lists of it, and files. No state of their own.

use std::ffi::{c_int, c_uint, c_void};

use crate::connection::{Connection, Obstacle};
use crate::names::Call;
use crate::next::calls;
use crate::ring::pieces::Pieces;
use crate::ring::{receive, send};
use crate::table::{self, cannot, moved};
use crate::way::Way;

type Memory = *mut c_void;
type Octets = *const c_void;
/// An array of `iovec`.
type List = *const c_void;
type Place = *mut c_void;

calls! {
    read(fd: c_int, to: Memory, len: usize) -> isize,
        around |real| takes(fd, Call::read, Pieces::one(to, len), 0, real);
    __read(fd: c_int, to: Memory, len: usize) -> isize,
        around |real| takes(fd, Call::__read, Pieces::one(to, len), 0, real);
    __read_chk(fd: c_int, to: Memory, len: usize, room: usize) -> isize,
        around |real| takes(fd, Call::__read_chk, checked(to, len, room), 0, real);
    readv(fd: c_int, to: List, count: c_int) -> isize,
        around |real| takes(fd, Call::readv, Pieces::list(to, count), 0, real);
    preadv2(fd: c_int, to: List, count: c_int, at: i64, flags: c_int) -> isize,
        around |real| takes(fd, Call::preadv2, placed(to, count, at, flags), 0, real);
    preadv64v2(fd: c_int, to: List, count: c_int, at: i64, flags: c_int) -> isize,
        around |real| takes(fd, Call::preadv64v2, placed(to, count, at, flags), 0, real);
    recv(fd: c_int, to: Memory, len: usize, flags: c_int) -> isize,
        around |real| takes(fd, Call::recv, Pieces::one(to, len), flags, real);
    __recv_chk(fd: c_int, to: Memory, len: usize, room: usize, flags: c_int) -> isize,
        around |real| takes(fd, Call::__recv_chk, checked(to, len, room), flags, real);
    recvfrom(fd: c_int, to: Memory, len: usize, flags: c_int, from: Memory, room: *mut c_uint) -> isize,
        around |real| takes(fd, Call::recvfrom, Pieces::one(to, len), flags, real);
    __recvfrom_chk(
        fd: c_int, to: Memory, len: usize, all: usize, flags: c_int, from: Memory, room: *mut c_uint
    ) -> isize,
        around |real| takes(fd, Call::__recvfrom_chk, checked(to, len, all), flags, real);
    write(fd: c_int, from: Octets, len: usize) -> isize,
        around |real| gives(fd, Call::write, Pieces::one(from, len), 0, real);
    __write(fd: c_int, from: Octets, len: usize) -> isize,
        around |real| gives(fd, Call::__write, Pieces::one(from, len), 0, real);
    writev(fd: c_int, from: List, count: c_int) -> isize,
        around |real| gives(fd, Call::writev, Pieces::list(from, count), 0, real);
    pwritev2(fd: c_int, from: List, count: c_int, at: i64, flags: c_int) -> isize,
        around |real| gives(fd, Call::pwritev2, placed(from, count, at, flags), 0, real);
    pwritev64v2(fd: c_int, from: List, count: c_int, at: i64, flags: c_int) -> isize,
        around |real| gives(fd, Call::pwritev64v2, placed(from, count, at, flags), 0, real);
    send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize,
        around |real| gives(fd, Call::send, Pieces::one(from, len), flags, real);
    __send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize,
        around |real| gives(fd, Call::__send, Pieces::one(from, len), flags, real);
    sendto(fd: c_int, from: Octets, len: usize, flags: c_int, to: Octets, room: c_uint) -> isize,
        around |real| {
            // With an address that is not one, the call fails.
            let pieces = if to.is_null() { Pieces::one(from, len) } else { Pieces::Bad };
            gives(fd, Call::sendto, pieces, flags, real)
        };
    sendfile(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize,
        around |real| between(file, out, Call::sendfile, real);
    sendfile64(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize,
        around |real| between(file, out, Call::sendfile64, real);
    splice(from: c_int, at: Place, to: c_int, there: Place, len: usize, flags: c_uint) -> isize,
        around |real| spliced(from, to, len, real);
}

/// Octets with these flags are not taken from the stream.
pub(super) const LEAVES: c_int = libc::MSG_PEEK | libc::MSG_ERRQUEUE;

/// Receives, and counts.
#[inline]
pub(super) fn takes(
    fd: c_int,
    call: Call,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    let by = |it: &Connection| receive::receive(fd, it, pieces, flags, &real);
    counted(fd, call, Way::In, flags, by, &real)
}

/// Sends, and counts.
#[inline]
pub(super) fn gives(
    fd: c_int,
    call: Call,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    counted(fd, call, Way::Out, flags, |it| send::send(fd, it, pieces, flags, &real), &real)
}

/// `by` a connection, or `real` if it is none.
#[inline]
fn counted(
    fd: c_int,
    call: Call,
    way: Way,
    flags: c_int,
    by: impl FnOnce(&Connection) -> isize,
    real: impl FnOnce() -> isize,
) -> isize {
    let Some(connection) = table::of(fd) else { return real() };
    obstruct(fd, flags);
    let n = by(connection);
    moved(fd, call, way, if way == Way::In && flags & LEAVES != 0 { 0 } else { n });
    n
}

/// Memory whose size is known: the C library ends a program that asks for more.
fn checked(to: Memory, len: usize, room: usize) -> Pieces {
    if len > room { Pieces::Bad } else { Pieces::one(to, len) }
}

/// Memory of a call with a place in a file, which a connection has not, and flags.
fn placed(all: List, count: c_int, at: i64, flags: c_int) -> Pieces {
    if at == -1 && flags == 0 { Pieces::list(all, count) } else { Pieces::Bad }
}

pub(super) fn obstruct(fd: c_int, flags: c_int) {
    if flags & libc::MSG_OOB != 0 {
        cannot(fd, Obstacle::OutOfBand);
    }
    if flags & libc::MSG_ZEROCOPY != 0 {
        cannot(fd, Obstacle::ZeroCopy);
    }
}

/// Octets go from one descriptor to another; one or both may be connections.
fn between(from: c_int, to: c_int, call: Call, real: impl Fn() -> isize) -> isize {
    let n = match table::of(to) {
        Some(connection) => send::by_tcp(connection, real),
        None => real(),
    };
    moved(from, call, Way::In, n);
    moved(to, call, Way::Out, n);
    n
}

fn spliced(from: c_int, to: c_int, len: usize, real: impl Fn() -> isize) -> isize {
    for fd in [from, to] {
        cannot(fd, Obstacle::Splice);
    }
    match table::of(from).and_then(|connection| receive::spliced(from, connection, to, len)) {
        Some(n) => {
            moved(from, Call::splice, Way::In, n);
            n
        }
        None => between(from, to, Call::splice, real),
    }
}
