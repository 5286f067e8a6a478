//! How long a program wants to wait at most, in the three forms of the calls. No state.

use std::ffi::{c_int, c_void};

/// The limit.
#[derive(Clone, Copy)]
pub(crate) enum Limit {
    /// Milliseconds; for ever if negative.
    Millis(c_int),
    /// A `timespec`; for ever if null.
    Time(*const c_void),
    /// A `timeval`; for ever if null.
    Micros(*const c_void),
}

impl Limit {
    /// In nanoseconds.
    ///
    /// # Safety
    /// Null, or a time of this form.
    pub(super) unsafe fn nanos(self) -> u64 {
        let (at, factor) = match self {
            Self::Millis(limit) => {
                return u64::try_from(limit).map_or(u64::MAX, |it| it * 1_000_000);
            }
            Self::Time(at) => (at, 1),
            Self::Micros(at) => (at, 1000),
        };
        if at.is_null() {
            return u64::MAX;
        }
        // SAFETY: the caller's promise: seconds, and parts of one.
        let parts = unsafe { at.cast::<[i64; 2]>().read_unaligned() };
        let [seconds, parts] = parts.map(|it| u64::try_from(it).unwrap_or(0));
        seconds.saturating_mul(1_000_000_000).saturating_add(parts.saturating_mul(factor))
    }
}
