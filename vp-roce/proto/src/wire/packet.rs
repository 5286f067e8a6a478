//! Encoding of a whole packet: BTH, the extended headers of its opcode, payload, pad and invariant CRC
//! (InfiniBand volume 1, 9.2 to 9.4).
//!
//! Owner of the state: none, pure functions. Any thread.

use super::aeth::Aeth;
use super::bth::{Bth, Opcode, Operation, Position, Rider, Service};
use super::extended::{AtomicEth, Deth, Reth};
use super::{ICRC_LEN, WireError, front, u32_at, u64_at};

/// Extended headers, each present if the opcode requires it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Extended {
    /// UD.
    pub deth: Option<Deth>,
    /// First or Only packet of a Write, Read Request.
    pub reth: Option<Reth>,
    /// Compare and Swap, Fetch and Add.
    pub atomic: Option<AtomicEth>,
    /// Acknowledgements; Read Responses except Middle ones.
    pub aeth: Option<Aeth>,
    /// Atomic Acknowledge: the original value.
    pub original: Option<u64>,
    /// Immediate data, in network order.
    pub immediate: Option<u32>,
    /// Send with Invalidate: the key.
    pub invalidate: Option<u32>,
}

/// Which extended headers an opcode has, in the order of the wire.
#[derive(Clone, Copy, Default)]
struct Layout {
    deth: bool,
    reth: bool,
    atomic: bool,
    aeth: bool,
    original: bool,
    immediate: bool,
    invalidate: bool,
    /// Of a congestion notification.
    reserved: bool,
}

const fn layout(opcode: Opcode) -> Layout {
    let none = Layout {
        deth: false,
        reth: false,
        atomic: false,
        aeth: false,
        original: false,
        immediate: false,
        invalidate: false,
        reserved: false,
    };
    let Opcode::Transport(service, operation) = opcode else {
        return Layout { reserved: true, ..none };
    };
    let deth = matches!(service, Service::Ud);
    match operation {
        Operation::Send(position, rider) => Layout {
            deth,
            immediate: position.ends() && matches!(rider, Rider::Immediate),
            invalidate: position.ends() && matches!(rider, Rider::Invalidate),
            ..none
        },
        // [ROCE-02]
        // The RETH precedes the immediate data.
        Operation::Write(position, rider) => {
            Layout { reth: position.begins(), immediate: matches!(rider, Rider::Immediate), ..none }
        }
        Operation::ReadRequest => Layout { reth: true, ..none },
        // [ROCE-03]
        Operation::ReadResponse(Position::Middle) => none,
        Operation::ReadResponse(_) | Operation::Acknowledge => Layout { aeth: true, ..none },
        Operation::AtomicAcknowledge => Layout { aeth: true, original: true, ..none },
        Operation::CompareSwap | Operation::FetchAdd => Layout { atomic: true, ..none },
    }
}

/// Octets of a congestion notification after its BTH, all zero (InfiniBand annex A17).
pub(crate) const CNP_RESERVED: usize = 16;

/// Most octets that the headers of a packet take.
pub const MAX_HEADERS: usize = Bth::LEN + AtomicEth::LEN;

/// The headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// First header.
    pub bth: Bth,
    /// The headers after it.
    pub extended: Extended,
}

/// Octets of headers to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeaderOctets {
    octets: [u8; MAX_HEADERS],
    len: u8,
}

impl HeaderOctets {
    fn push(&mut self, octets: &[u8]) {
        let at = usize::from(self.len);
        self.octets[at..at + octets.len()].copy_from_slice(octets);
        self.len += octets.len() as u8;
    }
    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

impl Headers {
    /// Reads the headers at the front of `octets`; returns them with their length.
    pub fn parse(octets: &[u8]) -> Result<(Self, usize), WireError> {
        let bth = Bth::parse(octets)?;
        let want = layout(bth.opcode);
        let mut rest = Unparsed { octets: &octets[Bth::LEN..], at: Bth::LEN };
        let mut extended = Extended::default();
        if want.deth {
            extended.deth = Some(rest.take::<{ Deth::LEN }, _>(|o| Deth::parse(o))?);
        }
        if want.reth {
            extended.reth = Some(rest.take::<{ Reth::LEN }, _>(|o| Reth::parse(o))?);
        }
        if want.atomic {
            extended.atomic = Some(rest.take::<{ AtomicEth::LEN }, _>(|o| AtomicEth::parse(o))?);
        }
        if want.aeth {
            extended.aeth = Some(rest.take::<{ Aeth::LEN }, _>(|o| Aeth::parse(o))?);
        }
        if want.original {
            extended.original = Some(rest.take::<8, _>(|o| Ok(u64_at(o, 0)))?);
        }
        if want.immediate {
            extended.immediate = Some(rest.take::<4, _>(|o| Ok(u32_at(o, 0)))?);
        }
        if want.invalidate {
            extended.invalidate = Some(rest.take::<4, _>(|o| Ok(u32_at(o, 0)))?);
        }
        // [ROCE-10]
        if want.reserved {
            rest.take::<CNP_RESERVED, _>(|_| Ok(()))?;
        }
        Ok((Self { bth, extended }, rest.at))
    }

    /// The octets. Extended headers that the opcode does not have are omitted; required ones that are not given
    /// are zero.
    pub fn emit(&self) -> HeaderOctets {
        let mut out = HeaderOctets { octets: [0; MAX_HEADERS], len: 0 };
        let (want, have) = (layout(self.bth.opcode), &self.extended);
        out.push(&self.bth.emit());
        if want.deth {
            out.push(&have.deth.map_or([0; Deth::LEN], |h| h.emit()));
        }
        if want.reth {
            out.push(&have.reth.map_or([0; Reth::LEN], |h| h.emit()));
        }
        if want.atomic {
            out.push(&have.atomic.map_or([0; AtomicEth::LEN], |h| h.emit()));
        }
        if want.aeth {
            out.push(&have.aeth.map_or([0; Aeth::LEN], |h| h.emit()));
        }
        if want.original {
            out.push(&have.original.unwrap_or_default().to_be_bytes());
        }
        if want.immediate {
            out.push(&have.immediate.unwrap_or_default().to_be_bytes());
        }
        if want.invalidate {
            out.push(&have.invalidate.unwrap_or_default().to_be_bytes());
        }
        if want.reserved {
            out.push(&[0; CNP_RESERVED]);
        }
        out
    }
}

/// The headers after the BTH that are not parsed yet, with their offset in the packet.
struct Unparsed<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Unparsed<'_> {
    fn take<const N: usize, T>(
        &mut self,
        parse: impl FnOnce(&[u8; N]) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        let chunk = front::<N>(self.octets).map_err(|_| WireError::Truncated {
            need: self.at + N,
            have: self.at + self.octets.len(),
        })?;
        self.octets = &self.octets[N..];
        self.at += N;
        parse(chunk)
    }
}

/// A received packet: headers and payload. The invariant CRC is the caller's to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Headers.
    pub headers: Headers,
    /// Payload, without pad and invariant CRC.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the payload of a UDP datagram, its invariant CRC included.
    // InfiniBand volume 1, 9.2, A17 [ROCE-01]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, WireError> {
        let have = datagram.len();
        let body = have
            .checked_sub(ICRC_LEN)
            .ok_or(WireError::Truncated { need: Bth::LEN + ICRC_LEN, have })?;
        let truncated = |error| match error {
            WireError::Truncated { need, .. } => {
                WireError::Truncated { need: need + ICRC_LEN, have }
            }
            other => other,
        };
        let (headers, at) = Headers::parse(&datagram[..body]).map_err(truncated)?;
        let padded = &datagram[at..body];
        let pad = usize::from(headers.bth.pad);
        let len =
            padded.len().checked_sub(pad).ok_or(WireError::Pad { pad, have: padded.len() })?;
        Ok(Self { headers, payload: &padded[..len] })
    }
}

/// Octets of pad after `len` octets of payload.
pub const fn pad(len: u32) -> u8 {
    (len.wrapping_neg() & 3) as u8
}
