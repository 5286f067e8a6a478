//! Sends with Immediate: opcode 0xF of RFC 6580, on streams whose ends agreed on it and on no other.
//!
//! Owner of the state: each test its own; one thread. The peer is another QP or a list of octets.

use iwarp_proto::wire::ddp::{Header, UntaggedRepr};
use iwarp_proto::wire::rdmap::{Control, Opcode};
use iwarp_proto::{
    Immediate, LocalFault, PostError, QpConfig, QpEvent, Role, SendOp, SendWqe, State, Status,
    StreamConfig,
};

use crate::craft::{decode, header, untagged, verdict};

use crate::sim::{CONFIG, End, STREAM, Sim, gather, plain};

const AGREED: StreamConfig = StreamConfig { send_immediates: true, ..STREAM };
const PEER: StreamConfig = StreamConfig { role: Role::Responder, ..AGREED };

fn wqe(immediate: u32, solicited: bool) -> SendWqe {
    plain(SendOp::SendImmediate { immediate, solicited })
}
fn post(end: &mut End, immediate: u32, solicited: bool, payload: &[u8]) {
    end.post(wqe(immediate, solicited), gather(payload));
}
/// The peer's FPDU, as on the wire.
fn from_peer(msn: u32, immediate: u32, payload: &[u8]) -> Vec<u8> {
    let h = header(Opcode::SendImmediate, msn, 0, true);
    untagged(UntaggedRepr { ulp_word: immediate, ..h }, payload)
}
/// Payload, immediate data and solicited event of each receive.
fn received(end: &End) -> Vec<(Vec<u8>, Option<Immediate>, bool)> {
    let all = end.memory.received.iter();
    all.map(|r| (r.octets.clone(), r.receive.immediate, r.receive.solicited)).collect()
}

#[test]
fn payload_and_immediate_arrive_in_the_order_of_the_sends() {
    let mut sim = Sim::with(CONFIG, [AGREED, PEER]);
    for _ in 0..4 {
        sim.ends[1].receive(1000);
    }
    let long = vec![7; 1000];
    post(&mut sim.ends[0], 1, false, b"one");
    sim.ends[0].send(b"two");
    post(&mut sim.ends[0], u32::MAX, true, &long);
    post(&mut sim.ends[0], 0, false, b"");
    sim.run();
    let with = |data| Some(Immediate::OfSend(data));
    let expected = [
        (b"one".to_vec(), with(1), false),
        (b"two".to_vec(), None, false),
        (long, with(u32::MAX), true),
        (Vec::new(), with(0), false),
    ];
    assert_eq!(received(&sim.ends[1]), expected);
    assert_eq!(sim.ends[0].statuses(), [Status::Success; 4]);
    sim.close(0);
    assert_eq!(sim.ends[1].events, [QpEvent::Established, QpEvent::CloseComplete]);
}

// RFC 6580: the experimental opcode; the word of Invalidate STag
#[test]
fn the_octets_on_the_wire() {
    for (solicited, control) in [(false, 0x4f), (true, 0x5f)] {
        let mut end = End::new(CONFIG);
        end.qp.start(AGREED).expect("Idle");
        post(&mut end, 0x0102_0304, solicited, b"x");
        let [(Header::Untagged(h), payload)] = &decode(&end.take())[..] else { panic!("a Send") };
        assert_eq!((h.ulp, h.ulp_word, h.qn, h.msn), (control, 0x0102_0304, 0, 1));
        assert_eq!(payload, b"x");
        assert!(Control(control).opcode().is_some_and(|opcode| opcode.experimental()));
    }
}

// [RDMAP-02, ERR-07] without agreement the opcode is invalid
#[test]
fn without_the_agreement_it_ends_the_stream() {
    for hold in [0, 4096] {
        for extensions in [true, false] {
            let mut end = End::new(QpConfig { hold, extensions, ..CONFIG });
            end.qp.start(STREAM).expect("Idle");
            end.receive(10);
            end.feed(&from_peer(1, 5, b"x"));
            assert_eq!(end.qp.state(), State::Terminate);
            assert_eq!(verdict(&end.take()), (0x0206, 0b110));
            assert_eq!(received(&end), []);
        }
    }
}

#[test]
fn without_the_agreement_it_is_refused() {
    let mut end = End::new(CONFIG);
    end.qp.start(STREAM).expect("Idle");
    assert_eq!(end.qp.post_send(wqe(5, false)), Err(PostError::Unsupported));
    assert_eq!((end.qp.state(), end.take()), (State::Rts, Vec::new()));
}

#[test]
fn an_early_posted_send_is_sent_in_order() {
    for (stream, status) in [(AGREED, Status::Success), (STREAM, Status::Local(LocalFault::Wqe))] {
        let mut end = End::new(CONFIG);
        post(&mut end, 5, false, b"x");
        end.qp.start(stream).expect("Idle");
        end.take();
        assert_eq!(end.statuses(), [status]);
    }
}

#[test]
fn one_that_waits_keeps_its_immediate() {
    let mut end = End::new(QpConfig { hold: 4096, ..CONFIG });
    end.qp.start(AGREED).expect("Idle");
    end.feed(&from_peer(1, 5, b"first"));
    end.feed(&from_peer(2, 6, b""));
    end.receive(10);
    end.receive(10);
    end.qp.handle_receives(&mut end.memory);
    let with = |data| Some(Immediate::OfSend(data));
    let expected = [(b"first".to_vec(), with(5), false), (Vec::new(), with(6), false)];
    assert_eq!(received(&end), expected);
}

// This does not enable RFC 7306.
#[test]
fn it_needs_no_extensions() {
    let mut sim = Sim::with(QpConfig { extensions: false, ..CONFIG }, [AGREED, PEER]);
    sim.ends[1].receive(10);
    post(&mut sim.ends[0], 5, false, b"x");
    sim.run();
    assert_eq!(received(&sim.ends[1]), [(b"x".to_vec(), Some(Immediate::OfSend(5)), false)]);
}
