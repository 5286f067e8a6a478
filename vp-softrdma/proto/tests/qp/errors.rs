//! Malformed input that is in no vector: each with the Terminate that section and table
//! demand, and nothing placed.
//!
//! Owner of the state: each case its own; one thread. The peer is the frame.

use iwarp_proto::wire::ddp::{Control, Header, UntaggedRepr};
use iwarp_proto::wire::rdmap::{AtomicRequestRepr, Opcode, ReadRequestRepr};
use iwarp_proto::{ProtocolError, QpConfig, Role, SendOp, Stag, State, StreamConfig};

use crate::craft::{
    add_at, atomic_request, decode, fpdu, header, read_of, read_request, send, tagged,
    tagged_ulpdu, terminate, untagged, verdict, write,
};
use crate::sim::memory::{Region, Rights, Work};
use crate::sim::{CONFIG, End, STREAM, plain};

/// Regions: 0x100 everything; 0x200 write only; 0x300 read only; 0x400 of another PD; 0x500 up to
/// the top of the address space; 0x600 shared.
fn end_with(config: QpConfig, stream: StreamConfig) -> End {
    let mut end = End::new(config);
    let only = Rights { local_write: true, ..Rights::default() };
    let mut add = |stag, to, change: fn(&mut Region)| {
        let mut region = Region::new(stag, to, 0x1000);
        change(&mut region);
        end.memory.regions.push(region);
    };
    add(0x100, 0x1000, |_| {});
    add(0x200, 0x1000, |r| {
        r.rights = Rights { remote_write: true, local_write: true, ..Rights::default() };
    });
    add(0x300, 0x1000, |r| r.rights = Rights { remote_read: true, ..Rights::default() });
    add(0x400, 0x1000, |r| r.pd = 2);
    add(0x500, 0u64.wrapping_sub(0x1000), |_| {});
    add(0x600, 0x1000, |r| r.shared = true);
    add(0x700, 0x1000, |_| {});
    end.memory.region(0x700).rights = only;
    end.receive(64);
    end.qp.start(stream).expect("Idle");
    end
}
fn end() -> End {
    end_with(CONFIG, STREAM)
}

/// One refused frame after valid frames.
fn refused(mut end: End, good: &[Vec<u8>], bad: &[u8]) -> (u16, u8) {
    for frame in good {
        end.feed(frame);
    }
    let placed = end.memory.placed;
    let received = end.memory.received.len();
    end.feed(bad);
    let out = end.take();
    assert_eq!(end.memory.placed, placed, "nothing of a refused segment is placed");
    assert_eq!(end.memory.received.len(), received);
    assert_eq!(end.qp.state(), State::Terminate);
    let last = decode(&out).pop().expect("a Terminate");
    end.assert_all_complete();
    let ulpdu = [header_octets(&last.0), last.1].concat();
    verdict(&fpdu(&ulpdu))
}
fn header_octets(header: &Header) -> Vec<u8> {
    match header {
        Header::Tagged(h) => h.emit().to_vec(),
        Header::Untagged(h) => h.emit().to_vec(),
    }
}
fn alone(bad: &[u8]) -> (u16, u8) {
    refused(end(), &[], bad)
}
/// M and D.
const MD: u8 = 0b110;
const MDR: u8 = 0b111;

// [DDP-24, ERR-04, SEC-18] every length below its header
#[test]
fn ulpdus_shorter_than_their_header() {
    for (first, needed) in [(0xc1u8, 14), (0x41, 18)] {
        for len in 1..needed {
            let mut ulpdu = vec![0x40; len];
            ulpdu[0] = first;
            assert_eq!(alone(&fpdu(&ulpdu)), (0x1000, 0), "{len} of {needed}");
        }
    }
}

// [DDP-04, ERR-05]
#[test]
fn every_wrong_ddp_version() {
    for version in [0, 2, 3] {
        let mut ulpdu = tagged_ulpdu(Opcode::Write, true, 0x100, 0x1000, b"x");
        ulpdu[0] = ulpdu[0] & !3 | version;
        assert_eq!(alone(&fpdu(&ulpdu)), (0x1104, MD));
        let h =
            UntaggedRepr { control: Control(0x40 | version), ..header(Opcode::Send, 1, 0, true) };
        assert_eq!(alone(&untagged(h, b"x")), (0x1206, MD));
    }
}

// [RDMAP-01, ERR-06]
#[test]
fn every_wrong_rdmap_version() {
    for version in [0u8, 2, 3] {
        let h = header(Opcode::Send, 1, 0, true);
        let h = UntaggedRepr { ulp: h.ulp & 0x3f | version << 6, ..h };
        assert_eq!(alone(&untagged(h, b"x")), (0x0205, MD));
    }
}

// [RDMAP-02, ERR-07, ERR-08, EXT-17] every opcode on every queue, and tagged
#[test]
fn opcodes_belong_to_their_queue_and_kind() {
    for nibble in 0..16u8 {
        let opcode = Opcode::from_nibble(nibble);
        let queue = opcode.and_then(|o| o.queue());
        let mut ulpdu = tagged_ulpdu(Opcode::Write, true, 0x100, 0x1000, b"x");
        ulpdu[1] = 0x40 | nibble;
        if !opcode.is_some_and(|o| o.tagged()) {
            assert_eq!(alone(&fpdu(&ulpdu)), (0x0206, MD), "{nibble:x} tagged");
        }
        for qn in [0, 1, 2, 3, 4, 5, u32::MAX] {
            let ulp = 0x40 | nibble;
            let h = UntaggedRepr { qn, ulp, ..header(Opcode::Send, 1, 0, true) };
            if queue.is_none() {
                assert_eq!(alone(&untagged(h, b"x")), (0x0206, MD), "{nibble:x} on {qn}");
            } else if queue != Some(qn) {
                assert_eq!(alone(&untagged(h, b"x")), (0x1201, MD), "{nibble:x} on {qn}");
            }
        }
    }
}

// [EXT-16, IOP-16] without RFC 7306 its opcodes are unknown
#[test]
fn extensions_off() {
    for opcode in Opcode::ALL.into_iter().filter(|o| o.extension()) {
        let end = end_with(QpConfig { extensions: false, ..CONFIG }, STREAM);
        let bad = untagged(header(opcode, 1, 0, true), &[0; 52]);
        assert_eq!(refused(end, &[], &bad), (0x0206, MD));
    }
}

// [DDP-14, ERR-10] on each queue that takes messages
#[test]
fn message_numbers_out_of_order() {
    let good = [send(1, b"one")];
    for msn in [0, 1, 3, 100, u32::MAX] {
        let mut two = end();
        two.receive(64);
        assert_eq!(refused(two, &good, &send(msn, b"x")), (0x1203, MD), "{msn}");
        let bad = read_request(msn, read_of(0x100, 0x1000, 4));
        let good = [read_request(1, read_of(0x100, 0x1000, 4))];
        assert_eq!(refused(end(), &good, &bad), (0x1203, MD), "{msn}");
        let bad = atomic_request(msn, add_at(0x100, 0x1000));
        assert_eq!(refused(end(), &good, &bad), (0x1203, MD), "{msn}");
    }
    let bad = untagged(header(Opcode::Terminate, 2, 0, true), &[0; 4]);
    assert_eq!(alone(&bad), (0x1203, MD));
    let bad = untagged(header(Opcode::Terminate, 1, 4, true), &[0; 4]);
    assert_eq!(alone(&bad), (0x1204, MD));
}

// [DDP-14, ERR-09, ERR-11, ERR-12, RDMAP-12] offsets and lengths against a buffer of 64
#[test]
fn message_offsets_and_lengths() {
    let segment = |mo, last, len: usize| untagged(header(Opcode::Send, 1, mo, last), &vec![1; len]);
    let first = segment(0, false, 40);
    for (good, bad, word) in [
        (vec![], segment(1, true, 4), 0x1204),
        (vec![], segment(u32::MAX, true, 4), 0x1204),
        (vec![], segment(0, true, 65), 0x1205),
        (vec![first.clone()], segment(0, true, 4), 0x1204),
        (vec![first.clone()], segment(39, true, 4), 0x1204),
        (vec![first.clone()], segment(41, true, 4), 0x1204),
        (vec![first.clone()], segment(40, true, 25), 0x1205),
        (vec![first.clone()], segment(40, false, 25), 0x1205),
    ] {
        assert_eq!(refused(end(), &good, &bad), (word, MD));
        let mut receiver = end();
        good.iter().chain([&bad]).for_each(|octets| receiver.feed(octets));
        assert_eq!(receiver.memory.overflowed, word == 0x1205, "the receive says why it ended");
    }
    let good = [send(1, b"takes the only buffer")];
    assert_eq!(refused(end(), &good, &send(2, b"")), (0x1202, MD));
    assert_eq!(refused(end(), &good, &send(2, b"x")), (0x1202, MD));
    // An exactly full buffer is valid
    let mut full = end();
    full.feed(&first);
    full.feed(&segment(40, true, 24));
    assert_eq!(full.memory.received[0].octets.len(), 64);
}

// [DDP-15, DDP-21, ERR-13, ERR-14, ERR-15, ERR-16, ERR-17, SEC-01, SEC-03, VERBS-22, VERBS-23]
#[test]
fn tagged_access() {
    let cases: [(u32, u64, usize, u16); 12] = [
        (0x100, 0x0fff, 1, 0x1101),
        (0x100, 0x0fff, 2, 0x1101),
        (0x100, 0x2000, 1, 0x1101),
        (0x100, 0x1fff, 2, 0x1101),
        (0x101, 0x1000, 1, 0x1100),
        (0, 0x1000, 1, 0x1100),
        (0xdead00, 0x1000, 1, 0x1100),
        (0x300, 0x1000, 1, 0x1102),
        (0x700, 0x1000, 1, 0x1102),
        (0x400, 0x1000, 1, 0x1102),
        (0x500, u64::MAX, 2, 0x1103),
        (0x500, u64::MAX - 9, 100, 0x1103),
    ];
    for (stag, to, len, word) in cases {
        assert_eq!(alone(&write(stag, to, &vec![1; len])), (word, MD), "{stag:x} {to:x} {len}");
    }
    for (stag, to, len) in [(0x100, 0x1000, 0x1000), (0x100, 0x1fff, 1), (0x500, u64::MAX, 1)] {
        let mut end = end();
        end.feed(&write(stag, to, &vec![7; len]));
        assert_eq!((end.qp.state(), end.memory.placed), (State::Rts, len as u64));
    }
}

// [DDP-21, SEC-05] revoked in the middle of a message
#[test]
fn a_revoked_stag_stops_a_message() {
    let mut end = end();
    end.feed(&tagged(Opcode::Write, false, 0x100, 0x1000, &[1; 100]));
    end.memory.region(0x100).valid = false;
    end.feed(&tagged(Opcode::Write, true, 0x100, 0x1064, &[1; 100]));
    assert_eq!(verdict(&end.take()), (0x1100, MD));
    assert_eq!(end.memory.placed, 100);
}

// [RDMAP-07, ERR-18, SEC-14] the source of a Read
#[test]
fn read_sources() {
    let cases = [
        (0xdead00, 0x1000, 4, 0x0100),
        (0, 0x1000, 4, 0x0100),
        (0x101, 0x1000, 4, 0x0100),
        (0x100, 0x0fff, 4, 0x0101),
        (0x100, 0x1ffd, 4, 0x0101),
        (0x100, 0x1000, u32::MAX, 0x0101),
        (0x200, 0x1000, 4, 0x0102),
        (0x400, 0x1000, 4, 0x0103),
        (0x500, u64::MAX - 1, 4, 0x0104),
    ];
    for (stag, to, size, word) in cases {
        let request = read_of(stag, to, size);
        let bad = read_request(1, request);
        assert_eq!(alone(&bad), (word, MDR), "{stag:x} {to:x} {size}");
        let mut end = end();
        end.feed(&bad);
        let found = terminate(&end.take());
        assert_eq!((found.segment_length, found.read_request), (Some(46), Some(request)));
        // [RDMAP-06] nothing of an empty Read is checked
        let mut end = self::end();
        end.feed(&read_request(1, read_of(stag, to, 0)));
        assert_eq!(decode(&end.take())[0].1, b"");
        assert_eq!(end.qp.state(), State::Rts);
    }
}

// [RDMAP-04, ERR-11, ERR-20, ERR-21, ERR-22, ERR-23] form of a Read Request
#[test]
fn read_request_forms() {
    let octets = [&read_of(0x100, 0x1000, 4).emit()[..], &[0; 8]].concat();
    let request =
        |mo, last, len| untagged(header(Opcode::ReadRequest, 1, mo, last), &octets[..len]);
    for len in 0..ReadRequestRepr::LEN {
        assert_eq!(alone(&request(0, true, len)), (0x0207, MD), "{len}");
    }
    for len in ReadRequestRepr::LEN + 1..octets.len() {
        assert_eq!(alone(&request(0, true, len)), (0x1205, MD), "{len}");
    }
    assert_eq!(alone(&request(0, false, 28)), (0x0207, MD));
    assert_eq!(alone(&request(28, true, 28)), (0x1204, MD));
    let disabled = end_with(CONFIG, StreamConfig { ird: 0, ..STREAM });
    assert_eq!(refused(disabled, &[], &request(0, true, 28)), (0x1201, MD));
}

// [EXT-04, EXT-05, EXT-08, EXT-14, EXT-15, ERR-30] Atomic Requests: form and target; memory unchanged
#[test]
fn atomic_requests() {
    let octets = [&add_at(0x100, 0x1000).emit()[..], &[0; 8]].concat();
    let request =
        |mo, last, len| untagged(header(Opcode::AtomicRequest, 1, mo, last), &octets[..len]);
    for len in 0..AtomicRequestRepr::LEN {
        assert_eq!(alone(&request(0, true, len)), (0x0207, MD), "{len}");
    }
    assert_eq!(alone(&request(0, true, 56)), (0x1205, MD));
    assert_eq!(alone(&request(0, false, 52)), (0x0207, MD));
    assert_eq!(alone(&request(4, true, 52)), (0x1204, MD));
    for operation in (0..16).filter(|o| ![0, 2].contains(o)) {
        let bad = AtomicRequestRepr { operation, ..add_at(0x100, 0x1000) };
        assert_eq!(alone(&atomic_request(1, bad)), (0x0206, MD), "{operation}");
    }
    for (stag, to, word) in [
        (0xdead00, 0x1000, 0x0100),
        (0x100, 0x1001, 0x0207),
        (0x100, 0x2000, 0x0101),
        (0x300, 0x1000, 0x0102),
        (0x400, 0x1000, 0x0103),
        (0x500, u64::MAX - 1, 0x0104),
    ] {
        let bad = atomic_request(1, add_at(stag, to));
        assert_eq!(alone(&bad), (word, MD), "{stag:x} {to:x}");
        let mut end = end();
        end.feed(&bad);
        let found = terminate(&end.take());
        assert_eq!(found.segment_length, Some(70));
        assert!(end.memory.regions.iter().all(|r| r.octets.iter().all(|o| *o == 0)));
    }
    let disabled = end_with(CONFIG, StreamConfig { ird: 0, ..STREAM });
    assert_eq!(refused(disabled, &[], &request(0, true, 52)), (0x1201, MD));
}

// [EXT-13] an Atomic that fails after a Read: the Read gets its response first
#[test]
fn an_atomic_fails_in_order() {
    let mut end = end();
    end.feed(&read_request(1, read_of(0x100, 0x1000, 4)));
    end.feed(&atomic_request(2, add_at(0x100, 0x1001)));
    let fpdus = decode(&end.take());
    assert_eq!(fpdus.len(), 2);
    let Header::Tagged(_) = fpdus[0].0 else { panic!("the response") };
    let found = terminate(&fpdu(&[header_octets(&fpdus[1].0), fpdus[1].1.clone()].concat()));
    let Some(Header::Untagged(h)) = found.ddp else { panic!("D") };
    assert_eq!((found.code.word(), h.msn), (0x0207, 2));
}

/// An end with Reads of 10 and 20 octets out, then an Atomic.
fn requester() -> End {
    let mut end = end();
    end.read((0x100, 0x1000), (9, 0), 10);
    end.read((0x100, 0x1100), (9, 0), 20);
    let op = SendOp::FetchAdd { stag: Stag(9), to: 0, add: 1, mask: 0 };
    end.post(plain(op), Work { len: 8, ..Work::default() });
    end.take();
    end
}

// [RDMAP-10, ERR-24] a Read Response must match the request
#[test]
fn read_responses() {
    let response =
        |last, stag, to, len: usize| tagged(Opcode::ReadResponse, last, stag, to, &vec![1; len]);
    let first = response(false, 0x100, 0x1000, 4);
    for (good, bad, word) in [
        (vec![], response(true, 0x200, 0x1000, 10), 0x1100),
        (vec![], response(true, 0x100, 0x1001, 10), 0x1101),
        (vec![], response(true, 0x100, 0x1000, 11), 0x1101),
        (vec![], response(true, 0x100, 0x1000, 9), 0x1101),
        (vec![], response(true, 0x100, 0x1000, 0), 0x1101),
        (vec![], response(true, 0x100, 0x1100, 20), 0x1101),
        (vec![first.clone()], response(true, 0x100, 0x1000, 6), 0x1101),
        (vec![first.clone()], response(true, 0x100, 0x1004, 7), 0x1101),
        (vec![first.clone()], response(false, 0x100, 0x1004, 7), 0x1101),
    ] {
        assert_eq!(refused(requester(), &good, &bad), (word, MD));
    }
    assert_eq!(alone(&response(true, 0x100, 0x1000, 10)), (0x0206, MD), "nothing was asked for");
    // The oldest request is an Atomic
    let good = [response(true, 0x100, 0x1000, 10), response(true, 0x100, 0x1100, 20)];
    assert_eq!(refused(requester(), &good, &good[0]), (0x0206, MD));
    // The sink was revoked meanwhile
    let mut revoked = requester();
    revoked.memory.region(0x100).valid = false;
    assert_eq!(refused(revoked, &[], &good[0]), (0x1100, MD));
}

// [EXT-10, EXT-11, EXT-17, ERR-30] Atomic Responses
#[test]
fn atomic_responses() {
    let good = [
        tagged(Opcode::ReadResponse, true, 0x100, 0x1000, &[1; 10]),
        tagged(Opcode::ReadResponse, true, 0x100, 0x1100, &[1; 20]),
    ];
    let octets = [&[0, 0, 0, 1][..], &[0; 20]].concat();
    let response = |msn, mo, last, octets: &[u8]| {
        untagged(header(Opcode::AtomicResponse, msn, mo, last), octets)
    };
    assert_eq!(alone(&response(1, 0, true, &octets[..12])), (0x1202, MD), "nothing outstanding");
    // Not in order: a Read is older
    assert_eq!(refused(requester(), &[], &response(1, 0, true, &octets[..12])), (0x02ff, MD));
    for (bad, word) in [
        (response(2, 0, true, &octets[..12]), 0x1203),
        (response(1, 4, true, &octets[..12]), 0x1204),
        (response(1, 0, false, &octets[..12]), 0x0207),
        (response(1, 0, true, &octets[..11]), 0x02ff),
        (response(1, 0, true, &octets[..13]), 0x02ff),
        (response(1, 0, true, &[0; 12]), 0x02ff),
    ] {
        assert_eq!(refused(requester(), &good, &bad), (word, MD));
    }
    let mut end = requester();
    for frame in &good {
        end.feed(frame);
    }
    end.feed(&response(1, 0, true, &octets[..12]));
    assert_eq!(end.memory.completions.len(), 3);
}

// [EXT-02, EXT-03] Immediate Data: exactly 8 octets, one segment, one buffer
#[test]
fn immediate_data() {
    for opcode in [Opcode::Immediate, Opcode::ImmediateSolicited] {
        for len in (0..20).filter(|len| *len != 8) {
            let bad = untagged(header(opcode, 1, 0, true), &vec![0; len]);
            assert_eq!(alone(&bad), (0x02ff, MD), "{len}");
        }
        assert_eq!(alone(&untagged(header(opcode, 1, 0, false), &[0; 8])), (0x0207, MD));
        assert_eq!(alone(&untagged(header(opcode, 1, 8, true), &[0; 8])), (0x1204, MD));
        assert_eq!(alone(&untagged(header(opcode, 2, 0, true), &[0; 8])), (0x1203, MD));
        let good = [send(1, b"takes the only buffer")];
        let bad = untagged(header(opcode, 2, 0, true), &[0; 8]);
        assert_eq!(refused(end(), &good, &bad), (0x1202, MD));
        // In the middle of a Send
        let good = [untagged(header(Opcode::Send, 1, 0, false), b"")];
        let bad = untagged(header(opcode, 1, 0, true), &[0; 8]);
        assert_eq!(refused(end(), &good, &bad), (0x1204, MD));
    }
}

// [RDMAP-13, ERR-25, SEC-06] the payload is placed, but the message is not delivered
#[test]
fn invalidation_that_is_impossible() {
    for opcode in [Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate] {
        for stag in [0, 0xdead00, 0x101, 0x400, 0x600] {
            let h = UntaggedRepr { ulp_word: stag, ..header(opcode, 1, 0, true) };
            let mut end = end();
            end.feed(&untagged(h, b"data"));
            assert_eq!(verdict(&end.take()), (0x0109, MD), "{stag:x}");
            assert!(end.memory.received.is_empty());
            assert!(end.memory.regions.iter().all(|r| r.valid));
            end.assert_all_complete();
        }
    }
}

// [MPA-15, MPA-38, ERR-02] a damaged FPDU has no effect at all, nor has what follows
#[test]
fn a_flipped_bit_anywhere_has_no_effect() {
    let frame = write(0x100, 0x1000, &[7; 30]);
    for bit in 0..frame.len() * 8 {
        let mut bad = frame.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut end = end();
        end.feed(&bad);
        end.feed(&send(1, b"good"));
        // A longer length field would wait for more octets: pad the input
        end.feed(&[0; 70_000]);
        let (word, _) = verdict(&end.take());
        assert!([0x2002, 0x1000].contains(&word), "bit {bit}: {word:04x}");
        assert_eq!(end.memory.placed, 0);
        assert!(end.memory.received.is_empty());
    }
}

// [RDMAP-22, RDMAP-21] the length is the refused segment's ULPDU_Length, the header its own octets
#[test]
fn the_terminate_quotes_the_segment() {
    for len in [1usize, 32, 500] {
        let mut end = end();
        let ulpdu = tagged_ulpdu(Opcode::Write, false, 0xbad, 77, &vec![0; len]);
        end.feed(&fpdu(&ulpdu));
        let found = terminate(&end.take());
        assert_eq!(found.segment_length, Some(14 + len as u16));
        assert_eq!(found.ddp, Header::parse(&ulpdu).ok());
        assert_eq!(found.read_request, None);
    }
}

// [RDMAP-31] two faults at once: some Terminate, in the order of the checks
#[test]
fn versions_are_judged_before_opcodes_and_opcodes_before_queues() {
    let h = header(Opcode::Send, 9, 5, true);
    let h = UntaggedRepr { control: Control(0x40), ulp: 0x0c, qn: 7, ..h };
    assert_eq!(alone(&untagged(h, b"x")), (0x1206, MD));
    let h = UntaggedRepr { control: Control(0x41), ..h };
    assert_eq!(alone(&untagged(h, b"x")), (0x0205, MD));
    let h = UntaggedRepr { ulp: 0x4c, ..h };
    assert_eq!(alone(&untagged(h, b"x")), (0x0206, MD));
    let h = UntaggedRepr { ulp: 0x43, ..h };
    assert_eq!(alone(&untagged(h, b"x")), (0x1201, MD));
    let h = UntaggedRepr { qn: 0, ..h };
    assert_eq!(alone(&untagged(h, b"x")), (0x1203, MD));
}

// [RDMAP-32] Terminates of every length, with every flag: never a panic, never a response
#[test]
fn terminates_of_every_shape() {
    for len in 0..80usize {
        for flags in 0..8u8 {
            let mut payload = vec![0x41; len];
            if let Some(octet) = payload.get_mut(2) {
                *octet = flags << 5;
            }
            let mut end = end();
            end.feed(&untagged(header(Opcode::Terminate, 1, 0, true), &payload));
            assert!(end.take().is_empty() && end.closing);
            assert_eq!(end.qp.state(), State::Terminate);
            let terminated =
                matches!(end.events.last(), Some(iwarp_proto::QpEvent::TerminateReceived(_)));
            assert_eq!(terminated, len >= 4, "{len}");
        }
    }
}

// [SEC-18] every error has a text and a Terminate or a reason to have none
#[test]
fn a_responder_refuses_like_an_initiator() {
    let end = end_with(CONFIG, StreamConfig { role: Role::Responder, ..STREAM });
    assert_eq!(refused(end, &[], &write(0xbad, 0, b"x")), (0x1100, MD));
    assert!(ProtocolError::ALL.iter().any(|e| !e.sends_terminate()));
}

// [MPA-37] the four errors of MPA are distinguished: TCP lost (nothing is sent) by reset, time-out and
// FIN; CRC; markers. The fourth, a bad start-up frame, is refused before there is a QP
// (`startup.rs`).
#[test]
fn the_errors_of_mpa_are_distinguished() {
    use iwarp_proto::{LlpFault, QpEvent};
    for fault in [LlpFault::Reset, LlpFault::TimedOut] {
        let mut end = end();
        end.fault(fault);
        assert!(end.take().is_empty(), "there is no peer to notify");
        assert_eq!(end.events, [QpEvent::Established, QpEvent::ConnectionLost(fault)]);
        assert_eq!(end.qp.state(), State::Error);
        end.assert_all_complete();
    }
    let mut half = end();
    half.feed(&send(1, b"half")[..10]);
    half.fin();
    half.pump();
    let lost = QpEvent::ConnectionLost(LlpFault::UnexpectedFin);
    assert_eq!(half.events, [QpEvent::Established, lost]);
    let mut damaged = send(1, b"data");
    damaged[20] ^= 1;
    assert_eq!(alone(&damaged), (0x2002, 0));
    // An FPDU whose first octets are a marker that points elsewhere.
    let mut marked = [&[0, 0, 0, 8][..], &fpdu(&[0xc1; 14])].concat();
    let at = marked.len() - 4;
    let crc = crate::common::crc32c(0, &marked[..at]).to_le_bytes();
    marked[at..].copy_from_slice(&crc);
    let with_markers = || end_with(CONFIG, StreamConfig { markers_rx: true, ..STREAM });
    assert_eq!(refused(with_markers(), &[], &marked), (0x2003, 0));
    for (error, word) in [
        (ProtocolError::LlpLost, 0x2001),
        (ProtocolError::Crc, 0x2002),
        (ProtocolError::Marker, 0x2003),
        (ProtocolError::StartupFrame, 0x2004),
    ] {
        assert_eq!(error.terminate_code().word(), word, "{error}");
        assert_eq!(error.sends_terminate(), matches!(word, 0x2002 | 0x2003), "{error}");
    }
}

// [MPA-16, ERR-04] correct in all but its length: neither the fast path nor the slow path accepts it
#[test]
fn a_ulpdu_above_the_longest_is_refused() {
    for (octets, verdict) in
        [(64_768usize, None), (64_769, Some((0x1000, 0))), (65_535, Some((0x1000, 0)))]
    {
        let mut end = end();
        end.memory.posted[0].1 = vec![0; 65_535];
        end.feed(&send(1, &vec![7; octets - 18]));
        assert_eq!(end.memory.received.len(), usize::from(verdict.is_none()), "{octets}");
        if let Some(verdict) = verdict {
            assert_eq!(self::verdict(&end.take()), verdict);
        }
    }
}
