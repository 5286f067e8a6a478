//! Children, cancelled threads and signals.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::{null, null_mut};

use warpline_patience::within;

use crate::support::{LOG, connection, field, is_inside, lines, run_inside};

fn wait_for(child: c_int) {
    let mut status = -1;
    // SAFETY: a child of this process.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0));
}

/// Runs `act` in a child, which then ends, or becomes another program.
fn in_child(fork: impl FnOnce() -> c_int, act: impl FnOnce(), exec: bool) {
    let child = fork();
    if child == 0 {
        act();
        let list = [c"true".as_ptr(), null()];
        if exec {
            // SAFETY: a path, and a list that ends.
            unsafe { libc::execv(c"/bin/true".as_ptr(), list.as_ptr()) };
        }
        // SAFETY: nothing to be dropped.
        unsafe { libc::_exit(i32::from(exec)) };
    }
    wait_for(child);
}

/// Each process has a line of its own octets, however it was made and however it ends.
#[test]
fn a_child_counts_its_own_octets() {
    if !is_inside() {
        run_inside("processes::a_child_counts_its_own_octets");
        return;
    }
    // SAFETY: the child calls only functions that a signal handler may call.
    let usual = || unsafe { libc::fork() };
    // SAFETY: the same; the kernel's call as the C library's fork makes it, without handlers.
    let bare = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as c_int };
    let ([mut client, mut server], [here, there]) = connection();
    client.write_all(b"parent").unwrap();
    let write = |octets: &[u8]| assert_eq!((&client).write(octets).unwrap(), octets.len());
    in_child(usual, || write(b"first"), false);
    in_child(usual, || write(b"second!"), true);
    in_child(bare, || write(b"third..."), false);
    drop(client);
    let mut all = String::new();
    server.read_to_string(&mut all).unwrap();
    assert_eq!(all, "parentfirstsecond!third...");
    let lines = lines(&here, &there);
    let fields = |name| lines.iter().map(|line| field(line, name).unwrap()).collect::<Vec<_>>();
    assert_eq!(fields("sent"), ["5", "7", "8", "6"], "{lines:#?}");
    assert_eq!(
        fields("other"),
        ["0+0", "5+0", "12+0", "20+0"],
        "octets of other processes: {lines:#?}"
    );
}

/// A child looks at the part of the table that is in use: servers fork for each connection.
#[test]
fn a_fork_touches_little_memory() {
    if !is_inside() {
        run_inside("processes::a_fork_touches_little_memory");
        return;
    }
    let (ends, _) = connection();
    let faults = || {
        // SAFETY: all octets may be 0.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: room for it.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) }, 0);
        usage.ru_minflt
    };
    let of_child = |fork: &dyn Fn() -> c_int| {
        let before = faults();
        in_child(fork, || {}, false);
        faults() - before
    };
    // SAFETY: the child calls only functions that a signal handler may call.
    let count = of_child(&|| unsafe { libc::fork() });
    // The pages of the whole table are 768.
    assert!(count < 400, "{count} pages");
    drop(ends);
}

/// A child that has its parent's memory closes what it inherited, as posix_spawn(3) of other libraries does.
#[test]
fn a_child_of_vfork_changes_nothing() {
    if !is_inside() {
        run_inside("processes::a_child_of_vfork_changes_nothing");
        return;
    }
    extern "C" fn close_all(fd: *mut c_void) -> c_int {
        let fd = fd as usize as c_int;
        // SAFETY: descriptors of this process alone.
        unsafe { libc::dup2(2, fd) };
        // SAFETY: the same.
        unsafe { libc::close(fd) };
        // SAFETY: nothing to be dropped.
        unsafe { libc::_exit(0) };
    }
    let ([mut client, server], [here, there]) = connection();
    client.write_all(b"one").unwrap();
    let mut stack = vec![0_u64; 8192];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let fd = client.as_raw_fd() as usize as *mut c_void;
    // SAFETY: this thread waits until the child has ended, with the stack.
    let child = unsafe { libc::clone(close_all, top, flags, fd) };
    wait_for(child);
    client.write_all(b"three").unwrap();
    drop((client, server));
    let lines = lines(&here, &there);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(field(&lines[0], "sent"), Some("8"), "{lines:?}");
}

type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// Runs a thread of the C library's, does something to it, and returns its result.
fn run_thread(start: Start, argument: *mut c_void, act: impl Fn(libc::pthread_t)) -> *mut c_void {
    // SAFETY: of the same form; pthread_create(3) has the type of a function that is not unwound.
    let start =
        unsafe { std::mem::transmute::<Start, extern "C" fn(*mut c_void) -> *mut c_void>(start) };
    let (mut thread, mut result) = (0, null_mut());
    // SAFETY: room for a thread's name, and a function that uses only its argument.
    let made = unsafe { libc::pthread_create(&raw mut thread, null(), start, argument) };
    assert_eq!(made, 0);
    within("the end of a cancelled thread", || {
        act(thread);
        // SAFETY: a thread that was not joined.
        assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
    });
    result
}

/// The C library unwinds a thread that is cancelled, through the functions of the library.
#[test]
fn a_thread_is_cancelled_within_a_call() {
    if !is_inside() {
        run_inside("processes::a_thread_is_cancelled_within_a_call");
        return;
    }
    mod functions {
        use super::{c_int, c_void};
        unsafe extern "C-unwind" {
            pub(super) fn read(fd: c_int, to: *mut c_void, len: usize) -> isize;
        }
    }
    extern "C-unwind" fn reads(fd: *mut c_void) -> *mut c_void {
        let mut octet = 0_u8;
        // SAFETY: room for an octet.
        unsafe { functions::read(fd as usize as c_int, (&raw mut octet).cast(), 1) };
        null_mut()
    }
    let ([client, mut server], _) = connection();
    let fd = client.as_raw_fd() as usize as *mut c_void;
    // SAFETY: a thread that was not joined.
    let cancel = |thread| assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
    let result = run_thread(reads, fd, cancel);
    assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    server.write_all(b"x").unwrap();
    assert_eq!((&client).read(&mut [0]).unwrap(), 1);
}

/// close(2) is a point of cancellation, too: the connection is in the record, once.
#[test]
fn a_thread_is_cancelled_as_it_closes() {
    if !is_inside() {
        run_inside("processes::a_thread_is_cancelled_as_it_closes");
        return;
    }
    mod functions {
        use super::c_int;
        unsafe extern "C-unwind" {
            pub(super) fn close(fd: c_int) -> c_int;
        }
    }
    extern "C-unwind" fn closes(fd: *mut c_void) -> *mut c_void {
        // SAFETY: no preconditions.
        let this = unsafe { libc::pthread_self() };
        // SAFETY: the calling thread.
        unsafe { libc::pthread_cancel(this) };
        // SAFETY: a descriptor without another owner.
        unsafe { functions::close(fd as usize as c_int) };
        null_mut()
    }
    let ([mut client, _server], [here, there]) = connection();
    client.write_all(b"octets").unwrap();
    let result = run_thread(closes, client.into_raw_fd() as usize as *mut c_void, |_| {});
    assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    let lines = lines(&here, &there);
    assert_eq!((lines.len(), field(&lines[0], "sent")), (1, Some("6")), "{lines:?}");
    let record = std::env::var(LOG).unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    let left = open.filter_map(|fd| std::fs::read_link(fd).ok()).find(|it| it.ends_with(&record));
    assert_eq!(left, None, "the record stays open");
}

/// A call ends for a signal, or goes on, as the program asked.
#[test]
fn signals_interrupt_calls() {
    if !is_inside() {
        run_inside("processes::signals_interrupt_calls");
        return;
    }
    extern "C" fn handler(_signal: c_int) {}
    let install = |flags| {
        // SAFETY: all octets may be 0.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        (action.sa_sigaction, action.sa_flags) = (handler as *const () as usize, flags);
        // SAFETY: a handler that does nothing.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()) }, 0);
    };
    let ([client, mut server], _) = connection();
    // SAFETY: no preconditions.
    let this = unsafe { libc::pthread_self() };
    let read = |mut client: &TcpStream| client.read(&mut [0; 8]);
    for flags in [0, libc::SA_RESTART] {
        install(flags);
        let ended = std::sync::atomic::AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0.. {
                    // A call that goes on ends with octets, after some signals.
                    if round == 50 && flags != 0 {
                        server.write_all(b"x").unwrap();
                    }
                    if ended.load(std::sync::atomic::Ordering::Acquire) {
                        return;
                    }
                    // SAFETY: a thread that waits for this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                    std::thread::yield_now();
                }
            });
            let result = within("a call and signals", || read(&client));
            ended.store(true, std::sync::atomic::Ordering::Release);
            result
        });
        match flags {
            0 => assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINTR)),
            _ => assert_eq!(result.unwrap(), 1),
        }
    }
}
