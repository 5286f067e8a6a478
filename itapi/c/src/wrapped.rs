//! Replacements of `malloc` and `realloc` inside the library: Rust's standard library bypasses the global
//! allocator for threads and thread-local values, and aborts the process if there is no memory.
//! `build.rs` makes the linker use these instead in the shared library (`--wrap`), and
//! `scripts/install` renames the archive's calls.

use std::ffi::c_void;
use std::ptr::null_mut;

use super::reserve;

/// `malloc`.
#[unsafe(no_mangle)]
extern "C" fn itapi_wrapped_malloc(size: usize) -> *mut c_void {
    // SAFETY: a new block, by a function that is not wrapped: one of NULL is `malloc`.
    let fresh = unsafe { libc::reallocarray(null_mut(), 1, size) };
    if fresh.is_null() { reserve::take(size, reserve::ALIGNMENT).cast() } else { fresh }
}

/// `realloc`.
///
/// # Safety
/// As for `realloc`.
#[unsafe(no_mangle)]
unsafe extern "C" fn itapi_wrapped_realloc(memory: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    let moved = unsafe { libc::reallocarray(memory, 1, size) };
    if !moved.is_null() || size == 0 {
        return moved;
    }
    if memory.is_null() {
        return reserve::take(size, reserve::ALIGNMENT).cast();
    }
    // SAFETY: the caller's memory, which was not moved.
    let octets = unsafe { libc::malloc_usable_size(memory) };
    // SAFETY: the caller's memory, which it gives up if it gets other memory.
    unsafe { reserve::move_to_block(memory.cast(), octets, size, reserve::ALIGNMENT).cast() }
}
