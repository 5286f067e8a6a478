//! States of a QP and the transitions between them, orderly ends, and limits.

use super::*;

// [VERBS-05] [VERBS-09]: close with nothing pending; the receives are flushed; both can reconnect.
#[test]
fn graceful_close_and_reconnect() {
    let (near, far) = pair(&Setup::default());
    for round in 0..3u64 {
        far.recv(7, &[]);
        near.recv(8, &[]);
        near.post(round, SEND, &[]);
        near.done(round);
        far.done(7);
        near.qp.modify(QpChange::Closing).unwrap();
        assert_eq!(near.event(), AsyncEvent::CloseComplete);
        assert_eq!(far.event(), AsyncEvent::CloseComplete);
        let flushed = near.complete();
        assert_eq!((flushed.wr_id, flushed.status), (8, WcStatus::Flushed));
        assert_eq!((near.state(), far.state()), (QpState::Idle, QpState::Idle));
        connect((&near, &far), &Setup::default());
        assert_eq!(near.event(), AsyncEvent::Established);
        assert_eq!(far.event(), AsyncEvent::Established);
    }
}

// [VERBS-05]: close with a receive outstanding at the peer only, and with work pending here.
#[test]
fn close_with_pending_work_is_a_bad_close() {
    let (near, far) = pair(&Setup::default());
    let sink = near.region(Buffer::new(8));
    let source = far.region(Buffer::new(8));
    // The far end does not respond in time: its QP is busy with a Read.
    let (stuck, socket) = against_a_socket(|_| {});
    let stuck_sink = stuck.region(Buffer::new(8));
    let op = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
    stuck.post(1, op, &[stuck_sink.all()]);
    stuck.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(stuck.event(), AsyncEvent::BadClose);
    assert_eq!(stuck.complete().status, WcStatus::Flushed);
    assert_eq!(stuck.state(), QpState::Error);
    drop(socket);
    drop((near, far, sink));
}

// Work of either end: its own requests, and Reads that it serves.
#[test]
fn a_drain_closes_after_outstanding_work() {
    let (near, far) = pair(&Setup::default());
    let (source, sink) =
        (far.region(Buffer::pattern(8 << 20, 3)), near.region(Buffer::new(8 << 20)));
    for (drains, peer) in [(&near, &far), (&far, &near)] {
        let read = SendOp::Read { remote: source.remote(0), invalidate_sink: false };
        let received = || far.qp.query().unwrap().counters.fpdus_received;
        let before = received();
        near.post(1, read, &[sink.all()]);
        warpline_patience::until("the Read Request to arrive", || received() > before);
        drains.qp.modify(QpChange::Drain).unwrap();
        // A second call changes nothing.
        let again = drains.qp.modify(QpChange::Drain);
        assert!(again.is_ok() || drains.state() != QpState::Rts);
        assert_eq!(near.complete().status, WcStatus::Success);
        for end in [drains, peer] {
            assert_eq!(end.event(), AsyncEvent::CloseComplete);
            assert_eq!(end.state(), QpState::Idle);
        }
        // The next stream accepts work again.
        connect((&near, &far), &Setup::default());
        assert_eq!(near.event(), AsyncEvent::Established);
        assert_eq!(far.event(), AsyncEvent::Established);
        far.recv(2, &[]);
        near.recv(2, &[]);
        for (from, to) in [(&near, &far), (&far, &near)] {
            from.post(3, SEND, &[]);
            assert_eq!(from.complete().status, WcStatus::Success);
            assert_eq!(to.complete().wr_id, 2);
        }
    }
    let idle = End::new(|_| {});
    assert_eq!(idle.qp.modify(QpChange::Drain).unwrap_err().status, VpStatus::InvalidState);
}

#[test]
fn a_drain_is_bounded() {
    let (near, sink, _peer) = sent_and_unread(|params| {
        params.close_timeout = SHORT;
    });
    arrival::post_unanswered(&near, &sink);
    near.qp.modify(QpChange::Drain).unwrap();
    // If accepted, it would complete before the Read in flight.
    let wr = SendWr { wr_id: 9, op: SEND, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
    match near.qp.post_send(&[wr]) {
        Err(refused) => assert_eq!(refused.status, VpStatus::InvalidState),
        Ok(()) => assert_ne!(near.state(), QpState::Rts),
    }
    assert_eq!(near.event(), AsyncEvent::BadClose);
}

// [VERBS-06] [RDMAP-27]: Terminate 0/0/0 arrives although inbound octets are unread.
#[test]
fn terminate_reaches_the_peer() {
    let (near, far) = pair(&Setup::default());
    near.recv(1, &[]);
    near.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminate_code(near.event()), (true, 0, 0, 0));
    assert_eq!(terminate_code(far.event()), (false, 0, 0, 0));
    assert_eq!(near.complete().status, WcStatus::Flushed);
    wait_for_state(&near, QpState::Error);
    wait_for_state(&far, QpState::Error);
    let kept = near.qp.query().unwrap().terminate.unwrap();
    assert!(kept.sent);
    let kept = far.qp.query().unwrap().terminate.unwrap();
    assert!(!kept.sent);
}

// [VERBS-07]: modify to Error resets; the peer sees a reset, both flush.
#[test]
fn abort_resets() {
    let (near, far) = pair(&Setup::default());
    for i in 0..10 {
        near.recv(i, &[]);
        far.recv(i, &[]);
    }
    near.qp.modify(QpChange::Error).unwrap();
    assert_eq!(far.event(), AsyncEvent::ConnectionReset);
    for i in 0..10 {
        for end in [&near, &far] {
            let completion = end.complete();
            assert_eq!((completion.wr_id, completion.status), (i, WcStatus::Flushed));
        }
    }
    assert_eq!((near.state(), far.state()), (QpState::Error, QpState::Error));
    // [VERBS-11]: posts are flushed, and the QP can go back to Idle.
    near.post(20, SEND, &[]);
    near.recv(21, &[]);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    assert_eq!(near.complete().status, WcStatus::Flushed);
    near.qp.modify(QpChange::Idle).unwrap();
    assert_eq!(near.state(), QpState::Idle);
}

// [VERBS-04]
#[test]
fn idle_to_error_flushes() {
    let end = End::new(|_| {});
    end.post(1, SEND, &[]);
    end.recv(2, &[]);
    end.qp.modify(QpChange::Error).unwrap();
    let statuses = [end.complete(), end.complete()];
    assert!(statuses.iter().all(|completion| completion.status == WcStatus::Flushed));
    end.qp.modify(QpChange::Idle).unwrap();
}

// [VERBS-01]: a transition that is not in the table is refused and changes nothing.
#[test]
fn transitions_not_in_the_table_are_refused() {
    let refused = |end: &End, change| {
        assert_eq!(end.qp.modify(change).unwrap_err().status, VpStatus::InvalidState);
    };
    let idle = End::new(|_| {});
    refused(&idle, QpChange::Closing);
    refused(&idle, QpChange::Terminate);
    refused(&idle, QpChange::Idle);
    assert_eq!(idle.state(), QpState::Idle);
    let (rts, _far) = pair(&Setup::default());
    refused(&rts, QpChange::Idle);
    assert_eq!(rts.state(), QpState::Rts);
    let (closing, _socket) = against_a_socket(|_| {});
    closing.qp.modify(QpChange::Closing).unwrap();
    assert_eq!(closing.state(), QpState::Closing);
    for change in [QpChange::Closing, QpChange::Terminate, QpChange::Error, QpChange::Idle] {
        refused(&closing, change);
    }
    // No Terminate goes out to a peer that does not read.
    let (terminating, source, _socket) = sent_and_unread(|_| {});
    let stalls = || terminating.qp.query().unwrap().counters.send_stalls;
    while stalls() == 0 {
        terminating.post_flags(1, SEND, &[source.all()], SendFlags::empty());
    }
    terminating.qp.modify(QpChange::Terminate).unwrap();
    assert_eq!(terminating.state(), QpState::Terminate);
    for change in [QpChange::Closing, QpChange::Terminate, QpChange::Error, QpChange::Idle] {
        refused(&terminating, change);
    }
    idle.qp.modify(QpChange::Error).unwrap();
    refused(&idle, QpChange::Closing);
    refused(&idle, QpChange::Terminate);
}

#[test]
fn a_socket_that_is_no_stream_is_refused() {
    let end = End::new(|_| {});
    let lonely = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    let llp = LlpStream {
        socket: lonely,
        received: Vec::new(),
        last_message: Vec::new(),
        params: StreamParams::new(Role::Initiator),
        local: None,
    };
    let error = end.qp.modify(QpChange::Rts(Box::new(llp))).unwrap_err();
    assert_eq!(error.status, VpStatus::InvalidStream);
    assert_eq!(end.state(), QpState::Idle);
}

// RDMAC 6.2.1.2: no more than the QP was made for, in either direction.
#[test]
fn a_stream_with_too_many_reads_is_refused() {
    let end = End::new(|init| (init.ird, init.ord) = (4, 4));
    for (ird, ord) in [(5, 4), (4, 5)] {
        let mut params = StreamParams::new(Role::Initiator);
        (params.ird, params.ord) = (ird, ord);
        let (socket, _peer) = sockets();
        let (received, last_message) = (Vec::new(), Vec::new());
        let llp = LlpStream { socket: socket.into(), received, last_message, params, local: None };
        let refused = end.qp.modify(QpChange::Rts(Box::new(llp))).unwrap_err();
        assert_eq!(refused.status, VpStatus::InvalidIrdOrd, "{ird} {ord}");
        assert_eq!(end.state(), QpState::Idle);
    }
}

// [VERBS-28]: a transition to the present state keeps the information about the last stream.
#[test]
fn stream_state_outlives_a_change_of_other_limits() {
    let (near, _far) = pair(&Setup::default());
    near.qp.modify(QpChange::Terminate).unwrap();
    wait_for_state(&near, QpState::Error);
    near.qp.modify(QpChange::Idle).unwrap();
    let before = near.qp.query().unwrap();
    let (ord, ird, send_depth, recv_limit) = (None, None, None, None);
    let change = QpChange::Limits { ord, ird, send_depth, recv_depth: Some(7), recv_limit };
    near.qp.modify(change).unwrap();
    let after = near.qp.query().unwrap();
    assert_eq!((after.recv_depth, after.terminate), (7, before.terminate));
    assert!(after.terminate.is_some() && after.counters == before.counters);
}

// [SEC-09]: an overrun CQ ends its own QPs and no other.
#[test]
fn cq_overrun_ends_its_qps_only() {
    let rnic = open();
    let small = End::on(rnic.clone(), CqInit { depth: 2, handler: None }, |_| {});
    let peer = End::new(|_| {});
    connect((&peer, &small), &Setup::default());
    let (other, other_peer) = pair(&Setup::default());
    for i in 0..8 {
        small.recv(i, &[]);
    }
    for i in 0..8 {
        peer.post(i, SEND, &[]);
    }
    let overrun = small.events.next(EventSource::Cq(small.cq.id()));
    assert_eq!(overrun, AsyncEvent::CqOverrun);
    loop {
        match small.event() {
            AsyncEvent::Established => {}
            event => {
                assert_eq!(terminate_code(event), (true, 0, 2, 7));
                break;
            }
        }
    }
    let mut left = 0;
    let bound = warpline_patience::Bound::new("the CQ to say that it was overrun");
    let status = loop {
        bound.check();
        match small.cq.poll(&mut [WorkCompletion::BLANK]) {
            Ok(count) => left += count,
            Err(status) => break status,
        }
    };
    assert_eq!((left, status), (2, VpStatus::CqOverrun));
    other_peer.recv(1, &[]);
    other.post(2, SEND, &[]);
    other.done(2);
    other_peer.done(1);
}

// [VERBS-15]: limits in Idle, and ORD in RTS, which only goes down.
#[test]
fn limits_change_where_the_table_allows() {
    let limits = |ord, ird, send_depth, recv_depth| QpChange::Limits {
        ord,
        ird,
        send_depth,
        recv_depth,
        recv_limit: None,
    };
    let (near, far) = (End::new(|_| {}), End::new(|_| {}));
    near.qp.modify(limits(Some(8), Some(4), Some(128), Some(32))).unwrap();
    let info = near.qp.query().unwrap();
    assert_eq!((info.ord, info.ird, info.send_depth, info.recv_depth), (8, 4, 128, 32));
    far.qp.modify(limits(Some(4), Some(8), None, None)).unwrap();
    let too_many = near.qp.modify(limits(Some(5000), None, None, None)).unwrap_err();
    assert_eq!(too_many.status, VpStatus::InvalidIrdOrd);
    near.recv(1, &[]);
    let occupied = near.qp.modify(limits(None, None, None, Some(8))).unwrap_err();
    assert_eq!(occupied.status, VpStatus::CannotChange);
    connect((&near, &far), &Setup::default());
    near.qp.modify(limits(Some(1), None, None, None)).unwrap();
    assert_eq!(near.qp.query().unwrap().ord, 1);
    let up = near.qp.modify(limits(Some(2), None, None, None)).unwrap_err();
    assert_eq!(up.status, VpStatus::InvalidIrdOrd);
    let idle_only = near.qp.modify(limits(None, Some(2), None, None)).unwrap_err();
    assert_eq!(idle_only.status, VpStatus::CannotChange);
    let source = far.region(Buffer::pattern(80, 1));
    let sink = near.region(Buffer::new(80));
    for i in 0..10 {
        let remote = source.remote(i * 8);
        let op = SendOp::Read { remote, invalidate_sink: false };
        near.post(i as u64, op, &[sink.sge(i * 8, 8)]);
    }
    for i in 0..10 {
        near.done(i);
    }
    assert_eq!(sink.buffer.read(0, 80), source.buffer.read(0, 80));
}
