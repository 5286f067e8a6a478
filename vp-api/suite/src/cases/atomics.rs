//! Corner cases of atomics: 64 bits, masks, rights, alignment.

use vp_api::*;

use super::memory::breaks;
use crate::fail::same;
use crate::rig::{End, Rig};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("atomic: a sum has 64 bits", wide_add).keeps("RI-69").with(Capabilities::ATOMICS),
    Case::new("atomic: 64 bits are compared and swapped", wide_swap)
        .keeps("RI-69")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: what differs is not swapped", no_swap)
        .keeps("RI-69")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: one behind the other", in_turn).keeps("RI-59").with(Capabilities::ATOMICS),
    Case::new("atomic: without the right it is refused", forbidden)
        .keeps("RI-148")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: the original goes to no memory that must not be written", read_only)
        .keeps("RI-59")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: the original is not cut to what is too short for it", short)
        .keeps("RI-59")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: a QP that does not allow them", not_allowed)
        .keeps("RI-100")
        .with(Capabilities::ATOMICS),
    Case::new("atomic: the mask of a sum", masked_add)
        .keeps("RI-70")
        .with(Capabilities::MASKED_ATOMICS),
    Case::new("atomic: the mask of a comparison", masked_compare)
        .keeps("RI-70")
        .with(Capabilities::MASKED_ATOMICS),
];

const BIG: u64 = 0x8765_4321_0fed_cba9;

const fn add(add: u64, mask: u64) -> AtomicOp {
    AtomicOp::FetchAdd { add, mask }
}

const fn swap(compare: u64, swap: u64) -> AtomicOp {
    AtomicOp::CmpSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
}

/// Compares the original value, and the value in memory afterwards.
fn done(rig: &Rig, before: u64, op: AtomicOp, expected: u64) -> Result<(), Fail> {
    same("original and result", super::extras::run(rig, before, op)?, (before, expected))
}

fn wide_add(rig: &Rig) -> Result<(), Fail> {
    done(rig, 0xffff_ffff, add(BIG, 0), 0xffff_ffff + BIG)
}

fn wide_swap(rig: &Rig) -> Result<(), Fail> {
    done(rig, BIG, swap(BIG, !BIG), !BIG)?;
    done(rig, BIG, swap(BIG ^ (1 << 63), 5), BIG)
}

fn no_swap(rig: &Rig) -> Result<(), Fail> {
    done(rig, BIG, swap(BIG + 1, 5), BIG)
}

fn in_turn(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (here, there) = (near.memory(64)?, far.memory(8)?);
    for n in 0..8_u64 {
        let op = SendOp::Atomic { remote: there.remote(0), op: add(1, 0) };
        near.post(n, op, &[here.sge(n as usize * 8, 8)])?;
        near.done(n, WcOpcode::Atomic)?;
        here.holds("original", n as usize * 8, &n.to_ne_bytes())?;
    }
    there.holds("sum", 0, &8_u64.to_ne_bytes())
}

fn forbidden(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let rights = Access::LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let (here, there) = (near.memory(8)?, far.memory_with(8, rights, Addressing::Absolute)?);
    breaks(&near, SendOp::Atomic { remote: there.remote(0), op: add(1, 0) }, &[here.all()])?;
    there.holds("changed without the right", 0, &[0; 8])
}

fn read_only(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let here = near.memory_with(8, Access::LOCAL_READ, Addressing::Absolute)?;
    fails(&near, &far, here.all())?;
    here.holds("written without the right", 0, &[0; 8])
}

fn short(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let here = near.memory(8)?;
    fails(&near, &far, here.sge(0, 4))?;
    here.holds("the half of an original, or more than there was room for", 0, &[0; 8])
}

/// An atomic whose original cannot go there is refused at once, or completes so.
fn fails(near: &End<'_>, far: &End<'_>, original: Sge) -> Result<(), Fail> {
    let there = far.pattern(8, 0x77)?;
    let op = SendOp::Atomic { remote: there.remote(0), op: add(1, 0) };
    let failed = match near.post(1, op, &[original]) {
        Err(_) => true,
        Ok(()) => near.completion()?.status != WcStatus::Success,
    };
    same("failed", failed, true)
}

fn not_allowed(rig: &Rig) -> Result<(), Fail> {
    let right = Access::REMOTE_ATOMIC;
    let (near, far) = (rig.end()?, rig.end_with(None, |init| init.allow.remove(right))?);
    rig.connect(&near, &far)?;
    let (here, there) = (near.memory(8)?, far.memory(8)?);
    breaks(&near, SendOp::Atomic { remote: there.remote(0), op: add(1, 0) }, &[here.all()])
}

/// A bit of the mask ends a field: no carry passes it.
fn masked_add(rig: &Rig) -> Result<(), Fail> {
    done(rig, 0x00ff_00ff, add(0x0001_0001, 0x8000_8000), 0x0100_0100)?;
    done(rig, 0x00ff_ffff, add(0x0001_0001, 0x0000_8000), 0x0100_0000)
}

fn masked_compare(rig: &Rig) -> Result<(), Fail> {
    let op = AtomicOp::CmpSwap {
        compare: 0xffff_0012,
        compare_mask: 0xff,
        swap: 0x3400,
        swap_mask: 0xff00,
    };
    done(rig, 0xabcd_5612, op, 0xabcd_3412)
}
