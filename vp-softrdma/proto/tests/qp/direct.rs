//! Tests of direct placement: with neither CRC nor markers large segments are placed as they arrive.
//!
//! Owner of the state: each test its own; one thread. The peer is what the test feeds.

use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::{
    Destination, Input, QpEvent, Role, SendOp, Stag, State, Status, StreamConfig, Want,
};

use crate::craft::{header, tagged_ulpdu, wrap};
use crate::sim::memory::Region;
use crate::sim::{CONFIG, End, STREAM, Sim, gather, plain};

fn stream() -> StreamConfig {
    StreamConfig { crc: false, mulpdu: 64768, ..STREAM }
}
fn end() -> End {
    let mut end = End::new(CONFIG);
    end.memory.regions.push(Region::new(0x100, 0, 100_000));
    end.receive(100_000);
    end.qp.start(stream()).expect("Idle");
    end
}
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
}
fn write_frame(octets: &[u8]) -> Vec<u8> {
    wrap(&tagged_ulpdu(Opcode::Write, true, 0x100, 50, octets), false)
}
fn send_frame(mo: u32, last: bool, octets: &[u8]) -> Vec<u8> {
    let header = header(Opcode::Send, 1, mo, last).emit();
    wrap(&[&header[..], octets].concat(), false)
}
fn input(end: &mut End, octets: &[u8]) -> Input {
    end.qp.handle_input(octets, &mut end.memory)
}

// [MPA-33, MPA-34] after the header, the payload may be received directly to its destination
#[test]
fn a_large_write_is_placed_as_it_arrives() {
    let data = pattern(10_000);
    let frame = write_frame(&data);
    let mut end = end();
    let found = input(&mut end, &frame[..1016]);
    assert_eq!(found.consumed, 1016);
    let (destination, offset, remaining) = (Destination::Tagged, 1000, 9000);
    assert_eq!(found.want, Want::Direct { destination, offset, remaining });
    end.memory.place_direct(destination, offset, &data[1000..8000]).expect("checked");
    let found = end.qp.handle_direct(7000, &mut end.memory);
    let (offset, remaining) = (8000, 2000);
    assert_eq!(found.want, Want::Direct { destination, offset, remaining });
    // The rest through a buffer, the trailer in two pieces
    let found = input(&mut end, &frame[8016..10_018]);
    assert_eq!((found.consumed, found.want), (2002, Want::Octets(2)));
    assert!(end.qp.fpdus_received() == 0);
    let found = input(&mut end, &frame[10_018..]);
    assert_eq!((found.consumed, found.want), (2, Want::Octets(2)));
    assert_eq!(end.qp.fpdus_received(), 1);
    assert_eq!(end.memory.region(0x100).octets[50..10_050], data);
}

// [DDP-07] a Send's later segment continues in the receive buffer
#[test]
fn a_send_continues_in_its_buffer() {
    let data = pattern(30_000);
    let mut end = end();
    let first = send_frame(0, false, &data[..10_000]);
    let second = send_frame(10_000, true, &data[10_000..]);
    assert_eq!(input(&mut end, &first).consumed, first.len());
    let found = input(&mut end, &second[..20]);
    let (destination, offset, remaining) = (Destination::Receive, 10_000, 20_000);
    assert_eq!((found.consumed, found.want), (20, Want::Direct { destination, offset, remaining }));
    end.feed_direct(&second[20..]);
    assert_eq!(end.memory.received[0].octets, data);
}

// Small payloads, and everything with CRC or markers, wait for the whole FPDU
#[test]
fn operations_that_need_the_whole_message_wait() {
    let small = write_frame(&pattern(2000));
    let mut one = end();
    assert_eq!(input(&mut one, &small[..100]).want, Want::Octets(small.len()));
    for (crc, markers_rx) in [(true, false), (false, true), (true, true)] {
        let mut end = End::new(CONFIG);
        end.memory.regions.push(Region::new(0x100, 0, 100_000));
        end.qp.start(StreamConfig { crc, markers_rx, ..stream() }).expect("Idle");
        let found = input(&mut end, &[&[0; 4][..], &write_frame(&pattern(10_000))[..500]].concat());
        assert!(!matches!(found.want, Want::Direct { .. }));
        assert_eq!(end.memory.placed, 0);
    }
}

// [DDP-15, DDP-16] a refused segment is refused at its header; nothing is placed
#[test]
fn a_refused_segment_is_refused_at_once() {
    let frame = wrap(&tagged_ulpdu(Opcode::Write, true, 0xbad, 0, &pattern(10_000)), false);
    let mut end = end();
    end.feed(&frame[..200]);
    assert_eq!((end.qp.state(), end.memory.placed), (State::Terminate, 0));
    let code = end.qp.last_terminate().expect("sent").1;
    assert_eq!(code.word(), 0x1100);
    // The Terminate quotes the segment.
    let refused = end.qp.refused_segment().expect("quoted");
    assert!(
        matches!(refused.header, iwarp_proto::wire::ddp::Header::Tagged(header) if header.stag == Stag(0xbad))
    );
    assert_eq!(refused.segment_length, Some(14 + 10_000));
}

// [SEC-05] the region is deregistered while the segment streams in
#[test]
fn deregistering_a_region_stops_the_segment() {
    let frame = write_frame(&pattern(10_000));
    let mut end = end();
    end.feed(&frame[..1016]);
    end.memory.region(0x100).valid = false;
    end.feed(&frame[1016..]);
    assert_eq!(end.qp.last_terminate().expect("sent").1.word(), 0x1100);
    assert_eq!(end.memory.placed, 1000);
    assert_eq!(input(&mut end, &frame).want, Want::Nothing);
}

// [VERBS-05, VERBS-09] FIN, or our close, in the middle of such a segment
#[test]
fn a_segment_cut_short() {
    let frame = write_frame(&pattern(10_000));
    let mut end = end();
    end.feed(&frame[..1016]);
    end.fin();
    assert_eq!(end.qp.last_terminate().expect("sent").1.word(), 0x0207);
    let mut end = self::end();
    end.feed(&frame[..1016]);
    end.qp.close(&mut end.memory).expect("RTS");
    end.feed(&frame[1016..]);
    end.pump();
    assert_eq!(end.events.last(), Some(&QpEvent::BadClose));
    assert_eq!(end.memory.placed, 1000);
}

// [MPA-05, MPA-31] any way to cut the stream, both ways to place: the same memory
#[test]
fn both_ways_of_placing_agree() {
    for chunk in [1usize, 100, 2048, 5000, 70_000] {
        for direct in [false, true] {
            let second = StreamConfig { role: Role::Responder, ..stream() };
            let mut sim = Sim::new([stream(), second]);
            sim.ends[0].memory.regions.push(Region::new(0x200, 0, 100_000));
            sim.ends[1].memory.regions.push(Region::new(0x100, 0, 100_000));
            sim.ends[0].direct = direct;
            sim.ends[1].direct = direct;
            let data = pattern(90_000);
            sim.ends[1].receive(90_000);
            sim.ends[0].post(plain(SendOp::Write { stag: Stag(0x100), to: 1 }), gather(&data));
            sim.ends[0].send(&data);
            sim.ends[0].read((0x200, 2), (0x100, 1), 90_000);
            sim.run_chunked(chunk);
            assert_eq!(sim.ends[0].statuses(), [Status::Success; 3]);
            assert_eq!(sim.ends[1].memory.region(0x100).octets[1..90_001], data);
            assert_eq!(sim.ends[0].memory.region(0x200).octets[2..90_002], data);
            assert_eq!(sim.ends[1].memory.received[0].octets, data);
            assert_eq!(sim.ends[1].direct_reads > 0, direct);
            sim.close(0);
        }
    }
}

// [VERBS-05] a close releases the receive buffers: octets that arrive afterwards are not placed
#[test]
fn a_close_stops_what_streams_into_a_buffer() {
    let data = pattern(10_000);
    let frame = send_frame(0, true, &data);
    let mut end = end();
    assert!(matches!(input(&mut end, &frame[..1020]).want, Want::Direct { .. }));
    end.qp.close(&mut end.memory).expect("in RTS");
    assert_eq!(input(&mut end, &[]).want, Want::Octets(1));
    assert_eq!(input(&mut end, &frame[1020..]).want, Want::Nothing);
    assert_eq!(end.qp.state(), State::Error);
}
