//! Runs of programs that wait most of the time, several at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `run` with each item, `threads` at a time; returns the results in the order of the items.
///
/// # Panics
/// If `run` does.
pub fn side_by_side<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = run(item);
            results.lock().expect("no thread panics with the lock").push((at, result));
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in running {
            // The message of the item's panic, not only that a thread panicked.
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut results = results.into_inner().expect("no thread panicked");
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::side_by_side;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(side_by_side(4, &items, |item| item + 1), (1..101).collect::<Vec<_>>());
        assert_eq!(side_by_side(4, &items[..1], |item| *item), [0]);
        assert_eq!(side_by_side(4, &[0; 0], |item| *item), []);
    }

    #[test]
    #[should_panic(expected = "the third")]
    fn a_panic_is_that_of_the_item() {
        side_by_side(2, &[1, 2, 3], |item| assert!(*item != 3, "the third"));
    }
}
