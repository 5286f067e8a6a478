//! A QP's connection while it has one: stream, what waits in each direction, and its timers' marks.
//!
//! Belongs to the QP, under its lock. It is dropped, and the socket closed, when the core says that
//! the stream is over.

use std::net::SocketAddr;
use std::sync::Arc;

use vp_api::{AsyncEvent, QpCounters, StreamParams};

use crate::engine::Timer;
use crate::qp::context::Context;
use crate::qp::hold::Held;
use crate::qp::inner::nanoseconds;
use crate::qp::registration::Registration;
use crate::stream::rx::Inbox;
use crate::stream::socket::Stream;
use crate::stream::tx::Outbox;

/// The connection.
pub(crate) struct Link {
    /// Shared with whoever reports it to the engine anew.
    pub(crate) stream: Arc<Stream>,
    /// Which of the QP's streams it is: a deadline names it.
    pub(crate) generation: u32,
    pub(crate) registration: Registration,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) params: StreamParams,
    /// It closes when no work is under way.
    pub(crate) draining: bool,
    /// A FIN follows when everything is sent.
    pub(crate) finishing: bool,
    /// Our FIN went out.
    pub(crate) finished: bool,
    /// The close is bounded: until then.
    pub(crate) close_at: Option<u64>,
    /// A reset follows when the peer has what was sent.
    pub(crate) resetting: bool,
    /// The socket was full; it becoming writable is an event.
    pub(crate) stalled: bool,
    /// The engine reports that there is room.
    pub(crate) reported: bool,
    /// Its turn to send was over before everything was sent.
    pub(crate) unsent: bool,
    /// A look at the peer's liveness is due some time.
    pub(crate) probing: bool,
    /// When.
    pub(crate) probe_at: u64,
    /// The peer was asked since the look before.
    pub(crate) asked: bool,
    /// How often the time to the next look has doubled.
    pub(crate) patience: u32,
    /// How far the stream had moved at the last look.
    pub(crate) moved_before: u64,
    /// More waits than the socket takes at once.
    pub(crate) slow: bool,
    /// Times that a slow socket took something: the peer reads.
    pub(crate) drained: u64,
    /// Zero-length kicks whose deadline was set.
    pub(crate) kicks: u32,
    /// Until when messages wait for a receive.
    pub(crate) held: Held,
}

impl Link {
    /// A fresh connection.
    pub(crate) fn new(stream: Stream, params: StreamParams) -> Self {
        Self {
            stream: Arc::new(stream),
            generation: 0,
            registration: Registration::default(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            params,
            draining: false,
            finishing: false,
            finished: false,
            close_at: None,
            resetting: false,
            stalled: false,
            reported: false,
            unsent: false,
            probing: false,
            probe_at: 0,
            asked: false,
            patience: 0,
            moved_before: 0,
            slow: false,
            drained: 0,
            kicks: 0,
            held: Held::default(),
        }
    }

    /// Until when what was sent may take to arrive, if nothing more is.
    pub(crate) fn close_at(&self, context: &Context) -> u64 {
        let bound = nanoseconds(self.params.close_timeout);
        self.close_at.unwrap_or_else(|| context.engine.now().saturating_add(bound))
    }

    /// Sets the deadline of this kind.
    pub(crate) fn set_timer(&self, context: &Context, at: u64, timer: Timer) {
        context.engine.set_timer(at, context.id.0, self.generation, timer);
    }

    /// The engine is to watch the socket again; false if it cannot.
    pub(crate) fn register_again(&mut self, context: &Context) -> bool {
        self.registration.register_again(&context.engine, context.id.0, &self.stream, self.reported)
    }

    /// Changes when the peer shows that it is there: it sends, or it takes what had to wait.
    pub(crate) fn moved(&self) -> u64 {
        self.inbox.octets.wrapping_add(self.drained)
    }
}

/// What outlives the connection, for Query QP.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    /// How the stream ended, once it has.
    pub(crate) ended: Option<AsyncEvent>,
    pub(crate) counters: QpCounters,
}
