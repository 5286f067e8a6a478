//! Octets by TCP that are lost with a reset, before others that are in shared memory.

use std::ffi::c_int;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use warpline_patience::within;

use crate::passed::talk;
use crate::support::{connection, is_inside, run_inside, without_rings};

/// Looks at the next octet, as recv(2) with `MSG_PEEK`.
fn peek(stream: &TcpStream) -> isize {
    // SAFETY: room for an octet.
    unsafe { libc::recv(stream.as_raw_fd(), [0_u8; 1].as_mut_ptr().cast(), 1, libc::MSG_PEEK) }
}

fn reset(stream: TcpStream) {
    let (value, len) = (libc::linger { l_onoff: 1, l_linger: 0 }, size_of::<libc::linger>() as u32);
    let (level, name): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_LINGER);
    // SAFETY: a value of this option.
    let done = unsafe {
        libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    assert_eq!(done, 0);
}

#[test]
fn a_look_at_lost_octets_ends() {
    if !is_inside() {
        if !without_rings("lost::a_look_at_lost_octets_ends") {
            run_inside("lost::a_look_at_lost_octets_ends");
        }
        return;
    }
    let (mut ends, _) = connection();
    talk(&mut ends);
    let [mut client, mut server] = ends;
    for end in [&client, &server] {
        end.set_nonblocking(true).unwrap();
    }
    // More than the kernel holds at the other end.
    while client.write(&[1; 100_000]).is_ok() {}
    // Behind the ring, where the reader looks at the ring again.
    let mut room = vec![0; 300_000];
    server.read_exact(&mut room).unwrap();
    assert!(server.read(&mut room[..1000]).unwrap() > 0);
    let _ = client.write(b"by the ring");
    reset(client);
    within("the end of the stream", || {
        while peek(&server) > 0 {
            assert!(server.read(&mut room).unwrap() > 0);
        }
    });
}
