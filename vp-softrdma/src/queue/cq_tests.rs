//! Tests of a CQ: deferred posts are transmitted when their consumer finds completions at every poll,
//! finds none, or arms; what a wait and the destruction of a CQ leave behind.

use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use vp_api::{Cq, CqId, Data, Qp, QpId, Remote, SendFlags, SendOp, SendWr, Sge, WorkCompletion};

use super::{CqRing, DeferredActions, SoftCq, WakeActions};
use warpline_patience::until;

use crate::engine::Waited;
use crate::parts::CqParts;
use crate::sync::{Ordering, lock};
use crate::testing::end::{End, is_ready, pair};
use crate::tuning::{DIRECT_QPS, FLUSH_EVERY, RENEWALS, SERVE_ALL_EVERY};

/// An end whose CQ has this many other QPs, and its peer. A post of the end is deferred, because the completion of
/// the one before it has not been polled.
fn holding(others: usize) -> (End, End) {
    let (end, peer) = pair(64);
    for id in 0..others as u32 {
        end.cq.add_qp(QpId(100 + id), Weak::new()).unwrap();
    }
    assert!(lock(&end.cq.deferring).capacity() > others, "a post allocates nothing");
    let noted = || lock(&end.cq.deferring).len();
    post(&end, 0);
    assert_eq!(noted(), 0, "the first goes at once");
    post(&end, 1);
    assert_eq!(end.sends(), 1, "the second is deferred");
    assert_eq!(noted(), usize::from(others >= DIRECT_QPS));
    (end, peer)
}

fn post(end: &End, wr_id: u64) {
    let op = SendOp::Immediate { data: 7, solicited: false };
    let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
    end.qp.post_send(&[SendWr { wr_id, op, data, flags }]).expect("room");
}

/// Polls this many times, and finds a completion each time.
fn poll_and_find(end: &End, times: u32) {
    for _ in 0..times {
        let mut left = DeferredActions::default();
        end.cq.push(&WorkCompletion::BLANK, &mut left);
        end.cq.run_deferred(left);
        assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Ok(1));
    }
}

#[test]
fn a_consumer_of_many_qps_transmits_while_it_finds_completions() {
    let (end, _peer) = holding(DIRECT_QPS);
    poll_and_find(&end, FLUSH_EVERY - 1);
    assert_eq!(end.sends(), 1);
    poll_and_find(&end, 1);
    assert_eq!(end.sends(), 2);
}

/// A QP with deferred posts is listed once.
#[test]
fn a_qp_with_deferred_posts_is_listed_once() {
    let (end, _peer) = holding(DIRECT_QPS);
    (2..6).for_each(|wr_id| post(&end, wr_id));
    assert_eq!((end.sends(), lock(&end.cq.deferring).len()), (1, 1));
}

#[test]
fn a_consumer_of_few_qps_transmits_when_it_finds_none() {
    let (end, _peer) = holding(DIRECT_QPS - 1);
    poll_and_find(&end, 2 * FLUSH_EVERY);
    assert_eq!(end.sends(), 1);
    while end.cq.poll(&mut [WorkCompletion::BLANK]) != Ok(0) {}
    assert_eq!(end.sends(), 2);
}

#[test]
fn whether_there_are_many_follows_the_qps_that_leave() {
    let (end, _peer) = holding(DIRECT_QPS + 1);
    end.cq.remove_qp(QpId(100));
    poll_and_find(&end, FLUSH_EVERY);
    assert_eq!(end.sends(), 2, "there are many still");
    end.cq.remove_qp(QpId(101));
    post(&end, 2);
    post(&end, 3);
    let sent = end.sends();
    poll_and_find(&end, 2 * FLUSH_EVERY);
    assert_eq!(end.sends(), sent, "there are few now");
}

/// From then on a poll leaves the sockets to the engine, and still transmits.
#[test]
fn arming_transmits_and_so_does_the_next_poll() {
    for others in [DIRECT_QPS, DIRECT_QPS - 1] {
        let (end, _peer) = holding(others);
        end.cq.arm(false).unwrap();
        assert_eq!(end.sends(), 2, "{others} others");
        assert!(!end.cq.defers.load(Ordering::Relaxed), "nothing is deferred any more");
        // By the clock, the connection is busy.
        post(&end, 2);
        assert_eq!(end.sends(), 2, "deferred again");
        while end.cq.poll(&mut [WorkCompletion::BLANK]) != Ok(0) {}
        assert_eq!(end.sends(), 3, "{others} others");
    }
}

/// The engine's thread may back off again.
#[test]
fn a_queue_that_is_destroyed_relies_on_no_notifications() {
    let (end, _peer) = pair(64);
    end.cq.arm(false).unwrap();
    assert!(end.engine.has_events());
    // A second call changes nothing.
    for _ in 0..2 {
        end.cq.destroy();
        assert!(!end.engine.has_events());
    }
}

#[test]
fn nobody_is_woken_after_a_wait() {
    let (end, _peer) = pair(64);
    assert_eq!(end.cq.wait(Duration::ZERO, Some(Duration::ZERO)), Ok(false));
    assert_eq!(end.cq.wait(Duration::ZERO, Some(Duration::from_nanos(1))), Ok(false));
    let quiet = WakeActions { notify: 0, wake: false };
    assert_eq!(end.cq.ring.push(&WorkCompletion::BLANK), Ok(quiet));
}

/// Otherwise it would also wake threads that sleep for another CQ.
#[test]
fn sleepers_know_a_cq_by_its_own_id() {
    let end = End::new(64);
    assert_eq!(Waited::id(&*end.cq), Cq::id(&*end.cq).0);
}

/// Polls another CQ of its RNIC, which has no QPs, until the end has sent once more. Its work has already
/// arrived.
fn polls_of_another_cq(other: &SoftCq, end: &End) -> u32 {
    let before = end.sends();
    let serves = |_: &u32| {
        assert_eq!(other.poll(&mut [WorkCompletion::BLANK]), Ok(0));
        end.sends() > before
    };
    (1..).find(serves).unwrap()
}

#[test]
fn a_program_that_polls_one_cq_serves_the_peers_of_others() {
    let (reader, source) = pair(64);
    let (ring, engine) = (CqRing::new(16).unwrap(), source.engine.clone());
    let events = Arc::default();
    let other = SoftCq::create(CqParts { id: CqId(6), ring, handler: None, events, engine });
    let read = || {
        reader.request(&source);
        let polls = polls_of_another_cq(&other, &source);
        until("the response", || reader.completed());
        polls
    };
    assert!(read() <= SERVE_ALL_EVERY);
    assert_eq!([read(), read()], [1, 1], "after work, each poll looks for more");
}

/// Octets that arrive before each check restart the spin, but not beyond the deadline.
#[test]
fn a_deadline_ends_a_spin_while_the_peer_writes() {
    let (peer, end) = pair(64); // the initiator sends first
    let stream = end.qp.inside(|inner, _| inner.link.as_ref().expect("connected").stream.sockets());
    let source = [Sge { stag: peer.stag, to: peer.buffer.addr(), len: 8 }];
    let remote = Remote { stag: end.stag, to: end.buffer.addr() };
    let write = || {
        let (op, flags) = (SendOp::Write { remote }, SendFlags::SIGNALED);
        let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&source), flags };
        peer.qp.post_send(&[wr]).expect("room");
        until("the write to be sent", || peer.completed());
        until("the write to arrive", || is_ready(&stream, PollFlags::IN));
    };
    let (checks, enough) = (Cell::new(0), RENEWALS / 2);
    let done = || {
        write();
        checks.set(checks.get() + 1);
        checks.get() == enough
    };
    let (long, passed) = (Duration::from_secs(3600), Instant::now());
    assert!(!end.cq.spin_before_sleep(long, Some(passed), done), "{} checks", checks.get());
    assert!(end.cq.spin_before_sleep(long, None, done), "without a deadline it goes on");
}
