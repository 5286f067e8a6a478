//! Who named STags that do not exist: each such error ends its connection, so a peer that guesses
//! needs a new one for each guess, and waits for it once it had too many.
//!
//! One per Ia, behind the manager's lock: a count per source and minute. What is older is forgotten,
//! so a peer that stopped, died or never meant it is as good as new after a minute.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use vp_api::Terminate;

use crate::half_open::Source;

/// What is counted together.
const MINUTE: Duration = Duration::from_secs(60);

/// Sources that are remembered.
const MOST: usize = 4096;

/// A minute of one source.
#[derive(Clone, Copy, Debug)]
struct Minute {
    until: Instant,
    ends: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Offenders(BTreeMap<Source, Minute>);

/// RFC 5040 4.8, RFC 5041 8.1: an STag that is invalid, of another stream, or that a Send with
/// Invalidate may not name, be it that there is none.
pub(crate) fn is_guess(terminate: Terminate) -> bool {
    matches!((terminate.layer, terminate.etype, terminate.code), (0, 1, 0 | 3 | 9) | (1, 1, 0 | 2))
}

impl Offenders {
    /// A connection of `source` ended for an STag.
    pub(crate) fn note(&mut self, source: Source, now: Instant) {
        if self.0.len() >= MOST && !self.0.contains_key(&source) {
            self.0.retain(|_, minute| minute.until > now);
            // Who has so many addresses is not stopped by counting them.
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

    /// Until when a start-up of `source` waits, that may have `most` ends in a minute.
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
        let (mut offenders, now) = (Offenders::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(offenders.wait(source(1), 3, now), None);
            offenders.note(source(1), now);
        }
        assert_eq!(offenders.wait(source(1), 3, now), Some(now + MINUTE));
        assert_eq!(offenders.wait(source(1), 4, now), None);
        assert_eq!(offenders.wait(source(2), 3, now), None);
        assert_eq!(offenders.wait(source(1), 3, now + MINUTE), None);
        offenders.note(source(1), now + MINUTE);
        assert_eq!(offenders.wait(source(1), 2, now + MINUTE), None);
    }

    #[test]
    fn many_sources_take_bounded_memory() {
        let (mut offenders, now) = (Offenders::default(), Instant::now());
        (0..2 * MOST as u32).for_each(|n| offenders.note(source(n), now));
        assert_eq!(offenders.0.len(), MOST);
        offenders.note(source(u32::MAX), now + MINUTE);
        assert_eq!(offenders.0.len(), 1);
    }

    #[test]
    fn a_source_that_is_known_counts_among_many() {
        let (mut offenders, now) = (Offenders::default(), Instant::now());
        (0..MOST as u32).for_each(|n| offenders.note(source(n), now));
        offenders.note(source(7), now);
        assert_eq!(offenders.wait(source(7), 2, now), Some(now + MINUTE));
        // Those whose minute is not over stay when another one is to be counted.
        offenders.note(source(7), now + MINUTE);
        offenders.note(source(u32::MAX), now + MINUTE);
        assert_eq!(offenders.0.len(), 2);
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
