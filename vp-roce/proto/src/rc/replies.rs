//! Queue of the responder's replies, in the order of their PSNs.
//!
//! An acknowledgement covers all earlier ones, so that two in a row become one. The queue is bounded: a peer
//! that repeats requests faster than replies can be sent loses replies, and repeats again.
//!
//! Owner of the state: the responder.

use alloc::collections::{TryReserveError, VecDeque};

use super::{RcConfig, Source, Transmit, packet};
use crate::psn::Psn;
use crate::wire::aeth::{Aeth, NO_CREDITS, Syndrome};
use crate::wire::bth::{Operation, Position};
use crate::wire::extended::Reth;
use crate::wire::packet::Extended;

/// Kind of a reply.
#[derive(Clone, Copy, Debug)]
enum Owed {
    Acknowledge(Syndrome),
    Read {
        reth: Reth,
        /// Number of responses that were returned already.
        sent: u32,
    },
    Atomic {
        original: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Reply {
    psn: Psn,
    msn: Psn,
    owed: Owed,
}

/// Replies that are to be sent.
#[derive(Debug)]
pub(super) struct Replies {
    queue: VecDeque<Reply>,
    most: usize,
}

const ACK: Syndrome = Syndrome::Ack { credits: NO_CREDITS };

impl Replies {
    /// A queue for `resources` Reads and atomics, and the acknowledgements between them.
    pub(super) fn new(resources: u8) -> Result<Self, TryReserveError> {
        let most = 2 * usize::from(resources) + 4;
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(most)?;
        Ok(Self { queue, most })
    }

    /// Makes room for one more Read or atomic of at most `resources`: it drops the responses of the oldest,
    /// which the peer has, or must do without.
    pub(super) fn make_room(&mut self, resources: u8) {
        let is_response = |reply: &Reply| !matches!(reply.owed, Owed::Acknowledge(_));
        while self.queue.iter().filter(|reply| is_response(reply)).count() >= usize::from(resources)
            && let Some(oldest) = self.queue.iter().position(is_response)
        {
            self.queue.remove(oldest);
        }
    }

    fn push(&mut self, reply: Reply) {
        if self.queue.len() < self.most {
            self.queue.push_back(reply);
        }
    }

    pub(super) fn acknowledge(&mut self, psn: Psn, msn: Psn) {
        let reply = Reply { psn, msn, owed: Owed::Acknowledge(ACK) };
        match self.queue.back_mut() {
            Some(last) if matches!(last.owed, Owed::Acknowledge(Syndrome::Ack { .. })) => {
                *last = reply
            }
            _ => self.push(reply),
        }
    }

    pub(super) fn refuse(&mut self, psn: Psn, msn: Psn, syndrome: Syndrome) {
        self.push(Reply { psn, msn, owed: Owed::Acknowledge(syndrome) });
    }

    pub(super) fn read(&mut self, psn: Psn, msn: Psn, reth: Reth) {
        self.push(Reply { psn, msn, owed: Owed::Read { reth, sent: 0 } });
    }

    pub(super) fn atomic(&mut self, psn: Psn, msn: Psn, original: u64) {
        self.push(Reply { psn, msn, owed: Owed::Atomic { original } });
    }

    /// The peer has gone back to `psn` and repeats all requests from there on.
    pub(super) fn drop_from(&mut self, psn: Psn) {
        self.queue.retain(|reply| reply.psn.ahead_of(psn) < 0);
    }

    /// Drops all replies.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether there is only an acknowledgement, if anything.
    pub(super) fn may_wait(&self) -> bool {
        let is_ack = |reply: &Reply| matches!(reply.owed, Owed::Acknowledge(Syndrome::Ack { .. }));
        self.queue.len() <= 1 && self.queue.front().is_none_or(is_ack)
    }

    /// The packet of the reply at the front.
    pub(super) fn poll_transmit(&mut self, config: &RcConfig) -> Option<Transmit> {
        let reply = self.queue.front_mut()?;
        let mut extended = Extended::default();
        let aeth = |syndrome| Some(Aeth { syndrome, msn: reply.msn });
        let transmit = match &mut reply.owed {
            Owed::Acknowledge(syndrome) => {
                extended.aeth = aeth(*syndrome);
                packet(config, Operation::Acknowledge, reply.psn, extended, Source::None)
            }
            Owed::Atomic { original } => {
                (extended.aeth, extended.original) = (aeth(ACK), Some(*original));
                packet(config, Operation::AtomicAcknowledge, reply.psn, extended, Source::None)
            }
            Owed::Read { reth, sent } => {
                let packets = config.mtu.packets(reth.length);
                let position = Position::of(*sent == 0, *sent + 1 == packets);
                if position != Position::Middle {
                    extended.aeth = aeth(ACK);
                }
                let offset = *sent * config.mtu.octets();
                let len = config.mtu.octets().min(reth.length - offset);
                let address = reth.address.wrapping_add(u64::from(offset));
                let source = match len {
                    0 => Source::None,
                    len => Source::Memory { rkey: reth.rkey, address, len },
                };
                let psn = reply.psn.plus(*sent);
                *sent += 1;
                let operation = Operation::ReadResponse(position);
                let transmit = packet(config, operation, psn, extended, source);
                if !position.ends() {
                    return Some(transmit);
                }
                transmit
            }
        };
        self.queue.pop_front();
        Some(transmit)
    }
}
