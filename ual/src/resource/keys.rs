//! Key octets of STags: an unpredictable one each time that an STag is made valid.
//!
//! Owned by the object that has the STag; any thread. When an STag's index is used again its key
//! differs, so that rights granted earlier are gone.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The keys of one STag index: every octet once, in an order of its own, before one is repeated.
#[derive(Debug, Default)]
pub struct Keys {
    order: RandomState,
    /// The key that the index had first, if it was given.
    first: Option<u8>,
    /// What makes that the first of the order. Most regions never need a second key, which is why it is computed late.
    mask: OnceLock<u8>,
    used: AtomicU8,
}

impl Keys {
    /// A random key, for an index that has none yet.
    pub fn random() -> u8 {
        RandomState::new().hash_one(()) as u8
    }

    /// Of an index that is valid with this key now.
    pub fn after(key: u8) -> Self {
        Self { first: Some(key), used: AtomicU8::new(1), ..Self::default() }
    }

    /// The next key.
    // RFC 5040 8.1.1(8) [SEC-07]
    pub fn next(&self) -> u8 {
        self.key(self.used.fetch_add(1, Ordering::Relaxed))
    }

    /// The key that [`Keys::next`] will return.
    pub fn upcoming(&self) -> u8 {
        self.key(self.used.load(Ordering::Relaxed))
    }

    fn key(&self, count: u8) -> u8 {
        let mask = || self.first.map_or(0, |first| self.permuted(0) ^ first);
        self.permuted(count) ^ self.mask.get_or_init(mask)
    }

    fn permuted(&self, count: u8) -> u8 {
        // Rounds of a Feistel network make a permutation of the octets from any function of halves.
        (0..4u8).fold(count, |octet, round| {
            let (left, right) = (octet >> 4, octet & 15);
            let mixed = self.order.hash_one((round, right)) as u8 & 15;
            right << 4 | (left ^ mixed)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    // [SEC-07]
    #[test]
    fn keys_repeat_only_after_all_and_in_random_order() {
        let (one, other) = (Keys::default(), Keys::default());
        let first: Vec<u8> = (0..256).map(|_| one.next()).collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 256);
        let second: Vec<u8> = (0..256).map(|_| other.next()).collect();
        let agree = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(agree < 32, "{agree} of 256");
        let steps: HashSet<u8> =
            first.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        assert!(steps.len() > 64, "{} different steps", steps.len());
        // The key that was given comes last.
        let given = Keys::after(7);
        for _ in 0..255 {
            let upcoming = given.upcoming();
            assert!(given.next() == upcoming && upcoming != 7);
        }
        assert_eq!(given.next(), 7);
        let random: HashSet<u8> = (0..256).map(|_| Keys::random()).collect();
        assert!(random.len() > 128, "{} different keys of 256", random.len());
    }
}
