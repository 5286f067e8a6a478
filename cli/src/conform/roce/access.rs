//! Cases: Writes, keys, rights and bounds (InfiniBand volume 1, 9.4.3, 9.7.4, 10.6).

use super::Case;
use super::bench::Bench;
use super::link::{Link, UNKNOWN};
use super::packet::{atomic, op, reth};
use super::peer::{Grants, Memory, Range};
use crate::conform::verdict::{Needs, Play, Stop, check, fail, skip};

const ACCESS: &[u8] = &[0x62];
const INVALID: &[u8] = &[0x61];

pub(super) const CASES: &[Case] = &[
    Case::both_ways("Write of no octets, unknown key", &["IBRC-31"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        if link.terms.writes {
            return link.goes_on();
        }
        let psn = link.ask(op::WRITE_ONLY, &reth(u64::MAX - 3, UNKNOWN, 0), &[]);
        match link.refused(psn, ACCESS) {
            Ok(()) => fail("its key was checked, although it has no octets"),
            Err(_) => skip("the peer takes no Writes"),
        }
    }),
    Case::both_ways(
        "Writes of every length",
        &["IBRC-02", "IBRC-03", "IBRC-18"],
        Needs::Memory,
        every_length,
    ),
    Case::both_ways("Write, unknown key", &["IBRC-15", "IBRC-30"], Needs::Probe, |b| {
        b.bad_write(|_| Range { key: UNKNOWN, to: 0x1000, len: 8 })
    }),
    Case::both_ways("Write, key 0", &["IBRC-15"], Needs::Probe, |b| {
        b.bad_write(|_| Range { key: 0, to: 0x1000, len: 8 })
    }),
    Case::both_ways("Write, wrong key", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_place(|m| Range { key: m.sink.key ^ 0x5a, ..m.sink })
    }),
    Case::both_ways("Write beyond the end", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_place(|m| m.sink.from(m.sink.len - 7))
    }),
    Case::both_ways("Write behind the end", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_place(|m| m.sink.from(m.sink.len))
    }),
    Case::both_ways("Write before the start", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_place(|m| Range { to: m.sink.to.wrapping_sub(1), ..m.sink })
    }),
    Case::both_ways("Write, the address wraps", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_place(|m| Range { to: u64::MAX - 3, ..m.sink })
    }),
    Case::both_ways("Write whose length goes beyond the end", &["IBRC-15"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        let mtu = link.terms.mtu;
        if memory.sink.len > u64::from(u32::MAX) / 2 {
            return skip("the peer's memory is too large");
        }
        // The first packet lies within.
        let header = reth(memory.sink.to, memory.sink.key, memory.sink.len as u32 + 1);
        let payload = vec![0x77; mtu.min(memory.sink.len as usize)];
        if payload.len() < mtu {
            return skip("the peer's memory is shorter than a packet");
        }
        link.ask(op::WRITE_FIRST, &header, &payload);
        let psn = link.psn.wrapping_sub(1) & super::packet::MASK;
        link.refused(psn, ACCESS)
    }),
    Case::both_ways("Write to memory that may be read only", &["IBRC-15"], Needs::Target, |b| {
        b.bad_grant(|g| g.read_only)
    }),
    Case::both_ways("Write to memory of another domain", &["IBRC-15"], Needs::Target, |b| {
        b.bad_grant(|g| g.foreign)
    }),
    Case::both_ways("Write of fewer octets than the RETH says", &["IBRC-18"], Needs::Memory, |b| {
        b.bad_length(16, &[12])
    }),
    Case::both_ways("Write of more octets than the RETH says", &["IBRC-18"], Needs::Memory, |b| {
        b.bad_length(8, &[12])
    }),
    Case::both_ways("Write of two packets, too short", &["IBRC-18"], Needs::Memory, |b| {
        b.bad_length(2100, &[1024, 1000])
    }),
    Case::both_ways("Write of two packets, too long", &["IBRC-18"], Needs::Memory, |b| {
        b.bad_length(1100, &[1024, 100])
    }),
    Case::both_ways("Write First shorter than the path MTU", &["IBRC-02"], Needs::Memory, |b| {
        b.bad_packets(&[(op::WRITE_FIRST, -4)])
    }),
    Case::both_ways("Write Middle shorter than the path MTU", &["IBRC-02"], Needs::Memory, |b| {
        b.bad_packets(&[(op::WRITE_FIRST, 0), (op::WRITE_MIDDLE, -4)])
    }),
    Case::both_ways("Write Last longer than the path MTU", &["IBRC-03"], Needs::Memory, |b| {
        b.bad_packets(&[(op::WRITE_FIRST, 0), (op::WRITE_LAST, 4)])
    }),
    Case::both_ways("Write Only longer than the path MTU", &["IBRC-03"], Needs::Memory, |b| {
        b.bad_packets(&[(op::WRITE_ONLY, 4)])
    }),
    Case::both_ways("Write Middle without First", &["IBRC-04"], Needs::Memory, |b| {
        b.bad_packets(&[(op::WRITE_MIDDLE, 0)])
    }),
    Case::both_ways("Write of 4 GiB", &["IBRC-15"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        let (header, mtu) = (reth(memory.sink.to, memory.sink.key, u32::MAX), link.terms.mtu);
        let psn = link.ask(op::WRITE_FIRST, &header, &vec![0x77; mtu]);
        link.refused(psn, &[0x62, 0x61])
    }),
    Case::both_ways("after a refusal nothing is executed", &["IBRC-32"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let grants = b.grants(&link)?;
        let before = link.read(grants.own, 8)?;
        let psn = link.ask(op::WRITE_ONLY, &reth(0x1000, UNKNOWN, 8), b"refused!");
        link.refused(psn, ACCESS)?;
        link.psn = psn;
        link.write(grants.both.from(64), b"after it");
        let words = b.words();
        link.send_message(&words);
        b.does_not_react(&mut link, "a request after a refused one")?;
        drop(link);
        let mut link = b.begun()?;
        let back = link.read(grants.both.from(64), 8)?;
        check(back != b"after it" && before.len() == 8, || {
            "a Write after a refused one was executed".into()
        })
    }),
    Case::both_ways("a refused Write changes nothing", &["IBRC-15"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let grants = b.grants(&link)?;
        let before = link.read(grants.read_only, 8)?;
        let psn = link.write(grants.read_only, b"changed!");
        link.refused(psn, ACCESS)?;
        drop(link);
        let mut link = b.begun()?;
        let back = link.read(grants.read_only, 8)?;
        check(back == before, || "the memory was written all the same".into())
    }),
    Case::both_ways(
        "a Write that goes beyond the end changes nothing",
        &["IBRC-15"],
        Needs::Target,
        |b| {
            let mut link = b.begun()?;
            let grants = b.grants(&link)?;
            let end = grants.both.from(grants.both.len - 4);
            let before = link.read(end, 4)?;
            let psn = link.write(end, b"beyond..");
            link.refused(psn, ACCESS)?;
            drop(link);
            let back = b.begun()?.read(end, 4)?;
            check(back == before, || "the memory before the end was written".into())
        },
    ),
];

fn every_length(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let mtu = link.terms.mtu;
    for length in [1, 2, 3, 4, 5, 60, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 3] {
        let length = length.min(memory.sink.len as usize);
        let octets: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        let psn = link.write(memory.sink, &octets);
        link.acknowledged(psn)?;
        let back = read_back(&mut link, memory.sink, length as u32)?;
        check(back == octets, || format!("a Write of {length} octets left others"))?;
    }
    Ok(())
}

/// Reads memory that was written; a sink may be one that nobody may read.
pub(super) fn read_back(link: &mut Link, range: Range, length: u32) -> Play<Vec<u8>> {
    match link.read(range, length) {
        Err(Stop::Fail(text)) if text.contains("remote access error") => {
            skip("the peer's sink may not be read")
        }
        other => other,
    }
}

impl Bench {
    fn bad_write(&mut self, place: fn(()) -> Range) -> Play {
        let mut link = self.begun()?;
        if !link.terms.writes {
            return skip("the peer takes no Writes");
        }
        let psn = link.write(place(()), b"12345678");
        link.refused(psn, ACCESS)
    }

    fn bad_place(&mut self, place: fn(&Memory) -> Range) -> Play {
        let mut link = self.begun()?;
        let place = place(&self.memory(&mut link)?);
        let psn = link.write(place, b"12345678");
        link.refused(psn, ACCESS)
    }

    fn bad_grant(&mut self, grant: fn(Grants) -> Range) -> Play {
        let mut link = self.begun()?;
        let place = grant(self.grants(&link)?);
        let psn = link.write(place, b"12345678");
        link.refused(psn, ACCESS)
    }

    /// A Write of packets with these sizes, which names `length` octets: the last packet must be refused.
    fn bad_length(&mut self, length: u32, sizes: &[usize]) -> Play {
        let mut link = self.begun()?;
        let memory = self.memory(&mut link)?;
        if u64::from(length) > memory.sink.len {
            return skip("the peer's memory is too short");
        }
        if sizes.len() > 1 && link.terms.mtu != sizes[0] {
            return skip("needs a path MTU of 1024");
        }
        let header = reth(memory.sink.to, memory.sink.key, length);
        let mut psn = link.psn;
        for (at, size) in sizes.iter().enumerate() {
            let opcode = match (at, sizes.len()) {
                (0, 1) => op::WRITE_ONLY,
                (0, _) => op::WRITE_FIRST,
                _ => op::WRITE_LAST,
            };
            let header = if at == 0 { &header[..] } else { &[] };
            psn = link.ask(opcode, header, &vec![0x66; *size]);
        }
        link.refused(psn, INVALID)
    }

    /// Packets of one Write, each as much longer than the path MTU as given; the last must be refused.
    fn bad_packets(&mut self, packets: &[(u8, i32)]) -> Play {
        let mut link = self.begun()?;
        let memory = self.memory(&mut link)?;
        let (mtu, mut psn) = (link.terms.mtu as i32, link.psn);
        let sizes: Vec<_> = packets.iter().map(|(_, more)| (mtu + more) as usize).collect();
        let ends = matches!(packets[packets.len() - 1].0, op::WRITE_LAST | op::WRITE_ONLY);
        let length = sizes.iter().sum::<usize>() + if ends { 0 } else { mtu as usize };
        if memory.sink.len < length as u64 {
            return skip("the peer's memory is too short");
        }
        for ((opcode, _), size) in packets.iter().zip(&sizes) {
            let begins = matches!(*opcode, op::WRITE_FIRST | op::WRITE_ONLY);
            let header = reth(memory.sink.to, memory.sink.key, length as u32);
            let header = if begins { &header[..] } else { &[] };
            psn = link.ask(*opcode, header, &vec![0x66; *size]);
        }
        link.refused(psn, INVALID)
    }

    /// An atomic operation that must be refused.
    pub(super) fn bad_atomic(&mut self, place: fn(Grants) -> Range, codes: &[u8]) -> Play {
        let mut link = self.begun()?;
        let place = place(self.grants(&link)?);
        link.is_plain = false;
        let psn = link.ask(op::FETCH_ADD, &atomic(place.to, place.key, 1, 0), &[]);
        link.refused(psn, codes)
    }
}
