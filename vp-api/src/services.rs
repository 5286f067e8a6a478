//! Services of the access layer that a provider may use.

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

/// Host services, passed to [`crate::Provider::open`]. A provider in its own library has its own statics, so
/// everything that must be shared with the process is passed through this.
pub trait Services: Send + Sync {
    /// Writes a log line.
    fn log(&self, level: LogLevel, target: &str, message: &str);
    /// Monotonic clock in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Pins `len` octets at `addr` and accounts for them; the error has limit, need and remedy.
    fn pin(&self, addr: usize, len: usize) -> std::io::Result<()>;
    /// Undoes one `pin` of the same range.
    fn unpin(&self, addr: usize, len: usize);
    /// The configuration of this provider (`[providers.NAME]`): keys and values, in alphabetical order of the keys.
    /// The provider defines the keys. It should refuse to open if there is a key that it does not know, and name
    /// the key.
    fn settings(&self) -> &[(String, String)] {
        &[]
    }
}

/// For a provider without settings of its own: refuses to open if there are any.
///
/// # Errors
/// [`VpStatus::InvalidModifier`], with the name of the first setting.
pub fn no_settings(provider: &str, services: &dyn Services) -> VpResult<()> {
    match services.settings().first() {
        None => Ok(()),
        Some((key, _)) => {
            let detail = format!("{provider} has no settings of its own, and `{key}` is one");
            Err(VpError::new(VpStatus::InvalidModifier, detail))
        }
    }
}
