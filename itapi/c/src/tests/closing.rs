//! Tests of freeing an adapter in use: waiters, pollers, callbacks, posting threads, connections.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::dequeue::*;
use crate::evd::*;
use crate::ptr::Plain;
use std_abi::it_event_t;

fn dispatcher(ia: it_ia_handle_t, stream: it_event_type_t) -> it_evd_handle_t {
    let mut evd = null_mut();
    // SAFETY: room for a handle; no descriptor is asked for.
    let made = unsafe { it_evd_create(ia, stream, 0, 8, 1, null_mut(), &raw mut evd, null_mut()) };
    assert_eq!(made, IT_SUCCESS);
    evd
}

/// Handles as numbers, for threads.
fn shared<T>(handle: *mut T) -> usize {
    handle.addr()
}

fn again<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}

// [it_ia_free]
#[test]
fn waiters_of_every_stream_return_when_the_adapter_is_freed() {
    const STREAMS: [it_event_type_t; 7] = [
        IT_DTO_EVENT_STREAM,
        IT_CM_REQ_EVENT_STREAM,
        IT_CM_MSG_EVENT_STREAM,
        IT_ASYNC_AFF_EVENT_STREAM,
        IT_ASYNC_UNAFF_EVENT_STREAM,
        IT_SOFTWARE_EVENT_STREAM,
        IT_AEVD_NOTIFICATION_EVENT_STREAM,
    ];
    let ia = Adapter::new();
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let wait = |stream| {
            let evd = shared(dispatcher(ia.0, stream));
            let inside = &inside;
            scope.spawn(move || {
                let mut event = it_event_t::zeroed();
                inside.fetch_add(1, Ordering::SeqCst);
                // SAFETY: room for an event.
                unsafe { it_evd_wait(again(evd), IT_TIMEOUT_INFINITE, &raw mut event, null_mut()) }
            })
        };
        let waiters = STREAMS.map(wait);
        let _guard = warpline_patience::Guard::new("a waiter on each stream to begin and to end");
        while inside.load(Ordering::SeqCst) < STREAMS.len() as u32 {
            std::thread::yield_now();
        }
        assert_eq!(it_ia_free(ia.0), IT_SUCCESS);
        // One that was not yet inside finds no dispatcher any more.
        let sent_away = |status| [IT_ERR_ABORT, IT_ERR_INVALID_EVD].contains(&status);
        assert!(waiters.into_iter().all(|waiter| sent_away(waiter.join().unwrap())));
    });
}

// [it_ia_free]
#[test]
fn callers_in_the_middle_of_anything_get_a_status() {
    for _ in 0..20 {
        let ia = Adapter::new();
        let evd = dispatcher(ia.0, IT_SOFTWARE_EVENT_STREAM);
        let (adapter, evd) = (shared(ia.0), shared(evd));
        let begun = AtomicU32::new(0);
        let _guard = warpline_patience::Guard::new("three callers to begin and to be refused");
        std::thread::scope(|scope| {
            for n in 0..3 {
                let begun = &begun;
                scope.spawn(move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    while busy(n, again(adapter), again(evd)) {}
                });
            }
            while begun.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            assert_eq!(it_ia_free(ia.0), IT_SUCCESS);
        });
    }
}

/// Makes, uses and forgets things; false: the adapter is gone.
fn busy(what: u32, ia: it_ia_handle_t, evd: it_evd_handle_t) -> bool {
    let mut pz = null_mut();
    let mut event = it_event_t::zeroed();
    let status = match what {
        // SAFETY: room for a handle.
        0 => unsafe { it_pz_create(ia, &raw mut pz) },
        1 => it_evd_post_se(evd, null()),
        // SAFETY: room for an event.
        _ => unsafe { it_evd_dequeue(evd, &raw mut event) },
    };
    match status {
        IT_SUCCESS | IT_ERR_QUEUE_EMPTY | IT_ERR_EVD_QUEUE_FULL => true,
        IT_ERR_INVALID_IA | IT_ERR_INVALID_EVD | IT_ERR_ABORT => false,
        other => panic!("status {other} of call {what}"),
    }
}

static FREED: AtomicU32 = AtomicU32::new(u32::MAX);

/// Frees the adapter that `arg` is.
unsafe extern "C" fn free(_evd: it_evd_handle_t, arg: *mut c_void) {
    FREED.store(it_ia_free(arg.cast()), Ordering::SeqCst);
}

// [it_ia_free] [it_evd_callback_attach]
#[test]
fn a_callback_may_free_its_adapter() {
    let ia = Adapter::new();
    let evd = dispatcher(ia.0, IT_SOFTWARE_EVENT_STREAM);
    // SAFETY: the function may be called with the adapter from anywhere.
    let attached = unsafe { it_evd_callback_attach(evd, Some(free), ia.0.cast()) };
    assert_eq!(attached, IT_SUCCESS);
    assert_eq!(it_evd_post_se(evd, null()), IT_SUCCESS);
    warpline_patience::until("the adapter to be freed", || {
        FREED.load(Ordering::SeqCst) != u32::MAX
    });
    assert_eq!(FREED.load(Ordering::SeqCst), IT_SUCCESS);
    assert_eq!(it_evd_free(evd), IT_ERR_INVALID_EVD);
}

extern "C" fn ignore(_: libc::c_int) {}

// [it_evd_wait]
#[test]
fn a_signal_ends_a_wait() {
    let ia = Adapter::new();
    for stream in [IT_SOFTWARE_EVENT_STREAM, IT_DTO_EVENT_STREAM] {
        let evd = shared(dispatcher(ia.0, stream));
        // SAFETY: all octets 0 is a disposition.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
        // SAFETY: a handler that does nothing.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, null_mut()) }, 0);
        let (sender, receiver) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            // SAFETY: a question.
            sender.send(unsafe { libc::pthread_self() } as usize).unwrap();
            let mut event = it_event_t::zeroed();
            // SAFETY: room for an event.
            unsafe { it_evd_wait(again(evd), IT_TIMEOUT_INFINITE, &raw mut event, null_mut()) }
        });
        let _guard = warpline_patience::Guard::new("the wait to begin, and to end by signals");
        let thread = receiver.recv().unwrap();
        while !waiter.is_finished() {
            // SAFETY: the thread has not been joined, so its name is still its own.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGUSR2) };
            std::thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), IT_ERR_INTERRUPT);
    }
}
