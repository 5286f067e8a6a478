//! The stream under a QP: octets from FPDUs to the socket and back.
//!
//! A [`socket`] is sent to and received from; [`tx`] gathers FPDUs into batches, [`rx`] finds their
//! payloads a place, [`pool`] lends buffers for both, [`crc`] sums. [`linger`] keeps a socket whose QP has
//! left it until the peer has everything.
//!
//! Owner: one QP, under its lock; what lingers belongs to the engine.

pub(crate) mod crc;
pub(crate) mod linger;
pub(crate) mod pool;
pub(crate) mod rx;
pub(crate) mod socket;
pub(crate) mod tx;
