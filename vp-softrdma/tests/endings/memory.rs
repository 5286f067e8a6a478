//! Memory that is deregistered while a stream uses it.

use super::*;

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
        // On a busy machine all messages may have completed before.
        near.post(4, SendOp::Write { remote: sink.remote(0) }, &[source.all()]);
        assert!(matches!(far.event(), AsyncEvent::TerminateSent(_)));
        assert!(sink.buffer.read(0, len) == after);
        let mut lost = false;
        for _ in 0..5 {
            lost |= near.complete().status != WcStatus::Success;
        }
        // A message that TCP accepted has succeeded (RFC 5040 5.5); the Terminate comes later.
        while !lost {
            near.post(5, SendOp::Write { remote: sink.remote(0) }, &[source.sge(0, 8)]);
            lost = near.complete().status != WcStatus::Success;
        }
    }
}

// [SEC-05]: the receive completes with the error when its buffer is deregistered in the middle of a message.
#[test]
fn a_message_whose_buffer_is_deregistered_fails() {
    const OCTETS: u16 = 40_000;
    let (near, mut socket) = against_a_socket(|params| params.crc = false);
    let sink = near.region(Buffer::new(OCTETS.into()));
    near.recv(1, &[sink.all()]);
    let mut frame = (18 + OCTETS).to_be_bytes().to_vec();
    frame.extend([0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    frame.extend(vec![7; OCTETS.into()]);
    frame.extend([0; 4 + 2]);
    socket.write_all(&frame[..10_000]).unwrap();
    warpline_patience::until("the payload to stream in", || {
        near.cq.poll(&mut []).unwrap();
        sink.buffer.read(9_000, 1) == [7]
    });
    near.rnic.dealloc_stag(sink.stag).unwrap();
    let before = sink.buffer.read(0, OCTETS.into());
    socket.write_all(&frame[10_000..]).unwrap();
    let lost = near.complete();
    assert_eq!((lost.wr_id, lost.status), (1, WcStatus::InvalidStag));
    assert!(matches!(near.event(), AsyncEvent::TerminateSent(_)));
    assert_eq!(sink.buffer.read(0, OCTETS.into()), before);
}

// [VERBS-12]: the source of a Write is deregistered half way: Terminate or reset, never a broken FPDU.
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
        // Even if the peer saw only a reset, this end reports the cause.
        assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
        wait_for_state(&near, QpState::Error);
        warpline_patience::within("the end of the stream", || drain.join().unwrap());
    }
}

// [VERBS-19]: a list is checked as a whole, before the first octet of its message is sent.
#[test]
fn a_list_that_ends_with_a_refusal_sends_no_request() {
    let (near, mut socket) = against_a_socket(|_| {});
    let source = near.region(Buffer::new(200_000));
    let nowhere = Sge { stag: Stag(0x1234_5678), to: 0, len: 8 };
    near.post(1, SEND, &[source.all(), nowhere]);
    assert_eq!(near.complete().status, WcStatus::InvalidStag);
    let mut sent = Vec::new();
    socket.read_to_end(&mut sent).unwrap();
    // Only a Terminate, or nothing: a peer that got no FPDU sees only the end of the stream.
    assert!(sent.len() <= 28, "{} octets", sent.len());
}
