//! Corner cases of completion queues: overruns, errors that count as solicited, depths that do not fit.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use vp_api::*;

use super::queues::{Bell, no_more};
use crate::fail::same;
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("cq: an overrun is reported", overrun)
        .keeps("RI-38 RI-86")
        .with(Capabilities::CQ_OVERRUN_EVENT),
    Case::new("cq: an overrun by a message ends the queue pairs that are left", overrun_by_message)
        .keeps("RI-38")
        .with(Capabilities::CQ_OVERRUN_EVENT)
        .only(ConnectionModel::LlpStream),
    Case::new("cq: an error counts as solicited", error_solicited).keeps("RI-88"),
    Case::new("cq: without arming no handler is called", not_armed).keeps("RI-80"),
    Case::new("cq: one arming, one call", one_call).keeps("RI-80 RI-87"),
    Case::new("cq: a wait ends with a completion", wait_ends).keeps("RI-89"),
    Case::new("cq: a wait without a time ends with its own completion", wait_for_ever)
        .keeps("RI-89"),
    Case::new("cq: a wait ends with what a call of another thread completes", wait_for_call)
        .keeps("RI-89"),
    Case::new("cq: says how many wait", queued).keeps("RI-93"),
    Case::new("cq: of many queue pairs each completion is polled once", many_members)
        .keeps("RI-83 RI-143"),
    Case::new("cq: does not shrink below what it holds", shrink)
        .keeps("RI-20 RI-92")
        .with(Capabilities::CQ_RESIZE),
    Case::new("cq: is resized as it says", resize_counts)
        .keeps("RI-92")
        .with(Capabilities::CQ_RESIZE),
];

/// Makes `count` receives that are flushed and not polled.
fn flush(end: &End<'_>, count: u64) -> Result<(), Fail> {
    (0..count).try_for_each(|n| end.recv(n, &[]))?;
    Ok(end.qp.modify(QpChange::Error)?)
}

fn overrun(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, rig.end()?);
    let small = rig.rnic.create_cq(&CqInit { depth: 4, handler: None })?;
    let victim = rig.end_with(None, |init| init.recv_cq = small.id())?;
    rig.connect(&near, &victim)?;
    drop(far);
    let fits = u64::from(small.depth());
    if fits >= u64::from(victim.qp.query()?.recv_depth) {
        return Ok(()); // The smallest CQ of this device holds a whole queue.
    }
    flush(&victim, fits + 1)?;
    same("event", rig.events.next(EventSource::Cq(small.id()))?, AsyncEvent::CqOverrun)?;
    let mut out = [WorkCompletion::BLANK; 8];
    let mut seen = 0;
    loop {
        match small.poll(&mut out) {
            Ok(0) => return Err("an overrun CQ is empty, and poll does not say so".into()),
            Ok(n) => seen += n,
            Err(status) => {
                same("status of the drained CQ", status, VpStatus::CqOverrun)?;
                return same("completions before it", seen as u64, fits);
            }
        }
    }
}

/// With streams only: adapters keep completions in places of their own.
fn overrun_by_message(rig: &Rig) -> Result<(), Fail> {
    let small = rig.rnic.create_cq(&CqInit { depth: 4, handler: None })?;
    let [gone, near, left, other, silent] = [true, false, true, false, true].map(|on_small| {
        rig.end_with(None, |init| {
            if on_small {
                init.recv_cq = small.id();
            }
        })
    });
    let (near, left, other, silent) = (near?, left?, other?, silent?);
    rig.rnic.destroy_qp(gone?.qp.id())?;
    rig.connect(&near, &left)?;
    rig.connect(&other, &silent)?;
    let fits = u64::from(small.depth());
    if fits >= u64::from(left.qp.query()?.recv_depth) {
        return Ok(()); // The smallest CQ of this device holds a whole queue.
    }
    // One by one, so that the last one finds the CQ full and nothing else to do.
    for n in 0..fits {
        left.recv(n, &[])?;
        near.post(n, SEND, &[])?;
        near.done(n, WcOpcode::Send)?;
    }
    rig.until("a full CQ", || Ok(small.queued() as u64 == fits))?;
    left.recv(fits, &[])?;
    near.post(fits, SEND, &[])?;
    same("event", rig.events.next(EventSource::Cq(small.id()))?, AsyncEvent::CqOverrun)?;
    [("lost the completion", left), ("uses the CQ", silent)].iter().try_for_each(|(what, end)| {
        rig.until(&format!("the end of a queue pair that {what}"), || {
            Ok(end.qp.query()?.state != QpState::Rts)
        })
    })
}

fn error_solicited(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    far.cq.arm(true)?;
    flush(&far, 1)?;
    bell.wait(1, rig.wait)
}

fn not_armed(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    far.done(1, WcOpcode::Recv)?;
    same("notifications of a CQ that was never armed", bell.rings(), 0)?;
    no_more(&near, &far, &bell, 0)
}

fn one_call(rig: &Rig) -> Result<(), Fail> {
    let bell = Arc::new(Bell::default());
    let (near, far) = (rig.end()?, rig.end_with(Some(bell.clone()), |_| {})?);
    rig.connect(&near, &far)?;
    for round in 1..=3 {
        far.cq.arm(false)?;
        for n in 0..4 {
            far.recv(n, &[])?;
            near.post(n, SEND, &[])?;
        }
        bell.wait(round, rig.wait)?;
        for n in 0..4 {
            far.done(n, WcOpcode::Recv)?;
            near.done(n, WcOpcode::Send)?;
        }
        same("notifications, one for each arming", bell.rings(), round)?;
    }
    no_more(&near, &far, &bell, 3)
}

fn wait_ends(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    // The completion may be there at once, or arrive during the wait.
    if !far.cq.wait(Duration::ZERO, Some(rig.wait))? {
        return Err(
            format!("a receive is due, and a wait of {:?} says nothing came", rig.wait).into()
        );
    }
    far.done(1, WcOpcode::Recv).map(|_| ())
}

/// Completions of another CQ come first; they must not end the wait.
fn wait_for_ever(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let ((to, ended), cq) = (channel(), far.cq.clone());
    // Left behind if it does not end.
    std::thread::spawn(move || to.send(cq.wait(Duration::ZERO, None)));
    for n in 0..4 {
        near.post(n, SendOp::Write { remote: Remote { stag: Stag(0x100), to: 0 } }, &[])?;
        near.done(n, WcOpcode::Write)?;
        if let Ok(waited) = ended.recv_timeout(Duration::from_millis(5)) {
            return Err(format!("{waited:?}, and nothing completed there").into());
        }
    }
    far.recv(1, &[])?;
    near.post(9, SEND, &[])?;
    match ended.recv_timeout(rig.wait) {
        Ok(waited) => same("something to poll", waited?, true)?,
        Err(_) => {
            return Err(format!("the wait goes on {:?} after its completion", rig.wait).into());
        }
    }
    far.done(1, WcOpcode::Recv).map(drop)
}

/// Ends with what a wait for a CQ returns. It is left behind if it does not end.
fn waiting(end: &End<'_>) -> Result<Receiver<Result<bool, VpStatus>>, Fail> {
    let ((to, ended), cq) = (channel(), end.cq.clone());
    std::thread::spawn(move || to.send(cq.wait(Duration::ZERO, None)));
    match ended.recv_timeout(Duration::from_millis(20)) {
        Ok(waited) => Err(format!("{waited:?}, and nothing completed there").into()),
        Err(_) => Ok(ended),
    }
}

fn ends_with_a_flush(end: &End<'_>, ended: &Receiver<Result<bool, VpStatus>>) -> Result<(), Fail> {
    let wait = end.rig.wait;
    let waited = ended.recv_timeout(wait);
    let waited = waited.map_err(|_| format!("the wait goes on {wait:?} after its completion"))?;
    same("something to poll", waited?, true)?;
    same("the receive", end.completion()?.status, WcStatus::Flushed)
}

fn wait_for_call(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    near.qp.modify(QpChange::Error)?;
    rig.until("the end at the peer", || Ok(far.qp.query()?.state != QpState::Rts))?;
    // Nothing comes from the network any more.
    let ended = waiting(&near)?;
    near.recv(1, &[])?;
    ends_with_a_flush(&near, &ended)?;
    // Both ends wait. One is ended by a call, the other when it learns of that.
    let (near, far) = rig.pair()?;
    near.recv(1, &[])?;
    far.recv(1, &[])?;
    let ended = [waiting(&near)?, waiting(&far)?];
    near.qp.modify(QpChange::Error)?;
    ends_with_a_flush(&near, &ended[0])?;
    ends_with_a_flush(&far, &ended[1])
}

fn queued(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    for n in 0..3 {
        near.post(n, SendOp::Write { remote: Remote { stag: Stag(0x100), to: 0 } }, &[])?;
    }
    near.cq.wait(Duration::ZERO, Some(rig.wait))?;
    flush(&far, 3)?;
    // A provider of version 1.0 returns 0.
    let found = far.cq.queued();
    (0..3).try_for_each(|_| far.completion().map(|_| ()))?;
    match found {
        3 => same("completions that wait, when all were polled", far.cq.queued(), 0),
        0 if rig.attrs.connection_model == ConnectionModel::Native => Ok(()),
        other => Err(format!("3 completions wait, and the CQ says {other}").into()),
    }
}

/// More than a provider polls one by one.
const MEMBERS: usize = 12;

fn many_members(rig: &Rig) -> Result<(), Fail> {
    const EACH: u64 = 3;
    let count = MEMBERS.min(rig.attrs.max_qp as usize / 2).min(rig.attrs.max_cqe as usize / 8);
    let shared = rig.rnic.create_cq(&CqInit { depth: 4 * count as u32, handler: None })?;
    let mut ends = Vec::new();
    for _ in 0..count {
        let depth = 4.min(rig.attrs.max_wr_per_qp);
        let far = rig.end_with(None, |init| {
            (init.recv_cq, init.send_depth, init.recv_depth) = (shared.id(), depth, depth);
        })?;
        let near =
            rig.end_with(None, |init| (init.send_depth, init.recv_depth) = (depth, depth))?;
        rig.connect(&near, &far)?;
        ends.push((near, far));
    }
    for (near, far) in &ends {
        for n in 0..EACH {
            far.recv(n, &[])?;
            near.post(n, SEND, &[])?;
            near.done(n, WcOpcode::Send)?;
        }
    }
    let mut left = count * EACH as usize;
    let mut next = vec![0; count];
    let (mut out, begin) = ([WorkCompletion::BLANK; 7], Instant::now());
    while left != 0 {
        let found = shared.poll(&mut out)?;
        for wc in &out[..found] {
            let of = ends.iter().position(|(_, far)| far.qp.id() == wc.qp);
            let of = of.ok_or_else(|| format!("a completion of queue pair {}", wc.qp.0))?;
            same("completion", (wc.wr_id, wc.status), (next[of], WcStatus::Success))?;
            next[of] += 1;
        }
        left = left.saturating_sub(found);
        if found == 0 && begin.elapsed() > rig.wait {
            return Err(format!("{left} completions of receives did not come").into());
        }
    }
    same("completions behind them", shared.poll(&mut out)?, 0)
}

fn shrink(rig: &Rig) -> Result<(), Fail> {
    let (_near, far) = rig.pair()?;
    flush(&far, 20)?;
    let before = far.cq.depth();
    match far.cq.resize(4).map_err(|why| why.status) {
        Err(status) => {
            same("resize to 4 with 20 waiting", status, VpStatus::CqTooSmall)?;
            same("depth after a resize that was refused", far.cq.depth(), before)?;
        }
        // A device may give more than was requested.
        Ok(actual) if actual >= 20 => {}
        Ok(actual) => return Err(format!("20 wait, and the CQ was made to hold {actual}").into()),
    }
    (0..20).try_for_each(|_| far.completion().map(|_| ()))
}

fn resize_counts(rig: &Rig) -> Result<(), Fail> {
    let cq = rig.rnic.create_cq(&CqInit { depth: 16, handler: None })?;
    let actual = cq.resize(cq.depth() + 50)?;
    same("depth after the resize", cq.depth(), actual)
}
