//! Parallel runs of the crc32 instruction, summed while the multiplier folds other octets; and joining
//! their results.
//!
//! The instruction starts every cycle and has a latency of three cycles: three runs keep it busy.
//!
//! No state; called from any thread. Octets that follow the front of a piece move its remainder on: by
//! x^(8n) for `n` octets, modulo the polynomial.

use std::arch::x86_64::*;
use std::slice;

use super::fold::POLYNOMIAL;

/// Octets of a word.
const WORD: usize = 8;
/// Words of each run for every four vectors that are folded: what fits into the time of the
/// multiplications.
const WORDS: usize = 3;
/// Octets of one run beside four vectors.
const RUN: usize = WORDS * WORD;
/// Octets of all three.
pub(super) const BESIDE: usize = 3 * RUN;

/// Three runs of equal length, and the states of their sums.
pub(super) struct Streams<'a> {
    runs: [slice::Iter<'a, [[u8; WORD]; WORDS]>; 3],
    states: [u64; 3],
}

impl<'a> Streams<'a> {
    /// Over octets whose number is a multiple of [`BESIDE`].
    #[inline]
    pub(super) fn new(octets: &'a [u8]) -> Self {
        let (one, rest) = octets.split_at(octets.len() / 3);
        let (two, three) = rest.split_at(rest.len() / 2);
        let run = |octets: &'a [u8]| octets.as_chunks().0.as_chunks().0.iter();
        Self { runs: [run(one), run(two), run(three)], states: [0; 3] }
    }

    /// Takes [`BESIDE`] octets.
    #[inline]
    #[target_feature(enable = "sse4.2")]
    pub(super) fn step(&mut self) {
        let [one, two, three] = &mut self.runs;
        let (Some(one), Some(two), Some(three)) = (one.next(), two.next(), three.next()) else {
            return;
        };
        let [mut a, mut b, mut c] = self.states;
        for at in 0..WORDS {
            a = _mm_crc32_u64(a, u64::from_le_bytes(one[at]));
            b = _mm_crc32_u64(b, u64::from_le_bytes(two[at]));
            c = _mm_crc32_u64(c, u64::from_le_bytes(three[at]));
        }
        self.states = [a, b, c];
    }

    /// The state after `front` and the three runs, of `steps` steps each.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn join(&self, front: u32, steps: usize) -> u32 {
        let over = power(steps);
        let join = |state, run: &u64| multiply(state, over) ^ *run as u32;
        self.states.iter().fold(front, join)
    }
}

/// Product of two reversed numbers, times x^33: a product of reversed numbers is shifted by one place,
/// and the instruction adds 32.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn multiply(a: u32, b: u32) -> u32 {
    let (a, b) = (_mm_cvtsi32_si128(a as i32), _mm_cvtsi32_si128(b as i32));
    let product = _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b));
    _mm_crc32_u64(0, product as u64) as u32
}

/// x^(8 * [`RUN`] * `steps` - 33), for `steps` of at least 1.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn power(steps: usize) -> u32 {
    let set = POWERS.iter().enumerate().filter(|(bit, _)| steps >> bit & 1 == 1);
    let mut factors = set.map(|(_, power)| *power);
    let first = factors.next().unwrap_or(1 << 31);
    factors.fold(first, |product, factor| multiply(product, factor))
}

/// x^(8 * [`RUN`] * 2^i - 33): more than there are octets in memory.
const POWERS: [u32; 40] = {
    let mut powers = [0; 40];
    powers[0] = raise(8 * RUN as u32 - 33);
    let mut at = 1;
    while at < powers.len() {
        let square = product(powers[at - 1], powers[at - 1]);
        powers[at] = product(square, raise(33));
        at += 1;
    }
    powers
};

/// x^`power`, reversed.
const fn raise(power: u32) -> u32 {
    let (mut value, mut done) = (1 << 31, 0);
    while done < power {
        value = up(value);
        done += 1;
    }
    value
}

/// Product of two reversed numbers.
const fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut term, mut bit) = (0, b, 32);
    while bit > 0 {
        bit -= 1;
        if a >> bit & 1 == 1 {
            sum ^= term;
        }
        term = up(term);
    }
    sum
}

/// Times x, reversed.
const fn up(value: u32) -> u32 {
    (value >> 1) ^ (POLYNOMIAL.reverse_bits() * (value & 1))
}
