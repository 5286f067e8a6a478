//! Registered memory: regions, windows, and the STags that name them.
//!
//! A [`stag_table::StagTable`] has a slot for each STag. A valid slot holds a `Grant`, which
//! says what access is allowed, and `Meta`, which only the verbs read. [`mr`] and [`mw`] create
//! and destroy them, [`invalidate`] makes them invalid, [`place`] copies octets to and
//! from registered memory, which is never a Rust reference. [`unmapped`] drops what arrives for memory that the
//! program has unmapped.
//!
//! Owner: the RNIC. A lookup on the data path takes no lock; a verb that destroys an STag waits until it
//! is no longer used.

mod fault;
pub(crate) mod grant;
pub mod invalidate;
pub(crate) mod meta;
pub mod mr;
pub mod mw;
pub(crate) mod pin;
pub mod place;
pub(crate) mod random;
mod segments;
pub mod stag_table;
pub mod unmapped;

pub use self::fault::{AccessError, LocalFault};
pub use self::meta::PdUse;
