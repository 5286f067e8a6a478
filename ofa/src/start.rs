//! Initialization when the loader maps the verbs libraries: an internal error then ends the process with
//! a message, because a panic must not unwind into a program written in C; and the record begins, if there is one.
//!
//! The hook is that of the Rust library linked into this one; a program in Rust keeps its own.

use std::io::{Write, stderr};
use std::panic::{PanicHookInfo, set_hook};
use std::process::abort;

/// Called by the loader, once.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn warpline_init() {
    set_hook(Box::new(end));
    crate::record::loaded();
}

fn end(panic: &PanicHookInfo<'_>) {
    let text = format!(
        "warpline: internal error in libibverbs.so.1 (Warpline's): {panic}\n\
         warpline: the program is ended, for its RDMA objects are in no known state; please report this\n"
    );
    // Without standard error the message is lost.
    let _ = stderr().write_all(text.as_bytes());
    abort();
}
