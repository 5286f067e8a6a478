//! Tests of closing what a stranger has sent.
#![cfg(not(miri))] // which has no sockets
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use kal_os::discard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair, sockopt,
};

/// Longer than any bound of the test.
const LINGER: Duration = Duration::from_secs(60);

/// A socket with a message that was not received: in it the last reference to a TCP connection that lingers, with octets
/// that its peer does not read. Returns the socket's other end and that peer, too.
fn bomb() -> (OwnedFd, OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    lingers.set_nonblocking(true).unwrap();
    while lingers.write(&[0; 1 << 16]).is_ok() {}
    sockopt::set_socket_linger(&lingers, Some(LINGER)).unwrap();
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (near, far) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    let fds = [lingers.as_fd()];
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut room);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&near, &[IoSlice::new(b"16 octets, or so")], &mut beside, SendFlags::empty()).unwrap();
    (far, near, peer)
}

/// Threads that close.
fn closing() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |thread: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap_or_default()
    };
    threads.map(name).filter(|name| name.trim() == "warpline-close").count()
}

#[test]
fn what_lingers_is_closed_and_no_thread_waits() {
    let (filled, other_end, _peer) = bomb();
    let begun = Instant::now();
    discard(filled);
    assert!(begun.elapsed() < LINGER / 4, "the caller waited");
    // The last close has begun.
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::new(&other_end, PollFlags::empty())], Some(&patience)).unwrap();
    while closing() != 0 {
        assert!(begun.elapsed() < LINGER / 2, "a thread waits");
        std::thread::yield_now();
    }
    // The descriptors of the other threads are still open.
    assert!(TcpListener::bind("127.0.0.1:0").is_ok());
}
