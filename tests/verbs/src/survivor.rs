//! Checks that a side of a verbs program ends in bounded time after its peer is gone or a call has failed, and
//! otherwise returns the stacks of its threads. No state.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use state_page::layout::state;
use state_page::place::{self, Limits, Outcome};
use state_page::read::QueuePair;

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
    ends_unless(left, |_| waits_for_a_client(port))
}

/// As [`ends`], for a server on RoCE: without a TCP port it waits for a client as long as none is connected.
///
/// # Errors
/// As [`ends`].
pub fn server_ends_on_roce(left: &mut Process, port: u16) -> Result<(), String> {
    ends_unless(left, |left| waits_for_a_client(port) || has_no_connection(left))
}

fn ends_unless(left: &mut Process, waits: impl Fn(&Process) -> bool) -> Result<(), String> {
    let begun = Instant::now();
    let mut waits_since = begun;
    loop {
        let now = Instant::now();
        if !waits(left) {
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

/// As [`ends`], for a side that may not notice the other's end: where it goes on, it is ended.
///
/// # Errors
/// It was ended by another signal.
pub fn ends_or_is_ended(left: &mut Process) -> Result<(), String> {
    let status = left.ended().unwrap_or_else(|| left.terminate());
    match status.signal() {
        Some(signal) if signal != Signal::TERM.as_raw() => Err(format!("ended: {status}")),
        _ => Ok(()),
    }
}

/// Whether it has opened a device and no queue pair for connections is connected.
fn has_no_connection(process: &Process) -> bool {
    is_connected(process) == Some(false)
}

/// Whether a queue pair for connections is connected, by its state page; `None`: it has opened no device.
pub fn is_connected(process: &Process) -> Option<bool> {
    let user = rustix::process::geteuid().as_raw();
    let directory = place::directory(|name| std::env::var_os(name), user);
    let pages = place::pages(&directory, user, None, &mut { Limits::ALL }).unwrap_or_default();
    let connected = |of: &QueuePair| of.state == state::RTS;
    pages.into_iter().find_map(|found| match found.outcome {
        Outcome::Alive(page) if page.process.pid == process.id() => {
            Some(page.queue_pairs.iter().any(connected))
        }
        _ => None,
    })
}
