//! Which paths lead into the view, and where there. No state.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

/// What leads into the view; what follows is a further part of the path, or of a name beside it, as
/// `/sys/class/infiniband_verbs` is.
const SHOWN: [&CStr; 2] = [c"/sys/class/infiniband", c"/dev/infiniband"];
const VARIABLE: &CStr = c"WARPLINE_VERBS_VIEW";
/// Octets of the longest path, with its NUL.
const LONGEST: usize = libc::PATH_MAX as usize;

/// Where another path has room.
pub(crate) struct Room([MaybeUninit<c_char>; LONGEST]);

impl Room {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; LONGEST])
    }

    /// The path that replaces this one, mostly the same.
    ///
    /// # Safety
    /// NULL, or a string that lives as long as the result is used.
    #[inline]
    pub(crate) unsafe fn seen(&mut self, path: *const c_char) -> *const c_char {
        // SAFETY: the caller's string.
        let leads = !path.is_null() && SHOWN.iter().any(|shown| unsafe { begins(path, shown) });
        if !leads {
            return path;
        }
        // SAFETY: a string. The variable is set before the program starts.
        let view = unsafe { libc::getenv(VARIABLE.as_ptr()) };
        if view.is_null() {
            return path;
        }
        // SAFETY: two strings.
        unsafe { self.join(view, path) }.unwrap_or(path)
    }

    /// One after the other, if there is room.
    unsafe fn join(&mut self, view: *const c_char, path: *const c_char) -> Option<*const c_char> {
        // SAFETY: the caller's string.
        let front = unsafe { libc::strlen(view) };
        // SAFETY: the caller's string.
        let rest = unsafe { libc::strlen(path) } + 1;
        if front + rest > LONGEST {
            return None;
        }
        let room: *mut c_char = self.0.as_mut_ptr().cast();
        // SAFETY: `front` octets of the one, which have room.
        unsafe { std::ptr::copy_nonoverlapping(view, room, front) };
        // SAFETY: `rest` octets of the other, with its NUL; there is room for them after `front`.
        unsafe { std::ptr::copy_nonoverlapping(path, room.wrapping_add(front), rest) };
        Some(room)
    }
}

/// Whether a path begins with this, as a whole name or one that continues with `_`.
unsafe fn begins(path: *const c_char, shown: &CStr) -> bool {
    let length = shown.count_bytes();
    // SAFETY: two strings; it stops where they differ.
    if unsafe { libc::strncmp(path, shown.as_ptr(), length) } != 0 {
        return false;
    }
    // SAFETY: the path is at least as long, and its NUL follows.
    let behind = unsafe { path.wrapping_add(length).read() } as u8;
    [0, b'/', b'_'].contains(&behind)
}
