//! A queue pair of the provider with a region, and the few calls that tests make.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kal_shim::Region;
use vp_api::*;
use vp_roce::{NAME, Roce};
use warpline_patience::{HANG, until};

/// Settings of the provider.
struct Host(Vec<(String, String)>);

impl Services for Host {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
    fn settings(&self) -> &[(String, String)] {
        &self.0
    }
}

/// Asynchronous events that came.
#[derive(Default)]
struct Events(Mutex<Vec<AsyncEvent>>);

impl AsyncHandler for Events {
    fn on_event(&self, _: EventSource, event: AsyncEvent) {
        self.0.lock().unwrap().push(event);
    }
}

pub(crate) fn open() -> Arc<dyn Rnic> {
    open_with(&[]).unwrap()
}

pub(crate) fn open_with(settings: &[(&str, &str)]) -> VpResult<Arc<dyn Rnic>> {
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Roce.open(NAME, Arc::new(Host(settings.iter().map(own).collect())))
}

/// Octets that differ from place to place.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// See the module.
pub(crate) struct End {
    pub(crate) cm: Arc<dyn NativeCm>,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) qp: Arc<dyn Qp>,
    pub(crate) region: Region,
    pub(crate) stag: Stag,
    events: Arc<Events>,
    pd: PdId,
    rnic: Arc<dyn Rnic>,
}

impl End {
    pub(crate) fn new(octets: usize) -> Self {
        Self::on(open(), octets)
    }

    pub(crate) fn on(rnic: Arc<dyn Rnic>, octets: usize) -> Self {
        let events = Arc::<Events>::default();
        rnic.set_async_handler(Some(events.clone()));
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&CqInit { depth: 1024, handler: None }).unwrap();
        let mut init = QpInit::new(pd, cq.id(), cq.id());
        (init.send_depth, init.recv_depth) = (256, 256);
        let qp = rnic.create_qp(&init).unwrap();
        let region = Region::new(octets).unwrap();
        let cm = rnic.native_cm().unwrap();
        let mut end = Self { cm, cq, qp, region, stag: Stag(0), events, pd, rnic };
        end.stag = end.grant(Access::LOCAL | Access::REMOTE);
        end
    }

    /// Registers its memory with these rights.
    pub(crate) fn grant(&self, access: Access) -> Stag {
        let (pd, range, addressing) = (self.pd, self.region.mem_range(), Addressing::Absolute);
        let init = MrInit { pd, range, addressing, access, key: 0x5a, pin: false };
        self.rnic.register_mr(&init).unwrap()
    }

    pub(crate) fn rnic(&self) -> &dyn Rnic {
        &*self.rnic
    }

    pub(crate) fn paths(&self) -> Arc<dyn Paths> {
        self.rnic.paths().unwrap()
    }

    /// An end on the same RNIC, with the same listeners.
    pub(crate) fn renewed(self) -> Self {
        assert_eq!(self.qp.modify(QpChange::Idle), Ok(()));
        while self.cq.poll(&mut [WorkCompletion::BLANK]).unwrap() != 0 {}
        self
    }

    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.stag, len: len as u32, to: self.region.addr() + at as u64 }
    }

    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, to: self.region.addr() + at as u64 }
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.region.read_at(at, &mut octets).unwrap();
        octets
    }

    pub(crate) fn post(&self, wr_id: u64, op: SendOp, sge: Sge) {
        let (data, flags) = (Data::Sgl(&[sge]), SendFlags::SIGNALED);
        self.qp.post_send(&[SendWr { wr_id, op, data, flags }]).unwrap();
    }

    pub(crate) fn send(&self, wr_id: u64, sge: Sge) {
        self.post(wr_id, SendOp::Send { solicited: false, invalidate: None }, sge);
    }

    pub(crate) fn recv(&self, wr_id: u64, sge: Sge) {
        self.qp.post_recv(&[RecvWr { wr_id, sgl: &[sge] }]).unwrap();
    }

    /// The next completion.
    pub(crate) fn completion(&self) -> WorkCompletion {
        let mut out = [WorkCompletion::BLANK];
        until("a completion", || self.cq.poll(&mut out).unwrap() == 1);
        out[0]
    }

    /// The next completion, which is a success.
    pub(crate) fn done(&self) -> WorkCompletion {
        let wc = self.completion();
        assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
        wc
    }

    /// Asynchronous events so far.
    pub(crate) fn events(&self) -> Vec<AsyncEvent> {
        self.events.0.lock().unwrap().clone()
    }

    pub(crate) fn event(&self) -> NativeEvent {
        assert!(self.cm.wait_event(Some(HANG)).unwrap(), "no event of the connection manager");
        self.cm.poll_event().unwrap()
    }

    /// No event of the connection manager has come.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.cm.wait_event(Some(Duration::ZERO)).unwrap()
    }

    fn params(&self) -> NativeParams {
        NativeParams { private_data: self.handle(), ird: 16, ord: 16 }
    }

    /// STag and address of its region, for the peer.
    fn handle(&self) -> Vec<u8> {
        let Remote { stag, to } = self.remote(0);
        [&stag.0.to_be_bytes()[..], &to.to_be_bytes()].concat()
    }

    pub(crate) fn listen(&self, address: &str) -> SocketAddr {
        self.cm.listen(address.parse().unwrap(), 8).unwrap().1
    }

    /// Accepts the next request; returns the peer's region, if it sent one.
    pub(crate) fn accept(&self) -> Option<Remote> {
        let NativeEvent::Request { request, params, .. } = self.event() else {
            panic!("a request was expected")
        };
        self.cm.accept(request, self.qp.id(), self.params()).unwrap();
        let established = self.event();
        assert!(matches!(established, NativeEvent::Established { .. }), "{established:?}");
        remote_in(&params.private_data)
    }

    /// Connects; returns the peer's region.
    pub(crate) fn connect(&self, to: SocketAddr) -> Remote {
        self.cm.connect(self.qp.id(), to, self.params()).unwrap();
        match self.event() {
            NativeEvent::Established { params, .. } => remote_in(&params.private_data).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

fn remote_in(private_data: &[u8]) -> Option<Remote> {
    let (stag, rest) = private_data.split_first_chunk()?;
    let to = rest.first_chunk()?;
    Some(Remote { stag: Stag(u32::from_be_bytes(*stag)), to: u64::from_be_bytes(*to) })
}
