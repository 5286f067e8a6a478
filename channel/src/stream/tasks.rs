//! Streams of octets for tasks: what the traits of tokio and of the futures crates have in common. Each is a feature.

#[cfg(feature = "futures-io")]
mod futures;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(any(feature = "tokio", feature = "futures-io"))]
use std::{
    io,
    task::{Context, Poll, ready},
};

use super::PartlyRead;
use crate::tasks::AsyncChannel;

/// An [`AsyncChannel`] as a stream of octets. With the feature `tokio` it has that one's `AsyncRead` and
/// `AsyncWrite`, with `futures-io` those of the futures crates.
///
/// A write is a message, of up to 64 KiB. `tokio::io::copy` writes 8 KiB at a time: give
/// `copy_buf` a `tokio::io::BufReader` of 64 KiB instead, which makes an eighth of the messages. To write few octets
/// at a time use a `BufWriter`, and flush it where the peer is to read.
///
/// ```
/// # #[cfg(feature = "tokio")]
/// use tokio::io::{AsyncRead, AsyncWriteExt, BufReader, copy_buf};
/// use warpline_channel::{AsyncChannel, Result};
///
/// # #[cfg(feature = "tokio")]
/// async fn send_all(source: impl AsyncRead + Unpin, channel: AsyncChannel) -> std::io::Result<()> {
///     let mut stream = channel.into_stream();
///     copy_buf(&mut BufReader::with_capacity(64 << 10, source), &mut stream).await?;
///     stream.shutdown().await?; // the peer reads to the end
///     Ok(stream.into_channel().close().await?)
/// }
/// ```
#[derive(Debug)]
pub struct AsyncStream {
    channel: AsyncChannel,
    #[cfg_attr(
        not(any(feature = "tokio", feature = "futures-io")),
        expect(dead_code, reason = "read through the traits")
    )]
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

#[cfg(any(feature = "tokio", feature = "futures-io"))]
impl AsyncStream {
    /// Copies the octets available; 0: the peer announced the end, or `out` is empty.
    fn poll_copy(&mut self, context: &mut Context<'_>, out: &mut [u8]) -> Poll<io::Result<usize>> {
        // An empty message is not the end.
        while !out.is_empty() && self.rest.is_empty() {
            match ready!(self.channel.poll_recv(context))? {
                Some(message) if message.is_empty() => {}
                Some(message) => self.rest.put(message),
                None => return Poll::Ready(Ok(0)),
            }
        }
        Poll::Ready(Ok(self.rest.copy(out)))
    }

    /// Sends a message; returns its length.
    fn poll_piece(&self, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        if octets.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let piece = super::piece(octets, self.channel.longest());
        ready!(self.channel.poll_send(context, &mut piece.into()))?;
        Poll::Ready(Ok(piece.len()))
    }

    /// Announces that no octet follows.
    fn poll_end(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.channel.poll_finish(context).map_err(Into::into)
    }
}
