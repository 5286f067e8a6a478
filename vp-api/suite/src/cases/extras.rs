//! Cases about atomics and Immediate Data (RFC 7306).

use vp_api::*;

use crate::fail::same;
use crate::rig::{Rig, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("atomic: add", add).keeps("RI-69").with(Capabilities::ATOMICS),
    Case::new("atomic: compare and swap", swap).keeps("RI-69").with(Capabilities::ATOMICS),
    Case::new("atomic: masked", masked).keeps("RI-70").with(Capabilities::MASKED_ATOMICS),
    Case::new("immediate: alone", immediate).keeps("RI-56 RI-77").with(Capabilities::IMMEDIATE),
    Case::new("immediate: all of its octets", wide_immediate)
        .keeps("RI-55 RI-56")
        .with(Capabilities::IMMEDIATE),
    Case::new("immediate: beside the data of a send", send_immediate)
        .keeps("RI-227")
        .with(Capabilities::SEND_IMMEDIATE),
    Case::new("immediate: of a send, where the ends did not agree", not_agreed)
        .keeps("RI-228")
        .with(Capabilities::SEND_IMMEDIATE),
    Case::new("immediate: behind a write", write_immediate)
        .keeps("RI-55 RI-191")
        .with(Capabilities::IMMEDIATE),
];

/// Runs one atomic on `before`; returns its result, and the value in memory afterwards.
pub(super) fn run(rig: &Rig, before: u64, op: AtomicOp) -> Result<(u64, u64), Fail> {
    let (near, far) = rig.pair()?;
    let (here, there) = (near.memory(8)?, far.memory(8)?);
    there.region.write_at(0, &before.to_ne_bytes())?;
    near.post(1, SendOp::Atomic { remote: there.remote(0), op }, &[here.all()])?;
    near.done(1, WcOpcode::Atomic)?;
    let word = |memory: &crate::rig::Memory| -> Result<u64, Fail> {
        let octets: [u8; 8] = memory.read(0, 8)?.try_into().map_err(|_| "not 8 octets")?;
        Ok(u64::from_ne_bytes(octets))
    };
    Ok((word(&here)?, word(&there)?))
}

fn add(rig: &Rig) -> Result<(), Fail> {
    let op = AtomicOp::FetchAdd { add: 5, mask: 0 };
    same("original and sum", run(rig, u64::MAX - 1, op)?, (u64::MAX - 1, 3))
}

fn swap(rig: &Rig) -> Result<(), Fail> {
    let op = |compare| {
        let mask = u64::MAX;
        AtomicOp::CmpSwap { compare, compare_mask: mask, swap: 9, swap_mask: mask }
    };
    same("equal", run(rig, 7, op(7))?, (7, 9))?;
    same("different", run(rig, 8, op(7))?, (8, 8))
}

fn masked(rig: &Rig) -> Result<(), Fail> {
    let op = AtomicOp::CmpSwap { compare: 0x12, compare_mask: 0xff, swap: 0, swap_mask: 0xf00 };
    same("masked swap", run(rig, 0xabc12, op)?, (0xabc12, 0xab012))
}

fn immediate(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[])?;
    near.post(2, SendOp::Immediate { data: 0x0102_0304, solicited: false }, &[])?;
    near.done(2, WcOpcode::Immediate)?;
    let wc = far.done(1, WcOpcode::RecvImmediate)?;
    same("immediate data", wc.immediate, Some(0x0102_0304))?;
    far.recv(3, &[])?;
    near.post(4, crate::rig::SEND, &[])?;
    near.done(4, WcOpcode::Send)?;
    same("immediate data of a Send", far.done(3, WcOpcode::Recv)?.immediate, None)
}

fn send_immediate(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(200, 1)?, far.memory(200)?);
    for (n, data, solicited) in [(0, 0x8102_0304, false), (1, 0, true)] {
        far.recv(n, &[sink.sge(n as usize * 100, 100)])?;
        let op = SendOp::SendImmediate { data, solicited };
        near.post(n, op, &[source.sge(n as usize * 100, 100)])?;
        near.done(n, WcOpcode::Send)?;
        let wc = far.done(n, WcOpcode::Recv)?;
        same("immediate data", wc.immediate, Some(data.into()))?;
        same("octets", wc.octets, 100)?;
    }
    sink.holds("what was sent", 0, &pattern(200, 1))
}

fn not_agreed(rig: &Rig) -> Result<(), Fail> {
    if rig.attrs.connection_model != ConnectionModel::LlpStream {
        return Ok(());
    }
    let (near, far) = (rig.end()?, rig.end()?);
    rig.link_with(&near, &far, false)?;
    for end in [&near, &far] {
        same("event of the connection", end.event()?, AsyncEvent::Established)?;
    }
    let wr = SendWr {
        wr_id: 1,
        op: SendOp::SendImmediate { data: 1, solicited: false },
        data: Data::Sgl(&[]),
        flags: SendFlags::SIGNALED,
    };
    let posted = near.qp.post_send(&[wr]).map_err(|failure| failure.status);
    same("a Send with Immediate", posted, Err(VpStatus::Unsupported))
}

fn write_immediate(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(5000, 2)?, far.memory(5000)?);
    far.recv(1, &[])?;
    let op = SendOp::WriteImmediate { remote: sink.remote(0), data: 77, solicited: true };
    near.post(2, op, &[source.all()])?;
    near.done(2, WcOpcode::WriteImmediate)?;
    let wc = far.done(1, WcOpcode::RecvImmediate)?;
    same("immediate data", wc.immediate, Some(77))?;
    same("octets of the Write", wc.octets, 5000)?;
    sink.holds("written", 0, &pattern(5000, 2))?;
    far.recv(3, &[])?;
    let op = SendOp::WriteImmediate { remote: sink.remote(0), data: 78, solicited: false };
    near.post(4, op, &[])?;
    near.done(4, WcOpcode::WriteImmediate)?;
    let wc = far.done(3, WcOpcode::RecvImmediate)?;
    same("octets of a Write without any", (wc.immediate, wc.octets), (Some(78), 0))
}

/// iWARP's Immediate Data has 8 octets; a transport that has 4 refuses more.
fn wide_immediate(rig: &Rig) -> Result<(), Fail> {
    let data = 0x1122_3344_5566_7788;
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.memory(8)?, far.memory(8)?);
    let behind = SendOp::WriteImmediate { remote: sink.remote(0), data, solicited: false };
    for op in [SendOp::Immediate { data, solicited: false }, behind] {
        let sgl = [source.all()];
        let sgl = if matches!(op, SendOp::Immediate { .. }) { &[][..] } else { &sgl[..] };
        far.recv(1, &[])?;
        let what = op.completion();
        if near.post(2, op, sgl).is_err() {
            continue;
        }
        near.done(2, what)?;
        let wc = far.done(1, WcOpcode::RecvImmediate)?;
        same("immediate data", wc.immediate, Some(data))?;
    }
    Ok(())
}
