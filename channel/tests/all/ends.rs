//! How channels end: gracefully with nothing lost, in one direction, by being dropped, and before they begin.

use std::net::TcpListener;

use itapi::Ia;
use warpline_channel::{Channel, Error, Listener};

use crate::pair::{TIGHT, message, open, pair};

#[test]
fn close_with_messages_under_way_in_both_directions_loses_none() {
    for large in [false, true] {
        let (client, server) = pair(TIGHT);
        let len = if large { 3000 } else { 30 };
        let run = |channel: Channel| {
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    (0..200).for_each(|n| channel.send(message(n, len)).unwrap());
                    channel.finish().unwrap();
                });
                let mut count = 0;
                while let Some(got) = channel.recv().unwrap() {
                    assert!(got[..] == message(count, len));
                    count += 1;
                }
                assert_eq!(count, 200);
                sender.join().unwrap();
            });
            channel.close().unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(client));
            run(server);
        });
    }
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let (client, server) = pair(TIGHT);
    client.send(b"the question").unwrap();
    client.finish().unwrap();
    client.finish().unwrap();
    assert!(matches!(client.send(b"more").unwrap_err(), Error::Finished));
    assert_eq!(server.recv().unwrap().as_deref(), Some(&b"the question"[..]));
    assert!(server.recv().unwrap().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|n| server.send(message(n, 2000)).unwrap()));
        for n in 0..50 {
            assert!(client.recv().unwrap().unwrap()[..] == message(n, 2000));
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| client.close().unwrap());
        server.close().unwrap();
    });
}

#[test]
fn received_messages_are_taken_before_the_end_is_reported() {
    let (client, server) = pair(TIGHT);
    for n in 0..3 {
        client.send(message(n, 10)).unwrap();
    }
    // Not finished: something may be missing.
    drop(client);
    for n in 0..3 {
        assert!(server.recv().unwrap().unwrap()[..] == message(n, 10));
    }
    let error = server.recv().unwrap_err();
    assert!(matches!(error, Error::Lost(Some(_))), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    assert!(matches!(server.send(b"x").unwrap_err(), Error::Lost(_)));
    assert!(matches!(server.close().unwrap_err(), Error::Lost(_)));
}

/// What has arrived is received although a send fails before.
#[test]
fn what_has_arrived_is_received_after_a_failed_send() {
    for n in 0..20 {
        let (client, server) = pair(TIGHT);
        client.send(message(n, 3000)).unwrap();
        server.send(format!("refused: {n}")).unwrap();
        // Read from the client after the reason has arrived there.
        assert!(server.recv().unwrap().unwrap()[..] == message(n, 3000));
        drop(server);
        let lost = loop {
            match client.send(message(n, 100)) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(lost, Error::Lost(_)), "{lost}");
        assert_eq!(client.recv().unwrap().as_deref(), Some(format!("refused: {n}").as_bytes()));
        assert!(matches!(client.recv().unwrap_err(), Error::Lost(_)));
    }
}

#[test]
fn an_end_dropped_after_the_peers_end_closes_in_order() {
    let (client, server) = pair(TIGHT);
    std::thread::scope(|scope| {
        scope.spawn(move || while server.recv().unwrap().is_some() {});
        client.send(b"x").unwrap();
        client.close().unwrap();
    });
}

#[test]
fn messages_outlive_their_channel() {
    let (client, server) = pair(TIGHT);
    client.send(message(1, 100)).unwrap();
    client.send(message(2, 5000)).unwrap();
    let (mut small, large) = (server.recv().unwrap().unwrap(), server.recv().unwrap().unwrap());
    let draft = server.draft(10).unwrap();
    drop(server);
    small[0] = 1;
    assert!(large[..] == message(2, 5000));
    drop((small, large, draft));
}

#[test]
fn a_listener_is_no_channel_for_others() {
    let ia = open();
    let listener = Listener::bind(&ia, "127.0.0.1:0").unwrap();
    let address = listener.address();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let (pz, evd) = (ia.pz().unwrap(), ia.evd(16).unwrap());
        for greeting in [&b"hello"[..], b"WLch\0\x09 and what it may be"] {
            let ep = pz.ep(&evd).build().unwrap();
            let error = ep.connect(address, greeting).unwrap_err().to_string();
            assert!(error.contains("reject"), "{error}");
        }
        // A channel connects all the same.
        let client = Channel::connect(&ia, address).unwrap();
        accepted.join().unwrap();
        drop(client);
    });
}

/// The client's error for a server's greeting.
fn greeted(ia: &Ia, greeting: &'static [u8], accepts: bool) -> String {
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (pz, evd) = (ia.pz().unwrap(), ia.evd(16).unwrap());
            let (ep, request) = (pz.ep(&evd).build().unwrap(), listen.request().unwrap());
            if accepts {
                request.accept(&ep, greeting).unwrap();
                ep.ended(crate::pair::HANG).unwrap();
            } else {
                request.reject(greeting).unwrap();
            }
        });
        Channel::connect(ia, address).unwrap_err().to_string()
    })
}

#[test]
fn a_peer_of_another_version_is_a_clear_error() {
    let ia = open();
    let reported = "the peer has version 2 of the channel, this end version 1";
    assert_eq!(greeted(&ia, b"WLch\0\x02", true), reported);
    assert_eq!(greeted(&ia, b"WLch\0\x02", false), reported);
    let reported = greeted(&ia, b"picture server", true);
    assert_eq!(reported, "the peer uses RDMA, but is not a Warpline channel");
    let reported = greeted(&ia, b"WLch\0\x01", true);
    assert!(reported.contains("a value that is not allowed"), "{reported}");
    assert!(greeted(&ia, b"closed today", false).contains("reject"));
}

#[test]
fn a_missing_server_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Channel::connect(&open(), free).unwrap_err().to_string();
    assert!(error.contains(&free.to_string()), "{error}");
    assert!(Channel::connect(&open(), "no such host.invalid:1").is_err());
}
