//! Checks that a side of a verbs program ends in bounded time after its peer is gone or a call has failed, and
//! otherwise returns the stacks of its threads. No state.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::process::{Process, waits_for_a_client};

/// Time-out of its end. The longest wait of the libraries is some seconds, for a missing peer; the rest is for
/// busy machines.
pub const BOUND: Duration = Duration::from_secs(40);

/// A process that listens for this long without a connection waits for a client.
const WAITS: Duration = Duration::from_secs(3);

/// Waits until it exits, or waits for a client again: the last one disconnected before it connected, or between
/// two connections of a program.
///
/// # Errors
/// It was ended by a signal, or did not end within [`BOUND`].
pub fn ends(left: &mut Process, port: u16) -> Result<(), String> {
    let begun = Instant::now();
    let mut waits_since = begun;
    loop {
        let now = Instant::now();
        if !waits_for_a_client(port) {
            waits_since = now;
        }
        match left.ended() {
            Some(status) if status.signal().is_some() => return Err(format!("ended: {status}")),
            Some(_) => return Ok(()),
            None if now - waits_since > WAITS => return Ok(()),
            None if now - begun > BOUND => {
                return Err(format!("does not end:\n{}", left.threads()));
            }
            None => std::thread::park_timeout(Duration::from_millis(20)),
        }
    }
}
