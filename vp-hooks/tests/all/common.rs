//! Test fixtures: an end on a wrapped RNIC, and an ordinary peer.
//!
//! Messages have no octets, so that no memory need be registered. Nothing sleeps: tests wait by
//! `Cq::wait`, with a bound that only a hang reaches.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vp_api::*;
use vp_hooks::{Wrapper, stack};
use vp_softrdma::{NAME, SoftRdma};

pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Services that record the log.
#[derive(Default)]
pub(crate) struct Host {
    lines: Mutex<Vec<(LogLevel, String, String)>>,
}

impl Host {
    /// The lines of a target so far.
    pub(crate) fn lines(&self, target: &str) -> Vec<(LogLevel, String)> {
        let lines = self.lines.lock().unwrap();
        let ours = lines.iter().filter(|(_, from, _)| from == target);
        ours.map(|(level, _, line)| (*level, line.clone())).collect()
    }
}

impl Services for Host {
    fn log(&self, level: LogLevel, target: &str, message: &str) {
        self.lines.lock().unwrap().push((level, target.into(), message.into()));
    }
    fn now_ns(&self) -> u64 {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

/// SoftRDMA in these wrappers, the first outermost.
pub(crate) fn provider(wrappers: &[&str]) -> Arc<dyn Provider> {
    let wrappers: Vec<Wrapper> = wrappers.iter().map(|text| text.parse().unwrap()).collect();
    stack(Arc::new(SoftRdma), &wrappers)
}

/// An RNIC with a PD and a CQ, and the recorder of its events.
pub(crate) struct Side {
    pub(crate) rnic: Arc<dyn Rnic>,
    pub(crate) host: Arc<Host>,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    bell: Arc<Bell>,
}

/// Counts notifications.
#[derive(Default)]
struct Bell {
    rings: Mutex<usize>,
    rung: Condvar,
}

impl CqHandler for Bell {
    fn on_completion(&self, _: CqId) {
        *self.rings.lock().unwrap() += 1;
        self.rung.notify_all();
    }
}

impl Side {
    pub(crate) fn new(wrappers: &[&str]) -> Self {
        Self::of(&*provider(wrappers))
    }

    pub(crate) fn of(provider: &dyn Provider) -> Self {
        let host = Arc::new(Host::default());
        let rnic = provider.open(NAME, host.clone()).unwrap();
        let (pd, bell) = (rnic.alloc_pd().unwrap(), Arc::new(Bell::default()));
        let init = CqInit { depth: 256, handler: Some(bell.clone()) };
        let cq = rnic.create_cq(&init).unwrap();
        Self { rnic, host, pd, cq, bell }
    }

    pub(crate) fn qp(&self) -> Arc<dyn Qp> {
        let id = self.cq.id();
        self.rnic.create_qp(&QpInit::new(self.pd, id, id)).unwrap()
    }

    /// Waits for another notification after `seen`.
    pub(crate) fn rung(&self, seen: usize) -> usize {
        let rings = self.bell.rings.lock().unwrap();
        let more = |rings: &mut usize| *rings <= seen;
        let (rings, timeout) = self.bell.rung.wait_timeout_while(rings, HANG, more).unwrap();
        assert!(!timeout.timed_out(), "no notification");
        *rings
    }

    pub(crate) fn rings(&self) -> usize {
        *self.bell.rings.lock().unwrap()
    }

    /// The next `count` completions.
    pub(crate) fn complete(&self, count: usize) -> Vec<(QpId, u64)> {
        let (begin, mut all) = (Instant::now(), Vec::new());
        while all.len() < count {
            all.extend(self.poll());
            assert!(begin.elapsed() < HANG, "{} of {count} completions", all.len());
            if all.len() < count {
                self.cq.wait(Duration::ZERO, Some(HANG)).unwrap();
            }
        }
        all
    }

    /// One poll.
    pub(crate) fn poll(&self) -> Vec<(QpId, u64)> {
        let mut out = [WorkCompletion::BLANK; 16];
        let polled = self.cq.poll(&mut out).unwrap();
        out[..polled].iter().map(|completion| (completion.qp, completion.wr_id)).collect()
    }
}

/// Posts a Send without octets.
pub(crate) fn send(qp: &Arc<dyn Qp>, wr_id: u64) -> Result<(), PostFailure> {
    let op = SendOp::Send { solicited: false, invalidate: None };
    qp.post_send(&[SendWr { wr_id, op, data: Data::Inline(&[]), flags: SendFlags::SIGNALED }])
}

/// Posts a receive without octets.
pub(crate) fn recv(qp: &Arc<dyn Qp>, wr_id: u64) {
    qp.post_recv(&[RecvWr { wr_id, sgl: &[] }]).unwrap();
}

/// A stream for a QP.
pub(crate) fn stream(socket: TcpStream, role: Role) -> QpChange {
    let params = StreamParams { rtr: Some(Rtr::Write), ..StreamParams::new(role) };
    let (received, last_message) = (Vec::new(), Vec::new());
    QpChange::Rts(Box::new(LlpStream {
        socket: socket.into(),
        received,
        last_message,
        params,
        local: None,
    }))
}

/// Two connected sockets.
pub(crate) fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Connects two QPs; the first is the initiator.
pub(crate) fn connect(near: &Arc<dyn Qp>, far: &Arc<dyn Qp>) {
    let (one, other) = sockets();
    far.modify(stream(other, Role::Responder)).unwrap();
    near.modify(stream(one, Role::Initiator)).unwrap();
}

/// The ids of one QP's completions.
pub(crate) fn of(qp: &Arc<dyn Qp>, all: &[(QpId, u64)]) -> Vec<u64> {
    all.iter().filter(|(id, _)| *id == qp.id()).map(|(_, wr_id)| *wr_id).collect()
}
