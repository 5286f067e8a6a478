//! Providers with a connection manager of their own (rdma_cm and the like): the same commands in,
//! the same events out.
//!
//! A second thread (`warpline-native-cm`) only carries the provider's events to the connection
//! thread, which owns all state here. When a peer dies the provider says so; should it not, the
//! timer of the entry ends the attempt. An endpoint that is used again takes over what waits to be
//! carried ([`Carrier::take`]), so that events of its earlier connection can be told apart.
//!
//! A request that fails breaks a connection, and rdma-core tells it in the completion only: no event
//! follows. So the end is heard of when somebody polls or waits at that dispatcher.
//! To hear of it by itself the provider would keep its queues armed for solicited completions, which
//! failures are; that costs an event of the kernel and a wake-up for each solicited message, and on
//! siw, which forgets who asked, for each one (`vp-verbs`, `forgets_solicited`). The data path is not
//! to pay for that.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kal_shim::clock::after;
use vp_api::{NativeCm, NativeEvent, NativeParams, QpId, Role, ServiceRefusal};

use super::adopt::{fail, refuse, tell};
use super::requests::{Native, Waiting};
use super::service::{self, Asked};
use super::table::{Entry, Table, open};
use super::{
    AcceptParams, Command, ConnEvent, ConnRequest, ConnectParams, Established, FailReason,
    ListenerId, Mailbox, PrivateData, RequestId, requests,
};
use crate::event::Event;
use crate::handle::Handle;
use crate::node::{Ends, Node};
use crate::policy::Policy;
use crate::resource::{Ep, EpState};

/// How often the carrying thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// Takes the events of the provider's connection manager.
pub(super) struct Carrier {
    native: Arc<dyn NativeCm>,
    mailbox: Mailbox,
    /// Held from the taking of an event to its sending: who has had it knows that all are sent.
    taking: Mutex<()>,
}

impl Carrier {
    pub(super) fn new(native: Arc<dyn NativeCm>, mailbox: Mailbox) -> Self {
        Self { native, mailbox, taking: Mutex::new(()) }
    }

    pub(super) fn native(&self) -> &dyn NativeCm {
        &*self.native
    }

    /// Carries events until `stop`.
    pub(super) fn carry(&self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            self.take();
            if let Err(error) = self.native.wait_event(Some(LOOK)) {
                tracing::error!("the provider's connection manager stopped: {error}");
                return;
            }
        }
    }

    /// Sends all events that there are to the connection thread.
    pub(super) fn take(&self) {
        // Nothing panics while the lock is held.
        let _taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = self.native.poll_event() {
            let told = self.mailbox.sequence.next();
            self.mailbox.send(Command::Native { told, event });
        }
    }
}

/// A request as the provider tells it.
pub(super) struct Request {
    /// The provider's listener.
    listener: u64,
    id: u64,
    peer: SocketAddr,
    /// Where the peer connected to.
    local: Option<SocketAddr>,
    asked: NativeParams,
}

/// Requests that the provider tells of listeners that the table does not know: those that it does not
/// know yet, since `listen` returns before the table hears of it, and those that ended while the
/// request was on its way. A peer that leaves meanwhile is heard of when the request is answered.
#[derive(Default)]
pub(super) struct Strays {
    /// For listeners to come.
    early: Vec<Request>,
    /// Listeners that ended last; ids are not soon used again.
    ended: VecDeque<u64>,
}

impl Strays {
    /// Most of either kind.
    const MOST: usize = 64;

    /// A listener ended.
    pub(super) fn ended(&mut self, id: u64) {
        if self.ended.len() == Self::MOST {
            self.ended.pop_front();
        }
        self.ended.push_back(id);
    }

    /// Keeps a request for a listener to come; `Some`: it is to be rejected.
    fn park(&mut self, request: Request) -> Option<u64> {
        if self.ended.contains(&request.listener) || self.early.len() == Self::MOST {
            return Some(request.id);
        }
        self.early.push(request);
        None
    }
}

/// A connection that the provider is making.
pub(super) enum Pending {
    /// For this endpoint.
    Endpoint { ep: Weak<Ep>, ends: Ends, role: Role, policy: Policy, patience: Duration },
    /// The application has the request.
    Request { request: u64, handle: Handle, asked: NativeParams, ends: Ends, policy: Policy },
    /// The application has the request for a queue pair that takes datagrams.
    Service { handle: Handle, asked: Asked },
}

impl Table {
    pub(super) fn connect_native(
        &mut self,
        native: &dyn NativeCm,
        ep: &Arc<Ep>,
        params: ConnectParams,
        policy: Policy,
    ) {
        let local = params.local.unwrap_or(match params.remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        });
        let remote = Node::remote(params.remote, params.remote_name.as_deref());
        let ends = Ends { local: Node::local((local, 0).into()), remote };
        let (ird, ord) = ep.ird_ord();
        let wishes = NativeParams { private_data: params.private_data, ird, ord };
        match native.connect(ep.id(), params.remote, wishes) {
            Ok(()) => self.expect(ep, ends, Role::Initiator, policy, params.timeout),
            Err(error) => fail(ep, ends, FailReason::Native(error.to_string())),
        }
    }

    /// Waits for the provider to say what became of an endpoint's connection.
    fn expect(
        &mut self,
        ep: &Arc<Ep>,
        ends: Ends,
        role: Role,
        policy: Policy,
        timeout: Option<Duration>,
    ) {
        ep.link().ends = Some(ends.clone());
        let token = self.new_token();
        self.by_qp.insert(ep.id(), token);
        // TCP and the exchange that follows, unless the application says.
        let patience = timeout.unwrap_or(policy.connect_timeout.saturating_mul(2));
        self.reactor.set_timer(token, after(patience));
        let pending = Pending::Endpoint { ep: Arc::downgrade(ep), ends, role, policy, patience };
        self.entries.insert(token, Entry::Native(Box::new(pending)));
    }

    pub(super) fn accept_native(&mut self, pending: Pending, ep: &Arc<Ep>, params: &AcceptParams) {
        let (Pending::Request { request, ends, policy, .. }, Some(native)) =
            (pending, self.native.clone())
        else {
            return;
        };
        let (most_ird, most_ord) = ep.ird_ord();
        let wishes = NativeParams {
            private_data: params.private_data.clone(),
            ird: params.ird.unwrap_or(most_ird).min(most_ird),
            ord: params.ord.unwrap_or(most_ord).min(most_ord),
        };
        match native.accept(request, ep.id(), wishes) {
            Ok(()) => self.expect(ep, ends, Role::Responder, policy, None),
            Err(error) => {
                // Nobody else answers the peer; the provider may have done it already.
                let _ = native.reject(request, &[]);
                fail(ep, ends, FailReason::Native(error.to_string()));
            }
        }
    }

    pub(super) fn reject_native(&self, pending: &Pending, private_data: &[u8]) {
        if let (Pending::Request { request, ends, .. }, Some(native)) = (pending, &self.native) {
            self.counters.rejected.add();
            if let Err(error) = native.reject(*request, private_data) {
                tracing::debug!("{ends}: reject: {error}");
            }
        }
        if let (Pending::Service { asked, .. }, Some(datagrams)) = (pending, &self.datagrams) {
            service::refuse(&**datagrams, asked.request, ServiceRefusal::Rejected);
        }
    }

    pub(super) fn expire_native(&mut self, token: u64, pending: Pending) {
        match &pending {
            Pending::Endpoint { ep, ends, patience, .. } => {
                if let Some(ep) = open(ep) {
                    let reason = FailReason::ConnectTimeout(*patience);
                    self.give_up_native(&ep, ends.clone(), reason);
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
                // Else it is being answered.
                if requests::remove(*handle) {
                    self.reject_native(&pending, &[]);
                }
            }
        }
    }

    pub(super) fn cancel_native(&mut self, pending: Pending) {
        if let Pending::Endpoint { ep, ends, .. } = pending
            && let Some(ep) = open(&ep)
        {
            self.give_up_native(&ep, ends, FailReason::Cancelled);
        }
    }

    fn give_up_native(&mut self, ep: &Arc<Ep>, ends: Ends, reason: FailReason) {
        self.drop_of(ep.id());
        if let Some(native) = &self.native {
            // It may have ended by itself.
            let _ = native.disconnect(ep.id());
        }
        fail(ep, ends, reason);
    }

    pub(super) fn on_native(&mut self, told: u64, event: NativeEvent) {
        match event {
            NativeEvent::Request { listener, request: id, peer, local, params: asked } => {
                self.deliver_native(Request { listener, id, peer, local, asked });
            }
            NativeEvent::Established { qp, local, params } => {
                if let Some((ep, mut ends, role, policy)) = self.finish_pending(qp, told) {
                    if let Some(address) = local.or_else(|| local_of(&ep)) {
                        ends.local = Node::local(address);
                    }
                    establish(&ep, ends, role, &policy, params);
                }
            }
            NativeEvent::Rejected { qp, private_data } => {
                if let Some((ep, ends, ..)) = self.finish_pending(qp, told) {
                    refuse(&ep, ConnEvent::Rejected { ends, private_data, peer_ird_ord: None });
                }
            }
            NativeEvent::Failed { qp, reason } => {
                if let Some((ep, ends, ..)) = self.finish_pending(qp, told) {
                    fail(&ep, ends, FailReason::Native(reason));
                }
            }
            NativeEvent::Disconnected { qp } => {
                if let Some(ep) = self.of_present_stream(qp, told) {
                    self.on_end(&ep, None);
                }
            }
            other => tracing::warn!("unknown event of the provider: {other:?}"),
        }
    }

    /// Takes out what an endpoint waits for, unless the event of number `told` is about an earlier
    /// attempt.
    fn finish_pending(&mut self, qp: QpId, told: u64) -> Option<(Arc<Ep>, Ends, Role, Policy)> {
        self.of_present_stream(qp, told)?;
        let token = self.by_qp.remove(&qp)?;
        self.reactor.clear_timer(token);
        match self.entries.remove(&token)? {
            Entry::Native(pending) => match *pending {
                Pending::Endpoint { ep, ends, role, policy, .. } => {
                    Some((open(&ep)?, ends, role, policy))
                }
                Pending::Request { .. } | Pending::Service { .. } => None,
            },
            _ => None,
        }
    }

    fn deliver_native(&mut self, request: Request) {
        let known = self.native_listeners.get(&request.listener).copied();
        let owner = known.and_then(|(listener, _)| self.listeners.get(&listener));
        let (Some((listener, address)), Some(owner)) = (known, owner) else {
            if let Some(request) = self.strays.park(request)
                && let Some(native) = &self.native
            {
                // Nobody else answers the peer; it may have left by itself.
                let _ = native.reject(request, &[]);
            }
            return;
        };
        let Request { id, peer, local, asked, .. } = request;
        let policy = owner.service.policy(peer.ip());
        // The listener's may be that of any interface.
        let local = Node::local(local.unwrap_or(address));
        self.counters.incoming.add();
        let ends = Ends { local, remote: Node::remote(peer, None) };
        self.offer_native(listener, id, asked, ends, policy);
    }

    /// A listener has come: what was told before it is delivered, or waits on.
    pub(super) fn deliver_strays(&mut self) {
        for request in std::mem::take(&mut self.strays.early) {
            self.deliver_native(request);
        }
    }

    /// Gives a request to another listener.
    pub(super) fn redeliver_native(&mut self, token: u64, pending: Pending, listener: u64) {
        self.reactor.clear_timer(token);
        match (pending, self.datagrams.clone()) {
            (Pending::Request { request, asked, ends, policy, .. }, _) => {
                self.offer_native(listener, request, asked, ends, policy);
            }
            (Pending::Service { asked, .. }, Some(datagrams)) => {
                self.offer_service(listener, &datagrams, asked);
            }
            _ => {}
        }
    }

    fn offer_native(
        &mut self,
        listener: u64,
        request: u64,
        asked: NativeParams,
        ends: Ends,
        policy: Policy,
    ) {
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
        let service = self.listeners.get(&listener).map(|listener| &listener.service);
        let event = service.map(|service| ConnRequest {
            request: RequestId(handle),
            listener: ListenerId(listener),
            listen: service.listen.clone(),
            port: service.port,
            ends: ends.clone(),
            private_data: asked.private_data.clone(),
            peer_ird_ord: Some((asked.ird, asked.ord)),
            max_private_data: most.accept,
        });
        let evd = service.and_then(|service| service.evd.upgrade());
        let timeout = policy.answer_timeout;
        let pending = Pending::Request { request, handle, asked, ends, policy };
        let delivered = evd
            .zip(event)
            .is_some_and(|(evd, event)| evd.push_bounded(Event::Request(Box::new(event))));
        if delivered {
            self.reactor.set_timer(token, after(timeout));
            self.entries.insert(token, Entry::Native(Box::new(pending)));
        } else {
            requests::remove(handle);
            self.reject_native(&pending, &[]);
        }
    }
}

impl Pending {
    /// The request that the application has.
    pub(super) fn request(&self) -> Option<Handle> {
        match self {
            Self::Request { handle, .. } | Self::Service { handle, .. } => Some(*handle),
            Self::Endpoint { .. } => None,
        }
    }
}

/// The address of this end as the queue pair says it, of providers whose events do not.
fn local_of(ep: &Ep) -> Option<SocketAddr> {
    ep.qp().query().ok()?.local
}

fn establish(ep: &Arc<Ep>, ends: Ends, role: Role, policy: &Policy, params: NativeParams) {
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
    };
    {
        let mut link = ep.link();
        link.ends = Some(ends);
        link.established = Some(established.clone());
        link.close_timeout = policy.close_timeout;
        link.live = true;
        link.closing = false;
    }
    ep.set_state(EpState::Connected);
    ep.ia().cm().counters().established.add();
    tell(ep, ConnEvent::Established(established));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is left without an answer: who asks a listener that has ended is rejected, who asks one
    /// that is about to be known waits for it, and neither list grows.
    #[test]
    fn requests_of_unknown_listeners_wait_or_are_rejected() {
        let mut strays = Strays::default();
        let peer = (Ipv4Addr::LOCALHOST, 7).into();
        let request = |listener, id| {
            let asked = NativeParams { private_data: Vec::new(), ird: 1, ord: 1 };
            Request { listener, id, peer, local: None, asked }
        };
        strays.ended(1);
        assert_eq!(strays.park(request(1, 10)), Some(10));
        for id in 0..Strays::MOST as u64 {
            assert_eq!(strays.park(request(2, id)), None);
            strays.ended(100 + id);
        }
        assert_eq!(strays.park(request(2, 99)), Some(99));
        assert_eq!((strays.early.len(), strays.ended.len()), (Strays::MOST, Strays::MOST));
    }
}
