//! Datagrams: faults that no real device shows, and other providers' peers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use ibv_sys as sys;
use kal_shim::{HostServices, Region};
use vp_api::*;

use crate::common::{self, Failing, Fake};

/// Passes events on.
struct Ears<T>(Mutex<Sender<T>>);

impl<T> Ears<T> {
    fn new() -> (Arc<Self>, Receiver<T>) {
        let (to, from) = channel();
        (Arc::new(Self(Mutex::new(to))), from)
    }

    fn push(&self, event: T) {
        // The receiver may be dropped once the test is over.
        let _ = self.0.lock().unwrap().send(event);
    }
}

impl ServiceHandler for Ears<ServiceEvent> {
    fn on_service(&self, event: ServiceEvent) {
        self.push(event);
    }
}

impl AsyncHandler for Ears<(EventSource, AsyncEvent)> {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.push((source, event));
    }
}

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A queue pair for datagrams, and the way to itself.
struct Post {
    rnic: Arc<dyn Rnic>,
    ud: Arc<dyn Datagrams>,
    events: Receiver<ServiceEvent>,
    pd: PdId,
    cq: Arc<dyn Cq>,
    qp: Arc<dyn UdQp>,
    ah: AhId,
}

impl Post {
    /// Stops at the first error.
    fn open(fake: &Fake) -> VpResult<Self> {
        let rnic = fake.provider().open("fakeib0", Arc::new(HostServices::default()))?;
        let (ud, pd) = (rnic.datagrams().unwrap(), rnic.alloc_pd()?);
        let (ears, events) = Ears::new();
        ud.set_service_handler(Some(ears));
        let cq = rnic.create_cq(&CqInit { depth: 16, handler: None })?;
        let qp = ud.create_qp(&UdQpInit::new(pd, cq.id(), cq.id()))?;
        let mut remote_gid = [0; 16];
        remote_gid[10..].copy_from_slice(&[255, 255, 127, 0, 0, 1]);
        let ah = ud.create_ah(pd, &DatagramPath { remote_gid, ..DatagramPath::default() })?;
        Ok(Self { rnic, ud, events, pd, cq, qp, ah })
    }

    fn event(&self) -> ServiceEvent {
        self.events.recv_timeout(common::HANG).unwrap()
    }

    fn send(&self, wr_id: u64) -> UdSendWr<'static> {
        UdSendWr {
            wr_id,
            data: Data::Sgl(&[]),
            flags: SendFlags::SIGNALED,
            solicited: false,
            immediate: None,
            ah: self.ah,
            to: self.qp.address(),
        }
    }

    fn polled(&self) -> Vec<(WorkCompletion, Option<DatagramSource>)> {
        let (mut out, mut from) = ([WorkCompletion::BLANK; 8], [None; 8]);
        let count = self.cq.poll_from(&mut out, &mut from).unwrap();
        out.into_iter().zip(from).take(count).collect()
    }

    /// The request of a question, which must come.
    fn asked(&self, data: &[u8]) -> VpResult<u64> {
        let at = self.ud.listen(1, ANY, 1)?;
        self.ud.resolve(2, at, data)?;
        match self.event() {
            ServiceEvent::Request { request, private_data, .. } => {
                assert_eq!(private_data, data);
                Ok(request)
            }
            // A fault within.
            ServiceEvent::Failed { reason, .. } => Err(VpError::new(VpStatus::Os, reason)),
            other => panic!("{other:?}"),
        }
    }
}

/// What an application does from the opening on; stops at the first error.
fn whole_life(fake: &Fake) -> VpResult<()> {
    let post = Post::open(fake)?;
    post.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
    let request = post.asked(b"who")?;
    post.ud.accept(request, post.qp.address(), b"")?;
    post.event();
    post.ud.unlisten(1)?;
    let request = post.asked(b"who")?;
    post.ud.reject(request, ServiceRefusal::Rejected, b"")?;
    post.qp.modify(UdState::Error)?;
    post.ud.destroy_ah(post.ah)?;
    post.ud.destroy_qp(post.qp.id())?;
    post.rnic.destroy_cq(post.cq.id())?;
    post.rnic.dealloc_pd(post.pd)
}

#[test]
fn every_failing_call_is_an_error_that_leaves_nothing_behind() {
    let fake = Fake::new();
    whole_life(&fake).unwrap();
    let before = fake.alive();
    for call in [
        "ibv_query_gid",
        "ibv_create_ah",
        "ibv_create_qp",
        "ibv_modify_qp",
        "ibv_query_port",
        "rdma_create_id",
        "rdma_bind_addr",
        "rdma_listen",
        "rdma_resolve_addr",
        "rdma_resolve_route",
        "rdma_connect",
        "rdma_accept",
        "rdma_reject",
        // What these do not destroy is the closed device's.
        "ibv_destroy_qp",
        "ibv_destroy_ah",
    ] {
        let _fails = Failing::new(&fake, call, libc::ENOMEM);
        let error = whole_life(&fake).expect_err(call);
        assert!(!error.detail.is_empty());
        assert!(call.contains("destroy") || fake.alive() == before, "{call}");
    }
}

#[test]
fn a_failed_send_ends_the_queue_pair_until_it_is_reset() {
    let fake = Fake::new();
    let post = Post::open(&fake).unwrap();
    for status in 1..24 {
        post.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap();
        fake.status(status);
        post.qp.post_send(&[post.send(2)]).unwrap();
        let mut found: Vec<_> = post.polled().iter().map(|(wc, _)| (wc.wr_id, wc.status)).collect();
        found.extend(post.polled().iter().map(|(wc, _)| (wc.wr_id, wc.status)));
        assert_eq!(found.len(), 2, "{status}: {found:?}");
        assert!(found.contains(&(1, WcStatus::Flushed)), "{status}");
        assert!(found.iter().all(|(_, status)| *status != WcStatus::Success), "{status}");
        assert_eq!(post.qp.query().unwrap().state, UdState::Error);
        // What comes now is flushed.
        post.qp.post_send(&[post.send(3)]).unwrap();
        post.qp.modify(UdState::Operational).unwrap();
        let flushed = post.polled();
        assert_eq!((flushed.len(), flushed[0].0.wr_id), (1, 3));
        assert_eq!(flushed[0].0.status, WcStatus::Flushed);
    }
}

#[test]
fn events_of_the_device_about_a_queue_pair_are_reported() {
    let fake = Fake::new();
    let post = Post::open(&fake).unwrap();
    let (ears, events) = Ears::<(EventSource, AsyncEvent)>::new();
    post.rnic.set_async_handler(Some(ears));
    fake.raise(sys::IBV_EVENT_QP_FATAL);
    let (source, event) = events.recv_timeout(common::HANG).unwrap();
    assert_eq!(source, EventSource::Qp(post.qp.id()));
    assert!(matches!(event, AsyncEvent::TerminateSent(_)));
    assert_eq!(post.qp.query().unwrap().state, UdState::Error);
    // A service notices that the device is gone, too.
    post.ud.listen(1, ANY, 1).unwrap();
    fake.cm_event(sys::RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
    let gone = (EventSource::Rnic, AsyncEvent::Catastrophic);
    assert_eq!(events.recv_timeout(common::HANG).unwrap(), gone);
}

#[test]
fn refused_posts_report_how_many_were_posted() {
    let fake = Fake::new();
    let post = Post::open(&fake).unwrap();
    fake.fail("ibv_post_send", 2, libc::ENOMEM);
    let refused = post.qp.post_send(&[post.send(1); 12]).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 2, status: VpStatus::TooManyWrs });
    fake.reset();
    assert_eq!(post.qp.query().unwrap().sends_outstanding, 2);
    assert_eq!(post.polled().len(), 2);
    let _fails = Failing::new(&fake, "ibv_post_recv", libc::EINVAL);
    let refused = post.qp.post_recv(&[RecvWr { wr_id: 1, sgl: &[] }]).unwrap_err();
    assert_eq!(refused, PostFailure { posted: 0, status: VpStatus::InvalidWr });
    assert_eq!(post.qp.query().unwrap().recvs_outstanding, 0);
}

#[test]
fn failed_queries_say_why() {
    let fake = Fake::new();
    let post = Post::open(&fake).unwrap();
    let failure = |to: &str| {
        if let Err(error) = post.ud.resolve(7, to.parse().unwrap(), b"") {
            return error.to_string();
        }
        match post.event() {
            ServiceEvent::Failed { token: 7, reason } => reason,
            ServiceEvent::Refused { token: 7, why, .. } => format!("{why:?}"),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failure("127.0.0.1:9"), "NotSupported");
    assert!(failure("10.1.2.3:9").contains("address cannot be resolved"));
    assert!(failure("[::1]:9").contains("does not lead over fakeib0"));
    for call in ["rdma_resolve_route", "rdma_connect"] {
        let _fails = Failing::new(&fake, call, libc::ENETUNREACH);
        assert!(failure("127.0.0.1:9").contains("unreachable"), "{call}");
    }
}

/// Its memory may be freed before the poll, and the header need not be contiguous.
#[test]
fn a_source_whose_header_is_gone_has_no_path() {
    let fake = Fake::new();
    let post = Post::open(&fake).unwrap();
    let region = Region::new(4096).unwrap();
    let (range, addressing) = (region.mem_range(), Addressing::Absolute);
    let init = MrInit { pd: post.pd, range, addressing, access: Access::LOCAL, key: 0, pin: false };
    let stag = post.rnic.register_mr(&init).unwrap();
    let sge = |at: u64, len| Sge { stag, len, to: region.addr() + at };
    let halves = [sge(0, 20), sge(20, 20)];
    let path = |sgl: &[Sge], gone: bool| {
        post.qp.post_recv(&[RecvWr { wr_id: 1, sgl }]).unwrap();
        post.qp.post_send(&[post.send(2)]).unwrap();
        if gone {
            post.rnic.dealloc_stag(stag).unwrap();
        }
        let polled = post.polled();
        let source = polled.iter().find_map(|(_, from)| *from).unwrap();
        assert_eq!((source.qpn, source.grh), (post.qp.address().qpn, true));
        source.path
    };
    let found = path(&[sge(0, 40)], false).unwrap();
    assert_eq!(found.remote_gid[12..], [127, 0, 0, 1]);
    assert!(!found.subnet_local);
    assert_eq!(path(&halves, false), None);
    assert_eq!(path(&[sge(0, 40)], true), None);
}
