//! Explains a RoCE v2 packet field by field, for people and tools; never for the data path.
//!
//! Each packet is judged by itself, without the state of a connection (PSN order, keys, limits).
//!
//! Owner of the state: none, pure functions. Any thread. Any octets are accepted; a truncated packet ends the
//! list of fields, and the frame says how much is missing.

mod fields;
mod message;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use self::fields::Fields;
use crate::cm;
use crate::icrc::{Crc32, Envelope, Ip, identify, of_datagram};
use crate::wire::aeth::{Syndrome, rnr_time};
use crate::wire::bth::{Opcode, Operation};
use crate::wire::packet::{CNP_RESERVED, Headers, Packet};
use crate::wire::{ICRC_LEN, WireError};

/// How to judge the invariant CRC.
#[derive(Clone, Copy, Debug)]
pub struct Seal<'a> {
    /// The CRC kernel.
    pub kernel: Crc32,
    /// IP and UDP headers of the packet.
    pub envelope: &'a Envelope,
}

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The kind of packet.
    pub what: String,
    /// Octets of the packet.
    pub length: usize,
    /// Octets that its headers need; more than `length` if it is truncated.
    pub full_length: usize,
    /// Its fields, by offset.
    pub fields: Vec<Field>,
}

/// The header that a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Layer {
    Bth,
    Extended,
    Cm,
    Ulp,
    Icrc,
}

impl Layer {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bth => "BTH",
            Self::Extended => "EXT",
            Self::Cm => "CM",
            Self::Ulp => "ULP",
            Self::Icrc => "ICRC",
        }
    }
}

/// One field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its header.
    pub layer: Layer,
    /// Name as in the standard.
    pub name: &'static str,
    /// Offset of its first octet.
    pub offset: usize,
    /// Octets that it occupies, whole or in part.
    pub length: usize,
    /// For parts of an octet: first bit (0 is the most significant) and number of bits.
    pub bits: Option<(u8, u8)>,
    /// Its value.
    pub value: Value,
    /// The meaning of the value; may be empty.
    pub note: String,
    /// What is wrong with it. A receiver drops the packet.
    pub violation: Option<Violation>,
}

/// The value of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A count, length or small number.
    Number(u64),
    /// A key, address or mask, with a number of hexadecimal digits.
    Hex(u64, u8),
    /// Octets without a known structure.
    Octets(Vec<u8>),
}

/// A broken requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its id in the project's list of requirements.
    pub requirement: &'static str,
    /// What is wrong.
    pub text: String,
}

/// Explains the payload of a UDP datagram to port 4791. Without `seal` the invariant CRC is shown and not
/// judged.
pub fn explain(datagram: &[u8], seal: Option<Seal<'_>>) -> Frame {
    let mut fields = Fields::new(datagram);
    base_header(&mut fields);
    let frame = |what: &str, full_length, fields: Fields<'_>| Frame {
        what: what.into(),
        length: datagram.len(),
        full_length,
        fields: fields.finish(),
    };
    let packet = match Packet::parse(datagram) {
        Ok(packet) => packet,
        Err(error) => {
            let full = match error {
                WireError::Truncated { need, .. } => need,
                _ => datagram.len(),
            };
            fields.violation(broken(error).unwrap_or("ROCE-01"), error.to_string());
            fields.octets(Layer::Ulp, "Rest", usize::MAX);
            return frame(UNDECODABLE, full, fields);
        }
    };
    extended_headers(&mut fields, &packet.headers);
    let what = payload(&mut fields, &packet);
    fields.octets(Layer::Ulp, "Pad", usize::from(packet.headers.bth.pad));
    invariant_crc(&mut fields, datagram, seal);
    frame(&what, datagram.len(), fields)
}

/// Explains the front of a packet of `full` octets, the rest of which was not captured: only what the captured
/// octets show is judged.
pub fn explain_front(front: &[u8], full: usize) -> Frame {
    let mut fields = Fields::new(front);
    base_header(&mut fields);
    let what = match Headers::parse(front) {
        Ok((headers, at)) => {
            extended_headers(&mut fields, &headers);
            let behind = usize::from(headers.bth.pad) + ICRC_LEN;
            fields.octets(Layer::Ulp, "Payload", full.saturating_sub(at + behind));
            headers.bth.opcode.to_string()
        }
        Err(error) => {
            if let Some(requirement) = broken(error) {
                fields.violation(requirement, error.to_string());
            }
            Opcode::parse(front.first().copied().unwrap_or(u8::MAX))
                .map_or_else(|_| UNDECODABLE.into(), |opcode| opcode.to_string())
        }
    };
    fields.octets(Layer::Ulp, "Rest", usize::MAX);
    Frame { what, length: front.len(), full_length: full, fields: fields.finish() }
}

/// The requirement that an error breaks, unless octets are missing.
const fn broken(error: WireError) -> Option<&'static str> {
    match error {
        WireError::Truncated { .. } => None,
        WireError::Version(_) => Some("ROCE-04"),
        WireError::Opcode(_) => Some("ROCE-05"),
        _ => Some("ROCE-01"),
    }
}

/// The kind of a packet whose headers cannot be read.
const UNDECODABLE: &str = "undecodable";

fn base_header(fields: &mut Fields<'_>) {
    const BTH: Layer = Layer::Bth;
    if let Some(code) = fields.hex(BTH, "OpCode", 1) {
        fields.note(match Opcode::parse(code as u8) {
            Ok(opcode) => opcode.to_string(),
            Err(_) => "unknown".into(),
        });
    }
    fields.bits(BTH, "SE", 0, 1);
    fields.bits(BTH, "MigReq", 1, 1);
    fields.bits(BTH, "PadCnt", 2, 2);
    fields.bits(BTH, "TVer", 4, 4);
    fields.skip(1);
    fields.hex(BTH, "P_Key", 2);
    fields.bits(BTH, "FECN", 0, 1);
    fields.bits(BTH, "BECN", 1, 1);
    fields.skip(1);
    fields.hex(BTH, "DestQP", 3);
    fields.bits(BTH, "AckReq", 0, 1);
    fields.skip(1);
    fields.number(BTH, "PSN", 3);
}

fn extended_headers(fields: &mut Fields<'_>, headers: &Headers) {
    const EXT: Layer = Layer::Extended;
    let extended = &headers.extended;
    if extended.deth.is_some() {
        fields.hex(EXT, "Q_Key", 4);
        fields.skip(1);
        fields.hex(EXT, "SrcQP", 3);
    }
    if extended.reth.is_some() {
        fields.hex(EXT, "VA", 8);
        fields.hex(EXT, "R_Key", 4);
        fields.number(EXT, "DMALen", 4);
    }
    if let Some(atomic) = extended.atomic {
        fields.hex(EXT, "VA", 8);
        if atomic.address % 8 != 0 {
            fields.violation("IBRC-16", "not a multiple of eight".into());
        }
        fields.hex(EXT, "R_Key", 4);
        let adds = matches!(headers.bth.opcode, Opcode::Transport(_, Operation::FetchAdd));
        fields.hex(EXT, if adds { "AddData" } else { "SwapData" }, 8);
        fields.hex(EXT, "CmpData", 8);
    }
    if let Some(aeth) = extended.aeth {
        fields.hex(EXT, "Syndrome", 1);
        fields.note(syndrome(aeth.syndrome));
        fields.number(EXT, "MSN", 3);
    }
    if extended.original.is_some() {
        fields.hex(EXT, "OrigData", 8);
    }
    if extended.immediate.is_some() {
        fields.hex(EXT, "ImmDt", 4);
    }
    if extended.invalidate.is_some() {
        fields.hex(EXT, "R_Key", 4);
        fields.note("to be invalidated".into());
    }
    if headers.bth.opcode == Opcode::Cnp {
        // [ROCE-10]
        fields.octets(EXT, "Reserved", CNP_RESERVED);
    }
}

fn syndrome(syndrome: Syndrome) -> String {
    match syndrome {
        Syndrome::Ack { credits } if credits == crate::wire::aeth::NO_CREDITS => {
            "ACK, receives not counted".into()
        }
        Syndrome::Ack { credits } => format!("ACK, credit code {credits}"),
        Syndrome::Rnr { timer } => format!("RNR NAK, again after {} us", rnr_time(timer)),
        Syndrome::Nak(nak) => format!("NAK, {}", nak.name()),
        Syndrome::Reserved(_) => "reserved".into(),
    }
}

/// Explains the payload; returns the kind of packet.
fn payload(fields: &mut Fields<'_>, packet: &Packet<'_>) -> String {
    let bth = &packet.headers.bth;
    let management = packet.headers.extended.deth.is_some() && bth.destination == cm::QPN;
    if management && let Ok(mad) = cm::mad::Mad::parse(packet.payload) {
        return message::explain(fields, &mad);
    }
    fields.octets(Layer::Ulp, "Payload", packet.payload.len());
    bth.opcode.to_string()
}

fn invariant_crc(fields: &mut Fields<'_>, datagram: &[u8], seal: Option<Seal<'_>>) {
    fields.hex(Layer::Icrc, "ICRC", ICRC_LEN);
    let Some(Seal { kernel, envelope }) = seal else { return };
    let Some(right) = of_datagram(kernel, envelope, datagram) else { return };
    if datagram.ends_with(&right) {
        return fields.note("correct".into());
    }
    let mut text = format!("not {:08x}", u32::from_be_bytes(right));
    if let (Ip::V4 { id, .. }, Some(other)) = (envelope.ip, identify(kernel, envelope, datagram)) {
        text +=
            &format!("; it would be right for IPv4 identification {other:#06x}, here {id:#06x}");
    }
    fields.violation("ROCE-06", text);
}
