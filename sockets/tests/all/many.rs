//! Many connections: threads that use them at once, and more than the table has room for.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};

use warpline_skip::skip;

use crate::support::{LOG, connection, field, is_inside, lines, run_inside};

const THREADS: usize = 4;
const CONNECTIONS: usize = 500;

/// Threads make, duplicate, use and close connections, with the same numbers again and again.
#[test]
fn threads_use_connections_at_once() {
    if !is_inside() {
        run_inside("many::threads_use_connections_at_once");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = |thread: usize| {
        for round in 0..CONNECTIONS {
            let mut client = TcpStream::connect(address).unwrap();
            let octets = vec![thread as u8; 1 + round % 50];
            client.write_all(&octets).unwrap();
            let mut copy = client.try_clone().unwrap();
            drop(client);
            copy.shutdown(std::net::Shutdown::Write).unwrap();
            let mut reply = Vec::new();
            copy.read_to_end(&mut reply).unwrap();
            assert_eq!(reply, octets);
        }
    };
    let server = || {
        for _ in 0..CONNECTIONS {
            let (mut server, _) = listener.accept().unwrap();
            let mut octets = Vec::new();
            server.read_to_end(&mut octets).unwrap();
            server.write_all(&octets).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || client(thread));
            scope.spawn(server);
        }
    });
    let text = std::fs::read_to_string(std::env::var(LOG).unwrap()).unwrap();
    let mut sums: BTreeMap<bool, [u64; 3]> = BTreeMap::new();
    let address = address.to_string();
    for line in text.lines() {
        let value = |name| field(line, name).unwrap();
        assert!(["?", "0+0"].contains(&value("other")), "{line}");
        let sum = sums.entry(value("local") == address).or_default();
        sum[0] += 1;
        sum[1] += value("sent").parse::<u64>().unwrap();
        sum[2] += value("received").parse::<u64>().unwrap();
    }
    let octets = (0..CONNECTIONS).map(|round| 1 + round as u64 % 50).sum::<u64>() * THREADS as u64;
    let all = [(THREADS * CONNECTIONS) as u64, octets, octets];
    assert_eq!(sums, BTreeMap::from([(false, all), (true, all)]));
}

/// A descriptor whose number is beyond the table works, and is counted.
#[test]
fn descriptors_beyond_the_table_are_counted() {
    if !is_inside() {
        let record = run_inside("many::descriptors_beyond_the_table_are_counted");
        let missed: Vec<_> =
            record.lines().filter_map(|line| field(line, "not-followed")).collect();
        assert!(missed == ["1"] || record.is_empty(), "{record}");
        return;
    }
    const BEYOND: i32 = 1 << 16;
    if !may_have_descriptors(70_000) {
        return skip("descriptors_beyond_the_table_are_counted", "not so many descriptors");
    }
    let ([client, mut server], _) = connection();
    // SAFETY: no memory.
    let copy = unsafe { libc::fcntl(client.as_raw_fd(), libc::F_DUPFD, BEYOND) };
    assert!(copy >= BEYOND);
    // SAFETY: one octet.
    assert_eq!(unsafe { libc::write(copy, b"x".as_ptr().cast(), 1) }, 1);
    server.read_exact(&mut [0]).unwrap();
    // SAFETY: a descriptor of this test.
    assert_eq!(unsafe { libc::close(copy) }, 0);
}

fn may_have_descriptors(number: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: number, rlim_max: number };
    // SAFETY: a limit.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0 }
}

/// When the table is full further connections are not followed, and work; later ones are followed again.
#[test]
fn a_full_table_has_room_again() {
    const ROOM: usize = 1 << 14;
    if !is_inside() {
        let record = run_inside("many::a_full_table_has_room_again");
        let missed: Vec<_> =
            record.lines().filter_map(|line| field(line, "not-followed")).collect();
        assert!(missed == ["100"] || record.is_empty(), "{missed:?}");
        return;
    }
    if !may_have_descriptors(20_000) {
        return skip("a_full_table_has_room_again", "not so many descriptors");
    }
    let socket = || {
        // SAFETY: no memory.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
        assert!(fd >= 0);
        // SAFETY: a new descriptor without another owner.
        unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) }
    };
    let all: Vec<_> = (0..ROOM + 100).map(|_| socket()).collect();
    drop(all);
    let ([mut client, mut server], names) = connection();
    client.write_all(b"later").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    drop((client, server));
    assert_eq!(lines(&names[0], &names[1]).len(), 1);
}
