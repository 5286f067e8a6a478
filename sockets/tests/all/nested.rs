//! A set of epoll(7) with a connection in shared memory, for which the program waits by other means than epoll_wait(2), or to which
//! a thread adds the connection while another waits.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use crate::support::{connection, is_inside, run_inside, without_rings};

const ROUNDS: usize = 400;
/// Longer than any delay.
const LIMIT: c_int = 20_000;

fn new_set() -> OwnedFd {
    // SAFETY: no memory.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    // SAFETY: made above.
    unsafe { OwnedFd::from_raw_fd(set) }
}

fn set_with(fd: c_int) -> OwnedFd {
    let set = new_set();
    add(&set, fd);
    set
}

fn add(set: &OwnedFd, fd: c_int) {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let (set, what) = (set.as_raw_fd(), libc::EPOLL_CTL_ADD);
    // SAFETY: an event.
    assert_eq!(unsafe { libc::epoll_ctl(set, what, fd, &raw mut event) }, 0);
}

fn epoll(set: c_int) -> c_int {
    wait_for(set, LIMIT)
}

/// How many events there are, which are of octets to read.
fn wait_for(set: c_int, limit: c_int) -> c_int {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for an event.
    let n = unsafe { libc::epoll_wait(set, &raw mut event, 1, limit) };
    let events = event.events;
    assert_eq!(events, if n > 0 { libc::EPOLLIN as u32 } else { 0 });
    n
}

fn poll(set: c_int) -> c_int {
    let mut one = libc::pollfd { fd: set, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut one, 1, LIMIT) }
}

fn select(set: c_int) -> c_int {
    // SAFETY: all octets may be 0.
    let mut read: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: a set, and a number below 1024.
    unsafe { libc::FD_SET(set, &raw mut read) };
    let mut limit = libc::timeval { tv_sec: (LIMIT / 1000).into(), tv_usec: 0 };
    // SAFETY: a set, and a time.
    unsafe { libc::select(set + 1, &raw mut read, null_mut(), null_mut(), &raw mut limit) }
}

#[test]
fn a_set_is_waited_for_by_other_means() {
    if !is_inside() {
        if !without_rings("nested::a_set_is_waited_for_by_other_means") {
            run_inside("nested::a_set_is_waited_for_by_other_means");
        }
        return;
    }
    for way in [poll, select, |inner| epoll(set_with(inner).as_raw_fd())] {
        let ([client, mut server], _) = connection();
        let inner = set_with(server.as_raw_fd());
        let client = std::thread::spawn(move || echo(client));
        for round in 0..ROUNDS {
            server.write_all(b"x").unwrap();
            // After a wait of the set itself its connections may still be looked at.
            let wait = if round % 2 == 0 { epoll } else { way };
            assert_eq!(wait(inner.as_raw_fd()), 1, "round {round}");
            server.read_exact(&mut [0]).unwrap();
        }
        drop(server);
        client.join().unwrap();
    }
}

fn echo(mut client: TcpStream) {
    let mut octet = [0];
    while client.read_exact(&mut octet).is_ok() {
        client.write_all(&octet).unwrap();
    }
}

/// The octets of a connection that a thread adds may be in the ring already, and the kernel knows nothing of them.
#[test]
fn a_thread_that_waits_gets_a_connection_of_another() {
    if !is_inside() {
        if !without_rings("nested::a_thread_that_waits_gets_a_connection_of_another") {
            run_inside("nested::a_thread_that_waits_gets_a_connection_of_another");
        }
        return;
    }
    for round in 0..ROUNDS / 10 {
        let ([mut client, mut server], _) = connection();
        for _ in 0..10 {
            client.write_all(b"there").unwrap();
            server.read_exact(&mut [0; 5]).unwrap();
            server.write_all(b"back").unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
        }
        let set = new_set();
        client.write_all(b"waits").unwrap();
        let waits = set.as_raw_fd();
        let waiter = std::thread::spawn(move || epoll(waits));
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        add(&set, server.as_raw_fd());
        assert_eq!(waiter.join().unwrap(), 1, "round {round}");
        server.read_exact(&mut [0; 5]).unwrap();
        // Nothing is left of what has woken the thread.
        assert_eq!(wait_for(set.as_raw_fd(), 0), 0);
    }
}
