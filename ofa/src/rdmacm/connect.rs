//! Connecting, accepting, rejecting, disconnecting: rdma_connect(3), rdma_accept(3), rdma_reject(3),
//! rdma_disconnect(3).

use std::sync::Arc;

use ibv_sys::{IBV_QPS_INIT, IBV_QPS_RTS};
use kal_os::lock;
use ual_cm::{AcceptParams, ConnectParams, Disconnect};

use super::endpoint::{Connects, IdEndpoint};
use super::id::{Id, Inner, State};
use super::port;
use crate::adapter::Adapter;
use crate::caps;
use crate::errno::{EINVAL, Errno};

/// The application's connection parameters. Reads: `None` for as many as possible.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) data: Vec<u8>,
    pub(super) responder_resources: Option<u8>,
    pub(super) initiator_depth: Option<u8>,
}

impl Id {
    /// Connects a queue pair to the resolved peer; an event reports the result.
    pub(super) fn connect(self: &Arc<Self>, connects: Connects, wish: Wish) -> Result<(), Errno> {
        let (adapter, party, bound, params) = {
            let mut inner = lock(&self.inner);
            inner.expect(State::RouteResolved)?;
            let adapter = inner.adapter.clone().ok_or(EINVAL)?;
            let remote = inner.remote.ok_or(EINVAL)?;
            let policy = inner.options.policy(adapter.cm().policies().of(remote.ip()));
            let params = ConnectParams {
                private_data: wish.data.clone(),
                local: inner.local.map(|local| local.ip()),
                policy: Some(policy),
                ..ConnectParams::new(port::wire(remote))
            };
            let party = inner.join(self, &adapter, connects, &wish)?;
            (adapter, party, inner.bound.take(), params)
        };
        let started = match bound {
            Some(bound) => adapter.cm().connect_from(&party.connectee(), bound, params),
            // An earlier attempt was refused, and released the address.
            None => adapter.cm().connect(&party.connectee(), params),
        };
        match started {
            // An event, as if the peer refused: rping would wait for one without end.
            Err(denied @ ual_cm::Error::Denied(_)) => {
                party.refuse(denied.into());
                Ok(())
            }
            started => self.begun(&party, started.map_err(Errno::from), State::RouteResolved),
        }
    }

    /// Accepts the request onto a queue pair; an event reports the result.
    pub(super) fn accept(
        self: &Arc<Self>,
        connects: Connects,
        mut wish: Wish,
    ) -> Result<(), Errno> {
        let (party, request, params) = {
            let mut inner = lock(&self.inner);
            inner.expect(State::Asked)?;
            let asked = inner.asked.as_ref().ok_or(EINVAL)?;
            let (request, adapter) = (asked.request().ok_or(EINVAL)?, asked.adapter.clone());
            // rdma_accept(3): those of the request, limited by the device.
            let within = |reads: u8, most: u16| reads.min(caps::max_reads(most) as u8);
            let (attrs, conn) = (adapter.attrs(), &asked.conn);
            let inbound = within(conn.responder_resources, attrs.max_ird);
            wish.responder_resources.get_or_insert(inbound);
            let outbound = within(conn.initiator_depth, attrs.max_ord);
            wish.initiator_depth.get_or_insert(outbound);
            let party = inner.join(self, &adapter, connects, &wish)?;
            let params = AcceptParams { private_data: wish.data, ird: None, ord: None };
            (party, request, params)
        };
        let accepted = party.adapter().cm().accept(&party.connectee(), request, params);
        if accepted.is_ok()
            && let Some(asked) = &mut lock(&self.inner).asked
        {
            asked.answered();
        }
        self.begun(&party, accepted.map_err(Errno::from), State::Asked)
    }

    /// Returns to `before` if the call failed.
    fn begun(
        &self,
        party: &Arc<IdEndpoint>,
        begun: Result<(), Errno>,
        before: State,
    ) -> Result<(), Errno> {
        if begun.is_err() {
            party.detach();
            if let Some(qp) = party.qp() {
                qp.set_state(IBV_QPS_INIT);
            }
            let mut inner = lock(&self.inner);
            (inner.state, inner.party) = (before, None);
        }
        begun
    }

    /// Rejects the request.
    pub(super) fn reject(&self, data: &[u8]) -> Result<(), Errno> {
        let mut inner = lock(&self.inner);
        inner.expect(State::Asked)?;
        inner.asked.as_mut().ok_or(EINVAL)?.reject(data)?;
        inner.state = State::Over;
        Ok(())
    }

    /// Ends the connection once all posted work was sent, or ends the attempt to connect; an event
    /// follows. If the connection is over already none does.
    pub(super) fn disconnect(&self) -> Result<(), Errno> {
        let (state, party) = {
            let inner = lock(&self.inner);
            (inner.state, inner.party.clone())
        };
        match (state, party) {
            (State::Connected, Some(party)) => party.disconnect(Disconnect::Drained),
            (State::Pending, Some(party)) => party.disconnect(Disconnect::Abrupt),
            (State::Disconnected | State::Over, _) => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Establishes the connection at the end that accepted (rdma_establish(3)).
    pub(super) fn establish(&self) -> Result<(), Errno> {
        let (state, party, awaited) = {
            let mut inner = lock(&self.inner);
            let awaited = std::mem::take(&mut inner.is_unconfirmed);
            (inner.state, inner.party.clone().ok_or(EINVAL)?, awaited)
        };
        match party.carrier() {
            Some(carrier) if awaited => carrier.establish(),
            // A queue pair of the application on iWARP: established with its event.
            None if state == State::Connected => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Whether it has connected or accepted, or is doing so.
    pub(super) fn is_joined(&self) -> bool {
        lock(&self.inner).party.is_some()
    }

    /// Whether its connection, or the attempt, is over.
    pub(super) fn has_ended(&self) -> bool {
        matches!(lock(&self.inner).state, State::Disconnected | State::Over)
    }

    /// Whether there is a connection, or an attempt.
    pub(super) fn has_connection(&self) -> bool {
        matches!(lock(&self.inner).state, State::Asked | State::Pending | State::Connected)
    }
}

impl Inner {
    /// Joins with a queue pair, or with none, pending. EINVAL: more reads than the device has.
    fn join(
        &mut self,
        id: &Arc<Id>,
        adapter: &Arc<Adapter>,
        connects: Connects,
        wish: &Wish,
    ) -> Result<Arc<IdEndpoint>, Errno> {
        let within = |wish: Option<u8>, most: u16| match wish.map_or(most, u16::from) {
            wish if wish <= most => Ok(wish),
            _ => Err(EINVAL),
        };
        let party = IdEndpoint::join(id, adapter, connects, |info| {
            Ok((
                within(wish.responder_resources, info.ird)?,
                within(wish.initiator_depth, info.ord)?,
            ))
        })?;
        if let Some(qp) = party.qp() {
            // The peer's first message may come before the event, and the application may reply to it.
            qp.set_state(IBV_QPS_RTS);
            if let Some(exponent) = self.options.ack_timeout() {
                qp.set_timeout(exponent);
            }
        }
        self.party = Some(party.clone());
        self.state = State::Pending;
        Ok(party)
    }
}
