//! Registered memory: regions, windows, and the STags that name them.
//!
//! A [`stag_table::StagTable`] has a slot for each STag. A valid slot holds a [`grant::Grant`], which
//! says what access is allowed, and [`meta::Meta`], which only the verbs read. [`mr`] and [`mw`] create
//! and destroy them, [`invalidate`] makes them invalid, [`place`] copies octets to and
//! from registered memory, which is never a Rust reference.
//!
//! Owner: the RNIC. A lookup on the data path takes no lock; a verb that destroys an STag waits until it
//! is no longer used.

pub(crate) mod grant;
pub(crate) mod invalidate;
pub(crate) mod meta;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pin;
pub mod place;
pub(crate) mod random;
pub mod stag_table;
