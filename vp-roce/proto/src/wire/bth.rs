//! The base transport header (BTH) and its opcodes (InfiniBand volume 1, 9.2).
//!
//! Owner of the state: none, pure functions. Any thread.

use super::{WireError, front, u16_at, u24_at, u24_octets};
use crate::psn::Psn;

/// Transport service: the upper three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl Service {
    /// Its short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

/// Where a packet is in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    /// The packet begins its message.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }
    /// The packet ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
    /// The position that begins, ends, or does both.
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// Additional data of the last packet of a Send or RDMA Write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rider {
    /// Nothing.
    None,
    /// 32 bits of immediate data.
    Immediate,
    /// An R_Key to invalidate (Sends of RC only).
    Invalidate,
}

/// What a packet does: the lower five bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Operation {
    Send(Position, Rider),
    Write(Position, Rider),
    ReadRequest,
    ReadResponse(Position),
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
}

/// The opcode of a congestion notification packet (CNP; InfiniBand annex A17).
pub const CNP: u8 = 0x81;

/// Service and operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// A packet of a queue pair's service.
    Transport(Service, Operation),
    /// Congestion notification.
    Cnp,
}

impl Opcode {
    /// The octet's meaning; of UC only Sends and Writes, of UD only Send Only, exist.
    pub fn parse(octet: u8) -> Result<Self, WireError> {
        if octet == CNP {
            return Ok(Self::Cnp);
        }
        // [ROCE-05]
        let unknown = WireError::Opcode(octet);
        let operation = operation(octet & 0x1f).ok_or(unknown)?;
        let service = match (octet >> 5, operation) {
            (0, _) => Service::Rc,
            (1, Operation::Send(_, rider) | Operation::Write(_, rider))
                if rider != Rider::Invalidate =>
            {
                Service::Uc
            }
            (3, Operation::Send(Position::Only, Rider::None | Rider::Immediate)) => Service::Ud,
            _ => return Err(unknown),
        };
        Ok(Self::Transport(service, operation))
    }

    /// The octet.
    pub const fn emit(self) -> u8 {
        match self {
            Self::Cnp => CNP,
            Self::Transport(service, operation) => {
                let upper = match service {
                    Service::Rc => 0,
                    Service::Uc => 1,
                    Service::Ud => 3,
                };
                upper << 5 | code(operation)
            }
        }
    }
}

impl core::fmt::Display for Opcode {
    /// Service and operation, as tools print them: `RC Send Only`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Cnp => f.write_str("Congestion Notification"),
            Self::Transport(service, operation) => {
                write!(f, "{} {}", service.name(), operation.name())
            }
        }
    }
}

impl Operation {
    /// Its name.
    pub const fn name(self) -> &'static str {
        use Position::{First, Last, Middle, Only};
        match self {
            Self::Send(First, _) => "Send First",
            Self::Send(Middle, _) => "Send Middle",
            Self::Send(Last, Rider::None) => "Send Last",
            Self::Send(Last, Rider::Immediate) => "Send Last with Immediate",
            Self::Send(Last, Rider::Invalidate) => "Send Last with Invalidate",
            Self::Send(Only, Rider::None) => "Send Only",
            Self::Send(Only, Rider::Immediate) => "Send Only with Immediate",
            Self::Send(Only, Rider::Invalidate) => "Send Only with Invalidate",
            Self::Write(First, _) => "RDMA Write First",
            Self::Write(Middle, _) => "RDMA Write Middle",
            Self::Write(Last, Rider::None) => "RDMA Write Last",
            Self::Write(Last, _) => "RDMA Write Last with Immediate",
            Self::Write(Only, Rider::None) => "RDMA Write Only",
            Self::Write(Only, _) => "RDMA Write Only with Immediate",
            Self::ReadRequest => "RDMA Read Request",
            Self::ReadResponse(First) => "RDMA Read Response First",
            Self::ReadResponse(Middle) => "RDMA Read Response Middle",
            Self::ReadResponse(Last) => "RDMA Read Response Last",
            Self::ReadResponse(Only) => "RDMA Read Response Only",
            Self::Acknowledge => "Acknowledge",
            Self::AtomicAcknowledge => "Atomic Acknowledge",
            Self::CompareSwap => "Compare and Swap",
            Self::FetchAdd => "Fetch and Add",
        }
    }
    /// Sent by a responder.
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse(_) | Self::Acknowledge | Self::AtomicAcknowledge)
    }
}

fn operation(code: u8) -> Option<Operation> {
    use Position::{First, Last, Middle, Only};
    Some(match code {
        0x00 => Operation::Send(First, Rider::None),
        0x01 => Operation::Send(Middle, Rider::None),
        0x02 => Operation::Send(Last, Rider::None),
        0x03 => Operation::Send(Last, Rider::Immediate),
        0x04 => Operation::Send(Only, Rider::None),
        0x05 => Operation::Send(Only, Rider::Immediate),
        0x06 => Operation::Write(First, Rider::None),
        0x07 => Operation::Write(Middle, Rider::None),
        0x08 => Operation::Write(Last, Rider::None),
        0x09 => Operation::Write(Last, Rider::Immediate),
        0x0a => Operation::Write(Only, Rider::None),
        0x0b => Operation::Write(Only, Rider::Immediate),
        0x0c => Operation::ReadRequest,
        0x0d => Operation::ReadResponse(First),
        0x0e => Operation::ReadResponse(Middle),
        0x0f => Operation::ReadResponse(Last),
        0x10 => Operation::ReadResponse(Only),
        0x11 => Operation::Acknowledge,
        0x12 => Operation::AtomicAcknowledge,
        0x13 => Operation::CompareSwap,
        0x14 => Operation::FetchAdd,
        0x16 => Operation::Send(Last, Rider::Invalidate),
        0x17 => Operation::Send(Only, Rider::Invalidate),
        _ => return None,
    })
}

/// The inverse of [`operation`]. A rider on a packet that does not end its message has no opcode: the plain one
/// is used.
const fn code(operation: Operation) -> u8 {
    use Position::{First, Last, Middle, Only};
    match operation {
        Operation::Send(First, _) => 0x00,
        Operation::Send(Middle, _) => 0x01,
        Operation::Send(Last, Rider::None) => 0x02,
        Operation::Send(Last, Rider::Immediate) => 0x03,
        Operation::Send(Only, Rider::None) => 0x04,
        Operation::Send(Only, Rider::Immediate) => 0x05,
        Operation::Send(Last, Rider::Invalidate) => 0x16,
        Operation::Send(Only, Rider::Invalidate) => 0x17,
        Operation::Write(First, _) => 0x06,
        Operation::Write(Middle, _) => 0x07,
        Operation::Write(Last, Rider::Immediate) => 0x09,
        Operation::Write(Last, _) => 0x08,
        Operation::Write(Only, Rider::Immediate) => 0x0b,
        Operation::Write(Only, _) => 0x0a,
        Operation::ReadRequest => 0x0c,
        Operation::ReadResponse(First) => 0x0d,
        Operation::ReadResponse(Middle) => 0x0e,
        Operation::ReadResponse(Last) => 0x0f,
        Operation::ReadResponse(Only) => 0x10,
        Operation::Acknowledge => 0x11,
        Operation::AtomicAcknowledge => 0x12,
        Operation::CompareSwap => 0x13,
        Operation::FetchAdd => 0x14,
    }
}

/// The partition key on RoCE: the default partition, full member.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// The reserved bits beside FECN and BECN in packets of connections of this implementation, by which its ends
/// recognise each other. Receivers ignore these bits, and the invariant CRC does not cover them (InfiniBand volume 1,
/// 9.2; annex A17).
pub const OWN_MARK: u8 = 0b10_1101;

/// The base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What the packet is.
    pub opcode: Opcode,
    /// SE: the receiver's completion raises a solicited event.
    pub solicited: bool,
    /// M: migration state. Adapters send 1, rxe sends 0; either is accepted.
    pub migrated: bool,
    /// Octets of pad after the payload, 0 to 3.
    pub pad: u8,
    /// Partition.
    pub pkey: u16,
    /// FECN, BECN and six reserved bits; not covered by the invariant CRC.
    pub congestion: u8,
    /// Queue pair to which the packet goes, 24 bits.
    pub destination: u32,
    /// A: the responder is to acknowledge this packet at once.
    pub ack_request: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Octets on the wire.
    pub const LEN: usize = 12;
    /// Offset of the octet that the invariant CRC does not cover.
    pub const CONGESTION_AT: usize = 4;

    /// Whether the sender is this implementation, or claims to be.
    pub const fn has_own_mark(&self) -> bool {
        self.congestion & 0x3f == OWN_MARK
    }

    /// Reads a header; refuses unknown opcodes and versions.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        let version = o[1] & 0x0f;
        // [ROCE-04]
        if version != 0 {
            return Err(WireError::Version(version));
        }
        Ok(Self {
            opcode: Opcode::parse(o[0])?,
            solicited: o[1] & 0x80 != 0,
            migrated: o[1] & 0x40 != 0,
            pad: o[1] >> 4 & 3,
            pkey: u16_at(o, 2),
            congestion: o[Self::CONGESTION_AT],
            destination: u24_at(o, 5),
            ack_request: o[8] & 0x80 != 0,
            psn: Psn::new(u24_at(o, 9)),
        })
    }

    /// The header's octets; the reserved bits beside AckReq are zero.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[0] = self.opcode.emit();
        o[1] = u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | (self.pad & 3) << 4;
        o[2..4].copy_from_slice(&self.pkey.to_be_bytes());
        o[Self::CONGESTION_AT] = self.congestion;
        o[5..8].copy_from_slice(&u24_octets(self.destination));
        o[8] = u8::from(self.ack_request) << 7;
        o[9..12].copy_from_slice(&u24_octets(self.psn.get()));
        o
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_is_refused_or_survives_encoding() {
        let known = (0..=255u8).filter(|&octet| match Opcode::parse(octet) {
            Ok(opcode) => {
                assert_eq!(opcode.emit(), octet, "{opcode:?}");
                true
            }
            Err(error) => {
                assert_eq!(error, WireError::Opcode(octet));
                false
            }
        });
        // RC 23, UC 12, UD 2, CNP.
        assert_eq!(known.count(), 38);
    }
}
