//! Registered memory as the socket needs it: copied and summed, or as pieces of a system call.
//!
//! No state; runs on whichever thread makes progress. There is never a Rust reference to registered memory
//! ([`vp_soft::memory::place`]).

use vp_soft::memory::AccessError;
use vp_soft::memory::place::copy_out;
use vp_soft::memory::stag_table::Use;

use crate::stream::crc;
use crate::stream::socket::{Piece, Room};
use crate::tuning;

/// As [`copy_out`]; also continues `crc` over the octets that it copied.
pub(crate) fn copy_out_summed(
    source: &Use<'_>,
    offset: u32,
    octets: &mut [u8],
    crc: &mut u32,
) -> Result<(), AccessError> {
    let Some(copier) = crc::copier().filter(|_| octets.len() >= tuning::COPIER_MIN) else {
        copy_out(source, offset, octets)?;
        *crc = crc::kernel()(*crc, octets);
        return Ok(());
    };
    let addr = source.raw(offset, octets.len())?;
    // SAFETY: as for `copy_out`.
    *crc = unsafe { copier(*crc, addr, octets) };
    Ok(())
}

/// Registered memory for a system call to send from.
#[inline]
pub(crate) fn source_piece<'p>(source: &'p Use<'_>) -> Result<Piece<'p>, AccessError> {
    let len = source.len() as usize;
    let addr = source.raw(0, len)?;
    // SAFETY: by its invariant the memory of the use lives as long as the use, which the piece borrows.
    Ok(unsafe { Piece::raw(addr, len) })
}

/// Registered memory for a system call to fill.
#[inline]
pub(crate) fn sink_room<'p>(sink: &'p Use<'_>) -> Result<Room<'p>, AccessError> {
    let len = sink.len() as usize;
    let addr = sink.raw_mut(0, len)?;
    // SAFETY: as for `source_piece`; `raw_mut` returns only writable memory.
    Ok(unsafe { Room::raw(addr, len) })
}

#[cfg(all(test, not(loom)))]
#[path = "registered_tests.rs"]
mod tests;
