//! Test access for the layer above: holds the driver while something happens, and inspects the table.

use std::sync::{Arc, MutexGuard};

use vp_api::{AsyncEvent, AsyncHandler, EventSource};

use crate::connection::Connectee;
use crate::driver::Work;
use crate::mailbox::Command;
use crate::manager::Cm;
use crate::node::Ends;
use crate::types::{Disconnect, ListenerId};

/// Access to a manager for tests.
pub struct Testing<'a>(&'a Cm);

/// While this exists no thread drives the table.
pub struct HeldDriver<'a>(MutexGuard<'a, Option<Work>>);

impl Cm {
    /// Access for tests.
    pub fn testing(&self) -> Testing<'_> {
        Testing(self)
    }
}

impl<'a> Testing<'a> {
    /// Keeps all threads from driving the table.
    pub fn hold(&self) -> HeldDriver<'a> {
        HeldDriver(self.0.driver.lock())
    }

    /// Ends the pause of a listener. As after any work, the timer is set and events are delivered: the
    /// thread may sleep.
    pub fn resume(&self, listener: ListenerId) {
        if let Some(work) = &mut *self.0.driver.lock() {
            work.table.resume(listener.0);
            work.arm();
        }
        self.0.driver.deliver();
    }

    /// Whether no command waits or is being executed, and all events are delivered.
    pub fn is_idle(&self) -> bool {
        let waits = || self.0.mailbox.commands.is_empty();
        if !waits() {
            return false;
        }
        drop(self.0.driver.lock());
        waits() && self.0.driver.has_delivered()
    }

    /// Reports an asynchronous event, as the provider does.
    pub fn report(&self, source: EventSource, event: AsyncEvent) {
        self.0.mailbox.on_event(source, event);
    }

    /// Sends and executes a command that has no effect.
    pub fn command(&self) {
        self.0.mailbox.send(Command::Answered { token: 0 });
        self.0.execute(Command::Answered { token: 0 });
    }

    /// Makes an endpoint connected, with a new stream.
    pub fn revive(&self, party: &dyn Connectee, ends: Ends) {
        let connection = party.connection();
        connection.set_state(crate::ConnState::Connected);
        let mut link = connection.link();
        link.stream = self.0.new_stream();
        link.live = true;
        link.ends = Some(ends);
    }

    /// The number of an endpoint's stream.
    pub fn stream_of(&self, party: &dyn Connectee) -> u64 {
        party.connection().link().stream
    }

    /// Disconnects this stream.
    pub fn disconnecting(&self, party: &Arc<dyn Connectee>, stream: u64, how: Disconnect) {
        self.0.disconnecting(party, stream, how);
    }

    /// Cancels this stream.
    pub fn cancel(&self, party: &dyn Connectee, stream: u64) {
        self.0.cancel(party, stream);
    }

    /// Makes the kernel refuse to watch sockets.
    pub fn refuse_watches(&self, refuse: bool) {
        self.0.sleeper.refuse_watches(refuse);
    }
}

impl HeldDriver<'_> {
    /// The number of entries of endpoints, and of all entries.
    pub fn entries(&self) -> (usize, usize) {
        self.0.as_ref().map_or((0, 0), |work| (work.table.by_qp.len(), work.table.entries.len()))
    }
}
