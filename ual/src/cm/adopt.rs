//! From a finished start-up to a queue pair in RTS. No state of its own; behind the desk's lock.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use iwarp_proto::mpa;
use iwarp_proto::mpa::startup::{Negotiated, Responder, RtrSet, StartupConfig, StartupError};
use iwarp_proto::{Role as WireRole, RtrKind};
use vp_api::{FpduSize, LlpStream, QpChange, Role, Rtr, StreamParams, VpError, VpStatus};

use super::{ConnEvent, ConnectError, Established, FailReason};
use crate::event::Event;
use crate::node::Ends;
use crate::policy::{Crc, Markers, Policy};
use crate::resource::{Ep, EpState};

/// "Do not negotiate" (RFC 6581 9.1 [CONN-26]).
const NO_NEGOTIATION: u16 = 0x3FFF;

/// What of the policy one attempt uses; less with every step back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Attempt {
    pub(super) enhanced: bool,
    pub(super) peer_to_peer: bool,
    pub(super) markers: bool,
}

impl Attempt {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            enhanced: policy.enhanced(),
            peer_to_peer: policy.peer_to_peer != Default::default(),
            markers: asks_markers(policy),
        }
    }
}

/// CRC as this end asks for it.
pub(super) fn asks_crc(policy: &Policy) -> bool {
    matches!(policy.crc, Crc::Require | Crc::Prefer)
}

/// Markers as this end asks for them.
pub(super) fn asks_markers(policy: &Policy) -> bool {
    matches!(policy.markers, Markers::Prefer | Markers::Require)
}

/// An initiator's wishes. IRD and ORD are the endpoint's.
pub(super) fn initiator_config(policy: &Policy, attempt: Attempt, ep: &Ep) -> StartupConfig {
    let (ird, ord) = ep.ird_ord();
    let kinds = policy.peer_to_peer;
    // A Read as RTR takes a place of our ORD [CONN-30].
    let rtr = RtrSet { send: kinds.send, write: kinds.write, read: kinds.read && ord > 0 };
    let limit = |reads| if policy.negotiate_ird_ord { reads } else { NO_NEGOTIATION };
    StartupConfig {
        // RFC 6581 10 [CONN-19]: revision 1 when no feature of 2 is wanted.
        revision: if attempt.enhanced { policy.revision } else { 1 },
        markers: attempt.markers,
        ird: limit(ird),
        ord: limit(ord),
        max_ird: limit(ird),
        enhanced: attempt.enhanced,
        rtr: if attempt.enhanced && attempt.peer_to_peer { rtr } else { RtrSet::default() },
        ..common(policy)
    }
}

/// A waiting end's wishes; IRD and ORD come with the accept, unless they are not negotiated.
pub(super) fn responder_config(policy: &Policy) -> StartupConfig {
    let kinds = policy.peer_to_peer;
    let neutral = StartupConfig::default().ird;
    let limit = if policy.negotiate_ird_ord { neutral } else { NO_NEGOTIATION };
    StartupConfig {
        revision: policy.revision,
        markers: asks_markers(policy),
        ird: limit,
        ord: limit,
        // Never above what the endpoint was created with.
        max_ird: 0,
        rtr: RtrSet { send: kinds.send, write: kinds.write, read: kinds.read },
        ..common(policy)
    }
}

/// The accepting reply. `own` are the limits of this end, as far as they are negotiated.
pub(super) fn answer(
    machine: &Responder,
    policy: &Policy,
    own: (u16, u16),
    private_data: &[u8],
) -> Result<(Vec<u8>, Negotiated), StartupError> {
    let (ird, ord) = if policy.negotiate_ird_ord { own } else { (NO_NEGOTIATION, NO_NEGOTIATION) };
    machine.accept(ird, ord, private_data)
}

fn common(policy: &Policy) -> StartupConfig {
    StartupConfig {
        crc: asks_crc(policy),
        crc_strict: matches!(policy.crc, Crc::Require | Crc::Refuse),
        refuse_markers: policy.markers == Markers::Refuse,
        ..StartupConfig::default()
    }
}

/// A start-up that both ends agreed on.
pub(super) struct Agreed<'a> {
    pub(super) policy: &'a Policy,
    pub(super) ends: Ends,
    pub(super) negotiated: Negotiated,
    /// IRD and ORD of this end where none were negotiated.
    pub(super) own: (u16, u16),
    pub(super) private_data: Vec<u8>,
    pub(super) socket: OwnedFd,
    /// Octets behind the peer's frame.
    pub(super) received: Vec<u8>,
    /// Our reply, as responder.
    pub(super) last_message: Vec<u8>,
}

/// Moves the queue pair to RTS and tells the application.
pub(super) fn adopt(ep: &Arc<Ep>, agreed: Agreed<'_>) -> Result<(), VpError> {
    let Agreed { policy, ends, negotiated, own, private_data, socket, received, last_message } =
        agreed;
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
        crc: negotiated.crc,
        markers_tx: negotiated.markers_tx,
        markers_rx: negotiated.markers_rx,
        ird: settled(negotiated.ird, ird),
        ord: settled(negotiated.ord, ord),
        rtr,
        fpdu: policy.fpdu,
        extensions: policy.extensions,
        nudge_after: policy.nudge_after,
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
    };
    let stream = LlpStream { socket, received, last_message, params };
    {
        let mut link = ep.link();
        link.ends = Some(established.ends.clone());
        link.established = Some(established.clone());
        link.close_timeout = policy.close_timeout;
        link.fpdu = policy.fpdu;
        link.closing = false;
    }
    // Before RTS: a message may complete a receive at once, and whoever takes it may answer.
    ep.set_state(EpState::Connected);
    ep.qp().modify(QpChange::Rts(Box::new(stream)))?;
    ep.link().live = true;
    ep.ia().cm().counters().established.add();
    tell(ep, ConnEvent::Established(established));
    Ok(())
}

/// Tells the application that no connection came about.
pub(super) fn fail(ep: &Arc<Ep>, ends: Ends, reason: FailReason) {
    let error = ConnectError { ends, reason };
    tracing::debug!("{error}");
    refuse(ep, ConnEvent::Failed(error));
}

/// Ends a pending connect or accept. What is posted already completes as flushed, as after every
/// connection.
pub(super) fn refuse(ep: &Arc<Ep>, event: ConnEvent) {
    // First: what is flushed says why.
    ep.link().refused = Some(Box::new(event.clone()));
    ep.set_state(EpState::Nonoperational);
    // Refused where the provider has done so by itself.
    let _ = ep.qp().modify(QpChange::Error);
    ep.ia().cm().counters().failed.add();
    tell(ep, event);
}

/// Puts a connection event into the endpoint's dispatcher. A closed endpoint has none any more: its
/// close takes the same lock.
pub(super) fn tell(ep: &Arc<Ep>, event: ConnEvent) {
    log(ep, &event);
    let _link = ep.link();
    if ep.is_open() {
        let (qp, weak, event) = (ep.id(), Arc::downgrade(ep), Box::new(event));
        ep.conn_evd().push_connection(Event::Connection { qp, ep: weak, event }, || true);
    }
}

/// One line per connection made, with what was agreed on, and one per connection ended.
fn log(ep: &Ep, event: &ConnEvent) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    match event {
        ConnEvent::Established(made) => {
            let fpdu = ep.link().fpdu;
            let tcp = ep.qp_info().ok().and_then(|qp| qp.tcp);
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
        // It begins with that word itself.
        ConnEvent::Disconnected { by_peer: false, .. } => tracing::info!("{event}"),
        ConnEvent::Disconnected { .. } | ConnEvent::Broken { .. } => {
            tracing::info!("disconnected: {event}");
        }
        ConnEvent::Rejected { .. } | ConnEvent::Failed(_) => {}
    }
}

/// The provider does not take the stream.
pub(super) fn refused(error: &VpError) -> FailReason {
    if error.status == VpStatus::InvalidStream {
        // It was connected when the start-up ended.
        return FailReason::PeerClosed { have: 0 };
    }
    FailReason::Resources(format!("the provider refused: {error}"))
}

/// The reactor does not take the socket.
pub(super) fn unwatchable(error: &io::Error) -> FailReason {
    FailReason::Resources(format!("cannot watch the socket: {error}"))
}

/// Why a start-up machine gave up, for the application.
pub(super) fn reason_of(error: StartupError) -> FailReason {
    match error {
        StartupError::BadKey { .. } => FailReason::NotMpa("its first octets are no MPA frame"),
        StartupError::WrongRole => FailReason::NotMpa("it plays this end's own role"),
        StartupError::Revision { got } => FailReason::Revision { got },
        StartupError::Markers => FailReason::Markers,
        StartupError::CrcPolicy => FailReason::CrcPolicy,
        StartupError::InsufficientIrd { need, have } => FailReason::InsufficientIrd { need, have },
        StartupError::NoCommonRtr => FailReason::NoCommonRtr,
        StartupError::Eof { have } => FailReason::PeerClosed { have },
        other => FailReason::Malformed(other.to_string()),
    }
}
