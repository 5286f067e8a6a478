//! The acknowledgement header (AETH): syndrome and message sequence number (InfiniBand volume 1,
//! 9.3.5 and 9.7.5).
//!
//! Owner of the state: none, pure functions. Any thread.

use super::{WireError, front, u24_at, u24_octets};
use crate::psn::Psn;

/// Why a responder refuses a request, or asks for it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nak {
    /// A packet is missing: send again from the PSN of the acknowledgement.
    PsnSequence,
    /// The request breaks the protocol, or its message is too long for its receive.
    InvalidRequest,
    /// The key does not grant the access.
    RemoteAccess,
    /// The responder could not execute it.
    RemoteOperational,
}

impl Nak {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PsnSequence => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccess => "remote access error",
            Self::RemoteOperational => "remote operational error",
        }
    }
}

/// Meaning of an acknowledgement (InfiniBand volume 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// All up to its PSN has been executed.
    Ack {
        /// Code of the number of posted receives; 31: not counted.
        credits: u8,
    },
    /// Receiver not ready: repeat after the time of the code ([`rnr_time`]).
    Rnr {
        /// Code of the time, 0 to 31.
        timer: u8,
    },
    /// Refused.
    Nak(Nak),
    /// Reserved by the standard; ignored.
    Reserved(u8),
}

/// The credit code of responders that do not count receives.
pub const NO_CREDITS: u8 = 0x1f;

impl Syndrome {
    /// The octet's meaning.
    pub const fn parse(octet: u8) -> Self {
        match (octet >> 5, octet & 0x1f) {
            (0, credits) => Self::Ack { credits },
            (1, timer) => Self::Rnr { timer },
            (3, 0) => Self::Nak(Nak::PsnSequence),
            (3, 1) => Self::Nak(Nak::InvalidRequest),
            (3, 2) => Self::Nak(Nak::RemoteAccess),
            (3, 3) => Self::Nak(Nak::RemoteOperational),
            _ => Self::Reserved(octet),
        }
    }
    /// The octet.
    pub const fn emit(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::Rnr { timer } => 0x20 | timer & 0x1f,
            Self::Nak(nak) => 0x60 | nak as u8,
            Self::Reserved(octet) => octet,
        }
    }
}

/// The header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aeth {
    /// Its meaning.
    pub syndrome: Syndrome,
    /// How many messages the responder has finished, modulo 2^24.
    pub msn: Psn,
}

impl Aeth {
    /// Octets on the wire.
    pub const LEN: usize = 4;

    /// Reads a header.
    pub fn parse(octets: &[u8]) -> Result<Self, WireError> {
        let o = front::<{ Self::LEN }>(octets)?;
        Ok(Self { syndrome: Syndrome::parse(o[0]), msn: Psn::new(u24_at(o, 1)) })
    }
    /// The header's octets.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut o = [0; Self::LEN];
        o[0] = self.syndrome.emit();
        o[1..].copy_from_slice(&u24_octets(self.msn.get()));
        o
    }
}

/// Microseconds for which an RNR code asks (InfiniBand volume 1).
pub const fn rnr_time(code: u8) -> u32 {
    const MICROSECONDS: [u32; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560,
        3_840, 5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880,
        163_840, 245_760, 327_680, 491_520,
    ];
    MICROSECONDS[(code & 0x1f) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_survives_encoding() {
        for octet in 0..=255 {
            assert_eq!(Syndrome::parse(octet).emit(), octet);
        }
        assert_eq!(Syndrome::parse(0x62), Syndrome::Nak(Nak::RemoteAccess));
        assert_eq!(Syndrome::parse(0x1f), Syndrome::Ack { credits: NO_CREDITS });
    }
}
