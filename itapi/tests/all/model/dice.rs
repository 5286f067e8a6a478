//! Random choices, reproducible by seed (Steele's splitmix64).

#[derive(Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }

    /// True once in `times`.
    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    /// Independent choices for another thread.
    pub(super) fn split(&mut self) -> Self {
        Self(self.next())
    }
}
