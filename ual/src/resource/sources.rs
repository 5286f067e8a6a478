//! Where the datagrams of an endpoint came from whose completions were polled and not looked at yet.
//!
//! The endpoint owns it; whoever polls fills it, whoever looks at a completion takes from it. Any thread.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vp_api::{DatagramSource, VpResult, room};

/// Sources by work request.
pub(crate) struct Sources(Mutex<HashMap<u64, DatagramSource>>);

impl Sources {
    /// With the memory for `depth` receives.
    pub(super) fn new(depth: usize) -> VpResult<Self> {
        let mut sources = HashMap::new();
        sources
            .try_reserve(depth)
            .map_err(|_| room::none::<DatagramSource>("sources of datagrams", depth))?;
        Ok(Self(Mutex::new(sources)))
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
