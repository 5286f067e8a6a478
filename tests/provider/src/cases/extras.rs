//! Atomics and Immediate Data (RFC 7306).

use vp_api::*;

use crate::fail::same;
use crate::rig::{Rig, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("atomic: add", add).with(Capabilities::ATOMICS),
    Case::new("atomic: compare and swap", swap).with(Capabilities::ATOMICS),
    Case::new("atomic: masked", masked).with(Capabilities::MASKED_ATOMICS),
    Case::new("immediate: alone", immediate).with(Capabilities::IMMEDIATE),
    Case::new("immediate: behind a write", write_immediate).with(Capabilities::IMMEDIATE),
];

/// Runs one atomic on `before`; answers what it brought, and what is there then.
fn run(rig: &Rig, before: u64, op: AtomicOp) -> Result<(u64, u64), Fail> {
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
    same("immediate data", wc.immediate, Some(0x0102_0304))
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
    sink.holds("written", 0, &pattern(5000, 2))
}
