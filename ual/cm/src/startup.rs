//! Start-ups without a table: what each end asks for, and each side as a machine on its socket. Nothing here
//! waits; the table says when a machine goes on.

pub(crate) mod active;
pub(crate) mod config;
pub(crate) mod converted;
pub(crate) mod native;
pub(crate) mod passive;
pub(crate) mod socket;
pub(crate) mod tcp;
