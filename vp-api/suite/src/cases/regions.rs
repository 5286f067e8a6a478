//! Cases about regions that share memory or are reregistered, about keys, and corner cases of windows.

use kal_shim::Region;
use vp_api::*;

use super::memory::breaks;
use super::windows::bind;
use crate::fail::{refused, same};
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

const ALL: Access = Access::LOCAL.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

pub(crate) const CASES: &[Case] = &[
    Case::new("mr: an STag with another key is refused", other_key).keeps("RI-45"),
    Case::new("mr: an STag with another key is not invalidated", not_invalidated)
        .keeps("RI-45")
        .with(Capabilities::INVALIDATE.union(Capabilities::FAST_REGISTER)),
    Case::new("mr: the key is the one that was asked for", wanted_key).keeps("RI-45"),
    Case::new("mr: says what it is", says).keeps("RI-47"),
    Case::new("mr: one that was allocated is invalid", allocated)
        .keeps("RI-47")
        .with(Capabilities::FAST_REGISTER),
    Case::new("mr: a Write lands at its very octet", odd_write).keeps("RI-54"),
    Case::new("mr: what a peer may not do through the QP", not_allowed).keeps("RI-100"),
    Case::new("mr: what a peer may do through the QP changes", allowed_anew)
        .keeps("RI-229")
        .with(Capabilities::ALLOW),
    Case::new("mr: registered through the queue, with its rights", fast_rights)
        .keeps("RI-61")
        .with(Capabilities::FAST_REGISTER),
    Case::new(
        "mr: registered through the queue, with no rights of peers if none was allocated",
        fast_local,
    )
    .keeps("RI-61")
    .with(Capabilities::FAST_REGISTER),
    Case::new("mr: the queue of an ordinary QP registers nothing", unprivileged)
        .keeps("RI-19")
        .with(Capabilities::FAST_REGISTER),
    Case::new("mr: the peer's Send ends the region", ended_by_peer)
        .keeps("RI-53")
        .with(Capabilities::INVALIDATE.union(Capabilities::FAST_REGISTER)),
    Case::new("shared: its rights are its own", shared_rights)
        .keeps("RI-48")
        .with(Capabilities::SHARED_MR),
    Case::new("shared: it stays when the first goes", shared_stays)
        .keeps("RI-48")
        .with(Capabilities::SHARED_MR),
    Case::new("shared: it begins where it says", shared_zero)
        .keeps("RI-48")
        .with(Capabilities::SHARED_MR.union(Capabilities::ZERO_BASED)),
    Case::new("shared: its PD and key are its own", shared_own)
        .keeps("RI-48")
        .with(Capabilities::SHARED_MR),
    Case::new("shared: both say so", shared_says).keeps("RI-137").with(Capabilities::SHARED_MR),
    Case::new("shared: the owner is held by both", shared_owner)
        .keeps("RI-25")
        .with(Capabilities::SHARED_MR),
    Case::new("anew: the old STag ends, the new one serves", anew).keeps("RI-138"),
    Case::new("anew: rights and key are the new ones", anew_rights).keeps("RI-138"),
    Case::new("anew: the PD is the new one", anew_pd).keeps("RI-138"),
    Case::new("anew: it begins where it says", anew_zero)
        .keeps("RI-138")
        .with(Capabilities::ZERO_BASED),
    Case::new("anew: the old owner is released", anew_owner).keeps("RI-25"),
    Case::new("anew: a refusal ends the region", anew_refused).keeps("RI-123"),
    Case::new("anew: a region with a window stays", anew_window)
        .keeps("RI-17 RI-123")
        .with(Capabilities::MW),
    Case::new("mw: the region counts its windows", windows_counted)
        .keeps("RI-49")
        .with(Capabilities::MW),
    Case::new("mw: gives no more than its rights", window_rights)
        .keeps("RI-60")
        .with(Capabilities::MW),
    Case::new("mw: begins and ends where it says", window_bounds)
        .keeps("RI-60")
        .with(Capabilities::MW),
    Case::new("mw: says what it is", window_says).keeps("RI-52").with(Capabilities::MW),
];

/// Writes, and waits until the data has arrived.
fn write(near: &End<'_>, far: &End<'_>, remote: Remote, octets: usize) -> Result<(), Fail> {
    let source = near.pattern(octets, 0x21)?;
    far.recv(9, &[])?;
    near.post(1, SendOp::Write { remote }, &[source.all()])?;
    near.post(2, SEND, &[])?;
    near.done(1, WcOpcode::Write)?;
    near.done(2, WcOpcode::Send)?;
    far.done(9, WcOpcode::Recv).map(|_| ())
}

fn forbidden(near: &End<'_>, remote: Remote, octets: usize) -> Result<(), Fail> {
    let source = near.pattern(octets, 0x21)?;
    breaks(near, SendOp::Write { remote }, &[source.all()])
}

fn other_key(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(16)?;
    let stag = Stag::new(memory.stag.index(), memory.stag.key() ^ 1);
    forbidden(&near, Remote { stag, ..memory.remote(0) }, 16)?;
    memory.holds("written with another key", 0, &[0; 16])
}

fn not_invalidated(rig: &Rig) -> Result<(), Fail> {
    let (_near, far) = rig.pair()?;
    let memory = far.memory(16)?;
    let stag = Stag::new(memory.stag.index(), memory.stag.key() ^ 1);
    // Refused at once, or it completes so.
    if far.post(1, SendOp::InvalidateLocal { stag }, &[]).is_ok() {
        let failed = far.completion()?.status != WcStatus::Success;
        same("failed", failed, true)?;
    }
    same("valid", rig.rnic.query_mr(memory.stag)?.valid, true)
}

fn wanted_key(rig: &Rig) -> Result<(), Fail> {
    let (end, region) = (rig.end()?, Region::new(64)?);
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    let init = MrInit { pd: end.pd, range, addressing, access: ALL, key: 0xa7, pin: false };
    let stag = rig.rnic.register_mr(&init)?;
    // Where the hardware chooses keys, the device reports it: no windows bound by key, no fast registration.
    if rig.offers(Capabilities::FAST_REGISTER) || rig.attrs.capabilities.is_empty() {
        same("key of the STag", stag.key(), 0xa7)?;
    }
    Ok(())
}

fn says(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let memory = end.memory_with(100, ALL, Addressing::Absolute)?;
    let Ok(info) = rig.rnic.query_mr(memory.stag) else { return Ok(()) };
    same("STag, with its key", info.stag, memory.stag)?;
    same("PD", info.pd, end.pd)?;
    same("valid", info.valid, true)?;
    same("address", info.addr, memory.region.addr())?;
    same("octets", info.len, 100)?;
    same("remote rights", info.access & Access::REMOTE, ALL & Access::REMOTE)?;
    if !rig.offers(Capabilities::ZERO_BASED) {
        return Ok(());
    }
    let memory = end.memory_with(100, ALL, Addressing::ZeroBased)?;
    let info = rig.rnic.query_mr(memory.stag)?;
    same("addressing", info.addressing, Addressing::ZeroBased)
}

fn allocated(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let stag = rig.rnic.alloc_stag(pd, true)?;
    let info = rig.rnic.query_mr(stag)?;
    same("valid, address", (info.valid, info.addr), (false, 0))
}

fn odd_write(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    write(&near, &far, memory.remote(7), 11)?;
    memory.holds("before", 0, &[0; 7])?;
    memory.holds("written", 7, &pattern(11, 0x21))?;
    memory.holds("behind", 18, &[0; 46])
}

fn not_allowed(rig: &Rig) -> Result<(), Fail> {
    for (right, read) in [(Access::REMOTE_WRITE, false), (Access::REMOTE_READ, true)] {
        let rig = &rig.another()?;
        let (near, far) = (rig.end()?, rig.end_with(None, |init| init.allow.remove(right))?);
        rig.connect(&near, &far)?;
        let (here, there) = (near.memory(16)?, far.memory(16)?);
        let remote = there.remote(0);
        let op = match read {
            true => SendOp::Read { remote, invalidate_sink: false },
            false => SendOp::Write { remote },
        };
        breaks(&near, op, &[here.all()])
            .map_err(|Fail(why)| Fail(format!("a QP without {right:?}: {why}")))?;
    }
    Ok(())
}

fn allowed_anew(rig: &Rig) -> Result<(), Fail> {
    for (right, read) in [(Access::REMOTE_WRITE, false), (Access::REMOTE_READ, true)] {
        let rig = &rig.another()?;
        let (near, far) = rig.pair()?;
        far.qp.modify(QpChange::Allow(Access::empty()))?;
        far.qp.modify(QpChange::Allow(right))?;
        let (here, there) = (near.memory(16)?, far.memory(16)?);
        let remote = there.remote(0);
        let ops = [
            (SendOp::Read { remote, invalidate_sink: false }, WcOpcode::Read),
            (SendOp::Write { remote }, WcOpcode::Write),
        ];
        let [(may, done), (may_not, _)] = if read { ops } else { [ops[1].clone(), ops[0].clone()] };
        near.post(1, may, &[here.all()])?;
        near.done(1, done)?;
        breaks(&near, may_not, &[here.all()])
            .map_err(|Fail(why)| Fail(format!("a QP that allows {right:?} only: {why}")))?;
    }
    Ok(())
}

/// Registers memory through the queue of the second end. `remote`: peers may get rights, as it was allocated.
fn fast_register(
    rig: &Rig,
    privileged: bool,
    remote: bool,
) -> Result<(End<'_>, End<'_>, Region, Stag), Fail> {
    let (near, far) = (rig.end()?, rig.end_with(None, |init| init.privileged = privileged)?);
    rig.connect(&near, &far)?;
    let region = Region::new(64)?;
    let stag = Stag::new(rig.rnic.alloc_stag(far.pd, remote)?.index(), 0x31);
    let access = Access::LOCAL | Access::REMOTE_WRITE;
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    let fast = FastRegister { stag, range, addressing, access };
    far.post(1, SendOp::FastRegister(fast.into()), &[])?;
    Ok((near, far, region, stag))
}

fn fast_local(rig: &Rig) -> Result<(), Fail> {
    let (_near, far, _region, stag) = match fast_register(rig, true, false) {
        Ok(posted) => posted,
        Err(_) => return Ok(()), // Refused at once.
    };
    if far.completion()?.status == WcStatus::Success {
        return Err("peers got the right to write".into());
    }
    same("valid", rig.rnic.query_mr(stag)?.valid, false)
}

fn fast_rights(rig: &Rig) -> Result<(), Fail> {
    let (near, far, region, stag) = fast_register(rig, true, true)?;
    far.done(1, WcOpcode::FastRegister)?;
    let remote = Remote { stag, to: region.addr() };
    write(&near, &far, remote, 8)?;
    let sink = near.memory(8)?;
    breaks(&near, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()])
}

fn unprivileged(rig: &Rig) -> Result<(), Fail> {
    let (_near, far, _region, _) = match fast_register(rig, false, true) {
        Ok(posted) => posted,
        Err(_) => return Ok(()), // Refused at once.
    };
    match far.completion()?.status {
        WcStatus::Success => Err("a QP without RI_QP_PRIVILEGED registered memory".into()),
        status => same("status", status, WcStatus::NotPrivileged),
    }
}

fn ended_by_peer(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(16)?;
    far.recv(1, &[])?;
    near.post(2, SendOp::Send { solicited: false, invalidate: Some(memory.stag) }, &[])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    forbidden(&near, memory.remote(0), 16)?;
    memory.holds("written after it was invalidated", 0, &[0; 16])
}

fn share(
    rig: &Rig,
    first: &Memory,
    pd: PdId,
    addressing: Addressing,
    access: Access,
) -> Result<Stag, Fail> {
    Ok(rig.rnic.register_shared_mr(first.stag, pd, addressing, access, 9)?)
}

fn shared_rights(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let first = far.memory_with(16, ALL, Addressing::Absolute)?;
    let stag = share(rig, &first, far.pd, Addressing::Absolute, Access::LOCAL)?;
    forbidden(&near, Remote { stag, ..first.remote(0) }, 16)?;
    first.holds("written through a region without the right", 0, &[0; 16])
}

fn shared_stays(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let first = far.memory_with(16, ALL, Addressing::Absolute)?;
    let stag = share(rig, &first, far.pd, Addressing::Absolute, ALL)?;
    rig.rnic.dealloc_stag(first.stag)?;
    write(&near, &far, Remote { stag, ..first.remote(0) }, 16)?;
    first.holds("written", 0, &pattern(16, 0x21))
}

fn shared_zero(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let first = far.memory_with(32, ALL, Addressing::Absolute)?;
    let stag = share(rig, &first, far.pd, Addressing::ZeroBased, ALL)?;
    write(&near, &far, Remote { stag, to: 8 }, 16)?;
    first.holds("written", 8, &pattern(16, 0x21))
}

fn shared_own(rig: &Rig) -> Result<(), Fail> {
    let (one, other) = (rig.end()?, rig.end()?);
    let first = one.memory_with(32, ALL, Addressing::Absolute)?;
    let stag = share(rig, &first, other.pd, Addressing::Absolute, Access::LOCAL)?;
    let info = rig.rnic.query_mr(stag)?;
    same("PD", info.pd, other.pd)?;
    same("PD of the first one", rig.rnic.query_mr(first.stag)?.pd, one.pd)?;
    match rig.attrs.connection_model {
        // An adapter chooses the keys of its regions.
        ConnectionModel::Native => Ok(()),
        ConnectionModel::LlpStream => same("key", stag.key(), 9),
    }
}

fn shared_says(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let first = end.memory_with(32, ALL, Addressing::Absolute)?;
    same("shared, before", rig.rnic.query_mr(first.stag)?.shared, false)?;
    let second = share(rig, &first, end.pd, Addressing::Absolute, Access::LOCAL)?;
    for stag in [first.stag, second] {
        same("shared", rig.rnic.query_mr(stag)?.shared, true)?;
    }
    Ok(())
}

fn shared_owner(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let first = end.memory_with(32, ALL, Addressing::Absolute)?;
    let second = share(rig, &first, end.pd, Addressing::Absolute, Access::LOCAL)?;
    rig.rnic.dealloc_stag(first.stag)?;
    if first.region.uses() == 1 {
        return Err("the memory's owner was released while a shared region covers it".into());
    }
    rig.rnic.dealloc_stag(second)?;
    same("uses of the memory when both are gone", first.region.uses(), 1)
}

fn anew_pd(rig: &Rig) -> Result<(), Fail> {
    let (one, other) = (rig.end()?, rig.end()?);
    let old = one.memory_with(32, ALL, Addressing::Absolute)?;
    let region = Region::new(32)?;
    let Some(stag) = again(rig, &old, other.pd, &region, Access::LOCAL)? else { return Ok(()) };
    same("PD", rig.rnic.query_mr(stag)?.pd, other.pd)?;
    // Nothing of it remains in the old region.
    rig.rnic.destroy_qp(one.qp.id())?;
    Ok(rig.rnic.dealloc_pd(one.pd)?)
}

fn anew_zero(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (old, new) = (far.memory_with(16, ALL, Addressing::Absolute)?, Region::new(32)?);
    let zero = Addressing::ZeroBased;
    let Some(stag) = again_at(rig, &old, far.pd, &new, ALL, zero)? else { return Ok(()) };
    same("addressing", rig.rnic.query_mr(stag)?.addressing, zero)?;
    write(&near, &far, Remote { stag, to: 0 }, 32)
}

/// Reregisters the region; `None` where that is not possible.
fn again(
    rig: &Rig,
    old: &Memory,
    pd: PdId,
    region: &Region,
    access: Access,
) -> Result<Option<Stag>, Fail> {
    again_at(rig, old, pd, region, access, Addressing::Absolute)
}

/// As above, with the given addressing.
fn again_at(
    rig: &Rig,
    old: &Memory,
    pd: PdId,
    region: &Region,
    access: Access,
    addressing: Addressing,
) -> Result<Option<Stag>, Fail> {
    let range = region.mem_range();
    let init = MrInit { pd, range, addressing, access, key: 0x77, pin: false };
    match rig.rnic.reregister_mr(old.stag, &init) {
        Ok(stag) => Ok(Some(stag)),
        Err(why) if why.status == VpStatus::Unsupported => Ok(None),
        Err(why) => Err(why.into()),
    }
}

fn anew(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (old, new) = (far.memory_with(16, ALL, Addressing::Absolute)?, Region::new(32)?);
    let Some(stag) = again(rig, &old, far.pd, &new, ALL)? else { return Ok(()) };
    write(&near, &far, Remote { stag, to: new.addr() }, 32)?;
    forbidden(&near, old.remote(0), 16)?;
    old.holds("written through the old STag", 0, &[0; 16])
}

fn anew_rights(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (old, new) = (far.memory_with(16, ALL, Addressing::Absolute)?, Region::new(32)?);
    let Some(stag) = again(rig, &old, far.pd, &new, Access::LOCAL)? else { return Ok(()) };
    if rig.offers(Capabilities::FAST_REGISTER) {
        same("key of the new STag", stag.key(), 0x77)?;
    }
    forbidden(&near, Remote { stag, to: new.addr() }, 16)
}

fn anew_owner(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let (old, new) = (end.memory_with(16, ALL, Addressing::Absolute)?, Region::new(32)?);
    let Some(stag) = again(rig, &old, end.pd, &new, ALL)? else { return Ok(()) };
    same("uses of the old memory", old.region.uses(), 1)?;
    rig.rnic.dealloc_stag(stag)?;
    same("uses of the new memory, deregistered", new.uses(), 1)
}

fn anew_refused(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let (old, new) = (end.memory_with(16, ALL, Addressing::Absolute)?, Region::new(32)?);
    match again(rig, &old, end.pd, &new, Access::REMOTE_WRITE) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err("remote write without local write was granted".into()),
        Err(_) => {
            refused("the region", rig.rnic.dealloc_stag(old.stag), VpStatus::InvalidStag)?;
            same("uses of its memory", old.region.uses(), 1)
        }
    }
}

fn window<'a>(rig: &'a Rig) -> Result<(End<'a>, End<'a>, Memory, MwId), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory(64)?;
    let kind = match rig.offers(Capabilities::NARROW_MW) {
        true => MwKind::Narrow,
        false => MwKind::Wide,
    };
    let window = rig.rnic.alloc_mw(far.pd, kind)?;
    Ok((near, far, memory, window))
}

fn anew_window(rig: &Rig) -> Result<(), Fail> {
    let (near, far, memory, window) = window(rig)?;
    let remote = bind(&far, window, &memory, 3)?;
    let new = Region::new(32)?;
    match again(rig, &memory, far.pd, &new, ALL) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => return Err("a region with a window was registered anew".into()),
        Err(_) => {}
    }
    write(&near, &far, remote, 16)?;
    refused("deregister", rig.rnic.dealloc_stag(memory.stag), VpStatus::StagInUse)
}

fn windows_counted(rig: &Rig) -> Result<(), Fail> {
    let (_near, far, memory, window) = window(rig)?;
    // If the provider does not count the uses, it cannot be asked.
    let Ok(info) = rig.rnic.query_mr(memory.stag) else { return Ok(()) };
    same("windows, before", info.bound_windows, 0)?;
    bind(&far, window, &memory, 3)?;
    same("windows", rig.rnic.query_mr(memory.stag)?.bound_windows, 1)?;
    rig.rnic.dealloc_mw(window)?;
    same("windows, after", rig.rnic.query_mr(memory.stag)?.bound_windows, 0)
}

fn window_rights(rig: &Rig) -> Result<(), Fail> {
    let (near, far, memory, window) = window(rig)?;
    let remote = bind(&far, window, &memory, 3)?;
    let sink = near.memory(16)?;
    breaks(&near, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()])
        .map_err(|Fail(why)| Fail(format!("a read through a window for writes: {why}")))
}

fn window_bounds(rig: &Rig) -> Result<(), Fail> {
    for (at, len) in [(-1_i64, 16), (15, 2), (0, 17)] {
        let rig = &rig.another()?;
        let (near, far, memory, window) = window(rig)?;
        let remote = bind(&far, window, &memory, 3)?;
        let to = remote.to.wrapping_add_signed(at);
        forbidden(&near, Remote { to, ..remote }, len).map_err(|Fail(why)| {
            Fail(format!("{len} octets from {at} of a window of 16: {why}"))
        })?;
    }
    Ok(())
}

fn window_says(rig: &Rig) -> Result<(), Fail> {
    let (_near, far, memory, window) = window(rig)?;
    let info = rig.rnic.query_mw(window)?;
    same("PD, STag", (info.pd, info.stag), (far.pd, None))?;
    let remote = bind(&far, window, &memory, 3)?;
    let info = rig.rnic.query_mw(window)?;
    same("STag, region", (info.stag, info.region), (Some(remote.stag), Some(memory.stag)))?;
    same("offset, octets", (info.to, info.len), (remote.to, 16))
}
