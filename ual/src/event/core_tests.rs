use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use super::super::state::Push;
use super::*;

type Numbers = Core<u64>;

fn wait(core: &Numbers, timeout: Option<Duration>) -> Result<u64> {
    core.wait(&core.begin(timeout), State::take)
}

#[test]
fn full_queues_refuse_or_count() {
    let core = Numbers::new(1, 1);
    assert_eq!(core.change(|state| state.push_or_lose(1, false)), Push::Queued);
    assert_eq!(core.change(|state| state.push_or_lose(2, false)), Push::Refused { report: true });
    assert_eq!(core.change(|state| state.push_or_lose(3, true)), Push::Refused { report: false });
    core.push_always(4);
    assert_eq!(core.len(), 2);
    assert_eq!(core.take().unwrap(), Some(1));
    assert_eq!(core.take().unwrap(), Some(4));
    assert!(matches!(core.take(), Err(Error::Overflow(1))));
    assert!(core.take().unwrap().is_none());
}

#[test]
fn the_descriptor_follows_the_criteria() {
    let core = Numbers::new(8, 2);
    core.push_always(0);
    core.push_always(0);
    let fd = core.fd().unwrap();
    let readable = || kal_shim::reactor::readable(fd.as_fd());
    assert!(readable(), "met before the descriptor was there");
    core.take().unwrap();
    assert!(!readable());
    core.push_always(0);
    assert!(readable());
    core.configure(&mut |settings| settings.enabled = false);
    assert!(!readable());
    core.configure(&mut |settings| settings.enabled = true);
    assert!(readable());
    core.configure(&mut |settings| settings.threshold = 3);
    assert!(!readable());
}

#[test]
fn waits_end_by_event_time_interrupt_and_abort() {
    let core = Arc::new(Numbers::new(8, 1));
    assert!(matches!(wait(&core, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    let short = Duration::from_millis(1);
    assert!(matches!(wait(&core, Some(short)), Err(Error::Timeout(_))));
    let waiter = |core: &Arc<Numbers>| {
        let core = core.clone();
        thread::spawn(move || wait(&core, None))
    };
    let first = waiter(&core);
    core.push_always(5);
    let ended = |what, waiter: thread::JoinHandle<_>| {
        warpline_patience::within(what, || waiter.join().unwrap())
    };
    assert_eq!(ended("an event to end the wait", first).unwrap(), 5);
    let second = waiter(&core);
    // Interrupts count only for waits that have begun, so repeat until it has.
    warpline_patience::until("the interrupted wait to end", || {
        core.interrupt();
        second.is_finished()
    });
    assert!(matches!(ended("the interrupted wait to end", second), Err(Error::Interrupted)));
    let third = waiter(&core);
    core.abort();
    assert!(matches!(ended("the aborted wait to end", third), Err(Error::Aborted)));
    core.push_always(6);
    let late = warpline_patience::within("a wait on an aborted queue", || wait(&core, None));
    assert!(matches!(late, Err(Error::Aborted)));
}

#[test]
fn a_waiter_below_the_threshold_leaves_the_events() {
    let core = Numbers::new(8, 2);
    core.push_always(1);
    assert!(matches!(wait(&core, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    core.change(|state| state.push_always(2, false));
    assert!(matches!(wait(&core, Some(Duration::ZERO)), Err(Error::Timeout(_))));
    core.push_always(3);
    assert_eq!(wait(&core, Some(warpline_patience::HANG)).unwrap(), 1);
    assert_eq!(core.len(), 2);
}

#[test]
fn several_waiters_get_each_event_once() {
    let core = Arc::new(Numbers::new(1000, 1));
    let waiters: Vec<_> = (0..4)
        .map(|_| {
            let core = core.clone();
            thread::spawn(move || (0..100).map(|_| wait(&core, None).unwrap()).sum::<u64>())
        })
        .collect();
    for number in 0..400 {
        assert_eq!(core.change(|state| state.push_or_lose(number, false)), Push::Queued);
    }
    let sum: u64 = warpline_patience::within("each waiter to get 100 events", || {
        waiters.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!(sum, (0..400).sum());
}

#[test]
fn batches_end_where_the_events_end() {
    let core = Numbers::new(8, 1);
    (0..5).for_each(|number| core.push_always(number));
    let mut out = Vec::new();
    assert_eq!(core.take_many(3, |number| out.push(number)).unwrap(), 3);
    core.fail(VpStatus::CqOverrun);
    assert_eq!(core.take_many(3, |number| out.push(number)).unwrap(), 2);
    assert_eq!(out, [0, 1, 2, 3, 4]);
    assert!(core.take_many(3, |number| out.push(number)).is_err());
}
