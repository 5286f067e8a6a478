//! The services of the operating system that the stack needs, in one place: sockets, interfaces,
//! names, a reactor, a clock, memory and its pinning.
//!
//! Nothing here knows RDMA. No module keeps global state except the pin account ([`account`])
//! and the note of an interrupt ([`interrupt`]).

pub mod account;
pub mod clock;
pub mod device;
pub mod gate;
pub mod interrupt;
pub mod limits;
pub mod mem;
pub mod names;
pub mod notifier;
pub mod pin;
pub mod reactor;
pub mod services;
pub mod sock;

pub use gate::{Gate, Slept};
pub use mem::{OutOfRange, Region};
pub use notifier::Notifier;
pub use reactor::Reactor;
pub use services::HostServices;
