//! Cases about verbs objects: limits, lifetimes, stale ids.

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("limits: none is 0 that must not be", limits).keeps("RI-31"),
    Case::new("ports: the open RNIC has some", ports).keeps("RI-28"),
    Case::new("model: a connection manager is there if it was said", manager),
    Case::new("life: what is in use cannot be destroyed", in_use).keeps("RI-10"),
    Case::new("life: ids of destroyed objects are refused", stale).keeps("RI-05 RI-16"),
    Case::new("life: they stay refused when others were made", stale_behind_others)
        .keeps("RI-05 RI-04"),
    Case::new("mr: an STag with another key is none", other_key).keeps("RI-45"),
    Case::new("life: a destroyed QP refuses posts", destroyed_qp).keeps("RI-06"),
    Case::new("life: many objects come and go", churn).keeps("RI-02 RI-03 RI-195 RI-196"),
    Case::new("lacks: what is not offered is unsupported", lacks).keeps("RI-22"),
    Case::new("vendor calls: of an unknown name", vendor_calls).keeps("RI-160"),
    Case::new("qp: begins in Idle with what was asked for", idle),
    Case::new("qp: impossible wishes are refused", impossible),
    Case::new("pd: one that is not there is refused", no_pd).keeps("RI-188"),
    Case::new("open: a setting that is unknown is refused", unknown_setting).keeps("RI-201"),
    Case::new("vendor calls: are the same for as long as the RNIC is open", vendor_calls_stay)
        .keeps("RI-197"),
];

fn limits(rig: &Rig) -> Result<(), Fail> {
    let a = &rig.attrs;
    let least = [
        ("max_qp", a.max_qp, 2),
        ("max_wr_per_qp", a.max_wr_per_qp, 8),
        ("max_sge_send", a.max_sge_send, 1),
        ("max_sge_recv", a.max_sge_recv, 1),
        ("max_sge_write", a.max_sge_write, 1),
        ("max_sge_read, with an ORD", a.max_sge_read.max(u32::from(a.max_ord == 0)), 1),
        ("max_cq", a.max_cq, 2),
        ("max_cqe", a.max_cqe, 16),
        ("max_pd", a.max_pd, 2),
        ("max_mr", a.max_mr, 4),
        ("max_message", a.max_message, 1),
    ];
    for (name, value, least) in least {
        if value < least {
            return Err(format!("{name} is {value}; at least {least} is needed").into());
        }
    }
    let offers = |what, limit: u32, name: &str| match rig.offers(what) && limit == 0 {
        true => Err(Fail(format!("{what:?} is offered and {name} is 0"))),
        false => Ok(()),
    };
    offers(Capabilities::SRQ, a.max_srq.min(a.max_wr_per_srq), "max_srq or max_wr_per_srq")?;
    offers(Capabilities::MW, a.max_mw, "max_mw")
}

fn ports(rig: &Rig) -> Result<(), Fail> {
    let ports = rig.rnic.ports()?;
    if ports.is_empty() || ports.iter().any(|p| p.interface.is_empty()) {
        return Err("there is no port, or one without a name".into());
    }
    Ok(())
}

fn vendor_calls(rig: &Rig) -> Result<(), Fail> {
    match rig.rnic.vendor_calls("warpline-suite.of-nobody/0") {
        Err(why) if why.status == VpStatus::Unsupported && why.detail.is_empty() => {
            Err("the refusal does not say which names there are".into())
        }
        other => refused("vendor calls", other, VpStatus::Unsupported),
    }
}

fn manager(rig: &Rig) -> Result<(), Fail> {
    let native = rig.rnic.native_cm().is_some();
    let declared = rig.attrs.connection_model == ConnectionModel::Native;
    same("a connection manager is there", native, declared)
}

fn in_use(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    refused("destroy CQ", rig.rnic.destroy_cq(end.cq.id()), VpStatus::InUse)?;
    refused("deallocate PD", rig.rnic.dealloc_pd(end.pd), VpStatus::InUse)?;
    rig.rnic.destroy_qp(end.qp.id())?;
    rig.rnic.destroy_cq(end.cq.id())?;
    let memory = end.memory(64)?;
    refused("deallocate PD with a region", rig.rnic.dealloc_pd(end.pd), VpStatus::InUse)?;
    rig.rnic.dealloc_stag(memory.stag)?;
    Ok(rig.rnic.dealloc_pd(end.pd)?)
}

/// Number of objects made after one that is destroyed: tables of that size use its place again.
const OTHERS: u32 = 600;

fn stale_behind_others(rig: &Rig) -> Result<(), Fail> {
    let gone = rig.end()?;
    rig.rnic.destroy_qp(gone.qp.id())?;
    rig.rnic.destroy_cq(gone.cq.id())?;
    rig.rnic.dealloc_pd(gone.pd)?;
    for _ in 0..OTHERS {
        let pd = rig.rnic.alloc_pd()?;
        let cq = rig.rnic.create_cq(&CqInit { depth: 16, handler: None })?;
        let mut init = rig.qp_init(pd, cq.id());
        (init.send_depth, init.recv_depth) = (4, 4);
        let qp = rig.rnic.create_qp(&init)?;
        refused(
            "destroy a QP that is gone",
            rig.rnic.destroy_qp(gone.qp.id()),
            VpStatus::InvalidHandle,
        )?;
        refused(
            "destroy a CQ that is gone",
            rig.rnic.destroy_cq(gone.cq.id()),
            VpStatus::InvalidHandle,
        )?;
        rig.rnic.destroy_qp(qp.id())?;
        rig.rnic.destroy_cq(cq.id())?;
        rig.rnic.dealloc_pd(pd)?;
    }
    Ok(())
}

fn other_key(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let memory = end.memory(64)?;
    let other = Stag::new(memory.stag.index(), memory.stag.key() ^ 1);
    refused("deregister it", rig.rnic.dealloc_stag(other), VpStatus::InvalidStag)?;
    Ok(rig.rnic.dealloc_stag(memory.stag)?)
}

fn stale(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    if rig.offers(Capabilities::NARROW_MW) {
        let window = rig.rnic.alloc_mw(end.pd, MwKind::Narrow)?;
        rig.rnic.dealloc_mw(window)?;
        refused("deallocate a window twice", rig.rnic.dealloc_mw(window), VpStatus::InvalidHandle)?;
    }
    let memory = end.memory(64)?;
    rig.rnic.dealloc_stag(memory.stag)?;
    let again = rig.rnic.dealloc_stag(memory.stag);
    refused("deallocate an STag twice", again, VpStatus::InvalidStag)?;
    rig.rnic.destroy_qp(end.qp.id())?;
    let again = rig.rnic.destroy_qp(end.qp.id());
    refused("destroy a QP twice", again, VpStatus::InvalidHandle)?;
    rig.rnic.destroy_cq(end.cq.id())?;
    let again = rig.rnic.destroy_cq(end.cq.id());
    refused("destroy a CQ twice", again, VpStatus::InvalidHandle)?;
    rig.rnic.dealloc_pd(end.pd)?;
    let again = rig.rnic.dealloc_pd(end.pd).map_err(|e| e.status);
    match again {
        Err(VpStatus::InvalidHandle | VpStatus::InvalidPd) => Ok(()),
        other => Err(format!("deallocate a PD twice: {other:?}").into()),
    }
}

fn destroyed_qp(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    rig.rnic.destroy_qp(end.qp.id())?;
    let wr = SendWr { wr_id: 1, op: SEND, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
    refused("post to it", end.qp.post_send(&[wr]), VpStatus::InvalidHandle)?;
    let wr = RecvWr { wr_id: 1, sgl: &[] };
    refused("post a receive to it", end.qp.post_recv(&[wr]), VpStatus::InvalidHandle)?;
    refused("query it", end.qp.query(), VpStatus::InvalidHandle)
}

fn churn(rig: &Rig) -> Result<(), Fail> {
    for _ in 0..64 {
        let end = rig.end()?;
        let memory = end.memory(4096)?;
        rig.rnic.dealloc_stag(memory.stag)?;
        rig.rnic.destroy_qp(end.qp.id())?;
        rig.rnic.destroy_cq(end.cq.id())?;
        rig.rnic.dealloc_pd(end.pd)?;
    }
    Ok(())
}

fn lacks(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let memory = end.memory(64)?;
    let (rnic, pd, local) = (&rig.rnic, end.pd, Access::LOCAL);
    let unsupported = |offer: Capabilities, what: &str, made: VpResult<()>| {
        if rig.offers(offer) { Ok(()) } else { refused(what, made, VpStatus::Unsupported) }
    };
    let srq = SrqInit { pd, depth: 1, max_sge: 1, limit: 0 };
    unsupported(Capabilities::SRQ, "create an SRQ", rnic.create_srq(&srq).map(|_| ()))?;
    let stag = rnic.alloc_stag(pd, true).map(|_| ());
    unsupported(Capabilities::FAST_REGISTER, "allocate an STag", stag)?;
    let window = rnic.alloc_mw(pd, MwKind::Narrow).map(|_| ());
    unsupported(Capabilities::NARROW_MW, "allocate a narrow window", window)?;
    let (absolute, key) = (Addressing::Absolute, 1);
    let shared = rnic.register_shared_mr(memory.stag, pd, absolute, local, key).map(|_| ());
    unsupported(Capabilities::SHARED_MR, "share a region", shared)
}

fn idle(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let info = end.qp.query()?;
    same("state", info.state, QpState::Idle)?;
    same("id", info.id, end.qp.id())?;
    let wish = rig.qp_init(end.pd, end.cq.id());
    if info.send_depth < wish.send_depth || info.recv_depth < wish.recv_depth {
        return Err(format!("depths {}, {} are too small", info.send_depth, info.recv_depth).into());
    }
    Ok(())
}

fn impossible(rig: &Rig) -> Result<(), Fail> {
    let (pd, cq) = (rig.rnic.alloc_pd()?, rig.rnic.create_cq(&CqInit { depth: 8, handler: None })?);
    let good = rig.qp_init(pd, cq.id());
    let wishes = [
        ("a PD that is not there", QpInit { pd: PdId(u32::MAX), ..good.clone() }),
        ("a CQ that is not there", QpInit { send_cq: CqId(u32::MAX), ..good.clone() }),
        ("a queue of 2^32 - 1", QpInit { send_depth: u32::MAX, ..good.clone() }),
        ("2^32 - 1 elements", QpInit { max_send_sge: u32::MAX, ..good }),
    ];
    for (what, wish) in wishes {
        if rig.rnic.create_qp(&wish).is_ok() {
            return Err(format!("a QP with {what} was made").into());
        }
    }
    Ok(())
}

fn no_pd(rig: &Rig) -> Result<(), Fail> {
    let region = kal_shim::Region::new(64)?;
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    let pd = PdId(u32::MAX);
    let init = MrInit { pd, range, addressing, access: Access::LOCAL, key: 0, pin: false };
    refused("a region in it", rig.rnic.register_mr(&init), VpStatus::InvalidPd)?;
    let cq = rig.rnic.create_cq(&CqInit { depth: 4, handler: None })?;
    let qp = rig.rnic.create_qp(&rig.qp_init(pd, cq.id())).map(drop);
    refused("a QP in it", qp, VpStatus::InvalidPd)
}

fn unknown_setting(rig: &Rig) -> Result<(), Fail> {
    let opened = rig.open_with(&[("warpline-suite.no-such-key", "1")]);
    refused("open with it", opened.map(drop), VpStatus::InvalidModifier)
}

/// The text of a refusal that looks like the name of a table: a word with a slash and a version after it.
fn named(refusal: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let versioned = |word: &&str| {
        let (name, version) = word.rsplit_once('/').unwrap_or_default();
        !name.is_empty() && !version.is_empty() && version.bytes().all(|b| b.is_ascii_digit())
    };
    let mine = |word: &&str| !word.starts_with("warpline-suite");
    refusal.split(|c| !is_part(c)).filter(versioned).find(mine)
}

fn vendor_calls_stay(rig: &Rig) -> Result<(), Fail> {
    let refusal = rig.rnic.vendor_calls("warpline-suite.of-nobody/0").err();
    let refusal = refusal.map(|why| why.detail).unwrap_or_default();
    let Some(name) = named(&refusal) else { return Ok(()) };
    let first = rig.rnic.vendor_calls(name)?;
    let (near, far) = rig.pair()?;
    same("calls, with a pair connected", rig.rnic.vendor_calls(name)?, first)?;
    for end in [near, far] {
        rig.rnic.destroy_qp(end.qp.id())?;
    }
    same("calls, with the pair gone", rig.rnic.vendor_calls(name)?, first)
}
