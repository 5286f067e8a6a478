//! Messages of every length and form arrive whole, once, in order.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Mutex;

use warpline_channel::{Channel, Error, Options};

use crate::pair::{HANG, TIGHT, message, pair, uneven};

/// Lengths on both sides of each threshold: inline, small, large.
const LENGTHS: [usize; 12] =
    [0, 1, 247, 248, 249, 255, 256, 257, 4096, 65_536, (1 << 20) - 1, 1 << 20];

fn send_in_every_form(channel: &Channel, octets: &[u8]) {
    channel.send(octets).unwrap();
    channel.send(octets.to_vec()).unwrap();
    let mut draft = channel.draft(octets.len()).unwrap();
    draft.write_all(octets).unwrap();
    channel.send(draft).unwrap();
}

#[test]
fn every_length_arrives_in_every_form() {
    let (client, server) = pair(TIGHT);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (number, len) in (0..).zip(LENGTHS) {
                send_in_every_form(&client, &message(number, len));
            }
            client.finish().unwrap();
        });
        for (number, len) in (0..).zip(LENGTHS) {
            for form in 0..3 {
                let got = server.recv().unwrap().expect("a message");
                assert!(got[..] == message(number, len), "form {form} of {len} octets");
            }
        }
        assert!(server.recv().unwrap().is_none());
    });
}

#[test]
fn both_ends_announce_their_limits() {
    let wide = Options { small: 1024, longest: 1 << 16, ..TIGHT };
    let none = Options { large: 0, ..TIGHT };
    let (client, server) = uneven(wide, none);
    assert_eq!((client.longest(), server.longest()), (256, 1024));
    client.send(message(1, 256)).unwrap();
    let error = client.send(message(1, 257)).unwrap_err();
    assert!(matches!(error, Error::TooLong { octets: 257, most: 256 }), "{error}");
    assert!(matches!(client.draft(300).unwrap_err(), Error::TooLong { .. }));
    // A refused draft loses nothing.
    let draft = server.draft(200).unwrap();
    assert!(matches!(client.send(draft).unwrap_err(), Error::ForeignDraft));
    assert_eq!(server.recv().unwrap().unwrap().len(), 256);
    drop(server.draft(200).unwrap());
    let mut draft = server.draft(200).unwrap();
    assert_eq!(draft.read_from(&mut std::io::repeat(7)).unwrap(), 200);
    server.send(draft).unwrap();
    assert_eq!(client.recv().unwrap().as_deref(), Some(&[7; 200][..]));
}

#[test]
fn a_draft_that_got_little_is_a_small_message() {
    let (client, server) = pair(TIGHT);
    for written in [0, 1, 5000] {
        let mut draft = client.draft(10_000).unwrap();
        draft.write_all(&message(3, written)).unwrap();
        client.send(draft).unwrap();
        assert!(server.recv().unwrap().unwrap()[..] == message(3, written));
    }
}

#[test]
fn many_threads_at_each_end_get_each_message_once() {
    const THREADS: u64 = 4;
    const EACH: u64 = 500;
    let (client, server) = pair(TIGHT);
    let seen = Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let client = &client;
                scope.spawn(move || {
                    for n in 0..EACH {
                        let number = thread * EACH + n;
                        // Some of them are large.
                        let len = if n % 50 == 0 { 5000 } else { 8 };
                        let mut octets = vec![0; len];
                        octets[..8].copy_from_slice(&number.to_be_bytes());
                        client.send(octets).unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(message) = server.recv().unwrap() {
                    let number = u64::from_be_bytes(message[..8].try_into().unwrap());
                    assert!(seen.lock().unwrap().insert(number), "{number} twice");
                }
            });
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        client.finish().unwrap();
    });
    assert_eq!(seen.lock().unwrap().len() as u64, THREADS * EACH);
}

#[test]
fn a_stream_of_octets_is_read_to_its_end() {
    let (client, server) = pair(TIGHT);
    let sent = message(9, 300_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = client.into_stream();
            stream.write_all(&sent[..100]).unwrap();
            stream.write_all(&sent[100..]).unwrap();
            stream.finish().unwrap();
            assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
            stream.into_channel().close().unwrap();
        });
        let (mut stream, mut got) = (server.into_stream(), Vec::new());
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent);
        stream.into_channel().close().unwrap();
    });
}

#[test]
fn a_wait_ends_when_it_is_to() {
    let (client, server) = pair(Options { patience: Some(std::time::Duration::ZERO), ..TIGHT });
    assert!(matches!(client.recv().unwrap_err(), Error::Timeout(_)));
    for _ in 0..4 {
        client.send(b"x").unwrap();
    }
    assert!(matches!(client.send(b"x").unwrap_err(), Error::Timeout(_)));
    assert!(matches!(client.try_send(b"x").unwrap_err(), Error::Full));
    for _ in 0..4 {
        assert_eq!(server.recv_timeout(HANG).unwrap().as_deref(), Some(&b"x"[..]));
    }
}

/// Of four slots, three are kept: each further message needs the credit of the one before it.
#[test]
fn an_application_that_keeps_messages_gets_more() {
    let (client, server) = pair(TIGHT);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..40).for_each(|number| client.send(message(number, 64)).unwrap());
            client.finish().unwrap();
        });
        let mut kept = Vec::new();
        for number in 0..40 {
            let got = server.recv().unwrap().expect("a message");
            assert!(got[..] == message(number, 64), "{number}");
            if kept.len() < 3 {
                kept.push(got);
            }
        }
        assert!(server.recv().unwrap().is_none());
        assert!(kept.iter().zip(0..).all(|(got, number)| got[..] == message(number, 64)));
    });
}
