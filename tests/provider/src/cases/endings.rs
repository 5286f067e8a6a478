//! How connections end: by a close, by an error, by destruction. Every request completes.

use vp_api::*;

use crate::fail::same;
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("error: every posted request completes as flushed", flushed),
    Case::new("error: a message longer than its receive breaks both ends", too_long),
    Case::new("error: a reset is seen by the peer", reset),
    Case::new("destroy: no completion comes afterwards", destroyed),
    Case::new("close: graceful, both sides are told", closed).only(ConnectionModel::LlpStream),
    Case::new("disconnect: both sides are told", disconnected).only(ConnectionModel::Native),
];

/// The next `count` completions, none a success.
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

fn disconnected(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    receives(&far, 2)?;
    let cm = rig.cm()?;
    cm.0.disconnect(near.qp.id())?;
    let mut open = vec![near.qp.id(), far.qp.id()];
    while !open.is_empty() {
        match cm.next()? {
            NativeEvent::Disconnected { qp } => open.retain(|id| *id != qp),
            other => return Err(format!("{other:?} where disconnected is expected").into()),
        }
    }
    all_flushed(&far, 2)
}
