//! Tests of the budgets: a QP that has more to send than its budget stops, and continues at its next
//! visit.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use vp_api::{Cq, Data, Qp, QpState, Remote, SendFlags, SendOp, SendWr, WorkCompletion};
use warpline_patience::{Bound, until};

use crate::testing::end::{End, pair};
use crate::tuning::SEND_BUDGET;

/// Length of a transfer that takes many budgets at each end.
const LARGE: usize = 16 << 20;

/// What one visit may take from the core: a batch, and the FPDU that filled it.
const MOST: u64 = SEND_BUDGET as u64 + (66 << 10);
// A MiB and a little more.
const _: () = assert!(MOST > 1 << 20 && MOST < 5 << 18);

/// An end that reads all of the other's buffer, and the other.
fn reading() -> (End, End) {
    let (reader, source) = pair(LARGE);
    reader.read(&source);
    (reader, source)
}

#[test]
fn a_visit_sends_a_budget_of_a_large_read() {
    let (reader, source) = reading();
    let mut visits = 0;
    let mut count = |visit: &dyn Fn()| {
        let before = source.octets_sent();
        visit();
        let sent = source.octets_sent() - before;
        assert!(sent <= MOST, "{sent} octets in one visit");
        visits += u64::from(sent != 0);
    };
    let bound = Bound::new("a large read, visit by visit");
    while !reader.completed() {
        bound.check();
        count(&|| {
            source.qp.poll();
        });
        // It may wait for room to send.
        count(&|| source.engine.poll());
    }
    assert!(visits >= LARGE as u64 / MOST, "{visits}");
}

/// A poll continues what an exhausted budget left, and transmits nothing that is deferred.
#[test]
fn a_poll_goes_on_with_what_is_unsent() {
    let (end, peer) = pair(64);
    let remote = Remote { stag: peer.stag, to: peer.buffer.addr() };
    let (op, flags) = (SendOp::Write { remote }, SendFlags::COALESCE);
    end.qp.post_send(&[SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags }]).expect("room");
    // As if the deferred octets were not those of a post.
    end.qp.inside(|inner, _| assert!(inner.coalesce.release()));
    end.qp.poll();
    assert_eq!(end.sends(), 0);
    end.qp.inside(|inner, _| inner.link.as_mut().expect("connected").unsent = true);
    end.qp.poll();
    assert_eq!(end.sends(), 1);
}

/// Posts an empty Write, which is deferred.
fn defer(end: &End, peer: &End) {
    let remote = Remote { stag: peer.stag, to: peer.buffer.addr() };
    let (op, flags) = (SendOp::Write { remote }, SendFlags::COALESCE | SendFlags::SIGNALED);
    end.qp.post_send(&[SendWr { wr_id: 7, op, data: Data::Sgl(&[]), flags }]).expect("room");
}

/// An end that has read the front of a long Write, all that has arrived, and its peer, which is a bare socket: how
/// TCP divides the octets of a QP decides what the end expects next.
fn written() -> (End, TcpStream) {
    let (end, mut peer) = End::against_a_socket(64 << 10);
    // An RDMA Write of 60,000 octets.
    let mut front = (14 + 60_000_u16).to_be_bytes().to_vec();
    front.extend([0xc1, 0x40]);
    front.extend(end.stag.0.to_be_bytes());
    front.extend(end.buffer.addr().to_be_bytes());
    front.extend([0; 1000]);
    peer.write_all(&front).expect("room");
    until("the front of the Write", || {
        end.qp.poll();
        expects_large(&end)
    });
    (end, peer)
}

fn expects_large(end: &End) -> bool {
    end.qp.inside(|inner, _| inner.link.as_ref().expect("connected").inbox.expects_large())
}

/// What is deferred does not wait until a long payload is read.
#[test]
fn deferred_posts_are_sent_before_large_payloads_are_read() {
    let (end, peer) = pair(64);
    let prepare = |end: &End| end.qp.inside(|inner, context| inner.send_before_large(context));
    defer(&end, &peer);
    assert!(!expects_large(&end) && !prepare(&end));
    assert_eq!(end.sends(), 0);

    let (end, _peer) = written();
    assert!(!prepare(&end));
    defer(&end, &end);
    assert!(prepare(&end));
    assert_eq!(end.sends(), 1);
}

/// The consumer is notified of what was sent then, even if nothing is read.
#[test]
fn a_post_that_is_sent_before_a_payload_completes_as_any_other() {
    let (end, _peer) = written();
    end.cq.arm(false).unwrap();
    defer(&end, &end);
    end.qp.poll();
    assert!(end.qp.inside(|inner, _| inner.leaves_nothing()));
    assert!(end.completed());
}

/// The peer dies within a large payload: the transmission before the read notices, and nothing is lost.
#[test]
fn a_reset_is_noticed_before_a_payload_is_read() {
    let (end, peer) = written();
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a socket");
    drop(peer);
    defer(&end, &end);
    end.qp.poll();
    assert!(end.qp.inside(|inner, _| inner.leaves_nothing()));
    let info = end.qp.query().expect("it is there");
    assert_eq!((info.state, info.sends_lost), (QpState::Error, 1));
    let mut out = [WorkCompletion::BLANK];
    assert_eq!((end.cq.poll(&mut out), out[0].wr_id), (Ok(1), 7));
}

// RFC 5044 4.5 [MPA-21]
#[test]
fn fpdus_follow_the_segments_of_tcp_after_a_long_transmission() {
    const OCTETS: usize = 256 << 10;
    let (reader, source) = pair(OCTETS);
    source.qp.inside(|inner, _| inner.core.proto.set_mulpdu(1000));
    let fpdus = || {
        let before = source.qp.query().expect("it is there").counters.fpdus_sent;
        reader.read(&source);
        until("the read to be served", || {
            source.engine.poll();
            reader.engine.poll();
            reader.completed()
        });
        source.qp.query().expect("it is there").counters.fpdus_sent - before
    };
    let (first, second) = (fpdus(), fpdus());
    assert!(first > OCTETS as u64 / 1000, "{first} FPDUs of at most 1000 octets");
    assert!(second < first / 2, "{second} FPDUs");
}

/// Octets that are left when the budget is used up cause no new event of the socket.
#[test]
fn the_end_of_a_budget_is_an_event() {
    let (reader, source) = reading();
    let bound = Bound::new("the event of the end of a visit");
    while !reader.completed() {
        bound.check();
        source.engine.poll();
        reader.engine.poll();
    }
}
