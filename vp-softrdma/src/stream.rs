//! The TCP stream under a QP: FPDUs to the socket and octets from it.
//!
//! A [`socket`] sends and receives; [`tx`] gathers FPDUs into batches, [`rx`] reads payloads to their
//! places, [`pool`] lends buffers to both, [`crc`] computes checksums. Where both ends are on one
//! host the octets go through shared memory ([`local`]). [`capture`] copies FPDUs for an observer. [`linger`] keeps a socket that
//! its QP has left until the peer has everything.
//!
//! Owner: one QP, under its lock; lingering streams belong to the engine.

pub(crate) mod capture;
pub(crate) mod crc;
pub(crate) mod linger;
pub(crate) mod local;
pub(crate) mod pool;
pub(crate) mod registered;
pub(crate) mod rx;
pub(crate) mod socket;
pub(crate) mod tx;
