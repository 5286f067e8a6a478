//! Cases about the slots of queues: which completions free them, and when.

use std::time::Duration;

use vp_api::*;

use super::depths::{RECV, srq};
use crate::fail::refused;
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("sq: a slot is free when its completion was polled", slots).keeps("RI-186"),
    Case::new("sq: so it is when the CQ was resized between", resized_slots)
        .keeps("RI-186")
        .with(Capabilities::CQ_RESIZE),
    Case::new("sq: an unsignaled slot is free when a later completion was polled", unsignaled)
        .keeps("RI-192"),
    Case::new("sq: unsignaled slots are free when the QP begins anew", unsignaled_anew)
        .keeps("RI-192"),
    Case::new("error: full queues refuse until a completion was polled", full_in_error)
        .keeps("RI-186"),
    Case::new("sq: in Idle, slots behind a queued completion stay", idle_covered).keeps("RI-244"),
    Case::new("cq: completions that an overrun lost free no slots", lost_in_overrun)
        .keeps("RI-241"),
    Case::new("sq, rq: a full queue refuses a wrong request as wrong", wrong_and_full)
        .keeps("RI-245"),
    Case::new("srq: a full queue refuses a wrong receive as wrong", srq_wrong_and_full)
        .keeps("RI-245")
        .with(Capabilities::SRQ),
    Case::new("srq: a slot is free when its completion was polled", srq_slots)
        .keeps("RI-193")
        .with(Capabilities::SRQ),
    Case::new("srq: slots that a destroyed QP occupied are free", srq_slots_of_destroyed)
        .keeps("RI-240")
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

fn resized_slots(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end_with(None, few_sends)?, rig.end()?);
    rig.connect(&near, &far)?;
    let depth = u64::from(near.qp.query()?.send_depth);
    let first = depth / 2;
    let complete = |from, to| -> Result<(), Fail> {
        (from..to).try_for_each(|n| write(&near, n, SendFlags::SIGNALED))?;
        // Native providers need not say how many wait.
        let says = rig.attrs.connection_model == ConnectionModel::LlpStream;
        rig.until("the completions", || Ok(!says || near.cq.queued() as u64 >= to))
    };
    complete(0, first)?;
    near.cq.resize(near.cq.depth() + 100)?;
    complete(first, depth)?;
    // Those before the resize are polled, those after it wait.
    (0..first).try_for_each(|n| near.done(n, WcOpcode::Write).map(drop))?;
    (0..first).try_for_each(|n| write(&near, depth + n, SendFlags::SIGNALED))?;
    let more = write(&near, 0, SendFlags::SIGNALED);
    refused("a post while completions of a full queue wait", more, VpStatus::TooManyWrs)?;
    (first..depth + first).try_for_each(|n| near.done(n, WcOpcode::Write).map(drop))
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
    Ok(())
}

/// Octets of a message that is still arriving when its first octets have arrived.
const LONG: usize = 16 << 20;

/// One QP is destroyed with a completion that was not polled, another one while a message arrives.
fn srq_slots_of_destroyed(rig: &Rig) -> Result<(), Fail> {
    for len in [0, LONG] {
        let (pd, srq) = srq(rig, 4, 0)?;
        let end = rig.end_with(None, |init| (init.pd, init.srq) = (pd, Some(srq.id())))?;
        let peer = rig.end()?;
        rig.connect(&peer, &end)?;
        let (source, sink) =
            (peer.memory(LONG)?, rig.memory(pd, LONG, Access::LOCAL, Addressing::Absolute)?);
        let sgl = [sink.all()];
        let recv = RecvWr { wr_id: 1, sgl: &sgl };
        let depth = srq.query()?.depth;
        srq.post_recv(&vec![recv; depth as usize])?;
        peer.post(1, SEND, &[source.sge(0, len)])?;
        rig.until("the message", || match len {
            0 => Ok(end.cq.wait(NOW, Some(rig.wait))?),
            _ => {
                end.cq.wait(NOW, Some(NOW))?;
                Ok(srq.query()?.posted < depth)
            }
        })?;
        rig.rnic.destroy_qp(end.qp.id())?;
        let free = srq.post_recv(&[recv]);
        free.map_err(|why| format!("a receive in place of one of {len} octets: {why}"))?;
        refused("a receive more", srq.post_recv(&[recv]), VpStatus::TooManyWrs)?;
    }
    Ok(())
}

/// Ends the stream of both, and brings both back to Idle.
fn anew(near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
    near.qp.modify(QpChange::Error)?;
    for end in [near, far] {
        let ended = || Ok(end.qp.query()?.state != QpState::Rts);
        near.rig.until("Error, or what follows it", ended)?;
        end.idle()?;
    }
    near.rig.forget_events();
    near.rig.connect(near, far)
}

fn idle_covered(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end_with(None, few_sends)?, rig.end()?);
    rig.connect(&near, &far)?;
    let depth = near.qp.query()?.send_depth;
    silently(&near, &far, depth - 1)?;
    write(&near, 99, SendFlags::SIGNALED)?;
    rig.until("the signaled completion", || Ok(near.cq.wait(NOW, Some(rig.wait))?))?;
    anew(&near, &far)?;
    let more = write(&near, 0, SendFlags::SIGNALED);
    refused("a post before the completion was polled", more, VpStatus::TooManyWrs)?;
    near.done(99, WcOpcode::Write)?;
    (0..depth).try_for_each(|n| write(&near, n.into(), SendFlags::SIGNALED))?;
    (0..depth).try_for_each(|n| near.done(n.into(), WcOpcode::Write).map(drop))
}

fn lost_in_overrun(rig: &Rig) -> Result<(), Fail> {
    let small = rig.rnic.create_cq(&CqInit { depth: 2, handler: None })?;
    let (peer, end) = (rig.end()?, rig.end_with(None, |init| init.recv_cq = small.id())?);
    rig.connect(&peer, &end)?;
    let (fits, depth) = (small.depth() as usize, end.qp.query()?.recv_depth as usize);
    if fits >= depth {
        return Ok(()); // The smallest CQ of this device holds a whole queue.
    }
    end.qp.post_recv(&vec![RECV; depth])?;
    end.qp.modify(QpChange::Error)?;
    let mut polled = 0;
    rig.until("the overrun", || match small.poll(&mut [WorkCompletion::BLANK; 8]) {
        Err(VpStatus::CqOverrun) => Ok(true),
        found => {
            polled += found?;
            Ok(false)
        }
    })?;
    end.qp.post_recv(&vec![RECV; polled])?;
    let more = end.qp.post_recv(&[RECV]);
    refused("a receive in place of one whose completion was lost", more, VpStatus::TooManyWrs)
}

fn wrong_and_full(rig: &Rig) -> Result<(), Fail> {
    let few = |init: &mut QpInit| (init.send_depth, init.recv_depth) = (8, 8);
    let (near, far) = (rig.end_with(None, few)?, rig.end()?);
    rig.connect(&near, &far)?;
    let (memory, depths) = (near.memory(64)?, near.qp.query()?);
    (0..depths.send_depth).try_for_each(|n| write(&near, n.into(), SendFlags::SIGNALED))?;
    (0..depths.recv_depth).try_for_each(|n| near.recv(n.into(), &[]))?;
    let long = |most: u32| vec![memory.sge(0, 1); most as usize + 1];
    let refuse = |state: &str| {
        refused("a write more", write(&near, 1, SendFlags::SIGNALED), VpStatus::TooManyWrs)?;
        let sgl = long(rig.attrs.max_sge_send);
        let (data, flags) = (Data::Sgl(&sgl[..]), SendFlags::SIGNALED);
        let send = near.qp.post_send(&[SendWr { wr_id: 1, op: SEND, data, flags }]);
        refused(&format!("a send of too many elements {state}"), send, VpStatus::InvalidSgl)?;
        let sgl = long(rig.attrs.max_sge_recv);
        let recv = near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }]);
        refused(&format!("a receive of too many elements {state}"), recv, VpStatus::InvalidSgl)
    };
    refuse("in RTS")?;
    near.qp.modify(QpChange::Error)?;
    refuse("in Error")
}

fn srq_wrong_and_full(rig: &Rig) -> Result<(), Fail> {
    let ((pd, srq), end) = (srq(rig, 4, 0)?, rig.end()?);
    let (info, memory) = (srq.query()?, end.memory(64)?);
    srq.post_recv(&vec![RECV; info.depth as usize])?;
    let sgl = vec![memory.sge(0, 1); info.max_sge as usize + 1];
    let wrong = srq.post_recv(&[RecvWr { wr_id: 1, sgl: &sgl }]);
    refused("a receive of too many elements", wrong, VpStatus::InvalidSgl)?;
    rig.rnic.destroy_srq(srq.id())?;
    Ok(rig.rnic.dealloc_pd(pd)?)
}
