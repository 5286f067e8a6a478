//! A thread that waits for an event in a call, and signals that arrive meanwhile (sigaction(2)).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use warpline_patience::until;

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Handles SIGUSR1.
fn install(flags: i32) {
    // SAFETY: zeroes are a value of every field.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: a handler that counts.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()) }, 0);
}

/// A thread in the call, and the future result: 0 or an error number.
fn waiter(call: impl FnOnce() -> i32 + Send + 'static) -> (libc::pthread_t, Receiver<i32>) {
    let (sender, receiver) = channel();
    let (end, ended) = channel();
    std::thread::spawn(move || {
        // SAFETY: no preconditions.
        sender.send(unsafe { libc::pthread_self() }).unwrap();
        // There is no receiver any more if the test has failed.
        let _ = end.send(call());
        // The thread stays alive, so that it can be signalled in any case.
        std::thread::park();
    });
    (receiver.recv().unwrap(), ended)
}

fn signal(thread: libc::pthread_t) {
    let before = HANDLED.load(Ordering::SeqCst);
    // SAFETY: the thread never ends.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    until("a signal to be handled", || HANDLED.load(Ordering::SeqCst) != before);
}

/// A handler without SA_RESTART ends the call with EINTR; after one with SA_RESTART the call continues, until
/// `cause` causes an event.
pub(crate) fn ends_unless_restarted(
    wait: impl Fn() -> i32 + Clone + Send + 'static,
    cause: impl FnOnce(),
) {
    install(0);
    let (thread, ended) = waiter(wait.clone());
    let mut seen = None;
    // The first may arrive before the call.
    until("EINTR", || {
        signal(thread);
        seen = ended.try_recv().ok();
        seen.is_some()
    });
    assert_eq!(seen, Some(libc::EINTR));
    install(libc::SA_RESTART);
    let (thread, ended) = waiter(wait);
    (0..100).for_each(|_| signal(thread));
    assert!(ended.try_recv().is_err());
    cause();
    until("the event", || {
        seen = ended.try_recv().ok();
        seen.is_some()
    });
    assert_eq!(seen, Some(0));
}
