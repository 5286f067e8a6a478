//! Functions that wait for several descriptors. What the program passed is read only after the kernel has read it
//! without an error. No state of their own.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{epoll_event, fd_set, pollfd};

use crate::names::Call;
use crate::next::calls;
use crate::ring::limit::Limit;
use crate::ring::sets::{self, Room};
use crate::ring::{poll, select};
use crate::table;

type Set = *mut fd_set;
type Time = *mut c_void;
type Events = *mut epoll_event;
type Signals = *const c_void;

calls! {
    poll(all: *mut pollfd, count: c_ulong, limit: c_int) -> c_int,
        // SAFETY: the program passes so many entries.
        around |real| unsafe { poll::poll(all, count as usize, Limit::Millis(limit), false, real) },
        // SAFETY: the kernel has read so many.
        after |n| unsafe { polled(Call::poll, all, count, *n) };
    __poll(all: *mut pollfd, count: c_ulong, limit: c_int) -> c_int,
        // SAFETY: the program passes so many entries.
        around |real| unsafe { poll::poll(all, count as usize, Limit::Millis(limit), false, real) },
        // SAFETY: the kernel has read so many.
        after |n| unsafe { polled(Call::__poll, all, count, *n) };
    __poll_chk(all: *mut pollfd, count: c_ulong, limit: c_int, room: usize) -> c_int,
        // SAFETY: the program passes so many entries.
        around |real| unsafe { poll::poll(all, count as usize, Limit::Millis(limit), false, real) },
        // SAFETY: the kernel has read so many.
        after |n| unsafe { polled(Call::__poll_chk, all, count, *n) };
    ppoll(all: *mut pollfd, count: c_ulong, limit: Time, mask: Signals) -> c_int,
        // SAFETY: the program passes so many entries, and null or a time.
        around |real| unsafe { poll::poll(all, count as usize, Limit::Time(limit), !mask.is_null(), real) },
        // SAFETY: the kernel has read so many.
        after |n| unsafe { polled(Call::ppoll, all, count, *n) };
    __ppoll_chk(all: *mut pollfd, count: c_ulong, limit: Time, mask: Signals, room: usize) -> c_int,
        // SAFETY: the program passes so many entries, and null or a time.
        around |real| unsafe { poll::poll(all, count as usize, Limit::Time(limit), !mask.is_null(), real) },
        // SAFETY: the kernel has read so many.
        after |n| unsafe { polled(Call::__ppoll_chk, all, count, *n) };
    select(count: c_int, read: Set, write: Set, except: Set, limit: Time) -> c_int,
        // SAFETY: the program passes such sets, and null or a time.
        around |real| unsafe { select::select(count, [read, write, except], Limit::Micros(limit), false, real) },
        // SAFETY: the kernel has written the sets.
        after |n| unsafe { selected(Call::select, count, [read, write, except], *n) };
    __select(count: c_int, read: Set, write: Set, except: Set, limit: Time) -> c_int,
        // SAFETY: the program passes such sets, and null or a time.
        around |real| unsafe { select::select(count, [read, write, except], Limit::Micros(limit), false, real) },
        // SAFETY: the kernel has written the sets.
        after |n| unsafe { selected(Call::__select, count, [read, write, except], *n) };
    pselect(count: c_int, read: Set, write: Set, except: Set, limit: Time, mask: Signals) -> c_int,
        // SAFETY: the program passes such sets, and null or a time.
        around |real| unsafe { select::select(count, [read, write, except], Limit::Time(limit), !mask.is_null(), real) },
        // SAFETY: the kernel has written the sets.
        after |n| unsafe { selected(Call::pselect, count, [read, write, except], *n) };
    epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int,
        after |done| controlled(set, operation, fd, event, *done);
    epoll_create(size: c_int) -> c_int, after |fd| table::follow_set(*fd);
    epoll_create1(flags: c_int) -> c_int, after |fd| table::follow_set(*fd);
    epoll_wait(set: c_int, to: Events, most: c_int, limit: c_int) -> c_int,
        // SAFETY: the program's room.
        around |real| unsafe { sets::wait(table::set_of(set), room(set, to, most), Limit::Millis(limit), false, real) };
    epoll_pwait(set: c_int, to: Events, most: c_int, limit: c_int, mask: Signals) -> c_int,
        // SAFETY: the program's room.
        around |real| unsafe {
            sets::wait(table::set_of(set), room(set, to, most), Limit::Millis(limit), !mask.is_null(), real)
        };
    epoll_pwait2(set: c_int, to: Events, most: c_int, limit: Time, mask: Signals) -> c_int,
        // SAFETY: the program's room, and null or a time.
        around |real| unsafe {
            sets::wait(table::set_of(set), room(set, to, most), Limit::Time(limit), !mask.is_null(), real)
        };
}

fn room(set: c_int, events: Events, most: c_int) -> Room {
    Room { set, events, most: if events.is_null() { 0 } else { most } }
}

fn controlled(set: c_int, what: c_int, fd: c_int, event: *mut c_void, done: c_int) {
    if let Some(inner) = table::set_of(fd) {
        sets::nested(inner);
    }
    let Some(connection) = table::of(fd) else { return };
    connection.note(Call::epoll_ctl);
    if done == 0 {
        let event: Events = event.cast();
        // SAFETY: null, or an event that the kernel has read.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        sets::controlled(set, table::set_of(set), what, fd, event, &connection.link);
    }
}

/// # Safety
/// `count` entries can be read if `result` is not negative.
unsafe fn polled(call: Call, all: *const pollfd, count: c_ulong, result: c_int) {
    if result < 0 || table::highest() < 0 {
        return;
    }
    for index in 0..count as usize {
        // SAFETY: the caller's promise.
        let fd = unsafe { all.wrapping_add(index).read() }.fd;
        table::note(fd, call);
    }
}

/// Those that are ready: the kernel has removed the others from the sets.
///
/// # Safety
/// The sets can be read up to `count` if `result` is positive, or up to the largest descriptor that is open.
unsafe fn selected(call: Call, count: c_int, sets: [Set; 3], result: c_int) {
    if result <= 0 {
        return;
    }
    const BITS: usize = c_ulong::BITS as usize;
    let end = count.min(table::highest() + 1).max(0) as usize;
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        let words = set.cast::<c_ulong>();
        for fd in 0..end {
            // SAFETY: the caller's promise: a descriptor that is followed is open, or was.
            let word = unsafe { words.wrapping_add(fd / BITS).read() };
            if word >> (fd % BITS) & 1 != 0 {
                table::note(fd as c_int, call);
            }
        }
    }
}
