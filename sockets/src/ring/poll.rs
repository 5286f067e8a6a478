//! poll(2) of connections with shared memory among others. No state.

use std::ffi::c_int;

use libc::{POLLIN, POLLRDNORM, pollfd};

use super::limit::Limit;
use super::sets;
use super::several::Several;
use super::spin::Seen;
use crate::next::system;
use crate::table;

const READS: i16 = POLLIN | POLLRDNORM;

/// Waits at most for `limit`, by `real`, the program's call; without a look at memory first if it is `masked`.
///
/// # Safety
/// `count` entries can be read and written; a limit as the program passed it.
pub(crate) unsafe fn poll(
    all: *mut pollfd,
    count: usize,
    limit: Limit,
    masked: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    let mut some = Several::new();
    if !all.is_null() && table::highest() >= 0 {
        for place in 0..count {
            // SAFETY: the caller's promise.
            let entry = unsafe { all.wrapping_add(place).read() };
            if entry.events & READS == 0 {
                continue;
            }
            if let Some(connection) = table::of(entry.fd) {
                some.add(place, entry.fd, &connection.link);
            } else if let Some(set) = table::set_of(entry.fd) {
                sets::nested(set);
            }
        }
    }
    if some.is_empty() {
        return real();
    }
    // SAFETY: the caller's promise.
    let limit = unsafe { limit.nanos() };
    // SAFETY: the caller's promise.
    let n = unsafe { among(&some, all, count, limit, masked, real) };
    some.release();
    n
}

/// # Safety
/// That of [`poll`].
unsafe fn among(
    some: &Several<'_>,
    all: *mut pollfd,
    count: usize,
    limit: u64,
    masked: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    loop {
        if some.any_ready() {
            // SAFETY: the caller's promise.
            return unsafe { merge(some, all, count, some.asks(limit)) };
        }
        if limit == 0 {
            return real();
        }
        if !masked {
            let mut found = 0;
            let kernel = || {
                found = now(all, count);
                found != 0
            };
            match some.spin(limit, kernel) {
                Seen::Memory => continue,
                Seen::Kernel if found > 0 => return found,
                _ => {}
            }
        }
        if some.pin() {
            let n = some.sleep(real);
            some.unpin();
            return n;
        }
    }
}

/// What the kernel shows now.
fn now(all: *mut pollfd, count: usize) -> c_int {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (at, limit) = (all.expose_provenance(), (&raw const at_once).expose_provenance());
    system(libc::SYS_ppoll, [at, count, limit, 0, 8, 0]).map_or(0, |n| n as c_int)
}

/// Adds what memory shows to what the kernel does, if it `asks`.
///
/// # Safety
/// That of [`poll`].
unsafe fn merge(some: &Several<'_>, all: *mut pollfd, count: usize, asks: bool) -> c_int {
    let mut n = 0;
    if asks {
        n = now(all, count);
    } else {
        for place in 0..count {
            // SAFETY: the caller's promise.
            unsafe { (*all.wrapping_add(place)).revents = 0 };
        }
    }
    for one in some.ready() {
        let place = all.wrapping_add(one.place);
        // SAFETY: the caller's promise, for a place below `count`.
        let entry = unsafe { &mut *place };
        n += c_int::from(entry.revents == 0);
        entry.revents |= entry.events & READS;
    }
    n
}
