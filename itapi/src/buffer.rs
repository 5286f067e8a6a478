//! Message buffers: registered memory with one owner.
//!
//! A [`Buffer`] has local rights only, so no peer can name it. Posting a work request moves it into
//! the endpoint; the completion gives it back; so nobody can look at it, drop it or post it twice
//! while a transfer is under way. When the endpoint goes, the buffers in it go with it.

use vp_api::room;

use crate::error::{Error, Result};
use crate::ia::Pz;
use crate::lmr::{Lmr, LmrRange};

/// Registered memory for Sends, Receives, RDMA Write sources and RDMA Read sinks.
///
/// Like a `Vec`, it has a capacity and a length: a receive uses all of the capacity and sets the
/// length to what arrived; a Send or RDMA Write takes `len` octets.
///
/// ```
/// # fn main() -> itapi::Result<()> {
/// # let pz = itapi::Ia::open()?.pz()?;
/// let mut buffer = pz.buffer(64)?;
/// buffer.fill(b"hello")?;
/// assert_eq!((buffer.len(), buffer.capacity()), (5, 64));
/// assert_eq!(buffer.to_vec(), b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer {
    /// This range of the region belongs to this buffer alone: ranges are handed out once
    /// ([`crate::Pz::buffers`]), a `Buffer` is not `Clone`, and the region is private.
    range: LmrRange,
    len: usize,
}

impl Pz {
    /// A message buffer of `capacity` octets.
    pub fn buffer(&self, capacity: usize) -> Result<Buffer> {
        let region = self.lmr(capacity).register()?;
        Ok(Buffer::all_of(&region))
    }

    /// `count` message buffers of `capacity` octets each, in one registration.
    pub fn buffers(&self, count: usize, capacity: usize) -> Result<Vec<Buffer>> {
        let octets = count.checked_mul(capacity).ok_or_else(|| {
            Error::Argument(format!("{count} buffers of {capacity} octets exceed all memory"))
        })?;
        let list = room::list("buffers", count).map_err(Error::no_room)?;
        Buffer::cut(&self.lmr(octets).register()?, list, count, capacity)
    }
}

impl Buffer {
    /// A region that nobody else knows as one buffer.
    fn all_of(region: &Lmr) -> Self {
        Self { range: region.whole(), len: 0 }
    }

    /// Cuts `count` buffers of `capacity` octets each from a region that nobody else knows, to `list`,
    /// which has room for them.
    fn cut(region: &Lmr, mut list: Vec<Self>, count: usize, capacity: usize) -> Result<Vec<Self>> {
        for n in 0..count {
            let start = n * capacity;
            list.push(Self { range: region.range(start..start + capacity)?, len: 0 });
        }
        Ok(list)
    }

    /// Octets that it can hold.
    pub fn capacity(&self) -> usize {
        self.range.len()
    }

    /// Octets that are valid: written by [`Buffer::fill`], or received.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no octet is valid.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces the content. Errors: [`Error::Range`] if `octets` is longer than the capacity.
    pub fn fill(&mut self, octets: &[u8]) -> Result<()> {
        self.range.write_at(0, octets)?;
        self.len = octets.len();
        Ok(())
    }

    /// Copies `out.len()` valid octets out, from `offset` on.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        match offset.checked_add(out.len()) {
            Some(end) if end <= self.len => self.range.read_at(offset, out),
            _ => Err(Error::range("the buffer's content", offset, out.len(), self.len)),
        }
    }

    /// A copy of the valid octets.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut octets = vec![0; self.len];
        // Inside by construction: `len` never exceeds the capacity.
        let copied = self.read_at(0, &mut octets);
        debug_assert!(copied.is_ok());
        octets
    }

    pub(crate) fn range(&self) -> &LmrRange {
        &self.range
    }

    /// What arrived, at most the capacity.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}
