//! Conversion of datagrams between Rust and C: addresses, paths, sources, requests and service events. No state.

use std::slice;

use super::types::Sized32;
use super::{codes, grow, net, text, types as c};
use crate::{
    AhId, AhInfo, CqId, Data, DatagramAttrs, DatagramPath, DatagramSource, PdId, QpId, SendFlags,
    ServiceEvent, UdAddress, UdQpInfo, UdQpInit, UdSendWr,
};
use codes::{op, ud};

pub(super) fn address_to(address: UdAddress) -> c::UdAddress {
    c::UdAddress { qpn: address.qpn, qkey: address.qkey }
}

pub(super) fn address_from(address: &c::UdAddress) -> UdAddress {
    UdAddress { qpn: address.qpn, qkey: address.qkey }
}

macro_rules! paths {
    ($($name:ident)+) => {
        pub(super) fn path_to(path: &DatagramPath) -> c::UdPath {
            let subnet_local = path.subnet_local.into();
            c::UdPath { $($name: path.$name,)+ subnet_local, reserved: [0; 3] }
        }

        pub(super) fn path_from(path: &c::UdPath) -> DatagramPath {
            DatagramPath { $($name: path.$name,)+ subnet_local: path.subnet_local != 0 }
        }
    };
}

paths! {
    port flow_label local_gid remote_gid local_lid remote_lid partition_key mtu_code rate
    packet_lifetime service_level traffic_class hop_limit
}

pub(super) fn source_to(source: Option<&DatagramSource>) -> c::UdSource {
    let mut out = c::UdSource::blank();
    let Some(source) = source else { return out };
    out.flags = ud::IS | if source.grh { ud::GRH } else { 0 };
    out.qpn = source.qpn;
    if let Some(path) = &source.path {
        out.flags |= ud::PATH;
        out.path = path_to(path);
    }
    out
}

pub(super) fn source_from(source: &c::UdSource) -> Option<DatagramSource> {
    (source.flags & ud::IS != 0).then(|| DatagramSource {
        qpn: source.qpn,
        grh: source.flags & ud::GRH != 0,
        path: (source.flags & ud::PATH != 0).then(|| path_from(&source.path)),
    })
}

/// Converts a request; the result is valid as long as `wr` is.
pub(super) fn send_to(wr: &UdSendWr<'_>) -> c::UdSendWr {
    let mut out = c::UdSendWr::blank();
    (out.wr_id, out.ah, out.to) = (wr.wr_id, wr.ah.0, address_to(wr.to));
    // As for connected queue pairs, the hint does not cross the interface.
    out.flags = (wr.flags - SendFlags::COALESCE).bits();
    (out.data, out.count) = match wr.data {
        Data::Sgl(sgl) => (sgl.as_ptr().cast(), sgl.len() as u32),
        Data::Inline(octets) => {
            out.flags |= op::INLINE;
            (octets.as_ptr().cast(), octets.len() as u32)
        }
    };
    out.flags |= if wr.solicited { op::SOLICITED } else { 0 };
    if let Some(immediate) = wr.immediate {
        out.flags |= ud::IMMEDIATE;
        out.immediate = immediate;
    }
    out
}

/// Converts a request; `None` if it is invalid. Borrows what `wr` points to.
///
/// # Safety
///
/// `wr` is a request as the header demands; what it names stays readable for `'a`.
pub(super) unsafe fn send_from<'a>(wr: &c::UdSendWr) -> Option<UdSendWr<'a>> {
    let count = if wr.data.is_null() { 0 } else { wr.count as usize };
    let data = match (wr.flags & op::INLINE != 0, count) {
        (true, 0) => Data::Inline(&[]),
        (false, 0) => Data::Sgl(&[]),
        // SAFETY: the caller's promise.
        (true, _) => Data::Inline(unsafe { slice::from_raw_parts(wr.data.cast(), count) }),
        // SAFETY: the caller's promise; the two kinds of elements are laid out alike.
        (false, _) => Data::Sgl(unsafe { slice::from_raw_parts(wr.data.cast(), count) }),
    };
    (wr.reserved == 0).then_some(())?;
    let named = !(op::SOLICITED | op::INLINE | ud::IMMEDIATE);
    Some(UdSendWr {
        wr_id: wr.wr_id,
        data,
        flags: SendFlags::from_bits(wr.flags & named)?,
        solicited: wr.flags & op::SOLICITED != 0,
        immediate: (wr.flags & ud::IMMEDIATE != 0).then_some(wr.immediate),
        ah: AhId(wr.ah),
        to: address_from(&wr.to),
    })
}

pub(super) fn attrs_to(attrs: &DatagramAttrs) -> c::UdAttrs {
    c::UdAttrs {
        max_ah: attrs.max_ah,
        max_private_request: attrs.max_private_request,
        max_private_reply: attrs.max_private_reply,
        usual_qkey: attrs.usual_qkey,
        ..c::UdAttrs::blank()
    }
}

pub(super) fn attrs_from(attrs: &c::UdAttrs) -> DatagramAttrs {
    DatagramAttrs {
        max_ah: attrs.max_ah,
        max_private_request: attrs.max_private_request,
        max_private_reply: attrs.max_private_reply,
        usual_qkey: attrs.usual_qkey,
        max_groups: 0,
        max_members: 0,
    }
}

pub(super) fn init_to(init: &UdQpInit) -> c::UdQpInit {
    c::UdQpInit {
        flags: if init.qkey.is_some() { ud::QKEY } else { 0 },
        pd: init.pd.0,
        send_cq: init.send_cq.0,
        recv_cq: init.recv_cq.0,
        send_depth: init.send_depth,
        recv_depth: init.recv_depth,
        max_send_sge: init.max_send_sge,
        max_recv_sge: init.max_recv_sge,
        max_inline: init.max_inline,
        port: init.port,
        qkey: init.qkey.unwrap_or(0),
        ..c::UdQpInit::blank()
    }
}

pub(super) fn init_from(init: &c::UdQpInit) -> UdQpInit {
    UdQpInit {
        pd: PdId(init.pd),
        send_cq: CqId(init.send_cq),
        recv_cq: CqId(init.recv_cq),
        send_depth: init.send_depth,
        recv_depth: init.recv_depth,
        max_send_sge: init.max_send_sge,
        max_recv_sge: init.max_recv_sge,
        max_inline: init.max_inline,
        port: init.port,
        qkey: (init.flags & ud::QKEY != 0).then_some(init.qkey),
        srq: None,
    }
}

pub(super) fn info_to(info: &UdQpInfo) -> c::UdQpInfo {
    c::UdQpInfo {
        id: info.id.0,
        state: codes::ud_state_code(info.state),
        port: info.port,
        address: address_to(info.address),
        send_depth: info.send_depth,
        recv_depth: info.recv_depth,
        sends_outstanding: info.sends_outstanding,
        recvs_outstanding: info.recvs_outstanding,
        ..c::UdQpInfo::blank()
    }
}

/// `None` for an unknown state.
pub(super) fn info_from(info: &c::UdQpInfo) -> Option<UdQpInfo> {
    Some(UdQpInfo {
        id: QpId(info.id),
        state: codes::ud_state(info.state)?,
        address: address_from(&info.address),
        port: info.port,
        send_depth: info.send_depth,
        recv_depth: info.recv_depth,
        sends_outstanding: info.sends_outstanding,
        recvs_outstanding: info.recvs_outstanding,
    })
}

pub(super) fn ah_info_to(info: &AhInfo) -> c::AhInfo {
    c::AhInfo { pd: info.pd.0, path: path_to(&info.path), ..c::AhInfo::blank() }
}

pub(super) fn ah_info_from(info: &c::AhInfo) -> AhInfo {
    AhInfo { pd: PdId(info.pd), path: path_from(&info.path) }
}

/// Calls `with` with the event in its C form.
pub(super) fn lend_event(event: &ServiceEvent, with: impl FnOnce(&c::ServiceEvent)) {
    let mut out = c::ServiceEvent::blank();
    let data: &[u8] = match event {
        ServiceEvent::Request { listener, request, peer, port, private_data } => {
            (out.kind, out.token, out.request) = (ud::REQUEST, *listener, *request);
            (out.peer, out.port) = (net::address_to(Some(*peer)), *port);
            private_data
        }
        ServiceEvent::Resolved { token, address, path, private_data } => {
            (out.kind, out.token) = (ud::RESOLVED, *token);
            (out.address, out.path) = (address_to(*address), path_to(path));
            private_data
        }
        ServiceEvent::Refused { token, why, private_data } => {
            (out.kind, out.token) = (ud::REFUSED, *token);
            out.why = codes::refusal_code(*why);
            private_data
        }
        ServiceEvent::Failed { token, reason } => {
            (out.kind, out.token, out.reason) = (ud::FAILED, *token, text::lend(reason));
            &[]
        }
    };
    (out.private_data, out.private_len) = (data.as_ptr(), data.len() as u32);
    with(&out);
}

/// `None` for an event that this version does not know.
///
/// # Safety
///
/// `event` points to one as the header demands.
pub(super) unsafe fn event_from(
    event: *const c::ServiceEvent,
    most: &DatagramAttrs,
) -> Option<ServiceEvent> {
    // SAFETY: the caller's promise.
    let event = unsafe { grow::read(event) };
    let request = event.kind == ud::REQUEST;
    let most = if request { most.max_private_request } else { most.max_private_reply };
    let len = event.private_len;
    if len > most || (len != 0 && event.private_data.is_null()) {
        let reason = format!(
            "defect in the provider: its event says {len} octets of private data; the device \
             declares {most}"
        );
        // A request that cannot be replied to is dropped; the peer's own time-out ends it.
        return (!request).then_some(ServiceEvent::Failed { token: event.token, reason });
    }
    // SAFETY: the same.
    let private_data = unsafe { text::octets(event.private_data, event.private_len.into()) };
    let token = event.token;
    Some(match event.kind {
        ud::REQUEST => ServiceEvent::Request {
            listener: token,
            request: event.request,
            peer: net::address_from(&event.peer)?,
            port: event.port,
            private_data,
        },
        ud::RESOLVED => ServiceEvent::Resolved {
            token,
            address: address_from(&event.address),
            path: path_from(&event.path),
            private_data,
        },
        ud::REFUSED => {
            ServiceEvent::Refused { token, why: codes::refusal(event.why)?, private_data }
        }
        ud::FAILED => {
            // SAFETY: the same.
            ServiceEvent::Failed { token, reason: unsafe { text::copy(event.reason) } }
        }
        _ => return None,
    })
}
