//! Listening side of the MPA start-up: waits for a request, then accepts or rejects (RFC 5044 section 7.1.2).
//!
//! Owner of the state: the connection manager, one thread at a time. One frame of at most 532
//! octets. When the peer dies: `handle_eof`.

use alloc::vec::Vec;

use super::frame::{Collector, Frame, build};
use super::negotiate::{Limits, offer, respond};
use super::{Negotiated, Request, RtrSet, StartupConfig, StartupError, Step, clamp};
use crate::types::{Role, RtrKind};
use crate::wire::mpa::{EnhancedRepr, FrameKind, StartupRepr};

/// The side that listens.
#[derive(Clone, Debug)]
pub struct Responder {
    config: StartupConfig,
    request: Collector,
}

impl Responder {
    /// Waits for a request.
    pub fn new(config: StartupConfig) -> Self {
        Self { config: config.clamped(), request: Collector::new(FrameKind::Request) }
    }

    /// Octets from the peer, each octet once. After Done or an error feed no more.
    pub fn handle(&mut self, octets: &[u8]) -> Result<Step<Request>, StartupError> {
        let config = self.config;
        let step = self.request.feed(octets, |fixed| {
            // RFC 5044 7.1.1 [CONN-06, CONN-18, CONN-31]
            match fixed.revision {
                got if got == 0 || got > config.revision => Err(StartupError::Revision { got }),
                _ => Ok(()),
            }
        })?;
        // RFC 5044 7.1.2(2) [CONN-08]: no reply before the frame is complete.
        let (Step::Done { consumed, .. }, Some(frame)) = (step, self.request.frame()) else {
            return Ok(Step::NeedMore);
        };
        if frame.fixed.markers && config.refuse_markers {
            return Err(StartupError::Markers);
        }
        if frame.fixed.crc && config.refuse_crc {
            return Err(StartupError::CrcPolicy);
        }
        Ok(Step::Done { consumed, value: request(&frame) })
    }

    /// The peer closed its half before the request was complete.
    pub fn handle_eof(&self) -> StartupError {
        StartupError::Eof { have: self.request.have() }
    }

    /// The accepting reply and what was agreed. `ird`/`ord` override the configuration's.
    pub fn accept(
        &self,
        ird: u16,
        ord: u16,
        private_data: &[u8],
    ) -> Result<(Vec<u8>, Negotiated), StartupError> {
        let frame = self.request.frame().ok_or(StartupError::NoRequest)?;
        let ours = Limits { ird: clamp(ird), ord: clamp(ord) };
        let rtr = self.rtr(&frame);
        let (hold, block) = match frame.enhanced {
            Some(asked) => {
                let (hold, reply) = respond(ours, self.config.max_ird, asked, rtr);
                (hold, Some(block(reply, rtr)))
            }
            None => (ours, None),
        };
        // RFC 5044 7.1.1 [MPA-13, CONN-03]: the reply to C = 1 has C = 1.
        let crc = self.config.crc || frame.fixed.crc;
        let octets = build(self.reply(&frame, crc, false), block, private_data)?;
        let negotiated = Negotiated {
            role: Role::Responder,
            revision: frame.fixed.revision,
            crc,
            // RFC 5044 7.1.1 [CONN-02]
            markers_tx: frame.fixed.markers,
            markers_rx: self.config.markers,
            ird: hold.ird,
            ord: hold.ord,
            peer_ird_ord: frame.enhanced.map(|asked| (asked.ird, asked.ord)),
            rtr,
        };
        Ok((octets, negotiated))
    }

    /// A rejecting reply in the request's form. The configured IRD and ORD go with it: an initiator
    /// learns from them what was needed (RFC 6581 section 9.1) [CONN-09, CONN-23].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, StartupError> {
        let frame = self.request.frame().ok_or(StartupError::NoRequest)?;
        let limits = Limits { ird: self.config.ird, ord: self.config.ord };
        let block = frame.enhanced.map(|_| block(limits, self.rtr(&frame)));
        let crc = self.config.crc || frame.fixed.crc;
        build(self.reply(&frame, crc, true), block, private_data)
    }

    /// What to send before closing after an error of `handle`: a reject where the request was well
    /// formed, nothing otherwise.
    pub fn reply_for(&self, error: StartupError) -> Option<Vec<u8>> {
        match error {
            StartupError::Markers | StartupError::CrcPolicy => self.reject(&[]).ok(),
            // RFC 5044 C [CONN-31]: the reply to revision 0 names one that we accept, then we close.
            StartupError::Revision { got: 0 } => Some(REVISION_1.emit().to_vec()),
            _ => None,
        }
    }

    /// RFC 6581 9.2 [CONN-27]: with A = 0 the other flags mean nothing.
    fn rtr(&self, frame: &Frame<'_>) -> Option<RtrKind> {
        let asked = frame.enhanced.filter(|asked| asked.peer_to_peer)?;
        Some(offer(self.config.rtr, RtrSet::of(asked)))
    }

    fn reply(&self, frame: &Frame<'_>, crc: bool, rejected: bool) -> StartupRepr {
        StartupRepr {
            // RFC 5044 7.1.1 [CONN-02]; a rejected stream carries nothing, so demands nothing.
            markers: self.config.markers && !rejected,
            crc,
            rejected,
            revision: frame.fixed.revision,
            ..REVISION_1
        }
    }
}

/// The reply to a revision that we refuse.
const REVISION_1: StartupRepr = StartupRepr {
    kind: FrameKind::Reply,
    markers: false,
    crc: true,
    rejected: true,
    enhanced: false,
    reserved: 0,
    revision: 1,
    private_data_len: 0,
};

/// RFC 6581 9.2 [CONN-27, CONN-28]
fn block(limits: Limits, rtr: Option<RtrKind>) -> EnhancedRepr {
    let RtrSet { send, write, read } = rtr.map_or(RtrSet::default(), RtrSet::only);
    EnhancedRepr {
        peer_to_peer: rtr.is_some(),
        rtr_send: send,
        rtr_write: write,
        rtr_read: read,
        ird: limits.ird,
        ord: limits.ord,
    }
}

fn request(frame: &Frame<'_>) -> Request {
    let p2p = frame.enhanced.filter(|asked| asked.peer_to_peer);
    Request {
        revision: frame.fixed.revision,
        crc: frame.fixed.crc,
        markers: frame.fixed.markers,
        enhanced: frame.enhanced.is_some(),
        peer_to_peer: p2p.is_some(),
        rtr: p2p.map_or(RtrSet::default(), RtrSet::of),
        ird_ord: frame.enhanced.map(|asked| (asked.ird, asked.ord)),
        private_data: frame.private_data.to_vec(),
    }
}
