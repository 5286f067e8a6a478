//! Signals while a call waits for an event: a handler without SA_RESTART ends the call with EINTR, after one
//! with SA_RESTART it goes on (sigaction(2)).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};

use ibv_sys::*;
use ofa::verbs::channel::*;
use warpline_patience::until;

use crate::lab::*;

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn install(flags: i32) {
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = flags;
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, null_mut()) }, 0);
}

/// A thread that takes one event; its identifier, and what it will have seen: 0 or an error number.
fn taker(channel_: *mut ibv_comp_channel) -> (libc::pthread_t, Receiver<i32>) {
    let address = channel_.expose_provenance();
    let (tell, told) = channel();
    let (end, ended) = channel();
    std::thread::spawn(move || {
        tell.send(unsafe { libc::pthread_self() }).unwrap();
        let (mut cq, mut context) = (null_mut(), null_mut());
        let from = handle(address);
        let got = unsafe { warpline_ibv_get_cq_event(from, &mut cq, &mut context) };
        let seen = if got == 0 { 0 } else { errno() };
        // So that it is there to be signalled, whatever it has seen.
        let _ = end.send(seen);
        std::thread::park();
    });
    (told.recv().unwrap(), ended)
}

fn signal(thread: libc::pthread_t) {
    let before = HANDLED.load(Ordering::SeqCst);
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR1) }, 0);
    until("a signal to be handled", || HANDLED.load(Ordering::SeqCst) != before);
}

#[test]
fn a_handler_ends_a_wait_unless_calls_restart() {
    let lab = Lab::new();
    install(0);
    let (thread, ended) = taker(lab.channel);
    let mut seen = None;
    // The first may come before the call.
    until("EINTR", || {
        signal(thread);
        seen = ended.try_recv().ok();
        seen.is_some()
    });
    assert_eq!(seen, Some(libc::EINTR));

    install(libc::SA_RESTART);
    let (thread, ended) = taker(lab.channel);
    (0..100).for_each(|_| signal(thread));
    assert!(ended.try_recv().is_err());
    assert_eq!(unsafe { lab.ops().req_notify_cq.unwrap()(lab.cq, 0) }, 0);
    let other = Lab::new();
    let (a, b) = pair(&other, &lab);
    assert_eq!(lab.recv(b, 1, &mut lab.sge(0, 64)), 0);
    assert_eq!(other.send(a, &mut wr(2, IBV_WR_SEND, &mut other.sge(0, 8))), 0);
    until("the event", || match ended.try_recv() {
        Ok(seen) => {
            assert_eq!(seen, 0);
            true
        }
        Err(_) => false,
    });
    unsafe { warpline_ibv_ack_cq_events(lab.cq, 1) };
    lab.success(1);
    other.success(2);
    destroy(a);
    destroy(b);
}
