//! Half-open connections of a listener, which cost a descriptor and are not known to any application:
//! without a whole request, or refused and not yet closed. How many there may be, and which is dropped
//! first.
//!
//! Owned by the listener, under the manager's lock. The entry of a peer that dies is removed by its
//! timer. When the list is full, a random member of a source that has many is dropped: not the oldest,
//! since a flood would then displace every peer that needs time. A single source cannot displace others;
//! within a source of `n` members each newcomer displaces a given one with probability `1 / n`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use crate::tuning::HALF_OPEN_SAMPLE;

/// Members with a common source share the limit: an IPv4 address, or the first 64 bits of an IPv6
/// address, since a host with one of these addresses has them all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(ip: IpAddr) -> Self {
        Self(match ip.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// The half-open connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    members: Vec<(u64, Source)>,
    /// The position of each in `members`.
    places: BTreeMap<u64, usize>,
    sizes: BTreeMap<Source, usize>,
    random: RandomState,
    drawn: u64,
}

impl HalfOpen {
    /// Adds a member, unless it is one already. If there are more than `most`, or no memory for another,
    /// one was removed and is returned.
    pub(crate) fn add(&mut self, token: u64, source: Source, most: usize) -> Option<u64> {
        if self.places.contains_key(&token) {
            return None;
        }
        let full = self.members.len() >= most || self.members.try_reserve(1).is_err();
        let gone = if full { self.choose() } else { None };
        if let Some(gone) = gone {
            self.remove(gone);
        }
        self.places.insert(token, self.members.len());
        self.members.push((token, source));
        *self.sizes.entry(source).or_default() += 1;
        gone
    }

    /// Removes a member, if it is one.
    pub(crate) fn remove(&mut self, token: u64) {
        let Some(place) = self.places.remove(&token) else { return };
        let (_, source) = self.members.swap_remove(place);
        if let Some((moved, _)) = self.members.get(place) {
            self.places.insert(*moved, place);
        }
        if let Some(size) = self.sizes.get_mut(&source) {
            *size -= 1;
            if *size == 0 {
                self.sizes.remove(&source);
            }
        }
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = u64> {
        self.members.iter().map(|(token, _)| *token)
    }

    /// The member to be dropped.
    fn choose(&mut self) -> Option<u64> {
        let sample = 0..HALF_OPEN_SAMPLE.min(self.members.len() as u64);
        let drawn: Vec<u64> = sample.map(|_| self.draw()).collect();
        let candidates = drawn.iter().filter_map(|place| self.members.get(*place as usize));
        let most = candidates.max_by_key(|(_, source)| self.sizes.get(source));
        most.map(|(token, _)| *token)
    }

    fn draw(&mut self) -> u64 {
        self.drawn = self.drawn.wrapping_add(1);
        self.random.hash_one(self.drawn) % self.members.len().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of([10, 0, 0, last].into())
    }

    #[test]
    fn one_source_does_not_push_out_others() {
        let mut half_open = HalfOpen::default();
        for token in 0..4 {
            assert_eq!(half_open.add(token, source(token as u8 + 1), 64), None);
        }
        for token in 100..10_000 {
            let gone = half_open.add(token, source(99), 64);
            assert!(gone.is_none_or(|gone| gone >= 100), "{gone:?}");
            assert!(half_open.members.len() <= 64);
        }
        assert!((0..4).all(|token| half_open.places.contains_key(&token)));
    }

    /// 1,000 connections a second fill a table of 256; one that needs 50 ms is followed by 50 of them, and
    /// keeps its place with probability (255/256)^50 = 0.822. The oldest would never.
    #[test]
    fn within_a_source_a_flood_of_1000_a_second_leaves_82_of_100_slow_ones() {
        const TRIALS: u32 = 10_000;
        let (mut half_open, mut next) = (HalfOpen::default(), 0);
        let mut come = |half_open: &mut HalfOpen| {
            next += 1;
            half_open.add(next, source(1), 256);
            next
        };
        (0..256).for_each(|_| _ = come(&mut half_open));
        let stayed = (0..TRIALS)
            .filter(|_| {
                let slow = come(&mut half_open);
                (0..50).for_each(|_| _ = come(&mut half_open));
                half_open.places.contains_key(&slow)
            })
            .count() as f64;
        let due = (255.0_f64 / 256.0).powi(50);
        // Six standard deviations.
        let spread = 6.0 * (due * (1.0 - due) / f64::from(TRIALS)).sqrt();
        let share = stayed / f64::from(TRIALS);
        assert!((share - due).abs() < spread, "{share} of the slow ones stayed; {due} should");
    }

    #[test]
    fn removal_keeps_the_index_of_positions_right() {
        let mut half_open = HalfOpen::default();
        for token in 0..8 {
            half_open.add(token, source(token as u8 % 2), 8);
        }
        for token in [0, 7, 3] {
            half_open.remove(token);
            half_open.remove(token);
        }
        assert!(
            half_open.places.iter().all(|(token, place)| half_open.members[*place].0 == *token)
        );
        assert_eq!(half_open.tokens().count(), 5);
        assert_eq!(half_open.sizes.values().sum::<usize>(), 5);
        (0..8).for_each(|token| half_open.remove(token));
        assert!(half_open.sizes.is_empty() && half_open.places.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.2"), of("10.0.0.1"));
    }
}
