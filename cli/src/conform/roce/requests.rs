//! Cases: the form of the peer's requests: opcodes, lengths, headers, numbers at once (InfiniBand volume 1, 9.4, 9.7.3).

use super::Case;
use super::bench::Bench;
use super::incoming::Incoming;
use super::link::{Link, QUIET};
use super::packet::{op, syndrome};
use super::peer::{Kind, ours};
use crate::conform::peer::OUR_SOURCE;
use crate::conform::verdict::{Needs, Play, check, fail, skip};

const ADDRESS: u64 = OUR_SOURCE.address;
const KEY: u32 = OUR_SOURCE.key;

pub(super) const CASES: &[Case] = &[
    Case::both_ways("form of the peer's Read Request", &["IBRC-48"], Needs::Reader, |b| {
        let mut link = b.begun()?;
        b.made_to_read(&mut link, 61)?;
        let seen = link.message()?;
        let Incoming::Read { psn, address, key, length } = seen else {
            return fail(format!("commanded to read, the peer sent {}", seen.text()));
        };
        check((address, key, length) == (ADDRESS, KEY, 61), || {
            format!("it reads {length} octets at {address:#x} with key {key:#x}")
        })?;
        link.respond(psn, &[0x41; 61], 0..1);
        // The target discards it; an rping server goes on.
        match link.next_request(QUIET) {
            Some(packet) if packet.psn == psn => fail("the response was not taken"),
            _ => Ok(()),
        }
    }),
    Case::both_ways("a Read of several packets", &["IBRC-09", "IBRC-48"], Needs::Target, |b| {
        let mut link = b.begun()?;
        let length = 3 * link.terms.mtu + 10;
        b.command(&mut link, b'r', 1, ours(length as u64));
        // It may ask for parts.
        let mut at = 0;
        while at < length {
            let seen = link.message()?;
            let Incoming::Read { psn, address, key, length: part } = seen else {
                return fail(format!("commanded to read, the peer sent {}", seen.text()));
            };
            check((address, key) == (ADDRESS + at as u64, KEY), || {
                format!("after {at} octets it reads at {address:#x}")
            })?;
            let part = part as usize;
            check(part > 0 && at + part <= length, || format!("it reads {part} octets more"))?;
            link.respond(psn, &vec![0x42; part], 0..usize::MAX);
            at += part;
        }
        b.still_obeys(&mut link)
    }),
    Case::both_ways(
        "the peer\'s Writes of every length",
        &["IBRC-02", "IBRC-03", "IBRC-18", "IBRC-26", "IBRC-35"],
        Needs::Target,
        writes,
    ),
    Case::both_ways(
        "the peer\'s Sends of several packets",
        &["IBRC-02", "IBRC-04", "IBRC-35", "IBRC-40"],
        Needs::Target,
        |b| {
            let mut link = b.begun()?;
            for number in [1u8, 4, 13, 16] {
                b.command(&mut link, b's', number, ours(0));
                match link.message()? {
                    Incoming::Send { data, .. }
                        if data == vec![0x5a; usize::from(number) * 256] => {}
                    other => {
                        return fail(format!("commanded to send, the peer sent {}", other.text()));
                    }
                }
            }
            Ok(())
        },
    ),
    Case::both_ways(
        "the peer's Write with immediate data",
        &["IBRC-43", "ROCE-02"],
        Needs::Target,
        |b| {
            let mut link = b.begun()?;
            for length in [8, 2 * link.terms.mtu as u64] {
                b.command(&mut link, b'i', 0, ours(length));
                // A peer may write first, and send the immediate data behind it.
                match link.message()? {
                    Incoming::Write {
                        data,
                        immediate: Some(0x0102_0304),
                        address: ADDRESS,
                        key: KEY,
                    } if data.len() as u64 == length => {}
                    Incoming::Write { immediate, data, .. } => {
                        return fail(format!("{} octets and {immediate:02x?}", data.len()));
                    }
                    other => {
                        return fail(format!("commanded to write, the peer sent {}", other.text()));
                    }
                }
            }
            Ok(())
        },
    ),
    Case::both_ways("the peer's Send with Invalidate", &["IBRC-44"], Needs::Target, |b| {
        let mut link = b.begun()?;
        b.command(&mut link, b'v', 0, ours(0));
        match link.message()? {
            Incoming::Send { invalidated: Some(KEY), .. } => Ok(()),
            Incoming::Send { invalidated, .. } => fail(format!("it invalidates {invalidated:#x?}")),
            other => fail(format!("commanded to invalidate, the peer sent {}", other.text())),
        }
    }),
    Case::both_ways("the peer's solicited Send", &["IBRC-39"], Needs::Target, |b| {
        let mut link = b.begun()?;
        b.command(&mut link, b'e', 0, ours(0));
        match link.message()? {
            Incoming::Send { solicited: true, .. } => Ok(()),
            other => fail(format!("it is not solicited: {}", other.text())),
        }
    }),
    Case::both_ways("the peer's Fetch and Add", &["IBRC-46", "IBRC-48"], Needs::Target, |b| {
        let mut link = b.begun()?;
        b.command(&mut link, b'f', 0, ours(8));
        let operands = b.atomic_of(&mut link, op::FETCH_ADD)?;
        check(operands.0 == 7, || format!("it adds {}, not 7", operands.0))?;
        b.still_obeys(&mut link)
    }),
    Case::both_ways("the peer's Compare and Swap", &["IBRC-46", "IBRC-48"], Needs::Target, |b| {
        let mut link = b.begun()?;
        b.command(&mut link, b'c', 0, ours(8));
        let operands = b.atomic_of(&mut link, op::COMPARE_SWAP)?;
        check(operands == (9, 7), || format!("it swaps in {} for {}", operands.0, operands.1))?;
        b.still_obeys(&mut link)
    }),
    Case::to_responder(
        "no more Reads than the tester serves",
        &["IBRC-17"],
        Needs::Target,
        reads_at_once,
    ),
    Case::to_responder("path MTU of 256 octets", &["IBRC-02", "IBRC-03"], Needs::Target, |b| {
        with_mtu(b, 1)
    }),
    Case::to_responder("path MTU of 512 octets", &["IBRC-02", "IBRC-03"], Needs::Target, |b| {
        with_mtu(b, 2)
    }),
];

/// What the target's memory holds when it writes it.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

fn writes(bench: &mut Bench) -> Play {
    let mut link = bench.begun()?;
    let grants = bench.grants(&link)?;
    let mtu = link.terms.mtu;
    // Other cases have changed its front.
    let psn = link.write(grants.both, &pattern(4 * mtu));
    link.acknowledged(psn)?;
    for length in [1, 2, 3, 5, mtu - 1, mtu, mtu + 1, 3 * mtu + 3] {
        bench.command(&mut link, b'w', 0, ours(length as u64));
        let mut at = 0;
        // It may write in parts.
        while at < length {
            let seen = link.message()?;
            let Incoming::Write { address, key, data, immediate: None } = seen else {
                return fail(format!("commanded to write, the peer sent {}", seen.text()));
            };
            check((address, key) == (ADDRESS + at as u64, KEY), || {
                format!("after {at} octets it writes at {address:#x} with key {key:#x}")
            })?;
            let part = at..(at + data.len()).min(length);
            check(data == pattern(length)[part], || {
                format!("a Write of {length} octets has others")
            })?;
            at += data.len();
        }
        match link.message()? {
            Incoming::Send { data, .. } if data == b"written" => {}
            other => return fail(format!("after its Write the peer sent {}", other.text())),
        }
    }
    Ok(())
}

fn reads_at_once(bench: &mut Bench) -> Play {
    let mut req = bench.usual();
    req.responder_resources = 1;
    let mut link = bench.connected(&req)?;
    bench.command(&mut link, b'r', 3, ours(16));
    for number in 0..3 {
        let seen = link.message()?;
        let Incoming::Read { psn, length, .. } = seen else {
            return fail(format!("Read {number}: the peer sent {}", seen.text()));
        };
        if let Some(packet) = link.next_request(QUIET)
            && packet.psn != psn
        {
            return fail(format!("while a Read was outstanding the peer sent {}", packet.text()));
        }
        link.respond(psn, &vec![1; length as usize], 0..1);
    }
    Ok(())
}

fn with_mtu(bench: &mut Bench, code: u8) -> Play {
    let mut req = bench.usual();
    req.mtu = code;
    let mut link = bench.connected(&req)?;
    let (grants, mtu) = (bench.grants(&link)?, link.terms.mtu);
    let psn = link.write(grants.both, &pattern(3 * mtu));
    link.acknowledged(psn)?;
    let back = link.read(grants.both, 3 * mtu as u32)?;
    check(back == pattern(3 * mtu), || "a Read returned other octets".into())?;
    bench.command(&mut link, b's', 3, ours(0));
    match link.message()? {
        Incoming::Send { data, .. } if data.len() == 768 => Ok(()),
        other => fail(format!("commanded to send, the peer sent {}", other.text())),
    }
}

impl Bench {
    /// The peer's atomic operation, which is answered.
    fn atomic_of(&self, link: &mut Link, wanted: u8) -> Play<(u64, u64)> {
        let seen = link.message()?;
        let Incoming::Atomic { psn, opcode, address, key, operands } = seen else {
            return fail(format!("commanded to it, the peer sent {}", seen.text()));
        };
        check((opcode, address, key) == (wanted, ADDRESS, KEY), || {
            format!("{} at {address:#x} with key {key:#x}", super::packet::name(opcode))
        })?;
        link.finish_atomic(psn, 35);
        Ok(operands)
    }

    /// Fails unless the target still executes commands.
    pub(super) fn still_obeys(&self, link: &mut Link) -> Play {
        if self.peer.kind != Kind::Target {
            return skip("nothing shows whether the peer goes on");
        }
        let words = self.words();
        link.send_message(&words);
        self.reacts(link)
    }
}

impl Link {
    /// Answers an atomic operation of the peer's.
    pub(super) fn finish_atomic(&self, psn: u32, original: u64) {
        let mut header = super::packet::aeth(0x1f, self.served);
        header.extend(original.to_be_bytes());
        let packet =
            super::packet::Packet::new(op::ATOMIC_ACKNOWLEDGE, self.terms.peer_qpn, psn, &[]);
        self.send(&packet.with(&header));
    }

    /// Fails if the peer sends a request within a short time after it was refused.
    pub(super) fn peer_stops(&mut self, code: u8) -> Play {
        match self.next_request(QUIET) {
            Some(packet) => {
                fail(format!("after {} the peer sent {}", syndrome(code), packet.text()))
            }
            None => Ok(()),
        }
    }
}
