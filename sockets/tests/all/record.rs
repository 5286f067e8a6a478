//! The record: what the lines tell, and that it changes nothing for the program.

use std::ffi::c_int;
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

use crate::support::{
    LOG, TempFile, connection, field, inside, is_inside, lines, run_inside, run_inside_with,
};

/// What the line about an end has in a field.
fn told(names: &[String; 2], name: &str) -> String {
    let lines = lines(&names[0], &names[1]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    field(&lines[0], name).unwrap_or_else(|| panic!("{name}: {lines:?}")).to_owned()
}

#[test]
fn what_shared_memory_cannot_carry_is_named() {
    if !is_inside() {
        run_inside_with("record::what_shared_memory_cannot_carry_is_named", "tcp");
        return;
    }
    let long = [7; 70_000];
    let ([mut client, server], names) = connection();
    let reader = std::thread::spawn(move || {
        let mut server = server;
        std::io::copy(&mut server, &mut std::io::sink()).unwrap()
    });
    client.write_all(&long).unwrap();
    drop(client);
    assert_eq!(reader.join().unwrap(), 70_000);
    assert_eq!(told(&names, "obstacles"), "-");
    assert_eq!(told(&names, "carried"), "tcp");
    let calls = told(&names, "calls");
    assert!(calls.split(',').any(|call| call == "socket") && calls.contains("connect"), "{calls}");

    let ([mut client, _server], names) = connection();
    client.write_all(b"few").unwrap();
    drop(client);
    assert_eq!(told(&names, "obstacles"), "too-short");

    // A stream of the C library, which closes its descriptor by itself.
    let ([mut client, _server], names) = connection();
    client.write_all(&long[..10]).unwrap();
    let fd = client.into_raw_fd();
    // SAFETY: a descriptor that nobody else uses.
    let stream = unsafe { libc::fdopen(fd, c"w".as_ptr()) };
    // SAFETY: the stream made above.
    assert_eq!(unsafe { libc::fclose(stream) }, 0);
    assert_eq!(told(&names, "obstacles"), "too-short,stdio");

    // A descriptor for another process.
    let ([mut client, _server], names) = connection();
    client.write_all(&long[..10]).unwrap();
    pass(client.as_raw_fd());
    drop(client);
    assert_eq!(told(&names, "obstacles"), "too-short,passed");

    // From now on the program may use any connection unseen.
    let mut parameters = [0_u64; 15];
    // SAFETY: room for the parameters (io_uring_setup(2)).
    let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if made >= 0 {
        let ([mut client, _server], names) = connection();
        client.write_all(&long[..10]).unwrap();
        drop(client);
        assert_eq!(told(&names, "obstacles"), "too-short,io_uring");
    }
}

/// Sends a descriptor to this process.
pub(crate) fn pass(fd: c_int) {
    let (here, _there) = UnixStream::pair().unwrap();
    let octets = [IoSlice::new(b"x")];
    let mut control = [0_u64; 3];
    // SAFETY: all octets may be 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = octets.as_ptr().cast_mut().cast();
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: a message with room for one header.
    let place = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: that room.
    let header = unsafe { &mut *place };
    header.cmsg_level = libc::SOL_SOCKET;
    header.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: computes a length.
    header.cmsg_len = unsafe { libc::CMSG_LEN(4) } as _;
    // SAFETY: a header.
    let data = unsafe { libc::CMSG_DATA(place) };
    // SAFETY: room for a descriptor.
    unsafe { data.cast::<c_int>().write_unaligned(fd) };
    // SAFETY: a whole message.
    assert_eq!(unsafe { libc::sendmsg(here.as_raw_fd(), &raw const message, 0) }, 1);
}

/// A connection that another descriptor replaces is closed: the line is written before, while the kernel can tell.
#[test]
fn a_replaced_connection_is_recorded() {
    if !is_inside() {
        run_inside("record::a_replaced_connection_is_recorded");
        return;
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    for how in 0..3 {
        let ([mut client, _server], names) = connection();
        client.write_all(b"octets").unwrap();
        let (from, to) = (file.as_raw_fd(), client.as_raw_fd());
        // SAFETY: descriptors of this test.
        let refused = unsafe { libc::dup2(-1, to) };
        assert_eq!((refused, lines(&names[0], &names[1]).len()), (-1, 0));
        let done = match how {
            // SAFETY: the same.
            0 => unsafe { libc::dup2(from, to) },
            // SAFETY: the same.
            1 => unsafe { libc::dup3(from, to, libc::O_CLOEXEC) },
            // SAFETY: the same.
            _ => unsafe { libc::syscall(libc::SYS_dup3, from, to, 0) as c_int },
        };
        assert_eq!(done, to);
        assert_eq!(told(&names, "other"), "0+0");
        drop(client);
        assert_eq!(told(&names, "sent"), "6");
    }
}

/// The number of the next descriptor.
fn next_number() -> c_int {
    std::fs::File::open("/dev/null").unwrap().as_raw_fd()
}

#[test]
fn descriptors_have_the_numbers_that_they_have_without_it() {
    let begin = next_number();
    if !is_inside() {
        let log = TempFile::new();
        let test = "record::descriptors_have_the_numbers_that_they_have_without_it";
        let mut plain = inside(test, &log);
        plain.env_remove("LD_PRELOAD");
        let [with, without] = [inside(test, &log), plain].map(|mut command| {
            // Of tests that run beside this one.
            let leave = || {
                // SAFETY: closes at exec what other threads have opened, and which the child does not use.
                unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) };
                Ok(())
            };
            // SAFETY: one system call.
            unsafe { command.pre_exec(leave) };
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            let begin = text.lines().find_map(|line| line.split_once("first number: "));
            begin.unwrap().1.to_owned()
        });
        assert_eq!(with, without);
        return;
    }
    println!("first number: {begin}");
    let ([mut client, server], _) = connection();
    client.write_all(b"octets").unwrap();
    drop((client, server));
    assert_eq!(next_number(), begin, "closed, and written to the record");
}

/// Without a place for it, a program runs as ever, and standard error tells.
#[test]
fn a_record_that_cannot_be_written_does_no_harm() {
    if is_inside() {
        let ([mut client, server], _) = connection();
        client.write_all(b"octets").unwrap();
        let [first, last] = [client, server].map(|end| end.into_raw_fd() as u32);
        // SAFETY: two descriptors that follow each other and have no other owner.
        assert_eq!(unsafe { libc::close_range(first, last, 0) }, 0);
        return;
    }
    let log = TempFile::new();
    let test = "record::a_record_that_cannot_be_written_does_no_harm";
    let places = [
        (None, None),
        (Some(""), Some("there is no such file")),
        (Some("/nowhere/at/all"), Some("there is no such file")),
        (Some("/dev/full"), Some("no space left")),
        (Some("/proc/self/fd"), Some("it is a directory")),
    ];
    for (place, reason) in places {
        let mut command = inside(test, &log);
        match place {
            Some(place) => command.env(LOG, place),
            None => command.env_remove(LOG),
        };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{place:?}: {output:?}");
        let error = String::from_utf8(output.stderr).unwrap();
        // Once, of two lines.
        let told = error.lines().filter(|line| line.starts_with("warpline: the record "));
        let told: Vec<_> = told.filter_map(|line| line.rsplit(": ").next()).collect();
        assert_eq!(told, Vec::from_iter(reason), "{error}");
    }
    assert_eq!(log.text(), "");
}
