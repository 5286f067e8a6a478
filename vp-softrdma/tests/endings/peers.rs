//! Peers that reset, close, stop responding, or send invalid data.

use super::*;

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
    // The Read Request, and after it a Terminate of 22 octets ULPDU.
    assert_eq!(rest.len(), 52 + 28);
    assert_eq!(rest[52..54], 22u16.to_be_bytes());
}

// [VERBS-08] [VERBS-10]: a peer that never responds to the FIN is given up after the time limit.
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

// [CONN-14]: a peer that accepts octets but never responds is probed once, then given up.
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
    fn pin(&self, _: usize, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

/// A peer that responds is never given up, however long nothing is sent. The clock stands still while a response
/// is outstanding, so that the time until the peer gets a processor does not count.
#[test]
fn a_responding_peer_is_kept() {
    const PROBE: Duration = Duration::from_millis(1);
    let params = |params: &mut StreamParams| {
        (params.probe_after, params.kick_after) = (Some(PROBE), None);
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
            // Much less than the time in which the peer must respond: it may just have been probed.
            clock.0.fetch_add(PROBE.as_nanos() as u64 / 8, Ordering::Relaxed);
        }
        while fpdus().1 < begin.1 + asked {}
    }
    assert_eq!((near.state(), far.state()), (QpState::Rts, QpState::Rts));
    far.post(2, SEND, &[]);
    near.done(1);
}

// The initiator's kicks: zero-length Writes until something is received.
#[test]
fn deaf_peer_is_kicked_again() {
    let (near, mut socket) =
        against_a_socket(|params| params.kick_after = Some(Duration::from_millis(5)));
    near.post(1, SEND, &[]);
    near.done(1);
    let mut frames = [0; 24 + 20 + 20];
    socket.read_exact(&mut frames).unwrap();
    assert_eq!(frames[..2], 18u16.to_be_bytes());
    assert_eq!(frames[24..26], 14u16.to_be_bytes());
    assert_eq!(frames[44..46], 14u16.to_be_bytes());
}

// [MPA-37]: garbage from the peer is refused with a Terminate, and is not written to memory.
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

// [VERBS-05] [SEC-05]: a QP that is closed while a message arrives in a buffer releases the buffer and
// does not write to it afterwards.
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

// [RDMAP-12] [ERR-12]: a message longer than its receive buffer is reported at the receiver, too.
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
