//! MPA start-ups: what each end requests, and each side as a state machine on its socket. They do not
//! touch the connection table, and nothing here waits; the table calls a machine when it can continue.

pub(crate) mod active;
pub(crate) mod config;
pub(crate) mod converted;
pub(crate) mod native;
pub(crate) mod passive;
pub(crate) mod socket;
pub(crate) mod tcp;
