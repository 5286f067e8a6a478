//! Cases about the limit event of a queue pair's receives: which receives count, and until when.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("rq: a receive that is polled as it arrives does not stay counted", polled_at_once)
        .keeps("RI-40")
        .with(Capabilities::RECV_LIMIT),
    Case::new("rq: a limit that is exceeded when it is set is reported", set_late)
        .keeps("RI-40 RI-110")
        .with(Capabilities::RECV_LIMIT.union(Capabilities::QP_RESIZE)),
    Case::new("rq: a limit holds when another queue pair of the CQ is gone", other_gone)
        .keeps("RI-40")
        .with(Capabilities::RECV_LIMIT),
    Case::new("rq: flushed receives that are polled leave the count of others", flushed)
        .keeps("RI-40")
        .with(Capabilities::RECV_LIMIT),
    Case::new("rq: receives whose completions were discarded do not count", discarded)
        .keeps("RI-40 RI-238")
        .with(Capabilities::RECV_LIMIT.union(Capabilities::DISCARD)),
];

/// More than any of these cases posts at once.
const DEPTH: u32 = 16;

fn limited(rig: &Rig, limit: u32) -> Result<End<'_>, Fail> {
    rig.end_with(None, |init| (init.recv_depth, init.recv_limit) = (DEPTH, limit))
}

/// Messages that take receives of `far`. Their completions there are not polled.
fn messages(near: &End<'_>, far: &End<'_>, count: u64) -> Result<(), Fail> {
    let before = far.cq.queued() as u64;
    for n in 0..count {
        far.recv(n, &[])?;
        near.post(n, SEND, &[])?;
        near.done(n, WcOpcode::Send)?;
    }
    let what = format!("{count} more completions of receives");
    near.rig.until(&what, || Ok(far.cq.queued() as u64 == before + count))
}

fn events(end: &End<'_>) -> usize {
    end.rig.events.waiting(EventSource::Qp(end.qp.id()))
}

/// No event yet, and the limit is armed.
fn armed(what: &str, end: &End<'_>, limit: u32) -> Result<(), Fail> {
    same(&format!("the armed limit, {what}"), end.qp.query()?.recv_limit, limit)?;
    same(&format!("events, {what}"), events(end), 0)
}

/// The next message is one more than the limit.
fn exceeded(near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
    messages(near, far, 1)?;
    same("event", far.event()?, AsyncEvent::RecvLimit)
}

/// Receives are flushed, and the queue pair begins anew. The completions are not polled.
fn anew<'a>(far: &End<'a>, flushed: u64) -> Result<End<'a>, Fail> {
    let (rig, queued) = (far.rig, far.cq.queued() as u64);
    (0..flushed).try_for_each(|n| far.recv(n, &[]))?;
    far.qp.modify(QpChange::Error)?;
    rig.until("flushed receives", || Ok(far.cq.queued() as u64 == queued + flushed))?;
    far.idle()?;
    rig.forget_events();
    rig.end()
}

fn polled_at_once(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, limited(rig, 2)?);
    rig.connect(&near, &far)?;
    for n in 0..20 {
        far.recv(n, &[])?;
        near.post(n, SEND, &[])?;
        // Before the sender polls: the thread that polls may itself take the message from the stream.
        far.done(n, WcOpcode::Recv)?;
        near.done(n, WcOpcode::Send)?;
    }
    armed("with all that arrived polled", &far, 2)?;
    messages(&near, &far, 2)?;
    armed("with 2 receives taken and not polled", &far, 2)?;
    exceeded(&near, &far)
}

fn set_late(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, limited(rig, DEPTH - 1)?);
    rig.connect(&near, &far)?;
    messages(&near, &far, 3)?;
    armed("with 3 receives taken and not polled", &far, DEPTH - 1)?;
    let set = |limit| {
        let recv_limit = Some(limit);
        let (ord, ird, send_depth, recv_depth) = (None, None, None, None);
        far.qp.modify(QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit })
    };
    set(3)?;
    armed("with 3 receives taken and not polled", &far, 3)?;
    set(2)?;
    same("event of a limit of 2, with 3 taken", far.event()?, AsyncEvent::RecvLimit)?;
    set(3)?;
    armed("set again, with 3 receives taken and not polled", &far, 3)?;
    exceeded(&near, &far)
}

fn other_gone(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, limited(rig, 2)?);
    rig.connect(&near, &far)?;
    let mut init = rig.qp_init(far.pd, far.cq.id());
    init.recv_limit = 1;
    let other = rig.rnic.create_qp(&init)?;
    messages(&near, &far, 2)?;
    rig.rnic.destroy_qp(other.id())?;
    (0..2).try_for_each(|n| far.done(n, WcOpcode::Recv).map(drop))?;
    messages(&near, &far, 2)?;
    armed("with 2 of 4 receives polled", &far, 2)?;
    exceeded(&near, &far)
}

fn flushed(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, limited(rig, 5)?);
    rig.connect(&near, &far)?;
    let near = anew(&far, 3)?;
    rig.connect(&near, &far)?;
    messages(&near, &far, 2)?;
    for _ in 0..3 {
        same("a receive of the earlier stream", far.completion()?.status, WcStatus::Flushed)?;
    }
    messages(&near, &far, 3)?;
    armed("with 5 receives taken and not polled", &far, 5)?;
    exceeded(&near, &far)
}

fn discarded(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, limited(rig, 5)?);
    rig.connect(&near, &far)?;
    messages(&near, &far, 3)?;
    let near = anew(&far, 2)?;
    far.qp.modify(QpChange::Discard)?;
    rig.connect(&near, &far)?;
    messages(&near, &far, 5)?;
    armed("with 5 receives taken, and 5 discarded", &far, 5)?;
    exceeded(&near, &far)
}
