//! SoftRDMA: a verbs provider that speaks iWARP over ordinary TCP sockets, in user space.
//!
//! | part | where |
//! |---|---|
//! | privileged verbs | `provider`, `rnic`, `objects`, `mr`, `mw`, `invalidate`, `pin` |
//! | ports, and news of them | `ports` |
//! | memory that peers reach | [`stag_table`], `grant`, `meta`, [`place`] |
//! | queues | `event_mode`, [`cq_ring`], `ring`, `wq`, `untaken`, `srq`, `held` |
//!
//! The protocol itself is the crate `iwarp-proto`; this crate gives it sockets, memory and threads.

mod baton;
mod cq;
mod crc;
mod engine;
mod event_mode;
mod events;
mod grant;
mod held;
mod invalidate;
mod limits;
mod linger;
mod meta;
mod mr;
mod mw;
mod objects;
mod parts;
mod pin;
mod pool;
mod ports;
mod provider;
mod qp;
mod random;
mod ring;
mod rnic;
mod rx;
mod srq;
mod stream;
#[cfg(all(test, not(loom)))]
mod testing;
mod tx;
mod untaken;
mod wq;

#[cfg(feature = "bench")]
pub mod bench;
pub mod cq_ring;
pub mod place;
pub mod stag_table;

use kal_os::sync;
pub use provider::{NAME, SoftRdma};
