//! Cases about a provider's own connection manager: requests, replies, private data, and refusals.

use std::net::SocketAddr;

use vp_api::*;

use crate::fail::{refused, same};
use crate::rig::{Rig, params};
use crate::{Case, Fail};

const NATIVE: ConnectionModel = ConnectionModel::Native;

pub(crate) const CASES: &[Case] = &[
    Case::new("connect: without a listener it fails", nobody).keeps("RI-117").only(NATIVE),
    Case::new("connect: private data up to the limit arrive", private)
        .keeps("RI-32 RI-114 RI-115")
        .only(NATIVE),
    Case::new("connect: a QP that is connected is refused", connected).keeps("RI-12").only(NATIVE),
    Case::new("accept: what is no request is refused", no_request).only(NATIVE),
    Case::new("reject: the caller gets it, with private data", rejected)
        .keeps("RI-116")
        .only(NATIVE),
    Case::new("reject: private data up to the limit arrive", private_reject).only(NATIVE),
    Case::new("listen: what ended cannot be ended again", unlistened)
        .keeps("RI-119 RI-147")
        .only(NATIVE),
    Case::new("disconnect: without a connection it is refused", disconnected)
        .keeps("RI-12")
        .only(NATIVE),
];

fn nobody(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    cm.0.unlisten(listener)?;
    // Fails at once, or when the network reports it.
    if cm.0.connect(near.qp.id(), address, params(b"", (1, 1))).is_ok() {
        match cm.next()? {
            NativeEvent::Failed { qp, reason } if !reason.is_empty() => {
                same("QP", qp, near.qp.id())?;
            }
            other => return Err(format!("{other:?} where failed is expected").into()),
        }
    }
    same("state", near.qp.query()?.state, QpState::Idle)
}

/// `len` octets that differ from any padding.
fn octets(len: u32) -> Vec<u8> {
    (0..len).map(|n| 0xa0 ^ n as u8).collect()
}

/// Fails unless `found` begins with what was sent; some transports add padding.
fn arrived(what: &str, found: &[u8], sent: &[u8]) -> Result<(), Fail> {
    match found.starts_with(sent) {
        true => Ok(()),
        false => Err(format!("{what}: {found:x?} where {sent:x?} was sent").into()),
    }
}

fn private(rig: &Rig) -> Result<(), Fail> {
    let (near, far, cm) = (rig.end()?, rig.end()?, rig.cm()?);
    let (ask, answer) = (rig.attrs.max_private_connect, rig.attrs.max_private_accept);
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 4)?;
    let with = |len| params(&octets(len), (1, 1));
    // 0 means that the provider does not report it.
    if ask != 0 {
        let beyond = cm.0.connect(near.qp.id(), address, with(ask + 1));
        refused("one octet too many", beyond, VpStatus::InvalidModifier)?;
    }
    cm.0.connect(near.qp.id(), address, with(ask))?;
    let request = match cm.next()? {
        NativeEvent::Request { request, params, .. } => {
            arrived("request", &params.private_data, &octets(ask))?;
            request
        }
        other => return Err(format!("{other:?} where a request is expected").into()),
    };
    if answer != 0 {
        let beyond = cm.0.accept(request, far.qp.id(), with(answer + 1));
        refused("one octet too many", beyond, VpStatus::InvalidModifier)?;
    }
    cm.0.accept(request, far.qp.id(), with(answer))?;
    for _ in 0..2 {
        match cm.next()? {
            NativeEvent::Established { qp, params, .. } if qp == near.qp.id() => {
                arrived("answer", &params.private_data, &octets(answer))?;
            }
            NativeEvent::Established { .. } => {}
            other => return Err(format!("{other:?} where established is expected").into()),
        }
    }
    Ok(cm.0.unlisten(listener)?)
}

fn private_reject(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    let most = rig.attrs.max_private_reject;
    let (_, request, _) = cm.request(&near)?;
    if most != 0 {
        let beyond = cm.0.reject(request, &octets(most + 1));
        refused("one octet too many", beyond, VpStatus::InvalidModifier)?;
    }
    cm.0.reject(request, &octets(most))?;
    match cm.next()? {
        NativeEvent::Rejected { private_data, .. } => {
            arrived("rejection", &private_data, &octets(most))
        }
        other => Err(format!("{other:?} where rejected is expected").into()),
    }
}

fn connected(rig: &Rig) -> Result<(), Fail> {
    let (near, far) = rig.pair()?;
    let cm = rig.cm()?;
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    let again = cm.0.connect(near.qp.id(), address, params(b"", (1, 1)));
    refused("connect", again, VpStatus::InvalidState)?;
    let third = rig.end()?;
    let (_, request, _) = cm.request(&third)?;
    if cm.0.accept(request, far.qp.id(), params(b"", (1, 1))).is_ok() {
        return Err("a connected QP was accepted onto".into());
    }
    Ok(cm.0.unlisten(listener)?)
}

fn no_request(rig: &Rig) -> Result<(), Fail> {
    let (far, cm) = (rig.end()?, rig.cm()?);
    let none = cm.0.accept(u64::MAX, far.qp.id(), params(b"", (1, 1)));
    refused("accept", none, VpStatus::InvalidHandle)?;
    refused("reject", cm.0.reject(u64::MAX, b""), VpStatus::InvalidHandle)?;
    same("state", far.qp.query()?.state, QpState::Idle)
}

fn rejected(rig: &Rig) -> Result<(), Fail> {
    let near = rig.end()?;
    let cm = rig.cm()?;
    let (listener, request, _) = cm.request(&near)?;
    cm.0.reject(request, b"no")?;
    match cm.next()? {
        NativeEvent::Rejected { qp, private_data } if private_data.starts_with(b"no") => {
            same("QP", qp, near.qp.id())?;
        }
        other => return Err(format!("{other:?} where rejected is expected").into()),
    }
    cm.0.unlisten(listener)?;
    // The QP can be used for another attempt.
    let far = rig.end()?;
    let again = cm.request(&near)?;
    cm.0.accept(again.1, far.qp.id(), params(b"", (1, 1)))?;
    Ok(())
}

fn unlistened(rig: &Rig) -> Result<(), Fail> {
    let cm = rig.cm()?;
    let (listener, address) = cm.0.listen(SocketAddr::new(rig.address(), 0), 1)?;
    if address.port() == 0 {
        return Err("the listener's real port is 0".into());
    }
    cm.0.unlisten(listener)?;
    refused("unlisten", cm.0.unlisten(listener), VpStatus::InvalidHandle)
}

fn disconnected(rig: &Rig) -> Result<(), Fail> {
    let (near, cm) = (rig.end()?, rig.cm()?);
    refused("disconnect", cm.0.disconnect(near.qp.id()), VpStatus::InvalidState)
}
