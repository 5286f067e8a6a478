//! Cases: FPDUs (RFC 5044 sections 4 to 8).

use std::time::Duration;

use iwarp_proto::wire::rdmap::Opcode;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Untagged};
use super::judge::Refusal;
use super::link::{Link, Seen};
use super::verdict::{Needs, Play, check, skip};

const CRC: Refusal = Refusal::by(&[(2, 0, 2)]);
/// A ULPDU without room for its header [ERR-04].
const LENGTH: Refusal = Refusal::or_silence(&[(1, 0, 0), (2, 0, 3)]);

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "two FPDUs in one segment",
        &["MPA-05", "MPA-31", "MPA-34"],
        Needs::Probe,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_read_msn();
            let first = link.frame(&frames::write(1, 0, &[]));
            let second = link.frame(&frames::read_request(msn, frames::read_of(0, 1, 1)));
            link.write(&[first, second].concat());
            b.answers_probe(&mut link)
        },
    ),
    Case::both_ways(
        "one FPDU octet by octet",
        &["MPA-05", "MPA-31", "MPA-33"],
        Needs::Probe,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_read_msn();
            let frame = link.frame(&frames::read_request(msn, frames::read_of(0, 1, 1)));
            frame.iter().for_each(|octet| link.write(&[*octet]));
            b.answers_probe(&mut link)
        },
    ),
    Case::both_ways(
        "messages of every length modulo 4",
        &["MPA-03", "MPA-04", "MPA-01"],
        Needs::Target,
        |b| {
            let mut link = b.operating()?;
            for length in 1..=9 {
                let msn = link.next_send_msn();
                link.send(&frames::send(msn, &b"echo this"[..length]));
                let seen = link.next();
                let same = matches!(&seen, Seen::Ulpdu(u) if answer::payload(u) == &b"echo this"[..length]);
                check(same, || format!("{length} octets were returned as {}", seen.text()))?;
            }
            Ok(())
        },
    ),
    Case::both_ways("PAD that is not zero", &["MPA-04"], Needs::Memory, |b| {
        let mut link = b.operating()?;
        let memory = b.memory(&mut link)?;
        let frame = padded(&mut link, &frames::write(memory.sink.stag, memory.sink.to, b"x"), true);
        link.write(&frame);
        b.goes_on(&mut link)
    }),
    Case::both_ways("PAD changed on the way", &["MPA-04", "ERR-02"], Needs::Memory, |b| {
        let mut link = b.operating()?;
        let memory = b.memory(&mut link)?;
        let ulpdu = frames::write(memory.sink.stag, memory.sink.to, b"x");
        let frame = padded(&mut link, &ulpdu, false);
        b.refuses_octets(link, &frame, &ulpdu, CRC)
    }),
    Case::both_ways(
        "CRC: a bit of the header changed",
        &["MPA-07", "MPA-15", "MPA-37", "ERR-02"],
        Needs::Nothing,
        |b| b.bad_crc(|frame| frame[9] ^= 0x10),
    ),
    Case::both_ways("CRC: a bit of the CRC changed", &["MPA-07", "ERR-02"], Needs::Nothing, |b| {
        b.bad_crc(|frame| frame[16] ^= 0x01)
    }),
    Case::both_ways("CRC: octets in the other order", &["MPA-08", "ERR-02"], Needs::Nothing, |b| {
        b.bad_crc(|frame| frame[16..20].reverse())
    }),
    Case::both_ways("CRC: zero", &["MPA-07", "ERR-02"], Needs::Nothing, |b| {
        b.bad_crc(|frame| frame[16..20].fill(0))
    }),
    Case::both_ways(
        "bad CRC: nothing is placed",
        &["MPA-15", "IOP-12", "SEC-03"],
        Needs::Target,
        not_placed,
    ),
    Case::both_ways("ULPDU_Length 0", &["ERR-04", "DDP-24"], Needs::Nothing, |b| b.short(&[])),
    Case::both_ways("ULPDU_Length 0, bad CRC", &["MPA-15", "ERR-02"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        let mut frame = link.frame(&[]);
        // RFC 5044 4.4: the CRC is checked first.
        let end = frame.len();
        frame[end - 1] ^= 1;
        b.refuses_octets(link, &frame, &[], CRC)
    }),
    Case::both_ways("ULPDU of 1 octet, tagged", &["ERR-04", "DDP-24"], Needs::Nothing, |b| {
        b.short(&[0xc1])
    }),
    Case::both_ways("ULPDU of 13 octets, tagged", &["ERR-04", "DDP-24"], Needs::Nothing, |b| {
        b.short(&frames::write(1, 0, &[])[..13])
    }),
    Case::both_ways("ULPDU of 17 octets, untagged", &["ERR-04", "DDP-24"], Needs::Nothing, |b| {
        b.short(&frames::send(1, &[])[..17])
    }),
    Case::both_ways("ULPDU_Length 65535", &["ERR-04", "MPA-16"], Needs::Nothing, too_long),
    Case::both_ways("one FPDU of 60,000 octets", &["MPA-33", "MPA-31"], Needs::Memory, |b| {
        let mut link = b.operating()?;
        let memory = b.memory(&mut link)?;
        if memory.sink.len < 60_000 {
            return skip("the peer's memory is smaller");
        }
        let octets: Vec<u8> = (0..60_000u32).map(|n| (n % 253) as u8).collect();
        link.send(&frames::write(memory.sink.stag, memory.sink.to, &octets));
        b.goes_on(&mut link)
    }),
    Case::both_ways("octets that are no FPDU", &["SEC-18", "MPA-37"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        let noise: Vec<u8> =
            (0..4096u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        link.write(&noise);
        link.fin();
        let ended = link.ends(link.patience() * 4).is_some();
        check(ended, || "the connection stays".into())
    }),
    Case::to_responder(
        "first FPDU right behind the reply",
        &["MPA-42", "MPA-31"],
        Needs::Nothing,
        at_once,
    ),
];

/// A frame whose PAD is not zero, with the CRC over it or over a PAD of zeros.
fn padded(link: &mut Link, ulpdu: &[u8], right: bool) -> Vec<u8> {
    let mut frame = link.frame(ulpdu);
    let (pad, crc) = (2 + ulpdu.len(), frame.len() - 4);
    frame[pad..crc].fill(0x5a);
    if right {
        let value = frames::crc32c(0, &frame[..crc]).to_le_bytes();
        frame[crc..].copy_from_slice(&value);
    }
    frame
}

/// A Write with a wrong CRC must not change the peer's memory.
fn not_placed(bench: &mut Bench) -> Play {
    let mut link = bench.operating()?;
    let memory = bench.memory(&mut link)?;
    let before = bench.read(&mut link, memory.source, 256)?;
    let other: Vec<u8> = before.iter().map(|octet| !octet).collect();
    let ulpdu = frames::write(memory.sink.stag, memory.sink.to, &other);
    let mut frame = link.frame(&ulpdu);
    let end = frame.len();
    frame[end - 1] ^= 1;
    bench.refuses_octets(link, &frame, &ulpdu, CRC)?;
    let mut link = bench.operating()?;
    let after = bench.read(&mut link, memory.source, 256)?;
    check(before == after, || "octets of the refused Write are in memory".into())
}

/// The longest FPDU that ULPDU_Length allows, with a correct CRC.
fn too_long(bench: &mut Bench) -> Play {
    let mut ulpdu = frames::write(1, 0, &[]);
    ulpdu.resize(usize::from(u16::MAX), 0);
    let link = bench.operating()?;
    bench.refuses(link, &ulpdu, LENGTH)
}

/// An FPDU immediately after the Reply must not be lost (RFC 5044 section 7.1.5). Any peer refuses this FPDU,
/// so that the case works with every application.
fn at_once(bench: &mut Bench) -> Play {
    const CONNECTIONS: usize = 60;
    let (mut late, mut lost) = (0, 0);
    let mut bad = Untagged::new(Opcode::Send, 1, &[]);
    bad.header.ulp = frames::rdmap(0x0c);
    for _ in 0..CONNECTIONS {
        let spec = bench.usual();
        let (mut link, _) = bench.accepted(&spec)?;
        link.send(&bad.octets());
        if link.receives_within(Duration::from_secs(1)) {
            continue;
        }
        // More octets wake a peer that has overlooked the first ones.
        link.send(&frames::write(1, 0, &[]));
        if link.receives_within(link.patience()) { late += 1 } else { lost += 1 }
    }
    check(late + lost == 0, || {
        format!("of {CONNECTIONS} first FPDUs, {late} were seen only when more came, {lost} never")
    })
}

impl Bench {
    /// A zero-length Write that is damaged.
    fn bad_crc(&mut self, damage: fn(&mut [u8])) -> Play {
        let mut link = self.operating()?;
        let ulpdu = frames::write(1, 0x0123_4567_89ab_cdef, &[]);
        let mut frame = link.frame(&ulpdu);
        damage(&mut frame);
        self.refuses_octets(link, &frame, &ulpdu, CRC)
    }

    /// A valid FPDU around a ULPDU that is shorter than its header.
    fn short(&mut self, ulpdu: &[u8]) -> Play {
        let mut link = self.operating()?;
        let frame = link.frame(ulpdu);
        self.refuses_octets(link, &frame, ulpdu, LENGTH)
    }
}
