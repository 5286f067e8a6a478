//! Raw peers at the beginning of a connection: what they are sent, and which of their octets are kept, awaited
//! or dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ual::vp_api::{AsyncEvent, Role};
use ual::{
    AcceptParams, BrokenCause, ConnEvent, ConnectParams, ConvertParams, Disconnect, EpInit,
    EpState, Error, EvdInit, Event, FailReason, Listen, PeerToPeer, Policy, RequestId, Stream,
};

use crate::common::{HANG, LOCALHOST, Side, connect, over_tcp, policy};
use crate::wire::{CRC, ENHANCED, REJECT, asking, raw, read_to_end, reply, request, scripted};

/// A time-out that no test reaches.
fn patient() -> Policy {
    let long = 10 * HANG;
    Policy { connect_timeout: long, request_timeout: long, close_timeout: long, ..policy() }
}

/// Returns after the connection thread has done all that was due before.
fn connection_thread_catches_up(server: &Side, listen: &Listen) {
    for _ in 0..2 {
        let (peer, request) = asking(server, listen);
        server.ia.reject(request, b"").unwrap();
        drop(peer);
    }
}

fn failure(side: &Side) -> FailReason {
    match side.conn_event() {
        ConnEvent::Failed(error) => error.reason,
        other => panic!("{other}"),
    }
}

#[test]
fn an_endpoint_closed_while_it_connects_leaves_no_connection() {
    let client = Side::new(Policy { fall_back: false, ..patient() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ep = client.ep();
    ep.connect(ConnectParams::new(listener.local_addr().unwrap())).unwrap();
    let (mut stream, _) =
        warpline_patience::within("the connection", || listener.accept().unwrap());
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    ep.close().unwrap();
    assert_eq!(read_to_end(&mut stream), b"");
}

#[test]
fn a_closed_listener_drops_peers_without_a_request() {
    let server = Side::new(patient());
    let listen = server.listen(LOCALHOST);
    let mut silent = raw(listen.addresses()[0], b"");
    let mut hesitating = raw(listen.addresses()[0], &request(CRC, 1, b"")[..7]);
    warpline_patience::until("two connections", || server.ia.cm_counters().incoming == 2);
    listen.close().unwrap();
    for stream in [&mut silent, &mut hesitating] {
        assert_eq!(read_to_end(stream), b"");
    }
}

// A refused peer that has closed no longer counts.
#[test]
fn refused_peers_do_not_displace_others() {
    let server = Side::new(Policy { half_open: 3, ..patient() });
    let listen = server.listen(LOCALHOST);
    let slow = raw(listen.addresses()[0], &request(CRC, 1, b"")[..1]);
    for refused in 1..12 {
        let mut stream = raw(listen.addresses()[0], b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(read_to_end(&mut stream), b"");
        let counters = server.ia.cm_counters();
        assert_eq!((counters.refused, counters.crowded_out), (refused, 0));
    }
    drop(slow);
}

// [CONN-34]
#[test]
fn octets_after_a_waiting_request_are_kept() {
    const MOST: usize = 4096;
    let server = Side::new(patient());
    let (listen, others) = (server.listen(LOCALHOST), server.listen(LOCALHOST));
    let (mut stream, request) = asking(&server, &listen);
    for more in [10, 10, MOST - 20, 1, 1] {
        stream.write_all(&vec![0; more]).unwrap();
        connection_thread_catches_up(&server, &others);
    }
    assert_eq!(server.ia.cm_counters().gone, 0);
    server.ia.reject(request, b"no").unwrap();
    let mut octets = [0; 22];
    stream.read_exact(&mut octets).unwrap();
    assert_eq!(octets[20..], *b"no");
}

// Octets that a refused peer still sends are read and dropped, for as long as it sends.
#[test]
fn a_refused_peer_may_go_on_sending() {
    let server = Side::new(patient());
    let (listen, others) = (server.listen(LOCALHOST), server.listen(LOCALHOST));
    let (mut stream, request) = asking(&server, &listen);
    server.ia.reject(request, b"no").unwrap();
    assert_eq!(read_to_end(&mut stream)[20..], *b"no");
    for _ in 0..5 {
        stream.write_all(&[1]).unwrap();
        connection_thread_catches_up(&server, &others);
    }
}

#[test]
fn a_reply_in_single_octets_is_taken_when_complete() {
    let client = Side::new(Policy { fall_back: false, ..patient() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ep = client.ep();
    ep.connect(ConnectParams::new(listener.local_addr().unwrap())).unwrap();
    let (mut stream, _) =
        warpline_patience::within("the connection", || listener.accept().unwrap());
    stream.set_nodelay(true).unwrap();
    // Between the octets the peer has time to react.
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    for octet in reply(CRC | REJECT, 1, b"no") {
        stream.write_all(&[octet]).unwrap();
        while stream.read(&mut [0; 64]).is_ok_and(|octets| octets > 0) {}
    }
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        other => panic!("{other}"),
    }
}

// Only an unreachable peer is tried at other addresses.
#[test]
fn a_peer_with_another_protocol_is_not_sought_at_its_other_addresses() {
    let (client, other) = (Side::new(Policy { fall_back: false, ..policy() }), Side::new(policy()));
    let elsewhere = other.listen(LOCALHOST);
    let (address, server) = scripted(vec![Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())]);
    let alternatives = elsewhere.addresses().to_vec();
    let ep = client.ep();
    ep.connect(ConnectParams { alternatives, ..ConnectParams::new(address) }).unwrap();
    assert!(matches!(failure(&client), FailReason::NotMpa(_)));
    assert_eq!(other.ia.cm_counters().incoming, 0);
    server.asked();
}

#[test]
fn a_peer_that_does_not_reply_is_not_sought_at_its_other_addresses() {
    let short = Policy { connect_timeout: Duration::from_millis(50), ..policy() };
    let (client, other) = (Side::new(short), Side::new(policy()));
    let elsewhere = other.listen(LOCALHOST);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let alternatives = elsewhere.addresses().to_vec();
    let ep = client.ep();
    let params = ConnectParams::new(silent.local_addr().unwrap());
    ep.connect(ConnectParams { alternatives, ..params }).unwrap();
    assert!(matches!(failure(&client), FailReason::ReplyTimeout(_)));
    assert_eq!(other.ia.cm_counters().incoming, 0);
}

// This end closes first, and would have to wait for TIME_WAIT before it may use the port again.
#[test]
fn a_second_attempt_has_the_same_local_port() {
    let client = Side::new(policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ep = client.ep();
    let params = ConnectParams::new(listener.local_addr().unwrap());
    ep.connect(ConnectParams { local_port, ..params }).unwrap();
    for (octets, answer) in [(24, reply(CRC | REJECT, 1, b"")), (20, reply(CRC | REJECT, 1, b"no"))]
    {
        let (mut stream, from) =
            warpline_patience::within("an attempt", || listener.accept().unwrap());
        assert_eq!(from.port(), local_port);
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.read_exact(&mut vec![0; octets]).unwrap();
        stream.write_all(&answer).unwrap();
        assert_eq!(read_to_end(&mut stream), b"");
    }
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        other => panic!("{other}"),
    }
}

// [CONN-24]: the endpoint's own limit, which may be less than the adapter's.
#[test]
fn an_endpoint_of_few_reads_refuses_more() {
    let client = Side::new(Policy { peer_to_peer: PeerToPeer::default(), ..policy() });
    for (wanted, refused) in [(4, true), (3, false)] {
        let (address, server) = scripted(vec![Some(reply(CRC | ENHANCED, 2, &[0, 16, 0, wanted]))]);
        let init = EpInit { ird: 3, ..EpInit::new(&client.completions, &client.connection) };
        let ep = client.pz.create_ep(init).unwrap();
        ep.connect(ConnectParams::new(address)).unwrap();
        match client.conn_event() {
            ConnEvent::Failed(error) if refused => {
                assert_eq!(error.reason, FailReason::InsufficientIrd { need: 4, have: 3 });
            }
            ConnEvent::Established(established) if !refused => assert_eq!(established.ird, 3),
            other => panic!("{other}"),
        }
        drop(ep);
        server.asked();
    }
}

#[test]
fn a_network_that_cannot_be_reached_is_no_port_in_use() {
    let client = Side::new(policy());
    let nowhere = SocketAddr::from((Ipv4Addr::BROADCAST, 9));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for local_port in [0, port] {
        let ep = client.ep();
        ep.connect(ConnectParams { local_port, ..ConnectParams::new(nowhere) }).unwrap();
        let reason = failure(&client);
        assert!(
            matches!(reason, FailReason::Unreachable(_) | FailReason::Resources(_)),
            "{reason}"
        );
    }
}

/// Fills a stream that is not read; returns how many octets it took.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let mut filled = 0;
    loop {
        match stream.write(&[b'.'; 65_536]) {
            Ok(octets) => filled += octets,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    stream.set_nonblocking(false).unwrap();
    filled
}

// The dialogue, the last message and the request arrive in order, however slowly the peer reads.
#[test]
fn a_conversion_waits_until_the_peer_has_read_the_dialogue() {
    // The last message does not fit into it at once.
    let client = Side::new(Policy { revision: 1, socket_buffer: Some(4096), ..patient() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plain = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(HANG)).unwrap();
    let filled = fill(&mut plain);
    let last_message = vec![b'!'; 1 << 16];
    let ep = client.ep();
    let params =
        ConvertParams { last_message: last_message.clone(), ..ConvertParams::new(Role::Initiator) };
    ep.convert(plain.into(), params).unwrap();
    let mut octets = vec![0; filled + last_message.len() + 20];
    peer.read_exact(&mut octets).unwrap();
    let (dialogue, rest) = octets.split_at(filled);
    assert!(dialogue.iter().all(|octet| *octet == b'.'));
    assert!(rest[..last_message.len()] == last_message);
    assert_eq!(rest[last_message.len()..][..16], *b"MPA ID Req Frame");
    peer.write_all(&reply(CRC, 1, b"")).unwrap();
    client.established();
}

// Octets that have arrived already, and are an FPDU except for one version field.
#[test]
fn an_fpdu_of_another_version_refuses_a_conversion() {
    let side = Side::new(policy());
    for (control, ulp) in [(0x42, 0x43), (0x41, 0x83), (0x42, 0x83)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        peer.write_all(&[0, 32, control, ulp]).unwrap();
        socket.peek(&mut [0; 4]).unwrap();
        let ep = side.ep();
        let params = ConvertParams { startup: false, ..ConvertParams::new(Role::Responder) };
        let error = ep.convert(socket.into(), params).unwrap_err();
        assert!(error.to_string().contains("they are not an FPDU"), "{error}");
        assert_eq!(ep.state(), EpState::Unconnected);
    }
}

// Each id belongs to one object: listeners are distinguished from each other and from connections.
#[test]
fn many_listeners_and_connections_are_distinguished() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listeners: Vec<_> = (0..6).map(|_| server.listen(LOCALHOST)).collect();
    let mut open = Vec::new();
    for listen in listeners.iter().chain(&listeners) {
        let (active, passive) = (client.ep(), server.ep());
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        let request = server.request();
        assert_eq!((request.listener, request.port), (listen.id(), listen.addresses()[0].port()));
        passive.accept(request.request, AcceptParams::default()).unwrap();
        server.established();
        client.established();
        open.push((active, passive));
    }
}

#[test]
fn a_wait_without_time_serves_no_socket() {
    let side = Side::new(policy());
    let over = warpline_patience::within("a wait without time", || {
        side.connection.wait(Some(Duration::ZERO))
    });
    assert!(matches!(over, Err(Error::Timeout(_))));
}

// The endpoint's dispatcher did not overrun: the Terminate is reported.
#[test]
fn a_terminate_is_reported_as_one() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let affiliated = server.ia.create_evd(EvdInit::new(Stream::Affiliated, 8)).unwrap();
    let (active, _passive) = connect(&client, &server, &server.listen(LOCALHOST));
    // No receive is posted for it.
    client.send(&active, 1, 0, 10);
    match affiliated.wait(Some(HANG)).unwrap() {
        Event::Affiliated { event: AsyncEvent::TerminateSent(_), .. } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn events_report_what_was_negotiated_and_what_was_lost() {
    let (client, server) = (Side::new(over_tcp()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    let made = client.established().to_string();
    assert!(made.contains("MPA revision 2, CRC on, markers no, TCP (policy)"), "{made}");
    server.established();
    active.disconnect(Disconnect::Abrupt).unwrap();
    let broken = server.conn_event().to_string();
    assert!(broken.ends_with("; work that was posted completes as flushed"), "{broken}");
    assert_eq!(BrokenCause::of(AsyncEvent::Catastrophic), Some(BrokenCause::Catastrophic));
}

#[test]
fn a_request_is_named_by_a_number() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (mut first, one) = asking(&server, &listen);
    let (_second, other) = asking(&server, &listen);
    assert_ne!(one.to_raw(), other.to_raw());
    server.ia.reject(RequestId::from_raw(one.to_raw()), b"by number").unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut first)[20..], *b"by number");
}
