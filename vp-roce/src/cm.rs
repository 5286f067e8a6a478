//! The connection manager: InfiniBand's messages over the engine's sockets, with rdma_cm's addresses in them.
//!
//! Owner: each RNIC has a [`RoceCm`] with its events. The listeners and exchanges of all RNICs are in the engine's
//! [`ConnectionTable`], because messages for all of them arrive at the same sockets. Calls come from any thread, messages
//! from the thread that receives, time-outs from the engine's thread. A QP's lock is taken under the table's lock,
//! never the other way round. If the peer dies, an exchange ends by its time-outs, at most some two seconds after
//! the last message; a connection ends by its QP's time-outs. Reuse: an exchange has a random id, which is kept
//! until late messages are gone. Full: the number of undecided requests of a listener is bounded; requests beyond
//! it are dropped, and the peer repeats them.

mod arrivals;
mod calls;
mod exchange;
mod listeners;
mod messages;
mod services;
mod sidr;
mod table;
mod wire;

use std::collections::LinkedList;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kal_os::{Gate, lock};
use rustix::process::{Resource, getrlimit};
use vp_api::{NativeCm, NativeEvent, NativeParams, QpId, VpError, VpResult, VpStatus};
use vp_soft::objects::Objects;

use crate::engine::{DESCRIPTORS, Engine, Socket};
use crate::limits::{PRIVATE_ACCEPT, PRIVATE_CONNECT, PRIVATE_REJECT};
use crate::path;
use crate::qp::RoceQp;
use crate::rnic::QpEntry;
use crate::tuning::MAX_BACKLOG;

pub(crate) use listeners::Listener;
pub(crate) use services::{Ears, Services};
pub(crate) use table::ConnectionTable;

/// The queue of events for one consumer. No event may be lost, so it grows by small allocations.
#[derive(Default)]
pub(crate) struct Events {
    queue: Mutex<LinkedList<NativeEvent>>,
    gate: Gate,
}

impl Events {
    pub(crate) fn push(&self, event: NativeEvent) {
        lock(&self.queue).push_back(event);
        self.gate.open();
    }
}

/// The connection manager of an RNIC.
pub(crate) struct RoceCm {
    engine: Arc<Engine>,
    qps: Arc<Objects<QpEntry>>,
    events: Arc<Events>,
    closed: AtomicBool,
}

impl RoceCm {
    pub(crate) fn new(engine: Arc<Engine>, qps: Arc<Objects<QpEntry>>) -> Self {
        Self { engine, qps, events: Arc::default(), closed: AtomicBool::new(false) }
    }

    /// The RNIC is closed: its listeners and undecided requests end.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.engine.connections.close(&self.engine, &self.events);
    }

    fn qp(&self, qp: QpId) -> VpResult<Arc<RoceQp>> {
        self.qps.get(qp.0)?.connected(qp)
    }
}

/// The addresses for which the wildcard stands: all local ones of its family.
fn addresses(address: IpAddr) -> VpResult<Vec<IpAddr>> {
    if !address.is_unspecified() {
        return Ok(vec![address]);
    }
    let all = path::ports()?.into_iter().filter(|port| port.online).flat_map(|port| port.addresses);
    Ok(all.filter(|one| one.is_ipv4() == address.is_ipv4()).collect())
}

/// The sockets for an address to listen on.
pub(crate) fn sockets(engine: &Engine, address: IpAddr) -> VpResult<Vec<Arc<Socket>>> {
    addresses(address)?.into_iter().map(|one| engine.socket(one)).collect()
}

/// Refuses to take more than this part of the descriptors that a process may have for a listener that stands aside.
const PART_ASIDE: u64 = 4;

fn check_descriptors(engine: &Engine, address: IpAddr) -> VpResult<()> {
    let new = |one: &IpAddr| !engine.has_socket(|own| own == *one);
    let new = addresses(address)?.iter().filter(|one| new(one)).count() as u64;
    // Without a limit none.
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / PART_ASIDE;
    if new * DESCRIPTORS <= most {
        return Ok(());
    }
    let detail =
        format!("listening at {new} addresses takes {DESCRIPTORS} descriptors for each, of {most}");
    Err(VpError::new(VpStatus::InsufficientResources, detail))
}

/// Checks the length of private data; `what` names the call.
pub(crate) fn fits(what: &str, data: &[u8], most: u32) -> VpResult<()> {
    if data.len() <= most as usize {
        return Ok(());
    }
    let detail = format!("{what}: {} octets of private data, RoCE takes {most}", data.len());
    Err(VpError::new(VpStatus::InvalidModifier, detail))
}

impl NativeCm for RoceCm {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        // No thread would serve the listener. The other calls name a queue pair or a request, which no longer
        // exist.
        if self.closed.load(Ordering::Acquire) {
            return Err(VpError::new(VpStatus::InvalidHandle, "the device was closed"));
        }
        let sockets = sockets(&self.engine, address.ip())?;
        let listener = Listener {
            owner: self.events.clone(),
            address: address.ip(),
            port: address.port(),
            backlog: (backlog as usize).clamp(1, MAX_BACKLOG),
            sockets,
        };
        let (token, port) = self.engine.connections.listen(&self.engine, listener)?;
        let mut bound = address;
        bound.set_port(port);
        Ok((token, bound))
    }

    fn listen_aside(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        check_descriptors(&self.engine, address.ip())?;
        self.engine.join_aside()?;
        self.listen(address, backlog)
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        self.engine.connections.unlisten(listener, &self.events)
    }

    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        fits("connect", &params.private_data, PRIVATE_CONNECT)?;
        let qp = self.qp(qp)?;
        let socket = self.engine.socket_towards(peer)?;
        qp.claim()?;
        qp.set_refusal(None);
        let begun =
            self.engine.connections.connect(&self.engine, &self.events, &qp, socket, peer, params);
        begun.inspect_err(|_| qp.disclaim())
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        fits("accept", &params.private_data, PRIVATE_ACCEPT)?;
        let qp = self.qp(qp)?;
        qp.claim()?;
        let begun =
            self.engine.connections.accept(&self.engine, &self.events, request, &qp, params);
        begun.inspect_err(|_| qp.disclaim())
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        fits("reject", private_data, PRIVATE_REJECT)?;
        self.engine.connections.reject(&self.engine, &self.events, request, private_data)
    }

    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        let qp = self.qp(qp)?;
        if !self.engine.connections.has(&qp) {
            let detail = "the queue pair has no connection";
            return Err(VpError::new(VpStatus::InvalidState, detail));
        }
        match qp.carried() {
            Some(_) => self.engine.connections.abandon(&self.engine, &qp),
            None => qp.end(),
        }
        Ok(())
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        lock(&self.events.queue).pop_front()
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let ticket = self.events.gate.ticket();
            if !lock(&self.events.queue).is_empty() {
                return Ok(true);
            }
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.events.gate.wait(ticket, left);
        }
    }
}
