//! Queues between the consumer and a QP: the ring of a completion queue, work queues, shared receive queues.
//!
//! A provider's CQ is a [`cq_ring::CqRing`] with its own way to wait and to make progress; [`interrupts`] end such
//! waits, and [`event_mode`] detects consumers that sleep elsewhere. [`wq`] holds posted requests; an [`srq::SoftSrq`] holds receives that several QPs share. [`untaken`] and
//! [`outstanding`] count slots until their completions are polled, so that a CQ as deep as its queues cannot
//! overrun.
//!
//! Owner: the RNIC; work queues belong to their QP. Any thread polls; posts are under the QP's lock.

pub mod cq_ring;
pub mod event_mode;
pub mod interrupts;
pub mod outstanding;
mod ring;
pub mod srq;
pub mod untaken;
pub mod wq;
