//! Cases: Immediate Data and atomics (RFC 7306). A peer without them refuses as an unknown opcode.

use iwarp_proto::Stag;
use iwarp_proto::wire::rdmap::{AtomicRequestRepr, AtomicResponseRepr, Opcode, atomic};

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Untagged};
use super::judge::Refusal;
use super::link::{Link, Seen};
use super::peer::Range;
use super::verdict::{Needs, Play, check, fail, skip};

const UNSUPPORTED: Refusal = Refusal::by(&[(0, 2, 6), (0, 2, 0xff), (0, 2, 7)]);
const LENGTH: Refusal = Refusal::by(&[(0, 2, 0xff), (0, 2, 7)]);
const QUEUE: Refusal = Refusal::by(&[(1, 2, 1), (0, 2, 6), (1, 2, 2)]);

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "Immediate Data, taken or refused",
        &["EXT-01", "EXT-16"],
        Needs::Nothing,
        |b| b.taken_or_refused(Untagged::new(Opcode::Immediate, 1, &[1; 8])),
    ),
    Case::both_ways("atomic, done or refused", &["EXT-01", "EXT-16"], Needs::Nothing, |b| {
        let request = fetch_add(Range { stag: 0x0bad_5700, to: 0, len: 8 }, 0).emit();
        b.taken_or_refused(Untagged::new(Opcode::AtomicRequest, 1, &request))
    }),
    Case::both_ways("Immediate Data", &["EXT-01", "EXT-02", "EXT-03"], Needs::Target, |b| {
        b.immediate(Opcode::Immediate)
    }),
    Case::both_ways(
        "Immediate Data with Solicited Event",
        &["EXT-01", "EXT-03"],
        Needs::Target,
        |b| b.immediate(Opcode::ImmediateSolicited),
    ),
    Case::both_ways(
        "Immediate Data of 7 octets",
        &["EXT-02", "ERR-30", "EXT-14"],
        Needs::Target,
        |b| b.bad_immediate(&[1; 7]),
    ),
    Case::both_ways(
        "Immediate Data of 9 octets",
        &["EXT-02", "ERR-30", "EXT-14"],
        Needs::Target,
        |b| b.bad_immediate(&[1; 9]),
    ),
    Case::both_ways(
        "Immediate Data without a receive buffer",
        &["EXT-03", "ERR-09"],
        Needs::Target,
        |b| {
            let mut spec = b.usual();
            spec.data = super::order::target_request(0, false);
            let link = b.started_up(&spec)?;
            let ulpdu = Untagged::new(Opcode::Immediate, 1, &[1; 8]).octets();
            b.refuses(link, &ulpdu, Refusal::by(&[(1, 2, 2)]))
        },
    ),
    Case::both_ways(
        "FetchAdd",
        &["EXT-04", "EXT-05", "EXT-06", "EXT-09", "EXT-10"],
        Needs::Target,
        |b| {
            let mut link = b.operating()?;
            let place = b.grants(&link)?.both;
            let before = b.atomic(&mut link, fetch_add(place, 5))?;
            let after = b.atomic(&mut link, fetch_add(place, 0))?;
            check(after == before.wrapping_add(5), || {
                format!("{before:#x} plus 5 became {after:#x}")
            })
        },
    ),
    Case::both_ways("FetchAdd of fields", &["EXT-06"], Needs::Target, |b| {
        let mut link = b.operating()?;
        let place = b.grants(&link)?.both;
        let before = b.atomic(&mut link, fetch_add(place, 0))?;
        let fields = 0x8000_8000_8000_8000;
        let add = AtomicRequestRepr { mask: fields, ..fetch_add(place, 0xffff_0001_8000_7fff) };
        b.atomic(&mut link, add)?;
        let after = b.atomic(&mut link, fetch_add(place, 0))?;
        let due = (0..4).fold(0, |sum, field| {
            let part = |word: u64| (word >> (16 * field)) as u16;
            sum | u64::from(part(before).wrapping_add(part(add.data))) << (16 * field)
        });
        check(after == due, || format!("{before:#x} became {after:#x}, expected {due:#x}"))
    }),
    Case::both_ways("CmpSwap", &["EXT-05", "EXT-07", "EXT-10"], Needs::Target, |b| {
        let mut link = b.operating()?;
        let place = b.grants(&link)?.both;
        let before = b.atomic(&mut link, fetch_add(place, 0))?;
        let other = b.atomic(&mut link, swap(place, !before, 1, u64::MAX))?;
        check(other == before, || "CmpSwap returned another value".into())?;
        b.atomic(&mut link, swap(place, before, 0x1122_3344, 0xffff_ffff))?;
        let after = b.atomic(&mut link, fetch_add(place, 0))?;
        let due = before & !0xffff_ffff | 0x1122_3344;
        check(after == due, || format!("{before:#x} became {after:#x}, expected {due:#x}"))
    }),
    Case::both_ways("atomics and Reads in order", &["EXT-11", "EXT-13"], Needs::Target, |b| {
        let mut link = b.operating()?;
        let place = b.grants(&link)?.both;
        for number in 0..4 {
            let msn = link.next_read_msn();
            let request = AtomicRequestRepr { request_id: number, ..fetch_add(place, 1) };
            link.send(&frames::atomic_request(msn, request));
            let msn = link.next_read_msn();
            link.send(&frames::read_request(msn, frames::read_of(8, place.stag, place.to)));
        }
        for number in 0..4 {
            let response = atomic_response(&mut link)?;
            check(response.request_id == number, || "a response out of order".into())?;
            let data = b.response(&mut link, 8)?;
            check(data.len() == 8, || "a Read is missing".into())?;
        }
        Ok(())
    }),
    Case::both_ways("atomic, not aligned", &["EXT-08", "ERR-30", "EXT-14"], Needs::Target, |b| {
        b.bad_atomic(|r| r.to += 4, Refusal::by(&[(0, 2, 7)]))
    }),
    Case::both_ways("atomic operation 1", &["EXT-05", "ERR-30", "AMB-07"], Needs::Target, |b| {
        b.bad_atomic(|r| r.operation = 1, Refusal::by(&[(0, 2, 6), (0, 2, 0xff), (0, 2, 7)]))
    }),
    Case::both_ways("atomic, unknown STag", &["EXT-15", "ERR-30", "EXT-14"], Needs::Target, |b| {
        b.bad_atomic(|r| r.stag = Stag(0x0bad_5700), Refusal::by(&[(0, 1, 0)]))
    }),
    Case::both_ways("atomic beyond the end", &["EXT-15", "ERR-30"], Needs::Target, |b| {
        b.bad_atomic(|r| r.to += 1 << 20, Refusal::by(&[(0, 1, 1)]))
    }),
    Case::both_ways(
        "atomic where it is not granted",
        &["EXT-15", "ERR-30", "SEC-04"],
        Needs::Target,
        |b| {
            let link = b.operating()?;
            let place = b.grants(&link)?.read_only;
            let ulpdu = frames::atomic_request(link.read_msn, fetch_add(place, 1));
            b.refuses(link, &ulpdu, Refusal::by(&[(0, 1, 2)]))
        },
    ),
    Case::both_ways("Atomic Response unasked", &["EXT-11", "ERR-30"], Needs::Target, |b| {
        let link = b.operating()?;
        let response = AtomicResponseRepr { request_id: 7, original: 0 }.emit();
        let ulpdu = Untagged::new(Opcode::AtomicResponse, 1, &response).octets();
        b.refuses(link, &ulpdu, Refusal::by(&[(0, 2, 6), (1, 2, 2), (0, 2, 0xff)]))
    }),
    Case::both_ways("Atomic Response on queue 0", &["EXT-17", "ERR-08"], Needs::Target, |b| {
        let link = b.operating()?;
        let response = AtomicResponseRepr { request_id: 7, original: 0 }.emit();
        let mut segment = Untagged::new(Opcode::AtomicResponse, 1, &response);
        segment.header.qn = 0;
        b.refuses(link, &segment.octets(), QUEUE)
    }),
];

fn fetch_add(place: Range, add: u64) -> AtomicRequestRepr {
    AtomicRequestRepr {
        operation: atomic::FETCH_ADD,
        request_id: 0x0a70_0001,
        stag: Stag(place.stag),
        to: place.to.next_multiple_of(8),
        data: add,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    }
}

fn swap(place: Range, compare: u64, swap: u64, mask: u64) -> AtomicRequestRepr {
    AtomicRequestRepr {
        operation: atomic::CMP_SWAP,
        data: swap,
        mask,
        compare,
        ..fetch_add(place, 0)
    }
}

fn atomic_response(link: &mut Link) -> Play<AtomicResponseRepr> {
    let seen = link.next();
    let Seen::Ulpdu(ulpdu) = &seen else {
        return fail(format!("an atomic was answered with {}", seen.text()));
    };
    let payload = answer::payload(ulpdu);
    match AtomicResponseRepr::parse(payload) {
        Ok(response)
            if answer::kind(ulpdu) == Some(Opcode::AtomicResponse) && payload.len() == 12 =>
        {
            Ok(response)
        }
        _ => fail(format!("an atomic was answered with {}", seen.text())),
    }
}

impl Bench {
    /// Expects the refusal that the RFC requires of a peer without the operation.
    fn taken_or_refused(&mut self, segment: Untagged<'_>) -> Play {
        let mut link = self.operating()?;
        let mut segment = segment;
        let send = segment.header.qn == 0;
        segment.header.msn = if send { link.send_msn } else { link.read_msn };
        let ulpdu = segment.octets();
        link.send(&ulpdu);
        match link.next_within(link.patience().min(std::time::Duration::from_secs(1))) {
            Seen::Ulpdu(first) => match answer::terminate(&first) {
                Some(terminate)
                    if terminate.repr.code.layer == 0 && terminate.repr.code.etype == 1 =>
                {
                    Ok(())
                }
                Some(_) => {
                    let link = self.operating()?;
                    self.refuses(link, &ulpdu, UNSUPPORTED)
                }
                None => Ok(()),
            },
            Seen::Nothing => skip("the peer takes it and shows nothing"),
            other => fail(format!("received {}, expected a Terminate 0/2/6", other.text())),
        }
    }

    fn immediate(&mut self, opcode: Opcode) -> Play {
        let mut link = self.operating()?;
        let msn = link.next_send_msn();
        link.send(&Untagged::new(opcode, msn, &[0x77; 8]).octets());
        let seen = link.next();
        let seen_it = matches!(&seen, Seen::Ulpdu(u) if answer::payload(u) == b"immediate");
        check(seen_it, || format!("answered with {}", seen.text()))?;
        self.send_message(&mut link, Opcode::Send, &[]);
        self.reacts(&mut link)
    }

    fn bad_immediate(&mut self, data: &[u8]) -> Play {
        let link = self.operating()?;
        let ulpdu = Untagged::new(Opcode::Immediate, link.send_msn, data).octets();
        self.refuses(link, &ulpdu, LENGTH)
    }

    /// Executes an atomic; returns the value before.
    fn atomic(&self, link: &mut Link, request: AtomicRequestRepr) -> Play<u64> {
        let msn = link.next_read_msn();
        link.send(&frames::atomic_request(msn, request));
        let response = atomic_response(link)?;
        check(response.request_id == request.request_id, || "another request's identifier".into())?;
        Ok(response.original)
    }

    /// A peer may execute an atomic only when its response is due, so nothing is sent after it.
    fn bad_atomic(&mut self, spoil: fn(&mut AtomicRequestRepr), refusal: Refusal) -> Play {
        let mut link = self.operating()?;
        let mut request = fetch_add(self.grants(&link)?.both, 1);
        spoil(&mut request);
        let ulpdu = frames::atomic_request(link.read_msn, request);
        link.send(&ulpdu);
        self.refused(&mut link, &ulpdu, refusal)
    }
}
