//! Whether a side of a verbs program ends in bounded time when its peer is gone or a call has failed, and
//! where its threads are if not. No state.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use crate::process::{Process, waits_for_a_client};

/// Within this it ends. The longest wait of the libraries is for a peer that is not there, some seconds;
/// the rest is for busy machines.
pub const BOUND: Duration = Duration::from_secs(40);

/// A process that listens for this long without a connection waits for a client.
const WAITS: Duration = Duration::from_secs(3);

/// Waits until it ends by itself, or waits for a client as before: the last went before it connected, or
/// between two connections that a program makes.
///
/// # Errors
/// It ended by a signal, or not within [`BOUND`].
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
