//! sysfs access and fork support for programs (ibv_get_sysfs_path, ibv_read_sysfs_file,
//! ibv_fork_init(3)).
//!
//! The devices are not in sysfs; the functions read the files that exist.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Read;
use std::path::Path;

use ibv_sys::IBV_FORK_UNNEEDED;

use crate::advice::Advice;
use crate::errno::{self, EINVAL};

/// Names the directory that takes the place of what is below `/sys/class/infiniband`.
const VIEW: &str = "WARPLINE_VERBS_VIEW";

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller's string, or NULL.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
    text.to_str().ok().map(Path::new)
}

/// Reads the beginning of a file, without the final newline; returns the number of octets, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warpline_ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's string.
    let directory = unsafe { path(directory) };
    // SAFETY: the caller's string.
    let file = unsafe { path(file) };
    let (Some(directory), Some(file)) = (directory, file) else {
        return errno::minus(Err(EINVAL));
    };
    let mut text = Vec::new();
    let opened = std::fs::File::open(directory.join(file));
    let read = opened.and_then(|file| file.take(size as u64).read_to_end(&mut text));
    if let Err(error) = read {
        if directory.starts_with("/sys/class/infiniband") && std::env::var_os(VIEW).is_none() {
            Advice::NoView.say();
        }
        return errno::minus(Err(error.into()));
    }
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    let fits = text.len().min(size);
    // SAFETY: the caller's buffer of `size` octets.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), fits) };
    if fits < size {
        // SAFETY: as above, and there is room for a NUL.
        unsafe { buffer.wrapping_add(fits).write(0) };
    }
    fits as c_int
}

/// Nothing is pinned and no page is shared with a device: fork is always safe.
#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_is_fork_initialized() -> c_uint {
    IBV_FORK_UNNEEDED
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn warpline_ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
