//! Fields of a decoded frame, collected while its octets are read.
//!
//! Owner of the state: the explaining function. One thread. The list ends at the first missing octet.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Field, Layer, Value, Violation};

/// A cursor over contiguous octets that records each field it reads.
pub(super) struct Fields<'a> {
    octets: &'a [u8],
    places: OctetPositions<'a>,
    at: usize,
    layer: Layer,
    list: Vec<Field>,
}

/// Offsets of the octets in the input.
#[derive(Clone, Copy)]
pub(super) enum OctetPositions<'a> {
    /// Contiguous, from this offset.
    From(usize),
    /// Each at an offset of its own (markers are between them).
    Each(&'a [usize]),
}

impl OctetPositions<'_> {
    fn of(&self, at: usize) -> usize {
        match self {
            Self::From(start) => start + at,
            Self::Each(places) => {
                places.get(at).copied().or(places.last().map(|p| p + 1)).unwrap_or(0)
            }
        }
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(octets: &'a [u8], places: OctetPositions<'a>, layer: Layer) -> Self {
        Self { octets, places, at: 0, layer, list: Vec::new() }
    }
    pub(super) fn layer(&mut self, layer: Layer) {
        self.layer = layer;
    }
    pub(super) fn finish(self) -> Vec<Field> {
        self.list
    }
    pub(super) fn remaining(&self) -> usize {
        self.octets.len() - self.at
    }
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.octets[self.at..]
    }
    /// From here on only `len` octets belong to the part that is being read.
    pub(super) fn limit(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.octets.split_at(self.octets.len().min(self.at + len));
        self.octets = now;
        later
    }

    /// Hexadecimal field of `len <= 8` octets; if fewer are left, those as raw octets.
    pub(super) fn hex(&mut self, name: &'static str, len: usize) -> Option<u64> {
        self.integer(name, len, |value| Value::Hex(value, 2 * len as u8))
    }
    /// Decimal field of `len <= 8` octets; if fewer are left, those as raw octets.
    pub(super) fn number(&mut self, name: &'static str, len: usize) -> Option<u64> {
        self.integer(name, len, Value::Number)
    }
    /// The next `len` octets, or what is left of them. If none is left, no field is added.
    pub(super) fn octets(&mut self, name: &'static str, len: usize) -> &'a [u8] {
        let octets = &self.octets[self.at..self.octets.len().min(self.at + len)];
        if !octets.is_empty() {
            self.push(name, octets.len(), None, Value::Octets(octets.to_vec()));
        }
        octets
    }
    /// `count` bits of the next octet, from bit `first` on; the octet stays the next one.
    pub(super) fn bits(&mut self, name: &'static str, first: u8, count: u8) -> Option<u8> {
        let octet = *self.octets.get(self.at)?;
        let value = octet >> (8 - first - count) & (0xff >> (8 - count));
        self.push_at(name, 1, Some((first, count)), Value::Number(value.into()));
        Some(value)
    }
    /// 14 bits of the next two octets, after two flags.
    pub(super) fn fourteen(&mut self, name: &'static str) -> Option<u64> {
        let Some(pair) = self.rest().first_chunk::<2>() else {
            self.bits(name, 2, 6)?;
            self.note("cut off, 1 octet is missing");
            self.advance();
            return None;
        };
        let value = u64::from(u16::from_be_bytes(*pair) & 0x3fff);
        self.push(name, 2, Some((2, 14)), Value::Number(value));
        Some(value)
    }
    /// Advances past the octet whose bits were read.
    pub(super) fn advance(&mut self) {
        self.at = self.octets.len().min(self.at + 1);
    }

    /// Sets the meaning of the last field.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        if let Some(field) = self.list.last_mut() {
            field.note = note.into();
        }
    }
    /// Records what is wrong with the last field; the first fault of a field is kept.
    pub(super) fn breaks(&mut self, violation: Violation) {
        if let Some(field) = self.list.last_mut()
            && field.violation.is_none()
        {
            field.violation = Some(violation);
        }
    }

    fn integer(
        &mut self,
        name: &'static str,
        len: usize,
        value: impl Fn(u64) -> Value,
    ) -> Option<u64> {
        let Some(octets) = self.rest().get(..len) else {
            let have = self.octets(name, len).len();
            if have > 0 {
                self.note(format!("cut off, {} octets are missing", len - have));
            }
            return None;
        };
        let number = octets.iter().fold(0, |n, octet| n << 8 | u64::from(*octet));
        self.push(name, len, None, value(number));
        Some(number)
    }
    fn push(&mut self, name: &'static str, len: usize, bits: Option<(u8, u8)>, value: Value) {
        self.push_at(name, len, bits, value);
        self.at += len;
    }
    fn push_at(&mut self, name: &'static str, len: usize, bits: Option<(u8, u8)>, value: Value) {
        self.list.push(Field {
            layer: self.layer,
            name,
            offset: self.places.of(self.at),
            length: len,
            bits,
            value,
            note: String::new(),
            violation: None,
        });
    }
}
