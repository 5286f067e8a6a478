//! Messages over RDMA with flow control, buffers and large messages, on top of IT-API.
//!
//! A [`Channel`] carries messages between two processes: each arrives whole, once, in order. It posts the
//! receives, counts the credits, keeps the buffers, lets the peer read large messages by RDMA, slows a fast
//! sender down, and ends in order: [`Channel::close`] returns when the peer has everything. A
//! [`Listener`] accepts channels, for a thread each; a [`Server`] serves many clients in one thread;
//! [`AsyncChannel`] and [`AsyncListener`] are for tasks of any runtime; [`Stream`] and [`AsyncStream`]
//! make octets of the messages, for code that reads and writes (features `tokio` and `futures-io`: their traits).
//! [`guide`] begins with a chat and ends with the options.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::io::Write;
//! use warpline_channel::{Channel, Listener};
//!
//! # let ia = itapi::Ia::open()?;
//! # let listener = Listener::bind(&ia, "127.0.0.1:0")?;
//! # let address = listener.address();
//! # let server = std::thread::spawn(move || {
//! #     let channel = listener.accept()?;
//! #     assert_eq!(channel.recv()?.as_deref(), Some(&b"few octets"[..]));
//! #     assert_eq!(channel.recv()?.as_deref(), Some(&b"page 7"[..]));
//! #     assert_eq!(channel.recv()?.map(|message| message.len()), Some(1_000_000));
//! #     assert!(channel.recv()?.is_none());
//! #     channel.close()
//! # });
//! let channel = Channel::connect(&ia, address)?;
//! channel.send(b"few octets")?; // copied
//! let mut draft = channel.draft(4096)?; // registered memory, a slice
//! write!(draft, "page {}", 7)?;
//! channel.send(draft)?; // not copied
//! channel.send(vec![7; 1_000_000])?; // read by the peer from where it is
//! channel.close()?; // all of it has arrived
//! # server.join().expect("no panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Tasks
//!
//! The same as futures, here on tokio; any runtime does. The adapter ([`itapi::Ia`]) is opened once in a process.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! use itapi::Ia;
//! use warpline_channel::{AsyncChannel, AsyncListener, Result};
//!
//! async fn serve(listener: AsyncListener) -> Result<()> {
//!     let channel = listener.accept().await?; // spawn a task for each to serve many
//!     while let Some(message) = channel.recv().await? {
//!         channel.send(message.to_ascii_uppercase()).await?;
//!     }
//!     channel.close().await
//! }
//!
//! let ia = Ia::open()?;
//! let listener = AsyncListener::bind(&ia, "127.0.0.1:0")?;
//! let address = listener.address();
//! let client = async {
//!     let channel = AsyncChannel::connect(&ia, address).await?;
//!     channel.send(format!("hello {}", 42)).await?;
//!     assert_eq!(channel.recv().await?.as_deref(), Some(&b"HELLO 42"[..]));
//!     channel.close().await
//! };
//! tokio::try_join!(serve(listener), client)?;
//! # Ok(())
//! # })
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # Flow control
//!
//! An end declares how many messages it accepts ([`Options`]); that many may be in flight or wait to be received,
//! and its memory is bounded by that. A sender that is ahead waits, gets [`Error::Full`], or is pending. Two ends that
//! only send, and never receive, wait for each other: as with sockets.
//!
//! # Ends
//!
//! [`Channel::finish`] announces that no message follows; the peer's [`Channel::recv`] returns `None` after the
//! last. If the connection ends before that, it returns the messages that have arrived, then an error that
//! names both ends and the cause: nothing is lost without notice. After a failed send, still receive: what has
//! arrived, perhaps the peer's reason, is returned first. So that a last message arrives, call [`Channel::close`] after it,
//! rather than drop the channel: what is under way in both directions as a channel is dropped may be lost.
//!
//! # Sessions
//!
//! With [`Options::resume`] at both ends the loss of a connection is not the end: the end that connected connects again, by any of
//! the ways of [`Channel::connect_any`], and both go on where they were. [`Channel::resumption`] says how it has gone.
//!
//! # Logging
//!
//! Connections are logged by `itapi` through [`tracing`](https://docs.rs/tracing), with targets that begin with `ual`, and sessions
//! that are resumed with targets that begin with `warpline_channel`: install a subscriber, for example
//! `tracing_subscriber::fmt::init()`, and set `RUST_LOG=ual=info,warpline_channel=info`.
//!
//! # Peers
//!
//! A peer is not trusted: each number that it sends is checked against what was agreed, and it can make
//! this end neither wait in a call that does not wait, nor use more memory than its options allow. Of this
//! end's memory the peer can read only a large message sent to it, until it has read it. The wire form
//! is versioned and described in `docs/channel.md`.
#![forbid(unsafe_code)]

mod away;
mod channel;
mod core;
mod door;
mod error;
pub mod guide;
mod hub;
mod kept;
mod link;
mod listener;
mod message;
mod options;
mod resume;
mod sends;
mod server;
pub mod session;
mod sessions;
mod state;
mod stream;
mod tasks;
mod tuning;
pub mod wire;

pub use channel::Channel;
pub use error::{End, Error, Refusal, Result, Unresumed};
/// The adapter, opened once in a process.
pub use itapi::Ia;
pub use listener::Listener;
pub use message::{Draft, Message, Outgoing};
pub use options::Options;
pub use resume::Resumption;
pub use server::{Event, Peer, Server};
pub use stream::{AsyncStream, Stream};
pub use tasks::{AsyncChannel, AsyncListener};
