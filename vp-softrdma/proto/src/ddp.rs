//! DDP (RFC 5041): cutting messages into segments, and the rules of untagged queues.
//!
//! Owner: the QP that composes these; touched only by the thread that drives it. Nothing here
//! starts a teardown [DDP-17]: errors are return values, the QP acts.

pub(crate) mod segment;
pub(crate) mod untagged;
