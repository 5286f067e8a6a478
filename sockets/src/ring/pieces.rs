//! Memory that a program passes to a call: one piece, or a list. No state.

use std::ffi::{c_int, c_void};

use libc::iovec;

/// Addresses below this one are none: the kernel returns `EFAULT`, and only it is asked.
const FIRST: usize = 4096;
/// Most pieces of a list (limits.h, `IOV_MAX`).
const MOST: usize = 1024;
/// Pieces that are passed to the kernel at once.
pub(crate) const AT_ONCE: usize = 16;

/// The memory.
#[derive(Clone, Copy)]
pub(crate) enum Pieces {
    One(*mut u8, usize),
    /// A list that the caller passed.
    Many(*const iovec, usize),
    /// What only the kernel can judge.
    Bad,
}

impl Pieces {
    pub(crate) fn one(at: *const c_void, len: usize) -> Self {
        Self::One(at.cast_mut().cast(), len)
    }

    pub(crate) fn list(all: *const c_void, count: c_int) -> Self {
        Self::many(all.cast(), usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn many(all: *const iovec, count: usize) -> Self {
        let bad = all.addr() < FIRST && count > 0 || count > MOST;
        if bad { Self::Bad } else { Self::Many(all, count) }
    }

    /// Those of a message.
    pub(crate) fn message(message: *const libc::msghdr) -> Self {
        if message.addr() < FIRST {
            return Self::Bad;
        }
        // SAFETY: the program passes a message.
        let message = unsafe { message.read() };
        #[allow(clippy::unnecessary_cast)] // not a usize in every C library
        Self::many(message.msg_iov, message.msg_iovlen as usize)
    }

    /// Addresses and lengths.
    pub(crate) fn iter(self) -> impl Iterator<Item = (*mut u8, usize)> {
        let (one, list, count) = match self {
            Self::One(at, len) => (Some((at, len)), std::ptr::null(), 0),
            Self::Many(list, count) => (None, list, count),
            Self::Bad => (None, std::ptr::null(), 0),
        };
        one.into_iter().chain((0..count).map(move |index| {
            // SAFETY: the program passes so many pieces.
            let piece = unsafe { list.wrapping_add(index).read() };
            (piece.iov_base.cast(), piece.iov_len)
        }))
    }

    /// Those after the first `done` octets, of which `most` octets.
    pub(crate) fn part(self, done: usize, most: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        let (mut skip, mut left) = (done, most);
        self.iter().filter_map(move |(at, len)| {
            let before = skip.min(len);
            skip -= before;
            let now = (len - before).min(left);
            left -= now;
            (now > 0).then(|| (at.wrapping_add(before), now))
        })
    }

    /// The first of them for the kernel, and their number.
    pub(crate) fn vector(self, done: usize, most: usize) -> ([iovec; AT_ONCE], usize) {
        let mut all = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; AT_ONCE];
        let mut count = 0;
        for (room, (at, len)) in all.iter_mut().zip(self.part(done, most)) {
            *room = iovec { iov_base: at.cast(), iov_len: len };
            count += 1;
        }
        (all, count)
    }

    /// Octets of all; `None`: only the kernel can judge it.
    pub(crate) fn len(self) -> Option<usize> {
        if matches!(self, Self::Bad) {
            return None;
        }
        let mut all = 0_usize;
        for (at, len) in self.iter() {
            if len > 0 && at.addr() < FIRST {
                return None;
            }
            all = all.checked_add(len).filter(|all| *all <= i32::MAX as usize)?;
        }
        Some(all)
    }
}
