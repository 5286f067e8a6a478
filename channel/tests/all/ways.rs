//! The ways of a session, its end when no way leads to the peer, and servers, tasks and streams whose sessions go on.

use std::io::{Read, Write};
use std::time::Duration;

use itapi::Ia;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use warpline_channel::{
    AsyncChannel, AsyncListener, Channel, Error, Event, Listener, Options, Server,
};
use warpline_patience::within;

use crate::pair::{HANG, message};
use crate::relay::{Cut, Relay};
use crate::resume::{RESUME, impatient, relayed};

/// Without a way for this long a session ends.
const SHORTLY: Options = Options { resume: Some(Duration::from_millis(200)), ..RESUME };

#[test]
fn both_ends_get_one_error_with_every_cause() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, SHORTLY, &[Cut::Reset], 1);
    client.send(b"before").unwrap();
    assert_eq!(server.recv().unwrap().as_deref(), Some(&b"before"[..]));
    // The relay closes what it cannot connect.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    relay.lead_to(nobody);
    relay.cut(1);
    client.send(b"perhaps lost").unwrap();
    let first = client.recv().unwrap_err();
    let text = first.to_string();
    assert!(text.contains("the session was not resumed within 200ms"), "{text}");
    assert!(text.contains("attempts"), "{text}");
    assert!(matches!(client.send(b"x").unwrap_err(), Error::Lost(Some(_))));
    let text = loop {
        match server.recv() {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(text.contains("the session was not resumed within 200ms"), "{text}");
}

#[test]
fn a_sender_waits_and_its_memory_is_bounded_while_the_peer_is_away() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    relay.lead_to(nobody.local_addr().unwrap());
    // It has none without a connection.
    let address = server.ends().unwrap().local.address;
    let before = message(1, 200);
    client.send(&before).unwrap();
    let held = server.recv().unwrap().unwrap();
    relay.cut(1);
    client.send(b"0").unwrap();
    let mut sent = 1;
    // It is refused at last, whether or not the loss was noticed.
    while client.try_send(&[sent as u8; 10]).is_ok() {
        sent += 1;
        assert!(sent <= RESUME.slots);
    }
    assert!(matches!(client.try_send(b"x").unwrap_err(), Error::Full));
    assert!(held[..] == before);
    relay.lead_to(address);
    std::thread::scope(|scope| {
        scope.spawn(|| client.send(b"at last").unwrap());
        assert_eq!(server.recv().unwrap().as_deref(), Some(&b"0"[..]));
        for n in 1..sent {
            assert_eq!(server.recv().unwrap().as_deref(), Some(&[n as u8; 10][..]));
        }
        assert_eq!(server.recv().unwrap().as_deref(), Some(&b"at last"[..]));
    });
    assert!(held[..] == before);
}

/// A session of two ways, the first of which leads nowhere from some time on.
fn two_ways(ia: &Ia, other: &Ia) {
    let listener = Listener::bind_with(ia, "127.0.0.1:0", RESUME).unwrap();
    let first = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 1);
    let second = Relay::start(listener.address(), 0, 1, &[Cut::Reset], 2);
    let ways = [(ia.clone(), first.address()), (other.clone(), second.address())];
    let (client, server) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_any(ways, RESUME).unwrap();
        (client, accepted.join().unwrap())
    });
    let draft = client.draft(20).unwrap();
    client.send(message(0, 200)).unwrap();
    client.send(message(1, 5000)).unwrap();
    server.send(message(2, 200)).unwrap();
    let held = client.recv().unwrap().unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    first.lead_to(nobody);
    first.cut(1);
    client.send(draft).unwrap();
    assert!(server.recv().unwrap().unwrap()[..] == message(0, 200));
    assert!(server.recv().unwrap().unwrap()[..] == message(1, 5000));
    assert_eq!(server.recv().unwrap().as_deref(), Some(&b""[..]));
    assert!(held[..] == message(2, 200));
    drop(held);
    for n in 0..50 {
        let octets = message(n, 100 * n as usize);
        server.send(&octets).unwrap();
        assert!(client.recv().unwrap().unwrap()[..] == octets);
        client.send(octets.clone()).unwrap();
        assert!(server.recv().unwrap().unwrap()[..] == octets);
    }
    let so_far = client.resumption().unwrap();
    assert_eq!((so_far.moves, so_far.way, so_far.connected), (1, 1, true));
    assert!(so_far.cause.is_some());
    std::thread::scope(|scope| {
        scope.spawn(|| client.close().unwrap());
        server.close().unwrap();
    });
}

/// What this process publishes of the connection of this local port.
fn published(port: u16) -> String {
    use state_page::place::{self, Limits, Outcome};
    let user = rustix::process::geteuid().as_raw();
    let directory = place::directory(|name| std::env::var_os(name), user);
    let pages = place::pages(&directory, user, None, &mut { Limits::ALL }).unwrap();
    let pages = pages.into_iter().filter_map(|found| match found.outcome {
        Outcome::Alive(page) if page.process.pid == std::process::id() => Some(page),
        _ => None,
    });
    let mut all = pages.flat_map(|page| page.queue_pairs);
    let is = |qp: &state_page::read::QueuePair| qp.local.is_some_and(|it| it.port() == port);
    all.find(is).map(|qp| qp.note).unwrap_or_default()
}

/// In a process of its own, whose page has few records.
#[test]
fn stat_and_top_show_the_session() {
    crate::memory::in_a_process("ways::stat_and_top_show_the_session", shows_the_session);
}

fn shows_the_session() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset], 1);
    let port = || client.ends().unwrap().local.address.port();
    // A record that changes while it is read is left out.
    let shows = |note: &str| published(port()).starts_with(note);
    warpline_patience::until("the session", || shows("session, moved 0 times"));
    relay.cut(1);
    client.send(b"x").unwrap();
    server.recv().unwrap();
    let moved = "session, moved 1 times, last because: ";
    warpline_patience::until("its move", || shows(moved));
}

#[test]
fn a_session_goes_on_by_another_way() {
    let ia = impatient();
    two_ways(&ia, &ia);
}

#[test]
fn a_session_goes_on_with_another_device() {
    two_ways(&impatient(), &impatient());
}

#[test]
fn a_session_returns_to_the_preferred_way() {
    let ia = impatient();
    let options = Options { returns: Some(Duration::from_millis(10)), ..RESUME };
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", options).unwrap();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = Relay::start(nobody, 0, 1, &[Cut::Reset], 1);
    let ways = [(ia.clone(), relay.address()), (ia.clone(), listener.address())];
    let (client, server) = std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().unwrap());
        let client = Channel::connect_any(ways, options).unwrap();
        (client, accepted.join().unwrap())
    });
    assert_eq!(client.resumption().unwrap().way, 1);
    relay.lead_to(listener.address());
    let mut n = 0;
    while client.resumption().unwrap().moves == 0 || !client.resumption().unwrap().connected {
        client.send(message(n, 100)).unwrap();
        assert!(server.recv().unwrap().unwrap()[..] == message(n, 100));
        n += 1;
    }
    let so_far = client.resumption().unwrap();
    assert_eq!((so_far.way, so_far.moves), (0, 1));
    assert_eq!(so_far.cause.unwrap().to_string(), "a preferred way is back");
}

/// One that is refused before anything is sent, and an IPv6 address that this host has not.
#[test]
fn ways_that_cannot_be_begun_are_passed_over() {
    let ia = impatient();
    let listener = Listener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let good = listener.address().to_string();
    let nobody = || Ia::builder().device("vp_roce").open().unwrap();
    let ways = [(ia.clone(), "[2001:db8::1]:0"), (nobody(), "127.0.0.1:0"), (ia, &*good)];
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| within("the third way", || listener.accept()).unwrap());
        let client = Channel::connect_any(ways, RESUME).unwrap();
        assert_eq!(client.resumption().unwrap().way, 2);
        client.send(b"by the third").unwrap();
        assert_eq!(accepted.join().unwrap().recv().unwrap().as_deref(), Some(&b"by the third"[..]));
    });
    let none = Channel::connect_any([] as [(Ia, &str); 0], RESUME).unwrap_err();
    assert!(matches!(&none, Error::NoWay(causes) if causes.is_empty()), "{none}");
}

#[test]
fn the_errors_of_all_ways_are_reported() {
    let ia = impatient();
    let nobody = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ways = [(ia.clone(), nobody()), (ia.clone(), nobody())];
    let error = Channel::connect_any(ways.clone(), RESUME).unwrap_err();
    assert!(matches!(&error, Error::NoWay(causes) if causes.len() == 2), "{error}");
    for (_, address) in ways {
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn clients_of_a_server_go_on() {
    let ia = impatient();
    let server = Server::bind_with(&ia, "127.0.0.1:0", RESUME, 8).unwrap();
    let relay = Relay::start(server.address(), 0, 20_000, &[Cut::Reset, Cut::Fin], 3);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let (mut connected, mut gone) = (0, 0);
            while gone < 3 {
                match server.next_timeout(HANG).unwrap().expect("an event") {
                    Event::Connected(_) => connected += 1,
                    Event::Message(peer, message) => peer.send(&message).unwrap(),
                    Event::Gone(_, how) => {
                        how.unwrap();
                        gone += 1;
                    }
                    _ => {}
                }
            }
            assert_eq!(connected, 3);
        });
        let clients: Vec<_> =
            (0..3).map(|_| Channel::connect_with(&ia, relay.address(), RESUME).unwrap()).collect();
        relay.cut(30);
        for client in clients {
            let relay = &relay;
            scope.spawn(move || {
                let mut n = 0;
                while relay.made() < 30 {
                    client.send(message(n, n as usize)).unwrap();
                    assert!(client.recv().unwrap().unwrap()[..] == message(n, n as usize));
                    n = (n + 1) % 400;
                }
                client.close().unwrap();
            });
        }
        served.join().unwrap();
    });
}

#[tokio::test]
async fn tasks_go_on() {
    let ia = impatient();
    let listener = AsyncListener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 20_000, &[Cut::Reset, Cut::Fin], 4);
    let address = relay.address();
    let (server, client) =
        tokio::join!(listener.accept(), AsyncChannel::connect_with(&ia, address, RESUME));
    let (server, client) = (server.unwrap(), client.unwrap());
    relay.cut(20);
    let serve = async {
        while let Some(message) = server.recv().await.unwrap() {
            server.send(&message).await.unwrap();
        }
        server.close().await.unwrap();
    };
    let call = async {
        let mut n = 0;
        while relay.made() < 20 {
            client.send(message(n, n as usize)).await.unwrap();
            assert!(client.recv().await.unwrap().unwrap()[..] == message(n, n as usize));
            n = (n + 1) % 400;
        }
        client.close().await.unwrap();
    };
    tokio::join!(serve, call);
}

#[test]
fn a_stream_goes_on() {
    let ia = impatient();
    let (client, server, relay) = relayed(&ia, RESUME, &[Cut::Reset, Cut::Fin], 50_000);
    relay.cut(20);
    let octets = message(9, 2_000_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = client.into_stream();
            stream.write_all(&octets).unwrap();
            stream.into_channel().close().unwrap();
        });
        let (mut stream, mut got) = (server.into_stream(), Vec::new());
        stream.read_to_end(&mut got).unwrap();
        stream.into_channel().close().unwrap();
        assert!(got == octets);
    });
    assert_eq!(relay.made(), 20);
}

/// By the second way, since the first leads nowhere.
#[tokio::test]
async fn an_async_stream_goes_on() {
    let ia = impatient();
    let listener = AsyncListener::bind_with(&ia, "127.0.0.1:0", RESUME).unwrap();
    let relay = Relay::start(listener.address(), 0, 50_000, &[Cut::Reset, Cut::Fin], 8);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ways = [(ia.clone(), nobody), (ia.clone(), relay.address())];
    let (server, client) = tokio::join!(listener.accept(), AsyncChannel::connect_any(ways, RESUME));
    let (server, client) = (server.unwrap(), client.unwrap());
    assert_eq!(client.resumption().unwrap().way, 1);
    relay.cut(20);
    let octets = message(9, 2_000_000);
    let write = async {
        let mut stream = client.into_stream();
        stream.write_all(&octets).await.unwrap();
        stream.flush().await.unwrap();
        stream.into_channel().close().await.unwrap();
    };
    let read = async {
        let (mut stream, mut got) = (server.into_stream(), Vec::new());
        stream.read_to_end(&mut got).await.unwrap();
        stream.into_channel().close().await.unwrap();
        got
    };
    let ((), got) = tokio::join!(write, read);
    assert!(got == octets);
    assert_eq!(relay.made(), 20);
}
