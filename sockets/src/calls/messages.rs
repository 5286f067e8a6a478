//! Functions that move messages: octets with control data. What the program passed is read only after the kernel has
//! read it without an error. No state of their own.

use std::ffi::{c_int, c_uint, c_void};

use libc::{mmsghdr, msghdr};

use super::octets::{received, sent};
use crate::connection::Obstacle;
use crate::names::Call;
use crate::next::calls;
use crate::table;

calls! {
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize,
        after |n| received(fd, Call::recvmsg, flags, *n);
    recvmmsg(fd: c_int, all: *mut mmsghdr, room: c_uint, flags: c_int, limit: *mut c_void) -> c_int,
        // SAFETY: the kernel has written so many.
        after |n| unsafe { each(all, *n) }.for_each(|(n, _)| received(fd, Call::recvmmsg, flags, n));
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize,
        after |n| {
            sent(fd, Call::sendmsg, flags, *n);
            if *n >= 0 {
                // SAFETY: the kernel has read it.
                unsafe { passed(message) };
            }
        };
    sendmmsg(fd: c_int, all: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int,
        // SAFETY: the kernel has read and written so many.
        after |n| unsafe { each(all, *n) }.for_each(|(n, message)| {
            sent(fd, Call::sendmmsg, flags, n);
            // SAFETY: one of these.
            unsafe { passed(message) };
        });
}

/// Octets of each message, and the message.
///
/// # Safety
/// `count` messages can be read, if it is not negative, as long as the result is used.
unsafe fn each(all: *const mmsghdr, count: c_int) -> impl Iterator<Item = (isize, *const msghdr)> {
    (0..count.max(0) as usize).map(move |index| {
        let place = all.wrapping_add(index);
        // SAFETY: the caller's promise.
        let len = unsafe { (*place).msg_len };
        (len as isize, place.cast())
    })
}

/// Notes the descriptors that go to another process with a message (SCM_RIGHTS of unix(7)).
///
/// # Safety
/// A message that the kernel has accepted.
pub(super) unsafe fn passed(message: *const msghdr) {
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
                // SAFETY: within the control data, whose length the kernel has checked.
                let fd = unsafe { first.wrapping_add(index).read_unaligned() };
                table::cannot(fd, Obstacle::Passed);
            }
        }
        // SAFETY: the message, and one of its headers.
        place = unsafe { libc::CMSG_NXTHDR(message, place) };
    }
}
