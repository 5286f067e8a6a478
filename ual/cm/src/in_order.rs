//! A queue that any thread may drain, one at a time, so that items are taken in order.
//!
//! Shared by the threads of one adapter, without an owner. A thread that has added an item drains the
//! queue. While one thread drains, others leave their items to it, and so does that thread when it is
//! called from further down its own stack. The queue grows in small pieces, for which the C library has
//! a reserve (see [`crate::table`]).

use std::collections::LinkedList;

use kal_os::sync::{AtomicBool, Mutex, Ordering, lock};

/// The queue.
pub(crate) struct InOrder<T> {
    queue: Mutex<LinkedList<T>>,
    /// A thread drains.
    draining: AtomicBool,
}

/// The thread that drains; when this is dropped another one may.
struct Draining<'a>(&'a AtomicBool);

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> InOrder<T> {
    pub(crate) fn new() -> Self {
        Self { queue: Mutex::new(LinkedList::new()), draining: AtomicBool::new(false) }
    }

    pub(crate) fn push(&self, item: T) {
        lock(&self.queue).push_back(item);
    }

    /// Whether nothing is in it or being taken.
    #[cfg(feature = "testing")]
    pub(crate) fn is_done(&self) -> bool {
        // The queue first: an item that left it before this check is being taken until `draining` is
        // false.
        lock(&self.queue).is_empty() && !self.draining.load(Ordering::Acquire)
    }

    /// Takes all items out, unless another thread does.
    pub(crate) fn drain(&self, mut take: impl FnMut(T)) {
        // Checks once more when it has ended: a thread that came before that, and after the last check,
        // has left its item.
        while !lock(&self.queue).is_empty() {
            let Some(_draining) = self.begin() else { return };
            loop {
                // Not in the loop's condition: that would hold the queue's lock while `take` runs.
                let next = lock(&self.queue).pop_front();
                match next {
                    Some(item) => take(item),
                    None => break,
                }
            }
        }
    }

    /// `None`: a thread drains.
    fn begin(&self) -> Option<Draining<'_>> {
        let begun =
            self.draining.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed);
        begun.ok().map(|_| Draining(&self.draining))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_item_added_while_another_is_taken_follows_it() {
        let (queue, mut taken) = (InOrder::new(), Vec::new());
        queue.push(1);
        queue.drain(|item| {
            if item < 3 {
                queue.push(item + 1);
                queue.drain(|item| panic!("{item} is taken before its turn"));
            }
            taken.push(item);
        });
        assert_eq!(taken, [1, 2, 3]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    use super::*;

    /// Two threads add and drain: each item is taken once, and the items of one thread in their order.
    #[test]
    fn loom_each_item_is_taken_once_and_in_order() {
        loom::model(|| {
            let shared = Arc::new((InOrder::new(), Mutex::new(Vec::new())));
            let thread = |base: u32| {
                let shared = shared.clone();
                thread::spawn(move || {
                    for item in [base, base + 1] {
                        shared.0.push(item);
                        shared.0.drain(|item| lock(&shared.1).push(item));
                    }
                })
            };
            let threads = [thread(0), thread(10)];
            for thread in threads {
                thread.join().unwrap();
            }
            let taken = lock(&shared.1).clone();
            for base in [0, 10] {
                let of_one: Vec<_> = taken.iter().filter(|item| **item / 10 == base / 10).collect();
                assert_eq!(of_one, [&base, &(base + 1)], "{taken:?}");
            }
        });
    }
}
