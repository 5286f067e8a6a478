//! Cases: RDMA Reads of the peer's memory (InfiniBand volume 1, 9.4.4, 9.7.5).

use super::Case;
use super::bench::Bench;
use super::link::UNKNOWN;
use super::packet::{MASK, op};
use super::peer::{Grants, Memory, Range};
use crate::conform::verdict::{Needs, Play, check, fail, skip};

const ACCESS: &[u8] = &[0x62];

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "Read of no octets, unknown key",
        &["IBRC-31", "IBRC-09"],
        Needs::Memory,
        |b| {
            let mut link = b.begun()?;
            b.memory(&mut link)?;
            let nowhere = Range { key: UNKNOWN, to: u64::MAX - 3, len: 0 };
            let data = link.read(nowhere, 0)?;
            check(data.is_empty(), || "a Read of no octets returned some".into())?;
            link.goes_on()
        },
    ),
    Case::both_ways(
        "Reads of every length",
        &["IBRC-09", "IBRC-26", "IBRC-29", "ROCE-03"],
        Needs::Memory,
        every_length,
    ),
    Case::both_ways("Reads from every place", &["IBRC-45"], Needs::Memory, every_place),
    Case::both_ways("several Reads are answered in order", &["IBRC-34"], Needs::Memory, several),
    Case::both_ways("Read and Write in order", &["IBRC-34", "IBRC-45"], Needs::Memory, mixed),
    Case::both_ways("Read, unknown key", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_read(|_| Range { key: UNKNOWN, to: 0x1000, len: 16 })
    }),
    Case::both_ways("Read, wrong key", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_read(|m| Range { key: m.source.key ^ 0x5a, ..m.source })
    }),
    Case::both_ways("Read beyond the end", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_read(|m| m.source.from(m.source.len - 15))
    }),
    Case::both_ways("Read before the start", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_read(|m| Range { to: m.source.to.wrapping_sub(1), ..m.source })
    }),
    Case::both_ways("Read, the address wraps", &["IBRC-15"], Needs::Memory, |b| {
        b.bad_read(|m| Range { to: u64::MAX - 7, ..m.source })
    }),
    Case::both_ways("Read of memory that may be written only", &["IBRC-15"], Needs::Target, |b| {
        b.bad_grant_read(|g| g.write_only)
    }),
    Case::both_ways("Read of memory of another domain", &["IBRC-15"], Needs::Target, |b| {
        b.bad_grant_read(|g| g.foreign)
    }),
    Case::both_ways("a repeated Read is executed again", &["IBRC-07"], Needs::Memory, repeated),
    Case::both_ways("a Read repeated from within", &["IBRC-07"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        let mtu = link.terms.mtu as u64;
        if memory.source.len < 4 * mtu {
            return skip("the peer's memory is shorter than four packets");
        }
        let psn = link.ask_read(memory.source, 4 * mtu as u32);
        let whole = link.responses(psn, 4 * mtu as u32)?;
        let end = link.psn;
        // The last two responses, as if they were lost.
        link.psn = psn.wrapping_add(2) & MASK;
        let again = link.ask_read(memory.source.from(2 * mtu), 2 * mtu as u32);
        let part = link.responses(again, 2 * mtu as u32)?;
        check(part == whole[2 * mtu as usize..], || "other octets than the first time".into())?;
        link.psn = end;
        link.goes_on()
    }),
    Case::both_ways("a repeated Read sees later Writes", &["IBRC-07"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        if memory.source != memory.sink {
            return skip("the peer's memory that may be read is not the one that may be written");
        }
        let psn = link.ask_read(memory.source, 8);
        link.responses(psn, 8)?;
        let write = link.write(memory.sink, b"inbetwee");
        link.acknowledged(write)?;
        let end = link.psn;
        link.psn = psn;
        let again = link.ask_read(memory.source, 8);
        link.responses(again, 8)?;
        link.psn = end;
        link.goes_on()
    }),
];

fn every_length(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let mtu = link.terms.mtu as u32;
    let longest = (memory.source.len).min(u64::from(8 * mtu)) as u32;
    let whole = link.read(memory.source, longest)?;
    for length in [0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5] {
        let length = length.min(longest);
        let data = link.read(memory.source, length)?;
        check(data[..] == whole[..length as usize], || {
            format!("a Read of {length} octets returned others")
        })?;
    }
    link.goes_on()
}

fn every_place(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let longest = (memory.source.len).min(2000);
    let whole = link.read(memory.source, longest as u32)?;
    for at in [0, 1, 3, longest / 2, longest - 5] {
        let data = link.read(memory.source.from(at), 5)?;
        check(data[..] == whole[at as usize..][..5], || {
            format!("a Read from octet {at} returned others")
        })?;
    }
    Ok(())
}

fn several(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let mtu = link.terms.mtu as u32;
    let longest = memory.source.len.min(u64::from(3 * mtu)) as u32;
    let whole = link.read(memory.source, longest)?;
    let at_once = usize::from(link.terms.resources.clamp(1, 4));
    for sizes in [longest, 8, mtu.min(longest), 1].chunks(at_once) {
        let asked: Vec<_> =
            sizes.iter().map(|size| (link.ask_read(memory.source, *size), *size)).collect();
        for (psn, size) in asked {
            let data = link.responses(psn, size)?;
            check(data[..] == whole[..size as usize], || "a Read returned other octets".into())?;
        }
    }
    Ok(())
}

/// Both are under way at once: the Read before the Write sees the old octets, the one after it the new ones.
fn mixed(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    if memory.source != memory.sink || link.terms.resources < 2 {
        return skip("needs memory that may be read and written, and two Reads at once");
    }
    let psn = link.write(memory.sink, b"old octets");
    link.acknowledged(psn)?;
    let write = link.write(memory.sink, b"new octets");
    let after = link.ask_read(memory.sink, 10);
    let data = link.responses(after, 10)?;
    check(data == b"new octets", || "a Read behind a Write saw what was before it".into())?;
    // The response acknowledged the Write before it.
    check(link.psn == write.wrapping_add(2) & MASK, || "the tester miscounts".into())?;
    link.goes_on()
}

fn repeated(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let length = memory.source.len.min(2500) as u32;
    let psn = link.ask_read(memory.source, length);
    let first = link.responses(psn, length)?;
    let end = link.psn;
    link.psn = psn;
    let again = link.ask_read(memory.source, length);
    let second = link.responses(again, length)?;
    link.psn = end;
    check(first == second, || "other octets than the first time".into())?;
    if let Some(packet) = link.response(super::link::QUIET)
        && packet.opcode != op::ACKNOWLEDGE
    {
        return fail(format!("after a repeated Read came {}", packet.text()));
    }
    link.goes_on()
}

impl Bench {
    fn bad_read(&mut self, place: fn(&Memory) -> Range) -> Play {
        let mut link = self.begun()?;
        let place = place(&self.memory(&mut link)?);
        let psn = link.ask_read(place, 16);
        link.refused(psn, ACCESS)
    }

    fn bad_grant_read(&mut self, grant: fn(Grants) -> Range) -> Play {
        let mut link = self.begun()?;
        let place = grant(self.grants(&link)?);
        let psn = link.ask_read(place, 16);
        link.refused(psn, ACCESS)
    }
}
