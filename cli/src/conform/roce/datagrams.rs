//! Cases: service id resolution and datagrams (InfiniBand volume 1, 9.8, 12.11).

use std::time::{Duration, Instant};

use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::message::{Message, SidrStatus};
use roce_proto::cm::udp_service;

use super::Case;
use super::bench::{AGAIN, Bench};
use super::exchange;
use super::link::QUIET;
use super::packet::{Arrived, Packet, op};
use super::wire::wide;
use crate::conform::verdict::{Needs, Play, check, fail, skip};

/// Octets of a receive's IP header.
const HEADER: usize = 40;

/// A service's endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    qpn: u32,
    qkey: u32,
}

pub(super) const CASES: &[Case] = &[
    Case::to_responder("a datagram service is resolved", &["IBCM-09"], Needs::Manager, |b| {
        b.service().map(drop)
    }),
    Case::to_responder(
        "a repeated resolution gets the same reply",
        &["IBCM-21"],
        Needs::Manager,
        |b| {
            b.service()?;
            let id = b.random() | 1;
            let first = b.resolve(id, b.datagram_service())?;
            let second = b.resolve(id, b.datagram_service())?;
            check(first == second, || "the second reply differs from the first".into())
        },
    ),
    Case::to_responder(
        "an unknown datagram service",
        &["IBCM-09", "IBCM-21"],
        Needs::Manager,
        |b| {
            b.service()?;
            let id = b.random() | 1;
            let (status, _) = b.resolve(id, udp_service(1))?;
            check(status == SidrStatus::UNSUPPORTED_SERVICE, || {
                format!("status {}, expected 1", status.0)
            })
        },
    ),
    Case::to_responder("a datagram is delivered", &["IBUD-05"], Needs::Target, |b| {
        let (found, qpn) = b.endpoint()?;
        for length in [1, 4, 61, 64, 1000] {
            b.echoes(found, qpn, length)?;
        }
        Ok(())
    }),
    Case::to_responder("a receive begins with the IP header", &["IBUD-02"], Needs::Target, |b| {
        let (found, qpn) = b.endpoint()?;
        let reply = b.echoes(found, qpn, 32)?;
        let header = &reply[4..4 + HEADER];
        let (here, there) = (wide(b.wire.here), wide(b.wire.there()));
        let right = match b.wire.here.is_ipv4() {
            true => {
                header[..20].iter().all(|octet| *octet == 0)
                    && header[20] == 0x45
                    && header[32..36] == here[12..]
                    && header[36..40] == there[12..]
            }
            false => header[8..24] == here && header[24..40] == there,
        };
        check(right, || format!("it begins with {header:02x?}"))
    }),
    Case::to_responder("a datagram with immediate data", &["IBUD-05"], Needs::Target, |b| {
        let (found, qpn) = b.endpoint()?;
        let mut packet = exchange::datagram(found.qpn, found.qkey, qpn, b"with immediate data!");
        packet.opcode = op::DATAGRAM_IMM;
        packet.extended.extend([1, 2, 3, 4]);
        b.wire.send(&packet);
        let reply = b.reply_from(found, qpn)?;
        check(reply.payload.ends_with(&[1, 2, 3, 4]), || "the immediate data did not arrive".into())
    }),
    Case::to_responder("a datagram with another queue key", &["IBUD-01"], Needs::Target, |b| {
        b.lost(|packet| packet.extended[3] ^= 1)
    }),
    Case::to_responder("a datagram longer than the path MTU", &["IBUD-03"], Needs::Target, |b| {
        b.lost(|packet| packet.payload.resize(4200, 7))
    }),
    Case::to_responder(
        "an opcode of connections for a datagram endpoint",
        &["ROCE-05"],
        Needs::Target,
        |b| {
            b.lost(|packet| {
                packet.opcode = op::SEND_ONLY;
                packet.extended.clear();
                packet.ack = true;
            })
        },
    ),
    Case::to_responder("a datagram of another partition", &["IBRC-27"], Needs::Target, |b| {
        b.lost(|packet| packet.pkey = 0x8123)
    }),
    Case::to_responder("a damaged datagram", &["ROCE-06"], Needs::Target, |b| {
        let (found, qpn) = b.endpoint()?;
        let packet = exchange::datagram(found.qpn, found.qkey, qpn, &[9; 32]);
        let mut octets = b.wire.sealed(&packet);
        octets[30] ^= 1;
        b.wire.raw(b.wire.there(), &octets);
        b.nothing_from(qpn)?;
        b.echoes(found, qpn, 32).map(drop)
    }),
];

impl Bench {
    /// The reply to a resolution.
    fn resolve(&mut self, request: u32, service: u64) -> Play<(SidrStatus, Found)> {
        let (here, there) = (self.wire.here, self.wire.there());
        let pair = match (here, there) {
            (std::net::IpAddr::V4(here), std::net::IpAddr::V4(there)) => {
                Pair::V4 { source: here.octets(), destination: there.octets() }
            }
            _ => Pair::V6 { source: wide(here), destination: wide(there) },
        };
        let private =
            Addresses { source_port: 0x9000, pair }.with(b"who is it").unwrap_or_default();
        let ask = Message::SidrReq { request, pkey: 0xffff, service, private };
        let transaction = u64::from(request) << 16;
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            self.reply(&ask, transaction);
            let found = exchange::next(&self.wire, AGAIN, |(mad, message)| match message {
                Message::SidrRep { request: of, status, qpn, service, qkey, .. }
                    if *of == request =>
                {
                    Some((mad.transaction, *status, *service, Found { qpn: *qpn, qkey: *qkey }))
                }
                _ => None,
            });
            let Some((told, status, of, found)) = found else { continue };
            check(told == transaction, || "the reply has another transaction id".into())?;
            check(of == service || status != SidrStatus::VALID, || {
                format!("the reply is about service {of:#x}")
            })?;
            return Ok((status, found));
        }
        fail("the resolution was not answered")
    }

    /// The peer's datagram service.
    fn service(&mut self) -> Play<Found> {
        let id = self.random() | 1;
        match self.resolve(id, self.datagram_service())? {
            (SidrStatus::VALID, found) if found.qpn > 1 => Ok(found),
            (SidrStatus::VALID, found) => fail(format!("it resolves to queue pair {}", found.qpn)),
            (status, _) if self.peer.kind == super::peer::Kind::Target => {
                fail(format!("the service was refused with status {}", status.0))
            }
            _ => skip("the peer has no datagram service at this port"),
        }
    }

    /// The service, and a queue pair of ours.
    fn endpoint(&mut self) -> Play<(Found, u32)> {
        let found = self.service()?;
        let qpn = self.qpn();
        self.wire.open(qpn);
        Ok((found, qpn))
    }

    fn reply_from(&self, found: Found, qpn: u32) -> Play<Arrived> {
        let Some(packet) = self.wire.next(qpn, self.patience) else {
            return fail("the datagram was not delivered");
        };
        check(matches!(packet.opcode, op::DATAGRAM | op::DATAGRAM_IMM), || {
            format!("the datagram was answered with {}", packet.text())
        })?;
        check(packet.deth() == (found.qkey, found.qpn), || {
            let (key, source) = packet.deth();
            format!("the reply has key {key:#x} and comes from queue pair {source:#x}")
        })?;
        Ok(packet)
    }

    /// A datagram that the target sends back: its length, and the first octets of its receive.
    fn echoes(&self, found: Found, qpn: u32, length: usize) -> Play<Vec<u8>> {
        let words: Vec<u8> = (0..length).map(|at| (at * 3 + length) as u8).collect();
        self.wire.send(&exchange::datagram(found.qpn, found.qkey, qpn, &words));
        let reply = self.reply_from(found, qpn)?.payload;
        let shown = length.min(64);
        let told = reply.first_chunk().map_or(0, |told| u32::from_be_bytes(*told) as usize);
        check(told == length || told == length + HEADER, || {
            format!("{length} octets arrived as {told}")
        })?;
        check(reply.get(4 + HEADER..4 + HEADER + shown) == Some(&words[..shown]), || {
            format!("{length} octets arrived as others")
        })?;
        Ok(reply)
    }

    fn nothing_from(&self, qpn: u32) -> Play {
        match self.wire.next(qpn, QUIET.max(Duration::from_millis(100))) {
            None => Ok(()),
            Some(packet) => fail(format!("it was answered with {}", packet.text())),
        }
    }

    /// A datagram that must be dropped; a good one is delivered then.
    fn lost(&mut self, spoil: fn(&mut Packet)) -> Play {
        let (found, qpn) = self.endpoint()?;
        let mut packet = exchange::datagram(found.qpn, found.qkey, qpn, &[8; 32]);
        spoil(&mut packet);
        self.wire.send(&packet);
        self.nothing_from(qpn)?;
        self.echoes(found, qpn, 32).map(drop)
    }
}
