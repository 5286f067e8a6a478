//! What the process exits with, and what the view has told its program by then. No state; the C library keeps the list.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called with the exit status.
pub(crate) type Exits = extern "C" fn(c_int, *mut c_void);

unsafe extern "C" {
    /// on_exit(3), of glibc.
    fn on_exit(run: Exits, argument: *mut c_void) -> c_int;
}

/// Has `run` called by the thread that calls exit(3) or returns from `main`. Without memory for that it is not called.
pub(crate) fn watch(run: Exits) {
    // SAFETY: `run` is safe to call, by its type, and stays: the verbs libraries are never unloaded (`-z nodelete`).
    unsafe { on_exit(run, null_mut()) };
}

/// Whether the preloaded view, if there is one, has told the program that there is no mlx5dv.
pub(crate) fn is_told_by_view() -> bool {
    // SAFETY: a string; the handle is one of the C library's own.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"warpline_view_told".as_ptr()) };
    // SAFETY: NULL, or the variable of that name in the view, of this type, which is never unloaded.
    let told = unsafe { found.cast::<AtomicBool>().as_ref() };
    told.is_some_and(|told| told.load(Ordering::Relaxed))
}
