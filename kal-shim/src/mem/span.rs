//! Message memory: a mapping cut into parts with one owner each.
//!
//! A [`Span`] is not `Clone` and spans do not overlap, so whoever holds one is the only one in Rust who
//! can reach its octets. A provider reaches them while a work request names them, and the face that posts
//! keeps the span away from everybody for that long; a peer never does, since message memory is
//! registered without rights for it (the rule of [`Region::mem_range`]).

use std::io;
use std::ops::{Deref, DerefMut};

use super::{Origin, Region, map, page_size};

/// Some octets of message memory: a slice for its owner.
pub struct Span {
    /// Of message memory; `start + len` octets are inside.
    region: Region,
    start: usize,
    len: usize,
}

/// The spans of one mapping, in order; each is handed out once.
pub struct Spans {
    region: Region,
    next: usize,
    len: usize,
    left: usize,
}

impl Region {
    /// Zeroed memory for `count` messages of `len` octets each: the region, for registration only, and
    /// the spans of it.
    pub fn messages(count: usize, len: usize) -> io::Result<(Self, Spans)> {
        let octets = count.checked_mul(len);
        let octets = octets.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (addr, mapped) = map(octets, page_size())?;
        let region = Self::of(addr, octets, Origin::Messages(mapped));
        let spans = Spans { region: region.clone(), next: 0, len, left: count };
        Ok((region, spans))
    }
}

impl Iterator for Spans {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        self.left = self.left.checked_sub(1)?;
        let start = self.next;
        // `count * len` did not overflow.
        self.next += self.len;
        Some(Span { region: self.region.clone(), start, len: self.len })
    }
}

impl Span {
    /// Octets of the region before it.
    pub fn start(&self) -> usize {
        self.start
    }

    fn addr(&self) -> *mut u8 {
        self.region.base().as_ptr().wrapping_add(self.start)
    }
}

impl Deref for Span {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the octets are inside of the mapping, initialised, and live as long as the region,
        // which this keeps. The copies of the region are refused, no other span has them, and by the
        // rule of `Region::mem_range` no code posts them while `self` is held: no code writes.
        unsafe { std::slice::from_raw_parts(self.addr(), self.len) }
    }
}

impl DerefMut for Span {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `self` is borrowed mutably, so no code reads either.
        unsafe { std::slice::from_raw_parts_mut(self.addr(), self.len) }
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Span({}+{} of {:?})", self.start, self.len, self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_do_not_overlap_and_exclude_other_copies() {
        let (region, spans) = Region::messages(3, 5).unwrap();
        let mut spans: Vec<Span> = spans.collect();
        spans.iter_mut().zip(1..).for_each(|(span, n)| span.fill(n));
        assert_eq!(spans.iter().map(Span::start).collect::<Vec<_>>(), [0, 5, 10]);
        assert_eq!(*spans[1], [2; 5]);
        assert!(region.write_at(0, b"x").is_err() && region.fill(0, 1, 9).is_err());
        drop(region);
        assert_eq!((*spans[0]).len() + spans[2].len(), 10);
        assert_eq!(*spans[2], [3; 5]);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Region::messages(usize::MAX, 2).is_err());
        assert_eq!(Region::messages(2, 0).unwrap().1.count(), 2);
    }
}
