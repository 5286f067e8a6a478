//! Tests of completions that go to the poller past the ring of the CQ.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::PollFlags;
use vp_api::{Cq, Data, Qp, QpChange, RecvWr, SendFlags, SendOp, SendWr, WorkCompletion};
use warpline_patience::until;

use super::DeferredActions;
use crate::testing::end::{End, connected, is_ready, pair};

fn post_recv(end: &End, wr_id: u64) {
    end.qp.post_recv(&[RecvWr { wr_id, sgl: &[] }]).expect("room");
}

/// Sends immediate data, `N` messages at once, and polls until they have completed.
fn send<const N: usize>(end: &End, data: [u64; N]) {
    let wrs = data.map(|data| {
        let op = SendOp::Immediate { data, solicited: false };
        SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED }
    });
    end.qp.post_send(&wrs).expect("room");
    (0..N).for_each(|_| until("a message to be sent", || end.completed()));
}

/// Two ends. A message waits in the socket of the second, for receive 7.
fn arrived() -> (End, End) {
    arrive(pair(64))
}

fn arrive((near, far): (End, End)) -> (End, End) {
    post_recv(&far, 7);
    send(&near, [0]);
    let stream = far.qp.inside(|inner, _| inner.link.as_ref().expect("connected").stream.sockets());
    until("the message to arrive", || is_ready(&stream, PollFlags::IN));
    (near, far)
}

/// Serves the QP with room for one completion: the request that completed past the ring.
fn serve(end: &End) -> Option<u64> {
    let mut one = WorkCompletion::BLANK;
    end.qp.poll_into(Some(&mut one)).passed.then_some(one.wr_id)
}

fn pop(end: &End) -> Vec<u64> {
    let mut out = [WorkCompletion::BLANK; 4];
    let popped = end.cq.pop(&mut out);
    out[..popped].iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn a_receive_goes_to_the_poller_and_leaves_its_slot_at_once() {
    let (_near, far) = arrived();
    let mut one = [WorkCompletion::BLANK];
    assert_eq!((far.cq.poll(&mut one), one[0].wr_id), (Ok(1), 7));
    assert_eq!((far.cq.taken(), pop(&far)), (0, vec![]));
    assert_eq!(far.qp.inside(|inner, _| inner.core.queues.receive_slots()), 0);
}

#[test]
fn the_next_stream_of_a_queue_pair_passes_on_as_well() {
    let (near, far) = arrived();
    assert_eq!(serve(&far), Some(7));
    for end in [&near, &far] {
        end.qp.modify(QpChange::Error).unwrap();
        end.qp.modify(QpChange::Idle).unwrap();
    }
    let (_near, far) = arrive(connected((near, far)));
    assert_eq!((serve(&far), pop(&far)), (Some(7), vec![]));
}

#[test]
fn a_poller_without_room_loses_nothing() {
    let (_near, far) = arrived();
    assert_eq!(far.cq.poll(&mut []), Ok(0));
    assert_eq!(pop(&far), [7]);
}

#[test]
fn only_the_first_of_several_goes_past_the_ring() {
    let (near, far) = arrived();
    (8..10).for_each(|wr_id| post_recv(&far, wr_id));
    let stream =
        near.qp.inside(|inner, _| inner.link.as_ref().expect("connected").stream.sockets());
    send(&near, [0, 0]);
    until("all to arrive", || stream.is_delivered());
    let mut out = [WorkCompletion::BLANK; 4];
    assert_eq!(far.cq.poll(&mut out), Ok(3));
    assert_eq!(out.map(|wc| wc.wr_id), [7, 8, 9, 0]);
    assert_eq!(far.cq.taken(), 2);
}

/// It would overtake them.
#[test]
fn it_waits_behind_completions_that_were_not_polled() {
    let (_near, far) = arrived();
    let older = WorkCompletion { wr_id: 3, ..WorkCompletion::BLANK };
    far.cq.push(&older, &mut DeferredActions::default());
    assert_eq!((serve(&far), pop(&far)), (None, vec![3, 7]));
}

/// They must be notified.
#[test]
fn it_is_queued_for_consumers_that_armed_or_sleep() {
    let (_near, far) = arrived();
    far.cq.arm(true).unwrap();
    assert_eq!((serve(&far), pop(&far)), (None, vec![7]));
    let (_near, far) = arrived();
    far.cq.ring.enter_sleep();
    assert_eq!((serve(&far), pop(&far)), (None, vec![7]));
}

#[test]
fn nothing_follows_a_lost_completion() {
    let (_near, far) = arrived();
    let mut left = DeferredActions::default();
    while !left.overrun {
        far.cq.push(&WorkCompletion::BLANK, &mut left);
    }
    while !pop(&far).is_empty() {}
    assert_eq!((serve(&far), pop(&far)), (None, vec![]));
}

#[test]
fn flushed_receives_are_queued() {
    let (_near, far) = pair(64);
    post_recv(&far, 7);
    far.qp.modify(QpChange::Error).unwrap();
    assert_eq!((serve(&far), pop(&far)), (None, vec![7]));
}

/// Each thread gets its completions in the order of the messages, and together they get all. One sleeps when it
/// finds none.
#[test]
fn threads_that_poll_one_queue_get_the_completions_in_order() {
    const MESSAGES: u32 = 20_000;
    let (near, far) = pair(64);
    (0..8).for_each(|wr_id| post_recv(&far, wr_id));
    let (granted, got) = (AtomicU32::new(8), AtomicU32::new(0));
    let take = |sleeps: bool| {
        let (mut last, mut out) = (None, [WorkCompletion::BLANK; 3]);
        while got.load(Ordering::Relaxed) < MESSAGES {
            let found = far.cq.poll(&mut out).unwrap();
            if found == 0 && sleeps {
                far.cq.wait(Duration::ZERO, Some(Duration::from_millis(1))).unwrap();
            }
            for wc in &out[..found] {
                assert!(last < wc.immediate, "{:?} came after {last:?}", wc.immediate);
                last = wc.immediate;
                got.fetch_add(1, Ordering::Relaxed);
                post_recv(&far, wc.wr_id);
                granted.fetch_add(1, Ordering::Release);
            }
        }
    };
    std::thread::scope(|scope| {
        for sleeps in [true, false, false] {
            scope.spawn(move || take(sleeps));
        }
        for first in (0..MESSAGES).step_by(2) {
            until("two receives", || granted.load(Ordering::Acquire) > first + 1);
            send(&near, [first.into(), u64::from(first) + 1]);
        }
    });
    assert_eq!(got.load(Ordering::Relaxed), MESSAGES);
}
