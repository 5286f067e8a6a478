//! The packets that leave in one system call, and what each takes of the receiver's buffer.
//!
//! The kernel keeps the packets of a call together up to a receiver on the same host, if they have one length. There a
//! packet takes little more than its octets; one that arrives alone up to twice as many.
//!
//! Owner of the state: the requester.

use super::RcConfig;
use super::request::{Request, SendOp};
use crate::wire::bth::Rider;

/// Octets beyond its payload that a packet takes which arrives with others.
const TOGETHER: i64 = 128;
/// One that arrives alone takes its payload twice, and so many octets.
const ALONE: i64 = 2048;

/// Octets that one of several packets of the path MTU takes.
pub(super) fn room(config: &RcConfig) -> i64 {
    i64::from(config.mtu.octets()) + TOGETHER
}

/// See the module's documentation.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Call {
    joins: bool,
    /// The last message of one packet in it.
    last: Option<Kind>,
}

/// What decides about the length of a packet.
type Kind = (core::mem::Discriminant<SendOp>, Rider, u32);

fn kind(of: &Request) -> Kind {
    (core::mem::discriminant(&of.post.op), of.rider(), of.post.len)
}

impl Call {
    pub(super) const fn new(joins: bool) -> Self {
        Self { joins, last: None }
    }

    /// Octets that the next message takes, if it is one packet.
    pub(super) fn room_of(&self, next: &Request) -> i64 {
        let len = i64::from(next.post.len);
        match self.last {
            Some(last) if last == kind(next) => len + TOGETHER,
            _ => 2 * len + ALONE,
        }
    }

    /// A packet of this message is in it.
    pub(super) fn add(&mut self, message: &Request) {
        self.last = (self.joins && message.packets == 1).then(|| kind(message));
    }
}
