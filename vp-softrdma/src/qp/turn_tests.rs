//! A QP that could send for ever stops when its turn is over, and goes on when it has the next.
//!
//! Both ends are driven by the test's own thread: their engines' threads have ended.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use vp_api::{
    Cq, CqId, Data, LlpStream, PdId, Qp, QpChange, QpId, QpInit, Remote, Role, SendFlags, SendOp,
    SendWr, Sge, Stag, StreamParams, WcStatus, WorkCompletion,
};

use super::SoftQp;
use super::inner::SENDS;
use crate::cq::SoftCq;
use crate::cq_ring::CqRing;
use crate::engine::Engine;
use crate::events::EventSink;
use crate::parts::{CqParts, QpParts};
use crate::stag_table::StagTable;
use crate::testing::{Buffer, FULL, PD, init, pd, services};

/// Many turns of each end.
const LARGE: usize = 16 << 20;

struct End {
    engine: Arc<Engine>,
    cq: Arc<SoftCq>,
    qp: Arc<SoftQp>,
    stag: Stag,
    buffer: Buffer,
}

impl End {
    fn new() -> Self {
        let services = services(0);
        let engine = Engine::start(services.clone(), "turns").expect("an engine");
        engine.stop();
        let table = Arc::new(StagTable::new());
        let regions = crate::mr::Regions { table: table.clone(), services, probes: false };
        let buffer = Buffer::new(LARGE);
        let stag = regions.register(pd(PD), &init(&buffer, FULL)).expect("a region");
        let events = Arc::<EventSink>::default();
        let ring = CqRing::new(16).expect("a ring");
        let (id, handler) = (CqId(1), None);
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
        let mut init = QpInit::new(PdId(PD.0), cq.id(), cq.id());
        (init.ird, init.ord) = (4, 4);
        let qp = SoftQp::create(parts, &init).expect("a QP");
        Self { engine, cq, qp, stag, buffer }
    }

    fn connect(&self, socket: TcpStream, role: Role) {
        let mut params = StreamParams::new(role);
        (params.crc, params.ird, params.ord, params.rtr) = (false, 4, 4, None);
        let llp = LlpStream {
            socket: socket.into(),
            received: Vec::new(),
            last_message: Vec::new(),
            params,
        };
        self.qp.modify(QpChange::Rts(Box::new(llp))).expect("a stream");
    }

    fn sends(&self) -> u64 {
        self.qp.query().expect("it is there").counters.send_calls
    }

    fn completed(&self) -> bool {
        let mut out = [WorkCompletion::BLANK];
        let polled = self.cq.poll(&mut out).expect("it is there");
        assert!(polled == 0 || out[0].status == WcStatus::Success, "{:?}", out[0]);
        polled != 0
    }
}

/// An end that reads all of the other's buffer, and the other.
fn reading() -> (End, End) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (far, _) = listener.accept().expect("connected");
    let (reader, source) = (End::new(), End::new());
    source.connect(far, Role::Responder);
    reader.connect(near, Role::Initiator);
    let (to, remote) = (reader.buffer.addr(), source.buffer.addr());
    let sink = [Sge { stag: reader.stag, to, len: LARGE as u32 }];
    let op =
        SendOp::Read { remote: Remote { stag: source.stag, to: remote }, invalidate_sink: false };
    let wr = SendWr { wr_id: 1, op, data: Data::Sgl(&sink), flags: SendFlags::SIGNALED };
    reader.qp.post_send(&[wr]).expect("room");
    (reader, source)
}

#[test]
fn a_visit_sends_a_turn_of_a_large_read() {
    let (reader, source) = reading();
    let mut turns = 0;
    let mut turn = |visit: &dyn Fn()| {
        let before = source.sends();
        visit();
        let sent = source.sends() - before;
        assert!(sent <= u64::from(SENDS), "{sent} system calls in one turn");
        turns += u64::from(sent != 0);
    };
    while !reader.completed() {
        turn(&|| {
            source.qp.poll();
        });
        // It may wait for room.
        turn(&|| source.engine.poll());
    }
    // A call takes less than half a MiB: a batch, and the FPDU that filled it.
    assert!(turns >= (LARGE as u64 >> 19) / u64::from(SENDS), "{turns}");
}

/// Octets behind the end of a turn bring no event of their own.
#[test]
fn the_end_of_a_turn_is_an_event() {
    let (reader, source) = reading();
    while !reader.completed() {
        source.engine.poll();
        reader.engine.poll();
    }
}
