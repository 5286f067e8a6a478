//! Tests of idle connections: hours of them on the test's own clock.

use vp_api::{Data, Qp, QpState, RecvWr, SendFlags, SendOp, SendWr};
use warpline_patience::until;

use crate::engine::{Member, Timer};
use crate::qp::Polled;
use crate::testing::end::{End, pair};

const SECOND: u64 = 1_000_000_000;

fn fpdus(end: &End) -> (u64, u64) {
    let counters = end.qp.query().expect("it is there").counters;
    (counters.fpdus_sent, counters.fpdus_received)
}

/// A second passes. A probe that the first end sends is responded to before the next second.
fn pass(ends: &(End, End)) {
    let (near, far) = ends;
    let before = fpdus(near);
    for end in [near, far] {
        end.pass(SECOND);
        end.engine.run_timers();
    }
    let asked = fpdus(near).0 - before.0;
    while fpdus(near).1 < before.1 + asked {
        far.qp.poll();
        near.qp.poll();
    }
}

/// Two ends that have both received something.
fn acquainted() -> (End, End) {
    let ends = pair(64);
    ends.0.read(&ends.1);
    while !ends.0.completed() {
        ends.1.qp.poll();
    }
    // The checks and kicks at the beginning.
    (0..30).for_each(|_| pass(&ends));
    ends
}

#[test]
fn a_connection_without_work_is_left_alone() {
    let ends = acquainted();
    let before = fpdus(&ends.0);
    (0..3600).for_each(|_| pass(&ends));
    assert_eq!(fpdus(&ends.0), before);
    assert_eq!(ends.0.engine.next_timer(), None);
}

// [CONN-14]
#[test]
fn probes_of_an_idle_end_become_less_frequent() {
    let ends = acquainted();
    let before = fpdus(&ends.0);
    ends.0.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).expect("room");
    (0..3600).for_each(|_| pass(&ends));
    let asked = fpdus(&ends.0).0 - before.0;
    assert!((15..=26).contains(&asked), "{asked} times in an hour");
}

// [CONN-14]
#[test]
fn a_probe_follows_soon_after_a_late_send() {
    let ends = acquainted();
    ends.0.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).expect("room");
    (0..3600).for_each(|_| pass(&ends));
    // Nothing responds any more.
    ends.0.read(&ends.1);
    // Two waits of ten seconds, and the longest delay of deadlines.
    for _ in 0..23 {
        assert_eq!(state(&ends.0), QpState::Rts);
        ends.0.pass(SECOND);
        ends.0.engine.run_timers();
        if state(&ends.0) != QpState::Rts {
            return;
        }
    }
    panic!("a silent peer was not given up");
}

/// Two ends, the first of which has sent a probe to the second.
fn asking() -> (End, End) {
    let ends = acquainted();
    ends.0.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).expect("room");
    let before = fpdus(&ends.0).0;
    while fpdus(&ends.0).0 == before {
        ends.0.pass(SECOND);
        ends.0.engine.run_timers();
    }
    ends
}

fn state(end: &End) -> QpState {
    end.qp.query().expect("it is there").state
}

// [CONN-14]
#[test]
fn an_unread_response_counts() {
    let (near, far) = asking();
    let (before, answers) = (fpdus(&near).1, fpdus(&far).0);
    while fpdus(&far).0 == answers {
        far.qp.poll();
    }
    for _ in 0..12 {
        near.pass(SECOND);
        near.engine.run_timers();
    }
    assert_eq!((state(&near), fpdus(&near).1), (QpState::Rts, before + 1));
}

// [CONN-14]
#[test]
fn time_in_which_we_did_not_run_is_no_silence() {
    for stopped in [13, 3600] {
        let (near, _far) = asking();
        near.pass(stopped * SECOND);
        near.engine.run_timers();
        assert_eq!(state(&near), QpState::Rts);
        for _ in 0..12 {
            near.pass(SECOND);
            near.engine.run_timers();
        }
        assert_eq!(state(&near), QpState::Error);
    }
}

// [CONN-14]: a peer that reads slowly and sends nothing is alive.
#[test]
fn a_peer_that_only_reads_is_kept() {
    let (reader, source) = pair(64 << 20);
    source.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).expect("room");
    reader.read(&source);
    until("the source's socket to be full", || source.qp.poll() == Polled::Stalled);
    // It is probed meanwhile, behind the octets in the sockets, and has not read as far as the probe.
    for _ in 0..8 {
        let more = source.octets_sent() + (2 << 20);
        until("the socket to take more", || {
            reader.qp.poll();
            source.engine.poll();
            source.octets_sent() > more
        });
        for _ in 0..11 {
            source.pass(SECOND);
            source.engine.run_timers();
        }
        assert_eq!(state(&source), QpState::Rts);
    }
}

// [CONN-14]: a deadline expires at the moment at which another replaces it.
#[test]
fn a_check_that_is_not_due_sends_no_probe() {
    let (near, _far) = acquainted();
    near.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).expect("room");
    let before = fpdus(&near);
    let stream = near.qp.inside(|inner, _| inner.link.as_ref().expect("connected").generation);
    for _ in 0..3 {
        near.qp.on_timer(stream, Timer::Probe);
        assert_eq!((fpdus(&near), state(&near)), (before, QpState::Rts));
    }
}

/// Nothing was sent that a peer could have missed.
#[test]
fn an_end_that_has_sent_nothing_does_not_kick() {
    let (end, _deaf) = End::against_a_socket(64);
    for _ in 0..100 {
        end.pass(SECOND / 10);
        end.engine.run_timers();
    }
    assert_eq!(fpdus(&end).0, 0);
}

/// The times at which a peer that does not respond got a kick, in units of the first wait.
#[test]
fn a_peer_that_does_not_read_gets_fewer_kicks_and_then_none() {
    const UNIT: u64 = 20_000_000;
    let (end, _deaf) = End::against_a_socket(64);
    let sent = || fpdus(&end).0;
    // It begins with our first FPDU.
    let (op, flags) = (SendOp::Send { solicited: false, invalidate: None }, SendFlags::SIGNALED);
    end.qp.post_send(&[SendWr { wr_id: 1, op, data: Data::Inline(&[]), flags }]).expect("room");
    assert_eq!(sent(), 1);
    let mut at = Vec::new();
    for unit in 1..2000 {
        let before = sent();
        end.pass(UNIT);
        end.engine.run_timers();
        at.extend((sent() != before).then_some(unit));
    }
    let mut last = 0;
    let waits: Vec<u64> = at.iter().map(|at| at - std::mem::replace(&mut last, *at)).collect();
    assert_eq!(waits.len(), 8, "{waits:?}");
    for (kick, wait) in waits.into_iter().enumerate() {
        let (least, late) = (1 << kick, (1 << kick) / 8 + 1);
        assert!((least..=least + late).contains(&wait), "kick {kick} after {wait}");
    }
}
