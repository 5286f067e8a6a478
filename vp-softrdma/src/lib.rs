//! SoftRDMA: a verbs provider that speaks iWARP over ordinary TCP sockets, in user space.
//!
//! | part | where |
//! |---|---|
//! | privileged verbs | `provider`, `rnic`, `objects`, `mr`, `mw`, `invalidate`, `pin` |
//! | memory that peers reach | [`stag_table`], `grant`, `meta`, [`place`] |
//! | queues | [`cq_ring`], `wq`, `srq` |
//!
//! The protocol itself is the crate `iwarp-proto`; this crate gives it sockets, memory and threads.

#[cfg(not(loom))]
mod crc;
mod events;
mod grant;
mod invalidate;
mod limits;
mod meta;
mod mr;
mod mw;
mod objects;
mod pin;
mod random;
mod srq;
mod sync;
mod wq;

pub mod cq_ring;
pub mod place;
pub mod stag_table;
