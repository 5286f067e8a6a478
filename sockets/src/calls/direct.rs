//! syscall(2), by which some libraries make, use and close descriptors: libuv closes all of its own so. No state of its own.

use std::ffi::{c_int, c_long, c_uint};

use super::descriptors::{closes, duplicated, made, replaced};
use super::{messages, octets, waits};
use crate::connection::Obstacle;
use crate::names::Call;
use crate::next::calls;
use crate::table;

calls! {
    // The kernel ignores what the number does not have.
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long,
        before before(number, a, b, c),
        // SAFETY: the arguments of the call with this number.
        around |real| match unsafe { instead(number, [a, b, c, d, e, f]) } {
            Some(result) => result,
            None => real(),
        },
        after |result| after(number, [a, b, c], *result);
}

/// Calls that move octets of connections, or wait for them: the C library's functions do the same.
///
/// # Safety
/// Arguments of the call with this number.
unsafe fn instead(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    macro_rules! call {
        ($group:ident::$function:ident($($argument:expr),*)) => {
            // SAFETY: the caller's promise: the function has the arguments of the call.
            unsafe { $group::$function($($argument as _),*) as c_long }
        };
    }
    let [a, b, c, d, e, f] = arguments;
    if table::highest() < 0 {
        return None;
    }
    Some(match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => call!(waits::poll(a, b, c)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => call!(waits::select(a, b, c, d, e)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => call!(waits::epoll_wait(a, b, c, d)),
        libc::SYS_ppoll => call!(waits::ppoll(a, b, c, d)),
        libc::SYS_epoll_pwait => call!(waits::epoll_pwait(a, b, c, d, e)),
        libc::SYS_epoll_pwait2 => call!(waits::epoll_pwait2(a, b, c, d, e)),
        // Of the mask there is the address and the size.
        libc::SYS_pselect6 if f == 0 => call!(waits::pselect(a, b, c, d, e, f)),
        libc::SYS_splice if table::of(a as c_int).or(table::of(c as c_int)).is_some() => {
            call!(octets::splice(a, b, c, d, e, f))
        }
        _ => {
            table::of(a as c_int)?.note(Call::syscall);
            match number {
                libc::SYS_read => call!(octets::read(a, b, c)),
                libc::SYS_write => call!(octets::write(a, b, c)),
                libc::SYS_readv => call!(octets::readv(a, b, c)),
                libc::SYS_writev => call!(octets::writev(a, b, c)),
                libc::SYS_recvfrom => call!(octets::recvfrom(a, b, c, d, e, f)),
                libc::SYS_sendto => call!(octets::sendto(a, b, c, d, e, f)),
                libc::SYS_sendfile => call!(octets::sendfile(a, b, c, d)),
                libc::SYS_recvmsg => call!(messages::recvmsg(a, b, c)),
                libc::SYS_sendmsg => call!(messages::sendmsg(a, b, c)),
                libc::SYS_recvmmsg => call!(messages::recvmmsg(a, b, c, d, e)),
                libc::SYS_sendmmsg => call!(messages::sendmmsg(a, b, c, d)),
                _ => return None,
            }
        }
    })
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

fn after(number: c_long, arguments: [c_long; 3], result: c_long) {
    let [fd, second, third] = arguments.map(|it| it as c_int);
    let new = result as c_int;
    match number {
        libc::SYS_socket => made(new, fd, second, third),
        libc::SYS_accept => table::accepted(fd, new, Call::accept),
        libc::SYS_accept4 => table::accepted(fd, new, Call::accept4),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_dup2 => duplicated(fd, Call::syscall, new),
        libc::SYS_dup | libc::SYS_dup3 => duplicated(fd, Call::syscall, new),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_create => table::follow_set(new),
        libc::SYS_epoll_create1 => table::follow_set(new),
        // What a program moves and waits for by it is not seen.
        libc::SYS_io_uring_setup if new >= 0 => table::none_can(Obstacle::IoUring),
        _ => {}
    }
}
