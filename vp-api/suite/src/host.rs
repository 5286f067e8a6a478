//! The host's services for the suite, with a record of pinned ranges. The suite owns it, and a provider keeps it as
//! long as its device is open. Any thread.

use std::io;
use std::sync::{Mutex, PoisonError};

use kal_shim::HostServices;
use vp_api::{LogLevel, Services};

/// Services of the process that record the pinned ranges.
#[derive(Default)]
pub(crate) struct Ledger {
    host: HostServices,
    pins: Mutex<Vec<(usize, usize)>>,
    settings: Vec<(String, String)>,
}

impl Ledger {
    /// Creates services with settings for the provider.
    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self { settings: settings.iter().map(own).collect(), ..Self::default() }
    }

    /// How many pins have not been undone.
    pub(crate) fn pinned(&self) -> usize {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Services for Ledger {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        self.host.log(level, target, message);
    }

    fn now_ns(&self) -> u64 {
        self.host.now_ns()
    }

    fn pin(&self, addr: usize, len: usize) -> io::Result<()> {
        self.host.pin(addr, len)?;
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).push((addr, len));
        Ok(())
    }

    fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    fn unpin(&self, addr: usize, len: usize) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = pins.iter().position(|pin| *pin == (addr, len)) {
            pins.swap_remove(at);
            self.host.unpin(addr, len);
        }
    }
}
