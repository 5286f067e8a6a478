//! Cases: the connection manager of a peer that connects (InfiniBand volume 1, chapter 12; annexes A11, A17).

use std::time::{Duration, Instant};

use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected, Rep, Req};

use super::Case;
use super::bench::{AGAIN, Bench};
use super::exchange;
use super::wire::wide;
use crate::conform::verdict::{Needs, Play, check, fail, skip};

/// A time code of 1.07 s.
const SECOND: u8 = 18;
/// For so long nothing may be repeated then.
const EXTENDED: Duration = Duration::from_secs(1);
/// A peer that repeats nothing for so long has given up.
const GIVEN_UP: Duration = Duration::from_secs(8);
/// The tester waits no longer for a repetition, whatever the request says.
const LONGEST: Duration = Duration::from_secs(60);
/// What a request repeats at most (InfiniBand volume 1, 12.7.27).
const MOST: usize = 16;

/// When a request without reply is repeated, at the latest: the time for the reply, as it says, and as much for the way.
fn repeated_within(req: &Req) -> Duration {
    let reply = Duration::from_nanos(4096 << (req.remote_response_timeout & 31));
    reply.saturating_mul(2).min(LONGEST)
}

const fn case(
    name: &'static str,
    ids: &'static [&'static str],
    play: fn(&mut Bench) -> Play,
) -> Case {
    Case::to_initiator(name, ids, Needs::Nothing, play)
}

pub(super) const CASES: &[Case] = &[
    case("form of the request", &["IBCM-01", "IBCM-07", "IBCM-08", "IBCM-11", "IBCM-14"], form),
    case("a request without reply is repeated", &["IBCM-05"], |b| {
        let (first, transaction) = b.requested()?;
        let Some((again, other)) = b.again(&first, b.patience.max(repeated_within(&first))) else {
            return fail("the request was not repeated");
        };
        check(again == first && other == transaction, || "the repetition differs".into())?;
        b.accept(&again, other).map(drop)
    }),
    case("a request without reply is given up", &["IBCM-05"], |b| {
        let (first, _) = b.requested()?;
        let mut count = 1;
        while b.again(&first, GIVEN_UP).is_some() {
            count += 1;
            if count > MOST {
                return fail(format!("it was sent {count} times"));
            }
        }
        Ok(())
    }),
    case("an MRA extends the time for the reply", &["IBCM-06"], |b| {
        let (req, transaction) = b.requested()?;
        let ids = ConnectionIds { local: b.random() | 1, remote: req.local_id };
        let (of, private) = (Rejected::Req, Private::default());
        b.reply(&Message::Mra { ids, of, timeout: SECOND, private }, transaction);
        // One that crossed it.
        b.again(&req, Duration::from_millis(50));
        let begun = Instant::now();
        let again = b.again(&req, Duration::from_millis(900));
        if again.is_some() && begun.elapsed() < EXTENDED {
            let time = begun.elapsed().as_millis();
            return fail(format!("the request was repeated after {time} ms"));
        }
        b.accept(&req, transaction).map(drop)
    }),
    case("a repeated reply gets the RTU again", &["IBCM-03"], |b| {
        let (req, transaction) = b.requested()?;
        let rep = b.usual_reply(&req);
        let link = b.offered(&req, &rep);
        for time in 0..3 {
            b.reply(&Message::Rep(rep), transaction);
            let Some(ids) = b.ready_for(&rep, b.patience) else {
                return fail(format!("reply {time} got no RTU"));
            };
            check(ids.local == req.local_id, || format!("the RTU names id {:#x}", ids.local))?;
        }
        drop(link);
        Ok(())
    }),
    case("our rejection ends the attempt", &["IBCM-16"], |b| {
        let (req, transaction) = b.requested()?;
        let ids = ConnectionIds { local: b.random() | 1, remote: req.local_id };
        let (of, reason) = (Rejected::Req, RejectReason::CONSUMER);
        b.reply(&Message::Rej { ids, of, reason, private: Private::default() }, transaction);
        b.again(&req, Duration::from_millis(50));
        match b.again(&req, Duration::from_secs(1)) {
            None => Ok(()),
            Some(_) => fail("the request was repeated"),
        }
    }),
    case("a reply to another request", &["IBCM-18"], |b| {
        let (req, transaction) = b.requested()?;
        let mut rep = b.usual_reply(&req);
        rep.ids.remote ^= 0x77;
        b.reply(&Message::Rep(rep), transaction ^ 1);
        if b.ready_for(&rep, AGAIN).is_some() {
            return fail("the peer is ready for a connection that it did not ask for");
        }
        b.accept(&req, transaction).map(drop)
    }),
    case("our end of the connection is answered", &["IBCM-17", "IBCM-03"], |b| {
        let (req, transaction) = b.requested()?;
        let mut link = b.accept(&req, transaction)?;
        let Some(ids) = link.terms.ids else { return skip("connected by path") };
        for _ in 0..2 {
            b.ended_by_us(ids, req.qpn)?;
        }
        link.terms.ids = None;
        Ok(())
    }),
    case("the peer begins where the reply says", &["IBCM-02"], |b| {
        let (req, transaction) = b.requested()?;
        let mut link = b.accept(&req, transaction)?;
        link.is_prompt = false;
        let wait = link.patience.min(Duration::from_secs(2));
        let Some(packet) = link.next_request(wait) else {
            return skip("the peer connects and sends nothing");
        };
        check(packet.psn == link.terms.theirs, || {
            format!("its first PSN is {}, expected {}", packet.psn, link.terms.theirs)
        })
    }),
    case("a first message that is not acknowledged is repeated", &["IBRC-49"], |b| {
        let (req, transaction) = b.requested()?;
        let mut link = b.accept(&req, transaction)?;
        link.is_prompt = false;
        let wait = link.patience.min(Duration::from_secs(2));
        let Some(first) = link.next_request(wait) else {
            return skip("the peer connects and sends nothing");
        };
        match link.next_request(link.patience) {
            Some(again) if again.psn == first.psn && again.payload == first.payload => Ok(()),
            Some(other) => fail(format!("{} was repeated as {}", first.text(), other.text())),
            None => fail(format!("{} was not repeated", first.text())),
        }
    }),
];

fn form(bench: &mut Bench) -> Play {
    let (req, transaction) = bench.requested()?;
    let faults: [(bool, &'static str, String); 9] = [
        (req.local_id != 0 && transaction != 0, "IBCM-11", "an id is 0".into()),
        (req.qpn > 1, "IBCM-11", format!("queue pair {}", req.qpn)),
        (req.transport == 0, "IBCM-11", format!("transport service {}", req.transport)),
        (matches!(req.pkey, 0xffff | 0x7fff), "IBRC-27", format!("partition {:#x}", req.pkey)),
        ((1..=5).contains(&req.mtu), "IBCM-14", format!("path MTU {}", req.mtu)),
        (req.remote_gid.0 == wide(bench.wire.here), "IBCM-11", "another GID than ours".into()),
        (req.local_gid.0 == wide(bench.wire.there()), "IBCM-11", "another GID than its own".into()),
        (req.max_cm_retries > 0, "IBCM-05", "no repetitions".into()),
        (is_of(&req, bench), "IBCM-07", "its addresses are not those of the packet".into()),
    ];
    for (holds, id, text) in faults {
        if !holds {
            let text = format!("the request has {text}");
            bench.wire.record().broken(&[id], text.clone());
            return fail(text);
        }
    }
    bench.accept(&req, transaction).map(drop)
}

/// rdma_cm's addresses are those of both ends.
fn is_of(req: &Req, bench: &Bench) -> bool {
    let (here, there) = (wide(bench.wire.here), wide(bench.wire.there()));
    Addresses::parse(&req.private.0).is_some_and(|addresses| match addresses.pair {
        Pair::V4 { source, destination } => {
            wide(source.into()) == there && wide(destination.into()) == here
        }
        Pair::V6 { source, destination } => (source, destination) == (there, here),
    })
}

impl Bench {
    /// A repetition of a request.
    fn again(&self, first: &Req, wait: Duration) -> Option<(Req, u64)> {
        exchange::next(&self.wire, wait, |(mad, message)| match message {
            Message::Req(req) if req.local_id == first.local_id => Some((*req, mad.transaction)),
            _ => None,
        })
    }

    fn ready_for(&self, rep: &Rep, wait: Duration) -> Option<ConnectionIds> {
        exchange::next(&self.wire, wait, |(_, message)| match message {
            Message::Rtu { ids, .. } if ids.remote == rep.ids.local => Some(*ids),
            _ => None,
        })
    }

    fn ended_by_us(&self, ids: ConnectionIds, qpn: u32) -> Play {
        let ask = Message::Dreq { ids, remote_qpn: qpn, private: Private::default() };
        self.reply(&ask, u64::from(ids.local) << 8 | 1);
        let reply = exchange::next(&self.wire, self.patience, |(_, message)| {
            matches!(message, Message::Drep { ids: own, .. } if own.remote == ids.local)
                .then_some(())
        });
        check(reply.is_some(), || "our request to end was not answered".into())
    }
}
