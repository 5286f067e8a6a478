//! How connections end: gracefully, by Terminate, by reset, by a peer that vanishes, by destruction;
//! and that every posted work request completes exactly once whatever happens.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use vp_api::*;
use vp_softrdma::SoftRdma;

/// A QP in RTS as the initiator, with a bare socket at the other end.
fn against_a_socket(params: impl FnOnce(&mut StreamParams)) -> (End, TcpStream) {
    let near = End::new(|_| {});
    let (a, b) = sockets();
    let mut p = StreamParams::new(Role::Initiator);
    p.nudge_after = None;
    params(&mut p);
    near.rts(a, p);
    assert_eq!(near.event(), AsyncEvent::Established);
    (near, b)
}

fn terminate_code(event: AsyncEvent) -> (bool, u8, u8, u8) {
    match event {
        AsyncEvent::TerminateSent(t) | AsyncEvent::TerminateReceived(t) => {
            (t.sent, t.layer, t.etype, t.code)
        }
        other => panic!("{other:?}"),
    }
}

// [VERBS-05] [VERBS-09]: close with nothing pending; the receives are flushed; both can reconnect.
#[test]
fn graceful_close_and_reconnect() {
    let (near, far) = pair(&Setup::default());
    for round in 0..3u64 {
        far.recv(7, &[]);
        near.recv(8, &[]);
        near.post(round, SEND, &[]);
        near.done(round);
        far.done(7);
        near.qp.modify(QpChange::Closing).unwrap();
        assert_eq!(near.event(), AsyncEvent::CloseComplete);
        assert_eq!(far.event(), AsyncEvent::CloseComplete);
        let flushed = near.complete();
        assert_eq!((flushed.wr_id, flushed.status), (8, WcStatus::Flushed));
        assert_eq!((near.state(), far.state()), (QpState::Idle, QpState::Idle));
        connect((&near, &far), &Setup::default());
        assert_eq!(near.event(), AsyncEvent::Established);
        assert_eq!(far.event(), AsyncEvent::Established);
    }
}

// [VERBS-05]: close with a receive outstanding at the peer only, and with work pending here.
#[test]
fn close_with_pending_work_is_a_bad_close() {
    let (near, far) = pair(&Setup::default());
    let sink = near.region(Buffer::new(8));
    let source = far.region(Buffer::new(8));
    // The far end does not answer: its QP is locked out by a read that it cannot serve in time.
    let (stuck, socket) = against_a_socket(|_| {});
    let stuck_sink = stuck.region(Buffer::new(8));
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    stuck.post(1, op, &[stuck_sink.all()]);
    stuck.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(stuck.event(), AsyncEvent::BadClose);
    assert_eq!(stuck.complete().status, WcStatus::Flushed);
    assert_eq!(stuck.state(), QpState::Error);
    drop(socket);
    drop((near, far, sink));
}

// [VERBS-06] [RDMAP-27]: Terminate 0/0/0 arrives although inbound octets are unread.
#[test]
fn terminate_reaches_the_peer() {
    let (near, far) = pair(&Setup::default());
    near.recv(1, &[]);
    near.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
    assert_eq!(terminate_code(far.event()), (false, 0, 0, 0));
    assert_eq!(near.complete().status, WcStatus::Flushed);
    wait_for_state(&near, QpState::Error);
    wait_for_state(&far, QpState::Error);
    let kept = near.qp.query().unwrap().terminate.unwrap();
    assert!(kept.sent);
    let kept = far.qp.query().unwrap().terminate.unwrap();
    assert!(!kept.sent);
}

fn wait_for_state(end: &End, state: QpState) {
    let begin = std::time::Instant::now();
    while end.state() != state {
        end.cq.wait(Duration::ZERO, Some(Duration::from_millis(1))).unwrap();
        assert!(begin.elapsed() < HANG, "never {state:?}");
    }
}

// [VERBS-07]: modify to Error resets; the peer sees a reset, both flush.
#[test]
fn abort_resets() {
    let (near, far) = pair(&Setup::default());
    for i in 0..10 {
        near.recv(i, &[]);
        far.recv(i, &[]);
    }
    near.qp.modify(QpChange::Error).unwrap();
    assert_eq!(far.event(), AsyncEvent::ConnectionReset);
    for i in 0..10 {
        for end in [&near, &far] {
            let completion = end.complete();
            assert_eq!((completion.wr_id, completion.status), (i, WcStatus::Flushed));
        }
    }
    assert_eq!((near.state(), far.state()), (QpState::Error, QpState::Error));
    // [VERBS-11]: posts are flushed, and the QP can go back to Idle.
    near.post(20, SEND, &[]);
    near.recv(21, &[]);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    near.qp.modify(QpChange::Idle).unwrap();
    assert_eq!(near.state(), QpState::Idle);
}

// [VERBS-04]
#[test]
fn idle_to_error_flushes() {
    let end = End::new(|_| {});
    end.post(1, SEND, &[]);
    end.recv(2, &[]);
    end.qp.modify(QpChange::Error).unwrap();
    let statuses = [end.complete(), end.complete()];
    assert!(statuses.iter().all(|completion| completion.status == WcStatus::Flushed));
    end.qp.modify(QpChange::Idle).unwrap();
}

// [VERBS-01]: what is not in the table is refused and changes nothing.
#[test]
fn transitions_not_in_the_table_are_refused() {
    let refused = |end: &End, change| {
        assert_eq!(end.qp.modify(change).unwrap_err().status, VpStatus::InvalidState);
    };
    let idle = End::new(|_| {});
    refused(&idle, QpChange::Closing);
    refused(&idle, QpChange::Terminate);
    refused(&idle, QpChange::Idle);
    assert_eq!(idle.state(), QpState::Idle);
    let (rts, _far) = pair(&Setup::default());
    refused(&rts, QpChange::Idle);
    assert_eq!(rts.state(), QpState::Rts);
    let (closing, _socket) = against_a_socket(|_| {});
    closing.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(closing.state(), QpState::Closing);
    for change in [QpChange::Closing, QpChange::Terminate, QpChange::Error, QpChange::Idle] {
        refused(&closing, change);
    }
    let (terminating, _socket) = against_a_socket(|_| {});
    terminating.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminating.state(), QpState::Terminate);
    for change in [QpChange::Closing, QpChange::Terminate, QpChange::Error, QpChange::Idle] {
        refused(&terminating, change);
    }
    idle.qp.modify(QpChange::Error).unwrap();
    refused(&idle, QpChange::Closing);
    refused(&idle, QpChange::Terminate);
}

#[test]
fn a_socket_that_is_no_stream_is_refused() {
    let end = End::new(|_| {});
    let lonely = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let llp = LlpStream {
        socket: lonely,
        received: Vec::new(),
        last_message: Vec::new(),
        params: StreamParams::new(Role::Initiator),
    };
    let error = end.qp.modify(QpChange::Rts(Box::new(llp))).unwrap_err();
    assert_eq!(error.status, VpStatus::InvalidStream);
    assert_eq!(end.state(), QpState::Idle);
}

#[test]
fn peer_reset_flushes_everything() {
    let (near, socket) = against_a_socket(|_| {});
    let sink = near.region(Buffer::new(64));
    for i in 0..5 {
        let remote = Remote { stag: sink.stag, to: 0 };
        near.post(i, SendOp::Read { remote, invalidate_sink: false }, &[sink.sge(0, 8)]);
        near.recv(10 + i, &[]);
    }
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
    assert_eq!(near.event(), AsyncEvent::ConnectionReset);
    let mut seen: Vec<u64> = (0..10)
        .map(|_| {
            let completion = near.complete();
            assert_eq!(completion.status, WcStatus::Flushed);
            completion.wr_id
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]);
    assert_eq!(near.cq.poll(&mut [WorkCompletion::BLANK]).unwrap(), 0);
}

// [VERBS-09]: FIN with work pending is a bad close with Terminate 0/2/7.
#[test]
fn peer_fin_with_work_pending() {
    let (near, mut socket) = against_a_socket(|_| {});
    let sink = near.region(Buffer::new(8));
    let remote = Remote { stag: sink.stag, to: 0 };
    near.post(1, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()]);
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(near.event(), AsyncEvent::BadClose);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    wait_for_state(&near, QpState::Error);
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    // The Read Request, and behind it a Terminate of 22 octets ULPDU.
    assert_eq!(rest.len(), 52 + 28);
    assert_eq!(rest[52..54], 22u16.to_be_bytes());
}

// [VERBS-08] [VERBS-10]: a peer that never answers the FIN is given up after the bound.
#[test]
fn close_is_bounded() {
    let bound = |params: &mut StreamParams| params.close_timeout = Duration::from_millis(50);
    let (near, _silent) = against_a_socket(bound);
    near.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(near.event(), AsyncEvent::ConnectionLost);
    assert_eq!(near.state(), QpState::Error);
    let (near, _silent) = against_a_socket(bound);
    near.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
    wait_for_state(&near, QpState::Error);
}

// [CONN-14]: a peer that takes octets but never answers is asked once, then given up.
#[test]
fn silent_peer_is_probed_and_given_up() {
    let (near, mut socket) =
        against_a_socket(|params| params.probe_after = Some(Duration::from_millis(50)));
    near.recv(1, &[]);
    assert_eq!(near.event(), AsyncEvent::ConnectionLost);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    let mut sent = Vec::new();
    let end = socket.read_to_end(&mut sent);
    // One zero-length Read Request: 46 octets ULPDU; then a reset.
    assert_eq!(sent[..2], 46u16.to_be_bytes());
    assert!(end.is_err() || sent.len() == 52);
}

/// An RNIC's clock, which stands still unless the test moves it.
#[derive(Default)]
struct Clock(AtomicU64);

impl Services for Clock {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

/// A peer that answers is never given up, however long nothing is sent. The clock stands while the
/// peer owes an answer: how soon it gets a processor is not what counts.
#[test]
fn answering_peer_is_kept() {
    const PROBE: Duration = Duration::from_millis(1);
    let params = |params: &mut StreamParams| {
        (params.probe_after, params.nudge_after) = (Some(PROBE), None);
    };
    let clock = Arc::new(Clock::default());
    let rnic = SoftRdma.open("vp_softrdma", clock.clone()).unwrap();
    let near = End::on(rnic, CqInit { depth: 1024, handler: None }, |_| {});
    let far = End::new(|_| {});
    connect((&near, &far), &Setup { params, ..Setup::default() });
    assert_eq!(near.event(), AsyncEvent::Established);
    assert_eq!(far.event(), AsyncEvent::Established);
    near.recv(1, &[]);
    let start = std::time::Instant::now();
    let fpdus = || {
        near.cq.wait(Duration::ZERO, Some(Duration::from_micros(100))).unwrap();
        assert!(start.elapsed() < HANG);
        let counters = near.qp.query().unwrap().counters;
        (counters.fpdus_sent, counters.fpdus_received)
    };
    let begin = fpdus();
    for asked in 1..=5 {
        while fpdus().0 < begin.0 + asked {
            // Much less than the peer has to answer in: it may just have been asked.
            clock.0.fetch_add(PROBE.as_nanos() as u64 / 8, Ordering::Relaxed);
        }
        while fpdus().1 < begin.1 + asked {}
    }
    assert_eq!((near.state(), far.state()), (QpState::Rts, QpState::Rts));
    far.post(2, SEND, &[]);
    near.done(1);
}

// The initiator's nudges: zero-length Writes as long as nothing comes back.
#[test]
fn deaf_peer_is_nudged_again() {
    let (near, mut socket) =
        against_a_socket(|params| params.nudge_after = Some(Duration::from_millis(5)));
    near.post(1, SEND, &[]);
    near.done(1);
    let mut frames = [0; 24 + 20 + 20];
    socket.read_exact(&mut frames).unwrap();
    assert_eq!(frames[..2], 18u16.to_be_bytes());
    assert_eq!(frames[24..26], 14u16.to_be_bytes());
    assert_eq!(frames[44..46], 14u16.to_be_bytes());
}

// [MPA-37]: garbage from the peer is refused with a Terminate, and stays out of memory.
#[test]
fn damaged_fpdu_is_refused() {
    let (near, far) = (End::new(|_| {}), sockets());
    let (a, mut b) = far;
    let sink = near.region(Buffer::new(64));
    near.recv(1, &[sink.all()]);
    near.rts(a, StreamParams::new(Role::Responder));
    b.write_all(&[0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4])
        .unwrap();
    assert_eq!(terminate_code(near.event()), (true, 2, 0, 2));
    assert_eq!(near.complete().status, WcStatus::Flushed);
    let mut answer = Vec::new();
    b.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), 28);
    assert_eq!(sink.buffer.read(0, 64), [0; 64]);
}

// [VERBS-05] [SEC-05]: closed while a message streams into its buffer, a QP gives the buffer back and
// writes to it no more.
#[test]
fn close_leaves_a_half_filled_buffer_alone() {
    let (near, mut socket) = against_a_socket(|params| params.crc = false);
    let sink = near.region(Buffer::new(40_000));
    near.recv(1, &[sink.all()]);
    let mut frame = 40_018u16.to_be_bytes().to_vec();
    frame.extend([0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend(vec![7; 40_000]);
    socket.write_all(&frame[..10_000]).unwrap();
    let begin = std::time::Instant::now();
    while sink.buffer.read(9_000, 1) == [0] {
        near.cq.wait(Duration::ZERO, Some(Duration::from_millis(1))).unwrap();
        assert!(begin.elapsed() < HANG, "the payload never streamed in");
    }
    near.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(near.complete().status, WcStatus::Flushed);
    let returned = sink.buffer.read(0, 40_000);
    socket.write_all(&frame[10_000..]).unwrap();
    assert_eq!(near.event(), AsyncEvent::BadClose);
    assert_eq!(sink.buffer.read(0, 40_000), returned);
}

// [RDMAP-12] [ERR-12]: a message longer than its receive buffer says so at the receiver, too.
#[test]
fn too_long_a_message_is_named_at_its_receive() {
    let (near, far) = pair(&Setup::default());
    let (source, sink) = (near.region(Buffer::new(100)), far.region(Buffer::new(99)));
    far.recv(1, &[sink.all()]);
    far.recv(2, &[]);
    near.post(3, SEND, &[source.all()]);
    assert_eq!(terminate_code(far.event()), (true, 1, 2, 5));
    assert_eq!(far.complete().status, WcStatus::Bounds);
    assert_eq!(far.complete().status, WcStatus::Flushed);
    assert_eq!(sink.buffer.read(0, 99), [0; 99]);
}

// [VERBS-20]: destroy in each state; no completion is queued afterwards.
#[test]
fn destroy_in_every_state() {
    type Prepare = fn() -> (End, Option<TcpStream>);
    let prepare: [Prepare; 5] = [
        || (End::new(|_| {}), None),
        || {
            let (end, socket) = against_a_socket(|_| {});
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Closing).unwrap();
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Terminate).unwrap();
            (end, Some(socket))
        },
        || {
            let (end, socket) = against_a_socket(|_| {});
            end.qp.modify(QpChange::Error).unwrap();
            (end, Some(socket))
        },
    ];
    for prepare in prepare {
        let (end, socket) = prepare();
        let before = end.state();
        end.recv(1, &[]);
        let mut drained = [WorkCompletion::BLANK; 8];
        end.cq.poll(&mut drained).unwrap();
        end.rnic.destroy_qp(end.qp.id()).unwrap();
        assert_eq!(end.cq.poll(&mut drained).unwrap(), 0, "{before:?}");
        assert_eq!(end.qp.query().unwrap_err().status, VpStatus::InvalidHandle);
        let refused = end.qp.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).unwrap_err();
        assert_eq!(refused.status, VpStatus::InvalidHandle);
        if let Some(mut socket) = socket {
            // Reset, or the FIN or Terminate that went before.
            let _ = socket.read_to_end(&mut Vec::new());
        }
        end.rnic.destroy_cq(end.cq.id()).unwrap();
        end.rnic.dealloc_pd(end.pd).unwrap();
    }
}

// [RDMAP-27]: destroyed right behind its Terminate, with octets unread, a QP sends no reset.
#[test]
fn destroy_lets_the_terminate_arrive() {
    let (end, mut socket) = against_a_socket(|_| {});
    end.qp.modify(QpChange::Terminate).unwrap();
    socket.write_all(&[0; 4096]).unwrap();
    end.rnic.destroy_qp(end.qp.id()).unwrap();
    socket.write_all(&[0; 4096]).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("a FIN, no reset");
    assert_eq!(answer.len(), 28, "{answer:02x?}");
    assert_eq!(answer[3] & 0x0f, 7, "{answer:02x?}");
}

// [SEC-05]: deregistering in the middle of a large inbound Write; nothing is written afterwards.
#[test]
fn deregistration_stops_an_inbound_write() {
    for crc in [true, false] {
        let setup = Setup { crc, fpdu: FpduSize::Octets(60_000), ..Setup::default() };
        let (near, far) = pair(&setup);
        let len = 16 << 20;
        let source = near.region(Buffer::pattern(len, 1));
        let sink = far.region(Buffer::new(len));
        for i in 0..4 {
            near.post(i, SendOp::Write { remote: sink.remote(0) }, &[source.all()]);
        }
        far.rnic.dealloc_stag(sink.stag).unwrap();
        let after = sink.buffer.read(0, len);
        // On a busy machine all of them may have been faster.
        near.post(4, SendOp::Write { remote: sink.remote(0) }, &[source.all()]);
        assert!(matches!(far.event(), AsyncEvent::TerminateSent(_)));
        assert!(sink.buffer.read(0, len) == after);
        let mut lost = false;
        for _ in 0..5 {
            lost |= near.complete().status != WcStatus::Success;
        }
        // Accepted by TCP is success (RFC 5040 5.5); the Terminate comes later.
        while !lost {
            near.post(5, SendOp::Write { remote: sink.remote(0) }, &[source.sge(0, 8)]);
            lost = near.complete().status != WcStatus::Success;
        }
    }
}

// [VERBS-12]: the source of a Write vanishes half way: Terminate or reset, never a broken FPDU.
#[test]
fn deregistered_source_ends_the_stream() {
    for crc in [true, false] {
        let (near, socket) = against_a_socket(|params| {
            params.crc = crc;
            params.fpdu = FpduSize::Octets(60_000);
        });
        let len = 64 << 20;
        let source = near.region(Buffer::pattern(len, 1));
        let remote = Remote { stag: Stag(0x100), to: 0 };
        near.post(1, SendOp::Write { remote }, &[source.all()]);
        near.rnic.dealloc_stag(source.stag).unwrap();
        let drain = std::thread::spawn(move || {
            let mut socket = socket;
            let mut all = Vec::new();
            let _ = socket.read_to_end(&mut all);
        });
        assert_ne!(near.complete().status, WcStatus::Success);
        // Even if the peer saw only a reset, this end is told.
        assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
        wait_for_state(&near, QpState::Error);
        drain.join().unwrap();
    }
}

// [SEC-09]: an overrun CQ ends its own QPs and no other.
#[test]
fn cq_overrun_ends_its_qps_only() {
    let rnic = open();
    let small = End::on(rnic.clone(), CqInit { depth: 2, handler: None }, |_| {});
    let peer = End::new(|_| {});
    connect((&peer, &small), &Setup::default());
    let (other, other_peer) = pair(&Setup::default());
    for i in 0..8 {
        small.recv(i, &[]);
    }
    for i in 0..8 {
        peer.post(i, SEND, &[]);
    }
    let overrun = small.events.next(EventSource::Cq(small.cq.id()));
    assert_eq!(overrun, AsyncEvent::CqOverrun);
    loop {
        match small.event() {
            AsyncEvent::Established => {}
            event => {
                assert_eq!(terminate_code(event), (true, 0, 2, 7));
                break;
            }
        }
    }
    let mut left = 0;
    let status = loop {
        match small.cq.poll(&mut [WorkCompletion::BLANK]) {
            Ok(count) => left += count,
            Err(status) => break status,
        }
    };
    assert_eq!((left, status), (2, VpStatus::CqOverrun));
    other_peer.recv(1, &[]);
    other.post(2, SEND, &[]);
    other.done(2);
    other_peer.done(1);
}

// [VERBS-15]: limits in Idle, and ORD in RTS, which only goes down.
#[test]
fn limits_change_where_the_table_allows() {
    let limits = |ord, ird, send_depth, recv_depth| QpChange::Limits {
        ord,
        ird,
        send_depth,
        recv_depth,
        recv_limit: None,
    };
    let (near, far) = (End::new(|_| {}), End::new(|_| {}));
    near.qp.modify(limits(Some(8), Some(4), Some(128), Some(32))).unwrap();
    let info = near.qp.query().unwrap();
    assert_eq!((info.ord, info.ird, info.send_depth, info.recv_depth), (8, 4, 128, 32));
    far.qp.modify(limits(Some(4), Some(8), None, None)).unwrap();
    let too_many = near.qp.modify(limits(Some(5000), None, None, None)).unwrap_err();
    assert_eq!(too_many.status, VpStatus::InvalidIrdOrd);
    near.recv(1, &[]);
    let occupied = near.qp.modify(limits(None, None, None, Some(8))).unwrap_err();
    assert_eq!(occupied.status, VpStatus::CannotChange);
    connect((&near, &far), &Setup::default());
    near.qp.modify(limits(Some(1), None, None, None)).unwrap();
    assert_eq!(near.qp.query().unwrap().ord, 1);
    let up = near.qp.modify(limits(Some(2), None, None, None)).unwrap_err();
    assert_eq!(up.status, VpStatus::InvalidIrdOrd);
    let idle_only = near.qp.modify(limits(None, Some(2), None, None)).unwrap_err();
    assert_eq!(idle_only.status, VpStatus::CannotChange);
    let source = far.region(Buffer::pattern(80, 1));
    let sink = near.region(Buffer::new(80));
    for i in 0..10 {
        let remote = source.remote(i * 8);
        let op = SendOp::Read { remote, invalidate_sink: false };
        near.post(i as u64, op, &[sink.sge(i * 8, 8)]);
    }
    for i in 0..10 {
        near.done(i);
    }
    assert_eq!(sink.buffer.read(0, 80), source.buffer.read(0, 80));
}
