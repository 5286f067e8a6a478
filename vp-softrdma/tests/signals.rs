//! Signals: a wait ends when a signal handler ran in its thread, and no other wait does.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::mpsc;
use std::time::Duration;

use common::*;
use vp_api::*;

extern "C" fn handler(_: libc::c_int) {}

/// Installs a handler with `SA_RESTART`, which makes many system calls go on behind it.
fn install() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, nothing masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is whole, and the handler does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
}

/// A thread in `Cq::wait`.
struct Waiter<'s> {
    thread: libc::pthread_t,
    result: mpsc::Receiver<Result<bool, VpStatus>>,
    /// Dropped when nobody signals the thread any more.
    alive: mpsc::Sender<()>,
    _scope: std::marker::PhantomData<&'s ()>,
}

impl<'s> Waiter<'s> {
    fn start<'e>(scope: &'s std::thread::Scope<'s, 'e>, cq: &'s dyn Cq) -> Self {
        let (tell, result) = mpsc::channel();
        let (alive, until) = mpsc::channel::<()>();
        let (name, named) = mpsc::channel();
        scope.spawn(move || {
            // SAFETY: it always succeeds.
            name.send((unsafe { libc::pthread_self() }, rustix::thread::gettid())).unwrap();
            tell.send(cq.wait(Duration::ZERO, None)).unwrap();
            let _ = until.recv();
        });
        let (thread, id) = named.recv().unwrap();
        let stat = format!("/proc/self/task/{}/stat", id.as_raw_nonzero());
        // It sleeps, most likely where it should; the order decides who leads.
        while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
        Self { thread, result, alive, _scope: std::marker::PhantomData }
    }

    /// Signals it until it is back: a signal before it sleeps does not count.
    fn signal(self) -> Result<bool, VpStatus> {
        for _ in 0..HANG.as_millis() {
            // SAFETY: the thread lives until `alive` is dropped.
            assert_eq!(unsafe { libc::pthread_kill(self.thread, libc::SIGUSR1) }, 0);
            if let Ok(result) = self.result.recv_timeout(Duration::from_millis(1)) {
                drop(self.alive);
                return result;
            }
        }
        panic!("signals do not end the wait");
    }
}

#[test]
fn leader_and_followers_are_interrupted() {
    install();
    let (near, far) = pair(&Setup::default());
    let other = near.rnic.create_cq(&CqInit { depth: 4, handler: None }).unwrap();
    for first in 0..3 {
        std::thread::scope(|scope| {
            let mut waiters = [&*near.cq, &*other, &*near.cq].map(|cq| Waiter::start(scope, cq));
            waiters.rotate_left(first);
            for waiter in waiters {
                assert_eq!(waiter.signal(), Err(VpStatus::Interrupted));
            }
        });
    }
    // The station works as before.
    near.recv(1, &[]);
    far.post(2, SEND, &[]);
    near.done(1);
    far.done(2);
}

// The lead goes on to a thread that was not signalled, and which serves the sockets.
#[test]
fn others_go_on_waiting() {
    install();
    let (near, far) = pair(&Setup::default());
    for round in 0..20 {
        near.recv(round, &[]);
        std::thread::scope(|scope| {
            let [first, second] = [(); 2].map(|()| Waiter::start(scope, &*near.cq));
            assert_eq!(first.signal(), Err(VpStatus::Interrupted));
            assert!(second.result.try_recv().is_err());
            far.post(round, SEND, &[]);
            assert_eq!(second.result.recv_timeout(HANG).unwrap(), Ok(true));
            drop(second);
        });
        near.done(round);
        far.done(round);
    }
}
