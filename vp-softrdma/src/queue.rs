//! Queues between the consumer and a QP: completion queues, work queues, shared receive queues.
//!
//! A [`cq::SoftCq`] is a [`cq_ring::CqRing`] with waiting, arming and the QPs that complete there.
//! [`wq`] keeps what was posted; an [`srq::SoftSrq`] holds receives that several QPs share. [`untaken`]
//! and [`outstanding`] count slots until their completions are taken, so that a CQ as deep as its queues
//! cannot overrun.
//!
//! Owner: the RNIC; work queues belong to their QP. Any thread polls; posts are under the QP's lock.

pub(crate) mod cq;
pub mod cq_ring;
pub(crate) mod event_mode;
pub(crate) mod interrupts;
pub(crate) mod outstanding;
pub(crate) mod ring;
pub(crate) mod srq;
pub(crate) mod untaken;
pub(crate) mod wq;
