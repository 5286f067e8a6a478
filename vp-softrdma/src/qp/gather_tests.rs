//! Tests of when a post transmits.

use vp_api::{Data, Remote, SendFlags, SendOp, SendWr, Stag};

use super::{BOUND_NS, FULL_OCTETS, Gather, LAZY_NS, Look, Then};

/// Depth of the send queue.
const DEPTH: u32 = 32;
/// So long after the last transmission a connection is idle.
const LATER: u64 = 1_000_000;

const REMOTE: Remote = Remote { stag: Stag(0x100), to: 0 };

fn wr(op: SendOp, flags: SendFlags) -> SendWr<'static> {
    SendWr { wr_id: 0, op, data: Data::Inline(&[0; 8]), flags }
}

/// What is held goes out.
fn transmit(gather: &mut Gather, now: u64) {
    gather.release();
    gather.transmitted(now);
}

/// One post of one small Write, and its transmission if it is due.
fn post_as(gather: &mut Gather, flags: SendFlags, reaped: bool, now: u64) -> Then {
    let held = gather.held();
    gather.add(&wr(SendOp::Write { remote: REMOTE }, flags));
    let then = gather.decide(held, DEPTH, reaped, || now);
    if then == Then::Transmit {
        transmit(gather, now);
    }
    then
}

fn post(gather: &mut Gather, reaped: bool, now: u64) -> Then {
    post_as(gather, SendFlags::SIGNALED, reaped, now)
}

fn holds(then: Then) -> bool {
    matches!(then, Then::Hold { .. })
}

#[test]
fn the_first_goes_at_once_and_the_next_waits_for_the_consumer() {
    let mut gather = Gather::default();
    assert_eq!(post(&mut gather, true, LATER), Then::Transmit);
    assert_eq!(
        post(&mut gather, false, LATER + 1),
        Then::Hold { look_at: Some(LATER + 1 + BOUND_NS) }
    );
    assert_eq!(post(&mut gather, false, LATER + 2), Then::Hold { look_at: None });
    assert_eq!(gather.held(), 2);
    // The consumer comes round: what was held goes, and what comes next is held again.
    gather.attend();
    transmit(&mut gather, LATER + 3);
    assert!(holds(post(&mut gather, true, LATER + 4)));
}

#[test]
fn one_at_a_time_never_waits() {
    let mut gather = Gather::default();
    let mut now = LATER;
    for _ in 0..8 {
        // Its completion was polled before the next was posted.
        assert_eq!(post(&mut gather, true, now), Then::Transmit);
        now += 1;
    }
    for _ in 0..8 {
        // Without completions: the consumer polls in vain, for an answer.
        gather.attend();
        assert_eq!(post_as(&mut gather, SendFlags::empty(), true, now), Then::Transmit);
        now += 1;
    }
    assert!(holds(post_as(&mut gather, SendFlags::empty(), true, now)));
}

#[test]
fn an_idle_connection_does_not_wait() {
    let mut gather = Gather::default();
    assert_eq!(post(&mut gather, true, LATER), Then::Transmit);
    assert_eq!(post(&mut gather, false, LATER + BOUND_NS), Then::Transmit);
}

#[test]
fn a_connection_is_not_idle_while_it_transmits() {
    let mut gather = Gather::default();
    let octets = vec![0; FULL_OCTETS as usize];
    let large = SendWr {
        data: Data::Inline(&octets),
        ..wr(SendOp::Write { remote: REMOTE }, SendFlags::SIGNALED)
    };
    gather.add(&large);
    assert_eq!(gather.decide(0, DEPTH, true, || LATER), Then::Transmit);
    transmit(&mut gather, LATER);
    let done = LATER + 2 * BOUND_NS;
    gather.transmitted(done);
    assert!(holds(post(&mut gather, false, done)));
    assert_eq!(post(&mut gather, false, done + BOUND_NS), Then::Transmit);
}

#[test]
fn what_is_held_goes_when_it_is_enough_old_or_urgent() {
    let busy = || {
        let mut gather = Gather::default();
        assert_eq!(post(&mut gather, true, LATER), Then::Transmit);
        assert!(holds(post(&mut gather, false, LATER)));
        gather
    };
    let mut gather = busy();
    for _ in 2..DEPTH {
        assert!(holds(post(&mut gather, false, LATER)));
    }
    assert_eq!(post(&mut gather, false, LATER), Then::Transmit);
    assert_eq!(post(&mut busy(), false, LATER + BOUND_NS), Then::Transmit);

    let mut gather = busy();
    let octets = vec![0; FULL_OCTETS as usize];
    let large = SendWr {
        data: Data::Inline(&octets),
        ..wr(SendOp::Write { remote: REMOTE }, SendFlags::SIGNALED)
    };
    gather.add(&large);
    assert_eq!(gather.decide(1, DEPTH, false, || LATER), Then::Transmit);

    let mut gather = busy();
    gather.add(&wr(SendOp::InvalidateLocal { stag: Stag(0x100) }, SendFlags::SIGNALED));
    assert_eq!(gather.decide(1, DEPTH, false, || LATER), Then::Transmit);
}

#[test]
fn a_hint_holds_even_the_first() {
    let mut gather = Gather::default();
    let more = SendFlags::SIGNALED | SendFlags::COALESCE;
    assert!(holds(post_as(&mut gather, more, true, LATER)));
    assert!(holds(post_as(&mut gather, more, true, LATER + 1)));
    assert_eq!(post_as(&mut gather, more, true, LATER + BOUND_NS), Then::Transmit);
}

#[test]
fn the_engine_looks_seldom_at_who_comes_round_and_soon_at_who_does_not() {
    let mut gather = Gather::default();
    let mut now = LATER;
    post(&mut gather, true, now);
    for _ in 0..10 {
        assert!(holds(post(&mut gather, false, now)));
        transmit(&mut gather, now);
        assert_eq!(gather.look(now), Look::Idle);
        now += 1;
    }
    assert_eq!(post(&mut gather, false, now), Then::Hold { look_at: Some(now + LAZY_NS) });
    assert_eq!(gather.look(now + 1), Look::Again(now + 1 + LAZY_NS));
    assert_eq!(gather.look(now + LAZY_NS), Look::Overdue);
    transmit(&mut gather, now + LAZY_NS);
    now += LAZY_NS;
    assert_eq!(post(&mut gather, false, now), Then::Hold { look_at: Some(now + BOUND_NS) });
}
