//! Calls of the application: listening, connecting, replying to a request.
//!
//! They run on the caller's thread, with the table locked. Messages are sent under that lock, which keeps their order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use roce_proto::cm::connection::Connection;
use roce_proto::cm::message::{Private, RejectReason, Rep, Req};
use roce_proto::cm::{private, tcp_service};
use roce_proto::psn::Psn;
use roce_proto::rc::Mtu;
use vp_api::{NativeParams, VpError, VpResult, VpStatus};

use super::Events;
use super::listeners::{FIRST_PORT, Listener};
use super::table::{ConnectionTable, Exchange, patience, unknown};
use super::wire::{self, Ends};
use crate::engine::{Engine, Socket};
use crate::path;
use crate::qp::RoceQp;

impl ConnectionTable {
    pub(super) fn listen(
        &self,
        engine: &Engine,
        listener: Listener<Arc<Events>>,
    ) -> VpResult<(u64, u16)> {
        let sockets = listener.sockets.clone();
        let add = |is_taken: &dyn Fn(u32) -> bool| {
            self.lock().listeners.add(listener, |port| is_taken(tcp_service(port) as u32))
        };
        engine.announce(&sockets, add, |(token, _)| {
            self.lock().listeners.remove(|own, _| own == token);
        })
    }

    /// Adds the services that have a listener at an address, the lower halves of their ids, as far as there is room.
    pub(crate) fn services(&self, address: IpAddr, all: &mut Vec<u32>) {
        let room = all.capacity() - all.len();
        let inner = self.lock();
        all.extend(inner.listeners.ports(address).map(|port| tcp_service(port) as u32).take(room));
    }

    pub(super) fn unlisten(&self, listener: u64, events: &Arc<Events>) -> VpResult<()> {
        let mut inner = self.lock();
        let removed =
            inner.listeners.remove(|token, owner| token == listener && Arc::ptr_eq(owner, events));
        removed.then_some(()).ok_or_else(|| unknown("listener", listener))
    }

    /// Closes an RNIC: its listeners end, and its undecided requests are refused.
    pub(super) fn close(&self, engine: &Engine, events: &Arc<Events>) {
        let mut inner = self.lock();
        inner.listeners.remove(|_, owner| Arc::ptr_eq(owner, events));
        let now = engine.now();
        for one in inner.exchanges.values_mut().filter(|one| Arc::ptr_eq(&one.events, events)) {
            one.is_told = true;
            // Refuses a request that is not decided; has no effect on other exchanges.
            if one.machine.reject(RejectReason::CONSUMER, Private::default(), now).is_ok() {
                one.send();
            }
        }
        drop(inner);
        engine.wake();
    }

    pub(super) fn connect(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        qp: &Arc<RoceQp>,
        socket: Arc<Socket>,
        peer: SocketAddr,
        params: NativeParams,
    ) -> VpResult<()> {
        let local = socket.local();
        let mtu = path::mtu_of_local(local)?;
        let mut inner = self.lock();
        let id = inner.free_id(engine);
        // The rdma_cm port of this end; no peer connects to it.
        let port = FIRST_PORT | (engine.numbers.random() as u16);
        let source = socket.on_link(local, port);
        let private = wire::addresses(source, peer.ip())
            .and_then(|addresses| {
                addresses.with(&private::pack(&params.private_data, private::REQUEST))
            })
            .ok_or_else(|| {
                let detail = format!("{peer} cannot be reached from {local}");
                VpError::new(VpStatus::Os, detail)
            })?;
        let carried = qp.carried();
        let number = carried.unwrap_or_else(|| engine.numbers.assign(Arc::downgrade(qp)));
        let psn = Psn::new(engine.numbers.random());
        let reads = (params.ird, params.ord);
        let ends = Ends { local, peer };
        let req = Req {
            local_id: id,
            srq: qp.has_srq(),
            rnr_retry_count: qp.settings().rnr_retry,
            ack_timeout: qp.ack_timeout(),
            private,
            ..wire::request(&ends, number, psn, mtu, reads)
        };
        let machine = Connection::connect(req, id.into(), patience(), engine.now());
        let mut exchange = Exchange {
            machine,
            events: events.clone(),
            socket,
            local: source,
            peer,
            qp: Some(qp.clone()),
            number: carried.is_none().then_some(number),
            req,
            receive_psn: psn,
            told: None,
            wishes: params,
            settled: (0, 0),
            listener: 0,
            is_up: false,
            is_told: false,
        };
        exchange.send();
        inner.exchanges.insert(id, exchange);
        drop(inner);
        // It stays in the table for its time-out.
        engine.wake();
        Ok(())
    }

    pub(super) fn accept(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        request: u64,
        qp: &Arc<RoceQp>,
        params: NativeParams,
    ) -> VpResult<()> {
        let mut inner = self.lock();
        let one = inner.offered(events, request)?;
        let packed = private::pack(&params.private_data, private::REPLY);
        let private = Private::new(&packed).unwrap_or_default();
        one.wishes = params;
        one.settled = wire::settle(&one.wishes, wire::offer_of(&one.req));
        let carried = qp.carried();
        let number = carried.unwrap_or_else(|| engine.numbers.assign(Arc::downgrade(qp)));
        let psn = one.receive_psn;
        let mtu = Mtu::from_code(one.req.mtu).unwrap_or(Mtu::Octets256);
        let config = wire::config(
            one.req.qpn,
            mtu,
            (one.req.starting_psn, psn),
            one.settled,
            qp,
            (one.req.retry_count, one.req.rnr_retry_count),
        );
        let id = one.machine.ids().local;
        if carried.is_none() {
            let path = one.path(config, qp.ack_timeout(), number, Some(id));
            qp.begin(path).inspect_err(|_| engine.numbers.release(number))?;
        }
        let (ird, ord) = one.settled;
        let small = |reads: u16| u8::try_from(reads).unwrap_or(u8::MAX);
        let rep = Rep {
            ids: one.machine.ids(),
            qpn: number,
            starting_psn: psn,
            responder_resources: small(ird),
            initiator_depth: small(ord),
            target_ack_delay: 0,
            rnr_retry_count: qp.settings().rnr_retry,
            srq: qp.has_srq(),
            ca_guid: wire::GUID,
            private,
        };
        // The QP owns the number since it began.
        one.qp = Some(qp.clone());
        // `offered` has checked the state.
        let _ = one.machine.accept(rep, engine.now());
        one.send();
        drop(inner);
        engine.wake();
        Ok(())
    }

    pub(super) fn reject(
        &self,
        engine: &Engine,
        events: &Arc<Events>,
        request: u64,
        private_data: &[u8],
    ) -> VpResult<()> {
        let mut inner = self.lock();
        let one = inner.offered(events, request)?;
        let packed = private::pack(private_data, private::REJECT);
        let private = Private::new(&packed).unwrap_or_default();
        // `offered` has checked the state.
        let _ = one.machine.reject(RejectReason::CONSUMER, private, engine.now());
        one.send();
        drop(inner);
        engine.wake();
        Ok(())
    }

    /// Whether a QP is connected or being connected.
    pub(super) fn has(&self, qp: &RoceQp) -> bool {
        self.lock().of(qp).is_some_and(|one| !one.is_told)
    }
}
