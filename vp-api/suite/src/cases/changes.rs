//! Cases about limits of queue pairs that change: each by itself, with requests posted, and in RTS.

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("limits: each changes by itself, and counts", alone)
        .keeps("RI-110")
        .with(Capabilities::QP_RESIZE),
    Case::new("limits: requests that are posted stay, whichever limit changes", posted_stay)
        .keeps("RI-110 RI-111")
        .with(Capabilities::QP_RESIZE),
    Case::new("limits: in RTS the ORD goes down, and no depth changes", in_rts)
        .keeps("RI-251")
        .with(Capabilities::QP_RESIZE),
];

const NAMES: [&str; 4] = ["ORD", "IRD", "send depth", "receive depth"];

/// The limits, in the order of [`NAMES`].
fn limits(end: &End<'_>) -> Result<[u32; 4], Fail> {
    let info = end.qp.query()?;
    Ok([info.ord.into(), info.ird.into(), info.send_depth, info.recv_depth])
}

/// A change of one limit, by its place in [`NAMES`].
fn one(place: usize, value: u32) -> QpChange {
    let depth = |at| (place == at).then_some(value);
    let reads = |at| depth(at).map(|value| value as u16);
    QpChange::Limits {
        ord: reads(0),
        ird: reads(1),
        send_depth: depth(2),
        recv_depth: depth(3),
        recv_limit: None,
    }
}

fn alone(rig: &Rig) -> Result<(), Fail> {
    let depth = 4.min(rig.attrs.max_wr_per_qp);
    let near = rig.end_with(None, |init| (init.send_depth, init.recv_depth) = (depth, depth))?;
    let [ord, ird, sends, receives] = limits(&near)?;
    let deeper = |depth: u32| (depth + 8).min(rig.attrs.max_wr_per_qp);
    let wanted = [ord.saturating_sub(1), ird.saturating_sub(1), deeper(sends), deeper(receives)];
    for (place, value) in wanted.into_iter().enumerate() {
        let before = limits(&near)?;
        near.qp.modify(one(place, value))?;
        for (at, (old, new)) in before.into_iter().zip(limits(&near)?).enumerate() {
            let what = format!("the {} after a change of the {} alone", NAMES[at], NAMES[place]);
            match at == place {
                true if at > 1 && new > value => {}
                true => same(&what, new, value)?,
                false => same(&what, new, old)?,
            }
        }
    }
    let far = rig.end()?;
    rig.connect(&near, &far)?;
    let [_, _, sends, receives] = limits(&near)?;
    (0..receives).try_for_each(|n| near.recv(n.into(), &[]))?;
    let more = near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]);
    refused("a receive more than the new depth", more, VpStatus::TooManyWrs)?;
    // A slot is taken until its completion is polled. Of no octets nothing is checked.
    let op = SendOp::Write { remote: Remote { stag: Stag(0x100), to: 0 } };
    (0..sends).try_for_each(|n| near.post(n.into(), op.clone(), &[]))?;
    let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
    refused("a send more than the new depth", near.qp.post_send(&[wr]), VpStatus::TooManyWrs)?;
    (0..sends).try_for_each(|n| near.done(n.into(), WcOpcode::Write).map(drop))
}

/// A change may be refused because of them. Otherwise they are executed as ever.
fn posted_stay(rig: &Rig) -> Result<(), Fail> {
    for (place, name) in NAMES.iter().enumerate() {
        let what = format!("behind a change of the {name}");
        let (near, far) = (rig.end()?, rig.end()?);
        let wr =
            |wr_id| SendWr { wr_id, op: SEND, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
        match near.qp.post_send(&[wr(0), wr(1)]) {
            // Not every RNIC takes requests before it is connected.
            Err(PostFailure { status: VpStatus::InvalidState, posted: 0 }) => return Ok(()),
            posted => posted?,
        }
        near.recv(2, &[])?;
        let value = limits(&near)?[place];
        let _ =
            near.qp.modify(one(place, if place < 2 { value.saturating_sub(1) } else { value + 1 }));
        let info = near.qp.query()?;
        let found = (info.sends_outstanding, info.recvs_outstanding);
        same(&format!("sends and receives outstanding {what}"), found, (2, 1))?;
        (0..2).try_for_each(|n| far.recv(n, &[]))?;
        rig.connect(&near, &far)?;
        for n in 0..2 {
            let told = near.done(n, WcOpcode::Send).and_then(|_| far.done(n, WcOpcode::Recv));
            told.map_err(|Fail(why)| Fail(format!("a Send that was posted {what}: {why}")))?;
        }
        far.post(3, SEND, &[])?;
        far.done(3, WcOpcode::Send)?;
        near.done(2, WcOpcode::Recv)?;
    }
    Ok(())
}

fn in_rts(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let before = limits(&near)?;
    let [ord, ..] = before;
    let more = near.qp.modify(one(0, ord + 1));
    refused("a greater ORD in RTS", more, VpStatus::InvalidIrdOrd)?;
    for (place, what) in NAMES.iter().enumerate().skip(1) {
        let changed = near.qp.modify(one(place, before[place].saturating_sub(1)));
        refused(&format!("another {what} in RTS"), changed, VpStatus::CannotChange)?;
    }
    same("ORD, IRD and depths behind refused changes", limits(&near)?, before)?;
    let less = ord.min(1);
    near.qp.modify(one(0, less))?;
    let [_, rest @ ..] = before;
    let [now, others @ ..] = limits(&near)?;
    same("ORD, and what was not named", (now, others), (less, rest))?;
    let again = near.qp.modify(one(0, ord));
    if ord > less {
        refused("the earlier ORD in RTS", again, VpStatus::InvalidIrdOrd)?;
    }
    // Reads beyond it wait for their turn.
    let (source, sink) = (far.pattern(64, 3)?, near.memory(64)?);
    for n in 0..4 {
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        near.post(n, op, &[sink.sge(16 * n as usize, 16)])?;
    }
    (0..4).try_for_each(|n| near.done(n, WcOpcode::Read).map(drop))
}
