//! Start and end of the process. No state.

use std::ffi::CStr;

use crate::ring::{meet, spin};
use crate::{next, process, record, table, tuning};

/// Run by the loader, after the libraries that this one needs and before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// Run when the process exits.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    next::find_all();
    let rings = variable(c"WARPLINE_SOCKETS").is_some_and(|value| value == c"ring");
    // Both, also if the first is not wanted.
    if (record::begin() | rings) && process::begin() {
        if rings {
            spin::set(number(c"WARPLINE_SOCKETS_SPIN").unwrap_or(tuning::SPIN_MICROS));
            meet::enable(number(c"WARPLINE_SOCKETS_AFTER").unwrap_or(tuning::MIN_CALLS));
        }
        // SAFETY: the handlers only read and write atomics, call getpid(2), and close descriptors of this library. It fails
        // for lack of memory: then the child notices at its first call.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    }
}

/// A variable of the environment, which nothing changes before the program starts.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: null, or a string of the environment.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

fn number(name: &CStr) -> Option<u64> {
    variable(name)?.to_str().ok()?.parse().ok()
}

extern "C" fn before_fork() {
    table::keep_from_exec();
}

extern "C" fn in_parent() {
    table::forked();
}

extern "C" fn in_child() {
    if process::is_new_child() {
        table::renew();
    }
}

extern "C" fn end() {
    table::end(true);
}
