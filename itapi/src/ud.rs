//! Unreliable datagrams: endpoints without a connection, each message by itself. InfiniBand and RoCE
//! have them, iWARP has not. Each object is the access layer's; any thread. A peer that dies is not
//! noticed: datagrams to it are lost.

mod address;
mod ep;
mod service;

pub use address::AddressHandle;
pub use ep::{UdEp, UdEpBuilder};
pub use service::{UdListen, UdRequest, UdService};
