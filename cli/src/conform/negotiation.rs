//! Cases: what the enhanced start-up negotiates with a peer that listens (RFC 6581 section 9).

use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, NO_NEGOTIATION};

use super::bench::Bench;
use super::case::Case;
use super::frames::{self, FrameSpec, limits};
use super::link::Link;
use super::verdict::{Needs, Play, check, skip};

pub(super) const CASES: &[Case] = &[
    Case::to_responder(
        "limits: responder's ORD within our IRD",
        &["CONN-21", "CONN-33"],
        Needs::Nothing,
        ord_fits,
    ),
    Case::to_responder("ORD 0x3fff: not negotiated", &["CONN-26"], Needs::Nothing, |b| {
        let block = b.block(&enhanced(4, NO_NEGOTIATION))?;
        check(block.ird == NO_NEGOTIATION, || {
            format!("the reply has IRD {}, expected 16383", block.ird)
        })?;
        check(block.ord <= 4, || format!("the reply has ORD {} for IRD 4", block.ord))
    }),
    Case::to_responder("IRD 0x3fff: not negotiated", &["CONN-26"], Needs::Nothing, |b| {
        let block = b.block(&enhanced(NO_NEGOTIATION, 2))?;
        check(block.ord == NO_NEGOTIATION, || {
            format!("the reply has ORD {}, expected 16383", block.ord)
        })
    }),
    Case::to_responder("A=0: B, C and D mean nothing", &["CONN-27"], Needs::Nothing, |b| {
        let block = b.block(&with_rtr(false, true, true, true))?;
        let set = block.peer_to_peer || block.rtr_send || block.rtr_write || block.rtr_read;
        check(!set, || "the reply to A=0 has A, B, C or D set".into())
    }),
    Case::to_responder(
        "peer-to-peer, every RTR offered",
        &["CONN-27", "CONN-28"],
        Needs::Nothing,
        |b| b.peer_to_peer(true, true, true).map(drop),
    ),
    Case::to_responder(
        "peer-to-peer by RDMA Write",
        &["CONN-28", "CONN-29", "CONN-30", "DDP-10"],
        Needs::Probe,
        |b| {
            let (mut link, block) = b.peer_to_peer(false, true, false)?;
            if !block.rtr_write {
                return skip("the peer does not take an RDMA Write as RTR");
            }
            link.send(&frames::write(1, 0, &[]));
            b.goes_on(&mut link)
        },
    ),
    Case::to_responder(
        "peer-to-peer by RDMA Read",
        &["CONN-28", "CONN-29", "CONN-30", "CONN-22"],
        Needs::Probe,
        |b| {
            let (mut link, block) = b.peer_to_peer(false, false, true)?;
            if !block.rtr_read {
                return skip("the peer does not take an RDMA Read as RTR");
            }
            b.goes_on(&mut link)?;
            b.goes_on(&mut link)
        },
    ),
    Case::to_responder(
        "peer-to-peer by Send",
        &["CONN-28", "CONN-29", "AMB-12"],
        Needs::Probe,
        |b| {
            let (mut link, block) = b.peer_to_peer(true, false, false)?;
            if !block.rtr_send {
                return skip("the peer does not take a Send as RTR");
            }
            link.send(&frames::send(1, &[]));
            b.goes_on(&mut link)
        },
    ),
];

fn enhanced(ird: u16, ord: u16) -> FrameSpec {
    FrameSpec::enhanced(FrameKind::Request, ird, ord)
}

fn with_rtr(a: bool, b: bool, c: bool, d: bool) -> FrameSpec {
    let mut spec = enhanced(4, 4);
    let block =
        EnhancedRepr { peer_to_peer: a, rtr_send: b, rtr_write: c, rtr_read: d, ..limits(4, 4) };
    spec.block = Some(block);
    spec
}

fn ord_fits(bench: &mut Bench) -> Play {
    for (ird, ord) in [(0, 0), (1, 1), (4, 2), (16, 16), (200, 200), (0x3ffe, 0x3ffe)] {
        let block = bench.block(&enhanced(ird, ord))?;
        check(block.ord <= ird, || format!("the reply has ORD {} for IRD {ird}", block.ord))?;
    }
    Ok(())
}

impl Bench {
    /// The block of the reply.
    fn block(&mut self, spec: &FrameSpec) -> Play<EnhancedRepr> {
        let (_, reply) = self.accepted(spec)?;
        match reply.block {
            Some(block) => Ok(block),
            None => skip("the peer does not know the enhanced form"),
        }
    }

    fn peer_to_peer(&mut self, send: bool, write: bool, read: bool) -> Play<(Link, EnhancedRepr)> {
        let link = self.started_up(&with_rtr(true, send, write, read))?;
        let Some(block) = link.startup.as_ref().and_then(|reply| reply.block) else {
            return skip("the peer does not know the enhanced form");
        };
        check(block.peer_to_peer, || "the reply to A=1 has A=0".into())?;
        let any = block.rtr_send || block.rtr_write || block.rtr_read;
        check(any, || "the reply to A=1 has none of B, C and D".into())?;
        Ok((link, block))
    }
}
