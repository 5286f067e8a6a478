//! Encoding of management datagrams (MAD): 24 octets of header, 232 octets of message (InfiniBand volume 1,
//! 13.4).
//!
//! Owner of the state: none, pure functions. Any thread.

use core::fmt;

/// Octets of a management datagram.
pub const LEN: usize = 256;
/// Octets of its header.
pub const HEADER_LEN: usize = 24;
/// Octets of its message.
pub const BODY_LEN: usize = LEN - HEADER_LEN;

const BASE_VERSION: u8 = 1;
const CLASS: u8 = 7;
const CLASS_VERSION: u8 = 2;
const METHOD_SEND: u8 = 3;

/// Why a datagram is not a message of the communication manager. It is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MadError {
    /// Not 256 octets.
    Length(usize),
    /// Base version, class, class version or method are not the communication manager's.
    Class {
        /// Management class, 7 is the communication manager's.
        class: u8,
        /// Its version, 2 is known.
        version: u8,
        /// Method, 3 (Send) is known.
        method: u8,
    },
    /// An unknown message.
    Attribute(u16),
}

impl fmt::Display for MadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(have) => write!(f, "a management datagram of {have} octets, not {LEN}"),
            Self::Class { class, version, method } => write!(
                f,
                "management class {class}, version {version}, method {method}, \
                 not the communication manager's {CLASS}, {CLASS_VERSION}, {METHOD_SEND}"
            ),
            Self::Attribute(id) => write!(f, "message {id:#06x} of the communication manager"),
        }
    }
}

impl core::error::Error for MadError {}

/// A management datagram of the communication manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mad {
    /// Transaction id: a reply repeats the request's.
    pub transaction: u64,
    /// Attribute id: which message.
    pub attribute: u16,
    /// The message.
    pub body: Body,
}

impl Mad {
    /// Reads a datagram.
    pub fn parse(octets: &[u8]) -> Result<Self, MadError> {
        // [IBCM-01]
        let octets: &[u8; LEN] = octets.try_into().map_err(|_| MadError::Length(octets.len()))?;
        let [base, class, version, method, ..] = *octets;
        if (base, class, version, method) != (BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND) {
            return Err(MadError::Class { class, version, method });
        }
        let mut body = Body::default();
        body.0.copy_from_slice(&octets[HEADER_LEN..]);
        Ok(Self {
            transaction: crate::wire::u64_at(octets, 8),
            attribute: crate::wire::u16_at(octets, 16),
            body,
        })
    }
    /// The datagram's octets.
    pub fn emit(&self) -> [u8; LEN] {
        let mut octets = [0; LEN];
        octets[..4].copy_from_slice(&[BASE_VERSION, CLASS, CLASS_VERSION, METHOD_SEND]);
        octets[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        octets[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        octets[HEADER_LEN..].copy_from_slice(&self.body.0);
        octets
    }
}

/// The message of a management datagram, field by field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Body(pub [u8; BODY_LEN]);

impl Default for Body {
    fn default() -> Self {
        Self([0; BODY_LEN])
    }
}

impl Body {
    pub(super) fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }
    /// `width` bits of the octet at `at`, from bit `first` on; bit 0 is the most significant.
    pub(super) fn bits(&self, at: usize, first: u8, width: u8) -> u8 {
        self.0[at] << first >> (8 - width)
    }
    pub(super) fn u16(&self, at: usize) -> u16 {
        crate::wire::u16_at(&self.0, at)
    }
    pub(super) fn u24(&self, at: usize) -> u32 {
        crate::wire::u24_at(&self.0, at)
    }
    pub(super) fn u32(&self, at: usize) -> u32 {
        crate::wire::u32_at(&self.0, at)
    }
    pub(super) fn u64(&self, at: usize) -> u64 {
        crate::wire::u64_at(&self.0, at)
    }
    pub(super) fn octets<const N: usize>(&self, at: usize) -> [u8; N] {
        crate::wire::part(&self.0, at)
    }
    pub(super) fn put(&mut self, at: usize, octets: &[u8]) {
        self.0[at..at + octets.len()].copy_from_slice(octets);
    }
    /// Sets bits that are zero so far; those of `value` beyond `width` are dropped.
    pub(super) fn put_bits(&mut self, at: usize, first: u8, width: u8, value: u8) {
        self.0[at] |= value << (8 - width) >> first;
    }
    pub(super) fn put_u24(&mut self, at: usize, value: u32) {
        self.put(at, &crate::wire::u24_octets(value));
    }
    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }
    pub(super) fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_be_bytes());
    }
}
