//! State page: a mapped file in which a process publishes the state of its queue pairs for other processes.
//!
//! [`layout`] has the records, [`record_ref`] the writers' references to them, [`read`] snapshots for readers,
//! [`place`] the files and whether their writers live. `kal-shim` makes the file; the access layer has one per
//! process; a provider writes the records of its queue pairs ([`Slot`]) by relaxed stores, each time that a
//! thread has served the stream.
//!
//! A page is a [`Header`], a fixed number of [`Device`] records, then [`Slot`]s. The header has their sizes: a
//! later version appends fields, which earlier readers ignore. The meaning of a field never changes. All
//! numbers are in native byte order, as the page does not leave the machine. It has no payload, no STag, no
//! key, no private data.
//!
//! Readers never lock, map or wait: they read the file. A record whose `generation` is odd, or changes
//! meanwhile, is being reassigned to another queue pair. Each counter is consistent by itself; several are of
//! about one moment.

pub mod layout;
pub mod place;
pub mod read;
pub mod record_ref;

pub use layout::{Device, Header, Slot};
pub use record_ref::{DeviceRef, RecordRef, SlotRef};
