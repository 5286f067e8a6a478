//! Which descriptors are TCP connections, and what this process has moved on each.
//!
//! A descriptor is a word with the number of its connection; 0: it is not followed. Duplicates (dup(2)) share a
//! connection, which counts its descriptors. Owner: static memory of the process; any thread or signal handler changes
//! any part, at any moment. A word is cleared *before* its descriptor is closed and set *after* it was made, so
//! that a thread that gets the same number meanwhile keeps its own.
//!
//! Reuse: a connection whose last descriptor is closed is written to the record, and then free again. A thread that counts
//! a call on it in that moment may add to the next one: such a program closes a descriptor that it uses, and only the
//! figures are wrong. Full: a connection beyond the bound, or a descriptor with a larger number, is not followed; the
//! record tells how many.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::connection::{Connection, Obstacle};
use crate::names::Call;
use crate::ring::link::Failure;
use crate::ring::{meet, sets};
use crate::tuning::{CONNECTIONS, DESCRIPTORS, SEARCHED};
use crate::way::Way;
use crate::{kernel, process, record};

static DESCRIPTOR: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
static CONNECTION: [Connection; CONNECTIONS] = [const { Connection::new() }; CONNECTIONS];
/// The largest descriptor that was ever followed.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// Connections that were ever used: the first so many. The memory of the others is not touched.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Where the search for a free connection begins.
static CURSOR: AtomicU32 = AtomicU32::new(0);
/// Obstacles of all connections.
static COMMON: AtomicU32 = AtomicU32::new(0);
/// Connections that are not followed, because the table was full.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The connection of a descriptor: one load and one compare if it is not followed.
#[inline]
pub(crate) fn of(fd: c_int) -> Option<&'static Connection> {
    let word = DESCRIPTOR.get(fd as usize)?.load(Ordering::Relaxed);
    if word == 0 { None } else { of_word(word) }
}

fn of_word(word: u32) -> Option<&'static Connection> {
    if process::is_new_child() {
        renew();
    }
    CONNECTION.get((word as usize).wrapping_sub(1))
}

/// A word with this bit has the number of a set of epoll(7).
const SET: u32 = 1 << 31;

/// The set of a descriptor.
#[inline]
pub(crate) fn set_of(fd: c_int) -> Option<u32> {
    let word = DESCRIPTOR.get(fd as usize)?.load(Ordering::Relaxed);
    (word & SET != 0).then_some(word & !SET)
}

/// The number of a descriptor's connection.
pub(crate) fn index_of(fd: c_int) -> Option<u32> {
    let word = DESCRIPTOR.get(fd as usize)?.load(Ordering::Relaxed);
    (word != 0 && word & SET == 0).then(|| word - 1)
}

fn open() -> impl Iterator<Item = &'static Connection> {
    let used = CONNECTION.iter().take(USED.load(Ordering::Relaxed));
    used.filter(|it| it.is_open())
}

/// In a child with a copy of the table: what its parent has moved is not its own.
#[cold]
pub(crate) fn renew() {
    MISSED.store(0, Ordering::Relaxed);
    for connection in open() {
        connection.report_from_here();
        connection.link.renew();
    }
    sets::renew();
    meet::renew();
}

/// Descriptors that stay open when a child becomes another program may be that program's, which cannot read a ring: from now
/// on octets come by TCP.
pub(crate) fn keep_from_exec() {
    if meet::is_enabled() {
        each(|fd, connection| {
            if kernel::survives_exec(fd) {
                connection.link.leave_to_tcp();
            }
        });
    }
}

/// A descriptor becomes another program's.
pub(crate) fn pass(fd: c_int) {
    cannot(fd, Obstacle::Passed);
    if let Some(connection) = of(fd).filter(|it| it.link.unread() > 0) {
        connection.link.fail(fd, Failure::Passed);
    }
}

/// This process has a child with copies of all descriptors.
pub(crate) fn forked() {
    open().for_each(|connection| connection.link.fork());
}

/// Each connection that has a descriptor, with one of them.
pub(crate) fn each(mut act: impl FnMut(c_int, &Connection)) {
    for fd in 0..=highest() {
        if let Some(connection) = of(fd) {
            act(fd, connection);
        }
    }
}

/// Descriptors that are followed have numbers up to this one; -1: none.
pub(crate) fn highest() -> c_int {
    HIGHEST.load(Ordering::Relaxed)
}

/// A connection was accepted.
pub(crate) fn accepted(listener: c_int, new: c_int, begun: Call) {
    // Of a listener that was inherited nothing is known.
    if of(listener).is_some() || process::follows() && kernel::is_tcp(new) {
        follow(new, begun);
        met(new, begun);
    }
}

/// Follows a new descriptor of TCP, `begun` by this call.
pub(crate) fn follow(fd: c_int, begun: Call) {
    if fd < 0 || !process::follows() || !process::is_own() {
        return;
    }
    forget(fd);
    let taken = (fd as usize) < DESCRIPTORS;
    let Some(index) = taken.then(take).flatten() else {
        MISSED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    USED.fetch_max(index + 1, Ordering::Relaxed);
    CONNECTION[index].begin(begun, COMMON.load(Ordering::Relaxed));
    set(fd, index as u32 + 1);
}

/// A call was made after which the connection's ends may be known.
pub(crate) fn met(fd: c_int, call: Call) {
    let Some(connection) = of(fd) else { return };
    connection.note(call);
    if !connection.is_known() {
        connection.introduce(fd);
    }
}

/// Takes a free connection, with one descriptor.
fn take() -> Option<usize> {
    (0..SEARCHED)
        .map(|_| CURSOR.fetch_add(1, Ordering::Relaxed) as usize % CONNECTIONS)
        .find(|index| CONNECTION[*index].take())
}

/// Follows a new set of epoll(7).
pub(crate) fn follow_set(fd: c_int) {
    if fd < 0 || fd as usize >= DESCRIPTORS || !process::follows() || !process::is_own() {
        return;
    }
    forget(fd);
    if let Some(index) = sets::made() {
        set(fd, index | SET);
    }
}

fn set(fd: c_int, word: u32) {
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    if let Some(place) = DESCRIPTOR.get(fd as usize) {
        place.store(word, Ordering::Release);
    }
}

/// A descriptor is about to be closed, or was without this library's notice.
pub(crate) fn forget(fd: c_int) {
    meet::forget(fd);
    let known = DESCRIPTOR.get(fd as usize).is_some_and(|it| it.load(Ordering::Relaxed) != 0);
    if !known || !process::is_own() {
        return;
    }
    if process::is_new_child() {
        renew();
    }
    let word = DESCRIPTOR[fd as usize].swap(0, Ordering::AcqRel);
    if word & SET != 0 {
        sets::end(word & !SET);
        return;
    }
    if let Some(connection) = CONNECTION.get((word as usize).wrapping_sub(1)) {
        connection.leave(|| {
            connection.link.ends(fd);
            record::write(fd, connection);
            meet::end(word - 1);
            connection.link.detach(fd);
        });
        // Where memory is in the caches.
        CURSOR.store(word - 1, Ordering::Relaxed);
    }
}

/// All descriptors of a range are about to be closed.
pub(crate) fn forget_from(first: u32, last: u32) {
    let last = last.min(u32::try_from(highest()).unwrap_or(0));
    (first..=last).for_each(|fd| forget(fd as c_int));
}

/// A descriptor is now a duplicate of another.
pub(crate) fn share(from: c_int, to: c_int) {
    if to < 0 || from == to {
        return;
    }
    forget(to);
    if let Some(index) = set_of(from).filter(|_| process::is_own()) {
        sets::duplicated(index);
        set(to, index | SET);
        return;
    }
    if !process::is_own() {
        // A child of vfork(2) prepares what it becomes.
        return pass(from);
    }
    let Some(connection) = of(from) else { return };
    if (to as usize) < DESCRIPTORS && connection.join() {
        set(to, DESCRIPTOR[from as usize].load(Ordering::Relaxed));
        if to <= libc::STDERR_FILENO {
            // The C library reads and writes it by itself.
            connection.obstruct(Obstacle::Stream);
        }
    } else {
        MISSED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A call was made on a descriptor that moves no octets.
#[inline]
pub(crate) fn note(fd: c_int, call: Call) {
    if let Some(connection) = of(fd) {
        connection.note(call);
    }
}

/// A call has returned how many octets it moved.
#[inline]
pub(crate) fn moved(fd: c_int, call: Call, way: Way, octets: isize) {
    let Some(connection) = of(fd) else { return };
    connection.note(call);
    if octets > 0 {
        connection.count(way, octets as u64);
        if !connection.is_known() {
            connection.introduce(fd);
        }
        if !connection.link.is_attached()
            && let Some(index) = index_of(fd)
        {
            meet::advance(fd, connection, index);
        }
    }
}

/// A descriptor was used so that memory cannot carry its octets.
pub(crate) fn cannot(fd: c_int, obstacle: Obstacle) {
    if let Some(connection) = of(fd) {
        connection.obstruct(obstacle);
    }
}

/// The process does something so that memory cannot carry octets of any connection.
pub(crate) fn none_can(obstacle: Obstacle) {
    COMMON.fetch_or(obstacle.bit(), Ordering::SeqCst);
    open().for_each(|connection| connection.obstruct(obstacle));
}

/// The process is about to end, or to become another program: writes what it has moved.
pub(crate) fn end(exits: bool) {
    if !process::follows() || !process::is_own() {
        return;
    }
    for fd in 0..=highest() {
        if let Some(connection) = of(fd) {
            if exits {
                connection.link.ends(fd);
            }
            record::write(fd, connection);
            connection.report_from_here();
            if exits && !connection.link.is_forked() {
                connection.link.close();
            }
        }
    }
    record::write_missed(MISSED.swap(0, Ordering::Relaxed));
}
