//! Cases about events of a native connection manager: each is reported once, in order, for the right object.

use std::sync::mpsc::channel;
use std::time::Duration;

use std::net::SocketAddr;

use vp_api::*;

use crate::fail::same;
use crate::rig::{Cm, End, Rig, params};
use crate::{Case, Fail};

const NATIVE: ConnectionModel = ConnectionModel::Native;

pub(crate) const CASES: &[Case] = &[
    Case::new("cm: a request says whose, from whom, with what", request)
        .keeps("RI-114")
        .only(NATIVE),
    Case::new("cm: both ends are where the connection is", places).keeps("RI-161").only(NATIVE),
    Case::new("cm: established is reported once to each end", established)
        .keeps("RI-115 RI-120 RI-146")
        .only(NATIVE),
    Case::new("cm: disconnected is reported once to each end", disconnected)
        .keeps("RI-118 RI-146")
        .only(NATIVE),
    Case::new("cm: a listener that ended gets no event", unlistened).keeps("RI-147").only(NATIVE),
    Case::new("cm: a request stays when its listener ends", request_stays)
        .keeps("RI-205")
        .only(NATIVE),
    Case::new("cm: a wait ends with its time, or with an event", waits)
        .keeps("RI-121")
        .only(NATIVE),
    Case::new("cm: a wait that has begun ends with an event", wait_ends)
        .keeps("RI-121")
        .only(NATIVE),
    Case::new("cm: a request stays when another open of the device is closed", other_closes)
        .keeps("RI-114 RI-122")
        .only(NATIVE),
    Case::new("cm: two requests at a time, each by its id", two_requests)
        .keeps("RI-114 RI-116")
        .only(NATIVE),
];

fn request(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    let (other, _) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    cm.0.connect(near.qp.id(), address, params(b"who", (3, 2)))?;
    match cm.next()? {
        NativeEvent::Request { listener: at, peer, params, .. } => {
            same("listener", at, listener)?;
            same("private data", params.private_data.starts_with(b"who"), true)?;
            same("peer", peer.ip(), rig.address())?;
            // Each end's ORD is what the other end must serve.
            let depths = (params.ird, params.ord);
            same("IRD and ORD are said", depths.0 != 0 && depths.1 != 0, true)?;
        }
        other => return Err(format!("{other:?} where a request is expected").into()),
    }
    cm.0.unlisten(other)?;
    Ok(cm.0.unlisten(listener)?)
}

fn places(rig: &Rig) -> Result<(), Fail> {
    let (near, far, cm) = (rig.end()?, rig.end()?, rig.cm()?);
    let (listener, at) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    cm.0.connect(near.qp.id(), at, params(b"", (1, 1)))?;
    let (request, local) = match cm.next()? {
        NativeEvent::Request { request, local, .. } => (request, local),
        other => return Err(format!("{other:?} where a request is expected").into()),
    };
    // A provider that does not report it is not in error.
    same("where the peer connected to", local.unwrap_or(at), at)?;
    cm.0.accept(request, far.qp.id(), params(b"", (1, 1)))?;
    for _ in 0..2 {
        let NativeEvent::Established { qp, local: Some(local), .. } = cm.next()? else { continue };
        same("address of an end", local.ip(), at.ip())?;
        let listens = qp == far.qp.id();
        same("is it the listener's", local.port() == at.port(), listens)?;
    }
    Ok(cm.0.unlisten(listener)?)
}

fn accepted<'a>(rig: &'a Rig, cm: &Cm) -> Result<(End<'a>, End<'a>), Fail> {
    let (near, far) = (rig.end()?, rig.end()?);
    let (listener, request, _) = cm.request(&near)?;
    cm.0.accept(request, far.qp.id(), params(b"yes", (1, 1)))?;
    cm.0.unlisten(listener)?;
    Ok((near, far))
}

/// Takes one event of this kind for each end.
fn one_each(
    cm: &Cm,
    what: &str,
    ends: &(End<'_>, End<'_>),
    of: impl Fn(&NativeEvent) -> Option<QpId>,
) -> Result<(), Fail> {
    let mut open = vec![ends.0.qp.id(), ends.1.qp.id()];
    while !open.is_empty() {
        let event = cm.next()?;
        let Some(at) = of(&event).and_then(|qp| open.iter().position(|id| *id == qp)) else {
            return Err(format!("{event:?} where {what} of {open:?} is expected").into());
        };
        open.remove(at);
    }
    match cm.0.poll_event() {
        None => Ok(()),
        Some(event) => Err(format!("{event:?} after {what} was reported to both").into()),
    }
}

fn established(rig: &Rig) -> Result<(), Fail> {
    let cm = rig.cm()?;
    let ends = accepted(rig, &cm)?;
    let answered = std::cell::Cell::new(false);
    one_each(&cm, "established", &ends, |event| match event {
        NativeEvent::Established { qp, params, .. } => {
            let greeted = params.private_data.starts_with(b"yes");
            answered.set(answered.get() || (*qp == ends.0.qp.id() && greeted));
            Some(*qp)
        }
        _ => None,
    })?;
    same("the reply's private data is that of accept", answered.get(), true)?;
    same(
        "state",
        (ends.0.qp.query()?.state, ends.1.qp.query()?.state),
        (QpState::Rts, QpState::Rts),
    )
}

fn disconnected(rig: &Rig) -> Result<(), Fail> {
    let cm = rig.cm()?;
    let ends = accepted(rig, &cm)?;
    one_each(&cm, "established", &ends, |event| match event {
        NativeEvent::Established { qp, .. } => Some(*qp),
        _ => None,
    })?;
    cm.0.disconnect(ends.0.qp.id())?;
    one_each(&cm, "disconnected", &ends, |event| match event {
        NativeEvent::Disconnected { qp } => Some(*qp),
        _ => None,
    })
}

fn unlistened(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    cm.0.unlisten(listener)?;
    if cm.0.connect(near.qp.id(), address, params(b"", (1, 1))).is_err() {
        return Ok(());
    }
    match cm.next()? {
        NativeEvent::Failed { qp, .. } => same("QP", qp, near.qp.id()),
        other => Err(format!("{other:?} of a listener that ended").into()),
    }
}

fn request_stays(rig: &Rig) -> Result<(), Fail> {
    let (near, far, cm) = (rig.end()?, rig.end()?, rig.cm()?);
    let (listener, request, _) = cm.request(&near)?;
    cm.0.unlisten(listener)?;
    cm.0.accept(request, far.qp.id(), params(b"yes", (1, 1)))?;
    one_each(&cm, "established", &(near, far), |event| match event {
        NativeEvent::Established { qp, .. } => Some(*qp),
        _ => None,
    })
}

fn waits(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    same("an event, of none", cm.0.wait_event(Some(Duration::from_millis(1)))?, false)?;
    let (_, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    cm.0.connect(near.qp.id(), address, params(b"", (1, 1)))?;
    match cm.0.wait_event(Some(rig.wait))? {
        true => Ok(()),
        false => {
            Err(format!("a request is due, and a wait of {:?} says nothing came", rig.wait).into())
        }
    }
}

fn wait_ends(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    let (_, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    let (manager, (to, ended), most) = (cm.0.clone(), channel(), rig.wait * 10);
    // Left behind if it does not end.
    std::thread::spawn(move || to.send(manager.wait_event(Some(most))));
    // The wait begins before the event, mostly.
    match ended.recv_timeout(Duration::from_millis(20)) {
        Err(_) => {}
        Ok(waited) => same("an event, of none", waited?, false)?,
    }
    cm.0.connect(near.qp.id(), address, params(b"", (1, 1)))?;
    match ended.recv_timeout(rig.wait) {
        Ok(waited) => same("an event", waited?, true),
        Err(_) => Err(format!("a request came, and a wait goes on after {:?}", rig.wait).into()),
    }
}

fn other_closes(rig: &Rig) -> Result<(), Fail> {
    let (near, far, cm) = (rig.end()?, rig.end()?, rig.cm()?);
    let other = rig.another()?;
    let (listener, request, _) = cm.request(&near)?;
    drop(other);
    cm.0.accept(request, far.qp.id(), params(b"", (1, 1)))?;
    one_each(&cm, "established", &(near, far), |event| match event {
        NativeEvent::Established { qp, .. } => Some(*qp),
        _ => None,
    })?;
    Ok(cm.0.unlisten(listener)?)
}

/// Two callers; the second is accepted before the first is rejected.
fn two_requests(rig: &Rig) -> Result<(), Fail> {
    let (one, other, far, cm) = (rig.end()?, rig.end()?, rig.end()?, rig.cm()?);
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 4)?;
    let mut requests = Vec::new();
    for (end, name) in [(&one, b"first_"), (&other, b"second")] {
        cm.0.connect(end.qp.id(), address, params(name, (1, 1)))?;
        match cm.next()? {
            NativeEvent::Request { request, params, .. } => {
                same("private data", params.private_data.starts_with(name), true)?;
                requests.push(request);
            }
            event => return Err(format!("{event:?} where a request is expected").into()),
        }
    }
    same("whether both requests have one id", requests[0] == requests[1], false)?;
    cm.0.accept(requests[1], far.qp.id(), params(b"", (1, 1)))?;
    one_each(&cm, "established", &(other, far), |event| match event {
        NativeEvent::Established { qp, .. } => Some(*qp),
        _ => None,
    })?;
    cm.0.reject(requests[0], b"no")?;
    match cm.next()? {
        NativeEvent::Rejected { qp, .. } => same("QP of the rejection", qp, one.qp.id())?,
        event => return Err(format!("{event:?} where rejected is expected").into()),
    }
    Ok(cm.0.unlisten(listener)?)
}
