//! A face for these tests above the connection manager, over SoftRDMA: no access layer, no dispatchers.
//!
//! The manager's events go through channels. Nothing here sleeps; a wait that takes too long fails with the
//! name of the event.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ual_cm::{
    Bound, Cm, ConnEvent, ConnRequest, Connectee, Connection, Face, ListenerId, Policies, Policy,
    RequestSink, Sequence, Serves, ServiceRequest,
};
use vp_api::{
    AsyncEvent, Cq, CqInit, Data, EventSource, LogLevel, PdId, Provider, Qp, QpId, QpInit, Rnic,
    SendFlags, SendOp, SendWr, Services, WorkCompletion,
};
use vp_softrdma::SoftRdma;

pub(crate) const HANG: Duration = Duration::from_secs(60);

/// How often a test must produce the case that it is about.
pub(crate) fn runs() -> usize {
    let runs = std::env::var("WARPLINE_LOCAL_RUNS");
    runs.map_or(4, |runs| runs.parse().expect("a number"))
}

pub(crate) struct Host(Instant);

impl Services for Host {
    fn log(&self, _: LogLevel, _: &str, _: &str) {}
    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
    fn pin(&self, _: usize, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn unpin(&self, _: usize, _: usize) {}
}

/// A function that handles an event when it is delivered.
pub(crate) type Then = dyn Fn(&Arc<TestEndpoint>, &ConnEvent) + Send + Sync;

/// An endpoint: a queue pair, its connection, and a channel.
pub(crate) struct TestEndpoint {
    pub(crate) qp: Arc<dyn Qp>,
    pub(crate) connection: Connection,
    pub(crate) events: Sender<ConnEvent>,
    pub(crate) then: Box<Then>,
}

impl Connectee for TestEndpoint {
    fn qp(&self) -> &dyn Qp {
        &*self.qp
    }
    fn connection(&self) -> &Connection {
        &self.connection
    }
    fn is_open(&self) -> bool {
        true
    }
    fn deliver(self: Arc<Self>, event: ConnEvent) {
        (self.then)(&self, &event);
        // A test that dropped the endpoint does not wait for outstanding events.
        let _ = self.events.send(event);
    }
}

#[derive(Default)]
pub(crate) struct Endpoints(Mutex<BTreeMap<QpId, Weak<TestEndpoint>>>);

impl Face for Endpoints {
    fn connectee(&self, qp: QpId, _: u64) -> Option<Arc<dyn Connectee>> {
        Some(self.0.lock().unwrap().get(&qp)?.upgrade()?)
    }
    fn on_async(&self, _: u64, _: EventSource, _: AsyncEvent) {}
}

/// A function that handles a request when it is delivered: accepted by the sink, or not.
pub(crate) type TakesRequest = dyn Fn(&ConnRequest) -> bool + Send + Sync;

pub(crate) struct Sink {
    pub(crate) requests: Sender<ConnRequest>,
    pub(crate) answer: Box<TakesRequest>,
}

impl RequestSink for Sink {
    fn request(self: Arc<Self>, request: ConnRequest) -> bool {
        let taken = (self.answer)(&request);
        taken && self.requests.send(request).is_ok()
    }
    fn service_request(self: Arc<Self>, _: ServiceRequest) -> bool {
        false
    }
}

/// A machine with one adapter.
pub(crate) struct Machine {
    pub(crate) rnic: Arc<dyn Rnic>,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) cm: Arc<Cm>,
}

/// A listener with its sink.
pub(crate) struct TestListener {
    pub(crate) id: ListenerId,
    pub(crate) address: SocketAddr,
    pub(crate) requests: Receiver<ConnRequest>,
    pub(crate) _sink: Arc<dyn RequestSink>,
}

pub(crate) fn next<T>(receiver: &Receiver<T>, what: &str) -> T {
    receiver.recv_timeout(HANG).unwrap_or_else(|error| panic!("no {what}: {error}"))
}

/// An adapter of SoftRDMA.
pub(crate) fn open() -> Arc<dyn Rnic> {
    SoftRdma.open("vp_softrdma", Arc::new(Host(Instant::now()))).unwrap()
}

pub(crate) fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self::with(Policy::default())
    }

    pub(crate) fn with(policy: Policy) -> Self {
        Self::of(open(), policy)
    }

    /// The same, with the caller's adapter.
    pub(crate) fn of(rnic: Arc<dyn Rnic>, policy: Policy) -> Self {
        let endpoints = Arc::new(Endpoints::default());
        let policies = Policies::from(policy);
        let cm = Cm::start(&rnic, policies, endpoints.clone(), Sequence::default()).unwrap();
        let pd = rnic.alloc_pd().unwrap();
        let cq = rnic.create_cq(&CqInit { depth: 64, handler: None }).unwrap();
        Self { rnic, pd, cq, endpoints, cm: Arc::new(cm) }
    }

    pub(crate) fn endpoint(&self) -> (Arc<TestEndpoint>, Receiver<ConnEvent>) {
        self.endpoint_that(|_, _| {})
    }

    pub(crate) fn endpoint_that(
        &self,
        then: impl Fn(&Arc<TestEndpoint>, &ConnEvent) + Send + Sync + 'static,
    ) -> (Arc<TestEndpoint>, Receiver<ConnEvent>) {
        let init = QpInit::new(self.pd, self.cq.id(), self.cq.id());
        let qp = self.rnic.create_qp(&init).unwrap();
        let connection = self.cm.connection(init.ird, init.ord);
        let ((sender, events), then) = (channel(), Box::new(then));
        let endpoint = Arc::new(TestEndpoint { qp, connection, events: sender, then });
        self.endpoints.0.lock().unwrap().insert(endpoint.qp.id(), Arc::downgrade(&endpoint));
        (endpoint, events)
    }

    pub(crate) fn listener(&self) -> TestListener {
        self.listener_that(|_| true)
    }

    pub(crate) fn listener_that(
        &self,
        answer: impl Fn(&ConnRequest) -> bool + Send + Sync + 'static,
    ) -> TestListener {
        self.listener_of(self.cm.bind(&[anywhere()], Serves::Connections).unwrap(), answer)
    }

    pub(crate) fn listener_of(
        &self,
        bound: Bound,
        answer: impl Fn(&ConnRequest) -> bool + Send + Sync + 'static,
    ) -> TestListener {
        let address = bound.addresses()[0];
        let listening = self.cm.listen(bound).unwrap();
        assert_eq!(listening.addresses(), [address]);
        let (id, (sender, requests)) = (listening.id(), channel());
        let sink: Arc<dyn RequestSink> =
            Arc::new(Sink { requests: sender, answer: Box::new(answer) });
        self.cm.serve(listening, &sink, self.cm.policies().clone(), false);
        TestListener { id, address, requests, _sink: sink }
    }

    pub(crate) fn completion(&self) -> WorkCompletion {
        let mut out = [WorkCompletion::BLANK];
        let mut found = 0;
        warpline_patience::until("a completion", || {
            found = self.cq.poll(&mut out).unwrap();
            found == 1
        });
        out[0]
    }
}

pub(crate) fn as_connectee(endpoint: &Arc<TestEndpoint>) -> Arc<dyn Connectee> {
    endpoint.clone()
}

pub(crate) fn send(from: &TestEndpoint) {
    let (op, flags) = (SendOp::Send { solicited: false, invalidate: None }, SendFlags::SIGNALED);
    from.qp.post_send(&[SendWr { wr_id: 7, op, data: Data::Sgl(&[]), flags }]).unwrap();
}
