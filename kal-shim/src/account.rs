//! The account of pinned memory of this process, and its limit: global state.
//!
//! One mutex; held for a few instructions by the thread that pins or unpins.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kal_os::fork::PerProcess;
use rustix::process::{Resource, getrlimit};

use crate::fork::Host;

/// Pinned pages, as ranges with the number of pins that cover them: a pin costs at most two entries,
/// whatever its length. `mlock` does not nest: the page is unpinned with its last pin.
#[derive(Default, Debug)]
pub(crate) struct Account {
    /// The pages where the count changes, with the count from there on. It is 0 before the first and
    /// after the last; no two neighbours are equal.
    counts: BTreeMap<usize, u32>,
    /// Pages whose count is not 0.
    pages: usize,
}

impl Account {
    /// Counts one more pin of pages `first..last`; returns the runs that were not pinned before.
    pub(crate) fn add(&mut self, first: usize, last: usize) -> Vec<(usize, usize)> {
        let runs = self.change(first, last, |count| (count.saturating_add(1), count == 0));
        self.pages += length(&runs);
        runs
    }

    /// Counts one pin less; returns the runs that are no longer pinned.
    pub(crate) fn remove(&mut self, first: usize, last: usize) -> Vec<(usize, usize)> {
        let runs = self.change(first, last, |count| (count.saturating_sub(1), count == 1));
        self.pages -= length(&runs);
        runs
    }

    /// Pages pinned, each counted once.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Changes the count of each range, and joins those for which `edge` returns true to runs.
    fn change(
        &mut self,
        first: usize,
        last: usize,
        edge: impl Fn(u32) -> (u32, bool),
    ) -> Vec<(usize, usize)> {
        if first >= last {
            return Vec::new();
        }
        self.split(first);
        self.split(last);
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let ends: Vec<usize> = self.counts.range(first..=last).skip(1).map(|(at, _)| *at).collect();
        for ((begin, count), end) in self.counts.range_mut(first..last).zip(ends) {
            let (now, is_edge) = edge(*count);
            *count = now;
            match runs.last_mut() {
                Some(run) if is_edge && run.1 == *begin => run.1 = end,
                _ if is_edge => runs.push((*begin, end)),
                _ => {}
            }
        }
        self.join(first, last);
        runs
    }

    /// Makes a range begin at `page`.
    fn split(&mut self, page: usize) {
        let count = self.before(page);
        self.counts.entry(page).or_insert(count);
    }

    /// Joins ranges that have the same count again, from `first` to `last`.
    fn join(&mut self, first: usize, last: usize) {
        let mut before = self.before(first);
        let same = |(page, count): (&usize, &u32)| {
            let same = std::mem::replace(&mut before, *count) == *count;
            same.then_some(*page)
        };
        let gone: Vec<usize> = self.counts.range(first..=last).filter_map(same).collect();
        for page in gone {
            self.counts.remove(&page);
        }
    }

    /// The count before `page`, or at it if no range begins there.
    fn before(&self, page: usize) -> u32 {
        self.counts.range(..page).next_back().map_or(0, |(_, count)| *count)
    }
}

/// Pages of runs.
fn length(runs: &[(usize, usize)]) -> usize {
    runs.iter().map(|(first, last)| last - first).sum()
}

/// The account of this process.
pub(crate) fn account() -> MutexGuard<'static, Account> {
    // A child inherits no locked pages (mlock(2)).
    static ACCOUNT: PerProcess<Mutex<Account>> = PerProcess::new();
    let account = ACCOUNT.get::<Host>();
    // The counts are changed in steps that cannot panic, so a poisoned lock holds a valid account.
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Octets that this process has pinned through this crate.
pub fn pinned_octets() -> u64 {
    (account().pages() * crate::mem::page_size()) as u64
}

/// The soft limit on pinned octets (`ulimit -l`); `None`: unlimited.
pub fn limit_octets() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, page by page.
    #[derive(Default)]
    struct Pages(BTreeMap<usize, u32>);

    impl Pages {
        fn change(&mut self, first: usize, last: usize, by: i32) -> Vec<(usize, usize)> {
            let mut runs: Vec<(usize, usize)> = Vec::new();
            for page in first..last {
                let old = self.0.get(&page).copied().unwrap_or(0);
                let new = old.saturating_add_signed(by);
                self.0.insert(page, new);
                if (old == 0) != (new == 0) {
                    match runs.last_mut() {
                        Some(run) if run.1 == page => run.1 += 1,
                        _ => runs.push((page, page + 1)),
                    }
                }
            }
            runs
        }

        fn pages(&self) -> usize {
            self.0.values().filter(|count| **count > 0).count()
        }
    }

    #[test]
    fn ranges_count_like_pages() {
        const SPACE: u64 = 64;
        for seed in 0..200_u64 {
            let (mut account, mut model) = (Account::default(), Pages::default());
            let mut state = seed;
            let mut next = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 33) % below) as usize
            };
            for step in 0..200 {
                let (a, b) = (next(SPACE), next(SPACE));
                let (first, last) = (a.min(b), a.max(b));
                // Also what was never pinned.
                let (ours, theirs) = match next(2) {
                    0 => (account.add(first, last), model.change(first, last, 1)),
                    _ => (account.remove(first, last), model.change(first, last, -1)),
                };
                assert_eq!(ours, theirs, "seed {seed}, step {step}: {first}..{last}");
                assert_eq!(account.pages(), model.pages(), "seed {seed}, step {step}");
                let counts: Vec<u32> = account.counts.values().copied().collect();
                let joined = counts.windows(2).all(|pair| pair[0] != pair[1]);
                assert!(joined && counts.first() != Some(&0), "{:?}", account.counts);
            }
            assert_eq!(account.counts.values().next_back().copied().unwrap_or(0), 0);
        }
    }

    #[test]
    fn a_long_pin_is_two_entries() {
        let mut account = Account::default();
        let pages = (64 << 30) / 4096;
        assert_eq!(account.add(1, 1 + pages), [(1, 1 + pages)]);
        assert_eq!((account.pages(), account.counts.len()), (pages, 2));
        assert_eq!(account.add(9, 9), []);
        assert_eq!(account.remove(1, 1 + pages), [(1, 1 + pages)]);
        assert_eq!((account.pages(), account.counts.len()), (0, 0));
    }

    #[test]
    fn overlapping_pins_count_once_and_free_last() {
        let mut account = Account::default();
        assert_eq!(account.add(2, 5), [(2, 5)]);
        assert_eq!(account.add(4, 7), [(5, 7)]);
        assert_eq!(account.pages(), 5);
        assert_eq!(account.remove(2, 5), [(2, 4)]);
        assert_eq!(account.remove(4, 7), [(4, 7)]);
        assert_eq!(account.pages(), 0);
        assert_eq!(account.remove(4, 7), []);
        assert_eq!(account.pages(), 0);
    }
}
