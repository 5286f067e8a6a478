//! Tests of faults that only streams through shared memory have. The other tests cover the rest with
//! `WARPLINE_TEST_LOCAL` set.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use common::*;
use vp_api::*;

const RING: u32 = 64 << 10;
/// Offsets of the words in the first page: positions of the ring that the creator writes, and of the other.
const TAILS: [u64; 2] = [128, 128 + 512];
const HEADS: [u64; 2] = [256, 256 + 512];

fn params(role: Role) -> StreamParams {
    let mut params = StreamParams::new(role);
    params.crc = false;
    params
}

/// An end, the TCP connection's other end, and the memory, of which the test plays the peer's half.
fn alone() -> (End, TcpStream, OwnedFd, LocalStream) {
    let end = End::new(|_| {});
    let (near, far) = sockets();
    let (mine, peers) = local_pair(RING);
    let memory = mine.memory.try_clone().unwrap();
    end.rts_with(near, params(Role::Initiator), Some(mine));
    (end, far, memory, peers)
}

fn put(memory: &OwnedFd, at: u64, word: u32) {
    assert_eq!(rustix::io::pwrite(memory, &word.to_ne_bytes(), at), Ok(4));
}

fn ring(peers: &LocalStream) {
    kal_os::ring(&peers.peer_doorbell);
}

/// How its stream ended.
fn end_of(end: &End) -> AsyncEvent {
    loop {
        match end.event() {
            AsyncEvent::Established => {}
            event => return event,
        }
    }
}

/// All posted work completes, flushed.
fn flushes(end: &End, requests: u64) {
    for _ in 0..requests {
        assert_eq!(end.complete().status, WcStatus::Flushed);
    }
}

#[test]
fn a_query_reports_what_carries_the_octets() {
    let ends = [End::new(|_| {}), End::new(|_| {})];
    let [near, far] = &ends;
    let ((a, b), (mine, peers)) = (sockets(), local_pair(RING));
    far.rts_with(b, params(Role::Responder), Some(peers));
    near.rts_with(a, params(Role::Initiator), Some(mine));
    let (source, sink) =
        (near.region(Buffer::pattern(300_000, 1)), far.region(Buffer::new(300_000)));
    far.recv(1, &[sink.all()]);
    near.post(2, SEND, &[source.all()]);
    near.done(2);
    far.done(1);
    assert!(sink.buffer.read(0, 300_000) == pattern(300_000, 1));
    for end in &ends {
        assert_eq!(end.qp.query().unwrap().carrier, Carrier::Local);
    }
    near.qp.modify(QpChange::Closing).unwrap();
    for end in &ends {
        assert_eq!(end.event(), AsyncEvent::Established);
        assert_eq!(end.event(), AsyncEvent::CloseComplete);
        assert_eq!(end.qp.query().unwrap().carrier, Carrier::Local);
    }
}

#[test]
fn positions_that_cannot_be_reset_the_stream() {
    for (at, word) in
        [(TAILS[1], RING + 1), (TAILS[1], u32::MAX), (HEADS[0], 1 << 20), (HEADS[0], u32::MAX)]
    {
        let (end, _far, memory, peers) = alone();
        let region = end.region(Buffer::new(64));
        end.recv(1, &[region.all()]);
        put(&memory, at, word);
        ring(&peers);
        end.qp
            .post_send(&[SendWr {
                wr_id: 2,
                op: SEND,
                data: Data::Sgl(&[region.all()]),
                flags: SendFlags::SIGNALED,
            }])
            .unwrap();
        // With a full ring it reads the head.
        for wr_id in 3..60 {
            let large = end.region(Buffer::new(4 << 10));
            let wr = SendWr {
                wr_id,
                op: SEND,
                data: Data::Sgl(&[large.all()]),
                flags: SendFlags::empty(),
            };
            if end.qp.post_send(&[wr]).is_err() {
                break;
            }
        }
        assert_eq!(end_of(&end), AsyncEvent::ConnectionReset, "{at} {word}");
        let info = end.qp.query().unwrap();
        assert_eq!((info.carrier, info.state), (Carrier::LocalCorrupt, QpState::Error));
        assert_eq!((info.sends_outstanding, info.recvs_outstanding), (0, 0));
    }
}

#[test]
fn octets_by_tcp_end_the_stream_in_a_terminate() {
    let (end, mut far, _memory, _peers) = alone();
    let region = end.region(Buffer::new(64));
    end.recv(1, &[region.all()]);
    far.write_all(b"stray").unwrap();
    match end_of(&end) {
        AsyncEvent::TerminateSent(t) => assert_eq!((t.layer, t.etype, t.code), (2, 0, 3)),
        other => panic!("{other:?}"),
    }
    flushes(&end, 1);
}

/// What the peer wrote before its end is read, and then the end; whether it ended well, was killed, or reset.
#[test]
fn the_end_of_the_life_line_ends_the_stream_after_its_octets() {
    for resets in [false, true] {
        let far = End::new(|_| {});
        let (a, b) = sockets();
        let (mine, peers) = local_pair(RING);
        far.rts_with(b, params(Role::Responder), Some(peers));
        // A peer that writes one Send into its half of the memory.
        let near = End::new(|_| {});
        let control = a.try_clone().unwrap();
        near.rts_with(a, params(Role::Initiator), Some(mine));
        let (source, sink) = (near.region(Buffer::pattern(9000, 1)), far.region(Buffer::new(9000)));
        far.recv(1, &[sink.all()]);
        far.recv(2, &[sink.all()]);
        near.post(3, SEND, &[source.all()]);
        near.done(3);
        if resets {
            drop(control);
            near.qp.modify(QpChange::Error).unwrap();
        } else {
            // As the kernel does for a process that ends.
            control.shutdown(Shutdown::Both).unwrap();
        }
        far.done(1);
        assert!(sink.buffer.read(0, 9000) == pattern(9000, 1));
        assert_eq!(far.complete().status, WcStatus::Flushed);
        // Nothing was under way but a receive.
        let expected = if resets { AsyncEvent::ConnectionReset } else { AsyncEvent::CloseComplete };
        assert_eq!(end_of(&far), expected);
    }
}

#[test]
fn a_local_stream_begins_without_octets_by_tcp_but_the_last_message() {
    use std::io::Read;
    let end = End::new(|_| {});
    let (near, mut far) = sockets();
    let (local, _peers) = local_pair(RING);
    let stream = LlpStream {
        socket: near.into(),
        received: Vec::new(),
        last_message: b"reply".to_vec(),
        params: params(Role::Responder),
        local: Some(local),
    };
    end.qp.modify(QpChange::Rts(Box::new(stream))).unwrap();
    let mut reply = [0; 5];
    far.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"reply");

    let end = End::new(|_| {});
    let (near, _far) = sockets();
    let (local, _peers) = local_pair(RING);
    let stream = LlpStream {
        socket: near.into(),
        received: vec![1],
        last_message: Vec::new(),
        params: params(Role::Responder),
        local: Some(local),
    };
    let error = end.qp.modify(QpChange::Rts(Box::new(stream))).unwrap_err();
    assert_eq!(error.status, VpStatus::InvalidStream);
}

#[test]
fn memory_that_is_none_is_refused() {
    let end = End::new(|_| {});
    let (near, _far) = sockets();
    let (mut local, _peers) = local_pair(RING);
    local.memory = std::fs::File::open("/dev/null").unwrap().into();
    let stream = LlpStream {
        socket: near.into(),
        received: Vec::new(),
        last_message: Vec::new(),
        params: params(Role::Responder),
        local: Some(local),
    };
    let error = end.qp.modify(QpChange::Rts(Box::new(stream))).unwrap_err();
    assert_eq!(error.status, VpStatus::InvalidStream);
    assert!(error.to_string().contains("memfd"), "{error}");
}
