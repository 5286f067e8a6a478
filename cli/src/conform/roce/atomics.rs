//! Cases: atomic operations, and their repetitions (InfiniBand volume 1, 9.4.5, 9.7.5.1).

use super::Case;
use super::bench::Bench;
use super::link::Link;
use super::packet::{MASK, atomic, op};
use super::peer::Range;
use crate::conform::verdict::{Needs, Play, check, fail};

const ACCESS: &[u8] = &[0x62];
const INVALID: &[u8] = &[0x61];

pub(super) const CASES: &[Case] = &[
    Case::both_ways("Fetch and Add", &["IBRC-46"], Needs::Target, |b| {
        let (mut link, place) = b.counter(40)?;
        check(add(&mut link, place, 2)? == 40, || "it did not return the original value".into())?;
        check(add(&mut link, place, u64::MAX)? == 42, || "it did not add".into())?;
        check(add(&mut link, place, 0)? == 41, || "it did not add around the end".into())
    }),
    Case::both_ways("Compare and Swap", &["IBRC-46"], Needs::Target, |b| {
        let (mut link, place) = b.counter(7)?;
        check(swap(&mut link, place, 8, 9)? == 7, || {
            "it did not return the original value".into()
        })?;
        check(swap(&mut link, place, 7, 9)? == 7, || {
            "it swapped although the value differs".into()
        })?;
        check(add(&mut link, place, 0)? == 9, || "it did not swap".into())
    }),
    Case::both_ways("a repeated atomic is not executed", &["IBRC-08"], Needs::Target, |b| {
        let (mut link, place) = b.counter(100)?;
        let operation = atomic(place.to, place.key, 1, 0);
        let packet = link.request(op::FETCH_ADD, &operation, &[]).asking();
        link.is_plain = false;
        for time in 0..3 {
            link.send(&packet);
            let original = link.original(packet.psn)?;
            check(original == 100, || {
                format!("repetition {time} returned {original}, the first one 100")
            })?;
        }
        let now = add(&mut link, place, 0)?;
        check(now == 101, || format!("the value is {now} after one addition of 1 to 100"))
    }),
    Case::both_ways("a repeated atomic after others", &["IBRC-08"], Needs::Target, repeated_later),
    Case::both_ways(
        "Reads and atomics at once, answered in order",
        &["IBRC-34"],
        Needs::Target,
        |b| {
            let (mut link, place) = b.counter(1)?;
            link.is_plain = false;
            let first = link.ask(op::FETCH_ADD, &atomic(place.to, place.key, 1, 0), &[]);
            let read = link.ask_read(place, 8);
            let second = link.ask(op::FETCH_ADD, &atomic(place.to, place.key, 1, 0), &[]);
            check(link.original(first)? == 1, || "the first atomic saw another value".into())?;
            link.responses(read, 8)?;
            check(link.original(second)? == 2, || "the second atomic saw another value".into())
        },
    ),
    Case::both_ways(
        "atomic at an address that is no multiple of 8",
        &["IBRC-16"],
        Needs::Target,
        |b| b.bad_atomic(|g| g.both.from(4), INVALID),
    ),
    Case::both_ways("atomic, unknown key", &["IBRC-15"], Needs::Target, |b| {
        b.bad_atomic(|_| Range { key: super::link::UNKNOWN, to: 0x1000, len: 8 }, ACCESS)
    }),
    Case::both_ways("atomic beyond the end", &["IBRC-15"], Needs::Target, |b| {
        b.bad_atomic(|g| g.both.from(g.both.len), ACCESS)
    }),
    Case::both_ways("atomic on memory without that right", &["IBRC-15"], Needs::Target, |b| {
        b.bad_atomic(|g| g.write_only, ACCESS)
    }),
    Case::both_ways("atomic on memory of another domain", &["IBRC-15"], Needs::Target, |b| {
        b.bad_atomic(|g| g.foreign, ACCESS)
    }),
];

fn add(link: &mut Link, place: Range, value: u64) -> Play<u64> {
    link.atomic(op::FETCH_ADD, &atomic(place.to, place.key, value, 0))
}

fn swap(link: &mut Link, place: Range, compare: u64, swap: u64) -> Play<u64> {
    link.atomic(op::COMPARE_SWAP, &atomic(place.to, place.key, swap, compare))
}

/// As many results are kept as Reads and atomics were agreed.
fn repeated_later(bench: &mut Bench) -> Play {
    let (mut link, place) = bench.counter(10)?;
    link.is_plain = false;
    let count = usize::from(link.terms.resources.clamp(1, 4));
    let first = link.psn;
    for number in 0..count {
        let original = add(&mut link, place, 1)?;
        check(original == 10 + number as u64, || format!("atomic {number} returned {original}"))?;
    }
    let end = link.psn;
    for number in 0..count {
        link.psn = first.wrapping_add(number as u32) & MASK;
        let original = add(&mut link, place, 1)?;
        if original != 10 + number as u64 {
            return fail(format!("the repetition of atomic {number} returned {original}"));
        }
    }
    link.psn = end;
    let now = add(&mut link, place, 0)?;
    check(now == 10 + count as u64, || "a repeated atomic was executed".into())
}

impl Bench {
    /// A connection, and memory that has this value in the order of the peer's machine, which the wire does not show: it is
    /// set by an atomic operation.
    fn counter(&mut self, value: u64) -> Play<(Link, Range)> {
        let mut link = self.begun()?;
        let place = self.grants(&link)?.both;
        let old = add(&mut link, place, 0)?;
        let seen = swap(&mut link, place, old, value)?;
        check(seen == old, || "a Fetch and Add of 0 changed the value".into())?;
        let now = add(&mut link, place, 0)?;
        if now != value {
            return fail(format!("a Compare and Swap of {old} for {value} left {now}"));
        }
        Ok((link, place))
    }
}
