//! Cases: the order of PSNs and repetitions at the peer's responder (InfiniBand volume 1, 9.7.1 to 9.7.5).

use roce_proto::psn::Psn;

use super::Case;
use super::bench::Bench;
use super::link::Link;
use super::packet::{MASK, Packet, op, reth};
use crate::conform::verdict::{Needs, Play, check, fail, skip};

const SEQUENCE: &[u8] = &[0x60];

pub(super) const CASES: &[Case] = &[
    Case::both_ways(
        "a request is acknowledged",
        &["IBRC-10", "IBRC-28", "IBRC-41"],
        Needs::Probe,
        |b| b.begun()?.goes_on(),
    ),
    Case::both_ways("several requests, one acknowledgement", &["IBRC-10"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        for _ in 0..5 {
            let packet = plain(&mut link);
            link.send(&packet);
        }
        link.goes_on()
    }),
    Case::both_ways("a PSN ahead", &["IBRC-05", "IBRC-30"], Needs::Probe, |b| ahead(b, 1)),
    Case::both_ways("a PSN far ahead", &["IBRC-05", "IBRC-01"], Needs::Probe, |b| {
        ahead(b, 0x40_0000)
    }),
    Case::both_ways("several PSNs ahead, one NAK", &["IBRC-05"], Needs::Probe, several_ahead),
    Case::both_ways("a lost packet within a message", &["IBRC-05"], Needs::Message, lost_within),
    Case::both_ways("after a NAK the missing requests", &["IBRC-05"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let missing = plain(&mut link);
        let next = plain(&mut link).asking();
        link.send(&next);
        link.refused(missing.psn, SEQUENCE)?;
        link.send(&missing);
        link.send(&next);
        link.acknowledged(next.psn)?;
        // A second gap gets a NAK of its own.
        let missing = plain(&mut link).asking();
        let next = plain(&mut link).asking();
        link.send(&next);
        link.refused(missing.psn, SEQUENCE)?;
        link.send(&missing);
        link.acknowledged(missing.psn)
    }),
    Case::to_responder("PSNs around the circle", &["IBRC-01"], Needs::Probe, around),
    Case::both_ways("a repeated request is acknowledged", &["IBRC-06"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let packet = plain(&mut link).asking();
        link.send(&packet);
        link.acknowledged(packet.psn)?;
        link.send(&packet);
        link.acknowledged(packet.psn)?;
        link.goes_on()
    }),
    Case::both_ways(
        "an old request is acknowledged with the newest PSN",
        &["IBRC-06"],
        Needs::Probe,
        |b| {
            let mut link = b.begun()?;
            let old = plain(&mut link).asking();
            link.send(&old);
            link.acknowledged(old.psn)?;
            for _ in 0..3 {
                link.goes_on()?;
            }
            let newest = link.psn.wrapping_sub(1) & MASK;
            link.send(&old);
            let Some(packet) = link.response(link.patience) else {
                return fail("a repeated request was not acknowledged");
            };
            check(
                (packet.opcode, packet.psn, packet.aeth().0 >> 5) == (op::ACKNOWLEDGE, newest, 0),
                || {
                    format!(
                        "answered with {}, expected an acknowledgement of {newest}",
                        packet.text()
                    )
                },
            )?;
            link.goes_on()
        },
    ),
    Case::both_ways("a repeated Send is not executed", &["IBRC-06"], Needs::Message, repeated_send),
    Case::both_ways(
        "a repeated Write is not executed",
        &["IBRC-06"],
        Needs::Memory,
        repeated_write,
    ),
    Case::both_ways(
        "repetitions of unacknowledged requests",
        &["IBRC-06", "IBRC-10"],
        Needs::Probe,
        |b| {
            let mut link = b.begun()?;
            let all: Vec<_> = (0..4).map(|_| plain(&mut link)).collect();
            all.iter().for_each(|packet| link.send(packet));
            all.iter().for_each(|packet| link.send(packet));
            link.is_plain = false;
            link.goes_on()
        },
    ),
    Case::both_ways("stray responses are dropped", &["IBRC-36"], Needs::Probe, strays),
    Case::both_ways("a packet without AckReq", &["IBRC-41", "IBRC-10"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let quiet = plain(&mut link);
        link.send(&quiet);
        // An acknowledgement is allowed, and not due.
        if let Some(packet) = link.response(super::link::QUIET) {
            check((packet.opcode, packet.psn) == (op::ACKNOWLEDGE, quiet.psn), || {
                format!("answered with {}", packet.text())
            })?;
        }
        link.goes_on()
    }),
    Case::both_ways("AckReq within a message", &["IBRC-41"], Needs::Message, |b| {
        let mut link = b.begun()?;
        let mtu = link.terms.mtu;
        let words = long(b, mtu)?;
        let first = link.request(op::SEND_FIRST, &[], &words[..mtu]).asking();
        link.send(&first);
        link.acknowledged(first.psn)?;
        let last = link.request(op::SEND_LAST, &[], &words[mtu..]).asking();
        link.send(&last);
        link.acknowledged(last.psn)
    }),
];

/// A request without effect.
fn plain(link: &mut Link) -> Packet {
    match link.terms.writes {
        true => link.request(op::WRITE_ONLY, &reth(0, super::link::UNKNOWN, 0), &[]),
        false => link.request(op::SEND_ONLY, &[], b"plain"),
    }
}

/// Octets of a message of two packets, for peers that take it.
fn long(bench: &Bench, mtu: usize) -> Play<Vec<u8>> {
    use super::peer::Kind::{Pingpong, Target};
    match bench.peer.kind {
        Target | Pingpong => Ok(vec![0x33; mtu + 100]),
        _ => skip("the peer's receives are shorter than a packet"),
    }
}

fn ahead(bench: &mut Bench, by: u32) -> Play {
    let mut link = bench.begun()?;
    link.goes_on()?;
    let expected = link.psn;
    let mut packet = plain(&mut link).asking();
    packet.psn = (packet.psn + by) & MASK;
    link.send(&packet);
    link.refused(expected, SEQUENCE)?;
    packet.psn = expected;
    link.send(&packet);
    link.acknowledged(expected)?;
    link.goes_on()
}

fn several_ahead(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let missing = plain(&mut link).asking();
    let later: Vec<_> = (0..4).map(|_| plain(&mut link).asking()).collect();
    later.iter().for_each(|packet| link.send(packet));
    link.refused(missing.psn, SEQUENCE)?;
    link.silent("a further packet of the same gap")?;
    link.send(&missing);
    link.acknowledged(missing.psn)?;
    later.iter().for_each(|packet| link.send(packet));
    link.acknowledged(later[3].psn)
}

fn lost_within(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let mtu = link.terms.mtu;
    let mut words = long(bench, mtu)?;
    words.resize(2 * mtu + 9, 0x44);
    let first = link.request(op::SEND_FIRST, &[], &words[..mtu]);
    let middle = link.request(op::SEND_MIDDLE, &[], &words[mtu..2 * mtu]);
    let last = link.request(op::SEND_LAST, &[], &words[2 * mtu..]).asking();
    link.send(&first);
    link.send(&last);
    link.refused(middle.psn, SEQUENCE)?;
    link.send(&middle);
    link.send(&last);
    link.acknowledged(last.psn)?;
    link.goes_on()
}

fn around(bench: &mut Bench) -> Play {
    let mut req = bench.usual();
    req.starting_psn = Psn::new(0xff_fffe);
    let rep = bench.accepted(&req)?;
    let mut link = bench.linked(&req, &rep);
    bench.ready(roce_proto::cm::message::ConnectionIds {
        local: req.local_id,
        remote: rep.ids.local,
    });
    // The peer chose where our PSNs begin, so one is sent whose number misleads who does not compare around the circle:
    // behind with a greater number, or ahead with a smaller one.
    let expected = link.psn;
    let mut packet = plain(&mut link).asking();
    link.is_plain = false;
    let is_ahead = expected >= 0x80_0000;
    packet.psn = if is_ahead { 10 } else { MASK - 10 };
    link.send(&packet);
    if is_ahead {
        link.refused(expected, SEQUENCE)?;
    } else if let Some(seen) = link.response(super::link::QUIET)
        && seen.aeth().0 >> 5 != 0
    {
        return fail(format!("a PSN that is behind was answered with {}", seen.text()));
    }
    packet.psn = expected;
    link.send(&packet);
    link.acknowledged(expected)?;
    if bench.peer.kind == super::peer::Kind::Target {
        // Its own requests go around.
        for _ in 0..5 {
            let words = bench.words();
            link.send_message(&words);
            bench.reacts(&mut link)?;
        }
    }
    Ok(())
}

fn repeated_send(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let words = bench.words();
    let packet = link.request(op::SEND_ONLY, &[], &words).asking();
    link.send(&packet);
    link.acknowledged(packet.psn)?;
    bench.reacts(&mut link)?;
    link.send(&packet);
    link.acknowledged(packet.psn)?;
    bench.does_not_react(&mut link, "a repeated Send")
}

fn repeated_write(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let memory = bench.memory(&mut link)?;
    let header = |_: ()| reth(memory.sink.to, memory.sink.key, 8);
    let first = link.request(op::WRITE_ONLY, &header(()), b"earlier.").asking();
    link.send(&first);
    link.acknowledged(first.psn)?;
    let second = link.write(memory.sink, b"later...");
    link.acknowledged(second)?;
    link.is_plain = false;
    link.send(&first);
    link.acknowledged(second)?;
    let back = super::access::read_back(&mut link, memory.sink, 8)?;
    check(back == b"later...", || "a repeated Write was executed again".into())
}

fn strays(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let header = super::packet::aeth(0x1f, 0);
    let theirs = link.theirs;
    for (opcode, psn) in [
        (op::ACKNOWLEDGE, theirs.wrapping_sub(1)),
        (op::ACKNOWLEDGE, theirs.wrapping_add(100)),
        (op::RESPONSE_ONLY, theirs.wrapping_add(3)),
        (op::RESPONSE_LAST, theirs),
    ] {
        let packet = Packet::new(opcode, link.terms.peer_qpn, psn, &[]).with(&header);
        link.send(&packet);
    }
    let mut nak = Packet::new(op::ACKNOWLEDGE, link.terms.peer_qpn, theirs.wrapping_add(50), &[]);
    nak.extended = super::packet::aeth(0x60, 0);
    link.send(&nak);
    link.goes_on()?;
    if bench.peer.kind == super::peer::Kind::Target {
        let words = bench.words();
        link.send_message(&words);
        bench.reacts(&mut link)?;
    }
    Ok(())
}
