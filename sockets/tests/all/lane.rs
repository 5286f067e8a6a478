//! The calls of the table, each in two ways: by the function of the C library, which is the preloaded library's where there
//! is one, and by the system call itself, which no library sees. No state.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use libc::{epoll_event, mmsghdr, msghdr, pollfd};

/// How calls are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    Kernel,
    Library,
}

/// Both.
pub(crate) const LANES: [Lane; 2] = [Lane::Kernel, Lane::Library];

/// What a call returned: its result, or minus `errno`.
pub(crate) type Outcome = c_long;

fn outcome(result: c_long) -> Outcome {
    match result {
        -1 => -c_long::from(std::io::Error::last_os_error().raw_os_error().unwrap()),
        other => other,
    }
}

type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// syscall(2) of the C library.
fn kernel() -> Syscall {
    static FOUND: OnceLock<Syscall> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: a string; the library is loaded already.
        let library = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW) };
        // SAFETY: a library and a string.
        let found = unsafe { libc::dlsym(library, c"syscall".as_ptr()) };
        assert!(!found.is_null());
        // SAFETY: the function of this name, which has this type.
        unsafe { std::mem::transmute::<*mut c_void, Syscall>(found) }
    })
}

impl Lane {
    /// A system call by its number, as programs make it: through the library if there is one.
    pub(crate) fn direct(self, number: c_long, fd: c_int, at: Octets, len: usize) -> Outcome {
        outcome(match self {
            // SAFETY: memory of the caller.
            Self::Kernel => unsafe { kernel()(number, fd, at, len, 0, NONE, 0) },
            // SAFETY: the same.
            Self::Library => unsafe { libc::syscall(number, fd, at, len, 0, NONE, 0) },
        })
    }
}

/// A function, and the system call with its arguments.
macro_rules! calls {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $ret:ty = $number:ident($($passed:expr),*);)*) => {
        mod functions {
            use super::*;
            unsafe extern "C-unwind" { $(pub(super) fn $name($($arg: $kind),*) -> $ret;)* }
        }

        impl Lane {$(
            /// Pointers are to memory that the call may use as the manual page says.
            #[allow(clippy::too_many_arguments)]
            pub(crate) fn $name(self, $($arg: $kind),*) -> Outcome {
                outcome(match self {
                    // SAFETY: memory of the caller, or a bad address, for which the kernel returns EFAULT.
                    Self::Kernel => unsafe { kernel()(libc::$number, $($passed),*) },
                    // SAFETY: the same.
                    Self::Library => unsafe { functions::$name($($arg),*) as c_long },
                })
            }
        )*}
    };
}

type Memory = *mut c_void;
type Octets = *const c_void;
type Pieces = *const libc::iovec;
type Set = *mut libc::fd_set;
/// For the kernel: signals have 8 octets.
const MASK: usize = 8;
const NONE: Octets = std::ptr::null();

calls! {
    socket(family: c_int, kind: c_int, protocol: c_int) -> c_int = SYS_socket(family, kind, protocol);
    accept(fd: c_int, a: Memory, len: *mut c_uint) -> c_int = SYS_accept(fd, a, len);
    accept4(fd: c_int, a: Memory, len: *mut c_uint, flags: c_int) -> c_int = SYS_accept4(fd, a, len, flags);
    connect(fd: c_int, a: Octets, len: c_uint) -> c_int = SYS_connect(fd, a, len);
    __connect(fd: c_int, a: Octets, len: c_uint) -> c_int = SYS_connect(fd, a, len);
    read(fd: c_int, to: Memory, len: usize) -> isize = SYS_read(fd, to, len);
    __read(fd: c_int, to: Memory, len: usize) -> isize = SYS_read(fd, to, len);
    __read_chk(fd: c_int, to: Memory, len: usize, room: usize) -> isize = SYS_read(fd, to, len, room);
    readv(fd: c_int, to: Pieces, n: c_int) -> isize = SYS_readv(fd, to, n);
    // The kernel takes an offset in two words, of which the second is 0 here.
    preadv2(fd: c_int, to: Pieces, n: c_int, at: i64, flags: c_int) -> isize = SYS_preadv2(fd, to, n, at, 0, flags);
    preadv64v2(fd: c_int, to: Pieces, n: c_int, at: i64, flags: c_int) -> isize = SYS_preadv2(fd, to, n, at, 0, flags);
    recv(fd: c_int, to: Memory, len: usize, flags: c_int) -> isize = SYS_recvfrom(fd, to, len, flags, NONE, NONE);
    __recv_chk(fd: c_int, to: Memory, len: usize, room: usize, flags: c_int) -> isize
        = SYS_recvfrom(fd, to, len, flags, NONE, NONE, room);
    recvfrom(fd: c_int, to: Memory, len: usize, flags: c_int, a: Memory, room: *mut c_uint) -> isize
        = SYS_recvfrom(fd, to, len, flags, a, room);
    __recvfrom_chk(fd: c_int, to: Memory, len: usize, all: usize, flags: c_int, a: Memory, room: *mut c_uint) -> isize
        = SYS_recvfrom(fd, to, len, flags, a, room, all);
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize = SYS_recvmsg(fd, message, flags);
    recvmmsg(fd: c_int, all: *mut mmsghdr, n: c_uint, flags: c_int, limit: Memory) -> c_int
        = SYS_recvmmsg(fd, all, n, flags, limit);
    write(fd: c_int, from: Octets, len: usize) -> isize = SYS_write(fd, from, len);
    __write(fd: c_int, from: Octets, len: usize) -> isize = SYS_write(fd, from, len);
    writev(fd: c_int, from: Pieces, n: c_int) -> isize = SYS_writev(fd, from, n);
    pwritev2(fd: c_int, from: Pieces, n: c_int, at: i64, flags: c_int) -> isize = SYS_pwritev2(fd, from, n, at, 0, flags);
    pwritev64v2(fd: c_int, from: Pieces, n: c_int, at: i64, flags: c_int) -> isize
        = SYS_pwritev2(fd, from, n, at, 0, flags);
    send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize = SYS_sendto(fd, from, len, flags, NONE, 0);
    __send(fd: c_int, from: Octets, len: usize, flags: c_int) -> isize = SYS_sendto(fd, from, len, flags, NONE, 0);
    sendto(fd: c_int, from: Octets, len: usize, flags: c_int, to: Octets, n: c_uint) -> isize
        = SYS_sendto(fd, from, len, flags, to, n);
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize = SYS_sendmsg(fd, message, flags);
    sendmmsg(fd: c_int, all: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int = SYS_sendmmsg(fd, all, n, flags);
    sendfile(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize = SYS_sendfile(out, file, at, len);
    sendfile64(out: c_int, file: c_int, at: *mut i64, len: usize) -> isize = SYS_sendfile(out, file, at, len);
    splice(from: c_int, at: Memory, to: c_int, there: Memory, len: usize, flags: c_uint) -> isize
        = SYS_splice(from, at, to, there, len, flags);
    poll(all: *mut pollfd, n: c_ulong, limit: c_int) -> c_int = SYS_poll(all, n, limit);
    __poll(all: *mut pollfd, n: c_ulong, limit: c_int) -> c_int = SYS_poll(all, n, limit);
    __poll_chk(all: *mut pollfd, n: c_ulong, limit: c_int, room: usize) -> c_int = SYS_poll(all, n, limit, room);
    ppoll(all: *mut pollfd, n: c_ulong, limit: Memory, mask: Octets) -> c_int = SYS_ppoll(all, n, limit, mask, MASK);
    __ppoll_chk(all: *mut pollfd, n: c_ulong, limit: Memory, mask: Octets, room: usize) -> c_int
        = SYS_ppoll(all, n, limit, mask, MASK, room);
    select(n: c_int, read: Set, write: Set, except: Set, limit: Memory) -> c_int
        = SYS_select(n, read, write, except, limit);
    __select(n: c_int, read: Set, write: Set, except: Set, limit: Memory) -> c_int
        = SYS_select(n, read, write, except, limit);
    pselect(n: c_int, read: Set, write: Set, except: Set, limit: Memory, mask: Octets) -> c_int
        = SYS_pselect6(n, read, write, except, limit, mask);
    epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int
        = SYS_epoll_ctl(set, what, fd, event);
    epoll_wait(set: c_int, to: *mut epoll_event, n: c_int, limit: c_int) -> c_int = SYS_epoll_wait(set, to, n, limit);
    epoll_pwait(set: c_int, to: *mut epoll_event, n: c_int, limit: c_int, mask: Octets) -> c_int
        = SYS_epoll_pwait(set, to, n, limit, mask, MASK);
    shutdown(fd: c_int, how: c_int) -> c_int = SYS_shutdown(fd, how);
    getsockopt(fd: c_int, level: c_int, name: c_int, value: Memory, len: *mut c_uint) -> c_int
        = SYS_getsockopt(fd, level, name, value, len);
    setsockopt(fd: c_int, level: c_int, name: c_int, value: Octets, len: c_uint) -> c_int
        = SYS_setsockopt(fd, level, name, value, len);
    getsockname(fd: c_int, a: Memory, len: *mut c_uint) -> c_int = SYS_getsockname(fd, a, len);
    getpeername(fd: c_int, a: Memory, len: *mut c_uint) -> c_int = SYS_getpeername(fd, a, len);
    ioctl(fd: c_int, request: c_ulong, value: Memory) -> c_int = SYS_ioctl(fd, request, value);
    fcntl(fd: c_int, command: c_int, value: c_long) -> c_int = SYS_fcntl(fd, command, value);
    __fcntl(fd: c_int, command: c_int, value: c_long) -> c_int = SYS_fcntl(fd, command, value);
    fcntl64(fd: c_int, command: c_int, value: c_long) -> c_int = SYS_fcntl(fd, command, value);
    dup(fd: c_int) -> c_int = SYS_dup(fd);
    dup2(fd: c_int, to: c_int) -> c_int = SYS_dup2(fd, to);
    __dup2(fd: c_int, to: c_int) -> c_int = SYS_dup2(fd, to);
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = SYS_dup3(fd, to, flags);
    close(fd: c_int) -> c_int = SYS_close(fd);
    __close(fd: c_int) -> c_int = SYS_close(fd);
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = SYS_close_range(first, last, flags);
    memfd_create(name: *const c_char, flags: c_uint) -> c_int = SYS_memfd_create(name, flags);
    pipe2(ends: *mut c_int, flags: c_int) -> c_int = SYS_pipe2(ends, flags);
    epoll_create1(flags: c_int) -> c_int = SYS_epoll_create1(flags);
}
