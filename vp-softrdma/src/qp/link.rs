//! A connection of a QP: its stream, the octets that wait in each direction, and the state of its
//! timers.
//!
//! Belongs to the QP, under its lock. It is dropped, and the socket closed, when the core reports that
//! the stream is over.

use std::io;
use std::net::SocketAddr;

use vp_api::{AsyncEvent, Carrier, QpCounters, StreamParams, VpError, VpResult};

use crate::engine::Timer;
use crate::qp::Polled;
use crate::qp::context::Context;
use crate::qp::hold::HoldDeadline;
use crate::qp::inner::nanoseconds;
use crate::qp::registration::Registration;
use crate::stream::capture::Facts;
use crate::stream::local::Local;
use crate::stream::rx::Inbox;
use crate::stream::socket::{Sent, Stream};
use crate::stream::tx::Outbox;

/// A connection.
pub(crate) struct Link {
    /// Shared with the thread that reports it to the engine anew.
    pub(crate) stream: Stream,
    /// The generation of the QP's stream; its deadlines name it.
    pub(crate) generation: u32,
    pub(crate) registration: Registration,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) params: StreamParams,
    /// The stream closes when no work is outstanding.
    pub(crate) draining: bool,
    /// A FIN follows when everything is sent.
    pub(crate) finishing: bool,
    /// Our FIN was sent.
    pub(crate) finished: bool,
    /// The close is bounded by this time.
    pub(crate) close_at: Option<u64>,
    /// A reset follows when the peer's TCP has everything.
    pub(crate) resetting: bool,
    /// The socket was full; an event reports when it has room.
    pub(crate) stalled: bool,
    /// The engine reports room to send.
    pub(crate) reported: bool,
    /// The send budget ended before everything was sent.
    pub(crate) unsent: bool,
    /// A check of the peer's liveness is scheduled.
    pub(crate) probing: bool,
    /// The time of that check.
    pub(crate) probe_at: u64,
    /// A probe was sent since the check before.
    pub(crate) asked: bool,
    /// How often the time to the next check has doubled.
    pub(crate) doublings: u32,
    /// The progress of the stream at the last check.
    pub(crate) moved_before: u64,
    /// More octets wait than the socket takes at once.
    pub(crate) slow: bool,
    /// How often a slow socket took octets: the peer reads.
    pub(crate) drained: u64,
    /// Number of zero-length kicks scheduled.
    pub(crate) kicks: u32,
    /// The deadline of messages that wait for a receive.
    pub(crate) hold_deadline: HoldDeadline,
}

impl Link {
    /// A new connection.
    pub(crate) fn new(mut stream: Stream, params: StreamParams) -> Self {
        stream.facts = Facts::new(&params, stream.shared().is_some());
        Self {
            inbox: Inbox::new(stream.shared().is_some()),
            stream,
            generation: 0,
            registration: Registration::default(),
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
            doublings: 0,
            moved_before: 0,
            slow: false,
            drained: 0,
            kicks: 0,
            hold_deadline: HoldDeadline::default(),
        }
    }

    /// The last octets by TCP, of a stream that goes through shared memory from here on.
    pub(crate) fn speak_last(&self, received: &[u8], last_message: &[u8]) -> io::Result<()> {
        if !received.is_empty() {
            return Err(io::Error::other("octets came by TCP before a local stream began"));
        }
        match self.stream.send_by_tcp(last_message) {
            _ if last_message.is_empty() => Ok(()),
            Sent::Octets(octets) if octets == last_message.len() => Ok(()),
            _ => Err(io::Error::other("it has no room for the last message by TCP")),
        }
    }

    /// Has the life line watched, and the peer ring. On an error the stream is detached.
    pub(crate) fn begin_local(&self, context: &Context) -> VpResult<()> {
        let (Some(local), Some(socket)) = (self.stream.shared(), self.stream.life_line()) else {
            return Ok(());
        };
        let (engine, id) = (&context.engine, context.id.0);
        engine.watch_life_line(id, socket).map_err(|error| {
            engine.detach(id, &self.stream);
            VpError::os("adding the life line to the progress engine: epoll_ctl", &error)
        })?;
        local.sleep();
        Ok(())
    }

    /// The latest time for sent octets to arrive, if nothing more is sent.
    pub(crate) fn close_at(&self, context: &Context) -> u64 {
        let bound = nanoseconds(self.params.close_timeout);
        self.close_at.unwrap_or_else(|| context.engine.now().saturating_add(bound))
    }

    /// Sets the deadline of this kind.
    pub(crate) fn set_timer(&self, context: &Context, at: u64, timer: Timer) {
        context.engine.set_timer(at, context.id.0, self.generation, timer);
    }

    /// Has the engine watch the socket again; false if it cannot.
    pub(crate) fn register_again(&mut self, context: &Context) -> bool {
        self.registration.register_again(&context.engine, context.id.0, &self.stream, self.reported)
    }

    /// Shared memory that was full has room again.
    #[inline]
    pub(crate) fn has_room_again(&self) -> bool {
        self.stalled && self.stream.shared().is_some_and(Local::has_room_again)
    }

    /// What a poller learns of the stream.
    #[inline]
    pub(crate) fn polled(&self) -> Polled {
        match self.stream.shared() {
            Some(_) => Polled::Local,
            None if self.stalled => Polled::Stalled,
            None => Polled::All,
        }
    }

    /// A thread polls the stream; it need not be notified.
    pub(crate) fn is_polled(&self) -> bool {
        self.stream.shared().is_some_and(Local::is_awake)
    }

    /// Changes when the peer shows that it is alive: it sends, or it takes octets that waited.
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
    /// What carried its octets.
    pub(crate) carrier: Carrier,
    pub(crate) counters: QpCounters,
}
