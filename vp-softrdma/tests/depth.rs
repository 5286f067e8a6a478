//! Queues have the depth that they report, in every state: a slot is free when its completion was polled, and a
//! CQ as deep as the sum of its queues does not overrun, however the connections end. What a failure
//! reports of unsignalled requests, and which QPs an overrun ends.
#![allow(clippy::unwrap_used)] // a test's helpers fail loudly

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::*;
use vp_api::*;

const DEPTH: u32 = 8;

fn shallow(init: &mut QpInit) {
    (init.send_depth, init.recv_depth) = (DEPTH, DEPTH);
}

fn setup() -> Setup {
    Setup { init: shallow, ..Setup::default() }
}

const WRITE: SendOp = SendOp::Write { remote: Remote { stag: Stag(0), to: 0 } };

fn send(qp: &dyn Qp, op: SendOp, flags: SendFlags) -> Result<(), VpStatus> {
    let wr = SendWr { wr_id: 0, op, data: Data::Sgl(&[]), flags };
    qp.post_send(&[wr]).map_err(|failure| failure.status)
}

fn receive(qp: &dyn Qp) -> Result<(), VpStatus> {
    qp.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).map_err(|failure| failure.status)
}

/// Posts until one is refused, which must be for lack of room; returns how many were accepted.
fn fill(post: impl Fn() -> Result<(), VpStatus>) -> u32 {
    for posted in 0..10_000 {
        if let Err(status) = post() {
            assert_eq!(status, VpStatus::TooManyWrs);
            return posted;
        }
    }
    panic!("10,000 posts were accepted");
}

fn writes(end: &End) -> u32 {
    fill(|| send(&*end.qp, WRITE, SendFlags::SIGNALED))
}

fn receives(end: &End) -> u32 {
    fill(|| receive(&*end.qp))
}

/// Waits until so many completions wait to be polled.
fn await_queued(end: &End, completions: u32) {
    let begin = Instant::now();
    while end.cq.queued() < completions as usize {
        // Makes progress, and polls no completion.
        end.cq.poll(&mut []).unwrap();
        assert!(begin.elapsed() < HANG, "{} of {completions} completions", end.cq.queued());
    }
}

fn take(end: &End, completions: u32) {
    for _ in 0..completions {
        end.complete();
    }
}

fn end_with_error(end: &End) {
    end.qp.modify(QpChange::Error).unwrap();
    assert_eq!(end.state(), QpState::Error);
}

#[test]
fn a_connection_that_is_not_polled_takes_as_many_as_it_is_deep() {
    let (near, _far) = pair(&setup());
    assert_eq!((writes(&near), receives(&near)), (DEPTH, DEPTH));
    await_queued(&near, DEPTH);
    assert_eq!((writes(&near), receives(&near)), (0, 0));
    // One completion polled, one slot free.
    near.complete();
    assert_eq!(writes(&near), 1);
    take(&near, DEPTH);
    assert_eq!(writes(&near), DEPTH);
}

#[test]
fn so_does_one_that_is_over() {
    let (near, _far) = pair(&setup());
    end_with_error(&near);
    for _ in 0..3 {
        assert_eq!((writes(&near), receives(&near)), (DEPTH, DEPTH));
        assert_eq!(near.cq.queued(), 2 * DEPTH as usize);
        for _ in 0..2 * DEPTH {
            assert_eq!(near.complete().status, WcStatus::Flushed);
        }
    }
    let info = near.qp.query().unwrap();
    assert_eq!((info.sends_lost, info.recvs_lost), (3 * DEPTH, 3 * DEPTH), "flushed at the post");
}

#[test]
fn waiting_messages_count_after_the_end() {
    let (near, _far) = pair(&setup());
    assert_eq!(receives(&near), DEPTH);
    end_with_error(&near);
    assert_eq!(receives(&near), 0);
    near.qp.modify(QpChange::Idle).unwrap();
    assert_eq!(receives(&near), 0, "reset frees no completion that was not polled");
    take(&near, DEPTH);
    assert_eq!(receives(&near), DEPTH);
}

// [VERBS-18]: an unsignalled request is reported only by a later completion.
#[test]
fn an_unsignalled_request_is_done_when_one_behind_it_was_taken() {
    let (near, _far) = pair(&setup());
    for _ in 1..DEPTH {
        send(&*near.qp, WRITE, SendFlags::empty()).unwrap();
    }
    assert_eq!(writes(&near), 1);
    await_queued(&near, 1);
    assert_eq!(writes(&near), 0);
    near.complete();
    assert_eq!(writes(&near), DEPTH);
}

#[test]
fn silence_ends_with_the_stream() {
    let (near, _far) = pair(&setup());
    assert_eq!(fill(|| send(&*near.qp, WRITE, SendFlags::empty())), DEPTH);
    end_with_error(&near);
    let flushed = near.qp.query().unwrap().sends_lost;
    near.qp.modify(QpChange::Idle).unwrap();
    (0..flushed).for_each(|_| assert_eq!(near.complete().status, WcStatus::Flushed));
    assert_eq!(writes(&near), DEPTH);
}

#[test]
fn a_queue_is_resized_when_its_completions_were_taken() {
    let near = End::new(shallow);
    end_with_error(&near);
    assert_eq!((writes(&near), receives(&near)), (DEPTH, DEPTH));
    near.qp.modify(QpChange::Idle).unwrap();
    let resize = |send_depth, recv_depth| {
        let (ord, ird, recv_limit) = (None, None, None);
        near.qp.modify(QpChange::Limits { ord, ird, send_depth, recv_depth, recv_limit })
    };
    assert_eq!(resize(Some(16), None).unwrap_err().status, VpStatus::CannotChange);
    assert_eq!(resize(None, Some(16)).unwrap_err().status, VpStatus::CannotChange);
    take(&near, 2 * DEPTH);
    resize(Some(16), Some(20)).unwrap();
    assert_eq!((writes(&near), receives(&near)), (16, 20));
}

/// An SRQ, and a connection whose far end uses it.
fn sharing() -> (Arc<dyn Srq>, End, End) {
    let near = End::new(shallow);
    let rnic = open();
    let far = End::on(rnic.clone(), CqInit { depth: 64, handler: None }, shallow);
    let srq = SrqInit { pd: far.pd, depth: DEPTH, max_sge: 1, limit: 0 };
    let srq = rnic.create_srq(&srq).unwrap();
    let mut init = QpInit::new(far.pd, far.cq.id(), far.cq.id());
    init.srq = Some(srq.id());
    let far = End { qp: rnic.create_qp(&init).unwrap(), ..far };
    connect((&near, &far), &Setup::default());
    (srq, near, far)
}

#[test]
fn a_shared_receive_is_outstanding_until_its_completion_was_taken() {
    let (srq, near, far) = sharing();
    let post = || srq.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).map_err(|f| f.status);
    assert_eq!(fill(post), DEPTH);
    (0..3).for_each(|_| near.post(0, SEND, &[]));
    await_queued(&far, 3);
    assert_eq!(srq.query().unwrap().posted, DEPTH - 3);
    assert_eq!(fill(post), 0);
    far.complete();
    assert_eq!(fill(post), 1);
    assert_eq!(srq.modify(Some(DEPTH - 1), None).unwrap_err().status, VpStatus::CannotChange);
    take(&far, 2);
    // As deep as the number of its entries, and one more.
    assert_eq!(srq.modify(Some(DEPTH - 2), None).unwrap().depth, DEPTH - 2);
    assert_eq!(fill(post), 0);
    assert_eq!(srq.modify(Some(DEPTH - 1), None).unwrap().depth, DEPTH - 1);
    assert_eq!(fill(post), 1);
}

// [VERBS-20]: from the CQ of its sends and from that of its receives.
#[test]
fn a_destroyed_qp_leaves_nothing_in_either_cq() {
    let end = End::new(shallow);
    let other = end.rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
    for (send_cq, recv_cq) in [(end.cq.id(), other.id()), (other.id(), end.cq.id())] {
        let qp = end.rnic.create_qp(&QpInit::new(end.pd, send_cq, recv_cq)).unwrap();
        qp.modify(QpChange::Error).unwrap();
        send(&*qp, WRITE, SendFlags::SIGNALED).unwrap();
        receive(&*qp).unwrap();
        assert_eq!((end.cq.queued(), other.queued()), (1, 1));
        end.rnic.destroy_qp(qp.id()).unwrap();
        assert_eq!((end.cq.queued(), other.queued()), (0, 0));
    }
}

// [SEC-09]: the CQ has reported the overrun before, and each QP that loses a completion ends.
#[test]
fn an_overrun_cq_ends_later_queue_pairs_too() {
    let full = End::on(open(), CqInit { depth: 2, handler: None }, shallow);
    end_with_error(&full);
    (0..3).for_each(|_| receive(&*full.qp).unwrap());
    assert_eq!(full.events.next(EventSource::Cq(full.cq.id())), AsyncEvent::CqOverrun);
    let other = full.rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
    for (send_cq, recv_cq) in [(full.cq.id(), other.id()), (other.id(), full.cq.id())] {
        let qp = full.rnic.create_qp(&QpInit::new(full.pd, send_cq, recv_cq)).unwrap();
        let (rnic, events) = (full.rnic.clone(), full.events.clone());
        let late = End { rnic, events, cq: other.clone(), pd: full.pd, qp };
        let peer = End::new(shallow);
        connect((&late, &peer), &Setup::default());
        assert_eq!(late.event(), AsyncEvent::Established);
        assert_eq!(peer.event(), AsyncEvent::Established);
        late.recv(1, &[]);
        if send_cq == other.id() {
            peer.post(2, SEND, &[]);
        } else {
            late.post(2, SEND, &[]);
        }
        assert!(matches!(late.event(), AsyncEvent::TerminateSent(_)));
    }
}

// [SEC-09]: there is no other event at that moment.
#[test]
fn a_single_lost_completion_is_reported() {
    let end = End::on(open(), CqInit { depth: 2, handler: None }, shallow);
    end_with_error(&end);
    for _ in 0..2 {
        receive(&*end.qp).unwrap();
        assert!(end.events.is_empty());
    }
    receive(&*end.qp).unwrap();
    assert_eq!(end.events.next(EventSource::Cq(end.cq.id())), AsyncEvent::CqOverrun);
    take(&end, 2);
    assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Err(VpStatus::CqOverrun));
}

// [VERBS-18] [VERBS-11]: only success is not reported.
#[test]
fn unsignalled_requests_that_fail_or_are_flushed_say_so() {
    let (near, _far) = pair(&setup());
    let unknown = Sge { stag: Stag(0x1234_5678), to: 0, len: 100 };
    let silent = |wr_id, sgl: &[Sge]| {
        let (data, flags) = (Data::Sgl(sgl), SendFlags::empty());
        near.qp.post_send(&[SendWr { wr_id, op: WRITE, data, flags }]).unwrap();
    };
    silent(1, &[unknown]);
    let failed = near.complete();
    assert_eq!((failed.wr_id, failed.status), (1, WcStatus::InvalidStag));
    // In Terminate or Error by now.
    silent(2, &[]);
    let flushed = near.complete();
    assert_eq!((flushed.wr_id, flushed.status), (2, WcStatus::Flushed));
    assert_eq!(near.qp.query().unwrap().sends_lost, 2);
}

// [VERBS-18] [VERBS-11]: those that wait when the stream ends.
#[test]
fn outstanding_unsignalled_requests_are_flushed_with_completions() {
    let end = End::new(shallow);
    for wr_id in 0..3 {
        let (data, flags) = (Data::Sgl(&[]), SendFlags::empty());
        end.qp.post_send(&[SendWr { wr_id, op: WRITE, data, flags }]).unwrap();
    }
    end_with_error(&end);
    for wr_id in 0..3 {
        let flushed = end.complete();
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::Flushed));
    }
}

// [VERBS-26]: receives of a shared queue are in its protection domain, not in the QP's.
#[test]
fn receives_of_an_srq_are_checked_against_its_domain() {
    for (own, list) in [(true, 1), (true, 2), (false, 1), (false, 2)] {
        let near = End::new(shallow);
        let far = End::new(shallow);
        let domain = far.rnic.alloc_pd().unwrap();
        let init = SrqInit { pd: domain, depth: 4, max_sge: 2, limit: 0 };
        let srq = far.rnic.create_srq(&init).unwrap();
        let mut init = QpInit::new(far.pd, far.cq.id(), far.cq.id());
        init.srq = Some(srq.id());
        let qp = far.rnic.create_qp(&init).unwrap();
        let owner = if own { domain } else { far.pd };
        let far = End { qp, pd: owner, ..far };
        let sink = far.region(Buffer::new(64));
        let source = near.region(Buffer::pattern(64, 9));
        connect((&near, &far), &Setup::default());
        let pieces = [sink.sge(0, 32), sink.sge(32, 32)];
        let whole = [sink.all()];
        let sgl = if list == 2 { &pieces[..] } else { &whole[..] };
        srq.post_recv(&[RecvWr { wr_id: 5, sgl }]).unwrap();
        near.post(1, SEND, &[source.all()]);
        let completion = far.complete();
        let expected = if own { WcStatus::Success } else { WcStatus::InvalidPd };
        assert_eq!((completion.wr_id, completion.status), (5, expected), "{list} elements");
        assert_eq!(sink.buffer.read(0, 64) == source.buffer.read(0, 64), own);
    }
}

// [SEC-09]: an overrun CQ ends all of its QPs, one that has nothing to do with it, too.
#[test]
fn an_overrun_ends_the_idle_qp_of_the_cq_as_well() {
    let (rnic, peer) = (open(), End::new(shallow));
    let busy = End::on(rnic.clone(), CqInit { depth: 2, handler: None }, shallow);
    let idle = QpInit::new(busy.pd, busy.cq.id(), busy.cq.id());
    let (events, cq) = (busy.events.clone(), busy.cq.clone());
    let idle =
        End { rnic: rnic.clone(), events, cq, pd: busy.pd, qp: rnic.create_qp(&idle).unwrap() };
    let other = End::new(shallow);
    // One that was destroyed ends no other.
    let gone = rnic.create_qp(&QpInit::new(busy.pd, busy.cq.id(), busy.cq.id())).unwrap();
    rnic.destroy_qp(gone.id()).unwrap();
    connect((&busy, &peer), &Setup::default());
    connect((&idle, &other), &Setup::default());
    assert_eq!((busy.event(), idle.event()), (AsyncEvent::Established, AsyncEvent::Established));
    assert_eq!(writes(&busy), DEPTH);
    let source = EventSource::Cq(busy.cq.id());
    assert_eq!(busy.events.next(source), AsyncEvent::CqOverrun);
    let begin = Instant::now();
    while idle.state() == QpState::Rts || busy.state() == QpState::Rts {
        assert!(begin.elapsed() < HANG, "busy {:?}, idle {:?}", busy.state(), idle.state());
        std::thread::yield_now();
    }
    // The peers of both get an event.
    for end in [&peer, &other] {
        assert_eq!(end.event(), AsyncEvent::Established);
        assert!(matches!(end.event(), AsyncEvent::TerminateReceived(_)), "a Terminate");
    }
}

fn destroy(rnic: &dyn Rnic, qp: &dyn Qp) {
    rnic.destroy_qp(qp.id()).unwrap();
}

/// Another QP of the end's CQ, in Error: what is posted is flushed at once.
fn another(end: &End) -> Arc<dyn Qp> {
    let mut init = QpInit::new(end.pd, end.cq.id(), end.cq.id());
    shallow(&mut init);
    let qp = end.rnic.create_qp(&init).unwrap();
    qp.modify(QpChange::Error).unwrap();
    qp
}

fn overfill(qp: &dyn Qp) {
    assert_eq!(fill(|| send(qp, WRITE, SendFlags::SIGNALED)), DEPTH);
    assert_eq!(fill(|| receive(qp)), DEPTH);
}

/// An end whose CQ is as deep as `queues` of its queues.
fn tight(queues: u32) -> End {
    End::on(open(), CqInit { depth: queues * DEPTH, handler: None }, shallow)
}

// [VERBS-20]
#[test]
fn completions_of_destroyed_qps_leave_a_cq_that_is_not_polled() {
    let end = tight(4);
    for _ in 0..10_000 {
        let qp = another(&end);
        overfill(&*qp);
        assert_eq!(end.cq.queued(), 2 * DEPTH as usize);
        destroy(&*end.rnic, &*qp);
        assert_eq!(end.cq.queued(), 0);
    }
    assert_eq!(end.cq.poll(&mut [WorkCompletion::BLANK]), Ok(0));
    assert!(end.events.is_empty(), "overrun");
}

#[test]
fn completions_of_others_stay_and_keep_their_slots() {
    let end = tight(4);
    end_with_error(&end);
    for round in 0..100 {
        let gone = another(&end);
        for wr_id in 0..u64::from(DEPTH) {
            send(&*gone, WRITE, SendFlags::SIGNALED).unwrap();
            end.post(wr_id, WRITE, &[]);
        }
        destroy(&*end.rnic, &*gone);
        assert_eq!(end.cq.queued(), DEPTH as usize, "round {round}");
        // Each completion that is polled frees one slot, wherever the others were moved.
        for wr_id in 0..u64::from(DEPTH) {
            assert_eq!(writes(&end), u32::from(wr_id != 0));
            let completion = end.complete();
            assert_eq!((completion.qp, completion.wr_id), (end.qp.id(), wr_id));
        }
        assert_eq!(writes(&end), 1);
        take(&end, DEPTH);
    }
    assert!(end.events.is_empty(), "overrun");
}

#[test]
fn shared_receives_of_a_destroyed_qp_are_free() {
    let (srq, near, far) = sharing();
    let post = || srq.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).map_err(|f| f.status);
    assert_eq!(fill(post), DEPTH);
    (0..3).for_each(|_| near.post(0, SEND, &[]));
    await_queued(&far, 3);
    destroy(&*far.rnic, &*far.qp);
    assert_eq!(far.cq.queued(), 0);
    assert_eq!(fill(post), 3);
}

/// Sets it when it is dropped, also by a panic: others wait for it.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// One thread makes and destroys, one posts to a QP that lives, one polls.
#[test]
fn live_queue_pairs_lose_nothing_while_others_end() {
    const POSTS: u64 = 5_000;
    let end = tight(4);
    end_with_error(&end);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let qp = another(&end);
                for _ in 0..DEPTH {
                    send(&*qp, WRITE, SendFlags::SIGNALED).unwrap();
                    receive(&*qp).unwrap();
                }
                destroy(&*end.rnic, &*qp);
            }
        });
        scope.spawn(|| {
            for wr_id in 0..POSTS {
                let wr =
                    SendWr { wr_id, op: WRITE, data: Data::Sgl(&[]), flags: SendFlags::SIGNALED };
                warpline_patience::until("a slot to be free", || {
                    let posted = end
                        .qp
                        .post_send(std::slice::from_ref(&wr))
                        .map_err(|failure| failure.status);
                    assert!(matches!(posted, Ok(()) | Err(VpStatus::TooManyWrs)), "{posted:?}");
                    posted.is_ok()
                });
            }
        });
        let _done = Done(&done);
        // Some completions of the QPs that are destroyed were not polled.
        let (begin, mut seen) = (Instant::now(), 0);
        let mut out = [WorkCompletion::BLANK; 5];
        while seen < POSTS {
            let found = end.cq.poll(&mut out).unwrap();
            for completion in out[..found].iter().filter(|c| c.qp == end.qp.id()) {
                assert_eq!(completion.wr_id, seen);
                seen += 1;
            }
            assert!(begin.elapsed() < HANG, "{seen} of {POSTS} completions");
        }
    });
    assert!(end.events.is_empty(), "overrun");
}
