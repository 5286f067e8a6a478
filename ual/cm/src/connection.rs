//! The connection of an endpoint: its state, its present or last stream, and what the manager needs of
//! the endpoint ([`Connectee`]).
//!
//! The endpoint owns its [`Connection`]. The state is one atomic: posting reads it, a caller moves it from
//! `Unconnected` to pending and from `Connected` to `Nonoperational`, the manager does the rest. What is
//! known of the stream is behind a lock that is held for a few instructions, and while a verb ends the
//! stream. When the peer dies, the manager learns it from the provider, makes the state `Nonoperational`
//! and tells the endpoint. An endpoint that is used again has a stream with a larger number.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use vp_api::{FpduSize, NativeCm, Qp, QpChange, QpId, QpState, StreamParams, VpResult, VpStatus};

use crate::error::{Error, Result};
use crate::local::Permit;
use crate::node::Ends;
use crate::types::{BrokenCause, ConnEvent, ConnectionEnd, Disconnect, Established};

/// Connection state (IT-API `it_ep_state_rc_t`; the numbers are the specification's).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Hash, Debug)]
#[repr(u8)]
pub enum ConnState {
    /// No connection; it may connect, or accept a request.
    Unconnected = 0,
    /// Connecting.
    ActivePending = 1,
    /// Accepting.
    PassivePending = 3,
    /// Connected.
    Connected = 4,
    /// The connection is over or is being closed; a reset makes the endpoint usable again.
    Nonoperational = 5,
    /// A converted socket's endpoint whose peer is to begin (IT-API
    /// `IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ`).
    PassiveWait = 6,
}

impl ConnState {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unconnected => "unconnected",
            Self::ActivePending => "connecting",
            Self::PassivePending => "accepting",
            Self::Connected => "connected",
            Self::Nonoperational => "nonoperational",
            Self::PassiveWait => "waiting for the peer to begin",
        }
    }

    fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Unconnected,
            1 => Self::ActivePending,
            3 => Self::PassivePending,
            4 => Self::Connected,
            6 => Self::PassiveWait,
            _ => Self::Nonoperational,
        }
    }
}

/// What the manager needs of an endpoint.
pub trait Connectee: Send + Sync {
    /// Its queue pair.
    fn qp(&self) -> &dyn Qp;

    /// What the manager keeps of it.
    fn connection(&self) -> &Connection;

    /// False once it is closed.
    fn is_open(&self) -> bool;

    /// What private data said may settle more of the stream than MPA does. Called before the queue pair gets
    /// the stream; must not block.
    fn settle(&self, _: &Established, _: &mut StreamParams) {}

    /// Tells it of an event. Called without a lock of the manager, for one event after the other. It must not
    /// block: the events of the whole adapter wait behind it.
    fn tell(self: Arc<Self>, event: ConnEvent);
}

/// The endpoint, if it is still open.
pub(crate) fn open(party: &Weak<dyn Connectee>) -> Option<Arc<dyn Connectee>> {
    party.upgrade().filter(|party| party.is_open())
}

/// What is known of the present or last stream.
#[derive(Default)]
pub(crate) struct Link {
    /// Its number in the [`Sequence`](crate::Sequence), before it begins; a reset gives the next one.
    pub(crate) stream: u64,
    /// Between established and its end.
    pub(crate) live: bool,
    pub(crate) close_timeout: Duration,
    /// How large its FPDUs may be.
    pub(crate) fpdu: FpduSize,
    pub(crate) ends: Option<Ends>,
    pub(crate) established: Option<Established>,
    /// This end asked for the disconnect.
    pub(crate) closing: bool,
    /// Why there is no connection.
    pub(crate) refused: Option<Box<ConnEvent>>,
    /// While the stream is a local one.
    pub(crate) permit: Option<Permit>,
}

/// See the module; [`Cm::connection`](crate::Cm::connection) makes one.
pub struct Connection {
    state: AtomicU8,
    link: Mutex<Link>,
    /// The largest numbers of reads, inbound and outbound, as they are now.
    reads: Mutex<(u16, u16)>,
}

impl Connection {
    pub(crate) fn new(stream: u64, ird: u16, ord: u16) -> Self {
        Self {
            state: AtomicU8::new(ConnState::Unconnected as u8),
            link: Mutex::new(Link { stream, ..Link::default() }),
            reads: Mutex::new((ird, ord)),
        }
    }

    /// Its state.
    pub fn state(&self) -> ConnState {
        ConnState::from_raw(self.state.load(Ordering::Acquire))
    }

    /// Whether work may be posted to the send queue: it goes out, or completes as flushed.
    #[inline]
    pub fn takes_work(&self) -> bool {
        // Connected and Nonoperational, told apart by one bit.
        self.state.load(Ordering::Acquire) & !1 == ConnState::Connected as u8
    }

    /// Both ends of the present or last connection.
    pub fn ends(&self) -> Option<Ends> {
        self.link().ends.clone()
    }

    /// What the present or last connection was established with.
    pub fn established(&self) -> Option<Established> {
        self.link().established.clone()
    }

    /// How the last connection of `qp` ended, or why it did not come about, as far as the provider tells;
    /// `None`: it stands. Known when the first work request of the connection completes without success:
    /// before the connection event.
    pub fn end(&self, qp: &dyn Qp) -> Option<ConnectionEnd> {
        let qp = qp.query().ok()?;
        let cause = match (qp.ended, qp.terminate) {
            (Some(event), _) => BrokenCause::of(event),
            (None, Some(terminate)) if terminate.sent => Some(BrokenCause::Terminated(terminate)),
            (None, Some(terminate)) => Some(BrokenCause::TerminatedByPeer(terminate)),
            (None, None) => None,
        };
        let link = self.link();
        if let Some(event) = &link.refused {
            return Some(ConnectionEnd::Refused(ConnEvent::clone(event)));
        }
        let (ends, by_peer) = (link.ends.clone()?, !link.closing);
        match cause {
            // This end wanted it to end, and it did.
            Some(BrokenCause::Reset | BrokenCause::Lost | BrokenCause::ClosedInWork) | None
                if !by_peer =>
            {
                Some(ConnectionEnd::Closed { ends, by_peer })
            }
            Some(cause) => Some(ConnectionEnd::Broken { ends, cause }),
            None => qp.ended.map(|_| ConnectionEnd::Closed { ends, by_peer }),
        }
    }

    /// Changes the limits of reads by `change`, so that those are kept that the queue pair has.
    pub fn change_reads<E>(
        &self,
        ird: Option<u16>,
        ord: Option<u16>,
        change: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut reads = self.reads();
        change()?;
        *reads = (ird.unwrap_or(reads.0), ord.unwrap_or(reads.1));
        Ok(())
    }

    /// Largest IRD and ORD.
    pub fn ird_ord(&self) -> (u16, u16) {
        *self.reads()
    }

    /// Runs `tell` at a time when nobody closes the endpoint.
    pub fn while_open(&self, tell: impl FnOnce()) {
        let _link = self.link();
        tell();
    }

    /// Closes the endpoint by `destroy`, at a time when it is told of nothing.
    pub fn close<E>(
        &self,
        destroy: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut link = self.link();
        destroy()?;
        self.set_state(ConnState::Nonoperational);
        link.permit = None;
        if std::mem::take(&mut link.live)
            && let Some(ends) = &link.ends
        {
            tracing::info!("disconnected: {ends}: the endpoint was freed");
        }
        Ok(())
    }

    pub(crate) fn link(&self) -> MutexGuard<'_, Link> {
        // Nothing panics while the lock is held.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reads(&self) -> MutexGuard<'_, (u16, u16)> {
        // Nothing panics while the lock is held.
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, and the number of the stream that it is the state of.
    pub(crate) fn present(&self) -> (ConnState, u64) {
        // A reset changes both under this lock.
        let link = self.link();
        (self.state(), link.stream)
    }

    /// Moves from `Unconnected` to `pending`.
    pub(crate) fn begin(&self, pending: ConnState, attempt: &'static str) -> Result<()> {
        if self.change_state(ConnState::Unconnected, pending) {
            return Ok(());
        }
        Err(self.invalid_state(attempt, "unconnected (reset it after a connection)"))
    }

    /// Makes it as new, for the stream of number `next`, unless another thread has done so since `stream`.
    pub(crate) fn restart(&self, stream: u64, next: u64) -> Result<()> {
        let mut link = self.link();
        if link.stream != stream {
            return Err(self.invalid_state("reset", "nonoperational"));
        }
        *link = Link { stream: next, ..Link::default() };
        self.set_state(ConnState::Unconnected);
        Ok(())
    }

    pub(crate) fn invalid_state(&self, attempt: &'static str, needed: &'static str) -> Error {
        Error::InvalidState { state: self.state().name(), attempt, needed }
    }

    pub(crate) fn set_state(&self, state: ConnState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state if it is `from`.
    pub(crate) fn change_state(&self, from: ConnState, to: ConnState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Ends the stream of an endpoint that is connected; its number. `None` if it has ended by itself: its event,
/// on the way, says how.
pub(crate) fn end_stream(
    party: &dyn Connectee,
    native: Option<&dyn NativeCm>,
    how: Disconnect,
) -> Result<Option<u64>> {
    let connection = party.connection();
    // Under its lock: else the event of an end that came first could be taken for the event of this one,
    // and the stream that another thread begins behind a reset for this one.
    let mut link = connection.link();
    let left = match (how, native) {
        (Disconnect::Graceful, None) => end_llp(party.qp(), &link, QpChange::Closing)?,
        (Disconnect::Drained, None) => match end_llp(party.qp(), &link, QpChange::Drain) {
            Err(Error::Verb { source, .. }) if source.status == VpStatus::Unsupported => {
                end_llp(party.qp(), &link, QpChange::Closing)?
            }
            ended => ended?,
        },
        (Disconnect::Graceful | Disconnect::Drained, Some(native)) => {
            ended_by_this(native.disconnect(party.qp().id()))?;
            true
        }
        (Disconnect::Abrupt, _) => end_llp(party.qp(), &link, QpChange::Error)?,
    };
    if !left {
        return Ok(None);
    }
    link.closing = true;
    connection.change_state(ConnState::Connected, ConnState::Nonoperational);
    Ok(Some(link.stream))
}

fn end_llp(qp: &dyn Qp, link: &Link, change: QpChange) -> Result<bool> {
    let state = qp.query().map_err(Error::verb("query the queue pair"))?.state;
    if link.live && !matches!(state, QpState::Rts | QpState::Closing) {
        return Ok(false);
    }
    // Refused: it ended since; or it closes already, or is still to begin.
    Ok(ended_by_this(qp.modify(change))? || !link.live || link.closing)
}

/// Whether a verb ended the stream, and not something else before.
fn ended_by_this(ended: VpResult<()>) -> Result<bool> {
    match ended {
        Ok(()) => Ok(true),
        Err(error) if error.status == VpStatus::InvalidState => Ok(false),
        Err(error) => Err(Error::verb("disconnect")(error)),
    }
}

/// The id of an endpoint's queue pair.
pub(crate) fn id_of(party: &dyn Connectee) -> QpId {
    party.qp().id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_who_start_it_over_one_is_refused() {
        let connection = Connection::new(1, 16, 16);
        for (before, next) in [(1, 5), (5, 9)] {
            connection.restart(before, next).unwrap();
            assert!(connection.restart(before, 100).is_err());
            assert_eq!(
                (connection.link().stream, connection.state()),
                (next, ConnState::Unconnected)
            );
        }
    }
}
