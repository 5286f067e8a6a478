//! Explains MPA, DDP and RDMAP octets field by field, for people and tools; never for the data path.
//!
//! [`explain`] takes one direction of a stream and says of each field what it is, where it is, what
//! it means, and which requirement a wrong one breaks. It has no connection state: what depends on
//! that (MSN order, STags, limits) is not checked.
//!
//! Owner of the state: none, pure functions. Any thread. Any octets are fine; a stream that ends in
//! the middle gives a last frame that says how much is missing.

mod fields;
mod fpdu;
mod rdmap;
mod startup;

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::Crc32c;
use crate::{ProtocolError, TerminateCode};

/// How to read the octets.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions {
    /// The CRC kernel, if CRC is in force; otherwise CRC fields are shown and not checked.
    pub crc: Option<Crc32c>,
    /// The sender of these octets inserts markers.
    pub markers: bool,
    /// How the stream begins.
    pub start: Start,
}

/// What the first octet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A start-up frame; FPDUs after it.
    Startup,
    /// An FPDU (or marker) at this offset in full operation; the offset matters with markers only.
    Fpdu {
        /// Octets of full operation before the first one here; a multiple of 4.
        position: u64,
    },
    /// A start-up frame if the octets look like one, else an FPDU at position 0.
    Detect,
}

/// One start-up frame or FPDU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Name of the message or frame.
    pub what: &'static str,
    /// Offset of its first octet.
    pub offset: usize,
    /// Octets present in the input.
    pub length: usize,
    /// Octets of the whole frame; more than `length` if the stream ends within it.
    pub full_length: usize,
    /// Its fields, by offset.
    pub fields: Vec<Field>,
}

impl Frame {
    /// All that is wrong with it, in the order of its fields.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.fields.iter().filter_map(|field| field.violation.as_ref())
    }
}

/// The protocol layer that a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Layer {
    Mpa,
    Ddp,
    Rdmap,
    Ulp,
}

impl Layer {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpa => "MPA",
            Self::Ddp => "DDP",
            Self::Rdmap => "RDMAP",
            Self::Ulp => "ULP",
        }
    }
}

/// One field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// The protocol layer.
    pub layer: Layer,
    /// Name as in the RFC.
    pub name: &'static str,
    /// Offset of its first octet in the input.
    pub offset: usize,
    /// Octets that it occupies, without markers between them.
    pub length: usize,
    /// For parts of an octet: first bit (0 is the most significant) and number of bits.
    pub bits: Option<(u8, u8)>,
    /// Its value.
    pub value: Value,
    /// What that means; may be empty.
    pub note: String,
    /// What is wrong with it.
    pub violation: Option<Violation>,
}

/// What a field holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A count, length or small number.
    Number(u64),
    /// A tag, offset or mask, and its number of hexadecimal digits.
    Hex(u64, u8),
    /// Octets without a known structure.
    Octets(Vec<u8>),
}

/// A broken requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its id in the project's list of requirements.
    pub requirement: &'static str,
    /// What a receiver sends; `None`: it closes without a Terminate.
    pub terminate: Option<TerminateCode>,
    /// What is wrong.
    pub text: String,
}

impl Violation {
    /// A receiver sends `error`'s Terminate, if it has one.
    fn of(requirement: &'static str, error: ProtocolError) -> Self {
        use alloc::string::ToString;
        let terminate = error.sends_terminate().then(|| error.terminate_code());
        Self { requirement, terminate, text: error.to_string() }
    }
    /// A receiver closes and sends nothing.
    fn close(requirement: &'static str, text: String) -> Self {
        Self { requirement, terminate: None, text }
    }
}

/// Explains one direction of a stream. Every octet belongs to exactly one frame, unless something
/// makes the boundaries after it unknowable: then the rest is one frame named "undecodable".
pub fn explain(octets: &[u8], options: DecodeOptions) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut at, mut position) = (0, 0);
    let startup = match options.start {
        Start::Startup => true,
        Start::Detect => startup::looks_like_one(octets),
        Start::Fpdu { position: first } => {
            position = (first % 512) as u16;
            false
        }
    };
    if startup && !octets.is_empty() {
        let frame = startup::explain(octets);
        at = frame.length;
        frames.push(frame);
    }
    while at < octets.len() {
        let (frame, next) = fpdu::explain(octets, at, position, &options);
        (at, position) = (at + frame.length, next);
        frames.push(frame);
    }
    frames
}
