//! Cases about late receives: a QP created to hold Sends keeps those that arrived before a receive was posted.

use std::time::Duration;

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND, next, pattern};
use crate::{Case, Fail};

const HOLD: Capabilities = Capabilities::HOLD;

pub(crate) const CASES: &[Case] = &[
    Case::new("hold: Sends wait for their receives, in order", waits)
        .keeps("RI-216 RI-217")
        .with(HOLD),
    Case::new("hold: what is behind a Send that waits goes on", goes_on).keeps("RI-218").with(HOLD),
    Case::new("hold: Sends wait for receives of an SRQ", waits_for_srq)
        .keeps("RI-219")
        .with(HOLD.union(Capabilities::SRQ)),
    Case::new("hold: a Send waits no longer than it may", ends).keeps("RI-220").with(HOLD),
    Case::new("hold: of nothing, or for no time, it is refused", nothing)
        .keeps("RI-221")
        .with(HOLD),
    Case::new("hold: without the capability it is refused", not_offered).keeps("RI-222"),
];

const LEN: usize = 100;

/// A long time, and enough octets.
const PATIENT: Unready = Unready::Hold { octets: 64 << 10, time: Duration::from_secs(60) };

/// Two connected ends, the second of which holds Sends.
fn pair(rig: &Rig, unready: Unready) -> Result<(End<'_>, End<'_>), Fail> {
    let ends = (rig.end()?, rig.end_with(None, |init| init.unready = unready)?);
    rig.connect(&ends.0, &ends.1)?;
    Ok(ends)
}

/// Reads from the peer, twice: what the peer sent before the second read has arrived then.
fn read_behind(end: &End<'_>, peer: &End<'_>) -> Result<(), Fail> {
    let (source, sink) = (peer.pattern(LEN, 9)?, end.memory(LEN)?);
    for n in [100, 101] {
        let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        end.post(n, op, &[sink.all()])?;
        end.done(n, WcOpcode::Read)?;
    }
    sink.holds("what was read behind it", 0, &pattern(LEN, 9))
}

fn waits(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig, PATIENT)?;
    let source = near.pattern(3 * LEN, 1)?;
    for n in 0..3 {
        near.post(n, SEND, &[source.sge(n as usize * LEN, LEN)])?;
        near.done(n, WcOpcode::Send)?;
    }
    read_behind(&far, &near)?;
    let sink = far.memory(3 * LEN)?;
    let sges = [0, 1, 2].map(|n| [sink.sge(n * LEN, LEN)]);
    let wrs = [0, 1, 2].map(|n| RecvWr { wr_id: n as u64, sgl: &sges[n] });
    far.qp.post_recv(&wrs)?;
    for n in 0..3 {
        same("octets", far.done(n, WcOpcode::Recv)?.octets, LEN as u32)?;
    }
    sink.holds("what was sent", 0, &pattern(3 * LEN, 1))
}

fn goes_on(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = pair(rig, PATIENT)?;
    near.post(1, SEND, &[])?;
    near.done(1, WcOpcode::Send)?;
    read_behind(&far, &near)?;
    let (source, target) = (near.pattern(LEN, 4)?, far.memory(LEN)?);
    near.post(2, SendOp::Write { remote: target.remote(0) }, &[source.all()])?;
    near.done(2, WcOpcode::Write)?;
    rig.until("what was written", || Ok(target.read(0, LEN)? == pattern(LEN, 4)))?;
    far.recv(3, &[])?;
    far.done(3, WcOpcode::Recv).map(drop)
}

fn waits_for_srq(rig: &Rig) -> Result<(), Fail> {
    let (pd, max_sge) = (rig.rnic.alloc_pd()?, 1);
    let srq = rig.rnic.create_srq(&SrqInit { pd, depth: 4, max_sge, limit: 0 })?;
    let ends = (rig.end()?, {
        rig.end_with(None, |init| {
            (init.pd, init.srq, init.unready) = (pd, Some(srq.id()), PATIENT);
        })?
    });
    let (near, far) = &ends;
    rig.connect(near, far)?;
    near.post(1, SEND, &[])?;
    near.done(1, WcOpcode::Send)?;
    read_behind(&End { pd, rig, cq: far.cq.clone(), qp: far.qp.clone() }, near)?;
    srq.post_recv(&[RecvWr { wr_id: 2, sgl: &[] }])?;
    let wc = next(&*far.cq, rig.wait)?;
    same("completion", (wc.wr_id, wc.status, wc.qp), (2, WcStatus::Success, far.qp.id()))
}

fn ends(rig: &Rig) -> Result<(), Fail> {
    let brief = Unready::Hold { octets: 64 << 10, time: Duration::from_millis(50) };
    let (near, far) = pair(rig, brief)?;
    near.post(1, SEND, &[])?;
    for (end, sent) in [(&far, true), (&near, false)] {
        match end.event()? {
            AsyncEvent::TerminateSent(why) | AsyncEvent::TerminateReceived(why) => {
                let found = (why.sent, why.layer, why.etype, why.code);
                same("the Terminate", found, (sent, 1, 2, 2))?;
            }
            other => return Err(format!("{other:?} where a Terminate is expected").into()),
        }
    }
    Ok(())
}

fn nothing(rig: &Rig) -> Result<(), Fail> {
    let second = Duration::from_secs(1);
    let most = Duration::from_nanos(u64::MAX);
    let end = rig.end()?;
    for (octets, time) in [(0, second), (1024, Duration::ZERO), (0, Duration::ZERO), (1024, most)] {
        let unready = Unready::Hold { octets, time };
        let init = QpInit { unready, ..rig.qp_init(end.pd, end.cq.id()) };
        let made = rig.rnic.create_qp(&init);
        refused(&format!("{octets} octets for {time:?}"), made, VpStatus::InvalidModifier)?;
    }
    Ok(())
}

fn not_offered(rig: &Rig) -> Result<(), Fail> {
    if rig.offers(HOLD) {
        return Ok(());
    }
    let end = rig.end()?;
    let init = QpInit { unready: PATIENT, ..rig.qp_init(end.pd, end.cq.id()) };
    refused("a QP that holds", rig.rnic.create_qp(&init), VpStatus::Unsupported)
}
