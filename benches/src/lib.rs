//! Measurements of single steps inside one process; `warpline perf` measures connections. The
//! programs in `src/bin` do it all; this is what they share.
#![forbid(unsafe_code)]

/// What can go wrong in a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// Outcome of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;
