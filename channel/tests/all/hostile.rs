//! A peer that greets as a channel and then violates the protocol: every call of the channel returns at once an
//! error that names the fault, and nothing panics or hangs.

use std::time::Duration;

use itapi::{Buffer, Ep, Evd, Ia, Pz, RemoteRange, RmrContext, Work};
use warpline_channel::session::Violation;
use warpline_channel::wire::{Greeting, Header, Kind};
use warpline_channel::{Channel, Error, Listener};

use crate::pair::{HANG, TIGHT, open};

const GREETING: Greeting =
    Greeting { small: 256, slots: 4, large: 2, longest: 1 << 20, grows: true };

/// An end of which the test writes every octet.
pub(crate) struct Hostile {
    ep: Ep,
    evd: Evd,
    _pz: Pz,
}

impl Hostile {
    /// Connects to a channel, which is returned too.
    fn connect() -> (Self, Channel) {
        let ia = open();
        Self::connect_to(&ia, &Listener::bind_with(&ia, "127.0.0.1:0", TIGHT).unwrap())
    }

    /// Connects to a channel of this listener.
    pub(crate) fn connect_to(ia: &Ia, listener: &Listener) -> (Self, Channel) {
        let address = listener.address();
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(256).unwrap());
        let ep = pz.ep(&evd).max_inline(256).build().unwrap();
        for buffer in pz.buffers(64, 264).unwrap() {
            ep.post_recv(buffer).unwrap();
        }
        let channel = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept().unwrap());
            ep.connect(address, &GREETING.to_octets()).unwrap();
            accepted.join().unwrap()
        });
        (Self { ep, evd, _pz: pz }, channel)
    }

    pub(crate) fn send(&self, kind: Kind, credits: u16, read: u16, rest: &[u8]) {
        let octets =
            [&Header { kind, room: 0, credits, read, arrived: 0 }.to_octets()[..], rest].concat();
        // The connection may have ended already.
        let _ = self.ep.post(Work::send(&octets[..]));
    }

    /// The next message of the channel.
    pub(crate) fn receive(&self) -> Buffer {
        loop {
            let completion = self.evd.wait_success(HANG).unwrap();
            if completion.operation == itapi::Operation::Recv {
                return completion.into_buffer().unwrap();
            }
        }
    }
}

/// The channel's error when the peer does this.
fn error_of(act: impl FnOnce(&Hostile)) -> Error {
    let (hostile, channel) = Hostile::connect();
    act(&hostile);
    let error = loop {
        match channel.recv() {
            Ok(Some(message)) => drop(message),
            Ok(None) => {
                // Messages after the end are checked, too.
                match channel.recv_timeout(Duration::ZERO) {
                    Ok(None) if channel.finish().is_ok() => std::thread::yield_now(),
                    Ok(_) => {}
                    Err(error) => break error,
                }
                match channel.try_send(b"") {
                    Err(Error::Finished) | Ok(()) => {}
                    Err(error) => break error,
                }
            }
            Err(error) => break error,
        }
    };
    assert!(channel.send(b"x").is_err());
    assert!(hostile.ep.ended(HANG).unwrap().is_some());
    error
}

fn violated(act: impl FnOnce(&Hostile)) -> Violation {
    match error_of(act) {
        Error::Protocol(violation) => violation,
        other => panic!("{other}"),
    }
}

fn place(len: u64) -> [u8; 20] {
    RemoteRange { context: RmrContext(0xdead), addr: 0x1000, len }.to_octets()
}

#[test]
fn wrong_numbers_are_reported() {
    assert_eq!(violated(|peer| peer.send(Kind::Ack, 1, 0, b"")), Violation::Credits);
    assert_eq!(violated(|peer| peer.send(Kind::Ack, u16::MAX, 0, b"")), Violation::Credits);
    assert_eq!(violated(|peer| peer.send(Kind::Small, 0, 1, b"x")), Violation::Read);
    assert_eq!(violated(|peer| peer.send(Kind::Ack, 0, 0, b"")), Violation::Idle);
    assert_eq!(violated(|peer| peer.send(Kind::Ack, 0, 0, b"x")), Violation::Length);
    assert_eq!(violated(|peer| peer.send(Kind::Large, 0, 0, b"short")), Violation::Length);
    assert_eq!(violated(|peer| peer.send(Kind::Large, 0, 0, &place(0))), Violation::Large);
    assert_eq!(violated(|peer| peer.send(Kind::Large, 0, 0, &place(1 << 40))), Violation::Large);
    let header = |peer: &Hostile| drop(peer.ep.post(Work::send(&[7; 3])));
    assert_eq!(violated(header), Violation::Header);
}

#[test]
fn a_wrong_address_ends_the_connection() {
    // This end reads there, and its peer's own stack refuses.
    let error = error_of(|peer| peer.send(Kind::Large, 0, 0, &place(4096)));
    assert!(matches!(error, Error::Lost(Some(_))), "{error}");
}

#[test]
fn more_messages_than_were_granted_end_the_connection() {
    // As many as there are receives, while no thread reads: 4 for messages and 5 for control.
    let (hostile, channel) = Hostile::connect();
    for _ in 0..40 {
        hostile.send(Kind::Small, 0, 0, b"x");
    }
    hostile.ep.ended(HANG).unwrap().expect("its stack ends it");
    for _ in 0..4 {
        assert_eq!(channel.recv_timeout(HANG).unwrap().as_deref(), Some(&b"x"[..]));
    }
    let error = channel.recv_timeout(HANG).unwrap_err();
    assert!(matches!(error, Error::Protocol(Violation::Overrun)), "{error}");
}

#[test]
fn receives_used_up_by_allowed_messages_are_detected() {
    let (hostile, channel) = Hostile::connect();
    // Each of these messages is well formed.
    for _ in 0..4 {
        hostile.send(Kind::Small, 0, 0, b"x");
    }
    hostile.send(Kind::End, 0, 0, b"");
    for _ in 0..40 {
        let _ = hostile.ep.post(Work::send(b"").unsignalled());
    }
    let error = loop {
        match channel.recv_timeout(HANG) {
            Ok(Some(message)) => drop(message),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(error.is_none_or(|error| matches!(error, Error::Protocol(_) | Error::Lost(_))));
}

#[test]
fn an_early_end_keeps_received_messages() {
    let (hostile, channel) = Hostile::connect();
    hostile.send(Kind::Small, 0, 0, b"last words");
    drop(hostile);
    assert_eq!(channel.recv_timeout(HANG).unwrap().as_deref(), Some(&b"last words"[..]));
    assert!(matches!(channel.recv_timeout(HANG).unwrap_err(), Error::Lost(Some(_))));
}

#[test]
fn the_wire_is_as_it_is_written_down() {
    let (hostile, channel) = Hostile::connect();
    channel.send(b"hello").unwrap();
    assert_eq!(&hostile.receive()[..], b"\0\0\0\0\0\0\0\0hello");
    channel.send(vec![7; 1000]).unwrap();
    let large = hostile.receive();
    assert_eq!(Header::from_octets(&large).map(|header| header.kind), Some(Kind::Large));
    let from = RemoteRange::from_octets(&large[8..]).unwrap();
    assert_eq!((from.addr, from.len), (0, 1000));
    hostile.send(Kind::Small, 1, 0, b"a");
    hostile.send(Kind::Small, 0, 0, b"b");
    assert_eq!(channel.recv().unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(channel.recv().unwrap().as_deref(), Some(&b"b"[..]));
    // Half of its credits are due: it grants them although it has nothing else to send.
    assert_eq!(&hostile.receive()[..], b"\x02\0\0\x02\0\0\0\0");
    channel.finish().unwrap();
    assert_eq!(&hostile.receive()[..], b"\x03\0\0\0\0\0\0\0");
}
