//! Tests of messages that wait for a receive: how much is buffered, for how long, on the test's own
//! clock.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use vp_api::{
    Data, Qp, QpChange, QpInfo, QpState, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, Unready,
};
use vp_soft::queue::srq::Waiter;
use warpline_patience::until;

use crate::testing::end::{End, connected};

const SECOND: u64 = 1_000_000_000;
const KEPT: u32 = 64 << 10;
/// Octets of a message.
const LEN: u32 = 16 << 10;

/// Two ends; messages to the second one wait, for eight seconds each.
fn ends() -> (End, End) {
    let unready = Unready::Hold { octets: KEPT, time: Duration::from_secs(8) };
    let far = End::with(2 << 20, |init| init.unready = unready);
    connected((End::new(2 << 20), far))
}

fn info(end: &End) -> QpInfo {
    end.qp.query().expect("it is there")
}

fn send(end: &End, count: usize) {
    let sge = [Sge { stag: end.stag, to: end.buffer.addr(), len: LEN }];
    let data = Data::Sgl(&sge);
    for _ in 0..count {
        let op = SendOp::Send { solicited: false, invalidate: None };
        end.qp
            .post_send(&[SendWr { wr_id: 7, op, data, flags: SendFlags::empty() }])
            .expect("room");
    }
    end.qp.flush();
}

fn receive(end: &End) {
    let sge = [Sge { stag: end.stag, to: end.buffer.addr(), len: LEN }];
    end.qp.post_recv(&[RecvWr { wr_id: 9, sgl: &sge }]).expect("room");
}

/// Serves both ends until `done`.
fn drive((near, far): &(End, End), what: &str, mut done: impl FnMut() -> bool) {
    until(what, || {
        near.qp.poll();
        far.qp.poll();
        done()
    });
}

fn pass(end: &End, ns: u64) {
    end.pass(ns);
    end.engine.run_timers();
}

fn waiting(end: &End) -> Option<u32> {
    end.qp.inside(|inner, _| inner.core.proto.waiting())
}

#[test]
fn no_more_is_read_than_is_kept() {
    let ends = ends();
    let octets = || info(&ends.1).counters.octets_received;
    send(&ends.0, 1);
    drive(&ends, "the first message", || octets() >= LEN.into());
    // After the first message the core knows how much may be read.
    send(&ends.0, 40);
    drive(&ends, "its fill", || ends.1.qp.inside(|inner, _| inner.core.is_full()));
    for _ in 0..1000 {
        ends.0.qp.poll();
        ends.1.qp.poll();
    }
    // An FPDU that was incomplete then was read to its end.
    assert!(octets() <= u64::from(KEPT) + (68 << 10), "{}", octets());
    for _ in 0..41 {
        receive(&ends.1);
        drive(&ends, "a message", || ends.1.completed());
    }
    assert_eq!((octets(), waiting(&ends.1)), (41 * u64::from(LEN), None));
}

#[test]
fn each_message_has_its_own_time() {
    let ends = ends();
    send(&ends.0, 2);
    drive(&ends, "both messages", || info(&ends.1).counters.octets_received == 2 * u64::from(LEN));
    assert_eq!(waiting(&ends.1), Some(1));
    pass(&ends.1, 7 * SECOND);
    receive(&ends.1);
    assert!(ends.1.completed());
    assert_eq!((waiting(&ends.1), info(&ends.1).state), (Some(2), QpState::Rts));
    // The second is the oldest now, and its time has just begun.
    pass(&ends.1, 7 * SECOND);
    assert_eq!(info(&ends.1).state, QpState::Rts);
    // Deadlines are late by an eighth at most.
    pass(&ends.1, 2 * SECOND);
    let why = info(&ends.1).terminate.expect("it ended");
    assert_eq!((why.sent, why.layer, why.etype, why.code), (true, 1, 2, 2));
    assert_eq!(waiting(&ends.1), None);
    drive(&ends, "the peer's end", || info(&ends.0).terminate.is_some());
    let why = info(&ends.0).terminate.expect("it ended");
    assert_eq!((why.sent, why.layer, why.etype, why.code), (false, 1, 2, 2));
}

#[test]
fn a_message_that_does_not_wait_has_no_deadline() {
    let ends = ends();
    for round in 1..=3 {
        send(&ends.0, 1);
        drive(&ends, "the message", || waiting(&ends.1) == Some(round));
        receive(&ends.1);
        assert!(ends.1.completed());
        pass(&ends.1, 60 * SECOND);
        assert_eq!(info(&ends.1).state, QpState::Rts, "{round}");
    }
}

// [CONN-14] an end that does not read must not conclude that the peer is silent
#[test]
fn a_peer_is_not_given_up_while_it_is_not_read() {
    let unready = Unready::Hold { octets: 1, time: Duration::from_secs(600) };
    let far = End::with(64, |init| init.unready = unready);
    let ends = connected((End::new(1 << 20), far));
    send(&ends.0, 1);
    drive(&ends, "its fill", || ends.1.qp.inside(|inner, _| inner.core.is_full()));
    // Its reply will not be read.
    ends.1.read(&ends.0);
    for _ in 0..120 {
        pass(&ends.1, SECOND);
        ends.0.qp.poll();
        ends.1.qp.poll();
    }
    assert_eq!(info(&ends.1).state, QpState::Rts);
}

/// The socket reported the end of the stream while reading was paused: the QP finds it when reading resumes.
#[test]
fn an_end_after_unread_octets_is_seen() {
    let unready = Unready::Hold { octets: 1, time: Duration::from_secs(600) };
    let far = End::with(LEN as usize, |init| init.unready = unready);
    let ends = connected((End::new(LEN as usize), far));
    let (near, far) = &ends;
    send(near, 1);
    drive(&ends, "its fill", || far.qp.inside(|inner, _| inner.core.is_full()));
    let sge = [Sge { stag: near.stag, to: near.buffer.addr(), len: 8 }];
    let remote = Remote { stag: far.stag, to: far.buffer.addr() };
    let (op, data) = (SendOp::Write { remote }, Data::Sgl(&sge));
    near.qp.post_send(&[SendWr { wr_id: 8, op, data, flags: SendFlags::SIGNALED }]).expect("room");
    near.qp.modify(QpChange::Closing).expect("nothing is under way");
    let stream = far.qp.inner.lock().link.as_ref().expect("connected").stream.sockets();
    until("the end to arrive", || {
        let mut fds = [PollFd::new(&*stream, PollFlags::RDHUP)];
        poll(&mut fds, Some(&kal_os::timespec(Duration::ZERO))) == Ok(1)
    });
    far.engine.poll();
    // As an SRQ would do it.
    let wr = RecvWr { wr_id: 9, sgl: &[Sge { stag: far.stag, to: far.buffer.addr(), len: LEN }] };
    far.qp.inside(|inner, _| inner.core.queues.receives.post(&wr)).expect("room");
    far.qp.on_receives();
    until("the end of the stream", || {
        far.engine.poll();
        near.engine.poll();
        info(far).state == QpState::Idle
    });
}
