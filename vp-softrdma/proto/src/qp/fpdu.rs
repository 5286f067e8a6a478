//! An outbound FPDU: head inline, payload by reference.
//!
//! A value; owned by the caller that polled it, until the LLP has its octets or the QP is gone.

use crate::mpa::FpduPlan;
use crate::types::{Slot, Stag};
use crate::wire::ddp::MAX_HEADER;
use crate::wire::mpa::LENGTH_LEN;
use crate::wire::rdmap::{AtomicRequestRepr, ReadRequestRepr};
use crate::wire::terminate::TerminateRepr;

/// One FPDU to send, see [`crate::Qp::poll_transmit`].
#[derive(Clone, Debug)]
pub struct Fpdu {
    /// Where its payload comes from.
    pub payload: Payload,
    /// Number of this FPDU, counting up; give it to [`crate::Qp::handle_sent`] when all its octets
    /// have been accepted by the LLP.
    pub sequence: u64,
    pub(crate) plan: FpduPlan,
    pub(crate) head: Head,
}

/// Source of an FPDU's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// None outside the head.
    None,
    /// Octets of a WQE's scatter/gather list.
    Local {
        /// The WQE.
        slot: Slot,
        /// First octet, counted through the list.
        offset: u32,
        /// Octets.
        len: u32,
    },
    /// RDMA Read Response: registered memory. Resolve (and check) again.
    Source {
        /// The region or window.
        stag: Stag,
        /// First octet.
        to: u64,
        /// Octets.
        len: u32,
    },
}

impl Payload {
    /// Octets.
    pub const fn len(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Local { len, .. } | Self::Source { len, .. } => *len,
        }
    }
    /// Nothing outside the head.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Fpdu {
    /// Octets on the wire, markers included.
    pub const fn wire_len(&self) -> usize {
        self.plan.wire_len()
    }
    /// Writes the whole FPDU (head, payload, pad, CRC, markers) into `out`, which must be at least
    /// `wire_len()` long (else this panics). `copy(offset, dst)` fills `dst` with payload octets
    /// from `offset`; called once per contiguous piece, in order. If it fails nothing may be sent:
    /// call [`crate::Qp::handle_source_fault`].
    pub fn encode<E>(
        &self,
        out: &mut [u8],
        copy: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.plan.encode(self.head.octets(), out, copy)
    }
    /// The same for a `copy` that sums on the way: `copy(offset, dst, crc)` continues `crc`, if there
    /// is one, over what it wrote to `dst`.
    pub fn encode_summed<E>(
        &self,
        out: &mut [u8],
        copy: impl FnMut(u32, &mut [u8], Option<&mut u32>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.plan.encode_summed(self.head.octets(), out, copy)
    }
    /// For gathering without a copy: length field, DDP and RDMAP headers. `None` if CRC or markers
    /// are on; then use `encode`.
    pub fn head(&self) -> Option<&[u8]> {
        self.plan.gathers().then(|| self.head.octets())
    }
    /// For gathering: pad and (zero) CRC field, 4 to 7 octets.
    pub const fn trailer(&self) -> &'static [u8] {
        self.plan.trailer()
    }
}

/// The octets before the payload, built once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    octets: [u8; Self::MAX],
    len: u8,
}

impl Head {
    /// Length field, untagged header, and the longest control payload (Terminate, Atomic Request).
    const MAX: usize = LENGTH_LEN + MAX_HEADER + longest();

    /// Room for the length field, then `ddp`.
    pub(crate) fn new(ddp: &[u8]) -> Self {
        let mut head = Self { octets: [0; Self::MAX], len: LENGTH_LEN as u8 };
        head.put(ddp);
        head
    }
    /// Appends; what exceeds the longest head is a fault of this crate and cut off.
    pub(crate) fn put(&mut self, octets: &[u8]) {
        let at = usize::from(self.len);
        debug_assert!(at + octets.len() <= Self::MAX, "head too long");
        let len = octets.len().min(Self::MAX - at);
        self.octets[at..at + len].copy_from_slice(&octets[..len]);
        self.len += len as u8;
    }
    pub(crate) fn set_length(&mut self, field: [u8; LENGTH_LEN]) {
        self.octets[..LENGTH_LEN].copy_from_slice(&field);
    }
    /// Octets that belong to the ULPDU.
    pub(crate) const fn ulpdu_part(&self) -> u16 {
        self.len as u16 - LENGTH_LEN as u16
    }
    pub(crate) fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

const fn longest() -> usize {
    let (a, t, r) = (AtomicRequestRepr::LEN, TerminateRepr::MAX_LEN, ReadRequestRepr::LEN);
    let longest = if a > t { a } else { t };
    if longest > r { longest } else { r }
}
