//! Queue pairs for datagrams (UD). Operational from the start: there is no connection.
//!
//! Owner: the RNIC's table; the engine's table of numbers and the CQs have weak references. Any thread posts, and sends
//! meanwhile; the thread that receives delivers. A peer's end is not noticed. A request that fails by its own memory
//! ends the queue pair, and the rest is flushed; nothing that a peer sends does. Reuse: the number stays while the queue
//! pair exists. Full: posts are refused, and datagrams that find no receive, or one that is too short, are dropped and
//! counted; such a receive stays posted, or, if it was taken from a shared receive queue, serves the next datagram.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use kal_os::lock;
use roce_proto::psn::Psn;
use roce_proto::rc::Mtu;
use roce_proto::ud::{self, Incoming, Outgoing};
use roce_proto::wire::packet::Packet;
use vp_api::{
    ANY_PORT, Access, Cq, Data, DatagramPath, DatagramSource, GRH_OCTETS, PostFailure, QpId,
    RecvWr, SendFlags, UdAddress, UdQp, UdQpInfo, UdQpInit, UdSendWr, UdState, VpError, VpResult,
    VpStatus, WcOpcode, WcStatus, WorkCompletion,
};
use vp_soft::memory::stag_table::{Caller, Need, StagTable};
use vp_soft::memory::{AccessError, place};
use vp_soft::objects::Objects;
use vp_soft::queue::srq::SoftSrq;
use vp_soft::queue::untaken::Untaken;
use vp_soft::queue::wq::{RecvRing, RecvWqe, pieces};

use super::ah::Ah;
use crate::cq::{Pushed, RoceCq};
use crate::engine::{Arrived, Engine, HOPS, Reason, Served, Socket};
use crate::path::{self, Port};
use crate::qp::{GONE, each, status};

/// The parts of a queue pair, apart from its sizes.
pub(super) struct Parts {
    pub(super) send_cq: Arc<RoceCq>,
    pub(super) recv_cq: Arc<RoceCq>,
    pub(super) srq: Option<Arc<SoftSrq>>,
    pub(super) table: Arc<StagTable>,
    pub(super) ahs: Arc<Objects<Ah>>,
    pub(super) engine: Arc<Engine>,
    pub(super) mtu: Mtu,
    /// It receives at the addresses of this port; of all, without one.
    pub(super) port: Option<Port>,
}

/// Opens the sockets of a port's addresses, or of all ports. One is enough, and may be another one of the loopback: another user may have
/// port 4791 of the rest.
pub(super) fn open_sockets(engine: &Engine, port: Option<&Port>) -> VpResult<()> {
    let mut refused = None;
    let addresses = match port {
        Some(port) => port.info.addresses.clone(),
        None => path::ports()?.into_iter().flat_map(|port| port.addresses).collect(),
    };
    for address in addresses {
        if let Err(error) = engine.socket(address) {
            refused = Some(error);
        }
    }
    if engine.has_socket(|local| port.is_none_or(|port| port.has(local))) {
        return Ok(());
    }
    Err(refused.unwrap_or_else(|| {
        let interface = port.map_or("this machine", |port| &port.info.interface);
        VpError::new(VpStatus::InvalidAddress, format!("{interface} has no address"))
    }))
}

/// A queue pair for datagrams.
pub(crate) struct RoceUdQp {
    me: Weak<Self>,
    id: QpId,
    init: UdQpInit,
    parts: Parts,
    caller: Caller,
    /// The identity for receive buffers: an SRQ has its own PD.
    receiver: Caller,
    number: u32,
    qkey: AtomicU32,
    state: Mutex<State>,
}

struct State {
    failed: bool,
    destroyed: bool,
    sequence: Psn,
    /// Not used with an SRQ.
    receives: RecvRing,
    /// The oldest receive, or one of the SRQ, if `held`.
    current: RecvWqe,
    held: bool,
    untaken_sends: Untaken,
    /// Not used with an SRQ, which counts its own receives.
    untaken_receives: Untaken,
    /// Notifications that are due when no lock is held.
    sent: Pushed,
    received: Pushed,
    srq_limit: bool,
    /// Octets of a packet to send.
    datagram: Vec<u8>,
}

impl State {
    fn new(init: &UdQpInit, srq: Option<&SoftSrq>) -> VpResult<Self> {
        let (recv_depth, max_recv_sge) = match srq {
            Some(srq) => (1, srq.max_sge()),
            None => (init.recv_depth, init.max_recv_sge),
        };
        Ok(Self {
            failed: false,
            destroyed: false,
            sequence: Psn::new(0),
            receives: RecvRing::new(recv_depth, max_recv_sge)?,
            current: RecvWqe::new(max_recv_sge)?,
            held: false,
            untaken_sends: Untaken::new(init.send_depth)?,
            untaken_receives: Untaken::new(recv_depth)?,
            sent: Pushed::default(),
            received: Pushed::default(),
            srq_limit: false,
            datagram: Vec::new(),
        })
    }

    /// Moves the oldest receive to `current`; false if none is posted.
    fn hold_receive(&mut self, srq: Option<&SoftSrq>) -> bool {
        if self.held {
            return true;
        }
        let limit;
        (self.held, limit) = match srq {
            Some(srq) => srq.take(&mut self.current),
            None => (self.receives.take(&mut self.current), false),
        };
        self.srq_limit |= limit;
        self.held
    }

    /// Whether [`Served::settle`] has something to do.
    fn must_notify(&self) -> bool {
        !self.sent.is_empty() || !self.received.is_empty() || self.srq_limit
    }

    /// Receives that are posted and not completed.
    fn receives(&self) -> u32 {
        self.receives.posted() + u32::from(self.held)
    }
}

impl RoceUdQp {
    pub(super) fn create(
        id: QpId,
        parts: Parts,
        qkey: u32,
        init: &UdQpInit,
    ) -> VpResult<Arc<Self>> {
        let srq = parts.srq.as_deref();
        let state = Mutex::new(State::new(init, srq)?);
        let caller = Caller { pd: init.pd, qp: id, allow: Access::empty(), privileged: false };
        // [VERBS-26]
        let receiver = Caller { pd: srq.map_or(init.pd, SoftSrq::pd), ..caller };
        let qp = Arc::new_cyclic(|me: &Weak<Self>| {
            let number = parts.engine.numbers.assign(me.clone());
            let (init, qkey) = (init.clone(), AtomicU32::new(qkey));
            let me = me.clone();
            Self { me, id, init, parts, caller, receiver, number, qkey, state }
        });
        let Parts { send_cq, recv_cq, srq, .. } = &qp.parts;
        if let Some(srq) = srq {
            let queue = Arc::<RoceCq>::downgrade(recv_cq);
            srq.completes_to(init.recv_cq, queue).inspect_err(|_| qp.destroy())?;
        }
        let me: Weak<dyn Served> = Arc::<Self>::downgrade(&qp);
        let joined = send_cq.join(id, me.clone()).and_then(|()| recv_cq.join(id, me));
        joined.inspect_err(|_| qp.destroy())?;
        Ok(qp)
    }

    /// Destroys the QP: after this every verb returns `InvalidHandle`.
    pub(crate) fn destroy(&self) {
        self.parts.engine.numbers.release(self.number);
        self.parts.engine.detach(None, self.number);
        {
            let mut state = lock(&self.state);
            state.destroyed = true;
            self.drop_receive(&mut state);
        }
        self.parts.send_cq.leave(self.id);
        self.parts.recv_cq.leave(self.id);
    }

    fn alive(&self) -> VpResult<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.destroyed {
            let detail = format!("queue pair {} was destroyed", self.id.0);
            return Err(VpError::new(VpStatus::InvalidHandle, detail));
        }
        Ok(state)
    }

    fn send_one(&self, state: &mut State, wr: &UdSendWr<'_>) -> Result<(), VpStatus> {
        let ah = self.parts.ahs.get(wr.ah.0).map_err(|error| error.status)?;
        if ah.info.pd != self.init.pd {
            return Err(VpStatus::InvalidPd);
        }
        let len = self.length(&wr.data, ah.mtu)?;
        if state.untaken_sends.slots() >= self.init.send_depth {
            state.untaken_sends.reap(self.parts.send_cq.taken());
        }
        if state.untaken_sends.slots() >= self.init.send_depth {
            return Err(VpStatus::TooManyWrs);
        }
        let status = match state.failed {
            true => WcStatus::Flushed,
            false => match self.transmit(state, &ah, wr, len) {
                Ok(()) => WcStatus::Success,
                Err(error) => status::of_access(error),
            },
        };
        self.complete_send(state, wr, status, len);
        if status != WcStatus::Success {
            self.fail(state);
        }
        Ok(())
    }

    /// The octets of a send, which must fit into one packet. // [IBUD-03]
    fn length(&self, data: &Data<'_>, mtu: Mtu) -> Result<u32, VpStatus> {
        let (len, pieces, most) = match data {
            Data::Sgl(sgl) => {
                let len = sgl.iter().map(|sge| u64::from(sge.len)).sum();
                (len, sgl.len(), self.init.max_send_sge)
            }
            Data::Inline(octets) => (octets.len() as u64, octets.len(), self.init.max_inline),
        };
        let fits = pieces <= most as usize && len <= mtu.octets().into();
        if fits { Ok(len as u32) } else { Err(VpStatus::InvalidSgl) }
    }

    fn transmit(
        &self,
        state: &mut State,
        ah: &Ah,
        wr: &UdSendWr<'_>,
        len: u32,
    ) -> Result<(), AccessError> {
        const CRC: usize = 4;
        let headers = Outgoing {
            destination: wr.to.qpn & 0xff_ffff,
            source: self.number,
            qkey: wr.to.qkey,
            psn: state.sequence,
            immediate: wr.immediate,
            solicited: wr.solicited,
            len,
        }
        .headers();
        let front = headers.emit();
        let datagram = &mut state.datagram;
        datagram.clear();
        datagram.extend_from_slice(front.as_slice());
        match wr.data {
            Data::Inline(octets) => datagram.extend_from_slice(octets),
            Data::Sgl(sgl) => {
                for sge in sgl.iter().filter(|sge| sge.len != 0) {
                    let need = Need::LocalRead;
                    let source =
                        self.parts.table.resolve(sge.stag, need, &self.caller, sge.to, sge.len)?;
                    let at = datagram.len();
                    datagram.resize(at + sge.len as usize, 0);
                    place::copy_out(&source, 0, &mut datagram[at..])?;
                }
            }
        }
        datagram.resize(datagram.len() + usize::from(headers.bth.pad) + CRC, 0);
        state.sequence = state.sequence.next();
        // A datagram that does not fit the path now is lost, as any may be.
        let len = datagram.len();
        let _ = ah.socket.send(ah.to, datagram, len, ah.info.path.traffic_class);
        Ok(())
    }

    fn complete_send(&self, state: &mut State, wr: &UdSendWr<'_>, status: WcStatus, len: u32) {
        let success = status == WcStatus::Success;
        if success && !wr.flags.contains(SendFlags::SIGNALED) {
            return state.untaken_sends.add_silent();
        }
        let completion = WorkCompletion {
            wr_id: wr.wr_id,
            qp: self.id,
            opcode: wr.completion(),
            status,
            octets: if success { len } else { 0 },
            ..WorkCompletion::BLANK
        };
        let place = self.parts.send_cq.push(&completion, &mut state.sent);
        state.untaken_sends.add(place);
    }

    fn receive_one(&self, state: &mut State, wr: &RecvWr<'_>) -> Result<(), VpStatus> {
        let full = |state: &State| {
            state.receives() + state.untaken_receives.slots() >= self.init.recv_depth
        };
        state.receives.check(wr)?;
        if full(state) {
            state.untaken_receives.reap(self.parts.recv_cq.taken());
        }
        if full(state) {
            return Err(VpStatus::TooManyWrs);
        }
        state.receives.post(wr)?;
        if state.failed {
            self.flush(state);
        }
        Ok(())
    }

    /// Copies octets to `offset` in the held receive.
    fn fill(&self, state: &State, offset: u32, mut octets: &[u8]) -> Result<(), AccessError> {
        for piece in pieces(state.current.sgl(), offset, octets.len() as u32) {
            let (now, rest) = octets.split_at(piece.len as usize);
            let need = Need::LocalWrite;
            let sink =
                self.parts.table.resolve(piece.stag, need, &self.receiver, piece.to, piece.len)?;
            place::copy_in(&sink, 0, now)?;
            octets = rest;
        }
        Ok(())
    }

    /// Puts a datagram into the held receive, which has room.
    fn deliver(
        &self,
        state: &mut State,
        header: &[u8; GRH_OCTETS],
        incoming: &Incoming<'_>,
        source: DatagramSource,
    ) {
        let filled = self.fill(state, 0, header);
        let filled = filled.and_then(|()| self.fill(state, GRH_OCTETS as u32, incoming.payload));
        if let Err(error) = filled {
            self.fail_receive(state, status::of_access(error));
            return self.fail(state);
        }
        state.held = false;
        let completion = WorkCompletion {
            wr_id: state.current.wr_id,
            qp: self.id,
            opcode: WcOpcode::Recv,
            solicited: incoming.solicited,
            octets: (GRH_OCTETS + incoming.payload.len()) as u32,
            immediate: incoming.immediate.map(u64::from),
            ..WorkCompletion::BLANK
        };
        let (cq, received) = (&self.parts.recv_cq, &mut state.received);
        let mut push = || cq.push_from(completion, source, received);
        match &self.parts.srq {
            Some(srq) => srq.complete(cq.id(), push),
            None => state.untaken_receives.add_signalled(push()),
        }
    }

    /// Completes the held receive without a message.
    fn fail_receive(&self, state: &mut State, status: WcStatus) {
        state.held = false;
        let completion = WorkCompletion {
            wr_id: state.current.wr_id,
            qp: self.id,
            opcode: WcOpcode::Recv,
            status,
            ..WorkCompletion::BLANK
        };
        let (cq, received) = (&self.parts.recv_cq, &mut state.received);
        let mut push = || cq.push(&completion, received);
        match &self.parts.srq {
            Some(srq) => srq.complete(cq.id(), push),
            None => state.untaken_receives.add_signalled(push()),
        }
    }

    /// The held receive, if it is of an SRQ, gets no completion.
    fn drop_receive(&self, state: &mut State) {
        if let Some(srq) = self.parts.srq.as_ref().filter(|_| state.held) {
            srq.complete(self.parts.recv_cq.id(), || None);
            state.held = false;
        }
    }

    /// Receives of an SRQ stay there, but for the one that is held.
    fn flush(&self, state: &mut State) {
        if self.parts.srq.is_some() {
            if state.held {
                self.fail_receive(state, WcStatus::Flushed);
            }
            return;
        }
        while state.hold_receive(None) {
            self.fail_receive(state, WcStatus::Flushed);
        }
    }

    /// Ends it: flushes what is posted, and what will be.
    fn fail(&self, state: &mut State) {
        state.failed = true;
        self.flush(state);
    }

    /// Error to Operational.
    fn renew(&self, state: &mut State) -> VpResult<()> {
        state.untaken_sends.forget_silent();
        state.untaken_sends.reap(self.parts.send_cq.taken());
        state.untaken_receives.reap(self.parts.recv_cq.taken());
        let (sends, receives) = (state.untaken_sends.slots(), state.untaken_receives.slots());
        if sends + receives != 0 {
            let detail = format!("{sends} sends and {receives} receives are not polled");
            return Err(VpError::new(VpStatus::StillFlushing, detail));
        }
        state.failed = false;
        Ok(())
    }

    /// As after creation.
    fn start_anew(&self, state: &mut State) {
        // Without completions: those of before leave the CQs.
        self.drop_receive(state);
        while self.parts.srq.is_none() && state.hold_receive(None) {
            state.held = false;
        }
        self.parts.send_cq.discard(self.id);
        self.parts.recv_cq.discard(self.id);
        state.untaken_sends.clear();
        state.untaken_receives.clear();
        state.failed = false;
    }

    /// Does the work that was deferred until no lock is held.
    fn settle(&self) {
        let mut state = lock(&self.state);
        let (sent, received) =
            (std::mem::take(&mut state.sent), std::mem::take(&mut state.received));
        let srq_limit = std::mem::take(&mut state.srq_limit);
        drop(state);
        if !sent.is_empty() {
            self.parts.send_cq.notify(sent);
        }
        if !received.is_empty() {
            self.parts.recv_cq.notify(received);
        }
        if let Some(srq) = self.parts.srq.as_ref().filter(|_| srq_limit) {
            srq.raise_limit();
        }
    }

    /// The path back to the sender of a datagram. For one that came to a group it names no local address.
    fn way_back(&self, socket: &Socket, arrived: &Arrived<'_>) -> DatagramPath {
        DatagramPath {
            port: if socket.is_group() { ANY_PORT } else { self.init.port },
            local_gid: if socket.is_group() { [0; 16] } else { path::gid(socket.local()) },
            remote_gid: path::gid(arrived.from.ip()),
            mtu_code: self.parts.mtu.code(),
            traffic_class: arrived.class,
            hop_limit: HOPS,
            ..DatagramPath::default()
        }
    }
}

/// The address of a group.
fn multicast(group: [u8; 16]) -> VpResult<IpAddr> {
    let address = path::address(group);
    if address.is_multicast() {
        return Ok(address);
    }
    let detail = format!("{address} is no multicast group: 224.0.0.0/4 and ff00::/8 are");
    Err(VpError::new(VpStatus::InvalidModifier, detail))
}

impl Served for RoceUdQp {
    fn receive(
        &self,
        _: u64,
        socket: &Arc<Socket>,
        arrived: &Arrived<'_>,
        packet: &Packet<'_>,
    ) -> Option<u32> {
        let drops = &self.parts.engine.drops;
        let elsewhere = |port: &Port| !socket.is_group() && !port.has(socket.local());
        if self.parts.port.as_ref().is_some_and(elsewhere) {
            drops.count(Reason::Stray);
            return None;
        }
        if !socket.is_whole(arrived, false) {
            drops.count(Reason::Damaged);
            return None;
        }
        // [IBUD-01] [IBUD-02]
        let qkey = self.qkey.load(Ordering::Relaxed);
        let accepted = ud::accept(packet, qkey, self.parts.mtu.octets() as usize);
        let (Ok(incoming), Some(header)) = (accepted, socket.header(arrived)) else {
            drops.count(Reason::Stray);
            return None;
        };
        let mut state = lock(&self.state);
        let need = (GRH_OCTETS + incoming.payload.len()) as u32;
        let srq = self.parts.srq.as_deref();
        let served = !state.destroyed && !state.failed && state.hold_receive(srq);
        if !served || state.current.capacity() < need {
            drops.count(Reason::Unready);
            return None;
        }
        let path = Some(self.way_back(socket, arrived));
        let source = DatagramSource { qpn: incoming.source, grh: true, path };
        self.deliver(&mut state, &header, &incoming, source);
        None
    }

    fn settle(&self, _: bool) -> bool {
        RoceUdQp::settle(self);
        false
    }

    fn end(&self) {
        self.fail(&mut lock(&self.state));
        self.settle();
    }
}

impl UdQp for RoceUdQp {
    fn id(&self) -> QpId {
        self.id
    }

    fn address(&self) -> UdAddress {
        UdAddress { qpn: self.number, qkey: self.qkey.load(Ordering::Relaxed) }
    }

    fn post_send(&self, wrs: &[UdSendWr<'_>]) -> Result<(), PostFailure> {
        let mut state = self.alive().map_err(|_| GONE)?;
        let posted = each(wrs, |wr| self.send_one(&mut state, wr));
        let settles = state.must_notify();
        drop(state);
        if settles {
            self.settle();
        }
        posted
    }

    fn post_recv(&self, wrs: &[RecvWr<'_>]) -> Result<(), PostFailure> {
        if self.parts.srq.is_some() {
            return Err(PostFailure { posted: 0, status: VpStatus::InvalidWr });
        }
        let mut state = self.alive().map_err(|_| GONE)?;
        let posted = each(wrs, |wr| self.receive_one(&mut state, wr));
        let settles = state.must_notify();
        drop(state);
        if settles {
            self.settle();
        }
        posted
    }

    fn modify(&self, to: UdState) -> VpResult<()> {
        let mut state = self.alive()?;
        match to {
            UdState::Error => self.fail(&mut state),
            UdState::Operational if state.failed => self.renew(&mut state)?,
            UdState::Operational => {}
        }
        drop(state);
        self.settle();
        Ok(())
    }

    fn set_qkey(&self, qkey: u32) -> VpResult<()> {
        let _alive = self.alive()?;
        self.qkey.store(qkey, Ordering::Relaxed);
        Ok(())
    }

    fn attach(&self, group: [u8; 16]) -> VpResult<()> {
        drop(self.alive()?);
        let (group, engine) = (multicast(group)?, &self.parts.engine);
        engine.attach(group, self.number, self.me.clone())?;
        // It may have been destroyed meanwhile.
        let alive = self.alive().map(drop);
        alive.inspect_err(|_| {
            engine.detach(Some(group), self.number);
        })
    }

    fn detach(&self, group: [u8; 16]) -> VpResult<()> {
        drop(self.alive()?);
        let group = multicast(group)?;
        if self.parts.engine.detach(Some(group), self.number) {
            return Ok(());
        }
        let detail = format!("queue pair {} is not attached to {group}", self.id.0);
        Err(VpError::new(VpStatus::InvalidModifier, detail))
    }

    fn reset(&self) -> VpResult<()> {
        self.start_anew(&mut *self.alive()?);
        Ok(())
    }

    fn query(&self) -> VpResult<UdQpInfo> {
        let state = self.alive()?;
        Ok(UdQpInfo {
            id: self.id,
            state: if state.failed { UdState::Error } else { UdState::Operational },
            address: self.address(),
            port: self.init.port,
            send_depth: self.init.send_depth,
            recv_depth: self.init.recv_depth,
            sends_outstanding: 0,
            recvs_outstanding: state.receives(),
        })
    }
}
