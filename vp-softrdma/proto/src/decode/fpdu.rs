//! Explains one FPDU: markers, length, DDP segment, pad, CRC (RFC 5044 section 4, RFC 5041 section 4).
//!
//! Owner of the state: none, pure functions. Any thread. Missing octets are reported.

use alloc::format;
use alloc::vec::Vec;

use super::fields::{Fields, OctetPositions};
use super::{DecodeOptions, Field, Frame, Layer, Violation, rdmap};
use crate::ProtocolError;
use crate::mpa::Layout;
use crate::wire::ddp::{self, TaggedRepr, UntaggedRepr};
use crate::wire::mpa::{CRC_LEN, LENGTH_LEN, MARKER_LEN, MAX_ULPDU, pad_len};

/// The FPDU at `at`, which is `position` (mod 512) of the stream, and the position after it.
pub(super) fn explain(
    octets: &[u8],
    at: usize,
    position: u16,
    options: &DecodeOptions,
) -> (Frame, u16) {
    let rest = &octets[at..];
    let front = Layout::new(options.markers, position, 1).header();
    let Some(length) = rest.get(front..).and_then(|o| o.first_chunk()) else {
        let mut fields = Fields::new(rest, OctetPositions::From(at), Layer::Mpa);
        fields.octets("octets", rest.len());
        fields.note("too few for a length field");
        return (frame("incomplete FPDU", at, rest, front + LENGTH_LEN, fields.finish()), 0);
    };
    let ulpdu_len = u16::from_be_bytes(*length);
    let layout = Layout::new(options.markers, position, ulpdu_len);
    let full = layout.wire_len as usize;
    let wire = &rest[..full.min(rest.len())];

    let (content, places) = content(wire, at, &layout);
    let mut fields = Fields::new(&content, OctetPositions::Each(&places), Layer::Mpa);
    fields.number("ULPDU_Length", LENGTH_LEN);
    if ulpdu_len == 0 || ulpdu_len > MAX_ULPDU {
        // [MPA-16, ERR-04]
        fields.breaks(Violation::of("MPA-16", ProtocolError::UlpduLength));
    }
    if wire.len() < full {
        fields.note(format!("{} octets of the fpdu are missing", full - wire.len()));
    }
    let behind = fields.limit(ulpdu_len.into());
    let what = segment(&mut fields, ulpdu_len);
    let mut list = fields.finish();
    let behind_places = places.get(content.len() - behind.len()..).unwrap_or_default();
    let mut fields = Fields::new(behind, OctetPositions::Each(behind_places), Layer::Mpa);
    trailer(&mut fields, ulpdu_len, wire, full, options);
    list.extend(fields.finish());
    list.extend(markers(wire, at, &layout));
    list.sort_by_key(|field| field.offset);
    keep_first_check(&mut list);
    (frame(what, at, wire, full, list), layout.end_position(position))
}

/// If the CRC is wrong, only that is reported; if a marker is wrong, only that (RFC 5044 4.4)
/// [MPA-15].
fn keep_first_check(fields: &mut [Field]) {
    let breaks =
        |field: &Field, id: &str| field.violation.as_ref().is_some_and(|v| v.requirement == id);
    let first = ["MPA-09", "MPA-25"].into_iter().find(|id| fields.iter().any(|f| breaks(f, id)));
    if let Some(first) = first {
        for field in fields.iter_mut().filter(|field| !breaks(field, first)) {
            field.violation = None;
        }
    }
}

fn frame(
    what: &'static str,
    offset: usize,
    wire: &[u8],
    full_length: usize,
    fields: Vec<Field>,
) -> Frame {
    Frame { what, offset, length: wire.len(), full_length, fields }
}

/// The FPDU's octets without markers, and the offset of each in the input.
fn content(wire: &[u8], at: usize, layout: &Layout) -> (Vec<u8>, Vec<usize>) {
    let (mut content, mut places) = (Vec::new(), Vec::new());
    let mut next = 0;
    while next < wire.len() {
        if layout.is_marker(next) {
            next += MARKER_LEN;
            continue;
        }
        let end = next.saturating_add(layout.until_marker(next)).min(wire.len());
        content.extend_from_slice(&wire[next..end]);
        places.extend(at + next..at + end);
        next = end;
    }
    (content, places)
}

fn markers(wire: &[u8], at: usize, layout: &Layout) -> Vec<Field> {
    let mut list = Vec::new();
    for offset in layout.marker_offsets().take_while(|offset| *offset < wire.len()) {
        let octets = &wire[offset..wire.len().min(offset + MARKER_LEN)];
        let due = u64::from(layout.marker(offset).fpduptr);
        let mut fields = Fields::new(octets, OctetPositions::From(at + offset), Layer::Mpa);
        if fields.hex("Marker reserved", 2).is_some_and(|reserved| reserved != 0) {
            fields.note("reserved, ignored");
        }
        match fields.number("FPDUPTR", 2) {
            // RFC 5044 4.2: the low two bits are treated as zero. [MPA-26]
            Some(found) if found & !3 != due => {
                fields.note(format!("should be {due}"));
                fields.breaks(Violation::of("MPA-25", ProtocolError::Marker));
            }
            Some(0) => fields.note("between fpdus"),
            Some(_) => fields.note("back to the length field of this fpdu"),
            None => {}
        }
        list.extend(fields.finish());
    }
    list
}

/// Pad and CRC.
fn trailer(
    fields: &mut Fields<'_>,
    ulpdu_len: u16,
    wire: &[u8],
    full: usize,
    options: &DecodeOptions,
) {
    if fields.octets("PAD", pad_len(ulpdu_len)).iter().any(|octet| *octet != 0) {
        fields.note("should be zero, ignored");
    }
    let Some(found) = fields.hex("CRC", CRC_LEN) else { return };
    let found = (found as u32).swap_bytes();
    let covered = wire.get(..full - CRC_LEN).unwrap_or_default();
    match options.crc.map(|crc32c| crc32c(0, covered)) {
        None => fields.note("crc is not in force, not checked"),
        Some(crc) if crc == found => {
            fields.note(format!("correct: crc32c {crc:#010x}, least significant octet first"));
        }
        Some(crc) => {
            fields.note(format!("wrong: crc32c of these octets is {crc:#010x}"));
            // [MPA-09, ERR-02]
            fields.breaks(Violation::of("MPA-09", ProtocolError::Crc));
        }
    }
}

/// The DDP segment; returns the name of the message.
fn segment(fields: &mut Fields<'_>, ulpdu_len: u16) -> &'static str {
    let Some(&control) = fields.rest().first() else { return "FPDU" };
    let control = ddp::Control(control);
    if usize::from(ulpdu_len) < control.header_len() {
        // [DDP-24, ERR-04]
        fields.breaks(Violation::of("DDP-24", ProtocolError::UlpduLength));
    }
    fields.layer(Layer::Ddp);
    fields.bits("T", 0, 1);
    fields.note(if control.tagged() { "tagged" } else { "untagged" });
    if fields.bits("L", 1, 1) == Some(1) {
        fields.note("last segment of its message");
    }
    if fields.bits("DDP Rsvd", 2, 4).is_some_and(|bits| bits != 0) {
        fields.note("reserved, ignored");
    }
    fields.bits("DV", 6, 2);
    if control.version() != ddp::VERSION {
        let error = if control.tagged() {
            ProtocolError::TaggedVersion
        } else {
            ProtocolError::UntaggedVersion
        };
        // [DDP-04, ERR-05]
        fields.breaks(Violation::of("DDP-04", error));
    }
    fields.advance();
    let opcode = rdmap::control(fields, control);
    if control.tagged() {
        tagged(fields, usize::from(ulpdu_len).saturating_sub(TaggedRepr::LEN));
    } else {
        let message = rdmap::Untagged {
            opcode,
            last: control.last(),
            len: usize::from(ulpdu_len).saturating_sub(UntaggedRepr::LEN),
        };
        untagged(fields, &message);
        rdmap::payload(fields, &message);
    }
    fields.layer(Layer::Ulp);
    fields.octets("Payload", usize::from(ulpdu_len));
    opcode.map_or("unknown RDMAP message", |opcode| opcode.name())
}

fn tagged(fields: &mut Fields<'_>, len: usize) {
    let stag = fields.hex("STag", 4);
    if len == 0 {
        fields.note("not checked: no octet is placed");
    } else if stag == Some(0) {
        // [VERBS-23, ERR-13]
        fields.breaks(Violation::of("VERBS-23", ProtocolError::TaggedStag));
    }
    let to = fields.hex("TO", 8);
    // The last octet must exist; a range that ends at 2^64 does not wrap (AMB-08).
    if to.is_some_and(|to| len > 0 && to.checked_add(len as u64 - 1).is_none()) {
        // [DDP-15, ERR-16]
        fields.breaks(Violation::of("DDP-15", ProtocolError::TaggedWrap));
    }
}

fn untagged(fields: &mut Fields<'_>, message: &rdmap::Untagged) {
    let opcode = message.opcode;
    if opcode.is_some_and(|opcode| opcode.experimental()) {
        fields.hex("Immediate", 4);
    } else {
        fields.hex("Invalidate STag", 4);
    }
    if !opcode.is_some_and(|opcode| opcode.invalidates() || opcode.experimental()) {
        fields.note("reserved for this opcode, ignored");
    }
    let qn = fields.number("QN", 4);
    if let (Some(qn), Some(due)) = (qn, opcode.and_then(|opcode| opcode.queue()))
        && qn != u64::from(due)
    {
        fields.note(format!("should be {due}"));
        // [RDMAP-02, ERR-08]
        fields.breaks(Violation::of("RDMAP-02", ProtocolError::QueueNumber));
    }
    let msn = fields.number("MSN", 4);
    rdmap::judge_msn(fields, message, msn);
    let mo = fields.number("MO", 4);
    // [DDP-14, ERR-11]
    if mo.is_some_and(|mo| mo + message.len as u64 > 1 << 32) {
        fields.breaks(Violation::of("DDP-14", ProtocolError::MessageOffset));
    }
    rdmap::judge_offset(fields, message, mo);
}
