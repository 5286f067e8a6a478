//! The services of the operating system that the host layer needs, in one place: sockets, names, a
//! reactor, a clock, memory and its pinning. What providers want, too, is in `kal-os`.
//!
//! Nothing here knows RDMA. No module keeps global state except the pin account ([`account`]), the note of an
//! interrupt ([`interrupt`]), and the table of descriptors that a forked child gives up ([`mod@fork`]).

pub mod account;
pub mod clock;
pub mod fork;
pub mod interrupt;
pub mod limits;
pub mod mem;
pub mod names;
pub mod notifier;
pub mod pin;
pub mod reactor;
pub mod same_host;
pub mod services;
pub mod sock;

pub use mem::{OutOfRange, Region, Span};
pub use notifier::Notifier;
pub use reactor::Reactor;
pub use services::HostServices;
