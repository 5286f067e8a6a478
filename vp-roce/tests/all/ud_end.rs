//! A queue pair for datagrams with a region, and its services.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kal_shim::Region;
use vp_api::*;
use warpline_patience::{HANG, until};

use crate::end::open;

struct Ears(Mutex<Sender<ServiceEvent>>);

impl ServiceHandler for Ears {
    fn on_service(&self, event: ServiceEvent) {
        // The receiver is gone once the test is over.
        let _ = self.0.lock().unwrap().send(event);
    }
}

/// See the module.
pub(crate) struct UdEnd {
    pub(crate) ud: Arc<dyn Datagrams>,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) qp: Arc<dyn UdQp>,
    pub(crate) region: Region,
    stag: Stag,
    events: Receiver<ServiceEvent>,
    /// Its counters.
    pub(crate) record: DeviceRef,
    rnic: Arc<dyn Rnic>,
}

impl UdEnd {
    /// On the first port, with a service at `address`, whose token is 1; returns its address.
    pub(crate) fn listening(address: &str) -> (Self, SocketAddr) {
        Self::made(Some(address))
    }

    pub(crate) fn new() -> Self {
        Self::made(None).0
    }

    fn made(address: Option<&str>) -> (Self, SocketAddr) {
        let rnic = open();
        let record = DeviceRef::default();
        rnic.publish(record.clone());
        let (pd, ud) = (rnic.alloc_pd().unwrap(), rnic.datagrams().unwrap());
        let (to, events) = channel();
        ud.set_service_handler(Some(Arc::new(Ears(Mutex::new(to)))));
        let service = address.map(|address| ud.listen(1, address.parse().unwrap(), 4).unwrap());
        let cq = rnic.create_cq(&CqInit { depth: 1024, handler: None }).unwrap();
        let qp = ud.create_qp(&UdQpInit::new(pd, cq.id(), cq.id())).unwrap();
        let region = Region::new(1 << 16).unwrap();
        let (range, addressing) = (region.mem_range(), Addressing::Absolute);
        let init = MrInit { pd, range, addressing, access: Access::LOCAL, key: 1, pin: false };
        let stag = rnic.register_mr(&init).unwrap();
        let end = Self { ud, pd, cq, qp, region, stag, events, record, rnic };
        (end, service.unwrap_or_else(|| "127.0.0.1:0".parse().unwrap()))
    }

    pub(crate) fn rnic(&self) -> &dyn Rnic {
        &*self.rnic
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.stag, len: len as u32, to: self.region.addr() + at as u64 }
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.region.read_at(at, &mut octets).unwrap();
        octets
    }

    /// Posts a receive with room for `len` octets of message.
    pub(crate) fn recv(&self, wr_id: u64, at: usize, len: usize) {
        self.qp.post_recv(&[RecvWr { wr_id, sgl: &[self.sge(at, GRH_OCTETS + len)] }]).unwrap();
    }

    pub(crate) fn send(
        &self,
        wr_id: u64,
        way: (AhId, UdAddress),
        sge: Sge,
        immediate: Option<u32>,
    ) {
        let (ah, to) = way;
        let (data, flags) = (Data::Sgl(&[sge]), SendFlags::SIGNALED);
        let wr = UdSendWr { wr_id, data, flags, solicited: false, immediate, ah, to };
        self.qp.post_send(&[wr]).unwrap();
    }

    pub(crate) fn completion(&self) -> (WorkCompletion, Option<DatagramSource>) {
        let (mut out, mut from) = ([WorkCompletion::BLANK], [None]);
        until("a completion", || self.cq.poll_from(&mut out, &mut from).unwrap() == 1);
        (out[0], from[0])
    }

    pub(crate) fn event(&self) -> ServiceEvent {
        self.events.recv_timeout(HANG).unwrap()
    }

    /// No event has come.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.recv_timeout(Duration::ZERO).is_err()
    }

    /// Finds the queue pair of a service.
    pub(crate) fn resolve(&self, at: SocketAddr) -> (AhId, UdAddress) {
        self.ud.resolve(2, at, b"where").unwrap();
        match self.event() {
            ServiceEvent::Resolved { token: 2, address, path, .. } => {
                (self.ud.create_ah(self.pd, &path).unwrap(), address)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Replies to the next request with its queue pair.
    pub(crate) fn answer(&self) {
        match self.event() {
            ServiceEvent::Request { listener: 1, request, private_data, .. } => {
                assert_eq!(private_data, b"where");
                self.ud.accept(request, self.qp.address(), b"here").unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}
