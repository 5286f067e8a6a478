//! rdma_cm's addresses: the first 36 octets of the private data of a request (InfiniBand annex A11, "IP
//! addressing of CM messages"). The application's private data follows.
//!
//! Owner of the state: none, pure functions. Any thread.

use super::message::Private;
use crate::wire::{front, part, u16_at};

/// IP addresses of both ends, both of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Pair {
    V4 { source: [u8; 4], destination: [u8; 4] },
    V6 { source: [u8; 16], destination: [u8; 16] },
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The sender's port; the receiver's is in the service id.
    pub source_port: u16,
    /// Addresses.
    pub pair: Pair,
}

impl Addresses {
    /// Octets on the wire.
    pub const LEN: usize = 36;

    /// Reads the header; `None` if its version or its IP version is unknown, or it is cut off.
    pub fn parse(private: &[u8]) -> Option<Self> {
        let o = front::<{ Self::LEN }>(private).ok()?;
        // InfiniBand annex A11 [IBCM-07]
        if o[0] != 0 {
            return None;
        }
        let pair = match o[1] >> 4 {
            4 => Pair::V4 { source: part(o, 16), destination: part(o, 32) },
            6 => Pair::V6 { source: part(o, 4), destination: part(o, 20) },
            _ => return None,
        };
        Some(Self { source_port: u16_at(o, 2), pair })
    }

    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match &self.pair {
            Pair::V4 { source, destination } => {
                o[1] = 4 << 4;
                o[16..20].copy_from_slice(source);
                o[32..].copy_from_slice(destination);
            }
            Pair::V6 { source, destination } => {
                o[1] = 6 << 4;
                o[4..20].copy_from_slice(source);
                o[20..].copy_from_slice(destination);
            }
        }
        o
    }

    /// The private data of a request: the header, then `data`; `None` if `data` is too long.
    pub fn with<const N: usize>(&self, data: &[u8]) -> Option<Private<N>> {
        let mut private = Private([0; N]);
        private.0.get_mut(..Self::LEN)?.copy_from_slice(&self.emit());
        private.0.get_mut(Self::LEN..Self::LEN + data.len())?.copy_from_slice(data);
        Some(private)
    }
}
