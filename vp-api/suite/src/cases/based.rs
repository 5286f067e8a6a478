//! Cases about regions whose tagged offsets begin at a base chosen by the host: where the base applies for peers,
//! for scatter/gather elements and for windows, and bases for which the offsets exceed 64 bits.

use vp_api::*;

use super::memory::breaks;
use super::windows::bind;
use crate::fail::{refused, same};
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

/// A base that is not an address of any process, and is aligned for atomics.
const BASE: u64 = 0xba5e << 48;

const ALL: Access = Access::LOCAL.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

pub(crate) const CASES: &[Case] = &[
    Case::new("mr: addressing that is not offered is refused", not_offered).keeps("RI-22"),
    Case::new("based: peers find its octets from the base on", from_base)
        .keeps("RI-223")
        .with(Capabilities::BASED),
    Case::new("based: begins and ends where it says", bounds)
        .keeps("RI-223")
        .with(Capabilities::BASED),
    Case::new("based: base 0 is no address", from_zero).keeps("RI-223").with(Capabilities::BASED),
    Case::new("based: a shared region has a base of its own", shared)
        .keeps("RI-223")
        .with(Capabilities::BASED.union(Capabilities::SHARED_MR)),
    Case::new("based: registered anew, the base is the new one", anew)
        .keeps("RI-223")
        .with(Capabilities::BASED),
    Case::new("based: so do elements of sends and receives", elements)
        .keeps("RI-224")
        .with(Capabilities::BASED),
    Case::new("based: a window is bound by the region's offsets", window)
        .keeps("RI-225")
        .with(Capabilities::BASED.union(Capabilities::MW)),
    Case::new("based: offsets of more than 64 bits are refused", beyond)
        .keeps("RI-226")
        .with(Capabilities::BASED),
];

/// Writes `octets` octets, and waits until they have arrived.
fn write(near: &End<'_>, far: &End<'_>, remote: Remote, octets: usize) -> Result<(), Fail> {
    let source = near.pattern(octets, 0x21)?;
    far.recv(9, &[])?;
    near.post(1, SendOp::Write { remote }, &[source.all()])?;
    near.post(2, SEND, &[])?;
    near.done(1, WcOpcode::Write)?;
    near.done(2, WcOpcode::Send)?;
    far.done(9, WcOpcode::Recv).map(|_| ())
}

fn based(end: &End<'_>, len: usize) -> Result<Memory, Fail> {
    end.memory_with(len, ALL | Access::BIND, Addressing::Based(BASE))
}

fn from_base(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = based(&far, 64)?;
    let info = rig.rnic.query_mr(memory.stag)?;
    same("addressing", info.addressing, Addressing::Based(BASE))?;
    same("address", info.addr, memory.region.addr())?;
    let remote = Remote { stag: memory.stag, to: BASE + 7 };
    write(&near, &far, remote, 11)?;
    memory.holds("before", 0, &[0; 7])?;
    memory.holds("written", 7, &pattern(11, 0x21))?;
    memory.holds("behind", 18, &[0; 46])?;
    let sink = near.memory(11)?;
    near.post(3, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()])?;
    near.done(3, WcOpcode::Read)?;
    sink.holds("read", 0, &pattern(11, 0x21))
}

fn bounds(rig: &Rig) -> Result<(), Fail> {
    for (at, len) in [(-1_i64, 16), (63, 2), (64, 1)] {
        let rig = &rig.another()?;
        let (near, far) = rig.pair()?;
        let (memory, source) = (based(&far, 64)?, near.pattern(len, 0x21)?);
        let remote = Remote { stag: memory.stag, to: BASE.wrapping_add_signed(at) };
        breaks(&near, SendOp::Write { remote }, &[source.all()]).map_err(|Fail(why)| {
            Fail(format!("{len} octets from {at} of a region of 64: {why}"))
        })?;
        memory.holds("written beside", 0, &[0; 64])?;
    }
    Ok(())
}

fn from_zero(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = far.memory_with(32, ALL, Addressing::Based(0))?;
    same("addressing", rig.rnic.query_mr(memory.stag)?.addressing, Addressing::Based(0))?;
    write(&near, &far, Remote { stag: memory.stag, to: 8 }, 16)?;
    memory.holds("written", 8, &pattern(16, 0x21))
}

fn shared(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let first = based(&far, 32)?;
    let other = Addressing::Based(BASE + 4096);
    let stag = rig.rnic.register_shared_mr(first.stag, far.pd, other, ALL, 9)?;
    write(&near, &far, Remote { stag, to: BASE + 4096 + 8 }, 16)?;
    first.holds("written", 8, &pattern(16, 0x21))
}

fn anew(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let old = far.memory_with(32, ALL, Addressing::Absolute)?;
    let (pd, range, addressing) = (far.pd, old.region.mem_range(), Addressing::Based(BASE));
    let init = MrInit { pd, range, addressing, access: ALL, key: 0x77, pin: false };
    let stag = match rig.rnic.reregister_mr(old.stag, &init) {
        Err(why) if why.status == VpStatus::Unsupported => return Ok(()),
        other => other?,
    };
    same("addressing", rig.rnic.query_mr(stag)?.addressing, addressing)?;
    write(&near, &far, Remote { stag, to: BASE + 8 }, 16)?;
    old.holds("written", 8, &pattern(16, 0x21))
}

fn elements(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (based(&near, 64)?, based(&far, 64)?);
    source.region.write_at(0, &pattern(64, 0x21))?;
    far.recv(1, &[sink.sge(40, 8), sink.sge(4, 12)])?;
    near.post(2, SEND, &[source.sge(30, 20)])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    let sent = &pattern(64, 0x21)[30..50];
    sink.holds("first element", 40, &sent[..8])?;
    sink.holds("second element", 4, &sent[8..])?;
    sink.holds("before", 0, &[0; 4])
}

fn window(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let memory = based(&far, 64)?;
    let kind = match rig.offers(Capabilities::NARROW_MW) {
        true => MwKind::Narrow,
        false => MwKind::Wide,
    };
    let window = rig.rnic.alloc_mw(far.pd, kind)?;
    let remote = bind(&far, window, &memory, 3)?;
    same("offset of the window", remote.to, BASE + 8)?;
    write(&near, &far, remote, 16)?;
    memory.holds("through the window", 8, &pattern(16, 0x21))?;
    memory.holds("behind the window", 24, &[0; 40])?;
    let source = near.pattern(16, 0x77)?;
    let outside = Remote { to: remote.to + 1, ..remote };
    breaks(&near, SendOp::Write { remote: outside }, &[source.all()])
}

fn beyond(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let last = based(&end, 16)?;
    for base in [u64::MAX - 14, u64::MAX] {
        let (pd, range) = (end.pd, last.region.mem_range());
        let addressing = Addressing::Based(base);
        let init = MrInit { pd, range, addressing, access: ALL, key: 1, pin: false };
        let made = rig.rnic.register_mr(&init).map(|_| ());
        refused(&format!("16 octets from base {base:#x}"), made, VpStatus::InvalidAddress)?;
    }
    end.memory_with(16, ALL, Addressing::Based(u64::MAX - 16)).map(|_| ())
}

fn not_offered(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    for (capability, addressing) in [
        (Capabilities::ZERO_BASED, Addressing::ZeroBased),
        (Capabilities::BASED, Addressing::Based(0x1000)),
    ] {
        if rig.offers(capability) {
            continue;
        }
        let range = kal_shim::Region::new(64)?.mem_range();
        let access = Access::LOCAL;
        let init = MrInit { pd: end.pd, range, addressing, access, key: 0, pin: false };
        match rig.rnic.register_mr(&init).map_err(|why| why.status) {
            Err(VpStatus::Unsupported | VpStatus::InvalidModifier) => {}
            other => return Err(format!("a region with {addressing:?}: {other:?}").into()),
        }
    }
    Ok(())
}
