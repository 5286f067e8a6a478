//! Delivery of asynchronous events to the consumer's handler.
//!
//! Owned by the RNIC and shared by QPs, CQs and SRQs. Any thread may emit an event, without holding a lock.

use std::sync::{Arc, PoisonError, RwLock};

use vp_api::{AsyncEvent, AsyncHandler, EventSource};

/// Holds the handler; events without one are lost (RDMAC 9.2.12).
#[derive(Default)]
pub struct EventSink {
    handler: RwLock<Option<Arc<dyn AsyncHandler>>>,
}

impl EventSink {
    /// Sets the handler of events from now on.
    pub fn set(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        *self.handler.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Calls the handler, if there is one, without holding the sink's lock.
    pub fn emit(&self, source: EventSource, event: AsyncEvent) {
        let handler = self.handler.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            handler.on_event(source, event);
        }
    }
}
