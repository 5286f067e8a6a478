//! Events of a provider's own connection manager (rdma_cm and the like): passing them to the table.
//!
//! A thread (`warpline-native-cm`) passes them to the connection thread, which owns all state. An
//! endpoint that is used again first takes the events that still wait ([`NativeEvents::take`]), so that
//! events of its earlier connection can be distinguished.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vp_api::NativeCm;

use crate::mailbox::{Command, Mailbox};
use crate::tuning::STOP_CHECK;

/// Takes the events of the provider's connection manager.
pub(crate) struct NativeEvents {
    native: Arc<dyn NativeCm>,
    mailbox: Mailbox,
    /// Held from taking an event until it is sent: a thread that gets the lock knows that all are sent.
    taking: Mutex<()>,
}

impl NativeEvents {
    pub(crate) fn new(native: Arc<dyn NativeCm>, mailbox: Mailbox) -> Self {
        Self { native, mailbox, taking: Mutex::new(()) }
    }

    pub(crate) fn native(&self) -> &Arc<dyn NativeCm> {
        &self.native
    }

    /// Passes events on until `stop`.
    pub(crate) fn forward(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.take();
            if let Err(error) = self.native.wait_event(Some(STOP_CHECK)) {
                tracing::error!("the provider's connection manager stopped: {error}");
                return;
            }
        }
    }

    /// Sends all waiting events to the connection thread.
    pub(crate) fn take(&self) {
        // Nothing panics while the lock is held.
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.native.poll_event() {
            let number = self.mailbox.sequence.next();
            self.mailbox.send(Command::Native { number, event });
        }
    }
}
