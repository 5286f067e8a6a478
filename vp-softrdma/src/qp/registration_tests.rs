//! Tests of registration: a socket leaves the engine's epoll set while it is polled without pause, and
//! is always watched by a thread. The engine never waits for a thread inside a QP.

use std::time::Duration;

use rustix::event::PollFlags;
use vp_api::{AsyncEvent, Cq, Qp, WorkCompletion};
use warpline_patience::{Bound, HANG, until, within};

use crate::engine::{Member, Timer};
use crate::qp::Polled;
use crate::testing::end::{End, is_ready, pair};
use crate::tuning::{EVENT_MODE_POLLS, LAZY_NS, OFTEN};

/// A wait that polls once and does not sleep.
fn looks_once(end: &End) {
    let wait = || end.cq.wait(Duration::ZERO, Some(Duration::ZERO));
    within("a wait without time to end", wait).unwrap();
}

/// An end that reads, and one whose socket is unregistered and has not been polled since.
fn unregistered(octets: usize) -> (End, End) {
    let (reader, source) = pair(octets);
    source.engine.end_back_off(true, &mut Vec::new());
    (0..OFTEN).for_each(|_| _ = source.qp.poll());
    reader.request(&source);
    source.engine.poll();
    assert_eq!(source.sends(), 0, "the socket is in the set");
    (reader, source)
}

/// Only the epoll set can cause the Read to be served.
fn is_served((reader, source): (End, End)) {
    let bound = Bound::new("the engine to serve the read");
    while !reader.completed() {
        bound.check();
        source.engine.poll();
        reader.engine.poll();
    }
}

#[test]
fn a_socket_that_is_no_longer_polled_is_registered_again() {
    let ends = unregistered(64);
    // It was polled during the back-off that ends now.
    ends.1.engine.end_back_off(true, &mut Vec::new());
    ends.1.engine.poll();
    assert_eq!(ends.1.sends(), 0);
    ends.1.engine.end_back_off(true, &mut Vec::new());
    is_served(ends);
}

#[test]
fn an_engine_that_does_not_back_off_watches_all() {
    let ends = unregistered(64);
    ends.1.engine.end_back_off(false, &mut Vec::new());
    is_served(ends);
    // And none is removed meanwhile.
    let (reader, source) = pair(64);
    source.engine.end_back_off(false, &mut Vec::new());
    (0..OFTEN).for_each(|_| _ = source.qp.poll());
    reader.read(&source);
    is_served((reader, source));
}

#[test]
fn sleeping_or_arming_makes_the_engine_watch() {
    let ends = unregistered(64);
    looks_once(&ends.1);
    is_served(ends);
    let ends = unregistered(64);
    ends.1.cq.arm(false).unwrap();
    is_served(ends);
}

#[test]
fn after_an_arm_a_poll_leaves_the_socket_to_the_engine() {
    let (reader, source) = pair(64);
    let poll = || source.cq.poll(&mut [WorkCompletion::BLANK]);
    source.cq.arm(false).unwrap();
    reader.request(&source);
    assert_eq!(poll(), Ok(0));
    assert_eq!(source.sends(), 0);
    source.engine.poll();
    assert_eq!(source.sends(), 1);
    // Each arm begins event mode again; after polls without an arm the consumer serves the sockets.
    source.cq.arm(false).unwrap();
    reader.request(&source);
    (1..EVENT_MODE_POLLS).for_each(|_| assert_eq!(poll(), Ok(0)));
    assert_eq!(source.sends(), 1);
    assert_eq!(poll(), Ok(0));
    assert_eq!(source.sends(), 2);
}

/// A stream whose socket cannot be registered again ends with an event; otherwise it would wait for
/// ever.
#[test]
fn a_socket_that_cannot_be_registered_again_ends_its_stream() {
    let (reader, source) = unregistered(64);
    // Adding fails because the socket is in the set.
    let stream = source.qp.inner.lock().link.as_ref().expect("connected").stream.sockets();
    source.engine.attach(99, source.qp.clone(), &*stream).expect("a second place in the set");
    looks_once(&source);
    let info = source.qp.query().expect("a QP");
    assert!(matches!(info.ended, Some(AsyncEvent::TerminateSent(_))), "{info:?}");
    let bound = Bound::new("the peer to receive the end");
    while reader.qp.query().expect("a QP").ended.is_none() {
        bound.check();
        reader.engine.poll();
        reader.qp.poll();
    }
}

/// Only the epoll set reports room to send.
#[test]
fn a_sender_without_room_is_registered() {
    let (reader, source) = unregistered(16 << 20);
    let bound = Bound::new("the read to be served through a full socket");
    while source.sends() == 0 {
        bound.check();
        source.qp.poll();
    }
    while !reader.completed() {
        bound.check();
        source.engine.poll();
        reader.engine.poll();
    }
}

#[test]
fn a_sender_without_room_stays_registered_however_often_it_is_polled() {
    let (reader, source) = pair(16 << 20);
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll() == Polled::Stalled);
    source.engine.end_back_off(true, &mut Vec::new());
    (0..2 * OFTEN).for_each(|_| _ = source.qp.poll());
    is_served((reader, source));
}

/// Only polls within one back-off count.
#[test]
fn occasional_polls_leave_the_socket_registered() {
    let (reader, source) = pair(64);
    for _ in 0..4 {
        source.engine.end_back_off(true, &mut Vec::new());
        (1..OFTEN).for_each(|_| _ = source.qp.poll());
    }
    reader.read(&source);
    is_served((reader, source));
}

/// An engine that waited would hang this test, which holds the lock itself; so would a poll in the next test.
#[test]
fn a_thread_that_holds_the_lock_checks_the_socket_for_the_engine() {
    let (_reader, source) = unregistered(64);
    let inside = source.qp.inner.lock();
    within("the engine, which must not wait for a thread that is inside", || {
        source.engine.end_back_off(true, &mut Vec::new());
    });
    source.qp.unlock_and_serve(inside);
    assert_eq!(source.sends(), 1, "the read is served before the thread leaves");
}

#[test]
fn a_check_that_finds_a_thread_inside_is_repeated() {
    let (end, _peer) = pair(64);
    let inside = end.qp.inner.lock();
    let stream = inside.link.as_ref().expect("connected").generation;
    within("a poll, which must not wait for a thread that is inside", || {
        end.qp.on_timer(stream, Timer::Coalesce);
    });
    let before = end.engine.now();
    end.qp.unlock_and_serve(inside);
    let due = |at| at <= before + 2 * LAZY_NS;
    assert!(end.engine.next_timer().is_some_and(due), "{:?}", end.engine.next_timer());
}

/// A QP that waits for room is served at the next poll of the CQ, not only once in many polls.
#[test]
fn a_poll_notices_room_to_send() {
    let (reader, source) = pair(16 << 20);
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll() == Polled::Stalled);
    let stream = source.qp.inner.lock().link.as_ref().expect("connected").stream.sockets();
    until("room to send", || {
        reader.qp.poll();
        is_ready(&stream, PollFlags::OUT)
    });
    let before = source.sends();
    assert_eq!(source.cq.poll(&mut [WorkCompletion::BLANK]), Ok(0));
    assert!(source.sends() > before);
}

/// A wait that spins finds completions without the epoll set.
#[test]
fn a_wait_that_spins_leaves_the_socket_unregistered() {
    let (reader, source) = pair(64);
    reader.engine.end_back_off(true, &mut Vec::new());
    (0..OFTEN).for_each(|_| _ = reader.qp.poll());
    reader.read(&source);
    until("the source to send the response", || {
        source.qp.poll();
        source.sends() == 1
    });
    let spins = || reader.cq.wait(HANG, None);
    assert_eq!(within("a wait that spins to find the response", spins), Ok(true));
    assert!(reader.qp.stays_unregistered(Some(reader.engine.back_off())));
}
