//! Counters of connection management. Atomics, in the adapter's record of the state page if it has one: written behind
//! the manager's lock, read by any thread.

use std::sync::atomic::Ordering;

use vp_api::DeviceRef;
use vp_api::state_page::layout::CM_COUNTERS;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counts since the adapter was opened.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct CmCounters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl CmCounters {
            /// Their names, in the order in which the state page has them.
            pub const NAMES: &[&str] = &[$(stringify!($name),)+];
        }

        #[allow(non_camel_case_types)]
        enum Place { $($name,)+ }

        pub(crate) struct Counters {
            $(pub(crate) $name: Count,)+
        }

        impl Counters {
            /// They are counted in this record.
            pub(crate) fn of(record: &DeviceRef) -> Self {
                let count = |at: Place| Count { record: record.clone(), at: at as usize };
                Self { $($name: count(Place::$name),)+ }
            }

            pub(crate) fn read(&self) -> CmCounters {
                CmCounters { $($name: self.$name.read(),)+ }
            }
        }
    };
}

/// One counter.
pub(crate) struct Count {
    record: DeviceRef,
    at: usize,
}

impl Count {
    pub(crate) fn add(&self) {
        self.record.cm[self.at].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.record.cm[self.at].load(Ordering::Relaxed)
    }
}

const _: () = assert!(CmCounters::NAMES.len() <= CM_COUNTERS);

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
