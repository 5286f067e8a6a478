//! The protocol core of a connection, reliable or not: one interface for both.
//!
//! Owner: the connection. No state of its own.

use std::collections::TryReserveError;

use roce_proto::rc::{
    self, Broken, Completion, Host, Post, PostError, RcConfig, RoundTrip, Sending, Stats, Transmit,
};
use roce_proto::uc::{self, UcConfig};
use roce_proto::wire::packet::Packet;

/// See the module's documentation.
pub(super) enum Core {
    Reliable(Box<rc::Qp>),
    Unreliable(Box<uc::Qp>),
}

impl Core {
    pub(super) fn new(config: RcConfig, unreliable: bool) -> Result<Self, TryReserveError> {
        if !unreliable {
            return Ok(Self::Reliable(Box::new(rc::Qp::new(config)?)));
        }
        let RcConfig { destination, mtu, send_psn, receive_psn, send_depth, .. } = config;
        let config = UcConfig { destination, mtu, send_psn, receive_psn, send_depth };
        Ok(Self::Unreliable(Box::new(uc::Qp::new(config)?)))
    }

    pub(super) fn is_reliable(&self) -> bool {
        matches!(self, Self::Reliable(_))
    }

    pub(super) fn set_sending(&mut self, sending: Sending) -> Result<(), TryReserveError> {
        match self {
            Self::Reliable(qp) => qp.set_sending(sending),
            Self::Unreliable(qp) => {
                qp.set_send_psn(sending.psn);
                Ok(())
            }
        }
    }

    pub(super) fn set_min_rnr_timer(&mut self, code: u8) {
        if let Self::Reliable(qp) = self {
            qp.set_min_rnr_timer(code);
        }
    }

    pub(super) fn post(&mut self, post: Post) -> Result<(), PostError> {
        match self {
            Self::Reliable(qp) => qp.post(post),
            Self::Unreliable(qp) => qp.post(post),
        }
    }

    /// Whether the packet was of use, or may be answered.
    pub(super) fn handle_packet(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        host: &mut impl Host,
    ) -> Result<(), uc::Dropped> {
        match self {
            Self::Reliable(qp) => {
                qp.handle_packet(now, packet, host);
                Ok(())
            }
            Self::Unreliable(qp) => qp.handle_packet(packet, host),
        }
    }

    pub(super) fn handle_mark(&mut self, now: u64, packet: &Packet<'_>) {
        if let Self::Reliable(qp) = self {
            qp.handle_mark(now, packet);
        }
    }

    /// The peer is an end of this implementation.
    pub(super) fn divide_writes(&mut self) {
        if let Self::Reliable(qp) = self {
            qp.divide_writes();
        }
    }

    /// What leaves from now on leaves in another system call. `joins`: the peer receives packets of one length together.
    pub(super) fn begin_call(&mut self, joins: bool) {
        if let Self::Reliable(qp) = self {
            qp.begin_call(joins);
        }
    }

    pub(super) fn poll_transmit(&mut self, now: u64) -> Option<Transmit> {
        match self {
            Self::Reliable(qp) => qp.poll_transmit(now),
            Self::Unreliable(qp) => qp.poll_transmit(),
        }
    }

    /// The same without an acknowledgement that may wait.
    pub(super) fn poll_urgent(&mut self, now: u64) -> Option<Transmit> {
        match self {
            Self::Reliable(qp) => qp.poll_urgent(now),
            Self::Unreliable(qp) => qp.poll_transmit(),
        }
    }

    /// Whether an acknowledgement or another reply waits.
    pub(super) fn owes_reply(&self) -> bool {
        matches!(self, Self::Reliable(qp) if qp.owes_reply())
    }

    pub(super) fn handle_source_fault(&mut self, transmit: &Transmit) {
        match self {
            Self::Reliable(qp) => qp.handle_source_fault(transmit),
            Self::Unreliable(qp) => qp.handle_source_fault(transmit),
        }
    }

    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        match self {
            Self::Reliable(qp) => qp.poll_completion(),
            Self::Unreliable(qp) => qp.poll_completion(),
        }
    }

    /// Whether sending has completed requests.
    pub(super) fn has_completed(&self) -> bool {
        match self {
            Self::Reliable(_) => false,
            Self::Unreliable(qp) => qp.has_completed(),
        }
    }

    /// Whether it has packets for which nothing that the peer sends makes room.
    pub(super) fn is_unpaced(&self) -> bool {
        matches!(self, Self::Unreliable(qp) if qp.has_more())
    }

    /// An unreliable connection sends nothing until then.
    pub(super) fn pause(&mut self, until: u64) {
        if let Self::Unreliable(qp) = self {
            qp.pause(until);
        }
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Reliable(qp) => qp.deadline(),
            Self::Unreliable(qp) => qp.deadline(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: u64) {
        match self {
            Self::Reliable(qp) => qp.handle_timeout(now),
            Self::Unreliable(qp) => qp.handle_timeout(now),
        }
    }

    /// `None`: none was measured, as always where nothing is acknowledged.
    pub(super) fn round_trip(&self) -> Option<RoundTrip> {
        match self {
            Self::Reliable(qp) => qp.round_trip(),
            Self::Unreliable(_) => None,
        }
    }

    pub(super) fn stats(&self) -> Stats {
        match self {
            Self::Reliable(qp) => qp.stats(),
            Self::Unreliable(qp) => qp.stats(),
        }
    }

    pub(super) fn broken(&self) -> Option<Broken> {
        match self {
            Self::Reliable(qp) => qp.broken(),
            Self::Unreliable(qp) => qp.failed().map(Broken::Failed),
        }
    }

    pub(super) fn failed_post(&self) -> Option<Post> {
        match self {
            Self::Reliable(qp) => qp.failed_post(),
            Self::Unreliable(qp) => qp.failed_post(),
        }
    }

    pub(super) fn flush(&mut self) {
        match self {
            Self::Reliable(qp) => qp.flush(),
            Self::Unreliable(qp) => qp.flush(),
        }
    }
}
