//! Cases: Terminate, FIN and reset (RFC 5040 sections 5.4 and 6, RFC 5044 section 8, RDMAC Verbs 6.2).

use iwarp_proto::TerminateCode;
use iwarp_proto::wire::rdmap::Opcode;
use iwarp_proto::wire::terminate::TerminateRepr;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Untagged};
use super::link::{End, Link, Seen};
use super::verdict::{Needs, Play, check, fail};

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "FIN with nothing pending",
        &["VERBS-09", "MPA-41", "DDP-19"],
        Needs::Nothing,
        |b| {
            let mut link = b.operating()?;
            link.fin();
            ends_quietly(&mut link)
        },
    ),
    Case::both_ways("FIN within an FPDU", &["MPA-37", "SEC-18"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        let frame = link.frame(&frames::write(1, 0, &[]));
        link.write(&frame[..9]);
        link.fin();
        ends(&mut link)
    }),
    Case::both_ways(
        "FIN with a Read of the peer's pending",
        &["ERR-29", "VERBS-09"],
        Needs::Reader,
        |b| {
            let mut link = b.operating()?;
            b.made_to_read(&mut link)?;
            link.fin();
            ends(&mut link)
        },
    ),
    Case::both_ways("reset", &["ERR-28", "MPA-37", "SEC-18"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        link.send(&frames::write(1, 0, &[]));
        link.reset();
        b.operating().map(drop)
    }),
    Case::both_ways("Terminate", &["RDMAP-26", "RDMAP-33", "VERBS-08"], Needs::Nothing, |b| {
        b.terminated(|_| {}, &word(TerminateCode::new(0, 0, 0)))
    }),
    Case::both_ways("Terminate with headers", &["RDMAP-26", "RDMAP-32"], Needs::Nothing, |b| {
        let refused = frames::write(0x0bad_5700, 0, b"1234");
        let repr = TerminateRepr {
            segment_length: Some(refused.len() as u16),
            ddp: iwarp_proto::wire::ddp::Header::parse(&refused).ok(),
            ..TerminateRepr::bare(TerminateCode::new(1, 1, 0))
        };
        let mut octets = vec![0; repr.buffer_len()];
        if repr.emit(&mut octets).is_err() {
            return fail("a Terminate does not fit its own length");
        }
        b.terminated(|_| {}, &octets)
    }),
    Case::both_ways("Terminate without octets", &["RDMAP-32", "ERR-26"], Needs::Nothing, |b| {
        b.terminated(|_| {}, &[])
    }),
    Case::both_ways("Terminate of 2 octets", &["RDMAP-32", "ERR-26"], Needs::Nothing, |b| {
        b.terminated(|_| {}, &[0, 0])
    }),
    Case::both_ways(
        "Terminate that announces headers and has none",
        &["RDMAP-32"],
        Needs::Nothing,
        |b| b.terminated(|_| {}, &[0x11, 0, 0xe0, 0]),
    ),
    Case::both_ways("Terminate with MSN 2", &["RDMAP-32", "ERR-26"], Needs::Nothing, |b| {
        b.terminated(|s| s.header.msn = 2, &word(TerminateCode::new(0, 0, 0)))
    }),
    Case::both_ways("Terminate on queue 0", &["RDMAP-32", "ERR-26"], Needs::Nothing, |b| {
        b.terminated(|s| s.header.qn = 0, &word(TerminateCode::new(0, 0, 0)))
    }),
    Case::both_ways("orderly end of the peer's", &["VERBS-05", "DDP-18"], Needs::Target, |b| {
        check(b.told_to_end(b'd')? == End::Fin, || "received a reset, expected a FIN".into())
    }),
    Case::both_ways("abrupt end of the peer's", &["VERBS-07"], Needs::Target, |b| {
        check(b.told_to_end(b'a')? == End::Reset, || "received a FIN, expected a reset".into())
    }),
    // The last case: after all others the peer must still serve.
    Case::both_ways(
        "after all this the peer still serves",
        &["SEC-18", "SEC-10"],
        Needs::Nothing,
        |b| {
            let mut link = b.operating()?;
            if b.peer.probes { b.goes_on(&mut link) } else { Ok(()) }
        },
    ),
];

fn word(code: TerminateCode) -> [u8; 4] {
    TerminateRepr::bare(code).emit_word()
}

/// Expects a FIN and nothing else.
fn ends_quietly(link: &mut Link) -> Play {
    match link.next() {
        Seen::End(End::Fin) => Ok(()),
        other => fail(format!("received {}, expected a FIN", other.text())),
    }
}

/// Expects a FIN or a reset, after one Terminate at most.
fn ends(link: &mut Link) -> Play {
    let mut terminates = 0;
    loop {
        match link.next() {
            Seen::End(_) => {
                return check(terminates <= 1, || format!("received {terminates} Terminates"));
            }
            Seen::Ulpdu(ulpdu) => terminates += i32::from(answer::terminate(&ulpdu).is_some()),
            other => return fail(format!("received {}, expected the end", other.text())),
        }
    }
}

impl Bench {
    /// Sends a Terminate: the peer must end the stream and send none itself; it may refuse a malformed one.
    fn terminated(&mut self, spoil: fn(&mut Untagged<'_>), payload: &[u8]) -> Play {
        let mut link = self.operating()?;
        let mut segment = Untagged::new(Opcode::Terminate, 1, payload);
        spoil(&mut segment);
        let good = segment.header.qn == 2 && segment.header.msn == 1 && payload.len() >= 4;
        link.send(&segment.octets());
        if !good {
            return ends(&mut link);
        }
        match link.next() {
            Seen::End(_) => Ok(()),
            other => fail(format!("a Terminate was answered with {}", other.text())),
        }
    }

    /// Commands the target to end the connection; returns how it does.
    fn told_to_end(&mut self, letter: u8) -> Play<End> {
        let mut link = self.operating()?;
        let msn = link.next_send_msn();
        let command = super::order::command(letter, 0, super::peer::OUR_SOURCE.into());
        link.send(&frames::send(msn, &command));
        match link.next() {
            Seen::End(end) => Ok(end),
            other => fail(format!("commanded to end, the peer sent {}", other.text())),
        }
    }
}
