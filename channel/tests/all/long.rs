//! Long messages from the same machine: once many came, receives have room for them, and they are sent in one Send.
//! What each end sends is seen by a peer whose octets the test writes; that all arrive, by two channels.

use std::collections::VecDeque;
use std::io::Write;

use itapi::{Access, Adopted, Buffer, Ep, Evd, Operation, Pz, RemoteRange, Work};
use warpline_channel::wire::{Greeting, Header, Kind};
use warpline_channel::{Channel, Listener, Options};

use crate::pair::{HANG, message, open, pair};

/// Limits whose memory for large messages is enough for long receives.
const ROOMY: Options = Options {
    small: 4096,
    slots: 16,
    large: 8,
    longest: 1 << 20,
    patience: Some(HANG),
    resume: None,
    returns: None,
};

const LONG: usize = 100_000;

/// A peer that serves Reads and tells what it receives.
struct Peer {
    ep: Ep,
    evd: Evd,
    pz: Pz,
    /// Of large messages that may not be read yet.
    sent: VecDeque<Adopted<Vec<u8>>>,
}

impl Peer {
    fn connect(grows: bool) -> (Self, Channel) {
        let ia = open();
        let listener = Listener::bind_with(&ia, "127.0.0.1:0", ROOMY).unwrap();
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(1024).unwrap());
        let ep = pz.ep(&evd).depth(256, 256).max_inline(256).allow(Access::REMOTE_READ);
        let ep = ep.build().unwrap();
        for buffer in pz.buffers(64, (256 << 10) + 8).unwrap() {
            ep.post_recv(buffer).unwrap();
        }
        let Options { small, slots, large, longest, .. } = ROOMY;
        let greeting = Greeting { small, slots, large, longest, grows };
        let channel = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap());
            ep.connect(listener.address(), &greeting.to_octets()).unwrap();
            accepted.join().unwrap()
        });
        (Self { ep, evd, pz, sent: VecDeque::new() }, channel)
    }

    fn send(&self, header: Header, rest: &[u8]) {
        let mut buffer = self.pz.buffer(8 + rest.len()).unwrap();
        buffer.write_all(&header.to_octets()).unwrap();
        buffer.write_all(rest).unwrap();
        self.ep.post(Work::send(buffer)).unwrap();
    }

    /// Sends a message that the channel has to read.
    fn send_large(&mut self, octets: Vec<u8>) {
        let region = self.pz.adopt(octets).remote_read().zero_based().register().unwrap();
        let place = region.range(0..LONG).unwrap().remote().to_octets();
        self.send(Header { kind: Kind::Large, room: 0, credits: 0, read: 0, arrived: 0 }, &place);
        self.sent.push_back(region);
    }

    /// The next message of the channel, whose receive is posted again.
    fn receive(&self) -> (Header, Vec<u8>) {
        let completion = loop {
            let completion = self.evd.wait_success(HANG).unwrap();
            if completion.operation == Operation::Recv {
                break completion;
            }
        };
        let buffer: Buffer = completion.into_buffer().unwrap();
        let got = (Header::from_octets(&buffer).unwrap(), buffer[8..].to_vec());
        self.ep.post_recv(buffer).unwrap();
        got
    }
}

/// Sends `count` large messages to the channel, as it allows; returns the greatest *room* that it announced.
fn room_after(peer: &mut Peer, channel: &Channel, count: u64) -> u8 {
    let (mut credits, mut room) = (ROOMY.slots, 0);
    for n in 0..count {
        peer.send_large(message(n, LONG));
        credits -= 1;
        assert!(channel.recv().unwrap().unwrap()[..] == message(n, LONG), "message {n}");
        while credits == 0 || peer.sent.len() == usize::from(ROOMY.large) {
            let header = peer.receive().0;
            peer.sent.drain(..usize::from(header.read));
            credits += header.credits;
            room = room.max(header.room);
        }
    }
    room
}

#[test]
fn an_end_announces_longer_receives() {
    let (mut peer, channel) = Peer::connect(true);
    assert_eq!(room_after(&mut peer, &channel, 60), 18);
    for n in 0..4 {
        peer.send(
            Header { kind: Kind::Small, room: 0, credits: 0, read: 0, arrived: 0 },
            &message(n, LONG),
        );
        assert!(channel.recv().unwrap().unwrap()[..] == message(n, LONG));
    }
    let (mut peer, channel) = Peer::connect(false);
    assert_eq!(room_after(&mut peer, &channel, 60), 0);
}

#[test]
fn an_end_uses_longer_receives_while_there_are_any() {
    let (peer, channel) = Peer::connect(true);
    let tell = |room| {
        peer.send(Header { kind: Kind::Small, room, credits: 0, read: 0, arrived: 0 }, b"room");
        assert_eq!(channel.recv().unwrap().as_deref(), Some(&b"room"[..]));
    };
    let kind = || peer.receive().0.kind;
    channel.send(&message(1, LONG)[..]).unwrap();
    assert_eq!(kind(), Kind::Large);
    tell(18);
    channel.send(&message(2, LONG)[..]).unwrap();
    let (header, octets) = peer.receive();
    assert!(header.kind == Kind::Small && octets == message(2, LONG));
    // A vector is not copied, and longer messages have no room.
    channel.send(message(3, LONG)).unwrap();
    assert_eq!(kind(), Kind::Large);
    channel.send(&message(4, 300_000)[..]).unwrap();
    assert_eq!(kind(), Kind::Large);
    let drafts = || {
        let mut draft = channel.draft(LONG).unwrap();
        draft.write_all(&message(5, LONG)).unwrap();
        draft
    };
    let (first, second) = (drafts(), drafts());
    channel.send(first).unwrap();
    assert_eq!(kind(), Kind::Small);
    tell(0);
    // It was made while there was room.
    channel.send(second).unwrap();
    let (header, place) = peer.receive();
    assert_eq!(header.kind, Kind::Large);
    assert_eq!(RemoteRange::from_octets(&place).unwrap().len, LONG as u64);
}

/// More than there are buffers for it.
#[test]
fn an_application_may_keep_many_drafts() {
    let (peer, channel) = Peer::connect(true);
    peer.send(Header { kind: Kind::Small, room: 18, credits: 0, read: 0, arrived: 0 }, b"");
    channel.recv().unwrap();
    let kept: Vec<_> = (0..40).map(|_| channel.draft(LONG).unwrap()).collect();
    channel.send(&message(1, LONG)[..]).unwrap();
    assert_eq!(peer.receive().0.kind, Kind::Large);
    drop(kept);
    channel.send(&message(1, LONG)[..]).unwrap();
    assert_eq!(peer.receive().0.kind, Kind::Small);
}

/// Lengths of all kinds, by phases so that receives grow, and short ones come again.
fn length(n: u64) -> usize {
    match (n / 40) % 3 {
        0 => LONG,
        1 => 10,
        _ => [10, 4096, LONG, 4097, 300_000, 262_144, 262_145][n as usize % 7],
    }
}

fn send(channel: &Channel, n: u64) {
    let octets = message(n, length(n));
    match n % 6 {
        0 | 3 => channel.send(&octets).unwrap(),
        4 => channel.send(octets).unwrap(),
        _ => {
            let mut draft = channel.draft(octets.len()).unwrap();
            draft.write_all(&octets).unwrap();
            channel.send(draft).unwrap();
        }
    }
}

#[test]
fn every_length_arrives_while_receives_grow() {
    let (client, server) = pair(ROOMY);
    std::thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(|| {
                (0..240).for_each(|n| send(end, n));
                end.finish().unwrap();
            });
            scope.spawn(|| {
                let mut kept = VecDeque::new();
                for n in 0..240 {
                    let got = end.recv().unwrap().unwrap();
                    assert!(got[..] == message(n, length(n)), "message {n}");
                    // Some are kept for a while, in the order of others.
                    kept.push_back((n, got));
                    if kept.len() > 8 {
                        let (n, got) = kept.remove(n as usize % 8).unwrap();
                        assert!(got[..] == message(n, length(n)), "message {n}, kept");
                    }
                }
                assert!(end.recv().unwrap().is_none());
            });
        }
    });
}

/// Both send as many messages as there are slots before they receive one.
#[test]
fn both_ends_may_fill_all_slots_after_they_have_grown() {
    let (client, server) = pair(ROOMY);
    for n in 0..200 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.send(&message(n, LONG)[..]).unwrap();
            assert!(to.recv().unwrap().unwrap()[..] == message(n, LONG));
        }
    }
    for len in [LONG, 10] {
        for end in [&client, &server] {
            (0..3).for_each(|n| end.send(&message(n, len)[..]).unwrap());
        }
        std::thread::scope(|scope| {
            for end in [&client, &server] {
                scope.spawn(move || {
                    (3..8).for_each(|n| end.send(&message(n, len)[..]).unwrap());
                    (0..8).for_each(|n| {
                        assert!(end.recv().unwrap().unwrap()[..] == message(n, len));
                    });
                });
            }
        });
    }
}
