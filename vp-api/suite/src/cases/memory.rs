//! Cases about memory regions: rights, bounds, lifetimes.

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("mr: rights that do not go together are refused", rights)
        .keeps("RI-18 RI-43 RI-149 RI-152"),
    Case::new("mr: the key is the consumer's", key).keeps("RI-47"),
    Case::new("mr: a write without the right is refused", forbidden_write).keeps("RI-54"),
    Case::new("mr: a read without the right is refused", forbidden_read).keeps("RI-57"),
    Case::new("mr: a write outside of the region is refused", outside),
    Case::new("mr: nothing before a region or behind it is reached", far_outside)
        .keeps("RI-54 RI-57"),
    Case::new("mr: a write to what was deregistered is refused", gone).keeps("RI-124"),
    Case::new("mr: a local STag that is none breaks the request", wrong_local),
    Case::new("mr: another PD's region breaks the request", wrong_pd),
    Case::new("mr: zero-based addresses", zero_based).keeps("RI-44").with(Capabilities::ZERO_BASED),
    Case::new("mr: two STags for the same memory", shared)
        .keeps("RI-48")
        .with(Capabilities::SHARED_MR),
    Case::new("mr: registered through the queue", fast)
        .keeps("RI-61")
        .with(Capabilities::FAST_REGISTER),
    Case::new("mr: invalidated locally", invalidate_local)
        .keeps("RI-47 RI-62")
        .with(INVALIDATE_REGIONS),
    Case::new("mr: invalidated by the peer's Send", invalidate_remote)
        .keeps("RI-53 RI-76")
        .with(INVALIDATE_REGIONS),
];

/// If the queue cannot make a region valid again, it is not invalidated through the queue, either.
const INVALIDATE_REGIONS: Capabilities =
    Capabilities::INVALIDATE.union(Capabilities::FAST_REGISTER);

fn init(end: &End<'_>, access: Access, key: u8) -> Result<MrInit, Fail> {
    let range = kal_shim::Region::new(64)?.mem_range();
    let addressing = Addressing::Absolute;
    Ok(MrInit { pd: end.pd, range, addressing, access, key, pin: false })
}

fn rights(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let wrong = [
        Access::REMOTE_WRITE | Access::LOCAL_READ,
        Access::REMOTE_READ | Access::LOCAL_WRITE,
        Access::empty(),
    ];
    for access in wrong {
        let registered = rig.rnic.register_mr(&init(&end, access, 0)?);
        refused(&format!("{access:?}"), registered, VpStatus::InvalidAccess)?;
    }
    Ok(())
}

fn key(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    for key in [0, 0x5a, 0xff] {
        let stag = rig.rnic.register_mr(&init(&end, Access::LOCAL, key)?)?;
        // If the hardware chooses the key, the region reports it.
        if let Ok(info) = rig.rnic.query_mr(stag) {
            same("STag of the region", info.stag, stag)?;
            same("octets of the region", info.len, 64)?;
        }
        rig.rnic.dealloc_stag(stag)?;
    }
    Ok(())
}

/// Posts a request that must break the stream and leave memory unchanged. A write may complete before its refusal
/// is returned; then the receive that was posted before is flushed.
pub(super) fn breaks(near: &End<'_>, op: SendOp, sgl: &[Sge]) -> Result<(), Fail> {
    near.recv(0, &[])?;
    near.post(1, op, sgl)?;
    loop {
        let wc = near.completion()?;
        if wc.status != WcStatus::Success {
            break;
        }
        same("request that succeeded", wc.opcode, WcOpcode::Write)?;
    }
    match near.qp.query()?.state {
        QpState::Rts => Err("the QP is still in RTS".into()),
        _ => Ok(()),
    }
}

fn forbidden_write(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let access = Access::LOCAL | Access::REMOTE_READ;
    let (source, sink) = (near.pattern(64, 1)?, far.memory_with(64, access, Addressing::Absolute)?);
    breaks(&near, SendOp::Write { remote: sink.remote(0) }, &[source.all()])?;
    sink.holds("forbidden", 0, &[0; 64])
}

fn forbidden_read(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let access = Access::LOCAL | Access::REMOTE_WRITE;
    let (source, sink) = (far.memory_with(64, access, Addressing::Absolute)?, near.pattern(64, 1)?);
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    breaks(&near, op, &[sink.all()])?;
    sink.holds("untouched", 0, &pattern(64, 1))
}

fn outside(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(64, 1)?, far.memory(64)?);
    breaks(&near, SendOp::Write { remote: sink.remote(1) }, &[source.all()])?;
    sink.holds("at the bound", 63, &[0])
}

/// Offsets at which nothing of a region of 64 octets is, as far as 8 octets are wanted.
const OUTSIDE: [u64; 4] = [u64::MAX - 7, 57, 64, 64 + 40];

fn far_outside(rig: &Rig) -> Result<(), Fail> {
    for (n, at) in OUTSIDE.into_iter().enumerate() {
        let (near, far) = rig.pair()?;
        let (own, target) = (near.pattern(8, 1)?, far.memory(64)?);
        let Remote { stag, to } = target.remote(0);
        let remote = Remote { stag, to: to.wrapping_add(at) };
        let op = match n % 2 {
            0 => SendOp::Read { remote, invalidate_sink: false },
            _ => SendOp::Write { remote },
        };
        breaks(&near, op, &[own.all()])?;
        own.holds("what was not read", 0, &pattern(8, 1))?;
        target.holds("a region beside whose octets was written", 0, &[0; 64])?;
    }
    Ok(())
}

fn gone(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(64, 1)?, far.memory(64)?);
    rig.rnic.dealloc_stag(sink.stag)?;
    breaks(&near, SendOp::Write { remote: sink.remote(0) }, &[source.all()])?;
    sink.holds("deregistered", 0, &[0; 64])
}

fn fails(end: &End<'_>, sge: Sge) -> Result<(), Fail> {
    match end.post(1, SEND, &[sge]) {
        Err(_) => Ok(()),
        Ok(()) => match end.completion()?.status {
            WcStatus::Success => Err("it succeeded".into()),
            _ => Ok(()),
        },
    }
}

fn wrong_local(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[far.memory(64)?.all()])?;
    fails(&near, Sge { stag: Stag(0x00ab_cd00), len: 8, to: 0 })
}

fn wrong_pd(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let sink = far.memory(64)?;
    far.recv(1, &[sink.all()])?;
    // The regions of `far` are in another PD.
    fails(&near, sink.all())
}

fn zero_based(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let all = Access::LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let sink = far.memory_with(100, all, Addressing::ZeroBased)?;
    let source = near.pattern(50, 2)?;
    let remote = Remote { stag: sink.stag, to: 50 };
    near.post(1, SendOp::Write { remote }, &[source.all()])?;
    near.done(1, WcOpcode::Write)?;
    far.recv(2, &[])?;
    near.post(3, SEND, &[])?;
    far.done(2, WcOpcode::Recv)?;
    sink.holds("written", 50, &pattern(50, 2))
}

fn shared(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(64, 3)?, far.memory(64)?);
    let (absolute, all) = (Addressing::Absolute, Access::LOCAL | Access::REMOTE_WRITE);
    let second = rig.rnic.register_shared_mr(sink.stag, far.pd, absolute, all, 7)?;
    let remote = Remote { stag: second, ..sink.remote(0) };
    near.post(1, SendOp::Write { remote }, &[source.all()])?;
    near.done(1, WcOpcode::Write)?;
    far.recv(2, &[])?;
    near.post(3, SEND, &[])?;
    far.done(2, WcOpcode::Recv)?;
    sink.holds("written", 0, &pattern(64, 3))
}

fn fast(rig: &Rig) -> Result<(), Fail> {
    let near = rig.end()?;
    let far = rig.end_with(None, |init| init.privileged = true)?;
    rig.connect(&near, &far)?;
    let region = kal_shim::Region::new(64)?;
    let stag = rig.rnic.alloc_stag(far.pd, true)?;
    let stag = Stag::new(stag.index(), 0x77);
    let fast = FastRegister {
        stag,
        range: region.mem_range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL | Access::REMOTE_WRITE,
    };
    far.post(1, SendOp::FastRegister(fast.into()), &[])?;
    far.done(1, WcOpcode::FastRegister)?;
    let source = near.pattern(64, 6)?;
    let op = SendOp::Write { remote: Remote { stag, to: region.addr() } };
    near.post(2, op, &[source.all()])?;
    near.done(2, WcOpcode::Write)?;
    far.recv(3, &[])?;
    near.post(4, SEND, &[])?;
    far.done(3, WcOpcode::Recv)?;
    let mut out = vec![0; 64];
    region.read_at(0, &mut out)?;
    same("written", out, pattern(64, 6))
}

fn invalidate_local(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(64, 1)?, far.memory(64)?);
    far.post(1, SendOp::InvalidateLocal { stag: sink.stag }, &[])?;
    far.done(1, WcOpcode::InvalidateLocal)?;
    same("valid", rig.rnic.query_mr(sink.stag)?.valid, false)?;
    breaks(&near, SendOp::Write { remote: sink.remote(0) }, &[source.all()])?;
    sink.holds("invalidated", 0, &[0; 64])
}

fn invalidate_remote(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let sink = far.memory(64)?;
    far.recv(1, &[])?;
    near.post(2, SendOp::Send { solicited: false, invalidate: Some(sink.stag) }, &[])?;
    near.done(2, WcOpcode::Send)?;
    let wc = far.done(1, WcOpcode::Recv)?;
    same("STag that was invalidated", wc.invalidated, Some(sink.stag))?;
    same("valid", rig.rnic.query_mr(sink.stag)?.valid, false)
}
