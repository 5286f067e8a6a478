//! Descriptions of a peer's memory. Plain values: the peer that has the memory checks range and rights.

use std::ops::Range;

use crate::error::{Error, Result};

/// The STag by which a peer accesses memory (`it_rmr_context_t`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RmrContext(pub u32);

/// Memory of the peer, as it described it. The peer decides what may be read or written.
///
/// ```
/// # use itapi::RemoteRange;
/// # fn show(private_data: &[u8]) -> itapi::Result<()> {
/// if let Some(board) = RemoteRange::from_octets(private_data) {
///     let first_line = board.slice(0..80)?; // for `Work::read` and `Work::write`
/// #   drop(first_line);
/// }
/// # Ok(())
/// # }
/// # assert!(show(&[0; 20]).is_err() && show(&[0; 19]).is_ok());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RemoteRange {
    /// The STag.
    pub context: RmrContext,
    /// Address of the first octet (`it_rdma_addr_t`).
    pub addr: u64,
    /// Octets.
    pub len: u64,
}

impl RemoteRange {
    /// Octets of [`RemoteRange::to_octets`].
    pub const ENCODED_LEN: usize = 20;

    /// Part of it.
    pub fn slice(self, range: Range<u64>) -> Result<Self> {
        if range.start > range.end || range.end > self.len {
            let len = range.end.saturating_sub(range.start);
            let [start, len, size] = [range.start, len, self.len].map(|n| n as usize);
            return Err(Error::range("the peer's memory", start, len, size));
        }
        let addr = self.addr.wrapping_add(range.start);
        Ok(Self { addr, len: range.end - range.start, ..self })
    }

    /// Encoding for a message to a peer: key, address and length in network order.
    pub fn to_octets(self) -> [u8; Self::ENCODED_LEN] {
        let mut octets = [0; Self::ENCODED_LEN];
        octets[..4].copy_from_slice(&self.context.0.to_be_bytes());
        octets[4..12].copy_from_slice(&self.addr.to_be_bytes());
        octets[12..].copy_from_slice(&self.len.to_be_bytes());
        octets
    }

    /// Decodes what a peer sent; `None` unless there are exactly [`RemoteRange::ENCODED_LEN`] octets.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let (context, rest) = octets.split_first_chunk()?;
        let (addr, len) = rest.split_first_chunk()?;
        Some(Self {
            context: RmrContext(u32::from_be_bytes(*context)),
            addr: u64::from_be_bytes(*addr),
            len: u64::from_be_bytes(len.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_ranges_are_sliced_and_encoded() {
        let all = RemoteRange { context: RmrContext(0x0102_0304), addr: 100, len: 10 };
        assert_eq!(all.slice(2..5).unwrap(), RemoteRange { addr: 102, len: 3, ..all });
        assert!(all.slice(10..10).is_ok());
        assert!(all.slice(5..11).is_err());
        assert_eq!(RemoteRange::from_octets(&all.to_octets()), Some(all));
        assert_eq!(all.to_octets()[..5], [1, 2, 3, 4, 0]);
        for len in 0..20 {
            assert_eq!(RemoteRange::from_octets(&[0; 20][..len]), None);
        }
    }
}
