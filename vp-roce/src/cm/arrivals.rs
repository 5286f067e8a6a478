//! Messages that arrive for connections: requests for listeners, and the rest for exchanges in progress.
//!
//! Runs in the thread that receives. A peer's octets are used as addresses and numbers only. Full: a listener with
//! as many undecided requests as its backlog drops further ones.

use std::net::IpAddr;
use std::sync::Arc;

use roce_proto::cm::addresses::Addresses;
use roce_proto::cm::connection::{Connection, State};
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected, Req};
use roce_proto::cm::private;
use roce_proto::psn::Psn;
use roce_proto::rc::Mtu;
use vp_api::{NativeEvent, NativeParams};

use super::table::{ConnectionTable, Exchange, Told, patience};
use super::wire;
use crate::engine::{Engine, Socket, Touched};
use crate::path;

impl ConnectionTable {
    /// Handles a message of a peer.
    pub(crate) fn handle(
        &self,
        engine: &Engine,
        socket: &Arc<Socket>,
        from: IpAddr,
        mad: &Mad,
        touched: &mut Touched,
    ) {
        let Ok(message) = Message::parse(mad) else { return };
        let id = match &message {
            Message::Req(req) => return self.request(engine, socket, from, mad, req),
            Message::Mra { ids, .. }
            | Message::Rej { ids, .. }
            | Message::Rtu { ids, .. }
            | Message::Dreq { ids, .. }
            | Message::Drep { ids, .. } => ids.remote,
            Message::Rep(rep) => rep.ids.remote,
            Message::SidrReq { .. } | Message::SidrRep { .. } => {
                return engine.services.handle(engine, socket, from, mad, &message, touched);
            }
        };
        let mut inner = self.lock();
        let id = match &message {
            // Who gives up before the reply does not know this end's id.
            Message::Rej { ids, .. } if id == 0 => inner.asked_by(from, ids.local).unwrap_or(id),
            _ => id,
        };
        let known = |one: &&mut Exchange| one.peer.ip() == from && Arc::ptr_eq(&one.socket, socket);
        match inner.exchanges.get_mut(&id).filter(known) {
            Some(one) => {
                let now = engine.now();
                if let Some(event) = one.machine.handle(&message, now) {
                    one.step(engine, event, now, touched);
                }
                if matches!(message, Message::Rep(_)) {
                    one.wait_to_establish(mad.transaction);
                }
                one.send();
            }
            None => refuse_unknown(socket, from, mad, &message),
        }
    }

    /// Handles a connection request of a peer.
    fn request(&self, engine: &Engine, socket: &Arc<Socket>, from: IpAddr, mad: &Mad, req: &Req) {
        let mut inner = self.lock();
        let repeated = inner.asked_by(from, req.local_id);
        if let Some(one) = repeated.and_then(|id| inner.exchanges.get_mut(&id)) {
            // No event results from it.
            let _ = one.machine.handle(&Message::Req(*req), engine.now());
            if one.machine.state() == State::Offered {
                one.wait_for_decision(mad.transaction);
            }
            return one.send();
        }
        let refuse = |reason| {
            let ids = ConnectionIds { local: 0, remote: req.local_id };
            let (of, private) = (Rejected::Req, Private::default());
            let refusal = Message::Rej { ids, of, reason, private };
            socket.send_message(from, &refusal.emit(mad.transaction));
        };
        // The peer has forgotten a connection that this end still has, or the request is forged: a probe finds out, so
        // that no single datagram ends a connection. [IBCM-19]
        if inner.is_connected_to(from, req.qpn) {
            return refuse(RejectReason::STALE_CONNECTION);
        }
        // The service ids of rdma_cm's TCP port space.
        let port = (req.service & 0xffff) as u16;
        let is_tcp = req.service == roce_proto::cm::tcp_service(port);
        let addresses = Addresses::parse(&req.private.0);
        let found = inner.listeners.find(socket.local(), port).filter(|_| is_tcp);
        let (Some((listener, found)), Some(addresses)) = (found, addresses) else {
            return refuse(RejectReason::INVALID_SERVICE_ID);
        };
        if req.transport != 0 {
            return refuse(RejectReason::INVALID_TRANSPORT);
        }
        let fits = |own: Mtu| Mtu::from_code(req.mtu).is_some_and(|mtu| mtu.code() <= own.code());
        if !path::mtu_of_local(socket.local()).is_ok_and(fits) {
            return refuse(RejectReason::INVALID_MTU);
        }
        let (events, backlog) = (found.owner.clone(), found.backlog);
        if inner.undecided(listener) >= backlog {
            return;
        }
        let id = inner.free_id(engine);
        let machine = Connection::offered(mad, req, id, patience());
        let (local, peer) =
            (socket.on_link(socket.local(), port), socket.on_link(from, addresses.source_port));
        let private_data = req.private.0[Addresses::LEN..].to_vec();
        let private_data = private::unpack(private_data, private::REQUEST);
        let (ird, ord) = wire::offer_of(req);
        let exchange = Exchange {
            machine,
            events,
            socket: socket.clone(),
            local,
            peer,
            qp: None,
            number: None,
            req: *req,
            receive_psn: Psn::new(engine.numbers.random()),
            told: Some(Told {
                qpn: req.qpn,
                psn: req.starting_psn,
                rnr_retry: req.rnr_retry_count,
                srq: req.srq,
            }),
            wishes: NativeParams { private_data: Vec::new(), ird, ord },
            settled: (0, 0),
            listener,
            is_up: false,
            is_told: false,
        };
        exchange.wait_for_decision(mad.transaction);
        exchange.events.push(NativeEvent::Request {
            listener,
            request: id.into(),
            peer,
            local: Some(local),
            params: NativeParams { private_data, ird, ord },
        });
        inner.exchanges.insert(id, exchange);
    }
}

/// Replies to a message about an unknown exchange, so that the peer ends it.
fn refuse_unknown(socket: &Socket, from: IpAddr, mad: &Mad, message: &Message) {
    let reply = match message {
        Message::Rep(rep) => Message::Rej {
            ids: ConnectionIds { local: rep.ids.remote, remote: rep.ids.local },
            of: Rejected::Rep,
            reason: RejectReason::INVALID_COMM_ID,
            private: Private::default(),
        },
        Message::Dreq { ids, .. } => Message::Drep {
            ids: ConnectionIds { local: ids.remote, remote: ids.local },
            private: Private::default(),
        },
        _ => return,
    };
    socket.send_message(from, &reply.emit(mad.transaction));
}
