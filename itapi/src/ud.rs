//! Unreliable datagrams: endpoints without a connection. InfiniBand and RoCE have them, iWARP has not. The
//! access layer owns the objects; any thread. The death of a peer is not noticed: datagrams to it are lost.

mod address;
mod ep;
mod service;

pub use address::AddressHandle;
pub use ep::{UdEp, UdEpBuilder};
pub use service::{UdListen, UdRequest, UdService};
