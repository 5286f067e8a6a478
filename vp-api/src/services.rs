//! What the access layer offers a provider.

use crate::{VpError, VpResult, VpStatus};

/// Severity of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Host services, passed to [`crate::Provider::open`]: a provider in its own dylib has its own
/// statics, so everything that must be shared with the process comes in here.
pub trait Services: Send + Sync {
    /// Writes a log line.
    fn log(&self, level: LogLevel, target: &str, message: &str);
    /// Monotonic clock in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Pins `len` octets at `addr`, accounted; the error says limit, need and remedy.
    fn pin(&self, addr: usize, len: usize) -> std::io::Result<()>;
    /// Undoes one `pin` of the same range.
    fn unpin(&self, addr: usize, len: usize);
    /// What the configuration says to this provider (`[providers.NAME]`): keys and values, in
    /// alphabetical order of the keys. What a key means is the provider's business; one that it does not know it
    /// should refuse to open with, by name.
    fn settings(&self) -> &[(String, String)] {
        &[]
    }
}

/// For a provider that has no settings of its own: refuses to open with any.
///
/// # Errors
/// [`VpStatus::InvalidModifier`], with the name of the first one.
pub fn no_settings(provider: &str, services: &dyn Services) -> VpResult<()> {
    match services.settings().first() {
        None => Ok(()),
        Some((key, _)) => {
            let detail = format!("{provider} has no settings of its own, and `{key}` is one");
            Err(VpError::new(VpStatus::InvalidModifier, detail))
        }
    }
}
