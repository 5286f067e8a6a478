//! Handles each event of rdma_cm: the state machine of connections.
//!
//! Runs on the thread that polls events, with the table locked for one step.

use std::io;
use std::sync::Arc;

use vp_api::{NativeEvent, NativeParams, Qp};

use super::id::{CmId, Seen};
use super::{Cm, Connection, Connections, RESOLVE_MS, Stage, negotiated, private};
use crate::object_table::lock;
use crate::qp::VerbsQp;
use ibv_sys::*;

/// InfiniBand's "consumer reject" (12.6.7.2), which carries the consumer's private data.
const CONSUMER_REJECT: i32 = 28;

pub(super) fn step(cm: &Cm, seen: Seen) {
    if seen.kind == RDMA_CM_EVENT_DEVICE_REMOVAL {
        return cm.removed(seen.token);
    }
    let qp = handle(cm, &mut lock(&cm.table), seen);
    if let Some(qp) = qp {
        qp.tell();
    }
}

/// Returns the queue pair of the connection.
fn handle(cm: &Cm, table: &mut Connections, seen: Seen) -> Option<Arc<VerbsQp>> {
    if seen.kind == RDMA_CM_EVENT_CONNECT_REQUEST {
        request(cm, table, seen);
        return None;
    }
    let token = seen.token;
    // Abandoned by this end, or over.
    let connection = table.all.get_mut(&token)?;
    let qp = connection.qp.clone();
    let result = match seen.kind {
        RDMA_CM_EVENT_ADDR_RESOLVED => resolved(cm, connection),
        RDMA_CM_EVENT_ROUTE_RESOLVED => routed(cm, connection),
        RDMA_CM_EVENT_CONNECT_RESPONSE => answered(cm, connection, seen),
        RDMA_CM_EVENT_ESTABLISHED => {
            established(cm, connection, seen);
            Ok(())
        }
        RDMA_CM_EVENT_DISCONNECTED => {
            report_established(cm, connection);
            over(cm, connection);
            Ok(())
        }
        RDMA_CM_EVENT_REJECTED => {
            let (rejected, reason) = (was_rejected(cm, &seen), reason(&seen));
            let private_data = cm.unpack(seen.private_data, private::REJECT);
            end(cm, table, token, reason, rejected.then_some(private_data));
            return qp;
        }
        RDMA_CM_EVENT_ADDR_ERROR
        | RDMA_CM_EVENT_ROUTE_ERROR
        | RDMA_CM_EVENT_CONNECT_ERROR
        | RDMA_CM_EVENT_UNREACHABLE => {
            end(cm, table, token, reason(&seen), None);
            return qp;
        }
        // Multicast, address changes, and the end of the time-wait state.
        _ => Ok(()),
    };
    if let Err(error) = result {
        let reason = format!("the connection cannot be made: {error}");
        end(cm, table, token, reason, None);
    }
    qp
}

fn resolved(cm: &Cm, connection: &mut Connection) -> io::Result<()> {
    if connection.stage != Stage::Resolving {
        return Ok(());
    }
    if !connection.id.is_here() {
        let name = &cm.context.name;
        return Err(io::Error::other(format!("the route to the peer does not lead over {name}")));
    }
    connection.id.resolve_route(RESOLVE_MS)
}

fn routed(cm: &Cm, connection: &mut Connection) -> io::Result<()> {
    let (Stage::Resolving, Some(qp)) = (connection.stage, &connection.qp) else { return Ok(()) };
    if !cm.context.iwarp {
        qp.on_port(connection.id.port())?;
    }
    let terms = cm.terms(qp, &connection.wishes)?;
    connection.stage = Stage::Connecting;
    connection.id.connect(terms, &connection.wishes.private_data)
}

/// The second of the three handshake messages: InfiniBand only.
fn answered(cm: &Cm, connection: &mut Connection, seen: Seen) -> io::Result<()> {
    let (Stage::Connecting, Some(qp)) = (connection.stage, &connection.qp) else { return Ok(()) };
    let settled = negotiated(connection.wishes.clone(), &offer(&seen));
    let terms = cm.terms(qp, &settled)?;
    cm.ready(&connection.id, qp, terms)?;
    connection.id.establish()?;
    up(cm, connection, params_of(seen));
    Ok(())
}

/// The peer's IRD and ORD. rdma_cm reports them from this end's point of view.
fn offer(seen: &Seen) -> NativeParams {
    let (ird, ord) = (u16::from(seen.ord), u16::from(seen.ird));
    NativeParams { private_data: Vec::new(), ird, ord }
}

/// The same, with private data.
fn params_of(seen: Seen) -> NativeParams {
    let offer = offer(&seen);
    NativeParams { private_data: seen.private_data, ..offer }
}

fn established(cm: &Cm, connection: &mut Connection, seen: Seen) {
    match (connection.stage, &connection.qp) {
        (Stage::Accepting, Some(qp)) if cm.context.iwarp => {
            cm.awaiting.begin(seen.token, qp.id());
            (connection.stage, connection.held) = (Stage::Awaiting, Some(params_of(seen)));
        }
        _ => up(cm, connection, params_of(seen)),
    }
}

/// Reports a connection that waited for its first message.
pub(super) fn report_established(cm: &Cm, connection: &mut Connection) {
    if let Some(reported) = connection.held.take() {
        up(cm, connection, reported);
    }
}

fn up(cm: &Cm, connection: &mut Connection, reported: NativeParams) {
    let active = connection.stage == Stage::Connecting;
    let passive = matches!(connection.stage, Stage::Accepting | Stage::Awaiting);
    let (true, Some(qp)) = (active || passive, &connection.qp) else { return };
    connection.stage = Stage::Up;
    let settled = negotiated(connection.wishes.clone(), &reported);
    let (local, remote) = (connection.id.local(), connection.id.peer());
    qp.connected(|info| {
        (info.ird, info.ord) = (settled.ird, settled.ord);
        (info.local, info.remote) = (local, remote);
    });
    if active && cm.context.iwarp {
        qp.send_ready();
    }
    let private_data = cm.unpack(reported.private_data, private::REPLY);
    let params = NativeParams { private_data, ..settled };
    cm.queue_event(NativeEvent::Established { qp: qp.id(), local, params });
}

pub(super) fn over(cm: &Cm, connection: &mut Connection) {
    let Some(qp) = &connection.qp else { return };
    if connection.stage == Stage::Over {
        return;
    }
    connection.stage = Stage::Over;
    // It flushes, or has flushed already.
    let _ = qp.fail_untold();
    // InfiniBand: sends the reply to the peer's disconnect request, if there was one.
    let _ = connection.id.disconnect();
    cm.queue_event(NativeEvent::Disconnected { qp: qp.id() });
}

fn request(cm: &Cm, table: &mut Connections, seen: Seen) {
    let token = table.token();
    let listener = seen.token;
    let Ok(id) = CmId::born(&cm.context, seen.born, token) else { return };
    let known = table.all.get(&listener).is_some_and(|c| c.stage == Stage::Listening);
    let (true, true, Some(peer)) = (known, id.is_here(), id.peer()) else {
        // Of a listener that is closed, or for another device on a wildcard address. Dropping the id rejects the
        // request in that case, too.
        let _ = id.reject(&[]);
        return;
    };
    let wishes = offer(&seen);
    let private_data = cm.unpack(seen.private_data, private::REQUEST);
    let params = NativeParams { private_data, ..wishes.clone() };
    let local = id.local();
    table.all.insert(token, Connection { id, stage: Stage::Asked, qp: None, wishes, held: None });
    cm.queue_event(NativeEvent::Request { listener, request: token, peer, local, params });
}

/// Whether the peer's application rejected, and not its system.
fn was_rejected(cm: &Cm, seen: &Seen) -> bool {
    if cm.context.iwarp {
        // MPA's R bit; without a listener the status is -ECONNREFUSED.
        return seen.status == -libc::ECONNRESET;
    }
    seen.status == CONSUMER_REJECT
}

pub(crate) fn reason(seen: &Seen) -> String {
    let what = match seen.kind {
        RDMA_CM_EVENT_ADDR_ERROR => "the address cannot be resolved",
        RDMA_CM_EVENT_ROUTE_ERROR => "there is no route to the peer",
        RDMA_CM_EVENT_UNREACHABLE => "the peer does not respond",
        RDMA_CM_EVENT_REJECTED => "the peer refuses; there is no listener, or none for this device",
        _ => "the connection cannot be made",
    };
    match seen.status {
        0 => what.into(),
        status if status < 0 => format!("{what}: {}", io::Error::from_raw_os_error(-status)),
        status => format!("{what}: rejected with InfiniBand's reason {status}"),
    }
}

/// The connection was not established.
pub(super) fn end(
    cm: &Cm,
    table: &mut Connections,
    token: u64,
    reason: String,
    rejected: Option<Vec<u8>>,
) {
    let Some(gone) = table.remove(token) else { return };
    // A request that its peer abandoned: accepting it will fail.
    let Some(qp) = gone.qp else { return };
    // Not connected yet, so the queue pair stays as it was, for another attempt.
    if !matches!(gone.stage, Stage::Resolving | Stage::Connecting) {
        // It flushes, or has flushed already.
        let _ = qp.fail_untold();
    }
    let qp = qp.id();
    cm.queue_event(match rejected {
        Some(private_data) => NativeEvent::Rejected { qp, private_data },
        None => NativeEvent::Failed { qp, reason },
    });
}
