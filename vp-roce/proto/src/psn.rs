//! Packet sequence numbers (PSN): 24-bit serial numbers (InfiniBand volume 1, 9.7.1).
//!
//! Owner of the state: none, values. Any thread.

/// A packet sequence number (PSN); also for message sequence numbers (MSN) of acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash, Debug)]
pub struct Psn(u32);

const MASK: u32 = 0x00ff_ffff;
const HALF: u32 = 0x0080_0000;

impl Psn {
    /// The lower 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
    /// The next number.
    pub const fn next(self) -> Self {
        self.plus(1)
    }
    /// The number `count` after it.
    pub const fn plus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }
    /// The number `count` before it.
    pub const fn minus(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }
    /// The difference from `from` to `self`, -2^23 to 2^23 - 1; negative if `self` is before `from`.
    pub const fn ahead_of(self, from: Self) -> i32 {
        // InfiniBand volume 1, 9.7.1 [IBRC-01]
        let distance = self.0.wrapping_sub(from.0) & MASK;
        if distance < HALF { distance as i32 } else { distance as i32 - (MASK as i32 + 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_after_2_to_the_24() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1), last);
        assert_eq!(Psn::new(0x0100_0005), Psn::new(5));
        assert_eq!(Psn::new(2).ahead_of(last), 3);
        assert_eq!(last.ahead_of(Psn::new(2)), -3);
        assert_eq!(Psn::new(HALF - 1).ahead_of(Psn::new(0)), HALF as i32 - 1);
        assert_eq!(Psn::new(HALF).ahead_of(Psn::new(0)), -(HALF as i32));
    }
}
