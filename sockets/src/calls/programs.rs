//! Functions after which this program does not run any more: what it has moved is written first. And those that start
//! another, which gets the descriptors that stay open. No state of their own.
//!
//! execl(3), execlp(3) and execle(3) take a list of arguments that a function of Rust cannot pass on, and are not here.

use std::ffi::{c_char, c_int, c_void};

use crate::kernel;
use crate::next::calls;
use crate::ring::link::Failure;
use crate::{process, table};

type Text = *const c_char;
type List = *const *const c_char;
/// What posix_spawn(3) does in the new process.
type Actions = *const c_void;
type Attributes = *const c_void;
type Id = *mut c_int;

calls! {
    execve(path: Text, arguments: List, environment: List) -> c_int, before becomes_another();
    execv(path: Text, arguments: List) -> c_int, before becomes_another();
    execvp(file: Text, arguments: List) -> c_int, before becomes_another();
    execvpe(file: Text, arguments: List, environment: List) -> c_int, before becomes_another();
    execveat(at: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int,
        before becomes_another();
    fexecve(fd: c_int, arguments: List, environment: List) -> c_int, before becomes_another();
    posix_spawn(id: Id, path: Text, all: Actions, how: Attributes, arguments: List, environment: List) -> c_int,
        before table::keep_from_exec();
    posix_spawnp(id: Id, file: Text, all: Actions, how: Attributes, arguments: List, environment: List) -> c_int,
        before table::keep_from_exec();
    posix_spawn_file_actions_adddup2(all: *mut c_void, fd: c_int, to: c_int) -> c_int, before table::pass(fd);
    system(command: Text) -> c_int, before table::keep_from_exec();
    popen(command: Text, how: Text) -> *mut c_void, before table::keep_from_exec();
    _IO_popen(command: Text, how: Text) -> *mut c_void, before table::keep_from_exec();
    _exit(status: c_int) -> (), before table::end(true);
    _Exit(status: c_int) -> (), before table::end(true);
}

/// The process becomes another program, or, in a child of vfork(2), a new process does: connections that stay open are that
/// program's, too, which cannot read a ring.
fn becomes_another() {
    table::keep_from_exec();
    table::each(|fd, connection| {
        let link = &connection.link;
        if link.unread() == 0 || !kernel::survives_exec(fd) {
            return;
        }
        // The octets are those of a parent that goes on; if it does not read them, nobody does.
        if link.is_copy() || !process::is_own() {
            link.pass();
        } else {
            link.fail(fd, Failure::Passed);
        }
    });
    table::end(false);
}
