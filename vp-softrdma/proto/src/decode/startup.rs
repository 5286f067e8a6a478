//! Explains a start-up frame (RFC 5044 section 7.1.1, RFC 6581 section 9).
//!
//! Owner of the state: none, pure functions. Any thread. Missing octets are reported.

use alloc::format;

use super::fields::{Fields, OctetPositions};
use super::{Frame, Layer, Violation};
use crate::wire::mpa::{
    EnhancedRepr, FrameKind, MAX_PRIVATE_DATA, NO_NEGOTIATION, StartupRepr, key_mismatch,
};

/// Whether enough of a start-up key is there that it is not an FPDU by chance.
pub(super) fn looks_like_one(octets: &[u8]) -> bool {
    octets.len() >= 4 && key_mismatch(octets) >= octets.len().min(FrameKind::Request.key().len())
}

pub(super) fn explain(octets: &[u8]) -> Frame {
    let mut fields = Fields::new(octets, OctetPositions::From(0), Layer::Mpa);
    let mismatch = key_mismatch(octets);
    if mismatch < octets.len().min(FrameKind::Request.key().len()) {
        fields.octets("octets", octets.len());
        let text = format!("octet {mismatch} fits neither start-up key");
        // [CONN-01]
        fields.breaks(Violation::close("CONN-01", text));
        return frame("undecodable", octets.len(), octets.len(), fields);
    }
    let key = fields.octets("Key", FrameKind::Request.key().len());
    let what = match key {
        key if key == FrameKind::Request.key() => "MPA Request",
        key if key == FrameKind::Reply.key() => "MPA Reply",
        _ => "MPA start-up frame",
    };
    fields.note(what);
    let enhanced = flags(&mut fields, what == "MPA Request");
    let Some(pd_length) = fields.number("PD_Length", 2) else {
        let missing = StartupRepr::LEN - octets.len();
        fields.note(format!("{missing} octets of the fixed part are missing"));
        return frame(what, octets.len(), StartupRepr::LEN, fields);
    };
    let pd_length = pd_length as usize;
    if pd_length > MAX_PRIVATE_DATA {
        let text = format!("{pd_length} octets of private data, 512 are allowed");
        // [CONN-07]
        fields.breaks(Violation::close("CONN-07", text));
    } else if enhanced && pd_length < EnhancedRepr::LEN {
        let text = format!("s is set but {pd_length} octets cannot hold the enhanced block");
        // [CONN-16]
        fields.breaks(Violation::close("CONN-16", text));
    }
    let full = StartupRepr::LEN + pd_length;
    let have = octets.len().min(full);
    if have < full {
        fields.note(format!("{} octets are missing", full - have));
    }
    fields.limit(pd_length);
    if enhanced {
        block(&mut fields);
    }
    fields.layer(Layer::Ulp);
    fields.octets("Private Data", pd_length);
    frame(what, have, full, fields)
}

fn frame(what: &'static str, length: usize, full_length: usize, fields: Fields<'_>) -> Frame {
    Frame { what, offset: 0, length, full_length, fields: fields.finish() }
}

/// M, C, R, S, Res and Rev; returns whether the enhanced block follows.
fn flags(fields: &mut Fields<'_>, request: bool) -> bool {
    if fields.bits("M", 0, 1) == Some(1) {
        fields.note("sender needs markers in what it receives");
    }
    if fields.bits("C", 1, 1) == Some(1) {
        fields.note("crc in force in both directions");
    }
    if fields.bits("R", 2, 1) == Some(1) {
        fields.note(if request { "means nothing in a request" } else { "rejected" });
    }
    let s = fields.bits("S", 3, 1) == Some(1);
    if fields.bits("Res", 4, 4).is_some_and(|bits| bits != 0) {
        fields.note("reserved, ignored");
    }
    fields.advance();
    let revision = fields.number("Rev", 1);
    match revision {
        Some(0) => fields.note("rdma consortium"),
        Some(1) => fields.note("rfc 5044"),
        Some(2) => fields.note("rfc 6581"),
        _ => {}
    }
    if let Some(revision) = revision.filter(|r| !(1..=2).contains(r)) {
        // [CONN-06, CONN-31]
        let requirement = if revision == 0 { "CONN-31" } else { "CONN-06" };
        fields.breaks(Violation::close(requirement, format!("revision {revision} is unknown")));
    }
    s && revision >= Some(2)
}

fn block(fields: &mut Fields<'_>) {
    let a = fields.bits("A", 0, 1) == Some(1);
    if a {
        fields.note("peer-to-peer");
    }
    let rtr = |fields: &mut Fields<'_>, name, first, kind: &'static str| {
        if fields.bits(name, first, 1) == Some(1) {
            fields.note(if a { kind } else { "means nothing without a" });
        }
    };
    rtr(fields, "B", 1, "rtr by zero-length send");
    limit(fields, "IRD");
    rtr(fields, "C", 0, "rtr by zero-length rdma write");
    rtr(fields, "D", 1, "rtr by zero-length rdma read");
    limit(fields, "ORD");
}

fn limit(fields: &mut Fields<'_>, name: &'static str) {
    if fields.fourteen(name) == Some(NO_NEGOTIATION.into()) {
        fields.note("no automatic negotiation");
    }
}
