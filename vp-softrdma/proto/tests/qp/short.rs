//! Short messages encoded directly into the LLP's buffer: the same octets, numbers and completions as
//! FPDU by FPDU; everything else takes the slow path.
//!
//! Owner of the state: each test its own; one thread.

use iwarp_proto::{SendOp, SendWqe, Stag, Status, StreamConfig};

use crate::sim::memory::Region;
use crate::sim::{CONFIG, End, SEND, STREAM, Sim, gather, plain, read_op};

/// An initiator in RTS.
fn end(stream: StreamConfig, long: bool) -> End {
    let mut end = End::new(CONFIG);
    end.qp.start(stream).expect("Idle");
    end.memory.long = long;
    end
}

/// One of each kind, of `len` octets.
fn post_all(end: &mut End, len: usize) {
    let octets: Vec<u8> = (0..len as u32).map(|i| (i * 7 + 1) as u8).collect();
    for solicited in [false, true] {
        for invalidate in [None, Some(Stag(0x1234_5678))] {
            end.post(plain(SendOp::Send { solicited, invalidate }), gather(&octets));
        }
    }
    end.post(plain(SendOp::Write { stag: Stag(0x100), to: u64::MAX }), gather(&octets));
}

// [MPA-02, MPA-03, MPA-08, DDP-02, DDP-05, DDP-06, RDMAP-03] the vectors check the
// slow path
#[test]
fn the_fast_path_sends_the_same_octets() {
    for (crc, markers_tx) in [(true, false), (false, false), (true, true)] {
        let stream = StreamConfig { crc, markers_tx, ..STREAM };
        for len in (0..30).chain([236, 237, 238, 242, 243, 600]) {
            let [mut short, mut long] = [end(stream, false), end(stream, true)];
            for end in [&mut short, &mut long] {
                post_all(end, len);
                end.pump();
            }
            assert_eq!(short.qp.stats(), long.qp.stats(), "{len} octets");
            let octets = short.accept(usize::MAX);
            assert_eq!(octets, long.accept(usize::MAX), "{len} octets, {stream:?}");
            assert_eq!(short.memory.completions, long.memory.completions);
            assert_eq!(short.statuses(), [Status::Success; 5]);
        }
    }
}

#[test]
fn the_fast_path_counts_as_the_slow_path_does() {
    // With markers the fast path is not used.
    for markers_tx in [false, true] {
        let mut sim = Sim::pair(StreamConfig { markers_tx, ..STREAM });
        sim.ends[1].memory.regions.push(Region::new(0x100, 0, 64));
        sim.ends[1].receive(64);
        sim.ends[0].send(b"seven o");
        sim.ends[0].post(plain(SendOp::Write { stag: Stag(0x100), to: 0 }), gather(&[1; 30]));
        sim.run();
        let stats = sim.ends[1].qp.stats();
        assert_eq!(
            (stats.octets_received, stats.messages_received, stats.fpdus_received),
            (37, 2, 2)
        );
    }
}

/// An end whose send queue has its memory: one request was posted and is complete.
fn used(stream: StreamConfig) -> End {
    let mut end = end(stream, false);
    end.send(b"first");
    end.take();
    end
}

/// Sends one message at once, and has the LLP accept it.
fn send_at_once(end: &mut End, op: SendOp, octets: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut out = vec![0xee; room];
    let copy = |room: &mut [u8]| {
        room.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(octets.len())
    };
    let sent = end.qp.send_at_once(op, copy, &mut out)?;
    assert_eq!(sent.payload as usize, octets.len());
    end.qp.handle_sent(sent.sequence, &mut end.memory);
    out.truncate(sent.octets);
    Some(out)
}

#[test]
fn messages_sent_at_once_have_the_same_octets_as_posted_ones() {
    let write = SendOp::Write { stag: Stag(0x100), to: u64::MAX };
    let send = |solicited, invalidate| SendOp::Send { solicited, invalidate };
    let ops = [SEND, write, send(true, None), send(false, Some(Stag(7))), write, SEND];
    for crc in [false, true] {
        let stream = StreamConfig { crc, ..STREAM };
        let [mut posted, mut at_once] = [used(stream), used(stream)];
        for (len, op) in (0..90).zip(ops.into_iter().cycle()) {
            let octets: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
            posted.post(plain(op), gather(&octets));
            assert_eq!(send_at_once(&mut at_once, op, &octets, 128), Some(posted.take()), "{op:?}");
        }
        assert_eq!(posted.qp.stats(), at_once.qp.stats());
        assert!(at_once.qp.is_idle() && !at_once.qp.has_work());
        assert_eq!(at_once.memory.completions.len(), 1, "the caller completes them");
    }
}

#[test]
fn what_cannot_be_sent_at_once_changes_nothing() {
    // Its send queue has no memory yet.
    assert_eq!(send_at_once(&mut end(STREAM, false), SEND, b"8 octets", 128), None);
    let mut plain_end = used(STREAM);
    // Length field, header, payload, longest pad, CRC.
    let most = 2 + 18 + 8 + 3 + 4;
    assert_eq!(send_at_once(&mut plain_end, SEND, &[1; 8], most - 1), None);
    assert_eq!(send_at_once(&mut plain_end, read_op((1, 0), (2, 0)), &[], 128), None);
    assert!(send_at_once(&mut plain_end, SEND, &[1; 8], most).is_some());
    // Each of these is before the message: a request, an FPDU that waits for the LLP.
    plain_end.send(b"posted");
    assert_eq!(send_at_once(&mut plain_end, SEND, b"8 octets", 128), None);
    plain_end.pump();
    assert_eq!(send_at_once(&mut plain_end, SEND, b"8 octets", 128), None);
    plain_end.accept(usize::MAX);
    assert!(send_at_once(&mut plain_end, SEND, b"8 octets", 128).is_some());
    assert_eq!(plain_end.qp.stats().messages_sent, 4);

    let mut marked = used(StreamConfig { markers_tx: true, ..STREAM });
    assert_eq!(send_at_once(&mut marked, SEND, b"8 octets", 128), None);
    let mut closing = used(STREAM);
    closing.qp.close(&mut closing.memory).expect("RTS");
    assert_eq!(send_at_once(&mut closing, SEND, b"8 octets", 128), None);
}

#[test]
fn no_more_than_wanted_and_no_more_than_fit() {
    let mut end = end(STREAM, false);
    post_all(&mut end, 8);
    assert_eq!(end.pump_short(2), 2);
    let completed = |_: usize, _: u64| panic!("nothing fits");
    assert_eq!(end.qp.transmit_short(&mut end.memory, &mut [0; 34], 9, completed), 0);
    assert!(!end.qp.is_idle());
    // Length field, header, payload, longest pad, CRC.
    let most = 2 + 18 + 8 + 3 + 4;
    for (room, written) in [(most - 1, 0), (most, 1)] {
        let mut out = vec![0; room];
        let mut length = 0;
        let completed = |len: usize, _: u64| length += len;
        assert_eq!(
            end.qp.transmit_short(&mut end.memory, &mut out, 9, completed),
            written,
            "{room}"
        );
        assert_eq!(length > 0, written > 0);
    }
    assert_eq!(end.pump_short(9), 2);
    assert_eq!(end.pump_short(9), 0);
    assert!(end.qp.is_idle() && end.qp.poll_transmit(&mut end.memory).is_none());
}

#[test]
fn a_page_behind_a_header_is_short() {
    for (octets, messages) in [(4096 + 64, 1), (4096 + 65, 0)] {
        let mut end = end(StreamConfig { mulpdu: 8192, ..STREAM }, false);
        end.send(&vec![7; octets]);
        assert_eq!(end.pump_short(9), messages, "{octets} octets");
    }
}

// [VERBS-15, VERBS-17] a fence is checked in the order of the queue
#[test]
fn a_fenced_message_waits_and_delays_later_ones() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x100, 0, 64));
    sim.ends[0].memory.regions.push(Region::new(0x200, 0, 64));
    for _ in 0..2 {
        sim.ends[1].receive(8);
    }
    let end = &mut sim.ends[0];
    end.read((0x200, 0), (0x100, 0), 64);
    end.post(SendWqe { op: SEND, read_fence: true, local_fence: false }, gather(b"fenced"));
    end.send(b"behind");
    end.pump();
    assert!(!end.qp.has_short() || end.pump_short(9) == 0);
    assert_eq!(end.qp.stats().messages_sent, 1);
    sim.run();
    let received: Vec<_> = sim.ends[1].memory.received.iter().map(|r| &r.octets[..]).collect();
    assert_eq!(received, [b"fenced", b"behind"]);
}

// RFC 5040 [IOP-13] one message of each in turn
#[test]
fn responses_to_the_peer_get_their_turn() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x100, 0, 64));
    sim.ends[0].memory.regions.push(Region::new(0x200, 0, 64));
    for _ in 0..4 {
        sim.ends[0].receive(8);
    }
    sim.ends[0].read((0x200, 0), (0x100, 0), 64);
    sim.ends[0].pump();
    let request = sim.ends[0].accept(usize::MAX);
    sim.ends[1].feed(&request);
    for _ in 0..4 {
        sim.ends[1].send(b"plenty");
    }
    assert!(!sim.ends[1].qp.has_short() && !sim.ends[1].qp.is_idle());
    assert_eq!(sim.ends[1].pump_short(9), 0);
    sim.run();
    assert_eq!(sim.ends[0].statuses(), [Status::Success]);
    assert_eq!(sim.ends[0].memory.received.len(), 4);
}

// [RDMAP-28, VERBS-18] the slow path reports the error
#[test]
fn a_message_that_cannot_be_read_fails_like_any() {
    use iwarp_proto::{AccessError, LocalFault};
    let mut end = end(STREAM, false);
    end.send(b"good");
    let fault = Some(LocalFault::Access(AccessError::Bounds));
    end.post(plain(SEND), crate::sim::memory::Work { fault, ..gather(b"bad") });
    end.send(b"behind");
    end.pump();
    end.accept(usize::MAX);
    let bad = Status::Local(LocalFault::Access(AccessError::Bounds));
    assert_eq!(end.statuses(), [Status::Success, bad, Status::Flushed]);
}
