//! The test rig: an open device, and connected ends on it. All waits are bounded.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kal_shim::Region;
use vp_api::*;

use crate::fail::{Fail, same};
use crate::host::Ledger;
use crate::model::Programs;
use crate::{Manner, local};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) const SEND: SendOp = SendOp::Send { solicited: false, invalidate: None };

/// An open device.
pub(crate) struct Rig {
    pub(crate) provider: Arc<dyn Provider>,
    device: String,
    pub(crate) rnic: Arc<dyn Rnic>,
    pub(crate) attrs: RnicAttrs,
    pub(crate) events: Arc<Events>,
    /// The host's services, as the provider uses them.
    pub(crate) host: Arc<Ledger>,
    /// Whatever does not happen within this time has failed.
    pub(crate) wait: Duration,
    manner: Manner,
}

/// Queue of asynchronous events, with waiting.
pub(crate) struct Events {
    seen: Mutex<VecDeque<(EventSource, AsyncEvent)>>,
    bell: Condvar,
    wait: Duration,
}

impl AsyncHandler for Events {
    fn on_event(&self, source: EventSource, event: AsyncEvent) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push_back((source, event));
        self.bell.notify_all();
    }
}

impl Events {
    pub(crate) fn new(wait: Duration) -> Self {
        Self { seen: Mutex::default(), bell: Condvar::new(), wait }
    }

    /// The next event of `source`.
    pub(crate) fn next(&self, source: EventSource) -> Result<AsyncEvent, Fail> {
        let (mut seen, wait) = (self.lock(), self.wait);
        loop {
            if let Some(at) = seen.iter().position(|(from, _)| *from == source) {
                return seen.remove(at).map(|(_, event)| event).ok_or_else(|| "lost".into());
            }
            let waited = self.bell.wait_timeout(seen, wait);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            seen = guard;
            if timeout.timed_out() {
                return Err(format!("no asynchronous event of {source:?} within {wait:?}").into());
            }
        }
    }

    /// How many events of `source` are queued and not taken.
    pub(crate) fn waiting(&self, source: EventSource) -> usize {
        self.lock().iter().filter(|(from, _)| *from == source).count()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(EventSource, AsyncEvent)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rig {
    pub(crate) fn open(
        provider: &Arc<dyn Provider>,
        device: &str,
        manner: Manner,
    ) -> Result<Self, Fail> {
        let wait = manner.wait;
        let host = Arc::new(Ledger::default());
        let rnic = provider.open(device, host.clone())?;
        let events = Arc::new(Events::new(wait));
        rnic.set_async_handler(Some(events.clone()));
        let (provider, device, attrs) = (provider.clone(), device.into(), rnic.attrs().clone());
        Ok(Self { provider, device, attrs, rnic, events, host, wait, manner })
    }

    /// Opens the device once more.
    pub(crate) fn another(&self) -> Result<Self, Fail> {
        Self::open(&self.provider, &self.device, self.manner)
    }

    /// Opens the device with settings for the provider.
    pub(crate) fn open_with(&self, settings: &[(&str, &str)]) -> VpResult<Arc<dyn Rnic>> {
        self.provider.open(&self.device, Arc::new(Ledger::with(settings)))
    }

    /// Waits until `done`, or fails with the name of what did not happen.
    pub(crate) fn until(
        &self,
        what: &str,
        mut done: impl FnMut() -> Result<bool, Fail>,
    ) -> Result<(), Fail> {
        let begin = Instant::now();
        while !done()? {
            if begin.elapsed() > self.wait {
                return Err(format!("{what}: not within {:?}", self.wait).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Which random programs are played.
    pub(crate) fn programs(&self) -> Programs {
        self.manner.programs
    }

    pub(crate) fn offers(&self, what: Capabilities) -> bool {
        self.attrs.capabilities.contains(what)
    }

    /// Rights of peers that a QP or region of this device can have.
    pub(crate) fn remote_rights(&self) -> Access {
        let mut rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        if self.offers(Capabilities::ATOMICS) {
            rights |= Access::REMOTE_ATOMIC;
        }
        if self.offers(Capabilities::MW) {
            rights |= Access::BIND;
        }
        rights
    }

    /// The parameters of a QP, within the limits of the device.
    pub(crate) fn qp_init(&self, pd: PdId, cq: CqId) -> QpInit {
        let limits = &self.attrs;
        let mut init = QpInit::new(pd, cq, cq);
        init.send_depth = init.send_depth.min(limits.max_wr_per_qp);
        init.recv_depth = init.recv_depth.min(limits.max_wr_per_qp);
        init.max_send_sge = init.max_send_sge.min(limits.max_sge_send);
        init.max_recv_sge = init.max_recv_sge.min(limits.max_sge_recv);
        init.max_inline = init.max_inline.min(limits.max_inline);
        init.ird = init.ird.min(limits.max_ird);
        init.ord = init.ord.min(limits.max_ord);
        init.allow = self.remote_rights();
        init
    }

    pub(crate) fn end(&self) -> Result<End<'_>, Fail> {
        self.end_with(None, |_| {})
    }

    /// A PD, a CQ and a QP.
    pub(crate) fn end_with(
        &self,
        handler: Option<Arc<dyn CqHandler>>,
        wish: impl FnOnce(&mut QpInit),
    ) -> Result<End<'_>, Fail> {
        let pd = self.rnic.alloc_pd()?;
        let cq = self.rnic.create_cq(&CqInit { depth: self.attrs.max_cqe.min(512), handler })?;
        let mut init = self.qp_init(pd, cq.id());
        wish(&mut init);
        let qp = self.rnic.create_qp(&init)?;
        Ok(End { rig: self, pd, cq, qp })
    }

    /// Two connected ends.
    pub(crate) fn pair(&self) -> Result<(End<'_>, End<'_>), Fail> {
        let ends = (self.end()?, self.end()?);
        self.connect(&ends.0, &ends.1)?;
        Ok(ends)
    }

    /// Connects two ends; the first one is the initiator.
    pub(crate) fn connect(&self, near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
        match self.attrs.connection_model {
            ConnectionModel::LlpStream => self.connect_streams(near, far),
            ConnectionModel::Native => {
                let cm = self.cm()?;
                cm.establish(near, far)
            }
        }
    }

    fn connect_streams(&self, near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
        self.link(near, far)?;
        for end in [near, far] {
            same("event of the connection", end.event()?, AsyncEvent::Established)?;
        }
        Ok(())
    }

    /// Connects two ends by a stream, and does not wait. They agree on Sends with Immediate if they can.
    pub(crate) fn link(&self, near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
        self.link_with(near, far, self.offers(Capabilities::SEND_IMMEDIATE))
    }

    pub(crate) fn link_with(
        &self,
        near: &End<'_>,
        far: &End<'_>,
        send_immediates: bool,
    ) -> Result<(), Fail> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let begun = TcpStream::connect(listener.local_addr()?)?;
        let (accepted, _) = listener.accept()?;
        let local = self.manner.local && self.offers(Capabilities::LOCAL_STREAM);
        let (maker, other) = local.then(local::pair).transpose()?.unzip();
        far.to_rts_with(accepted, Role::Responder, send_immediates, maker)?;
        near.to_rts_with(begun, Role::Initiator, send_immediates, other)?;
        if local {
            same("what carries the stream", near.qp.query()?.carrier, Carrier::Local)?;
        }
        Ok(())
    }

    /// Discards asynchronous events that were not taken, and events of connections.
    pub(crate) fn forget_events(&self) {
        self.events.lock().clear();
        while let Some(Some(_)) = self.rnic.native_cm().map(|cm| cm.poll_event()) {}
    }

    /// Registers zeroed memory.
    pub(crate) fn memory(
        &self,
        pd: PdId,
        len: usize,
        access: Access,
        addressing: Addressing,
    ) -> Result<Memory, Fail> {
        let region = Region::new(len)?;
        let range = region.mem_range();
        let init = MrInit { pd, range, addressing, access, key: 0x5a, pin: false };
        let stag = self.rnic.register_mr(&init)?;
        let base = addressing.base(region.addr());
        Ok(Memory { region, stag, base })
    }

    /// An address that leads to this device.
    pub(crate) fn address(&self) -> IpAddr {
        let ports = self.rnic.ports().unwrap_or_default();
        let online = ports.iter().filter(|port| port.online);
        online.flat_map(|port| port.addresses.first()).next().copied().unwrap_or(LOCALHOST)
    }

    pub(crate) fn cm(&self) -> Result<Cm, Fail> {
        let none = || Fail("the model is native, and there is no connection manager".into());
        self.rnic.native_cm().map(|cm| Cm(cm, self.wait)).ok_or_else(none)
    }
}

/// A native connection manager, and how long its events may take.
pub(crate) struct Cm(pub(crate) Arc<dyn NativeCm>, Duration);

pub(crate) fn params(data: &[u8], init: (u16, u16)) -> NativeParams {
    NativeParams { private_data: data.to_vec(), ird: init.0, ord: init.1 }
}

impl Cm {
    pub(crate) fn next(&self) -> Result<NativeEvent, Fail> {
        let begin = Instant::now();
        loop {
            if let Some(event) = self.0.poll_event() {
                return Ok(event);
            }
            if begin.elapsed() > self.1 {
                let wait = self.1;
                return Err(format!("no event of the connection manager within {wait:?}").into());
            }
            self.0.wait_event(Some(self.1))?;
        }
    }

    /// The next event that is not the end of an earlier connection.
    fn next_but_ends(&self) -> Result<NativeEvent, Fail> {
        loop {
            match self.next()? {
                NativeEvent::Disconnected { .. } => {}
                other => return Ok(other),
            }
        }
    }

    /// A listener, a connect to it, and the request that arrived: listener, request, parameters.
    pub(crate) fn request(&self, near: &End<'_>) -> Result<(u64, u64, NativeParams), Fail> {
        let any = SocketAddr::new(near.rig.address(), 0);
        let (listener, address) = self.0.listen(any, 4)?;
        let info = near.qp.query()?;
        self.0.connect(near.qp.id(), address, params(b"call", (info.ird, info.ord)))?;
        match self.next_but_ends()? {
            NativeEvent::Request { listener: at, request, params, .. } => {
                same("listener of the request", at, listener)?;
                Ok((listener, request, params))
            }
            other => Err(format!("{other:?} where a request is expected").into()),
        }
    }

    fn establish(&self, near: &End<'_>, far: &End<'_>) -> Result<(), Fail> {
        let (listener, request, got) = self.request(near)?;
        if !got.private_data.starts_with(b"call") {
            return Err("the request's private data are not those of the connect".into());
        }
        let info = far.qp.query()?;
        self.0.accept(request, far.qp.id(), params(b"answer", (info.ird, info.ord)))?;
        let mut open = vec![near.qp.id(), far.qp.id()];
        while !open.is_empty() {
            match self.next_but_ends()? {
                NativeEvent::Established { qp, .. } => open.retain(|id| *id != qp),
                other => return Err(format!("{other:?} where established is expected").into()),
            }
        }
        Ok(self.0.unlisten(listener)?)
    }
}

/// A QP with its CQ and PD.
pub(crate) struct End<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) pd: PdId,
    pub(crate) cq: Arc<dyn Cq>,
    pub(crate) qp: Arc<dyn Qp>,
}

impl End<'_> {
    pub(crate) fn to_rts(&self, socket: TcpStream, role: Role) -> Result<(), Fail> {
        self.to_rts_with(socket, role, false, None)
    }

    fn to_rts_with(
        &self,
        socket: TcpStream,
        role: Role,
        send_immediates: bool,
        local: Option<LocalStream>,
    ) -> Result<(), Fail> {
        socket.set_nonblocking(true)?;
        let info = self.qp.query()?;
        let rtr = Some(Rtr::Write);
        let (ird, ord) = (info.ird, info.ord);
        let mut params = StreamParams { ird, ord, rtr, send_immediates, ..StreamParams::new(role) };
        // A drain ends by the work, however long a busy machine takes for it.
        params.close_timeout = self.rig.wait;
        if local.is_some() {
            // As the connection manager configures it if both ends are on one host.
            (params.crc, params.markers_tx, params.markers_rx) = (false, false, false);
        }
        let stream = LlpStream {
            socket: socket.into(),
            received: vec![],
            last_message: vec![],
            params,
            local,
        };
        Ok(self.qp.modify(QpChange::Rts(Box::new(stream)))?)
    }

    /// From Error to Idle. Flushing may take some time.
    pub(crate) fn idle(&self) -> Result<(), Fail> {
        let change = || self.qp.modify(QpChange::Idle).map_err(|error| error.status);
        self.rig.until("Idle again", || match change() {
            Ok(()) => Ok(true),
            Err(VpStatus::StillFlushing) => Ok(false),
            Err(_) if self.qp.query()?.state == QpState::Idle => Ok(true),
            Err(status) => Err(format!("from Error to Idle: {status}").into()),
        })
    }

    pub(crate) fn event(&self) -> Result<AsyncEvent, Fail> {
        self.rig.events.next(EventSource::Qp(self.qp.id()))
    }

    /// Registers zeroed memory with all rights that the device knows.
    pub(crate) fn memory(&self, len: usize) -> Result<Memory, Fail> {
        self.memory_with(len, Access::LOCAL | self.rig.remote_rights(), Addressing::Absolute)
    }

    pub(crate) fn memory_with(
        &self,
        len: usize,
        access: Access,
        addressing: Addressing,
    ) -> Result<Memory, Fail> {
        self.rig.memory(self.pd, len, access, addressing)
    }

    /// Memory with a pattern that depends on `seed`.
    pub(crate) fn pattern(&self, len: usize, seed: u8) -> Result<Memory, Fail> {
        let memory = self.memory(len)?;
        memory.region.write_at(0, &pattern(len, seed))?;
        Ok(memory)
    }

    pub(crate) fn post(&self, wr_id: u64, op: SendOp, sgl: &[Sge]) -> Result<(), Fail> {
        let (data, flags) = (Data::Sgl(sgl), SendFlags::SIGNALED);
        Ok(self.qp.post_send(&[SendWr { wr_id, op, data, flags }])?)
    }

    pub(crate) fn recv(&self, wr_id: u64, sgl: &[Sge]) -> Result<(), Fail> {
        Ok(self.qp.post_recv(&[RecvWr { wr_id, sgl }])?)
    }

    /// The next completion, with any status.
    pub(crate) fn completion(&self) -> Result<WorkCompletion, Fail> {
        next(&*self.cq, self.rig.wait)
    }

    /// The next completion, which must be a success.
    pub(crate) fn done(&self, wr_id: u64, opcode: WcOpcode) -> Result<WorkCompletion, Fail> {
        let wc = self.completion()?;
        let found = (wc.wr_id, wc.opcode, wc.status, wc.qp);
        same("completion", found, (wr_id, opcode, WcStatus::Success, self.qp.id()))?;
        Ok(wc)
    }
}

/// The next completion of a CQ.
pub(crate) fn next(cq: &dyn Cq, wait: Duration) -> Result<WorkCompletion, Fail> {
    let begin = Instant::now();
    let mut out = [WorkCompletion::BLANK];
    while cq.poll(&mut out)? == 0 {
        if begin.elapsed() > wait {
            return Err(format!("no completion within {wait:?}").into());
        }
        cq.wait(Duration::ZERO, Some(wait))?;
    }
    Ok(out[0])
}

/// A registered region.
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) stag: Stag,
    base: u64,
}

impl Memory {
    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { stag: self.stag, len: len as u32, to: self.base + at as u64 }
    }

    pub(crate) fn all(&self) -> Sge {
        self.sge(0, self.region.len())
    }

    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, to: self.base + at as u64 }
    }

    pub(crate) fn read(&self, at: usize, len: usize) -> Result<Vec<u8>, Fail> {
        let mut out = vec![0; len];
        self.region.read_at(at, &mut out)?;
        Ok(out)
    }

    pub(crate) fn holds(&self, what: &str, at: usize, expected: &[u8]) -> Result<(), Fail> {
        let found = self.read(at, expected.len())?;
        match found.iter().zip(expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(n) => Err(format!("{what}: octet {} differs", at + n).into()),
        }
    }
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}
