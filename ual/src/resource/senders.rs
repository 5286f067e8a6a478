//! Senders of an endpoint's received datagrams whose completions were polled and not examined yet.
//!
//! The endpoint owns it; a thread that polls adds to it, a thread that examines a completion takes from
//! it. Any thread.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vp_api::{DatagramSource, VpResult, room};

/// Senders by work request.
pub(crate) struct Senders(Mutex<HashMap<u64, DatagramSource>>);

impl Senders {
    /// With memory for `depth` receives.
    pub(super) fn new(depth: usize) -> VpResult<Self> {
        let mut senders = HashMap::new();
        senders
            .try_reserve(depth)
            .map_err(|_| room::none::<DatagramSource>("senders of datagrams", depth))?;
        Ok(Self(Mutex::new(senders)))
    }

    pub(crate) fn keep(&self, wr_id: u64, source: DatagramSource) {
        self.lock().insert(wr_id, source);
    }

    pub(super) fn take(&self, wr_id: u64) -> Option<DatagramSource> {
        self.lock().remove(&wr_id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, DatagramSource>> {
        // Nothing panics while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
