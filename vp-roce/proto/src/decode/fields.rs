//! Collects the fields of one packet while its octets are read.
//!
//! Owner of the state: the explaining function. One thread. The list ends where octets are missing.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Field, Layer, Value, Violation};

/// A cursor over octets that records each field it passes.
pub(super) struct Fields<'a> {
    octets: &'a [u8],
    at: usize,
    list: Vec<Field>,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(octets: &'a [u8]) -> Self {
        Self { octets, at: 0, list: Vec::new() }
    }
    pub(super) fn finish(self) -> Vec<Field> {
        self.list
    }
    fn rest(&self) -> &'a [u8] {
        self.octets.get(self.at..).unwrap_or_default()
    }
    fn push(&mut self, layer: Layer, name: &'static str, length: usize, value: Value) {
        let (offset, note) = (self.at, String::new());
        let field = Field { layer, name, offset, length, bits: None, value, note, violation: None };
        self.list.push(field);
    }
    fn integer(
        &mut self,
        layer: Layer,
        name: &'static str,
        len: usize,
        value: impl FnOnce(u64) -> Value,
    ) -> Option<u64> {
        let octets = self.rest().get(..len)?;
        let number = octets.iter().fold(0, |number, &octet| number << 8 | u64::from(octet));
        self.push(layer, name, len, value(number));
        self.at += len;
        Some(number)
    }
    /// Hexadecimal field of `len <= 8` octets, unless octets are missing.
    pub(super) fn hex(&mut self, layer: Layer, name: &'static str, len: usize) -> Option<u64> {
        self.integer(layer, name, len, |value| Value::Hex(value, 2 * len as u8))
    }
    /// Decimal field of `len <= 8` octets, unless octets are missing.
    pub(super) fn number(&mut self, layer: Layer, name: &'static str, len: usize) -> Option<u64> {
        self.integer(layer, name, len, Value::Number)
    }
    /// The next `len` octets, or those that are left. Records nothing for 0 octets.
    pub(super) fn octets(&mut self, layer: Layer, name: &'static str, len: usize) {
        let octets = &self.rest()[..self.rest().len().min(len)];
        if !octets.is_empty() {
            self.push(layer, name, octets.len(), Value::Octets(octets.to_vec()));
            self.at += octets.len();
        }
    }
    /// `count` bits of the next octet, from bit `first` on; does not move past the octet.
    pub(super) fn bits(&mut self, layer: Layer, name: &'static str, first: u8, count: u8) {
        if let Some(&octet) = self.rest().first() {
            let value = octet << first >> (8 - count);
            self.push(layer, name, 1, Value::Number(u64::from(value)));
            if let Some(field) = self.list.last_mut() {
                field.bits = Some((first, count));
            }
        }
    }
    /// Skips octets that are explained already, or reserved.
    pub(super) const fn skip(&mut self, len: usize) {
        self.at += len;
    }
    /// Adds the meaning of the last field.
    pub(super) fn note(&mut self, note: String) {
        if let Some(field) = self.list.last_mut() {
            field.note = note;
        }
    }
    /// Adds the violation of the last field.
    pub(super) fn violation(&mut self, requirement: &'static str, text: String) {
        if let Some(field) = self.list.last_mut() {
            field.violation = Some(Violation { requirement, text });
        }
    }
}
