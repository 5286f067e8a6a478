//! Tuning constants of this crate: batches and intervals of checks. None was measured: the bridge was never
//! measured on an adapter, only over siw and rxe in a virtual machine. Each has the reason for its value.

use std::time::Duration;

/// Completions taken from the device in one go. An array of 16 is less than a KiB of stack.
pub(crate) const POLL_BATCH: usize = 16;

/// Work requests handed to the device at once: one ring of its doorbell for eight. The chain is on the stack.
pub(crate) const POST_BATCH: usize = 8;

/// How often a reset checks whether the end of the connection was reported. A reset is rare, and ends one check
/// late at most.
pub(crate) const END_CHECK: Duration = Duration::from_millis(1);

/// How often the completions are checked for the first message of a connection that was accepted. Such checks end
/// after 20 ms (`cm/first_message.rs`).
pub(crate) const FIRST_MESSAGE_CHECK: Duration = Duration::from_millis(1);
