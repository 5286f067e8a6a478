//! Connections with shared memory that another process gets: by fork(2), by SCM_RIGHTS, by exec. It reads and writes them by TCP, or
//! by the memory that it shares with its parent; all octets arrive, in order.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::support::{connection, field, is_inside, lines, run_inside, without_rings};

/// Moves some octets there and back, so that the ends share memory.
fn talk([client, server]: &mut [TcpStream; 2]) {
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
