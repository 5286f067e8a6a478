//! The QP: MPA, DDP and RDMAP composed into one state machine.
//!
//! Owner: the provider, which serialises all calls (one lock per QP). When the peer dies the
//! provider calls `handle_fin` or `handle_llp_fault`, and every work request completes.
//!
//! `size_of::<Qp>()` is at most 760 octets; to that come the rings: 80 octets per send-queue WQE, 40
//! per ORD, 64 per IRD. A QP of depth 64 with IRD and ORD 16 costs less than 7.5 KiB in all. An
//! [`Fpdu`] is 128 octets.

mod close;
mod config;
mod deliver;
mod effect;
mod fast_rx;
mod fast_tx;
mod fpdu;
mod hold;
mod read;
mod rx;
mod sq;
mod state;
mod tx;
mod work;

pub use config::{QpConfig, StreamConfig, StreamPosition};
pub use effect::{Action, Destination, Input, LlpFault, PostError, QpEvent, Want};
pub use fast_tx::AtOnce;
pub use fpdu::{Fpdu, Payload};
pub use state::State;

use crate::error::TerminateCode;
use crate::mpa;
use crate::rdmap::reads::{Requester, Responder};
use crate::stats::Stats;
use crate::types::{Role, RtrKind, SendOp, SendWqe, Slot, Stag};
use crate::wire::ddp::Header;
use crate::wire::rdmap::ReadRequestRepr;
use crate::wire::terminate::TerminateRepr;
use effect::Actions;
use rx::Reception;
use sq::SendQueue;
use tx::Transmit;

/// Headers of the refused segment, for the Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RefusedHeaders {
    pub(crate) header: Header,
    /// ULPDU_Length of its FPDU.
    pub(crate) ulpdu_len: u16,
    pub(crate) read_request: Option<ReadRequestRepr>,
    /// The memory that an Atomic Request names, which a Terminate does not quote.
    pub(crate) atomic: Option<(Stag, u64)>,
}

/// The Terminate sent or received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastTerminate {
    pub(crate) refers: Refers,
    pub(crate) message: TerminateRepr,
}

/// What a Terminate refers to, beyond what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refers {
    /// We sent it.
    Peers,
    /// We sent it for an Atomic Request, which names this memory of ours.
    PeersAtomic(Stag, u64),
    /// The peer sent it; octets of our work request.
    Ours(Option<u32>),
}

impl LastTerminate {
    /// We sent it.
    pub(crate) const fn is_sent(&self) -> bool {
        !matches!(self.refers, Refers::Ours(_))
    }
}

/// What a Terminate refers to: the peer's segment if we sent it, else ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedSegment {
    /// Its DDP header.
    pub header: Header,
    /// ULPDU_Length of its FPDU.
    pub segment_length: Option<u16>,
    /// The Read Request that it carried.
    pub read_request: Option<ReadRequestRepr>,
    /// Octets of our work request that it belongs to.
    pub request_octets: Option<u32>,
    /// The memory of ours that it names as an Atomic Request.
    pub atomic: Option<(Stag, u64)>,
}

/// One end of an iWARP stream, with its send queue's order.
///
/// Every ring is allocated by [`Qp::new`]; later only held messages are.
#[derive(Debug)]
pub struct Qp {
    config: QpConfig,
    state: State,
    role: Role,
    established: bool,
    /// Both ends agreed on Sends with Immediate.
    send_immediates: bool,
    /// The peer's FIN has come.
    peer_finished: bool,
    sq: SendQueue,
    requester: Requester,
    responder: Responder,
    tx: Transmit,
    rx: Reception,
    actions: Actions,
    last_terminate: Option<LastTerminate>,
    stats: Stats,
}

impl Qp {
    /// A QP in Idle. All rings are allocated here.
    pub fn new(config: QpConfig) -> Self {
        let msn = StreamPosition::START.send_msn;
        Self {
            config,
            state: State::Idle,
            role: Role::Initiator,
            established: false,
            send_immediates: false,
            peer_finished: false,
            sq: SendQueue::new(config.sq_depth),
            requester: Requester::new(config.max_ord),
            responder: Responder::new(config.max_ird),
            tx: Transmit::new(mpa::Tx::new(None, false), mpa::MIN_MULPDU, msn),
            rx: Reception::new(mpa::Rx::new(None, false), StreamPosition::START.receive_msn),
            actions: Actions::default(),
            last_terminate: None,
            stats: Stats::default(),
        }
    }

    // ---- verbs ------------------------------------------------------------------------------

    /// Queues a work request, in Idle (processed after `start`) or RTS. Returns its slot: the
    /// provider stores its half of the WQE there *before* the next `poll_transmit`.
    pub fn post_send(&mut self, wqe: SendWqe) -> Result<Slot, PostError> {
        self.check_send(wqe.op)?;
        self.sq.push(wqe)
    }

    /// Whether such a work request may be queued, as far as that does not depend on the number of others.
    #[inline]
    pub fn check_send(&mut self, op: SendOp) -> Result<(), PostError> {
        // RDMAC 6.2.1, 6.2.4, 6.2.5 [VERBS-02, VERBS-05, VERBS-11, DDP-18]
        if !matches!(self.state, State::Idle | State::Rts) {
            return Err(PostError::BadState);
        }
        if sq::is_extension(op) && !self.may_extend(op) {
            return Err(PostError::Unsupported);
        }
        if work::is_request(op) && !self.requester.make_room() {
            return Err(PostError::NoMemory);
        }
        Ok(())
    }

    /// Idle -> RTS.
    pub fn start(&mut self, stream: StreamConfig) -> Result<(), State> {
        self.start_at(stream, StreamPosition::START)
    }

    /// Idle -> RTS in the middle of a stream: support for tests.
    pub fn start_at(&mut self, stream: StreamConfig, at: StreamPosition) -> Result<(), State> {
        if self.state != State::Idle {
            return Err(self.state);
        }
        // RDMAC 6.2.1.2 [VERBS-03]: numbers and marker origin begin anew
        let crc = stream.crc.then_some(self.config.crc32c);
        let framing = mpa::Tx::at(crc, stream.markers_tx, u64::from(at.octets_sent));
        self.tx = Transmit::new(framing, stream.mulpdu, at.send_msn);
        let framing = mpa::Rx::at(crc, stream.markers_rx, u64::from(at.octets_received));
        self.rx = Reception::new(framing, at.receive_msn);
        self.requester.clear();
        self.requester.next_id = at.request_id;
        self.requester.limit = stream.ord.min(self.config.max_ord);
        self.responder.clear();
        self.responder.limit = stream.ird.min(self.config.max_ird);
        self.role = stream.role;
        self.send_immediates = stream.send_immediates;
        (self.established, self.peer_finished) = (false, false);
        self.actions.clear();
        self.last_terminate = None;
        self.state = State::Rts;
        self.start_role(stream.rtr);
        Ok(())
    }

    fn start_role(&mut self, rtr: Option<RtrKind>) {
        match self.role {
            // RFC 6581 9.2 [CONN-29]
            Role::Initiator => {
                self.tx.rtr = rtr;
                if rtr.is_none() {
                    self.establish();
                }
            }
            // RFC 5044 7.1.2(4) [CONN-11]
            Role::Responder => {
                self.tx.allowed = false;
                self.rx.expect_empty_send = rtr == Some(RtrKind::Send);
                // RFC 6581 9.1 [CONN-22]: a Read RTR needs one inbound Read
                if rtr == Some(RtrKind::Read) {
                    self.responder.limit = self.responder.limit.max(1);
                }
            }
        }
    }

    fn establish(&mut self) {
        if !self.established && self.state == State::Rts {
            self.established = true;
            self.actions.push(Action::Event(QpEvent::Established));
        }
    }

    /// The EMSS changed: FPDUs built from now on use this MULPDU [MPA-20, MPA-21].
    pub fn set_mulpdu(&mut self, mulpdu: u16) {
        self.tx.mulpdu = mpa::clamp_mulpdu(mulpdu);
    }

    /// Lowers ORD of the present stream; what is outstanding stays (RDMAC 9.2.5.2). False if it
    /// would rise.
    pub fn reduce_ord(&mut self, ord: u16) -> bool {
        let possible = ord <= self.requester.limit;
        if possible {
            self.requester.limit = ord;
        }
        possible
    }

    /// Queues a zero-length RDMA Write that no consumer sees: it wakes peers that left our first FPDU
    /// unread after their MPA Reply (see the peer profile `siw`). No-op unless in RTS, or as a
    /// responder that may not send yet.
    pub fn kick(&mut self) {
        self.tx.kick |= self.state == State::Rts && self.tx.allowed;
    }
    /// Queues a zero-length RDMA Read that no consumer sees, to learn whether the peer is alive (RFC
    /// 5044 has no keep-alive of its own) [CONN-14]. False if ORD or state do not allow it, or a probe
    /// is outstanding.
    pub fn probe(&mut self) -> bool {
        let possible = self.state == State::Rts && self.tx.allowed && self.requester.has_room();
        let queued = possible && !self.probe_outstanding();
        self.tx.probe |= queued;
        queued
    }

    /// What to do with the stream, see [`Action`].
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop()
    }

    /// Whether [`Self::poll_action`] would return one.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    // ---- queries ----------------------------------------------------------------------------

    /// State now.
    pub const fn state(&self) -> State {
        self.state
    }
    /// Work requests posted and not completed.
    pub fn outstanding_sends(&self) -> u32 {
        self.sq.len()
    }
    /// Whether a probe (or a Read RTR) has no response yet.
    pub fn probe_outstanding(&self) -> bool {
        self.state == State::Rts && (self.tx.probe || self.requester.hidden() > 0)
    }
    /// FPDUs received and valid so far; changes mean that the peer is alive.
    pub const fn fpdus_received(&self) -> u64 {
        self.stats.fpdus_received
    }
    /// Whether [`Want::Direct`] is possible: neither CRC nor markers are in force.
    pub const fn places_early(&self) -> bool {
        self.rx.framing.places_early()
    }
    /// Octets that still belong to an FPDU whose payload is being placed as it arrives; 0: another
    /// begins after the octets that were consumed.
    pub fn fpdu_rest(&self) -> usize {
        self.rx.rest()
    }
    /// Reads and atomics of ours that are waiting for their response.
    pub fn outstanding_reads(&self) -> u32 {
        self.requester.visible()
    }
    /// The Terminate sent or received, kept for Query QP (RDMAC 6.2.3) [VERBS-28]: true if we sent
    /// it.
    pub fn last_terminate(&self) -> Option<(bool, TerminateCode)> {
        self.last_terminate.map(|last| (last.is_sent(), last.message.code))
    }
    /// What that Terminate refers to, if it carries the header.
    pub fn refused_segment(&self) -> Option<RefusedSegment> {
        let LastTerminate { message, refers } = self.last_terminate?;
        let (request_octets, atomic) = match refers {
            Refers::Peers => (None, None),
            Refers::PeersAtomic(stag, to) => (None, Some((stag, to))),
            Refers::Ours(octets) => (octets, None),
        };
        Some(RefusedSegment {
            header: message.ddp?,
            segment_length: message.segment_length,
            read_request: message.read_request,
            request_octets,
            atomic,
        })
    }
    /// Counters.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmap::reads::{Owed, Request};

    // What the documentation of this module promises
    #[test]
    fn a_qp_costs_what_the_documentation_says() {
        assert!(size_of::<Qp>() <= 760, "{}", size_of::<Qp>());
        assert_eq!(size_of::<Option<sq::Entry>>(), 80);
        assert_eq!(size_of::<Option<Request>>() + size_of::<Option<Slot>>(), 40);
        assert_eq!(size_of::<Option<Owed>>(), 64);
        assert_eq!(size_of::<Option<Fpdu>>(), 128);
    }
}
