//! Event channels: the queue of events of any number of identifiers, behind a descriptor that programs poll.
//!
//! Owned by the application and by the identifiers that are on it. An identifier that is moved or
//! destroyed takes its events along. There are few events per identifier: one for each call, one for the
//! end; requests are bounded by the backlog of their listener.

use std::sync::Arc;

use super::event::Event;
use super::id::Id;
use super::request::Asked;
use crate::errno::Errno;
use crate::notify::{Item, Queue};

/// An event channel.
pub struct Channel(Queue<Pending>);

/// An event that was not fetched yet.
pub(super) struct Pending {
    /// The identifier that counts its acknowledgement: for a request, the listener's.
    pub(super) id: Arc<Id>,
    pub(super) event: ChannelEvent,
}

/// The kind of event.
pub(super) enum ChannelEvent {
    Event(Event),
    /// A connection request.
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

    /// Removes the events of an identifier.
    pub(super) fn remove(&self, id: &Arc<Id>) -> Vec<Pending> {
        self.0.remove(|pending| Arc::ptr_eq(&pending.id, id))
    }

    /// Removes an identifier's events of a multicast group.
    pub(super) fn remove_group(&self, id: &Arc<Id>, group: [u8; 16]) {
        let of_group = |event: &ChannelEvent| match event {
            ChannelEvent::Event(event) => event.group() == Some(group),
            ChannelEvent::Request(_) => false,
        };
        self.0.remove(|pending| Arc::ptr_eq(&pending.id, id) && of_group(&pending.event));
    }

    /// The queue that readers wait at.
    pub(super) fn queue(&self) -> &Queue<Pending> {
        &self.0
    }
}
