//! A function that runs when the process exits. No state; the C library keeps the list.

/// Has `run` called by the thread that calls exit(3) or returns from `main`, or when the library that has `run` is
/// unloaded (atexit(3)). Returns false if the C library has no memory for it.
pub fn at_exit(run: extern "C" fn()) -> bool {
    // SAFETY: `run` is safe to call, by its type, and there as long as the library that has it; the C library calls it
    // before it unloads that.
    unsafe { libc::atexit(run) == 0 }
}
