//! Tuning constants of this crate: sizes of batches, and intervals of checks. None was measured: the bridge was
//! never measured on an adapter, only over siw and rxe in a virtual machine. Each has the reason for its value.

use std::time::Duration;

/// Completions taken from the device in one call. An array of 16 is less than a KiB of stack.
pub(crate) const POLL_BATCH: usize = 16;

/// Work requests posted to the device at once: one doorbell for eight. The chain is on the stack.
pub(crate) const POST_BATCH: usize = 8;

/// How often a reset checks whether the end of the connection was reported. Resets are rare, and end at most one
/// interval late.
pub(crate) const END_CHECK: Duration = Duration::from_millis(1);

/// How often the completions are checked for the first message of an accepted connection. The checks end after 20
/// ms (`cm/first_message.rs`).
pub(crate) const FIRST_MESSAGE_CHECK: Duration = Duration::from_millis(1);

/// How long the kernel may take from refusing commands of a device that is removed until it says that its objects are destroyed.
/// Then they are taken for destroyed.
pub(crate) const REMOVAL: Duration = Duration::from_secs(1);
