//! Reads and writes structs of another minor version: fields that both sides know are copied, other fields are
//! zero.

use std::ptr::copy_nonoverlapping;

use super::types::Sized32;

/// Copies the struct at `from`, as far as both sides know it.
///
/// # Safety
///
/// `from` points to the number of readable octets that is in its first four octets.
pub(super) unsafe fn read<T: Sized32>(from: *const T) -> T {
    // SAFETY: the caller's promise; the struct begins with its size.
    let theirs = unsafe { from.cast::<u32>().read() };
    // SAFETY: the same promise.
    unsafe { read_as(from, theirs) }
}

/// As [`read`], with a size that was read before.
///
/// # Safety
///
/// `theirs` octets at `from` are readable.
pub(super) unsafe fn read_as<T: Sized32>(from: *const T, theirs: u32) -> T {
    if theirs >= T::SIZE {
        // SAFETY: the caller's promise covers the whole of our version.
        return unsafe { from.read() };
    }
    let mut out = T::zeroed();
    // SAFETY: `theirs` octets are readable and fewer than `out` has.
    unsafe { copy_nonoverlapping(from.cast::<u8>(), (&raw mut out).cast(), theirs as usize) };
    out
}

/// Writes `value` to `to`, as far as both sides know it; `to` begins with its size.
///
/// # Safety
///
/// `to` points to the number of writable octets that is in its first four octets.
pub(super) unsafe fn write<T: Sized32>(to: *mut T, value: &T) {
    // SAFETY: the caller's promise.
    let room = unsafe { to.cast::<u32>().read() };
    let both = room.min(T::SIZE);
    // SAFETY: both sides have at least this many octets.
    unsafe { copy_nonoverlapping((&raw const *value).cast::<u8>(), to.cast(), both as usize) };
    if both >= 4 {
        // SAFETY: there are at least four octets.
        unsafe { to.cast::<u32>().write(both) };
    }
}
