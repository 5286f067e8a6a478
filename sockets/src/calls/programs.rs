//! Functions after which this program does not run any more: what it has moved is written first. No state of their own.
//!
//! execl(3), execlp(3) and execle(3) take a list of arguments that a function of Rust cannot pass on, and are not here.

use std::ffi::{c_char, c_int};

use crate::kernel;
use crate::next::calls;
use crate::ring::link::Failure;
use crate::{process, table};

type Text = *const c_char;
type List = *const *const c_char;

calls! {
    execve(path: Text, arguments: List, environment: List) -> c_int, before becomes_another();
    execv(path: Text, arguments: List) -> c_int, before becomes_another();
    execvp(file: Text, arguments: List) -> c_int, before becomes_another();
    execvpe(file: Text, arguments: List, environment: List) -> c_int, before becomes_another();
    execveat(at: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int,
        before becomes_another();
    fexecve(fd: c_int, arguments: List, environment: List) -> c_int, before becomes_another();
    _exit(status: c_int) -> (), before table::end(true);
    _Exit(status: c_int) -> (), before table::end(true);
}

/// The process becomes another program, or, in a child of vfork(2), a new process does: connections that stay open are that
/// program's, too, which cannot read a ring.
fn becomes_another() {
    table::keep_from_exec();
    table::each(|fd, connection| {
        let unread = connection.link.unread() > 0 && kernel::survives_exec(fd);
        // Of a parent that goes on, the octets are its own.
        if unread && process::is_own() && !connection.link.is_forked() {
            connection.link.fail(fd, Failure::Passed);
        }
    });
    table::end(false);
}
