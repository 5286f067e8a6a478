//! Extended transport headers that follow the BTH: RETH, DETH, AtomicETH, AtomicAckETH
//! (InfiniBand volume 1, 9.3).
//!
//! Owner of the state: none, pure functions. Any thread.

use super::{WireError, front, u24_at, u24_octets, u32_at, u64_at};

/// RDMA extended transport header: the memory of a Write or a Read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Virtual address of the first octet.
    pub address: u64,
    /// The key that grants access.
    pub rkey: u32,
    /// Octets of the whole message (DMA length).
    pub length: u32,
}

impl Reth {
    /// Octets on the wire.
    pub const LEN: usize = 16;

    /// Reads a header.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { address: u64_at(o, 0), rkey: u32_at(o, 8), length: u32_at(o, 12) })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..8].copy_from_slice(&self.address.to_be_bytes());
        o[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        o[12..].copy_from_slice(&self.length.to_be_bytes());
        o
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// The queue key, which must be the receiving queue pair's.
    pub qkey: u32,
    /// The queue pair that sends, 24 bits.
    pub source: u32,
}

impl Deth {
    /// Octets on the wire.
    pub const LEN: usize = 8;

    /// Reads a header.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { qkey: u32_at(o, 0), source: u24_at(o, 5) })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..4].copy_from_slice(&self.qkey.to_be_bytes());
        o[5..].copy_from_slice(&u24_octets(self.source));
        o
    }
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicEth {
    /// Virtual address of the eight octets.
    pub address: u64,
    /// The key that grants access.
    pub rkey: u32,
    /// The value to store if the comparison holds, or to add.
    pub swap_or_add: u64,
    /// The value that Compare and Swap compares with.
    pub compare: u64,
}

impl AtomicEth {
    /// Octets on the wire.
    pub const LEN: usize = 28;

    /// Reads a header.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self {
            address: u64_at(o, 0),
            rkey: u32_at(o, 8),
            swap_or_add: u64_at(o, 12),
            compare: u64_at(o, 20),
        })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[..8].copy_from_slice(&self.address.to_be_bytes());
        o[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        o[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        o[20..].copy_from_slice(&self.compare.to_be_bytes());
        o
    }
}
