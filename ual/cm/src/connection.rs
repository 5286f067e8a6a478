//! The connection of an endpoint: its state, its present or last stream, and the trait that an endpoint
//! implements for the manager ([`Connectee`]).
//!
//! The endpoint owns its [`Connection`]. The state is one atomic: posting reads it, a caller changes it
//! from `Unconnected` to pending and from `Connected` to `Nonoperational`, the manager makes all other
//! changes. The data of the stream is under a lock that is held for a few instructions, and while
//! a verb ends the stream. When the peer dies, the provider reports it to the manager, which makes the
//! state `Nonoperational` and delivers an event to the endpoint. Each further stream of an endpoint has
//! a larger number.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use vp_api::{FpduSize, NativeCm, Qp, QpChange, QpId, QpState, StreamParams, VpResult, VpStatus};

use crate::error::{Error, Result};
use crate::local::Permit;
use crate::node::Ends;
use crate::ruled::Admission;
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
    /// The endpoint of a converted socket whose peer has to begin (IT-API
    /// `IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ`).
    PassiveWait = 6,
}

impl ConnState {
    /// The name of the state in messages.
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

/// What an endpoint implements for the manager.
pub trait Connectee: Send + Sync {
    /// Its queue pair.
    fn qp(&self) -> &dyn Qp;

    /// The manager's part of the endpoint.
    fn connection(&self) -> &Connection;

    /// False once it is closed.
    fn is_open(&self) -> bool;

    /// Adjusts the stream by the fields of the private data that are not MPA's. Called before the queue pair gets
    /// the stream; must not block.
    fn adjust(&self, _: &Established, _: &mut StreamParams) {}

    /// Delivers an event. Called without a lock of the manager, for one event after the other. It must not
    /// block: the events of the whole adapter wait for it.
    fn deliver(self: Arc<Self>, event: ConnEvent);
}

/// The endpoint, if it is still open.
pub(crate) fn open(party: &Weak<dyn Connectee>) -> Option<Arc<dyn Connectee>> {
    party.upgrade().filter(|party| party.is_open())
}

/// The present or last stream.
#[derive(Default)]
pub(crate) struct Link {
    /// Its number in the [`Sequence`](crate::Sequence), assigned before it begins; a reset assigns the
    /// next one.
    pub(crate) stream: u64,
    /// Between established and its end.
    pub(crate) live: bool,
    pub(crate) close_timeout: Duration,
    /// The largest FPDU to send.
    pub(crate) fpdu: FpduSize,
    pub(crate) ends: Option<Ends>,
    pub(crate) established: Option<Established>,
    /// This end requested the disconnect.
    pub(crate) closing: bool,
    /// Why there is no connection.
    pub(crate) refused: Option<Box<ConnEvent>>,
    /// While the stream is a local one.
    pub(crate) permit: Option<Permit>,
    /// From the connect or accept until the end, if a rule bounds the number of connections.
    pub(crate) admission: Option<Admission>,
}

/// A connection; [`Cm::connection`](crate::Cm::connection) makes one.
pub struct Connection {
    state: AtomicU8,
    link: Mutex<Link>,
    /// The present limits of reads, inbound and outbound.
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

    /// Whether work may be posted to the send queue: it is sent, or completes as flushed.
    #[inline]
    pub fn takes_work(&self) -> bool {
        // Connected and Nonoperational differ in one bit.
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

    /// How the last connection of `qp` ended, or why none was established, as far as the provider
    /// reports it; `None`: it has not ended. Known when the first work request of the connection
    /// completes with an error: before the connection event.
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
            // This end requested the end.
            Some(BrokenCause::Reset | BrokenCause::Lost | BrokenCause::ClosedInWork) | None
                if !by_peer =>
            {
                Some(ConnectionEnd::Closed { ends, by_peer })
            }
            Some(cause) => Some(ConnectionEnd::Broken { ends, cause }),
            None => qp.ended.map(|_| ConnectionEnd::Closed { ends, by_peer }),
        }
    }

    /// Changes the limits of reads by `change`, under a lock, so that the recorded limits are those of
    /// the queue pair.
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

    /// Connects `qp` by `bring_up`, without the manager, which learns nothing of it: no event reports its end. After an
    /// error it must be reset.
    pub fn connect_by(&self, qp: &dyn Qp, bring_up: impl FnOnce() -> VpResult<()>) -> Result<()> {
        self.begin(ConnState::ActivePending, "connect by path")?;
        let made = bring_up().map_err(Error::verb("connect by path"));
        if made.is_err() {
            // It may receive already. Refused: it does not, and needs no end.
            let _ = qp.modify(QpChange::Error);
        }
        self.set_state(if made.is_ok() { ConnState::Connected } else { ConnState::Nonoperational });
        made
    }

    /// Runs `action` while no thread closes the endpoint.
    pub fn while_open(&self, action: impl FnOnce()) {
        let _link = self.link();
        action();
    }

    /// Closes the endpoint by `destroy`, while no event is delivered to it.
    pub fn close<E>(
        &self,
        destroy: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut link = self.link();
        destroy()?;
        self.set_state(ConnState::Nonoperational);
        (link.permit, link.admission) = (None, None);
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

    /// The state, and the number of the stream that it belongs to.
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

    /// Resets it for the stream of number `next`, unless another thread has done so since `stream`.
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

/// Ends the stream of a connected endpoint and returns its number. `None` if it has ended by itself: an
/// event that reports how follows.
pub(crate) fn end_stream(
    party: &dyn Connectee,
    native: Option<&dyn NativeCm>,
    how: Disconnect,
) -> Result<Option<u64>> {
    let connection = party.connection();
    // Under its lock: otherwise the event of an earlier end could be taken for the event of this one,
    // and a stream that another thread begins after a reset for this one.
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
    // Refused: it ended since; or it is closing already, or has not begun.
    Ok(ended_by_this(qp.modify(change))? || !link.live || link.closing)
}

/// Whether a verb ended the stream, or it had ended before.
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
    fn of_two_concurrent_resets_one_is_refused() {
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
