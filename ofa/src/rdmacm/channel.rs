//! Event channels: the queue of events of any number of identifiers, behind a descriptor that programs poll.
//!
//! Owned by the application and by the identifiers that are on it. An identifier that moves or goes takes its
//! events along. There are few events per identifier: one for each call, one for the end; requests are bounded
//! by the backlog of their listener.

use std::sync::Arc;

use super::event::Event;
use super::id::Id;
use super::request::Asked;
use crate::errno::Errno;
use crate::notify::{Item, Queue};

/// See the module.
pub struct Channel(Queue<Pending>);

/// An event that no reader has.
pub(super) struct Pending {
    /// Whose acknowledgements it counts to: the listener's, if it is a request.
    pub(super) id: Arc<Id>,
    pub(super) news: News,
}

/// What it tells.
pub(super) enum News {
    Event(Event),
    /// Someone wants to connect.
    Request(Box<Asked>),
}

impl Item for Pending {
    fn taken(&self) {
        self.id.acks().given();
    }
}

impl Channel {
    pub(super) fn new() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self(Queue::new()?)))
    }

    pub(super) fn fd(&self) -> i32 {
        self.0.fd()
    }

    pub(super) fn push(&self, pending: Pending) {
        self.0.push(pending);
    }

    /// Takes out the events of an identifier.
    pub(super) fn remove(&self, id: &Arc<Id>) -> Vec<Pending> {
        self.0.remove(|pending| Arc::ptr_eq(&pending.id, id))
    }

    /// The queue that readers wait at.
    pub(super) fn queue(&self) -> &Queue<Pending> {
        &self.0
    }
}
