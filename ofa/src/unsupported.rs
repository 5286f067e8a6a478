//! Unsupported functions of libibverbs and librdmacm: they return `EOPNOTSUPP` in the form that the
//! caller expects. `ofa/symbols/symbols.toml` assigns one to each symbol.

use std::ffi::{c_int, c_void};
use std::ptr;

fn set_errno() {
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library returned the address of the calling thread's errno, which lives as long as it.
    unsafe { errno.write(libc::EOPNOTSUPP) };
}

/// For functions that return an errno.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn warpline_unsupported_errno() -> c_int {
    set_errno();
    libc::EOPNOTSUPP
}

/// For functions that return -1, as an integer of any type.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn warpline_unsupported_minus() -> isize {
    set_errno();
    -1
}

/// For functions that return a pointer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn warpline_unsupported_null() -> *mut c_void {
    set_errno();
    ptr::null_mut()
}

/// For functions without a result.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn warpline_unsupported_nothing() {}
