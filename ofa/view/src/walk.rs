//! Patterns and trees: functions that look into directories by functions of the C library's own. `glob` can be given
//! others; `fts_open` begins in the view, and names what it finds there.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use libc::AT_FDCWD;

use crate::path::{Room, leads};
use crate::{Any, behind};

/// `glob_t`, whose fields are alike for files of any size.
#[repr(C)]
struct Glob {
    paths: usize,
    list: *mut *mut c_char,
    offset: usize,
    flags: c_int,
    closedir: Any,
    readdir: Any,
    opendir: Any,
    lstat: Any,
    stat: Any,
}

type GlobFunction = unsafe extern "C" fn(*const c_char, c_int, Any, *mut Glob) -> c_int;

/// The flag by which the functions in the structure are called.
const ALTERNATIVE: c_int = 1 << 9;

macro_rules! globs {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            pattern: *const c_char,
            flags: c_int,
            error: Any,
            found: *mut Glob,
        ) -> c_int {
            let Some(next) = behind!($name, GlobFunction) else { return libc::GLOB_NOMATCH };
            // SAFETY: the caller's string, as of the function that it calls.
            let is_shown = unsafe { leads(AT_FDCWD, pattern) }.is_some();
            // SAFETY: NULL, or the caller's structure.
            let glob = unsafe { found.as_mut() }.filter(|_| is_shown && flags & ALTERNATIVE == 0);
            let flags = match glob {
                Some(glob) => {
                    glob.closedir = libc::closedir as *mut c_void;
                    glob.readdir = libc::readdir as *mut c_void;
                    glob.opendir = crate::opendir as *mut c_void;
                    glob.lstat = crate::lstat as *mut c_void;
                    glob.stat = crate::stat as *mut c_void;
                    flags | ALTERNATIVE
                }
                None => flags,
            };
            // SAFETY: the caller's arguments; the functions are of the types that it expects.
            unsafe { next(pattern, flags, error, found) }
        }
    )*};
}

globs! { glob glob64 }

type FtsOpen = unsafe extern "C" fn(*const *const c_char, c_int, Any) -> Any;

macro_rules! trees {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            paths: *const *const c_char,
            options: c_int,
            compare: Any,
        ) -> Any {
            let Some(next) = behind!($name, FtsOpen) else { return null_mut() };
            let mut rooms = Vec::new();
            let mut all = Vec::new();
            // SAFETY: the caller's list, which ends with NULL.
            while let Some(path) = Some(unsafe { paths.wrapping_add(all.len()).read() })
                && !path.is_null()
            {
                let mut room = Box::new(Room::new());
                // SAFETY: the caller's string.
                all.push(unsafe { room.seen(AT_FDCWD, path) });
                rooms.push(room);
            }
            all.push(null());
            // SAFETY: a list that outlives the call, which copies it.
            unsafe { next(all.as_ptr(), options, compare) }
        }
    )*};
}

trees! { fts_open fts64_open }
