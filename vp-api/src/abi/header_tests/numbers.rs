//! Tests that compare this crate's numeric constants with the header's: each has a name there, and no constant of
//! the header is left out.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::super::{MAGIC, MAJOR, MINOR, codes, events, types};
use super::{COMMITTED, list};
use crate::{Access, Capabilities, GRH_OCTETS, SendFlags};

/// The constants that have not been compared yet.
struct UncheckedConstants(BTreeMap<String, String>);

impl UncheckedConstants {
    fn take(&mut self, name: &str, value: u64) {
        let held = self.0.remove(name);
        assert_eq!(held, Some(value.to_string()), "{name}");
    }

    /// Constants that this crate decodes to a value with the constant's name.
    fn decoded<T: Debug>(&mut self, prefix: &str, decode: impl Fn(u32) -> Option<T>) {
        for code in 0..200 {
            if let Some(value) = decode(code) {
                let name = format!("{value:?}");
                let name = name.split([' ', '(']).next().unwrap_or_default();
                self.take(&format!("{prefix}{}", upper(name)), code.into());
            }
        }
    }

    fn named<'a>(&mut self, prefix: &str, all: impl Iterator<Item = (&'a str, u64)>) {
        all.for_each(|(name, bits)| self.take(&format!("{prefix}{name}"), bits));
    }
}

/// `RdmaWrite` is `RDMA_WRITE`.
fn upper(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_uppercase());
    }
    out
}

fn event(code: u32) -> Option<crate::AsyncEvent> {
    let event = types::AsyncEvent { source: 4, event: code, ..types::Sized32::blank() };
    events::from(&event).map(|(_, event)| event)
}

fn source(code: u32) -> Option<crate::EventSource> {
    let event = types::AsyncEvent { source: code, event: 1, ..types::Sized32::blank() };
    events::from(&event).map(|(source, _)| source)
}

#[test]
fn every_constant_is_the_headers() {
    let held = list(COMMITTED).numbers;
    let constants = held.iter().filter_map(|(name, value)| {
        Some((name.strip_prefix("constant ")?.to_owned(), (*value).to_owned()))
    });
    let mut left = UncheckedConstants(constants.collect());
    left.take("RI_OK", codes::OK.into());
    left.decoded("RI_", codes::status);
    left.decoded("RI_WC_", codes::wc_opcode);
    left.decoded("RI_WC_", codes::wc_status);
    left.decoded("RI_MODEL_", codes::model);
    left.decoded("RI_LOG_", codes::level);
    left.decoded("RI_MW_", codes::kind);
    left.decoded("RI_ADDRESSING_", |code| codes::addressing(code, 0));
    left.decoded("RI_ROLE_", codes::role);
    left.decoded("RI_RTR_", codes::rtr);
    left.decoded("RI_UD_", codes::ud_state);
    left.decoded("RI_SERVICE_", codes::refusal);
    left.decoded("RI_QP_", codes::state);
    left.decoded("RI_EVENT_", event);
    left.decoded("RI_SOURCE_", source);
    left.decoded("RI_SIDE_", codes::side);
    left.decoded("RI_CARRIER_", codes::carrier);
    left.named("RI_CAP_", Capabilities::all().iter_names().map(|(n, c)| (n, c.bits())));
    left.named("RI_ACCESS_", Access::all().iter_names().map(|(n, a)| (n, a.bits().into())));
    // A hint used only within the host; it does not cross the interface.
    let sent = SendFlags::all() - SendFlags::COALESCE;
    left.named("RI_SEND_", sent.iter_names().map(|(n, f)| (n, f.bits().into())));
    let transports = ["OTHER", "IWARP", "INFINIBAND"];
    for (code, name) in transports.into_iter().enumerate() {
        let code = code as u32;
        assert_eq!(codes::transport_code(codes::transport(code)), code);
        left.take(&format!("RI_TRANSPORT_{name}"), code.into());
    }
    for (name, value) in PLAIN {
        left.take(name, (*value).into());
    }
    left.take("RI_MAGIC", MAGIC.into());
    left.take("RI_MAJOR", MAJOR.into());
    left.take("RI_MINOR", MINOR.into());
    left.take("RI_GRH_OCTETS", GRH_OCTETS as u64);
    left.take("RI_WAIT_FOR_EVER", u64::MAX);
    left.take("RI_RTR_NONE", 0);
    let text = |name: &str| left.0.get(name).map(String::as_str);
    assert_eq!(text("RI_DESCRIPTOR_SYMBOL"), Some("\"warpline_provider\""));
    assert_eq!(text("RI_GET_OPS_SYMBOL"), Some("\"warpline_provider_get_ops\""));
    assert_eq!(text("RI_WRAP_SYMBOL"), Some("\"warpline_provider_wrap\""));
    assert_eq!(left.0.len(), 3, "constants that nothing is held against: {:?}", left.0.keys());
}

/// Those that this crate has as plain numbers.
const PLAIN: &[(&str, u32)] = &[
    ("RI_OP_SEND", codes::op::SEND),
    ("RI_OP_WRITE", codes::op::WRITE),
    ("RI_OP_WRITE_IMMEDIATE", codes::op::WRITE_IMMEDIATE),
    ("RI_OP_IMMEDIATE", codes::op::IMMEDIATE),
    ("RI_OP_READ", codes::op::READ),
    ("RI_OP_ATOMIC", codes::op::ATOMIC),
    ("RI_OP_BIND_MW", codes::op::BIND_MW),
    ("RI_OP_FAST_REGISTER", codes::op::FAST_REGISTER),
    ("RI_OP_INVALIDATE_LOCAL", codes::op::INVALIDATE_LOCAL),
    ("RI_OP_SEND_IMMEDIATE", codes::op::SEND_IMMEDIATE),
    ("RI_SEND_SOLICITED", codes::op::SOLICITED),
    ("RI_SEND_INVALIDATE", codes::op::INVALIDATE),
    ("RI_SEND_INLINE", codes::op::INLINE),
    ("RI_SEND_IMMEDIATE", codes::ud::IMMEDIATE),
    ("RI_ATOMIC_FETCH_ADD", codes::op::FETCH_ADD),
    ("RI_ATOMIC_CMP_SWAP", codes::op::CMP_SWAP),
    ("RI_WC_FLAG_SOLICITED", codes::op::WC_SOLICITED),
    ("RI_WC_FLAG_INVALIDATED", codes::op::WC_INVALIDATED),
    ("RI_WC_FLAG_IMMEDIATE", codes::op::WC_IMMEDIATE),
    ("RI_UD_SOURCE_IS", codes::ud::IS),
    ("RI_UD_SOURCE_GRH", codes::ud::GRH),
    ("RI_UD_SOURCE_PATH", codes::ud::PATH),
    ("RI_UD_QKEY", codes::ud::QKEY),
    ("RI_SERVICE_REQUEST", codes::ud::REQUEST),
    ("RI_SERVICE_RESOLVED", codes::ud::RESOLVED),
    ("RI_SERVICE_REFUSED", codes::ud::REFUSED),
    ("RI_SERVICE_FAILED", codes::ud::FAILED),
    ("RI_CM_REQUEST", codes::cm::REQUEST),
    ("RI_CM_ESTABLISHED", codes::cm::ESTABLISHED),
    ("RI_CM_REJECTED", codes::cm::REJECTED),
    ("RI_CM_FAILED", codes::cm::FAILED),
    ("RI_CM_DISCONNECTED", codes::cm::DISCONNECTED),
    ("RI_QP_TO_RTS", codes::change::RTS),
    ("RI_QP_TO_CLOSING", codes::change::CLOSING),
    ("RI_QP_TO_TERMINATE", codes::change::TERMINATE),
    ("RI_QP_TO_ERROR", codes::change::ERROR),
    ("RI_QP_TO_IDLE", codes::change::IDLE),
    ("RI_QP_LIMITS", codes::change::LIMITS),
    ("RI_QP_DRAIN", codes::change::DRAIN),
    ("RI_QP_ALLOW", codes::change::ALLOW),
    ("RI_QP_DISCARD", codes::change::DISCARD),
    ("RI_LIMIT_ORD", codes::change::WHICH[0]),
    ("RI_LIMIT_IRD", codes::change::WHICH[1]),
    ("RI_LIMIT_SEND_DEPTH", codes::change::WHICH[2]),
    ("RI_LIMIT_RECV_DEPTH", codes::change::WHICH[3]),
    ("RI_LIMIT_RECV_LIMIT", codes::change::WHICH[4]),
    ("RI_STREAM_CRC", codes::stream::CRC),
    ("RI_STREAM_MARKERS_TX", codes::stream::MARKERS_TX),
    ("RI_STREAM_MARKERS_RX", codes::stream::MARKERS_RX),
    ("RI_STREAM_EXTENSIONS", codes::stream::EXTENSIONS),
    ("RI_STREAM_SEND_IMMEDIATES", codes::stream::SEND_IMMEDIATES),
    ("RI_STREAM_LOCAL", codes::stream::LOCAL),
    ("RI_QP_PRIVILEGED", codes::flag::PRIVILEGED),
    ("RI_QP_SRQ", codes::flag::SRQ),
    ("RI_QP_HOLD", codes::flag::HOLD),
    ("RI_SRQ_DEPTH", codes::flag::SRQ_DEPTH),
    ("RI_SRQ_LIMIT", codes::flag::SRQ_LIMIT),
];
