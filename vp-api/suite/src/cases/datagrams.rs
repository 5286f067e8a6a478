//! Cases about unreliable datagrams: queue pairs, address handles, what arrives and what is dropped. A datagram
//! counts as dropped if a later one arrives instead; within one device no datagram is lost otherwise.

use std::sync::Arc;
use std::time::Duration;

use vp_api::*;

use crate::cases::queues::Bell;
use crate::fail::{refused, same};
use crate::rig::{Memory, Rig, pattern};
use crate::ud::{Post, UdEnd, Way};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("datagram: a queue pair is as it was asked for", made)
        .keeps("RI-168 RI-173")
        .with(Capabilities::UD),
    Case::new("datagram: limits are reported and kept", limits)
        .keeps("RI-169")
        .with(Capabilities::UD),
    Case::new("datagram: objects in use stay", in_use).with(Capabilities::UD),
    Case::new("datagram: there, and back to its source", both_ways)
        .keeps("RI-164 RI-165 RI-167")
        .with(Capabilities::UD),
    Case::new("datagram: gathered, scattered, of no octets", shapes)
        .keeps("RI-165")
        .with(Capabilities::UD),
    Case::new("datagram: a list, polled as a list", lists)
        .keeps("RI-198 RI-199")
        .with(Capabilities::UD),
    Case::new("datagram: inline", inline).with(Capabilities::UD),
    Case::new("datagram: immediate data", immediate).keeps("RI-166").with(Capabilities::UD),
    Case::new("datagram: solicited", solicited).with(Capabilities::UD),
    Case::new("datagram: as long as the port takes, not longer", longest)
        .keeps("RI-170 RI-185")
        .with(Capabilities::UD),
    Case::new("datagram: without a receive it is dropped", unexpected).with(Capabilities::UD),
    Case::new("datagram: with the wrong key it is dropped", wrong_key)
        .keeps("RI-163")
        .with(Capabilities::UD),
    Case::new("datagram: a key that changes", new_key).keeps("RI-237").with(Capabilities::UD),
    Case::new("datagram: a reset leaves nothing of before", renewed)
        .keeps("RI-239")
        .with(Capabilities::UD),
    Case::new("datagram: a slot is free when a completion was polled", slots)
        .keeps("RI-194")
        .with(Capabilities::UD),
    Case::new("datagram: unsignaled sends end with the queue pair", quiet)
        .keeps("RI-171 RI-172 RI-194")
        .with(Capabilities::UD),
    Case::new("datagram: address handles end", handles).keeps("RI-177").with(Capabilities::UD),
    Case::new("datagram: an ended queue pair flushes, and begins anew", ended)
        .keeps("RI-171 RI-172")
        .with(Capabilities::UD),
];

/// Registers memory with a pattern that depends on `seed`.
fn filled(end: &UdEnd<'_>, len: usize, seed: u8) -> Result<Memory, Fail> {
    let memory = end.memory(len)?;
    memory.region.write_at(0, &pattern(len, seed))?;
    Ok(memory)
}

/// Two ends, and the path from the first to the second.
fn pair<'a>(post: &'a Post<'a>) -> Result<(UdEnd<'a>, UdEnd<'a>, Way), Fail> {
    let (near, far) = (post.end()?, post.end()?);
    let way = post.way(&near, &far)?;
    Ok((near, far, way))
}

fn made(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let near = post.end()?;
    let info = near.qp.query()?;
    same("id", info.id, near.qp.id())?;
    same("state", info.state, UdState::Operational)?;
    same("address", info.address, near.qp.address())?;
    same("key", info.address.qkey, post.ud.attrs().usual_qkey)?;
    same("outstanding", (info.sends_outstanding, info.recvs_outstanding), (0, 0))?;
    let other = post.end_with(None, |init| init.qkey = Some(0x1234))?;
    same("key", other.qp.address().qkey, 0x1234)?;
    if other.qp.address().qpn == near.qp.address().qpn || other.qp.id() == near.qp.id() {
        return Err("two queue pairs have one number or id".into());
    }
    let connected = rig.end()?;
    if [near.qp.id(), other.qp.id()].contains(&connected.qp.id()) {
        return Err("a connected queue pair has the same id".into());
    }
    post.ud.destroy_qp(near.qp.id())?;
    refused("destroy again", post.ud.destroy_qp(near.qp.id()), VpStatus::InvalidHandle)?;
    refused("query", near.qp.query(), VpStatus::InvalidHandle)?;
    refused("post", near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]), VpStatus::InvalidHandle)
}

fn limits(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let near = post.end()?;
    let with = |wish: &dyn Fn(&mut UdQpInit)| {
        let mut init = post.init(near.pd, near.cq.id());
        wish(&mut init);
        post.ud.create_qp(&init)
    };
    let most = rig.attrs.max_wr_per_qp;
    refused("deep", with(&|init| init.send_depth = most + 1), VpStatus::TooManyWrs)?;
    refused("deep", with(&|init| init.recv_depth = most + 1), VpStatus::TooManyWrs)?;
    let most = rig.attrs.max_sge_send;
    refused("SGEs", with(&|init| init.max_send_sge = most + 1), VpStatus::InvalidSgl)?;
    refused("no PD", with(&|init| init.pd = PdId(u32::MAX)), VpStatus::InvalidPd)?;
    refused("no CQ", with(&|init| init.send_cq = CqId(u32::MAX)), VpStatus::InvalidHandle)?;
    refused("no port", with(&|init| init.port = 4000), VpStatus::InvalidModifier)?;
    refused("no port", post.ud.max_payload(4000), VpStatus::InvalidModifier)?;
    let payload = post.ud.max_payload(near.qp.query()?.port)?;
    same("a payload that every port takes", payload >= 256, true)?;
    let path = DatagramPath { local_gid: [0xee; 16], ..DatagramPath::default() };
    if post.ud.create_ah(near.pd, &path).is_ok() {
        return Err("an address handle from another provider's port was made".into());
    }
    let few = post.end_with(None, |init| (init.send_depth, init.recv_depth) = (2, 2))?;
    let depth = few.qp.query()?.recv_depth as usize;
    let room = few.memory(GRH_OCTETS)?;
    let sgl = [room.all()];
    let wrs = vec![RecvWr { wr_id: 7, sgl: &sgl }; depth + 1];
    let full = PostFailure { posted: depth, status: VpStatus::TooManyWrs };
    same("one receive too many", few.qp.post_recv(&wrs), Err(full))?;
    let sgl = vec![room.all(); rig.attrs.max_sge_recv as usize + 1];
    refused("SGEs", near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }]), VpStatus::InvalidSgl)
}

fn in_use(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, _far, way) = pair(&post)?;
    refused("PD", rig.rnic.dealloc_pd(near.pd), VpStatus::InUse)?;
    refused("CQ", rig.rnic.destroy_cq(near.cq.id()), VpStatus::InUse)?;
    post.ud.destroy_qp(near.qp.id())?;
    refused("PD of a handle", rig.rnic.dealloc_pd(near.pd), VpStatus::InUse)?;
    post.ud.destroy_ah(way.ah)?;
    rig.rnic.dealloc_pd(near.pd)?;
    Ok(rig.rnic.destroy_cq(near.cq.id())?)
}

fn both_ways(rig: &Rig) -> Result<(), Fail> {
    const LEN: usize = 200;
    let post = Post::open(rig)?;
    let (near, far, there) = pair(&post)?;
    let (question, answer) = (filled(&near, LEN, 1)?, filled(&far, LEN, 2)?);
    let (near_room, far_room) = (near.memory(GRH_OCTETS + LEN)?, far.memory(GRH_OCTETS + LEN)?);
    near.recv(1, &[near_room.all()])?;
    far.recv(2, &[far_room.all()])?;
    near.qp.post_send(&[there.send(3, &[question.all()])])?;
    near.sent(3, WcOpcode::Send)?;
    let (_, from) = far.received(2, LEN)?;
    far_room.holds("question", GRH_OCTETS, &pattern(LEN, 1))?;
    same("source", from.qpn, near.qp.address().qpn)?;
    // A program may also poll without sources.
    let path = from.path.ok_or("the source has no path")?;
    let back = Way { ah: post.ud.create_ah(far.pd, &path)?, to: near.qp.address() };
    far.qp.post_send(&[back.send(4, &[answer.all()])])?;
    far.sent(4, WcOpcode::Send)?;
    let (_, from) = near.received(1, LEN)?;
    same("source", from.qpn, far.qp.address().qpn)?;
    near_room.holds("answer", GRH_OCTETS, &pattern(LEN, 2))
}

fn shapes(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let (source, sink) = (filled(&near, 90, 5)?, far.memory(200)?);
    far.recv(1, &[sink.sge(0, GRH_OCTETS), sink.sge(100, 30), sink.sge(150, 50)])?;
    far.recv(2, &[sink.sge(0, GRH_OCTETS)])?;
    let sgl = [source.sge(0, 20), source.sge(20, 30)];
    near.qp.post_send(&[way.send(3, &sgl), way.send(4, &[])])?;
    near.sent(3, WcOpcode::Send)?;
    near.sent(4, WcOpcode::Send)?;
    let (_, from) = far.received(1, 50)?;
    same("a path back", from.path.is_some(), true)?;
    far.received(2, 0)?;
    let expected = pattern(90, 5);
    sink.holds("first part", 100, &expected[..30])?;
    sink.holds("second part", 150, &expected[30..50])
}

fn lists(rig: &Rig) -> Result<(), Fail> {
    const COUNT: usize = 4;
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let (source, sink) = (filled(&near, COUNT, 5)?, far.memory(COUNT * 64)?);
    let at = |n: usize| sink.sge(n * 64, GRH_OCTETS + n);
    (0..COUNT).try_for_each(|n| far.recv(n as u64, &[at(n)]))?;
    let parts: Vec<_> = (0..COUNT).map(|n| [source.sge(0, n)]).collect();
    let list: Vec<_> = parts.iter().enumerate().map(|(n, sgl)| way.send(n as u64, sgl)).collect();
    near.qp.post_send(&list)?;
    (0..COUNT).try_for_each(|n| near.sent(n as u64, WcOpcode::Send))?;
    rig.until("all of them", || Ok(far.cq.queued() >= COUNT))?;
    let (mut out, mut from) = ([WorkCompletion::BLANK; COUNT], [None; COUNT]);
    same("polled at once", far.cq.poll_from(&mut out, &mut from)?, COUNT)?;
    for (n, (wc, from)) in out.iter().zip(from).enumerate() {
        let found = (wc.wr_id, wc.octets as usize, from.map(|from: DatagramSource| from.qpn));
        same("received", found, (n as u64, GRH_OCTETS + n, Some(near.qp.address().qpn)))?;
    }
    Ok(())
}

fn inline(rig: &Rig) -> Result<(), Fail> {
    let len = rig.attrs.max_inline.min(32);
    if len == 0 {
        return Ok(());
    }
    let post = Post::open(rig)?;
    let near = post.end_with(None, |init| init.max_inline = len)?;
    let far = post.end()?;
    let way = post.way(&near, &far)?;
    let sink = far.memory(GRH_OCTETS + len as usize)?;
    far.recv(1, &[sink.all()])?;
    let octets = pattern(len as usize, 8);
    near.qp.post_send(&[UdSendWr { data: Data::Inline(&octets), ..way.send(2, &[]) }])?;
    near.sent(2, WcOpcode::Send)?;
    far.received(1, len as usize)?;
    sink.holds("inline", GRH_OCTETS, &octets)?;
    let more = vec![0; len as usize + 1];
    let wr = UdSendWr { data: Data::Inline(&more), ..way.send(3, &[]) };
    refused("more inline", near.qp.post_send(&[wr]), VpStatus::InvalidSgl)
}

fn immediate(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let (source, sink) = (filled(&near, 10, 5)?, far.memory(GRH_OCTETS + 10)?);
    far.recv(1, &[sink.all()])?;
    let sgl = [source.all()];
    near.qp.post_send(&[UdSendWr { immediate: Some(0x0102_0304), ..way.send(2, &sgl) }])?;
    near.sent(2, WcOpcode::Immediate)?;
    let (wc, _) = far.received(1, 10)?;
    same("immediate data", wc.immediate, Some(0x0102_0304))
}

fn solicited(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let bell = Arc::new(Bell::default());
    let (near, far) = (post.end()?, post.end_with(Some(bell.clone()), |_| {})?);
    let way = post.way(&near, &far)?;
    let sink = far.memory(GRH_OCTETS)?;
    far.recv(1, &[sink.all()])?;
    far.cq.arm(true)?;
    near.qp.post_send(&[UdSendWr { solicited: true, ..way.send(2, &[]) }])?;
    near.sent(2, WcOpcode::Send)?;
    far.received(1, 0)?;
    bell.wait(1, rig.wait)
}

fn longest(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let most = post.ud.max_payload(near.qp.query()?.port)? as usize;
    let (source, sink) = (filled(&near, most + 1, 6)?, far.memory(GRH_OCTETS + most)?);
    far.recv(1, &[sink.all()])?;
    let too_long = [source.all()];
    refused("too long", near.qp.post_send(&[way.send(2, &too_long)]), VpStatus::InvalidSgl)?;
    near.qp.post_send(&[way.send(3, &[source.sge(0, most)])])?;
    near.sent(3, WcOpcode::Send)?;
    far.received(1, most)?;
    sink.holds("longest", GRH_OCTETS, &pattern(most, 6))
}

/// Posts a send that must not arrive, and one that must.
fn second_arrives(near: &UdEnd<'_>, far: &UdEnd<'_>, lost: Way) -> Result<(), Fail> {
    let (source, sink) = (filled(near, 20, 3)?, far.memory(GRH_OCTETS + 20)?);
    near.qp.post_send(&[lost.send(1, &[source.sge(0, 5)])])?;
    near.sent(1, WcOpcode::Send)?;
    // The exchange with the service comes behind the first send, which has been handled when it is over.
    let way = near.post.way(near, far)?;
    if far.qp.query()?.recvs_outstanding == 0 {
        far.recv(2, &[sink.all()])?;
    }
    near.qp.post_send(&[way.send(3, &[source.all()])])?;
    near.sent(3, WcOpcode::Send)?;
    far.received(2, 20).map(drop)
}

fn unexpected(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    second_arrives(&near, &far, way)
}

fn wrong_key(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let sink = far.memory(GRH_OCTETS + 20)?;
    far.recv(2, &[sink.all()])?;
    let to = UdAddress { qkey: way.to.qkey ^ 0x10, ..way.to };
    second_arrives(&near, &far, Way { to, ..way })
}

fn new_key(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, old) = pair(&post)?;
    let key = old.to.qkey ^ 0x20;
    match far.qp.set_qkey(key) {
        Ok(()) => {}
        // It may keep its key.
        Err(why) if why.status == VpStatus::Unsupported => {
            return same("key", far.qp.address().qkey, old.to.qkey);
        }
        Err(why) => return Err(why.into()),
    }
    same("key", far.qp.address().qkey, key)?;
    let sink = far.memory(GRH_OCTETS + 20)?;
    far.recv(2, &[sink.all()])?;
    second_arrives(&near, &far, old)?;
    post.ud.destroy_qp(far.qp.id())?;
    refused("of one that is gone", far.qp.set_qkey(key), VpStatus::InvalidHandle)
}

fn renewed(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let sink = far.memory(GRH_OCTETS)?;
    let depth = u64::from(far.qp.query()?.recv_depth);
    let fill = || (0..depth).try_for_each(|wr_id| far.recv(wr_id, &[sink.all()]));
    // Posted and not completed; then flushed and not polled; then neither.
    for round in 0..3 {
        if round < 2 {
            fill()?;
        }
        if round == 1 {
            far.qp.modify(UdState::Error)?;
            rig.until("the receives to be flushed", || Ok(far.cq.queued() as u64 == depth))?;
        }
        match far.qp.reset() {
            Ok(()) => {}
            // It may go through Error.
            Err(why) if why.status == VpStatus::Unsupported => return Ok(()),
            Err(why) => return Err(why.into()),
        }
        let info = far.qp.query()?;
        same(
            "state and receives",
            (info.state, info.recvs_outstanding),
            (UdState::Operational, 0),
        )?;
        fill()?;
        let way = post.way(&near, &far)?;
        for wr_id in 0..depth {
            near.qp.post_send(&[way.send(wr_id, &[])])?;
            near.sent(wr_id, WcOpcode::Send)?;
            // No completion of a receive of before.
            far.received(wr_id, 0)?;
        }
    }
    post.ud.destroy_qp(far.qp.id())?;
    refused("of one that is gone", far.qp.reset(), VpStatus::InvalidHandle)
}

/// A send that completes only if it fails.
fn silent(way: &Way) -> UdSendWr<'static> {
    UdSendWr { flags: SendFlags::empty(), ..way.send(0, &[]) }
}

fn slots(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let far = post.end()?;
    let near = post.end_with(None, |init| (init.send_depth, init.recv_depth) = (8, 8))?;
    let way = post.way(&near, &far)?;
    let depth = u64::from(near.qp.query()?.send_depth);
    for _ in 0..3 {
        (1..depth).try_for_each(|_| near.qp.post_send(&[silent(&way)]))?;
        near.qp.post_send(&[way.send(99, &[])])?;
        rig.until("the signaled send", || Ok(near.cq.wait(Duration::ZERO, Some(rig.wait))?))?;
        let more = near.qp.post_send(&[silent(&way)]);
        refused("a send while all slots are taken", more, VpStatus::TooManyWrs)?;
        near.sent(99, WcOpcode::Send)?;
    }
    near.qp.modify(UdState::Error)?;
    let sink = near.memory(GRH_OCTETS)?;
    let recv = || near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[sink.all()] }]);
    let send = || near.qp.post_send(&[way.send(2, &[])]);
    (0..near.qp.query()?.recv_depth).try_for_each(|_| recv())?;
    (0..depth).try_for_each(|_| send())?;
    refused("a receive more, in Error", recv(), VpStatus::TooManyWrs)?;
    refused("a send more, in Error", send(), VpStatus::TooManyWrs)?;
    match near.completion()?.0.opcode {
        WcOpcode::Recv => Ok(recv()?),
        _ => Ok(send()?),
    }
}

fn quiet(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let far = post.end()?;
    let near = post.end_with(None, |init| init.send_depth = 8)?;
    let way = post.way(&near, &far)?;
    let depth = u64::from(near.qp.query()?.send_depth);
    for round in 0..3 {
        (1..depth).try_for_each(|_| near.qp.post_send(&[silent(&way)]))?;
        near.qp.modify(UdState::Error)?;
        near.qp.post_send(&[way.send(round, &[])])?;
        // Sends that were not transmitted are flushed, too.
        let last = |wc: &WorkCompletion| (wc.wr_id, wc.status) == (round, WcStatus::Flushed);
        while !last(&near.completion()?.0) {}
        rig.until("Operational again", || match near.qp.modify(UdState::Operational) {
            Err(why) if why.status == VpStatus::StillFlushing => Ok(false),
            other => Ok(other.map(|()| true)?),
        })?;
    }
    near.qp.post_send(&[way.send(99, &[])])?;
    near.sent(99, WcOpcode::Send)
}

fn handles(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far, way) = pair(&post)?;
    let info = post.ud.query_ah(way.ah)?;
    same("PD", info.pd, near.pd)?;
    let sink = far.memory(GRH_OCTETS)?;
    far.recv(1, &[sink.all()])?;
    // Destroyed while the device may still need it.
    near.qp.post_send(&[way.send(2, &[])])?;
    post.ud.destroy_ah(way.ah)?;
    near.sent(2, WcOpcode::Send)?;
    far.received(1, 0)?;
    refused("destroy again", post.ud.destroy_ah(way.ah), VpStatus::InvalidHandle)?;
    refused("query", post.ud.query_ah(way.ah), VpStatus::InvalidHandle)?;
    refused("send", near.qp.post_send(&[way.send(3, &[])]), VpStatus::InvalidHandle)?;
    let others = Way { ah: post.ud.create_ah(far.pd, &info.path)?, ..way };
    refused("of another PD", near.qp.post_send(&[others.send(4, &[])]), VpStatus::InvalidPd)
}

fn ended(rig: &Rig) -> Result<(), Fail> {
    let post = Post::open(rig)?;
    let (near, far) = (post.end()?, post.end()?);
    let sink = far.memory(GRH_OCTETS)?;
    far.recv(1, &[sink.all()])?;
    far.qp.modify(UdState::Error)?;
    same("state", far.qp.query()?.state, UdState::Error)?;
    refused("too early", far.qp.modify(UdState::Operational), VpStatus::StillFlushing)?;
    far.recv(2, &[sink.all()])?;
    for expected in [1, 2] {
        let (wc, from) = far.completion()?;
        let found = (wc.wr_id, wc.opcode, wc.status, from);
        same("flushed", found, (expected, WcOpcode::Recv, WcStatus::Flushed, None))?;
    }
    far.qp.modify(UdState::Operational)?;
    same("state", far.qp.query()?.state, UdState::Operational)?;
    let way = post.way(&near, &far)?;
    far.recv(3, &[sink.all()])?;
    near.qp.post_send(&[way.send(4, &[])])?;
    near.sent(4, WcOpcode::Send)?;
    far.received(3, 0).map(drop)
}
