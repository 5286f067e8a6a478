//! Completions: how a work request ended, and its memory back. Plain values.

use ual::ConnectionEnd;
use vp_api::{DatagramSource, WcOpcode, WcStatus};

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::remote::RmrContext;
use crate::work::Local;

/// Names an endpoint of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EpId(pub(crate) u32);

/// Names a posted work request: unique per queue while it is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkId(pub(crate) u64);

/// Names of work requests that were posted together, in their order.
#[derive(Clone, Debug)]
pub struct WorkIds(pub(crate) std::ops::Range<u64>);

impl Iterator for WorkIds {
    type Item = WorkId;

    fn next(&mut self) -> Option<WorkId> {
        self.0.next().map(WorkId)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

/// What completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Operation {
    Send,
    Write,
    Immediate,
    Read,
    Atomic,
    /// Of a window.
    Link,
    /// Of a window.
    Unlink,
    LinkLmr,
    UnlinkLmr,
    /// A receive, taken by a Send.
    Recv,
    /// A receive, taken by Immediate Data.
    RecvImmediate,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::Write => "RDMA Write",
            Self::Immediate => "Immediate Data",
            Self::Read => "RDMA Read",
            Self::Atomic => "atomic operation",
            Self::Link => "window link",
            Self::Unlink => "window unlink",
            Self::LinkLmr => "region link",
            Self::UnlinkLmr => "region unlink",
            Self::Recv | Self::RecvImmediate => "receive",
        })
    }
}

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
    /// As [`crate::Ep::post`] or [`crate::Ep::post_recv`] named it.
    pub id: WorkId,
    /// What it was.
    pub operation: Operation,
    /// How it ended; see [`Completion::check`].
    pub status: WcStatus,
    /// Receives: octets that arrived.
    pub octets: u32,
    /// Receives: the sender woke us on purpose.
    pub solicited: bool,
    /// Receives: the right that the peer gave back.
    pub invalidated: Option<RmrContext>,
    /// Receives: Immediate Data.
    pub immediate: Option<u64>,
    /// Receives of datagrams: where it came from; see [`crate::UdEp`].
    pub source: Option<Box<DatagramSource>>,
    /// Without success: how its connection ended, if it did and the provider tells.
    pub end: Option<Box<ConnectionEnd>>,
    /// Its memory.
    pub local: Local,
    /// Memory of the unsignalled requests before it, oldest first. Where several threads take
    /// completions and a connection failed, that of an unsignalled request may be here and its own
    /// completion, with another thread, come without.
    pub earlier: Vec<Local>,
}

impl Completion {
    /// An error unless it succeeded.
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

/// The kind of receive behind a provider's opcode; `None`: it is of the send queue.
pub(crate) fn receive_of(opcode: WcOpcode) -> Option<Operation> {
    match opcode {
        WcOpcode::Recv => Some(Operation::Recv),
        WcOpcode::RecvImmediate => Some(Operation::RecvImmediate),
        _ => None,
    }
}

/// What a status means, for messages.
pub(crate) fn meaning(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "done",
        WcStatus::InvalidStag => "a region of the work request is not, or no longer, registered",
        WcStatus::Flushed => "the connection ended before it was done",
        WcStatus::InvalidWqe => "the work request is malformed",
        WcStatus::LocalCatastrophic => "the connection broke while it was under way",
        WcStatus::RemoteTermination => "the peer refused it and ended the connection",
        WcStatus::Bounds => "it reaches outside its memory, or a message is longer than its buffer",
        WcStatus::AccessViolation => "its memory lacks a local right",
        WcStatus::InvalidPd => "its memory belongs to another protection zone or endpoint",
        WcStatus::Wrap => "address plus length overflows",
        WcStatus::CannotInvalidate => "the peer took back a right that it may not",
        WcStatus::ZeroReadResources => "the connection was agreed to carry no RDMA Reads (ORD 0)",
        WcStatus::NotPrivileged => "it needs a privileged endpoint",
        WcStatus::StagNotInvalid => "the window or region is linked already",
        WcStatus::InvalidWindow => "the region, rights or window do not go together",
        WcStatus::InvalidLength => "the message is too long for the provider",
        _ => "an error that this version does not know",
    }
}
