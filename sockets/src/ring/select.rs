//! select(2) of connections with shared memory among others. No state.

use std::ffi::{c_int, c_ulong};

use libc::fd_set;

use super::limit::Limit;
use super::sets;
use super::several::Several;
use super::spin::Seen;
use crate::next::system;
use crate::table;

const BITS: usize = c_ulong::BITS as usize;
/// Descriptors of a set of the C library. Larger ones are for the kernel alone.
const WORDS: usize = libc::FD_SETSIZE / BITS;

/// Sets as the program passes them: words, perhaps null.
type Sets = [*mut c_ulong; 3];

/// Waits at most for `limit`, by `real`, the program's call, which changes the sets; without a look at memory first if
/// it is `masked`.
///
/// # Safety
/// The sets are null, or can be read and written up to `count`; a limit as the program passed it.
pub(crate) unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    limit: Limit,
    masked: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    let sets = sets.map(|set| set.cast::<c_ulong>());
    let end = usize::try_from(count).unwrap_or(0).min((table::highest() + 1).max(0) as usize);
    let mut some = Several::new();
    if !sets[0].is_null() && end <= WORDS * BITS {
        for fd in 0..end {
            // SAFETY: the caller's promise.
            let word = unsafe { sets[0].wrapping_add(fd / BITS).read() };
            if word >> (fd % BITS) & 1 == 0 {
                continue;
            }
            if let Some(connection) = table::of(fd as c_int) {
                some.add(fd, fd as c_int, &connection.link);
            } else if let Some(set) = table::set_of(fd as c_int) {
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
    let n = unsafe { among(&some, count, sets, limit, masked, real) };
    some.release();
    n
}

/// # Safety
/// That of [`select`].
unsafe fn among(
    some: &Several<'_>,
    count: c_int,
    sets: Sets,
    limit: u64,
    masked: bool,
    real: impl Fn() -> c_int,
) -> c_int {
    let words = (count as usize).div_ceil(BITS);
    loop {
        if some.any_ready() {
            let mut n = match some.asks(limit) {
                true => now(count, sets).max(0),
                // SAFETY: the caller's promise.
                false => unsafe { empty(sets, words) },
            };
            for one in some.ready() {
                let (word, bit) = (sets[0].wrapping_add(one.place / BITS), 1 << (one.place % BITS));
                // SAFETY: the caller's promise.
                let word = unsafe { &mut *word };
                n += c_int::from(*word & bit == 0);
                *word |= bit;
            }
            return n;
        }
        if limit == 0 {
            return real();
        }
        if !masked && words <= WORDS {
            let kernel = || {
                let mut copies = [[0; WORDS]; 3];
                for (copy, set) in copies.iter_mut().zip(sets).filter(|(_, set)| !set.is_null()) {
                    // SAFETY: the caller's promise; both have so many words.
                    unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(set, words) };
                }
                let passed = [0, 1, 2].map(|at| match sets[at].is_null() {
                    true => std::ptr::null_mut(),
                    false => copies[at].as_mut_ptr(),
                });
                now(count, passed) != 0
            };
            if some.spin(limit, kernel) == Seen::Memory {
                continue;
            }
        }
        if some.pin() {
            let n = some.sleep(real);
            some.unpin();
            return n;
        }
    }
}

/// Empties sets.
///
/// # Safety
/// They are null, or have so many words.
unsafe fn empty(sets: Sets, words: usize) -> c_int {
    for set in sets.into_iter().filter(|set| !set.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { set.write_bytes(0, words) };
    }
    0
}

/// What the kernel shows now.
fn now(count: c_int, sets: Sets) -> c_int {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let [read, write, except] = sets.map(|set| set.expose_provenance());
    let limit = (&raw const at_once).expose_provenance();
    let done = system(libc::SYS_pselect6, [count as usize, read, write, except, limit, 0]);
    done.map_or(-1, |n| n as c_int)
}
