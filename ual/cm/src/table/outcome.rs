//! The result of a start-up: a queue pair in RTS, or an event with the reason.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use iwarp_proto::mpa;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::{Role as WireRole, RtrKind};
use kal_shim::same_host::NotLocal;
use vp_api::{FpduSize, LlpStream, QpChange, Role, Rtr, StreamParams, VpError, VpStatus};

use super::ConnectionTable;
use crate::connection::{ConnState, Connectee};
use crate::deliveries::Delivery;
use crate::local::{Permit, Shared};
use crate::node::Ends;
use crate::policy::{LocalStreams, Policy};
use crate::startup::config::NO_NEGOTIATION;
use crate::types::{ConnEvent, ConnectError, Established, FailReason};

/// A start-up that both ends accepted.
pub(crate) struct Agreed {
    pub(crate) policy: Policy,
    pub(crate) ends: Ends,
    pub(crate) negotiated: Negotiated,
    /// IRD and ORD of this end if they were not negotiated.
    pub(crate) own: (u16, u16),
    pub(crate) private_data: Vec<u8>,
    pub(crate) socket: OwnedFd,
    /// Octets after the peer's frame.
    pub(crate) received: Vec<u8>,
    /// Our reply, if this is the responder.
    pub(crate) last_message: Vec<u8>,
    /// What carries the FPDUs in place of TCP, or why nothing does.
    pub(crate) local: Result<Box<Shared>, NotLocal>,
}

impl Agreed {
    /// Why there is to be no connection, where the policy wants a local stream and there is none.
    pub(crate) fn lacks_local(&self) -> Option<FailReason> {
        let why = *self.local.as_ref().err()?;
        (self.policy.local == LocalStreams::Require).then_some(FailReason::NoLocalStream(why))
    }

    /// The parts for the queue pair and for the endpoint.
    fn stream(self) -> (LlpStream, Established, Option<Permit>) {
        let Self {
            policy,
            ends,
            negotiated,
            own,
            private_data,
            socket,
            received,
            last_message,
            local,
        } = self;
        // In shared memory markers are of no use, and CRCs only if a policy insists on them.
        let over_tcp = local.is_err();
        let crc = local.as_ref().map_or(negotiated.crc, |shared| shared.crc);
        let (ird, ord) = own;
        let settled = |reads, own| if reads == NO_NEGOTIATION { own } else { reads };
        let role = match negotiated.role {
            WireRole::Initiator => Role::Initiator,
            WireRole::Responder => Role::Responder,
        };
        let rtr = negotiated.rtr.map(|kind| match kind {
            RtrKind::Send => Rtr::Send,
            RtrKind::Write => Rtr::Write,
            RtrKind::Read => Rtr::Read,
        });
        let params = StreamParams {
            crc,
            markers_tx: negotiated.markers_tx && over_tcp,
            markers_rx: negotiated.markers_rx && over_tcp,
            ird: settled(negotiated.ird, ird),
            ord: settled(negotiated.ord, ord),
            rtr,
            fpdu: policy.fpdu,
            extensions: policy.extensions,
            kick_after: policy.kick_after,
            probe_after: policy.probe_after,
            close_timeout: policy.close_timeout,
            ..StreamParams::new(role)
        };
        let established = Established {
            ends,
            role,
            private_data,
            ird: params.ird,
            ord: params.ord,
            peer_ird_ord: negotiated.peer_ird_ord,
            revision: negotiated.revision,
            crc: params.crc,
            markers_tx: params.markers_tx,
            markers_rx: params.markers_rx,
            rtr,
            local: local.as_ref().map(drop).map_err(|why| *why),
        };
        let (local, permit) = local.map(|s| (s.stream, s.permit)).ok().unzip();
        (LlpStream { socket, received, last_message, params, local }, established, permit)
    }
}

impl ConnectionTable {
    /// Moves the queue pair to RTS and delivers the event.
    pub(super) fn adopt(&self, party: &Arc<dyn Connectee>, agreed: Agreed) -> Result<(), VpError> {
        let (mut stream, established, permit) = agreed.stream();
        party.adjust(&established, &mut stream.params);
        let connection = party.connection();
        let number = {
            let mut link = connection.link();
            link.ends = Some(established.ends.clone());
            link.established = Some(established.clone());
            link.close_timeout = stream.params.close_timeout;
            link.fpdu = stream.params.fpdu;
            link.closing = false;
            link.stream
        };
        // Before RTS: a message may complete a receive at once, and the application may reply to it.
        connection.set_state(ConnState::Connected);
        party.qp().modify(QpChange::Rts(Box::new(stream)))?;
        {
            let mut link = connection.link();
            if link.stream != number {
                // Another thread has used it, ended it and reset the endpoint since.
                return Ok(());
            }
            link.live = true;
            link.permit = permit;
        }
        self.counters.established.add();
        if let Some(observer) = &self.observer {
            observer.established(party.qp().id(), &established);
        }
        self.queue_event(party, ConnEvent::Established(established));
        Ok(())
    }

    /// Moves the queue pair to RTS, or delivers the reason why the provider refuses.
    pub(super) fn finish_start(&self, party: &Arc<dyn Connectee>, agreed: Agreed) {
        let ends = agreed.ends.clone();
        if let Some(reason) = agreed.lacks_local() {
            return self.fail(party, ends, reason);
        }
        if let Err(error) = self.adopt(party, agreed) {
            self.fail(party, ends, refused(&error));
        }
    }

    /// Reports that no connection was established.
    pub(super) fn fail(&self, party: &Arc<dyn Connectee>, ends: Ends, reason: FailReason) {
        let error = ConnectError { ends, reason };
        tracing::debug!("{error}");
        self.refuse(party, ConnEvent::Failed(error));
    }

    /// Ends a pending connect or accept. Posts complete as flushed, as after every connection.
    pub(super) fn refuse(&self, party: &Arc<dyn Connectee>, event: ConnEvent) {
        let connection = party.connection();
        {
            let mut link = connection.link();
            // First: flushed completions refer to it.
            link.refused = Some(Box::new(event.clone()));
            link.admission = None;
        }
        connection.set_state(ConnState::Nonoperational);
        // Refused if the provider has done so by itself.
        let _ = party.qp().modify(QpChange::Error);
        self.counters.failed.add();
        self.queue_event(party, event);
    }

    /// Queues an event for an endpoint.
    pub(super) fn queue_event(&self, party: &Arc<dyn Connectee>, event: ConnEvent) {
        log(&**party, &event);
        self.push(Delivery::Connection(party.clone(), Box::new(event)));
    }
}

/// Logs one line per connection established, with its parameters, and one per connection ended.
fn log(party: &dyn Connectee, event: &ConnEvent) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    match event {
        ConnEvent::Established(made) => {
            let fpdu = party.connection().link().fpdu;
            let tcp = party.qp().query().ok().and_then(|qp| qp.tcp);
            // RFC 5044 4.5 [MPA-17]
            let ulpdu = match fpdu {
                FpduSize::Emss => tcp.map(|tcp| mpa::mulpdu(tcp.mss as u16, made.markers_tx)),
                FpduSize::Octets(octets) => tcp.map(|_| mpa::clamp_mulpdu(octets)),
            };
            let most = ulpdu.map_or_else(String::new, |ulpdu| {
                format!("; FPDUs of up to {} octets", mpa::fpdu_len(ulpdu))
            });
            tracing::info!("{event}{most}");
        }
        // Its text begins with the same word.
        ConnEvent::Disconnected { by_peer: false, .. } => tracing::info!("{event}"),
        ConnEvent::Disconnected { .. } | ConnEvent::Broken { .. } => {
            tracing::info!("disconnected: {event}");
        }
        ConnEvent::Rejected { .. } | ConnEvent::Failed(_) => {}
    }
}

/// The provider refuses the stream.
pub(crate) fn refused(error: &VpError) -> FailReason {
    if error.status == VpStatus::InvalidStream {
        // It was connected when the start-up ended.
        return FailReason::PeerClosed { have: 0 };
    }
    FailReason::Resources(format!("the provider refused: {error}"))
}

/// The reactor cannot watch the socket.
pub(crate) fn unwatchable(error: &io::Error) -> FailReason {
    FailReason::Resources(format!("cannot watch the socket: {error}"))
}
