//! Scripts of work for both ends, and the expected content of their memory.
//!
//! Owner of the state: one test run; one thread.

use iwarp_proto::{SendOp, SendWqe, Stag, Status};

use crate::sim::memory::{Region, Rights, Work};
use crate::sim::{Sim, gather, plain, read_op};

/// The peer writes here.
pub(crate) const INBOX: u32 = 0x100;
/// The peer reads here.
const SOURCE: u32 = 0x200;
/// Sink of our Reads.
const SINK: u32 = 0x300;
/// The peer adds here.
const COUNTER: u32 = 0x400;
const BASE: u64 = 0xffff_8000;

/// How large memory is.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Octets of each region.
    region: usize,
    /// Octets of each receive buffer.
    buffer: usize,
    /// Receive buffers.
    buffers: usize,
}
pub(crate) const LARGE: Scale = Scale { region: 0x1_0000, buffer: 0x3000, buffers: 64 };
pub(crate) const SMALL: Scale = Scale { region: 0x200, buffer: 0x200, buffers: 6 };

/// The receive buffers are posted later.
pub(crate) const LATE: Scale = Scale { buffers: 0, ..SMALL };

/// One work request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Send { len: u16, solicited: bool },
    Write { at: u16, len: u16 },
    WriteImmediate { at: u16, len: u16 },
    Read { at: u16, len: u16 },
    Add { amount: u8 },
    Immediate,
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed) >> 1) as u8).collect()
}

/// What one end posted, in order.
#[derive(Default)]
struct Posted {
    /// Payload of Sends, empty for Immediate Data.
    messages: Vec<Vec<u8>>,
    writes: Vec<(usize, Vec<u8>)>,
    /// Place in the source, place in the sink, length.
    reads: Vec<(usize, usize, usize)>,
    added: u64,
    sink_used: usize,
}

/// Records a posted work request.
type Record = Box<dyn FnOnce(&mut Posted)>;

/// Two ends and the record of the work posted to them.
pub(crate) struct Script {
    pub(crate) sim: Sim,
    posted: [Posted; 2],
    scale: Scale,
    count: u64,
}

impl Script {
    pub(crate) fn new(mut sim: Sim, scale: Scale) -> Self {
        for (side, end) in sim.ends.iter_mut().enumerate() {
            for stag in [INBOX, SOURCE, SINK] {
                end.memory.regions.push(Region::new(stag, BASE, scale.region));
            }
            end.memory.regions.push(Region::new(COUNTER, 0, 8));
            end.memory.region(SOURCE).octets = pattern(scale.region, side as u64 + 99);
            let only = Rights { remote_write: true, ..Rights::default() };
            end.memory.region(INBOX).rights = only;
            end.memory.region(SINK).rights = Rights { local_write: true, ..Rights::default() };
            for _ in 0..scale.buffers {
                end.receive(scale.buffer);
            }
        }
        Self { sim, posted: Default::default(), scale, count: 0 }
    }
    /// Posts if there is room; a QP that is no longer in RTS refuses.
    pub(crate) fn post(&mut self, side: usize, op: Op, read_fence: bool, local_fence: bool) {
        self.count += 1;
        let seed = self.count;
        let size = self.scale.region;
        let posted = &mut self.posted[side];
        let used = posted.sink_used;
        let (op, work, done): (_, _, Record) = match op {
            Op::Send { len, solicited } => {
                let octets = pattern(usize::from(len) % self.scale.buffer, seed);
                let work = gather(&octets);
                (
                    SendOp::Send { solicited, invalidate: None },
                    work,
                    Box::new(move |p| p.messages.push(octets)),
                )
            }
            Op::Immediate => (
                SendOp::Immediate { data: seed, solicited: false },
                Work::default(),
                Box::new(|p| p.messages.push(Vec::new())),
            ),
            Op::Write { at, len } | Op::WriteImmediate { at, len } => {
                let at = usize::from(at) % size;
                let octets = pattern(usize::from(len).min(size - at), seed);
                let (stag, to) = (Stag(INBOX), BASE + at as u64);
                let with_data = matches!(op, Op::WriteImmediate { .. });
                let op = if with_data {
                    SendOp::WriteImmediate { stag, to, data: seed, solicited: true }
                } else {
                    SendOp::Write { stag, to }
                };
                let work = gather(&octets);
                let record = move |p: &mut Posted| {
                    p.writes.push((at, octets));
                    if with_data {
                        p.messages.push(Vec::new());
                    }
                };
                (op, work, Box::new(record))
            }
            Op::Read { at, len } => {
                let at = usize::from(at) % size;
                let len = usize::from(len).min(size - at).min(size - used);
                let op = read_op((SINK, BASE + used as u64), (SOURCE, BASE + at as u64));
                let work = Work { len: len as u32, ..Work::default() };
                let record = move |p: &mut Posted| {
                    p.reads.push((at, used, len));
                    p.sink_used += len;
                };
                (op, work, Box::new(record))
            }
            Op::Add { amount } => {
                let add = u64::from(amount);
                let op = SendOp::FetchAdd { stag: Stag(COUNTER), to: 0, add, mask: 0 };
                let work = Work { len: 8, ..Work::default() };
                (op, work, Box::new(move |p: &mut Posted| p.added += add))
            }
        };
        let wqe = SendWqe { read_fence, local_fence, ..plain(op) };
        if self.sim.ends[side].try_post(wqe, work).is_ok() {
            done(&mut self.posted[side]);
        }
    }
    /// Completes all work; each octet must be at its expected place.
    pub(crate) fn finish(mut self) {
        // A responder may not send before it has received an FPDU [CONN-11]
        self.sim.ends[0].qp.kick();
        self.sim.run();
        for side in 0..2 {
            self.check(side);
        }
        self.sim.close(1);
    }
    fn check(&mut self, from: usize) {
        let posted = &self.posted[from];
        let [a, b] = &mut self.sim.ends;
        let (end, peer) = if from == 0 { (a, b) } else { (b, a) };
        assert!(end.statuses().iter().all(|s| *s == Status::Success), "{:?}", end.statuses());
        let received: Vec<_> = peer.memory.received.iter().map(|r| &r.octets).collect();
        assert_eq!(received, posted.messages.iter().collect::<Vec<_>>(), "messages in order");
        let mut inbox = vec![0; self.scale.region];
        for (at, octets) in &posted.writes {
            inbox[*at..*at + octets.len()].copy_from_slice(octets);
        }
        assert!(peer.memory.region(INBOX).octets == inbox, "writes in order");
        let source = &peer.memory.region(SOURCE).octets;
        let sink = &end.memory.region(SINK).octets;
        for (at, to, len) in &posted.reads {
            assert!(sink[*to..to + len] == source[*at..at + len], "read");
        }
        let sum = u64::from_ne_bytes(
            peer.memory.region(COUNTER).octets[..].try_into().expect("eight octets"),
        );
        assert_eq!(sum, posted.added, "atomics");
    }
}
