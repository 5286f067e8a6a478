//! What connection management has done so far. Atomics: written behind the manager's lock, read by
//! anyone.

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
    /// Attempts, either way, that came to nothing, the peer's rejects included.
    failed,
    /// Second attempts with less (RFC 6581 section 10).
    stepped_back,
    /// TCP connections that came in.
    incoming,
    /// Of these: dropped for newer ones before their request was whole, or their refusal through.
    crowded_out,
    /// Of these: dropped since their request was not whole in time.
    request_timeouts,
    /// Of these: kept waiting, since too many connections from there ended for invalid STags.
    delayed,
    /// Of these: refused as malformed or against policy.
    refused,
    /// Of these: gone before they were answered.
    gone,
    /// Of these: rejected, by the application or for want of room or time.
    rejected,
    /// Connections that ended in order, or as this end asked.
    disconnected,
    /// Connections that broke.
    broken,
}
