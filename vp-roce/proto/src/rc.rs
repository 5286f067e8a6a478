//! Reliable connections: the requester, the responder, and a queue pair of both (InfiniBand volume 1,
//! 9.7).
//!
//! Loss is repaired by going back to the first missing packet (go-back-N), as in the standard and its
//! implementations. The caller owns clock, sockets, memory and queues: it passes the time in microseconds,
//! gives every packet with a correct invariant CRC to [`Qp::handle_packet`], sends what [`Qp::poll_transmit`]
//! returns, and calls [`Qp::handle_timeout`] at [`Qp::deadline`].
//!
//! Owner of the state: the holder of the queue pair; one thread at a time. If the peer dies, unacknowledged
//! packets are sent again `retry_count` times, then the first request fails with [`Status::RetryExceeded`] and
//! all later ones are flushed. Reuse: each connection has a new queue pair. Full: posts beyond the depth are
//! refused; a peer's Reads beyond `responder_resources` are refused with a NAK.

use alloc::collections::TryReserveError;

mod call;
mod congestion;
mod host;
mod outstanding;
mod replies;
mod request;
mod requester;
mod responder;
mod stats;
mod timing;

use self::congestion::Notifier;
pub use self::host::{Access, AccessError, AtomicOp, Delivered, Host};
pub use self::request::{Completion, Post, PostError, SendOp, Status};
use self::requester::Requester;
use self::responder::Responder;
pub use self::stats::Stats;
pub use self::timing::RoundTrip;
use crate::psn::Psn;
use crate::wire::bth::{Bth, DEFAULT_PKEY, OWN_MARK, Opcode, Operation, Service};
use crate::wire::packet::{Extended, Headers, Packet, pad};

/// Path MTU: octets of payload in a packet that does not end its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Mtu {
    Octets256 = 256,
    Octets512 = 512,
    Octets1024 = 1024,
    Octets2048 = 2048,
    Octets4096 = 4096,
}

impl Mtu {
    /// Octets.
    pub const fn octets(self) -> u32 {
        self as u32
    }
    /// The code of messages and verbs, 1 to 5.
    pub const fn code(self) -> u8 {
        (self.octets().trailing_zeros() - 7) as u8
    }
    /// From the code.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Octets256,
            2 => Self::Octets512,
            3 => Self::Octets1024,
            4 => Self::Octets2048,
            5 => Self::Octets4096,
            _ => return None,
        })
    }
    /// The largest MTU that fits packets of `link` octets, IP header included; `None` below 256 octets.
    pub const fn of_link(link: u32) -> Option<Self> {
        // IPv6, UDP, the longest headers with payload (BTH, RETH, immediate data), invariant CRC.
        const OVERHEAD: u32 = 40 + 8 + 32 + 4;
        let room = link.saturating_sub(OVERHEAD);
        match room {
            4096.. => Some(Self::Octets4096),
            2048.. => Some(Self::Octets2048),
            1024.. => Some(Self::Octets1024),
            512.. => Some(Self::Octets512),
            256.. => Some(Self::Octets256),
            _ => None,
        }
    }
    /// Number of packets of a message of `len` octets: at least one.
    pub const fn packets(self, len: u32) -> u32 {
        // [IBRC-09]
        let packets = len.div_ceil(self.octets());
        if packets == 0 { 1 } else { packets }
    }
}

/// Microseconds of a time-out code `n` of the standard: 4.096 times 2^n; `None` for 0, which means no time-out.
pub const fn timeout(code: u8) -> Option<u64> {
    match code & 0x1f {
        0 => None,
        code => Some((4_096u64 << code).div_ceil(1_000)),
    }
}

/// Parameters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcConfig {
    /// The peer's queue pair.
    pub destination: u32,
    /// Path MTU, the same at both ends.
    pub mtu: Mtu,
    /// PSN of our first request.
    pub send_psn: Psn,
    /// PSN of the peer's first request.
    pub receive_psn: Psn,
    /// How often packets are repeated without progress, 0 to 7; see [`Self::count_after`].
    pub retry_count: u8,
    /// How often a request is repeated after RNR NAKs, 0 to 7; 7 is unlimited.
    pub rnr_retry: u8,
    /// Microseconds after the first of them from which on such a request fails, also with unlimited repetitions;
    /// `None`: never.
    pub rnr_limit: Option<u64>,
    /// Microseconds after which unacknowledged packets are repeated, if acknowledgements take a quarter of that at
    /// most; `None`: never.
    pub ack_timeout: Option<u64>,
    /// Microseconds without progress of which each count as one repetition, however many there are in them: a peer
    /// that was not heard for a moment is not lost. A longer `ack_timeout` counts each time.
    pub count_after: u64,
    /// Time code of our RNR NAKs.
    pub min_rnr_timer: u8,
    /// RDMA Reads and atomics of ours at once; 0: posts of such are refused.
    pub initiator_depth: u8,
    /// RDMA Reads and atomics of the peer at once; 0: none is served.
    pub responder_resources: u8,
    /// Most packets of the path MTU outstanding, responses to Reads included: as many as receive buffers hold. Of
    /// messages of one packet as many as take the same room there ([`Qp::begin_call`]). A connection begins with half, and congestion makes
    /// it smaller.
    pub window: u16,
    /// Most send requests that are posted and not completed.
    pub send_depth: u32,
}

/// The part of a connection's parameters that concerns our own requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sending {
    /// See [`RcConfig::send_psn`].
    pub psn: Psn,
    /// See [`RcConfig::retry_count`].
    pub retry_count: u8,
    /// See [`RcConfig::rnr_retry`].
    pub rnr_retry: u8,
    /// See [`RcConfig::ack_timeout`].
    pub ack_timeout: Option<u64>,
    /// See [`RcConfig::initiator_depth`].
    pub initiator_depth: u8,
}

/// Source of the payload of a packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// No payload.
    None,
    /// The local segments of a posted request.
    Request {
        /// The request's slot, as posted.
        slot: u32,
        /// Offset in the message.
        offset: u32,
        /// How many.
        len: u32,
    },
    /// Registered memory that the peer reads.
    Memory {
        /// The key that it sent, to be checked again.
        rkey: u32,
        /// Virtual address.
        address: u64,
        /// How many octets.
        len: u32,
    },
}

impl Source {
    /// Octets.
    pub const fn len(&self) -> u32 {
        match *self {
            Self::None => 0,
            Self::Request { len, .. } | Self::Memory { len, .. } => len,
        }
    }
    /// No octets.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A packet to send. The payload is followed by `headers.bth.pad` zeros and the invariant CRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Headers.
    pub headers: Headers,
    /// Payload.
    pub source: Source,
}

/// Builds a packet of a reliable connection.
fn packet(
    config: &RcConfig,
    operation: Operation,
    psn: Psn,
    extended: Extended,
    source: Source,
) -> Transmit {
    let bth = Bth {
        opcode: Opcode::Transport(Service::Rc, operation),
        solicited: false,
        // [ROCE-09]
        // Adapters of 2016 drop packets in which it is not set; rxe accepts both.
        migrated: true,
        pad: pad(source.len()),
        pkey: DEFAULT_PKEY,
        congestion: OWN_MARK,
        destination: config.destination,
        ack_request: false,
        psn,
    };
    Transmit { headers: Headers { bth, extended }, source }
}

/// Why the queue pair serves no more requests of its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The peer broke the protocol, or a request exceeded its rights: it got this NAK.
    Refused(crate::wire::aeth::Nak),
    /// One of our requests failed.
    Failed(Status),
}

/// A queue pair on a reliable connection.
#[derive(Debug)]
pub struct Qp {
    config: RcConfig,
    requester: Requester,
    responder: Responder,
    notifier: Notifier,
}

impl Qp {
    /// Begins a connection; allocates all memory that it needs.
    pub fn new(config: RcConfig) -> Result<Self, TryReserveError> {
        let (requester, responder) = (Requester::new(&config)?, Responder::new(&config)?);
        Ok(Self { config, requester, responder, notifier: Notifier::default() })
    }

    /// Sets the parameters of our own requests: for connections that serve the peer's before these are known. Only
    /// before the first post.
    pub fn set_sending(&mut self, sending: Sending) -> Result<(), TryReserveError> {
        let config = RcConfig {
            send_psn: sending.psn,
            retry_count: sending.retry_count,
            rnr_retry: sending.rnr_retry,
            ack_timeout: sending.ack_timeout,
            initiator_depth: sending.initiator_depth,
            ..self.config
        };
        self.requester = Requester::new(&config)?;
        self.config = config;
        Ok(())
    }

    /// Sets [`RcConfig::min_rnr_timer`], at any time.
    pub const fn set_min_rnr_timer(&mut self, code: u8) {
        self.config.min_rnr_timer = code;
    }

    /// Posts a request. Its octets must stay until its completion.
    pub fn post(&mut self, post: Post) -> Result<(), PostError> {
        self.requester.post(&self.config, post)
    }

    /// Handles a packet of the peer whose invariant CRC was checked. Packets of another service are ignored.
    pub fn handle_packet(&mut self, now: u64, packet: &Packet<'_>, host: &mut impl Host) {
        let operation = match packet.headers.bth.opcode {
            Opcode::Cnp => return self.requester.congested(),
            Opcode::Transport(Service::Rc, operation) => operation,
            Opcode::Transport(..) => return,
        };
        if operation.is_response() {
            self.requester.handle_response(&self.config, now, operation, packet, host);
        } else {
            self.responder.handle_request(&self.config, operation, packet, host);
        }
    }

    /// A packet of the peer whose invariant CRC was checked was marked on its way: congestion experienced (RFC 3168).
    pub fn handle_mark(&mut self, now: u64, packet: &Packet<'_>) {
        self.notifier.marked(now);
        if let Opcode::Transport(_, Operation::ReadResponse(_)) = packet.headers.bth.opcode {
            self.requester.congested();
        }
    }

    /// The peer is an end of this implementation: Writes that are posted from now on are sent as Writes of one packet
    /// each, so that all their packets have one length.
    pub fn divide_writes(&mut self) {
        self.requester.divides = true;
    }

    /// The next packet to send: notifications of congestion, then replies, then requests; an acknowledgement that is
    /// the only reply comes last, so that it leaves in one call with requests.
    pub fn poll_transmit(&mut self, now: u64) -> Option<Transmit> {
        self.poll_urgent(now).or_else(|| self.responder.poll_transmit(&self.config))
    }

    /// What [`Qp::poll_transmit`] returns from now on leaves in another system call. `joins`: the peer receives those of
    /// one length together.
    pub fn begin_call(&mut self, joins: bool) {
        self.requester.begin_call(joins);
    }

    /// [`Qp::poll_transmit`] without that acknowledgement, which may wait for requests that are posted soon.
    pub fn poll_urgent(&mut self, now: u64) -> Option<Transmit> {
        self.notifier
            .poll_transmit(&self.config)
            .or_else(|| self.responder.poll_urgent(&self.config))
            .or_else(|| self.requester.poll_transmit(&self.config, now))
    }

    /// Whether [`Qp::poll_transmit`] would return an acknowledgement or another reply.
    pub fn owes_reply(&self) -> bool {
        self.responder.owes_reply()
    }

    /// Reports that the memory of the last packet of [`Qp::poll_transmit`] may no longer be read, and that it
    /// was not sent. The peer gets a NAK (for [`Source::Memory`]), or the request fails (for
    /// [`Source::Request`]).
    pub fn handle_source_fault(&mut self, transmit: &Transmit) {
        match transmit.source {
            Source::Memory { .. } => self.responder.source_fault(transmit.headers.bth.psn),
            Source::Request { slot, .. } => self.requester.source_fault(slot),
            Source::None => {}
        }
    }

    /// The next completion, in the order of posts.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.requester.poll_completion()
    }

    /// When [`Qp::handle_timeout`] is to be called, in microseconds.
    pub fn deadline(&self) -> Option<u64> {
        self.requester.deadline()
    }

    /// The time of [`Qp::deadline`] has come; before it, nothing happens.
    pub fn handle_timeout(&mut self, now: u64) {
        self.requester.handle_timeout(&self.config, now);
    }

    /// What it has counted.
    pub fn stats(&self) -> Stats {
        let (ours, peers) = (self.requester.stats, self.responder.stats);
        ours.plus(peers)
    }

    /// Why it is broken, if it is.
    pub fn broken(&self) -> Option<Broken> {
        let refused = self.responder.refused().map(Broken::Refused);
        refused.or(self.requester.failed().map(Broken::Failed))
    }

    /// How long its round trips take; `None`: none was timed yet.
    pub fn round_trip(&self) -> Option<RoundTrip> {
        self.requester.round_trip()
    }

    /// The request of this end that failed first.
    pub fn failed_post(&self) -> Option<Post> {
        self.requester.failed_post()
    }

    /// Completes all requests as flushed; nothing is sent any more.
    pub fn flush(&mut self) {
        self.requester.flush();
    }
}
