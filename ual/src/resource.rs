//! The objects: who owns what, in which order things may go.

mod directory;
mod ep;
mod ia;
mod listen;
mod lmr;
mod pz;
mod rmr;
mod srq;

pub(crate) use directory::Directory;
pub use ep::{Ep, EpInfo, EpInit, EpState};
pub use ia::Ia;
pub use listen::{Listen, ListenInit};
pub use lmr::{Lmr, LmrInit};
pub use pz::Pz;
pub use rmr::Rmr;
pub use srq::{Srq, SrqParams};
