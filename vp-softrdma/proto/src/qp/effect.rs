//! Outputs of a QP besides FPDUs: actions on the stream, events, results.
//!
//! Plain values; the queue of actions is owned by the QP.

use crate::error::{ProtocolError, TerminateCode};

/// What to do with the LLP stream. Returned by [`crate::Qp::poll_action`], in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// All FPDUs that `poll_transmit` still yields go out first, then shut down the sending half
    /// (FIN), drain inbound octets, and arm the close timer: call `handle_close_timeout` if the
    /// peer's FIN has not come within the provider's bound.
    CloseGracefully,
    /// Reset the stream (RST) at once; nothing more is sent. `Detach` follows.
    Reset,
    /// Reset the stream after the octets that the LLP has accepted: they are reported as completed, so they
    /// must arrive, within the bound of a close. Nothing more is sent, and octets that still arrive are
    /// dropped. `Detach` follows.
    ResetBehind,
    /// The stream is over for this QP: release it. The QP is Idle or in Error. If `CloseGracefully`
    /// came before and no reset, everything was accepted by the LLP and the peer's FIN is here:
    /// an ordinary close, so that our FIN still goes out.
    Detach,
    /// Tell the consumer.
    Event(QpEvent),
}

/// Events of a QP for its consumer (RDMAC asynchronous events).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// First valid FPDU arrived (or, as initiator, the RTR left): both directions usable.
    Established,
    /// Closed gracefully; the QP is Idle.
    CloseComplete,
    /// The peer sent a Terminate (already decoded; bits may be nonsense from some peers).
    TerminateReceived(TerminateCode),
    /// We found the error and sent (or could not send) this Terminate.
    TerminateSent(ProtocolError),
    /// The stream was reset, timed out or ended in the middle of something.
    ConnectionLost(LlpFault),
    /// Graceful close turned abortive: work was pending or data arrived (RDMAC "Bad Close").
    BadClose,
}

/// How the LLP stream failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LlpFault {
    /// RST, or the LLP refused to go on.
    Reset,
    /// The LLP's, or the provider's keep-alive's, time-out.
    TimedOut,
    /// FIN in the middle of an FPDU or with work pending.
    UnexpectedFin,
    /// The close timer ran out.
    CloseTimeout,
}

/// Why a post was refused; nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// `sq_depth` WQEs are outstanding.
    QueueFull,
    /// The QP is in Terminate, Closing or Error (RDMAC 6.2.4): the caller completes it as Flushed.
    BadState,
    /// Needs RFC 7306, which this QP does not have.
    Unsupported,
    /// There is no memory for the queue, which is allocated with its first WQE.
    NoMemory,
}

/// Result of [`crate::Qp::handle_input`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input {
    /// Octets of the argument that are done with; present the rest again, with more after it.
    pub consumed: usize,
    /// What the QP needs next.
    pub want: Want,
}

/// What the receive path should do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// An FPDU is incomplete: so many octets (counted from the unconsumed rest's first) must be
    /// contiguous before the QP can go on. At most 64 KiB and a few hundred octets.
    Octets(usize),
    /// CRC and markers are off and all octets are consumed: the next `remaining` octets of the
    /// stream are payload, to land at `offset` of `destination`. The provider may read the stream
    /// straight to there and report it with [`crate::Qp::handle_direct`], or go on with
    /// `handle_input` as usual, which also refuses the segment if its place is gone. It holds while the QP is in RTS: a close gives receive buffers
    /// back, and what arrives after it goes to `handle_input`.
    Direct {
        /// Where they go.
        destination: Destination,
        /// Where in it the next one goes.
        offset: u32,
        /// Payload octets still to come.
        remaining: u32,
    },
    /// The stream is over: read and drop.
    Nothing,
}

/// Where the payload of a [`Want::Direct`] goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The segment last given to [`crate::Host::check_tagged`].
    Tagged,
    /// The receive buffer last taken by [`crate::Host::begin_receive`].
    Receive,
}

/// Actions waiting for `poll_action`. A stream causes at most one of each kind and two events
/// about its end, so the capacity is never reached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Actions {
    waiting: [Option<Action>; Self::CAPACITY],
    len: usize,
}

impl Actions {
    const CAPACITY: usize = 6;

    pub(crate) fn push(&mut self, action: Action) {
        debug_assert!(self.len < Self::CAPACITY, "more actions than a stream can cause");
        if let Some(place) = self.waiting.get_mut(self.len) {
            *place = Some(action);
            self.len += 1;
        }
    }
    pub(crate) fn pop(&mut self) -> Option<Action> {
        let first = self.waiting[0].take()?;
        self.waiting.rotate_left(1);
        self.len -= 1;
        Some(first)
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
