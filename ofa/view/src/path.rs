//! Which paths lead into the view, and where there. No state.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::mem::MaybeUninit;

use crate::foreign::noticed;

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

    /// The path that replaces this one, mostly the same. `at`: where a relative one begins (openat(2)).
    ///
    /// # Safety
    /// NULL, or a string that lives as long as the result is used.
    #[inline]
    pub(crate) unsafe fn seen(&mut self, at: c_int, path: *const c_char) -> *const c_char {
        // SAFETY: the caller's string.
        let Some((shown, rest)) = (unsafe { leads(at, path) }) else { return path };
        let Some(view) = view() else { return path };
        // SAFETY: a string.
        unsafe { noticed(shown, rest) };
        // SAFETY: three strings.
        unsafe { self.join([view, shown.as_ptr(), rest]) }.unwrap_or(path)
    }

    /// One after the other, if there is room.
    unsafe fn join(&mut self, parts: [*const c_char; 3]) -> Option<*const c_char> {
        let room: *mut c_char = self.0.as_mut_ptr().cast();
        let mut at = 0;
        for part in parts {
            // SAFETY: the caller's string.
            let length = unsafe { libc::strlen(part) };
            if at + length >= LONGEST {
                return None;
            }
            // SAFETY: the string with its NUL, and there is room for both.
            unsafe { std::ptr::copy_nonoverlapping(part, room.wrapping_add(at), length + 1) };
            at += length;
        }
        Some(room)
    }
}

/// The directory of the view. The variable is set before the program starts.
fn view() -> Option<*const c_char> {
    // SAFETY: a string.
    let view = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    (!view.is_null()).then_some(view.cast_const())
}

/// Which shown directory a path leads into, and the rest of the path.
///
/// # Safety
/// NULL, or a string.
pub(crate) unsafe fn leads(
    at: c_int,
    path: *const c_char,
) -> Option<(&'static CStr, *const c_char)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's string.
    let is_whole = unsafe { path.read() } as u8 == b'/';
    // SAFETY: as above.
    let path = if is_whole { path } else { unsafe { past_separators(path) } };
    SHOWN.into_iter().find_map(|shown| {
        let octets = shown.to_bytes();
        let tail = |begin: usize| {
            // SAFETY: the caller's string.
            let rest = unsafe { behind(path, &octets[begin..]) }?;
            // A relative path leads there from the directory of its beginning.
            let is_there = is_whole || is_directory(at, &octets[..begin]);
            is_there.then_some((shown, rest))
        };
        match is_whole {
            true => tail(0),
            false => (1..octets.len()).filter(|begin| octets[begin - 1] == b'/').find_map(tail),
        }
    })
}

/// What is behind these names at the begin of a path: a separator, the end, or `_` and the rest of a name.
unsafe fn behind(path: *const c_char, names: &[u8]) -> Option<*const c_char> {
    let mut at = path;
    for name in names {
        // SAFETY: `at` does not pass the string's NUL: it moves on only behind another octet.
        if unsafe { at.read() } as u8 != *name {
            return None;
        }
        at = at.wrapping_add(1);
        if *name == b'/' {
            // SAFETY: within the string.
            at = unsafe { past_separators(at) };
        }
    }
    // SAFETY: within the string, at most at its NUL.
    let next = unsafe { at.read() } as u8;
    [0, b'/', b'_'].contains(&next).then_some(at)
}

/// Behind further separators, of which `./` is one, too.
unsafe fn past_separators(path: *const c_char) -> *const c_char {
    let mut at = path;
    loop {
        // SAFETY: `at` does not pass the string's NUL.
        let first = unsafe { at.read() } as u8;
        // SAFETY: as above, because the first is not the NUL.
        let is_here = first == b'.' && (unsafe { at.wrapping_add(1).read() }) as u8 == b'/';
        at = match first {
            b'/' => at.wrapping_add(1),
            _ if is_here => at.wrapping_add(2),
            _ => return at,
        };
    }
}

/// Whether a descriptor, or the working directory, is this directory, whose name ends with a separator.
fn is_directory(at: c_int, name: &[u8]) -> bool {
    let mut link = [0u8; 32];
    if at == libc::AT_FDCWD {
        link[..14].copy_from_slice(b"/proc/self/cwd");
    } else {
        use std::io::Write;
        // A number fits.
        let _ = write!(&mut link[..31], "/proc/self/fd/{at}");
    }
    let mut to = [0u8; 32];
    let room: c_long = 32;
    let (call, link) = (libc::SYS_readlinkat, link.as_ptr());
    // SAFETY: a string, and room of 32 octets.
    let length = unsafe { libc::syscall(call, libc::AT_FDCWD, link, to.as_mut_ptr(), room) };
    let name = if name.len() > 1 { &name[..name.len() - 1] } else { name };
    usize::try_from(length).is_ok_and(|length| to.get(..length) == Some(name))
}

/// A path in the view that the C library returned is changed to the one that leads there; NULL stays.
///
/// # Safety
/// NULL, or a string that may be written.
pub(crate) unsafe fn unseen(path: *mut c_char) -> *mut c_char {
    let Some(view) = view().filter(|_| !path.is_null()) else { return path };
    // SAFETY: a string.
    let front = unsafe { libc::strlen(view) };
    // SAFETY: two strings; it stops where they differ.
    if unsafe { libc::strncmp(path, view, front) } != 0 {
        return path;
    }
    let rest = path.wrapping_add(front);
    // SAFETY: a string behind as many octets as are alike.
    if unsafe { leads(libc::AT_FDCWD, rest) }.is_some_and(|_| unsafe { rest.read() } as u8 == b'/')
    {
        // SAFETY: as above.
        let octets = unsafe { libc::strlen(rest) } + 1;
        // SAFETY: within the string, with its NUL.
        unsafe { std::ptr::copy(rest, path, octets) };
    }
    path
}
