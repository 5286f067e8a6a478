//! Cases about depths and limits of queues: the agreed values hold, and the reported maxima work.

use kal_shim::Region;
use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{Rig, SEND, pattern};
use crate::ud::Post;
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("limits: as many QPs as it says", most_qps).keeps("RI-31"),
    Case::new("limits: as many other objects as it says", most_objects).keeps("RI-31"),
    Case::new("limits: the largest QP", largest_qp).keeps("RI-31"),
    Case::new("limits: the largest CQ", largest_cq).keeps("RI-31"),
    Case::new("limits: the largest SRQ", largest_srq).keeps("RI-31").with(Capabilities::SRQ),
    Case::new("sq: holds as many as agreed, and no more", sends).keeps("RI-13"),
    Case::new("cq: as deep as its queues, it takes all", sum).keeps("RI-187"),
    Case::new("limits: more reads at once than there can be", too_many_reads).keeps("RI-189"),
    Case::new("limits: a queue of no depth is refused", no_depth).keeps("RI-242"),
    Case::new("srq: one of no depth is refused", srq_no_depth)
        .keeps("RI-242")
        .with(Capabilities::SRQ),
    Case::new("datagram: a queue of no depth is refused", ud_no_depth)
        .keeps("RI-242")
        .with(Capabilities::UD),
    Case::new("rq: holds as many as agreed, and no more", receives).keeps("RI-13"),
    Case::new("sge: no more than agreed", elements).keeps("RI-14"),
    Case::new("srq: holds as many as agreed, and no more", srq_depth)
        .keeps("RI-145 RI-95")
        .with(Capabilities::SRQ),
    Case::new("srq: no more elements than agreed", srq_elements)
        .keeps("RI-145")
        .with(Capabilities::SRQ),
    Case::new("srq: the limit that it is made with", srq_first_limit)
        .keeps("RI-94")
        .with(Capabilities::SRQ),
    Case::new("srq: a limit is reported once, and can be set again", srq_limit_again)
        .keeps("RI-94 RI-39")
        .with(Capabilities::SRQ),
    Case::new("srq: a limit of 0 is none", srq_disarmed).keeps("RI-94").with(Capabilities::SRQ),
    Case::new("srq: the depth changes, the limit stays", srq_which)
        .keeps("RI-96")
        .with(Capabilities::SRQ.union(Capabilities::SRQ_RESIZE)),
    Case::new("srq: counts what is posted", srq_counts).keeps("RI-97").with(Capabilities::SRQ),
    Case::new("qp: counts what is outstanding", outstanding).keeps("RI-112"),
    Case::new("mr: of many at once each is its own", many_regions).keeps("RI-54 RI-124"),
];

/// More objects than this are not tried.
const PLENTY: u32 = 300;
/// Regions at once.
const MANY: u32 = 3000;

fn most_qps(rig: &Rig) -> Result<(), Fail> {
    let (pd, cq) =
        (rig.rnic.alloc_pd()?, rig.rnic.create_cq(&CqInit { depth: 16, handler: None })?);
    let mut init = rig.qp_init(pd, cq.id());
    (init.send_depth, init.recv_depth) = (init.send_depth.min(4), init.recv_depth.min(4));
    let most = rig.attrs.max_qp.min(PLENTY);
    let mut made = Vec::new();
    for n in 0..most {
        let qp = rig.rnic.create_qp(&init);
        made.push(qp.map_err(|why| {
            let declared = rig.attrs.max_qp;
            Fail(format!("QP {n} of {declared} that max_qp says: {why}; say what there is"))
        })?);
    }
    made.iter().try_for_each(|qp| Ok(rig.rnic.destroy_qp(qp.id())?))
}

/// Makes as many objects as `declared` says, or many; returns them.
fn as_many<T>(
    what: &str,
    declared: u32,
    mut make: impl FnMut() -> VpResult<T>,
) -> Result<Vec<T>, Fail> {
    let one = |n| {
        let refused =
            |why| format!("number {n} of {declared} that {what} says: {why}; say what there is");
        make().map_err(|why| Fail(refused(why)))
    };
    (0..declared.min(PLENTY)).map(one).collect()
}

fn most_objects(rig: &Rig) -> Result<(), Fail> {
    let (rnic, a) = (&rig.rnic, &rig.attrs);
    // Also what the device needs itself.
    let pds = as_many("max_pd", a.max_pd, || rnic.alloc_pd())?;
    let pd = *pds.first().ok_or("max_pd is 0")?;
    let init = CqInit { depth: 1, handler: None };
    let cqs = as_many("max_cq", a.max_cq, || rnic.create_cq(&init))?;
    cqs.iter().try_for_each(|cq| rnic.destroy_cq(cq.id()))?;
    if a.capabilities.contains(Capabilities::SRQ) {
        let init = SrqInit { pd, depth: 1, max_sge: 1, limit: 0 };
        let srqs = as_many("max_srq", a.max_srq, || rnic.create_srq(&init))?;
        srqs.iter().try_for_each(|srq| rnic.destroy_srq(srq.id()))?;
    }
    if a.capabilities.contains(Capabilities::MW) {
        let kind = super::windows::kind(rig);
        let windows = as_many("max_mw", a.max_mw, || rnic.alloc_mw(pd, kind))?;
        windows.iter().try_for_each(|window| rnic.dealloc_mw(*window))?;
    }
    let region = Region::new(4096)?;
    let init = MrInit {
        pd,
        range: region.mem_range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL,
        key: 1,
        pin: false,
    };
    let regions = as_many("max_mr", a.max_mr, || rnic.register_mr(&init))?;
    regions.iter().try_for_each(|stag| rnic.dealloc_stag(*stag))?;
    pds.iter().try_for_each(|pd| rnic.dealloc_pd(*pd))?;
    Ok(())
}

fn many_regions(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    // The rest is for what the test and the device need themselves.
    let most = rig.attrs.max_mr.saturating_sub(16).min(MANY);
    let regions: Vec<_> = (0..most).map(|_| far.memory(8)).collect::<Result<_, Fail>>()?;
    let source = near.pattern(8, 0x55)?;
    for sink in regions.iter().step_by((regions.len() / 8).max(1)) {
        near.post(1, SendOp::Write { remote: sink.remote(0) }, &[source.all()])?;
        near.done(1, WcOpcode::Write)?;
        far.recv(2, &[])?;
        near.post(3, SEND, &[])?;
        near.done(3, WcOpcode::Send)?;
        far.done(2, WcOpcode::Recv)?;
        sink.holds("written to one of many", 0, &pattern(8, 0x55))?;
        sink.region.write_at(0, &[0; 8])?;
    }
    for region in regions {
        region.holds("written to another", 0, &[0; 8])?;
        rig.rnic.dealloc_stag(region.stag)?;
    }
    Ok(())
}

/// Memory may be short; any other refusal of a reported maximum is an error.
fn possible<T>(what: &str, made: VpResult<T>) -> Result<Option<T>, Fail> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(why) if why.status == VpStatus::InsufficientResources => Ok(None),
        Err(why) => Err(format!("{what} that the attributes say: {why}").into()),
    }
}

fn largest_qp(rig: &Rig) -> Result<(), Fail> {
    let (pd, cq) =
        (rig.rnic.alloc_pd()?, rig.rnic.create_cq(&CqInit { depth: 16, handler: None })?);
    let (a, small) = (&rig.attrs, rig.qp_init(pd, cq.id()));
    let wishes = [
        ("max_sge_send", QpInit { max_send_sge: a.max_sge_send, ..small.clone() }),
        ("max_sge_recv", QpInit { max_recv_sge: a.max_sge_recv, ..small.clone() }),
        ("max_inline", QpInit { max_inline: a.max_inline, ..small.clone() }),
        ("max_wr_per_qp", QpInit { send_depth: a.max_wr_per_qp, ..small.clone() }),
        ("max_wr_per_qp", QpInit { recv_depth: a.max_wr_per_qp, ..small.clone() }),
        ("max_ird", QpInit { ird: a.max_ird, ..small.clone() }),
        ("max_ord", QpInit { ord: a.max_ord, ..small }),
    ];
    for (what, wish) in wishes {
        if let Some(qp) = possible(what, rig.rnic.create_qp(&wish))? {
            rig.rnic.destroy_qp(qp.id())?;
        }
    }
    Ok(())
}

fn largest_cq(rig: &Rig) -> Result<(), Fail> {
    let most = rig.attrs.max_cqe;
    let made = rig.rnic.create_cq(&CqInit { depth: most, handler: None });
    // A CQ of less than 2^21 entries must fit into memory.
    let made = if most < 1 << 21 { Some(made?) } else { possible("max_cqe", made)? };
    made.map_or(Ok(()), |cq| Ok(rig.rnic.destroy_cq(cq.id())?))
}

fn largest_srq(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let init = SrqInit { pd, depth: rig.attrs.max_wr_per_srq, max_sge: 1, limit: 0 };
    if let Some(srq) = possible("max_wr_per_srq", rig.rnic.create_srq(&init))? {
        rig.rnic.destroy_srq(srq.id())?;
    }
    Ok(())
}

fn sends(rig: &Rig) -> Result<(), Fail> {
    // In Idle no request is processed, so the queue fills up.
    let end = rig.end()?;
    let depth = end.qp.query()?.send_depth as usize;
    let (data, flags) = (Data::Sgl(&[][..]), SendFlags::SIGNALED);
    let list = vec![SendWr { wr_id: 1, op: SEND, data, flags }; depth + 1];
    let failure = end.qp.post_send(&list).err().ok_or("more than the queue holds was taken")?;
    // Not every RNIC accepts requests before it is connected.
    if failure.status == VpStatus::InvalidState {
        return Ok(());
    }
    same("refusal", failure.status, VpStatus::TooManyWrs)?;
    same("requests taken", failure.posted, depth)
}

/// Posts until the queue, which is `depth` deep, is full; returns how many posts it accepted.
fn fill(depth: u32, mut post: impl FnMut() -> Result<(), PostFailure>) -> Result<u32, Fail> {
    for n in 0..=depth {
        match post() {
            Ok(()) => {}
            Err(why) if why.status == VpStatus::TooManyWrs => return Ok(n),
            Err(why) => return Err(why.into()),
        }
    }
    Err(format!("a queue of {depth} took {} posts", depth + 1).into())
}

fn sum(rig: &Rig) -> Result<(), Fail> {
    let few = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (8, 8);
    let (peer, probe) = (rig.end()?, rig.end_with(None, few)?);
    let each = probe.qp.query()?;
    let depth = each.send_depth + each.recv_depth;
    let cq = rig.rnic.create_cq(&CqInit { depth, handler: None })?;
    let end = rig.end_with(None, |init| {
        few(init);
        (init.send_cq, init.recv_cq) = (cq.id(), cq.id());
    })?;
    rig.connect(&peer, &end)?;
    let (data, flags) = (Data::Sgl(&[][..]), SendFlags::SIGNALED);
    let recvs = fill(each.recv_depth, || end.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]))?;
    end.qp.modify(QpChange::Error)?;
    let sends =
        fill(each.send_depth, || end.qp.post_send(&[SendWr { wr_id: 1, op: SEND, data, flags }]))?;
    for n in 0..recvs + sends {
        let wc = crate::rig::next(&*cq, rig.wait);
        wc.map_err(|why| format!("completion {n} of {recvs} and {sends} flushed: {}", why.0))?;
    }
    Ok(())
}

fn too_many_reads(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let good = rig.qp_init(end.pd, end.cq.id());
    let wishes = [
        (
            "IRD",
            rig.attrs.max_ird,
            QpInit { ird: rig.attrs.max_ird.saturating_add(1), ..good.clone() },
        ),
        ("ORD", rig.attrs.max_ord, QpInit { ord: rig.attrs.max_ord.saturating_add(1), ..good }),
    ];
    for (what, most, wish) in wishes.into_iter().filter(|(_, most, _)| *most < u16::MAX) {
        let what = format!("{what} above {most}");
        refused(&what, rig.rnic.create_qp(&wish).map(drop), VpStatus::InvalidIrdOrd)?;
    }
    Ok(())
}

fn no_depth(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let good = rig.qp_init(end.pd, end.cq.id());
    let wishes = [
        ("send queue", QpInit { send_depth: 0, ..good.clone() }),
        ("receive queue", QpInit { recv_depth: 0, ..good }),
    ];
    for (what, wish) in wishes {
        let made = rig.rnic.create_qp(&wish);
        refused(&format!("a {what} of no depth"), made, VpStatus::InvalidModifier)?;
    }
    let cq = rig.rnic.create_cq(&CqInit { depth: 0, handler: None });
    refused("a CQ of no depth", cq, VpStatus::InvalidModifier)
}

fn srq_no_depth(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 8, 0)?;
    let none = rig.rnic.create_srq(&SrqInit { pd, depth: 0, max_sge: 1, limit: 0 });
    refused("an SRQ of no depth", none, VpStatus::InvalidModifier)?;
    // The QP has no receive queue of its own.
    rig.end_with(None, |init| (init.pd, init.srq, init.recv_depth) = (pd, Some(srq.id()), 0))?;
    Ok(())
}

fn ud_no_depth(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let end = post.end()?;
    let good = post.init(end.pd, end.cq.id());
    for wish in [UdQpInit { send_depth: 0, ..good.clone() }, UdQpInit { recv_depth: 0, ..good }] {
        let made = post.ud.create_qp(&wish);
        refused("a queue pair for datagrams, of no depth", made, VpStatus::InvalidModifier)?;
    }
    Ok(())
}

fn receives(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let depth = end.qp.query()?.recv_depth as usize;
    let list = vec![RecvWr { wr_id: 1, sgl: &[] }; depth];
    end.qp.post_recv(&list)?;
    refused("one more", end.qp.post_recv(&list[..1]), VpStatus::TooManyWrs)
}

fn elements(rig: &Rig) -> Result<(), Fail> {
    let one = |init: &mut QpInit| (init.max_send_sge, init.max_recv_sge) = (1, 1);
    let (near, far) = (rig.end_with(None, one)?, rig.end_with(None, one)?);
    rig.connect(&near, &far)?;
    let (here, there) = (near.memory(64)?, far.memory(64)?);
    let too_many =
        |memory: &crate::rig::Memory, most: u32| vec![memory.sge(0, 1); most as usize + 1];
    // Providers round up, but none can go beyond the device's own limit.
    let recv =
        far.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &too_many(&there, rig.attrs.max_sge_recv) }]);
    refused("a receive of too many elements", recv, VpStatus::InvalidSgl)?;
    let sgl = too_many(&here, rig.attrs.max_sge_send);
    let (data, flags) = (Data::Sgl(&sgl), SendFlags::SIGNALED);
    let send = near.qp.post_send(&[SendWr { wr_id: 1, op: SEND, data, flags }]);
    refused("a send of too many elements", send, VpStatus::InvalidSgl)
}

pub(super) fn srq(
    rig: &Rig,
    depth: u32,
    limit: u32,
) -> Result<(PdId, std::sync::Arc<dyn Srq>), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let depth = depth.min(rig.attrs.max_wr_per_srq);
    Ok((pd, rig.rnic.create_srq(&SrqInit { pd, depth, max_sge: 1, limit })?))
}

pub(super) const RECV: RecvWr<'_> = RecvWr { wr_id: 1, sgl: &[] };

fn srq_depth(rig: &Rig) -> Result<(), Fail> {
    let (_, srq) = srq(rig, 8, 0)?;
    let depth = srq.query()?.depth as usize;
    let failure = srq.post_recv(&vec![RECV; depth + 1]).err();
    let failure = failure.ok_or_else(|| format!("{} fit into an SRQ of {depth}", depth + 1))?;
    same("refusal", failure.status, VpStatus::TooManyWrs)?;
    same("receives taken", failure.posted, depth)
}

fn srq_elements(rig: &Rig) -> Result<(), Fail> {
    let (_, srq) = srq(rig, 8, 0)?;
    let (end, most) = (rig.end()?, srq.query()?.max_sge as usize);
    let memory = end.memory(64)?;
    let posted = srq.post_recv(&[RecvWr { wr_id: 1, sgl: &vec![memory.sge(0, 1); most + 1] }]);
    refused("a receive of too many elements", posted, VpStatus::InvalidSgl)
}

/// Takes one receive from the SRQ.
fn take(rig: &Rig, pd: PdId, srq: &dyn Srq) -> Result<(), Fail> {
    let end = rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?;
    let peer = rig.end()?;
    rig.connect(&peer, &end)?;
    peer.post(1, SEND, &[])?;
    let wc = end.completion()?;
    same("a receive of the SRQ", (wc.opcode, wc.status), (WcOpcode::Recv, WcStatus::Success))
}

fn srq_first_limit(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 8, 2)?;
    srq.post_recv(&[RECV; 2])?;
    take(rig, pd, &*srq)?;
    let event = rig.events.next(EventSource::Srq(srq.id()))?;
    same("one remains, and the limit is 2", event, AsyncEvent::SrqLimit)
}

fn srq_limit_again(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 8, 0)?;
    let source = EventSource::Srq(srq.id());
    for _ in 0..2 {
        srq.post_recv(&vec![RECV; 4 - srq.query()?.posted as usize])?;
        srq.modify(None, Some(4))?;
        take(rig, pd, &*srq)?;
        same("event", rig.events.next(source)?, AsyncEvent::SrqLimit)?;
        take(rig, pd, &*srq)?;
        same("more events of one limit", rig.events.waiting(source), 0)?;
    }
    Ok(())
}

fn srq_disarmed(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 8, 0)?;
    srq.post_recv(&[RECV; 4])?;
    srq.modify(None, Some(4))?;
    same("limit", srq.modify(None, Some(0))?.limit, 0)?;
    take(rig, pd, &*srq)?;
    // The next event belongs to the next limit.
    let source = EventSource::Srq(srq.id());
    same("events of a limit that was taken back", rig.events.waiting(source), 0)?;
    srq.modify(None, Some(3))?;
    take(rig, pd, &*srq)?;
    same("event", rig.events.next(source)?, AsyncEvent::SrqLimit)?;
    same("more events", rig.events.waiting(source), 0)
}

fn srq_which(rig: &Rig) -> Result<(), Fail> {
    let (_, srq) = srq(rig, 16, 0)?;
    srq.post_recv(&[RECV; 6])?;
    srq.modify(None, Some(3))?;
    let (depth, limit) = (srq.query()?.depth, srq.query()?.limit);
    let info = srq.modify(Some((depth + 8).min(rig.attrs.max_wr_per_srq)), None)?;
    same("limit, when the depth changed", info.limit, limit)?;
    same("receives that wait, when the depth changed", info.posted, 6)
}

fn srq_counts(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 8, 0)?;
    srq.post_recv(&[RECV; 5])?;
    same("receives that wait", srq.query()?.posted, 5)?;
    take(rig, pd, &*srq)?;
    same("receives that wait, when one was taken", srq.query()?.posted, 4)
}

fn outstanding(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    (0..3).try_for_each(|n| end.recv(n, &[]))?;
    same("receives outstanding", end.qp.query()?.recvs_outstanding, 3)
}
