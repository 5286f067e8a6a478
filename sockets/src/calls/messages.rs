//! Functions that move messages: octets with control data. No state of their own.

use std::ffi::{c_int, c_uint, c_void};

use libc::{mmsghdr, msghdr};

use super::octets::{LEAVES, gives, obstruct, takes};
use crate::names::Call;
use crate::next::{calls, set_errno};
use crate::ring::pieces::Pieces;
use crate::ring::{receive, send};
use crate::way::Way;
use crate::{kernel, table};

calls! {
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize,
        around |real| received(fd, Call::recvmsg, message, flags, real);
    recvmmsg(fd: c_int, all: *mut mmsghdr, room: c_uint, flags: c_int, limit: *mut c_void) -> c_int,
        // SAFETY: the program passes room for so many.
        around |real| unsafe { received_all(fd, all, room, flags, real) };
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize,
        // SAFETY: the program passes a message.
        before unsafe { passed(message) },
        around |real| gives(fd, Call::sendmsg, Pieces::message(message), flags, real);
    sendmmsg(fd: c_int, all: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int,
        // SAFETY: the program passes so many.
        before unsafe { each(all, count as c_int) }.for_each(|(_, message)| {
            // SAFETY: one of these.
            unsafe { passed(message) };
        }),
        around |real| match table::of(fd) {
            Some(connection) => {
                obstruct(fd, flags);
                send::by_tcp(connection, || real() as isize) as c_int
            }
            None => real(),
        },
        // SAFETY: the kernel has read and written so many.
        after |n| unsafe { each(all, *n) }.for_each(|(n, _)| {
            table::moved(fd, Call::sendmmsg, Way::Out, n);
        });
}

/// Receives one message. A connection's has no address, and no control data but what was asked for.
fn received(
    fd: c_int,
    call: Call,
    message: *mut msghdr,
    flags: c_int,
    real: impl Fn() -> isize,
) -> isize {
    let before = table::of(fd).map(|connection| connection.link.by_ring(Way::In));
    let n = takes(fd, call, Pieces::message(message), flags, real);
    let after = table::of(fd).map(|connection| connection.link.by_ring(Way::In));
    if n > 0 && before != after {
        // SAFETY: a message, from which octets were received.
        let message = unsafe { &mut *message };
        (message.msg_namelen, message.msg_controllen, message.msg_flags) = (0, 0, 0);
    }
    n
}

/// Receives several messages.
///
/// # Safety
/// Room for so many messages.
unsafe fn received_all(
    fd: c_int,
    all: *mut mmsghdr,
    room: c_uint,
    flags: c_int,
    real: impl Fn() -> c_int,
) -> c_int {
    let Some(connection) = table::of(fd) else { return real() };
    obstruct(fd, flags);
    let Some(n) = receive::by_tcp(connection, real) else {
        // SAFETY: the caller's promise.
        return unsafe { each_received(fd, all, room, flags) };
    };
    // SAFETY: the kernel has written so many.
    for (octets, _) in unsafe { each(all, n) } {
        let taken = if flags & LEAVES != 0 { 0 } else { octets };
        table::moved(fd, Call::recvmmsg, Way::In, taken);
    }
    n
}

/// As recvmmsg(2) does it: each as by recvmsg(2), and an error only if there was none before.
///
/// # Safety
/// Room for so many messages.
unsafe fn each_received(fd: c_int, all: *mut mmsghdr, room: c_uint, flags: c_int) -> c_int {
    if let Some(errno) = kernel::take_error(fd) {
        set_errno(errno);
        return -1;
    }
    let mut flags_now = flags & !libc::MSG_WAITFORONE;
    for index in 0..room as usize {
        let place = all.wrapping_add(index);
        // SAFETY: the caller's promise.
        let n = unsafe { recvmsg(fd, place.cast(), flags_now) };
        if n < 0 {
            return if index == 0 { -1 } else { index as c_int };
        }
        // SAFETY: the same.
        unsafe { (*place).msg_len = n as c_uint };
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
    }
    room as c_int
}

/// Octets of each message, and the message.
///
/// # Safety
/// `count` messages can be read, if it is not negative, as long as the result is used.
unsafe fn each(all: *const mmsghdr, count: c_int) -> impl Iterator<Item = (isize, *const msghdr)> {
    (0..count.max(0) as usize).map(move |index| {
        let place = all.wrapping_add(index);
        // SAFETY: the caller's promise.
        let len = if all.is_null() { 0 } else { unsafe { (*place).msg_len } };
        (len as isize, place.cast())
    })
}

/// Notes the descriptors that go to another process with a message (SCM_RIGHTS of unix(7)).
///
/// # Safety
/// Null, or a message.
pub(super) unsafe fn passed(message: *const msghdr) {
    if message.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let mut place = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !place.is_null() {
        // SAFETY: within the control data, as the C library has computed.
        let header = unsafe { place.read_unaligned() };
        if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: the same.
            let first = unsafe { libc::CMSG_DATA(place) }.cast::<c_int>();
            // SAFETY: computes a length.
            let empty = unsafe { libc::CMSG_LEN(0) } as usize;
            #[allow(clippy::unnecessary_cast)] // not a usize in every C library
            let len = header.cmsg_len as usize;
            for index in 0..len.saturating_sub(empty) / size_of::<c_int>() {
                // SAFETY: within the control data.
                let fd = unsafe { first.wrapping_add(index).read_unaligned() };
                table::pass(fd);
            }
        }
        // SAFETY: the message, and one of its headers.
        place = unsafe { libc::CMSG_NXTHDR(message, place) };
    }
}
