//! Delivery of events to the layer above: queued under the manager's lock, delivered without it.
//!
//! One queue per adapter. The thread that releases the manager's lock delivers what is queued, in order;
//! while one thread delivers, others leave theirs to it. A delivery costs less than the work that caused
//! it, so the delivering thread comes to an end. The layer above may call the manager from within a
//! delivery. A request that it refuses (its dispatcher is full or closed) is sent back as a command.
//! Each event of a peer costs an entry here until it is delivered.

use std::sync::Arc;

use vp_api::{AsyncEvent, EventSource};

use crate::connection::Connectee;
use crate::face::{Face, ReplySink, RequestSink};
use crate::handle::Handle;
use crate::in_order::InOrder;
use crate::mailbox::{Command, Mailbox};
use crate::types::{ConnEvent, ConnRequest, ServiceReply, ServiceRequest};

/// One event and its receiver.
pub(crate) enum Delivery {
    Connection(Arc<dyn Connectee>, Box<ConnEvent>),
    Request { sink: Arc<dyn RequestSink>, request: Box<ConnRequest>, origin: Origin },
    ServiceRequest { sink: Arc<dyn RequestSink>, request: Box<ServiceRequest>, origin: Origin },
    Reply(Arc<dyn ReplySink>, Box<ServiceReply>),
    Async { number: u64, source: EventSource, event: AsyncEvent },
}

/// The table entry that a request comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) token: u64,
    pub(crate) request: Handle,
}

/// The queue of one adapter.
pub(crate) struct Deliveries {
    queue: InOrder<Delivery>,
    face: Arc<dyn Face>,
}

impl Deliveries {
    pub(crate) fn new(face: Arc<dyn Face>) -> Self {
        Self { queue: InOrder::new(), face }
    }

    pub(crate) fn push(&self, delivery: Delivery) {
        self.queue.push(delivery);
    }

    /// Delivers what is queued, unless another thread is doing so.
    pub(crate) fn deliver(&self, mailbox: &Mailbox) {
        self.queue.drain(|delivery| self.deliver_one(delivery, mailbox));
    }

    /// Whether nothing is queued or being delivered.
    #[cfg(feature = "testing")]
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_done()
    }

    fn deliver_one(&self, delivery: Delivery, mailbox: &Mailbox) {
        let (taken, origin) = match delivery {
            Delivery::Connection(party, event) => return party.deliver(*event),
            Delivery::Reply(sink, reply) => return sink.reply(*reply),
            Delivery::Async { number, source, event } => {
                return self.face.on_async(number, source, event);
            }
            Delivery::Request { sink, request, origin } => (sink.request(*request), origin),
            Delivery::ServiceRequest { sink, request, origin } => {
                (sink.service_request(*request), origin)
            }
        };
        if !taken {
            mailbox.send(Command::Undelivered { origin });
        }
    }
}
