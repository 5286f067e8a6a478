//! Cases about states of queue pairs, and their streams: events, flushes, and reuse.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{End, Rig, SEND};
use crate::{Case, Fail};

const STREAM: ConnectionModel = ConnectionModel::LlpStream;

pub(crate) const CASES: &[Case] = &[
    Case::new("error: what is posted then is flushed, too", posted_in_error).keeps("RI-132"),
    Case::new("error: unsignaled requests are flushed, too", unsignaled_in_error).keeps("RI-132"),
    Case::new("error: in Error it stays, and nothing happens", error_twice).keeps("RI-208"),
    Case::new("states: Idle comes behind Error only", idle_from_rts).keeps("RI-12"),
    Case::new("qp: counts what is outstanding, and what a stream loses", requests_counted)
        .keeps("RI-209 RI-210 RI-243")
        .only(STREAM),
    Case::new("qp: counts the receives that are lost", lost_receives).keeps("RI-210 RI-243"),
    Case::new("qp: says where its stream leads", addresses).keeps("RI-112").only(STREAM),
    Case::new("error: the peer gets the reset", reset_told).keeps("RI-37").only(STREAM),
    Case::new("error: back to Idle, and used again", idle_again).keeps("RI-109"),
    Case::new("terminate: both get its code", terminated)
        .keeps("RI-35 RI-36 RI-107 RI-112")
        .only(STREAM),
    Case::new("close: what was posted before arrives", close_delivers).keeps("RI-106").only(STREAM),
    Case::new("stream: established is reported once", established).keeps("RI-33").only(STREAM),
    Case::new("stream: a refused socket is closed", refused_socket).keeps("RI-102").only(STREAM),
    Case::new("stream: one with more reads than agreed is refused", more_reads)
        .keeps("RI-189")
        .only(STREAM),
    Case::new("stream: octets behind the start-up count", received).keeps("RI-103").only(STREAM),
    Case::new("stream: the last message comes first", last_message).keeps("RI-104").only(STREAM),
    Case::new("limits: those that are named change", limits)
        .keeps("RI-110")
        .with(Capabilities::QP_RESIZE),
    Case::new("limits: receives that are posted stay", posted_stay)
        .keeps("RI-110 RI-111")
        .with(Capabilities::QP_RESIZE),
    Case::new("limits: all or nothing", all_or_nothing)
        .keeps("RI-111")
        .with(Capabilities::QP_RESIZE),
];

fn posted_in_error(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    near.qp.modify(QpChange::Error)?;
    near.recv(1, &[])?;
    let wc = near.completion()?;
    same("a receive posted in Error", (wc.wr_id, wc.status), (1, WcStatus::Flushed))?;
    near.post(2, SEND, &[])?;
    let wc = near.completion()?;
    same("a send posted in Error", (wc.wr_id, wc.status), (2, WcStatus::Flushed))
}

fn unsignaled_in_error(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    near.qp.modify(QpChange::Error)?;
    let (data, flags) = (Data::Sgl(&[][..]), SendFlags::empty());
    near.qp.post_send(&[SendWr { wr_id: 3, op: SEND, data, flags }])?;
    let wc = near.completion()?;
    same("a send, not signaled, posted in Error", (wc.wr_id, wc.status), (3, WcStatus::Flushed))
}

fn error_twice(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    near.recv(1, &[])?;
    for _ in 0..2 {
        near.qp.modify(QpChange::Error)?;
        same("state", near.qp.query()?.state, QpState::Error)?;
    }
    same("the receive", near.completion()?.status, WcStatus::Flushed)?;
    near.qp.modify(QpChange::Error)?;
    same("completions", near.cq.poll(&mut [WorkCompletion::BLANK; 4])?, 0)
}

fn idle_from_rts(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    refused("from RTS to Idle", near.qp.modify(QpChange::Idle), VpStatus::InvalidState)?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv).map(drop)
}

fn lost_receives(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    (0..3).try_for_each(|n| near.recv(n, &[]))?;
    near.qp.modify(QpChange::Error)?;
    (0..3).try_for_each(|_| same("a receive", near.completion()?.status, WcStatus::Flushed))?;
    same("receives lost", near.qp.query()?.recvs_lost, 3)?;
    near.idle()?;
    same("receives lost, back in Idle", near.qp.query()?.recvs_lost, 0)
}

/// Takes over a stream whose peer never responds.
pub(super) fn unanswered(end: &End<'_>, params: StreamParams) -> Result<TcpStream, Fail> {
    let (theirs, ours) = sockets()?;
    theirs.set_nonblocking(true)?;
    let info = end.qp.query()?;
    let params = StreamParams { ird: info.ird, ord: info.ord, ..params };
    let (received, last_message) = (vec![], vec![]);
    take_over(
        end,
        LlpStream { socket: theirs.into(), received, last_message, params, local: None },
    )?;
    Ok(ours)
}

fn requests_counted(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let _peer = unanswered(&end, StreamParams::new(Role::Initiator))?;
    let sink = end.memory(8)?;
    for n in 0..2 {
        let remote = Remote { stag: Stag(0x100), to: 0 };
        end.post(n, SendOp::Read { remote, invalidate_sink: false }, &[sink.all()])?;
    }
    (2..5).try_for_each(|n| end.recv(n, &[]))?;
    let count = |what, outstanding, lost| {
        let info = end.qp.query()?;
        let counted = (info.sends_outstanding, info.recvs_outstanding);
        same(&format!("sends and receives outstanding {what}"), counted, outstanding)?;
        let counted = (info.sends_lost, info.recvs_lost);
        same(&format!("sends and receives lost {what}"), counted, lost)
    };
    count("that the peer does not respond to", (2, 3), (0, 0))?;
    end.qp.modify(QpChange::Error)?;
    (0..5).try_for_each(|_| same("a request", end.completion()?.status, WcStatus::Flushed))?;
    count("in Error", (0, 0), (2, 3))?;
    end.idle()?;
    count("back in Idle", (0, 0), (0, 0))?;
    let _peer = unanswered(&end, StreamParams::new(Role::Initiator))?;
    count("of a new stream", (0, 0), (0, 0))
}

fn addresses(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (here, there) = (near.qp.query()?, far.qp.query()?);
    same("whether the address of an end is said", here.local.is_some(), true)?;
    same("where the peer is", here.remote, there.local)?;
    same("where this end is, at the peer", there.remote, here.local)
}

fn reset_told(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    near.qp.modify(QpChange::Error)?;
    match far.event()? {
        AsyncEvent::ConnectionReset | AsyncEvent::ConnectionLost => Ok(()),
        other => Err(format!("{other:?} where a reset is expected").into()),
    }
}

fn idle_again(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    near.qp.modify(QpChange::Error)?;
    for end in [&near, &far] {
        rig.until("Error, or what follows it", || Ok(end.qp.query()?.state != QpState::Rts))?;
        end.idle()?;
        same("state", end.qp.query()?.state, QpState::Idle)?;
    }
    rig.forget_events();
    rig.connect(&near, &far)?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv).map(|_| ())
}

/// Whether this end sent it, layer, type, code.
type Codes = (bool, u8, u8, u8);

fn codes(of: Terminate) -> Codes {
    (of.sent, of.layer, of.etype, of.code)
}

/// The next event of the QP, which must be a Terminate.
fn terminate(end: &End<'_>) -> Result<Codes, Fail> {
    match end.event()? {
        AsyncEvent::TerminateSent(of) | AsyncEvent::TerminateReceived(of) => Ok(codes(of)),
        other => Err(format!("{other:?} where a Terminate is expected").into()),
    }
}

fn terminated(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    near.qp.modify(QpChange::Terminate)?;
    same("Terminate sent", terminate(&near)?, (true, 0, 0, 0))?;
    same("Terminate received", terminate(&far)?, (false, 0, 0, 0))?;
    let kept = far.qp.query()?.terminate.map(codes);
    same("Terminate of the QP", kept, Some((false, 0, 0, 0)))?;
    other_terminate(rig)
}

/// A Terminate with details: a Write to memory that does not exist.
fn other_terminate(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let source = near.memory(8)?;
    let remote = Remote { stag: Stag(0x0bad_0000), to: 0 };
    near.post(1, SendOp::Write { remote }, &[source.all()])?;
    same("Terminate sent", terminate(&far)?, (true, 1, 1, 0))?;
    same("Terminate received", terminate(&near)?, (false, 1, 1, 0))
}

fn close_delivers(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let (source, sink) = (near.pattern(100_000, 1)?, far.memory(100_000)?);
    far.recv(1, &[sink.all()])?;
    near.post(2, SEND, &[source.all()])?;
    near.done(2, WcOpcode::Send)?;
    near.qp.modify(QpChange::Closing)?;
    far.done(1, WcOpcode::Recv)?;
    same("event", near.event()?, AsyncEvent::CloseComplete)
}

fn established(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    far.recv(1, &[])?;
    near.post(2, SEND, &[])?;
    near.done(2, WcOpcode::Send)?;
    far.done(1, WcOpcode::Recv)?;
    for end in [near, far] {
        let more = rig.events.waiting(EventSource::Qp(end.qp.id()));
        same("more events of an established QP", more, 0)?;
    }
    Ok(())
}

/// A connected pair of sockets.
fn sockets() -> Result<(TcpStream, TcpStream), Fail> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let begun = TcpStream::connect(listener.local_addr()?)?;
    Ok((begun, listener.accept()?.0))
}

fn refused_socket(rig: &Rig) -> Result<(), Fail> {
    let (near, _far) = rig.pair()?;
    let (theirs, mut ours) = sockets()?;
    let again = near.to_rts(theirs, Role::Initiator);
    if again.is_ok() {
        return Err("a QP in RTS took a second stream".into());
    }
    ours.set_read_timeout(Some(rig.wait))?;
    match ours.read(&mut [0; 1]) {
        Ok(0) => Ok(()),
        Ok(_) => Err("octets came from a stream that was refused".into()),
        Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
        Err(_) => {
            Err(format!("the socket of a refused stream is open after {:?}", rig.wait).into())
        }
    }
}

/// Takes over a stream whose peer is this case.
fn take_over(end: &End<'_>, stream: LlpStream) -> Result<(), Fail> {
    Ok(end.qp.modify(QpChange::Rts(Box::new(stream)))?)
}

fn more_reads(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let info = end.qp.query()?;
    for (what, ird, ord) in [("IRD", info.ird + 1, info.ord), ("ORD", info.ird, info.ord + 1)] {
        let (theirs, _ours) = sockets()?;
        theirs.set_nonblocking(true)?;
        let params = StreamParams { ird, ord, ..StreamParams::new(Role::Initiator) };
        let (received, last_message) = (vec![], vec![]);
        let stream =
            LlpStream { socket: theirs.into(), received, last_message, params, local: None };
        let taken = end.qp.modify(QpChange::Rts(Box::new(stream)));
        refused(&format!("a greater {what}"), taken, VpStatus::InvalidIrdOrd)?;
    }
    Ok(())
}

fn received(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let (theirs, _ours) = sockets()?;
    theirs.set_nonblocking(true)?;
    end.recv(1, &[])?;
    // A zero-length Send, as an FPDU without CRC: 18 octets of DDP, none of payload.
    let mut fpdu = vec![0, 18, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    fpdu.extend([0; 4]);
    let params = StreamParams { crc: false, ..StreamParams::new(Role::Responder) };
    let stream = LlpStream {
        socket: theirs.into(),
        received: fpdu,
        last_message: vec![],
        params,
        local: None,
    };
    take_over(&end, stream)?;
    end.done(1, WcOpcode::Recv).map(|_| ())
}

fn last_message(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let (theirs, mut ours) = sockets()?;
    theirs.set_nonblocking(true)?;
    let params = StreamParams::new(Role::Responder);
    let last_message = b"farewell".to_vec();
    take_over(
        &end,
        LlpStream { socket: theirs.into(), received: vec![], last_message, params, local: None },
    )?;
    ours.set_read_timeout(Some(rig.wait))?;
    let mut got = [0; 8];
    let read = ours.read_exact(&mut got);
    read.map_err(|why| format!("the last message did not come within {:?}: {why}", rig.wait))?;
    let _ = ours.write(&[]);
    same("last message", &got, b"farewell")
}

const NONE: QpChange =
    QpChange::Limits { ord: None, ird: None, send_depth: None, recv_depth: None, recv_limit: None };

fn limits(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let before = end.qp.query()?;
    let wanted = (before.recv_depth + 8).min(rig.attrs.max_wr_per_qp);
    let mut change = NONE;
    if let QpChange::Limits { recv_depth, .. } = &mut change {
        *recv_depth = Some(wanted);
    }
    end.qp.modify(change)?;
    let after = end.qp.query()?;
    if after.recv_depth < wanted {
        return Err(format!("depth {} where {wanted} was asked for", after.recv_depth).into());
    }
    same("the depth that was not named", after.send_depth, before.send_depth)?;
    let mut change = NONE;
    if let QpChange::Limits { ord, .. } = &mut change {
        *ord = Some(before.ord.saturating_sub(1));
    }
    end.qp.modify(change)?;
    let after = end.qp.query()?;
    let reads = (before.ord.saturating_sub(1), before.ird);
    same("ORD, and the IRD that was not named", (after.ord, after.ird), reads)
}

/// The depth changes, or it does not because the queue is not empty.
fn posted_stay(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = (rig.end()?, rig.end()?);
    (1..3).try_for_each(|n| far.recv(n, &[]))?;
    let mut change = NONE;
    if let QpChange::Limits { recv_depth, .. } = &mut change {
        *recv_depth = Some(far.qp.query()?.recv_depth + 8);
    }
    let _ = far.qp.modify(change);
    rig.connect(&near, &far)?;
    for n in 1..3 {
        near.post(n, SEND, &[])?;
        near.done(n, WcOpcode::Send)?;
        far.done(n, WcOpcode::Recv)?;
    }
    Ok(())
}

fn all_or_nothing(rig: &Rig) -> Result<(), Fail> {
    let end = rig.end()?;
    let before = end.qp.query()?;
    let mut change = NONE;
    if let QpChange::Limits { ord, send_depth, .. } = &mut change {
        (*ord, *send_depth) = (Some(before.ord.saturating_sub(1)), Some(u32::MAX));
    }
    if end.qp.modify(change).is_ok() {
        return Err("a queue of 2^32 - 1 was granted".into());
    }
    same("ORD after a refused change", end.qp.query()?.ord, before.ord)?;
    refused("a state that follows none", end.qp.modify(QpChange::Closing), VpStatus::InvalidState)
}
