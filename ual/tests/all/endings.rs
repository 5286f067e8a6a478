//! Ends of a wait without an event: signals, aborts, closing.

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ual::{Error, Evd, EvdInit, Event, Result, Stream};

use crate::common::{HANG, Side, policy};

extern "C" fn handler(_: libc::c_int) {}

/// Installs a handler with `SA_RESTART`, which restarts many system calls.
fn install() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, nothing masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is initialised, and the handler does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) }, 0);
}

/// Dispatchers for every way to wait: a queue, direct and staged completions, an aggregate.
fn ways(side: &Side) -> [Arc<Evd>; 4] {
    let evd = |stream| side.ia.create_evd(EvdInit::new(stream, 16)).unwrap();
    let ways = [
        evd(Stream::Software),
        evd(Stream::Completion),
        evd(Stream::Completion),
        evd(Stream::Aggregate),
    ];
    ways[2].set_threshold(2).unwrap();
    ways
}

/// A thread that waits on `evd` and ends when the wait is aborted.
fn waiter(evd: &Arc<Evd>) -> (libc::pthread_t, mpsc::Receiver<Result<Event>>, mpsc::Sender<()>) {
    let (sender, result) = mpsc::channel();
    let (name, named) = mpsc::channel();
    let (alive, until) = mpsc::channel::<()>();
    let evd = evd.clone();
    thread::spawn(move || {
        // SAFETY: it always succeeds.
        name.send(unsafe { libc::pthread_self() }).unwrap();
        sender.send(evd.wait(None)).unwrap();
        drop(evd);
        let _ = until.recv();
    });
    (warpline_patience::within("the waiter to begin", || named.recv().unwrap()), result, alive)
}

#[test]
fn a_signal_handler_ends_a_wait() {
    install();
    let side = Side::new(policy());
    for evd in ways(&side) {
        let (thread, result, alive) = waiter(&evd);
        let mut ended = None;
        // A signal before it sleeps does not count.
        for _ in 0..HANG.as_millis() {
            // SAFETY: the thread lives until `alive` is dropped.
            assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
            ended = result.recv_timeout(Duration::from_millis(1)).ok();
            if ended.is_some() {
                break;
            }
        }
        assert!(matches!(ended, Some(Err(Error::Signal))), "{evd:?}: {ended:?}");
        drop(alive);
    }
}

/// A signal handler of the application runs in one of the application's threads.
#[test]
fn threads_of_the_library_take_no_signals() {
    let side = Side::new(policy());
    // This also starts the thread of the dispatchers.
    ways(&side)[2].fd().unwrap();
    let mut seen = BTreeSet::new();
    // A thread sets its name itself, a moment after it began.
    warpline_patience::until("three threads of the library", || {
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let file = |name| std::fs::read_to_string(task.as_ref().unwrap().path().join(name));
            // A thread of another test may end meanwhile.
            let (Ok(name), Ok(status)) = (file("comm"), file("status")) else { continue };
            let name = name.trim().to_owned();
            if name.starts_with("softrdma") || name.starts_with("warpline-") {
                let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
                let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
                assert_ne!(blocked >> (libc::SIGUSR2 - 1) & 1, 0, "{name}");
                seen.insert(name);
            }
        }
        seen.len() >= 3
    });
}

/// A waiter may be asleep by then, or begin its wait afterwards; the test does not determine which.
#[test]
fn an_abort_ends_present_and_later_waits_and_closing_waits_for_nobody() {
    let side = Side::new(policy());
    for evd in ways(&side) {
        let waiters = [waiter(&evd), waiter(&evd)];
        evd.abort();
        evd.close().unwrap();
        for (_, result, _alive) in waiters {
            let ended = result.recv_timeout(HANG).unwrap();
            assert!(matches!(ended, Err(Error::Aborted)), "{evd:?}: {ended:?}");
        }
        assert!(matches!(evd.wait(None), Err(Error::Aborted)));
        assert!(matches!(evd.wait_ready(None), Err(Error::Aborted)));
        assert!(matches!(evd.close(), Err(Error::Closed(_))));
    }
}

/// The abort alone ends waits, without closing anything.
#[test]
fn an_abort_ends_a_wait_without_a_close() {
    let side = Side::new(policy());
    for evd in ways(&side) {
        let (_, result, _alive) = waiter(&evd);
        evd.abort();
        let ended = result.recv_timeout(HANG).unwrap();
        assert!(matches!(ended, Err(Error::Aborted)), "{evd:?}: {ended:?}");
    }
}

#[test]
fn an_interrupt_ends_a_wait_and_the_next_one_goes_on() {
    let side = Side::new(policy());
    for evd in ways(&side) {
        let (_, result, _alive) = waiter(&evd);
        // Interrupts count only for waits that have begun, so repeat until it has.
        let bound = warpline_patience::Bound::new("the wait to be interrupted");
        let ended = loop {
            bound.check();
            evd.interrupt();
            if let Ok(ended) = result.recv_timeout(Duration::from_millis(1)) {
                break ended;
            }
        };
        assert!(matches!(ended, Err(Error::Interrupted)), "{evd:?}: {ended:?}");
        let short = Some(Duration::from_millis(1));
        assert!(matches!(evd.wait(short), Err(Error::Timeout(_))));
    }
}
