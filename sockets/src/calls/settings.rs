//! Functions that read and change the state of a connection. No state of their own.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use crate::connection::Obstacle;
use crate::names::Call;
use crate::next::calls;
use crate::table;

calls! {
    shutdown(fd: c_int, how: c_int) -> c_int, after |_done| table::note(fd, Call::shutdown);
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut c_uint) -> c_int,
        // Programs ask for SO_ERROR when a connection is made.
        after |_done| table::met(fd, Call::getsockopt);
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: c_uint) -> c_int,
        after |done| set(fd, level, name, *done);
    ioctl(fd: c_int, request: c_ulong, value: c_long) -> c_int,
        after |done| asked(fd, request, *done);
}

fn set(fd: c_int, level: c_int, name: c_int, done: c_int) {
    table::note(fd, Call::setsockopt);
    let obstacle = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => Obstacle::ZeroCopy,
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => Obstacle::OutOfBand,
        (libc::IPPROTO_TCP, libc::TCP_ULP) => Obstacle::KernelTls,
        (libc::IPPROTO_TCP, libc::TCP_REPAIR) => Obstacle::Repair,
        _ => return,
    };
    if done == 0 {
        table::cannot(fd, obstacle);
    }
}

/// Of socket(7), beside those of the libc crate.
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;

fn asked(fd: c_int, request: c_ulong, done: c_int) {
    table::note(fd, Call::ioctl);
    if done == 0 && [libc::FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
        table::cannot(fd, Obstacle::SignalDriven);
    }
}
