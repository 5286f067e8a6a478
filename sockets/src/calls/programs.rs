//! Functions after which this program does not run any more: what it has moved is written first. No state of their own.
//!
//! execl(3), execlp(3) and execle(3) take a list of arguments that a function of Rust cannot pass on, and are not here.

use std::ffi::{c_char, c_int};

use crate::next::calls;
use crate::table;

type Text = *const c_char;
type List = *const *const c_char;

calls! {
    execve(path: Text, arguments: List, environment: List) -> c_int, before table::end();
    execv(path: Text, arguments: List) -> c_int, before table::end();
    execvp(file: Text, arguments: List) -> c_int, before table::end();
    execvpe(file: Text, arguments: List, environment: List) -> c_int, before table::end();
    execveat(at: c_int, path: Text, arguments: List, environment: List, flags: c_int) -> c_int,
        before table::end();
    fexecve(fd: c_int, arguments: List, environment: List) -> c_int, before table::end();
    _exit(status: c_int) -> (), before table::end();
    _Exit(status: c_int) -> (), before table::end();
}
