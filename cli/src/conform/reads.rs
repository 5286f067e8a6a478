//! Cases: RDMA Read, of the peer's memory and by the peer (RFC 5040 section 5.2, RFC 5042).

use std::time::Duration;

use iwarp_proto::Stag;
use iwarp_proto::wire::rdmap::Opcode;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Tagged, Untagged};
use super::judge::Refusal;
use super::link::{Link, Seen};
use super::peer::{Memory, Range};
use super::verdict::{Needs, Play, check, fail, skip};

const READ_STAG: Refusal = Refusal::by(&[(0, 1, 0)]);
const READ_BOUNDS: Refusal = Refusal::by(&[(0, 1, 1)]);
const READ_ACCESS: Refusal = Refusal::by(&[(0, 1, 2)]);
const READ_ASSOCIATION: Refusal = Refusal::by(&[(0, 1, 3)]);
const READ_WRAP: Refusal = Refusal::by(&[(0, 1, 4), (0, 1, 1)]);
const READ_SHORT: Refusal = Refusal::by(&[(0, 2, 7), (0, 2, 0xff), (1, 0, 0)]);
const READ_LONG: Refusal = Refusal::by(&[(1, 2, 5), (0, 2, 7)]);
const READ_NOT_LAST: Refusal = Refusal::by(&[(0, 2, 7), (1, 0, 0)]);
/// DDP may find the unknown STag first (RFC 5041 section 7.1).
const READ_RESPONSE: Refusal = Refusal::by(&[(0, 2, 6), (1, 1, 0), (1, 0, 0), (0, 2, 7)]);
const UNKNOWN: u32 = 0x0bad_5700;

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "Read without octets, unknown STag",
        &["RDMAP-06", "RDMAP-05", "SEC-14"],
        Needs::Probe,
        |b| {
            let mut link = b.operating()?;
            b.goes_on(&mut link)
        },
    ),
    Case::both_ways("Read, unknown STag", &["RDMAP-07", "ERR-18"], Needs::Probe, |b| {
        b.bad_read(|_| {}, READ_STAG)
    }),
    Case::both_ways("Read, STag 0", &["RDMAP-07", "ERR-18", "VERBS-23"], Needs::Probe, |b| {
        b.bad_read(|r| r.source_stag = Stag(0), READ_STAG)
    }),
    Case::both_ways("Read, wrong key", &["RDMAP-07", "ERR-18", "VERBS-22"], Needs::Memory, |b| {
        b.bad_source(|m| Range { stag: m.source.stag ^ 0x5a, ..m.source }, 8, READ_STAG)
    }),
    Case::both_ways("Read beyond the end", &["RDMAP-07", "ERR-18", "SEC-03"], Needs::Memory, |b| {
        b.bad_source(|m| Range { to: m.source.to + m.source.len - 7, ..m.source }, 8, READ_BOUNDS)
    }),
    Case::both_ways(
        "Read before the start",
        &["RDMAP-07", "ERR-18", "SEC-03"],
        Needs::Memory,
        |b| b.bad_source(|m| Range { to: m.source.to.wrapping_sub(1), ..m.source }, 8, READ_BOUNDS),
    ),
    Case::both_ways("Read, TO wraps", &["RDMAP-07", "ERR-18"], Needs::Memory, |b| {
        b.bad_source(|m| Range { to: u64::MAX - 3, ..m.source }, 8, READ_WRAP)
    }),
    Case::both_ways(
        "Read of memory that may be written only",
        &["RDMAP-07", "ERR-18", "SEC-14"],
        Needs::Target,
        |b| b.bad_grant_read(|g| g.write_only, READ_ACCESS),
    ),
    Case::both_ways(
        "Read of memory of another zone",
        &["RDMAP-07", "ERR-18", "SEC-01"],
        Needs::Target,
        |b| b.bad_grant_read(|g| g.foreign, READ_ASSOCIATION),
    ),
    Case::both_ways("Read Request too short", &["RDMAP-04", "ERR-21"], Needs::Probe, |b| {
        b.bad_request(|s| s.payload = &s.payload[..20], READ_SHORT)
    }),
    Case::both_ways("Read Request too long", &["RDMAP-04", "ERR-22"], Needs::Probe, |b| {
        let link = b.operating()?;
        let long = [&frames::read_of(0, 1, 1).emit()[..], b"more"].concat();
        let ulpdu = Untagged::new(Opcode::ReadRequest, link.read_msn, &long).octets();
        b.refuses(link, &ulpdu, READ_LONG)
    }),
    Case::both_ways("Read Request without L", &["RDMAP-04", "ERR-23"], Needs::Probe, |b| {
        b.bad_request(|s| s.header.control.0 &= !0x40, READ_NOT_LAST)
    }),
    Case::both_ways("Read Request, MO is not 0", &["RDMAP-04", "ERR-11"], Needs::Probe, |b| {
        b.bad_request(|s| s.header.mo = 4, Refusal::by(&[(1, 2, 4)]))
    }),
    Case::both_ways(
        "Read Request on queue 0",
        &["RDMAP-02", "ERR-08", "IOP-13"],
        Needs::Probe,
        |b| b.bad_request(|s| s.header.qn = 0, Refusal::by(&[(1, 2, 1), (0, 2, 6)])),
    ),
    Case::both_ways("Read Request, MSN skips one", &["DDP-14", "ERR-10"], Needs::Probe, |b| {
        b.bad_request(|s| s.header.msn += 1, Refusal::by(&[(1, 2, 3), (1, 2, 2)]))
    }),
    Case::both_ways("Read Response unasked", &["RDMAP-10", "ERR-24"], Needs::Nothing, |b| {
        let link = b.operating()?;
        let ulpdu = Tagged::new(Opcode::ReadResponse, UNKNOWN, 0, b"1234").octets();
        b.refuses(link, &ulpdu, READ_RESPONSE)
    }),
    Case::both_ways(
        "Reads of every size, answered in order",
        &["RDMAP-05", "RDMAP-09", "RDMAP-08"],
        Needs::Memory,
        reads_in_order,
    ),
    Case::both_ways(
        "more Reads than IRD",
        &["RDMAP-11", "ERR-19", "SEC-10"],
        Needs::Memory,
        too_many_reads,
    ),
    Case::both_ways(
        "form of the peer's Read Request",
        &["RDMAP-04", "RDMAP-02", "DDP-06"],
        Needs::Reader,
        |b| {
            let mut link = b.operating()?;
            let request = b.made_to_read(&mut link)?;
            link.answer_read(&request, &[0x41; 61]);
            // The target discards it; an rping server goes on.
            match link.next_within(Duration::from_millis(300)) {
                Seen::Ulpdu(ulpdu) if answer::terminate(&ulpdu).is_some() => {
                    fail(format!("the response got a {}", answer::describe(&ulpdu)))
                }
                Seen::End(end) => fail(format!("the response got a {}", end.text())),
                _ => Ok(()),
            }
        },
    ),
    Case::both_ways("Read Response with another STag", &["DDP-15"], Needs::Reader, |b| {
        let taken = b.takes_response(|request, to| {
            Tagged::new(Opcode::ReadResponse, request ^ 0x100, to, &[1; 61])
        })?;
        check(!taken, || "it was taken".into())
    }),
    Case::both_ways(
        "Read Response with more than was asked for",
        &["RDMAP-10"],
        Needs::Reader,
        |b| {
            let long = |stag, to| Tagged::new(Opcode::ReadResponse, stag, to, &[1; 64]);
            if b.takes_response(long)? {
                // RFC 5040 5.2.2: the sink MAY compare it with its request.
                return skip("the peer takes it and need not compare it with its request");
            }
            Ok(())
        },
    ),
    Case::both_ways(
        "Read Response in front of its place",
        &["DDP-15", "SEC-03"],
        Needs::Reader,
        |b| {
            let taken = b.takes_response(|stag, to| {
                Tagged::new(Opcode::ReadResponse, stag, to.wrapping_sub(1), &[1; 61])
            })?;
            check(!taken, || "it was taken".into())
        },
    ),
    Case::both_ways(
        "Reads no more than ORD",
        &["RDMAP-11", "VERBS-15"],
        Needs::Target,
        ord_is_kept,
    ),
];

fn reads_in_order(bench: &mut Bench) -> Play {
    let mut link = bench.operating()?;
    let memory = bench.memory(&mut link)?;
    let at_once = usize::from(bench.peer.ird.unwrap_or(1).clamp(1, 8));
    let sizes: Vec<u32> = [1, 60, 64, 1000, 0, 20_000, 3, 5]
        .iter()
        .map(|s| memory.source.len.min(*s) as u32)
        .collect();
    let whole = bench.read(&mut link, memory.source, memory.source.len.min(20_000) as u32)?;
    for sizes in sizes.chunks(at_once) {
        for size in sizes {
            let msn = link.next_read_msn();
            let range = memory.source;
            link.send(&frames::read_request(msn, frames::read_of(*size, range.stag, range.to)));
        }
        for size in sizes {
            let data = bench.response(&mut link, *size)?;
            check(data[..] == whole[..data.len()], || "a Read returned other octets".into())?;
        }
    }
    Ok(())
}

/// Reads nothing from the socket, so that Reads accumulate at the peer.
fn too_many_reads(bench: &mut Bench) -> Play {
    let mut link = bench.operating()?;
    let memory = bench.memory(&mut link)?;
    let size = memory.source.len.min(128 << 10) as u32;
    let mut wire = Vec::new();
    for _ in 0..2000 {
        let msn = link.next_read_msn();
        let request = frames::read_of(size, memory.source.stag, memory.source.to);
        wire.extend(link.frame(&frames::read_request(msn, request)));
    }
    link.write(&wire);
    let mut answered = 0u64;
    loop {
        let seen = link.next_within(link.patience());
        let Seen::Ulpdu(ulpdu) = &seen else {
            return fail(format!("received {} without a Terminate", seen.text()));
        };
        match (answer::kind(ulpdu), answer::terminate(ulpdu)) {
            (_, Some(terminate)) => {
                let fits = |code: iwarp_proto::TerminateCode| {
                    [(1, 2, 2), (0, 2, 7), (1, 2, 3)].contains(&(code.layer, code.etype, code.code))
                };
                let either = fits(terminate.repr.code) || fits(terminate.swapped.code);
                return check(either, || format!("{}, expected 1/2/2", terminate.repr.code));
            }
            (Some(Opcode::ReadResponse), None) => answered += u64::from(answer::last(ulpdu)),
            _ => {}
        }
        if answered == 2000 {
            return skip("the peer responds faster than Reads can be sent");
        }
    }
}

fn ord_is_kept(bench: &mut Bench) -> Play {
    let mut spec = bench.usual();
    spec.block = Some(frames::limits(1, 4));
    let mut link = bench.started_up(&spec)?;
    let msn = link.next_send_msn();
    link.send(&frames::send(msn, &super::order::command(b'r', 5, super::peer::OUR_SOURCE.into())));
    for number in 0..5 {
        let seen = link.next();
        let request =
            if let Seen::Ulpdu(ulpdu) = &seen { answer::read_request(ulpdu) } else { None };
        let Some(request) = request else {
            return fail(format!("Read {number}: received {}", seen.text()));
        };
        let next = link.receives_within(Duration::from_millis(50));
        check(!next, || "received a second Read while one was outstanding; ORD is 1".into())?;
        link.answer_read(&request, &[0x42; 61]);
    }
    Ok(())
}

impl Bench {
    fn bad_source(&mut self, place: fn(&Memory) -> Range, size: u32, refusal: Refusal) -> Play {
        let mut link = self.operating()?;
        let place = place(&self.memory(&mut link)?);
        self.refuses_read(link, place, size, refusal)
    }

    fn refuses_read(&mut self, link: Link, place: Range, size: u32, refusal: Refusal) -> Play {
        let request = frames::read_of(size, place.stag, place.to);
        let ulpdu = frames::read_request(link.read_msn, request);
        self.refuses(link, &ulpdu, refusal)
    }

    fn bad_grant_read(
        &mut self,
        grant: fn(super::peer::Grants) -> Range,
        refusal: Refusal,
    ) -> Play {
        let link = self.operating()?;
        let place = grant(self.grants(&link)?);
        self.refuses_read(link, place, 16, refusal)
    }

    /// A Read of 16 octets from an unknown STag, with a further fault.
    fn bad_read(
        &mut self,
        spoil: fn(&mut iwarp_proto::wire::rdmap::ReadRequestRepr),
        refusal: Refusal,
    ) -> Play {
        let link = self.operating()?;
        let mut request = frames::read_of(16, UNKNOWN, 0x1000);
        spoil(&mut request);
        let ulpdu = frames::read_request(link.read_msn, request);
        self.refuses(link, &ulpdu, refusal)
    }

    /// A malformed Read Request of length 0.
    fn bad_request(&mut self, spoil: fn(&mut Untagged<'_>), refusal: Refusal) -> Play {
        let link = self.operating()?;
        let request = frames::read_of(0, 1, 1).emit();
        let mut segment = Untagged::new(Opcode::ReadRequest, link.read_msn, &request);
        spoil(&mut segment);
        self.refuses(link, &segment.octets(), refusal)
    }

    /// Whether the peer takes a response that does not match its Read.
    fn takes_response(&mut self, response: fn(u32, u64) -> Tagged<'static>) -> Play<bool> {
        let mut link = self.operating()?;
        let request = self.made_to_read(&mut link)?;
        let ulpdu = response(request.sink_stag.0, request.sink_to).octets();
        link.send(&ulpdu);
        match link.next() {
            Seen::Ulpdu(ulpdu) if answer::terminate(&ulpdu).is_some() => Ok(false),
            Seen::End(_) => fail("the connection ended without a Terminate"),
            _ => Ok(true),
        }
    }
}
