//! Negotiation of IRD, ORD and RTR (RFC 6581 section 9), as pure functions of what both ends request.
//!
//! Owner of the state: none. Any thread. Of the peer only its numbers matter.

use super::{RtrSet, StartupConfig, StartupError};
use crate::types::RtrKind;
use crate::wire::mpa::{EnhancedRepr, NO_NEGOTIATION};

/// One end's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    pub(super) ird: u16,
    pub(super) ord: u16,
}

/// The RTR that a responder offers: exactly one, so that it knows what will come. If none matches,
/// one that it supports; the initiator then ends the connection [CONN-28].
pub(super) fn offer(ours: RtrSet, theirs: RtrSet) -> RtrKind {
    let ours = if ours.is_empty() { RtrSet { send: false, write: true, read: true } } else { ours };
    ours.common(theirs).preferred().or(ours.preferred()).unwrap_or(RtrKind::Write)
}

/// Responder: its limits, given the request's block, and its reply.
pub(super) fn respond(
    ours: Limits,
    max_ird: u16,
    request: EnhancedRepr,
    rtr: Option<RtrKind>,
) -> (Limits, Limits) {
    let (mut hold, mut reply) = (ours, Limits { ird: NO_NEGOTIATION, ord: NO_NEGOTIATION });
    // RFC 6581 9.1 [CONN-26]: the fields are independent.
    if negotiates(ours.ird, request.ord) {
        hold.ird = ours.ird.max(request.ord.min(max_ird));
        if rtr == Some(RtrKind::Read) {
            // RFC 6581 9.1 [CONN-22]: the RTR itself needs a place.
            hold.ird = hold.ird.max(1);
        }
        reply.ird = hold.ird;
    }
    if negotiates(ours.ord, request.ird) {
        // RFC 6581 9.1 [CONN-21]
        hold.ord = ours.ord.min(request.ird);
        reply.ord = hold.ord;
    }
    (hold, reply)
}

/// Initiator: its limits, given the reply's block.
pub(super) fn conclude(
    config: &StartupConfig,
    reply: EnhancedRepr,
) -> Result<(Limits, Option<RtrKind>), StartupError> {
    let mut hold = Limits { ird: config.ird, ord: config.ord };
    if negotiates(config.ord, reply.ird) {
        // RFC 6581 9.1 [CONN-21, CONN-24]
        hold.ord = config.ord.min(reply.ird);
    }
    if negotiates(config.ird, reply.ord) {
        let have = config.ird.max(config.max_ird);
        // RFC 6581 9.1 [CONN-24]
        if reply.ord > have {
            return Err(StartupError::InsufficientIrd { need: reply.ord, have });
        }
        hold.ird = config.ird.max(reply.ord);
    }
    let rtr = choose(config, reply)?;
    if rtr == Some(RtrKind::Read) {
        // The Read RTR takes one place of our ORD [CONN-30].
        hold.ord = hold.ord.max(1);
    }
    Ok((hold, rtr))
}

fn choose(config: &StartupConfig, reply: EnhancedRepr) -> Result<Option<RtrKind>, StartupError> {
    if config.rtr.is_empty() {
        // RFC 6581 9.2 [CONN-27]: the responder must echo A = 0.
        return if reply.peer_to_peer { Err(StartupError::FormMismatch) } else { Ok(None) };
    }
    if !reply.peer_to_peer {
        return Err(StartupError::NoCommonRtr);
    }
    let mut common = config.rtr.common(RtrSet::of(reply));
    // A responder that takes no Read cannot take a Read RTR [CONN-22, CONN-33].
    common.read &= reply.ird != 0;
    // RFC 6581 9.2 [CONN-29]
    common.preferred().map(Some).ok_or(StartupError::NoCommonRtr)
}

const fn negotiates(ours: u16, theirs: u16) -> bool {
    ours != NO_NEGOTIATION && theirs != NO_NEGOTIATION
}
