//! Functions that read and change the state of a connection. No state of their own.

use std::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use crate::connection::Obstacle;
use crate::kernel::SIOCATMARK;
use crate::names::Call;
use crate::next::calls;
use crate::table;

calls! {
    shutdown(fd: c_int, how: c_int) -> c_int,
        before ends(fd, how), after |_done| table::note(fd, Call::shutdown);
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut c_uint) -> c_int,
        // Programs ask for SO_ERROR when a connection is made.
        after |done| got(fd, level, name, value, *done);
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: c_uint) -> c_int,
        after |done| set(fd, level, name, value, *done);
    ioctl(fd: c_int, request: c_ulong, value: c_long) -> c_int,
        after |done| asked(fd, request, value, *done);
}

/// An end of a direction: TCP shows it, and what is in the ring goes before.
fn ends(fd: c_int, how: c_int) {
    if let Some(connection) = table::of(fd).filter(|_| (0..=libc::SHUT_RDWR).contains(&how)) {
        connection.link.close();
    }
}

fn got(fd: c_int, level: c_int, name: c_int, value: *mut c_void, done: c_int) {
    table::met(fd, Call::getsockopt);
    if (level, name, done) == (libc::IPPROTO_TCP, libc::TCP_NODELAY, 0)
        && let Some(set) = table::of(fd).and_then(|connection| connection.link.no_delay())
    {
        // SAFETY: an octet at least that the kernel has written; the others are 0.
        unsafe { value.cast::<u8>().write(u8::from(set)) };
    }
}

fn set(fd: c_int, level: c_int, name: c_int, value: *const c_void, done: c_int) {
    table::note(fd, Call::setsockopt);
    if (level, name, done) == (libc::SOL_SOCKET, libc::SO_RCVLOWAT, 0)
        && let Some(connection) = table::of(fd)
    {
        // SAFETY: an int that the kernel has read.
        let octets = unsafe { value.cast::<c_int>().read_unaligned() };
        connection.link.set_low_water(u32::try_from(octets).unwrap_or(0));
    }
    if (level, name, done) == (libc::IPPROTO_TCP, libc::TCP_NODELAY, 0)
        && let Some(connection) = table::of(fd).filter(|it| it.link.no_delay().is_some())
    {
        // SAFETY: an int that the kernel has read.
        let on = unsafe { value.cast::<c_int>().read_unaligned() };
        connection.link.set_no_delay(fd, on != 0);
    }
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

fn asked(fd: c_int, request: c_ulong, value: c_long, done: c_int) {
    let Some(connection) = table::of(fd) else { return };
    connection.note(Call::ioctl);
    if done != 0 {
        return;
    }
    if [libc::FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
        table::cannot(fd, Obstacle::SignalDriven);
    }
    let link = &connection.link;
    let more = match request {
        libc::FIONREAD => u64::from(link.unread()),
        libc::TIOCOUTQ => link.unread_by_peer(),
        libc::FIONBIO => return link.forget_blocks(),
        // What is in the ring comes before.
        SIOCATMARK if link.unread() > 0 => {
            // SAFETY: an int that the kernel has written.
            return unsafe { (value as *mut c_int).write_unaligned(0) };
        }
        _ => return,
    };
    let octets = value as *mut c_int;
    // SAFETY: an int that the kernel has written.
    let all = unsafe { octets.read_unaligned() }.saturating_add(more as c_int);
    // SAFETY: the same.
    unsafe { octets.write_unaligned(all) };
}
