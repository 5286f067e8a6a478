//! The way of asynchronous events to the consumer.
//!
//! Owner: the RNIC; QPs, CQs and SRQs share it. Any thread may emit, holding no lock.

use std::sync::{Arc, PoisonError, RwLock};

use vp_api::{AsyncEvent, AsyncHandler, EventSource};

/// Holds the handler; events without one are lost (RDMAC 9.2.12).
#[derive(Default)]
pub(crate) struct EventSink {
    handler: RwLock<Option<Arc<dyn AsyncHandler>>>,
}

impl EventSink {
    pub(crate) fn set(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        *self.handler.write().unwrap_or_else(PoisonError::into_inner) = handler;
    }

    /// Calls the handler, if there is one, outside of the sink's lock.
    pub(crate) fn emit(&self, source: EventSource, event: AsyncEvent) {
        let handler = self.handler.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            handler.on_event(source, event);
        }
    }
}
