//! Completion queues: the ring of `vp-soft` with waiting, arming and the QPs that complete there.
//!
//! Owner: the RNIC. Any thread polls. The other queues are in [`vp_soft::queue`].

pub(crate) mod cq;
pub(crate) mod other_qps;
