//! Connections whose octets may go by memory that both ends share, beside TCP: [`shm_ring::Companion`]. No state.
//!
//! | file | what |
//! |---|---|
//! | `link` | a connection's part in it: attached, used, detached |
//! | `meet` | the two ends find each other |
//! | `pieces` | the memory that a program passes |
//! | `receive`, `send` | octets |
//! | `several`, `poll`, `select`, `limit` | waits for several descriptors |
//! | `sets` | epoll |
//! | `spin` | how long a wait looks at memory before it sleeps |

pub(crate) mod limit;
pub(crate) mod link;
pub(crate) mod meet;
pub(crate) mod pieces;
pub(crate) mod poll;
pub(crate) mod receive;
pub(crate) mod select;
pub(crate) mod send;
pub(crate) mod sets;
mod several;
pub(crate) mod spin;
