//! Copies to and from registered memory by raw pointers; no other code accesses it.

use vp_api::MemRange;

/// Octets of `range` from `offset` on; the caller has checked the bounds.
pub(crate) fn out(range: &MemRange, offset: usize, len: usize) -> Vec<u8> {
    assert!(offset <= range.len() && len <= range.len() - offset);
    let mut octets = vec![0; len];
    // SAFETY: inside of the range, as asserted, which is readable while `range` lives; the copy is
    // not part of it.
    unsafe { range.addr().as_ptr().add(offset).copy_to_nonoverlapping(octets.as_mut_ptr(), len) };
    octets
}

/// Writes octets to `range` from `offset` on; the caller has checked the bounds.
pub(crate) fn into(range: &MemRange, offset: usize, octets: &[u8]) {
    assert!(offset <= range.len() && octets.len() <= range.len() - offset);
    // SAFETY: inside of the range, as asserted, which is writable while `range` lives; `octets` is
    // not part of it.
    unsafe {
        range.addr().as_ptr().add(offset).copy_from_nonoverlapping(octets.as_ptr(), octets.len());
    }
}
