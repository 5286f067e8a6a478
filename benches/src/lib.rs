//! Measurements of single steps inside one process; `warpline perf` measures connections. Shared by the
//! programs in `src/bin`.
#![forbid(unsafe_code)]

/// The error of a measurement.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;
