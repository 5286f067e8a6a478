//! Peers of a local stream that are hostile or unlucky: who writes anything anywhere in the shared memory at any
//! moment, dies, or is stopped. The other end goes on, or ends with all its work completed.
//!
//! `WARPLINE_ROUNDS=1000` makes it the long form; without it there are a few rounds.

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
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags as NetFlags,
};
use vp_api::*;

const RING: u32 = 64 << 10;
const LEN: usize = 20_000;
const CHILD: &str = "WARPLINE_LOCAL_CHILD";

fn rounds(short: u64) -> u64 {
    std::env::var("WARPLINE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(short)
}

/// With bounds that a test can wait for.
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

/// Writes words anywhere: often to the first page, where the positions are.
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
    rustix::io::pwrite(memory, &octets, random.below(size / 4) * 4).unwrap();
}

/// Waits for the next completion; false if the stream ended in good order, and what was posted waits for the next.
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

#[test]
fn memory_that_is_scribbled_over_harms_nothing_else() {
    for round in 1..=rounds(12) {
        let ends = [End::new(|_| {}), End::new(|_| {})];
        let [near, far] = &ends;
        let ((a, b), (mine, peers)) = (sockets(), local_pair(RING));
        let memory = mine.memory.try_clone().unwrap();
        far.rts_with(b, params(Role::Responder), Some(peers));
        near.rts_with(a, params(Role::Initiator), Some(mine));
        let source = near.region(Buffer::pattern(LEN, 1));
        let sink = far.region(Buffer::new(LEN));
        let unseen = far.region_with(Buffer::pattern(LEN, 7), Access::LOCAL);
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
        assert!(unseen.buffer.read(0, LEN) == pattern(LEN, 7), "round {round}");
    }
}

/// This program again, as the other end of a local stream, which it gets by its standard input.
struct Peer(Child);

impl Peer {
    fn start(local: &LocalStream, address: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plays_the_peer"])
            .env(CHILD, address)
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

    fn signal(&self, signal: rustix::process::Signal) {
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

/// Not a test but the child of those below: sends until it is killed.
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
    end.rts_with(socket, params(Role::Initiator), Some(local));
    loop {
        end.post(1, SEND, &[source.all()]);
        end.done(1);
    }
}

/// An end whose peer, a process of its own, sends.
fn with_a_peer() -> (End, Peer, Region, u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mine, theirs) = local_pair(RING);
    let peer = Peer::start(&theirs, &listener.local_addr().unwrap().to_string());
    let end = End::new(|_| {});
    let sink = end.region(Buffer::new(LEN));
    let receives = u64::from(end.qp.query().unwrap().recv_depth);
    (0..receives).for_each(|wr_id| end.recv(wr_id, &[sink.all()]));
    let (mut socket, _) = listener.accept().unwrap();
    socket.write_all(&[0]).unwrap();
    end.rts_with(socket, params(Role::Responder), Some(mine));
    (end, peer, sink, receives)
}

/// What completed well is whole; everything completes. Returns the stream's end.
fn ends(end: &End, left: u64) -> AsyncEvent {
    for _ in 0..left {
        let completion = end.complete();
        if completion.status == WcStatus::Success {
            assert_eq!(completion.octets as usize, LEN);
        }
    }
    loop {
        match end.event() {
            AsyncEvent::Established => {}
            event => return event,
        }
    }
}

#[test]
fn a_peer_that_is_killed_ends_the_stream() {
    for round in 0..rounds(5) {
        let (end, peer, sink, receives) = with_a_peer();
        let before = round % 7;
        (0..before).for_each(|_| assert_eq!(end.complete().status, WcStatus::Success));
        assert!(before == 0 || sink.buffer.read(0, LEN) == pattern(LEN, 1));
        peer.signal(rustix::process::Signal::KILL);
        ends(&end, receives - before);
        let info = end.qp.query().unwrap();
        assert_ne!((info.state, info.carrier), (QpState::Rts, Carrier::LocalCorrupt));
    }
}

#[test]
fn a_peer_that_is_stopped_is_given_up() {
    for _ in 0..rounds(2).min(20) {
        let (end, peer, _sink, receives) = with_a_peer();
        assert_eq!(end.complete().status, WcStatus::Success);
        peer.signal(rustix::process::Signal::STOP);
        assert_eq!(ends(&end, receives - 1), AsyncEvent::ConnectionLost);
    }
}
