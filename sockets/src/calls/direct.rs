//! syscall(2), by which some libraries make, use and close descriptors: libuv closes all of its own so. No state of its own.

use std::ffi::{c_int, c_long, c_uint};

use super::descriptors::{closes, duplicated, made, replaced};
use super::messages::passed;
use super::octets::{received, sent};
use crate::connection::Way;
use crate::names::Call;
use crate::next::calls;
use crate::table;

calls! {
    // The kernel ignores what the number does not have.
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long,
        before before(number, a, b, c), after |result| after(number, [a, b, c, d], *result);
}

fn before(number: c_long, a: c_long, b: c_long, c: c_long) {
    match number {
        libc::SYS_close => table::forget(a as c_int),
        libc::SYS_close_range if closes(a as c_uint, b as c_uint, c as c_int) => {
            table::forget_from(a as c_uint, b as c_uint);
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => replaced(a as c_int, b as c_int),
        libc::SYS_dup3 => replaced(a as c_int, b as c_int),
        _ => {}
    }
}

fn after(number: c_long, arguments: [c_long; 4], result: c_long) {
    let [fd, second, third, flags] = arguments.map(|it| it as c_int);
    let new = result as c_int;
    match number {
        libc::SYS_socket => made(new, fd, second, third),
        libc::SYS_accept => table::accepted(fd, new, Call::accept),
        libc::SYS_accept4 => table::accepted(fd, new, Call::accept4),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => duplicated(fd, Call::syscall, new),
        libc::SYS_dup | libc::SYS_dup3 => duplicated(fd, Call::syscall, new),
        libc::SYS_read | libc::SYS_readv => {
            table::moved(fd, Call::syscall, Way::In, result as isize)
        }
        libc::SYS_write | libc::SYS_writev => {
            table::moved(fd, Call::syscall, Way::Out, result as isize)
        }
        libc::SYS_recvmsg => received(fd, Call::syscall, third, result as isize),
        libc::SYS_sendmsg => {
            sent(fd, Call::syscall, third, result as isize);
            if result >= 0 {
                // SAFETY: the kernel has read it.
                unsafe { passed(arguments[1] as *const libc::msghdr) };
            }
        }
        libc::SYS_recvfrom => received(fd, Call::syscall, flags, result as isize),
        libc::SYS_sendto => sent(fd, Call::syscall, flags, result as isize),
        _ => {}
    }
}
