//! The acceptor of an iWARP connection over the stand-in for rdma-core: it gets the event of its connection
//! when the initiator's first message came or had time to, and loses nothing meanwhile.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ibv_sys::{IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR};
use kal_shim::{HostServices, Region};
use vp_api::*;

use crate::common::{self, Fake};

/// Two QPs, each with a CQ, of which the first calls the second.
struct Pair {
    rnic: Arc<dyn Rnic>,
    cm: Arc<dyn NativeCm>,
    cqs: [Arc<dyn Cq>; 2],
    near: Arc<dyn Qp>,
    far: Arc<dyn Qp>,
}

impl Pair {
    fn new(fake: &Fake) -> Self {
        let rnic = fake.provider().open("fakeiw0", Arc::new(HostServices::default())).unwrap();
        let pd = rnic.alloc_pd().unwrap();
        let cq = |_| rnic.create_cq(&CqInit { depth: 8, handler: None }).unwrap();
        let cqs = [0, 1].map(cq);
        let [near, far] = [0, 1]
            .map(|n: usize| rnic.create_qp(&QpInit::new(pd, cqs[n].id(), cqs[n].id())).unwrap());
        far.post_recv(&[RecvWr { wr_id: 5, sgl: &[] }]).unwrap();
        Self { cm: rnic.native_cm().unwrap(), rnic, cqs, near, far }
    }

    fn next(&self) -> NativeEvent {
        loop {
            if let Some(event) = self.cm.poll_event() {
                return event;
            }
            assert!(self.cm.wait_event(Some(common::HANG)).unwrap(), "no event");
        }
    }

    /// Until the initiator has its event.
    fn connect(&self) {
        self.call();
        self.established(&self.near);
    }

    fn call(&self) {
        let params = || NativeParams { private_data: b"hello".into(), ird: 1, ord: 1 };
        let (_, address) = self.cm.listen((Ipv6Addr::LOCALHOST, 0).into(), 1).unwrap();
        self.cm.connect(self.near.id(), address, params()).unwrap();
        let NativeEvent::Request { request, .. } = self.next() else { panic!("no request") };
        self.cm.accept(request, self.far.id(), params()).unwrap();
    }

    fn established(&self, end: &Arc<dyn Qp>) {
        match self.next() {
            NativeEvent::Established { qp, params, .. } => {
                assert_eq!((qp, params.ird), (end.id(), 1));
                assert_eq!(end.query().unwrap().state, QpState::Rts);
            }
            other => panic!("{other:?}"),
        }
    }

    fn send(&self, from: &Arc<dyn Qp>, wr_id: u64) {
        let op = SendOp::Send { solicited: false, invalidate: None };
        let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
        from.post_send(&[SendWr { wr_id, op, data, flags }]).unwrap();
    }

    fn completes(&self, side: usize, wr_id: u64) {
        let mut out = [WorkCompletion::BLANK];
        while self.cqs[side].poll(&mut out).unwrap() == 0 {
            assert!(self.cqs[side].wait(Duration::ZERO, Some(common::HANG)).unwrap());
        }
        assert_eq!((out[0].wr_id, out[0].status), (wr_id, WcStatus::Success));
    }
}

/// `None` after saying why.
fn pair(fake: &Fake, test: &str) -> Option<Pair> {
    if std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        warpline_skip::skip(test, "the host has no IPv6");
        return None;
    }
    Some(Pair::new(fake))
}

#[test]
fn the_first_message_is_there_when_the_acceptor_gets_its_event() {
    let fake = Fake::new();
    let Some(pair) = pair(&fake, "the first message of iWARP") else { return };
    pair.connect();
    pair.send(&pair.near, 7);
    pair.completes(0, 7);
    pair.established(&pair.far);
    pair.completes(1, 5);
    pair.near.post_recv(&[RecvWr { wr_id: 8, sgl: &[] }]).unwrap();
    pair.send(&pair.far, 9);
    pair.completes(1, 9);
    pair.completes(0, 8);
}

#[test]
fn a_silent_initiator_times_out() {
    let fake = Fake::new();
    let Some(pair) = pair(&fake, "a silent initiator of iWARP") else { return };
    pair.connect();
    pair.established(&pair.far);
    pair.near.post_recv(&[RecvWr { wr_id: 8, sgl: &[] }]).unwrap();
    pair.send(&pair.far, 9);
    pair.completes(0, 8);
}

#[test]
fn a_connection_that_ends_at_once_is_reported_first() {
    let fake = Fake::new();
    let Some(pair) = pair(&fake, "an initiator of iWARP that leaves") else { return };
    pair.connect();
    pair.cm.disconnect(pair.near.id()).unwrap();
    let mut of_far = Vec::new();
    while of_far.len() < 2 {
        match pair.next() {
            NativeEvent::Established { qp, .. } if qp == pair.far.id() => of_far.push("up"),
            NativeEvent::Disconnected { qp } if qp == pair.far.id() => of_far.push("down"),
            NativeEvent::Disconnected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(of_far, ["up", "down"]);
}

#[test]
fn the_first_message_that_fails_is_not_the_initiators() {
    let fake = Fake::new();
    let Some(pair) = pair(&fake, "a first message of iWARP that fails") else { return };
    fake.status(IBV_WC_WR_FLUSH_ERR);
    pair.call();
    assert!(matches!(pair.next(), NativeEvent::Established { .. }));
    pair.send(&pair.near, 7);
    assert_eq!(pair.completions(0, 1), [(7, WcStatus::Flushed)]);
}

/// A completion of an earlier connection that is not polled occupies the only slot.
#[test]
fn the_first_message_takes_no_place_of_a_full_queue() {
    let fake = Fake::new();
    let Some(mut pair) = pair(&fake, "a first message of iWARP for a full queue") else { return };
    let pd = pair.rnic.alloc_pd().unwrap();
    pair.cqs[0] = pair.rnic.create_cq(&CqInit { depth: 1, handler: None }).unwrap();
    let init = QpInit::new(pd, pair.cqs[0].id(), pair.cqs[1].id());
    pair.near = pair.rnic.create_qp(&QpInit { send_depth: 1, ..init }).unwrap();
    pair.connect();
    pair.established(&pair.far);
    pair.near.modify(QpChange::Error).unwrap();
    pair.send(&pair.near, 1);
    for _ in 0..2 {
        assert!(matches!(pair.next(), NativeEvent::Disconnected { .. }));
    }
    for qp in [&pair.near, &pair.far] {
        qp.modify(QpChange::Idle).unwrap();
    }
    pair.call();
    assert!(matches!(pair.next(), NativeEvent::Established { .. }));
    assert_eq!(pair.completions(0, 1), [(1, WcStatus::Flushed)]);
    let op = SendOp::Write { remote: Remote { stag: Stag(1), to: 0 } };
    let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
    pair.near.post_send(&[SendWr { wr_id: 2, op, data, flags }]).unwrap();
    assert_eq!(pair.completions(0, 1), [(2, WcStatus::Success)]);
    assert_eq!(pair.cqs[0].poll(&mut [WorkCompletion::BLANK]), Ok(0));
}

impl Pair {
    /// The next completions of one side, in order of their numbers.
    fn completions(&self, side: usize, count: usize) -> Vec<(u64, WcStatus)> {
        let mut all = Vec::new();
        while all.len() < count {
            let mut out = [WorkCompletion::BLANK];
            match self.cqs[side].poll(&mut out).unwrap() {
                0 => assert!(
                    self.cqs[side].wait(Duration::ZERO, Some(common::HANG)).unwrap(),
                    "{count} completions, of which {all:?} came"
                ),
                _ => all.push((out[0].wr_id, out[0].status)),
            }
        }
        all.sort_by_key(|(wr_id, _)| *wr_id);
        all
    }

    fn quietly(&self, from: &Arc<dyn Qp>, wr_id: u64) {
        let op = SendOp::Write { remote: Remote { stag: Stag(1), to: 0 } };
        let (data, flags) = (Data::Sgl(&[]), SendFlags::empty());
        from.post_send(&[SendWr { wr_id, op, data, flags }]).unwrap();
    }
}

/// Linux' siw completes nothing that is posted once it is in Error.
#[test]
fn requests_that_a_device_keeps_after_the_end_are_flushed() {
    let fake = Fake::new();
    fake.play_siw();
    let Some(pair) = pair(&fake, "posts that siw keeps") else { return };
    pair.connect();
    pair.established(&pair.far);
    pair.quietly(&pair.near, 1);
    pair.near.modify(QpChange::Error).unwrap();
    pair.quietly(&pair.near, 2);
    pair.send(&pair.near, 3);
    pair.near.post_recv(&[RecvWr { wr_id: 4, sgl: &[] }]).unwrap();
    // The first one had succeeded.
    let flushed = [2, 3, 4].map(|wr_id| (wr_id, WcStatus::Flushed));
    assert_eq!(pair.completions(0, 3), flushed);
    pair.near.modify(QpChange::Idle).unwrap();
    assert_eq!(pair.near.query().unwrap().state, QpState::Idle);
}

#[test]
fn requests_posted_while_such_a_device_ends_are_flushed() {
    let fake = Fake::new();
    fake.play_siw();
    let Some(pair) = pair(&fake, "posts while siw ends") else { return };
    pair.connect();
    pair.established(&pair.far);
    fake.status(IBV_WC_REM_ACCESS_ERR);
    pair.send(&pair.near, 1);
    // The device has ended the connection, and no thread has polled yet.
    pair.quietly(&pair.near, 2);
    pair.send(&pair.near, 3);
    pair.near.post_recv(&[RecvWr { wr_id: 4, sgl: &[] }]).unwrap();
    let flushed = [2, 3, 4].map(|wr_id| (wr_id, WcStatus::Flushed));
    assert_eq!(
        pair.completions(0, 4),
        [&[(1, WcStatus::RemoteTermination)][..], &flushed].concat()
    );
}

/// What is reset and connected again in the next notification.
struct Next {
    qp: Arc<dyn Qp>,
    cm: Arc<dyn NativeCm>,
    to: SocketAddr,
}

#[derive(Default)]
struct Again(Mutex<Option<Next>>);

impl CqHandler for Again {
    fn on_completion(&self, _: CqId) {
        let Some(Next { qp, cm, to }) = self.0.lock().unwrap().take() else { return };
        qp.modify(QpChange::Idle).unwrap();
        qp.post_recv(&[RecvWr { wr_id: 3, sgl: &[] }]).unwrap();
        cm.connect(qp.id(), to, NativeParams { private_data: vec![], ird: 1, ord: 1 }).unwrap();
    }
}

/// The handler of flushed requests runs in the call that ends the connection.
#[test]
fn a_queue_pair_that_is_reset_while_its_connection_is_ended_is_left_alone() {
    resets_while_it_ends("a reset while siw ends", |pair| pair.near.clone());
}

/// The handler runs in the event thread.
#[test]
fn a_queue_pair_may_be_reset_in_the_notification_that_its_peer_caused() {
    resets_while_it_ends("a reset while the peer ends siw", |pair| pair.far.clone());
}

/// `ends`: which one ends the connection.
fn resets_while_it_ends(test: &str, ends: impl Fn(&Pair) -> Arc<dyn Qp>) {
    let fake = Fake::new();
    fake.play_siw();
    let Some(mut pair) = pair(&fake, test) else { return };
    let (again, pd) = (Arc::new(Again::default()), pair.rnic.alloc_pd().unwrap());
    let init = CqInit { depth: 8, handler: Some(again.clone()) };
    pair.cqs[0] = pair.rnic.create_cq(&init).unwrap();
    let cq = pair.cqs[0].id();
    pair.near = pair.rnic.create_qp(&QpInit::new(pd, cq, cq)).unwrap();
    pair.connect();
    pair.established(&pair.far);
    let (_, to) = pair.cm.listen((Ipv6Addr::LOCALHOST, 0).into(), 1).unwrap();
    *again.0.lock().unwrap() = Some(Next { qp: pair.near.clone(), cm: pair.cm.clone(), to });
    fake.status(IBV_WC_REM_ACCESS_ERR);
    pair.send(&pair.near, 1);
    // The device keeps this one, so that the provider flushes it.
    pair.send(&pair.near, 2);
    pair.cqs[0].arm(false).unwrap();
    ends(&pair).modify(QpChange::Error).unwrap();
    let mut up = 0;
    while up < 2 {
        match pair.next() {
            NativeEvent::Disconnected { .. } => {}
            NativeEvent::Request { request, params, .. } => {
                pair.far.modify(QpChange::Idle).unwrap();
                pair.cm.accept(request, pair.far.id(), params).unwrap();
            }
            NativeEvent::Established { .. } => up += 1,
            other => panic!("{other:?}"),
        }
    }
    pair.send(&pair.far, 9);
    let statuses = [WcStatus::RemoteTermination, WcStatus::Flushed, WcStatus::Success];
    let ended: Vec<_> = (1..).zip(statuses).collect();
    assert_eq!(pair.completions(0, 3), ended);
}

/// What is ended without the device has no more room in a CQ than what the device completes.
#[test]
fn requests_that_such_a_device_keeps_overrun_a_small_queue() {
    let fake = Fake::new();
    fake.play_siw();
    let Some(pair) = pair(&fake, "posts that siw keeps, in a small CQ") else { return };
    pair.connect();
    pair.established(&pair.far);
    pair.near.modify(QpChange::Error).unwrap();
    (1..=9).for_each(|wr_id| pair.send(&pair.near, wr_id));
    let flushed: Vec<_> = (1..=8).map(|wr_id| (wr_id, WcStatus::Flushed)).collect();
    assert_eq!(pair.completions(0, 8), flushed);
    let mut out = [WorkCompletion::BLANK];
    assert_eq!(pair.cqs[0].poll(&mut out), Err(VpStatus::CqOverrun));
}

/// It would register the region under its address.
#[test]
fn such_a_device_gets_no_request_for_a_base() {
    let fake = Fake::new();
    let region = Region::new(64).unwrap();
    for (siw, offered) in [(false, true), (true, false)] {
        if siw {
            fake.play_siw();
        }
        let rnic = fake.provider().open("fakeiw0", Arc::new(HostServices::default())).unwrap();
        assert_eq!(rnic.attrs().capabilities.contains(Capabilities::BASED), offered);
        let (pd, range) = (rnic.alloc_pd().unwrap(), region.mem_range());
        let (addressing, access) = (Addressing::Based(4096), Access::LOCAL);
        let init = MrInit { pd, range, addressing, access, key: 0, pin: false };
        match rnic.register_mr(&init) {
            Ok(_) => assert!(offered),
            Err(why) => {
                assert!(!offered && why.status == VpStatus::Unsupported, "{why}");
                assert!(why.detail.contains("fakeiw0") && why.detail.contains("siw"), "{why}");
            }
        }
    }
}
