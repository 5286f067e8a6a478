//! Memory that peers reach: regions, windows, and the STags that name them.
//!
//! A [`stag_table::StagTable`] has a slot for each STag; a valid slot holds a [`grant::Grant`], which
//! says what may be done where, and [`meta::Meta`], which only the verbs look at. [`mr`] and [`mw`] make
//! and end them, [`invalidate`] ends them from the wire, [`place`] copies octets to and from registered
//! memory, which is never a Rust reference.
//!
//! Owner: the RNIC. A lookup on the data path takes no lock; a verb that ends an STag waits for its uses.

pub(crate) mod grant;
pub(crate) mod invalidate;
pub(crate) mod meta;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pin;
pub mod place;
pub(crate) mod random;
pub mod stag_table;
