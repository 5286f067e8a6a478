//! Send requests: as posted, as kept until acknowledged, and their completions.
//!
//! Owner of the state: values.

use super::host::AtomicOp;
use super::{Mtu, Psn};
use crate::wire::bth::Rider;
use crate::wire::extended::Reth;

/// Operation of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// A message to a receive of the peer.
    Send {
        /// Immediate data, in network order.
        immediate: Option<u32>,
        /// A key of the peer to invalidate; not together with immediate data.
        invalidate: Option<u32>,
    },
    /// Writes to memory of the peer.
    Write {
        /// Address.
        address: u64,
        /// Key.
        rkey: u32,
        /// Immediate data, which consumes a receive.
        immediate: Option<u32>,
    },
    /// Reads memory of the peer.
    Read {
        /// Address.
        address: u64,
        /// Key.
        rkey: u32,
    },
    /// An atomic on eight octets of the peer's memory.
    Atomic {
        /// Address; a multiple of 8.
        address: u64,
        /// Key.
        rkey: u32,
        /// What.
        op: AtomicOp,
    },
}

/// A request to post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Post {
    /// The caller's id, unique among requests that are not completed.
    pub slot: u32,
    /// Its operation.
    pub op: SendOp,
    /// Octets of its local segments; at most 2^31. Eight for atomics.
    pub len: u32,
    /// Asks for a solicited event at the peer.
    pub solicited: bool,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// The queue is full.
    QueueFull,
    /// The queue pair is broken or was flushed.
    Broken,
    /// Longer than 2^31 octets; an atomic of other than eight octets, or not aligned to eight.
    Length,
    /// A Read or atomic on a connection without any ([`super::RcConfig::initiator_depth`]).
    NoReads,
    /// Immediate data together with a key to invalidate.
    Riders,
}

/// How a request ended (InfiniBand volume 1, 11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Status {
    Success,
    /// Its local memory may not be accessed.
    LocalProtection,
    /// The peer reported an invalid request.
    RemoteInvalidRequest,
    /// The peer's key does not grant the access.
    RemoteAccess,
    /// The peer could not execute it.
    RemoteOperational,
    /// The peer does not acknowledge.
    RetryExceeded,
    /// The peer has no receive.
    RnrRetryExceeded,
    /// A response that does not belong to the request.
    BadResponse,
    /// An earlier request failed, or the queue pair was closed.
    Flushed,
}

/// A completed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The id of the post.
    pub slot: u32,
    /// How it ended.
    pub status: Status,
}

/// Longest message (InfiniBand volume 1, 9.7.3).
const MAX_MESSAGE: u32 = 1 << 31;

impl Post {
    /// Whether its octets leave this end.
    pub const fn is_sent(&self) -> bool {
        matches!(self.op, SendOp::Send { .. } | SendOp::Write { .. })
    }

    pub(super) fn check(&self, initiator_depth: u8) -> Result<(), PostError> {
        if self.len > MAX_MESSAGE {
            return Err(PostError::Length);
        }
        match self.op {
            SendOp::Send { immediate: Some(_), invalidate: Some(_) } => Err(PostError::Riders),
            SendOp::Atomic { address, .. } if self.len != 8 || address % 8 != 0 => {
                Err(PostError::Length)
            }
            SendOp::Read { .. } | SendOp::Atomic { .. } if initiator_depth == 0 => {
                Err(PostError::NoReads)
            }
            _ => Ok(()),
        }
    }
}

/// A request with its range of PSNs, once it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) post: Post,
    /// PSN of its first packet; valid once it has been started.
    pub(super) first: Psn,
    /// Number of its PSNs: those of its packets, for Reads those of the responses.
    pub(super) packets: u32,
    /// How many of them are acknowledged or, for Reads, have arrived.
    pub(super) done: u32,
    /// What its only packet takes of the window beyond one packet; 0 if it has several.
    pub(super) beyond: i64,
    /// Each of its packets is a message of its own.
    pub(super) divided: bool,
}

impl Request {
    /// `divides`: a Write without immediate data is sent as several.
    pub(super) fn new(post: Post, mtu: Mtu, divides: bool) -> Self {
        let divided = divides && matches!(post.op, SendOp::Write { immediate: None, .. });
        let packets = mtu.packets(post.len);
        Self { post, first: Psn::default(), packets, done: 0, beyond: 0, divided }
    }
    /// Whether it ends by a response and not by an acknowledgement.
    pub(super) const fn wants_response(&self) -> bool {
        matches!(self.post.op, SendOp::Read { .. } | SendOp::Atomic { .. })
    }
    /// The first PSN that is still missing.
    pub(super) const fn missing(&self) -> Psn {
        self.first.plus(self.done)
    }
    pub(super) const fn is_done(&self) -> bool {
        self.done == self.packets
    }
    /// Extended header of its last packet.
    pub(super) const fn rider(&self) -> Rider {
        match self.post.op {
            SendOp::Send { invalidate: Some(_), .. } => Rider::Invalidate,
            SendOp::Send { immediate: Some(_), .. } | SendOp::Write { immediate: Some(_), .. } => {
                Rider::Immediate
            }
            _ => Rider::None,
        }
    }
    /// Octets before packet `index`, and those in `count` packets from it.
    pub(super) fn range(&self, mtu: Mtu, index: u32, count: u32) -> (u32, u32) {
        let offset = index.saturating_mul(mtu.octets());
        let len = count.saturating_mul(mtu.octets()).min(self.post.len - offset);
        (offset, len)
    }
    /// The RETH of a Write of, or a Read Request for, `count` packets from `index`.
    pub(super) fn reth(&self, mtu: Mtu, index: u32, count: u32) -> Option<Reth> {
        let (SendOp::Write { address, rkey, .. } | SendOp::Read { address, rkey }) = self.post.op
        else {
            return None;
        };
        let (offset, length) = self.range(mtu, index, count);
        Some(Reth { address: address.wrapping_add(u64::from(offset)), rkey, length })
    }
}
