//! Functions of the C library that take a path: below `/sys/class/infiniband` and `/dev/infiniband` they look into
//! the directory that `WARPLINE_VERBS_VIEW` names, which `warpline run --view` fills; all other paths stay.
//!
//! For `LD_PRELOAD`. No state but the addresses of the functions behind these. Nothing is allocated and no lock is
//! taken, so that a signal handler and a child of fork(2) may call them as before. What the C library opens by
//! itself is not seen here.

mod path;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use path::Room;

/// The function of this name behind this library's; it is looked for once.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: a string; the handle is one of the C library's own.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(found, Ordering::Relaxed);
    found
}

/// Functions with the path where the semicolons are. `0`, or the value after `else`, is returned with `ENOSYS`
/// where the C library has no such function.
///
/// Those with `...` in C (open(2)) are declared with what may follow: the callee finds it, or does not look.
macro_rules! functions {
    ($($name:ident($($before:ident: $b:ty),*; $($after:ident: $a:ty),*) -> $ret:ty, else $none:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $b,)* path: *const c_char, $($after: $a),*) -> $ret {
            type Function = unsafe extern "C" fn($($b,)* *const c_char, $($a),*) -> $ret;
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            const NAME: &str = concat!(stringify!($name), "\0");
            let Ok(name) = CStr::from_bytes_with_nul(NAME.as_bytes()) else { return $none };
            let next = next(&NEXT, name);
            if next.is_null() {
                // SAFETY: no preconditions.
                let errno = unsafe { libc::__errno_location() };
                // SAFETY: the C library's own variable of this thread.
                unsafe { errno.write(libc::ENOSYS) };
                return $none;
            }
            // SAFETY: the C library's function of this name, which has this type.
            let next: Function = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
            let mut room = Room::new();
            // SAFETY: the caller's string, as of the function that it calls.
            let path = unsafe { room.seen(path) };
            // SAFETY: the caller's arguments, and a string that outlives the call.
            unsafe { next($($before,)* path, $($after),*) }
        }
    )*};
}

/// Of structures that only the C library reads and writes.
type Any = *mut c_void;

functions! {
    open(; flags: c_int, mode: c_uint) -> c_int, else -1;
    open64(; flags: c_int, mode: c_uint) -> c_int, else -1;
    __open_2(; flags: c_int) -> c_int, else -1;
    __open64_2(; flags: c_int) -> c_int, else -1;
    openat(at: c_int; flags: c_int, mode: c_uint) -> c_int, else -1;
    openat64(at: c_int; flags: c_int, mode: c_uint) -> c_int, else -1;
    fopen(; mode: *const c_char) -> Any, else std::ptr::null_mut();
    fopen64(; mode: *const c_char) -> Any, else std::ptr::null_mut();
    opendir(;) -> Any, else std::ptr::null_mut();
    scandir(; list: Any, filter: Any, compare: Any) -> c_int, else -1;
    scandir64(; list: Any, filter: Any, compare: Any) -> c_int, else -1;
    stat(; status: Any) -> c_int, else -1;
    stat64(; status: Any) -> c_int, else -1;
    lstat(; status: Any) -> c_int, else -1;
    lstat64(; status: Any) -> c_int, else -1;
    fstatat(at: c_int; status: Any, flags: c_int) -> c_int, else -1;
    fstatat64(at: c_int; status: Any, flags: c_int) -> c_int, else -1;
    statx(at: c_int; flags: c_int, mask: c_uint, status: Any) -> c_int, else -1;
    __xstat(version: c_int; status: Any) -> c_int, else -1;
    __xstat64(version: c_int; status: Any) -> c_int, else -1;
    __lxstat(version: c_int; status: Any) -> c_int, else -1;
    __lxstat64(version: c_int; status: Any) -> c_int, else -1;
    __fxstatat(version: c_int, at: c_int; status: Any, flags: c_int) -> c_int, else -1;
    __fxstatat64(version: c_int, at: c_int; status: Any, flags: c_int) -> c_int, else -1;
    access(; mode: c_int) -> c_int, else -1;
    faccessat(at: c_int; mode: c_int, flags: c_int) -> c_int, else -1;
    readlink(; to: *mut c_char, room: usize) -> isize, else -1;
    readlinkat(at: c_int; to: *mut c_char, room: usize) -> isize, else -1;
    __readlink_chk(; to: *mut c_char, room: usize, whole: usize) -> isize, else -1;
    realpath(; to: *mut c_char) -> *mut c_char, else std::ptr::null_mut();
    __realpath_chk(; to: *mut c_char, whole: usize) -> *mut c_char, else std::ptr::null_mut();
    canonicalize_file_name(;) -> *mut c_char, else std::ptr::null_mut();
}
