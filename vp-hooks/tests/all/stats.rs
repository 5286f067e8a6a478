//! Tests of `stats`: what it counts, and that it loses no completion.

use vp_api::{LogLevel, WorkCompletion};
use vp_hooks::stats::{self, ObjectKind, Snapshot};

use crate::common::*;

/// The counters of the RNIC with this many calls of `alloc_pd`: each test here has its own number.
fn snapshot(pds: u64) -> Option<Snapshot> {
    let has = |snapshot: &Snapshot| snapshot.verb("alloc_pd").is_some_and(|v| v.calls == pds);
    stats::snapshots().into_iter().find(has)
}

fn side(pds: u64, wrappers: &[&str]) -> Side {
    let side = Side::new(wrappers);
    (1..pds).for_each(|_| _ = side.rnic.alloc_pd().unwrap());
    side
}

#[test]
fn every_call_is_counted_for_its_object() {
    let (near, far) = (side(21, &["stats:every=1"]), Side::new(&[]));
    let (qp, bystander, peer) = (near.qp(), near.qp(), far.qp());
    (0..5).for_each(|n| recv(&peer, n));
    connect(&qp, &peer);
    (0..5).for_each(|n| send(&qp, n).unwrap());
    assert_eq!(near.complete(5).len(), 5);
    qp.post_send(&[]).unwrap();

    let now = snapshot(21).unwrap();
    assert_eq!((now.provider.as_str(), now.device.as_str()), ("vp_softrdma", "vp_softrdma"));
    let posts = *now.object(ObjectKind::Qp, qp.id().0).unwrap().verb("post_send").unwrap();
    assert_eq!((posts.calls, posts.refused, posts.items, posts.timed), (6, 0, 5, 6));
    assert!(posts.max_ns >= posts.mean_ns() && posts.mean_ns() > 0);
    assert_eq!(now.object(ObjectKind::Qp, bystander.id().0).unwrap().verbs, []);
    let polls = now.object(ObjectKind::Cq, near.cq.id().0).unwrap().verb("poll").unwrap();
    assert_eq!((polls.items, polls.failed), (5, 0));
    assert_eq!(now.verb("create_qp").unwrap().calls, 2);

    // Counters outlive their object, and are logged when the RNIC is closed.
    let (name, host) = (qp.id(), near.host.clone());
    near.rnic.destroy_qp(name).unwrap();
    drop(qp);
    let now = snapshot(21).unwrap();
    assert!(now.object(ObjectKind::Qp, name.0).is_none());
    assert_eq!(now.verb("post_send").unwrap().items, 5);
    drop((near, bystander));
    assert!(snapshot(21).is_none());
    let lines = host.lines(stats::TARGET);
    let posts = "vp_softrdma: post_send: 6 calls, 0 refused, 5 items, 0 failed; ";
    let expected =
        |(level, line): &(LogLevel, String)| *level == LogLevel::Info && line.starts_with(posts);
    assert!(lines.iter().any(expected), "{lines:?}");
}

#[test]
fn refusals_and_flushed_completions_are_counted() {
    let near = side(22, &["stats", "fault:post_send@1=InvalidWr"]);
    let qp = near.qp();
    send(&qp, 1).unwrap_err();
    recv(&qp, 2);
    qp.modify(vp_api::QpChange::Error).unwrap();
    assert_eq!(near.complete(1), [(qp.id(), 2)]);
    let now = snapshot(22).unwrap();
    let posts = now.verb("post_send").unwrap();
    assert_eq!((posts.calls, posts.refused, posts.items), (1, 1, 0));
    let polls = now.verb("poll").unwrap();
    assert_eq!((polls.items, polls.failed), (1, 1));
}

#[test]
fn the_data_path_is_timed_now_and_then() {
    let near = side(23, &["stats:every=8"]);
    for _ in 0..17 {
        near.cq.poll(&mut [WorkCompletion::BLANK]).unwrap();
    }
    let now = snapshot(23).unwrap();
    let polls = now.verb("poll").unwrap();
    assert_eq!((polls.calls, polls.timed), (17, 3));
    assert_eq!(now.verb("alloc_pd").unwrap().timed, 23);
}
