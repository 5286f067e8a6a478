//! Cases: start-up with a peer that connects (RFC 5044 section 7.1, RFC 6581).

use std::time::Duration;

use iwarp_proto::wire::mpa::{EnhancedRepr, FrameKind, NO_NEGOTIATION};
use iwarp_proto::wire::rdmap::Opcode;

use super::answer;
use super::bench::Bench;
use super::case::Case;
use super::frames::FrameSpec;
use super::link::{Link, Seen, Startup};
use super::peer::Kind;
use super::verdict::{Needs, Play, check, fail, skip};

/// Longest time that a peer may wait for a Reply; standards name none.
const STALE: Duration = Duration::from_secs(60);

/// How long the peer must send nothing.
const QUIET: Duration = Duration::from_millis(300);

const fn case(
    name: &'static str,
    ids: &'static [&'static str],
    play: fn(&mut Bench) -> Play,
) -> Case {
    Case::to_initiator(name, ids, Needs::Nothing, play)
}

pub(super) const CASES: &[Case] = &[
    case("form of the request", &["CONN-01", "CONN-06", "CONN-07", "CONN-16", "CONN-20"], |b| {
        let (link, request) = b.requested()?;
        form(&link, &request)
    }),
    case("reserved bits and R of the request", &["CONN-04", "CONN-05"], |b| {
        let (_, request) = b.requested()?;
        check(!request.fixed.rejected, || "R=1 in a request".into())?;
        let reserved = request.fixed.reserved;
        check(reserved == 0, || format!("reserved bits {reserved:#x} in a request"))
    }),
    case("CRC is asked for by default", &["MPA-12", "IOP-04"], |b| {
        let (_, request) = b.requested()?;
        check(request.fixed.crc, || {
            "C=0 in the request: right only if an administrator has asked for it".into()
        })
    }),
    case("the model and its RTRs", &["CONN-27", "CONN-28"], |b| {
        let (_, request) = b.requested()?;
        let Some(block) = request.block else { return skip("the request is not enhanced") };
        let any = block.rtr_send || block.rtr_write || block.rtr_read;
        check(block.peer_to_peer == any, || {
            format!("A={} and B, C, D: {any}", u8::from(block.peer_to_peer))
        })
    }),
    case("nothing behind the request", &["CONN-08", "CONN-34"], |b| {
        let (mut link, _) = b.requested()?;
        check(!link.receives_within(QUIET), || "the peer sent something before the reply".into())
    }),
    case("reply octet by octet", &["CONN-34", "CONN-08"], |b| {
        b.reply(|_| {}, |link, octets| octets.iter().for_each(|octet| link.write(&[*octet])))
    }),
    case("reserved bits of a reply", &["CONN-05"], |b| {
        b.reply(|reply| reply.reserved = 0x07, whole)
    }),
    case("C=1 answered: CRC is on", &["MPA-13", "CONN-03"], |b| b.reply(|_| {}, whole)),
    case("C=0 answered to C=1: CRC is on, or no connection", &["MPA-13"], c_cleared),
    case("M=1: markers come", &["CONN-02", "MPA-28", "MPA-24", "MPA-10", "IOP-01"], |b| {
        b.reply(|reply| reply.markers = true, whole)
    }),
    case("rejection", &["CONN-10", "CONN-09"], |b| b.drops(|reply| reply.rejected = true, &[])),
    case("rejection with private data", &["CONN-10"], |b| {
        b.drops(|reply| (reply.rejected, reply.data) = (true, b"go away".to_vec()), &[])
    }),
    case("unknown key", &["CONN-01", "CONN-10", "ERR-01"], |b| {
        b.drops_octets(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), true)
    }),
    case("a request in answer", &["CONN-01", "CONN-10", "CONN-12", "ERR-01"], |b| {
        b.drops_octets(|_| FrameSpec::plain(FrameKind::Request).octets(), true)
    }),
    case("PD_Length 513", &["CONN-07", "CONN-10", "ERR-01"], |b| {
        b.drops(|reply| reply.length = Some(513), &[0x55; 600])
    }),
    case("reply cut short by a FIN", &["CONN-07", "CONN-10", "MPA-37"], |b| {
        let (mut link, request) = b.requested()?;
        let octets = Bench::usual_reply(&request).octets();
        link.write(&octets[..octets.len() - 1]);
        link.fin();
        dropped(&mut link, false)
    }),
    case("revision 3", &["CONN-06", "CONN-10"], |b| b.drops(|reply| reply.revision = 3, &[])),
    case("plain reply to an enhanced request", &["CONN-17", "CONN-10"], |b| {
        let (mut link, request) = b.requested()?;
        if request.block.is_none() {
            return skip("the request is not enhanced");
        }
        let mut reply = Bench::usual_reply(&request);
        reply.block = None;
        link.write(&reply.octets());
        link.operate(reply.crc, false, false);
        dropped(&mut link, false)
    }),
    case("512 octets of private data", &["CONN-07", "IOP-02"], |b| {
        b.reply(
            |reply| reply.data = vec![0x5a; if reply.block.is_some() { 508 } else { 512 }],
            whole,
        )
    }),
    case("the responder's ORD is beyond us", &["CONN-24", "MPA-37"], big_ord),
    case("IRD and ORD 0x3fff", &["CONN-26"], |b| {
        b.reply(
            |reply| {
                if let Some(block) = &mut reply.block {
                    (block.ird, block.ord) = (NO_NEGOTIATION, NO_NEGOTIATION);
                }
            },
            whole,
        )
    }),
    case("the RTR comes first", &["CONN-29", "CONN-30"], rtr),
    case("no RTR in common", &["CONN-29"], no_rtr),
    case("a silent responder is given up", &["CONN-13"], |b| {
        let (mut link, _) = b.requested()?;
        check(link.ends(STALE).is_some(), || format!("after {STALE:?} the peer still waits"))
    }),
    case("a dripping reply is given up", &["CONN-13", "SEC-18"], |b| {
        let (mut link, request) = b.requested()?;
        let octets = Bench::usual_reply(&request).octets();
        for octet in &octets[..octets.len() - 1] {
            link.write(&[*octet]);
            if link.ends(Duration::from_secs(3)).is_some() {
                return Ok(());
            }
        }
        fail("the peer waits for every octet of a reply, however slow")
    }),
];

fn form(link: &Link, request: &Startup) -> Play {
    let fixed = &request.fixed;
    check((1..=2).contains(&fixed.revision), || format!("revision {}", fixed.revision))?;
    check(!fixed.enhanced || fixed.revision >= 2, || "S=1 in revision 1".into())?;
    check(fixed.enhanced == request.block.is_some(), || "S=1 without a block".into())?;
    if request.block.is_some() {
        link.record().kept(&["CONN-19", "CONN-33"]);
    }
    Ok(())
}

fn whole(link: &mut Link, octets: &[u8]) {
    link.write(octets);
}

fn c_cleared(bench: &mut Bench) -> Play {
    let (mut link, request) = bench.requested()?;
    if !request.fixed.crc {
        return skip("the peer does not ask for CRC");
    }
    let mut reply = Bench::usual_reply(&request);
    reply.crc = false;
    link.write(&reply.octets());
    link.operate(true, request.fixed.markers, false);
    match link.next() {
        Seen::Ulpdu(_) | Seen::End(_) => Ok(()),
        other => fail(format!("received {}", other.text())),
    }
}

fn big_ord(bench: &mut Bench) -> Play {
    let (mut link, request) = bench.requested()?;
    let Some(block) = request.block else { return skip("the request is not enhanced") };
    if block.ird == NO_NEGOTIATION {
        return skip("the peer does not negotiate");
    }
    let mut reply = Bench::usual_reply(&request);
    reply.block = reply.block.map(|block| EnhancedRepr { ord: 0x3ffe, ..block });
    link.write(&reply.octets());
    link.operate(reply.crc, request.fixed.markers, false);
    match link.next() {
        Seen::Ulpdu(ulpdu) => match answer::terminate(&ulpdu) {
            Some(terminate) => {
                let fits = |code: iwarp_proto::TerminateCode| {
                    (code.layer, code.etype, code.code) == (2, 0, 6)
                };
                if !fits(terminate.repr.code) && fits(terminate.swapped.code) {
                    let what = "the Terminate has layer and type in each other's places";
                    link.record().broken(&["RDMAP-20", "IOP-10"], what);
                }
                let either = fits(terminate.repr.code) || fits(terminate.swapped.code);
                check(either, || format!("Terminate {}, expected 2/0/6", terminate.repr.code))
            }
            None => skip("the peer goes on: it may have room for 16382 Reads"),
        },
        other => fail(format!("received {}, expected a Terminate 2/0/6", other.text())),
    }
}

fn rtr(bench: &mut Bench) -> Play {
    let (mut link, request) = bench.requested()?;
    let Some(block) = request.block.filter(|block| block.peer_to_peer) else {
        return skip("the peer does not ask for peer-to-peer");
    };
    let reply = Bench::usual_reply(&request);
    link.write(&reply.octets());
    link.operate(reply.crc, request.fixed.markers, false);
    let seen = link.next_within(bench.patience);
    let Seen::Ulpdu(ulpdu) = &seen else { return fail(format!("received {}", seen.text())) };
    let payload = answer::payload(ulpdu);
    let right = match answer::kind(ulpdu) {
        Some(Opcode::Write) => block.rtr_write && payload.is_empty(),
        Some(Opcode::Send) => block.rtr_send && payload.is_empty(),
        Some(Opcode::ReadRequest) => {
            block.rtr_read && answer::read_request(ulpdu).is_some_and(|r| r.size == 0)
        }
        _ => false,
    };
    check(right, || format!("the first FPDU is {}, not an RTR", seen.text()))
}

fn no_rtr(bench: &mut Bench) -> Play {
    let (mut link, request) = bench.requested()?;
    let Some(offered) = request.block.filter(|block| block.peer_to_peer) else {
        return skip("the peer does not ask for peer-to-peer");
    };
    if offered.rtr_send && offered.rtr_write && offered.rtr_read {
        return skip("the peer offers every RTR");
    }
    let mut reply = Bench::usual_reply(&request);
    reply.block = reply.block.map(|block| EnhancedRepr {
        rtr_send: !offered.rtr_send,
        rtr_write: !offered.rtr_write,
        rtr_read: !offered.rtr_read,
        ..block
    });
    link.write(&reply.octets());
    link.operate(reply.crc, request.fixed.markers, false);
    let seen = link.next();
    let terminate = if let Seen::Ulpdu(ulpdu) = &seen { answer::terminate(ulpdu) } else { None };
    let fits = |code: iwarp_proto::TerminateCode| (code.layer, code.etype, code.code) == (2, 0, 7);
    check(terminate.is_some_and(|t| fits(t.repr.code) || fits(t.swapped.code)), || {
        format!("received {}, expected a Terminate 2/0/7", seen.text())
    })
}

/// Expects that the peer ends the connection and sends no FPDU; with `terminated` a Terminate is allowed.
fn dropped(link: &mut Link, terminated: bool) -> Play {
    match link.next() {
        Seen::End(_) => Ok(()),
        Seen::Ulpdu(ulpdu) if terminated && answer::terminate(&ulpdu).is_some() => {
            check(link.ends(link.patience()).is_some(), || "the connection stays".into())
        }
        other => fail(format!("received {}, expected the end", other.text())),
    }
}

impl Bench {
    /// A reply that the peer must accept: its first FPDU follows.
    fn reply(&mut self, change: fn(&mut FrameSpec), write: fn(&mut Link, &[u8])) -> Play {
        let (mut link, request) = self.requested()?;
        let mut reply = Self::usual_reply(&request);
        change(&mut reply);
        write(&mut link, &reply.octets());
        link.operate(reply.crc || request.fixed.crc, request.fixed.markers, reply.markers);
        match link.next() {
            Seen::Ulpdu(ulpdu) if answer::terminate(&ulpdu).is_none() => Ok(()),
            Seen::Nothing if self.peer.kind == Kind::Unknown => {
                skip("the peer sends nothing after the reply")
            }
            other => fail(format!("the reply was answered with {}", other.text())),
        }
    }

    /// A reply at which the peer must end the connection.
    fn drops(&mut self, change: fn(&mut FrameSpec), behind: &[u8]) -> Play {
        let (mut link, request) = self.requested()?;
        let mut reply = Self::usual_reply(&request);
        change(&mut reply);
        link.write(&[&reply.octets()[..], behind].concat());
        link.operate(reply.crc || request.fixed.crc, request.fixed.markers, reply.markers);
        dropped(&mut link, false)
    }

    fn drops_octets(&mut self, octets: fn(&Startup) -> Vec<u8>, terminated: bool) -> Play {
        let (mut link, request) = self.requested()?;
        link.write(&octets(&request));
        link.operate(request.fixed.crc, request.fixed.markers, false);
        dropped(&mut link, terminated)
    }
}
