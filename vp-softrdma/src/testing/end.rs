//! Connected QPs that only the test's own thread drives: their engines' threads have ended, and their
//! clock is the test's.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use vp_api::{
    Cq, CqHandler, CqId, Data, LlpStream, Qp, QpChange, QpId, QpInit, Remote, Role, SendFlags,
    SendOp, SendWr, Sge, Stag, StreamParams, WcStatus, WorkCompletion,
};
use vp_soft::events::EventSink;
use vp_soft::memory::mr::Regions;
use vp_soft::memory::stag_table::StagTable;
use vp_soft::queue::cq_ring::CqRing;
use warpline_patience::until;

use super::{Buffer, FULL, FakeServices, PD, init, pd, services};
use crate::engine::Engine;
use crate::parts::{CqParts, QpParts};
use crate::qp::SoftQp;
use crate::queue::cq::SoftCq;
use crate::stream::socket::Sockets;

/// A consumer that may arm, and ignores notifications.
struct NoHandler;

impl CqHandler for NoHandler {
    fn on_completion(&self, _cq: CqId) {}
}

/// One of them.
pub(crate) struct End {
    pub(crate) services: Arc<FakeServices>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) cq: Arc<SoftCq>,
    pub(crate) qp: Arc<SoftQp>,
    pub(crate) stag: Stag,
    pub(crate) buffer: Buffer,
}

impl End {
    /// An end in Idle, with a region of this many octets.
    pub(crate) fn new(octets: usize) -> Self {
        Self::with(octets, |_| {})
    }

    /// The same, its QP made as `wish` says.
    pub(crate) fn with(octets: usize, wish: impl FnOnce(&mut QpInit)) -> Self {
        let services = services(0);
        let engine = Engine::start(services.clone(), "test-engine").expect("an engine");
        engine.stop();
        let table = Arc::new(StagTable::new().expect("a table"));
        let regions = Regions { table: table.clone(), services: services.clone(), probes: false };
        let buffer = Buffer::new(octets);
        let stag = regions.register(pd(PD), &init(&buffer, FULL)).expect("a region");
        let events = Arc::<EventSink>::default();
        let ring = CqRing::new(16).expect("a ring");
        let (id, handler) = (CqId(5), Some(Arc::new(NoHandler) as Arc<dyn CqHandler>));
        let parts = CqParts { id, ring, handler, events: events.clone(), engine: engine.clone() };
        let cq = SoftCq::create(parts);
        let parts = QpParts {
            id: QpId(1),
            pd: PD,
            send_cq: cq.clone(),
            recv_cq: cq.clone(),
            srq: None,
            table,
            windows: Arc::new(AtomicU32::new(0)),
            events,
            engine: engine.clone(),
        };
        let mut init = QpInit::new(PD, cq.id(), cq.id());
        (init.ird, init.ord) = (4, 4);
        wish(&mut init);
        let qp = SoftQp::create(parts, &init).expect("a QP");
        Self { services, engine, cq, qp, stag, buffer }
    }

    /// Connected to a bare socket, as the initiator, with a region of so many octets.
    pub(crate) fn against_a_socket(octets: usize) -> (Self, TcpStream) {
        let (near, far) = sockets();
        let end = Self::new(octets);
        end.connect(near, Role::Initiator);
        (end, far)
    }

    fn connect(&self, socket: TcpStream, role: Role) {
        let mut params = StreamParams::new(role);
        (params.crc, params.ird, params.ord, params.rtr) = (false, 4, 4, None);
        let llp = LlpStream {
            socket: socket.into(),
            received: Vec::new(),
            last_message: Vec::new(),
            params,
            local: None,
        };
        self.qp.modify(QpChange::Rts(Box::new(llp))).expect("a stream");
    }

    /// Reads all of another's region.
    pub(crate) fn read(&self, source: &Self) {
        let (to, len) = (self.buffer.addr(), self.buffer.len() as u32);
        let sink = [Sge { stag: self.stag, to, len }];
        let remote = Remote { stag: source.stag, to: source.buffer.addr() };
        let op = SendOp::Read { remote, invalidate_sink: false };
        let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&sink), flags: SendFlags::SIGNALED };
        self.qp.post_send(&[wr]).expect("room");
    }

    /// The same, until the request is in the other's socket.
    pub(crate) fn request(&self, source: &Self) {
        self.read(source);
        let stream =
            source.qp.inside(|inner, _| inner.link.as_ref().expect("connected").stream.sockets());
        until("the request to arrive", || is_ready(&stream, PollFlags::IN));
    }

    /// System calls to send.
    pub(crate) fn sends(&self) -> u64 {
        self.qp.query().expect("it is there").counters.send_calls
    }

    /// Payload octets that the core has transmitted.
    pub(crate) fn octets_sent(&self) -> u64 {
        self.qp.query().expect("it is there").counters.octets_sent
    }

    /// Lets this many nanoseconds pass.
    pub(crate) fn pass(&self, ns: u64) {
        self.services.now.fetch_add(ns, Ordering::Relaxed);
    }

    /// Serves the socket; returns true if there is a successful completion.
    pub(crate) fn completed(&self) -> bool {
        let mut out = [WorkCompletion::BLANK];
        let polled = self.cq.poll(&mut out).expect("it is there");
        assert!(polled == 0 || out[0].status == WcStatus::Success, "{:?}", out[0]);
        polled != 0
    }
}

/// Two connected ends; the first is the initiator.
pub(crate) fn pair(octets: usize) -> (End, End) {
    connected((End::new(octets), End::new(octets)))
}

/// The same of two in Idle.
pub(crate) fn connected(ends: (End, End)) -> (End, End) {
    let (near, far) = sockets();
    ends.1.connect(far, Role::Responder);
    ends.0.connect(near, Role::Initiator);
    ends
}

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (far, _) = listener.accept().expect("connected");
    (near, far)
}

/// Whether poll(2) reports this of the socket, now.
pub(crate) fn is_ready(stream: &Sockets, what: PollFlags) -> bool {
    let mut fds = [PollFd::new(stream, what)];
    poll(&mut fds, Some(&kal_os::timespec(Duration::ZERO))) == Ok(1)
}
