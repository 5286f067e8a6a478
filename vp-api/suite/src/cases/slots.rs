//! Cases about the slots of queues: which completions free them, and when.

use std::time::Duration;

use vp_api::*;

use super::depths::{RECV, srq};
use crate::fail::refused;
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("sq: a slot is free when its completion was polled", slots).keeps("RI-186"),
    Case::new("sq: an unsignaled slot is free when a later completion was polled", unsignaled)
        .keeps("RI-192"),
    Case::new("sq: unsignaled slots are free when the QP begins anew", unsignaled_anew)
        .keeps("RI-192"),
    Case::new("error: full queues refuse until a completion was polled", full_in_error)
        .keeps("RI-186"),
    Case::new("srq: a slot is free when its completion was polled", srq_slots)
        .keeps("RI-193")
        .with(Capabilities::SRQ),
];

/// A wait that sleeps at once, without spinning.
const NOW: Duration = Duration::ZERO;

fn slots(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end_with(None, few_sends)?, rig.end()?);
    rig.connect(&near, &far)?;
    let depth = u64::from(near.qp.query()?.send_depth);
    let write = || SendOp::Write { remote: Remote { stag: Stag(0x100), to: 0 } };
    (0..depth).try_for_each(|n| near.post(n, write(), &[]))?;
    near.done(0, WcOpcode::Write)?;
    near.post(depth, write(), &[])?;
    let (data, flags) = (Data::Sgl(&[][..]), SendFlags::SIGNALED);
    let more = near.qp.post_send(&[SendWr { wr_id: 0, op: write(), data, flags }]);
    refused("a post while completions of a full queue wait", more, VpStatus::TooManyWrs)?;
    (1..=depth).try_for_each(|n| near.done(n, WcOpcode::Write).map(drop))
}

/// Posts a zero-length Write, signaled or not.
fn write(end: &End<'_>, wr_id: u64, flags: SendFlags) -> Result<(), PostFailure> {
    let op = SendOp::Write { remote: Remote { stag: Stag(0x100), to: 0 } };
    end.qp.post_send(&[SendWr { wr_id, op, data: Data::Sgl(&[]), flags }])
}

/// What the last unsignaled request writes to the peer's memory.
const LAST: [u8; 8] = [7; 8];

/// Posts `count` unsignaled requests, and returns when they are done.
fn silently(near: &End<'_>, far: &End<'_>, count: u32) -> Result<(), Fail> {
    let (source, sink) = (near.memory(LAST.len())?, far.memory(LAST.len())?);
    source.region.write_at(0, &LAST)?;
    (1..count).try_for_each(|n| write(near, n.into(), SendFlags::empty()))?;
    let op = SendOp::Write { remote: sink.remote(0) };
    let (sgl, flags) = ([source.all()], SendFlags::empty());
    near.qp.post_send(&[SendWr { wr_id: count.into(), op, data: Data::Sgl(&sgl), flags }])?;
    near.rig.until("the last unsignaled Write", || {
        near.cq.poll(&mut [WorkCompletion::BLANK])?;
        Ok(sink.read(0, LAST.len())? == LAST)
    })
}

fn few_sends(init: &mut QpInit) {
    init.send_depth = 8;
}

fn unsignaled(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end_with(None, few_sends)?, rig.end()?);
    rig.connect(&near, &far)?;
    let depth = near.qp.query()?.send_depth;
    for _ in 0..3 {
        silently(&near, &far, depth - 1)?;
        write(&near, 99, SendFlags::SIGNALED)?;
        rig.until("the signaled completion", || Ok(near.cq.wait(NOW, Some(rig.wait))?))?;
        let more = write(&near, 0, SendFlags::empty());
        refused("a post while all slots are taken", more, VpStatus::TooManyWrs)?;
        near.done(99, WcOpcode::Write)?;
    }
    silently(&near, &far, depth)?;
    let more = write(&near, 0, SendFlags::empty());
    refused("a post behind so many unsignaled ones as there are slots", more, VpStatus::TooManyWrs)
}

fn unsignaled_anew(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end_with(None, few_sends)?, rig.end()?);
    let depth = near.qp.query()?.send_depth;
    for _ in 0..2 {
        rig.connect(&near, &far)?;
        silently(&near, &far, depth)?;
        near.qp.modify(QpChange::Error)?;
        for end in [&near, &far] {
            rig.until("Error, or what follows it", || Ok(end.qp.query()?.state != QpState::Rts))?;
            end.idle()?;
        }
        // What the peer received but has not acknowledged is flushed and occupies its slot.
        while near.cq.poll(&mut [WorkCompletion::BLANK])? != 0 {}
        rig.forget_events();
    }
    Ok(())
}

fn full_in_error(rig: &Rig) -> Result<(), Fail> {
    let few = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (8, 8);
    let (near, far) = (rig.end_with(None, few)?, rig.end()?);
    rig.connect(&near, &far)?;
    let depths = near.qp.query()?;
    let recv = || near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]);
    let send = || write(&near, 2, SendFlags::SIGNALED);
    // Some are posted before, the others in Error.
    recv()?;
    send()?;
    near.qp.modify(QpChange::Error)?;
    (1..depths.recv_depth).try_for_each(|_| recv())?;
    (1..depths.send_depth).try_for_each(|_| send())?;
    for _ in 0..2 {
        refused("a receive more, in Error", recv(), VpStatus::TooManyWrs)?;
        refused("a send more, in Error", send(), VpStatus::TooManyWrs)?;
        let wc = near.completion()?;
        let again = if wc.opcode == WcOpcode::Recv { recv() } else { send() };
        again.map_err(|why| format!("a post in Error, when a completion was polled: {why}"))?;
    }
    (0..depths.recv_depth + depths.send_depth).try_for_each(|_| near.completion().map(drop))
}

fn srq_slots(rig: &Rig) -> Result<(), Fail> {
    let (pd, srq) = srq(rig, 4, 0)?;
    let with = |init: &mut QpInit| (init.pd, init.srq) = (pd, Some(srq.id()));
    let depth = srq.query()?.depth as usize;
    let (one, other, peers) =
        (rig.end_with(None, with)?, rig.end_with(None, with)?, (rig.end()?, rig.end()?));
    rig.connect(&peers.0, &one)?;
    rig.connect(&peers.1, &other)?;
    srq.post_recv(&vec![RECV; depth])?;
    for (peer, end) in [(&peers.0, &one), (&peers.1, &other)] {
        peer.post(1, SEND, &[])?;
        rig.until("the receive", || Ok(end.cq.wait(NOW, Some(rig.wait))?))?;
        refused("a receive more", srq.post_recv(&[RECV]), VpStatus::TooManyWrs)?;
    }
    for end in [&other, &one] {
        end.done(RECV.wr_id, WcOpcode::Recv)?;
        srq.post_recv(&[RECV])?;
        refused("a receive more", srq.post_recv(&[RECV]), VpStatus::TooManyWrs)?;
    }
    // Destroying the QP removes its completions, and frees the slots that they occupied.
    peers.0.post(2, SEND, &[])?;
    rig.until("the receive", || Ok(one.cq.wait(NOW, Some(rig.wait))?))?;
    rig.rnic.destroy_qp(one.qp.id())?;
    Ok(srq.post_recv(&[RECV])?)
}
