//! Functions that make, duplicate and close descriptors. No state of their own.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::connection::Obstacle;
use crate::names::Call;
use crate::next::calls;
use crate::ring::link::Failure;
use crate::{kernel, table};

calls! {
    socket(family: c_int, kind: c_int, protocol: c_int) -> c_int,
        after |fd| made(*fd, family, kind, protocol);
    accept(fd: c_int, address: *mut c_void, len: *mut c_uint) -> c_int,
        after |new| table::accepted(fd, *new, Call::accept);
    accept4(fd: c_int, address: *mut c_void, len: *mut c_uint, flags: c_int) -> c_int,
        after |new| table::accepted(fd, *new, Call::accept4);
    connect(fd: c_int, address: *const c_void, len: c_uint) -> c_int,
        after |_done| table::met(fd, Call::connect);
    __connect(fd: c_int, address: *const c_void, len: c_uint) -> c_int,
        after |_done| table::met(fd, Call::__connect);
    dup(fd: c_int) -> c_int,
        after |new| duplicated(fd, Call::dup, *new);
    dup2(fd: c_int, to: c_int) -> c_int,
        before replaced(fd, to), after |new| duplicated(fd, Call::dup2, *new);
    __dup2(fd: c_int, to: c_int) -> c_int,
        before replaced(fd, to), after |new| duplicated(fd, Call::__dup2, *new);
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int,
        before replaced(fd, to), after |new| duplicated(fd, Call::dup3, *new);
    fcntl(fd: c_int, command: c_int, value: c_long) -> c_int,
        after |new| controlled(fd, Call::fcntl, command, value, *new);
    __fcntl(fd: c_int, command: c_int, value: c_long) -> c_int,
        after |new| controlled(fd, Call::__fcntl, command, value, *new);
    fcntl64(fd: c_int, command: c_int, value: c_long) -> c_int,
        after |new| controlled(fd, Call::fcntl64, command, value, *new);
    close(fd: c_int) -> c_int, before table::forget(fd);
    __close(fd: c_int) -> c_int, before table::forget(fd);
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int,
        before if closes(first, last, flags) { table::forget_from(first, last) };
    closefrom(first: c_int) -> (), before table::forget_from(first.max(0) as c_uint, c_uint::MAX);
    fdopen(fd: c_int, mode: *const c_char) -> *mut c_void,
        after |stream| opened(fd, Call::fdopen, *stream);
    _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut c_void,
        after |stream| opened(fd, Call::_IO_fdopen, *stream);
}

/// A socket was made.
pub(super) fn made(fd: c_int, family: c_int, kind: c_int, protocol: c_int) {
    let is_ip = family == libc::AF_INET || family == libc::AF_INET6;
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    if is_ip && kind == libc::SOCK_STREAM && [0, libc::IPPROTO_TCP].contains(&protocol) {
        table::follow(fd, Call::socket);
    }
}

/// `to` is about to become a duplicate: what it is now is closed, unless the call fails.
pub(super) fn replaced(fd: c_int, to: c_int) {
    let known = table::of(to).is_some() || table::set_of(to).is_some();
    if fd != to && known && kernel::is_open(fd) {
        table::forget(to);
    }
}

pub(super) fn duplicated(fd: c_int, call: Call, new: c_int) {
    if new >= 0 {
        table::note(fd, call);
        table::share(fd, new);
    }
}

fn controlled(fd: c_int, call: Call, command: c_int, value: c_long, result: c_int) {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, call, result),
        libc::F_SETFL => {
            if value & c_long::from(libc::O_ASYNC) != 0 {
                signals(fd, call);
            }
            table::note(fd, call);
            if let Some(connection) = table::of(fd) {
                connection.link.forget_blocks();
            }
        }
        libc::F_SETFD if value & c_long::from(libc::FD_CLOEXEC) == 0 => {
            table::note(fd, call);
            if let Some(connection) = table::of(fd) {
                connection.link.survives_exec();
            }
        }
        // Not in the libc crate: F_SETSIG, F_SETOWN_EX (fcntl(2)).
        libc::F_SETOWN | 10 | 15 => signals(fd, call),
        _ => table::note(fd, call),
    }
}

fn signals(fd: c_int, call: Call) {
    table::note(fd, call);
    table::cannot(fd, Obstacle::SignalDriven);
}

/// Whether close_range(2) closes: with other flags it does not, or fails.
pub(super) fn closes(first: c_uint, last: c_uint, flags: c_int) -> bool {
    first <= last && (flags == 0 || flags == libc::CLOSE_RANGE_UNSHARE as c_int)
}

/// The C library closes the descriptor of a stream itself, and this library does not see it.
fn opened(fd: c_int, call: Call, stream: *mut c_void) {
    if !stream.is_null() {
        table::note(fd, call);
        table::cannot(fd, Obstacle::Stream);
        if let Some(connection) = table::of(fd).filter(|it| it.link.unread() > 0) {
            connection.link.fail(fd, Failure::Passed);
        }
        table::forget(fd);
    }
}
