//! Two connected QPs: data arrives complete, in order, once; completions are in posting order; whatever
//! fails, every work request completes exactly once.
//!
//! Owner of the state: each test its own; one thread. The stream between them may split, delay and
//! break anywhere.

use iwarp_proto::mpa::Rx;
use iwarp_proto::wire::ddp::{self, Header};
use iwarp_proto::wire::rdmap;
use iwarp_proto::{AccessError, Crc32c, QpEvent, RtrKind, State, Status, StreamConfig};
use proptest::prelude::*;

use crate::common::crc32c;
use crate::craft::decode_with;
use crate::script::{INBOX, LARGE, Op, SMALL, Script};
use crate::sim::memory::Region;
use crate::sim::{STREAM, Sim, rounds};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

const RTRS: [Option<RtrKind>; 4] =
    [None, Some(RtrKind::Send), Some(RtrKind::Write), Some(RtrKind::Read)];

/// Every combination of CRC, markers in each direction, and RTR.
pub(crate) fn streams() -> impl Iterator<Item = StreamConfig> {
    (0..32).map(|bits| StreamConfig {
        crc: bits & 1 != 0,
        markers_tx: bits & 2 != 0,
        markers_rx: bits & 4 != 0,
        rtr: RTRS[bits >> 3],
        ..STREAM
    })
}

// [RDMAP-12, RDMAP-16]
#[test]
fn send_write_read() {
    let mut sim = Sim::pair(STREAM);
    sim.ends[1].memory.regions.push(Region::new(0x100, 0x1000, 4096));
    sim.ends[0].memory.regions.push(Region::new(0x200, 0x8000, 4096));
    sim.ends[1].receive(1000);
    let (hello, data) = (pattern(1000, 1), pattern(3000, 2));
    sim.ends[0].write(0x100, 0x1001, &data);
    sim.ends[0].read((0x200, 0x8000), (0x100, 0x1001), 3000);
    sim.ends[0].send(&hello);
    sim.run();
    assert_eq!(sim.ends[1].memory.region(0x100).octets[1..3001], data);
    assert_eq!(sim.ends[0].memory.region(0x200).octets[..3000], data);
    assert_eq!(sim.ends[1].memory.received[0].octets, hello);
    assert_eq!(sim.ends[0].statuses(), [Status::Success; 3]);
    sim.close(0);
    for end in &sim.ends {
        assert_eq!(end.events, [QpEvent::Established, QpEvent::CloseComplete]);
    }
}

/// A short script that uses every message kind, both ways.
pub(crate) fn short_script(script: &mut Script) {
    for side in 0..2 {
        script.post(side, Op::Send { len: 300, solicited: true }, false, false);
        script.post(side, Op::Write { at: 7, len: 260 }, false, false);
        script.post(side, Op::Read { at: 3, len: 250 }, false, false);
        script.post(side, Op::Add { amount: 3 }, false, false);
        script.post(side, Op::WriteImmediate { at: 100, len: 0 }, true, false);
        script.post(side, Op::Send { len: 0, solicited: false }, false, true);
    }
}

// [CONN-02, CONN-29, CONN-30, MPA-13, MPA-28, MPA-31]
#[test]
fn every_combination_of_options_and_a_few_chunk_sizes() {
    for stream in streams() {
        for chunk in [1, 3, 64, usize::MAX] {
            let mut script = Script::new(Sim::pair(stream), SMALL);
            script.sim.ends[1].memory.long = true;
            short_script(&mut script);
            script.sim.ends[0].qp.kick();
            script.sim.run_chunked(chunk);
            script.finish();
        }
    }
}

/// Every octet that an end sent belongs to an FPDU of RDMAP: right versions, an assigned opcode, its
/// queue, its T bit.
fn assert_only_rdmap(octets: &[u8], crc: bool, markers: bool) {
    let mut rx = Rx::new(crc.then_some(crc32c as Crc32c), markers);
    for (header, payload) in decode_with(&mut rx, octets) {
        let control = rdmap::Control(header.ulp());
        assert_eq!(header.control().version(), ddp::VERSION);
        assert_eq!((control.version(), control.reserved()), (rdmap::VERSION, 0), "{header:?}");
        let opcode = control.opcode().unwrap_or_else(|| panic!("unassigned: {header:?}"));
        let queue = if let Header::Untagged(h) = header { Some(h.qn) } else { None };
        assert_eq!(queue, opcode.queue(), "{opcode:?} {payload:02x?}");
    }
}

// [RDMAP-30] in RDMA mode the stream has nothing but RDMAP: before, between and after messages,
// with everything that a QP sends by itself, and however the stream ends
#[test]
fn only_rdmap_goes_on_the_stream() {
    type Ending = (&'static str, fn(&mut Sim));
    let endings: [Ending; 5] = [
        ("close", |sim| assert_eq!(sim.ends[0].qp.close(&mut sim.ends[0].memory), Ok(()))),
        ("terminate", |sim| {
            sim.ends[0].qp.terminate(&mut sim.ends[0].memory).expect("in RTS");
        }),
        ("refused", |sim| sim.ends[1].feed(&[0xff; 64])),
        ("source fault", |sim| {
            let fault = AccessError::InvalidStag;
            sim.ends[1].qp.handle_source_fault(fault, &mut sim.ends[1].memory);
        }),
        ("reset", |sim| sim.break_stream()),
    ];
    for stream in streams() {
        for (ending, end_it) in endings {
            let mut script = Script::new(Sim::pair(stream), SMALL);
            short_script(&mut script);
            let sim = &mut script.sim;
            sim.ends.iter_mut().for_each(|end| {
                end.qp.kick();
                end.qp.probe();
            });
            sim.run_chunked(50);
            end_it(sim);
            sim.run_chunked(50);
            for (end, markers) in sim.ends.iter().zip([stream.markers_tx, stream.markers_rx]) {
                assert!(!end.sent.is_empty(), "{ending}");
                assert_only_rdmap(&end.sent, stream.crc, markers);
            }
        }
    }
}

// [VERBS-11, RDMAP-29, ERR-28] the stream is reset after each octet of either direction
#[test]
fn a_reset_at_every_octet_completes_everything_once() {
    let stream = StreamConfig { mulpdu: 160, ..STREAM };
    for direction in 0..2 {
        for octets in 0.. {
            let mut script = Script::new(Sim::pair(stream), SMALL);
            short_script(&mut script);
            let sim = &mut script.sim;
            let mut round = rounds("the octet at which the stream breaks");
            while sim.delivered(direction) < octets {
                round();
                let left = (octets - sim.delivered(direction)) as usize;
                sim.accept(1 - direction, 100);
                sim.deliver(1 - direction, 100);
                let moved = sim.accept(direction, 100) | sim.deliver(direction, left.min(100));
                if !moved && sim.ends[direction].qp.outstanding_sends() == 0 {
                    break;
                }
            }
            let all = sim.delivered(direction) < octets;
            sim.break_stream();
            for end in &sim.ends {
                assert_eq!(end.qp.state(), State::Error);
                assert!(end.detached);
                end.assert_all_complete();
            }
            if all {
                break;
            }
        }
    }
}

// [VERBS-09, DDP-19, SEC-18] one process dies after each octet it has sent: FIN, then RST
#[test]
fn a_death_at_every_octet_completes_everything_once() {
    let stream = StreamConfig { crc: false, mulpdu: 160, ..STREAM };
    for victim in 0..2 {
        for octets in 0..1800 {
            let mut script = Script::new(Sim::pair(stream), SMALL);
            short_script(&mut script);
            let sim = &mut script.sim;
            for _ in 0..40 {
                sim.accept(1 - victim, 100);
                sim.deliver(1 - victim, 100);
                sim.accept(victim, (octets - sim.delivered(victim)).min(100) as usize);
                sim.deliver(victim, 100);
            }
            sim.kill(victim);
            sim.run();
            let survivor = &sim.ends[1 - victim];
            assert!(survivor.detached, "after {octets}");
            assert!(matches!(survivor.qp.state(), State::Idle | State::Error));
            survivor.assert_all_complete();
        }
    }
}

/// One move of a random schedule.
#[derive(Clone, Copy, Debug)]
enum Move {
    Post { side: usize, op: Op, read_fence: bool, local_fence: bool },
    Accept { side: usize, count: u16 },
    Deliver { side: usize, count: u16 },
    Kick,
    Probe { side: usize },
    Mulpdu { side: usize, mulpdu: u16 },
}

fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0..40u16, 0..3000u16, 0..20000u16];
    prop_oneof![
        (len.clone(), any::<bool>()).prop_map(|(len, solicited)| Op::Send { len, solicited }),
        (any::<u16>(), len.clone()).prop_map(|(at, len)| Op::Write { at, len }),
        (any::<u16>(), len.clone()).prop_map(|(at, len)| Op::WriteImmediate { at, len }),
        (any::<u16>(), len).prop_map(|(at, len)| Op::Read { at, len }),
        any::<u8>().prop_map(|amount| Op::Add { amount }),
        Just(Op::Immediate),
    ]
}

fn schedule() -> impl Strategy<Value = Vec<Move>> {
    let side = 0..2usize;
    let count = prop_oneof![1..8u16, 1..600u16, Just(u16::MAX)];
    let post = (side.clone(), op(), 0..8u8).prop_map(|(side, op, fence)| Move::Post {
        side,
        op,
        read_fence: fence == 0,
        local_fence: fence == 1,
    });
    let one = prop_oneof![
        4 => post,
        4 => (side.clone(), count.clone()).prop_map(|(side, count)| Move::Accept { side, count }),
        4 => (side.clone(), count).prop_map(|(side, count)| Move::Deliver { side, count }),
        1 => Just(Move::Kick),
        1 => side.clone().prop_map(|side| Move::Probe { side }),
        1 => (side, 100..9000u16).prop_map(|(side, mulpdu)| Move::Mulpdu { side, mulpdu }),
    ];
    proptest::collection::vec(one, 1..60)
}

fn stream() -> impl Strategy<Value = StreamConfig> {
    (0..32usize, 128..9000u16, 1..4u16, 1..4u16).prop_map(|(bits, mulpdu, ird, ord)| StreamConfig {
        mulpdu,
        ird: ird.max(ord),
        ord,
        ..streams().nth(bits).unwrap_or(STREAM)
    })
}

fn play(script: &mut Script, moves: &[Move]) {
    for m in moves {
        match *m {
            Move::Post { side, op, read_fence, local_fence } => {
                script.post(side, op, read_fence, local_fence);
            }
            Move::Accept { side, count } => {
                script.sim.accept(side, usize::from(count));
            }
            Move::Deliver { side, count } => {
                script.sim.deliver(side, usize::from(count));
            }
            Move::Kick => script.sim.ends[0].qp.kick(),
            Move::Probe { side } => {
                script.sim.ends[side].qp.probe();
            }
            Move::Mulpdu { side, mulpdu } => script.sim.ends[side].qp.set_mulpdu(mulpdu),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    // [DDP-11, DDP-12, RDMAP-09, RDMAP-17, MPA-20, MPA-21, VERBS-16]
    #[test]
    fn random_scripts_deliver_everything(
        stream in stream(),
        moves in schedule(),
        direct in any::<bool>(),
        long in any::<bool>(),
    ) {
        let mut script = Script::new(Sim::pair(stream), LARGE);
        script.sim.ends[0].memory.long = long;
        script.sim.ends[0].direct = direct;
        script.sim.ends[1].direct = direct;
        play(&mut script, &moves);
        script.finish();
    }

    // [VERBS-11, VERBS-18]
    #[test]
    fn random_scripts_that_end_anyhow_complete_everything_once(
        stream in stream(),
        moves in schedule(),
        end in 0..8u8,
        side in 0..2usize,
        chunk in prop_oneof![1..100usize, Just(usize::MAX)],
    ) {
        let mut script = Script::new(Sim::pair(stream), LARGE);
        play(&mut script, &moves);
        let sim = &mut script.sim;
        let victim = &mut sim.ends[side];
        match end {
            0 => sim.break_stream(),
            1 => sim.kill(side),
            2 => { let _ = victim.qp.close(&mut victim.memory); }
            3 => { let _ = victim.qp.terminate(&mut victim.memory); }
            4 => victim.qp.abort(&mut victim.memory),
            5 => victim.memory.region(INBOX).valid = false,
            6 => {
                let error = iwarp_proto::ProtocolError::StreamCatastrophic;
                victim.qp.handle_local_error(error, &mut victim.memory);
            }
            _ => victim.fault(iwarp_proto::LlpFault::TimedOut),
        }
        sim.run_chunked(chunk);
        for end in &mut sim.ends {
            // A dead process, and an idle end that was not informed
            end.qp.abort(&mut end.memory);
            end.assert_all_complete();
            let status = |s: &Status| !matches!(s, Status::Success | Status::Flushed);
            prop_assert!(end.statuses().iter().filter(|s| status(s)).count() <= 1);
        }
    }
}
