//! Tests of hostile or failing peers of a local stream: one that writes anything anywhere in the shared memory
//! at any moment, dies, or is stopped. The other end continues, or ends with all its work completed.
//!
//! `WARPLINE_LOCAL_RUNS=1000` makes a long run; without it there are a few rounds.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use rustix::fs::FallocateFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags as NetFlags,
};
use rustix::process::Signal;
use vp_api::*;

const RING: u32 = 64 << 10;
const LEN: usize = 20_000;
const CHILD: &str = "WARPLINE_LOCAL_CHILD";
const PEER_ROLE: &str = "WARPLINE_LOCAL_CHILD_ROLE";

fn rounds(short: u64) -> u64 {
    std::env::var("WARPLINE_LOCAL_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// Parameters with time limits that a test can wait for.
fn params(role: Role) -> StreamParams {
    let mut params = StreamParams::new(role);
    params.crc = false;
    params.probe_after = Some(Duration::from_millis(100));
    params.close_timeout = Duration::from_millis(200);
    params
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Writes octets anywhere, often to the first page, where the positions are; takes pages away; tries to cut the
/// memory short.
fn scribble(memory: &OwnedFd, random: &mut Random) {
    let size = match random.below(3) {
        0 => 4096 + 2 * u64::from(RING),
        _ => 1152,
    };
    let word = match random.below(3) {
        0 => random.below(2 * u64::from(RING)),
        1 => random.next(),
        _ => random.below(3),
    };
    let octets = (word as u32).to_ne_bytes();
    match random.below(16) {
        0 => assert!(rustix::fs::ftruncate(memory, random.below(size)).is_err()),
        1 => {
            let page = random.below(1 + 2 * u64::from(RING) / 4096) * 4096;
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(memory, hole, page, 4096).unwrap();
        }
        2 => drop(rustix::io::pwrite(memory, &octets[..1], random.below(size)).unwrap()),
        _ => drop(rustix::io::pwrite(memory, &octets, random.below(size / 4) * 4).unwrap()),
    }
}

/// A message between two other queue pairs of the same adapters, through their own memory.
fn others_are_served(near: &End, far: &End) {
    let other = |end: &End| End::on(end.rnic.clone(), CqInit { depth: 8, handler: None }, |_| {});
    let (near, far) = (other(near), other(far));
    let ((a, b), (mine, peers)) = (sockets(), local_pair(RING));
    far.rts_with(b, params(Role::Responder), Some(peers));
    near.rts_with(a, params(Role::Initiator), Some(mine));
    let (source, sink) = (near.region(Buffer::pattern(LEN, 3)), far.region(Buffer::new(LEN)));
    far.recv(1, &[sink.all()]);
    near.post(2, SEND, &[source.all()]);
    near.done(2);
    far.done(1);
    assert!(sink.buffer.read(0, LEN) == pattern(LEN, 3));
}

/// Waits for the next completion; false if the stream ended gracefully, so that posted work stays for the next one.
fn completes(end: &End) -> bool {
    let mut out = [WorkCompletion::BLANK];
    let bound = warpline_patience::Bound::new("the request to complete");
    while end.cq.poll(&mut out).unwrap() == 0 {
        if end.state() == QpState::Idle {
            return false;
        }
        end.cq.wait(Duration::ZERO, Some(Duration::from_millis(50))).unwrap();
        bound.check();
    }
    true
}

/// Where a side that made the memory asks for room: the first ring's last word.
const STALLED: u64 = 512;

/// The request for room is then gone, and the peer does not ring again.
#[test]
fn a_bell_without_room_does_not_stop_a_sender() {
    let near = End::new(|_| {});
    let ((a, _socket), (mine, peers)) = (sockets(), local_pair(RING));
    let far = shm_ring::End::map(&peers.memory, shm_ring::Side::Other).unwrap();
    let bell = || {
        kal_os::ring(&peers.peer_doorbell);
    };
    // With time limits that are longer than the test's.
    near.rts_with(a, StreamParams::new(Role::Initiator), Some(mine));
    let source = near.region(Buffer::pattern(LEN, 1));
    (0..5).for_each(|wr_id| near.post(wr_id, SEND, &[source.all()]));
    let asks_for_room = || {
        let mut word = [0; 4];
        rustix::io::pread(&peers.memory, &mut word, STALLED).unwrap();
        u32::from_ne_bytes(word) != 0
    };
    let wait = |what, until: &dyn Fn() -> bool| {
        let bound = warpline_patience::Bound::new(what);
        while !until() {
            bound.check();
            std::thread::yield_now();
        }
    };
    wait("the ring to be full", &|| far.octets().unwrap() == RING && asks_for_room());
    rustix::io::pwrite(&peers.memory, &[0; 4], STALLED).unwrap();
    bell();
    wait("the sender to ask again", &asks_for_room);
    let octets = std::cell::Cell::new(0);
    wait("the rest", &|| {
        octets.set(octets.get() + far.read_slice(&mut [0; 4096], bell).unwrap());
        octets.get() >= 5 * LEN
    });
    for wr_id in 0..5 {
        near.done(wr_id);
    }
}

#[test]
fn memory_that_is_overwritten_damages_nothing_else() {
    for round in 1..=rounds(12) {
        let ends = [End::new(|_| {}), End::new(|_| {})];
        let [near, far] = &ends;
        let ((a, b), (mine, peers)) = (sockets(), local_pair(RING));
        let memory = mine.memory.try_clone().unwrap();
        far.rts_with(b, params(Role::Responder), Some(peers));
        near.rts_with(a, params(Role::Initiator), Some(mine));
        let source = near.region(Buffer::pattern(LEN, 1));
        let sink = far.region(Buffer::new(LEN));
        let unseen = [far, near].map(|end| end.region_with(Buffer::pattern(LEN, 7), Access::LOCAL));
        let receives = far.qp.query().unwrap().recv_depth;
        for wr_id in 0..receives.into() {
            far.recv(wr_id, &[sink.all()]);
        }
        let over = AtomicBool::new(false);
        let mut random = Random(round);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(round + 1_000_000);
                while !over.load(Ordering::Relaxed) {
                    scribble(&memory, &mut random);
                    std::thread::yield_now();
                }
            });
            let mut posted = 0;
            for wr_id in 0..200 {
                let len = random.below(LEN as u64) as usize;
                let op = match random.below(3) {
                    0 => SEND,
                    1 => SendOp::Write { remote: sink.remote(0) },
                    _ => SendOp::Read { remote: sink.remote(0), invalidate_sink: false },
                };
                let sgl = [source.sge(0, len)];
                let wr = SendWr { wr_id, op, data: Data::Sgl(&sgl), flags: SendFlags::SIGNALED };
                if near.qp.post_send(&[wr]).is_err() {
                    break;
                }
                posted += 1;
                if !completes(near) {
                    break;
                }
                posted -= 1;
            }
            others_are_served(near, far);
            for end in &ends {
                // It may be there already.
                let _ = end.qp.modify(QpChange::Error);
            }
            (0..posted).for_each(|_| _ = near.complete());
            for _ in 0..receives {
                far.complete();
            }
            over.store(true, Ordering::Relaxed);
        });
        for memory in unseen {
            assert!(memory.buffer.read(0, LEN) == pattern(LEN, 7), "round {round}");
        }
    }
}

/// This program again, as the other end of a local stream, which it gets through its standard input.
struct Peer(Child);

impl Peer {
    fn start(local: &LocalStream, address: &str, role: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plays_the_peer"])
            .env(CHILD, address)
            .env(PEER_ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let fds = [&local.memory, &local.doorbell, &local.peer_doorbell].map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let octets = [IoSlice::new(b"x")];
        rustix::net::sendmsg(&ours, &octets, &mut control, NetFlags::empty()).unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test but the child of those below: sends, or receives, until it is killed.
#[test]
fn plays_the_peer() {
    let Ok(address) = std::env::var(CHILD) else { return };
    let stdin = std::io::stdin();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octet = [0];
    let mut octets = [IoSliceMut::new(&mut octet)];
    rustix::net::recvmsg(&stdin, &mut octets, &mut control, RecvFlags::empty()).unwrap();
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect(),
        _ => Vec::new(),
    });
    let mut fd = || fds.next().unwrap();
    let (memory, doorbell, peer_doorbell) = (fd(), fd(), fd());
    let local = LocalStream { memory, side: LocalSide::Other, doorbell, peer_doorbell };
    let end = End::new(|_| {});
    let source = end.region(Buffer::pattern(LEN, 1));
    let mut socket = TcpStream::connect(address).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    let receives = std::env::var(PEER_ROLE).as_deref() == Ok("receives");
    if receives {
        (0..32).for_each(|_| end.recv(1, &[source.all()]));
    }
    end.rts_with(socket, params(Role::Initiator), Some(local));
    // The first message is the initiator's.
    end.post(1, SEND, &[source.sge(0, 1)]);
    loop {
        if receives {
            if end.complete().opcode == WcOpcode::Recv {
                end.recv(1, &[source.all()]);
            }
            continue;
        }
        end.post(1, SEND, &[source.all()]);
        end.done(1);
    }
}

/// An end whose peer is a process of its own, `receives` or `sends`; its first message has arrived.
fn with_a_peer(role: &str) -> (End, Peer, Region, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mine, theirs) = local_pair(RING);
    let peer = Peer::start(&theirs, &listener.local_addr().unwrap().to_string(), role);
    let end = End::new(|_| {});
    let sink = end.region(Buffer::new(LEN));
    let receives = u64::from(end.qp.query().unwrap().recv_depth);
    (0..receives).for_each(|wr_id| end.recv(wr_id, &[sink.all()]));
    let (mut socket, _) = listener.accept().unwrap();
    socket.write_all(&[0]).unwrap();
    end.rts_with(socket, params(Role::Responder), Some(mine));
    assert_eq!(end.done(0).octets, 1);
    (end, peer, sink, receives - 1)
}

/// All work completes, except what was posted after an orderly end, which stays for the next stream; messages that
/// completed with success are whole. Returns the stream's end.
fn ends(end: &End, mut left: u64) -> AsyncEvent {
    let mut out = [WorkCompletion::BLANK];
    let bound = warpline_patience::Bound::new("everything posted to complete");
    while left > 0 {
        let info = end.qp.query().unwrap();
        if end.cq.poll(&mut out).unwrap() == 1 {
            left -= 1;
            if out[0].status == WcStatus::Success && out[0].opcode == WcOpcode::Recv {
                assert_eq!(out[0].octets as usize, LEN);
            }
            continue;
        }
        if info.state == QpState::Idle {
            assert_eq!((info.sends_outstanding, info.recvs_outstanding), (left as u32, 0));
            break;
        }
        end.cq.wait(Duration::ZERO, Some(Duration::from_millis(20))).unwrap();
        bound.check();
    }
    assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Ok(0));
    loop {
        match end.event() {
            AsyncEvent::Established => {}
            event => return event,
        }
    }
}

/// The peer sends, and gets a signal behind some messages.
fn who_sends(round: u64, signal: Signal) -> AsyncEvent {
    let (end, peer, sink, receives) = with_a_peer("sends");
    let before = round % 7;
    (0..before).for_each(|_| assert_eq!(end.complete().status, WcStatus::Success));
    assert!(before == 0 || sink.buffer.read(0, LEN) == pattern(LEN, 1));
    peer.signal(signal);
    let event = ends(&end, receives - before);
    let info = end.qp.query().unwrap();
    assert_ne!((info.state, info.carrier), (QpState::Rts, Carrier::LocalCorrupt));
    event
}

/// The peer receives, and gets a signal behind some messages, with the ring full of others.
fn who_receives(round: u64, signal: Signal) -> AsyncEvent {
    let (end, peer, sink, receives) = with_a_peer("receives");
    let before = round % 7;
    for wr_id in 0..16 {
        end.post(wr_id, SEND, &[sink.all()]);
    }
    (0..before).for_each(|wr_id| _ = end.done(wr_id));
    peer.signal(signal);
    for wr_id in 16..32 {
        // Refused once it has ended.
        let (data, flags) = (Data::Sgl(&[sink.all()]), SendFlags::SIGNALED);
        if end.qp.post_send(&[SendWr { wr_id, op: SEND, data, flags }]).is_err() {
            return ends(&end, receives + wr_id - before);
        }
    }
    ends(&end, receives + 32 - before)
}

#[test]
fn a_peer_that_is_killed_ends_the_stream() {
    for round in 0..rounds(5) {
        who_sends(round, Signal::KILL);
        who_receives(round, Signal::KILL);
    }
}

#[test]
fn a_peer_that_sends_and_is_stopped_is_given_up() {
    for round in 0..rounds(2) {
        match who_sends(round, Signal::STOP) {
            AsyncEvent::ConnectionLost => {}
            // On a busy machine it may have sent more messages than there are receives before that.
            AsyncEvent::TerminateSent(why) => {
                assert_eq!((why.layer, why.etype, why.code), (1, 2, 2))
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_peer_that_receives_and_is_stopped_is_given_up() {
    for round in 0..rounds(2) {
        assert_eq!(who_receives(round, Signal::STOP), AsyncEvent::ConnectionLost);
    }
}
