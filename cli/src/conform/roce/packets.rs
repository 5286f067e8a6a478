//! Cases: fields of every packet: invariant CRC, version, opcodes, partition, addresses, congestion (InfiniBand volume 1,
//! 7.8, 9.2, 9.6; annex A17).

use super::Case;
use super::bench::Bench;
use super::link::Link;
use super::packet::{Packet, op, reth};
use crate::conform::verdict::{Needs, Play, check, fail, skip};

/// "Congestion experienced" (RFC 3168).
const MARKED: u8 = 3;

pub(super) const CASES: &[Case] = &[
    Case::both_ways("wrong invariant CRC", &["ROCE-06"], Needs::Probe, |b| {
        b.dropped(|_, octets| {
            if let Some(last) = octets.last_mut() {
                *last ^= 1;
            }
        })
    }),
    Case::both_ways("invariant CRC in the other order", &["ROCE-07"], Needs::Probe, |b| {
        b.dropped(|_, octets| {
            let at = octets.len() - 4;
            octets[at..].reverse();
        })
    }),
    Case::both_ways("invariant CRC of zeros", &["ROCE-06"], Needs::Probe, |b| {
        b.dropped(|_, octets| {
            let at = octets.len() - 4;
            octets[at..].fill(0);
        })
    }),
    Case::both_ways("a damaged header", &["ROCE-06"], Needs::Probe, |b| {
        // AckReq: the packet is as good without it.
        b.dropped(|_, octets| octets[8] ^= 0x40)
    }),
    Case::both_ways("a damaged PSN", &["ROCE-06"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[10] ^= 4)
    }),
    Case::both_ways("damaged octets of a message", &["ROCE-06"], Needs::Message, damaged_payload),
    Case::both_ways(
        "congestion bits are not covered",
        &["ROCE-06", "ROCE-12"],
        Needs::Probe,
        |b| b.taken(|packet| packet.congestion = 0xff),
    ),
    Case::both_ways("M is 0", &["ROCE-09"], Needs::Probe, |b| {
        b.taken(|packet| packet.migrated = false)
    }),
    Case::both_ways("M is 1", &["ROCE-09"], Needs::Probe, |b| {
        b.taken(|packet| packet.migrated = true)
    }),
    Case::both_ways("partition 0x7fff", &["IBRC-27"], Needs::Probe, |b| {
        b.taken(|packet| packet.pkey = 0x7fff)
    }),
    Case::both_ways("another partition", &["IBRC-27"], Needs::Probe, |b| {
        b.dropped(|_, octets| {
            octets[2] = 0x81;
            octets[3] = 0x23;
        })
    }),
    Case::both_ways("version 1", &["ROCE-04"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[1] |= 1)
    }),
    Case::both_ways("version 15", &["ROCE-04"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[1] |= 15)
    }),
    Case::both_ways("an opcode that is not assigned", &["ROCE-05"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[0] = 0x1f)
    }),
    Case::both_ways("an opcode of unreliable connections", &["ROCE-05"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[0] |= 0x20)
    }),
    Case::both_ways("an opcode of datagrams", &["ROCE-05"], Needs::Probe, |b| {
        b.dropped(|_, octets| octets[0] = op::DATAGRAM)
    }),
    Case::both_ways("an unknown queue pair", &["IBRC-47"], Needs::Probe, |b| {
        b.dropped(|link, octets| {
            let other = (link.terms.peer_qpn ^ 0x5555).to_be_bytes();
            octets[5..8].copy_from_slice(&other[1..]);
        })
    }),
    Case::both_ways("another UDP source port", &["ROCE-13"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let packet = probe(&mut link);
        link.wire.send_from_elsewhere(&packet);
        link.acknowledged(packet.psn)?;
        link.goes_on()
    }),
    Case::both_ways("packets that are too short", &["ROCE-01"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let packet = probe(&mut link);
        let octets = link.wire.sealed(&packet);
        // A Send that is cut off may be a shorter one.
        let within = if link.terms.writes { &[16, 20, 28][..] } else { &[] };
        for length in [0, 1, 11, 12, 15].iter().chain(within).copied() {
            let mut part = octets[..length].to_vec();
            let there = link.wire.there();
            link.wire.seal(there, super::wire::PORT, &mut part);
            link.wire.raw(there, &part);
        }
        link.silent("a packet that is cut off")?;
        link.send(&packet);
        link.acknowledged(packet.psn)
    }),
    Case::both_ways("more pad than octets", &["ROCE-01"], Needs::Probe, |b| {
        if !b.peer.writes {
            return skip("the peer takes no request without octets");
        }
        b.dropped(|_, octets| octets[1] |= 0x30)
    }),
    Case::both_ways("a marked packet is reported", &["IBRC-23", "ROCE-10"], Needs::Probe, marked),
    Case::both_ways("a congestion notification is taken", &["ROCE-10"], Needs::Probe, |b| {
        let mut link = b.begun()?;
        let mut notice = Packet::new(op::CNP, link.terms.peer_qpn, 0, &[]).with(&[0; 16]);
        notice.congestion = 0x40;
        for _ in 0..3 {
            link.send(&notice);
        }
        link.silent("a congestion notification")?;
        link.goes_on()
    }),
    Case::both_ways("frames over IPv6", &["ROCE-14"], Needs::Probe, |b| {
        match b.wire.here.is_ipv6() {
            true => b.begun()?.goes_on(),
            false => skip("the peer's address is of IPv4"),
        }
    }),
    Case::both_ways("frames with a VLAN tag", &["ROCE-15"], Needs::Probe, |b| {
        match is_vlan(b.wire.here) {
            true => b.begun()?.goes_on(),
            false => skip("the way to the peer has no VLAN interface, and a socket sets no tag"),
        }
    }),
];

/// Whether an own address is that of a VLAN interface.
fn is_vlan(here: std::net::IpAddr) -> bool {
    let own = itapi::interfaces().unwrap_or_default();
    let named = |name: &str| std::path::Path::new("/proc/net/vlan").join(name).exists();
    let mut ports = own.into_iter().flat_map(|one| one.device.ports);
    ports.any(|port| port.addresses.contains(&here) && named(&port.interface))
}

/// A request without effect that asks for an acknowledgement.
fn probe(link: &mut Link) -> Packet {
    match link.terms.writes {
        true => link.request(op::WRITE_ONLY, &reth(0, super::link::UNKNOWN, 0), &[]).asking(),
        false => link.request(op::SEND_ONLY, &[], b"probe").asking(),
    }
}

fn damaged_payload(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let words = bench.words();
    let packet = link.request(op::SEND_ONLY, &[], &words).asking();
    let mut octets = link.wire.sealed(&packet);
    octets[super::packet::BTH + 3] ^= 0x10;
    link.wire.raw(link.wire.there(), &octets);
    link.silent("a damaged message")?;
    link.send(&packet);
    link.acknowledged(packet.psn)?;
    bench.reacts(&mut link)
}

fn marked(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    link.goes_on()?;
    link.wire.mark(MARKED);
    let sent = probe(&mut link);
    link.send(&sent);
    link.wire.mark(0);
    let until = std::time::Instant::now() + std::time::Duration::from_millis(500);
    let mut notice = None;
    while notice.is_none() && std::time::Instant::now() < until {
        let wait = until.saturating_duration_since(std::time::Instant::now());
        notice = link.next_request(wait).filter(|packet| packet.opcode == op::CNP);
    }
    match notice {
        // A SHOULD, which few peers in software keep.
        None => skip("the peer reports no congestion, which it should"),
        Some(packet) => check(packet.payload.is_empty() && packet.extended.len() == 16, || {
            format!("a congestion notification has {} octets", 16 + packet.payload.len())
        }),
    }
}

impl Bench {
    /// A packet that is spoilt after its CRC was computed; the CRC is corrected unless the case is about it. It must have no
    /// effect, and the good one is executed then.
    fn dropped(&mut self, spoil: fn(&Link, &mut Vec<u8>)) -> Play {
        let mut link = self.begun()?;
        link.goes_on()?;
        let packet = probe(&mut link);
        let before = link.wire.sealed(&packet);
        let mut octets = before.clone();
        spoil(&link, &mut octets);
        let there = link.wire.there();
        // Fields in front of the extended headers are checked with a correct CRC, but not damage.
        let fields = [0, 1, 2, 3, 5, 6, 7].iter().any(|at| octets[*at] != before[*at]);
        if fields {
            link.wire.seal(there, super::wire::PORT, &mut octets);
        }
        link.wire.raw(there, &octets);
        link.silent("it")?;
        link.send(&packet);
        link.acknowledged(packet.psn)?;
        link.goes_on()
    }

    /// A packet with a field that receivers accept.
    fn taken(&mut self, change: fn(&mut Packet)) -> Play {
        let mut link = self.begun()?;
        let mut packet = probe(&mut link);
        change(&mut packet);
        link.send(&packet);
        match link.acknowledged(packet.psn) {
            Ok(()) => link.goes_on(),
            Err(_) => fail("it was not taken"),
        }
    }
}
