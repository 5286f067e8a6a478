//! Cases: DDP's tagged model and RDMA Write (RFC 5041 section 5, RFC 5040 section 5.1, RFC 5042).

use iwarp_proto::Stag;
use iwarp_proto::wire::rdmap::Opcode;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Tagged};
use super::judge::Refusal;
use super::link::Seen;
use super::peer::{Memory, Range};
use super::verdict::{Needs, Play, Stop, check, fail, skip};

const VERSION: Refusal = Refusal::by(&[(1, 1, 4), (1, 2, 6)]);
const OPCODE: Refusal = Refusal::by(&[(0, 2, 6)]);
const STAG: Refusal = Refusal::by(&[(1, 1, 0), (0, 1, 0)]);
const BOUNDS: Refusal = Refusal::by(&[(1, 1, 1), (0, 1, 1)]);
const WRAP: Refusal = Refusal::by(&[(1, 1, 3), (1, 1, 1), (0, 1, 4)]);
const ASSOCIATION: Refusal = Refusal::by(&[(1, 1, 2)]);
const ACCESS: Refusal = Refusal::by(&[(1, 1, 2), (1, 1, 0), (0, 1, 2)]);
const UNKNOWN: u32 = 0x0bad_5700;

pub(super) const CASES: &[Case] = &[
    Case::both_ways("DDP version 0, tagged", &["DDP-04", "ERR-05"], Needs::Nothing, |b| {
        b.bad_write(|s| s.header.control.0 &= !3, VERSION)
    }),
    Case::both_ways("DDP version 2, tagged", &["DDP-04", "ERR-05"], Needs::Nothing, |b| {
        b.bad_write(|s| s.header.control.0 = s.header.control.0 & !3 | 2, VERSION)
    }),
    Case::both_ways("Send, tagged", &["RDMAP-02", "ERR-07", "DDP-01"], Needs::Nothing, |b| {
        b.bad_write(|s| s.header.ulp = frames::rdmap(3), OPCODE)
    }),
    Case::both_ways(
        "RDMA Read Request, tagged",
        &["RDMAP-02", "ERR-07", "DDP-01"],
        Needs::Nothing,
        |b| b.bad_write(|s| s.header.ulp = frames::rdmap(1), OPCODE),
    ),
    Case::both_ways("Write, unknown STag", &["DDP-15", "ERR-13", "SEC-01"], Needs::Nothing, |b| {
        b.bad_write(|_| {}, STAG)
    }),
    Case::both_ways("Write, STag 0", &["DDP-15", "ERR-13", "VERBS-23"], Needs::Nothing, |b| {
        b.bad_write(|s| s.header.stag = Stag(0), STAG)
    }),
    Case::both_ways(
        "Write without octets, unknown STag",
        &["DDP-10", "RDMAP-15"],
        Needs::Probe,
        |b| b.empty_write(UNKNOWN),
    ),
    Case::both_ways(
        "Write without octets, STag 0",
        &["DDP-10", "VERBS-23", "IOP-07"],
        Needs::Probe,
        |b| b.empty_write(0),
    ),
    Case::both_ways("Write, reserved bits", &["DDP-03", "RDMAP-01"], Needs::Probe, |b| {
        let mut link = b.operating()?;
        let mut segment = Tagged::new(Opcode::Write, 1, 0, &[]);
        segment.header.control.0 |= 0x3c;
        segment.header.ulp |= 0x30;
        link.send(&segment.octets());
        b.goes_on(&mut link)
    }),
    Case::both_ways("Write, wrong key", &["DDP-15", "ERR-13", "VERBS-22"], Needs::Memory, |b| {
        b.bad_place(|m| Range { stag: m.sink.stag ^ 0x5a, ..m.sink }, 8, STAG)
    }),
    Case::both_ways(
        "Write, one octet beyond the end",
        &["DDP-15", "DDP-21", "ERR-14", "SEC-03"],
        Needs::Memory,
        |b| b.bad_place(|m| Range { to: m.sink.to + m.sink.len - 7, ..m.sink }, 8, BOUNDS),
    ),
    Case::both_ways(
        "Write, one octet before the start",
        &["DDP-15", "DDP-21", "ERR-14", "SEC-03"],
        Needs::Memory,
        |b| b.bad_place(|m| Range { to: m.sink.to.wrapping_sub(1), ..m.sink }, 8, BOUNDS),
    ),
    Case::both_ways("Write, TO wraps", &["DDP-15", "ERR-16"], Needs::Memory, |b| {
        b.bad_place(|m| Range { to: u64::MAX - 3, ..m.sink }, 8, WRAP)
    }),
    Case::both_ways(
        "Write to memory that may be read only",
        &["ERR-17", "SEC-04"],
        Needs::Target,
        |b| b.bad_grant_write(|g| g.read_only, ACCESS),
    ),
    Case::both_ways(
        "Write to memory of another zone",
        &["ERR-15", "SEC-01", "DDP-20"],
        Needs::Target,
        |b| b.bad_grant_write(|g| g.foreign, ASSOCIATION),
    ),
    Case::both_ways(
        "Write to the last octet",
        &["DDP-21", "SEC-03", "RDMAP-15"],
        Needs::Memory,
        |b| {
            let mut link = b.operating()?;
            let memory = b.memory(&mut link)?;
            link.send(&frames::write(memory.sink.stag, memory.sink.to + memory.sink.len - 1, b"z"));
            b.goes_on(&mut link)
        },
    ),
    Case::both_ways(
        "a Read behind a Write sees it",
        &["RDMAP-08", "DDP-08", "DDP-12", "RDMAP-16"],
        Needs::Memory,
        read_back,
    ),
    Case::both_ways(
        "second segment of a Write elsewhere",
        &["DDP-21", "SEC-05", "ERR-14"],
        Needs::Memory,
        |b| {
            let mut link = b.operating()?;
            let memory = b.memory(&mut link)?;
            let mut first = Tagged::new(Opcode::Write, memory.sink.stag, memory.sink.to, &[1; 8]);
            first.header.control.0 &= !0x40;
            link.send(&first.octets());
            let beyond = memory.sink.to + memory.sink.len;
            b.refuses(link, &frames::write(memory.sink.stag, beyond, &[1; 8]), BOUNDS)
        },
    ),
    Case::both_ways(
        "a long Write of the peer's",
        &["DDP-02", "DDP-05", "DDP-08", "DDP-09", "DDP-11"],
        Needs::Target,
        long_write,
    ),
];

fn read_back(bench: &mut Bench) -> Play {
    let mut link = bench.operating()?;
    let memory = bench.memory(&mut link)?;
    let length = memory.sink.len.min(700) as usize;
    let octets: Vec<u8> = (0..length).map(|n| (n * 7 + 3) as u8).collect();
    for (at, chunk) in [(0, &octets[..length / 3]), (length / 3, &octets[length / 3..])] {
        let to = memory.sink.to + at as u64;
        let mut segment = Tagged::new(Opcode::Write, memory.sink.stag, to, chunk);
        if at == 0 {
            segment.header.control.0 &= !0x40;
        }
        link.send(&segment.octets());
    }
    let back = match bench.read(&mut link, memory.sink, length as u32) {
        Err(Stop::Fail(text)) if text.contains("access rights") => {
            return skip("the peer's sink may not be read");
        }
        other => other?,
    };
    check(back == octets, || "the octets read are not those written".into())
}

fn long_write(bench: &mut Bench) -> Play {
    const LENGTH: u64 = 100_000;
    let mut link = bench.operating()?;
    let range = itapi::RemoteRange { len: LENGTH, ..super::peer::OUR_SOURCE.into() };
    let msn = link.next_send_msn();
    link.send(&frames::send(msn, &super::order::command(b'w', 0, range)));
    let mut octets = 0;
    loop {
        let seen = link.next();
        let Seen::Ulpdu(ulpdu) = &seen else { return fail(format!("received {}", seen.text())) };
        if answer::kind(ulpdu) != Some(Opcode::Write) {
            let all = octets == LENGTH;
            return check(all, || format!("{} after {octets} octets of a Write", seen.text()));
        }
        let Some((stag, to, payload)) = answer::tagged(ulpdu) else {
            return fail("a Write is not tagged");
        };
        check((stag, to) == (range.context.0, range.addr + octets), || {
            format!("a segment names {stag:08x} {to:016x} after {octets} octets")
        })?;
        octets += payload.len() as u64;
        check(answer::last(ulpdu) == (octets == LENGTH), || format!("L after {octets} octets"))?;
    }
}

impl Bench {
    /// A Write of 4 octets to an unknown STag, with a further fault.
    fn bad_write(&mut self, spoil: fn(&mut Tagged<'_>), refusal: Refusal) -> Play {
        let link = self.operating()?;
        let mut segment = Tagged::new(Opcode::Write, UNKNOWN, 0x1000, b"1234");
        spoil(&mut segment);
        self.refuses(link, &segment.octets(), refusal)
    }

    fn empty_write(&mut self, stag: u32) -> Play {
        let mut link = self.operating()?;
        link.send(&frames::write(stag, u64::MAX, &[]));
        self.goes_on(&mut link)
    }

    fn bad_place(&mut self, place: fn(&Memory) -> Range, length: usize, refusal: Refusal) -> Play {
        let mut link = self.operating()?;
        let place = place(&self.memory(&mut link)?);
        self.refuses(link, &frames::write(place.stag, place.to, &vec![0x66; length]), refusal)
    }

    fn bad_grant_write(
        &mut self,
        grant: fn(super::peer::Grants) -> Range,
        refusal: Refusal,
    ) -> Play {
        let link = self.operating()?;
        let place = grant(self.grants(&link)?);
        self.refuses(link, &frames::write(place.stag, place.to, b"1234"), refusal)
    }
}
