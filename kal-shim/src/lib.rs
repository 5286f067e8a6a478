//! Services of the operating system for the host layer: sockets, names, a reactor, a clock, memory and
//! its pinning. What providers need, too, is in `kal-os`.
//!
//! Nothing here depends on RDMA. No module has global state except the pin account ([`account`]), and the tables of
//! descriptors ([`mod@fork`]) and of mapped files ([`shared_map`]) that a forked child replaces.

pub mod account;
pub mod clock;
pub mod fork;
pub mod limits;
pub mod mem;
pub mod names;
pub mod notifier;
pub mod pin;
pub mod questions;
pub mod reactor;
pub mod same_host;
pub mod services;
pub mod shared_map;
pub mod sock;
pub mod state_file;

pub use mem::{OutOfRange, Region, Span};
pub use notifier::Notifier;
pub use reactor::Reactor;
pub use services::HostServices;
