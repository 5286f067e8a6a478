//! Tests of coalescing: when a post transmits.

use vp_api::{Data, Remote, SendFlags, SendOp, SendWr, Stag};

use super::{Coalesce, Then, TimerResult};
use crate::tuning::{BOUND_NS, FULL_OCTETS, LAZY_NS};

/// Depth of the send queue.
const DEPTH: u32 = 32;
/// A connection is idle this long after the last transmission.
const LATER: u64 = 1_000_000;

const REMOTE: Remote = Remote { stag: Stag(0x100), to: 0 };

fn wr(op: SendOp, flags: SendFlags) -> SendWr<'static> {
    SendWr { wr_id: 0, op, data: Data::Inline(&[0; 8]), flags }
}

/// Transmits the deferred posts.
fn transmit(coalesce: &mut Coalesce, now: u64) {
    coalesce.release();
    coalesce.transmitted(now);
}

/// Posts one small Write, and transmits it if that is due.
fn post_as(coalesce: &mut Coalesce, flags: SendFlags, reaped: bool, now: u64) -> Then {
    let before = coalesce.deferred();
    coalesce.add(&wr(SendOp::Write { remote: REMOTE }, flags));
    let then = coalesce.decide(before, DEPTH, reaped, || now);
    if then == Then::Transmit {
        transmit(coalesce, now);
    }
    then
}

fn post(coalesce: &mut Coalesce, reaped: bool, now: u64) -> Then {
    post_as(coalesce, SendFlags::SIGNALED, reaped, now)
}

fn defers(then: Then) -> bool {
    matches!(then, Then::Defer { .. })
}

#[test]
fn the_first_goes_at_once_and_the_next_waits_for_the_consumer() {
    let mut coalesce = Coalesce::default();
    assert_eq!(post(&mut coalesce, true, LATER), Then::Transmit);
    assert_eq!(
        post(&mut coalesce, false, LATER + 1),
        Then::Defer { check_at: Some(LATER + 1 + BOUND_NS) }
    );
    assert_eq!(post(&mut coalesce, false, LATER + 2), Then::Defer { check_at: None });
    assert_eq!(coalesce.deferred(), 2);
    // The consumer polls an empty CQ: deferred posts are transmitted, and the next one is deferred again.
    coalesce.attend();
    transmit(&mut coalesce, LATER + 3);
    assert!(defers(post(&mut coalesce, true, LATER + 4)));
}

#[test]
fn one_at_a_time_never_waits() {
    let mut coalesce = Coalesce::default();
    let mut now = LATER;
    for _ in 0..8 {
        // Its completion was polled before the next was posted.
        assert_eq!(post(&mut coalesce, true, now), Then::Transmit);
        now += 1;
    }
    for _ in 0..8 {
        // Without completions: the consumer polls an empty CQ, for a reply of the peer.
        coalesce.attend();
        assert_eq!(post_as(&mut coalesce, SendFlags::empty(), true, now), Then::Transmit);
        now += 1;
    }
    assert!(defers(post_as(&mut coalesce, SendFlags::empty(), true, now)));
}

#[test]
fn an_idle_connection_does_not_wait() {
    let mut coalesce = Coalesce::default();
    assert_eq!(post(&mut coalesce, true, LATER), Then::Transmit);
    assert_eq!(post(&mut coalesce, false, LATER + BOUND_NS), Then::Transmit);
}

#[test]
fn a_connection_is_not_idle_while_it_transmits() {
    let mut coalesce = Coalesce::default();
    let octets = vec![0; FULL_OCTETS as usize];
    let large = SendWr {
        data: Data::Inline(&octets),
        ..wr(SendOp::Write { remote: REMOTE }, SendFlags::SIGNALED)
    };
    coalesce.add(&large);
    assert_eq!(coalesce.decide(0, DEPTH, true, || LATER), Then::Transmit);
    transmit(&mut coalesce, LATER);
    let done = LATER + 2 * BOUND_NS;
    coalesce.transmitted(done);
    assert!(defers(post(&mut coalesce, false, done)));
    assert_eq!(post(&mut coalesce, false, done + BOUND_NS), Then::Transmit);
}

#[test]
fn deferred_posts_are_sent_when_many_old_or_urgent() {
    let busy = || {
        let mut coalesce = Coalesce::default();
        assert_eq!(post(&mut coalesce, true, LATER), Then::Transmit);
        assert!(defers(post(&mut coalesce, false, LATER)));
        coalesce
    };
    let mut coalesce = busy();
    for _ in 2..DEPTH {
        assert!(defers(post(&mut coalesce, false, LATER)));
    }
    assert_eq!(post(&mut coalesce, false, LATER), Then::Transmit);
    assert_eq!(post(&mut busy(), false, LATER + BOUND_NS), Then::Transmit);

    let mut coalesce = busy();
    let octets = vec![0; FULL_OCTETS as usize];
    let large = SendWr {
        data: Data::Inline(&octets),
        ..wr(SendOp::Write { remote: REMOTE }, SendFlags::SIGNALED)
    };
    coalesce.add(&large);
    assert_eq!(coalesce.decide(1, DEPTH, false, || LATER), Then::Transmit);

    let mut coalesce = busy();
    coalesce.add(&wr(SendOp::InvalidateLocal { stag: Stag(0x100) }, SendFlags::SIGNALED));
    assert_eq!(coalesce.decide(1, DEPTH, false, || LATER), Then::Transmit);
}

#[test]
fn a_hint_holds_even_the_first() {
    let mut coalesce = Coalesce::default();
    let more = SendFlags::SIGNALED | SendFlags::COALESCE;
    assert!(defers(post_as(&mut coalesce, more, true, LATER)));
    assert!(defers(post_as(&mut coalesce, more, true, LATER + 1)));
    assert_eq!(post_as(&mut coalesce, more, true, LATER + BOUND_NS), Then::Transmit);
}

#[test]
fn the_engine_checks_a_polling_consumer_seldom_and_others_soon() {
    let mut coalesce = Coalesce::default();
    let mut now = LATER;
    post(&mut coalesce, true, now);
    for _ in 0..10 {
        assert!(defers(post(&mut coalesce, false, now)));
        transmit(&mut coalesce, now);
        assert_eq!(coalesce.on_timer(now), TimerResult::Idle);
        now += 1;
    }
    assert_eq!(post(&mut coalesce, false, now), Then::Defer { check_at: Some(now + LAZY_NS) });
    assert_eq!(coalesce.on_timer(now + 1), TimerResult::Again(now + 1 + LAZY_NS));
    assert_eq!(coalesce.on_timer(now + LAZY_NS), TimerResult::Overdue);
    transmit(&mut coalesce, now + LAZY_NS);
    now += LAZY_NS;
    assert_eq!(post(&mut coalesce, false, now), Then::Defer { check_at: Some(now + BOUND_NS) });
}
