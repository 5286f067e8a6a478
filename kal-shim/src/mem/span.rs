//! Message memory: a mapping cut into parts with one owner each.
//!
//! A [`Span`] is not `Clone` and spans do not overlap, so its owner is the only one in Rust that
//! can reach its octets. A provider reaches them while a work request names them, and the face that posts
//! keeps the span away from everybody for that long; a peer never does, since message memory is
//! registered without rights for it (the rule of [`Region::mem_range`]).

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::{Origin, Region, map, page_size};

/// Some octets of message memory: a slice for its owner. It keeps the mapping alive, and a `K` with it.
pub struct Span<K> {
    /// Of message memory; `start + len` octets are inside.
    mapping: Arc<Mapping<K>>,
    start: usize,
    len: usize,
}

/// One allocation for both, so that a span is small: completions carry spans.
struct Mapping<K> {
    region: Region,
    kept: K,
}

/// Memory for messages that is not cut into spans yet.
pub struct Messages {
    region: Region,
    count: usize,
    len: usize,
}

/// The spans of one mapping, in order; each is handed out once.
pub struct Spans<K> {
    mapping: Arc<Mapping<K>>,
    next: usize,
    len: usize,
    left: usize,
}

impl Region {
    /// Zeroed memory for `count` messages of `len` octets each.
    pub fn messages(count: usize, len: usize) -> io::Result<Messages> {
        let octets = count.checked_mul(len);
        let octets = octets.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let (addr, mapped) = map(octets, page_size())?;
        Ok(Messages { region: Self::of(addr, octets, Origin::Messages(mapped)), count, len })
    }
}

impl Messages {
    /// All of it, for registration only.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Its spans, each of which keeps `kept`: what the memory is registered as.
    pub fn spans<K>(self, kept: K) -> Spans<K> {
        let Self { region, count, len } = self;
        Spans { mapping: Arc::new(Mapping { region, kept }), next: 0, len, left: count }
    }
}

impl<K> Iterator for Spans<K> {
    type Item = Span<K>;

    fn next(&mut self) -> Option<Span<K>> {
        self.left = self.left.checked_sub(1)?;
        let start = self.next;
        // `count * len` did not overflow.
        self.next += self.len;
        Some(Span { mapping: self.mapping.clone(), start, len: self.len })
    }
}

impl<K> Span<K> {
    /// Octets of the region before it.
    pub fn start(&self) -> usize {
        self.start
    }

    /// What was given to [`Messages::spans`].
    pub fn kept(&self) -> &K {
        &self.mapping.kept
    }

    fn addr(&self) -> *mut u8 {
        self.mapping.region.base().as_ptr().wrapping_add(self.start)
    }
}

impl<K> Deref for Span<K> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the octets are inside of the mapping, initialised, and live as long as the region,
        // which this keeps. The copies of the region are refused, no other span has them, and by the
        // rule of `Region::mem_range` no code posts them while `self` is held: no code writes.
        unsafe { std::slice::from_raw_parts(self.addr(), self.len) }
    }
}

impl<K> DerefMut for Span<K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `self` is borrowed mutably, so no code reads either.
        unsafe { std::slice::from_raw_parts_mut(self.addr(), self.len) }
    }
}

impl<K> std::fmt::Debug for Span<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Span({}+{} of {:?})", self.start, self.len, self.mapping.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_do_not_overlap_and_exclude_other_copies() {
        let messages = Region::messages(3, 5).unwrap();
        let region = messages.region().clone();
        let mut spans: Vec<Span<&str>> = messages.spans("kept").collect();
        spans.iter_mut().zip(1..).for_each(|(span, n)| span.fill(n));
        assert_eq!(spans.iter().map(Span::start).collect::<Vec<_>>(), [0, 5, 10]);
        assert_eq!(*spans[1], [2; 5]);
        assert!(region.write_at(0, b"x").is_err() && region.fill(0, 1, 9).is_err());
        drop(region);
        assert_eq!(spans[2].kept(), &"kept");
        assert_eq!((*spans[0]).len() + spans[2].len(), 10);
        assert_eq!(*spans[2], [3; 5]);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Region::messages(usize::MAX, 2).is_err());
        assert_eq!(Region::messages(2, 0).unwrap().spans(()).count(), 2);
    }
}
