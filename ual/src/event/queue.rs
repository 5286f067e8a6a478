//! A queue of events with waiting and a descriptor. Everything that is not a completion.
//!
//! The queue owns its state behind one mutex, held for a few instructions. The descriptor is
//! readable exactly while the queue is not empty: both change under the mutex, so no wake-up is
//! lost and none is left over.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kal_shim::Notifier;

use crate::error::{Error, Result};
use crate::event::Event;

/// Bounded queue of events.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    notifier: Notifier,
}

struct Inner {
    events: VecDeque<Event>,
    depth: usize,
    lost: u64,
    interrupts: u64,
}

impl Queue {
    pub(super) fn new(depth: u32) -> Result<Self> {
        let notifier =
            Notifier::new().map_err(Error::os("create the descriptor of an event dispatcher"))?;
        let inner =
            Inner { events: VecDeque::new(), depth: depth as usize, lost: 0, interrupts: 0 };
        Ok(Self { inner: Mutex::new(inner), arrived: Condvar::new(), notifier })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while the lock is held.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; false, and the event counted as lost if `lossy`, when the queue is full.
    pub(super) fn push(&self, event: Event, lossy: bool) -> bool {
        let mut inner = self.lock();
        if inner.events.len() >= inner.depth {
            inner.lost += u64::from(lossy);
            return false;
        }
        self.add(&mut inner, event);
        true
    }

    /// Adds an event whatever the depth: for events whose number is bounded by other means.
    pub(super) fn push_always(&self, event: Event) {
        self.add(&mut self.lock(), event);
    }

    fn add(&self, inner: &mut Inner, event: Event) {
        if inner.events.is_empty() {
            self.notifier.signal();
        }
        inner.events.push_back(event);
        self.arrived.notify_one();
    }

    /// The oldest event. [`Error::Overflow`] once after events were lost, when all before are out.
    pub(super) fn pop(&self) -> Result<Option<Event>> {
        self.take(&mut self.lock())
    }

    fn take(&self, inner: &mut Inner) -> Result<Option<Event>> {
        let event = inner.events.pop_front();
        if inner.events.is_empty() && event.is_some() {
            self.notifier.clear();
        }
        match (event, std::mem::take(&mut inner.lost)) {
            (None, 0) => Ok(None),
            (None, lost) => Err(Error::Overflow(lost)),
            (event, lost) => {
                inner.lost = lost;
                Ok(event)
            }
        }
    }

    /// The oldest event, waiting for one until `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut inner = self.lock();
        let interrupts = inner.interrupts;
        loop {
            if let Some(event) = self.take(&mut inner)? {
                return Ok(event);
            }
            if inner.interrupts != interrupts {
                return Err(Error::Interrupted);
            }
            inner = match deadline {
                None => self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Error::Timeout(timeout.unwrap_or_default()));
                    }
                    let waited = self.arrived.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Makes every present wait return [`Error::Interrupted`].
    pub(super) fn interrupt(&self) {
        self.lock().interrupts += 1;
        self.arrived.notify_all();
    }

    /// Changes the depth; events in the queue stay, even above it.
    pub(super) fn resize(&self, depth: u32) {
        self.lock().depth = depth as usize;
    }

    pub(super) fn depth(&self) -> u32 {
        self.lock().depth as u32
    }

    pub(super) fn len(&self) -> usize {
        self.lock().events.len()
    }

    pub(super) fn notifier(&self) -> &Notifier {
        &self.notifier
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn number(event: Event) -> u64 {
        match event {
            Event::Software(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn full_queues_refuse_or_count() {
        let queue = Queue::new(1).unwrap();
        assert!(queue.push(Event::Software(1), false));
        assert!(!queue.push(Event::Software(2), false));
        assert!(!queue.push(Event::Software(3), true));
        queue.push_always(Event::Software(4));
        assert_eq!(queue.len(), 2);
        assert_eq!(number(queue.pop().unwrap().unwrap()), 1);
        assert_eq!(number(queue.pop().unwrap().unwrap()), 4);
        assert!(matches!(queue.pop(), Err(Error::Overflow(1))));
        assert!(queue.pop().unwrap().is_none());
    }

    #[test]
    fn the_descriptor_follows_the_queue() {
        let queue = Queue::new(8).unwrap();
        let readable = || kal_shim::reactor::readable(queue.notifier().as_fd());
        assert!(!readable());
        queue.push(Event::Software(1), false);
        queue.push(Event::Software(2), false);
        assert!(readable());
        queue.pop().unwrap();
        assert!(readable());
        queue.pop().unwrap();
        assert!(!readable());
    }

    #[test]
    fn waits_end_by_event_time_and_interrupt() {
        let queue = Arc::new(Queue::new(8).unwrap());
        assert!(matches!(queue.wait(Some(Duration::ZERO)), Err(Error::Timeout(_))));
        let short = Duration::from_millis(1);
        assert!(matches!(queue.wait(Some(short)), Err(Error::Timeout(_))));
        let waiter = |queue: &Arc<Queue>| {
            let queue = queue.clone();
            thread::spawn(move || queue.wait(None))
        };
        let first = waiter(&queue);
        queue.push(Event::Software(5), false);
        assert_eq!(number(first.join().unwrap().unwrap()), 5);
        let second = waiter(&queue);
        // Interrupts count only for waits that have begun, so repeat until it has.
        while !second.is_finished() {
            queue.interrupt();
            thread::yield_now();
        }
        assert!(matches!(second.join().unwrap(), Err(Error::Interrupted)));
    }

    #[test]
    fn several_waiters_get_each_event_once() {
        let queue = Arc::new(Queue::new(1000).unwrap());
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    (0..100).map(|_| number(queue.wait(None).unwrap())).sum::<u64>()
                })
            })
            .collect();
        for number in 0..400 {
            assert!(queue.push(Event::Software(number), false));
        }
        let sum: u64 = waiters.into_iter().map(|w| w.join().unwrap()).sum::<u64>();
        assert_eq!(sum, (0..400).sum());
    }
}
