//! Counters of connection management. Atomics: written behind the manager's lock, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counts since the adapter was opened.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct CmCounters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Count,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> CmCounters {
                CmCounters { $($name: self.$name.0.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

/// One counter.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

counters! {
    /// Connections established, either way.
    established,
    /// Attempts, either way, that failed, the peer's rejects included.
    failed,
    /// Second attempts with fewer features (RFC 6581 section 10).
    stepped_back,
    /// Incoming TCP connections.
    incoming,
    /// Of these: dropped for newer ones before their request was whole or their refusal was complete.
    crowded_out,
    /// Of these: dropped because their request was not whole in time.
    request_timeouts,
    /// Of these: kept waiting, because too many connections from their address ended for invalid STags.
    delayed,
    /// Of these: refused as malformed or against policy.
    refused,
    /// Of these: closed by the peer before they were accepted or rejected.
    gone,
    /// Of these: rejected, by the application or for lack of room or time.
    rejected,
    /// Connections that ended in an orderly way, or as this end requested.
    disconnected,
    /// Connections that broke.
    broken,
}
