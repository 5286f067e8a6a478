//! Peers that are slow, silent, wrong or many: raw TCP against the connection manager.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ual::vp_api::{Remote, Role, SendOp, Stag};
use ual::{
    AcceptParams, BrokenCause, ConnEvent, ConnectError, ConnectParams, ConvertParams, Crc,
    Disconnect, EpInit, Error, Event, FailReason, Markers, Object, PeerToPeer, Policy,
};

use crate::common::{HANG, LOCALHOST, Side, connect, policy};
use crate::fake::{self, Behaviour};
use crate::wire::{CRC, ENHANCED, REJECT, asking, raw, read_to_end, reply, request, scripted};

fn hurried() -> Policy {
    let soon = Duration::from_millis(100);
    Policy { connect_timeout: soon, request_timeout: soon, ..policy() }
}

// ---- the listening side

// [CONN-01] [CONN-06] [CONN-07] [CONN-12] [ERR-01]
#[test]
fn malformed_requests_are_closed_without_a_reply() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let long = {
        let mut octets = request(CRC, 1, &[]);
        octets[18..20].copy_from_slice(&513u16.to_be_bytes());
        octets
    };
    let cases = [
        ("not MPA", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a reply", reply(CRC, 1, &[])),
        ("revision 3", request(CRC, 3, &[])),
        ("513 octets", long),
        ("a short enhanced block", request(CRC | ENHANCED, 2, &[0, 1, 2])),
    ];
    for (what, octets) in cases {
        let mut stream = raw(listen.addresses()[0], &octets);
        assert_eq!(read_to_end(&mut stream), b"", "{what}");
    }
    assert_eq!(server.requests.queued(), 0);
    assert_eq!(server.ia.cm_counters().refused, 5);
}

// [CONN-31]
#[test]
fn revision_0_gets_a_supported_revision() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let mut stream = raw(listen.addresses()[0], &request(0xC0, 0, &[]));
    let answer = read_to_end(&mut stream);
    assert_eq!((answer.len(), answer[17]), (20, 1));
    assert_ne!(answer[16] & REJECT, 0);
}

// [CONN-08] [CONN-13]
#[test]
fn silent_and_dripping_initiators_are_dropped_in_time() {
    let server = Side::new(hurried());
    let listen = server.listen(LOCALHOST);
    let mut silent = raw(listen.addresses()[0], &[]);
    let whole = request(CRC, 1, &[7; 500]);
    let mut drip = raw(listen.addresses()[0], &whole[..1]);
    // To send the whole request would take ten seconds: each octet waits for a response that never comes.
    drip.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let ended = whole[1..].iter().any(|octet| {
        drip.write_all(&[*octet]).is_err()
            || !matches!(drip.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    });
    assert!(ended);
    assert_eq!(read_to_end(&mut silent), b"");
    assert_eq!(server.requests.queued(), 0);
    let counters = server.ia.cm_counters();
    assert_eq!((counters.incoming, counters.request_timeouts), (2, 2));
}

// [CONN-08] [CONN-34]: any segmentation is accepted; the reply is sent once the request is complete.
#[test]
fn a_request_in_single_octets_gets_its_reply_when_complete() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let mut stream = TcpStream::connect(listen.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    for octet in request(CRC, 1, b"slow") {
        assert_eq!(server.requests.queued(), 0);
        stream.write_all(&[octet]).unwrap();
    }
    let request = server.request();
    assert_eq!(request.private_data, b"slow");
    assert_eq!(request.peer_ird_ord, None);
    let ep = server.ep();
    let params = AcceptParams { private_data: b"fine".to_vec(), ..AcceptParams::default() };
    ep.accept(request.request, params).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer.to_vec(), reply(CRC, 1, b"fine"));
    server.established();
}

// [CONN-05] [CONN-27]: reserved flags are ignored, as are B, C, D without A.
#[test]
fn flags_without_meaning_are_ignored() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let mut stream = raw(listen.addresses()[0], &request(CRC | 0x0F, 1, b""));
    let ep = server.ep();
    ep.accept(server.request().request, AcceptParams::default()).unwrap();
    let mut answer = [0; 20];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer.to_vec(), reply(CRC, 1, b""));
    assert_eq!(server.established().rtr, None);

    let block = [0x40, 4, 0xC0, 4];
    let mut stream = raw(listen.addresses()[0], &request(CRC | ENHANCED, 2, &block));
    let ep = server.ep();
    ep.accept(server.request().request, AcceptParams::default()).unwrap();
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((answer[20] & 0xC0, answer[22] & 0xC0), (0, 0));
    assert_eq!(server.established().rtr, None);
}

#[test]
fn a_flood_of_half_open_connections_does_not_block_others() {
    let few = Policy { half_open: 8, ..policy() };
    let (client, server) = (Side::new(policy()), Side::new(few));
    let listen = server.listen(LOCALHOST);
    let flood: Vec<_> = (0..100).map(|_| raw(listen.addresses()[0], b"MPA ")).collect();
    connect(&client, &server, &listen);
    assert!(server.ia.cm_counters().crowded_out >= 90);
    // All connections beyond the limit are closed, without a reply and long before their time-outs.
    flood.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    warpline_patience::until("92 of 100 connections are closed", || {
        let is_over = |mut stream: &TcpStream| match stream.read(&mut [0; 64]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        };
        flood.iter().filter(|stream| is_over(stream)).count() >= 92
    });
}

/// A connection from a given address of this machine.
fn raw_from(local: &str, address: SocketAddr, octets: &[u8]) -> TcpStream {
    let options = kal_shim::sock::Options::default();
    let local = SocketAddr::new(local.parse().unwrap(), 0);
    let socket = kal_shim::sock::connect(address, Some(local), &options).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_nonblocking(false).unwrap();
    warpline_patience::until("the connection is established", || stream.peer_addr().is_ok());
    stream.write_all(octets).unwrap();
    stream
}

// A client that is slow with its request outlasts any flood from elsewhere.
#[test]
fn a_flood_from_one_address_leaves_slow_clients_of_another() {
    let server = Side::new(Policy { half_open: 16, ..policy() });
    let listen = server.listen(LOCALHOST);
    let whole = request(CRC, 1, b"slow");
    let mut slow = raw_from("127.0.0.2", listen.addresses()[0], &whole[..10]);
    warpline_patience::until("the slow client is accepted", || {
        server.ia.cm_counters().incoming == 1
    });
    let flood: Vec<_> = (0..500).map(|_| raw(listen.addresses()[0], b"")).collect();
    warpline_patience::until("the flood is accepted", || server.ia.cm_counters().incoming == 501);
    warpline_patience::until("as many as the limit allows are left", || {
        server.ia.cm_counters().crowded_out == 501 - 16
    });
    slow.write_all(&whole[10..]).unwrap();
    assert_eq!(server.request().private_data, b"slow");
    drop(flood);
}

// Whole requests that are refused occupy a descriptor until the peer closes: they share the limit.
#[test]
fn refusals_that_no_peer_takes_are_bounded() {
    let server = Side::new(Policy { half_open: 8, close_timeout: HANG, ..policy() });
    let listen = server.listen(LOCALHOST);
    let refused = request(0xC0, 0, &[]);
    // One by one: a random one of those that wait is closed, and never the new one.
    let mut flood = Vec::new();
    for n in 1..=100 {
        flood.push(raw(listen.addresses()[0], &refused));
        warpline_patience::until("it is refused", || server.ia.cm_counters().refused == n);
    }
    assert_eq!(server.ia.cm_counters().crowded_out, 92);
    // The same for requests that the application rejects; those without a reply wait.
    for n in 1..=20 {
        flood.push(raw(listen.addresses()[0], &request(CRC, 1, b"")));
        server.ia.reject(server.request().request, b"no").unwrap();
        warpline_patience::until("it is rejected", || server.ia.cm_counters().rejected == n);
    }
    assert_eq!(server.ia.cm_counters().crowded_out, 112);
    drop(flood);
}

// One limit for all connections that occupy a descriptor and that no application knows of.
#[test]
fn refusals_and_half_open_connections_are_bounded_together() {
    let server = Side::new(Policy { half_open: 8, close_timeout: HANG, ..policy() });
    let listen = server.listen(LOCALHOST);
    let refused = request(0xC0, 0, &[]);
    let mut flood = Vec::new();
    for n in 1..=50 {
        flood.push(raw(listen.addresses()[0], b"MPA ID"));
        flood.push(raw(listen.addresses()[0], &refused));
        warpline_patience::until("both to be examined", || {
            let counters = server.ia.cm_counters();
            (counters.incoming, counters.refused) == (2 * n, n)
        });
    }
    assert_eq!(server.ia.cm_counters().crowded_out, 100 - 8);
    drop(flood);
}

// To close the listener after a refusal does not cancel the refusal.
#[test]
fn a_refusal_outlives_its_listener() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let mut stream = raw(listen.addresses()[0], &request(CRC, 1, b""));
    server.ia.reject(server.request().request, b"no").unwrap();
    warpline_patience::until("it is rejected", || server.ia.cm_counters().rejected == 1);
    let other = server.listen(LOCALHOST);
    listen.close().unwrap();
    assert_eq!(read_to_end(&mut stream)[20..], *b"no");
    for _ in 0..3 {
        // The close is done when a later request is reported; a peer may still send.
        let _next = asking(&server, &other);
        stream.write_all(b"late").unwrap();
    }
}

// [SEC-07]: a peer that guesses STags needs a connection for each, and gets only so many in a minute.
#[test]
fn guesses_at_stags_delay_the_start_ups_of_their_source() {
    let server = Side::new(Policy { invalid_stag_ends: 3, ..policy() });
    let (guesser, honest) = (once(hurried()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let stag = Stag(0x1234_5600);
    let remote = Remote { stag, to: 0 };
    let guesses = [
        SendOp::Write { remote },
        SendOp::Read { remote, invalidate_sink: false },
        SendOp::Send { solicited: false, invalidate: Some(stag) },
    ];
    for op in guesses {
        let patient = Side::new(policy());
        let (active, passive) = connect(&patient, &server, &listen);
        server.post_recv(&passive, 1, 0, 8);
        patient.post(&active, 1, op, 0, 8);
        assert!(matches!(server.conn_event(), ConnEvent::Broken { .. }));
    }
    assert!(matches!(fails(&guesser, listen.addresses()[0]).reason, FailReason::ReplyTimeout(_)));
    assert_eq!(server.ia.cm_counters().delayed, 1);
    // Others do not wait.
    let (active, passive) = (honest.ep(), server.ep());
    let local = Some("127.0.0.2".parse().unwrap());
    active.connect(ConnectParams { local, ..ConnectParams::new(listen.addresses()[0]) }).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    honest.established();
    assert_eq!(server.ia.cm_counters().delayed, 1);
}

// Any duration is allowed; none causes a panic, or expires at once.
#[test]
fn the_longest_durations_are_for_ever() {
    let long = Duration::MAX;
    let patient = Policy {
        connect_timeout: long,
        request_timeout: long,
        answer_timeout: long,
        close_timeout: long,
        keep_alive: Some(long),
        keep_alive_interval: long,
        user_timeout: Some(long),
        kick_after: Some(long),
        probe_after: Some(long),
        spin: long,
        ..policy()
    };
    let (client, server) = (Side::new(patient.clone()), Side::new(patient.clone()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    let timeout = Some(long);
    let params = ConnectParams { timeout, ..ConnectParams::new(listen.addresses()[0]) };
    active.connect(params.clone()).unwrap();
    let Event::Request(request) = server.requests.wait(Some(long)).unwrap() else { panic!() };
    passive.accept(request.request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    server.post_recv(&passive, 1, 0, 64);
    client.send(&active, 2, 0, 64);
    server.success();
    client.success();
    active.disconnect(Disconnect::Graceful).unwrap();
    for side in [&client, &server] {
        assert!(matches!(side.conn_event(), ConnEvent::Disconnected { .. }));
    }
    let rejected = client.ep();
    rejected.connect(params).unwrap();
    server.ia.reject(server.request().request, b"").unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    // Sockets that wait for their peer's first word.
    for startup in [true, false] {
        let (client, server) = (Side::new(patient.clone()), Side::new(patient.clone()));
        let (one, other) = pair();
        let convert = |role| ConvertParams { startup, ..ConvertParams::new(role) };
        let (waits, begins) = (server.ep(), client.ep());
        server.post_recv(&waits, 1, 0, 64);
        waits.convert(other.into(), convert(Role::Responder)).unwrap();
        begins.convert(one.into(), convert(Role::Initiator)).unwrap();
        client.established();
        // Without start-up it waits for the first message.
        client.send(&begins, 3, 0, 8);
        server.established();
        server.success();
    }
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_request_ends_when_its_peer_disconnects() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let stream = raw(listen.addresses()[0], &request(CRC, 1, b""));
    let request = server.request().request;
    drop(stream);
    // Until the end of the stream is seen, the request can still be accepted.
    let ep = server.ep();
    if ep.accept(request, AcceptParams::default()).is_ok() {
        server.established();
        assert!(!matches!(server.conn_event(), ConnEvent::Established(_)));
    }
}

// A request ends with its peer: the stream is closed here too, and the request can no longer be accepted.
#[test]
fn a_request_whose_peer_disconnected_is_removed() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (mut stream, request) = asking(&server, &listen);
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"");
    assert_eq!(server.ia.cm_counters().gone, 1);
    let refused = server.ep().accept(request, AcceptParams::default());
    assert!(matches!(refused, Err(Error::Closed(Object::Request))), "{refused:?}");
    assert!(matches!(server.ia.reject(request, b""), Err(Error::Closed(Object::Request))));
}

// A refusal waits for the peer's close: octets that it still sends cause no reset.
#[test]
fn a_refusal_gives_the_peer_time_to_read_it() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let (mut stream, request) = asking(&server, &listen);
    server.ia.reject(request, b"no").unwrap();
    assert_eq!(read_to_end(&mut stream)[20..], *b"no");
    for _ in 0..3 {
        // All due work is done when the next request is reported.
        let (next, request) = asking(&server, &listen);
        server.ia.reject(request, b"").unwrap();
        drop(next);
        stream.write_all(b"late").unwrap();
    }
}

// A graceful disconnect waits for the peer's close.
#[test]
fn a_close_gives_the_peer_time_to_read() {
    let server = Side::new(Policy { close_timeout: HANG, ..policy() });
    let listen = server.listen(LOCALHOST);
    let (mut stream, request) = asking(&server, &listen);
    let ep = server.ep();
    ep.accept(request, AcceptParams::default()).unwrap();
    server.established();
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert_eq!(read_to_end(&mut stream), reply(CRC, 1, b""));
    let (_next, _request) = asking(&server, &listen);
    assert_eq!(server.connection.queued(), 0);
    drop(stream);
    assert!(matches!(server.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
}

// An endpoint that is freed while it connects leaves nothing behind: its peer sees the end.
#[test]
fn freeing_an_endpoint_while_it_connects_notifies_its_peer() {
    let client = once(policy());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for freed in [true, false] {
        let ep = client.ep();
        ep.connect(ConnectParams::new(listener.local_addr().unwrap())).unwrap();
        let (mut stream, _) =
            warpline_patience::within("the connection", || listener.accept().unwrap());
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        match freed {
            true => ep.close().unwrap(),
            false => drop(ep),
        }
        assert_eq!(read_to_end(&mut stream), b"");
    }
    assert_eq!(client.connection.queued(), 0);
}

// [CONN-18]: a responder of RFC 5044 alone may reject the enhanced form in its own.
#[test]
fn after_a_reject_in_the_old_form_the_request_is_repeated_in_that_form() {
    let client = Side::new(policy());
    let old = |data: &[u8]| Some(reply(CRC | REJECT, 1, data));
    let (address, server) = scripted(vec![old(b""), old(b"no")]);
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        other => panic!("{other}"),
    }
    let asked = server.asked();
    assert_eq!((asked[0][17], asked[1][17]), (2, 1));
    // In the newer form it belongs to the application.
    let (address, server) =
        scripted(vec![Some(reply(CRC | REJECT | ENHANCED, 2, &[0, 16, 0, 16]))]);
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    server.asked();
}

// A connection whose request got its reply is no longer half open.
#[test]
fn established_connections_do_not_displace_others() {
    let (client, server) = (Side::new(policy()), Side::new(Policy { half_open: 2, ..policy() }));
    let listen = server.listen(LOCALHOST);
    let _open: Vec<_> = (0..6).map(|_| connect(&client, &server, &listen)).collect();
    assert_eq!(server.ia.cm_counters().crowded_out, 0);
}

// A reject is the peer's response: no other address is tried.
#[test]
fn a_reject_is_not_taken_elsewhere() {
    let (client, server) = (once(policy()), Side::new(policy()));
    let other = Side::new(policy());
    let (listen, elsewhere) = (server.listen(LOCALHOST), other.listen(LOCALHOST));
    let ep = client.ep();
    let alternatives = elsewhere.addresses().to_vec();
    let params = ConnectParams::new(listen.addresses()[0]);
    ep.connect(ConnectParams { alternatives, ..params }).unwrap();
    server.ia.reject(server.request().request, b"no").unwrap();
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        event => panic!("{event}"),
    }
    assert_eq!(other.ia.cm_counters().incoming, 0);
}

// [CONN-30]: a Read as RTR needs an ORD of at least one, so an endpoint with an ORD of 0 does not offer it.
#[test]
fn a_read_is_offered_as_rtr_only_with_the_right_to_read() {
    let both = PeerToPeer { write: true, read: true, ..PeerToPeer::default() };
    let client = once(Policy { peer_to_peer: both, ..policy() });
    for (ord, offered) in [(0, 0x80), (1, 0xC0)] {
        let (address, server) = scripted(vec![Some(reply(CRC | REJECT, 1, b""))]);
        let init = EpInit { ord, ..EpInit::new(&client.completions, &client.connection) };
        let ep = client.pz.create_ep(init).unwrap();
        ep.connect(ConnectParams::new(address)).unwrap();
        client.conn_event();
        assert_eq!(server.asked()[0][22] & 0xC0, offered, "ORD {ord}");
    }
}

#[test]
fn octets_after_a_request_are_kept_and_bounded() {
    let server = Side::new(policy());
    let listen = server.listen(LOCALHOST);
    let mut octets = request(CRC, 1, b"");
    // A Send of 4 octets with a wrong CRC: kept, and judged when the stream is in operation.
    octets.extend([0, 22, 0x41, 0x43]);
    octets.extend([0; 4 + 12 + 4]);
    octets.extend([1; 4]);
    let mut stream = raw(listen.addresses()[0], &octets);
    let ep = server.ep();
    ep.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    assert!(matches!(server.conn_event(), ConnEvent::Broken { .. }));
    let answer = read_to_end(&mut stream);
    // The reply, then a Terminate: LLP, MPA, CRC error.
    assert_eq!(answer[..20], reply(CRC, 1, b""));
    assert_eq!(terminate(&answer[20..]), (0x20, 2));
}

// ---- the connecting side

fn fails(client: &Side, address: SocketAddr) -> ConnectError {
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    match client.conn_event() {
        ConnEvent::Failed(error) => {
            assert!(error.to_string().contains(&address.to_string()), "{error}");
            error
        }
        other => panic!("{other}"),
    }
}

fn once(policy: Policy) -> Side {
    Side::new(Policy { fall_back: false, ..policy })
}

// [CONN-01] [CONN-06] [CONN-10] [CONN-12] [CONN-17]
#[test]
fn malformed_replies_are_distinguished() {
    let client = once(policy());
    let short = reply(CRC | ENHANCED, 2, &[0; 4])[..21].to_vec();
    type Expected = fn(&FailReason) -> bool;
    let cases: Vec<(Vec<u8>, Expected)> = vec![
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), |r| matches!(r, FailReason::NotMpa(_))),
        (request(CRC, 2, b""), |r| matches!(r, FailReason::NotMpa(_))),
        (reply(CRC, 3, b""), |r| *r == FailReason::Revision { got: 3 }),
        (reply(CRC, 2, b""), |r| matches!(r, FailReason::Malformed(_))),
        (short, |r| *r == FailReason::PeerClosed { have: 21 }),
        (vec![], |r| *r == FailReason::PeerClosed { have: 0 }),
    ];
    for (answer, expected) in cases {
        let (address, server) = scripted(vec![Some(answer.clone())]);
        let error = fails(&client, address);
        assert!(expected(&error.reason), "{answer:?}: {error}");
        // Nothing was sent after the request.
        assert_eq!(server.asked()[0].len(), 24);
    }
}

// [CONN-02] [MPA-13]: the error names what a reply demands and the policy refuses.
#[test]
fn replies_against_policy_are_distinguished() {
    let refuses = Policy { markers: Markers::Refuse, crc: Crc::Refuse, ..policy() };
    let client = once(Policy { revision: 1, ..refuses });
    for (flags, reason) in [(0x80, FailReason::Markers), (CRC, FailReason::CrcPolicy)] {
        let (address, server) = scripted(vec![Some(reply(flags, 1, b""))]);
        assert_eq!(fails(&client, address).reason, reason);
        server.asked();
    }
}

/// Terminate header octets of an FPDU: layer and type, code.
fn terminate(octets: &[u8]) -> (u8, u8) {
    (octets[20], octets[21])
}

// [CONN-23] [CONN-24]
#[test]
fn too_many_reads_wanted_end_in_terminate_2_0_6() {
    let client = once(Policy { peer_to_peer: PeerToPeer::default(), ..policy() });
    let block = [0, 16, 0x01, 0];
    let (address, server) = scripted(vec![Some(reply(CRC | ENHANCED, 2, &block))]);
    let error = fails(&client, address);
    assert_eq!(error.reason, FailReason::InsufficientIrd { need: 256, have: 16 });
    let asked = server.asked();
    assert_eq!(terminate(&asked[0][24..]), (0x20, 6));
}

// [CONN-32]
#[test]
fn a_local_failure_after_the_reply_ends_in_terminate_2_0_5() {
    let ual = fake::ual(Behaviour::RefuseStreams, policy());
    let client = Side::of(&ual);
    // A, B, C, D.
    let block = [0xC0, 16, 0xC0, 16];
    let (address, server) = scripted(vec![Some(reply(CRC | ENHANCED, 2, &block))]);
    let error = fails(&client, address);
    assert!(error.to_string().contains("no stream buffers left"), "{error}");
    assert_eq!(terminate(&server.asked()[0][24..]), (0x20, 5));
}

// [CONN-28] [CONN-29]
#[test]
fn no_common_rtr_ends_in_terminate_2_0_7() {
    let only = PeerToPeer { write: true, ..PeerToPeer::default() };
    let client = once(Policy { peer_to_peer: only, ..policy() });
    // A, and D alone.
    let block = [0x80, 16, 0x40, 16];
    let (address, server) = scripted(vec![Some(reply(CRC | ENHANCED, 2, &block))]);
    assert_eq!(fails(&client, address).reason, FailReason::NoCommonRtr);
    let asked = server.asked();
    assert_eq!(asked[0][20] & 0xC0, 0x80);
    assert_eq!(asked[0][22] & 0xC0, 0x80);
    assert_eq!(terminate(&asked[0][24..]), (0x20, 7));
}

// [CONN-13]
#[test]
fn silent_servers_are_given_up_in_time() {
    let client = once(hurried());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = fails(&client, listener.local_addr().unwrap());
    assert!(matches!(error.reason, FailReason::ReplyTimeout(_)), "{error}");
}

#[test]
fn tcp_without_a_reply_is_given_up_in_time() {
    // A listener that never accepts, with a full queue, does not respond to further connections.
    let listener = kal_shim::sock::listen("127.0.0.1:0".parse().unwrap(), 0).unwrap();
    let options = kal_shim::sock::Options::default();
    let _full: Vec<_> = (0..4)
        .map(|_| kal_shim::sock::connect(listener.address, None, &options).unwrap())
        .collect();
    let client = once(hurried());
    let error = fails(&client, listener.address);
    assert!(matches!(error.reason, FailReason::ConnectTimeout(_)), "{error}");
}

// [CONN-18]
#[test]
fn a_peer_that_closes_is_tried_once_more_in_the_old_form() {
    let client = Side::new(policy());
    let (address, server) = scripted(vec![None, None]);
    assert_eq!(fails(&client, address).reason, FailReason::PeerClosed { have: 0 });
    let asked = server.asked();
    assert_eq!((asked[0][17], asked[0][16] & ENHANCED), (2, ENHANCED));
    assert_eq!(client.ia.cm_counters().stepped_back, 1);
    assert_eq!(asked[1], request(CRC, 1, b""));
}

// [IOP-01] [IOP-06]
#[test]
fn markers_and_peer_to_peer_are_given_up_for_peers_without() {
    let client = Side::new(Policy { markers: Markers::Prefer, ..policy() });
    let refuses_markers = reply(CRC | REJECT | ENHANCED, 2, &[0, 16, 0, 16]);
    let forgets_a = reply(CRC | ENHANCED, 2, &[0, 16, 0, 16]);
    let (address, server) =
        scripted(vec![Some(refuses_markers), Some(forgets_a), Some(reply(CRC | REJECT, 1, b"no"))]);
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        other => panic!("{other}"),
    }
    let asked = server.asked();
    let markers: Vec<_> = asked.iter().map(|frame| frame[16] & 0x80).collect();
    let a_bits: Vec<_> = asked.iter().map(|frame| frame[20] & 0x80).collect();
    assert_eq!(markers, [0x80, 0, 0]);
    assert_eq!(a_bits, [0x80, 0x80, 0]);
}

// [CONN-10] [CONN-25]
#[test]
fn a_reject_brings_the_peers_data_and_limits() {
    let client = once(policy());
    let mut data = vec![0, 3, 0x01, 0];
    data.extend(b"full");
    let (address, server) = scripted(vec![Some(reply(CRC | REJECT | ENHANCED, 2, &data))]);
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    match client.conn_event() {
        ConnEvent::Rejected { private_data, peer_ird_ord, .. } => {
            assert_eq!(private_data, b"full");
            assert_eq!(peer_ird_ord, Some((3, 256)));
        }
        other => panic!("{other}"),
    }
    assert_eq!(server.asked()[0].len(), 24);
}

#[test]
fn slow_peers_do_not_delay_others() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let ep = client.ep();
            ep.connect(ConnectParams::new(silent.local_addr().unwrap())).unwrap();
            (ep, raw(listen.addresses()[0], b"MPA ID Req"))
        })
        .collect();
    connect(&client, &server, &listen);
    assert_eq!(client.connection.queued(), 0);
    drop(waiting);
}

// [VERBS-10]: a Terminate that a peer does not read delays a reset, but no longer than a close.
#[test]
fn a_peer_that_does_not_read_does_not_keep_an_endpoint_from_its_reset() {
    let bound = Duration::from_millis(100);
    let server = Side::new(Policy { crc: Crc::Off, close_timeout: bound, ..policy() });
    let listen = server.listen(LOCALHOST);
    let mut stream = raw(listen.addresses()[0], &request(0, 1, &[]));
    let ep = server.ep();
    ep.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    // An RDMA Write of no octets: from now on the endpoint may send.
    let mut write = vec![0, 14, 0xc1, 0x40];
    write.extend([0; 16]);
    stream.write_all(&write).unwrap();
    let remote = Remote { stag: Stag(1), to: 0 };
    while ep.qp_info().unwrap().counters.send_stalls == 0 {
        let info = ep.qp_info().unwrap();
        if info.sends_outstanding < info.send_depth / 2 {
            server.post(&ep, 1, SendOp::Write { remote }, 0, 65536);
        }
        while server.completions.dequeue().unwrap().is_some() {}
    }
    // No such opcode.
    write[3] = 0x4f;
    stream.write_all(&write).unwrap();
    match server.conn_event() {
        ConnEvent::Broken { cause: BrokenCause::Terminated(_), .. } => {}
        other => panic!("{other}"),
    }
    ep.reset().unwrap();
}
