//! Limit on connections that end for invalid STags: each such error ends its connection, so a peer that
//! guesses STags needs a new connection for each guess, and has to wait once it had too many.
//!
//! One per Ia, under the manager's lock: a count per source and minute. Older counts are dropped, so
//! a peer that stopped guessing is not delayed after a minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vp_api::Terminate;

use crate::half_open::Source;

/// The period of a count.
const MINUTE: Duration = Duration::from_secs(60);

/// Most sources with a count.
const MOST: usize = 4096;

/// The count of one source.
#[derive(Clone, Copy, Debug)]
struct Minute {
    until: Instant,
    ends: u32,
}

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct InvalidStagEnds(BTreeMap<Source, Minute>);

/// RFC 5040 4.8, RFC 5041 8.1: an STag that does not exist, belongs to another stream, or may not be
/// named by a Send with Invalidate.
pub(crate) fn is_guess(terminate: Terminate) -> bool {
    matches!((terminate.layer, terminate.etype, terminate.code), (0, 1, 0 | 3 | 9) | (1, 1, 0 | 2))
}

impl InvalidStagEnds {
    /// Counts a connection of `source` that ended for an STag.
    pub(crate) fn count(&mut self, source: Source, now: Instant) {
        if self.0.len() >= MOST && !self.0.contains_key(&source) {
            self.0.retain(|_, minute| minute.until > now);
            // Counts do not stop a peer with that many addresses.
            if self.0.len() >= MOST {
                return;
            }
        }
        let fresh = Minute { until: now + MINUTE, ends: 0 };
        let minute = self.0.entry(source).or_insert(fresh);
        if minute.until <= now {
            *minute = fresh;
        }
        minute.ends = minute.ends.saturating_add(1);
    }

    /// The time until which a start-up of `source` has to wait; `most` such ends are allowed in a
    /// minute.
    pub(crate) fn wait(&self, source: Source, most: u32, now: Instant) -> Option<Instant> {
        let minute = self.0.get(&source).filter(|minute| minute.until > now)?;
        (minute.ends >= most).then_some(minute.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> Source {
        Source::of(number.to_be_bytes().into())
    }

    // [SEC-07]
    #[test]
    fn too_many_in_a_minute_wait_for_its_end() {
        let (mut invalid_stag_ends, now) = (InvalidStagEnds::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(invalid_stag_ends.wait(source(1), 3, now), None);
            invalid_stag_ends.count(source(1), now);
        }
        assert_eq!(invalid_stag_ends.wait(source(1), 3, now), Some(now + MINUTE));
        assert_eq!(invalid_stag_ends.wait(source(1), 4, now), None);
        assert_eq!(invalid_stag_ends.wait(source(2), 3, now), None);
        assert_eq!(invalid_stag_ends.wait(source(1), 3, now + MINUTE), None);
        invalid_stag_ends.count(source(1), now + MINUTE);
        assert_eq!(invalid_stag_ends.wait(source(1), 2, now + MINUTE), None);
    }

    #[test]
    fn many_sources_take_bounded_memory() {
        let (mut invalid_stag_ends, now) = (InvalidStagEnds::default(), Instant::now());
        (0..2 * MOST as u32).for_each(|n| invalid_stag_ends.count(source(n), now));
        assert_eq!(invalid_stag_ends.0.len(), MOST);
        invalid_stag_ends.count(source(u32::MAX), now + MINUTE);
        assert_eq!(invalid_stag_ends.0.len(), 1);
    }

    #[test]
    fn a_source_that_is_known_counts_among_many() {
        let (mut invalid_stag_ends, now) = (InvalidStagEnds::default(), Instant::now());
        (0..MOST as u32).for_each(|n| invalid_stag_ends.count(source(n), now));
        invalid_stag_ends.count(source(7), now);
        assert_eq!(invalid_stag_ends.wait(source(7), 2, now), Some(now + MINUTE));
        // Counts whose minute is not over are kept when another source is counted.
        invalid_stag_ends.count(source(7), now + MINUTE);
        invalid_stag_ends.count(source(u32::MAX), now + MINUTE);
        assert_eq!(invalid_stag_ends.0.len(), 2);
    }

    #[test]
    fn only_stags_count() {
        let terminate = |layer, etype, code| Terminate::new(true, layer, etype, code);
        for (layer, etype, code) in [(0, 1, 0), (0, 1, 3), (0, 1, 9), (1, 1, 0), (1, 1, 2)] {
            assert!(is_guess(terminate(layer, etype, code)));
        }
        for (layer, etype, code) in [(0, 1, 1), (0, 1, 2), (1, 1, 1), (1, 2, 0), (2, 0, 0)] {
            assert!(!is_guess(terminate(layer, etype, code)));
        }
    }
}
