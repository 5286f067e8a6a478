//! Test of fork in a process with threads: each child opens a device of its own, whatever lock another
//! thread held.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ofa::verbs::device::*;
use warpline_patience::HANG;

use crate::lab::open;

/// Whether a child lists, opens and closes a device without error; it is killed when it takes too long.
fn child_succeeds() -> bool {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let closed = unsafe { warpline_ibv_close_device(open()) };
        unsafe { libc::_exit(closed) };
    }
    assert!(child > 0);
    let (begun, mut status) = (Instant::now(), 0);
    while unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == 0 {
        if begun.elapsed() > HANG {
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        std::thread::yield_now();
    }
    status == 0
}

/// Forks while another thread opens and closes devices.
fn open_and_fork() {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert_eq!(unsafe { warpline_ibv_close_device(open()) }, 0);
            }
        });
        let failed = (0..50).find(|_| !child_succeeds());
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "the number of a child that failed, or never ended");
    });
}

#[test]
fn a_child_opens_a_device_whatever_the_parents_threads_did() {
    open_and_fork();
}

#[test]
fn a_child_opens_a_device_of_roce() {
    const ROCE: (&str, &str) = ("WARPLINE_VERBS_ROCE", "1");
    if std::env::var_os(ROCE.0).is_some_and(|value| value == ROCE.1) {
        return open_and_fork();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "fork::a_child_opens_a_device_of_roce", "--nocapture"]).envs([ROCE]);
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
