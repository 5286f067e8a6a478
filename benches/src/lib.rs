//! Measurements, each against raw TCP in the same run: the loops, the meters, the second process.
//!
//! The programs in `src/bin` put them together. Every loop runs in the thread that calls it; when
//! the other process dies, a call answers an error.
#![forbid(unsafe_code)]

pub mod cases;
pub mod machine;
pub mod meter;
pub mod peer;
pub mod raw;
pub mod rdma;
mod rdma_serve;
pub mod table;

/// Octets of a message of the bandwidth figures.
pub const MESSAGE: usize = 64 << 10;
/// Messages under way at once.
pub const DEPTH: usize = 16;
/// Octets that a side sends from or receives into, over and over.
pub const WORKING_SET: usize = DEPTH * MESSAGE;
/// Octets of a message of the latency figures.
pub const PING: usize = 8;

/// What can go wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Outcome of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a side waits for what comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// It spins.
    Poll,
    /// The stack's default: spins for a bounded time, then sleeps. Raw TCP: a blocking call.
    Wait,
    /// It sleeps at once.
    Sleep,
}
