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

/// What a message or a draft owns. The channel uses the allocation again. What moves from step to step is its address: a
/// processor waits for the stores of each copy of a longer value before it makes the next.
pub(crate) struct Envelope {
    pub(crate) memory: Memory,
    /// Octets that a draft was made for.
    pub(crate) room: usize,
    pub(crate) of: Weak<ChannelEnd>,
    /// The line of its channel that its memory is of, if it is registered.
    pub(crate) line: u32,
}

#[derive(Default)]
pub(crate) enum Memory {
    /// A small message, behind its header.
    Small(Buffer),
    /// A large message that was read from the peer.
    Read(Buffer),
    /// A large message that the peer will read: the first `len` octets.
    Large { octets: Vec<u8>, len: usize },
    /// Sent, or returned.
    #[default]
    Gone,
}

impl Envelope {
    /// Its memory, which it no longer owns.
    #[inline]
    pub(crate) fn take(&mut self) -> Memory {
        mem::take(&mut self.memory)
    }
}

impl Deref for Envelope {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Small(buffer) => &buffer[HEADER..],
            Memory::Read(buffer) => buffer,
            Memory::Large { octets, len } => &octets[..*len],
            Memory::Gone => &[],
        }
    }
}

impl DerefMut for Envelope {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Small(buffer) => &mut buffer[HEADER..],
            Memory::Read(buffer) => buffer,
            Memory::Large { octets, len } => &mut octets[..*len],
            Memory::Gone => &mut [],
        }
    }
}

/// A received message: a slice of octets, in the memory that they were received into.
pub struct Message(
    /// `None` once it is returned.
    pub(crate) Option<Box<Envelope>>,
);

impl Message {
    /// It was read from the peer.
    pub(crate) fn is_large(&self) -> bool {
        self.0.as_ref().is_some_and(|envelope| matches!(envelope.memory, Memory::Read(_)))
    }
}

impl Drop for Message {
    #[inline]
    fn drop(&mut self) {
        if let Some(envelope) = self.0.take()
            && let Some(core) = envelope.of.upgrade()
        {
            core.taken(envelope);
        }
    }
}

impl Deref for Message {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |envelope| envelope)
    }
}

impl DerefMut for Message {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().map_or(&mut [], |envelope| envelope)
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
pub struct Draft(
    /// `None` once it is sent or returned.
    pub(crate) Option<Box<Envelope>>,
);

impl Draft {
    /// Octets that it was made for.
    pub fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |envelope| envelope.room)
    }

    /// Sets the number of octets, at most the capacity; new ones are 0 or left over from an earlier message.
    #[inline]
    pub fn resize(&mut self, len: usize) {
        let Some(envelope) = &mut self.0 else { return };
        let len = len.min(envelope.room);
        match &mut envelope.memory {
            Memory::Small(buffer) => {
                // The range is within the buffer.
                let sized = buffer.resize(HEADER + len);
                debug_assert!(sized.is_ok());
            }
            Memory::Large { octets, len: now } => {
                *now = len;
                // Longer than that already, if it was used before.
                octets.resize(octets.len().max(len), 0);
            }
            Memory::Read(_) | Memory::Gone => {}
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
    #[inline]
    fn is_of(&self, end: &Arc<ChannelEnd>) -> bool {
        self.0.as_ref().is_some_and(|envelope| std::ptr::eq(envelope.of.as_ptr(), Arc::as_ptr(end)))
    }
}

impl Drop for Draft {
    #[inline]
    fn drop(&mut self) {
        if let Some(envelope) = self.0.take()
            && let Some(core) = envelope.of.upgrade()
        {
            core.undrafted(envelope);
        }
    }
}

impl Deref for Draft {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |envelope| envelope)
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().map_or(&mut [], |envelope| envelope)
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

/// What can be sent: octets or text, which are copied; a vector or a `String`, which is sent from where it is if it is large;
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
    #[inline]
    pub(crate) fn check(&self, of: &Arc<ChannelEnd>) -> Result<()> {
        match &self.0 {
            Body::Draft(draft) if !draft.is_of(of) => Err(Error::ForeignDraft),
            _ => Ok(()),
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

impl<'a> From<&'a String> for Outgoing<'a> {
    fn from(text: &'a String) -> Self {
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

impl From<String> for Outgoing<'_> {
    fn from(text: String) -> Self {
        Self(Body::Vector(text.into_bytes()))
    }
}

impl From<Draft> for Outgoing<'_> {
    fn from(draft: Draft) -> Self {
        Self(Body::Draft(draft))
    }
}
