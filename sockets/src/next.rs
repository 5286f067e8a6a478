//! The functions behind those of this library, found once by dlsym(3), and the macro that makes a function of this library.
//!
//! Owner of the state: static memory. All are looked for when the library is loaded, so that a signal handler does
//! not have to; a call before that, from the start of another library, looks for its own.

use std::ffi::{CStr, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::names::{Call, NAMES};

static NEXT: [AtomicPtr<c_void>; NAMES.len()] = [const { AtomicPtr::new(null_mut()) }; NAMES.len()];

/// The function of this name behind this library's; null: there is none.
#[inline]
pub(crate) fn next(call: Call) -> *mut c_void {
    let known = &NEXT[call as usize];
    let found = known.load(Ordering::Relaxed);
    if found.is_null() { find(call as usize) } else { found }
}

#[cold]
fn find(index: usize) -> *mut c_void {
    let (Some(known), Some(name)) = (NEXT.get(index), NAMES.get(index)) else { return null_mut() };
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { return null_mut() };
    // SAFETY: a string; the handle is one of the C library's own.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(found, Ordering::Relaxed);
    found
}

/// Finds all.
pub(crate) fn find_all() {
    for index in 0..NAMES.len() {
        find(index);
    }
}

/// `errno` of this thread.
pub(crate) fn errno() -> i32 {
    // SAFETY: no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own variable of this thread.
    unsafe { place.read() }
}

/// Sets it.
pub(crate) fn set_errno(value: i32) {
    // SAFETY: no preconditions.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the C library's own variable of this thread.
    unsafe { place.write(value) };
}

/// What is returned where the C library has no such function.
pub(crate) trait Missing {
    const MISSING: Self;
}

impl Missing for i32 {
    const MISSING: Self = -1;
}

impl Missing for isize {
    const MISSING: Self = -1;
}

impl Missing for i64 {
    const MISSING: Self = -1;
}

impl Missing for () {
    const MISSING: Self = ();
}

impl<T> Missing for *mut T {
    const MISSING: Self = null_mut();
}

/// A system call, which no preloaded library sees: its result, or `errno`, which stays as it is.
pub(crate) fn system(number: c_long, arguments: [usize; 6]) -> Result<usize, i32> {
    type Function = unsafe extern "C" fn(c_long, ...) -> c_long;
    let next = next(Call::syscall);
    if next.is_null() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: the C library's function of this name, which has this type.
    let next = unsafe { std::mem::transmute::<*mut c_void, Function>(next) };
    let before = errno();
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: memory that the caller may pass to this call.
    let result = unsafe { next(number, a, b, c, d, e, f) };
    let now = errno();
    set_errno(before);
    usize::try_from(result).map_err(|_| now)
}

/// Functions that pass their arguments on, and return what is returned. `before`: what is done first; `around |real|`: what
/// is done instead of the call, which is `real()`; `after |result|`:
/// what is done with the result, which may make system calls only through rustix, because these leave `errno` as it is.
///
/// Unwinding passes through them: the C library ends a cancelled thread so.
macro_rules! calls {
    (@run $real:ident) => { $real() };
    (@run $real:ident |$name:ident| $instead:expr) => {{ let $name = $real; $instead }};
    ($($name:ident($($arg:ident: $kind:ty),*) -> $ret:ty
        $(, before $before:expr)? $(, around |$real:ident| $instead:expr)? $(, after |$result:ident| $after:expr)?;)*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> $ret {
            type Function = unsafe extern "C-unwind" fn($($kind),*) -> $ret;
            let next = $crate::next::next($crate::names::Call::$name);
            if next.is_null() {
                $crate::next::set_errno(libc::ENOSYS);
                return <$ret as $crate::next::Missing>::MISSING;
            }
            // SAFETY: the C library's function of this name, which has this type.
            let next: Function = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Function>(next) };
            $($before;)?
            // SAFETY: the caller's arguments, as for the function that it calls.
            let real = || unsafe { next($($arg),*) };
            let result = $crate::next::calls!(@run real $(|$real| $instead)?);
            $(
                let $result = &result;
                $after;
            )?
            result
        }
    )*};
}
pub(crate) use calls;
