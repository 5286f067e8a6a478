//! What the tests of connected QPs share: ends, buffers, short forms of work requests.
//!
//! Every connection is a real TCP connection over 127.0.0.1. Nothing here sleeps: waiting is
//! `Cq::wait`, with a bound that only a hang reaches.
// Each test program uses a part of this module; helpers panic, like tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vp_api::*;
use vp_softrdma::SoftRdma;

/// The longest wait of a test; a test that reaches it has failed.
pub const HANG: Duration = Duration::from_secs(60);

pub struct Host;

impl Services for Host {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

pub fn open() -> Arc<dyn Rnic> {
    SoftRdma.open("vp_softrdma", Arc::new(Host)).unwrap()
}

/// Asynchronous events, to wait for.
#[derive(Default)]
pub struct Events {
    seen: Mutex<VecDeque<(EventSource, AsyncEvent)>>,
    bell: Condvar,
}

impl AsyncHandler for Events {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        self.seen.lock().unwrap().push_back((source, event));
        self.bell.notify_all();
    }
}

impl Events {
    /// The next event of `source`.
    pub fn next(&self, source: EventSource) -> AsyncEvent {
        let mut seen = self.seen.lock().unwrap();
        loop {
            if let Some(at) = seen.iter().position(|(from, _)| *from == source) {
                return seen.remove(at).unwrap().1;
            }
            let (guard, timeout) = self.bell.wait_timeout(seen, HANG).unwrap();
            seen = guard;
            assert!(!timeout.timed_out(), "no event of {source:?}");
        }
    }

    pub fn is_empty(&self) -> bool {
        self.seen.lock().unwrap().is_empty()
    }
}

/// Memory that is read and written through raw pointers only.
pub struct Buffer {
    addr: NonNull<u8>,
    len: usize,
}

// SAFETY: a buffer is an address; its octets are only touched through raw copies, and a test that
// races with a peer gets what a race gives.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(len: usize) -> Arc<Self> {
        let octets: Box<[u64]> = vec![0; len.div_ceil(8).max(1)].into();
        Arc::new(Self { addr: NonNull::new(Box::into_raw(octets).cast()).unwrap(), len })
    }

    /// Filled with a pattern that depends on `seed`.
    pub fn pattern(len: usize, seed: u8) -> Arc<Self> {
        let buffer = Self::new(len);
        buffer.write(0, &pattern(len, seed));
        buffer
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn to(&self) -> u64 {
        self.addr.as_ptr() as u64
    }

    pub fn write(&self, at: usize, octets: &[u8]) {
        assert!(at + octets.len() <= self.len);
        let target = self.addr.as_ptr().wrapping_add(at);
        // SAFETY: inside the allocation, as asserted; `octets` is another one.
        unsafe { target.copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
    }

    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut octets = vec![0; len];
        let source = self.addr.as_ptr().wrapping_add(at);
        // SAFETY: inside the allocation, as asserted; `octets` is another one.
        unsafe { source.copy_to_nonoverlapping(octets.as_mut_ptr(), len) };
        octets
    }

    pub fn range(self: &Arc<Self>) -> MemRange {
        // SAFETY: one allocation that lives as long as this `Arc`; no references to it are made.
        unsafe { MemRange::owned(self.addr, self.len, self.clone()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(
            self.addr.as_ptr().cast::<u64>(),
            self.len.div_ceil(8).max(1),
        );
        // SAFETY: the pointer and the length are those of the box that `new` leaked.
        drop(unsafe { Box::from_raw(words) });
    }
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// A registered buffer.
pub struct Region {
    pub buffer: Arc<Buffer>,
    pub stag: Stag,
}

impl Region {
    pub fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.stag, len: len as u32, to: self.buffer.to() + at as u64 }
    }

    pub fn all(&self) -> Sge {
        self.sge(0, self.buffer.len())
    }

    pub fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, to: self.buffer.to() + at as u64 }
    }
}

/// What a test chooses about its connection.
#[derive(Clone)]
pub struct Setup {
    pub crc: bool,
    pub markers: bool,
    pub fpdu: FpduSize,
    pub rtr: Option<Rtr>,
    pub send_buffer: Option<usize>,
    pub init: fn(&mut QpInit),
    pub params: fn(&mut StreamParams),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            crc: true,
            markers: false,
            fpdu: FpduSize::Emss,
            rtr: Some(Rtr::Write),
            send_buffer: None,
            init: |_| {},
            params: |_| {},
        }
    }
}

/// One end: an RNIC with one PD, CQ and QP.
pub struct End {
    pub rnic: Arc<dyn Rnic>,
    pub events: Arc<Events>,
    pub pd: PdId,
    pub cq: Arc<dyn Cq>,
    pub qp: Arc<dyn Qp>,
}

impl End {
    pub fn new(init: impl FnOnce(&mut QpInit)) -> Self {
        Self::on(open(), CqInit { depth: 1024, handler: None }, init)
    }

    pub fn on(rnic: Arc<dyn Rnic>, cq: CqInit, init: impl FnOnce(&mut QpInit)) -> Self {
        let events = Arc::new(Events::default());
        rnic.set_async_handler(Some(events.clone()));
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&cq).unwrap();
        let mut qp = QpInit::new(pd, cq.id(), cq.id());
        init(&mut qp);
        let qp = rnic.create_qp(&qp).unwrap();
        Self { rnic, events, pd, cq, qp }
    }

    pub fn rts(&self, socket: TcpStream, params: StreamParams) {
        self.rts_with(socket, params, None);
    }

    pub fn rts_with(&self, socket: TcpStream, params: StreamParams, local: Option<LocalStream>) {
        let llp = LlpStream {
            socket: socket.into(),
            received: Vec::new(),
            last_message: Vec::new(),
            params,
            local,
        };
        self.qp.modify(QpChange::Rts(Box::new(llp))).unwrap();
    }

    pub fn event(&self) -> AsyncEvent {
        self.events.next(EventSource::Qp(self.qp.id()))
    }

    pub fn state(&self) -> QpState {
        self.qp.query().unwrap().state
    }

    pub fn region(&self, buffer: Arc<Buffer>) -> Region {
        self.region_with(buffer, Access::LOCAL | Access::REMOTE | Access::BIND)
    }

    pub fn region_with(&self, buffer: Arc<Buffer>, access: Access) -> Region {
        let init = MrInit {
            pd: self.pd,
            range: buffer.range(),
            addressing: Addressing::Absolute,
            access,
            key: 0x5a,
            pin: false,
        };
        Region { stag: self.rnic.register_mr(&init).unwrap(), buffer }
    }

    pub fn post(&self, wr_id: u64, op: SendOp, sgl: &[Sge]) {
        self.post_flags(wr_id, op, sgl, SendFlags::SIGNALED);
    }

    pub fn post_flags(&self, wr_id: u64, op: SendOp, sgl: &[Sge], flags: SendFlags) {
        let wr = SendWr { wr_id, op, data: Data::Sgl(sgl), flags };
        self.qp.post_send(&[wr]).unwrap();
    }

    pub fn recv(&self, wr_id: u64, sgl: &[Sge]) {
        self.qp.post_recv(&[RecvWr { wr_id, sgl }]).unwrap();
    }

    /// The next completion.
    pub fn complete(&self) -> WorkCompletion {
        next(&*self.cq)
    }

    /// The next completion, which must be that of `wr_id`, with success.
    pub fn done(&self, wr_id: u64) -> WorkCompletion {
        let completion = self.complete();
        assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Success));
        completion
    }
}

/// The next completion of a CQ.
pub fn next(cq: &dyn Cq) -> WorkCompletion {
    let begin = Instant::now();
    let mut out = [WorkCompletion::BLANK];
    while cq.poll(&mut out).unwrap() == 0 {
        cq.wait(Duration::ZERO, Some(HANG)).unwrap();
        assert!(begin.elapsed() < HANG, "no completion");
    }
    out[0]
}

pub const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };

/// Two connected sockets.
pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    // For tests that read from one of them; a provider's sockets do not block.
    far.set_read_timeout(Some(HANG)).unwrap();
    (near, far)
}

/// Whether ends that [`connect`] connects go through shared memory: `WARPLINE_TEST_LOCAL` is set.
pub fn goes_locally() -> bool {
    std::env::var_os("WARPLINE_TEST_LOCAL").is_some()
}

/// Both ends of a local stream.
pub fn local_pair(ring_octets: u32) -> (LocalStream, LocalStream) {
    let memory = shm_ring::create(ring_octets).unwrap();
    let bells = [(); 2].map(|()| kal_os::doorbell().unwrap());
    let other = LocalStream {
        memory: memory.try_clone().unwrap(),
        side: LocalSide::Other,
        doorbell: bells[1].try_clone().unwrap(),
        peer_doorbell: bells[0].try_clone().unwrap(),
    };
    let [doorbell, peer_doorbell] = bells;
    (LocalStream { memory, side: LocalSide::Maker, doorbell, peer_doorbell }, other)
}

/// Connects two ends: the first is the initiator.
pub fn connect(ends: (&End, &End), setup: &Setup) {
    let (near, far) = sockets();
    for socket in [&near, &far] {
        if let Some(octets) = setup.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(socket, octets).unwrap();
        }
    }
    let local = goes_locally();
    let params = |end: &End, role| {
        let info = end.qp.query().unwrap();
        let mut params = StreamParams::new(role);
        params.crc = setup.crc;
        params.markers_tx = setup.markers;
        params.markers_rx = setup.markers;
        params.fpdu = setup.fpdu;
        params.rtr = setup.rtr;
        (params.ird, params.ord) = (info.ird, info.ord);
        (setup.params)(&mut params);
        if local {
            (params.crc, params.markers_tx, params.markers_rx) = (false, false, false);
        }
        params
    };
    let (maker, other) = if local { Some(local_pair(256 << 10)).unzip() } else { (None, None) };
    warpline_patience::within("two ends to take over a stream", || {
        ends.1.rts_with(far, params(ends.1, Role::Responder), maker);
        ends.0.rts_with(near, params(ends.0, Role::Initiator), other);
    });
}

/// Two connected ends on two RNICs; both say that they are established.
pub fn pair(setup: &Setup) -> (End, End) {
    let (near, far) = (End::new(setup.init), End::new(setup.init));
    connect((&near, &far), setup);
    assert_eq!(near.event(), AsyncEvent::Established);
    if setup.rtr.is_some() {
        assert_eq!(far.event(), AsyncEvent::Established);
    }
    (near, far)
}
