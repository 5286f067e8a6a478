//! Services for datagrams in the table: passes the provider's requests to listeners, and its replies to
//! the requesters.
//!
//! Where the transport has them (`vp_api::Datagrams`), a listener gets requests for queue pairs besides
//! those for connections, and [`crate::reply`] replies to either from any thread. The table owns
//! requests that wait for the application's reply, and rejects them when the policy's `answer_timeout`
//! is over. A peer that gives up is not noticed: the reply is lost.

use std::net::SocketAddr;
use std::sync::Arc;

use kal_shim::clock::after;
use vp_api::{Datagrams, ServiceEvent, ServiceRefusal};

use super::{ConnectionTable, Entry};
use crate::deliveries::{Delivery, Origin};
use crate::node::{Ends, Node};
use crate::private::PrivateData;
use crate::requests::{self, Asker, Waiting};
use crate::startup::native::{Pending, ServiceAsked};
use crate::types::{ListenerId, RequestId, ServiceReply, ServiceRequest};

impl ConnectionTable {
    pub(super) fn on_service(&mut self, event: ServiceEvent) {
        let (token, reply) = match event {
            ServiceEvent::Request { listener, request, peer, port, private_data } => {
                return self.on_service_request(listener, request, peer, port, private_data);
            }
            ServiceEvent::Resolved { token, address, path, private_data } => {
                (token, ServiceReply::Resolved { address, path, private_data })
            }
            ServiceEvent::Refused { token, why, private_data } => {
                (token, ServiceReply::Refused { why, private_data })
            }
            ServiceEvent::Failed { token, reason } => (token, ServiceReply::Failed(reason)),
            other => return tracing::warn!("unknown event of the provider: {other:?}"),
        };
        // Otherwise the requester has cancelled it.
        if let Some(sink) = self.service_queries.finish(token) {
            self.push(Delivery::Reply(sink, Box::new(reply)));
        }
    }

    fn on_service_request(
        &mut self,
        token: u64,
        request: u64,
        peer: SocketAddr,
        spigot: u32,
        private_data: Vec<u8>,
    ) {
        let Some(datagrams) = self.datagrams.clone() else { return };
        let Some((listener, service)) = self.service_listeners.get(&token) else {
            return refuse_service(&*datagrams, request, ServiceRefusal::NotSupported);
        };
        let listener = *listener;
        let ends = Ends { local: Node::local(service.address), remote: Node::remote(peer, None) };
        let asked = ServiceAsked { request, spigot, private_data, ends };
        self.offer_service(listener, &datagrams, asked);
    }

    /// Delivers a request to the sink of a listener.
    pub(super) fn offer_service(
        &mut self,
        listener: u64,
        datagrams: &Arc<dyn Datagrams>,
        asked: ServiceAsked,
    ) {
        let Some((sink, port)) = self.sink_of(listener) else {
            return refuse_service(&**datagrams, asked.request, ServiceRefusal::NoQueuePair);
        };
        let Some(listening) = self.listeners.get(&listener) else { return };
        let policy = listening.service.policy(asked.ends.remote.address.ip());
        let token = self.new_token();
        let handle = requests::add(Waiting {
            owner: self.mailbox.clone(),
            token,
            most: PrivateData::all(datagrams.attrs().max_private_reply as usize),
            local: asked.ends.local.address,
            native: None,
            asker: Some(Asker { datagrams: datagrams.clone(), request: asked.request }),
        });
        let request = Box::new(ServiceRequest {
            request: RequestId(handle),
            listener: ListenerId(listener),
            port,
            ends: asked.ends.clone(),
            spigot: asked.spigot,
            private_data: asked.private_data.clone(),
        });
        self.reactor.set_timer(token, after(policy.answer_timeout));
        let pending = Pending::Service { handle, asked };
        // First: the layer above may reply as soon as it has the request.
        self.entries.insert(token, Entry::Native(Box::new(pending)));
        let origin = Origin { token, request: handle };
        self.push(Delivery::ServiceRequest { sink, request, origin });
    }
}

pub(super) fn refuse_service(datagrams: &dyn Datagrams, request: u64, why: ServiceRefusal) {
    if let Err(error) = datagrams.reject(request, why, &[]) {
        tracing::debug!("refuse a service request: {error}");
    }
}
