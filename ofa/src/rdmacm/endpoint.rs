//! The endpoint of one connection: joins an identifier and a queue pair. It is the connection manager's
//! endpoint, and the queue pair's owner.
//!
//! Created when the identifier connects or accepts, and held by it; the manager and the queue pair have
//! weak references. It passes all events to the identifier, whose state decides what the application
//! gets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ual_cm::{ConnEvent, ConnState, Connectee, Connection, Disconnect};

use super::id::Id;
use crate::adapter::Adapter;
use crate::errno::Errno;
use crate::qp::{Owner, Qp};

/// The endpoint of one connection.
pub(super) struct IdEndpoint {
    id: Weak<Id>,
    adapter: Arc<Adapter>,
    qp: Arc<Qp>,
    /// Of the queue pair, when it joined.
    life: u64,
    connection: Connection,
    /// The queue pair, or the identifier, is destroyed.
    gone: AtomicBool,
}

impl IdEndpoint {
    /// For a connection with at most this many inbound and outbound reads; known to the manager from now
    /// on.
    ///
    /// # Errors
    /// EINVAL: the queue pair belongs to another identifier, or to another device.
    pub(super) fn join(
        id: &Arc<Id>,
        adapter: &Arc<Adapter>,
        qp: Arc<Qp>,
        (ird, ord): (u16, u16),
    ) -> Result<Arc<Self>, Errno> {
        if !Arc::ptr_eq(qp.adapter()?, adapter) {
            return Err(crate::errno::EINVAL);
        }
        let connection = adapter.cm().connection(ird, ord);
        let (id, adapter, gone) = (Arc::downgrade(id), adapter.clone(), false.into());
        let life = qp.life();
        let party = Arc::new(Self { id, adapter, qp, life, connection, gone });
        let known: Weak<Self> = Arc::downgrade(&party);
        party.qp.attach(known)?;
        Ok(party)
    }

    pub(super) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    pub(super) fn qp(&self) -> &Qp {
        &self.qp
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
        self.qp.ended(self.life, false);
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
            self.adapter.cm().forget(self.qp.vp().id());
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
        &**self.qp.vp()
    }

    fn connection(&self) -> &Connection {
        &self.connection
    }

    fn is_open(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    fn deliver(self: Arc<Self>, event: ConnEvent) {
        if !matches!(event, ConnEvent::Established(_)) && self.is_open() {
            self.qp.ended(self.life, false);
        }
        if let Some(id) = self.id.upgrade() {
            id.on_event(event);
        }
    }
}
