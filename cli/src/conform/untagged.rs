//! Cases: DDP's untagged model and the messages that use it (RFC 5041 section 5, RFC 5040 section 5).

use std::time::Duration;

use iwarp_proto::wire::rdmap::Opcode;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::{self, Untagged};
use super::judge::Refusal;
use super::link::{Link, Seen};
use super::peer::Kind;
use super::verdict::{Needs, Play, check, fail, skip};

const VERSION: Refusal = Refusal::by(&[(1, 2, 6), (1, 1, 4)]);
const RDMAP_VERSION: Refusal = Refusal::by(&[(0, 2, 5)]);
const OPCODE: Refusal = Refusal::by(&[(0, 2, 6)]);
const QUEUE: Refusal = Refusal::by(&[(1, 2, 1), (0, 2, 6)]);
const MSN: Refusal = Refusal::by(&[(1, 2, 3), (1, 2, 2)]);
const GAP: Refusal = Refusal::or_waits(&[(1, 2, 4)]);
const SKIPPED: Refusal = Refusal::or_waits(&[(1, 2, 3), (1, 2, 2)]);
const LONG: Refusal = Refusal::by(&[(1, 2, 5), (1, 2, 2)]);
const NO_BUFFER: Refusal = Refusal::by(&[(1, 2, 2)]);
const INVALIDATE: Refusal = Refusal::by(&[(0, 1, 9), (0, 2, 9), (0, 1, 0), (0, 1, 2), (0, 1, 3)]);

pub(super) const CASES: &[Case] = &[
    Case::both_ways("DDP version 0, untagged", &["DDP-04", "ERR-05"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.control.0 &= !3, VERSION)
    }),
    Case::both_ways("DDP version 3, untagged", &["DDP-04", "ERR-05"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.control.0 |= 3, VERSION)
    }),
    Case::both_ways("RDMAP version 0", &["RDMAP-01", "ERR-06"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.ulp &= 0x3f, RDMAP_VERSION)
    }),
    Case::both_ways("RDMAP version 2", &["RDMAP-01", "ERR-06"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.ulp = s.header.ulp & 0x3f | 0x80, RDMAP_VERSION)
    }),
    Case::both_ways("RDMAP version 3", &["RDMAP-01", "ERR-06"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.ulp |= 0xc0, RDMAP_VERSION)
    }),
    Case::both_ways("opcode 12", &["RDMAP-02", "ERR-07"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.ulp = frames::rdmap(12), OPCODE)
    }),
    Case::both_ways("opcode 15", &["RDMAP-02", "ERR-07"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.ulp = frames::rdmap(15), OPCODE)
    }),
    Case::both_ways(
        "RDMA Write, untagged",
        &["RDMAP-02", "ERR-07", "DDP-01"],
        Needs::Nothing,
        |b| b.bad_send(|s| s.header.ulp = frames::rdmap(0), OPCODE),
    ),
    Case::both_ways(
        "RDMA Read Response, untagged",
        &["RDMAP-02", "ERR-07", "DDP-01"],
        Needs::Nothing,
        |b| b.bad_send(|s| s.header.ulp = frames::rdmap(2), OPCODE),
    ),
    Case::both_ways("Send on queue 1", &["RDMAP-02", "DDP-14", "ERR-08"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.qn = 1, QUEUE)
    }),
    Case::both_ways("Send on queue 4", &["DDP-14", "ERR-08", "EXT-17"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.qn = 4, QUEUE)
    }),
    Case::both_ways("Send on queue 4294967295", &["DDP-14", "ERR-08"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.qn = u32::MAX, QUEUE)
    }),
    Case::both_ways("MSN 0", &["DDP-06", "DDP-14", "ERR-10"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.msn = s.header.msn.wrapping_sub(1), MSN)
    }),
    Case::both_ways("MSN skips one", &["DDP-14", "ERR-10", "AMB-09"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.msn += 1, SKIPPED)
    }),
    Case::both_ways("MSN far ahead", &["DDP-14", "ERR-10"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.msn = 0x8000_0001, MSN)
    }),
    Case::both_ways("MSN again", &["DDP-06", "DDP-14", "ERR-10"], Needs::Target, |b| {
        let mut link = b.operating()?;
        b.send_message(&mut link, Opcode::Send, &[]);
        b.reacts(&mut link)?;
        b.refuses(link, &frames::send(1, b"again"), MSN)
    }),
    Case::both_ways("MO is not 0 at first", &["DDP-07", "DDP-14", "ERR-11"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.mo = 8, GAP)
    }),
    Case::both_ways("MO leaves a gap", &["DDP-07", "DDP-14", "ERR-11"], Needs::Message, |b| {
        let mut link = b.operating()?;
        let msn = link.next_send_msn();
        let mut first = Untagged::new(Opcode::Send, msn, b"12345678");
        first.header.control.0 &= !0x40;
        link.send(&first.octets());
        let mut second = Untagged::new(Opcode::Send, msn, b"abcd");
        second.header.mo = 12;
        b.refuses(link, &second.octets(), GAP)
    }),
    Case::both_ways("MO plus length overflows", &["DDP-14", "ERR-11"], Needs::Nothing, |b| {
        b.bad_send(|s| s.header.mo = u32::MAX - 3, Refusal::by(&[(1, 2, 4), (1, 2, 5), (1, 2, 2)]))
    }),
    Case::both_ways(
        "message longer than its buffer",
        &["DDP-14", "RDMAP-12", "ERR-12"],
        Needs::Message,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_send_msn();
            b.refuses(link, &frames::send(msn, &[0x77; 1000]), LONG)
        },
    ),
    Case::both_ways(
        "second segment beyond the buffer",
        &["DDP-14", "ERR-12"],
        Needs::Message,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_send_msn();
            let mut first = Untagged::new(Opcode::Send, msn, &[0x77; 16]);
            first.header.control.0 &= !0x40;
            link.send(&first.octets());
            let mut second = Untagged::new(Opcode::Send, msn, &[0x77; 900]);
            second.header.mo = 16;
            b.refuses(link, &second.octets(), LONG)
        },
    ),
    Case::both_ways("no receive buffer", &["DDP-14", "ERR-09", "VERBS-14"], Needs::Target, |b| {
        b.without_receives(frames::send(1, b"hello"))
    }),
    Case::both_ways(
        "no receive buffer, nothing to receive",
        &["RDMAP-12", "ERR-09"],
        Needs::Target,
        |b| b.without_receives(frames::send(1, &[])),
    ),
    Case::both_ways(
        "reserved bits of a message",
        &["DDP-03", "RDMAP-01", "RDMAP-03"],
        Needs::Probe,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_read_msn();
            let request = frames::read_of(0, 1, 1).emit();
            let mut segment = Untagged::new(Opcode::ReadRequest, msn, &request);
            segment.header.control.0 |= 0x3c;
            segment.header.ulp |= 0x30;
            segment.header.ulp_word = 0xdead_beef;
            link.send(&segment.octets());
            b.answers_probe(&mut link)
        },
    ),
    Case::both_ways(
        "a message in one segment",
        &["DDP-13", "RDMAP-12", "RDMAP-16"],
        Needs::Message,
        |b| b.receives(Opcode::Send, &[]),
    ),
    Case::both_ways(
        "a message in three segments",
        &["DDP-02", "DDP-07", "DDP-12", "DDP-13"],
        Needs::Message,
        |b| b.receives(Opcode::Send, &[4, 5]),
    ),
    Case::both_ways("Send with Solicited Event", &["RDMAP-14", "RDMAP-02"], Needs::Message, |b| {
        b.receives(Opcode::SendSolicited, &[])
    }),
    Case::both_ways(
        "a message without octets",
        &["RDMAP-12", "DDP-10", "DDP-13"],
        Needs::Target,
        |b| {
            let mut link = b.operating()?;
            let msn = link.next_send_msn();
            link.send(&frames::send(msn, &[]));
            let seen = link.next();
            let empty = matches!(&seen, Seen::Ulpdu(ulpdu) if answer::payload(ulpdu).is_empty());
            check(empty, || format!("answered with {}", seen.text()))
        },
    ),
    Case::both_ways(
        "twenty messages in order",
        &["DDP-12", "RDMAP-16", "RDMAP-17"],
        Needs::Target,
        |b| {
            let mut link = b.operating()?;
            for number in 0..20u8 {
                let msn = link.next_send_msn();
                link.send(&frames::send(msn, &[number; 5]));
                let seen = link.next();
                let same = matches!(&seen, Seen::Ulpdu(u) if answer::payload(u) == [number; 5]);
                check(same, || format!("message {number} was answered with {}", seen.text()))?;
            }
            Ok(())
        },
    ),
    Case::both_ways(
        "a long message of the peer's",
        &["DDP-02", "DDP-07", "DDP-09", "DDP-11"],
        Needs::Target,
        long_message,
    ),
    Case::both_ways(
        "Send with Invalidate, unknown STag",
        &["RDMAP-13", "ERR-25"],
        Needs::Message,
        |b| b.bad_invalidate(0x0bad_5700),
    ),
    Case::both_ways(
        "Send with Invalidate, shared STag",
        &["SEC-06", "RDMAP-13", "ERR-25"],
        Needs::Target,
        |b| {
            let link = b.operating()?;
            let stag = b.grants(&link)?.both.stag;
            drop(link);
            b.bad_invalidate(stag)
        },
    ),
    Case::both_ways(
        "Send with Invalidate, STag of another zone",
        &["SEC-01", "ERR-25"],
        Needs::Target,
        |b| {
            let link = b.operating()?;
            let stag = b.grants(&link)?.foreign.stag;
            drop(link);
            b.bad_invalidate(stag)
        },
    ),
    Case::both_ways(
        "Send with Invalidate",
        &["RDMAP-13", "VERBS-25", "VERBS-27"],
        Needs::Target,
        |b| {
            let mut link = b.operating()?;
            let own = b.grants(&link)?.own;
            link.send(&frames::write(own.stag, own.to, b"1234"));
            let words = b.words();
            let mut segment = Untagged::new(Opcode::SendInvalidate, link.next_send_msn(), &words);
            segment.header.ulp_word = own.stag;
            link.send(&segment.octets());
            b.reacts(&mut link)?;
            b.refuses(link, &frames::write(own.stag, own.to, b"5678"), Refusal::by(&[(1, 1, 0)]))
        },
    ),
    Case::both_ways("two faults in a row", &["RDMAP-24", "RDMAP-25"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        let mut first = Untagged::new(Opcode::Send, link.send_msn, &[]);
        first.header.ulp = frames::rdmap(13);
        let mut second = Untagged::new(Opcode::Send, link.send_msn, &[]);
        second.header.control.0 &= !3;
        let wire = [link.frame(&first.octets()), link.frame(&second.octets())].concat();
        link.write(&wire);
        b.refused(&mut link, &first.octets(), OPCODE)
    }),
    Case::both_ways("a fault before much else", &["RDMAP-27"], Needs::Nothing, |b| {
        let mut link = b.operating()?;
        let mut bad = Untagged::new(Opcode::Send, link.send_msn, &[]);
        bad.header.ulp = frames::rdmap(14);
        let mut wire = link.frame(&bad.octets());
        for _ in 0..2000 {
            wire.extend(link.frame(&frames::write(1, 0, &[])));
        }
        link.write(&wire);
        b.refused(&mut link, &bad.octets(), OPCODE)
    }),
];

fn long_message(bench: &mut Bench) -> Play {
    const LENGTH: usize = 200 * 256;
    let mut link = bench.operating()?;
    let msn = link.next_send_msn();
    link.send(&frames::send(
        msn,
        &super::order::command(b's', 200, super::peer::OUR_SOURCE.into()),
    ));
    let mut octets = 0;
    loop {
        let seen = link.next();
        let Seen::Ulpdu(ulpdu) = &seen else { return fail(format!("received {}", seen.text())) };
        octets += answer::payload(ulpdu).len();
        if answer::last(ulpdu) {
            return check(octets == LENGTH, || {
                format!("received {octets} octets, expected {LENGTH}")
            });
        }
    }
}

impl Bench {
    /// A Send with one fault.
    fn bad_send(&mut self, spoil: fn(&mut Untagged<'_>), refusal: Refusal) -> Play {
        let link = self.operating()?;
        let mut segment = Untagged::new(Opcode::Send, link.send_msn, b"1234");
        spoil(&mut segment);
        self.refuses(link, &segment.octets(), refusal)
    }

    fn without_receives(&mut self, ulpdu: Vec<u8>) -> Play {
        let mut spec = self.usual();
        spec.data = super::order::target_request(0, false);
        let link = self.started_up(&spec)?;
        self.refuses(link, &ulpdu, NO_BUFFER)
    }

    fn receives(&mut self, opcode: Opcode, cuts: &[usize]) -> Play {
        let mut link = self.operating()?;
        self.ready_to_hear(&mut link)?;
        self.send_message(&mut link, opcode, cuts);
        self.reacts(&mut link)
    }

    /// Reads an rping client's source: it accepts a message only after that.
    fn ready_to_hear(&self, link: &mut Link) -> Play {
        if self.peer.kind != Kind::RpingClient {
            return Ok(());
        }
        if !self.peer.probes {
            return skip("the peer's source cannot be read");
        }
        self.goes_on(link)
    }

    fn bad_invalidate(&mut self, stag: u32) -> Play {
        let mut link = self.operating()?;
        let words = self.words();
        let mut segment = Untagged::new(Opcode::SendInvalidate, link.next_send_msn(), &words);
        segment.header.ulp_word = stag;
        let ulpdu = segment.octets();
        link.send(&ulpdu);
        // Nothing is sent after it: a peer that accepts it reacts as to any message.
        match link.next() {
            Seen::Ulpdu(first) if answer::terminate(&first).is_none() => {
                let stays = link.ends(Duration::from_millis(200)).is_none();
                let what = if stays { "and stays" } else { "and leaves" };
                fail(format!("the peer takes it for a Send {what}, expected a Terminate 0/1/9"))
            }
            Seen::Nothing => {
                fail("received nothing, and the connection stays open, expected Terminate 0/1/9")
            }
            _ => {
                let link = self.operating()?;
                let mut segment = Untagged::new(Opcode::SendInvalidate, link.send_msn, &words);
                segment.header.ulp_word = stag;
                self.refuses(link, &segment.octets(), INVALIDATE)
            }
        }
    }
}
