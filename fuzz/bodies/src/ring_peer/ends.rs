//! Reads and writes of an end with memory that Rust owns: the only `unsafe` of the targets.
#![allow(unsafe_code)]

use shm_ring::{Corrupt, End};

/// Octets before and after each piece, which no call may write.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xee;

/// As [`End::write`] with these pieces; `between` is called before each.
pub(super) fn write(
    end: &End,
    pieces: &[&[u8]],
    between: impl Fn(),
    bell: impl Fn(),
) -> Result<usize, Corrupt> {
    let pieces = pieces.iter().map(|piece| {
        between();
        (piece.as_ptr(), piece.len())
    });
    // SAFETY: slices that live as long as the call; the memory of the end has none.
    unsafe { end.write(pieces, bell) }
}

/// As [`End::read`] with pieces of these lengths; returns the octets that were read.
///
/// # Panics
/// If more was written than that, or elsewhere.
pub(super) fn read(
    end: &End,
    lengths: &[usize],
    between: impl Fn(),
    bell: impl Fn(),
) -> Result<Vec<u8>, Corrupt> {
    let mut rooms: Vec<Vec<u8>> =
        lengths.iter().map(|len| vec![UNTOUCHED; GUARD + len + GUARD]).collect();
    let pieces: Vec<_> = rooms
        .iter_mut()
        .zip(lengths)
        .map(|(room, len)| (room[GUARD..GUARD + len].as_mut_ptr(), *len))
        .collect();
    let pieces = pieces.into_iter().inspect(|_| between());
    // SAFETY: vectors that live as long as the call, and that nothing else uses meanwhile; the memory of the end has
    // none of them.
    let done = unsafe { end.read(pieces, bell) };
    let is_untouched = |octets: &[u8]| octets.iter().all(|octet| *octet == UNTOUCHED);
    let mut read = Vec::new();
    for (room, len) in rooms.iter().zip(lengths) {
        assert!(is_untouched(&room[..GUARD]) && is_untouched(&room[GUARD + len..]));
        read.extend_from_slice(&room[GUARD..GUARD + len]);
    }
    let done = done?;
    assert!(is_untouched(&read[done..]), "octets after those that were read");
    read.truncate(done);
    Ok(read)
}
