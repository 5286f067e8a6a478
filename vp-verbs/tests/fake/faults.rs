//! Tests of faults that no real device shows.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{self, Failing, Fake};
use ibv_sys as sys;
use kal_shim::{HostServices, Region};
use vp_api::*;

/// Collects asynchronous events.
#[derive(Default)]
struct Recorder(Mutex<Vec<(EventSource, AsyncEvent)>>);

impl AsyncHandler for Recorder {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.0.lock().unwrap().push((source, event));
    }
}

/// Two connected queue pairs of one device.
pub(crate) struct Pair {
    pub(crate) rnic: Arc<dyn Rnic>,
    recorder: Arc<Recorder>,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) near: Arc<dyn Qp>,
    pub(crate) far: Arc<dyn Qp>,
    pub(crate) cm: Arc<dyn NativeCm>,
}

impl Pair {
    pub(crate) fn new(fake: &Fake) -> Self {
        let rnic = fake.provider().open("fakeib0", Arc::new(HostServices::default())).unwrap();
        let recorder = Arc::new(Recorder::default());
        rnic.set_async_handler(Some(recorder.clone()));
        let (pd, cm) = (rnic.alloc_pd().unwrap(), rnic.native_cm().unwrap());
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
        let init = QpInit::new(pd, cq.id(), cq.id());
        let near = rnic.create_qp(&init).unwrap();
        let far = rnic.create_qp(&init).unwrap();
        let pair = Self { rnic, recorder, pd, cq, near, far, cm };
        pair.connect();
        pair
    }

    pub(crate) fn next(&self) -> NativeEvent {
        loop {
            if let Some(event) = self.cm.poll_event() {
                return event;
            }
            assert!(self.cm.wait_event(Some(common::HANG)).unwrap(), "no event");
        }
    }

    fn connect(&self) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, address) = self.cm.listen(any, 1).unwrap();
        let params = |data: &[u8]| NativeParams { private_data: data.into(), ird: 4, ord: 4 };
        self.cm.connect(self.near.id(), address, params(&[1, 0])).unwrap();
        let NativeEvent::Request { request, params: asked, .. } = self.next() else {
            panic!("no request");
        };
        // InfiniBand pads; our own padding comes off, zeros at the end of the data stay.
        assert_eq!(asked.private_data, [1, 0]);
        self.cm.accept(request, self.far.id(), params(&[2])).unwrap();
        for _ in 0..2 {
            assert!(matches!(self.next(), NativeEvent::Established { .. }));
        }
        self.cm.unlisten(listener).unwrap();
    }

    pub(crate) fn completion(&self) -> WorkCompletion {
        let mut out = [WorkCompletion::BLANK];
        while self.cq.poll(&mut out).unwrap() == 0 {
            assert!(self.cq.wait(Duration::ZERO, Some(common::HANG)).unwrap(), "no completion");
        }
        out[0]
    }

    pub(crate) fn send(&self) -> Result<(), PostFailure> {
        let op = SendOp::Send { solicited: false, invalidate: None };
        let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
        self.near.post_send(&[SendWr { wr_id: 9, op, data, flags }])
    }

    pub(crate) fn awaits(&self, wanted: impl Fn(&(EventSource, AsyncEvent)) -> bool) {
        let begun = std::time::Instant::now();
        while !self.recorder.0.lock().unwrap().iter().any(&wanted) {
            assert!(begun.elapsed() < common::HANG, "heard {:?}", self.recorder.0.lock().unwrap());
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_status_of_a_completion_ends_the_connection_but_success() {
    let fake = Fake::new();
    for status in 0..24 {
        let pair = Pair::new(&fake);
        pair.far.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
        fake.status(status);
        pair.send().unwrap();
        let wc = pair.completion();
        assert_eq!((wc.wr_id, wc.opcode), (9, WcOpcode::Send));
        assert_eq!(wc.status == WcStatus::Success, status == 0, "{status}");
        if status != 0 {
            // Both ends get an event.
            for _ in 0..2 {
                assert!(matches!(pair.next(), NativeEvent::Disconnected { .. }), "{status}");
            }
            assert_eq!(pair.near.query().unwrap().state, QpState::Error);
        }
    }
}

#[test]
fn a_send_that_completed_before_the_end_is_not_lost_though_it_was_not_polled() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    pair.far.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
    pair.send().unwrap();
    pair.cm.disconnect(pair.far.id()).unwrap();
    for _ in 0..2 {
        assert!(matches!(pair.next(), NativeEvent::Disconnected { .. }));
    }
    for (qp, name) in [(&pair.near, "near"), (&pair.far, "far")] {
        let info = qp.query().unwrap();
        let lost = (info.sends_lost, info.recvs_lost);
        let outstanding = (info.sends_outstanding, info.recvs_outstanding);
        assert_eq!((lost, outstanding), ((0, 0), (0, 0)), "{name}");
    }
    let too_small = pair.cq.resize(1).map_err(|why| why.status);
    assert_eq!(too_small, Err(VpStatus::CqTooSmall));
    for _ in 0..2 {
        assert_eq!(pair.completion().status, WcStatus::Success);
    }
}

#[test]
fn asynchronous_events_find_their_objects() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    fake.raise(sys::IBV_EVENT_CQ_ERR);
    pair.awaits(|(from, event)| {
        matches!(from, EventSource::Cq(_)) && *event == AsyncEvent::CqOverrun
    });
    let mut out = [WorkCompletion::BLANK];
    assert_eq!(pair.cq.poll(&mut out), Err(VpStatus::CqOverrun));
    fake.raise(sys::IBV_EVENT_PORT_ERR);
    pair.awaits(|event| *event == (EventSource::Port(0), AsyncEvent::PortState { online: false }));
    fake.raise(sys::IBV_EVENT_COMM_EST);
    pair.awaits(|(_, event)| *event == AsyncEvent::Established);
    fake.raise(sys::IBV_EVENT_QP_ACCESS_ERR);
    let far = EventSource::Qp(pair.far.id());
    pair.awaits(|(from, event)| *from == far && matches!(event, AsyncEvent::TerminateSent(_)));
    assert!(pair.far.query().unwrap().terminate.is_some());
    fake.raise(sys::IBV_EVENT_DEVICE_FATAL);
    pair.awaits(|event| *event == (EventSource::Rnic, AsyncEvent::Catastrophic));
}

#[test]
fn refused_posts_report_how_many_were_posted() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let op = SendOp::Send { solicited: false, invalidate: None };
    let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&[]), flags: SendFlags::empty() };
    fake.fail("ibv_post_send", 2, libc::ENOMEM);
    let refused = pair.near.post_send(&vec![wr.clone(); 12]).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 2, status: VpStatus::TooManyWrs });
    fake.reset();
    // Its places are free again; what was taken before failed for want of receives.
    for name in ["ibv_post_recv", "ibv_poll_cq"] {
        fake.fail(name, 0, libc::EINVAL);
    }
    let recv = RecvWr { wr_id: 1, sgl: &[] };
    let refused = pair.far.post_recv(&[recv]);
    assert!(refused.is_ok() || refused.unwrap_err().posted == 0);
    assert_eq!(pair.cq.poll(&mut [WorkCompletion::BLANK]), Err(VpStatus::Os));
}

/// Keeps the device's event thread in a handler until it is released.
#[derive(Default)]
struct Stall {
    entered: Mutex<bool>,
    go_on: Mutex<bool>,
    bell: std::sync::Condvar,
}

impl Stall {
    fn until(&self, flag: &Mutex<bool>) {
        let flag = flag.lock().unwrap();
        let waited = self.bell.wait_timeout_while(flag, common::HANG, |set| !*set).unwrap();
        assert!(!waited.1.timed_out(), "the handler and the test do not meet");
    }

    fn set(&self, flag: &Mutex<bool>) {
        *flag.lock().unwrap() = true;
        self.bell.notify_all();
    }

    /// Returns with the thread in the handler.
    fn begin(pair: &Pair, fake: &Fake) -> Arc<Self> {
        let stall = Arc::new(Self::default());
        pair.rnic.set_async_handler(Some(stall.clone()));
        fake.raise(sys::IBV_EVENT_PORT_ERR);
        stall.until(&stall.entered);
        stall
    }
}

impl AsyncHandler for Stall {
    fn on_event(&self, source: EventSource, _: AsyncEvent) {
        if matches!(source, EventSource::Port(_)) && !*self.go_on.lock().unwrap() {
            self.set(&self.entered);
            self.until(&self.go_on);
        }
    }
}

fn begins_anew(qp: &Arc<dyn Qp>) {
    let begun = std::time::Instant::now();
    while let Err(why) = qp.modify(QpChange::Idle) {
        assert_eq!(why.status, VpStatus::StillFlushing);
        assert!(begun.elapsed() < common::HANG, "{why}");
        std::thread::yield_now();
    }
}

impl Pair {
    /// Events up to the next that says that both ends are connected; ends of earlier connections.
    fn connects_anew(&self) -> usize {
        let (mut up, mut down) = (0, 0);
        let (listener, address) = self.cm.listen((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap();
        let params = || NativeParams { private_data: vec![], ird: 4, ord: 4 };
        self.cm.connect(self.near.id(), address, params()).unwrap();
        while up < 2 {
            match self.next() {
                NativeEvent::Request { request, .. } => {
                    self.cm.accept(request, self.far.id(), params()).unwrap();
                }
                NativeEvent::Established { .. } => up += 1,
                NativeEvent::Disconnected { .. } => down += 1,
                other => panic!("{other:?}"),
            }
        }
        self.cm.unlisten(listener).unwrap();
        down
    }
}

#[test]
fn the_end_of_a_connection_ends_no_later_one_on_its_queue_pair() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let stall = Stall::begin(&pair, &fake);
    // A cause that is still to be reported.
    fake.status(sys::IBV_WC_REM_ACCESS_ERR);
    pair.send().unwrap();
    assert_ne!(pair.completion().status, WcStatus::Success);
    let early = pair.near.modify(QpChange::Idle).map_err(|why| why.status);
    assert_eq!(early, Err(VpStatus::StillFlushing));
    stall.set(&stall.go_on);
    begins_anew(&pair.near);
    pair.far.modify(QpChange::Error).unwrap();
    begins_anew(&pair.far);
    assert_eq!(pair.connects_anew(), 2);
    pair.far.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
    pair.send().unwrap();
    for _ in 0..2 {
        assert_eq!(pair.completion().status, WcStatus::Success);
    }
}

#[test]
fn an_event_of_an_earlier_connection_does_not_end_a_later_one() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let stall = Stall::begin(&pair, &fake);
    // The event of the newest queue pair, reported after the port's.
    fake.raise(sys::IBV_EVENT_QP_FATAL);
    for qp in [&pair.near, &pair.far] {
        qp.modify(QpChange::Error).unwrap();
        qp.modify(QpChange::Idle).unwrap();
    }
    stall.set(&stall.go_on);
    assert_eq!(pair.connects_anew(), 2);
    assert_eq!(pair.far.query().unwrap().ended, None);
    pair.far.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
    pair.send().unwrap();
    for _ in 0..2 {
        assert_eq!(pair.completion().status, WcStatus::Success);
    }
}

#[test]
fn the_end_is_reported_of_a_connection_whose_queue_pair_is_reused_at_once() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let stall = Stall::begin(&pair, &fake);
    for qp in [&pair.near, &pair.far] {
        qp.modify(QpChange::Error).unwrap();
        qp.modify(QpChange::Idle).unwrap();
    }
    stall.set(&stall.go_on);
    let mut ended = [pair.next(), pair.next()].map(|event| match event {
        NativeEvent::Disconnected { qp } => qp,
        other => panic!("{other:?}"),
    });
    ended.sort_by_key(|qp| qp.0);
    assert_eq!(ended, [pair.near.id(), pair.far.id()]);
    assert_eq!(pair.connects_anew(), 0);
}

#[test]
fn a_queue_pair_is_connected_once_at_a_time() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let qp = pair.rnic.create_qp(&QpInit::new(pair.pd, pair.cq.id(), pair.cq.id())).unwrap();
    let (_, address) = pair.cm.listen((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap();
    let params = || NativeParams { private_data: vec![], ird: 1, ord: 1 };
    pair.cm.connect(qp.id(), address, params()).unwrap();
    let again = pair.cm.connect(qp.id(), address, params()).unwrap_err();
    assert_eq!(again.status, VpStatus::InvalidState);
    let NativeEvent::Request { request, .. } = pair.next() else { panic!("no request") };
    let itself = pair.cm.accept(request, qp.id(), params()).unwrap_err();
    assert_eq!(itself.status, VpStatus::InvalidState);
    // The request is still there.
    pair.cm.reject(request, b"").unwrap();
    assert!(matches!(pair.next(), NativeEvent::Rejected { .. }));
}

#[test]
fn a_poll_that_fails_after_some_completions_loses_none() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let recv = RecvWr { wr_id: 1, sgl: &[] };
    pair.near.post_recv(&[recv; 20]).unwrap();
    pair.near.modify(QpChange::Error).unwrap();
    // The device gives 16 at a time.
    let fails = Failing::after(&fake, "ibv_poll_cq", 1, libc::EINVAL);
    let mut out = [WorkCompletion::BLANK; 32];
    assert_eq!(pair.cq.poll(&mut out), Ok(16));
    assert_eq!(pair.cq.poll(&mut out), Err(VpStatus::Os));
    drop(fails);
    assert_eq!(pair.cq.poll(&mut out), Ok(4));
}

/// Each thread that ends a connection flushes what was posted late.
#[test]
fn late_posts_complete_in_their_order_while_other_threads_flush() {
    const POSTS: u64 = 4_000;
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    pair.near.modify(QpChange::Error).unwrap();
    let (mut seen, done) = (Vec::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    pair.near.modify(QpChange::Error).unwrap();
                }
            });
        }
        scope.spawn(|| {
            (0..POSTS).for_each(|wr_id| {
                while pair.near.post_recv(&[RecvWr { wr_id, sgl: &[] }]).is_err() {}
            });
        });
        let mut out = [WorkCompletion::BLANK; 16];
        while (seen.len() as u64) < POSTS {
            let count = pair.cq.poll(&mut out).unwrap();
            seen.extend(out[..count].iter().map(|wc| wc.wr_id));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(seen.is_sorted());
}

/// A region and a narrow window of a pair.
struct Bindable<'a> {
    pair: &'a Pair,
    region: Stag,
    window: MwId,
    _memory: Region,
}

impl<'a> Bindable<'a> {
    fn new(pair: &'a Pair) -> Self {
        let memory = Region::new(4096).unwrap();
        let (access, range) = (Access::LOCAL | Access::BIND, memory.mem_range());
        let addressing = Addressing::Absolute;
        let init = MrInit { pd: pair.pd, range, addressing, access, key: 0, pin: false };
        let region = pair.rnic.register_mr(&init).unwrap();
        let window = pair.rnic.alloc_mw(pair.pd, MwKind::Narrow).unwrap();
        Self { pair, region, window, _memory: memory }
    }

    /// Posts binds of these keys in one list.
    fn post(&self, keys: &[u8]) -> Result<(), PostFailure> {
        let to = self.pair.rnic.query_mr(self.region).unwrap().addr;
        let (window, region, addressing) = (self.window, self.region, Addressing::Absolute);
        let bind = |&key| {
            let access = Access::REMOTE_READ;
            let op =
                SendOp::BindMw(BindMw { window, key, region, to, len: 64, addressing, access });
            let (data, flags) = (Data::Sgl(&[]), SendFlags::SIGNALED);
            SendWr { wr_id: key.into(), op, data, flags }
        };
        self.pair.near.post_send(&keys.iter().map(bind).collect::<Vec<_>>())
    }

    /// The key that the window is bound with; its region counts the same.
    fn bound(&self) -> Option<u8> {
        let window = self.pair.rnic.query_mw(self.window).unwrap();
        let counted = self.pair.rnic.query_mr(self.region).unwrap().bound_windows;
        assert_eq!(counted, u32::from(window.region.is_some()));
        window.stag.map(Stag::key)
    }
}

/// A region whose windows are counted as bound cannot be deregistered.
#[test]
fn a_window_whose_bind_fails_or_is_flushed_is_unchanged() {
    let fake = Fake::new();
    for first in [None, Some(7)] {
        let pair = Pair::new(&fake);
        let memory = Bindable::new(&pair);
        if let Some(key) = first {
            memory.post(&[key]).unwrap();
            assert_eq!(pair.completion().status, WcStatus::Success);
        }
        fake.status(sys::IBV_WC_MW_BIND_ERR);
        memory.post(&[8, 9, 10]).unwrap();
        let failed = [WcStatus::InvalidWindow, WcStatus::Flushed, WcStatus::Flushed];
        for (key, status) in [8, 9, 10].into_iter().zip(failed) {
            let wc = pair.completion();
            assert_eq!((wc.wr_id, wc.opcode, wc.status), (key, WcOpcode::BindMw, status));
        }
        assert_eq!(memory.bound(), first);
        let deregistered = pair.rnic.dealloc_stag(memory.region).map_err(|why| why.status);
        assert_eq!(deregistered, if first.is_some() { Err(VpStatus::StagInUse) } else { Ok(()) });
    }
}

/// InfiniBand volume 1, 10.3.1: in Error, what is posted completes as flushed.
#[test]
fn what_is_posted_while_the_device_ends_is_flushed_by_it() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let mut memory = Bindable::new(&pair);
    memory.window = pair.rnic.alloc_mw(pair.pd, MwKind::Wide).unwrap();
    fake.status(sys::IBV_WC_REM_ACCESS_ERR);
    pair.send().unwrap();
    // The device is in Error, and no thread has polled yet. Nothing else flushes.
    let _fail =
        ["ibv_modify_qp", "rdma_disconnect"].map(|call| Failing::new(&fake, call, libc::EIO));
    pair.near.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
    memory.post(&[2]).unwrap();
    pair.send().unwrap();
    let ended = [(); 4].map(|()| pair.completion()).map(|wc| (wc.wr_id, wc.status));
    let flushed = [1, 2, 9].map(|wr_id| (wr_id, WcStatus::Flushed));
    assert_eq!(ended.to_vec(), [&[(9, WcStatus::RemoteTermination)][..], &flushed].concat());
    assert_eq!(memory.bound(), None);
}

#[test]
fn a_window_whose_bind_is_not_posted_is_unchanged() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let memory = Bindable::new(&pair);
    let refused = Failing::after(&fake, "ibv_post_send", 1, 12);
    assert_eq!(memory.post(&[1, 2, 3]).unwrap_err().posted, 1);
    drop(refused);
    assert_eq!(pair.completion().status, WcStatus::Success);
    assert_eq!(memory.bound(), Some(1));
}

/// What an application does from the opening on; stops at the first error.
fn whole_life(fake: &Fake) -> VpResult<()> {
    let rnic = fake.provider().open("fakeib0", Arc::new(HostServices::default()))?;
    let (pd, cm) = (rnic.alloc_pd()?, rnic.native_cm().unwrap());
    let cq = rnic.create_cq(&CqInit { depth: 16, handler: None })?;
    cq.resize(32)?;
    let srq = rnic.create_srq(&SrqInit { pd, depth: 8, max_sge: 1, limit: 2 })?;
    let region = Region::new(4096).unwrap();
    let access = Access::LOCAL | Access::BIND;
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    let init = MrInit { pd, range, addressing, access, key: 0, pin: false };
    let stag = rnic.register_mr(&init)?;
    let stag = rnic.reregister_mr(stag, &init)?;
    let window = rnic.alloc_mw(pd, MwKind::Narrow)?;
    let qp = rnic.create_qp(&QpInit::new(pd, cq.id(), cq.id()))?;
    let (_, address) = cm.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), 1)?;
    let params = NativeParams { private_data: vec![], ird: 1, ord: 1 };
    cm.connect(qp.id(), address, params)?;
    qp.modify(QpChange::Error)?;
    rnic.destroy_qp(qp.id())?;
    rnic.dealloc_mw(window)?;
    rnic.dealloc_stag(stag)?;
    rnic.destroy_srq(srq.id())?;
    rnic.destroy_cq(cq.id())?;
    rnic.dealloc_pd(pd)
}

#[test]
fn every_failing_call_is_an_error_that_leaves_nothing_behind() {
    const MAKING: &[&str] = &[
        "ibv_get_device_list",
        "ibv_open_device",
        "ibv_query_device",
        "ibv_query_port",
        "ibv_create_comp_channel",
        "ibv_alloc_pd",
        "ibv_create_cq",
        "ibv_resize_cq",
        "ibv_create_srq",
        "ibv_modify_srq",
        "ibv_reg_mr",
        "ibv_alloc_mw",
        "ibv_create_qp",
        "ibv_modify_qp",
        "rdma_create_event_channel",
        "rdma_create_id",
        "rdma_bind_addr",
        "rdma_listen",
        "rdma_resolve_addr",
    ];
    // What they do not destroy is the closed device's.
    const ENDING: &[&str] = &[
        "ibv_destroy_qp",
        "ibv_dealloc_mw",
        "ibv_dereg_mr",
        "ibv_destroy_srq",
        "ibv_destroy_cq",
        "ibv_dealloc_pd",
    ];
    let fake = Fake::new();
    whole_life(&fake).unwrap();
    let before = fake.alive();
    for call in MAKING.iter().chain(ENDING) {
        let _fails = Failing::new(&fake, call, libc::ENOMEM);
        let error = whole_life(&fake).expect_err(call);
        assert!(!error.detail.is_empty());
        assert!(ENDING.contains(call) || fake.alive() == before, "{call}");
    }
    // Without it the provider registers anew.
    let fails = Failing::new(&fake, "ibv_rereg_mr", libc::EOPNOTSUPP);
    whole_life(&fake).unwrap();
    drop(fails);
}

#[test]
fn out_of_memory_names_the_limit() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let region = Region::new(4096).unwrap();
    let init = MrInit {
        pd: pair.pd,
        range: region.mem_range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL,
        key: 0,
        pin: true,
    };
    let _fails = Failing::new(&fake, "ibv_reg_mr", libc::ENOMEM);
    let error = pair.rnic.register_mr(&init).unwrap_err();
    assert_eq!(error.status, VpStatus::InsufficientResources);
    assert!(error.detail.contains("4096 octets"), "{error}");
}

#[test]
fn a_rejection_carries_its_private_data_and_no_padding() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    for data in [&b""[..], b"no", &[0; 3], &[7; 145]] {
        let qp = pair.rnic.create_qp(&QpInit::new(pair.pd, pair.cq.id(), pair.cq.id())).unwrap();
        let (_, address) = pair.cm.listen((Ipv4Addr::LOCALHOST, 0).into(), 1).unwrap();
        let params = NativeParams { private_data: vec![], ird: 1, ord: 1 };
        pair.cm.connect(qp.id(), address, params).unwrap();
        let NativeEvent::Request { request, params, .. } = pair.next() else {
            panic!("no request")
        };
        assert_eq!(params.private_data, b"");
        pair.cm.reject(request, data).unwrap();
        let private_data = data.to_vec();
        assert_eq!(pair.next(), NativeEvent::Rejected { qp: qp.id(), private_data });
    }
}

#[test]
fn connections_that_fail_say_why() {
    let fake = Fake::new();
    let rnic = fake.provider().open("fakeib0", Arc::new(HostServices::default())).unwrap();
    let (pd, cm) = (rnic.alloc_pd().unwrap(), rnic.native_cm().unwrap());
    let cq = rnic.create_cq(&CqInit { depth: 16, handler: None }).unwrap();
    let qp = rnic.create_qp(&QpInit::new(pd, cq.id(), cq.id())).unwrap();
    let params = |len| NativeParams { private_data: vec![1; len], ird: 1, ord: 1 };
    let failure = |to: &str, len| {
        if let Err(error) = cm.connect(qp.id(), to.parse().unwrap(), params(len)) {
            return error.to_string();
        }
        assert!(cm.wait_event(Some(common::HANG)).unwrap());
        match cm.poll_event() {
            Some(NativeEvent::Failed { reason, .. }) => reason,
            other => panic!("{other:?}"),
        }
    };
    assert!(failure("127.0.0.1:9", 0).contains("there is no listener"));
    assert!(failure("10.1.2.3:9", 0).contains("address cannot be resolved"));
    assert!(failure("[::1]:9", 0).contains("does not lead over fakeib0"));
    assert!(failure("127.0.0.1:9", 54).contains("takes 53"));
    for call in ["rdma_resolve_route", "rdma_connect"] {
        let _fails = Failing::new(&fake, call, libc::ENETUNREACH);
        assert!(failure("127.0.0.1:9", 0).contains("unreachable"), "{call}");
    }
}
