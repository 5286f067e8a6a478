//! A verbs provider over rdma-core: every InfiniBand, RoCE and iWARP device that the kernel
//! offers, opened through `libibverbs.so.1`, connected through `librdmacm.so.1`.
//!
//! Both libraries are loaded at run time ([`Verbs`]): nothing of rdma-core is needed to build, and
//! where it, a device, a kernel module or a permission is missing, the provider says which. It has
//! its own connection manager ([`vp_api::ConnectionModel::Native`]).
//!
//! What differs from SoftRDMA and is visible: capabilities and limits are the device's. Windows
//! need a device with windows; registering through the queue, zero-based addresses and privileged
//! STags are the kernel's alone; Immediate Data has 4 octets.

mod addr;
mod cm;
mod core;
mod cq;
mod device;
mod dl;
mod events;
mod late;
mod machine;
mod map;
mod mr;
mod mw;
mod owned;
mod ports;
mod provider;
mod qp;
mod ring;
mod rnic;
mod srq;
mod table;
mod ud;
mod wire;

pub use dl::Libraries;
pub use machine::Machine;
pub use provider::{NAME, Verbs};
