//! Cases about lists of the greatest length that the device reports: elements, octets inline, requests, completions.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Memory, Rig, SEND, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("longest: a Send of max_sge_send elements", send).keeps("RI-31 RI-141"),
    Case::new("longest: a Write of max_sge_write elements", write).keeps("RI-31 RI-141"),
    Case::new("longest: a Read of max_sge_read elements", read).keeps("RI-31 RI-142"),
    Case::new("longest: a receive of max_sge_recv elements", receive).keeps("RI-31 RI-142"),
    Case::new("longest: a receive of an SRQ", shared_receive)
        .keeps("RI-145 RI-142")
        .with(Capabilities::SRQ),
    Case::new("longest: max_inline octets", inline).keeps("RI-31 RI-67"),
    Case::new("longest: lists of requests and completions as long as a queue", whole_queue)
        .keeps("RI-68 RI-72 RI-84 RI-113"),
];

/// Octets of an element; of every third element only one, so that a list is no multiple of anything.
const ROOM: usize = 24;

/// The greatest list that is tried: a message, too, is limited.
const MOST: u32 = 4096;

/// Elements of different lengths, from the end of the memory to its beginning.
fn list(memory: &Memory, count: usize) -> Vec<Sge> {
    let len = |n: usize| if n % 3 == 1 { 1 } else { ROOM - n % 5 };
    (0..count).map(|n| memory.sge((count - 1 - n) * ROOM, len(n))).collect()
}

fn octets(list: &[Sge]) -> usize {
    list.iter().map(|sge| sge.len as usize).sum()
}

/// What a list of `pattern` memory gathers.
fn gathered(list: &[Sge], count: usize, seed: u8) -> Vec<u8> {
    let all = pattern(count * ROOM, seed);
    let piece =
        |(n, sge): (usize, &Sge)| all[(count - 1 - n) * ROOM..][..sge.len as usize].to_vec();
    list.iter().enumerate().flat_map(piece).collect()
}

/// Two connected ends with as much room for elements as the device has.
fn pair(rig: &Rig) -> Result<(End<'_>, End<'_>), Fail> {
    let most = &rig.attrs;
    let wide = |init: &mut QpInit| {
        (init.max_send_sge, init.max_recv_sge) = (most.max_sge_send, most.max_sge_recv);
        init.max_inline = most.max_inline;
        (init.send_depth, init.recv_depth) = (init.send_depth.min(4), init.recv_depth.min(4));
    };
    let ends = (rig.end_with(None, wide)?, rig.end_with(None, wide)?);
    rig.connect(&ends.0, &ends.1)?;
    Ok(ends)
}

fn send(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig)?;
    let count = rig.attrs.max_sge_send.min(MOST) as usize;
    let source = near.pattern(count * ROOM, 1)?;
    let sgl = list(&source, count);
    let sink = far.memory(octets(&sgl))?;
    far.recv(1, &[sink.all()])?;
    near.post(2, SEND, &sgl)?;
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets as usize, octets(&sgl))?;
    sink.holds("received", 0, &gathered(&sgl, count, 1))
}

fn write(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig)?;
    let count = rig.attrs.max_sge_write.min(MOST) as usize;
    let source = near.pattern(count * ROOM, 2)?;
    let sgl = list(&source, count);
    let sink = far.memory(octets(&sgl))?;
    far.recv(1, &[])?;
    near.post(2, SendOp::Write { remote: sink.remote(0) }, &sgl)?;
    near.post(3, SEND, &[])?;
    near.done(2, WcOpcode::Write)?;
    far.done(1, WcOpcode::Recv)?;
    sink.holds("written", 0, &gathered(&sgl, count, 2))
}

fn read(rig: &Rig) -> Result<(), Fail> {
    if rig.attrs.max_ord == 0 {
        return Ok(());
    }
    let (near, far) = pair(rig)?;
    let count = rig.attrs.max_sge_read.min(rig.attrs.max_sge_send).min(MOST) as usize;
    let sink = near.memory(count * ROOM)?;
    let sgl = list(&sink, count);
    let source = far.pattern(octets(&sgl), 6)?;
    near.post(2, SendOp::Read { remote: source.remote(0), invalidate_sink: false }, &sgl)?;
    near.done(2, WcOpcode::Read)?;
    filled(&sink, &sgl, 6)
}

/// Whether `pattern` was scattered over the elements of a list, and nothing behind them.
fn filled(sink: &Memory, sgl: &[Sge], seed: u8) -> Result<(), Fail> {
    let all = pattern(octets(sgl), seed);
    let mut left = &all[..];
    for (n, sge) in sgl.iter().enumerate() {
        let (here, rest) = left.split_at(sge.len as usize);
        let at = (sgl.len() - 1 - n) * ROOM;
        sink.holds(&format!("element {n}"), at, here)?;
        sink.holds(&format!("behind element {n}"), at + here.len(), &[0; ROOM][here.len()..])?;
        left = rest;
    }
    Ok(())
}

/// Sends a message that fills all elements of a list; `post` posts the receive.
fn scattered(
    rig: &Rig,
    (near, far): (&End<'_>, &End<'_>),
    (pd, count): (PdId, usize),
    post: impl Fn(RecvWr<'_>) -> Result<(), PostFailure>,
) -> Result<(), Fail> {
    let access = Access::LOCAL;
    let sink = rig.memory(pd, count * ROOM, access, Addressing::Absolute)?;
    let sgl = list(&sink, count);
    let len = octets(&sgl);
    let source = near.pattern(len, 3)?;
    post(RecvWr { wr_id: 1, sgl: &sgl })?;
    near.post(2, SEND, &[source.all()])?;
    near.done(2, WcOpcode::Send)?;
    same("octets received", far.done(1, WcOpcode::Recv)?.octets as usize, len)?;
    filled(&sink, &sgl, 3)
}

fn receive(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig)?;
    let count = rig.attrs.max_sge_recv.min(MOST) as usize;
    scattered(rig, (&near, &far), (far.pd, count), |wr| far.qp.post_recv(&[wr]))
}

fn shared_receive(rig: &Rig) -> Result<(), Fail> {
    let pd = rig.rnic.alloc_pd()?;
    let init = SrqInit { pd, depth: 4, max_sge: rig.attrs.max_sge_recv, limit: 0 };
    let srq = rig.rnic.create_srq(&init)?;
    let (near, far) =
        (rig.end()?, rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?);
    rig.connect(&near, &far)?;
    let count = srq.query()?.max_sge.min(MOST) as usize;
    scattered(rig, (&near, &far), (pd, count), |wr| srq.post_recv(&[wr]))
}

fn inline(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig)?;
    let most = rig.attrs.max_inline.min(rig.attrs.max_message) as usize;
    let sink = far.memory(2 * most.max(1))?;
    far.recv(1, &[sink.sge(0, most)])?;
    far.recv(5, &[])?;
    let mut octets = pattern(most, 4);
    for (wr_id, op) in [(2, SEND), (3, SendOp::Write { remote: sink.remote(most) })] {
        let (data, flags) = (Data::Inline(&octets), SendFlags::SIGNALED);
        near.qp.post_send(&[SendWr { wr_id, op, data, flags }])?;
    }
    octets.fill(0xee);
    near.post(4, SEND, &[])?;
    far.done(1, WcOpcode::Recv)?;
    far.done(5, WcOpcode::Recv)?;
    sink.holds("sent inline", 0, &pattern(most, 4))?;
    sink.holds("written inline", most, &pattern(most, 4))
}

fn whole_queue(rig: &Rig) -> Result<(), Fail> {
    let deep = rig.attrs.max_wr_per_qp.min(rig.attrs.max_cqe).min(1000);
    let cqs = || rig.rnic.create_cq(&CqInit { depth: deep, handler: None });
    let (sends, receives) = (cqs()?, cqs()?);
    let depths = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (deep, deep);
    let near = rig.end_with(None, |init| {
        depths(init);
        init.send_cq = sends.id();
    })?;
    let far = rig.end_with(None, |init| {
        depths(init);
        init.recv_cq = receives.id();
    })?;
    rig.connect(&near, &far)?;
    let count = deep as usize;
    let (source, sink) = (near.pattern(count, 5)?, far.memory(count)?);
    let one = |memory: &Memory| (0..count).map(|n| [memory.sge(n, 1)]).collect::<Vec<_>>();
    let (from, to) = (one(&source), one(&sink));
    let numbered = |n: usize| n as u64;
    let recvs: Vec<_> =
        to.iter().enumerate().map(|(n, sgl)| RecvWr { wr_id: numbered(n), sgl }).collect();
    far.qp.post_recv(&recvs)?;
    let list: Vec<_> = (from.iter().enumerate())
        .map(|(n, sgl)| {
            let (data, flags) = (Data::Sgl(sgl), SendFlags::SIGNALED);
            SendWr { wr_id: numbered(n), op: SEND, data, flags }
        })
        .collect();
    near.qp.post_send(&list)?;
    for (what, cq, opcode) in
        [("sends", sends, WcOpcode::Send), ("receives", receives, WcOpcode::Recv)]
    {
        let mut found = Vec::new();
        rig.until(&format!("all {count} completions of {what}"), || {
            let mut out = vec![WorkCompletion::BLANK; count];
            let n = cq.poll(&mut out)?;
            found.extend(out[..n].iter().map(|wc| (wc.wr_id, wc.opcode, wc.status)));
            Ok(found.len() >= count)
        })?;
        let all = (0..count).map(|n| (numbered(n), opcode, WcStatus::Success)).collect::<Vec<_>>();
        same(&format!("completions of {what}"), found, all)?;
    }
    sink.holds("received", 0, &pattern(count, 5))
}
