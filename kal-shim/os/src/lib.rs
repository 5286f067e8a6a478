//! What the host layer and the providers both want of the operating system, once: locks and atomics
//! that loom can model ([`sync`]), a futex that threads sleep on ([`Gate`]), a timer with a descriptor
//! ([`Timer`]), threads of our own ([`spawn`]), who of them watches sockets ([`progress`]), how they spin before they
//! sleep ([`Spinner`]), network interfaces ([`interfaces`]), what to do at a
//! limit ([`remedy`]), what a forked child must not keep ([`fork`]).
//!
//! Nothing here knows RDMA, depends on a crate of ours, or has a static: a provider that is loaded as
//! a library has its own copy beside the host's.

pub mod fork;
mod gate;
mod interfaces;
pub mod progress;
mod remedy;
mod spin;
pub mod sync;
mod thread;
mod timer;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use gate::{Gate, Slept};
pub use interfaces::{Interface, interfaces};
pub use remedy::remedy;
pub use spin::{Spin, Spinner};
pub use thread::spawn;
pub use timer::{Timer, timespec};

/// Locks a mutex whose holders never leave it half changed, so a poisoned one is as good as new.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
