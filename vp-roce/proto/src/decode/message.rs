//! Explains messages of the communication manager: the fields that identify connections, and private data.
//!
//! Owner of the state: none, pure functions. Any thread.

use alloc::format;
use alloc::string::String;

use super::Layer;
use super::fields::Fields;
use crate::cm::addresses::{Addresses, Pair};
use crate::cm::mad::{BODY_LEN, HEADER_LEN, Mad};
use crate::cm::message::{Message, RejectReason, Req};

const CM: Layer = Layer::Cm;

/// Explains the message; returns the kind of packet.
pub(super) fn explain(fields: &mut Fields<'_>, mad: &Mad) -> String {
    fields.skip(8);
    fields.hex(CM, "TransactionID", 8);
    fields.hex(CM, "AttributeID", 2);
    fields.skip(HEADER_LEN - 18);
    let Ok(message) = Message::parse(mad) else {
        fields.octets(CM, "Message", BODY_LEN);
        return "management datagram".into();
    };
    fields.note(message.name().into());
    let explained = match message {
        Message::Req(req) => request(fields, &req),
        Message::Rep(_) => reply(fields),
        Message::SidrReq { service, .. } => {
            fields.hex(CM, "RequestID", 4);
            fields.skip(4);
            fields.hex(CM, "ServiceID", 8);
            fields.note(port(service));
            16
        }
        Message::SidrRep { .. } => {
            fields.hex(CM, "RequestID", 4);
            fields.number(CM, "Status", 1);
            fields.skip(3);
            fields.hex(CM, "QPN", 3);
            fields.skip(9);
            fields.hex(CM, "Q_Key", 4);
            24
        }
        Message::Rej { reason, .. } => {
            ids(fields);
            fields.skip(2);
            rejection(fields, reason)
        }
        _ => ids(fields),
    };
    fields.octets(CM, "Rest of message", BODY_LEN - explained);
    message.name().into()
}

/// These functions return the octets of the message that they explained.
fn ids(fields: &mut Fields<'_>) -> usize {
    fields.hex(CM, "LocalCommID", 4);
    fields.hex(CM, "RemoteCommID", 4);
    8
}

fn rejection(fields: &mut Fields<'_>, reason: RejectReason) -> usize {
    fields.number(CM, "Reason", 2);
    fields.note(reason.name().into());
    12
}

fn reply(fields: &mut Fields<'_>) -> usize {
    ids(fields);
    fields.skip(4);
    fields.hex(CM, "LocalQPN", 3);
    fields.skip(5);
    fields.number(CM, "StartingPSN", 3);
    fields.note("the receiver begins with it".into());
    fields.skip(1);
    fields.number(CM, "ResponderResources", 1);
    fields.number(CM, "InitiatorDepth", 1);
    26
}

fn request(fields: &mut Fields<'_>, req: &Req) -> usize {
    fields.hex(CM, "LocalCommID", 4);
    fields.skip(4);
    fields.hex(CM, "ServiceID", 8);
    fields.note(port(req.service));
    fields.skip(16);
    fields.hex(CM, "LocalQPN", 3);
    fields.number(CM, "ResponderResources", 1);
    fields.skip(3);
    fields.number(CM, "InitiatorDepth", 1);
    fields.skip(4);
    fields.number(CM, "StartingPSN", 3);
    fields.note("the receiver begins with it".into());
    fields.skip(3);
    fields.bits(CM, "PathMTU", 0, 4);
    fields.note(match crate::rc::Mtu::from_code(req.mtu) {
        Some(mtu) => format!("{} octets", mtu.octets()),
        None => "invalid".into(),
    });
    fields.skip(90);
    fields.octets(CM, "PrivateData", 36);
    if let Some(Addresses { source_port, pair }) = Addresses::parse(&req.private.0) {
        fields.note(match pair {
            Pair::V4 { source: [a, b, c, d], destination: [e, f, g, h] } => {
                format!("rdma_cm: {a}.{b}.{c}.{d}:{source_port} to {e}.{f}.{g}.{h}")
            }
            Pair::V6 { source, destination } => format!(
                "rdma_cm: [{}]:{source_port} to {}",
                core::net::Ipv6Addr::from(source),
                core::net::Ipv6Addr::from(destination)
            ),
        });
    }
    176
}

/// The port of a service id of rdma_cm.
fn port(service: u64) -> String {
    match service >> 16 {
        0x0106 => format!("rdma_cm, TCP port space, port {}", service & 0xffff),
        0x0111 => format!("rdma_cm, UDP port space, port {}", service & 0xffff),
        _ => String::new(),
    }
}
