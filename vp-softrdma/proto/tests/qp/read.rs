//! Long RDMA Reads: split into several Requests, each within ORD, and still one work request.
//!
//! Owner of the state: each test its own; one thread. The peer is a QP, or the test itself.

use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{Opcode, ReadRequestRepr};
use iwarp_proto::wire::terminate::TerminateRepr;
use iwarp_proto::{
    QpConfig, Role, SendOp, SendWqe, Stag, Status, StreamConfig, StreamPosition, TerminateCode,
};

use crate::craft::{
    decode, header, opcode, opcodes, read_of, read_request, tagged, terminate, untagged,
};
use crate::sim::memory::{Region, Work};
use crate::sim::{CONFIG, End, SEND, STREAM, Sim, gather, plain, read_op, rounds};

const MOST: u32 = 100;
const SINK: u32 = 0x100;
const SOURCE: u32 = 0x77;
const READ: Opcode = Opcode::ReadRequest;

/// An initiator that may have `ord` Requests outstanding, each for 100 octets at most.
fn initiator(ord: u16) -> End {
    let mut end = End::new(QpConfig { max_read_request: MOST, ..CONFIG });
    end.memory.regions.push(Region::new(SINK, 0x1000, 4096));
    let stream = StreamConfig { role: Role::Initiator, ord, ..STREAM };
    end.qp.start(stream).expect("Idle");
    end
}
/// Size, sink and source of each Read Request, with its MSN.
fn requests(octets: &[u8]) -> Vec<(u32, ReadRequestRepr)> {
    let of = |(header, payload): &(Header, Vec<u8>)| match header {
        Header::Untagged(h) if opcode(header) == READ => {
            Some((h.msn, ReadRequestRepr::parse(payload).expect("a Read Request")))
        }
        _ => None,
    };
    decode(octets).iter().filter_map(of).collect()
}
fn request(sink_to: u64, source_to: u64, size: u32) -> ReadRequestRepr {
    ReadRequestRepr { sink_stag: Stag(SINK), sink_to, size, source_stag: Stag(SOURCE), source_to }
}
/// The response to one Request.
fn answer(end: &mut End, to: u64, octets: &[u8]) {
    end.feed(&tagged(Opcode::ReadResponse, true, SINK, to, octets));
}

// [RDMAP-11, RDMAP-17, VERBS-15] as many at once as ORD allows; done with the last octet of the last
#[test]
fn a_long_read_is_split_into_requests() {
    let mut end = initiator(2);
    end.read((SINK, 0x1000), (SOURCE, 0x9000), 250);
    let first = requests(&end.take());
    assert_eq!(first, [(1, request(0x1000, 0x9000, 100)), (2, request(0x1064, 0x9064, 100))]);
    assert_eq!(end.qp.outstanding_reads(), 1);
    answer(&mut end, 0x1000, &[1; 100]);
    assert_eq!(requests(&end.take()), [(3, request(0x10c8, 0x90c8, 50))]);
    answer(&mut end, 0x1064, &[2; 100]);
    assert!(end.take().is_empty() && end.memory.completions.is_empty());
    answer(&mut end, 0x10c8, &[3; 50]);
    assert_eq!(end.memory.completions, [(1, Status::Success, 250)]);
    let octets = &end.memory.region(SINK).octets;
    assert_eq!([octets[0], octets[99], octets[100], octets[199], octets[249]], [1, 1, 2, 2, 3]);
    assert_eq!(end.qp.stats().messages_sent, 3);
    end.assert_all_complete();
}

// Nothing is requested twice or needlessly at the borders
#[test]
fn as_many_requests_as_the_length_needs() {
    for (len, parts) in [(0, 1), (1, 1), (99, 1), (100, 1), (101, 2), (200, 2), (201, 3)] {
        let mut end = initiator(4);
        end.read((SINK, 0x1000), (SOURCE, 0), len);
        let asked = requests(&end.take());
        assert_eq!(asked.len(), parts, "{len} octets");
        assert_eq!(asked.iter().map(|(_, r)| r.size).sum::<u32>(), len);
    }
}

// [RDMAP-19] requests that need no ORD overtake a Read whose Requests are not all sent
#[test]
fn a_send_overtakes_a_long_read() {
    let mut end = initiator(1);
    end.read((SINK, 0x1000), (SOURCE, 0), 1000);
    end.write(SOURCE, 0, b"write");
    end.send(b"short");
    end.send(&[7; 600]);
    let (write, send) = (Opcode::Write, Opcode::Send);
    assert_eq!(opcodes(&end.take()), [READ, write, send, send, send, send]);
}

// [VERBS-15, RDMAP-09] as many Reads begin as ORD allows, and a Send overtakes them all; their
// Requests are sent in order, and one more Read stalls the queue
#[test]
fn long_reads_queue_up_without_stalling_a_send() {
    let mut end = initiator(2);
    for i in 0..2u64 {
        end.read((SINK, 0x1000 + i * 300), (SOURCE, i * 300), 300);
    }
    end.send(b"overtakes");
    end.read((SINK, 0x1600), (SOURCE, 600), 100);
    end.send(b"stalled");
    assert_eq!(opcodes(&end.take()), [READ, READ, Opcode::Send]);
    let mut asked = Vec::new();
    for part in 0..6 {
        answer(&mut end, 0x1000 + part * 100, &[1; 100]);
        let out = end.take();
        asked.extend(requests(&out).iter().map(|(msn, r)| (*msn, r.source_to)));
        let sends = opcodes(&out).contains(&Opcode::Send);
        assert_eq!(sends, part == 2, "the first Read makes room for the third: part {part}");
    }
    assert_eq!(asked, [(3, 200), (4, 300), (5, 400), (6, 500), (7, 600)]);
    answer(&mut end, 0x1600, &[1; 100]);
    end.assert_all_complete();
}

// [VERBS-15, VERBS-17, EXT-13] requests that need ORD or are fenced wait for the whole Read, in order
#[test]
fn reads_atomics_and_fences_wait_for_all_parts() {
    let add = SendOp::FetchAdd { stag: Stag(SOURCE), to: 0, add: 1, mask: 0 };
    let behind = [
        (plain(read_op((SINK, 0x1800), (SOURCE, 0))), READ),
        (plain(add), Opcode::AtomicRequest),
        (SendWqe { read_fence: true, ..plain(SEND) }, Opcode::Send),
        (SendWqe { local_fence: true, ..plain(SEND) }, Opcode::Send),
    ];
    for (wqe, expected) in behind {
        let mut end = initiator(1);
        end.read((SINK, 0x1000), (SOURCE, 0), 300);
        end.post(wqe, Work { len: 8, octets: vec![0; 8], ..Work::default() });
        for part in 0..3 {
            assert_eq!(opcodes(&end.take()), [READ], "part {part} before {wqe:?}");
            answer(&mut end, 0x1000 + part * 100, &[1; 100]);
        }
        assert_eq!(opcodes(&end.take()), [expected]);
    }
}

// [VERBS-25] the sink stays valid until its last octet has arrived
#[test]
fn the_sink_is_invalidated_at_the_end() {
    let mut end = initiator(4);
    let SendOp::Read { sink_stag, sink_to, source_stag, source_to, .. } =
        read_op((SINK, 0x1000), (SOURCE, 0))
    else {
        unreachable!()
    };
    let invalidate_sink = true;
    let op = SendOp::Read { sink_stag, sink_to, source_stag, source_to, invalidate_sink };
    end.post(plain(op), Work { len: 150, sink: Some(Stag(SINK)), ..Work::default() });
    end.take();
    answer(&mut end, 0x1000, &[1; 100]);
    assert!(end.memory.region(SINK).valid);
    answer(&mut end, 0x1064, &[1; 50]);
    assert!(!end.memory.region(SINK).valid);
    end.assert_all_complete();
}

// [VERBS-11, RDMAP-26] a Terminate for any of its Requests fails this Read, and no other
#[test]
fn a_terminate_names_a_read_by_any_of_its_requests() {
    for (msn, attributed) in [(0, None), (1, Some(0)), (3, Some(0)), (4, Some(1)), (5, None)] {
        let mut end = initiator(4);
        end.read((SINK, 0x1000), (SOURCE, 0), 300);
        end.read((SINK, 0x1000), (SOURCE, 0), 100);
        assert_eq!(requests(&end.take()).len(), 4);
        let code = TerminateCode::new(0, 1, 1);
        let refused = Header::Untagged(header(READ, msn, 0, true));
        let named = TerminateRepr { ddp: Some(refused), ..TerminateRepr::bare(code) };
        let mut octets = [0; TerminateRepr::MAX_LEN];
        let len = named.emit(&mut octets).expect("room");
        end.feed(&untagged(header(Opcode::Terminate, 1, 0, true), &octets[..len]));
        end.accept(usize::MAX);
        end.qp.abort(&mut end.memory);
        let found = end.statuses().iter().position(|s| *s == Status::RemoteTermination(code));
        assert_eq!(found, attributed, "MSN {msn}");
        end.assert_all_complete();
    }
}

// A stream that ends in the middle flushes the Read, which does not affect the next stream
#[test]
fn the_rest_of_a_read_ends_with_the_stream() {
    let mut end = initiator(1);
    end.read((SINK, 0x1000), (SOURCE, 0), 300);
    end.take();
    end.qp.abort(&mut end.memory);
    assert_eq!(end.statuses(), [Status::Flushed]);
    end.qp.reset().expect("Error");
    end.qp.start(StreamConfig { role: Role::Initiator, ..STREAM }).expect("Idle");
    let mut octets = Vec::new();
    let mut round = rounds("the QP to have nothing to send");
    while let Some(fpdu) = end.qp.poll_transmit(&mut end.memory) {
        round();
        octets.push(fpdu);
    }
    assert!(octets.is_empty(), "{octets:?}");
}

// RDMAC 9.2.5.2: a Read that was begun continues, however low ORD became
#[test]
fn a_lowered_ord_does_not_stop_a_read() {
    for lowered in [1, 0] {
        let mut end = initiator(2);
        end.read((SINK, 0x1000), (SOURCE, 0), 400);
        assert_eq!(requests(&end.take()).len(), 2);
        assert!(end.qp.reduce_ord(lowered));
        answer(&mut end, 0x1000, &[1; 100]);
        assert!(end.take().is_empty(), "one is out");
        for part in 1..4 {
            answer(&mut end, 0x1000 + part * 100, &[1; 100]);
            assert_eq!(requests(&end.take()).len(), usize::from(part < 3), "part {part}");
        }
        end.assert_all_complete();
    }
}

// [CONN-14] a probe waits until the Read is done, whose response also shows that the peer is alive
#[test]
fn a_probe_waits_for_a_long_read() {
    let mut end = initiator(1);
    end.read((SINK, 0x1000), (SOURCE, 0), 200);
    assert_eq!(opcodes(&end.take()), [READ]);
    assert!(!end.qp.probe(), "ORD is used up");
    answer(&mut end, 0x1000, &[1; 100]);
    assert!(end.qp.probe(), "there is room");
    assert_eq!(requests(&end.take()), [(2, request(0x1064, 100, 100))], "the Read goes first");
    answer(&mut end, 0x1064, &[1; 100]);
    end.assert_all_complete();
    assert_eq!(requests(&end.take())[0].1.size, 0, "now the probe");
}

// A Request that fails is reported with its own MSN, and with its position in the source
// [RDMAP-23]
#[test]
fn rights_that_end_in_the_middle_end_the_read() {
    let mut peer = End::new(CONFIG);
    peer.memory.regions.push(Region::new(SOURCE, 0, 150));
    peer.qp.start(StreamConfig { role: Role::Responder, ..STREAM }).expect("Idle");
    peer.feed(&read_request(1, read_of(SOURCE, 0, 100)));
    assert_eq!(opcodes(&peer.take()), [Opcode::ReadResponse]);
    peer.feed(&read_request(2, read_of(SOURCE, 100, 100)));
    let sent = terminate(&peer.take());
    let Some(Header::Untagged(refused)) = sent.ddp else { panic!("a Read Request's header") };
    assert_eq!((refused.qn, refused.msn), (1, 2));
    assert_eq!(sent.read_request.map(|r| (r.source_to, r.size)), Some((100, 100)));
}

/// A pair that reads from each other, with `ord` Requests of 200 octets at once.
fn pair(ord: u16) -> Sim {
    let config = QpConfig { max_read_request: 200, ..CONFIG };
    let stream = |role| StreamConfig { role, ord, ird: ord, ..STREAM };
    let mut sim = Sim::with(config, [stream(Role::Initiator), stream(Role::Responder)]);
    for end in &mut sim.ends {
        end.memory.regions.push(Region::new(SINK, 0, 20_000));
        let mut source = Region::new(SOURCE, 0, 20_000);
        source.octets = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        end.memory.regions.push(source);
        (0..20).for_each(|_| _ = end.receive(100));
    }
    sim
}

/// Both ends' sources are alike.
fn assert_copied(end: &mut End) {
    let source = end.memory.region(SOURCE).octets.clone();
    assert!(end.memory.region(SINK).octets == source);
}

// [IOP-13] the peer's messages wait for one response at most
#[test]
fn the_peer_speaks_between_the_parts_of_a_long_read() {
    let mut sim = pair(2);
    sim.ends[0].read((SINK, 0), (SOURCE, 0), 20_000);
    // Two Requests are outstanding, with responses in flight; from now on the peer has a message to send.
    let mut heard = 0;
    for step in 0..20u32 {
        let asked = sim.ends[0].take();
        sim.ends[1].feed(&asked);
        sim.ends[1].send(&step.to_be_bytes());
        let answered = sim.ends[1].take();
        sim.ends[0].feed(&answered);
        heard += 1;
        assert_eq!(sim.ends[0].memory.received.len(), heard, "step {step}");
        assert!(sim.ends[0].memory.completions.is_empty(), "still reading");
        let at = opcodes(&answered).iter().position(|o| *o == Opcode::Send);
        // 200 octets are one segment
        assert!(at.is_some_and(|at| at <= 1), "behind {at:?} segments in step {step}");
    }
    sim.run();
    assert_eq!(sim.ends[0].memory.completions, [(21, Status::Success, 20_000)]);
    assert_copied(&mut sim.ends[0]);
}

// [IOP-13] both read at once and both send: no send queue starves
#[test]
fn long_reads_both_ways_starve_no_send_queue() {
    for chunk in [50, 300, usize::MAX] {
        let mut sim = pair(3);
        for side in 0..2 {
            sim.ends[side].read((SINK, 0), (SOURCE, 0), 20_000);
            (0..20).for_each(|i| _ = sim.ends[side].send(&[i; 90]));
        }
        let mut round = rounds("twenty messages at each end");
        while sim.ends.iter().any(|end| end.memory.received.len() < 20) {
            round();
            for side in 0..2 {
                sim.accept(side, chunk);
                sim.deliver(side, chunk);
                let done = sim.ends[side].memory.completions.len();
                assert!(done == 0 || sim.ends[side].memory.received.len() == 20, "starved");
            }
        }
        sim.run();
        for end in &mut sim.ends {
            assert_copied(end);
            assert_eq!(end.statuses(), [Status::Success; 21]);
        }
        sim.close(0);
    }
}

// [DDP-10] neither STag nor TO of a segment without octets is checked: of an empty Read, and in the
// middle of another
#[test]
fn an_empty_response_may_name_any_place() {
    let empty = |last| tagged(Opcode::ReadResponse, last, 0xbad, 0xdead_beef, b"");
    let mut end = initiator(4);
    end.read((SINK, 0x1000), (SOURCE, 0), 0);
    end.take();
    end.feed(&empty(true));
    assert_eq!(end.statuses(), [Status::Success]);
    let mut end = initiator(4);
    end.read((SINK, 0x1000), (SOURCE, 0), 4);
    end.take();
    end.feed(&tagged(Opcode::ReadResponse, false, SINK, 0x1000, b"ab"));
    end.feed(&empty(false));
    end.feed(&tagged(Opcode::ReadResponse, false, SINK, 0x1002, b"cd"));
    assert!(end.memory.completions.is_empty());
    end.feed(&empty(true));
    assert_eq!(end.statuses(), [Status::Success]);
    assert_eq!(end.memory.region(SINK).octets[..4], *b"abcd");
    // The Read does not end before all octets have arrived.
    let mut end = initiator(4);
    end.read((SINK, 0x1000), (SOURCE, 0), 4);
    end.take();
    end.feed(&empty(true));
    assert_eq!(terminate(&end.take()).code, TerminateCode::new(1, 1, 1));
}

// The number of the first Request and of the last may be on both sides of the wrap [DDP-06]
#[test]
fn request_numbers_wrap_within_a_read() {
    let mut end = End::new(QpConfig { max_read_request: MOST, ..CONFIG });
    end.memory.regions.push(Region::new(SINK, 0x1000, 4096));
    let send_msn = [1, u32::MAX, 1, 1];
    let at = StreamPosition { send_msn, ..StreamPosition::START };
    end.qp.start_at(StreamConfig { role: Role::Initiator, ..STREAM }, at).expect("Idle");
    end.post(plain(read_op((SINK, 0x1000), (SOURCE, 0))), Work { len: 200, ..gather(b"") });
    let numbers: Vec<u32> = requests(&end.take()).iter().map(|r| r.0).collect();
    assert_eq!(numbers, [u32::MAX, 0]);
}
