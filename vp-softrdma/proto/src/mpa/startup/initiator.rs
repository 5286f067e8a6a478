//! Connecting side of the MPA start-up: one request, one reply (RFC 5044 section 7.1.2, RFC 6581 section 9).
//!
//! Owner of the state: the connection manager, one thread at a time. Two frames of at most 532
//! octets. When the peer dies: `handle_eof`.

use alloc::vec;
use alloc::vec::Vec;

use super::frame::{Collector, Frame, build};
use super::negotiate::{Limits, conclude};
use super::{Answer, Negotiated, RtrSet, StartupConfig, StartupError, Step};
use crate::ProtocolError;
use crate::mpa::Tx;
use crate::types::{Crc32c, Role};
use crate::wire::mpa::{EnhancedRepr, FrameKind, LENGTH_LEN, StartupRepr};
use crate::wire::terminate::TerminateRepr;
use crate::wire::{ddp, rdmap};

/// The side that connects.
#[derive(Clone, Debug)]
pub struct Initiator {
    config: StartupConfig,
    request: Vec<u8>,
    reply: Collector,
}

impl Initiator {
    /// Builds the request.
    pub fn new(config: StartupConfig, private_data: &[u8]) -> Result<Self, StartupError> {
        let config = config.clamped();
        let fixed = StartupRepr {
            kind: FrameKind::Request,
            markers: config.markers,
            crc: config.crc,
            rejected: false,
            enhanced: false,
            reserved: 0,
            revision: config.revision,
            private_data_len: 0,
        };
        // RFC 6581 9.2 [CONN-28]: every kind that we support.
        let RtrSet { send, write, read } = config.rtr;
        let block = config.asks_enhanced().then_some(EnhancedRepr {
            peer_to_peer: !config.rtr.is_empty(),
            rtr_send: send,
            rtr_write: write,
            rtr_read: read,
            ird: config.ird,
            ord: config.ord,
        });
        let request = build(fixed, block, private_data)?;
        Ok(Self { config, request, reply: Collector::new(FrameKind::Reply) })
    }

    /// The request's octets: one write, nothing after it until the reply is here [CONN-34].
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Octets from the peer, each octet once. After Done or an error feed no more.
    pub fn handle(&mut self, octets: &[u8]) -> Result<Step<Answer>, StartupError> {
        let asked = self.config.revision;
        let step = self.reply.feed(octets, |fixed| {
            // RFC 5044 7.1.1 [CONN-06]: a lower revision than asked for will do, 0 never.
            match fixed.revision {
                got if got == 0 || got > asked => Err(StartupError::Revision { got }),
                _ => Ok(()),
            }
        })?;
        let (Step::Done { consumed, .. }, Some(frame)) = (step, self.reply.frame()) else {
            return Ok(Step::NeedMore);
        };
        Ok(Step::Done { consumed, value: self.answer(&frame)? })
    }

    /// The peer closed its half before the reply was complete.
    pub fn handle_eof(&self) -> StartupError {
        StartupError::Eof { have: self.reply.have() }
    }

    /// The Terminate FPDU to send before closing, if RFC 6581 wants one for the error: only after a
    /// reply that accepted, for IRD, RTR and local failures.
    pub fn terminate_for(&self, error: StartupError, crc32c: Crc32c) -> Option<Vec<u8>> {
        let error = match error {
            StartupError::InsufficientIrd { .. } => ProtocolError::InsufficientIrd,
            StartupError::NoCommonRtr => ProtocolError::NoCommonRtr,
            // RFC 6581 8 [CONN-32]
            StartupError::Local => ProtocolError::StartupCatastrophic,
            _ => return None,
        };
        let reply = self.reply.frame().filter(|frame| !frame.fixed.rejected)?;
        let crc = (self.config.crc || reply.fixed.crc).then_some(crc32c);
        Some(terminate(error, Tx::new(crc, reply.fixed.markers)))
    }

    fn answer(&self, frame: &Frame<'_>) -> Result<Answer, StartupError> {
        let (fixed, config) = (&frame.fixed, &self.config);
        let private_data = frame.private_data.to_vec();
        let peer_ird_ord = frame.enhanced.map(|block| (block.ird, block.ord));
        // RFC 5044 7.1.1 [CONN-04, CONN-10]: a reject counts in either form.
        if fixed.rejected {
            let revision = fixed.revision;
            return Ok(Answer::Rejected { private_data, peer_ird_ord, revision });
        }
        // RFC 6581 10 [CONN-17]
        if frame.enhanced.is_some() != config.asks_enhanced() {
            return Err(StartupError::FormMismatch);
        }
        if fixed.markers && config.refuse_markers {
            return Err(StartupError::Markers);
        }
        if fixed.crc && config.refuse_crc {
            return Err(StartupError::CrcPolicy);
        }
        let (limits, rtr) = match frame.enhanced {
            Some(block) => conclude(config, block)?,
            None => (Limits { ird: config.ird, ord: config.ord }, None),
        };
        let negotiated = Negotiated {
            role: Role::Initiator,
            revision: fixed.revision,
            // RFC 5044 7.1.1 [MPA-13, CONN-03]: C in either frame puts it in force.
            crc: config.crc || fixed.crc,
            // RFC 5044 7.1.1 [CONN-02]
            markers_tx: fixed.markers,
            markers_rx: config.markers,
            ird: limits.ird,
            ord: limits.ord,
            peer_ird_ord,
            rtr,
        };
        Ok(Answer::Accepted { negotiated, private_data })
    }
}

/// A Terminate as the first and only FPDU of the stream; no header goes with LLP errors.
fn terminate(error: ProtocolError, mut tx: Tx) -> Vec<u8> {
    let header = ddp::UntaggedRepr {
        control: ddp::Control::new(false, true),
        ulp: rdmap::Control::new(rdmap::Opcode::Terminate).0,
        ulp_word: 0,
        qn: rdmap::qn::TERMINATE,
        msn: 1,
        mo: 0,
    };
    let word = TerminateRepr::bare(error.terminate_code()).emit_word();
    let plan = tx.plan((ddp::UntaggedRepr::LEN + word.len()) as u16);
    let mut head = [0; LENGTH_LEN + ddp::UntaggedRepr::LEN + 4];
    head[..LENGTH_LEN].copy_from_slice(&plan.length_field());
    head[LENGTH_LEN..][..ddp::UntaggedRepr::LEN].copy_from_slice(&header.emit());
    head[LENGTH_LEN + ddp::UntaggedRepr::LEN..].copy_from_slice(&word);
    let mut out = vec![0; plan.wire_len()];
    match plan.encode(&head, &mut out, |_, _| Ok::<(), core::convert::Infallible>(())) {
        Ok(()) => out,
        Err(never) => match never {},
    }
}
