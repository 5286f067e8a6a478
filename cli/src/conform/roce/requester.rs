//! Cases: what the peer's requester does when packets are lost, late or refused (InfiniBand volume 1, 9.7.5, 9.7.6, 9.9.2).

use std::time::{Duration, Instant};

use super::Case;
use super::bench::Bench;
use super::link::Link;
use super::packet::{Arrived, MASK, after, op};
use super::peer::{Kind, ours};
use crate::conform::verdict::{Needs, Play, check, fail, skip};

/// The retry count that the tester asks for.
const RETRIES: u32 = 7;
/// Within this time a request that is not complete is repeated.
const ANSWERED: Duration = Duration::from_millis(700);
/// For so long a busy peer may repeat what the tester has already acknowledged.
const CROSSED: Duration = Duration::from_millis(250);
/// A peer that sends nothing for so long has given up.
const GIVEN_UP: Duration = Duration::from_secs(3);

pub(super) const CASES: &[Case] = &[
    Case::both_ways("a Read without response is repeated", &["IBRC-49"], Needs::Reader, |b| {
        let (mut link, first) = b.reading(61)?;
        let again = repeated(&mut link, &first)?;
        link.respond(again.psn, &[0x41; 61], 0..1);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways(
        "a lost response within a Read",
        &["IBRC-49", "IBRC-38"],
        Needs::Target,
        lost_response,
    ),
    Case::both_ways("a damaged response is dropped", &["ROCE-06", "IBRC-49"], Needs::Reader, |b| {
        let (mut link, first) = b.reading(61)?;
        let header = super::packet::aeth(0x1f, 1);
        let qpn = link.terms.peer_qpn;
        let packet = super::packet::Packet::new(op::RESPONSE_ONLY, qpn, first.psn, &[7; 61]);
        let mut octets = link.wire.sealed(&packet.with(&header));
        octets[20] ^= 1;
        link.wire.raw(link.wire.there(), &octets);
        let again = repeated(&mut link, &first)?;
        link.respond(again.psn, &[0x41; 61], 0..1);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("a response with another PSN", &["IBRC-36", "IBRC-49"], Needs::Reader, |b| {
        let (mut link, first) = b.reading(61)?;
        link.respond(first.psn.wrapping_add(5) & MASK, &[0x13; 61], 0..1);
        let again = repeated(&mut link, &first)?;
        link.respond(again.psn, &[0x41; 61], 0..1);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("an unacknowledged Send is repeated", &["IBRC-49"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        repeated(&mut link, &first)?;
        link.finish(&first);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("repetitions are bounded", &["IBRC-12"], Needs::Target, bounded),
    Case::both_ways(
        "a NAK in the middle: from there on again",
        &["IBRC-49", "IBRC-50"],
        Needs::Target,
        nak_within,
    ),
    Case::both_ways(
        "an acknowledgement in the middle, then a NAK",
        &["IBRC-10", "IBRC-50"],
        Needs::Target,
        |b| {
            let (mut link, all) = b.writing()?;
            link.acknowledge(all[0].psn);
            link.reply(all[2].psn, 0x60);
            let again = next_new(&mut link)?;
            check(again.psn == all[2].psn, || {
                format!("after a NAK of {} came {}", all[2].psn, again.text())
            })?;
            finish_all(&mut link, &all)
        },
    ),
    Case::both_ways("one acknowledgement for several requests", &["IBRC-10"], Needs::Target, |b| {
        let mut link = b.begun()?;
        link.is_prompt = false;
        b.command(&mut link, b's', 1, ours(0));
        b.command(&mut link, b's', 1, ours(0));
        let first = next_new(&mut link)?;
        link.took(&first);
        let second = next_new(&mut link)?;
        if second.psn == first.psn {
            return skip("the peer sends one message at a time");
        }
        link.finish(&second);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("an acknowledgement of what was not sent", &["IBRC-36"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        link.acknowledge(first.psn.wrapping_add(100) & MASK);
        repeated(&mut link, &first)?;
        link.finish(&first);
        b.obeys_by_hand(&mut link)
    }),
    Case::both_ways("an old acknowledgement", &["IBRC-36"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        link.finish(&first);
        b.command(&mut link, b's', 1, ours(0));
        let second = next_new(&mut link)?;
        link.acknowledge(first.psn);
        repeated(&mut link, &second)?;
        link.finish(&second);
        quiet_about(&mut link, second.psn)
    }),
    Case::both_ways("an old NAK", &["IBRC-36"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        link.finish(&first);
        link.reply(first.psn, 0x60);
        link.reply(first.psn.wrapping_sub(1) & MASK, 0x62);
        quiet_about(&mut link, first.psn)?;
        b.obeys_by_hand(&mut link)
    }),
    Case::both_ways("a damaged acknowledgement is dropped", &["ROCE-06"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        let header = super::packet::aeth(0x1f, 1);
        let qpn = link.terms.peer_qpn;
        let packet = super::packet::Packet::new(op::ACKNOWLEDGE, qpn, first.psn, &[]).with(&header);
        let mut octets = link.wire.sealed(&packet);
        let end = octets.len() - 1;
        octets[end] ^= 0x80;
        link.wire.raw(link.wire.there(), &octets);
        repeated(&mut link, &first)?;
        link.finish(&first);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("RNR NAK: again after its time", &["IBRC-13"], Needs::Target, |b| {
        rnr(b, 25, 61)
    }),
    Case::both_ways("RNR NAK with timer 0: again after 655 ms", &["IBRC-13"], Needs::Target, |b| {
        rnr(b, 0, 655)
    }),
    Case::to_responder("RNR NAKs beyond the count", &["IBRC-13"], Needs::Target, rnr_count),
    Case::both_ways("NAK: invalid request", &["IBRC-37"], Needs::Target, |b| refused(b, 0x61)),
    Case::both_ways("NAK: remote access error", &["IBRC-37"], Needs::Target, |b| refused(b, 0x62)),
    Case::both_ways("NAK: remote operational error", &["IBRC-37"], Needs::Target, |b| {
        refused(b, 0x63)
    }),
    Case::both_ways(
        "a Read is acknowledged without its response",
        &["IBRC-11"],
        Needs::Target,
        |b| {
            let (mut link, read) = b.reading(61)?;
            b.command(&mut link, b's', 1, ours(0));
            let send = next_new(&mut link)?;
            if send.psn == read.psn {
                return skip("the peer sends nothing behind a Read");
            }
            link.took(&send);
            link.acknowledge(send.psn);
            let again = repeated(&mut link, &read)?;
            link.respond(again.psn, &[0x41; 61], 0..1);
            link.acknowledge(send.psn);
            quiet_about(&mut link, read.psn)
        },
    ),
    Case::both_ways("an atomic without response is repeated", &["IBRC-49"], Needs::Target, |b| {
        let mut link = b.begun()?;
        link.is_prompt = false;
        b.command(&mut link, b'f', 0, ours(8));
        let first = next_new(&mut link)?;
        check(first.opcode == op::FETCH_ADD, || format!("the peer sent {}", first.text()))?;
        link.took(&first);
        let again = repeated(&mut link, &first)?;
        check(again.operands() == first.operands(), || "with another value".into())?;
        link.finish_atomic(first.psn, 1);
        quiet_about(&mut link, first.psn)
    }),
    Case::both_ways("acknowledgements that are repeated", &["IBRC-36"], Needs::Target, |b| {
        let (mut link, first) = b.sending(1)?;
        for _ in 0..3 {
            link.acknowledge(first.psn);
        }
        link.is_prompt = true;
        b.still_obeys(&mut link)
    }),
    Case::both_ways("after all this the peer still serves", &["IBRC-51"], Needs::Nothing, |b| {
        let mut link = b.begun()?;
        if b.peer.probes { link.goes_on() } else { Ok(()) }
    }),
];

/// The next request, whatever it is.
fn next_new(link: &mut Link) -> Play<Arrived> {
    let until = Instant::now() + link.patience;
    loop {
        match link.next_request(until.saturating_duration_since(Instant::now())) {
            Some(packet) if packet.opcode == op::CNP => {}
            Some(packet) => return Ok(packet),
            None => return fail("the peer sent no request"),
        }
    }
}

/// The repetition of a request, which must be equal. Requests behind it are passed over; a Read may go on from within.
fn repeated(link: &mut Link, first: &Arrived) -> Play<Arrived> {
    let until = Instant::now() + link.patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Some(packet) = link.next_request(left) else {
            return fail(format!("{} was not repeated", first.text()));
        };
        if packet.psn != first.psn {
            continue;
        }
        let same = (packet.opcode, &packet.extended, &packet.payload)
            == (first.opcode, &first.extended, &first.payload);
        check(same, || format!("{} was repeated as {}", first.text(), packet.text()))?;
        return Ok(packet);
    }
}

/// Fails if a request that is complete is repeated. One that was sent before our acknowledgement arrived is allowed.
fn quiet_about(link: &mut Link, psn: u32) -> Play {
    let begun = Instant::now();
    while let Some(packet) = link.next_request(ANSWERED.saturating_sub(begun.elapsed())) {
        if packet.psn == psn && begun.elapsed() > CROSSED {
            return fail(format!("{} was repeated although it is answered", packet.text()));
        }
    }
    Ok(())
}

fn finish_all(link: &mut Link, all: &[Arrived]) -> Play {
    let Some(last) = all.last() else { return Ok(()) };
    link.acknowledge(last.psn);
    quiet_about(link, last.psn)
}

fn lost_response(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let mtu = link.terms.mtu;
    let length = 3 * mtu;
    link.is_prompt = false;
    bench.command(&mut link, b'r', 1, ours(length as u64));
    let first = next_new(&mut link)?;
    if first.opcode != op::READ_REQUEST || first.reth().2 as usize != length {
        return skip("the peer reads in parts");
    }
    let data: Vec<u8> = (0..length).map(|at| at as u8).collect();
    link.took(&first);
    link.respond(first.psn, &data, 0..1);
    link.respond(first.psn, &data, 2..3);
    let again = next_new(&mut link)?;
    let at = after(again.psn, first.psn);
    let (address, key, part) = again.reth();
    let (from, old_key, _) = first.reth();
    let skipped = at.max(0) as usize * mtu;
    let right = again.opcode == op::READ_REQUEST
        && (0..=1).contains(&at)
        && (address, key, part as usize) == (from + skipped as u64, old_key, length - skipped);
    check(right, || format!("after a lost response came {} for {part} octets", again.text()))?;
    link.respond(again.psn, &data[skipped..], 0..usize::MAX);
    quiet_about(&mut link, again.psn)?;
    bench.obeys_by_hand(&mut link)
}

fn bounded(bench: &mut Bench) -> Play {
    let (mut link, first) = bench.sending(1)?;
    let mut count = 0;
    while let Some(packet) = link.next_request(GIVEN_UP) {
        check(packet.psn == first.psn, || format!("meanwhile came {}", packet.text()))?;
        count += 1;
        if count > RETRIES + 1 {
            return fail(format!("{count} repetitions, {RETRIES} were agreed"));
        }
    }
    check(count > 0, || "no repetition at all".into())
}

fn nak_within(bench: &mut Bench) -> Play {
    let (mut link, all) = bench.writing()?;
    link.reply(all[1].psn, 0x60);
    for old in &all[1..] {
        let again = next_new(&mut link)?;
        let same = (again.psn, again.opcode, &again.payload) == (old.psn, old.opcode, &old.payload);
        if !same {
            let text = format!("{} was repeated as {}", old.text(), again.text());
            link.record().broken(&["IBRC-50"], text.clone());
            return fail(text);
        }
    }
    finish_all(&mut link, &all)
}

fn rnr(bench: &mut Bench, timer: u8, milliseconds: u64) -> Play {
    let (mut link, first) = bench.sending(1)?;
    link.served -= 1;
    link.reply(first.psn, 0x20 | timer);
    let begun = Instant::now();
    let again = repeated(&mut link, &first)?;
    let waited = begun.elapsed();
    check(waited >= Duration::from_millis(milliseconds), || {
        format!("it was repeated after {} ms, asked for {milliseconds}", waited.as_millis())
    })?;
    link.served += 1;
    link.finish(&again);
    quiet_about(&mut link, first.psn)
}

fn rnr_count(bench: &mut Bench) -> Play {
    const COUNT: u32 = 2;
    let mut req = bench.usual();
    req.rnr_retry_count = COUNT as u8;
    let mut link = bench.connected(&req)?;
    link.is_prompt = false;
    bench.command(&mut link, b's', 1, ours(0));
    let first = next_new(&mut link)?;
    link.reply(first.psn, 0x21);
    let mut count = 0;
    while let Some(packet) = link.next_request(Duration::from_secs(1)) {
        count += 1;
        if count > COUNT {
            return fail(format!("{count} repetitions after RNR NAKs, {COUNT} were agreed"));
        }
        link.reply(packet.psn, 0x21);
    }
    check(count == COUNT, || format!("{count} repetitions after RNR NAKs, {COUNT} were agreed"))
}

fn refused(bench: &mut Bench, code: u8) -> Play {
    let (mut link, first) = bench.sending(1)?;
    link.reply(first.psn, code);
    link.peer_stops(code)?;
    // Nothing that it is asked for is executed any more.
    let words = bench.words();
    link.send_message(&words);
    link.peer_stops(code)
}

impl Bench {
    /// A connection on which the peer reads our memory; nothing is answered.
    fn reading(&mut self, length: u64) -> Play<(Link, Arrived)> {
        let mut link = self.begun()?;
        link.is_prompt = false;
        self.made_to_read(&mut link, length)?;
        let first = next_new(&mut link)?;
        check(first.opcode == op::READ_REQUEST, || {
            format!("commanded to read, the peer sent {}", first.text())
        })?;
        link.took(&first);
        Ok((link, first))
    }

    /// A connection on which the peer sends a message; nothing is answered.
    fn sending(&mut self, number: u8) -> Play<(Link, Arrived)> {
        let mut link = self.begun()?;
        link.is_prompt = false;
        self.command(&mut link, b's', number, ours(0));
        let first = next_new(&mut link)?;
        check(first.opcode == op::SEND_ONLY, || {
            format!("commanded to send, the peer sent {}", first.text())
        })?;
        link.took(&first);
        Ok((link, first))
    }

    /// The packets of a Write of the peer's and of the Send behind it; nothing is answered.
    fn writing(&mut self) -> Play<(Link, Vec<Arrived>)> {
        let mut link = self.begun()?;
        link.is_prompt = false;
        let length = 3 * link.terms.mtu as u64 + 5;
        self.command(&mut link, b'w', 0, ours(length));
        let mut all: Vec<Arrived> = Vec::new();
        while all.last().is_none_or(|packet| packet.opcode != op::SEND_ONLY) {
            let packet = next_new(&mut link)?;
            if all.last().is_some_and(|last| after(packet.psn, last.psn) != 1) {
                return skip("the peer sends fewer packets at once");
            }
            link.took(&packet);
            all.push(packet);
        }
        check(all.len() >= 5, || {
            format!("a Write of {length} octets in {} packets", all.len() - 1)
        })?;
        Ok((link, all))
    }

    /// Fails unless the target still executes commands, on a link that is not prompt.
    fn obeys_by_hand(&self, link: &mut Link) -> Play {
        if self.peer.kind != Kind::Target {
            return Ok(());
        }
        link.is_prompt = true;
        link.is_plain = false;
        self.still_obeys(link)
    }
}

impl Link {
    /// Acknowledges a request that was counted.
    fn finish(&self, packet: &Arrived) {
        self.acknowledge(packet.psn);
    }
}
