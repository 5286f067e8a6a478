//! Tests of a peer of a local stream that changes what both share of a doorbell, its flags and its counter, so that a thread
//! of the other end would wait in a system call.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::channel;

use common::*;
use rustix::fs::OFlags;
use vp_api::*;

const RING: u32 = 64 << 10;

/// linux/aio_abi.h, `struct iocb`: a read whose end is signalled to an eventfd.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    octets: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled: u32,
}

/// Adds 1 to an eventfd, also where write(2) would wait.
fn add_by_aio(eventfd: &OwnedFd) {
    const IOCB_FLAG_RESFD: u32 = 1;
    let (zeros, mut octet) = (std::fs::File::open("/dev/zero").unwrap(), [0u8; 1]);
    let mut context = 0u64;
    // SAFETY: there is room for the context.
    assert_eq!(unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) }, 0);
    let mut request = Request {
        file: zeros.as_raw_fd() as u32,
        buffer: octet.as_mut_ptr() as u64,
        octets: 1,
        flags: IOCB_FLAG_RESFD,
        signalled: eventfd.as_raw_fd() as u32,
        ..Request::default()
    };
    let requests = [&raw mut request];
    // SAFETY: one request, whose buffer lives until the context is destroyed.
    let sent = unsafe { libc::syscall(libc::SYS_io_submit, context, 1, requests.as_ptr()) };
    assert_eq!(sent, 1);
    // SAFETY: waits for the request; nobody uses the context.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
}

/// Brings the counter to 2^64 - 1, and has calls wait.
fn spoil(doorbell: &OwnedFd) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = rustix::fs::fcntl_getfl(doorbell).unwrap();
    rustix::fs::fcntl_setfl(doorbell, flags | OFlags::NONBLOCK).unwrap();
    for power in (0..64).rev() {
        let _ = rustix::io::write(doorbell, &(1u64 << power).to_ne_bytes());
    }
    add_by_aio(doorbell);
    rustix::fs::fcntl_setfl(doorbell, flags - OFlags::NONBLOCK).unwrap();
    // eventfd(2): at the maximum poll reports an error.
    let mut full = [PollFd::new(doorbell, PollFlags::OUT)];
    assert_eq!(poll(&mut full, Some(&Timespec::default())), Ok(1));
    assert!(full[0].revents().contains(PollFlags::ERR));
}

/// The memory of the peer, which the test plays.
struct Hostile {
    _socket: TcpStream,
    ring: shm_ring::End,
    bells: [OwnedFd; 2],
}

/// An end with a peer that sleeps, and whose doorbell is spoiled.
fn attacked(end: &End) -> Hostile {
    let ((near, socket), (mine, peers)) = (sockets(), local_pair(RING));
    let ring = shm_ring::End::map(&peers.memory, shm_ring::Side::Other).unwrap();
    let bells = [peers.doorbell, peers.peer_doorbell];
    bells.iter().for_each(spoil);
    assert!(!ring.fall_asleep(false, || ()).unwrap());
    let mut params = StreamParams::new(Role::Initiator);
    params.crc = false;
    end.rts_with(near, params, Some(mine));
    Hostile { _socket: socket, ring, bells }
}

#[test]
fn a_peer_cannot_have_an_end_wait_at_a_doorbell() {
    let (one, other) = (End::new(|_| {}), End::new(|_| {}));
    let hostile = attacked(&one);
    let third = End::on(one.rnic.clone(), CqInit { depth: 8, handler: None }, |_| {});
    let (done, posts) = channel();
    std::thread::spawn(move || {
        let source = one.region(Buffer::pattern(64, 1));
        // The application rings; then the engine does, which ends the stream for what it was sent.
        one.post(1, SEND, &[source.all()]);
        done.send(one).unwrap();
    });
    let one = posts.recv_timeout(HANG).expect("the post to return");
    hostile.ring.fall_asleep(false, || ()).unwrap();
    hostile.ring.write_slice(&[0xff; 4096], || ()).unwrap();
    kal_os::ring(&hostile.bells[1]);
    // The engine's thread serves others.
    let ((a, b), (mine, peers)) = (sockets(), local_pair(RING));
    let params = |role| StreamParams { crc: false, ..StreamParams::new(role) };
    other.rts_with(b, params(Role::Responder), Some(peers));
    third.rts_with(a, params(Role::Initiator), Some(mine));
    let (source, sink) = (third.region(Buffer::pattern(64, 3)), other.region(Buffer::new(64)));
    for wr_id in 0..100 {
        other.recv(wr_id, &[sink.all()]);
        third.post(wr_id, SEND, &[source.all()]);
        third.done(wr_id);
        other.done(wr_id);
    }
    one.qp.modify(QpChange::Error).unwrap();
    let _ = one.complete();
}
