//! Connection management over rdma_cm: takes requests of the consumer, and returns events.
//!
//! Owner: the open device. Calls come from any thread. The event thread reads and handles the events of librdmacm,
//! and queues those for the consumer until [`NativeCm::poll_event`]. The table's lock is held for single calls of
//! librdmacm, none of which waits for an event. The kernel detects a dead peer: it reports "disconnected",
//! "unreachable" or "rejected".

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use vp_api::{
    AsyncEvent, EventSource, NativeCm, NativeEvent, NativeParams, QpId, QpState, VpError, VpResult,
    VpStatus,
};

use crate::device::Context;
use crate::events::{EventSink, bell, quiet, ring};
use crate::object_table::{ObjectTable, lock};
use crate::owned::refused;
use crate::qp::{Manager, VerbsQp};
use crate::ud::{Services, is_mine};
use ibv_sys::{IBV_QPS_RTR, IBV_QPS_RTS, RDMA_PS_TCP};

mod first_message;
pub(crate) mod id;
mod lost;
pub(crate) mod private;
mod step;

use first_message::Awaiting;
use id::{CmId, EventChannel, Terms};
pub(crate) use step::reason;

/// Time-out of address resolution, and of route resolution.
pub(crate) const RESOLVE_MS: i32 = 5000;

/// The connection manager of a device.
pub(crate) struct Cm {
    context: Arc<Context>,
    sink: Arc<EventSink>,
    qps: Arc<ObjectTable<VerbsQp>>,
    table: Mutex<Connections>,
    /// Events for the consumer.
    events: Mutex<VecDeque<NativeEvent>>,
    events_bell: OwnedFd,
    /// Queue pairs that broke, with the reason if it is known. The event thread handles them.
    broken: Mutex<VecDeque<(QpId, Option<AsyncEvent>)>>,
    broken_bell: OwnedFd,
    awaiting: Awaiting,
    pub(crate) services: Services,
    /// Declared after the ids in `table` and those of services, so that it is dropped after them.
    channel: EventChannel,
}

#[derive(Default)]
struct Connections {
    last: u64,
    all: BTreeMap<u64, Connection>,
    by_qp: BTreeMap<QpId, u64>,
}

struct Connection {
    id: CmId,
    stage: Stage,
    /// Set from connect or accept on.
    qp: Option<Arc<VerbsQp>>,
    /// The parameters that this end requests; for an incoming request, those that the peer offers.
    wishes: NativeParams,
    /// While `Awaiting`: the peer's parameters, which the consumer has not received yet.
    held: Option<NativeParams>,
}

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Listening,
    Resolving,
    Connecting,
    Asked,
    Accepting,
    /// Accepted, on iWARP: waits for the initiator's first message.
    Awaiting,
    Up,
    /// This end disconnects, or the peer has disconnected.
    Leaving,
    Over,
}

impl Connections {
    fn token(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn of(&mut self, qp: QpId) -> Option<&mut Connection> {
        self.all.get_mut(self.by_qp.get(&qp)?)
    }

    fn remove(&mut self, token: u64) -> Option<Connection> {
        let gone = self.all.remove(&token)?;
        if let Some(qp) = &gone.qp {
            self.by_qp.remove(&vp_api::Qp::id(&**qp));
        }
        Some(gone)
    }

    /// Whether a queue pair is free for another connection.
    fn is_free(&self, qp: QpId) -> VpResult<()> {
        match self.by_qp.contains_key(&qp) {
            true => {
                let detail = "the queue pair is being connected already";
                Err(VpError::new(VpStatus::InvalidState, detail))
            }
            false => Ok(()),
        }
    }
}

impl Cm {
    pub(crate) fn new(
        context: &Arc<Context>,
        sink: &Arc<EventSink>,
        qps: &Arc<ObjectTable<VerbsQp>>,
    ) -> io::Result<Self> {
        Ok(Self {
            context: context.clone(),
            sink: sink.clone(),
            qps: qps.clone(),
            table: Mutex::default(),
            events: Mutex::default(),
            events_bell: bell()?,
            broken: Mutex::default(),
            broken_bell: bell()?,
            awaiting: Awaiting::default(),
            services: Services::default(),
            channel: EventChannel::new(context)?,
        })
    }

    /// What new ids are made from.
    pub(crate) fn maker(&self) -> (&Arc<Context>, &EventChannel) {
        (&self.context, &self.channel)
    }

    /// The descriptor that the event thread waits for.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.channel.fd(), self.broken_bell.as_fd()]
    }

    /// Handles all waiting events. The event thread calls this.
    pub(crate) fn run(&self) {
        quiet(&self.broken_bell);
        self.end_broken();
        while let Some(seen) = self.channel.next() {
            match is_mine(&seen) {
                true => self.services.step(&self.context, seen),
                false => step::step(self, seen),
            }
        }
    }

    /// The queue pair is destroyed.
    pub(crate) fn forget(&self, qp: QpId) {
        let mut table = lock(&self.table);
        if let Some(token) = table.by_qp.get(&qp).copied() {
            table.remove(token);
        }
    }

    /// The first message arrived (InfiniBand), perhaps before the last message of the handshake.
    pub(crate) fn on_comm_est(&self, qp: QpId) {
        let mut table = lock(&self.table);
        if let Some(connection) = table.of(qp).filter(|c| c.stage == Stage::Accepting) {
            // Established concurrently: nothing to do.
            let _ = connection.id.notify_comm_est();
        }
    }

    /// Drops every id.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *lock(&self.table));
        drop(gone);
    }

    fn idle(&self, qp: QpId) -> VpResult<Arc<VerbsQp>> {
        let qp = self.qps.get(qp.0)?;
        if qp.state() != QpState::Idle {
            let detail = format!("the queue pair is {:?}; Idle is needed", qp.state());
            return Err(VpError::new(VpStatus::InvalidState, detail));
        }
        Ok(qp)
    }

    /// Checks and converts private data for a message. InfiniBand's messages have a fixed size.
    fn pack(&self, what: &str, private_data: &[u8], room: usize) -> VpResult<Vec<u8>> {
        let most = if self.context.iwarp { private::IWARP } else { room - private::TRAILER };
        if private_data.len() > most {
            let (len, name) = (private_data.len(), &self.context.name);
            let detail = format!("{what}: {len} octets of private data, {name} takes {most}");
            return Err(VpError::new(VpStatus::InvalidModifier, detail));
        }
        Ok(if self.context.iwarp {
            private_data.to_vec()
        } else {
            private::pack(private_data, room)
        })
    }

    /// Returns the private data that the other end's consumer gave.
    fn unpack(&self, octets: Vec<u8>, room: usize) -> Vec<u8> {
        if self.context.iwarp { octets } else { private::unpack(octets, room) }
    }

    /// InfiniBand: brings the queue pair to RTS. On iWARP the kernel does this.
    fn ready(&self, id: &CmId, qp: &VerbsQp, terms: Terms) -> io::Result<()> {
        if self.context.iwarp {
            return Ok(());
        }
        let (mut attr, mask) = id.attributes(IBV_QPS_RTR)?;
        attr.max_dest_rd_atomic = terms.ird;
        qp.apply(&mut attr, mask)?;
        let (mut attr, mask) = id.attributes(IBV_QPS_RTS)?;
        attr.max_rd_atomic = terms.ord;
        qp.apply(&mut attr, mask)
    }

    /// See [`Manager::close`].
    fn part(&self, qp: QpId) -> VpResult<()> {
        let mut table = lock(&self.table);
        let Some(connection) = table.of(qp) else {
            let detail = "the queue pair has no connection";
            return Err(VpError::new(VpStatus::InvalidState, detail));
        };
        match connection.stage {
            Stage::Up => {
                connection.stage = Stage::Leaving;
                if let Some(qp) = &connection.qp {
                    qp.closes();
                    // On InfiniBand this end flushes first; on iWARP the kernel closes the stream.
                    if !self.context.iwarp {
                        qp.fail_untold().map_err(refused("flush the queue pair"))?;
                    }
                }
                connection.id.disconnect().map_err(refused("disconnect"))
            }
            Stage::Leaving | Stage::Over => Ok(()),
            _ => {
                let token = table.by_qp.get(&qp).copied().unwrap_or_default();
                let gone = table.remove(token);
                if let Some(qp) = gone.and_then(|gone| gone.qp) {
                    // It flushes, or has nothing to flush.
                    let _ = qp.fail_untold();
                }
                Ok(())
            }
        }
    }

    fn terms(&self, qp: &VerbsQp, wishes: &NativeParams) -> io::Result<Terms> {
        let qp_num = qp.number().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let small = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX).min(MOST_READS);
        let (ird, ord) = (small(wishes.ird), small(wishes.ord));
        Ok(Terms { ird, ord, qp_num, srq: qp.has_srq() })
    }
}

/// librdmacm takes 255 to mean "the maximum".
pub(crate) const MOST_READS: u8 = 254;

impl Manager for Cm {
    fn broke(&self, qp: QpId, why: Option<AsyncEvent>) {
        lock(&self.broken).push_back((qp, why));
        ring(&self.broken_bell);
    }

    fn close(&self, qp: QpId) -> VpResult<()> {
        let closed = self.part(qp);
        if let Ok(qp) = self.qps.get(qp.0) {
            qp.tell();
        }
        closed
    }

    fn abandon(&self, qp: QpId) {
        let mut table = lock(&self.table);
        let Some(connection) = table.of(qp) else { return };
        // Another thread has reset the queue pair meanwhile, and connects it again.
        if connection.qp.as_ref().is_some_and(|qp| qp.state() != QpState::Error) {
            return;
        }
        match connection.stage {
            Stage::Up => {
                connection.stage = Stage::Leaving;
                // Ended concurrently: nothing to do.
                let _ = connection.id.disconnect();
            }
            Stage::Leaving | Stage::Over => {}
            _ => {
                let token = table.by_qp.get(&qp).copied().unwrap_or_default();
                table.remove(token);
            }
        }
    }

    fn renew(&self, qp: QpId) {
        let mut table = lock(&self.table);
        let Some(token) = table.by_qp.get(&qp).copied() else { return };
        let gone = table.remove(token);
        if gone.is_some_and(|gone| matches!(gone.stage, Stage::Up | Stage::Leaving)) {
            self.queue_event(NativeEvent::Disconnected { qp });
        }
    }
}

impl NativeCm for Cm {
    fn listen(&self, address: SocketAddr, backlog: u32) -> VpResult<(u64, SocketAddr)> {
        let attempt = format!("listen on {address}");
        self.context.alive(&attempt)?;
        let mut table = lock(&self.table);
        let token = table.token();
        let id = CmId::new(&self.context, &self.channel, token, RDMA_PS_TCP)
            .map_err(refused(&attempt))?;
        id.bind(address).map_err(refused(&attempt))?;
        if id.is_somewhere() && !id.is_here() {
            let detail = format!("{attempt}: the address is not one of {}", self.context.name);
            return Err(VpError::new(VpStatus::InvalidAddress, detail));
        }
        id.listen(backlog).map_err(refused(&attempt))?;
        let real = SocketAddr::new(address.ip(), id.source_port());
        let wishes = NativeParams { private_data: Vec::new(), ird: 0, ord: 0 };
        table.all.insert(
            token,
            Connection { id, stage: Stage::Listening, qp: None, wishes, held: None },
        );
        Ok((token, real))
    }

    fn unlisten(&self, listener: u64) -> VpResult<()> {
        let mut table = lock(&self.table);
        match table.all.get(&listener) {
            Some(found) if found.stage == Stage::Listening => {
                table.remove(listener);
                Ok(())
            }
            _ => Err(unknown("listener", listener)),
        }
    }

    fn connect(&self, qp: QpId, peer: SocketAddr, params: NativeParams) -> VpResult<()> {
        let private_data = self.pack("connect", &params.private_data, private::REQUEST)?;
        let params = NativeParams { private_data, ..params };
        let attempt = format!("connect to {peer}");
        self.context.alive(&attempt)?;
        let queue_pair = self.idle(qp)?;
        let mut table = lock(&self.table);
        table.is_free(qp)?;
        let token = table.token();
        let id = CmId::new(&self.context, &self.channel, token, RDMA_PS_TCP)
            .map_err(refused(&attempt))?;
        id.resolve_address(peer, RESOLVE_MS).map_err(refused(&attempt))?;
        let (stage, qp_of) = (Stage::Resolving, Some(queue_pair));
        let connection = Connection { id, stage, qp: qp_of, wishes: params, held: None };
        table.all.insert(token, connection);
        table.by_qp.insert(qp, token);
        Ok(())
    }

    fn accept(&self, request: u64, qp: QpId, params: NativeParams) -> VpResult<()> {
        let private_data = self.pack("accept", &params.private_data, private::REPLY)?;
        let params = NativeParams { private_data, ..params };
        let queue_pair = self.idle(qp)?;
        let mut table = lock(&self.table);
        table.is_free(qp)?;
        let asked = table.all.get_mut(&request).filter(|c| c.stage == Stage::Asked);
        let asked = asked.ok_or_else(|| unknown("connection request", request))?;
        asked.wishes = negotiated(params, &asked.wishes);
        let id = &asked.id;
        let accepted = self.terms(&queue_pair, &asked.wishes).and_then(|terms| {
            if !self.context.iwarp {
                queue_pair.on_port(id.port())?;
            }
            self.ready(id, &queue_pair, terms)?;
            id.accept(terms, &asked.wishes.private_data)
        });
        if let Err(error) = accepted {
            table.remove(request);
            return Err(refused("accept the connection")(error));
        }
        asked.stage = Stage::Accepting;
        asked.qp = Some(queue_pair);
        table.by_qp.insert(qp, request);
        Ok(())
    }

    fn reject(&self, request: u64, private_data: &[u8]) -> VpResult<()> {
        let private_data = &self.pack("reject", private_data, private::REJECT)?;
        let mut table = lock(&self.table);
        match table.all.get(&request) {
            Some(found) if found.stage == Stage::Asked => {
                let done = found.id.reject(private_data);
                table.remove(request);
                done.map_err(refused("reject the connection"))
            }
            _ => Err(unknown("connection request", request)),
        }
    }

    fn disconnect(&self, qp: QpId) -> VpResult<()> {
        self.close(qp)
    }

    fn poll_event(&self) -> Option<NativeEvent> {
        let mut events = lock(&self.events);
        let next = events.pop_front();
        if events.is_empty() {
            quiet(&self.events_bell);
        }
        next
    }

    fn wait_event(&self, timeout: Option<Duration>) -> VpResult<bool> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.events_bell, PollFlags::IN)], left.as_ref()) {
                Ok(ready) => return Ok(ready != 0),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(VpError::os("wait for connection events", &error.into()));
                }
            }
        }
    }
}

impl Cm {
    /// Disconnects broken queue pairs, after reporting the reason.
    fn end_broken(&self) {
        loop {
            let next = lock(&self.broken).pop_front();
            let Some((qp, why)) = next else { return };
            // Until the end is reported, the queue pair has this connection and no other.
            let Ok(queue_pair) = self.qps.get(qp.0) else { continue };
            if let Some(why) = why {
                self.sink.emit(EventSource::Qp(qp), why);
            }
            // The queue pair is in Error already; if not, the disconnect ends it.
            let _ = queue_pair.fail();
            self.abandon(qp);
            queue_pair.end_is_told();
        }
    }

    fn queue_event(&self, event: NativeEvent) {
        lock(&self.events).push_back(event);
        ring(&self.events_bell);
    }
}

/// No more reads in each direction than the other end accepts; 0 means that it sent no limit (MPA revision 1).
fn negotiated(own: NativeParams, peer: &NativeParams) -> NativeParams {
    let least = |own: u16, peer: u16| if peer == 0 { own } else { own.min(peer) };
    NativeParams { ird: least(own.ird, peer.ord), ord: least(own.ord, peer.ird), ..own }
}

fn unknown(what: &str, id: u64) -> VpError {
    VpError::new(VpStatus::InvalidHandle, format!("there is no {what} {id}, or it is over"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_the_least_of_both_ends() {
        let params = |ird, ord| NativeParams { private_data: vec![1], ird, ord };
        assert_eq!(negotiated(params(8, 4), &params(2, 16)), params(8, 2));
        assert_eq!(negotiated(params(8, 4), &params(0, 0)), params(8, 4));
    }
}
