//! Providers with a connection manager of their own (rdma_cm and the like): the same commands, and the
//! same events.
//!
//! When a peer dies the provider reports it; if it does not, the timer of the entry ends the attempt.
//!
//! A request that fails breaks a connection, and rdma-core reports it in the completion only: no event
//! follows. So the end is noticed when a thread polls or waits at that dispatcher. To notice it
//! independently, the provider would have to keep its queues armed for solicited completions, which
//! include failures. That costs an event of the kernel and a wake-up for each solicited message, and for
//! each message on siw, which does not keep the armed kind (`vp-verbs`, `forgets_solicited`). The data
//! path must not pay for that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kal_shim::clock::after;
use kal_shim::same_host::NotLocal;
use vp_api::{NativeCm, NativeEvent, NativeParams, QpId, Role, ServiceRefusal};

use super::service::refuse_service;
use super::{ConnectionTable, Entry};
use crate::connection::{ConnState, Connectee, id_of, open};
use crate::deliveries::{Delivery, Origin};
use crate::node::{Ends, Node};
use crate::policy::{LocalStreams, Policy, RuleRole};
use crate::private::PrivateData;
use crate::requests::{self, Native, Waiting};
use crate::ruled::Admission;
use crate::startup::native::{Again, NativeRequest, Pending};
use crate::tuning::{REFUSED_PAUSE, REPLY_MARGIN};
use crate::types::{
    AcceptParams, BrokenCause, ConnEvent, ConnRequest, ConnectParams, Established, FailReason,
    ListenerId, RequestId,
};

/// A request for a listener of ours.
struct Offer {
    /// The provider's id for it.
    request: u64,
    asked: NativeParams,
    ends: Ends,
    policy: Policy,
    admission: Option<Admission>,
}

/// An endpoint whose connection the provider is making.
type Expected = (Arc<dyn Connectee>, Ends, Role, Policy);

impl ConnectionTable {
    pub(super) fn connect_native(
        &mut self,
        native: &dyn NativeCm,
        party: &Arc<dyn Connectee>,
        params: ConnectParams,
        policy: Policy,
    ) {
        let local = params.local.unwrap_or(match params.remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
        let remote = Node::remote(params.remote, params.remote_name.as_deref());
        let ends = Ends { local: Node::local((local, 0).into()), remote };
        if policy.local == LocalStreams::Require {
            return self.fail(party, ends, FailReason::NoLocalStream(NotLocal::Provider));
        }
        let (ird, ord) = party.connection().ird_ord();
        let wishes = NativeParams { private_data: params.private_data, ird, ord };
        match native.connect(id_of(&**party), params.remote, wishes.clone()) {
            Ok(()) => {
                let timeout = params.timeout.unwrap_or(usual_timeout(&policy));
                let again = (!policy.refused_for.is_zero()).then(|| {
                    let (until, deadline) = (after(policy.refused_for), after(timeout));
                    let remote = params.remote;
                    let (paused, failed) = (false, None);
                    Box::new(Again { remote, wishes, until, deadline, paused, failed })
                });
                self.expect(party, ends, Role::Initiator, policy, timeout, again);
            }
            Err(error) => self.fail(party, ends, FailReason::Native(error.to_string())),
        }
    }

    /// Waits for the provider to report the result of an endpoint's connection.
    fn expect(
        &mut self,
        party: &Arc<dyn Connectee>,
        ends: Ends,
        role: Role,
        policy: Policy,
        timeout: Duration,
        again: Option<Box<Again>>,
    ) {
        party.connection().link().ends = Some(ends.clone());
        let token = self.new_token();
        self.by_qp.insert(id_of(&**party), token);
        self.reactor.set_timer(token, after(timeout));
        let pending =
            Pending::Endpoint { party: Arc::downgrade(party), ends, role, policy, timeout, again };
        self.entries.insert(token, Entry::Native(Box::new(pending)));
    }

    pub(super) fn accept_native(
        &mut self,
        pending: Pending,
        party: &Arc<dyn Connectee>,
        params: &AcceptParams,
    ) {
        let (Pending::Request { request, ends, policy, admission, .. }, Some(native)) =
            (pending, self.native.clone())
        else {
            return;
        };
        party.connection().link().admission = admission;
        if policy.local == LocalStreams::Require {
            let _ = native.reject(request, &[]);
            return self.fail(party, ends, FailReason::NoLocalStream(NotLocal::Provider));
        }
        let (most_ird, most_ord) = party.connection().ird_ord();
        let wishes = NativeParams {
            private_data: params.private_data.clone(),
            ird: params.ird.unwrap_or(most_ird).min(most_ird),
            ord: params.ord.unwrap_or(most_ord).min(most_ord),
        };
        match native.accept(request, id_of(&**party), wishes) {
            Ok(()) => {
                let timeout = usual_timeout(&policy);
                self.expect(party, ends, Role::Responder, policy, timeout, None);
            }
            Err(error) => {
                // Nothing else replies to the peer; the provider may have done so already.
                let _ = native.reject(request, &[]);
                self.fail(party, ends, FailReason::Native(error.to_string()));
            }
        }
    }

    pub(super) fn reject_native(&self, pending: &Pending, private_data: &[u8]) {
        if let Pending::Request { request, ends, .. } = pending {
            self.reject_request(*request, ends, private_data);
        }
        if let (Pending::Service { asked, .. }, Some(datagrams)) = (pending, &self.datagrams) {
            refuse_service(&**datagrams, asked.request, ServiceRefusal::Rejected);
        }
    }

    fn reject_request(&self, request: u64, ends: &Ends, private_data: &[u8]) {
        self.counters.rejected.add();
        if let Some(native) = &self.native
            && let Err(error) = native.reject(request, private_data)
        {
            tracing::debug!("{ends}: reject: {error}");
        }
    }

    pub(super) fn expire_native(&mut self, token: u64, mut pending: Pending) {
        if let Pending::Endpoint { party, ends, again: Some(again), .. } = &mut pending
            && std::mem::take(&mut again.paused)
            && let (Some(party), Some(native)) = (open(party), &self.native)
        {
            self.reactor.set_timer(token, again.deadline);
            let attempt = native.connect(id_of(&*party), again.remote, again.wishes.clone());
            return match attempt {
                Ok(()) => drop(self.entries.insert(token, Entry::Native(Box::new(pending)))),
                Err(error) => {
                    let reason = FailReason::Native(error.to_string());
                    self.give_up_native(&party, ends.clone(), reason);
                }
            };
        }
        match &pending {
            Pending::Endpoint { party, ends, timeout, again, .. } => {
                if let Some(party) = open(party) {
                    // The last attempt began just before the end.
                    let failed = again.as_ref().and_then(|again| again.failed.clone());
                    let reason =
                        failed.map_or(FailReason::ConnectTimeout(*timeout), FailReason::Native);
                    self.give_up_native(&party, ends.clone(), reason);
                }
            }
            Pending::Request { handle, .. } => {
                if requests::remove(*handle) {
                    self.reject_native(&pending, &[]);
                } else {
                    self.entries.insert(token, Entry::Native(Box::new(pending)));
                }
            }
            Pending::Service { handle, .. } => {
                // Otherwise a reply is being sent.
                if requests::remove(*handle) {
                    self.reject_native(&pending, &[]);
                }
            }
        }
    }

    pub(super) fn cancel_native(&mut self, pending: Pending) {
        if let Pending::Endpoint { party, ends, .. } = pending
            && let Some(party) = open(&party)
        {
            self.give_up_native(&party, ends, FailReason::Cancelled);
        }
    }

    fn give_up_native(&mut self, party: &Arc<dyn Connectee>, ends: Ends, reason: FailReason) {
        self.drop_of(id_of(&**party));
        if let Some(native) = &self.native {
            // The connection may have ended by itself.
            let _ = native.disconnect(id_of(&**party));
        }
        self.fail(party, ends, reason);
    }

    pub(super) fn on_native(&mut self, number: u64, event: NativeEvent) {
        match event {
            NativeEvent::Request { listener, request: id, peer, local, params: asked } => {
                self.deliver_native(NativeRequest { listener, id, peer, local, asked });
            }
            NativeEvent::Established { qp, local, params } => {
                if let Some((party, mut ends, role, policy)) = self.finish_pending(qp, number) {
                    if let Some(address) = local.or_else(|| local_of(&*party)) {
                        ends.local = Node::local(address);
                    }
                    self.establish(&party, ends, role, &policy, params);
                }
            }
            NativeEvent::Rejected { qp, private_data } => {
                if let Some((party, ends, ..)) = self.finish_pending(qp, number) {
                    self.refuse(
                        &party,
                        ConnEvent::Rejected { ends, private_data, peer_ird_ord: None },
                    );
                }
            }
            NativeEvent::Failed { qp, ref reason } if self.pause_attempt(qp, number, reason) => {}
            NativeEvent::Failed { qp, reason } => {
                if let Some((party, ends, ..)) = self.finish_pending(qp, number) {
                    self.fail(&party, ends, FailReason::Native(reason));
                }
            }
            NativeEvent::Disconnected { qp } => {
                if let Some(party) = self.of_present_stream(qp, number) {
                    // A refusal before it is the cause, and its event may come later.
                    let ended = party.qp().query().ok().and_then(|info| info.ended);
                    self.on_end(&party, ended.and_then(BrokenCause::of));
                }
            }
            other => tracing::warn!("unknown event of the provider: {other:?}"),
        }
    }

    /// An attempt failed: has it repeated soon, if it may be. Returns whether it will be.
    fn pause_attempt(&mut self, qp: QpId, number: u64, reason: &str) -> bool {
        if self.of_present_stream(qp, number).is_none() {
            return false;
        }
        let Some(token) = self.by_qp.get(&qp).copied() else { return false };
        let Some(Entry::Native(pending)) = self.entries.get_mut(&token) else { return false };
        let Pending::Endpoint { again: Some(again), .. } = &mut **pending else { return false };
        let next = after(REFUSED_PAUSE);
        // Otherwise the end would come before the reply, and hide why the attempts failed.
        again.paused = next + REPLY_MARGIN < again.until.min(again.deadline);
        if again.paused {
            again.failed = Some(reason.to_owned());
            self.reactor.set_timer(token, next);
        }
        again.paused
    }

    /// Takes out what an endpoint waits for, unless the event with this number is about an earlier
    /// attempt.
    fn finish_pending(&mut self, qp: QpId, number: u64) -> Option<Expected> {
        self.of_present_stream(qp, number)?;
        let token = self.by_qp.remove(&qp)?;
        self.reactor.clear_timer(token);
        match self.entries.remove(&token)? {
            Entry::Native(pending) => match *pending {
                Pending::Endpoint { party, ends, role, policy, .. } => {
                    Some((open(&party)?, ends, role, policy))
                }
                Pending::Request { .. } | Pending::Service { .. } => None,
            },
            _ => None,
        }
    }

    fn deliver_native(&mut self, request: NativeRequest) {
        let known = self.native_listeners.get(&request.listener);
        let known = known.map(|(listener, native)| (*listener, native.address));
        let owner = known.and_then(|(listener, _)| self.listeners.get(&listener));
        let (Some((listener, address)), Some(owner)) = (known, owner) else {
            if let Some(request) = self.unmatched.keep(request)
                && let Some(native) = &self.native
            {
                // Nothing else replies to the peer; it may have left by itself.
                let _ = native.reject(request, &[]);
            }
            return;
        };
        let NativeRequest { id, peer, local, asked, .. } = request;
        let (mut policy, port) = (owner.service.policy(peer.ip()), owner.service.port);
        let rule = self.rules.apply(&mut policy, peer.ip(), port, RuleRole::Accept);
        // The listener's address may be that of any interface.
        let local = Node::local(local.unwrap_or(address));
        self.counters.incoming.add();
        let ends = Ends { local, remote: Node::remote(peer, None) };
        match self.rules.admit(rule.as_deref(), true) {
            Ok(admission) => {
                self.offer_native(listener, Offer { request: id, asked, ends, policy, admission });
            }
            Err(denied) => {
                tracing::warn!("{ends}: rejected: {denied}");
                self.reject_request(id, &ends, &[]);
            }
        }
    }

    /// A listener was added: requests that arrived before it are delivered, or wait on.
    pub(super) fn deliver_unmatched(&mut self) {
        for request in std::mem::take(&mut self.unmatched.early) {
            self.deliver_native(request);
        }
    }

    /// Gives a request to another listener.
    pub(super) fn redeliver_native(&mut self, token: u64, pending: Pending, listener: u64) {
        self.reactor.clear_timer(token);
        match (pending, self.datagrams.clone()) {
            (Pending::Request { request, asked, ends, policy, admission, .. }, _) => {
                self.offer_native(listener, Offer { request, asked, ends, policy, admission });
            }
            (Pending::Service { asked, .. }, Some(datagrams)) => {
                self.offer_service(listener, &datagrams, asked);
            }
            _ => {}
        }
    }

    fn offer_native(&mut self, listener: u64, offer: Offer) {
        let Offer { request, asked, ends, policy, admission } = offer;
        let Some((sink, port)) = self.sink_of(listener) else {
            return self.reject_request(request, &ends, &[]);
        };
        let token = self.new_token();
        let most = PrivateData::of(&self.attrs, &policy);
        let handle = requests::add(Waiting {
            owner: self.mailbox.clone(),
            token,
            most,
            local: ends.local.address,
            native: self.native.clone().map(|manager| Native { manager, request }),
            asker: None,
        });
        let offered = Box::new(ConnRequest {
            request: RequestId(handle),
            listener: ListenerId(listener),
            port,
            ends: ends.clone(),
            private_data: asked.private_data.clone(),
            peer_ird_ord: Some((asked.ird, asked.ord)),
            max_private_data: most.accept,
        });
        self.reactor.set_timer(token, after(policy.answer_timeout));
        let pending = Pending::Request { request, handle, asked, ends, policy, admission };
        // First: the layer above may reply as soon as it has the request.
        self.entries.insert(token, Entry::Native(Box::new(pending)));
        let origin = Origin { token, request: handle };
        self.push(Delivery::Request { sink, request: offered, origin });
    }

    /// The layer above did not take a request.
    pub(super) fn undelivered_native(&mut self, token: u64, pending: Pending) {
        self.reactor.clear_timer(token);
        match (&pending, &self.datagrams) {
            (Pending::Service { asked, .. }, Some(datagrams)) => {
                refuse_service(&**datagrams, asked.request, ServiceRefusal::NoQueuePair);
            }
            _ => self.reject_native(&pending, &[]),
        }
    }

    fn establish(
        &self,
        party: &Arc<dyn Connectee>,
        ends: Ends,
        role: Role,
        policy: &Policy,
        params: NativeParams,
    ) {
        let established = Established {
            ends: ends.clone(),
            role,
            private_data: params.private_data,
            ird: params.ird,
            ord: params.ord,
            peer_ird_ord: None,
            revision: 0,
            crc: true,
            markers_tx: false,
            markers_rx: false,
            rtr: None,
            local: Err(NotLocal::Provider),
        };
        {
            let mut link = party.connection().link();
            link.ends = Some(ends);
            link.established = Some(established.clone());
            link.close_timeout = policy.close_timeout;
            link.live = true;
            link.closing = false;
        }
        party.connection().set_state(ConnState::Connected);
        self.counters.established.add();
        self.queue_event(party, ConnEvent::Established(established));
    }
}

/// TCP and the exchange that follows, unless the application set a limit.
fn usual_timeout(policy: &Policy) -> Duration {
    policy.connect_timeout.saturating_mul(2)
}

/// The address of this end as the queue pair reports it, for providers whose events do not.
fn local_of(party: &dyn Connectee) -> Option<SocketAddr> {
    party.qp().query().ok()?.local
}
