//! One server, many clients.

use std::time::Duration;

use warpline_channel::{Channel, Error, Event, Options, Server};

use crate::pair::{HANG, TIGHT, message, open};

#[test]
fn a_hundred_clients_are_served_by_one_thread() {
    const CLIENTS: usize = 100;
    let ia = open();
    let server = Server::bind_with(&ia, "127.0.0.1:0", TIGHT, CLIENTS).unwrap();
    let address = server.address();
    std::thread::scope(|scope| {
        for n in 0..CLIENTS as u64 {
            let ia = &ia;
            scope.spawn(move || {
                let channel = Channel::connect_with(ia, address, TIGHT).unwrap();
                for call in 0..10 {
                    let len = if call == 5 { 3000 } else { 40 };
                    channel.send(message(n + call, len)).unwrap();
                    assert!(channel.recv().unwrap().unwrap()[..] == message(n + call, len));
                }
                channel.close().unwrap();
            });
        }
        let (mut connected, mut gone) = (0, 0);
        while gone < CLIENTS {
            match server.next_timeout(HANG).unwrap().expect("an event") {
                Event::Connected(_) => connected += 1,
                Event::Message(peer, message) => peer.send(&message).unwrap(),
                Event::Gone(_, how) => {
                    how.unwrap();
                    gone += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(connected, CLIENTS);
    });
    assert!(server.next_timeout(Duration::ZERO).unwrap().is_none());
}

#[test]
fn a_client_that_does_not_read_affects_no_other() {
    let ia = open();
    let server = Server::bind_with(&ia, "127.0.0.1:0", TIGHT, 2).unwrap();
    let address = server.address();
    let deaf = Channel::connect_with(&ia, address, TIGHT).unwrap();
    let Some(Event::Connected(peer)) = server.next_timeout(HANG).unwrap() else { panic!() };
    let full = (0..100).find_map(|_| peer.send(b"listen").err());
    assert!(matches!(full, Some(Error::Full)));
    let good = Channel::connect_with(&ia, address, TIGHT).unwrap();
    good.send(b"hello").unwrap();
    let mut served = false;
    while !served {
        match server.next_timeout(HANG).unwrap().expect("an event") {
            Event::Message(peer, message) => {
                peer.send(&message).unwrap();
                served = true;
            }
            Event::Connected(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(good.recv().unwrap().as_deref(), Some(&b"hello"[..]));
    // No more than two clients at once.
    assert!(Channel::connect_with(&ia, address, TIGHT).is_err());
    let name = peer.id();
    drop((deaf, peer));
    match server.next_timeout(HANG).unwrap().expect("an event") {
        Event::Gone(peer, Err(error)) => {
            assert_eq!(peer.id(), name);
            assert!(error.to_string().contains("127.0.0.1"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // There is room for another client.
    Channel::connect_with(&ia, address, TIGHT).unwrap();
    drop(good);
}

#[test]
fn invalid_options_are_named() {
    let ia = open();
    for wrong in [Options { slots: 0, ..TIGHT }, Options { small: 3, ..TIGHT }] {
        let error = Server::bind_with(&ia, "127.0.0.1:0", wrong, 1).unwrap_err();
        assert!(matches!(error, Error::Options(_)), "{error}");
    }
}
