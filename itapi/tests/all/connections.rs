//! Tests of connecting, rejecting and disconnecting.

use std::net::Ipv4Addr;
use std::time::Duration;

use itapi::{ConnEvent, ConnectParams, Disconnect, EpState, Error, Ia, PathSender, PeerPath, Work};

use crate::pair::{HANG, Side, connect, open, pair};

// [it_ep_accept] [it_listen_create] [itw_connect] [itw_listen] [itw_listen_address]
#[test]
fn private_data_travels_both_ways() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b.reads(3, 5)));
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listen.request().unwrap();
            assert_eq!(request.private_data(), b"ping");
            request.accept(&server.ep, b"pong").unwrap();
        });
        let connected = client.ep.connect(address, b"ping").unwrap();
        assert_eq!(connected.private_data, b"pong");
        // At most what the server accepts, at least what it requires.
        assert_eq!(connected.ord, 3);
        assert!(connected.ird >= 5);
        assert_eq!(connected.crc, connected.local.is_err(), "shared memory needs none");
        let queried = client.ep.query().unwrap().established.unwrap();
        assert_eq!(queried.local, connected.local);
    });
    assert_eq!(client.ep.state(), EpState::Connected);
}

// [it_reject] [it_ep_reset]
#[test]
fn a_reject_arrives_with_its_reason_and_the_endpoint_can_try_again() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b));
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| listen.request().unwrap().reject(b"full").unwrap());
        match client.ep.connect(address, b"") {
            Err(Error::Connection(event)) => match *event {
                ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"full"),
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
    });
    client.ep.reset().unwrap();
    connect(&ia, &client, &server);
}

#[test]
fn a_dropped_request_is_rejected() {
    let ia = open();
    let client = Side::new(&ia, |b| b);
    let listen = ia.listen("[::1]:0").unwrap();
    let address = listen.address();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(listen.request().unwrap()));
        let error = client.ep.connect(address, b"").unwrap_err();
        assert!(error.to_string().contains("reject"), "{error}");
    });
}

#[test]
fn a_dropped_listener_rejects_the_requests_that_wait() {
    let ia = open();
    let client = Side::new(&ia, |b| b);
    let listen = ia.listen("127.0.0.1:0").unwrap();
    client.ep.start_connect(ConnectParams::new(listen.address())).unwrap();
    warpline_patience::until("the request", || listen.evd().queued() != 0);
    drop(listen);
    let end = client.ep.ended(HANG).unwrap().unwrap();
    assert!(matches!(end, ConnEvent::Rejected { .. }), "{end}");
}

// [it_ep_connect]
#[test]
fn a_connect_to_a_port_without_listener_is_refused() {
    let ia = open();
    let client = Side::new(&ia, |b| b);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = client.ep.connect(closed, b"").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("refused") && text.contains(&closed.to_string()), "{text}");
}

// [it_ep_disconnect]
#[test]
fn both_ends_see_an_orderly_end_and_keep_it() {
    let (client, server) = pair();
    client.ep.disconnect().unwrap();
    for _ in 0..2 {
        let end = server.ep.ended(HANG).unwrap().unwrap();
        assert!(matches!(end, ConnEvent::Disconnected { by_peer: true, .. }), "{end}");
    }
    assert!(matches!(client.ep.ended(HANG).unwrap(), Some(ConnEvent::Disconnected { .. })));
}

#[test]
fn one_dispatcher_gets_the_connection_events_of_many_endpoints() {
    let ia = open();
    let events = ia.conn_evd().unwrap();
    let clients: Vec<_> = (0..4).map(|_| Side::new(&ia, |b| b.conn_evd(&events))).collect();
    let servers: Vec<_> = (0..4).map(|_| Side::new(&ia, |b| b)).collect();
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    for client in &clients {
        client.ep.start_connect(ConnectParams::new(address)).unwrap();
        assert!(client.ep.ended(Duration::ZERO).is_err());
    }
    for server in &servers {
        listen.request().unwrap().accept(&server.ep, b"").unwrap();
    }
    let mut connected = Vec::new();
    while connected.len() < clients.len() {
        let (ep, event) = events.wait(HANG).unwrap().expect("an event");
        assert!(matches!(event, ConnEvent::Established(_)), "{event}");
        connected.push(ep);
    }
    connected.sort();
    let mut known: Vec<_> = clients.iter().map(|c| c.ep.id()).collect();
    known.sort();
    assert_eq!(connected, known);
}

// [it_evd_wait]
#[test]
fn an_interrupt_ends_a_wait() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let waiting = side.evd.clone();
    let waiter = std::thread::spawn(move || waiting.wait(Duration::MAX));
    // An interrupt ends only waits that have begun, so repeat it.
    warpline_patience::until("the wait to be interrupted", || {
        side.evd.interrupt();
        waiter.is_finished()
    });
    assert!(matches!(waiter.join().unwrap(), Err(Error::Access(_))));
}

// [it_ep_disconnect] [it_ep_free]: a Send completes before it arrives.
#[test]
fn completed_sends_arrive_however_the_endpoint_is_closed() {
    const MESSAGES: usize = 8;
    const OCTETS: usize = 1 << 20;
    let ends: [fn(Side); 3] = [
        drop,
        |client| client.ep.disconnect().unwrap(),
        |client| client.ep.start_disconnect(Disconnect::Graceful).unwrap(),
    ];
    for leave in ends.into_iter().cycle().take(12) {
        let (near, far) = (open(), open());
        let (client, server) = (Side::new(&near, |b| b), Side::new(&far, |b| b));
        connect(&far, &client, &server);
        for _ in 0..MESSAGES {
            server.ep.post_recv(server.pz.buffer(OCTETS).unwrap()).unwrap();
        }
        let filled = |message| {
            let mut buffer = client.pz.buffer(OCTETS).unwrap();
            buffer.fill(&vec![message as u8; OCTETS]).unwrap();
            buffer
        };
        let buffers: Vec<_> = (0..MESSAGES).map(filled).collect();
        for buffer in buffers {
            client.ep.post(Work::send(buffer)).unwrap();
        }
        (0..MESSAGES).for_each(|_| drop(client.success()));
        leave(client);
        for message in 0..MESSAGES {
            let octets = server.success().into_buffer().unwrap().to_vec();
            assert!(octets == vec![message as u8; OCTETS], "message {message}");
        }
    }
}

/// A path to `number` at this host, and how to send by it.
fn path(number: u32) -> (PeerPath, PathSender) {
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let (psn, ird, ord) = (7, 1, 1);
    let peer = PeerPath {
        local_gid: gid,
        remote_gid: gid,
        qpn: number,
        psn,
        mtu_code: 3,
        ird,
        min_rnr_timer: 12,
    };
    (peer, PathSender { psn, ack_timeout: 14, retry_count: 7, rnr_retry: 7, ord })
}

#[test]
fn endpoints_that_know_each_others_numbers_connect_by_path() {
    let ia = Ia::builder().config(itapi::Config::default()).device("vp_roce").open().unwrap();
    let (client, server) = (Side::new(&ia, |ep| ep), Side::new(&ia, |ep| ep));
    let numbers = [&client, &server].map(|side| side.ep.path_number().unwrap());
    let connect = |side: &Side, to: u32| {
        let (peer, sender) = path(to);
        side.ep.connect_by_path(&peer, &sender)
    };
    server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
    connect(&server, numbers[0]).unwrap();
    connect(&client, numbers[1]).unwrap();
    assert_eq!(client.ep.state(), EpState::Connected);
    client.ep.post(Work::send(b"by path")).unwrap();
    let buffer = server.evd.wait_success(HANG).unwrap().into_buffer().unwrap();
    assert_eq!(&buffer[..], b"by path");
    let again = connect(&client, numbers[1]).unwrap_err().to_string();
    assert!(again.contains("the endpoint is connected"), "{again}");
    client.ep.start_disconnect(Disconnect::Abrupt).unwrap();
    assert_eq!(client.ep.state(), EpState::Nonoperational);
}

#[test]
fn a_refused_path_leaves_an_endpoint_that_a_reset_makes_usable() {
    let ia = Ia::builder().config(itapi::Config::default()).device("vp_roce").open().unwrap();
    let (client, server) = (Side::new(&ia, |ep| ep), Side::new(&ia, |ep| ep));
    let (peer, sender) = path(server.ep.path_number().unwrap());
    // The peer is served already when the sender is refused.
    let wrong = PathSender { retry_count: 8, ..sender };
    let why = client.ep.connect_by_path(&peer, &wrong).unwrap_err().to_string();
    assert!(why.contains("retry count is 8"), "{why}");
    client.ep.reset().unwrap();
    connect(&ia, &client, &server);
    let iwarp = Side::new(&open(), |ep| ep);
    let why = iwarp.ep.connect_by_path(&peer, &sender).unwrap_err().to_string();
    assert!(why.contains("connect by path"), "{why}");
}
