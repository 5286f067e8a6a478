//! Message buffers: registered memory with one owner.
//!
//! A [`Buffer`] has local rights only, so no peer can access it. Posting a work request moves it into the
//! endpoint, and the completion returns it: it cannot be read, dropped or posted twice while a transfer is
//! under way, and while it is not posted it is a slice. Dropping the endpoint drops the buffers in it.

use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};

use ual::{LmrInit, Region, Span};
use vp_api::{Access, Addressing, Sge, room};

use crate::error::{Error, Result};
use crate::ia::Pz;
use crate::lmr::Lmr;

/// Registered memory for Sends, Receives, RDMA Write sources and RDMA Read sinks.
///
/// Like a `Vec` of octets, it has a capacity and a length, and is a slice of the octets that are valid. A
/// receive uses all of the capacity and sets the length to what arrived; a Send or RDMA Write takes the slice.
/// Octets beyond the length keep their former content, at first 0.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pz = itapi::Ia::open()?.pz()?;
/// use std::io::Write;
///
/// let mut buffer = pz.buffer(64)?;
/// write!(buffer, "hello {}", 42)?; // appends, up to the capacity
/// buffer[0] = b'H';
/// assert_eq!(&buffer[..], b"Hello 42");
/// assert_eq!((buffer.len(), buffer.capacity()), (8, 64));
///
/// buffer.clear();
/// buffer.read_from(&mut &b"from a file or a socket"[..])?; // straight into registered memory
/// assert!(buffer.starts_with(b"from"));
/// let mut cursor = std::io::Cursor::new(buffer); // to read it in pieces
/// # use std::io::Read;
/// # let mut word = [0; 4];
/// # cursor.read_exact(&mut word)?;
/// # assert_eq!(&word, b"from");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer {
    /// Of a region that only buffers know.
    span: Span<Lmr>,
    len: usize,
}

impl Pz {
    /// A message buffer of `capacity` octets.
    pub fn buffer(&self, capacity: usize) -> Result<Buffer> {
        let mut one = self.buffers(1, capacity)?;
        // The list has one element.
        one.pop().ok_or_else(|| Error::Argument("no buffer".into()))
    }

    /// `count` message buffers of `capacity` octets each, in one registration.
    pub fn buffers(&self, count: usize, capacity: usize) -> Result<Vec<Buffer>> {
        let octets = count.checked_mul(capacity).ok_or_else(|| {
            Error::Argument(format!("{count} buffers of {capacity} octets exceed all memory"))
        })?;
        let mut list = room::list("buffers", count).map_err(Error::no_room)?;
        // Not every device registers nothing.
        if count == 0 {
            return Ok(list);
        }
        let messages =
            Region::messages(count, capacity).map_err(|source| Error::Memory { octets, source })?;
        let region = messages.region().clone();
        // Local rights: peers have none, which is why a buffer may be a slice.
        let registered = self.ual().create_lmr(LmrInit::new(region.mem_range(), Access::LOCAL))?;
        let stag = registered.stag();
        let lmr = Lmr::wrap(registered, region, Addressing::Absolute, Access::LOCAL, stag);
        list.extend(messages.spans(lmr).map(|span| Buffer { span, len: 0 }));
        Ok(list)
    }
}

impl Buffer {
    /// Octets that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.span.len()
    }

    /// Octets that are valid: written, or received.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no octet is valid.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the first `len` octets valid, with their present content. Errors: [`Error::Range`] beyond the
    /// capacity.
    pub fn resize(&mut self, len: usize) -> Result<()> {
        if len > self.capacity() {
            return Err(Error::range("the buffer", 0, len, self.capacity()));
        }
        self.len = len;
        Ok(())
    }

    /// Sets the length to 0.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Replaces the content. Errors: [`Error::Range`] if `octets` is longer than the capacity.
    pub fn fill(&mut self, octets: &[u8]) -> Result<()> {
        self.resize(octets.len())?;
        self.copy_from_slice(octets);
        Ok(())
    }

    /// Copies `out.len()` valid octets to `out`, from `offset` on. Errors: [`Error::Range`] if there are fewer.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        let outside = || Error::range("the buffer's content", offset, out.len(), self.len);
        let end = offset.checked_add(out.len()).ok_or_else(outside)?;
        out.copy_from_slice(self.get(offset..end).ok_or_else(outside)?);
        Ok(())
    }

    /// Appends what `source` has, up to the capacity, without an intermediate copy; returns the number of
    /// octets.
    pub fn read_from(&mut self, source: &mut impl Read) -> io::Result<usize> {
        let before = self.len;
        while self.len < self.capacity() {
            match source.read(&mut self.span[self.len..]) {
                Ok(0) => break,
                // A wrong `Read` claims more than there is room for.
                Ok(octets) => self.len = self.capacity().min(self.len + octets),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.len - before)
    }

    /// The first `len` octets, at most all, as a scatter/gather element.
    pub(crate) fn sge(&self, len: usize) -> Result<Sge> {
        self.span.kept().sge(self.span.start(), len.min(self.capacity()))
    }

    /// What arrived, at most the capacity.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // In range: `len` never exceeds the capacity.
        &self.span[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.span[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Appends, up to the capacity; a full buffer takes none.
impl Write for Buffer {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let taken = octets.len().min(self.capacity() - self.len);
        self.span[self.len..][..taken].copy_from_slice(&octets[..taken]);
        self.len += taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
