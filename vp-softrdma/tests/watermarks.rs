//! Watermarks: the receive limit of a QP, with and without an SRQ, and the SRQ's own.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use common::*;
use vp_api::*;

fn limited(init: &mut QpInit) {
    init.recv_limit = 3;
}

/// Sends `count` empty messages and waits until they are in the peer's CQ, unpolled.
fn send(near: &End, far: &dyn Cq, count: usize) {
    let before = far.queued();
    for wr_id in 0..count as u64 {
        near.post(wr_id, SEND, &[]);
        near.done(wr_id);
    }
    let begin = Instant::now();
    while far.queued() < before + count {
        std::thread::yield_now();
        assert!(begin.elapsed() < HANG, "{} of {count} arrived", far.queued() - before);
    }
}

fn take(far: &dyn Cq, count: usize) {
    for _ in 0..count {
        assert_eq!(next(far).status, WcStatus::Success);
    }
}

fn limit(qp: &dyn Qp, limit: u32) -> VpResult<()> {
    qp.modify(QpChange::Limits {
        ord: None,
        ird: None,
        send_depth: None,
        recv_depth: None,
        recv_limit: Some(limit),
    })
}

// [VERBS-26]: a receive is outstanding until its completion is polled; the event comes once.
#[test]
fn the_receive_limit_counts_what_is_not_polled() {
    let (near, far) = pair(&Setup { init: limited, ..Setup::default() });
    for wr_id in 0..60 {
        far.recv(wr_id, &[]);
    }
    for _ in 0..10 {
        send(&near, &*far.cq, 3);
        take(&*far.cq, 3);
    }
    assert!(far.events.is_empty());
    assert_eq!(far.qp.query().unwrap().recv_limit, 3);
    send(&near, &*far.cq, 4);
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
    assert_eq!(far.qp.query().unwrap().recv_limit, 0);
    send(&near, &*far.cq, 1);
    assert!(far.events.is_empty());
    // Armed below the number of outstanding receives the event comes at once; above it, later.
    limit(&*far.qp, 4).unwrap();
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
    limit(&*far.qp, 5).unwrap();
    assert!(far.events.is_empty());
    send(&near, &*far.cq, 1);
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
    take(&*far.cq, 6);
    limit(&*far.qp, 1).unwrap();
    limit(&*far.qp, 0).unwrap();
    send(&near, &*far.cq, 2);
    assert!(far.events.is_empty());
    assert_eq!(limit(&*far.qp, 65).unwrap_err().status, VpStatus::InvalidModifier);
}

// A QP that is destroyed removes only its own count.
#[test]
fn the_receive_limit_outlives_another_qp_of_the_cq() {
    let (near, far) = pair(&Setup { init: limited, ..Setup::default() });
    let mut other = QpInit::new(far.pd, far.cq.id(), far.cq.id());
    limited(&mut other);
    let other = far.rnic.create_qp(&other).unwrap();
    far.rnic.destroy_qp(other.id()).unwrap();
    for wr_id in 0..20 {
        far.recv(wr_id, &[]);
    }
    for _ in 0..5 {
        send(&near, &*far.cq, 3);
        take(&*far.cq, 3);
    }
    assert!(far.events.is_empty());
    send(&near, &*far.cq, 4);
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
}

// Flushed receives count until they are polled, raise no event, and leave the count right.
#[test]
fn the_receive_limit_survives_a_reconnection() {
    let (near, far) = pair(&Setup { init: limited, ..Setup::default() });
    for wr_id in 0..20 {
        far.recv(wr_id, &[]);
    }
    near.qp.modify(QpChange::Error).unwrap();
    assert_eq!(far.event(), AsyncEvent::ConnectionReset);
    far.recv(20, &[]);
    for wr_id in 0..=20 {
        let flushed = far.complete();
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::Flushed));
    }
    for end in [&near, &far] {
        end.qp.modify(QpChange::Idle).unwrap();
    }
    connect((&near, &far), &Setup::default());
    assert_eq!(far.event(), AsyncEvent::Established);
    for wr_id in 0..4 {
        far.recv(wr_id, &[]);
    }
    send(&near, &*far.cq, 3);
    assert!(far.events.is_empty());
    send(&near, &*far.cq, 1);
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
}

/// The first segment of a message, without payload.
const BEGUN: [u8; 24] =
    [0, 18, 0x01, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// A QP whose peer is a socket.
fn against_a_socket(end: &End) -> TcpStream {
    let (near, far) = sockets();
    let mut params = StreamParams::new(Role::Initiator);
    (params.crc, params.kick_after) = (false, None);
    end.rts(near, params);
    assert_eq!(end.event(), AsyncEvent::Established);
    far
}

// [SEC-11] [VERBS-26]: a receive counts from when a message takes it, not from its completion.
#[test]
fn a_message_that_has_begun_has_its_receive() {
    let near = End::new(|init| (init.recv_depth, init.recv_limit) = (4, 1));
    for wr_id in 0..4 {
        near.recv(wr_id, &[]);
    }
    let mut socket = against_a_socket(&near);
    let full = || near.qp.post_recv(&[RecvWr { wr_id: 9, sgl: &[] }]).map_err(|e| e.status);
    socket.write_all(&BEGUN).unwrap();
    warpline_patience::until("the message to begin", || {
        near.cq.poll(&mut []).unwrap();
        near.qp.query().unwrap().counters.fpdus_received == 1
    });
    assert_eq!(near.qp.query().unwrap().recvs_outstanding, 4);
    assert_eq!(full(), Err(VpStatus::TooManyWrs));
    assert_eq!(near.qp.query().unwrap().recv_limit, 1, "one is held");

    let far = End::new(|_| {});
    let init = SrqInit { pd: far.pd, depth: 4, max_sge: 1, limit: 4 };
    let srq = far.rnic.create_srq(&init).unwrap();
    srq.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }; 4]).unwrap();
    let mut init = QpInit::new(far.pd, far.cq.id(), far.cq.id());
    init.srq = Some(srq.id());
    let far = End { qp: far.rnic.create_qp(&init).unwrap(), ..far };
    let mut socket = against_a_socket(&far);
    socket.write_all(&BEGUN).unwrap();
    assert_eq!(far.events.next(EventSource::Srq(srq.id())), AsyncEvent::SrqLimit);
    assert_eq!(far.cq.queued(), 0);
}

#[test]
fn flushed_receives_count_until_they_are_polled() {
    let (near, far) = pair(&Setup { init: limited, ..Setup::default() });
    for wr_id in 0..4 {
        far.recv(wr_id, &[]);
    }
    near.qp.modify(QpChange::Error).unwrap();
    assert_eq!(far.event(), AsyncEvent::ConnectionReset);
    far.qp.modify(QpChange::Idle).unwrap();
    limit(&*far.qp, 4).unwrap();
    assert!(far.events.is_empty());
    limit(&*far.qp, 3).unwrap();
    assert_eq!(far.event(), AsyncEvent::RecvLimit);
    (0..4).for_each(|_| assert_eq!(far.complete().status, WcStatus::Flushed));
    limit(&*far.qp, 1).unwrap();
    assert!(far.events.is_empty());
}

// [VERBS-26] [SEC-11]: of two QPs on an SRQ the greedy one is named; and the SRQ's own mark.
#[test]
fn the_largest_user_of_a_shared_cq_is_named() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let srq = rnic.create_srq(&SrqInit { pd, depth: 64, max_sge: 1, limit: 0 }).unwrap();
    let id = srq.id();
    let shares = |init: &mut QpInit| {
        (init.pd, init.srq, init.recv_limit) = (pd, Some(id), 3);
    };
    let events = Arc::new(Events::default());
    let [greedy, modest] = [(); 2].map(|()| {
        let far = End::on(rnic.clone(), CqInit { depth: 64, handler: None }, shares);
        let near = End::new(|_| {});
        connect((&near, &far), &Setup::default());
        assert_eq!(far.event(), AsyncEvent::Established);
        (near, far)
    });
    rnic.set_async_handler(Some(events.clone()));
    for wr_id in 0..8 {
        srq.post_recv(&[RecvWr { wr_id, sgl: &[] }]).unwrap();
    }
    assert_eq!(srq.modify(None, Some(2)).unwrap().limit, 2);
    send(&modest.0, &*modest.1.cq, 2);
    send(&greedy.0, &*greedy.1.cq, 3);
    assert!(events.is_empty());
    send(&greedy.0, &*greedy.1.cq, 1);
    assert_eq!(events.next(EventSource::Qp(greedy.1.qp.id())), AsyncEvent::RecvLimit);
    assert!(events.is_empty());
    // Fewer than two are left; reported once.
    send(&modest.0, &*modest.1.cq, 1);
    assert_eq!(events.next(EventSource::Srq(id)), AsyncEvent::SrqLimit);
    assert_eq!(srq.query().unwrap().limit, 0);
    send(&greedy.0, &*greedy.1.cq, 1);
    assert!(events.is_empty());
    // Armed above the present number, the mark is reached already.
    srq.modify(None, Some(1)).unwrap();
    assert_eq!(events.next(EventSource::Srq(id)), AsyncEvent::SrqLimit);
    assert_eq!(srq.modify(None, Some(65)).unwrap_err().status, VpStatus::InvalidModifier);
}
