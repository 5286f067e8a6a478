//! Cases about queue pairs that the consumer connects itself: bring-up by path, without the connection manager.

use std::sync::Arc;

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, pattern};
use crate::{Case, Fail};

pub(crate) const CASES: &[Case] = &[
    Case::new("path: a number is there before a peer, and stays", numbers)
        .keeps("RI-230")
        .by_path(),
    Case::new("path: an end receives first, and sends then", in_two_steps)
        .keeps("RI-231 RI-232 RI-233")
        .by_path(),
    Case::new("path: reads, and the depths of both ends", reads).keeps("RI-234").by_path(),
    Case::new("path: each number has its range", ranges).keeps("RI-235").by_path(),
    Case::new("path: out of order it is refused", out_of_order).keeps("RI-231 RI-232").by_path(),
    Case::new("path: after a reset a queue pair is brought up again", again)
        .keeps("RI-230")
        .by_path(),
    Case::new("path: a queue pair that is gone has none", gone).keeps("RI-236").by_path(),
];

/// Octets of a message, in several packets.
const LEN: usize = 3000;

fn paths(rig: &Rig) -> Result<Arc<dyn Paths>, Fail> {
    rig.rnic.paths().ok_or_else(|| "there is no bring-up by path".into())
}

/// First PSNs of the two ends: the first one wraps early.
const PSN: [u32; 2] = [0x00ff_ffff, 77];

/// The path to a queue pair of this device.
fn peer(rig: &Rig, paths: &dyn Paths, end: &End<'_>, psn: u32) -> Result<PeerPath, Fail> {
    let gid = match rig.address() {
        std::net::IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(address) => address.octets(),
    };
    Ok(PeerPath {
        local_gid: gid,
        remote_gid: gid,
        qpn: paths.number(end.qp.id())?,
        psn,
        // 512 octets, which every link carries.
        mtu_code: 2,
        ird: 1.min(rig.attrs.max_ird),
        min_rnr_timer: 12,
    })
}

fn sender(rig: &Rig, psn: u32) -> PathSender {
    let ord = 1.min(rig.attrs.max_ord);
    PathSender { psn, ack_timeout: 14, retry_count: 7, rnr_retry: 7, ord }
}

/// Both ends receive, and then send.
fn bring_up(rig: &Rig, paths: &dyn Paths, near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
    paths.receive(near.qp.id(), &peer(rig, paths, far, PSN[1])?)?;
    paths.receive(far.qp.id(), &peer(rig, paths, near, PSN[0])?)?;
    paths.send(near.qp.id(), &sender(rig, PSN[0]))?;
    Ok(paths.send(far.qp.id(), &sender(rig, PSN[1]))?)
}

/// One message that arrives.
fn message(from: &End<'_>, to: &End<'_>, seed: u8) -> Result<(), Fail> {
    let (sent, room) = (from.pattern(LEN, seed)?, to.memory(LEN)?);
    to.recv(1, &[room.all()])?;
    from.post(2, SendOp::Send { solicited: false, invalidate: None }, &[sent.all()])?;
    from.done(2, WcOpcode::Send)?;
    to.done(1, WcOpcode::Recv)?;
    room.holds("message", 0, &pattern(LEN, seed))
}

fn numbers(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let number = paths.number(near.qp.id())?;
    same("number, asked again", paths.number(near.qp.id())?, number)?;
    if number == paths.number(far.qp.id())? {
        return Err("two queue pairs have one number".into());
    }
    bring_up(rig, &*paths, &near, &far)?;
    same("number in RTS", paths.number(near.qp.id())?, number)
}

fn in_two_steps(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let state = |end: &End<'_>| Ok::<_, Fail>(end.qp.query()?.state);
    paths.receive(far.qp.id(), &peer(rig, &*paths, &near, PSN[0])?)?;
    same("state of an end that receives", state(&far)?, QpState::Idle)?;
    paths.receive(near.qp.id(), &peer(rig, &*paths, &far, PSN[1])?)?;
    paths.send(near.qp.id(), &sender(rig, PSN[0]))?;
    same("state of an end that sends", state(&near)?, QpState::Rts)?;
    // The other end is ready to receive only.
    message(&near, &far, 1)?;
    paths.send(far.qp.id(), &sender(rig, PSN[1]))?;
    same("state of an end that sends", state(&far)?, QpState::Rts)?;
    message(&far, &near, 2)
}

fn reads(rig: &Rig) -> Result<(), Fail> {
    let paths = paths(rig)?;
    let few = |init: &mut QpInit| (init.ird, init.ord) = (1, 1);
    let (near, far) = (rig.end_with(None, few)?, rig.end_with(None, few)?);
    let right = peer(rig, &*paths, &near, PSN[0])?;
    let more = PeerPath { ird: 2, ..right };
    refused("IRD", paths.receive(far.qp.id(), &more), VpStatus::InvalidIrdOrd)?;
    paths.receive(far.qp.id(), &right)?;
    paths.receive(near.qp.id(), &peer(rig, &*paths, &far, PSN[1])?)?;
    let right = sender(rig, PSN[0]);
    let more = PathSender { ord: 2, ..right };
    refused("ORD", paths.send(near.qp.id(), &more), VpStatus::InvalidIrdOrd)?;
    paths.send(near.qp.id(), &right)?;
    let (source, sink) = (far.pattern(LEN, 3)?, near.memory(LEN)?);
    let read = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    near.post(5, read, &[sink.all()])?;
    near.done(5, WcOpcode::Read)?;
    sink.holds("what was read", 0, &pattern(LEN, 3))
}

fn ranges(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let right = peer(rig, &*paths, &far, PSN[1])?;
    for (what, wrong) in [
        ("number of the peer", PeerPath { qpn: 1 << 24, ..right }),
        ("PSN of the peer", PeerPath { psn: 1 << 24, ..right }),
        ("path MTU 0", PeerPath { mtu_code: 0, ..right }),
        ("path MTU 6", PeerPath { mtu_code: 6, ..right }),
        ("RNR timer", PeerPath { min_rnr_timer: 32, ..right }),
    ] {
        refused(what, paths.receive(near.qp.id(), &wrong), VpStatus::InvalidModifier)?;
    }
    // What was refused has changed nothing.
    paths.receive(near.qp.id(), &right)?;
    let right = sender(rig, PSN[0]);
    for (what, wrong) in [
        ("PSN", PathSender { psn: 1 << 24, ..right }),
        ("timeout", PathSender { ack_timeout: 32, ..right }),
        ("retries", PathSender { retry_count: 8, ..right }),
        ("retries of RNR", PathSender { rnr_retry: 8, ..right }),
    ] {
        refused(what, paths.send(near.qp.id(), &wrong), VpStatus::InvalidModifier)?;
    }
    Ok(paths.send(near.qp.id(), &right)?)
}

fn out_of_order(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let (path, how) = (peer(rig, &*paths, &far, PSN[1])?, sender(rig, PSN[0]));
    let near = near.qp.id();
    refused("send first", paths.send(near, &how), VpStatus::InvalidState)?;
    paths.receive(near, &path)?;
    refused("receive twice", paths.receive(near, &path), VpStatus::InvalidState)?;
    paths.send(near, &how)?;
    refused("send twice", paths.send(near, &how), VpStatus::InvalidState)?;
    refused("receive in RTS", paths.receive(near, &path), VpStatus::InvalidState)
}

fn again(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let number = paths.number(near.qp.id())?;
    for seed in 0..3 {
        bring_up(rig, &*paths, &near, &far)?;
        message(&near, &far, seed)?;
        message(&far, &near, seed + 10)?;
        for end in [&near, &far] {
            end.qp.modify(QpChange::Error)?;
            end.idle()?;
        }
        same("number after a reset", paths.number(near.qp.id())?, number)?;
    }
    Ok(())
}

fn gone(rig: &Rig) -> Result<(), Fail> {
    let (paths, near, far) = (paths(rig)?, rig.end()?, rig.end()?);
    let (path, how) = (peer(rig, &*paths, &far, PSN[1])?, sender(rig, PSN[0]));
    let id = near.qp.id();
    rig.rnic.destroy_qp(id)?;
    refused("number", paths.number(id), VpStatus::InvalidHandle)?;
    refused("receive", paths.receive(id, &path), VpStatus::InvalidHandle)?;
    refused("send", paths.send(id, &how), VpStatus::InvalidHandle)
}
