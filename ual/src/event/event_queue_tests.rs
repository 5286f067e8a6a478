use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use super::super::state::Push;
use super::*;

type Numbers = EventQueue<u64>;

fn wait(queue: &Numbers, timeout: Option<Duration>) -> Result<u64> {
    queue.wait(&queue.begin(timeout), State::take)
}

#[test]
fn full_queues_refuse_or_count() {
    let queue = Numbers::new(1, 1);
    assert_eq!(queue.change(|state| state.push_or_lose(1, false)), Push::Queued);
    assert_eq!(queue.change(|state| state.push_or_lose(2, false)), Push::Refused { report: true });
    assert_eq!(queue.change(|state| state.push_or_lose(3, true)), Push::Refused { report: false });
    queue.push_always(4);
    assert_eq!(queue.len(), 2);
    assert_eq!(queue.take().unwrap(), Some(1));
    assert_eq!(queue.take().unwrap(), Some(4));
    assert!(matches!(queue.take(), Err(Error::Overflow(1))));
    assert!(queue.take().unwrap().is_none());
}

#[test]
fn the_descriptor_follows_the_criteria() {
    let queue = Numbers::new(8, 2);
    queue.push_always(0);
    queue.push_always(0);
    let fd = queue.fd().unwrap();
    let readable = || kal_shim::reactor::readable(fd.as_fd());
    assert!(readable(), "met before the descriptor was there");
    queue.take().unwrap();
    assert!(!readable());
    queue.push_always(0);
    assert!(readable());
    queue.configure(&mut |settings| settings.enabled = false);
    assert!(!readable());
    queue.configure(&mut |settings| settings.enabled = true);
    assert!(readable());
    queue.configure(&mut |settings| settings.threshold = 3);
    assert!(!readable());
}

#[test]
fn waits_end_by_event_time_interrupt_and_abort() {
    let queue = Arc::new(Numbers::new(8, 1));
    assert!(matches!(wait(&queue, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    let short = Duration::from_millis(1);
    assert!(matches!(wait(&queue, Some(short)), Err(Error::Timeout(_))));
    let waiter = |queue: &Arc<Numbers>| {
        let queue = queue.clone();
        thread::spawn(move || wait(&queue, None))
    };
    let first = waiter(&queue);
    queue.push_always(5);
    let ended = |what, waiter: thread::JoinHandle<_>| {
        warpline_patience::within(what, || waiter.join().unwrap())
    };
    assert_eq!(ended("an event to end the wait", first).unwrap(), 5);
    let second = waiter(&queue);
    // Interrupts end only waits that have begun, so repeat until one has.
    warpline_patience::until("the interrupted wait to end", || {
        queue.interrupt();
        second.is_finished()
    });
    assert!(matches!(ended("the interrupted wait to end", second), Err(Error::Interrupted)));
    let third = waiter(&queue);
    queue.abort();
    assert!(matches!(ended("the aborted wait to end", third), Err(Error::Aborted)));
    queue.push_always(6);
    let late = warpline_patience::within("a wait on an aborted queue", || wait(&queue, None));
    assert!(matches!(late, Err(Error::Aborted)));
}

#[test]
fn a_waiter_below_the_threshold_leaves_the_events() {
    let queue = Numbers::new(8, 2);
    queue.push_always(1);
    assert!(matches!(wait(&queue, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    queue.change(|state| state.push_always(2, false));
    assert!(matches!(wait(&queue, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    queue.push_always(3);
    assert_eq!(wait(&queue, Some(warpline_patience::HANG)).unwrap(), 1);
    assert_eq!(queue.len(), 2);
}

#[test]
fn several_waiters_get_each_event_once() {
    let queue = Arc::new(Numbers::new(1000, 1));
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || (0..100).map(|_| wait(&queue, None).unwrap()).sum::<u64>())
        })
        .collect();
    for number in 0..400 {
        assert_eq!(queue.change(|state| state.push_or_lose(number, false)), Push::Queued);
    }
    let sum: u64 = warpline_patience::within("each waiter to get 100 events", || {
        waiters.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(sum, (0..400).sum::<u64>());
}

#[test]
fn batches_end_where_the_events_end() {
    let queue = Numbers::new(8, 1);
    (0..5).for_each(|number| queue.push_always(number));
    let mut out = Vec::new();
    assert_eq!(queue.take_many(3, |number| out.push(number)).unwrap(), 3);
    queue.fail(VpStatus::CqOverrun);
    assert_eq!(queue.take_many(3, |number| out.push(number)).unwrap(), 2);
    assert_eq!(out, [0, 1, 2, 3, 4]);
    assert!(queue.take_many(3, |number| out.push(number)).is_err());
}
