//! Streams of octets over messages, for code that reads and writes. Each write is a message, up to the
//! longest one; octets of a message that a read leaves are returned by the next. One reader and one writer.

mod tasks;

use std::io::{self, Read, Write};

use crate::channel::Channel;
use crate::error::Result;
use crate::message::Message;
use crate::tuning::PIECE;

pub use tasks::AsyncStream;

/// A message and how much of it was read.
#[derive(Debug, Default)]
struct PartlyRead {
    message: Option<Message>,
    read: usize,
}

impl PartlyRead {
    /// Copies the octets available; 0: none is left.
    fn copy(&mut self, out: &mut [u8]) -> usize {
        let Some(message) = &self.message else { return 0 };
        let left = &message[self.read..];
        let octets = left.len().min(out.len());
        out[..octets].copy_from_slice(&left[..octets]);
        self.read += octets;
        if self.read == message.len() {
            *self = Self::default();
        }
        octets
    }

    fn put(&mut self, message: Message) {
        *self = Self { message: Some(message), read: 0 };
    }

    fn is_empty(&self) -> bool {
        self.message.is_none()
    }
}

/// A [`Channel`] as a stream of octets. A write is a message, of up to 64 KiB: to write few octets at a time, as [`writeln!`]
/// does, wrap the stream in a [`BufWriter`](std::io::BufWriter) and flush it where the peer is to read.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use std::io::{Read, Write};
/// # use warpline_channel::{Channel, Listener};
/// # let ia = itapi::Ia::open()?;
/// # let listener = Listener::bind(&ia, "127.0.0.1:0")?;
/// # let address = listener.address();
/// # let server = std::thread::spawn(move || {
/// #     let mut stream = listener.accept()?.into_stream();
/// #     let mut all = String::new();
/// #     stream.read_to_string(&mut all).expect("text");
/// #     assert_eq!(all, "hello 42");
/// #     stream.into_channel().close()
/// # });
/// let mut stream = Channel::connect(&ia, address)?.into_stream();
/// write!(stream, "hello {}", 42)?;
/// stream.into_channel().close()?; // the peer reads to the end
/// # server.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    channel: Channel,
    rest: PartlyRead,
}

impl Channel {
    /// The same as a stream of octets.
    pub fn into_stream(self) -> Stream {
        Stream { channel: self, rest: PartlyRead::default() }
    }
}

impl Stream {
    /// Announces that no octet follows.
    pub fn finish(&self) -> Result<()> {
        self.channel.finish()
    }

    /// Returns the channel; the rest of a partly read message is dropped.
    pub fn into_channel(self) -> Channel {
        self.channel
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // An empty message is not the end.
        while !out.is_empty() && self.rest.is_empty() {
            match self.channel.recv()? {
                Some(message) if message.is_empty() => {}
                Some(message) => self.rest.put(message),
                None => return Ok(0),
            }
        }
        Ok(self.rest.copy(out))
    }
}

impl Write for Stream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        if octets.is_empty() {
            return Ok(0);
        }
        let piece = piece(octets, self.channel.longest());
        self.channel.send(piece)?;
        Ok(piece.len())
    }

    /// Nothing is buffered.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The octets of a write that one message carries.
fn piece(octets: &[u8], longest: u64) -> &[u8] {
    &octets[..octets.len().min(PIECE).min(longest as usize)]
}
