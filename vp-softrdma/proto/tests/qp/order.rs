//! Order, limits and numbers: fences, ORD and IRD, MSNs, fairness, first FPDU, RTR.
//!
//! Owner of the state: each test its own; one thread. The peer is a QP, or the test itself.

use iwarp_proto::mpa::Rx;
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{AtomicResponseRepr, Opcode, ReadRequestRepr};
use iwarp_proto::{
    Immediate, PostError, QpConfig, QpEvent, Role, RtrKind, SendOp, SendWqe, Stag, State, Status,
    StreamConfig, StreamPosition,
};

use crate::craft::{
    add_at, add_slowly, atomic_request, decode, decode_with, header, opcode, opcodes, read_of,
    read_request, send, tagged, untagged, write,
};
use crate::sim::memory::{Call, Region, Work};
use crate::sim::{CONFIG, End, SEND, STREAM, Sim, gather, plain, read_op, rounds};

/// An initiator in RTS with one region for everything.
fn initiator(stream: StreamConfig) -> End {
    started(CONFIG, StreamConfig { role: Role::Initiator, ..stream }, StreamPosition::START)
}
fn responder(stream: StreamConfig) -> End {
    started(CONFIG, StreamConfig { role: Role::Responder, ..stream }, StreamPosition::START)
}
fn started(config: QpConfig, stream: StreamConfig, position: StreamPosition) -> End {
    let mut end = End::new(config);
    end.memory.regions.push(Region::new(0x100, 0, 4096));
    end.qp.start_at(stream, position).expect("Idle");
    end
}
fn response(to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(Opcode::ReadResponse, true, 0x100, to, payload)
}
fn msns(octets: &[u8]) -> Vec<(u32, u32)> {
    decode(octets)
        .iter()
        .filter_map(|(h, _)| match h {
            Header::Untagged(h) => Some((h.qn, h.msn)),
            Header::Tagged(_) => None,
        })
        .collect()
}
const READ: Opcode = Opcode::ReadRequest;

// [VERBS-15, RDMAP-11] the queue stalls in order: not even a Send overtakes a stalled Read
#[test]
fn ten_reads_with_ord_one_go_one_by_one() {
    let mut end = initiator(StreamConfig { ord: 1, ..STREAM });
    for i in 0..10u64 {
        end.read((0x100, i * 4), (0x77, 0), 4);
    }
    end.send(b"behind");
    for i in 0..9u64 {
        assert_eq!(opcodes(&end.take()), [READ], "round {i}");
        assert_eq!(end.qp.outstanding_reads(), 1);
        // Checking is not waiting.
        assert!(end.take().is_empty() && end.take().is_empty());
        end.feed(&response(i * 4, &[i as u8; 4]));
        assert_eq!(end.memory.completions.len() as u64, i + 1);
    }
    assert_eq!(opcodes(&end.take()), [READ, Opcode::Send], "the Send goes with the last");
    end.feed(&response(36, &[9; 4]));
    end.assert_all_complete();
    assert_eq!(end.memory.region(0x100).octets[36..40], [9; 4]);
    assert_eq!(end.qp.stats().ord_stalls, 9, "each Read but the first waited once");
}

// [VERBS-15] a Read with ORD 0 has its own error; everything else is flushed
#[test]
fn a_read_with_ord_zero_fails() {
    let mut end = initiator(StreamConfig { ord: 0, ..STREAM });
    end.send(b"before");
    end.read((0x100, 0), (0x77, 0), 4);
    end.send(b"behind");
    let out = end.take();
    assert_eq!(opcodes(&out), [Opcode::Send, Opcode::Terminate]);
    assert_eq!(end.statuses(), [Status::Success, Status::ZeroReadResources, Status::Flushed]);
}

// [RDMAP-11, ERR-19, SEC-10] one more than IRD
#[test]
fn ird_overflow_is_refused() {
    let mut end = responder(StreamConfig { ird: 2, ..STREAM });
    for msn in 1..=3 {
        end.feed(&read_request(msn, read_of(0x100, 0, 64)));
    }
    let out = end.take();
    // The two accepted Reads are dropped with the stream
    assert_eq!(crate::craft::verdict(&out), (0x1202, 0b110));
}

// [RDMAP-11] a slot is free once the last segment of the response was generated
#[test]
fn requests_that_got_a_reply_make_room() {
    let mut end = responder(StreamConfig { ird: 1, ..STREAM });
    for msn in 1..=20 {
        end.feed(&read_request(msn, read_of(0x100, 0, 600)));
        assert_eq!(opcodes(&end.take()), [Opcode::ReadResponse; 3], "request {msn}");
    }
}

// [DDP-11, IOP-13] many short Sends are sent at once; responses due meanwhile precede further Sends
#[test]
fn read_responses_do_not_starve_after_short_sends() {
    let mut end = initiator(STREAM);
    for round in 1..=20 {
        end.send(b"short");
        end.send(b"short");
        assert_eq!(end.pump_short(9), 2, "round {round}");
        assert_eq!(opcodes(&end.accept(usize::MAX)), [Opcode::Send; 2]);
        end.feed(&read_request(round, read_of(0x100, 0, 8)));
        end.send(b"behind");
        assert_eq!(opcodes(&end.take()), [Opcode::ReadResponse, Opcode::Send], "round {round}");
    }
}

// [RDMAP-08] a Read that follows a Write sees what was written
#[test]
fn a_read_after_a_write_sees_the_write() {
    let mut end = responder(STREAM);
    for round in 0..500u32 {
        let fill = [round as u8 ^ 0x5a; 100];
        end.feed(&write(0x100, 50, &fill));
        end.feed(&read_request(round + 1, read_of(0x100, 50, 100)));
        let fpdus = decode(&end.take());
        assert_eq!(fpdus[0].1, fill, "round {round}");
    }
}

// [RDMAP-05, RDMAP-09] responses in request order, sink copied unchanged
#[test]
fn responses_come_in_request_order() {
    let mut end = responder(StreamConfig { ird: 4, ..STREAM });
    let sizes = [700, 0, 1, 300];
    for (i, size) in sizes.iter().enumerate() {
        let sink_to = 0x9000 + 0x1000 * i as u64;
        let request = ReadRequestRepr { sink_to, ..read_of(0x100, 0, *size) };
        end.feed(&read_request(i as u32 + 1, request));
    }
    let mut sums = vec![];
    for (header, payload) in decode(&end.take()) {
        let Header::Tagged(h) = header else { panic!("tagged") };
        assert_eq!((opcode(&header), h.stag), (Opcode::ReadResponse, Stag(0xbeef)));
        if h.to.is_multiple_of(0x1000) {
            assert_eq!(h.to, 0x9000 + 0x1000 * sums.len() as u64);
            sums.push(0);
        }
        *sums.last_mut().expect("begun") += payload.len() as u32;
    }
    assert_eq!(sums, sizes);
}

// [RDMAP-17, VERBS-16] a Send after a Read completes after it, though its octets were sent before
#[test]
fn completions_come_in_posting_order() {
    let mut end = initiator(STREAM);
    end.send(b"first");
    end.read((0x100, 0), (0x77, 0), 4);
    end.send(b"second");
    let out = end.take();
    assert_eq!(opcodes(&out), [Opcode::Send, READ, Opcode::Send]);
    assert_eq!(end.memory.completions.len(), 1, "only what was before the Read");
    end.feed(&response(0, b"data"));
    assert_eq!(end.statuses(), [Status::Success; 3]);
    end.assert_all_complete();
}

// [RDMAP-18] a Send completes when the LLP has accepted its last octet
#[test]
fn a_send_completes_with_its_last_octet() {
    let mut end = initiator(STREAM);
    end.send(&[1; 1000]);
    end.pump();
    let mut taken = 0;
    let mut round = rounds("the Send to complete");
    while end.memory.completions.is_empty() {
        round();
        taken += end.accept(1).len();
    }
    assert!(end.idle(), "after {taken} octets");
    assert_eq!(end.memory.completions, [(1, Status::Success, 1000)]);
}

// [VERBS-17, RDMAP-19] without a fence a Write overtakes the Read, with one it waits
#[test]
fn a_read_fence_waits_for_reads_only() {
    for fenced in [false, true] {
        let mut end = initiator(STREAM);
        end.read((0x100, 0), (0x77, 0), 4);
        let op = SendOp::Write { stag: Stag(0x77), to: 0 };
        end.post(SendWqe { read_fence: fenced, ..plain(op) }, gather(b"new"));
        let out = opcodes(&end.take());
        assert_eq!(out.len(), if fenced { 1 } else { 2 }, "{out:?}");
        end.feed(&response(0, b"data"));
        assert_eq!(opcodes(&end.take()).len(), usize::from(fenced));
        end.assert_all_complete();
        assert_eq!(end.qp.stats().fence_stalls, u64::from(fenced));
    }
}

// [VERBS-17] a local fence waits for all earlier work, also for octets that the LLP has not accepted
#[test]
fn a_local_fence_waits_for_everything() {
    let mut end = initiator(STREAM);
    end.send(b"before");
    end.post(SendWqe { local_fence: true, ..plain(SendOp::Local) }, Work::default());
    end.send(b"after");
    end.pump();
    assert!(end.memory.local_runs.is_empty());
    assert_eq!(opcodes(&end.accept(usize::MAX)), [Opcode::Send]);
    end.pump();
    assert_eq!(end.memory.local_runs, [2]);
    assert_eq!(opcodes(&end.take()), [Opcode::Send]);
    end.assert_all_complete();
}

// [VERBS-17] Bind, Fast-Register and Invalidate are in effect before the next WQE starts, and
// complete in order
#[test]
fn local_work_runs_in_its_place() {
    let mut end = initiator(STREAM);
    end.read((0x100, 0), (0x77, 0), 4);
    end.post(plain(SendOp::Local), Work::default());
    end.send(b"after");
    assert_eq!(opcodes(&end.take()), [READ, Opcode::Send]);
    assert_eq!(end.memory.local_runs, [2]);
    assert!(end.memory.completions.is_empty());
    end.feed(&response(0, b"data"));
    end.assert_all_complete();
}

// [DDP-06] send side: FFFFFFFF is followed by 0, on every queue
#[test]
fn message_numbers_wrap_on_send() {
    let send_msn = [u32::MAX, u32::MAX, 1, u32::MAX];
    let receive_msn = [1, u32::MAX, 1, 1];
    let position = StreamPosition { send_msn, receive_msn, ..StreamPosition::START };
    let mut end = started(CONFIG, STREAM, position);
    for _ in 0..2 {
        end.send(b"x");
        end.read((0x100, 0), (0x77, 0), 1);
    }
    assert_eq!(msns(&end.take()), [(0, u32::MAX), (1, u32::MAX), (0, 0), (1, 0)]);
    end.feed(&atomic_request(u32::MAX, add_at(0x100, 0)));
    end.feed(&atomic_request(0, add_at(0x100, 0)));
    assert_eq!(msns(&end.take()), [(3, u32::MAX), (3, 0)]);
}

// [DDP-06] receive side: FFFFFFFF is followed by 0 and nothing else, on every queue that counts; the
// fast path of whole Sends, and the slow one of segments
#[test]
fn message_numbers_wrap_on_receive() {
    let receive_msn = [u32::MAX, u32::MAX, 1, u32::MAX];
    let position = StreamPosition { receive_msn, ..StreamPosition::START };
    let end = || {
        let mut end = started(CONFIG, STREAM, position);
        end.receive(10);
        end.receive(10);
        let add = SendOp::FetchAdd { stag: Stag(0x77), to: 0, add: 1, mask: 0 };
        for _ in 0..2 {
            end.post(plain(add), Work { len: 8, ..Work::default() });
        }
        end.take();
        end
    };
    let segments = |msn| {
        let first = untagged(header(Opcode::Send, msn, 0, false), b"ab");
        [first, untagged(header(Opcode::Send, msn, 2, true), b"cd")].concat()
    };
    let immediate = |msn| untagged(header(Opcode::Immediate, msn, 0, true), &[0; 8]);
    let original = |msn: u32| {
        let response = AtomicResponseRepr { request_id: msn.wrapping_add(2), original: 0 };
        untagged(header(Opcode::AtomicResponse, msn, 0, true), &response.emit())
    };
    type Way<'a> = (&'a str, &'a dyn Fn(u32) -> Vec<u8>);
    let ways: [Way<'_>; 6] = [
        ("Send", &|msn| send(msn, b"abcd")),
        ("Send in segments", &segments),
        ("Immediate Data", &immediate),
        ("Read Request", &|msn| read_request(msn, read_of(0x100, 0, 4))),
        ("Atomic Request", &|msn| atomic_request(msn, add_at(0x100, 0))),
        ("Atomic Response", &original),
    ];
    for (what, message) in ways {
        for (second, taken) in [(0, true), (1, false), (u32::MAX, false)] {
            let mut end = end();
            end.feed(&message(u32::MAX));
            assert_eq!(end.qp.state(), State::Rts, "{what}");
            end.feed(&message(second));
            let state = if taken { State::Rts } else { State::Terminate };
            assert_eq!(end.qp.state(), state, "{what}: FFFFFFFF, then {second:x}");
        }
    }
}

// [DDP-06] every queue counts from 1; Immediate Data shares with Sends, Atomics with Reads
// [EXT-03, EXT-04, EXT-11]
#[test]
fn queues_count_separately_from_one() {
    let mut end = initiator(STREAM);
    end.send(b"x");
    end.post(plain(SendOp::Immediate { data: 5, solicited: true }), Work::default());
    end.read((0x100, 0), (0x77, 0), 1);
    let add = SendOp::FetchAdd { stag: Stag(0x77), to: 0, add: 1, mask: 0 };
    end.post(plain(add), Work { len: 8, ..Work::default() });
    end.send(b"y");
    let out = end.take();
    assert_eq!(msns(&out), [(0, 1), (0, 2), (1, 1), (1, 2), (0, 3)]);
    let imm = &decode(&out)[1];
    assert_eq!((opcode(&imm.0), &imm.1[..]), (Opcode::ImmediateSolicited, &5u64.to_be_bytes()[..]));
}

// [DDP-11, IOP-13] message by message, the SQ and the peer's Reads take turns
#[test]
fn the_send_queue_and_the_peers_reads_take_turns() {
    let mut end = initiator(STREAM);
    for msn in 1..=3 {
        end.feed(&read_request(msn, read_of(0x100, 0, 500)));
        end.send(&[0; 500]);
    }
    let out = opcodes(&end.take());
    let (send, read) = (Opcode::Send, Opcode::ReadResponse);
    let round = [send, send, send, read, read, read];
    assert_eq!(out, round.repeat(3));
}

// [CONN-11] a responder sends nothing until a valid FPDU has arrived; a damaged one does not count
#[test]
fn a_responder_waits_for_the_first_valid_fpdu() {
    let mut end = responder(StreamConfig { markers_tx: true, ..STREAM });
    end.send(b"early");
    end.qp.kick();
    assert!(!end.qp.probe());
    assert!(end.take().is_empty(), "no FPDU, no marker");
    let frame = write(1, 0, b"");
    end.feed(&frame[..frame.len() - 1]);
    assert!(end.take().is_empty());
    end.feed(&frame[frame.len() - 1..]);
    assert_eq!(end.events, []);
    let out = end.take();
    assert_eq!(end.events, [QpEvent::Established]);
    let mut rx = Rx::new(Some(crate::common::crc32c), true);
    assert_eq!(decode_with(&mut rx, &out).len(), 1);
}

// [CONN-11] the Terminate for a damaged first FPDU is sent, the queued Send is not
#[test]
fn a_damaged_first_fpdu_releases_nothing() {
    let mut end = responder(STREAM);
    end.send(b"early");
    let mut frame = write(1, 0, b"");
    frame[3] ^= 1;
    end.feed(&frame);
    assert_eq!(crate::craft::verdict(&end.take()), (0x2002, 0));
    assert_eq!(end.statuses(), [Status::Flushed]);
}

// [CONN-11] a local error before the first FPDU: FIN only
#[test]
fn a_silent_responder_terminates_without_a_terminate() {
    let mut end = responder(STREAM);
    end.qp.terminate(&mut end.memory).expect("RTS");
    assert!(end.take().is_empty() && end.closing);
    assert_eq!(end.qp.last_terminate(), None);
}

// [CONN-29, CONN-30, IOP-06, IOP-07] the RTR is first, uses sequence numbers, and is not reported
#[test]
fn the_rtr_goes_first_and_stays_hidden() {
    let expected = [
        (RtrKind::Send, Opcode::Send, [(0, 1), (0, 2)]),
        (RtrKind::Write, Opcode::Write, [(0, 1), (0, 2)]),
        (RtrKind::Read, Opcode::ReadRequest, [(1, 1), (0, 1)]),
    ];
    for (kind, first, numbers) in expected {
        let stream = StreamConfig { rtr: Some(kind), ..STREAM };
        let mut sim = Sim::pair(stream);
        sim.ends[1].receive(10);
        sim.ends[1].receive(10);
        assert_eq!(sim.ends[0].qp.poll_action(), None, "not before the RTR has left");
        sim.ends[0].send(b"one");
        sim.ends[0].send(b"two");
        let out = sim.ends[0].take();
        assert_eq!(opcodes(&out)[0], first);
        assert_eq!(msns(&out)[..2], numbers, "{kind:?}");
        if let (Header::Tagged(h), _) = &decode(&out)[0] {
            assert_eq!((h.stag, h.to), (Stag(1), 0));
        }
        assert_eq!(sim.ends[0].events, [QpEvent::Established]);
        sim.ends[1].feed(&out);
        sim.run();
        let answer = sim.ends[1].memory.received.iter().map(|r| &r.octets[..]);
        assert_eq!(answer.collect::<Vec<_>>(), [b"one", b"two"]);
        assert_eq!(sim.ends[0].memory.completions.len(), 2);
        assert_eq!(sim.ends[0].qp.outstanding_reads(), 0);
        sim.close(0);
    }
}

// [CONN-22, CONN-30] a Read RTR is valid with ORD 0 and IRD 0, as the only Read
#[test]
fn a_read_rtr_needs_no_ord() {
    let stream = StreamConfig { rtr: Some(RtrKind::Read), ord: 0, ird: 0, ..STREAM };
    let config = QpConfig { max_ird: 0, max_ord: 0, ..CONFIG };
    let second = StreamConfig { role: Role::Responder, ..stream };
    let mut sim = Sim::with(config, [stream, second]);
    sim.ends[1].receive(10);
    sim.ends[0].send(b"hello");
    assert!(sim.ends[0].qp.probe_outstanding() || !sim.ends[0].qp.probe());
    sim.run();
    assert!(!sim.ends[0].qp.probe_outstanding());
    sim.close(0);
}

// [CONN-30] a Send RTR is one FPDU, the first; later empty Sends take a buffer
#[test]
fn only_the_first_empty_send_is_an_rtr() {
    let mut end = responder(StreamConfig { rtr: Some(RtrKind::Send), ..STREAM });
    end.receive(0);
    end.feed(&send(1, b""));
    assert!(end.memory.received.is_empty());
    end.feed(&send(2, b""));
    assert_eq!(end.memory.received.len(), 1);
    // If the first FPDU is another message, none is treated as RTR
    let mut end = responder(StreamConfig { rtr: Some(RtrKind::Send), ..STREAM });
    end.receive(0);
    end.feed(&write(1, 0, b""));
    end.feed(&send(1, b""));
    assert_eq!(end.memory.received.len(), 1);
}

// [IOP-17] an initiator is ready before it has sent anything
#[test]
fn an_initiator_accepts_fpdus_at_once() {
    let mut end = initiator(STREAM);
    end.receive(10);
    end.feed(&send(1, b"early"));
    assert_eq!(end.memory.received[0].octets, b"early");
}

// [CONN-14] kicks and probes are invisible to applications, and one probe is outstanding at a time
#[test]
fn kicks_and_probes_do_not_surface() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[0].qp.kick();
    assert!(sim.ends[0].qp.probe());
    assert!(!sim.ends[0].qp.probe(), "one at a time");
    assert!(sim.ends[0].qp.probe_outstanding());
    let heard = sim.ends[0].qp.fpdus_received();
    sim.run();
    assert_eq!(sim.ends[0].qp.fpdus_received(), heard + 1);
    assert!(!sim.ends[0].qp.probe_outstanding());
    assert!(sim.ends[0].qp.probe());
    sim.run();
    assert_eq!(sim.ends[0].qp.outstanding_reads(), 0);
    for end in &sim.ends {
        assert!(end.memory.completions.is_empty() && end.memory.received.is_empty());
        assert_eq!(end.events, [QpEvent::Established]);
    }
    sim.close(1);
    assert!(!sim.ends[0].qp.probe(), "not in Idle");
}

// [RDMAP-11] a probe uses ORD like any Read: it waits for a slot, and Reads wait for it
#[test]
fn a_probe_respects_ord() {
    let mut end = initiator(StreamConfig { ord: 1, ..STREAM });
    assert!(end.qp.probe());
    end.read((0x100, 0), (0x77, 0), 4);
    assert_eq!(opcodes(&end.take()), [READ]);
    assert_eq!(end.qp.outstanding_reads(), 0, "only the probe is out");
    assert!(!end.qp.probe());
    end.feed(&tagged(Opcode::ReadResponse, true, 1, 0, b""));
    assert_eq!(opcodes(&end.take()), [READ]);
    assert!(!end.qp.probe(), "ORD is used up");
    end.feed(&response(0, b"data"));
    end.assert_all_complete();
}

// [EXT-06, EXT-07, EXT-11, EXT-13] atomics mixed with Reads, with responses in order
#[test]
fn atomics_and_reads_get_their_responses_in_order() {
    let mut end = responder(STREAM);
    end.feed(&read_request(1, read_of(0x100, 0, 8)));
    end.feed(&atomic_request(2, add_at(0x100, 0)));
    end.feed(&atomic_request(3, add_at(0x100, 0)));
    end.feed(&read_request(4, read_of(0x100, 0, 8)));
    let fpdus = decode(&end.take());
    let kinds: Vec<_> = fpdus.iter().map(|(h, _)| opcode(h)).collect();
    let (read, atomic) = (Opcode::ReadResponse, Opcode::AtomicResponse);
    assert_eq!(kinds, [read, atomic, atomic, read]);
    assert_eq!(fpdus[0].1, 0u64.to_ne_bytes(), "read before the first addition");
    let original = |i: usize| AtomicResponseRepr::parse(&fpdus[i].1).expect("long enough").original;
    assert_eq!((original(1), original(2)), (0, 1));
    assert_eq!(fpdus[3].1, 2u64.to_ne_bytes(), "read behind the second");
}

// [EXT-11, EXT-13] ours: results in order, completion only with the response
#[test]
fn our_atomics_complete_with_their_responses() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x400, 0, 8));
    for step in 0..20u64 {
        let (stag, to) = (Stag(0x400), 0);
        let op = if step % 2 == 0 {
            SendOp::FetchAdd { stag, to, add: 10, mask: 0 }
        } else {
            let compare = (step + 1) * 5;
            let (compare_mask, swap_mask) = (u64::MAX, u64::MAX);
            SendOp::CmpSwap { stag, to, compare, compare_mask, swap: compare, swap_mask }
        };
        sim.ends[0].post(plain(op), Work { len: 8, ..Work::default() });
    }
    sim.run();
    let originals: Vec<u64> = sim.ends[0].memory.atomics.iter().map(|a| a.1).collect();
    assert_eq!(originals, (0..20u64).map(|s| s.div_ceil(2) * 10).collect::<Vec<u64>>());
    assert!(sim.ends[0].memory.completions.iter().all(|c| c.1 == Status::Success && c.2 == 8));
    sim.close(0);
}

// [EXT-06] a set mask bit is the most significant bit of a field; its carry is dropped
#[test]
fn masked_fetch_add_drops_carries() {
    use iwarp_proto::AtomicOp;
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..2000 {
        let [old, add, mask] = [0; 3].map(|_: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        });
        let fast = AtomicOp::FetchAdd { add, mask }.apply(old);
        assert_eq!(fast, Some(add_slowly(old, add, mask)), "{old:x} {add:x} {mask:x}");
    }
}

// [EXT-07] bits whose mask is 0 are neither compared nor swapped
#[test]
fn masked_compare_and_swap_goes_bit_by_bit() {
    use iwarp_proto::AtomicOp;
    let bit = |value: u64, at: u32| value >> at & 1;
    for round in 0..2000u64 {
        let mut x = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [old, noise, compare_mask, swap, swap_mask] = [0; 5].map(|_: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        });
        // Equal in the compared bits in most rounds; in every third, another bit differs.
        let flip = if round % 3 == 0 { 1 << (round % 64) } else { 0 };
        let compare = old ^ (noise & !compare_mask) ^ flip;
        let same = |at| bit(compare_mask, at) == 0 || bit(compare, at) == bit(old, at);
        let new = |at| bit(if bit(swap_mask, at) == 1 { swap } else { old }, at) << at;
        let expected = (0..64).all(same).then(|| (0..64).map(new).sum());
        let op = AtomicOp::CmpSwap { compare, compare_mask, swap, swap_mask };
        assert_eq!(op.apply(old), expected, "{old:x} {op:x?}");
    }
}

// [EXT-16, IOP-16] without RFC 7306 none of its requests can be posted
#[test]
fn extensions_must_be_on() {
    let mut end = End::new(QpConfig { extensions: false, ..CONFIG });
    let (stag, to) = (Stag(1), 0);
    for op in [
        SendOp::Immediate { data: 0, solicited: false },
        SendOp::WriteImmediate { stag, to, data: 0, solicited: false },
        SendOp::FetchAdd { stag, to, add: 0, mask: 0 },
    ] {
        assert_eq!(end.try_post(plain(op), Work::default()), Err(PostError::Unsupported));
    }
    assert_eq!(end.qp.state(), State::Idle);
}

// [EXT-03] WriteImmediate: one completion, the data directly after the Write
#[test]
fn write_with_immediate_is_one_work_request() {
    for len in [0usize, 5, 600] {
        let mut sim = Sim::pair(STREAM);
        sim.ends[1].memory.regions.push(Region::new(0x100, 0, 1000));
        sim.ends[1].receive(0);
        let (stag, to, data) = (Stag(0x100), 3, 0x0123_4567_89ab_cdef);
        let op = SendOp::WriteImmediate { stag, to, data, solicited: true };
        sim.ends[0].post(plain(op), gather(&vec![7; len]));
        sim.run();
        assert_eq!(sim.ends[0].memory.completions, [(1, Status::Success, len as u32)]);
        let receive = sim.ends[1].memory.received[0].receive;
        assert_eq!((receive.immediate, receive.solicited), (Some(Immediate::Alone(data)), true));
        assert_eq!(sim.ends[1].memory.region(0x100).octets[3..3 + len], vec![7; len]);
        sim.close(0);
    }
}

/// Immediate Data of the peer.
fn alone(msn: u32) -> Vec<u8> {
    untagged(header(Opcode::Immediate, msn, 0, true), &[0; 8])
}

/// A Write of the peer in two segments.
fn write_in_two(octets: &[u8]) -> Vec<u8> {
    let (first, rest) = octets.split_at(octets.len() / 2);
    let to = first.len() as u64;
    [tagged(Opcode::Write, false, 0x100, 0, first), tagged(Opcode::Write, true, 0x100, to, rest)]
        .concat()
}

// [EXT-03] Immediate Data tells the length of the Write directly before it, also when it waits for a receive
#[test]
fn immediate_data_counts_the_write_before_it() {
    for hold in [0, 4096] {
        let mut end = End::new(QpConfig { hold, ..CONFIG });
        end.memory.regions.push(Region::new(0x100, 0, 6000));
        end.qp.start(StreamConfig { role: Role::Responder, ..STREAM }).expect("Idle");
        if hold == 0 {
            (0..6).for_each(|_| {
                end.receive(8);
            });
        }
        for wire in [
            // At once, and one that streams in.
            [write(0x100, 0, &[1; 9]), alone(1), write(0x100, 0, &[1; 5000]), alone(2)].concat(),
            [write_in_two(&[2; 600]), alone(3), write(0x100, 0, b""), alone(4)].concat(),
            // Behind a Send it is not that Write's; nor is one behind another.
            [write(0x100, 0, b"plain"), send(5, b"x"), alone(6)].concat(),
        ] {
            end.feed(&wire);
        }
        if hold > 0 {
            (0..6).for_each(|_| {
                end.receive(8);
            });
            end.qp.handle_receives(&mut end.memory);
        }
        let counts = end.memory.received.iter().map(|receive| receive.receive.octets);
        assert_eq!(counts.collect::<Vec<_>>(), [9, 5000, 600, 0, 1, 0], "hold {hold}");
    }
}

// [DDP-10, RDMAP-06, RDMAP-12, RDMAP-15] at length 0 nothing is checked or placed, yet all complete
#[test]
fn zero_length_everything() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].receive(0);
    sim.ends[0].write(0xdead, 0xbeef, b"");
    sim.ends[0].read((0xbad, 1), (0xbad, 2), 0);
    sim.ends[0].send(b"");
    sim.run();
    assert_eq!(sim.ends[0].statuses(), [Status::Success; 3]);
    assert_eq!(sim.ends[1].memory.received.len(), 1);
    assert_eq!(sim.ends[1].memory.placed + sim.ends[0].memory.placed, 0);
    sim.close(1);
}

// [VERBS-27] all of the payload, then invalidate, then the completion that names the STag; if it may
// not be invalidated there is no completion
#[test]
fn a_peer_invalidates_behind_its_payload_and_before_the_completion() {
    let stag = Stag(0x100);
    for shared in [false, true] {
        for cut in [4, 3] {
            let mut end = responder(STREAM);
            end.memory.region(0x100).shared = shared;
            end.receive(10);
            let named = |mo, last| {
                let plain = header(Opcode::SendInvalidate, 1, mo, last);
                iwarp_proto::wire::ddp::UntaggedRepr { ulp_word: stag.0, ..plain }
            };
            if cut < 4 {
                end.feed(&untagged(named(0, false), &b"data"[..cut]));
                assert_eq!(end.memory.calls, [Call::Place(3)], "not before the last segment");
                end.feed(&untagged(named(3, true), &b"data"[cut..]));
            } else {
                end.feed(&untagged(named(0, true), b"data"));
            }
            let placed: &[Call] =
                if cut < 4 { &[Call::Place(3), Call::Place(1)] } else { &[Call::Place(4)] };
            let behind: &[Call] = if shared {
                &[Call::Invalidate(stag)]
            } else {
                &[Call::Invalidate(stag), Call::Complete(Some(stag))]
            };
            assert_eq!(end.memory.calls, [placed, behind].concat());
            assert_eq!(end.memory.received.len(), usize::from(!shared));
        }
    }
}

// [RDMAP-13, RDMAP-14] what the receiver learns from each of the four Sends
#[test]
fn all_four_sends() {
    for (solicited, invalidate) in
        [(false, None), (true, None), (false, Some(Stag(0x100))), (true, Some(Stag(0x100)))]
    {
        let mut sim = Sim::pair(STREAM);
        sim.ends[1].memory.regions.push(Region::new(0x100, 0, 10));
        sim.ends[1].receive(500);
        sim.ends[0].post(plain(SendOp::Send { solicited, invalidate }), gather(&[9; 400]));
        sim.run();
        let received = &sim.ends[1].memory.received[0];
        assert_eq!(received.octets, [9; 400]);
        assert_eq!(received.receive.solicited, solicited);
        assert_eq!(received.receive.invalidated, invalidate);
        assert_eq!(sim.ends[1].memory.region(0x100).valid, invalidate.is_none());
        // [RDMAP-13] a Write to it now is refused
        sim.ends[0].write(0x100, 0, b"x");
        sim.run();
        let refused = sim.ends[1].qp.last_terminate().map(|(_, code)| code.word());
        assert_eq!(refused, invalidate.map(|_| 0x1100));
    }
}

// [DDP-08, DDP-09] the longest message: 2^32 - 1 octets, each exactly once, with carry in the TO
#[test]
fn the_longest_write_is_sent_to_its_last_octet() {
    let mut end = initiator(StreamConfig { crc: false, mulpdu: 64768, ..STREAM });
    let start = 0xffff_ff00u64;
    let op = SendOp::Write { stag: Stag(9), to: start };
    let slot = end.qp.post_send(plain(op)).expect("room");
    end.memory.work.insert(slot, Work { id: 1, len: u32::MAX, ..Work::default() });
    let mut total = 0u64;
    let mut round = rounds("the Write to complete");
    while end.memory.completions.is_empty() {
        round();
        let fpdu = end.qp.poll_transmit(&mut end.memory).expect("more");
        let head = fpdu.head().expect("gathers");
        let Ok(Header::Tagged(h)) = Header::parse(&head[2..]) else { panic!("tagged") };
        assert_eq!(h.to, start + total);
        assert!(!fpdu.payload.is_empty());
        total += u64::from(fpdu.payload.len());
        assert_eq!(h.control.last(), total == u64::from(u32::MAX));
        end.qp.handle_sent(fpdu.sequence, &mut end.memory);
    }
    assert_eq!(end.memory.completions, [(1, Status::Success, u32::MAX)]);
    assert!(iwarp_proto::Payload::None.is_empty());
}

// [MPA-16] no ULPDU is longer than 64,768 octets, whatever MULPDU is configured
#[test]
fn no_ulpdu_exceeds_the_longest() {
    for raised_later in [false, true] {
        let mulpdu = if raised_later { 256 } else { u16::MAX };
        let mut end = initiator(StreamConfig { mulpdu, ..STREAM });
        if raised_later {
            end.qp.set_mulpdu(u16::MAX);
        }
        end.send(&[1; 130_000]);
        let lengths: Vec<_> = decode(&end.take()).iter().map(|(_, p)| p.len() + 18).collect();
        assert_eq!(lengths, [64_768, 64_768, 518]);
    }
}

// [VERBS-02] requests posted in Idle are processed in order after the start, none before
#[test]
fn work_posted_in_idle_waits() {
    let mut end = End::new(CONFIG);
    end.send(b"one");
    end.send(b"two");
    assert!(end.take().is_empty() && end.memory.completions.is_empty());
    end.qp.start(STREAM).expect("Idle");
    assert_eq!(msns(&end.take()), [(0, 1), (0, 2)]);
    end.assert_all_complete();
}

// A full queue refuses; a completion makes room
#[test]
fn a_full_queue_refuses() {
    let mut end = End::new(QpConfig { sq_depth: 2, ..CONFIG });
    end.send(b"1");
    end.send(b"2");
    assert_eq!(end.try_post(plain(SEND), Work::default()), Err(PostError::QueueFull));
    end.qp.start(STREAM).expect("Idle");
    end.take();
    end.send(b"3");
    assert_eq!(end.qp.outstanding_sends(), 1);
}

// [DDP-05, DDP-12] two segments, then the second message's; nothing is delivered early
#[test]
fn a_message_is_delivered_with_its_last_segment() {
    let mut end = responder(STREAM);
    end.receive(100);
    end.receive(100);
    end.feed(&untagged(header(Opcode::Send, 1, 0, false), b"hello "));
    assert!(end.memory.received.is_empty());
    end.feed(&untagged(header(Opcode::SendSolicited, 1, 6, true), b"world"));
    assert_eq!(end.memory.received[0].octets, b"hello world");
    end.feed(&send(2, b"next"));
    assert_eq!(end.memory.received[1].octets, b"next");
}

// [VERBS-29] a completed Read shows that all earlier work has arrived
#[test]
fn a_completed_read_acknowledges_what_was_before() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x100, 0, 100));
    sim.ends[0].memory.regions.push(Region::new(0x200, 0, 100));
    sim.ends[0].write(0x100, 0, b"data");
    let read = plain(read_op((0x200, 0), (0x100, 0)));
    sim.ends[0].post(read, Work { len: 4, ..Work::default() });
    let mut round = rounds("the Write and the Read to complete");
    while sim.ends[0].memory.completions.len() < 2 {
        round();
        for side in 0..2 {
            sim.accept(side, 7);
            sim.deliver(side, 7);
        }
    }
    assert_eq!(sim.ends[1].memory.region(0x100).octets[..4], *b"data");
}

// [CONN-22] a responder that expects a Read as RTR takes one, though its IRD is 0; no other does
#[test]
fn a_read_rtr_needs_no_ird() {
    for (rtr, taken) in [(RtrKind::Read, true), (RtrKind::Write, false), (RtrKind::Send, false)] {
        let mut end = responder(StreamConfig { ird: 0, rtr: Some(rtr), ..STREAM });
        end.feed(&read_request(1, read_of(0, 0, 0)));
        let state = if taken { State::Rts } else { State::Terminate };
        assert_eq!(end.qp.state(), state, "{rtr:?}");
    }
}

// [CONN-29] an RTR that the LLP accepts only after the end establishes nothing
#[test]
fn no_event_established_after_the_end() {
    let mut end = initiator(StreamConfig { rtr: Some(RtrKind::Write), ..STREAM });
    end.pump();
    end.fault(iwarp_proto::LlpFault::TimedOut);
    end.pump();
    assert!(end.detached);
    end.qp.handle_sent(1, &mut end.memory);
    assert_eq!(end.qp.poll_action(), None);
}
