//! Messages: a received one, one that is being written, and what can be sent.
//!
//! A message owns the registered memory that it was received in and returns it to its channel when it is
//! dropped, on any thread; until then the peer may send one message less. If the channel has ended, the
//! memory is freed.

use std::io;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use itapi::Buffer;

use crate::core::ChannelEnd;
use crate::error::{Error, Result};
use crate::wire::HEADER;

/// A received message: a slice of octets, in the memory that they were received into.
pub struct Message {
    /// `None` once it is returned.
    buffer: Option<Buffer>,
    /// Octets of the header before the application's.
    skip: usize,
    from: Weak<ChannelEnd>,
}

impl Message {
    pub(crate) fn small(buffer: Buffer, from: Weak<ChannelEnd>) -> Self {
        Self { buffer: Some(buffer), skip: HEADER, from }
    }

    pub(crate) fn large(buffer: Buffer, from: Weak<ChannelEnd>) -> Self {
        Self { buffer: Some(buffer), skip: 0, from }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let from = mem::take(&mut self.from);
        if let (Some(buffer), Some(core)) = (self.buffer.take(), from.upgrade()) {
            core.taken(buffer, self.skip == 0, from);
        }
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.skip..])
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map_or(&mut [], |buffer| &mut buffer[self.skip..])
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} octets)", self.len())
    }
}

/// A message that is being written, in memory that it will be sent from: a slice of the octets so far,
/// and `io::Write`, up to the length that it was made for.
pub struct Draft {
    pub(crate) memory: Memory,
    pub(crate) of: Weak<ChannelEnd>,
}

pub(crate) enum Memory {
    /// With room for the header in front.
    Small { buffer: Buffer, room: usize },
    /// For a message that the peer reads: the first `len` octets.
    Large { octets: Vec<u8>, len: usize, room: usize },
    /// Sent, or returned.
    Gone,
}

impl Draft {
    /// Octets that it was made for.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Small { room, .. } | Memory::Large { room, .. } => *room,
            Memory::Gone => 0,
        }
    }

    /// Sets the number of octets, at most the capacity; new ones are 0 or left over from an earlier message.
    pub fn resize(&mut self, len: usize) {
        match &mut self.memory {
            Memory::Small { buffer, room } => {
                // The range is within the buffer.
                let sized = buffer.resize(HEADER + len.min(*room));
                debug_assert!(sized.is_ok());
            }
            Memory::Large { octets, len: now, room } => {
                *now = len.min(*room);
                // Longer than that already, if it was used before.
                octets.resize(octets.len().max(*now), 0);
            }
            Memory::Gone => {}
        }
    }

    /// Reads from `source` up to the capacity, without a further copy; returns the number of octets.
    pub fn read_from(&mut self, source: &mut impl io::Read) -> io::Result<usize> {
        let before = self.len();
        self.resize(self.capacity());
        let mut at = before;
        let read = loop {
            match source.read(&mut self[at..]) {
                Ok(0) => break Ok(()),
                Ok(octets) => at = self.len().min(at + octets),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.resize(at);
        read.map(|()| at - before)
    }
}

impl Draft {
    /// In memory that the peer reads.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        matches!(self.memory, Memory::Large { .. })
    }

    /// Its memory, which it no longer returns, and its reference to the channel.
    #[inline]
    pub(crate) fn into_parts(mut self) -> (Memory, Weak<ChannelEnd>) {
        (mem::replace(&mut self.memory, Memory::Gone), mem::take(&mut self.of))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let memory = mem::replace(&mut self.memory, Memory::Gone);
        if !matches!(memory, Memory::Gone)
            && let Some(core) = self.of.upgrade()
        {
            core.undrafted(memory);
        }
    }
}

impl Deref for Draft {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Small { buffer, .. } => &buffer[HEADER..],
            Memory::Large { octets, len, .. } => &octets[..*len],
            Memory::Gone => &[],
        }
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Small { buffer, .. } => &mut buffer[HEADER..],
            Memory::Large { octets, len, .. } => &mut octets[..*len],
            Memory::Gone => &mut [],
        }
    }
}

impl io::Write for Draft {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let at = self.len();
        let taken = octets.len().min(self.capacity() - at);
        self.resize(at + taken);
        self[at..].copy_from_slice(&octets[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({} of {} octets)", self.len(), self.capacity())
    }
}

/// What can be sent: octets, which are copied; a vector, which is sent from where it is if it is large;
/// or a [`Draft`], which is never copied.
#[derive(Debug)]
pub struct Outgoing<'a>(pub(crate) Body<'a>);

#[derive(Debug)]
pub(crate) enum Body<'a> {
    Octets(&'a [u8]),
    Vector(Vec<u8>),
    Draft(Draft),
}

impl Outgoing<'_> {
    /// Refuses a draft of another channel.
    pub(crate) fn check(&self, of: &Arc<ChannelEnd>) -> Result<()> {
        match &self.0 {
            Body::Draft(draft) if !std::ptr::eq(draft.of.as_ptr(), Arc::as_ptr(of)) => {
                Err(Error::ForeignDraft)
            }
            _ => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Body::Octets(octets) => octets.len(),
            Body::Vector(vector) => vector.len(),
            Body::Draft(draft) => draft.len(),
        }
    }
}

impl<'a> From<&'a [u8]> for Outgoing<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self(Body::Octets(octets))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Outgoing<'a> {
    fn from(octets: &'a [u8; N]) -> Self {
        Self(Body::Octets(octets))
    }
}

impl<'a> From<&'a Vec<u8>> for Outgoing<'a> {
    fn from(octets: &'a Vec<u8>) -> Self {
        Self(Body::Octets(octets))
    }
}

impl<'a> From<&'a str> for Outgoing<'a> {
    fn from(text: &'a str) -> Self {
        Self(Body::Octets(text.as_bytes()))
    }
}

impl<'a> From<&'a Message> for Outgoing<'a> {
    fn from(message: &'a Message) -> Self {
        Self(Body::Octets(message))
    }
}

impl From<Vec<u8>> for Outgoing<'_> {
    fn from(octets: Vec<u8>) -> Self {
        Self(Body::Vector(octets))
    }
}

impl From<Draft> for Outgoing<'_> {
    fn from(draft: Draft) -> Self {
        Self(Body::Draft(draft))
    }
}
