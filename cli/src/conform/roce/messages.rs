//! Cases: Sends, receives, immediate data, invalidation and events at the peer's responder (InfiniBand volume 1, 9.4.1,
//! 9.7.4, 9.7.5.2.8).

use super::Case;
use super::bench::Bench;
use super::incoming::Incoming;
use super::link::{Link, QUIET};
use super::packet::{op, reth};
use super::peer::ours;
use crate::conform::order::{LONG_MESSAGE, MAGIC};
use crate::conform::verdict::{Needs, Play, check, fail, skip};

const INVALID: &[u8] = &[0x61];
const RNR: &[u8] = &[0x20];

pub(super) const CASES: &[Case] = &[
    Case::both_ways("a Send is delivered", &["IBRC-42", "IBCM-02"], Needs::Message, |b| {
        let mut link = b.begun()?;
        let words = b.words();
        let psn = link.send_message(&words);
        link.acknowledged(psn)?;
        b.reacts(&mut link)
    }),
    Case::both_ways(
        "Sends of every length are delivered",
        &["IBRC-42", "IBRC-03"],
        Needs::Target,
        every_length,
    ),
    Case::both_ways("First shorter than the path MTU", &["IBRC-02"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, -4)])
    }),
    Case::both_ways("First longer than the path MTU", &["IBRC-02"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 4)])
    }),
    Case::both_ways("Middle shorter than the path MTU", &["IBRC-02"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 0), (op::SEND_MIDDLE, -100)])
    }),
    Case::both_ways("Last longer than the path MTU", &["IBRC-03"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 0), (op::SEND_LAST, 4)])
    }),
    Case::both_ways("Last without octets", &["IBRC-03"], Needs::Message, |b| {
        let mut link = b.begun()?;
        let mtu = link.terms.mtu;
        b.takes(mtu)?;
        let first = link.request(op::SEND_FIRST, &[], &vec![1; mtu]);
        link.send(&first);
        let psn = link.ask(op::SEND_LAST, &[], &[]);
        link.refused(psn, INVALID)
    }),
    Case::both_ways("Only longer than the path MTU", &["IBRC-03"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_ONLY, 4)])
    }),
    Case::both_ways("Middle without First", &["IBRC-04"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_MIDDLE, 0)])
    }),
    Case::both_ways("Last without First", &["IBRC-04"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_LAST, -8)])
    }),
    Case::both_ways("First, then Only", &["IBRC-04"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 0), (op::SEND_ONLY, -8)])
    }),
    Case::both_ways("First, then First", &["IBRC-04"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 0), (op::SEND_FIRST, 0)])
    }),
    Case::both_ways("Send First, then Write Last", &["IBRC-04"], Needs::Message, |b| {
        b.bad_message(&[(op::SEND_FIRST, 0), (op::WRITE_LAST, -8)])
    }),
    Case::both_ways("Write First, then Send Last", &["IBRC-04"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        let mtu = link.terms.mtu;
        if memory.sink.len < 2 * mtu as u64 {
            return skip("the peer's memory is shorter than two packets");
        }
        let header = reth(memory.sink.to, memory.sink.key, 2 * mtu as u32);
        let first = link.request(op::WRITE_FIRST, &header, &vec![2; mtu]);
        link.send(&first);
        let psn = link.ask(op::SEND_LAST, &[], &vec![2; mtu]);
        link.refused(psn, INVALID)
    }),
    Case::both_ways("a Read Request within a Send", &["IBRC-04"], Needs::Memory, |b| {
        let mut link = b.begun()?;
        let memory = b.memory(&mut link)?;
        let mtu = link.terms.mtu;
        b.takes(mtu)?;
        let first = link.request(op::SEND_FIRST, &[], &vec![1; mtu]);
        link.send(&first);
        let psn = link.ask_read(memory.source, 8);
        link.refused(psn, INVALID)
    }),
    Case::both_ways("a message longer than its receive", &["IBRC-14"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let mtu = link.terms.mtu;
        let count = LONG_MESSAGE / mtu;
        let first = link.request(op::SEND_FIRST, &[], &vec![3; mtu]);
        link.send(&first);
        for _ in 1..count {
            let middle = link.request(op::SEND_MIDDLE, &[], &vec![3; mtu]);
            link.send(&middle);
        }
        let psn = link.ask(op::SEND_LAST, &[], &[3]);
        link.refused(psn, INVALID)
    }),
    Case::to_responder(
        "no receive: RNR NAK, and the repetition is executed",
        &["IBRC-33"],
        Needs::Target,
        unready,
    ),
    Case::to_responder(
        "Write with immediate data and no receive",
        &["IBRC-19", "IBRC-33"],
        Needs::Target,
        |b| {
            let mut link = b.without_receives()?;
            let grants = b.grants(&link)?;
            let header = with_immediate(reth(grants.own.to, grants.own.key, 8));
            let psn = link.ask(op::WRITE_ONLY_IMM, &header, b"12345678");
            link.refused(psn, RNR)
        },
    ),
    Case::both_ways("Send with immediate data", &["IBRC-43"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let psn = link.ask(op::SEND_ONLY_IMM, &[9, 8, 7, 6], b"words");
        link.acknowledged(psn)?;
        immediate_arrived(&mut link)
    }),
    Case::both_ways("Write with immediate data", &["IBRC-19", "IBRC-43"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let grants = b.grants(&link)?;
        let header = with_immediate(reth(grants.own.to, grants.own.key, 8));
        let psn = link.ask(op::WRITE_ONLY_IMM, &header, b"12345678");
        link.acknowledged(psn)?;
        immediate_arrived(&mut link)?;
        let back = link.read(grants.own, 8)?;
        check(back == b"12345678", || "its octets were not written".into())
    }),
    Case::both_ways(
        "Write of two packets with immediate data",
        &["IBRC-19", "IBRC-43"],
        Needs::Target,
        |b| {
            let mut link = b.begun()?;
            let grants = b.grants(&link)?;
            let mtu = link.terms.mtu;
            let header = reth(grants.both.to, grants.both.key, mtu as u32 + 8);
            let first = link.request(op::WRITE_FIRST, &header, &vec![5; mtu]);
            link.send(&first);
            let psn = link.ask(op::WRITE_LAST_IMM, &[9, 8, 7, 6], b"12345678");
            link.acknowledged(psn)?;
            immediate_arrived(&mut link)
        },
    ),
    Case::both_ways(
        "a solicited message raises an event, another one none",
        &["IBRC-39"],
        Needs::Target,
        solicited,
    ),
    Case::both_ways("Send with Invalidate", &["IBRC-44"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let grants = b.grants(&link)?;
        if grants.own.key == grants.both.key {
            return skip("the target's device has no memory that a peer may invalidate");
        }
        link.read(grants.own, 8)?;
        link.is_plain = false;
        let key = grants.own.key.to_be_bytes();
        let psn = link.ask(op::SEND_ONLY_INV, &key, b"invalidate");
        link.acknowledged(psn)?;
        match link.message()? {
            Incoming::Send { data, .. } if data == b"invalidate" => {}
            other => return fail(format!("the message was answered with {}", other.text())),
        }
        let psn = link.ask_read(grants.own, 8);
        link.refused(psn, &[0x62])
    }),
    Case::both_ways("Send with Invalidate of an unknown key", &["IBRC-44"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let key = super::link::UNKNOWN.to_be_bytes();
        let psn = link.ask(op::SEND_ONLY_INV, &key, b"invalidate");
        link.refused(psn, &[0x62, 0x63, 0x61])
    }),
    Case::both_ways("messages in order", &["IBRC-42"], Needs::Target, |b| {
        let mut link = b.begun()?;
        for number in 0..8u8 {
            let packet = link.request(op::SEND_ONLY, &[], &[number; 40]).asking();
            link.send(&packet);
        }
        for number in 0..8u8 {
            match link.message()? {
                Incoming::Send { data, .. } if data == [number; 40] => {}
                other => return fail(format!("message {number} came back as {}", other.text())),
            }
        }
        Ok(())
    }),
];

fn with_immediate(mut header: Vec<u8>) -> Vec<u8> {
    header.extend([9, 8, 7, 6]);
    header
}

fn immediate_arrived(link: &mut Link) -> Play {
    match link.message()? {
        Incoming::Send { data, .. } if data == b"immediate\x09\x08\x07\x06" => Ok(()),
        Incoming::Send { data, .. } if data.starts_with(b"immediate") => {
            fail(format!("the immediate data arrived as {:02x?}, not 09080706", &data[9..]))
        }
        other => fail(format!("the message was answered with {}", other.text())),
    }
}

fn every_length(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let mtu = link.terms.mtu;
    for length in [1, 2, 3, 4, 5, 255, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 3] {
        let words: Vec<u8> = (0..length).map(|at| (at * 5 + length) as u8 | 0x80).collect();
        let psn = link.send_message(&words);
        link.acknowledged(psn)?;
        match link.message()? {
            Incoming::Send { data, .. } if data == words => {}
            Incoming::Send { data, .. } => {
                let text = format!("{length} octets came back as {} others", data.len());
                return fail(text);
            }
            other => return fail(format!("{length} octets came back as {}", other.text())),
        }
    }
    Ok(())
}

fn solicited(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    if link.terms.private.get(UNTOLD_AT) == Some(&1) {
        return skip("the target's adapter tells it of no message whether it was solicited");
    }
    for asked in [true, false] {
        let mut packet = link.request(op::SEND_ONLY, &[], b"event").asking();
        packet.solicited = asked;
        link.send(&packet);
        link.acknowledged(packet.psn)?;
        match link.message()? {
            Incoming::Send { solicited, .. } if solicited == asked => {}
            Incoming::Send { .. } if asked => {
                return fail("the event did not reach the application");
            }
            Incoming::Send { .. } => return fail("a message that asks for none raised an event"),
            other => return fail(format!("the message was answered with {}", other.text())),
        }
    }
    Ok(())
}

fn unready(bench: &mut Bench) -> Play {
    let mut link = bench.with_receives(1)?;
    // Its receive is taken, and comes back late with two more.
    let command = crate::conform::order::command(b'n', 2, ours(0));
    let taken = link.send_message(&command);
    link.acknowledged(taken)?;
    let packet = link.request(op::SEND_ONLY, &[], b"not yet").asking();
    link.send(&packet);
    link.refused(packet.psn, RNR)?;
    // What follows it is not executed before it.
    let behind = link.request(op::SEND_ONLY, &[], b"behind").asking();
    link.send(&behind);
    let until = std::time::Instant::now() + link.patience;
    loop {
        link.send(&packet);
        match link.response(QUIET) {
            Some(seen) if seen.opcode == op::ACKNOWLEDGE && seen.aeth().0 >> 5 == 0 => break,
            Some(seen) if seen.aeth().0 >> 5 == 1 || seen.aeth().0 == 0x60 => {}
            Some(seen) => return fail(format!("a repetition was answered with {}", seen.text())),
            None => {}
        }
        if std::time::Instant::now() > until {
            return fail("the repetition was never executed");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    match link.message()? {
        Incoming::Send { data, .. } if data == b"not yet" => {}
        other => return fail(format!("the repetition was answered with {}", other.text())),
    }
    link.send(&behind);
    link.is_plain = false;
    link.acknowledged(behind.psn)
}

/// Where the reply of a target has 1 if it does not know which messages were solicited: behind its five ranges.
const UNTOLD_AT: usize = MAGIC.len() + 5 * itapi::RemoteRange::ENCODED_LEN;

impl Bench {
    /// Skips unless the peer's receives have room for two packets.
    fn takes(&self, mtu: usize) -> Play {
        use super::peer::Kind::{Pingpong, Target};
        match self.peer.kind {
            Target => Ok(()),
            Pingpong if mtu <= 2048 => Ok(()),
            _ => skip("the peer's receives are shorter than a packet"),
        }
    }

    /// Packets of one message, each as much longer than the path MTU as given; the last must be refused.
    fn bad_message(&mut self, packets: &[(u8, i32)]) -> Play {
        let mut link = self.begun()?;
        let mtu = link.terms.mtu;
        self.takes(mtu)?;
        let mut psn = link.psn;
        for (at, (opcode, more)) in packets.iter().enumerate() {
            let payload = vec![0x21; (mtu as i32 + more) as usize];
            let mut packet = link.request(*opcode, &[], &payload);
            (packet.ack, psn) = (at + 1 == packets.len(), packet.psn);
            link.send(&packet);
        }
        link.refused(psn, INVALID)
    }

    fn without_receives(&mut self) -> Play<Link> {
        self.with_receives(0)
    }

    /// A connection for which the target posts so many receives.
    fn with_receives(&mut self, receives: u8) -> Play<Link> {
        let mut req = self.usual();
        let at = roce_proto::cm::addresses::Addresses::LEN + MAGIC.len();
        req.private.0[at] = receives;
        self.connected(&req)
    }
}
