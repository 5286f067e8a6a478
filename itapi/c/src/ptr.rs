//! Reading and writing memory through pointers of C callers. No state; the caller's thread.
//!
//! C may pass NULL and unaligned pointers; both are handled here. It may not pass a pointer to memory
//! that is not mapped, which no library can detect. Everything is copied, no Rust
//! reference to C memory is ever made.
//!
//! # Contract of a C caller
//! A pointer argument is NULL or points to as many octets as its type, its length argument, or its
//! terminating NUL say; they stay readable (`const`, IN) or writable (OUT) until the call returns.

use std::ffi::c_char;
use std::ptr::NonNull;

use super::failure::{Failure, Outcome};
use super::status::IT_ERR_FAULT;

/// Plain C data: every pattern of bits is a value.
///
/// # Safety
/// True of integers, raw pointers, and `repr(C)` structs, unions and arrays of these.
pub(crate) unsafe trait Plain: Copy {
    /// All octets 0, so that padding and unused parts of a union leak nothing to C.
    fn zeroed() -> Self {
        // SAFETY: every pattern of bits is a value, so this one is.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: an integer has a value for every pattern of bits.
        unsafe impl Plain for $type {}
    )*};
}

plain!(u8, i8, u16, u32, i32, u64, usize);

// SAFETY: integers and arrays of them, `repr(C)`.
unsafe impl Plain for libc::in_addr {}
// SAFETY: as above.
unsafe impl Plain for libc::in6_addr {}
// SAFETY: nothing but its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}
// SAFETY: a raw pointer has a value for every pattern of bits, and it is not dereferenced.
unsafe impl<T> Plain for *mut T {}

/// The refusal of a NULL pointer.
#[cold]
pub(crate) fn null(name: &str) -> Failure {
    Failure::new(IT_ERR_FAULT, format!("the pointer argument `{name}` is NULL"))
}

/// What `ptr` points at.
///
/// # Safety
/// `ptr` obeys the contract of a C caller.
#[inline]
pub(crate) unsafe fn read<T: Plain>(ptr: *const T, name: &str) -> Outcome<T> {
    if ptr.is_null() {
        return Err(null(name));
    }
    // SAFETY: not NULL, so the caller made it point to a whole T; unaligned reads are allowed, and
    // every pattern of bits is a T.
    Ok(unsafe { ptr.read_unaligned() })
}

/// The place for a result. Checked before the call does anything, written at its end.
pub(crate) struct Out<T>(NonNull<T>);

impl<T: Plain> Out<T> {
    /// Refuses NULL.
    ///
    /// # Safety
    /// `ptr` obeys the contract of a C caller; the `Out` does not outlive the call.
    #[inline]
    pub(crate) unsafe fn new(ptr: *mut T, name: &str) -> Outcome<Self> {
        NonNull::new(ptr).map(Self).ok_or_else(|| null(name))
    }

    /// NULL: the caller does not want the result.
    ///
    /// # Safety
    /// As [`Out::new`].
    #[inline]
    pub(crate) unsafe fn optional(ptr: *mut T) -> Option<Self> {
        NonNull::new(ptr).map(Self)
    }

    /// Stores the result.
    #[inline]
    pub(crate) fn write(&self, value: T) {
        // SAFETY: the caller of `new` promised that a whole T can be written there during the call.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }

    /// The same place, of which only the beginning is used: a member of a union.
    #[inline]
    pub(crate) fn narrow<U: Plain>(&self) -> Out<U> {
        const { assert!(size_of::<U>() <= size_of::<T>()) };
        Out(self.0.cast())
    }

    /// A part of it, from octet `offset` on.
    #[inline]
    pub(crate) fn part<U: Plain>(&self, offset: usize) -> Out<U> {
        assert!(offset <= size_of::<T>() && size_of::<U>() <= size_of::<T>() - offset);
        Out(self.0.map_addr(|first| first.saturating_add(offset)).cast())
    }

    /// What is there before the call (INOUT arguments).
    #[inline]
    pub(crate) fn read(&self) -> T {
        // SAFETY: as for writing; an INOUT argument is also readable, and every pattern is a T.
        unsafe { self.0.as_ptr().read_unaligned() }
    }
}

/// An array of the caller.
#[derive(Clone, Copy)]
pub(crate) struct List<T> {
    first: *const T,
    len: usize,
}

impl<T: Plain> List<T> {
    /// `len` elements from `first` on, which may be NULL if there are none.
    ///
    /// # Safety
    /// `first` obeys the contract of a C caller for `len` elements; the list does not outlive the
    /// call.
    #[inline]
    pub(crate) unsafe fn new(first: *const T, len: usize, name: &str) -> Outcome<Self> {
        if first.is_null() && len != 0 {
            return Err(null(name));
        }
        if len > isize::MAX as usize / size_of::<T>().max(1) {
            let text = format!("the array `{name}` of {len} elements is larger than memory");
            return Err(Failure::new(IT_ERR_FAULT, text));
        }
        Ok(Self { first, len })
    }

    /// The elements, in order.
    #[inline]
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<T> {
        let first = self.first;
        (0..self.len).map(move |n| {
            // In bounds by `new`, which also saw that the offset does not overflow.
            let at = first.wrapping_add(n);
            // SAFETY: element `n` of an array that the caller of `new` promised; every pattern is a T.
            unsafe { at.read_unaligned() }
        })
    }
}

impl List<u8> {
    /// The octets.
    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.iter().collect()
    }
}

/// An array of the caller to be filled.
pub(crate) struct OutList<T> {
    first: *mut T,
    len: usize,
}

impl<T: Plain> OutList<T> {
    /// Room for `len` elements from `first` on, which may be NULL if there is none.
    ///
    /// # Safety
    /// As [`List::new`], for writing.
    pub(crate) unsafe fn new(first: *mut T, len: usize, name: &str) -> Outcome<Self> {
        // SAFETY: same pointer, same contract.
        let List { len, .. } = unsafe { List::new(first.cast_const(), len, name) }?;
        Ok(Self { first, len })
    }

    /// The number of elements that fit.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place of element `n`; `None`: there is no room for so many.
    #[inline]
    pub(crate) fn at(&self, n: usize) -> Option<Out<T>> {
        if n < self.len { NonNull::new(self.first.wrapping_add(n)).map(Out) } else { None }
    }

    /// Stores element `n`; one out of range is dropped.
    #[inline]
    pub(crate) fn write(&self, n: usize, value: T) {
        if let Some(place) = self.at(n) {
            place.write(value);
        }
    }
}

/// A string of C, at most `max` octets long, without its NUL; octets that are not UTF-8 are
/// replaced.
///
/// # Safety
/// `ptr` obeys the contract of a C caller.
pub(crate) unsafe fn text(ptr: *const c_char, max: usize, name: &str) -> Outcome<String> {
    if ptr.is_null() {
        return Err(null(name));
    }
    let mut octets = Vec::new();
    for n in 0..max {
        let at = ptr.wrapping_add(n).cast::<u8>();
        // SAFETY: no NUL was found before octet `n`, so the string has it.
        match unsafe { at.read() } {
            0 => break,
            octet => octets.push(octet),
        }
    }
    Ok(String::from_utf8_lossy(&octets).into_owned())
}

/// Writes a string for C: as much as fits into `len` octets with its NUL; `buf` may be NULL if `len`
/// is 0. Returns the octets of the whole string without NUL, as `snprintf` does.
///
/// # Safety
/// `buf` obeys the contract of a C caller for `len` octets.
pub(crate) unsafe fn write_text(buf: *mut c_char, len: usize, text: &str) -> usize {
    // SAFETY: same pointer, same contract.
    let room = unsafe { OutList::new(buf.cast::<u8>(), len, "buf") };
    if let (Ok(room), Some(last)) = (room, len.checked_sub(1)) {
        let mut fits = text.len().min(last);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        text.bytes().take(fits).enumerate().for_each(|(n, octet)| room.write(n, octet));
        room.write(fits, 0);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;

    #[test]
    fn null_is_a_fault() {
        // SAFETY: NULL is allowed by every contract here.
        let found = unsafe { read(null::<u32>(), "params") };
        assert_eq!(found.unwrap_err().status, IT_ERR_FAULT);
        // SAFETY: as above.
        assert!(unsafe { Out::new(null_mut::<u32>(), "x") }.is_err());
        // SAFETY: as above.
        assert!(unsafe { Out::optional(null_mut::<u32>()) }.is_none());
        // SAFETY: as above.
        assert!(unsafe { List::new(null::<u64>(), 1, "x") }.is_err());
        // SAFETY: as above.
        assert_eq!(unsafe { List::new(null::<u64>(), 0, "x") }.unwrap().iter().len(), 0);
        let one = 1u64;
        // SAFETY: refused before anything is read.
        assert!(unsafe { List::new(&raw const one, usize::MAX, "x") }.is_err());
    }

    #[test]
    fn unaligned_memory_is_read_and_written() {
        let mut memory = [0u8; 17];
        let odd = memory.as_mut_ptr().wrapping_add(1).cast::<u64>();
        // SAFETY: 8 octets from octet 1 on of 17.
        let out = unsafe { Out::new(odd, "out") }.unwrap();
        out.write(0x0102_0304_0506_0708);
        assert_eq!(out.read(), 0x0102_0304_0506_0708);
        // SAFETY: two elements from octet 1 on of 17.
        let list = unsafe { List::new(odd.cast_const(), 2, "list") }.unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0x0102_0304_0506_0708, 0]);
        // SAFETY: as above, for writing.
        let room = unsafe { OutList::new(odd, 2, "room") }.unwrap();
        room.write(1, 7);
        room.write(2, 9);
        assert_eq!(list.iter().collect::<Vec<_>>(), [0x0102_0304_0506_0708, 7]);
    }

    #[test]
    fn strings_are_cut_at_a_character_and_ended() {
        let mut buf = [0x7f; 8];
        // SAFETY: 4 of 8 octets.
        let whole = unsafe { write_text(buf.as_mut_ptr(), 4, "aé€x") };
        assert_eq!(whole, "aé€x".len());
        // SAFETY: the buffer holds a NUL.
        assert_eq!(unsafe { text(buf.as_ptr(), 8, "buf") }.unwrap(), "aé");
        // SAFETY: no octet is written.
        assert_eq!(unsafe { write_text(null_mut(), 0, "long") }, 4);
        // SAFETY: NULL is refused whatever the length.
        assert_eq!(unsafe { write_text(null_mut(), 9, "long") }, 4);
    }
}
