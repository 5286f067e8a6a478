//! MPA (RFC 5044, RFC 6581): start-up, framing, markers, CRC.
//!
//! Owner of the state: the QP owns [`Tx`] and [`Rx`], the connection manager owns the start-up
//! machines; each is used by one thread at a time. They are dropped when the peer dies.

mod markers;
mod rx;
pub mod startup;
mod tx;

pub(crate) use markers::Layout;
pub use rx::{Parsed, Peek, Pieces, Rx, RxFpdu};
pub use tx::{FpduPlan, Tx};

use crate::wire::mpa::{MARKER_INTERVAL, MARKER_LEN, MAX_ULPDU};

/// Smallest MULPDU, whatever the EMSS (RFC 5044 section 3) [MPA-19].
pub const MIN_MULPDU: u16 = 128;

/// A MULPDU within its bounds (RFC 5044 section 3) [MPA-16, MPA-19].
pub fn clamp_mulpdu(mulpdu: u16) -> u16 {
    mulpdu.clamp(MIN_MULPDU, MAX_ULPDU)
}

/// Octets of the FPDU around a ULPDU: length, pad and CRC (RFC 5044 section 4), without markers.
pub const fn fpdu_len(ulpdu: u16) -> usize {
    (2 + ulpdu as usize).next_multiple_of(4) + 4
}

/// MULPDU in octets for an EMSS in octets (RFC 5044 section 4.5), clamped to 128..=64768.
pub const fn mulpdu(emss: u16, markers: bool) -> u16 {
    let marker_octets =
        if markers { MARKER_LEN * (emss as usize).div_ceil(MARKER_INTERVAL) } else { 0 };
    // RFC 5044 4.5 [MPA-17, MPA-18]
    let raw = (emss as usize).saturating_sub(6 + marker_octets + emss as usize % 4);
    // RFC 5044 3 [MPA-19]
    if raw < MIN_MULPDU as usize {
        MIN_MULPDU
    } else if raw > MAX_ULPDU as usize {
        MAX_ULPDU
    } else {
        raw as u16
    }
}
