//! What the tests of this crate share: an adapter with everything a connection needs, on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ual::vp_api::{Access, Data, RecvWr, SendFlags, SendOp, SendWr, Sge, WcStatus, WorkCompletion};
use ual::{
    AcceptParams, Config, ConnEvent, ConnRequest, ConnectParams, Ep, EpInit, Established, Evd,
    EvdInit, Event, Ia, Listen, ListenInit, Lmr, LmrInit, LocalStreams, NOTIFY, Policy, Pz, Region,
    Stream, Ual,
};

/// Longer than any operation may take: only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// An adapter with one zone, dispatchers of every kind that connections need, and memory.
pub(crate) struct Side {
    pub(crate) ia: Arc<Ia>,
    pub(crate) pz: Arc<Pz>,
    pub(crate) completions: Arc<Evd>,
    pub(crate) requests: Arc<Evd>,
    pub(crate) connection: Arc<Evd>,
    pub(crate) region: Region,
    pub(crate) lmr: Arc<Lmr>,
}

/// A policy for what only TCP has: CRCs, markers, and information about a stream.
pub(crate) fn over_tcp() -> Policy {
    Policy { local: LocalStreams::Off, ..policy() }
}

/// A policy with time-outs that tests can wait for.
pub(crate) fn policy() -> Policy {
    Policy {
        connect_timeout: Duration::from_secs(20),
        request_timeout: Duration::from_secs(20),
        ..Policy::default()
    }
}

impl Side {
    pub(crate) fn new(policy: Policy) -> Self {
        Self::of(&Ual::with_config(Config { policy, ..Config::default() }))
    }

    pub(crate) fn of(ual: &Arc<Ual>) -> Self {
        Self::on(ual.open_any().unwrap())
    }

    pub(crate) fn on(ia: Arc<Ia>) -> Self {
        let pz = ia.create_pz().unwrap();
        let evd = |stream| ia.create_evd(EvdInit::new(stream, 4096)).unwrap();
        let region = Region::new(65536).unwrap();
        let rights = Access::LOCAL | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let lmr = pz.create_lmr(LmrInit::new(region.mem_range(), rights)).unwrap();
        let (completions, requests) = (evd(Stream::Completion), evd(Stream::Request));
        let connection = evd(Stream::Connection);
        Self { ia, pz, completions, requests, connection, region, lmr }
    }

    pub(crate) fn ep(&self) -> Arc<Ep> {
        self.pz.create_ep(EpInit::new(&self.completions, &self.connection)).unwrap()
    }

    pub(crate) fn listen(&self, ip: IpAddr) -> Arc<Listen> {
        self.ia.listen(ListenInit::new(SocketAddr::new(ip, 0), &self.requests)).unwrap()
    }

    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { stag: self.lmr.stag(), len, to: self.region.addr() + offset }
    }

    /// The next connection event.
    pub(crate) fn conn_event(&self) -> ConnEvent {
        match self.connection.wait(Some(HANG)).unwrap() {
            Event::Connection { event, .. } => *event,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn established(&self) -> Established {
        match self.conn_event() {
            ConnEvent::Established(established) => established,
            other => panic!("{other}"),
        }
    }

    pub(crate) fn request(&self) -> ConnRequest {
        match self.requests.wait(Some(HANG)).unwrap() {
            Event::Request(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn completion(&self) -> WorkCompletion {
        match self.completions.wait(Some(HANG)).unwrap() {
            Event::Completion(completion) => {
                WorkCompletion { wr_id: completion.wr_id & !NOTIFY, ..completion }
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn success(&self) -> WorkCompletion {
        let completion = self.completion();
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion
    }

    pub(crate) fn post_recv(&self, ep: &Ep, wr_id: u64, offset: u64, len: u32) {
        let wr_id = wr_id | NOTIFY;
        ep.post_recv(&[RecvWr { wr_id, sgl: &[self.sge(offset, len)] }]).unwrap();
    }

    pub(crate) fn post(&self, ep: &Ep, wr_id: u64, op: SendOp, offset: u64, len: u32) {
        let sgl = [self.sge(offset, len)];
        let wr_id = wr_id | NOTIFY;
        let wr = SendWr { wr_id, op, data: Data::Sgl(&sgl), flags: SendFlags::SIGNALED };
        ep.post_send(&[wr]).unwrap();
    }

    pub(crate) fn send(&self, ep: &Ep, wr_id: u64, offset: u64, len: u32) {
        self.post(ep, wr_id, SendOp::Send { solicited: false, invalidate: None }, offset, len);
    }
}

/// Connects two sides; returns the endpoint that connected and the one that accepted.
pub(crate) fn connect(client: &Side, server: &Side, listen: &Listen) -> (Arc<Ep>, Arc<Ep>) {
    let (active, passive) = (client.ep(), server.ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let request = server.request();
    passive.accept(request.request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    (active, passive)
}

pub(crate) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Set in the process of a test.
const ALONE: &str = "UAL_TEST_ALONE";

/// Runs the test of this path in its own process, with a runtime directory of its own; true in that process.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let runtime = std::env::temp_dir().join(format!(
        "ual-{}-{}",
        test.replace("::", "-"),
        std::process::id()
    ));
    std::fs::create_dir_all(&runtime).unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .env("XDG_RUNTIME_DIR", &runtime)
        .output()
        .unwrap();
    let left = std::fs::read_dir(runtime.join("warpline")).into_iter().flatten().count();
    let _ = std::fs::remove_dir_all(&runtime);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no test {test}: {text}");
    assert_eq!(left, 0, "a process that ends leaves nothing");
    false
}

/// The calling thread's name, of which the kernel keeps 15 octets.
pub(crate) fn thread_name() -> String {
    std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim().to_owned()
}
