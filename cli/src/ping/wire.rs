//! Wire format of rdma-core's `rping`. No state, no IO.
//!
//! Each round trip: the client sends address, key and size of its source buffer; the server reads it by RDMA
//! Read and sends a go-ahead; the client sends those of its sink buffer; the server writes the octets there by
//! RDMA Write and sends a go-ahead. Every Send is 16 octets in network order; the content of a go-ahead is
//! ignored. No private data. A side posts one receive at a time, so at most one Send is outstanding in each
//! direction.

use itapi::{RemoteRange, RmrContext};

/// Octets of every Send.
pub(crate) const INFO_LEN: usize = 16;

/// rping's largest buffer.
pub(crate) const MAX_SIZE: u32 = 64 * 1024;

/// Address, key and size of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Info {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) size: u32,
}

impl Info {
    pub(crate) fn encode(self) -> [u8; INFO_LEN] {
        let word =
            u128::from(self.address) << 64 | u128::from(self.key) << 32 | u128::from(self.size);
        word.to_be_bytes()
    }

    /// `None` unless it is exactly 16 octets.
    pub(crate) fn decode(octets: &[u8]) -> Option<Self> {
        let word = u128::from_be_bytes(octets.try_into().ok()?);
        Some(Self { address: (word >> 64) as u64, key: (word >> 32) as u32, size: word as u32 })
    }
}

impl From<RemoteRange> for Info {
    fn from(range: RemoteRange) -> Self {
        Self { address: range.addr, key: range.context.0, size: range.len as u32 }
    }
}

impl From<Info> for RemoteRange {
    fn from(info: Info) -> Self {
        Self { context: RmrContext(info.key), addr: info.address, len: u64::from(info.size) }
    }
}

/// The text of round trip `number` (from 0), as rping fills it: a prefix, then the characters from
/// `A` to `z` over and over, starting one further each time, and a zero octet at the end.
pub(crate) fn pattern(number: u64, size: u32) -> Vec<u8> {
    const FIRST: u64 = 65;
    const SPAN: u64 = 122 - FIRST + 1;
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    let size = size as usize;
    let mut next = number % SPAN;
    while text.len() < size {
        text.push((FIRST + next) as u8);
        next = (next + 1) % SPAN;
    }
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_order() {
        let info = Info { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, size: 64 };
        let octets = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 0, 0, 0, 64];
        assert_eq!(info.encode(), octets);
        assert_eq!(Info::decode(&octets), Some(info));
        assert_eq!(Info::decode(&octets[1..]), None);
    }

    #[test]
    fn texts() {
        assert_eq!(&pattern(0, 26)[..], b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(&pattern(1, 26)[..17], b"rdma-ping-1: BCDE");
        assert_eq!(pattern(57, 30)[14..17], *b"zAB");
        assert_eq!(pattern(58, 30)[14..16], *b"AB");
        assert_eq!(pattern(3, 65535).len(), 65535);
    }
}
