//! Sends octets by the ring while the peer looks at it, else by TCP. No state.

use std::ffi::{c_int, c_void};

use libc::{ECONNRESET, MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL};
use rustix::event::PollFlags;
use rustix::time::{ClockId, clock_gettime};
use shm_ring::Companion;

use super::link::{Failure, Link};
use super::pieces::Pieces;
use super::receive::message;
use super::spin::{self, Seen};
use crate::connection::Connection;
use crate::names::Call;
use crate::next::{next, set_errno};
use crate::way::Way;
use crate::{kernel, tuning};

/// Flags with which octets may go by the ring.
const ORDINARY: c_int = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;

/// Sends; `real` is the program's call to the C library.
#[inline]
pub(crate) fn send(
    fd: c_int,
    connection: &Connection,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    connection.link.call(&real, |ring| attached(fd, connection, ring, pieces, flags, &real))
}

/// Sends by TCP, whatever it is.
#[inline]
pub(crate) fn by_tcp(connection: &Connection, real: impl Fn() -> isize) -> isize {
    connection.link.call(&real, |ring| beside(ring, &real))
}

fn beside(ring: &Companion, real: impl FnOnce() -> isize) -> isize {
    ring.sends();
    let n = real();
    ring.sent();
    n
}

fn attached(
    fd: c_int,
    connection: &Connection,
    ring: &Companion,
    pieces: Pieces,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    let link = &connection.link;
    let want = pieces.len().unwrap_or(0);
    let ordinary = flags & !ORDINARY == 0 && want > 0 && !link.is_closed() && link.is_settled();
    if !ordinary || !ring.is_looked_at() || !is_alive(fd, link) {
        return beside(ring, real);
    }
    let mut total = 0;
    loop {
        let base =
            || if link.is_settled() { kernel::written(fd, connection.is_accepted()) } else { None };
        let part = pieces.part(total, want - total).map(|(at, len)| (at.cast_const(), len));
        // SAFETY: memory that the program passed to be read.
        let Ok(n) = (unsafe { ring.write(part, base) }) else {
            link.fail(fd, Failure::Corrupt);
            set_errno(ECONNRESET);
            return -1;
        };
        total += n;
        link.count(Way::Out, n);
        if total == want {
            return total as isize;
        }
        if n == 0 || !has_room_soon(fd, link, ring) {
            break;
        }
    }
    if total == 0 {
        return beside(ring, real);
    }
    // The next call is to return an error.
    if kernel::has_failed(fd) {
        return total as isize;
    }
    let n = beside(ring, || rest(fd, pieces, total, want - total, flags));
    (total as isize) + n.max(0)
}

/// Whether the peer, as far as TCP shows, may still read. A killed one is noticed so, in a tick of the clock.
fn is_alive(fd: c_int, link: &Link) -> bool {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let tick = (now.tv_sec as u32).wrapping_mul(1000) + now.tv_nsec as u32 / 1_000_000;
    if link.has_looked(tick) {
        return true;
    }
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let alive = kernel::ready(fd, ended).is_empty();
    if alive {
        link.set_looked(tick);
    }
    alive
}

/// Waits for room in a full ring while the peer reads: by TCP the rest would take as long, and more of the processor; and what
/// is sent by TCP must be read before the ring can be used again.
fn has_room_soon(fd: c_int, link: &Link, ring: &Companion) -> bool {
    let most = if link.blocks(fd) { tuning::ROOM_NS } else { tuning::ROOM_NS / 10 };
    let begin = spin::now();
    while spin::now() - begin < most {
        let before = ring.progress();
        let Ok(full) = ring.unread() else { return false };
        let free =
            || ring.unread() != Ok(full) || ring.progress() != before || !ring.is_looked_at();
        if spin::look(tuning::ROOM_STEP_NS, free, || false) != Seen::Memory {
            return false;
        }
        if !ring.is_looked_at()
            || ring.unread().is_ok_and(|unread| unread <= u64::from(tuning::RING) / 2)
        {
            return ring.is_looked_at();
        }
    }
    false
}

/// Sends more by TCP, as the program's call would.
fn rest(fd: c_int, pieces: Pieces, done: usize, most: usize, flags: c_int) -> isize {
    type Function = unsafe extern "C-unwind" fn(c_int, *const libc::msghdr, c_int) -> isize;
    let function: *mut c_void = next(Call::sendmsg);
    if function.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name, which has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Function>(function) };
    let mut sent = 0;
    while sent < most {
        let (mut vector, count) = pieces.vector(done + sent, most - sent);
        let message = message(&mut vector, count);
        // SAFETY: a message of memory that the program passed to be read.
        let n = unsafe { function(fd, &raw const message, flags | MSG_NOSIGNAL) };
        if n <= 0 {
            break;
        }
        sent += n as usize;
    }
    sent as isize
}
