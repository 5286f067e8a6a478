//! Start and end of the process. No state.

use crate::{next, process, record, table};

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
    if record::begin() && process::begin() {
        // SAFETY: the handler only reads and writes atomics and calls getpid(2). It fails for lack of memory: then the
        // child notices at its first call.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

extern "C" fn in_child() {
    if process::is_new_child() {
        table::renew();
    }
}

extern "C" fn end() {
    table::end();
}
