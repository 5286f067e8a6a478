//! Cases about the end of connections: by a close, by an error, by destruction. Every request completes.

use std::time::Duration;

use vp_api::*;

use super::states::unanswered;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("error: every posted request completes as flushed", flushed)
        .keeps("RI-74 RI-108 RI-112"),
    Case::new("error: a message longer than its receive breaks both ends", too_long).keeps("RI-75"),
    Case::new("error: a reset is seen by the peer", reset),
    Case::new("destroy: no completion comes afterwards", destroyed).keeps("RI-133"),
    Case::new("destroy: what completed before arrives", arrives).keeps("RI-190"),
    Case::new("destroy: with nothing under way it is a close", closes)
        .keeps("RI-202")
        .only(ConnectionModel::LlpStream),
    Case::new("destroy: with work under way it is a reset", resets)
        .keeps("RI-203")
        .only(ConnectionModel::LlpStream),
    Case::new("close: with work under way it is a bad one", bad_close)
        .keeps("RI-204")
        .only(ConnectionModel::LlpStream),
    Case::new("destroy: its completions leave the CQ, those of others stay", left)
        .keeps("RI-155 RI-154"),
    Case::new("close: graceful, both sides get an event", closed)
        .keeps("RI-34 RI-106")
        .only(ConnectionModel::LlpStream),
    Case::new("drain: what is under way is done first, and nothing more is taken", drained)
        .keeps("RI-211 RI-212")
        .only(ConnectionModel::LlpStream),
    Case::new("drain: work that does not end holds it for its time only", drained_in_time)
        .keeps("RI-204 RI-211")
        .only(ConnectionModel::LlpStream),
    Case::new("close: a peer that does not close holds it for its time only", silent_peer)
        .keeps("RI-12 RI-249")
        .only(ConnectionModel::LlpStream),
    Case::new("native: whatever ends a connection, both sides get an event", native_ends)
        .keeps("RI-118 RI-132")
        .only(ConnectionModel::Native),
    Case::new("disconnect: both sides get an event", disconnected)
        .keeps("RI-118")
        .only(ConnectionModel::Native),
];

/// The next `count` completions, none of which may be a success.
fn all_flushed(end: &End<'_>, count: usize) -> Result<(), Fail> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let wc = end.completion()?;
        if wc.status == WcStatus::Success {
            return Err(format!("request {} succeeded", wc.wr_id).into());
        }
        ids.push(wc.wr_id);
    }
    ids.sort_unstable();
    same("requests that completed", ids, (0..count as u64).collect())
}

fn receives(end: &End<'_>, count: u64) -> Result<(), Fail> {
    (0..count).try_for_each(|n| end.recv(n, &[]))
}

fn flushed(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&near, 6)?;
    receives(&far, 3)?;
    near.qp.modify(QpChange::Error)?;
    all_flushed(&near, 6)?;
    same("state", near.qp.query()?.state, QpState::Error)?;
    all_flushed(&far, 3)
}

fn too_long(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(65, 1)?, far.memory(64)?);
    far.recv(0, &[sink.all()])?;
    near.post(0, SEND, &[source.all()])?;
    let wc = far.completion()?;
    same("the receive", (wc.wr_id, wc.status), (0, WcStatus::Bounds))
}

fn reset(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&far, 1)?;
    near.qp.modify(QpChange::Error)?;
    all_flushed(&far, 1)?;
    match far.qp.query()?.state {
        QpState::Rts => Err("the peer is still in RTS".into()),
        _ => Ok(()),
    }
}

fn destroyed(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&near, 4)?;
    receives(&far, 2)?;
    rig.rnic.destroy_qp(near.qp.id())?;
    all_flushed(&far, 2)?;
    let mut out = [WorkCompletion::BLANK; 4];
    same("completions after it", near.cq.poll(&mut out)?, 0)
}

/// Enough data that some of it is still in flight when the last request has completed.
fn arrives(rig: &Rig) -> Result<(), Fail> {
    const COUNT: u64 = 8;
    const LEN: usize = 1 << 20;
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(LEN, 3)?, far.memory(COUNT as usize * LEN)?);
    let at = |n: u64| n as usize * LEN;
    (0..COUNT).try_for_each(|n| far.recv(n, &[sink.sge(at(n), LEN)]))?;
    (0..COUNT).try_for_each(|n| near.post(n, SEND, &[source.all()]))?;
    (0..COUNT).try_for_each(|n| near.done(n, WcOpcode::Send).map(drop))?;
    rig.rnic.destroy_qp(near.qp.id())?;
    for n in 0..COUNT {
        far.done(n, WcOpcode::Recv)?;
        sink.holds("what was sent before", at(n), &crate::rig::pattern(LEN, 3))?;
    }
    Ok(())
}

fn closes(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    rig.rnic.destroy_qp(near.qp.id())?;
    same("the peer's event", far.event()?, AsyncEvent::CloseComplete)
}

/// Reads so much that it stays in progress for a while.
fn long_read(near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
    const LEN: usize = 16 << 20;
    let (source, sink) = (far.memory(LEN)?, near.memory(LEN)?);
    near.post(1, SendOp::Read { remote: source.remote(0), invalidate_sink: false }, &[sink.all()])
}

/// Number of attempts: the read may have ended before the connection did.
const TRIES: u32 = 8;

/// Whether an event says that a stream did not end in an orderly way.
fn is_abrupt(event: AsyncEvent) -> bool {
    use AsyncEvent::{BadClose, ConnectionLost, ConnectionReset};
    matches!(event, ConnectionReset | ConnectionLost | BadClose)
}

fn resets(rig: &Rig) -> Result<(), Fail> {
    for _ in 0..TRIES {
        let (near, far) = rig.pair()?;
        long_read(&near, &far)?;
        rig.rnic.destroy_qp(near.qp.id())?;
        if is_abrupt(far.event()?) {
            return Ok(());
        }
    }
    Err("a QP was destroyed while it read, and its peer got no reset".into())
}

fn bad_close(rig: &Rig) -> Result<(), Fail> {
    for _ in 0..TRIES {
        let (near, far) = rig.pair()?;
        long_read(&near, &far)?;
        near.qp.modify(QpChange::Closing)?;
        if near.event()? == AsyncEvent::BadClose {
            return same("whether the peer got a reset", is_abrupt(far.event()?), true);
        }
    }
    Err("a QP was closed while it read, and the event is none of a bad close".into())
}

/// Destroys QPs one after the other, with a CQ that is not polled.
const IN_TURN: usize = 32;

/// Flushed receives of each QP; fewer if the device has no room for them.
const LEFT: u32 = 16;

fn left(rig: &Rig) -> Result<(), Fail> {
    let depth = LEFT.min(rig.attrs.max_wr_per_qp);
    let cq = rig.rnic.create_cq(&CqInit { depth: 4 * depth, handler: None })?;
    let flushed = |count: u32| {
        let pd = rig.rnic.alloc_pd()?;
        let mut init = rig.qp_init(pd, cq.id());
        (init.send_depth, init.recv_depth) = (depth, depth);
        let near = End { rig, pd, cq: cq.clone(), qp: rig.rnic.create_qp(&init)? };
        rig.connect(&near, &rig.end()?)?;
        receives(&near, count.into())?;
        near.qp.modify(QpChange::Error)?;
        rig.until("the error state", || Ok(near.qp.query()?.state == QpState::Error))?;
        Ok::<_, Fail>(near)
    };
    let stays = flushed(2)?;
    for _ in 0..IN_TURN {
        let goes = flushed(depth)?;
        rig.rnic.destroy_qp(goes.qp.id())?;
    }
    for id in 0..2 {
        let wc = stays.completion()?;
        same("completion", (wc.qp, wc.wr_id), (stays.qp.id(), id))?;
    }
    same("completions behind them", cq.poll(&mut [WorkCompletion::BLANK; 4])?, 0)
}

fn closed(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&near, 2)?;
    receives(&far, 2)?;
    near.qp.modify(QpChange::Closing)?;
    for end in [&near, &far] {
        same("event", end.event()?, AsyncEvent::CloseComplete)?;
        all_flushed(end, 2)?;
        same("state", end.qp.query()?.state, QpState::Idle)?;
    }
    Ok(())
}

fn drained(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, rig.end()?);
    match near.qp.modify(QpChange::Drain) {
        Err(why) if why.status == VpStatus::Unsupported => return Ok(()),
        early => refused("a drain in Idle", early, VpStatus::InvalidState)?,
    }
    rig.connect(&near, &far)?;
    receives(&far, 2)?;
    long_read(&near, &far)?;
    near.post(2, SEND, &[])?;
    near.qp.modify(QpChange::Drain)?;
    let wr = SendWr { wr_id: 3, op: SEND, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
    let posted = near.qp.post_send(&[wr]);
    near.done(1, WcOpcode::Read)?;
    near.done(2, WcOpcode::Send)?;
    match posted {
        // It has closed already.
        Ok(()) => same("a post behind a drain", near.completion()?.status, WcStatus::Flushed)?,
        still => refused("a post behind a drain", still, VpStatus::InvalidState)?,
    }
    far.done(0, WcOpcode::Recv)?;
    for end in [&near, &far] {
        same("event", end.event()?, AsyncEvent::CloseComplete)?;
    }
    Ok(())
}

/// The time that a close may take; the suite waits much longer.
const CLOSE: Duration = Duration::from_millis(50);

/// The peer takes a read request, and never answers.
fn drained_in_time(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let params = StreamParams { close_timeout: CLOSE, ..StreamParams::new(Role::Initiator) };
    let _peer = unanswered(&end, params)?;
    same("event", end.event()?, AsyncEvent::Established)?;
    let sink = end.memory(8)?;
    let remote = Remote { stag: Stag(0x100), to: 0 };
    end.post(0, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()])?;
    match end.qp.modify(QpChange::Drain) {
        Err(why) if why.status == VpStatus::Unsupported => return Ok(()),
        begun => begun?,
    }
    same("event of the end", end.event()?, AsyncEvent::BadClose)?;
    all_flushed(&end, 1)
}

/// The peer takes octets, and never closes.
fn silent_peer(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let params = StreamParams { close_timeout: CLOSE, ..StreamParams::new(Role::Initiator) };
    let _peer = unanswered(&end, params)?;
    same("event", end.event()?, AsyncEvent::Established)?;
    receives(&end, 2)?;
    end.qp.modify(QpChange::Closing)?;
    match end.qp.modify(QpChange::Drain) {
        Err(why) if why.status == VpStatus::Unsupported => {}
        late => refused("a drain in Closing", late, VpStatus::InvalidState)?,
    }
    same("event of the end", end.event()?, AsyncEvent::ConnectionLost)?;
    all_flushed(&end, 2)
}

fn both_disconnected(near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
    let cm = near.rig.cm()?;
    let mut open = vec![near.qp.id(), far.qp.id()];
    while !open.is_empty() {
        match cm.next()? {
            NativeEvent::Disconnected { qp } => open.retain(|id| *id != qp),
            other => return Err(format!("{other:?} where disconnected is expected").into()),
        }
    }
    Ok(())
}

fn native_ends(rig: &Rig) -> Result<(), Fail> {
    for change in [QpChange::Error, QpChange::Terminate, QpChange::Closing] {
        let what = format!("{change:?}");
        let (near, far) = rig.pair()?;
        receives(&near, 2)?;
        receives(&far, 3)?;
        near.qp.modify(change)?;
        let told = both_disconnected(&near, &far);
        told.map_err(|Fail(why)| Fail(format!("{what}: {why}")))?;
        for (end, count) in [(&near, 2), (&far, 3)] {
            all_flushed(end, count)?;
            same("state", end.qp.query()?.state, QpState::Error)?;
            // Once more it is nothing: no second event comes before those of the next connection.
            end.qp.modify(QpChange::Error)?;
        }
        if let Some(event) = rig.cm()?.0.poll_event() {
            return Err(format!("{what}: {event:?} behind the end").into());
        }
        near.idle()?;
        far.idle()?;
        rig.connect(&near, &far)?;
        far.recv(1, &[])?;
        near.post(2, SEND, &[])?;
        near.done(2, WcOpcode::Send)?;
        far.done(1, WcOpcode::Recv)?;
        rig.rnic.destroy_qp(near.qp.id())?;
        // That of the destroyed QP comes or not.
        let ends = |event| matches!(event, NativeEvent::Disconnected { qp } if qp == far.qp.id());
        while !ends(rig.cm()?.next()?) {}
    }
    Ok(())
}

fn disconnected(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&far, 2)?;
    rig.cm()?.0.disconnect(near.qp.id())?;
    both_disconnected(&near, &far)?;
    all_flushed(&far, 2)
}
