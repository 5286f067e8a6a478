//! Functions of the C library that take a path: below `/sys/class/infiniband` and `/dev/infiniband` they look into
//! the directory that `WARPLINE_VERBS_VIEW` names, which `warpline run` fills; all other paths stay. Those that
//! return a path name the shown directory.
//!
//! For `LD_PRELOAD`. No state but the addresses of the functions behind these. Nothing is allocated (but by
//! `fts_open`) and no lock is taken, so that a signal handler and a child of fork(2) may call them as before. What
//! the C library opens by itself is not seen here, except by `glob` and the functions that walk a tree.

mod foreign;
mod path;
mod walk;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::AT_FDCWD;
use path::{Room, unseen};

/// The function of this name behind this library's; it is looked for once. NULL, with `ENOSYS`: there is none.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = known.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    // SAFETY: a string; the handle is one of the C library's own.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(found, Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: no preconditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the C library's own variable of this thread.
        unsafe { errno.write(libc::ENOSYS) };
    }
    found
}

/// The function of this name and type behind this library's, if there is one.
macro_rules! behind {
    ($name:ident, $function:ty) => {{
        static NEXT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        const NAME: &str = concat!(stringify!($name), "\0");
        let name = std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes());
        let found = name.map_or(std::ptr::null_mut(), |name| $crate::next(&NEXT, name));
        // SAFETY: NULL is `None`; otherwise the C library's function of this name, which has this type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<$function>>(found) }
    }};
}
use behind;

/// Functions with the path where the semicolons are, and behind `from` the directory of a relative path. The value after
/// `else` is returned where the C library has no such function; a result goes through the function after `=>`.
///
/// Those with `...` in C (open(2)) are declared with what may follow: the callee finds it, or does not look.
macro_rules! functions {
    ($(
        $name:ident($($before:ident: $b:ty),*; $($after:ident: $a:ty),*) from $at:expr
            => $ret:ty, else $none:expr $(, then $shown:ident)?;
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($before: $b,)* path: *const c_char, $($after: $a),*) -> $ret {
            type Function = unsafe extern "C" fn($($b,)* *const c_char, $($a),*) -> $ret;
            let Some(next) = behind!($name, Function) else { return $none };
            let mut room = Room::new();
            // SAFETY: the caller's string, as of the function that it calls.
            let path = unsafe { room.seen($at, path) };
            // SAFETY: the caller's arguments, and a string that outlives the call.
            let result = unsafe { next($($before,)* path, $($after),*) };
            $(
                // SAFETY: NULL, or a path in memory of the caller or of malloc(3).
                let result = unsafe { $shown(result) };
            )?
            result
        }
    )*};
}

/// Functions that return a path.
macro_rules! returned {
    ($($name:ident($($argument:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $ty),*) -> *mut c_char {
            let Some(next) = behind!($name, unsafe extern "C" fn($($ty),*) -> *mut c_char) else {
                return null_mut();
            };
            // SAFETY: the caller's arguments.
            let found = unsafe { next($($argument),*) };
            // SAFETY: NULL, or a path in memory of the caller or of malloc(3).
            unsafe { unseen(found) }
        }
    )*};
}

/// Of structures that only the C library reads and writes, and of callbacks.
type Any = *mut c_void;
type Text = *const c_char;
type Buffer = *mut c_char;

/// Of libmlx5, which refuses each of Warpline's devices: its programs see only a NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_open_device(device: Any, attributes: Any) -> Any {
    type Function = unsafe extern "C" fn(Any, Any) -> Any;
    let Some(next) = behind!(mlx5dv_open_device, Function) else { return null_mut() };
    // SAFETY: the caller's arguments.
    let context = unsafe { next(device, attributes) };
    if context.is_null() {
        foreign::refused_by_mlx5();
    }
    context
}

functions! {
    open(; flags: c_int, mode: c_uint) from AT_FDCWD => c_int, else -1;
    open64(; flags: c_int, mode: c_uint) from AT_FDCWD => c_int, else -1;
    __open_2(; flags: c_int) from AT_FDCWD => c_int, else -1;
    __open64_2(; flags: c_int) from AT_FDCWD => c_int, else -1;
    openat(at: c_int; flags: c_int, mode: c_uint) from at => c_int, else -1;
    openat64(at: c_int; flags: c_int, mode: c_uint) from at => c_int, else -1;
    __openat_2(at: c_int; flags: c_int) from at => c_int, else -1;
    __openat64_2(at: c_int; flags: c_int) from at => c_int, else -1;
    fopen(; mode: Text) from AT_FDCWD => Any, else null_mut();
    fopen64(; mode: Text) from AT_FDCWD => Any, else null_mut();
    freopen(; mode: Text, file: Any) from AT_FDCWD => Any, else null_mut();
    freopen64(; mode: Text, file: Any) from AT_FDCWD => Any, else null_mut();
    opendir(;) from AT_FDCWD => Any, else null_mut();
    scandir(; list: Any, filter: Any, compare: Any) from AT_FDCWD => c_int, else -1;
    scandir64(; list: Any, filter: Any, compare: Any) from AT_FDCWD => c_int, else -1;
    scandirat(at: c_int; list: Any, filter: Any, compare: Any) from at => c_int, else -1;
    scandirat64(at: c_int; list: Any, filter: Any, compare: Any) from at => c_int, else -1;
    ftw(; visit: Any, descriptors: c_int) from AT_FDCWD => c_int, else -1;
    ftw64(; visit: Any, descriptors: c_int) from AT_FDCWD => c_int, else -1;
    nftw(; visit: Any, descriptors: c_int, flags: c_int) from AT_FDCWD => c_int, else -1;
    nftw64(; visit: Any, descriptors: c_int, flags: c_int) from AT_FDCWD => c_int, else -1;
    stat(; status: Any) from AT_FDCWD => c_int, else -1;
    stat64(; status: Any) from AT_FDCWD => c_int, else -1;
    lstat(; status: Any) from AT_FDCWD => c_int, else -1;
    lstat64(; status: Any) from AT_FDCWD => c_int, else -1;
    fstatat(at: c_int; status: Any, flags: c_int) from at => c_int, else -1;
    fstatat64(at: c_int; status: Any, flags: c_int) from at => c_int, else -1;
    statx(at: c_int; flags: c_int, mask: c_uint, status: Any) from at => c_int, else -1;
    __xstat(version: c_int; status: Any) from AT_FDCWD => c_int, else -1;
    __xstat64(version: c_int; status: Any) from AT_FDCWD => c_int, else -1;
    __lxstat(version: c_int; status: Any) from AT_FDCWD => c_int, else -1;
    __lxstat64(version: c_int; status: Any) from AT_FDCWD => c_int, else -1;
    __fxstatat(version: c_int, at: c_int; status: Any, flags: c_int) from at => c_int, else -1;
    __fxstatat64(version: c_int, at: c_int; status: Any, flags: c_int) from at => c_int, else -1;
    statfs(; status: Any) from AT_FDCWD => c_int, else -1;
    statfs64(; status: Any) from AT_FDCWD => c_int, else -1;
    statvfs(; status: Any) from AT_FDCWD => c_int, else -1;
    statvfs64(; status: Any) from AT_FDCWD => c_int, else -1;
    access(; mode: c_int) from AT_FDCWD => c_int, else -1;
    eaccess(; mode: c_int) from AT_FDCWD => c_int, else -1;
    euidaccess(; mode: c_int) from AT_FDCWD => c_int, else -1;
    faccessat(at: c_int; mode: c_int, flags: c_int) from at => c_int, else -1;
    getxattr(; name: Text, to: Any, room: usize) from AT_FDCWD => isize, else -1;
    lgetxattr(; name: Text, to: Any, room: usize) from AT_FDCWD => isize, else -1;
    listxattr(; to: Buffer, room: usize) from AT_FDCWD => isize, else -1;
    llistxattr(; to: Buffer, room: usize) from AT_FDCWD => isize, else -1;
    inotify_add_watch(watches: c_int; mask: u32) from AT_FDCWD => c_int, else -1;
    chdir(;) from AT_FDCWD => c_int, else -1;
    readlink(; to: Buffer, room: usize) from AT_FDCWD => isize, else -1;
    readlinkat(at: c_int; to: Buffer, room: usize) from at => isize, else -1;
    __readlink_chk(; to: Buffer, room: usize, whole: usize) from AT_FDCWD => isize, else -1;
    __readlinkat_chk(at: c_int; to: Buffer, room: usize, whole: usize) from at => isize, else -1;
    realpath(; to: Buffer) from AT_FDCWD => Buffer, else null_mut(), then unseen;
    __realpath_chk(; to: Buffer, whole: usize) from AT_FDCWD => Buffer, else null_mut(), then unseen;
    canonicalize_file_name(;) from AT_FDCWD => Buffer, else null_mut(), then unseen;
}

returned! {
    getcwd(to: Buffer, room: usize);
    __getcwd_chk(to: Buffer, room: usize, whole: usize);
    getwd(to: Buffer);
    get_current_dir_name();
}
