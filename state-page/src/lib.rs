//! The state page: a file that a process maps and writes what its queue pairs do, for others to read.
//!
//! [`layout`] is what is in it, [`held`] how writers get at their record, [`read`] how a snapshot is taken out of
//! octets that may be anything, [`place`] where the files are and whether their writers live. The file itself is
//! made by `kal-shim`; the access layer has one per process; a provider writes the records of its queue pairs
//! ([`Slot`]) once per visit, by plain relaxed stores.
//!
//! A page begins with a [`Header`], then come a fixed number of [`Device`] records, then [`Slot`]s. The header
//! says how large each of them is: a later version appends fields, and a reader of an earlier one does not look at
//! them. What a field means never changes. All numbers are in the order of the machine's octets: the page does not
//! leave it. There is no payload in it, no STag, no key, no private data.
//!
//! Readers never lock, never map, and never wait: they read the file. A record whose `generation` is odd, or
//! changes meanwhile, is being given to another queue pair; its counters are each right by themselves, of about one
//! moment.

pub mod held;
pub mod layout;
pub mod place;
pub mod read;

pub use held::{DeviceRef, Held, SlotRef};
pub use layout::{Device, Header, Slot};
