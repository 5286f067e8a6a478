//! Counts how often each fault rule applied. Owned by a hook or a layer; any thread counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::spec::{Rule, Spec};

/// One counter for each rule.
pub(super) struct Counts(Box<[AtomicU64]>);

impl Counts {
    pub(super) fn new(spec: &Spec) -> Self {
        Self(spec.rules.iter().map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts in all rules that apply; returns the first rule that takes effect.
    pub(super) fn first<'a>(
        &self,
        spec: &'a Spec,
        concerned: impl Fn(&Rule) -> bool,
    ) -> Option<&'a Rule> {
        let mut first = None;
        for (at, (rule, count)) in spec.rules.iter().zip(&self.0).enumerate() {
            if concerned(rule) {
                let count = count.fetch_add(1, Ordering::Relaxed) + 1;
                if rule.when.has_come(count, chance(spec.seed, at as u64, count)) {
                    first = first.or(Some(rule));
                }
            }
        }
        first
    }
}

/// A pseudo-random number that depends only on its arguments (the finalizer of SplitMix64).
fn chance(seed: u64, rule: u64, count: u64) -> u64 {
    let mut z = seed
        .wrapping_add(rule.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
