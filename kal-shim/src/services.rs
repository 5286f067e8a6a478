//! The services that the host offers every provider: log, clock, pinning. No state of its own.

use vp_api::{LogLevel, Services};

/// The host's services; log lines go to `tracing`, with the provider's target as a field.
#[derive(Clone, Default, Debug)]
pub struct HostServices {
    settings: Vec<(String, String)>,
}

impl HostServices {
    /// With the settings that the configuration has for the provider.
    pub fn with(settings: Vec<(String, String)>) -> Self {
        Self { settings }
    }
}

impl Services for HostServices {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        match level {
            LogLevel::Error => tracing::error!(source = target, "{message}"),
            LogLevel::Warn => tracing::warn!(source = target, "{message}"),
            LogLevel::Info => tracing::info!(source = target, "{message}"),
            LogLevel::Debug => tracing::debug!(source = target, "{message}"),
            LogLevel::Trace => tracing::trace!(source = target, "{message}"),
        }
    }

    fn now_ns(&self) -> u64 {
        crate::clock::now_ns()
    }

    fn pin(&self, addr: usize, len: usize) -> std::io::Result<()> {
        crate::pin::pin(addr, len)
    }

    fn unpin(&self, addr: usize, len: usize) {
        crate::pin::unpin(addr, len);
    }

    fn settings(&self) -> &[(String, String)] {
        &self.settings
    }
}
