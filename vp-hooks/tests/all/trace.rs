//! Tests of what `trace` logs.

use vp_api::{Data, LogLevel, SendFlags, SendOp, SendWr, WorkCompletion};
use vp_hooks::trace::TARGET;

use crate::common::*;

fn lines(side: &Side, what: &str) -> Vec<(LogLevel, String)> {
    let lines = side.host.lines(TARGET);
    lines.into_iter().filter(|(_, line)| line.contains(what)).collect()
}

#[test]
fn verbs_are_logged_with_arguments_and_result() {
    let (near, far) = (Side::new(&["trace"]), Side::new(&[]));
    let (qp, peer) = (near.qp(), far.qp());
    recv(&peer, 1);
    connect(&qp, &peer);
    send(&qp, 41).unwrap();
    near.complete(1);
    near.rnic.dealloc_pd(near.pd).unwrap_err();

    let id = qp.id().0;
    for (level, begin, end) in [
        (LogLevel::Debug, "vp_softrdma: rnic: open vp_softrdma -> RnicAttrs".into(), ""),
        (LogLevel::Debug, "vp_softrdma: rnic: create_cq depth 256 handler true -> cq ".into(), ""),
        (LogLevel::Debug, "vp_softrdma: rnic: create_qp QpInit".into(), ""),
        (LogLevel::Debug, format!("vp_softrdma: qp {id}: connect stream, 0 octets"), "-> ok"),
        (LogLevel::Trace, format!("vp_softrdma: qp {id}: post_send [wr 41 Send "), "-> ok"),
        (LogLevel::Trace, "poll up to 16 -> ".into(), "wr 41 Send Success 0 octets]"),
        (LogLevel::Debug, "dealloc_pd -> error: object in use".into(), ""),
    ] {
        let found = lines(&near, &begin);
        assert_eq!(found.len(), 1, "{begin}: {found:?}");
        assert!(found[0].0 == level && found[0].1.contains(end), "{found:?}");
    }
    assert!(lines(&near, " ns)").len() >= 7);
}

#[test]
fn payload_is_not_logged() {
    let near = Side::new(&["trace"]);
    let qp = near.qp();
    qp.modify(vp_api::QpChange::Error).unwrap();
    let op = SendOp::Send { solicited: false, invalidate: None };
    let data = Data::Inline(b"secret");
    qp.post_send(&[SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED }]).unwrap();
    assert_eq!(lines(&near, "inline 6").len(), 1);
    assert!(lines(&near, "secret").is_empty() && lines(&near, "115, 101").is_empty());
}

#[test]
fn the_data_path_is_sampled_for_each_object() {
    let near = Side::new(&["trace:every=4"]);
    let (one, two) = (near.qp(), near.qp());
    (0..9).for_each(|n| recv(&one, n));
    recv(&two, 99);
    let logged = |wr: u64| lines(&near, &format!("[wr {wr} ")).len();
    assert_eq!((0..9).map(logged).collect::<Vec<_>>(), [1, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(logged(99), 1);
    // All privileged verbs are logged.
    assert_eq!(lines(&near, "create_qp").len(), 2);
}

#[test]
fn refusals_are_logged_whatever_the_sampling() {
    let near = Side::new(&["trace:every=0", "fault:post_send@2=QueueFull"]);
    let qp = near.qp();
    qp.modify(vp_api::QpChange::Error).unwrap();
    send(&qp, 1).unwrap();
    send(&qp, 2).unwrap_err();
    let posts = lines(&near, "post_send");
    assert_eq!(posts.len(), 1);
    assert!(posts[0].1.contains("[wr 2 ") && posts[0].1.contains("too many work requests"));
}

#[test]
fn empty_polls_are_logged_on_request() {
    for (options, expected) in [("trace", 0), ("trace:empty", 3)] {
        let near = Side::new(&[options]);
        for _ in 0..3 {
            near.cq.poll(&mut [WorkCompletion::BLANK]).unwrap();
        }
        assert_eq!(lines(&near, "poll up to 1 -> []").len(), expected);
    }
}
