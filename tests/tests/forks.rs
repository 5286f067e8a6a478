//! Tests of fork(2) in a process whose other threads use RDMA objects: a child makes objects of its own, whatever
//! lock another thread held when the parent forked.

#![allow(clippy::unwrap_used)] // a test fails loudly

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use itapi::{Config, Ia};
use vp_hooks::stats;
use warpline_patience::HANG;

/// Whether a child does its work; it is killed when it takes too long.
fn child_succeeds(work: impl FnOnce()) -> bool {
    // SAFETY: the child uses what the C library keeps whole for it, and what is tested here.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the child without what its parent had to do at its end.
        unsafe { libc::_exit(i32::from(done.is_err())) }
    }
    assert!(child > 0);
    let (begun, mut status) = (Instant::now(), 0);
    // SAFETY: a child of this process, and a number that may be written.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > HANG {
            // SAFETY: a child that has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::yield_now();
    }
    status == 0
}

/// Forks children that do their work, one after the other, while other threads are busy.
fn fork_beside(busy: impl Fn() + Sync, work: impl Fn()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    busy();
                }
            });
        }
        let failed = (0..300).find(|_| !child_succeeds(&work));
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the number of a child that failed, or never ended");
    });
}

#[test]
fn a_child_makes_dispatchers_of_its_own() {
    let ia = Ia::open().unwrap();
    fork_beside(|| drop(ia.evd(16).unwrap()), || drop(Ia::open().unwrap().evd(16).unwrap()));
}

#[test]
fn a_child_counts_verbs_of_its_own() {
    let counted = "[providers]\nwrap = [\"stats\"]\n";
    let open = || {
        let config = Config::parse(counted, Path::new("counted.toml")).unwrap();
        Ia::builder().config(config).open().unwrap()
    };
    let parent = open();
    fork_beside(
        || assert!(!stats::snapshots().is_empty()),
        || {
            assert!(stats::snapshots().is_empty());
            drop(open());
        },
    );
    drop(parent);
}
