//! Tests of graceful closes, with every event that can occur in between (RDMAC 6.2.2.2, 6.2.5).
//!
//! Owner of the state: each test its own; one thread. The peer is what the test feeds.

use iwarp_proto::{LlpFault, ProtocolError, QpEvent, SendOp, Stag, State, Status};

use crate::craft::{header, read_of, read_request, send, tagged, untagged, verdict, write};
use crate::sim::memory::Region;
use crate::sim::{CONFIG, End, STREAM, Sim, gather, plain};
use iwarp_proto::wire::rdmap::Opcode;

fn started() -> End {
    let mut end = End::new(CONFIG);
    end.memory.regions.push(Region::new(0x100, 0, 4096));
    end.receive(100);
    end.qp.start(STREAM).expect("Idle");
    end.pump();
    end.events.clear();
    end
}
fn closing() -> End {
    let mut end = started();
    end.qp.close(&mut end.memory).expect("RTS");
    end.pump();
    assert_eq!((end.qp.state(), end.closing), (State::Closing, true));
    end
}
fn assert_bad_close(mut end: End) {
    end.pump();
    assert_eq!(end.events, [QpEvent::BadClose]);
    assert!(end.reset && end.detached);
    assert_eq!(end.qp.state(), State::Error);
    end.assert_all_complete();
}

// [VERBS-05, MPA-41] FIN out, receives flushed, FIN in: Close Complete, Idle
#[test]
fn a_graceful_close_ends_in_idle() {
    let mut end = closing();
    assert_eq!(end.memory.flushed, [1]);
    assert!(end.take().is_empty(), "no Terminate in a graceful close");
    end.fin();
    end.pump();
    assert_eq!(end.events, [QpEvent::CloseComplete]);
    assert!(end.detached && !end.reset);
    assert_eq!(end.qp.state(), State::Idle);
    // The QP may start again
    end.qp.start(STREAM).expect("Idle");
}

// [VERBS-05] a close with outstanding work is a Bad Close
#[test]
fn a_close_with_work_pending_is_bad() {
    let mut end = started();
    end.read((0x100, 0), (9, 0), 4);
    end.take();
    end.qp.close(&mut end.memory).expect("RTS");
    assert_eq!(end.statuses(), [Status::Flushed]);
    assert_bad_close(end);
    // The peer's Read has no response yet
    let mut end = started();
    end.feed(&read_request(1, read_of(0x100, 0, 10)));
    end.qp.close(&mut end.memory).expect("RTS");
    assert_bad_close(end);
}

// [VERBS-05, DDP-18] data after our FIN
#[test]
fn data_while_closing_is_a_bad_close() {
    for frame in [
        send(1, b"late"),
        send(1, b""),
        write(0x100, 0, b"late"),
        read_request(1, read_of(0x100, 0, 10)),
        tagged(Opcode::ReadResponse, true, 1, 0, b""),
        vec![0; 100],
    ] {
        let mut end = closing();
        end.feed(&frame);
        assert!(end.memory.received.is_empty() && end.memory.placed == 0);
        assert_bad_close(end);
    }
}

// [VERBS-05] a kick or a probe in flight does not make the close a Bad Close
#[test]
fn hidden_traffic_does_not_spoil_a_close() {
    let mut sim = Sim::pair(STREAM);
    sim.run();
    for end in &mut sim.ends {
        end.qp.kick();
    }
    assert!(sim.ends[0].qp.probe());
    sim.accept(0, usize::MAX);
    sim.close(0);
    assert_eq!(sim.ends[0].events, [QpEvent::Established, QpEvent::CloseComplete]);
    // Crossing: both probe, then both close
    let mut sim = Sim::pair(STREAM);
    sim.ends[0].qp.kick();
    sim.run();
    for side in 0..2 {
        assert!(sim.ends[side].qp.probe());
        sim.accept(side, usize::MAX);
        let end = &mut sim.ends[side];
        end.qp.close(&mut end.memory).expect("RTS");
    }
    sim.close(0);
    for end in &sim.ends {
        assert_eq!(end.events, [QpEvent::Established, QpEvent::CloseComplete]);
    }
}

// A response to a request before our FIN may come after it; unrequested data may not
#[test]
fn an_acknowledged_probe_does_not_break_a_close() {
    for probed in [true, false] {
        let mut end = started();
        if probed {
            assert!(end.qp.probe() && end.qp.probe_outstanding());
        }
        end.take();
        assert_eq!(end.qp.probe_outstanding(), probed);
        end.qp.close(&mut end.memory).expect("RTS");
        end.pump();
        end.feed(&tagged(Opcode::ReadResponse, true, 0, 0, b""));
        end.pump();
        let state = if probed { State::Closing } else { State::Error };
        assert_eq!(end.qp.state(), state, "{:?}", end.events);
    }
}

// A kick of the peer may be in flight when this end closes; a message may not [VERBS-05]
#[test]
fn a_kick_does_not_spoil_a_close() {
    for (payload, state) in [(&b""[..], State::Closing), (b"x", State::Error)] {
        let mut end = closing();
        end.feed(&write(0x100, 0, payload));
        end.pump();
        assert_eq!(end.qp.state(), state, "{:?}", end.events);
    }
}

// [VERBS-05, VERBS-28] a Terminate while closing is kept, and makes the close a Bad Close
#[test]
fn a_terminate_while_closing_is_kept() {
    let mut end = closing();
    end.feed(&untagged(header(Opcode::Terminate, 1, 0, true), &[0x02, 0x07, 0, 0]));
    assert_eq!(end.qp.last_terminate().map(|t| (t.0, t.1.word())), Some((false, 0x0207)));
    assert_bad_close(end);
}

// [VERBS-05] the stream fails while closing, or the peer's FIN never comes
#[test]
fn a_failed_close_is_reported() {
    for (fault, reset) in [(LlpFault::Reset, false), (LlpFault::CloseTimeout, true)] {
        let mut end = closing();
        if fault == LlpFault::Reset {
            end.fault(fault);
        } else {
            end.qp.handle_close_timeout(&mut end.memory);
        }
        end.pump();
        assert_eq!(end.events, [QpEvent::ConnectionLost(fault)]);
        assert_eq!((end.reset, end.detached, end.qp.state()), (reset, true, State::Error));
        end.assert_all_complete();
    }
}

// [VERBS-10] a Terminate state that the peer does not end is ended by the timer
#[test]
fn the_terminate_state_is_bounded() {
    let mut end = started();
    end.send(b"x");
    end.read((0x100, 0), (9, 0), 4);
    end.pump();
    end.qp.terminate(&mut end.memory).expect("RTS");
    // The LLP accepts nothing
    end.qp.handle_close_timeout(&mut end.memory);
    end.pump();
    assert_eq!(end.events, [QpEvent::TerminateSent(ProtocolError::LocalCatastrophic)]);
    assert_eq!((end.reset, end.detached, end.qp.state()), (true, true, State::Error));
    assert_eq!(end.statuses(), [Status::Flushed; 2]);
    end.assert_all_complete();
}

// [VERBS-09] FIN with nothing pending: we close too
#[test]
fn a_fin_with_nothing_pending_is_a_graceful_close() {
    let mut end = started();
    end.fin();
    end.pump();
    assert_eq!(end.events, [QpEvent::CloseComplete]);
    assert!(end.closing && end.detached && !end.reset);
    assert!(end.take().is_empty());
    assert_eq!(end.qp.state(), State::Idle);
    end.assert_all_complete();
}

// [VERBS-09, DDP-19] octets that the LLP has not accepted yet are sent before our FIN
#[test]
fn a_fin_does_not_cut_outgoing_messages() {
    let mut end = started();
    end.feed(&read_request(1, read_of(0x100, 0, 500)));
    end.pump();
    end.fin();
    end.pump();
    assert_eq!((end.qp.state(), end.detached), (State::Closing, false));
    assert_eq!(crate::craft::opcodes(&end.take()), [Opcode::ReadResponse; 3]);
    assert_eq!((end.qp.state(), end.detached), (State::Idle, true));
}

// [VERBS-09, ERR-29] FIN with work pending: 0/2/7, then Error
#[test]
fn a_fin_with_work_pending_causes_a_terminate() {
    let mut end = started();
    end.read((0x100, 0), (9, 0), 4);
    end.take();
    end.fin();
    assert_eq!(verdict(&end.take()), (0x0207, 0));
    assert_eq!(end.events, [QpEvent::ConnectionLost(LlpFault::UnexpectedFin)]);
    assert_eq!((end.qp.state(), end.detached, end.reset), (State::Error, true, false));
    assert_eq!(end.statuses(), [Status::Flushed]);
    end.assert_all_complete();
    // The same while the peer's Read has no response
    let mut end = started();
    end.feed(&read_request(1, read_of(0x100, 0, 10)));
    end.fin();
    assert_eq!(verdict(&end.take()), (0x0207, 0));
    end.assert_all_complete();
}

// [VERBS-09] FIN in the middle of an FPDU, of a message, of a Write
#[test]
fn a_fin_in_the_middle_is_unexpected() {
    let half = write(0x100, 0, b"12345678")[..20].to_vec();
    let open_send = untagged(header(Opcode::Send, 1, 0, false), b"more to come");
    let open_write = tagged(Opcode::Write, false, 0x100, 0, b"more to come");
    for frame in [half, open_send, open_write] {
        let mut end = started();
        end.feed(&frame);
        end.fin();
        assert_eq!(verdict(&end.take()), (0x0207, 0));
        assert_eq!(end.events, [QpEvent::ConnectionLost(LlpFault::UnexpectedFin)]);
        end.assert_all_complete();
        // While closing, this is a Bad Close
        let mut end = closing();
        end.feed(&write(0x100, 0, b"")[..10]);
        end.fin();
        assert_bad_close(end);
    }
}

// [VERBS-09] both close at once
#[test]
fn simultaneous_closes_are_graceful() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].receive(10);
    sim.ends[0].send(b"last");
    sim.run();
    for end in &mut sim.ends {
        end.qp.close(&mut end.memory).expect("RTS");
    }
    sim.close(0);
    for end in &sim.ends {
        assert_eq!(end.events, [QpEvent::Established, QpEvent::CloseComplete]);
    }
}

// [RDMAP-27] a refused peer gets the Terminate and FIN, and its further octets are discarded
#[test]
fn a_refused_peer_learns_why() {
    let mut sim = Sim::pair(STREAM);
    let op = SendOp::Write { stag: Stag(0xbad), to: 0 };
    for _ in 0..20 {
        sim.ends[0].post(plain(op), gather(&[1; 700]));
    }
    sim.run_chunked(50);
    let terminated = sim.ends[0].qp.last_terminate().map(|(sent, code)| (sent, code.word()));
    assert_eq!(terminated, Some((false, 0x1100)));
    assert!(!sim.ends[1].reset, "FIN, not RST");
    for end in &sim.ends {
        end.assert_all_complete();
        assert_eq!(end.qp.state(), State::Error);
    }
}
