//! Connections with shared memory that another process gets: by fork(2), by SCM_RIGHTS, by exec, by posix_spawn(3). It reads and
//! writes them by TCP, or by the memory that it shares with its parent; all octets arrive, in order.

use std::ffi::{c_int, c_void};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use warpline_patience::within;

use crate::support::{connection, field, is_inside, lines, run_inside, without_rings};

/// Moves some octets there and back, so that the ends share memory.
pub(crate) fn talk([client, server]: &mut [TcpStream; 2]) {
    for round in 0..40_u8 {
        client.write_all(&[round; 100]).unwrap();
        expect(server, &[round; 100]);
        server.write_all(&[round; 50]).unwrap();
        expect(client, &[round; 50]);
    }
}

fn expect(stream: &mut TcpStream, octets: &[u8]) {
    let mut room = vec![0; octets.len()];
    stream.read_exact(&mut room).unwrap();
    assert!(room == octets, "{:?} and not {:?}", &room[..1], &octets[..1]);
}

fn fork() -> c_int {
    // SAFETY: this test has one thread that does anything.
    unsafe { libc::fork() }
}

/// Whether a child has succeeded.
fn wait(child: c_int) -> bool {
    let mut status = -1;
    // SAFETY: room for a status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// Ends a child.
fn leave(right: bool) -> ! {
    // SAFETY: nothing to be dropped.
    unsafe { libc::_exit(c_int::from(!right)) }
}

#[test]
fn a_child_reads_what_its_parent_left_in_the_ring() {
    if !is_inside() {
        if !without_rings("passed::a_child_reads_what_its_parent_left_in_the_ring") {
            run_inside("passed::a_child_reads_what_its_parent_left_in_the_ring");
        }
        return;
    }
    let (mut ends, names) = connection();
    talk(&mut ends);
    let [client, server] = &mut ends;
    client.write_all(b"for the child").unwrap();
    let child = fork();
    if child == 0 {
        let done = std::panic::catch_unwind(|| {
            let mut server: &TcpStream = server;
            let mut room = [0; 13];
            server.read_exact(&mut room).unwrap();
            assert_eq!(&room, b"for the child");
            server.write_all(b"from the child").unwrap();
        });
        leave(done.is_ok());
    }
    expect(client, b"from the child");
    assert!(wait(child));
    talk(&mut ends);
    let [client, server] = ends;
    drop((client, server));
    let lines = lines(&names[0], &names[1]);
    assert!(lines.iter().any(|line| field(line, "carried") == Some("ring")), "{lines:?}");
}

#[test]
fn a_passed_connection_goes_on_by_tcp() {
    if !is_inside() {
        if !without_rings("passed::a_passed_connection_goes_on_by_tcp") {
            run_inside("passed::a_passed_connection_goes_on_by_tcp");
        }
        return;
    }
    let (mut ends, names) = connection();
    talk(&mut ends);
    let [mut client, server] = ends;
    crate::record::pass(server.as_raw_fd());
    // SAFETY: as another process would have it, which knows nothing of the ring: a system call.
    let copy = unsafe { copy(server.as_raw_fd()) };
    client.write_all(b"by TCP").unwrap();
    let mut room = [0_u8; 6];
    let at = room.as_mut_ptr();
    let n = crate::lane::Lane::Kernel.read(copy, at.cast(), 6);
    assert_eq!((n, &room), (6, b"by TCP"));
    drop((client, server));
    let line = lines(&names[0], &names[1]).pop().unwrap();
    assert_eq!((field(&line, "carried"), field(&line, "reset")), (Some("ring"), None), "{line}");
    // SAFETY: made above.
    drop(unsafe { std::fs::File::from_raw_fd(copy) });
}

/// # Safety
/// A descriptor of this process.
unsafe fn copy(fd: c_int) -> c_int {
    crate::lane::Lane::Kernel.dup(fd) as c_int
}

#[test]
fn a_program_gets_the_connection_of_the_one_before() {
    if !is_inside() {
        if !without_rings("passed::a_program_gets_the_connection_of_the_one_before") {
            run_inside("passed::a_program_gets_the_connection_of_the_one_before");
        }
        return;
    }
    let (mut ends, names) = connection();
    talk(&mut ends);
    let [mut client, server] = ends;
    let fd = server.as_raw_fd();
    // SAFETY: a descriptor of this process stays open at exec.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let child = fork();
    if child == 0 {
        // Debian's sh knows no descriptors of two digits.
        let script = format!("head -c 5 <&{fd} >&{fd}");
        let error = Command::new("bash").args(["-c", &script]).exec();
        leave(error.raw_os_error().is_none());
    }
    client.write_all(b"shell").unwrap();
    assert!(wait(child));
    expect(&mut client, b"shell");
    drop((client, server));
    let line = lines(&names[0], &names[1]).pop().unwrap();
    assert_eq!((field(&line, "carried"), field(&line, "reset")), (Some("ring"), None), "{line}");
}

/// What another program sends back, to the end with these names; it goes by TCP, and nothing is lost.
fn echoes(client: &mut TcpStream, names: &[String; 2], succeeds: impl FnOnce() -> bool) {
    client.write_all(b"shell").unwrap();
    assert!(within("the other program", succeeds));
    expect(client, b"shell");
    let line = lines(&names[0], &names[1]);
    assert!(line.is_empty(), "still open: {line:?}");
}

#[test]
fn a_new_process_gets_a_connection_as_its_input() {
    if !is_inside() {
        if !without_rings("passed::a_new_process_gets_a_connection_as_its_input") {
            run_inside("passed::a_new_process_gets_a_connection_as_its_input");
        }
        return;
    }
    let (mut ends, names) = connection();
    talk(&mut ends);
    let [mut client, server] = ends;
    // By posix_spawn(3), which prepares the descriptors in the new process.
    let end = || Stdio::from(OwnedFd::from(server.try_clone().unwrap()));
    let mut other = Command::new("head");
    let mut other = other.args(["-c", "5"]).stdin(end()).stdout(end()).spawn().unwrap();
    echoes(&mut client, &names, || other.wait().unwrap().success());
}

#[test]
fn a_child_of_vfork_becomes_a_program_with_a_connection() {
    if !is_inside() {
        if !without_rings("passed::a_child_of_vfork_becomes_a_program_with_a_connection") {
            run_inside("passed::a_child_of_vfork_becomes_a_program_with_a_connection");
        }
        return;
    }
    extern "C" fn become_head(fd: *mut c_void) -> c_int {
        for to in [0, 1] {
            // SAFETY: descriptors of this process alone.
            unsafe { libc::dup2(fd as usize as c_int, to) };
        }
        let list = [c"head".as_ptr(), c"-c".as_ptr(), c"5".as_ptr(), std::ptr::null()];
        // SAFETY: a name, and a list that ends.
        unsafe { libc::execvp(list[0], list.as_ptr()) };
        // SAFETY: nothing to be dropped.
        unsafe { libc::_exit(1) };
    }
    let (mut ends, names) = connection();
    talk(&mut ends);
    let [mut client, server] = ends;
    let mut stack = vec![0_u64; 8192];
    let top = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let fd = server.as_raw_fd() as usize as *mut c_void;
    // SAFETY: this thread waits until the child is another program.
    let child = unsafe { libc::clone(become_head, top, flags, fd) };
    echoes(&mut client, &names, || wait(child));
}

/// Nobody reads what is in the ring: the next program must not read on behind it.
#[test]
fn no_program_reads_behind_octets_that_nobody_has_read() {
    if !is_inside() {
        if !without_rings("passed::no_program_reads_behind_octets_that_nobody_has_read") {
            run_inside("passed::no_program_reads_behind_octets_that_nobody_has_read");
        }
        return;
    }
    let (mut ends, _) = connection();
    talk(&mut ends);
    let [mut client, server] = ends;
    client.write_all(b"first").unwrap();
    let (mut output, input) = std::io::pipe().unwrap();
    let child = fork();
    if child == 0 {
        // SAFETY: descriptors of this process alone.
        unsafe { libc::dup2(server.as_raw_fd(), 0) };
        let error = Command::new("cat").stdout(input).exec();
        leave(error.raw_os_error().is_none());
    }
    drop(input);
    // Its dup2 was seen: octets come by TCP, those of the ring excepted.
    within("another program", || {
        while std::fs::read(format!("/proc/{child}/comm")).unwrap() != b"cat\n" {
            std::thread::yield_now();
        }
    });
    drop(server);
    let sent = client.write_all(b"second").is_ok();
    drop(client);
    let mut text = String::new();
    within("its output", || output.read_to_string(&mut text).unwrap());
    wait(child);
    assert!(text.is_empty() || sent && text == "firstsecond", "{text}");
}
