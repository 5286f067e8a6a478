//! Signals: a wait ends when a signal handler ran in its thread, and other waits continue.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use common::*;
use vp_api::*;

extern "C" fn handler(_: libc::c_int) {}

/// Installs a handler with `SA_RESTART`, which restarts many system calls.
fn install() {
    // SAFETY: all zeros is a valid `sigaction`: no flags, nothing masked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the action is initialised, and the handler does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
}

/// A thread in `Cq::wait`.
struct Waiter<'s> {
    thread: libc::pthread_t,
    result: mpsc::Receiver<Result<bool, VpStatus>>,
    /// Dropped when the thread is no longer signalled.
    alive: mpsc::Sender<()>,
    _scope: std::marker::PhantomData<&'s ()>,
}

impl<'s> Waiter<'s> {
    fn start<'e>(scope: &'s std::thread::Scope<'s, 'e>, cq: &'s dyn Cq) -> Self {
        let (sender, result) = mpsc::channel();
        let (alive, until) = mpsc::channel::<()>();
        let (name, named) = mpsc::channel();
        scope.spawn(move || {
            // SAFETY: it always succeeds.
            name.send((unsafe { libc::pthread_self() }, rustix::thread::gettid())).unwrap();
            sender.send(cq.wait(Duration::ZERO, None)).unwrap();
            let _ = until.recv();
        });
        let (thread, id) =
            warpline_patience::within("the waiter to begin", || named.recv().unwrap());
        let stat = format!("/proc/self/task/{}/stat", id.as_raw_nonzero());
        // It sleeps, most likely in its wait; the order decides which thread leads.
        warpline_patience::until("the waiter to sleep", || {
            std::fs::read_to_string(&stat).unwrap().contains(") S ")
        });
        Self { thread, result, alive, _scope: std::marker::PhantomData }
    }

    /// Signals it until it returns: a signal before it sleeps does not count.
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
    let _guard = warpline_patience::Guard::new("waits to end by signals");
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
    // Leader and followers work as before.
    near.recv(1, &[]);
    far.post(2, SEND, &[]);
    near.done(1);
    far.done(2);
}

static BROKEN_PIPES: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    BROKEN_PIPES.fetch_add(1, Ordering::Relaxed);
}

// This would end a C program that does not expect it.
#[test]
fn sending_on_a_broken_stream_raises_no_signal() {
    // SAFETY: as in `install`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    // SAFETY: the action is initialised, and the handler counts in an atomic.
    assert_eq!(unsafe { libc::sigaction(libc::SIGPIPE, &action, std::ptr::null_mut()) }, 0);
    for len in [8, 64 << 10] {
        let near = End::new(|_| {});
        let source = near.region(Buffer::new(len));
        let (socket, _peer) = sockets();
        let broken = socket.try_clone().unwrap();
        let mut params = StreamParams::new(Role::Initiator);
        (params.crc, params.kick_after) = (false, None);
        near.rts(socket, params);
        assert_eq!(near.event(), AsyncEvent::Established);
        broken.shutdown(std::net::Shutdown::Write).unwrap();
        near.post(1, SEND, &[source.all()]);
        assert_ne!(near.complete().status, WcStatus::Success, "{len}");
    }
    assert_eq!(BROKEN_PIPES.load(Ordering::Relaxed), 0);
}

// A thread that was not signalled becomes the leader, and serves the sockets.
#[test]
fn others_go_on_waiting() {
    install();
    let _guard = warpline_patience::Guard::new("waits to end by signals");
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
