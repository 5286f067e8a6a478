//! Completions: how a work request ended, and the memory that it returns. Plain values.

use ual::ConnectionEnd;
use vp_api::{DatagramSource, WcStatus};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::ids::{EpId, Operation, WorkId};
use crate::remote::RmrContext;
use crate::work::Local;

/// How a work request ended.
///
/// ```
/// # use std::time::Duration;
/// # use itapi::{Ia, Operation, Work};
/// # fn main() -> itapi::Result<()> {
/// # let ia = Ia::open()?;
/// # let (pz, evd) = (ia.pz()?, ia.evd(16)?);
/// # let (ep, peer) = (pz.ep(&evd).build()?, pz.ep(&evd).build()?);
/// # let listen = ia.listen("127.0.0.1:0")?;
/// # std::thread::scope(|scope| {
/// #     scope.spawn(|| listen.request()?.accept(&peer, b""));
/// #     ep.connect(listen.address(), b"")
/// # })?;
/// # peer.post_recv(pz.buffer(8)?)?;
/// # ep.post(Work::send(b"hello").unsignalled())?;
/// if let Some(completion) = evd.wait(Duration::from_secs(20))? {
///     completion.check()?; // an error unless it succeeded
///     match completion.operation {
///         Operation::Recv => println!("{} octets arrived", completion.octets),
///         other => println!("{other} is done"),
///     }
///     let buffer = completion.into_buffer(); // ours again
/// #   assert!(buffer.is_some_and(|buffer| buffer.to_vec() == b"hello"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Completion {
    /// Its endpoint.
    pub ep: EpId,
    /// The id that [`crate::Ep::post`] or [`crate::Ep::post_recv`] returned.
    pub id: WorkId,
    /// What kind of request it was.
    pub operation: Operation,
    /// How it ended; see [`Completion::check`].
    pub status: WcStatus,
    /// Receives: octets that arrived.
    pub octets: u32,
    /// Receives: the message was solicited ([`crate::Work::solicited`]).
    pub solicited: bool,
    /// Receives: the STag that the peer's Send with Invalidate invalidated.
    pub invalidated: Option<RmrContext>,
    /// Receives: Immediate Data.
    pub immediate: Option<u64>,
    /// Receives of datagrams: where it came from; see [`crate::UdEp`].
    pub source: Option<Box<DatagramSource>>,
    /// Without success: how its connection ended, if it did and the provider reports it.
    pub end: Option<Box<ConnectionEnd>>,
    /// Its memory.
    pub local: Local,
    /// Memory of the unsignalled requests before it, oldest first. If a connection failed and several threads
    /// take completions, the memory of an unsignalled request may be here although another thread gets its
    /// completion.
    pub earlier: Vec<Local>,
}

// Up to here a move of it is a few instructions in place, beyond it a call.
const _: () = assert!(size_of::<Completion>() <= 128);

impl Completion {
    /// Returns an error unless it succeeded.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.status == WcStatus::Success { Ok(()) } else { Err(self.error()) }
    }

    #[cold]
    fn error(&self) -> Error {
        let end = self.end.clone();
        Error::Incomplete { operation: self.operation, status: self.status, end }
    }

    /// The first buffer of its memory.
    pub fn into_buffer(self) -> Option<Buffer> {
        self.local.into_buffer()
    }
}
