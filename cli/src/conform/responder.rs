//! Cases: start-up with a peer that listens (RFC 5044 section 7.1, RFC 6581).

use std::time::{Duration, Instant};

use iwarp_proto::wire::mpa::FrameKind;

use super::bench::Bench;
use super::case::Case;
use super::frames::{self, FrameSpec};
use super::link::{End, Seen, Startup};
use super::verdict::{Needs, Play, check, fail, skip};

/// Longest time that a peer may wait for a Request; standards name none.
const STALE: Duration = Duration::from_secs(60);

pub(super) const CASES: &[Case] = &[
    Case::to_responder(
        "revision 1 request",
        &["CONN-01", "CONN-06", "CONN-17"],
        Needs::Nothing,
        revision_1,
    ),
    Case::to_responder(
        "revision 2, plain",
        &["CONN-06", "CONN-16", "CONN-17"],
        Needs::Nothing,
        revision_2_plain,
    ),
    Case::to_responder(
        "revision 2, enhanced",
        &["CONN-06", "CONN-16", "CONN-17", "CONN-20"],
        Needs::Nothing,
        |b| {
            let (_, reply) = b.accepted(&enhanced(4, 2))?;
            enhanced_form(&reply)
        },
    ),
    // RFC 5044 7.1.1: also if the reply has C=0.
    Case::to_responder(
        "C=1 asked: CRC is generated and checked",
        &["CONN-03", "MPA-13"],
        Needs::Probe,
        |b| {
            let mut link = b.operating()?;
            b.goes_on(&mut link)
        },
    ),
    Case::to_responder(
        "C=0 on both sides: CRC is not checked",
        &["MPA-06", "MPA-14", "MPA-13"],
        Needs::Probe,
        crc_off,
    ),
    Case::to_responder(
        "C=0 asked, C=1 answered: CRC is on",
        &["MPA-13"],
        Needs::Probe,
        crc_by_reply,
    ),
    Case::to_responder(
        "M=1: markers come",
        &["CONN-02", "MPA-28", "MPA-24", "IOP-01"],
        Needs::Nothing,
        markers,
    ),
    Case::to_responder(
        "M=1: markers at 512, 1024 and so on",
        &["MPA-23", "MPA-25", "MPA-27"],
        Needs::Memory,
        many_markers,
    ),
    Case::to_responder("reserved bits of a request", &["CONN-05"], Needs::Nothing, reserved_bits),
    Case::to_responder("R=1 in a request", &["CONN-04"], Needs::Nothing, rejected_bit),
    Case::to_responder("request octet by octet", &["CONN-08", "CONN-34"], Needs::Nothing, drip),
    Case::to_responder("512 octets of private data", &["CONN-07", "IOP-02"], Needs::Nothing, |b| {
        b.takes_private_data(&FrameSpec::plain(FrameKind::Request), 512)
    }),
    Case::to_responder(
        "508 octets of private data behind the block",
        &["CONN-07"],
        Needs::Nothing,
        |b| b.takes_private_data(&enhanced(1, 1), 508),
    ),
    Case::to_responder(
        "PD_Length 513",
        &["CONN-07", "ERR-01", "MPA-37", "MPA-39"],
        Needs::Nothing,
        |b| {
            let mut spec = FrameSpec::plain(FrameKind::Request);
            spec.data = vec![0x55; 513];
            b.closes(&spec.octets(), false)
        },
    ),
    Case::to_responder(
        "private data cut short by a FIN",
        &["CONN-07", "CONN-08", "ERR-01"],
        Needs::Nothing,
        |b| {
            let mut spec = FrameSpec::plain(FrameKind::Request);
            (spec.data, spec.length) = (vec![0x55; 8], Some(16));
            // Several times: a wrong count at the peer shows only then.
            (0..8).try_for_each(|_| b.closes(&spec.octets(), true))
        },
    ),
    Case::to_responder(
        "unknown key",
        &["CONN-01", "ERR-01", "MPA-37", "MPA-39", "SEC-18"],
        Needs::Nothing,
        |b| b.closes(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false),
    ),
    Case::to_responder(
        "key wrong in its last octet",
        &["CONN-01", "ERR-01"],
        Needs::Nothing,
        |b| {
            let mut octets = FrameSpec::plain(FrameKind::Request).octets();
            octets[15] ^= 0x20;
            b.closes(&octets, false)
        },
    ),
    Case::to_responder(
        "a reply to a responder",
        &["CONN-01", "CONN-12", "ERR-01"],
        Needs::Nothing,
        |b| b.closes(&FrameSpec::plain(FrameKind::Reply).octets(), false),
    ),
    Case::to_responder("revision 3", &["CONN-06"], Needs::Nothing, |b| b.unknown_revision(3)),
    Case::to_responder("revision 255", &["CONN-06"], Needs::Nothing, |b| b.unknown_revision(255)),
    Case::to_responder("revision 0: RDMA Consortium", &["CONN-31"], Needs::Nothing, revision_0),
    Case::to_responder(
        "S=1 without room for the block",
        &["CONN-16", "CONN-33", "ERR-01"],
        Needs::Nothing,
        |b| {
            let mut spec = FrameSpec::plain(FrameKind::Request);
            spec.revision = 2;
            let mut octets = spec.octets();
            octets[16] |= 0x10;
            b.refused_at_start(&octets)
        },
    ),
    Case::to_responder(
        "nothing comes before our first FPDU",
        &["CONN-11"],
        Needs::Target,
        first_fpdu,
    ),
    Case::to_responder(
        "a bad FPDU does not release the peer",
        &["CONN-11"],
        Needs::Target,
        bad_first_fpdu,
    ),
    Case::to_responder("a silent connection is given up", &["CONN-13"], Needs::Nothing, |b| {
        b.gives_up(b"", Duration::from_secs(1))
    }),
    Case::to_responder(
        "a dripping request is given up",
        &["CONN-13", "SEC-18"],
        Needs::Nothing,
        |b| b.gives_up(&FrameSpec::plain(FrameKind::Request).octets(), Duration::from_secs(4)),
    ),
];

fn enhanced(ird: u16, ord: u16) -> FrameSpec {
    FrameSpec::enhanced(FrameKind::Request, ird, ord)
}

fn revision_1(bench: &mut Bench) -> Play {
    let (_, reply) = bench.accepted(&FrameSpec::plain(FrameKind::Request))?;
    check(reply.fixed.revision == 1, || {
        format!("the reply has revision {}", reply.fixed.revision)
    })?;
    check(!reply.fixed.enhanced, || "the reply to S=0 has S=1".into())
}

fn revision_2_plain(bench: &mut Bench) -> Play {
    let mut spec = FrameSpec::plain(FrameKind::Request);
    spec.revision = 2;
    let (_, reply) = bench.accepted(&spec)?;
    check(!reply.fixed.enhanced, || "the reply to S=0 has S=1".into())
}

fn enhanced_form(reply: &Startup) -> Play {
    check(reply.fixed.revision >= 2, || {
        format!("the reply has revision {}", reply.fixed.revision)
    })?;
    check(reply.fixed.enhanced, || "the reply to S=1 has S=0".into())?;
    check(reply.block.is_some(), || "the reply has no room for its block".into())
}

fn crc_off(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.crc = false;
    let mut link = bench.started_up(&spec)?;
    if link.startup.as_ref().is_some_and(|reply| reply.fixed.crc) {
        return skip("the peer insists on CRC");
    }
    let mut frame = link.frame(&frames::write(1, 0, &[]));
    let end = frame.len();
    frame[end - 4..].copy_from_slice(b"junk");
    link.write(&frame);
    bench.goes_on(&mut link)
}

fn crc_by_reply(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.crc = false;
    let mut link = bench.started_up(&spec)?;
    if link.startup.as_ref().is_some_and(|reply| !reply.fixed.crc) {
        return skip("the peer does not ask for CRC");
    }
    bench.goes_on(&mut link)
}

fn markers(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.markers = true;
    let (mut link, _) = bench.accepted(&spec)?;
    std::thread::sleep(bench.settle);
    if bench.peer.probes { bench.goes_on(&mut link) } else { Ok(()) }
}

fn many_markers(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.markers = true;
    let mut link = bench.started_up(&spec)?;
    let memory = bench.memory(&mut link)?;
    for size in [1, 3, 500, 508, 1100, 20_000] {
        let size = size.min(memory.source.len as u32);
        bench.read(&mut link, memory.source, size)?;
    }
    link.record().kept(&["MPA-11"]);
    Ok(())
}

fn reserved_bits(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.reserved = 0x0f;
    let (_, reply) = bench.accepted(&spec)?;
    let reserved = reply.fixed.reserved;
    check(reserved == 0, || format!("the reply has reserved bits {reserved:#x}, expected 0"))
}

fn rejected_bit(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.rejected = true;
    let (mut link, reply) = bench.start_up(&spec)?;
    match reply {
        Ok(reply) if reply.fixed.rejected => {
            let stays = link.ends(Duration::from_millis(300)).is_none();
            let what = if stays { "although the peer goes on" } else { "and the peer closes" };
            fail(format!("the reply has R=1, {what}: R means nothing in a request"))
        }
        Ok(_) => Ok(()),
        Err(seen) => fail(format!("answered with {}", seen.text())),
    }
}

fn drip(bench: &mut Bench) -> Play {
    let mut link = bench.tcp()?;
    let mut octets = FrameSpec::plain(FrameKind::Request);
    octets.data = b"drip".to_vec();
    let octets = octets.octets();
    let (last, front) = (octets.len() - 1, Duration::from_millis(300));
    for octet in &octets[..last] {
        link.write(&[*octet]);
    }
    check(!link.receives_within(front), || {
        "the peer sent something before the request was complete".into()
    })?;
    link.write(&octets[last..]);
    match link.startup_frame(FrameKind::Reply) {
        Ok(_) => Ok(()),
        Err(seen) => fail(format!("answered with {}", seen.text())),
    }
}

fn revision_0(bench: &mut Bench) -> Play {
    let mut spec = FrameSpec::plain(FrameKind::Request);
    (spec.revision, spec.markers) = (0, true);
    match bench.start_up(&spec)?.1 {
        Ok(reply) if reply.fixed.revision == 0 && !reply.fixed.rejected => {
            let both = reply.fixed.markers && reply.fixed.crc;
            check(both, || "the reply of revision 0 lacks M=1 or C=1".into())
        }
        _ => Ok(()),
    }
}

fn first_fpdu(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.data = super::order::target_request(4, true);
    let (mut link, _) = bench.accepted(&spec)?;
    check(!link.receives_within(Duration::from_millis(300)), || "the peer sent first".into())?;
    link.send(&frames::write(1, 0, &[]));
    match link.next() {
        Seen::Ulpdu(ulpdu) if super::answer::payload(&ulpdu) == b"unasked" => Ok(()),
        other => fail(format!("after the first FPDU the peer sent {}", other.text())),
    }
}

fn bad_first_fpdu(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.data = super::order::target_request(4, true);
    let (mut link, _) = bench.accepted(&spec)?;
    let mut frame = link.frame(&frames::write(1, 0, &[]));
    frame[3] ^= 1;
    link.write(&frame);
    match link.next() {
        Seen::Ulpdu(ulpdu) if super::answer::terminate(&ulpdu).is_some() => Ok(()),
        Seen::End(_) => Ok(()),
        other => fail(format!("received {}", other.text())),
    }
}

impl Bench {
    /// Sends a well-formed request with `octets` octets of application private data.
    fn takes_private_data(&mut self, spec: &FrameSpec, octets: usize) -> Play {
        let mut spec = spec.clone();
        let mut takes = |octets: usize, this: &mut Self| -> Play<bool> {
            spec.data = vec![0x5a; octets];
            // A reply with R=1 is a reply, too.
            Ok(this.start_up(&spec)?.1.is_ok())
        };
        if takes(octets, self)? {
            return Ok(());
        }
        let (mut most, mut beyond) = (0, octets);
        while most + 1 < beyond {
            let middle = most.midpoint(beyond);
            if takes(middle, self)? { most = middle } else { beyond = middle }
        }
        fail(format!("a request with {octets} octets gets no reply; {most} is the most"))
    }

    /// Expects that the peer closes and sends nothing.
    fn closes(&mut self, octets: &[u8], fin: bool) -> Play {
        let mut link = self.tcp()?;
        link.write(octets);
        if fin {
            link.fin();
        }
        match (link.ends(self.patience), link.unread()) {
            (Some(_), 0) => Ok(()),
            (Some(_), _) => fail("the peer sent octets before it closed"),
            (None, 0) => fail("the peer does not close the connection"),
            (None, _) => fail("the peer sent octets, and the connection stays open"),
        }
    }

    /// Expects that the peer closes or rejects.
    fn refused_at_start(&mut self, octets: &[u8]) -> Play {
        let mut link = self.tcp()?;
        link.write(octets);
        match link.startup_frame(FrameKind::Reply) {
            Ok(reply) if reply.fixed.rejected => Ok(()),
            Ok(_) => fail("it was accepted"),
            Err(Seen::End(_)) => Ok(()),
            Err(other) => fail(format!("answered with {}", other.text())),
        }
    }

    /// Sends an unknown revision: the peer must close, or reply with one that it supports.
    fn unknown_revision(&mut self, revision: u8) -> Play {
        let mut spec = FrameSpec::plain(FrameKind::Request);
        spec.revision = revision;
        match self.start_up(&spec)?.1 {
            Ok(reply) if !reply.fixed.rejected && reply.fixed.revision > 2 => {
                fail(format!("the reply has revision {}", reply.fixed.revision))
            }
            Ok(_) | Err(Seen::End(End::Fin | End::Reset)) => Ok(()),
            Err(other) => fail(format!("answered with {}", other.text())),
        }
    }

    /// Expects that the peer ends a connection on which `octets` arrive one at a time, `pause` apart, and then
    /// nothing.
    fn gives_up(&mut self, octets: &[u8], pause: Duration) -> Play {
        let mut link = self.tcp()?;
        let started = Instant::now();
        let mut next = octets.iter();
        while started.elapsed() < STALE {
            if let Some(octet) = next.next() {
                link.write(&[*octet]);
            }
            if link.ends(pause).is_some() {
                return Ok(());
            }
        }
        fail(format!("after {STALE:?} the peer still waits for a request"))
    }
}
