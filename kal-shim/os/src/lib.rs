//! Services of the operating system that both the host layer and the providers need: locks and atomics that loom
//! can model ([`sync`]), a futex that threads sleep on ([`Gate`]), a timer with a descriptor ([`Timer`]), threads
//! ([`spawn`]), the end of the process ([`at_exit`]), which thread watches the sockets ([`progress`]), spinning
//! before a sleep ([`Spinner`]), files that processes share ([`allocate`]), stopped processes ([`is_stopped`]),
//! network interfaces ([`interfaces`]), socket options ([`udp`]), advice for errors of a host ([`remedy`]), doorbells
//! between processes ([`doorbell`]), descriptors that a forked child must not keep, or that others made ([`fork`]), and
//! such whose close may wait ([`discard`]).
//!
//! Nothing here depends on RDMA or on another of our crates, or has a static: a provider that is loaded
//! as a library has its own copy beside the host's.

mod discard;
mod doorbell;
mod exit;
mod file;
pub mod fork;
mod gate;
mod interfaces;
mod process;
pub mod progress;
mod remedy;
mod spin;
pub mod sync;
mod tcp_owner;
mod thread;
mod timer;
mod tuning;
pub mod udp;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use discard::discard;
pub use doorbell::{doorbell, ring};
pub use exit::at_exit;
pub use file::allocate;
pub use gate::{Gate, Slept};
pub use interfaces::{Interface, interfaces, socket_address};
pub use process::is_stopped;
pub use remedy::{Use, address_remedy, remedy};
pub use spin::{Spin, Spinner};
pub use tcp_owner::{owner_of_tcp, socket_for_owners};
pub use thread::{Thread, spawn};
pub use timer::{Timer, timespec};

/// Locks a mutex whose holders never leave its value half changed, so that a poisoned one is as good as
/// others.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
