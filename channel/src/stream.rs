//! Streams of octets over messages, for code that reads and writes. Each write is a message, up to the
//! longest one; octets of a message that a read leaves are returned by the next. One reader and one writer.

use std::io::{self, Read, Write};

use crate::channel::Channel;
use crate::error::Result;
use crate::message::Message;
use crate::tasks::AsyncChannel;
use crate::tuning::PIECE;

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

/// A [`Channel`] as a stream of octets.
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
        let piece = &octets[..octets.len().min(PIECE).min(self.channel.longest() as usize)];
        self.channel.send(piece)?;
        Ok(piece.len())
    }

    /// Nothing is buffered.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An [`AsyncChannel`] as a stream of octets; with the feature `tokio` it has that one's `AsyncRead` and
/// `AsyncWrite`.
#[derive(Debug)]
pub struct AsyncStream {
    channel: AsyncChannel,
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "read through the traits"))]
    rest: PartlyRead,
}

impl AsyncChannel {
    /// The same as a stream of octets.
    pub fn into_stream(self) -> AsyncStream {
        AsyncStream { channel: self, rest: PartlyRead::default() }
    }
}

impl AsyncStream {
    /// Returns the channel; the rest of a partly read message is dropped.
    pub fn into_channel(self) -> AsyncChannel {
        self.channel
    }
}

#[cfg(feature = "tokio")]
mod traits {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{AsyncStream, PIECE};

    impl AsyncRead for AsyncStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            while out.remaining() > 0 && self.rest.is_empty() {
                match ready!(self.channel.poll_recv(context))? {
                    Some(message) if message.is_empty() => {}
                    Some(message) => self.rest.put(message),
                    None => return Poll::Ready(Ok(())),
                }
            }
            let octets = self.rest.copy(out.initialize_unfilled());
            out.advance(octets);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for AsyncStream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            octets: &[u8],
        ) -> Poll<io::Result<usize>> {
            if octets.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let most = self.channel.longest() as usize;
            let piece = &octets[..octets.len().min(PIECE).min(most)];
            ready!(self.channel.poll_send(context, &mut Some(piece.into())))?;
            Poll::Ready(Ok(piece.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.channel.poll_finish(context).map_err(Into::into)
        }
    }
}
