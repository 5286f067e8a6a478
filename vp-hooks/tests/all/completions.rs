//! Tests of completions that are lost, returned twice, or late.

use std::sync::Arc;

use vp_api::Qp;

use crate::common::*;

/// Two QPs of the wrapped RNIC, connected to an ordinary peer that has `messages` receives for each.
struct Pairs {
    near: Side,
    _far: Side,
    qps: [Arc<dyn Qp>; 2],
}

fn pairs(fault: &str, messages: u64) -> Pairs {
    let (near, far) = (Side::new(&[fault]), Side::new(&[]));
    let qps = [near.qp(), near.qp()];
    for qp in &qps {
        let peer = far.qp();
        (0..messages).for_each(|n| recv(&peer, n));
        connect(qp, &peer);
    }
    Pairs { near, _far: far, qps }
}

impl Pairs {
    /// Sends on both QPs, and the completions of each, of `count` in all.
    fn run(&self, messages: u64, count: usize) -> [Vec<u64>; 2] {
        for n in 0..messages {
            self.qps.iter().for_each(|qp| send(qp, n).unwrap());
        }
        let all = self.near.complete(count);
        assert_eq!(self.near.poll(), []);
        [of(&self.qps[0], &all), of(&self.qps[1], &all)]
    }
}

fn without(n: u64, all: std::ops::Range<u64>) -> Vec<u64> {
    all.filter(|m| *m != n).collect()
}

#[test]
fn exactly_the_dropped_completion_is_missing() {
    let pairs = pairs("fault:drop-completion#1@10", 20);
    assert_eq!(pairs.run(20, 39), [without(9, 0..20), (0..20).collect()]);
    let lines = pairs.near.host.lines(vp_hooks::fault::TARGET);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].1.contains("wr 9: completion, by `drop-completion#1@10`"), "{lines:?}");
}

#[test]
fn exactly_one_completion_comes_twice() {
    let pairs = pairs("fault:duplicate-completion#2@3", 8);
    let twice = vec![0, 1, 2, 2, 3, 4, 5, 6, 7];
    assert_eq!(pairs.run(8, 17), [(0..8).collect(), twice]);
}

#[test]
fn a_delayed_completion_keeps_its_place() {
    let pairs = pairs("fault:delay-completion#1@1=5", 8);
    assert_eq!(pairs.run(8, 16), [(0..8).collect::<Vec<_>>(), (0..8).collect()]);
}

#[test]
fn a_delay_is_counted_in_polls() {
    let pairs = pairs("fault:delay-completion@1=3", 1);
    send(&pairs.qps[0], 7).unwrap();
    // Takes the first completion from the provider, and keeps it.
    while pairs.near.cq.queued() == 0 {
        assert_eq!(pairs.near.poll(), []);
    }
    let mut polls = 0;
    let mut seen = Vec::new();
    while seen.is_empty() {
        polls += 1;
        assert!(pairs.near.cq.wait(HANG, Some(HANG)).unwrap(), "the waiter must not sleep");
        seen = pairs.near.poll();
    }
    // The completion may have been queued before the poll that took it.
    assert!((3..=4).contains(&polls), "{polls}");
    assert_eq!(of(&pairs.qps[0], &seen), [7]);
}

#[test]
fn a_consumer_that_sleeps_after_arming_misses_nothing() {
    let pairs = pairs("fault:delay-completion@*2=1000000", 50);
    let near = &pairs.near;
    let (mut seen, mut rings) = (Vec::new(), 0);
    for n in 0..50 {
        send(&pairs.qps[0], n).unwrap();
    }
    // Poll, arm, poll, sleep: as Cq::arm says.
    while seen.len() < 50 {
        seen.extend(near.poll());
        rings = rings.max(near.rings());
        near.cq.arm(false).unwrap();
        let more = near.poll();
        let idle = more.is_empty();
        seen.extend(more);
        if idle && seen.len() < 50 {
            rings = near.rung(rings);
        }
    }
    assert_eq!(of(&pairs.qps[0], &seen), (0..50).collect::<Vec<_>>());
}

/// No notification reports what came before the request.
#[test]
fn what_came_before_the_request_is_not_delayed() {
    let pairs = pairs("fault:delay-completion@*1=1000000", 3);
    for n in 0..3 {
        send(&pairs.qps[0], n).unwrap();
        while pairs.near.cq.queued() == 0 {
            std::thread::yield_now();
        }
        pairs.near.cq.arm(false).unwrap();
        assert_eq!(of(&pairs.qps[0], &pairs.near.poll()), [n]);
    }
}

#[test]
fn a_destroyed_qp_has_no_completion() {
    let pairs = pairs("fault:delay-completion#1@1=1000000", 4);
    let [one, other] = &pairs.qps;
    send(one, 1).unwrap();
    while pairs.near.cq.queued() == 0 {
        assert_eq!(pairs.near.poll(), []);
    }
    // Until the wrapper has taken it from the provider and holds it back.
    assert_eq!(pairs.near.poll(), []);
    pairs.near.rnic.destroy_qp(one.id()).unwrap();
    send(other, 2).unwrap();
    assert_eq!(pairs.near.complete(1), [(other.id(), 2)]);
    assert_eq!(pairs.near.cq.queued(), 0);
}

#[test]
fn chance_is_the_same_each_time() {
    let lost = || {
        let pairs = pairs("fault:drop-completion#1@?4;seed=7", 40);
        (0..40).for_each(|n| send(&pairs.qps[0], n).unwrap());
        send(&pairs.qps[1], 99).unwrap();
        // The last one of a QP may be lost, so the log shows the end.
        let (mut seen, mut begin) = (Vec::new(), 0);
        while begin < 41 {
            seen.extend(pairs.near.poll());
            begin = seen.len() + pairs.near.host.lines(vp_hooks::fault::TARGET).len();
        }
        assert_eq!(of(&pairs.qps[1], &seen), [99]);
        of(&pairs.qps[0], &seen)
    };
    let first = lost();
    assert!((20..40).contains(&first.len()), "{first:?}");
    assert_eq!(first, lost());
}
