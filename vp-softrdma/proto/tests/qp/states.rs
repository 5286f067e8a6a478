//! Tests of the five states: which events change them, what each permits, and what is flushed (RDMAC 6.2).
//!
//! Owner of the state: each test its own; one thread. The peer is what the test feeds.

use iwarp_proto::{
    AccessError, Action, LlpFault, LocalFault, PostError, ProtocolError, QpEvent, Role, SendOp,
    SendWqe, Stag, State, Status, StreamConfig,
};

use crate::craft::{
    decode, header, read_of, read_request, send, tagged, terminate, untagged, verdict, write,
};
use crate::sim::memory::{Region, Work};
use crate::sim::{CONFIG, End, SEND, STREAM, gather, plain, read_op};
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::wire::terminate::TerminateRepr;

fn started() -> End {
    let mut end = End::new(CONFIG);
    end.memory.regions.push(Region::new(0x100, 0, 4096));
    end.qp.start(STREAM).expect("Idle");
    end.pump();
    end
}
/// An end in the given state, with nothing posted.
fn in_state(state: State) -> End {
    let mut end = if state == State::Idle { End::new(CONFIG) } else { started() };
    match state {
        State::Idle | State::Rts => {}
        State::Closing => end.qp.close(&mut end.memory).expect("RTS"),
        State::Terminate => end.qp.terminate(&mut end.memory).expect("RTS"),
        State::Error => end.qp.abort(&mut end.memory),
    }
    assert_eq!(end.qp.state(), state);
    end
}
fn modify(end: &mut End, to: State) -> Result<(), State> {
    match to {
        State::Idle => end.qp.reset(),
        State::Rts => end.qp.start(STREAM),
        State::Closing => end.qp.close(&mut end.memory),
        State::Terminate => end.qp.terminate(&mut end.memory),
        State::Error => {
            end.qp.abort(&mut end.memory);
            Ok(())
        }
    }
}

// [VERBS-01, VERBS-05, VERBS-10] all 25 pairs: a change that is not listed is refused at once and
// changes nothing
#[test]
fn only_listed_transitions_are_possible() {
    use State::*;
    let listed = [
        (Idle, Idle),
        (Idle, Rts),
        (Idle, Error),
        (Rts, Rts),
        (Rts, Closing),
        (Rts, Terminate),
        (Rts, Error),
        (Error, Idle),
    ];
    for from in State::ALL {
        for to in State::ALL {
            assert_eq!(from.may_modify(to), listed.contains(&(from, to)), "{from:?} {to:?}");
            let mut end = in_state(from);
            let result = modify(&mut end, to);
            let now = end.qp.state();
            match (from, to) {
                // Attributes may change; the state does not
                (a, b) if a == b => assert_eq!(now, from),
                // Destroy QP, which every state permits [VERBS-20]
                (_, Error) => assert_eq!(now, Error),
                _ if listed.contains(&(from, to)) => assert_eq!((result, now), (Ok(()), to)),
                _ => assert_eq!((result, now), (Err(from), from), "{from:?} {to:?}"),
            }
        }
    }
}

// [VERBS-01] changes that a QP makes on its own
#[test]
fn automatic_transitions_are_those_of_the_table() {
    use State::*;
    let listed = [
        (Rts, Closing),
        (Rts, Terminate),
        (Rts, Error),
        (Closing, Idle),
        (Closing, Error),
        (Terminate, Error),
    ];
    for from in State::ALL {
        for to in State::ALL {
            assert_eq!(from.may_change(to), listed.contains(&(from, to)), "{from:?} {to:?}");
        }
    }
}

// [VERBS-02, VERBS-11, DDP-18] posting: in Idle and RTS only
#[test]
fn posting_is_possible_in_idle_and_rts_only() {
    for state in State::ALL {
        let mut end = in_state(state);
        let expected = match state {
            State::Idle | State::Rts => Ok(1),
            _ => Err(PostError::BadState),
        };
        assert_eq!(end.try_post(plain(SEND), Work::default()), expected, "{state:?}");
    }
}

// [VERBS-03] a QP that is used again counts from 1, with a new marker origin
#[test]
fn a_second_stream_starts_afresh() {
    let mut end = End::new(CONFIG);
    let stream = StreamConfig { markers_tx: true, ..STREAM };
    let mut frames = vec![];
    for _ in 0..2 {
        end.qp.start(stream).expect("Idle");
        end.receive(10);
        end.feed(&send(1, b"in"));
        end.send(b"out");
        frames.push(end.take());
        end.qp.abort(&mut end.memory);
        end.pump();
        assert!(std::mem::take(&mut end.detached) && std::mem::take(&mut end.reset));
        end.qp.reset().expect("Error");
    }
    assert_eq!(frames[0], frames[1]);
    assert_eq!(frames[0][..4], [0; 4], "marker at the origin");
    end.assert_all_complete();
}

// [VERBS-04] Idle -> Error -> Idle: flushed, and nothing on the wire
#[test]
fn an_idle_qp_flushes_without_a_wire() {
    let mut end = End::new(CONFIG);
    end.send(b"x");
    end.receive(5);
    end.qp.abort(&mut end.memory);
    assert_eq!(end.qp.poll_action(), None);
    assert_eq!(end.statuses(), [Status::Flushed]);
    end.assert_all_complete();
    assert_eq!(end.qp.reset(), Ok(()));
    assert_eq!(end.qp.state(), State::Idle);
}

// [VERBS-06, RDMAP-20, RDMAP-21] 0/0/0, no headers, then FIN
#[test]
fn modify_to_terminate_sends_a_bare_terminate() {
    let mut end = started();
    end.receive(5);
    end.send(b"before");
    end.qp.terminate(&mut end.memory).expect("RTS");
    let out = end.take();
    assert_eq!(verdict(&out), (0, 0));
    assert!(end.closing && !end.reset);
    assert_eq!(end.statuses(), [Status::Flushed]);
    end.fin();
    end.pump();
    assert_eq!(end.qp.state(), State::Error);
    assert!(end.detached);
    end.assert_all_complete();
    assert_eq!(end.qp.last_terminate().map(|t| (t.0, t.1.word())), Some((true, 0)));
}

// [VERBS-07] RST, no Terminate
#[test]
fn modify_to_error_resets() {
    let mut end = started();
    end.send(b"never");
    end.receive(5);
    end.qp.abort(&mut end.memory);
    assert_eq!(end.qp.poll_action(), Some(Action::Reset));
    assert_eq!(end.qp.poll_action(), Some(Action::Detach));
    assert_eq!(end.qp.poll_action(), None);
    assert!(end.take().is_empty());
    end.assert_all_complete();
}

// [VERBS-20] Destroy QP succeeds in every state and leaves no request outstanding
#[test]
fn abort_works_in_every_state() {
    for state in State::ALL {
        let mut end = in_state(state);
        end.pump();
        end.qp.abort(&mut end.memory);
        end.pump();
        assert_eq!(end.qp.state(), State::Error);
        let completions = end.memory.completions.len();
        assert!(end.qp.poll_transmit(&mut end.memory).is_none());
        end.qp.handle_sent(u64::MAX, &mut end.memory);
        assert_eq!(end.memory.completions.len(), completions);
    }
}

/// A Terminate that names a segment of ours.
fn terminate_naming(code: (u8, u8, u8), ddp: Option<Header>) -> Vec<u8> {
    let code = iwarp_proto::TerminateCode::new(code.0, code.1, code.2);
    let segment_length = ddp.map(|_| 46);
    let repr = TerminateRepr { code, segment_length, ddp, read_request: None };
    let mut payload = vec![0; repr.buffer_len()];
    repr.emit(&mut payload).expect("room");
    untagged(header(Opcode::Terminate, 1, 0, true), &payload)
}

// [VERBS-08, VERBS-11, RDMAP-26, RDMAP-29, RDMAP-33] event, no response, FIN, Error; the Read that is
// named has the error, the rest is flushed
#[test]
fn a_received_terminate_ends_everything() {
    let mut end = started();
    end.receive(5);
    end.read((0x100, 0), (0x77, 0), 4);
    end.read((0x100, 4), (0x78, 0), 4);
    end.send(b"behind");
    let (_, named) = (end.take(), header(Opcode::ReadRequest, 2, 0, true));
    end.feed(&terminate_naming((0, 1, 1), Some(Header::Untagged(named))));
    assert!(end.take().is_empty() && end.closing && !end.reset);
    let code = iwarp_proto::TerminateCode::new(0, 1, 1);
    assert_eq!(end.events[1..], [QpEvent::TerminateReceived(code)]);
    assert_eq!(end.qp.state(), State::Terminate);
    assert_eq!(end.qp.last_terminate(), Some((false, code)));
    let flushed = Status::Flushed;
    // The peer need not close
    assert_eq!(end.memory.flushed, end.receive_ids);
    // The Send was sent before, but is after two Reads that never completed
    assert_eq!(end.statuses(), [flushed, Status::RemoteTermination(code), flushed]);
    end.fin();
    end.pump();
    assert_eq!((end.qp.state(), end.detached), (State::Error, true));
    end.assert_all_complete();
}

// [VERBS-09, VERBS-10, VERBS-11] receives, partly filled or not, before the Terminate is sent
#[test]
fn a_fin_in_the_middle_of_a_message_flushes_the_receives() {
    let mut end = started();
    end.receive(100);
    end.receive(100);
    end.feed(&untagged(header(Opcode::Send, 1, 0, false), &[7; 50]));
    assert!(end.memory.flushed.is_empty());
    end.fin();
    assert_eq!(end.qp.state(), State::Terminate);
    assert_eq!(end.memory.flushed, end.receive_ids);
}

// [VERBS-10, VERBS-11] the provider may end the stream without the QP once all is sent
#[test]
fn a_stream_after_its_terminate_ends_in_error() {
    let mut end = started();
    end.receive(5);
    end.read((0x100, 0), (0x77, 0), 4);
    end.qp.handle_left(&mut end.memory);
    assert_eq!(end.qp.state(), State::Rts, "nothing was said");
    end.qp.terminate(&mut end.memory).expect("RTS");
    end.take();
    end.qp.handle_left(&mut end.memory);
    end.pump();
    assert_eq!((end.qp.state(), end.detached, end.reset), (State::Error, false, false));
    assert_eq!(end.memory.flushed, end.receive_ids);
    end.assert_all_complete();
}

// [VERBS-28] the last Terminate stays for Query QP in Terminate and Error
#[test]
fn the_last_terminate_is_kept() {
    let mut end = started();
    end.feed(&terminate_naming((2, 0, 2), None));
    for _ in 0..2 {
        let (sent, code) = end.qp.last_terminate().expect("kept");
        assert_eq!((sent, code.word()), (false, 0x2002));
        end.qp.handle_close_timeout(&mut end.memory);
    }
    assert_eq!(end.qp.state(), State::Error);
}

// [VERBS-11] a Send or a Write that the LLP has not fully accepted
#[test]
fn a_terminate_finds_the_work_it_names() {
    let write = SendOp::Write { stag: Stag(0x9), to: 1000 };
    let tagged = |stag, to| {
        let ulpdu = crate::craft::tagged_ulpdu(Opcode::Write, true, stag, to, b"");
        Header::parse(&ulpdu).expect("a header")
    };
    let send = Header::Untagged(header(Opcode::Send, 1, 0, true));
    let cases = [
        (send, Some(0)),
        (tagged(9, 1000), Some(1)),
        (tagged(9, 1050), Some(1)),
        (tagged(9, 999), None),
        (tagged(8, 1000), None),
        (Header::Untagged(header(Opcode::Send, 2, 0, true)), Some(2)),
        (Header::Untagged(header(Opcode::Send, 3, 0, true)), None),
    ];
    for (named, expected) in cases {
        let mut end = started();
        end.send(&[0; 100]);
        end.post(plain(write), gather(&[0; 100]));
        end.send(b"last");
        end.pump();
        end.feed(&terminate_naming((1, 1, 0), Some(named)));
        end.accept(usize::MAX);
        end.qp.abort(&mut end.memory);
        let code = iwarp_proto::TerminateCode::new(1, 1, 0);
        let found = end.statuses().iter().position(|s| *s == Status::RemoteTermination(code));
        assert_eq!(found, expected, "{named:?}");
        end.assert_all_complete();
    }
    // Atomics are requests, by their message number among those.
    let add = SendOp::FetchAdd { stag: Stag(9), to: 0, add: 1, mask: 0 };
    let named = |opcode, msn| Header::Untagged(header(opcode, msn, 0, true));
    let cases = [
        (named(Opcode::AtomicRequest, 1), Some(0)),
        (named(Opcode::AtomicRequest, 2), Some(1)),
        (named(Opcode::AtomicRequest, 3), None),
        (named(Opcode::Send, 1), None),
    ];
    for (named, expected) in cases {
        let mut end = started();
        for _ in 0..2 {
            end.post(plain(add), Work { len: 8, ..Work::default() });
        }
        end.pump();
        end.feed(&terminate_naming((0, 1, 1), Some(named)));
        end.accept(usize::MAX);
        end.qp.abort(&mut end.memory);
        let code = iwarp_proto::TerminateCode::new(0, 1, 1);
        let found = end.statuses().iter().position(|s| *s == Status::RemoteTermination(code));
        assert_eq!(found, expected, "{named:?}");
    }
}

// [VERBS-10, RDMAP-24, RDMAP-25] one Terminate, for the first error, and nothing after it
#[test]
fn the_first_error_wins() {
    let mut end = started();
    end.send(&[0; 600]);
    let first = end.qp.poll_transmit(&mut end.memory).expect("a segment");
    end.feed(&write(0xbad, 0, b"first"));
    end.feed(&untagged(header(Opcode::Send, 9, 0, true), b"second"));
    end.qp.handle_local_error(ProtocolError::StreamCatastrophic, &mut end.memory);
    assert_eq!(end.qp.terminate(&mut end.memory), Err(State::Terminate));
    // [VERBS-12] after the last complete segment of the Send
    let second = end.qp.poll_transmit(&mut end.memory).expect("the Terminate");
    assert_eq!((first.sequence, second.sequence), (1, 2));
    assert!(end.qp.poll_transmit(&mut end.memory).is_none());
    let mut octets = vec![0; second.wire_len()];
    second.encode(&mut octets, |_, _| Ok::<_, ()>(())).expect("no payload");
    assert_eq!(verdict(&octets), (0x1100, 0b110));
    end.pump();
    assert_eq!(end.events[1..], [QpEvent::TerminateSent(ProtocolError::TaggedStag)]);
}

// [VERBS-11, VERBS-18, RDMAP-28, ERR-27] a bad work request: one error status, the rest Flushed
#[test]
fn a_bad_work_request_fails_alone() {
    let faults = [
        (LocalFault::Access(AccessError::InvalidStag), None),
        (LocalFault::NotPrivileged, None),
        (LocalFault::Length, Some(Status::BadLength)),
        (LocalFault::Wqe, None),
    ];
    let ops = [
        SEND,
        SendOp::Write { stag: Stag(9), to: 0 },
        read_op((0x100, 0), (9, 0)),
        SendOp::FetchAdd { stag: Stag(9), to: 0, add: 1, mask: 0 },
        SendOp::Local,
    ];
    for (fault, status) in faults {
        for op in ops {
            let mut end = started();
            end.receive(4);
            end.send(b"good");
            end.post(plain(op), Work { fault: Some(fault), ..Work::default() });
            end.send(b"after");
            let fpdus = decode(&end.take());
            assert_eq!(fpdus.len(), 2, "{op:?}: the Terminate goes instead of the message");
            assert_eq!(fpdus[1].1[..4], [0, 0, 0, 0], "0/0/0, no headers");
            let failed = status.unwrap_or(Status::Local(fault));
            assert_eq!(end.statuses(), [Status::Success, failed, Status::Flushed], "{op:?}");
            end.fin();
            end.assert_all_complete();
        }
    }
}

// [RDMAP-17] the sink's invalidation and the atomic's result belong to the work request
#[test]
fn trouble_with_a_result_is_the_work_requests() {
    let fault = LocalFault::Access(AccessError::InvalidStag);
    let invalidating = SendOp::Read {
        sink_stag: Stag(0x100),
        sink_to: 0,
        source_stag: Stag(9),
        source_to: 0,
        invalidate_sink: true,
    };
    // Good: the sink is invalid before the completion
    let mut end = started();
    end.post(plain(invalidating), Work { len: 4, sink: Some(Stag(0x100)), ..Work::default() });
    end.take();
    end.feed(&tagged(Opcode::ReadResponse, true, 0x100, 0, b"data"));
    assert!(!end.memory.region(0x100).valid);
    assert_eq!(end.statuses(), [Status::Success]);
    // Bad
    let add = SendOp::FetchAdd { stag: Stag(9), to: 0, add: 1, mask: 0 };
    let answer =
        untagged(header(Opcode::AtomicResponse, 1, 0, true), &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
    let data = tagged(Opcode::ReadResponse, true, 0x100, 0, b"data");
    for (op, frame) in [(invalidating, data), (add, answer)] {
        let mut end = started();
        end.post(plain(op), Work { len: 4, ..Work::default() });
        end.send(b"after");
        end.take();
        end.memory.work.values_mut().for_each(|w| w.fault = Some(fault));
        end.feed(&frame);
        assert_eq!(verdict(&end.take()), (0, 0));
        assert_eq!(end.statuses(), [Status::Local(fault), Status::Flushed]);
    }
}

// [VERBS-12, RDMAP-28] the source of a Write vanishes in the middle
#[test]
fn a_source_that_vanishes_ends_the_stream_on_a_boundary() {
    for markers_tx in [false, true] {
        let mut end = End::new(CONFIG);
        // So that the Terminate has a marker inside, if it begins where the lost segment began
        end.qp.start(StreamConfig { markers_tx, mulpdu: 490, ..STREAM }).expect("Idle");
        end.post(plain(SendOp::Write { stag: Stag(9), to: 0 }), gather(&[5; 1000]));
        end.send(b"after");
        let mut wire = vec![];
        for round in 0u64.. {
            let Some(fpdu) = end.qp.poll_transmit(&mut end.memory) else { break };
            let mut octets = vec![0; fpdu.wire_len()];
            let copied = fpdu.encode(&mut octets, |_, out| {
                out.fill(5);
                if round == 1 { Err(AccessError::InvalidStag) } else { Ok(()) }
            });
            match copied {
                Ok(()) => {
                    wire.extend(octets);
                    assert_eq!(fpdu.sequence, 1 + round.min(1), "numbers without a gap");
                    end.qp.handle_sent(fpdu.sequence, &mut end.memory);
                }
                Err(error) => end.qp.handle_source_fault(error, &mut end.memory),
            }
        }
        let mut rx = iwarp_proto::mpa::Rx::new(Some(crate::common::crc32c), markers_tx);
        let fpdus = crate::craft::decode_with(&mut rx, &wire);
        assert_eq!(fpdus.len(), 2, "one segment, then the Terminate");
        let failed = Status::Local(LocalFault::Access(AccessError::InvalidStag));
        assert_eq!(end.statuses(), [failed, Status::Flushed]);
    }
}

// [RDMAP-23] the source of a Read vanishes: both offsets advanced, the size reduced
#[test]
fn a_read_that_fails_part_way_reports_its_progress() {
    let mut end = started();
    end.feed(&read_request(1, read_of(0x100, 100, 1000)));
    let first = end.qp.poll_transmit(&mut end.memory).expect("a segment");
    end.qp.handle_sent(first.sequence, &mut end.memory);
    let done = first.payload.len();
    end.memory.region(0x100).valid = false;
    let out = end.take();
    let found = terminate(&out);
    assert_eq!((found.code.word(), found.segment_length), (0x0100, Some(46)));
    let asked = read_of(0x100, 100, 1000);
    let rest = found.read_request.expect("R");
    assert_eq!(rest.size, 1000 - done);
    assert_eq!(rest.source_to, 100 + u64::from(done));
    assert_eq!(rest.sink_to, asked.sink_to + u64::from(done));
    assert_eq!((rest.sink_stag, rest.source_stag), (asked.sink_stag, asked.source_stag));
    let Some(Header::Untagged(h)) = found.ddp else { panic!("D") };
    assert_eq!((h.qn, h.msn, h.mo), (1, 1, 0));
}

// [VERBS-14, ERR-27] local catastrophes
#[test]
fn local_catastrophes_have_their_codes() {
    for (error, word) in
        [(ProtocolError::StreamCatastrophic, 0x0207), (ProtocolError::GlobalCatastrophic, 0x0208)]
    {
        let mut end = started();
        end.qp.handle_local_error(error, &mut end.memory);
        assert_eq!(verdict(&end.take()), (word, 0));
    }
    // A receive buffer that cannot be written is a local error, too
    let mut end = started();
    end.receive(10);
    end.memory.broken_buffers = true;
    end.feed(&send(1, b"data"));
    assert_eq!(verdict(&end.take()), (0x0000, 0));
    end.assert_all_complete();
}

// [VERBS-11, ERR-28] a lost stream: reported once, all flushed, posting refused, Idle again on request
#[test]
fn a_lost_stream_flushes() {
    for fault in [LlpFault::Reset, LlpFault::TimedOut] {
        let mut end = started();
        end.receive(1);
        end.send(b"a");
        end.read((0x100, 0), (9, 0), 4);
        end.post(SendWqe { read_fence: true, ..plain(SEND) }, gather(b"c"));
        end.take();
        end.fault(fault);
        end.fault(fault);
        end.pump();
        assert_eq!(end.events[1..], [QpEvent::ConnectionLost(fault)]);
        assert_eq!(end.reset, fault == LlpFault::TimedOut);
        assert_eq!(end.statuses(), [Status::Success, Status::Flushed, Status::Flushed]);
        end.assert_all_complete();
        assert_eq!(end.try_post(plain(SEND), Work::default()), Err(PostError::BadState));
        assert_eq!((end.qp.reset(), end.qp.state()), (Ok(()), State::Idle));
    }
}

// [VERBS-12] an FPDU that was begun and cannot be finished: reset, reported once, all flushed
#[test]
fn an_unfinished_fpdu_ends_the_stream() {
    let mut end = started();
    end.receive(1);
    end.send(b"a");
    for _ in 0..2 {
        end.qp.handle_unfinished(&mut end.memory);
    }
    end.pump();
    assert_eq!(end.events[1..], [QpEvent::TerminateSent(ProtocolError::LocalCatastrophic)]);
    assert!(end.reset && end.detached);
    assert_eq!((end.statuses(), end.qp.state()), (vec![Status::Flushed], State::Error));
    end.assert_all_complete();
    assert_eq!(end.qp.reset(), Ok(()));
    end.qp.handle_unfinished(&mut end.memory);
    assert_eq!(end.qp.state(), State::Idle);
}

// A responder in RTS; the state machine is the same
#[test]
fn a_responder_can_be_closed_before_it_received_anything() {
    let mut end = End::new(CONFIG);
    end.qp.start(StreamConfig { role: Role::Responder, ..STREAM }).expect("Idle");
    end.qp.close(&mut end.memory).expect("RTS");
    end.pump();
    end.fin();
    end.pump();
    assert_eq!(end.events, [QpEvent::CloseComplete]);
    assert_eq!(end.qp.state(), State::Idle);
}
