//! Checks every FPDU received during a conformance case: framing, header fields, sequence.
//! Belongs to its connection; its findings go to the record of the case.

use std::collections::HashMap;
use std::rc::Rc;

use iwarp_proto::ProtocolError;
use iwarp_proto::decode::{DecodeOptions, Start, Value, explain};
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::{Control, Opcode};

use super::frames::crc32c;
use super::record::Record;

/// Requirements that a correct FPDU meets.
const FRAMING: &[&str] = &["MPA-01", "MPA-02", "MPA-03", "DDP-01", "RDMAP-30"];
const CRC: &[&str] = &["MPA-07", "MPA-08", "MPA-09", "MPA-13"];
const MARKERS: &[&str] =
    &["MPA-10", "MPA-22", "MPA-23", "MPA-24", "MPA-25", "MPA-26", "MPA-28", "CONN-02"];
const HEADER: &[&str] = &["DDP-03", "DDP-04", "RDMAP-01", "RDMAP-02", "MPA-36"];
const UNTAGGED: &[&str] = &["DDP-05", "DDP-06", "DDP-07", "RDMAP-03"];

pub(super) struct FpduCheck {
    record: Rc<Record>,
    crc: bool,
    markers: bool,
    position: u64,
    /// Next MSN and MO of each queue.
    due: HashMap<u32, (u32, u32)>,
}

impl FpduCheck {
    pub(super) fn new(record: Rc<Record>, crc: bool, markers: bool) -> Self {
        Self { record, crc, markers, position: 0, due: HashMap::new() }
    }

    /// Records octets that are not an FPDU.
    pub(super) fn bad(&self, error: ProtocolError) {
        let ids: &[&str] = match error {
            ProtocolError::Crc => CRC,
            ProtocolError::Marker => &["MPA-25", "MPA-28"],
            _ => &["MPA-01", "MPA-16"],
        };
        self.record.broken(ids, format!("the peer sent an invalid FPDU: {error}"));
    }

    /// Checks a valid FPDU.
    pub(super) fn fpdu(&mut self, wire: &[u8], ulpdu: &[u8]) {
        let options = DecodeOptions {
            crc: self.crc.then_some(crc32c),
            markers: self.markers,
            start: Start::Fpdu { position: self.position },
        };
        self.position += wire.len() as u64;
        let frames = explain(wire, options);
        for violation in frames.iter().flat_map(|frame| frame.violations()) {
            self.record
                .broken(&[violation.requirement], format!("the peer sent: {}", violation.text));
        }
        let fields = frames.iter().flat_map(|frame| &frame.fields);
        let octets_of = |name: &str| {
            fields.clone().filter(|f| f.name == name).any(|f| match &f.value {
                Value::Octets(octets) => octets.iter().any(|octet| *octet != 0),
                Value::Number(n) | Value::Hex(n, _) => *n != 0,
            })
        };
        self.zero(octets_of("PAD"), &["MPA-03"], "PAD");
        self.zero(octets_of("DDP Rsvd"), &["DDP-03"], "reserved bits of DDP");
        self.zero(octets_of("RDMAP Rsv"), &["RDMAP-01"], "reserved bits of RDMAP");
        self.zero(octets_of("Marker reserved"), &["MPA-22"], "reserved bits of a marker");
        self.record.kept(FRAMING);
        self.record.kept(HEADER);
        if self.crc {
            self.record.kept(CRC);
        }
        if self.markers {
            self.record.kept(MARKERS);
        }
        self.untagged(ulpdu);
    }

    fn zero(&self, set: bool, ids: &[&'static str], what: &str) {
        if set {
            self.record.broken(ids, format!("the peer sent {what} that are not zero"));
        }
    }

    /// MSN and MO continue from the last segment.
    fn untagged(&mut self, ulpdu: &[u8]) {
        let Ok(Header::Untagged(header)) = Header::parse(ulpdu) else { return };
        let due = self.due.entry(header.qn).or_insert((1, 0));
        if (header.msn, header.mo) != *due {
            let text = format!(
                "the peer sent MSN {} MO {} on queue {}, expected MSN {} MO {}",
                header.msn, header.mo, header.qn, due.0, due.1
            );
            self.record.broken(&["DDP-06", "DDP-07"], text);
        }
        let payload = (ulpdu.len() - 18) as u32;
        *due = if header.control.last() {
            (header.msn.wrapping_add(1), 0)
        } else {
            (header.msn, header.mo.wrapping_add(payload))
        };
        let opcode = Control(header.ulp).opcode();
        if opcode.is_some_and(Opcode::experimental) {
            let text = "the peer sent RDMAP opcode 15, on which no ends agreed here";
            self.record.broken(&["RDMAP-02"], text.to_owned());
        }
        let invalidates = opcode.is_some_and(Opcode::invalidates);
        self.zero(!invalidates && header.ulp_word != 0, &["RDMAP-03"], "RsvdULP[8:39]");
        self.record.kept(UNTAGGED);
    }
}
