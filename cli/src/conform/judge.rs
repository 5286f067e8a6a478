//! Sends malformed octets and judges the refusal: code and headers of the Terminate, nothing after it, then an
//! orderly end. Main thread only.

use iwarp_proto::TerminateCode;
use iwarp_proto::wire::ddp::Header;
use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::wire::terminate::TerminateRepr;

use super::answer::{self, Terminate};
use super::bench::Bench;
use super::frames;
use super::link::{End, Link, Seen};
use super::verdict::{Play, fail, skip};

/// Layer, type, code.
pub(super) type Code = (u8, u8, u8);

/// The expected form of a refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// Acceptable Terminates; the first is the one that the standard names.
    pub(super) codes: &'static [Code],
    /// An end without a Terminate is acceptable, too.
    pub(super) silence: bool,
    /// The peer may wait for segments that are missing: RFC 5041 section 5.3 lets it place them out of order.
    pub(super) waits: bool,
}

impl Refusal {
    pub(super) const fn by(codes: &'static [Code]) -> Self {
        Self { codes, silence: false, waits: false }
    }

    pub(super) const fn or_silence(codes: &'static [Code]) -> Self {
        Self { codes, silence: true, waits: false }
    }

    pub(super) const fn or_waits(codes: &'static [Code]) -> Self {
        Self { codes, silence: false, waits: true }
    }

    /// Whether a code, as received or swapped, is acceptable.
    fn fits(&self, code: TerminateCode) -> bool {
        self.codes.contains(&(code.layer, code.etype, code.code))
    }
}

/// What was received until the end.
struct Reaction {
    terminates: Vec<Vec<u8>>,
    /// Something was received after the Terminate.
    behind: bool,
    /// A message after the refused one was executed.
    carried_out: bool,
    /// The peer sent a message of its own.
    spoke: bool,
    end: Seen,
}

impl Bench {
    /// Sends `ulpdu` in a valid FPDU; it must be refused.
    pub(super) fn refuses(&mut self, link: Link, ulpdu: &[u8], refusal: Refusal) -> Play {
        let mut link = link;
        let wire = link.frame(ulpdu);
        self.refuses_octets(link, &wire, ulpdu, refusal)
    }

    /// Sends `wire`, which contains the bad `ulpdu`; it must be refused, and a valid message immediately after
    /// it must have no effect.
    pub(super) fn refuses_octets(
        &mut self,
        mut link: Link,
        wire: &[u8],
        ulpdu: &[u8],
        refusal: Refusal,
    ) -> Play {
        // Valid, but after a fault: RFC 5041 7.1, RFC 5044 8 [DDP-16, MPA-38].
        let read = answer::kind(ulpdu) == Some(Opcode::ReadRequest);
        let behind = if read && self.peer.ird.is_none_or(|ird| ird < 2) {
            // A second outstanding Read would be another fault.
            Vec::new()
        } else {
            let msn = link.read_msn + u32::from(read);
            link.frame(&frames::read_request(msn, frames::read_of(0, 1, 1)))
        };
        link.write(&[wire, &behind].concat());
        self.refused(&mut link, ulpdu, refusal)
    }

    /// Judges the refusal of a bad `ulpdu` that was sent.
    pub(super) fn refused(&self, link: &mut Link, ulpdu: &[u8], refusal: Refusal) -> Play {
        let after = reaction(link);
        let refused = !after.terminates.is_empty() || matches!(after.end, Seen::End(_));
        if after.carried_out && refused {
            link.record()
                .broken(&["DDP-16", "MPA-38"], "a message behind the refused one was executed");
        }
        let Some(first) = after.terminates.first().and_then(|t| answer::terminate(t)) else {
            return match after.end {
                Seen::End(_) if refusal.silence => Ok(()),
                Seen::End(end) => fail(format!(
                    "the connection ended with a {} and without a Terminate, expected {}",
                    end.text(),
                    wanted(refusal),
                )),
                _ if refusal.waits && !after.spoke => {
                    skip("the peer goes on: it may wait for the octets that are missing")
                }
                _ if after.carried_out => {
                    fail(format!("the peer goes on, expected a Terminate {}", wanted(refusal)))
                }
                other => fail(format!(
                    "received {}, expected a Terminate {}",
                    other.text(),
                    wanted(refusal)
                )),
            };
        };
        manners(link, &after);
        let meant = judge_form(link, &first, ulpdu, refusal);
        if refusal.fits(meant) {
            link.record().kept(&["RDMAP-31", "SEC-18", "MPA-37"]);
            return Ok(());
        }
        fail(format!("Terminate {meant}, expected {}", wanted(refusal)))
    }
}

fn wanted(refusal: Refusal) -> String {
    let all = refusal
        .codes
        .iter()
        .map(|&(layer, etype, code)| answer::triple(TerminateCode { layer, etype, code }));
    all.collect::<Vec<_>>().join(" or ")
}

fn reaction(link: &mut Link) -> Reaction {
    let mut after = Reaction {
        terminates: Vec::new(),
        behind: false,
        carried_out: false,
        spoke: false,
        end: Seen::Nothing,
    };
    loop {
        let seen = link.next_within(link.patience());
        let Seen::Ulpdu(ulpdu) = seen else {
            after.end = seen;
            return after;
        };
        let kind = answer::kind(&ulpdu);
        after.behind |= !after.terminates.is_empty();
        after.carried_out |= kind == Some(Opcode::ReadResponse);
        after.spoke |= kind == Some(Opcode::Send);
        if kind == Some(Opcode::Terminate) {
            after.terminates.push(ulpdu);
        } else if after.carried_out && after.terminates.is_empty() {
            return after;
        }
    }
}

/// Checks that there is one Terminate, nothing after it, then FIN.
fn manners(link: &Link, after: &Reaction) {
    let record = link.record();
    match (after.terminates.len(), after.behind) {
        (1, false) => record.kept(&["RDMAP-24", "MPA-39", "DDP-16", "MPA-38"]),
        (1, true) => record.broken(&["RDMAP-24"], "something was received after the Terminate"),
        _ => record.broken(&["RDMAP-24"], "more than one Terminate was received"),
    }
    match &after.end {
        Seen::End(End::Fin) => record.kept(&["RDMAP-27", "VERBS-10"]),
        Seen::End(End::Reset) => {
            record.broken(&["RDMAP-27"], "the connection was reset behind the Terminate");
        }
        other => record.broken(
            &["VERBS-10"],
            format!("the connection did not end behind the Terminate: {}", other.text()),
        ),
    }
}

/// Checks layout and headers of a Terminate against the refused segment (RFC 5040 section 4.8); returns what
/// it means.
fn judge_form(link: &Link, terminate: &Terminate, ulpdu: &[u8], refusal: Refusal) -> TerminateCode {
    let record = link.record();
    let standing = long_enough(&terminate.repr, terminate.length);
    let swapped = long_enough(&terminate.swapped, terminate.length);
    let triple_stands = refusal.fits(terminate.repr.code);
    let right = triple_stands && standing;
    if right {
        record.kept(&["RDMAP-20", "IOP-10"]);
    } else if (refusal.fits(terminate.swapped.code) || !triple_stands) && swapped {
        record.broken(
            &["RDMAP-20", "IOP-10"],
            "the Terminate has layer and type, or its flags, in each other's places",
        );
    } else if !standing {
        record.broken(&["RDMAP-20"], "the Terminate's length does not go with its flags");
    }
    let meant = if right || !swapped { terminate.repr } else { terminate.swapped };
    judge_headers(link, &meant, ulpdu);
    meant.code
}

/// Checks that the Terminate carries the headers of the refused segment that it must.
fn judge_headers(link: &Link, meant: &TerminateRepr, ulpdu: &[u8]) {
    let record = link.record();
    let (header, read) = due_headers(meant.code, ulpdu);
    if !header {
        return record.kept(&["RDMAP-21"]);
    }
    match meant.segment_length {
        Some(length) if usize::from(length) == ulpdu.len() => record.kept(&["RDMAP-22", "IOP-11"]),
        Some(length) => record.broken(
            &["RDMAP-22", "IOP-11"],
            format!("DDP Segment Length {length} for a segment of {} octets", ulpdu.len()),
        ),
        None => {}
    }
    match (meant.ddp, Header::parse(ulpdu).ok()) {
        (Some(got), Some(due)) if got == due => record.kept(&["RDMAP-21"]),
        (Some(_), _) => record.broken(&["RDMAP-21"], "the Terminate carries another header"),
        (None, _) => {
            record.broken(&["RDMAP-21"], "the Terminate carries no header of what it refuses");
        }
    }
    if read && meant.read_request.is_none() {
        record.broken(&["RDMAP-21"], "the Terminate lacks the header of the refused Read Request");
    }
}

/// Whether a Terminate has the length that its flags imply.
fn long_enough(repr: &TerminateRepr, length: usize) -> bool {
    repr.buffer_len() == length
}

/// Whether the refused DDP header and the Read Request must be there (RFC 5040 Figure 10).
fn due_headers(code: TerminateCode, ulpdu: &[u8]) -> (bool, bool) {
    let bare = code.layer == 2 || code.etype == 0;
    let read =
        answer::kind(ulpdu) == Some(Opcode::ReadRequest) && (code.layer, code.etype) == (0, 1);
    (!bare && Header::parse(ulpdu).is_ok(), read)
}
