//! A provider around the built-in one: it refuses to take streams, loses memory, or has a connection manager of its
//! own that follows the test's instructions.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ual::vp_api::*;
use ual::{Config, Policy, Ual};

/// How the provider behaves.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Every stream is refused.
    RefuseStreams,
    /// Reregistering fails when the old registration is already destroyed.
    LoseMemory,
    /// Connections are made by this manager.
    Native(Arc<Manager>),
    /// A graceful close is recorded, and never ends.
    NeverCloses,
    /// A graceful close is refused with this status.
    RefuseClose(VpStatus),
    /// The parameters of streams are recorded.
    Noting(Arc<Mutex<Vec<StreamParams>>>),
    /// Datagrams, with these services and nothing else.
    Datagrams(Arc<ServiceBook>),
    /// A queue pair reports which Terminate ended it, and not how.
    TerminateOnly,
    /// Queue pairs report lost and outstanding requests in each queue.
    Losing,
    /// The next query of a queue pair first runs the function that the test put here.
    Queried(Arc<Mutex<Option<Meanwhile>>>),
    /// The test gets the handler of asynchronous events.
    Told(Arc<Mutex<Option<Arc<dyn AsyncHandler>>>>),
}

/// What another thread does in the middle of a call.
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

/// The provider.
struct Fake {
    real: Arc<dyn Provider>,
    behaviour: Behaviour,
}

/// An access layer that knows only the fake.
pub(crate) fn ual(behaviour: Behaviour, policy: Policy) -> Arc<Ual> {
    configured(behaviour, Config { policy, ..Config::default() })
}

pub(crate) fn configured(behaviour: Behaviour, config: Config) -> Arc<Ual> {
    let real: Arc<dyn Provider> = Arc::new(vp_softrdma::SoftRdma);
    Ual::with_providers(vec![Arc::new(Fake { real, behaviour })], config)
}

impl Provider for Fake {
    fn name(&self) -> &str {
        "fake"
    }
    fn version(&self) -> &str {
        "1"
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>, Unavailable> {
        self.real.devices()
    }
    fn open(&self, device: &str, services: Arc<dyn Services>) -> VpResult<Arc<dyn Rnic>> {
        let real = self.real.open(device, services)?;
        let mut attrs = real.attrs().clone();
        if matches!(self.behaviour, Behaviour::Native(_)) {
            attrs.connection_model = ConnectionModel::Native;
        }
        Ok(Arc::new(FakeRnic { real, attrs, behaviour: self.behaviour.clone() }))
    }
}

struct FakeRnic {
    real: Arc<dyn Rnic>,
    attrs: RnicAttrs,
    behaviour: Behaviour,
}

/// Passes calls on as they are.
macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)+) => {$(
        fn $name(&self, $($arg: $type),*) -> $result {
            self.real.$name($($arg),*)
        }
    )+};
}

impl Rnic for FakeRnic {
    fn attrs(&self) -> &RnicAttrs {
        &self.attrs
    }
    fn create_qp(&self, init: &QpInit) -> VpResult<Arc<dyn Qp>> {
        let real = self.real.create_qp(init)?;
        Ok(Arc::new(FakeQp { real, behaviour: self.behaviour.clone() }))
    }
    fn reregister_mr(&self, stag: Stag, init: &MrInit) -> VpResult<Stag> {
        if !matches!(self.behaviour, Behaviour::LoseMemory) {
            return self.real.reregister_mr(stag, init);
        }
        self.real.dealloc_stag(stag)?;
        Err(VpError::new(VpStatus::InsufficientResources, "no room for the new one"))
    }
    fn vendor_calls(&self, name: &str) -> VpResult<VendorCalls> {
        if name != ADDING {
            return Err(VpError::new(VpStatus::Unsupported, format!("there is only {ADDING}")));
        }
        let context = std::ptr::without_provenance_mut(40);
        Ok(VendorCalls { table: NonNull::from(&ADDER).cast(), context })
    }
    fn native_cm(&self) -> Option<Arc<dyn NativeCm>> {
        match &self.behaviour {
            Behaviour::Native(manager) => Some(manager.clone()),
            _ => None,
        }
    }
    fn datagrams(&self) -> Option<Arc<dyn Datagrams>> {
        match &self.behaviour {
            Behaviour::Datagrams(services) => Some(services.clone()),
            _ => None,
        }
    }
    fn set_async_handler(&self, handler: Option<Arc<dyn AsyncHandler>>) {
        if let Behaviour::Told(told) = &self.behaviour {
            told.lock().unwrap().clone_from(&handler);
        }
        self.real.set_async_handler(handler);
    }
    pass! {
        ports() -> VpResult<Vec<PortInfo>>;
        alloc_pd() -> VpResult<PdId>;
        dealloc_pd(pd: PdId) -> VpResult<()>;
        create_cq(init: &CqInit) -> VpResult<Arc<dyn Cq>>;
        destroy_cq(cq: CqId) -> VpResult<()>;
        create_srq(init: &SrqInit) -> VpResult<Arc<dyn Srq>>;
        destroy_srq(srq: SrqId) -> VpResult<()>;
        destroy_qp(qp: QpId) -> VpResult<()>;
        register_mr(init: &MrInit) -> VpResult<Stag>;
        register_shared_mr(original: Stag, pd: PdId, addressing: Addressing, access: Access, key: u8)
            -> VpResult<Stag>;
        alloc_stag(pd: PdId, remote: bool) -> VpResult<Stag>;
        query_mr(stag: Stag) -> VpResult<MrInfo>;
        dealloc_stag(stag: Stag) -> VpResult<()>;
        alloc_mw(pd: PdId, kind: MwKind) -> VpResult<MwId>;
        query_mw(mw: MwId) -> VpResult<MwInfo>;
        dealloc_mw(mw: MwId) -> VpResult<()>;
    }
}

/// Its vendor calls, of one function, which adds the context and its argument.
pub(crate) const ADDING: &str = "fake.adding/1";
static ADDER: Adding = Adding { add };

#[repr(C)]
pub(crate) struct Adding {
    pub(crate) add: unsafe extern "C" fn(*mut c_void, u32) -> usize,
}

unsafe extern "C" fn add(context: *mut c_void, number: u32) -> usize {
    context.addr() + number as usize
}

/// The local end of the fake's connections.
pub(crate) const HERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 4242);

struct FakeQp {
    real: Arc<dyn Qp>,
    behaviour: Behaviour,
}

impl Qp for FakeQp {
    fn modify(&self, change: QpChange) -> VpResult<()> {
        match (change, &self.behaviour) {
            (QpChange::Rts(stream), Behaviour::Noting(noted)) => {
                noted.lock().unwrap().push(stream.params);
                self.real.modify(QpChange::Rts(stream))
            }
            (QpChange::Closing, Behaviour::RefuseClose(status)) => {
                Err(VpError::new(*status, "not now"))
            }
            (QpChange::Closing, Behaviour::NeverCloses) => Ok(()),
            (
                change,
                Behaviour::RefuseClose(_)
                | Behaviour::NeverCloses
                | Behaviour::TerminateOnly
                | Behaviour::Losing,
            ) => self.real.modify(change),
            (QpChange::Rts(_), _) => {
                Err(VpError::new(VpStatus::InsufficientResources, "no stream buffers left"))
            }
            (other, _) => self.real.modify(other),
        }
    }
    /// As with a device that chose the local address itself.
    fn query(&self) -> VpResult<QpInfo> {
        if let Behaviour::Queried(meanwhile) = &self.behaviour {
            let meanwhile = meanwhile.lock().unwrap().take();
            meanwhile.into_iter().for_each(|run| run());
        }
        let mut info = self.real.query()?;
        if matches!(self.behaviour, Behaviour::TerminateOnly) {
            info.ended = None;
        }
        if matches!(self.behaviour, Behaviour::Losing) {
            (info.sends_lost, info.sends_outstanding) = (2, 3);
            (info.recvs_lost, info.recvs_outstanding) = (4, 3);
        }
        info.local = info.local.or(Some(HERE.into()));
        Ok(info)
    }
    pass! {
        id() -> QpId;
        post_send(wrs: &[SendWr<'_>]) -> Result<(), PostFailure>;
        post_recv(wrs: &[RecvWr<'_>]) -> Result<(), PostFailure>;
    }
}

/// A call of a connection manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Connect(QpId, SocketAddr, NativeParams),
    Accept(u64, QpId, NativeParams),
    Reject(u64, Vec<u8>),
    Disconnect(QpId),
    Unlisten(u64),
}

/// A connection manager that records its calls, and delivers the events that the test gives it.
#[derive(Default)]
pub(crate) struct Manager {
    events: Mutex<VecDeque<NativeEvent>>,
    more: Condvar,
    asked: Mutex<VecDeque<Asked>>,
    noted: Condvar,
    listeners: AtomicU64,
    /// Refuse to connect and accept.
    pub(crate) refuse: AtomicBool,
    /// Refuse to listen more than once.
    pub(crate) only: AtomicBool,
    /// The thread that delivers events finds none.
    pub(crate) late: AtomicBool,
}

impl Manager {
    pub(crate) fn report(&self, event: NativeEvent) {
        self.events.lock().unwrap().push_back(event);
        self.more.notify_all();
    }

    /// The next call.
    pub(crate) fn asked(&self) -> Asked {
        let asked = self.asked.lock().unwrap();
        let wait = |asked: &mut VecDeque<Asked>| asked.is_empty();
        let (mut asked, _) =
            self.noted.wait_timeout_while(asked, crate::common::HANG, wait).unwrap();
        asked.pop_front().unwrap()
    }

    /// The oldest call that it recorded.
    pub(crate) fn was_asked(&self) -> Option<Asked> {
        self.asked.lock().unwrap().pop_front()
    }

    /// All its events were taken.
    pub(crate) fn is_quiet(&self) -> bool {
        self.events.lock().unwrap().is_empty()
    }

    fn record(&self, asked: Asked) -> VpResult<()> {
        self.asked.lock().unwrap().push_back(asked);
        self.noted.notify_all();
        Ok(())
    }

    fn willing(&self) -> VpResult<()> {
        if self.refuse.load(Ordering::Acquire) {
            return Err(VpError::new(VpStatus::InsufficientResources, "not today"));
        }
        Ok(())
    }
}

impl NativeCm for Manager {
    fn listen(&self, mut address: SocketAddr, _backlog: u32) -> VpResult<(u64, SocketAddr)> {
        if address.port() == 0 {
            address.set_port(4711);
        }
        match self.listeners.fetch_add(1, Ordering::Relaxed) {
            1.. if self.only.load(Ordering::Acquire) => {
                Err(VpError::new(VpStatus::InUse, "the address is in use"))
            }
            listener => Ok((listener, address)),
        }
    }
    fn unlisten(&self, listener: u64) -> VpResult<()> {
        self.record(Asked::Unlisten(listener))
    }
    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        self.willing()?;
        self.record(Asked::Connect(qp, peer, params))
    }
    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        self.willing()?;
        self.record(Asked::Accept(request, qp, params))
    }
    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        self.record(Asked::Reject(request, private_data.to_vec()))
    }
    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        self.record(Asked::Disconnect(qp))
    }
    fn poll_event(&self) -> Option<NativeEvent> {
        let carries = crate::common::thread_name() == "warpline-native";
        if carries && self.late.load(Ordering::Acquire) {
            return None;
        }
        self.events.lock().unwrap().pop_front()
    }
    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let events = self.events.lock().unwrap();
        let timeout = timeout.unwrap_or(crate::common::HANG);
        let is_quiet =
            |events: &mut VecDeque<_>| events.is_empty() || self.late.load(Ordering::Acquire);
        let (events, _) = self.more.wait_timeout_while(events, timeout, is_quiet).unwrap();
        Ok(!events.is_empty())
    }
}

/// A call of the services of an adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    Listen(u64, SocketAddr),
    Unlisten(u64),
    Resolve(u64, SocketAddr),
    Cancel(u64),
    Accept(u64, UdAddress),
    Reject(u64, ServiceRefusal),
}

/// Services that record their calls, and deliver the events that the test gives them.
#[derive(Default)]
pub(crate) struct ServiceBook {
    attrs: DatagramAttrs,
    handler: Mutex<Option<Arc<dyn ServiceHandler>>>,
    served: Mutex<VecDeque<Served>>,
    /// Refuse so many calls that listen or send a request.
    pub(crate) refusals: AtomicU64,
}

impl ServiceBook {
    pub(crate) fn report(&self, event: ServiceEvent) {
        let handler = self.handler.lock().unwrap().clone();
        handler.unwrap().on_service(event);
    }

    pub(crate) fn has_handler(&self) -> bool {
        self.handler.lock().unwrap().is_some()
    }

    /// The next call, if there is one.
    pub(crate) fn served(&self) -> Option<Served> {
        self.served.lock().unwrap().pop_front()
    }

    fn record(&self, served: Served) -> VpResult<()> {
        self.served.lock().unwrap().push_back(served);
        Ok(())
    }

    fn willing(&self) -> VpResult<()> {
        let one_less = |left: u64| left.checked_sub(1);
        match self.refusals.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less) {
            Ok(_) => Err(VpError::new(VpStatus::InUse, "the address is in use")),
            Err(_) => Ok(()),
        }
    }
}

fn services_only<T>() -> VpResult<T> {
    Err(VpError::new(VpStatus::Unsupported, "services alone"))
}

impl Datagrams for ServiceBook {
    fn attrs(&self) -> &DatagramAttrs {
        &self.attrs
    }
    fn max_payload(&self, _port: u32) -> VpResult<u32> {
        services_only()
    }
    fn create_qp(&self, _init: &UdQpInit) -> VpResult<Arc<dyn UdQp>> {
        services_only()
    }
    fn destroy_qp(&self, _qp: QpId) -> VpResult<()> {
        services_only()
    }
    fn create_ah(&self, _pd: PdId, _path: &DatagramPath) -> VpResult<AhId> {
        services_only()
    }
    fn query_ah(&self, _ah: AhId) -> VpResult<AhInfo> {
        services_only()
    }
    fn destroy_ah(&self, _ah: AhId) -> VpResult<()> {
        services_only()
    }
    fn set_service_handler(&self, handler: Option<Arc<dyn ServiceHandler>>) {
        *self.handler.lock().unwrap() = handler;
    }
    fn listen(&self, token: u64, mut address: SocketAddr, _backlog: u32) -> VpResult<SocketAddr> {
        self.willing()?;
        if address.port() == 0 {
            address.set_port(4711);
        }
        self.record(Served::Listen(token, address)).map(|()| address)
    }
    fn unlisten(&self, token: u64) -> VpResult<()> {
        self.record(Served::Unlisten(token))
    }
    fn resolve(&self, token: u64, peer: SocketAddr, _private_data: &[u8]) -> VpResult<()> {
        self.willing()?;
        self.record(Served::Resolve(token, peer))
    }
    fn cancel(&self, token: u64) -> VpResult<()> {
        self.record(Served::Cancel(token))
    }
    fn accept(&self, request: u64, answer: UdAddress, _private_data: &[u8]) -> VpResult<()> {
        self.record(Served::Accept(request, answer))
    }
    fn reject(&self, request: u64, why: ServiceRefusal, _private_data: &[u8]) -> VpResult<()> {
        self.record(Served::Reject(request, why))
    }
}
