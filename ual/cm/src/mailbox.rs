//! Commands to the manager's table: from callers, from the provider, and from tables of other adapters.
//!
//! An unbounded channel: each command stands for a call, or for an event that the provider reports once.
//! The connection thread is signalled unless it is awake ([`WakeState`]).

use std::sync::{Arc, Weak};

use crossbeam_channel::Sender;
use kal_os::progress::WakeState;
use kal_shim::Notifier;
use vp_api::{
    AsyncEvent, AsyncHandler, EventSource, NativeEvent, QpId, ServiceEvent, ServiceHandler,
};

use crate::connection::Connectee;
use crate::deliveries::Origin;
use crate::listener::{Listening, Service};
use crate::sequence::Sequence;
use crate::startup::active::Plan;
use crate::startup::passive::Passive;
use crate::startup::socket::Conversion;
use crate::startup::tcp::Started;
use crate::types::{AcceptParams, Disconnect};

/// A command to the table.
pub(crate) enum Command {
    Connect {
        party: Weak<dyn Connectee>,
        plan: Box<Plan>,
        started: Started,
    },
    Convert {
        party: Weak<dyn Connectee>,
        conversion: Box<Conversion>,
    },
    Accept {
        token: u64,
        party: Weak<dyn Connectee>,
        params: AcceptParams,
    },
    Reject {
        token: u64,
        private_data: Vec<u8>,
    },
    /// Give a request to another listener.
    Handoff {
        token: u64,
        to: Target,
    },
    /// A request that was given to a listener of this table.
    Adopt {
        listener: u64,
        passive: Box<Passive>,
    },
    /// The layer above did not take a request.
    Undelivered {
        origin: Origin,
    },
    Listen {
        listening: Listening,
        service: Box<Service>,
    },
    Unlisten {
        token: u64,
    },
    /// Cancel this stream of an endpoint.
    Cancel {
        qp: QpId,
        stream: u64,
    },
    Disconnecting {
        party: Weak<dyn Connectee>,
        stream: u64,
        how: Disconnect,
    },
    Forget {
        qp: QpId,
    },
    /// `number`: of the event in the [`Sequence`].
    Async {
        number: u64,
        source: EventSource,
        event: AsyncEvent,
    },
    /// As `Async`.
    Native {
        number: u64,
        event: NativeEvent,
    },
    Service(ServiceEvent),
    /// A service request was replied to.
    Answered {
        token: u64,
    },
}

/// A listener that a request can be handed to.
#[derive(Clone)]
pub(crate) struct Target {
    /// Its table.
    pub(crate) owner: Mailbox,
    /// Its token there.
    pub(crate) token: u64,
}

/// Sends commands to one table.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Notifier>,
    pub(crate) wake: Arc<WakeState>,
    pub(crate) sequence: Sequence,
}

impl Mailbox {
    pub(crate) fn send(&self, command: Command) {
        // The receiver is gone only when the adapter is closed; then the command is obsolete.
        if self.commands.send(command).is_ok() && self.wake.request_wake() {
            self.waker.signal();
        }
    }

    /// Whether both send to the same table.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.id() == other.id()
    }

    /// Identifies the table; reused only when all mailboxes of this one are gone.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.waker).addr()
    }
}

impl AsyncHandler for Mailbox {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        // The table made the connection itself and has the result.
        if event != AsyncEvent::Established {
            // Before the handler returns, so that what the provider begins afterwards has a larger
            // number.
            let number = self.sequence.next();
            self.send(Command::Async { number, source, event });
        }
    }
}

impl ServiceHandler for Mailbox {
    fn on_service(&self, event: ServiceEvent) {
        self.send(Command::Service(event));
    }
}
