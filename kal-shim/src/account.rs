//! How much this process has pinned, and the limit: the only global state of the crate.
//!
//! One mutex; held for a few instructions by whoever pins or unpins.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::process::{Resource, getrlimit};

/// Pinned pages, each with the number of pins that cover it. `mlock` does not nest: the last pin
/// of a page decides.
#[derive(Default, Debug)]
pub(crate) struct Account {
    pages: HashMap<usize, u32>,
}

impl Account {
    /// Counts one more pin of pages `first..last`; answers the runs that were not pinned before.
    pub(crate) fn add(&mut self, first: usize, last: usize) -> Vec<(usize, usize)> {
        self.change(first, last, |count| {
            *count += 1;
            *count == 1
        })
    }

    /// Counts one pin less; answers the runs that nobody pins any more.
    pub(crate) fn remove(&mut self, first: usize, last: usize) -> Vec<(usize, usize)> {
        let freed = self.change(first, last, |count| {
            let last_one = *count == 1;
            *count = count.saturating_sub(1);
            last_one
        });
        for page in first..last {
            if self.pages.get(&page) == Some(&0) {
                self.pages.remove(&page);
            }
        }
        freed
    }

    /// Pages pinned, each counted once.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Applies `edge` to each page and joins those where it is true to runs.
    fn change(
        &mut self,
        first: usize,
        last: usize,
        edge: impl Fn(&mut u32) -> bool,
    ) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for page in first..last {
            if edge(self.pages.entry(page).or_insert(0)) {
                match runs.last_mut() {
                    Some(run) if run.1 == page => run.1 += 1,
                    _ => runs.push((page, page + 1)),
                }
            }
        }
        runs
    }
}

/// The account of this process.
pub(crate) fn account() -> MutexGuard<'static, Account> {
    static ACCOUNT: OnceLock<Mutex<Account>> = OnceLock::new();
    let account = ACCOUNT.get_or_init(Mutex::default);
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
