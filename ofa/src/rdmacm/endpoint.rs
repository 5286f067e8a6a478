//! The endpoint of one connection: joins an identifier and a queue pair. It is the connection manager's
//! endpoint, and the queue pair's owner. For an identifier without a queue pair it has a [`Carrier`].
//!
//! Created when the identifier connects or accepts, and held by it; the manager and the queue pair have
//! weak references. It passes all events to the identifier, whose state decides what the application
//! gets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ual_cm::{ConnEvent, ConnState, Connectee, Connection, Disconnect};
use vp_api::{QpId, QpInfo};

use super::carrier::Carrier;
use super::id::Id;
use crate::adapter::Adapter;
use crate::errno::{EINVAL, Errno};
use crate::qp::{Owner, Qp};

/// The endpoint of one connection.
pub(super) struct IdEndpoint {
    id: Weak<Id>,
    adapter: Arc<Adapter>,
    joined: Joined,
    connection: Connection,
    /// The queue pair, or the identifier, is destroyed.
    gone: AtomicBool,
}

/// What is connected.
enum Joined {
    /// A queue pair, and its life when it joined.
    Qp(Arc<Qp>, u64),
    Nothing(Carrier),
}

/// What an identifier connects.
pub(super) enum Connects {
    Qp(Arc<Qp>),
    /// Nothing; the number is carried to the peer.
    Number(u32),
}

impl IdEndpoint {
    /// For a connection with at most as many inbound and outbound reads as `reads` returns; known to the manager from now
    /// on.
    ///
    /// # Errors
    /// EINVAL: the queue pair belongs to another identifier, or to another device. Those of `reads`.
    pub(super) fn join(
        id: &Arc<Id>,
        adapter: &Arc<Adapter>,
        connects: Connects,
        reads: impl FnOnce(&QpInfo) -> Result<(u16, u16), Errno>,
    ) -> Result<Arc<Self>, Errno> {
        let joined = match connects {
            Connects::Qp(qp) if !Arc::ptr_eq(qp.adapter()?, adapter) => return Err(EINVAL),
            Connects::Qp(qp) => {
                let life = qp.life();
                Joined::Qp(qp, life)
            }
            Connects::Number(number) => {
                let id: Weak<Id> = Arc::downgrade(id);
                Joined::Nothing(Carrier::new(id, adapter, number)?)
            }
        };
        let (ird, ord) = reads(&joined.vp().query()?)?;
        let connection = adapter.cm().connection(ird, ord);
        let (id, adapter, gone) = (Arc::downgrade(id), adapter.clone(), false.into());
        let party = Arc::new(Self { id, adapter, joined, connection, gone });
        let known: Weak<Self> = Arc::downgrade(&party);
        match &party.joined {
            Joined::Qp(qp, _) => qp.attach(known)?,
            Joined::Nothing(carrier) => party.adapter.register(carrier.qp().id(), known),
        }
        Ok(party)
    }

    pub(super) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// The application's queue pair.
    pub(super) fn qp(&self) -> Option<&Qp> {
        match &self.joined {
            Joined::Qp(qp, _) => Some(qp),
            Joined::Nothing(_) => None,
        }
    }

    /// For an identifier without a queue pair.
    pub(super) fn carrier(&self) -> Option<&Carrier> {
        match &self.joined {
            Joined::Qp(..) => None,
            Joined::Nothing(carrier) => Some(carrier),
        }
    }

    /// The id of the provider's queue pair.
    pub(super) fn id(&self) -> QpId {
        self.joined.vp().id()
    }

    /// Itself, as the manager's type.
    pub(super) fn connectee(self: &Arc<Self>) -> Arc<dyn Connectee> {
        self.clone()
    }

    /// Ends the connection, or the attempt to make one; an event follows.
    pub(super) fn disconnect(self: &Arc<Self>, how: Disconnect) -> Result<(), Errno> {
        Ok(self.adapter.cm().disconnect(&self.connectee(), how)?)
    }

    /// The attempt to connect ended before the manager began it; an event follows.
    pub(super) fn refuse(&self, why: Errno) {
        self.joined.end();
        if let Some(id) = self.id.upgrade() {
            id.was_refused(why);
        }
    }

    /// The identifier is destroyed, and no more events are delivered: ends the connection.
    pub(super) fn detach(self: &Arc<Self>) {
        if self.connection.state() == ConnState::Connected && self.is_open() {
            // It may have ended by itself.
            let _ = self.disconnect(Disconnect::Drained);
        }
        if !self.gone.swap(true, Ordering::AcqRel) {
            // Ends an attempt.
            self.adapter.cm().forget(self.id());
        }
    }
}

impl Joined {
    fn vp(&self) -> &Arc<dyn vp_api::Qp> {
        match self {
            Self::Qp(qp, _) => qp.vp(),
            Self::Nothing(carrier) => carrier.qp(),
        }
    }

    /// The connection, or the attempt, is over.
    fn end(&self) {
        if let Self::Qp(qp, life) = self {
            qp.ended(*life, false);
        }
    }
}

impl Owner for IdEndpoint {
    fn close(&self, destroy: &mut dyn FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
        self.connection.close(destroy)?;
        self.gone.store(true, Ordering::Release);
        if let Some(id) = self.id.upgrade() {
            id.lost_queue_pair();
        }
        Ok(())
    }
}

impl Connectee for IdEndpoint {
    fn qp(&self) -> &dyn vp_api::Qp {
        &**self.joined.vp()
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_open(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    fn deliver(self: Arc<Self>, event: ConnEvent) {
        if !matches!(event, ConnEvent::Established(_)) && self.is_open() {
            self.joined.end();
        }
        if let Some(id) = self.id.upgrade() {
            id.on_event(event);
        }
    }
}
