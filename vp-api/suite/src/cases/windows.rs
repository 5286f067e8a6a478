//! Cases about memory windows: what they allow, to whom, and how they are invalidated.

use vp_api::*;

use super::memory::breaks;
use crate::fail::{refused, same};
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("mw: a bound window can be written", window)
        .keeps("RI-52 RI-60")
        .with(Capabilities::MW),
    Case::new("mw: a region with a window stays", holds)
        .keeps("RI-17 RI-139")
        .with(Capabilities::MW),
    Case::new("mw: a narrow window serves its QP alone", narrow)
        .keeps("RI-51")
        .with(Capabilities::NARROW_MW),
    Case::new("mw: a wide window serves every QP of its PD", wide)
        .keeps("RI-50")
        .with(Capabilities::WIDE_MW),
    Case::new("mw: a wide window that is bound anew", rebound).with(Capabilities::WIDE_MW),
    Case::new("mw: a wide window is unbound by a bind of no octets", unbound)
        .keeps("RI-71")
        .with(Capabilities::WIDE_MW),
    Case::new("mw: a narrow window is invalidated", narrow_ends)
        .with(Capabilities::NARROW_MW.union(Capabilities::INVALIDATE)),
    Case::new("mw: a wide window is invalidated", wide_ends)
        .with(Capabilities::WIDE_MW.union(Capabilities::INVALIDATE)),
    Case::new("mw: a kind that is not offered is refused", not_offered).with(Capabilities::MW),
    Case::new("mw: is bound to a region with the right only", unbindable)
        .keeps("RI-207")
        .with(Capabilities::MW),
    Case::new("read: a window is the sink", sink).with(Capabilities::READ_SINK_STAG),
    Case::new("read: its sink is invalidated", sink_ends)
        .keeps("RI-58")
        .with(Capabilities::READ_SINK_STAG),
];

/// Binds octets 8 to 24 of `memory`.
pub(super) fn bind(end: &End<'_>, window: MwId, memory: &Memory, key: u8) -> Result<Remote, Fail> {
    let to = memory.remote(8).to;
    let (addressing, access) = (Addressing::Absolute, Access::REMOTE_WRITE);
    let op = BindMw { window, key, region: memory.stag, to, len: 16, addressing, access };
    end.post(1, SendOp::BindMw(op), &[])?;
    let rnic = &end.rig.rnic;
    let posted = rnic.query_mw(window)?.stag;
    end.done(1, WcOpcode::BindMw)?;
    let stag = rnic.query_mw(window)?.stag.ok_or("a bound window has no STag")?;
    if end.rig.offers(Capabilities::PICKS_WIDE_KEY) {
        same("STag once the bind was posted", posted, Some(stag))?;
    } else {
        same("key of the window", stag.key(), key)?;
    }
    Ok(Remote { stag, to })
}

fn unbindable(rig: &Rig) -> Result<(), Fail> {
    let (_near, far) = rig.pair()?;
    let memory = far.memory_with(64, Access::LOCAL | Access::REMOTE_WRITE, Addressing::Absolute)?;
    let window = rig.rnic.alloc_mw(far.pd, kind(rig))?;
    let (to, region) = (memory.remote(8).to, memory.stag);
    let (addressing, access) = (Addressing::Absolute, Access::REMOTE_WRITE);
    let op = BindMw { window, key: 3, region, to, len: 16, addressing, access };
    // It fails at once, or by its completion.
    if far.post(1, SendOp::BindMw(op), &[]).is_err() {
        return Ok(());
    }
    match far.completion()?.status {
        WcStatus::Success => Err("a window was bound to a region without the right".into()),
        _ => Ok(()),
    }
}

pub(super) fn kind(rig: &Rig) -> MwKind {
    if rig.offers(Capabilities::NARROW_MW) { MwKind::Narrow } else { MwKind::Wide }
}

/// Writes 16 octets through the window, and waits until they have arrived.
fn write(near: &End<'_>, far: &End<'_>, remote: Remote, seed: u8) -> Result<(), Fail> {
    let source = near.pattern(16, seed)?;
    far.recv(3, &[])?;
    near.post(2, SendOp::Write { remote }, &[source.all()])?;
    near.done(2, WcOpcode::Write)?;
    near.post(4, SEND, &[])?;
    near.done(4, WcOpcode::Send)?;
    far.done(3, WcOpcode::Recv)?;
    Ok(())
}

/// A write that must be refused.
fn forbidden(near: &End<'_>, remote: Remote) -> Result<(), Fail> {
    let source = near.pattern(16, 0x77)?;
    breaks(near, SendOp::Write { remote }, &[source.all()])
}

fn window(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let window = rig.rnic.alloc_mw(far.pd, kind(rig))?;
    let remote = bind(&far, window, &memory, 3)?;
    write(&near, &far, remote, 8)?;
    memory.holds("through the window", 8, &pattern(16, 8))?;
    forbidden(&near, Remote { to: remote.to + 1, ..remote })?;
    memory.holds("beyond the window", 24, &[0])
}

fn holds(rig: &Rig) -> Result<(), Fail> {
    let (_near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let window = rig.rnic.alloc_mw(far.pd, kind(rig))?;
    bind(&far, window, &memory, 3)?;
    refused("deregister", rig.rnic.dealloc_stag(memory.stag), VpStatus::StagInUse)?;
    rig.rnic.dealloc_mw(window)?;
    Ok(rig.rnic.dealloc_stag(memory.stag)?)
}

/// Another pair whose far end is in the PD of `end`.
fn neighbours<'a>(rig: &'a Rig, end: &End<'_>) -> Result<(End<'a>, End<'a>), Fail> {
    let (near, far) = (rig.end()?, rig.end_with(None, |init| init.pd = end.pd)?);
    rig.connect(&near, &far)?;
    Ok((near, far))
}

fn narrow(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (stranger, _other) = neighbours(rig, &far)?;
    let memory = far.memory(64)?;
    let remote = bind(&far, rig.rnic.alloc_mw(far.pd, MwKind::Narrow)?, &memory, 4)?;
    forbidden(&stranger, remote)?;
    memory.holds("untouched", 8, &[0; 16])?;
    write(&near, &far, remote, 9)?;
    memory.holds("through the window", 8, &pattern(16, 9))
}

fn wide(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (neighbour, other) = neighbours(rig, &far)?;
    let memory = far.memory(64)?;
    let remote = bind(&far, rig.rnic.alloc_mw(far.pd, MwKind::Wide)?, &memory, 4)?;
    write(&near, &far, remote, 9)?;
    memory.holds("by the QP that bound it", 8, &pattern(16, 9))?;
    write(&neighbour, &other, remote, 10)?;
    memory.holds("by its neighbour", 8, &pattern(16, 10))
}

fn rebound(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (first, second) = (far.memory(64)?, far.memory(64)?);
    let window = rig.rnic.alloc_mw(far.pd, MwKind::Wide)?;
    let old = bind(&far, window, &first, 4)?;
    let new = bind(&far, window, &second, 5)?;
    write(&near, &far, new, 11)?;
    second.holds("through the window", 8, &pattern(16, 11))?;
    // No window is bound to the first region any more.
    rig.rnic.dealloc_stag(first.stag)?;
    forbidden(&near, old)
}

fn unbound(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let window = rig.rnic.alloc_mw(far.pd, MwKind::Wide)?;
    let remote = bind(&far, window, &memory, 4)?;
    let (addressing, access) = (Addressing::Absolute, Access::empty());
    let region = Stag::default();
    let op = BindMw { window, key: 5, region, to: 0, len: 0, addressing, access };
    far.post(2, SendOp::BindMw(op), &[])?;
    far.done(2, WcOpcode::BindMw)?;
    closed(&near, &far, window, &memory, remote)
}

/// Access through the window is refused, and the region is not kept in use.
fn closed(
    near: &End<'_>,
    far: &End<'_>,
    window: MwId,
    memory: &Memory,
    remote: Remote,
) -> Result<(), Fail> {
    let rnic = &far.rig.rnic;
    same("STag of the unbound window", rnic.query_mw(window)?.stag, None)?;
    forbidden(near, remote)?;
    memory.holds("untouched", 8, &[0; 16])?;
    Ok(rnic.dealloc_stag(memory.stag)?)
}

fn invalidated(rig: &Rig, kind: MwKind) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let window = rig.rnic.alloc_mw(far.pd, kind)?;
    let remote = bind(&far, window, &memory, 6)?;
    far.post(2, SendOp::InvalidateLocal { stag: remote.stag }, &[])?;
    far.done(2, WcOpcode::InvalidateLocal)?;
    closed(&near, &far, window, &memory, remote)
}

fn narrow_ends(rig: &Rig) -> Result<(), Fail> {
    invalidated(rig, MwKind::Narrow)
}

fn wide_ends(rig: &Rig) -> Result<(), Fail> {
    invalidated(rig, MwKind::Wide)
}

fn not_offered(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let kinds = [(Capabilities::NARROW_MW, MwKind::Narrow), (Capabilities::WIDE_MW, MwKind::Wide)];
    for (offer, kind) in kinds {
        let made = rig.rnic.alloc_mw(pd, kind);
        if rig.offers(offer) {
            made?;
        } else {
            refused(&format!("{kind:?}"), made, VpStatus::Unsupported)?;
        }
    }
    Ok(())
}

fn sink(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, memory) = (far.pattern(16, 12)?, near.memory(64)?);
    let window = rig.rnic.alloc_mw(near.pd, MwKind::Narrow)?;
    let Remote { stag, to } = bind(&near, window, &memory, 7)?;
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    near.post(2, op, &[Sge { stag, len: 16, to }])?;
    near.done(2, WcOpcode::Read)?;
    memory.holds("through the window", 8, &pattern(16, 12))
}

fn sink_ends(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, memory) = (far.pattern(16, 13)?, near.memory(64)?);
    let window = rig.rnic.alloc_mw(near.pd, MwKind::Narrow)?;
    let Remote { stag, to } = bind(&near, window, &memory, 7)?;
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: true };
    near.post(2, op, &[Sge { stag, len: 16, to }])?;
    near.done(2, WcOpcode::Read)?;
    memory.holds("through the window", 8, &pattern(16, 13))?;
    same("STag of the window", rig.rnic.query_mw(window)?.stag, None)
}
