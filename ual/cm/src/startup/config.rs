//! What each end requests in an MPA start-up, by policy and attempt, and the reasons of failures. No
//! state.

use iwarp_proto::mpa::startup::{Negotiated, Responder, RtrSet, StartupConfig, StartupError};

use crate::policy::{Crc, Markers, Policy};
use crate::types::FailReason;

/// "Do not negotiate" (RFC 6581 9.1 [CONN-26]).
pub(crate) const NO_NEGOTIATION: u16 = 0x3FFF;

/// The features of the policy that one attempt uses; fewer with every retry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub(crate) enhanced: bool,
    pub(crate) peer_to_peer: bool,
    pub(crate) markers: bool,
}

impl Attempt {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            enhanced: policy.enhanced(),
            peer_to_peer: policy.peer_to_peer != Default::default(),
            markers: asks_markers(policy),
        }
    }
}

/// Whether this end asks for CRC.
pub(crate) fn asks_crc(policy: &Policy) -> bool {
    matches!(policy.crc, Crc::Require | Crc::Prefer)
}

/// Whether this end asks for markers.
pub(crate) fn asks_markers(policy: &Policy) -> bool {
    matches!(policy.markers, Markers::Prefer | Markers::Require)
}

/// What an initiator requests. IRD and ORD are the endpoint's.
pub(crate) fn initiator_config(
    policy: &Policy,
    attempt: Attempt,
    (ird, ord): (u16, u16),
) -> StartupConfig {
    let kinds = policy.peer_to_peer;
    // A Read as RTR takes a place of our ORD [CONN-30].
    let rtr = RtrSet { send: kinds.send, write: kinds.write, read: kinds.read && ord > 0 };
    let limit = |reads| if policy.negotiate_ird_ord { reads } else { NO_NEGOTIATION };
    StartupConfig {
        // RFC 6581 10 [CONN-19]: revision 1, which has no enhanced form, when no feature of revision 2
        // is wanted.
        revision: if attempt.enhanced { policy.revision } else { 1 },
        markers: attempt.markers,
        ird: limit(ird),
        ord: limit(ord),
        max_ird: limit(ird),
        rtr: if attempt.enhanced && attempt.peer_to_peer { rtr } else { RtrSet::default() },
        ..common(policy)
    }
}

/// What a responder requests; IRD and ORD come with the accept, unless they are not negotiated.
pub(crate) fn responder_config(policy: &Policy) -> StartupConfig {
    let kinds = policy.peer_to_peer;
    let neutral = StartupConfig::default().ird;
    let limit = if policy.negotiate_ird_ord { neutral } else { NO_NEGOTIATION };
    StartupConfig {
        revision: policy.revision,
        markers: asks_markers(policy),
        ird: limit,
        ord: limit,
        // Never more than the endpoint was created with.
        max_ird: 0,
        rtr: RtrSet { send: kinds.send, write: kinds.write, read: kinds.read },
        ..common(policy)
    }
}

/// The accepting reply. `own`: the limits of this end, if they are negotiated.
pub(crate) fn reply(
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
        refuse_crc: policy.crc == Crc::Refuse,
        refuse_markers: policy.markers == Markers::Refuse,
        ..StartupConfig::default()
    }
}

/// The reason of a failed start-up, for the application.
pub(crate) fn reason_of(error: StartupError) -> FailReason {
    match error {
        StartupError::BadKey { .. } => FailReason::NotMpa("its first octets are not an MPA frame"),
        StartupError::WrongRole => FailReason::NotMpa("it has the same role as this end"),
        StartupError::Revision { got } => FailReason::Revision { got },
        StartupError::Markers => FailReason::Markers,
        StartupError::CrcPolicy => FailReason::CrcPolicy,
        StartupError::InsufficientIrd { need, have } => FailReason::InsufficientIrd { need, have },
        StartupError::NoCommonRtr => FailReason::NoCommonRtr,
        StartupError::Eof { have } => FailReason::PeerClosed { have },
        other => FailReason::Malformed(other.to_string()),
    }
}
