//! Counts packets that are dropped, in the state pages of the process's adapters.
//!
//! Owner: the engine, whose sockets all adapters of RoCE share: each adapter's record has the drops of all since it was
//! opened. Any thread counts.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock};

use vp_api::DeviceRef;

/// Why a packet is dropped; the numbers are places in `state_page`'s list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Malformed, for an unknown queue pair, with a wrong key, or from another address than the connection's.
    Stray = 0,
    /// The invariant CRC is wrong.
    Damaged = 1,
    /// A datagram for which no receive is posted that is long enough.
    Unready = 2,
    /// The kernel dropped it, because the socket's receive buffer was full.
    Overrun = 3,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Drops(RwLock<Vec<DeviceRef>>);

impl Drops {
    /// Counts in this record, too.
    pub(crate) fn publish(&self, record: DeviceRef) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    /// Counts in this record no more.
    pub(crate) fn forget(&self, record: &DeviceRef) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| !std::ptr::eq(&**one, &**record));
    }

    /// A packet is dropped.
    pub(crate) fn count(&self, why: Reason) {
        self.add(why, 1);
    }

    /// So many packets are dropped.
    pub(crate) fn add(&self, why: Reason, packets: u32) {
        for record in self.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
            record.dropped[why as usize].fetch_add(packets.into(), Ordering::Relaxed);
        }
    }
}
