//! The objects of an adapter: ownership, and the order in which they may be closed.

mod address;
mod directory;
mod ep;
mod ia;
mod keys;
mod listen;
mod lmr;
mod map;
mod pz;
mod rmr;
mod senders;
mod srq;
mod ud_ep;
mod ud_service;

pub use address::AddressHandle;
pub(crate) use directory::{Directory, Resource};
pub use ep::{Ep, EpInfo, EpInit, EpState};
pub use ia::Ia;
pub use keys::Keys;
pub use listen::{Listen, ListenInit, Serves};
pub use lmr::{Lmr, LmrInit};
pub(crate) use map::Map;
pub use pz::Pz;
pub use rmr::Rmr;
pub(crate) use senders::Senders;
pub use srq::{Srq, SrqParams};
pub use ud_ep::{Datagram, UdEp, UdEpInit};
pub use ud_service::{UdService, UdServiceInit};

#[cfg(all(test, not(loom)))]
mod earlier_tests;
#[cfg(all(test, not(loom)))]
mod unwatched_socket_tests;
