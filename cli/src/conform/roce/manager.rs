//! Cases: the connection manager of a peer that listens (InfiniBand volume 1, chapter 12; annexes A11, A17).

use std::time::{Duration, Instant};

use roce_proto::cm::mad::HEADER_LEN;
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected, Rep, Req};
use roce_proto::cm::tcp_service;

use super::Case;
use super::bench::{AGAIN, Bench};
use super::exchange;
use super::link::{Link, QUIET};
use super::packet::MASK;
use crate::conform::order::MAGIC;
use crate::conform::verdict::{Needs, Play, check, fail, skip};

/// A port at which no peer listens.
const NOBODY: u16 = 1;
/// A peer gives up a reply after 15 repetitions; nobody may take longer.
const GIVEN_UP: Duration = Duration::from_secs(70);
/// A time code of 1.07 s.
const SECOND: u8 = 18;
/// For so long nothing may be repeated then.
const EXTENDED: Duration = Duration::from_secs(1);

pub(super) const CASES: &[Case] = &[
    Case::to_responder(
        "form of the reply",
        &["IBCM-01", "IBCM-02", "IBCM-11", "IBCM-12"],
        Needs::Manager,
        form,
    ),
    Case::to_responder(
        "a repeated request gets the same reply",
        &["IBCM-03"],
        Needs::Manager,
        |b| {
            let req = b.usual();
            let first = b.accepted(&req)?;
            let second = b.accepted(&req)?;
            check(first == second, || "the second reply differs from the first".into())?;
            let mut link = b.linked(&req, &first);
            b.ready(ids(&req, &first));
            if b.peer.probes { link.goes_on() } else { Ok(()) }
        },
    ),
    Case::to_responder(
        "the reply is repeated until it has an answer",
        &["IBCM-05"],
        Needs::Manager,
        |b| {
            let req = b.usual();
            let first = b.accepted(&req)?;
            let link = b.linked(&req, &first);
            let Some((_, Message::Rep(again))) = b.reply_to(req.local_id, link.patience) else {
                return fail("the reply was not repeated");
            };
            check(first == again, || "the repetition differs".into())?;
            b.ready(ids(&req, &first));
            Ok(())
        },
    ),
    Case::to_responder(
        "nobody says that it is ready: the peer gives up",
        &["IBCM-05"],
        Needs::Manager,
        given_up,
    ),
    Case::to_responder("a first packet instead of the RTU", &["IBCM-04"], Needs::Probe, |b| {
        let req = b.usual();
        let rep = b.accepted(&req)?;
        let mut link = b.linked(&req, &rep);
        link.goes_on()?;
        match b.reply_to(req.local_id, Duration::from_secs(1)) {
            None => Ok(()),
            // It may have crossed the packet.
            Some(_) => match b.reply_to(req.local_id, Duration::from_secs(1)) {
                None => Ok(()),
                Some(_) => fail("the peer goes on repeating its reply"),
            },
        }
    }),
    Case::to_responder("an MRA extends the time for the RTU", &["IBCM-06"], Needs::Manager, |b| {
        let req = b.usual();
        let rep = b.accepted(&req)?;
        let link = b.linked(&req, &rep);
        let (of, private) = (Rejected::Rep, Private::default());
        let mra = Message::Mra { ids: ids(&req, &rep), of, timeout: SECOND, private };
        b.reply(&mra, u64::from(req.local_id) << 8);
        // One that crossed it.
        b.reply_to(req.local_id, Duration::from_millis(50));
        let begun = Instant::now();
        let again = b.reply_to(req.local_id, Duration::from_millis(900));
        if again.is_some() && begun.elapsed() < EXTENDED {
            return fail(format!(
                "the reply was repeated after {} ms",
                begun.elapsed().as_millis()
            ));
        }
        b.ready(ids(&req, &rep));
        drop(link);
        Ok(())
    }),
    Case::to_responder("an unknown service", &["IBCM-13"], Needs::Manager, |b| {
        let mut req = b.usual();
        req.service = tcp_service(NOBODY);
        b.rejected(&req, &[RejectReason::INVALID_SERVICE_ID])
    }),
    Case::to_responder(
        "a repeated request gets the same rejection",
        &["IBCM-03", "IBCM-13"],
        Needs::Manager,
        |b| {
            let mut req = b.usual();
            req.service = tcp_service(NOBODY);
            b.rejected(&req, &[RejectReason::INVALID_SERVICE_ID])?;
            b.rejected(&req, &[RejectReason::INVALID_SERVICE_ID])
        },
    ),
    Case::to_responder(
        "a service of another port space",
        &["IBCM-08", "IBCM-13"],
        Needs::Manager,
        |b| {
            let mut req = b.usual();
            req.service = 0x0122_0000 | u64::from(b.address.port());
            b.rejected(&req, &[RejectReason::INVALID_SERVICE_ID])
        },
    ),
    Case::to_responder("a path MTU that does not exist", &["IBCM-14"], Needs::Manager, |b| {
        let mut req = b.usual();
        req.mtu = 9;
        b.rejected(&req, &[RejectReason::INVALID_MTU])
    }),
    Case::to_responder(
        "private data arrives, and is padded with zeros",
        &["IBCM-15"],
        Needs::Target,
        |b| {
            let mut req = b.usual();
            req.private.0[36 + MAGIC.len()] = 3;
            let rep = b.accepted(&req)?;
            let link = b.linked(&req, &rep);
            b.ready(ids(&req, &rep));
            if !b.grants(&link).is_ok_and(|grants| grants.own.len > 0 && grants.foreign.len > 0) {
                return fail("the private data of the reply is not what the target gave");
            }
            let end = MAGIC.len() + 5 * itapi::RemoteRange::ENCODED_LEN;
            // Warpline's own ends mark the last three octets.
            let padding = &rep.private.0[end..rep.private.0.len() - 3];
            check(padding.iter().all(|octet| *octet == 0), || "the padding is not zero".into())
        },
    ),
    Case::to_responder("the application rejects", &["IBCM-16", "IBCM-15"], Needs::Target, |b| {
        let mut req = b.usual();
        req.private.0[36 + MAGIC.len() + 2] = 1;
        for _ in 0..2 {
            let Some((_, Message::Rej { reason, private, ids, of })) = b.ask(&req) else {
                return fail("the request was not rejected");
            };
            check((reason, of) == (RejectReason::CONSUMER, Rejected::Req), || {
                format!("rejected with reason {reason}, expected {}", RejectReason::CONSUMER)
            })?;
            check(ids.remote == req.local_id, || "the reject names another request".into())?;
            check(private.0.starts_with(b"as commanded"), || {
                "the private data of the reject is not the application's".into()
            })?;
        }
        Ok(())
    }),
    Case::to_responder(
        "a request to end is answered, again, too",
        &["IBCM-03", "IBCM-17"],
        Needs::Manager,
        |b| {
            let req = b.usual();
            let rep = b.accepted(&req)?;
            let mut link = b.linked(&req, &rep);
            b.ready(ids(&req, &rep));
            if b.peer.probes {
                link.goes_on()?;
            }
            for _ in 0..2 {
                b.ended(ids(&req, &rep), rep.qpn)?;
            }
            link.terms.ids = None;
            Ok(())
        },
    ),
    Case::to_responder("after the end nothing is executed", &["IBCM-10"], Needs::Probe, |b| {
        let req = b.usual();
        let (mut link, rep) = b.goes_on(&req)?;
        b.ended(ids(&req, &rep), rep.qpn)?;
        link.terms.ids = None;
        match link.goes_on() {
            Err(_) => Ok(()),
            Ok(()) => fail("the peer still acknowledges requests"),
        }
    }),
    Case::to_responder(
        "a stale id: a reply that nobody asked for",
        &["IBCM-18"],
        Needs::Probe,
        |b| {
            let req = b.usual();
            let (mut link, rep) = b.goes_on(&req)?;
            let wrong = ConnectionIds { local: b.random() | 1, remote: rep.ids.local ^ 0x55 };
            let stray = Rep { ids: wrong, ..b.usual_reply(&req) };
            b.reply(&Message::Rep(stray), 77);
            let private = Private::default();
            b.reply(&Message::Rtu { ids: wrong, private }, 78);
            b.reply(&Message::Drep { ids: wrong, private }, 79);
            let (of, reason, private) = (Rejected::Rep, RejectReason::TIMEOUT, Private::default());
            b.reply(&Message::Rej { ids: wrong, of, reason, private }, 80);
            link.goes_on()
        },
    ),
    Case::to_responder(
        "a stale id: an end of another connection",
        &["IBCM-18"],
        Needs::Probe,
        |b| {
            let req = b.usual();
            let (mut link, rep) = b.goes_on(&req)?;
            let wrong = ConnectionIds { local: req.local_id ^ 0x33, remote: rep.ids.local ^ 0x55 };
            let private = Private::default();
            b.reply(&Message::Dreq { ids: wrong, remote_qpn: rep.qpn, private }, 81);
            link.goes_on()
        },
    ),
    Case::to_responder(
        "a stale connection: its queue pair asks again",
        &["IBCM-19"],
        Needs::Probe,
        stale,
    ),
    Case::to_responder("two connections at once", &["IBCM-20"], Needs::Probe, |b| {
        let (one, other) = (b.usual(), b.usual());
        let mut first = b.connected(&one)?;
        let mut second = b.connected(&other)?;
        check(first.terms.peer_qpn != second.terms.peer_qpn, || {
            "both have one queue pair of the peer's".into()
        })?;
        for _ in 0..3 {
            first.goes_on()?;
            second.goes_on()?;
        }
        drop(first);
        second.goes_on()
    }),
    Case::to_responder("our reject of the reply ends it", &["IBCM-17"], Needs::Manager, |b| {
        let req = b.usual();
        let rep = b.accepted(&req)?;
        let (of, reason) = (Rejected::Rep, RejectReason::CONSUMER);
        let rej = Message::Rej { ids: ids(&req, &rep), of, reason, private: Private::default() };
        b.reply(&rej, u64::from(req.local_id) << 8);
        // One that crossed it.
        b.reply_to(req.local_id, Duration::from_millis(50));
        match b.reply_to(req.local_id, Duration::from_secs(1)) {
            None => Ok(()),
            Some(_) => fail("the peer goes on repeating its reply"),
        }
    }),
    Case::to_responder(
        "a management datagram of another class",
        &["IBCM-01"],
        Needs::Manager,
        |b| b.unheard(|mad| mad[1] = 3),
    ),
    Case::to_responder(
        "a management datagram of another class version",
        &["IBCM-01"],
        Needs::Manager,
        |b| b.unheard(|mad| mad[2] = 9),
    ),
    Case::to_responder(
        "a management datagram with another method",
        &["IBCM-01"],
        Needs::Manager,
        |b| b.unheard(|mad| mad[3] = 1),
    ),
    Case::to_responder("a message that does not exist", &["IBCM-01"], Needs::Manager, |b| {
        b.unheard(|mad| mad[17] = 0x7f)
    }),
    Case::to_responder(
        "a management datagram with another queue key",
        &["IBCM-01", "IBUD-01"],
        Needs::Manager,
        |b| {
            let req = b.usual();
            let mad = Message::Req(req).emit(5).emit();
            let wrong = exchange::datagram(1, 0x1234_5678, 1, &mad);
            b.wire.send(&wrong);
            b.not_heard(&req)
        },
    ),
    Case::to_responder(
        "a management datagram that is cut off",
        &["IBCM-01"],
        Needs::Manager,
        |b| {
            let req = b.usual();
            let mad = Message::Req(req).emit(5).emit();
            b.wire.send(&exchange::datagram(1, exchange::QKEY, 1, &mad[..200]));
            b.not_heard(&req)
        },
    ),
    Case::to_responder(
        "a request without rdma_cm's addresses",
        &["IBCM-07"],
        Needs::Manager,
        |b| {
            let mut req = b.usual();
            req.private.0[0] = 0x70;
            match b.ask(&req) {
                None | Some((_, Message::Rej { .. })) => Ok(()),
                Some(_) => fail("it was accepted"),
            }
        },
    ),
    Case::to_responder("the peer ends a connection", &["IBCM-17"], Needs::Target, |b| {
        let mut link = b.operating()?;
        b.command(&mut link, b'd', 0, super::peer::ours(0));
        let Some(own) = link.terms.ids else { return skip("connected by path") };
        let asked = exchange::next(&b.wire, link.patience, |(mad, message)| match message {
            Message::Dreq { ids, remote_qpn, .. } if ids.remote == own.local => {
                Some((*ids, *remote_qpn, mad.transaction))
            }
            _ => None,
        });
        let Some((ids, qpn, transaction)) = asked else {
            return fail("commanded to end, the peer sent no request for it");
        };
        check((ids.local, qpn) == (own.remote, link.terms.qpn), || {
            format!("it names id {:#x} and queue pair {qpn:#x}", ids.local)
        })?;
        // The reply is lost once.
        let again = exchange::next(&b.wire, link.patience, |(_, message)| {
            matches!(message, Message::Dreq { .. }).then_some(())
        });
        check(again.is_some(), || "without a reply it was not repeated".into())?;
        b.reply(&Message::Drep { ids: own, private: Private::default() }, transaction);
        let again = exchange::next(&b.wire, Duration::from_secs(1), |(_, message)| {
            matches!(message, Message::Dreq { ids, .. } if ids.remote == own.local).then_some(())
        });
        link.terms.ids = None;
        check(again.is_none(), || "it was repeated after the reply".into())
    }),
];

const fn ids(req: &Req, rep: &Rep) -> ConnectionIds {
    ConnectionIds { local: req.local_id, remote: rep.ids.local }
}

fn form(bench: &mut Bench) -> Play {
    let mut req = bench.usual();
    (req.responder_resources, req.initiator_depth) = (3, 2);
    let transaction = u64::from(req.local_id) << 8;
    let Some((mad, Message::Rep(rep))) = bench.ask(&req) else {
        return fail("the request was not accepted");
    };
    let mut link = bench.linked(&req, &rep);
    bench.ready(ids(&req, &rep));
    check(mad.transaction == transaction, || "the reply has another transaction id".into())?;
    check(rep.ids.remote == req.local_id && rep.ids.local != 0, || {
        format!("the reply has ids {:#x} and {:#x}", rep.ids.local, rep.ids.remote)
    })?;
    check(rep.qpn > 1 && rep.qpn <= MASK, || format!("the reply has queue pair {}", rep.qpn))?;
    if rep.initiator_depth > req.responder_resources
        || rep.responder_resources > req.initiator_depth
    {
        // It may reply with what it has; then the tester would have to reject. [IBCM-12]
        let text = format!(
            "asked for at most 2 and 3 Reads at once, the reply has {} and {}",
            rep.responder_resources, rep.initiator_depth
        );
        link.record().broken(&["IBCM-12"], text.clone());
        return fail(text);
    }
    if bench.peer.probes && link.goes_on().is_err() {
        let text =
            format!("a request with PSN {}, as the reply says, was not taken", link.terms.ours);
        link.record().broken(&["IBCM-02"], text.clone());
        return fail(text);
    }
    Ok(())
}

fn given_up(bench: &mut Bench) -> Play {
    let mut req = bench.usual();
    (req.max_cm_retries, req.local_response_timeout) = (3, 14);
    let rep = bench.accepted(&req)?;
    let (begun, mut count) = (Instant::now(), 1);
    loop {
        match bench.reply_to(req.local_id, Duration::from_secs(10)) {
            Some((_, Message::Rep(again))) => {
                check(again == rep, || "a repetition differs".into())?;
                count += 1;
            }
            Some((_, Message::Rej { reason, .. })) => {
                return check(reason == RejectReason::TIMEOUT, || {
                    format!("given up with reason {reason}, expected {}", RejectReason::TIMEOUT)
                });
            }
            _ => return fail(format!("after {count} replies no reject said that it gave up")),
        }
        if count > 16 || begun.elapsed() > GIVEN_UP {
            return fail(format!("it was sent {count} times"));
        }
    }
}

/// The peer must notice that its connection is of the past.
fn stale(bench: &mut Bench) -> Play {
    let req = bench.usual();
    let (_link, _) = bench.goes_on(&req)?;
    let again = Req { local_id: bench.random() | 1, ..req };
    match bench.ask(&again) {
        Some((_, Message::Rej { reason: RejectReason::STALE_CONNECTION, .. })) => Ok(()),
        Some((_, Message::Rej { reason, .. })) => fail(format!("rejected with reason {reason}")),
        Some((_, Message::Rep(rep))) => {
            bench.ended(ids(&again, &rep), rep.qpn)?;
            fail("a request by the queue pair of a connection was accepted")
        }
        _ => fail("a request by the queue pair of a connection was not answered"),
    }
}

impl Bench {
    /// A connection that was used, and the reply that made it.
    fn goes_on(&mut self, req: &Req) -> Play<(Link, Rep)> {
        let rep = self.accepted(req)?;
        let mut link = self.linked(req, &rep);
        self.ready(ids(req, &rep));
        link.goes_on()?;
        Ok((link, rep))
    }

    fn rejected(&mut self, req: &Req, reasons: &[RejectReason]) -> Play {
        match self.ask(req) {
            Some((mad, Message::Rej { reason, of, ids, .. })) => {
                check(reasons.contains(&reason), || {
                    format!("rejected with reason {reason}, expected {}", reasons[0])
                })?;
                check(of == Rejected::Req && ids.remote == req.local_id, || {
                    "the reject names another message".into()
                })?;
                check(mad.transaction == u64::from(req.local_id) << 8, || {
                    "the reject has another transaction id".into()
                })
            }
            Some((_, Message::Rep(rep))) => {
                drop(self.linked(req, &rep));
                fail("it was accepted")
            }
            _ => fail("it was not answered"),
        }
    }

    /// Asks for the end of a connection, and fails unless that is answered.
    fn ended(&self, ids: ConnectionIds, qpn: u32) -> Play {
        let ask = Message::Dreq { ids, remote_qpn: qpn, private: Private::default() };
        let until = Instant::now() + self.patience;
        while Instant::now() < until {
            self.reply(&ask, u64::from(ids.local) << 8 | 1);
            let found = exchange::next(&self.wire, AGAIN, |(_, message)| match message {
                Message::Drep { ids: theirs, .. } if theirs.remote == ids.local => Some(*theirs),
                _ => None,
            });
            if let Some(theirs) = found {
                return check(theirs.local == ids.remote, || {
                    format!("the reply names id {:#x}, expected {:#x}", theirs.local, ids.remote)
                });
            }
        }
        fail("the request to end was not answered")
    }

    /// A request for a connection in a management datagram that is none of the connection manager's.
    fn unheard(&mut self, spoil: fn(&mut [u8])) -> Play {
        let req = self.usual();
        let mut mad = Message::Req(req).emit(5).emit();
        spoil(&mut mad[..HEADER_LEN]);
        exchange::send(&self.wire, self.wire.there(), &mad);
        self.not_heard(&req)
    }

    fn not_heard(&mut self, req: &Req) -> Play {
        match self.reply_to(req.local_id, QUIET) {
            Some((_, message)) => fail(format!("it was answered with a {}", message.name())),
            None => Ok(()),
        }
    }
}
