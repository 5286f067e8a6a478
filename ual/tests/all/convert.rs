//! Sockets that become endpoints after a streaming dialogue, and sockets that cannot.

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use kal_shim::reactor::{Interest, ready_within};
use ual::vp_api::{Data, Role, SendFlags, SendOp, SendWr, VpStatus, WcStatus};
use ual::{
    ConnEvent, ConvertParams, Crc, Disconnect, Ep, EpInit, EpState, Error, FailReason, Markers,
    Policy,
};

use crate::common::{HANG, LOCALHOST, Side, connect, over_tcp, policy};
use crate::fake::{self, Behaviour};

const FAMILIES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A connection of plain sockets, as an application makes it.
fn streams(ip: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(HANG)).unwrap();
    }
    (client, server)
}

fn initiator(startup: bool) -> ConvertParams {
    ConvertParams { startup, ..ConvertParams::new(Role::Initiator) }
}

fn responder(startup: bool) -> ConvertParams {
    ConvertParams { startup, ..ConvertParams::new(Role::Responder) }
}

fn readable(stream: impl AsFd) {
    assert!(ready_within(stream.as_fd(), Interest::READ, HANG));
}

/// Sends each way; the initiator first.
fn exchange(client: &Side, server: &Side, (active, passive): (&Ep, &Ep), len: u32) {
    server.post_recv(passive, 1, 0, len);
    client.post_recv(active, 2, 0, len);
    client.send(active, 3, 0, len);
    assert_eq!(server.success().wr_id, 1);
    server.send(passive, 4, 0, len);
    let mut done = [client.success().wr_id, client.success().wr_id];
    done.sort_unstable();
    assert_eq!(done, [2, 3]);
    assert_eq!(server.success().wr_id, 4);
}

fn failure(side: &Side) -> FailReason {
    match side.conn_event() {
        ConnEvent::Failed(error) => error.reason,
        other => panic!("{other}"),
    }
}

// [VERBS-03] [CONN-11]
#[test]
fn both_roles_convert_with_and_without_startup_after_a_dialogue() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    for (ip, startup) in FAMILIES.into_iter().flat_map(|ip| [(ip, true), (ip, false)]) {
        let (mut plain, mut accepted) = streams(ip);
        plain.write_all(b"may we?").unwrap();
        accepted.read_exact(&mut [0; 7]).unwrap();
        let (active, passive) = (client.ep(), server.ep());
        let local = accepted.local_addr().unwrap();
        let data = |data: &[u8]| if startup { data.to_vec() } else { Vec::new() };
        let answer = ConvertParams {
            last_message: b"we may".to_vec(),
            private_data: data(b"answer"),
            ..responder(startup)
        };
        passive.convert(accepted.into(), answer).unwrap();
        assert_eq!(passive.state(), EpState::PassiveWait);
        let mut word = [0; 6];
        plain.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"we may");
        // The accepting side cannot post before the peer has begun.
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send { solicited: false, invalidate: None },
            data: Data::Inline(b"x"),
            flags: SendFlags::SIGNALED,
        };
        assert_eq!(passive.post_send(&[wr]).unwrap_err().status, VpStatus::InvalidState);
        let ask = ConvertParams { private_data: data(b"request"), ..initiator(startup) };
        active.convert(plain.into(), ask).unwrap();
        let ours = client.established();
        exchange(&client, &server, (&active, &passive), 3000);
        let theirs = server.established();
        assert_eq!((ours.role, theirs.role), (Role::Initiator, Role::Responder));
        assert_eq!(ours.private_data, data(b"answer"));
        assert_eq!(theirs.private_data, data(b"request"));
        assert_eq!(theirs.ends.local.address, local);
        assert_eq!(ours.ends.remote.address, local);
        // Shared memory has no markers; without start-up it may be either.
        assert_eq!(ours.local.is_ok(), theirs.local.is_ok());
        let over_tcp = ours.local.is_err();
        assert_eq!((ours.crc, theirs.crc), (over_tcp, over_tcp));
        assert_eq!((ours.revision, ours.ird, theirs.ord), (if startup { 2 } else { 1 }, 16, 16));
        active.disconnect(Disconnect::Graceful).unwrap();
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));
    }
}

#[test]
fn the_initiating_side_may_also_have_a_last_message() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let mut open = Vec::new();
    for startup in [true, false] {
        let (plain, mut accepted) = streams(LOCALHOST);
        let (active, passive) = (client.ep(), server.ep());
        let last_message = vec![7; 50_000];
        let ask = ConvertParams { last_message, ..initiator(startup) };
        active.convert(plain.into(), ask).unwrap();
        let mut word = vec![0; 50_000];
        accepted.read_exact(&mut word).unwrap();
        assert!(word.iter().all(|octet| *octet == 7));
        passive.convert(accepted.into(), responder(startup)).unwrap();
        client.established();
        exchange(&client, &server, (&active, &passive), 100);
        server.established();
        open.push((active, passive));
    }
}

// [CONN-08] [VERBS-03]: nothing is lost, however the octets are split.
#[test]
fn octets_that_are_there_already_are_the_startups() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let mut open = Vec::new();
    for startup in [true, false] {
        for read_before in [0, 1, 3, 15, 24, 30] {
            let (plain, mut accepted) = streams(LOCALHOST);
            let (active, passive) = (client.ep(), server.ep());
            let ask = ConvertParams {
                private_data: if startup { vec![9; 100] } else { Vec::new() },
                ..initiator(startup)
            };
            active.convert(plain.into(), ask).unwrap();
            if !startup {
                client.established();
                client.send(&active, 3, 0, 100);
            }
            let mut received = vec![0; read_before];
            accepted.read_exact(&mut received).unwrap();
            readable(&accepted);
            server.post_recv(&passive, 1, 0, 100);
            let params = ConvertParams { received, ..responder(startup) };
            passive.convert(accepted.into(), params).unwrap();
            let theirs = server.established();
            if startup {
                assert_eq!(theirs.private_data, [9; 100]);
                client.established();
                client.send(&active, 3, 0, 100);
            }
            assert_eq!(server.success().wr_id, 1);
            assert_eq!(client.success().wr_id, 3);
            exchange(&client, &server, (&active, &passive), 100);
            open.push((active, passive));
        }
    }
}

// [CONN-15] [MPA-10]: marker positions count from the first FPDU, whatever was sent before.
#[test]
fn markers_count_from_the_first_fpdu() {
    let marked = Policy { markers: Markers::Require, crc: Crc::Off, ..over_tcp() };
    let (client, server) = (Side::new(marked.clone()), Side::new(marked));
    let mut open = Vec::new();
    for startup in [true, false] {
        let (mut plain, mut accepted) = streams(LOCALHOST);
        plain.write_all(&[b'.'; 37]).unwrap();
        accepted.read_exact(&mut [0; 37]).unwrap();
        let (active, passive) = (client.ep(), server.ep());
        let last_message = vec![b'!'; 11];
        let params = ConvertParams { last_message, ..responder(startup) };
        passive.convert(accepted.into(), params).unwrap();
        plain.read_exact(&mut [0; 11]).unwrap();
        active.convert(plain.into(), initiator(startup)).unwrap();
        let ours = client.established();
        assert!(ours.markers_tx && ours.markers_rx && !ours.crc);
        exchange(&client, &server, (&active, &passive), 20_000);
        server.established();
        open.push((active, passive));
    }
}

// An IPv4 connection of an IPv6 socket is treated as IPv4 when the policy sets socket options.
#[test]
fn sockets_of_both_families_at_once_are_converted() {
    let marked = Policy { dscp: 26, socket_buffer: Some(65_536), ..policy() };
    let (client, server) = (Side::new(marked.clone()), Side::new(marked));
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let plain = TcpStream::connect((LOCALHOST, port)).unwrap();
    let (accepted, peer) = listener.accept().unwrap();
    assert!(peer.is_ipv6());
    let (active, passive) = (client.ep(), server.ep());
    passive.convert(accepted.into(), responder(true)).unwrap();
    active.convert(plain.into(), initiator(true)).unwrap();
    client.established();
    assert!(server.established().ends.remote.address.is_ipv4());
    exchange(&client, &server, (&active, &passive), 100);
}

// Neither the timing of the two ends matters, nor the order of many conversions.
#[test]
fn many_conversions_at_once_all_succeed() {
    const PAIRS: usize = 100;
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (plain, accepted): (Vec<_>, Vec<_>) = (0..PAIRS).map(|n| streams(FAMILIES[n % 2])).unzip();
    let convert = |side: &Side, streams: Vec<TcpStream>, params: fn(bool) -> ConvertParams| {
        let eps = streams.into_iter().enumerate().map(|(n, stream)| {
            let ep = side.ep();
            ep.convert(stream.into(), params(n % 3 != 0)).unwrap();
            (n, ep)
        });
        eps.collect::<Vec<_>>()
    };
    let (active, passive) = std::thread::scope(|scope| {
        let active = scope.spawn(|| convert(&client, plain, initiator));
        let passive = scope.spawn(|| convert(&server, accepted, responder));
        (active.join().unwrap(), passive.join().unwrap())
    });
    for (n, ep) in &passive {
        server.post_recv(ep, *n as u64, 0, 10);
    }
    active.iter().for_each(|_| drop(client.established()));
    for (n, ep) in &active {
        client.send(ep, *n as u64, 0, 10);
    }
    let mut got: Vec<_> = passive.iter().map(|_| server.success().wr_id).collect();
    got.sort_unstable();
    assert!(got.into_iter().eq(0..PAIRS as u64));
    passive.iter().for_each(|_| drop(server.established()));
}

#[test]
fn the_endpoints_own_limits_hold_without_startup() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let (plain, accepted) = streams(LOCALHOST);
    let ep = |side: &Side| {
        let mut init = EpInit::new(&side.completions, &side.connection);
        (init.ird, init.ord) = (3, 5);
        side.pz.create_ep(init).unwrap()
    };
    let (active, passive) = (ep(&client), ep(&server));
    passive.convert(accepted.into(), responder(false)).unwrap();
    active.convert(plain.into(), initiator(false)).unwrap();
    let ours = client.established();
    assert_eq!((ours.ird, ours.ord, ours.peer_ird_ord, ours.rtr), (3, 5, None, None));
    exchange(&client, &server, (&active, &passive), 10);
    assert_eq!(server.established().ird, 3);
}

/// A socket that cannot be converted is returned, and the endpoint is unchanged.
fn refused(ep: &std::sync::Arc<Ep>, socket: impl Into<OwnedFd>, params: ConvertParams) -> OwnedFd {
    let error = ep.convert(socket.into(), params).unwrap_err();
    assert!(matches!(error.error, Error::Socket(_)), "{error}");
    assert!(error.to_string().contains("cannot be converted"), "{error}");
    assert_eq!(ep.state(), EpState::Unconnected);
    error.socket
}

#[test]
fn sockets_of_the_wrong_kind_are_returned_unchanged() {
    let side = Side::new(policy());
    let ep = side.ep();
    for params in [initiator(true), initiator(false), responder(true), responder(false)] {
        let file = std::fs::File::open("/dev/null").unwrap();
        refused(&ep, file, params.clone());

        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = datagrams.local_addr().unwrap();
        datagrams.connect(to).unwrap();
        let datagrams: UdpSocket = refused(&ep, datagrams, params.clone()).into();
        datagrams.send(b"still").unwrap();
        assert_eq!(datagrams.recv(&mut [0; 9]).unwrap(), 5);

        let (unix, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut unix: std::os::unix::net::UnixStream = refused(&ep, unix, params.clone()).into();
        unix.write_all(b"still").unwrap();
        other.read_exact(&mut [0; 5]).unwrap();

        let listener = TcpListener::bind("[::1]:0").unwrap();
        let listener: TcpListener = refused(&ep, listener, params.clone()).into();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap();

        let remote = listener.local_addr().unwrap();
        let fresh = kal_shim::sock::open(remote, None, &Default::default()).unwrap();
        let fresh = refused(&ep, fresh, params.clone());
        kal_shim::sock::start(&fresh, remote).unwrap();
        assert!(ready_within(fresh.as_fd(), Interest::WRITE, HANG));
        kal_shim::sock::connected(&fresh).unwrap();
    }
}

/// Both directions still carry octets, in blocking calls.
fn converses(mut one: TcpStream, mut other: TcpStream) {
    assert!(!nonblocking(&one) && !nonblocking(&other));
    one.write_all(b"question").unwrap();
    let mut octets = [0; 8];
    other.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"question");
    other.write_all(b"response").unwrap();
    one.read_exact(&mut octets).unwrap();
    assert_eq!(&octets, b"response");
}

fn nonblocking(stream: &TcpStream) -> bool {
    let path = format!("/proc/self/fdinfo/{}", stream.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    // O_NONBLOCK
    u32::from_str_radix(flags.trim(), 8).unwrap() & 0o4000 != 0
}

#[test]
fn unread_octets_of_a_dialogue_refuse_the_conversion_and_stay() {
    let side = Side::new(policy());
    let ep = side.ep();
    let request = b"MPA ID Req Frame";
    for (params, unread) in [
        (responder(true), &b"GET / HTTP/1.1\r\n"[..]),
        (responder(false), b"GET / HTTP/1.1\r\n"),
        (responder(false), request),
        (responder(true), b"MPA ID Rep Frame"),
        (initiator(true), b"x"),
        (initiator(true), b"MPA ID Rep Frame"),
        (initiator(false), &[0, 22, 0x41, 0x43]),
    ] {
        let (mut one, other) = streams(LOCALHOST);
        one.write_all(unread).unwrap();
        readable(&other);
        let mut other: TcpStream = refused(&ep, other, params.clone()).into();
        let mut octets = vec![0; unread.len()];
        other.read_exact(&mut octets).unwrap();
        assert_eq!(octets, unread);
        converses(one, other);
        // The same octets, read by the application before, are refused too.
        let (one, other) = streams(LOCALHOST);
        let params = ConvertParams { received: unread.to_vec(), ..params };
        converses(one, refused(&ep, other, params).into());
    }
}

#[test]
fn ended_streams_are_refused() {
    let side = Side::new(policy());
    let ep = side.ep();
    for params in [initiator(true), responder(true)] {
        let (one, other) = streams(LOCALHOST);
        one.shutdown(Shutdown::Write).unwrap();
        readable(&other);
        let mut other: TcpStream = refused(&ep, other, params.clone()).into();
        let mut one: TcpStream = refused(&ep, one, params.clone()).into();
        other.write_all(b"still").unwrap();
        one.read_exact(&mut [0; 5]).unwrap();
    }
}

#[test]
fn misuse_leaves_socket_and_endpoint_unchanged() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (connected, _passive) = connect(&client, &server, &listen);
    let (one, other) = streams(LOCALHOST);
    let error = connected.convert(one.into(), responder(true)).unwrap_err();
    assert!(matches!(error.error, Error::InvalidState { .. }), "{error}");
    assert_eq!(connected.state(), EpState::Connected);
    let ep = client.ep();
    let mut one: OwnedFd = error.socket;
    for (params, most) in [
        (ConvertParams { private_data: vec![0; 509], ..initiator(true) }, 508),
        (ConvertParams { private_data: vec![0; 509], ..responder(true) }, 508),
        (ConvertParams { private_data: vec![0; 1], ..initiator(false) }, 0),
        (ConvertParams { private_data: vec![0; 1], ..responder(false) }, 0),
    ] {
        let error = ep.convert(one, params).unwrap_err();
        assert!(
            matches!(error.error, Error::PrivateDataTooLong { max, .. } if max == most),
            "{error}"
        );
        one = error.socket;
    }
    let params = ConvertParams { last_message: vec![0; 65_537], ..responder(true) };
    let error = ep.convert(one, params).unwrap_err();
    assert!(matches!(error.error, Error::InvalidArgument(_)), "{error}");
    assert_eq!(ep.state(), EpState::Unconnected);
    converses(error.socket.into(), other);
    ep.close().unwrap();
    let error = ep.convert(streams(LOCALHOST).0.into(), responder(true)).unwrap_err();
    assert!(matches!(error.error, Error::Closed(_)), "{error}");
}

// [CONN-01] [CONN-12] [CONN-13]
#[test]
fn false_silent_and_departed_peers_are_distinguished() {
    let short = Duration::from_millis(30);
    let hurried = Policy {
        connect_timeout: short,
        request_timeout: short,
        answer_timeout: short,
        ..policy()
    };
    let side = Side::new(policy());
    let run = |params: &ConvertParams, says: Option<&[u8]>| {
        let (mut one, other) = streams(LOCALHOST);
        let ep = side.ep();
        let policy = if says.is_none() { hurried.clone() } else { policy() };
        let params = ConvertParams { policy: Some(policy), ..params.clone() };
        ep.convert(other.into(), params).unwrap();
        match says {
            Some(b"") => drop(one),
            Some(octets) => one.write_all(octets).unwrap(),
            None => {
                let reason = failure(&side);
                // The stream is closed then.
                let mut rest = Vec::new();
                one.read_to_end(&mut rest).unwrap();
                assert_eq!(ep.state(), EpState::Nonoperational);
                return reason;
            }
        }
        let reason = failure(&side);
        ep.reset().unwrap();
        reason
    };
    assert_eq!(run(&initiator(true), None), FailReason::ReplyTimeout(short));
    assert_eq!(run(&responder(true), None), FailReason::RequestTimeout(short));
    assert_eq!(run(&responder(false), None), FailReason::RequestTimeout(short));
    for params in [initiator(true), responder(true), responder(false)] {
        let reason = run(&params, Some(b"HTTP/1.1 200 OK\r\n"));
        assert!(matches!(reason, FailReason::NotMpa(_)), "{reason}");
        let reason = run(&params, Some(b""));
        assert!(matches!(reason, FailReason::PeerClosed { have: 0 }), "{reason}");
    }
    // Both ends begin; both have begun; an unknown revision.
    let reason = run(&initiator(true), Some(b"MPA ID Req Frame\x40\x01\0\0"));
    assert!(matches!(reason, FailReason::NotMpa(_)), "{reason}");
    let reason = run(&responder(true), Some(b"MPA ID Rep Frame\x40\x01\0\0"));
    assert!(matches!(reason, FailReason::NotMpa(_)), "{reason}");
    let reason = run(&responder(true), Some(b"MPA ID Req Frame\x40\x07\0\0"));
    assert_eq!(reason, FailReason::Revision { got: 7 });
}

// Every way to establish a stream can fail at its last step, and reports that.
#[test]
fn a_provider_that_refuses_the_stream_ends_every_conversion() {
    let side = Side::of(&fake::ual(Behaviour::RefuseStreams, policy()));
    let request = &b"MPA ID Req Frame\x40\x01\0\0"[..];
    let reply = &b"MPA ID Rep Frame\x40\x01\0\0"[..];
    let cases = [
        (initiator(true), reply),
        (initiator(false), &[][..]),
        (responder(true), request),
        (responder(false), &[0, 22, 0x41, 0x43][..]),
    ];
    for (params, says) in cases {
        let (mut one, other) = streams(LOCALHOST);
        let old = Policy { revision: 1, ..policy() };
        let ep = side.ep();
        side.post_recv(&ep, 9, 0, 10);
        let what = format!("{:?}, start-up {}", params.role, params.startup);
        ep.convert(other.into(), ConvertParams { policy: Some(old), ..params }).unwrap();
        one.write_all(says).unwrap();
        match failure(&side) {
            FailReason::Resources(why) => {
                assert!(why.contains("no stream buffers left"), "{what}: {why}");
            }
            reason => panic!("{what}: {reason}"),
        }
        assert_eq!(ep.state(), EpState::Nonoperational, "{what}");
        assert_eq!(side.completion().status, WcStatus::Flushed, "{what}");
        let mut rest = Vec::new();
        // The end of the stream or a reset; it does not hang.
        let _ = one.read_to_end(&mut rest);
    }
}

#[test]
fn a_socket_whose_options_cannot_be_set_is_not_converted() {
    let side = Side::new(policy());
    let unknown = Policy { congestion: Some("nonesuch".into()), ..policy() };
    for params in [initiator(true), initiator(false), responder(true), responder(false)] {
        let (_one, other) = streams(LOCALHOST);
        let ep = side.ep();
        ep.convert(other.into(), ConvertParams { policy: Some(unknown.clone()), ..params })
            .unwrap();
        match failure(&side) {
            FailReason::Resources(why) => assert!(why.contains("`nonesuch`"), "{why}"),
            reason => panic!("{reason}"),
        }
        assert_eq!(ep.state(), EpState::Nonoperational);
    }
}

#[test]
fn a_peer_that_stops_in_the_middle_is_named() {
    let side = Side::new(policy());
    for (params, octets) in [(responder(true), &b"MPA ID"[..]), (responder(false), &[0, 22])] {
        let (mut one, other) = streams(LOCALHOST);
        let ep = side.ep();
        ep.convert(other.into(), params).unwrap();
        one.write_all(octets).unwrap();
        drop(one);
        assert_eq!(failure(&side), FailReason::PeerClosed { have: octets.len() });
    }
}

#[test]
fn policies_that_do_not_go_together_end_a_conversion() {
    let (client, server) = (
        Side::new(Policy { markers: Markers::Require, ..policy() }),
        Side::new(Policy { markers: Markers::Refuse, ..policy() }),
    );
    let (plain, accepted) = streams(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    passive.convert(accepted.into(), responder(true)).unwrap();
    active.convert(plain.into(), initiator(true)).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    assert_eq!(failure(&server), FailReason::Markers);
}

#[test]
fn a_wait_can_be_cancelled_or_closed_and_the_endpoint_used_again() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let passive = server.ep();
    for params in [responder(true), responder(false), initiator(true)] {
        let (mut one, other) = streams(LOCALHOST);
        server.post_recv(&passive, 9, 0, 10);
        passive.convert(other.into(), params).unwrap();
        passive.disconnect(Disconnect::Graceful).unwrap();
        assert_eq!(failure(&server), FailReason::Cancelled);
        // Posted requests are flushed.
        let completion = server.completion();
        assert_eq!((completion.wr_id, completion.status), (9, WcStatus::Flushed));
        let mut rest = Vec::new();
        one.read_to_end(&mut rest).unwrap();
        passive.reset().unwrap();
        assert_eq!(passive.state(), EpState::Unconnected);
    }
    server.post_recv(&passive, 9, 0, 10);
    let (plain, accepted) = streams(LOCALHOST);
    let active = client.ep();
    passive.convert(accepted.into(), responder(true)).unwrap();
    active.convert(plain.into(), initiator(true)).unwrap();
    client.established();
    server.established();
    client.send(&active, 1, 0, 10);
    assert_eq!((server.success().wr_id, client.success().wr_id), (9, 1));
    drop((active, passive));
    // Closed while it waits, with a second descriptor of the socket left.
    let (mut one, other) = streams(LOCALHOST);
    let second = other.try_clone().unwrap();
    let ep = server.ep();
    ep.convert(other.into(), responder(true)).unwrap();
    ep.close().unwrap();
    one.write_all(b"nobody there").unwrap();
    drop(second);
    let mut rest = Vec::new();
    // A reset or an end.
    let _ = one.read_to_end(&mut rest);
    assert!(rest.is_empty());
}

#[test]
fn an_endpoint_is_converted_accepted_and_connected_in_turn() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    for round in 0..12 {
        match round % 3 {
            0 => {
                active.connect(ual::ConnectParams::new(listen.addresses()[0])).unwrap();
                passive.accept(server.request().request, Default::default()).unwrap();
            }
            startup => {
                let (plain, accepted) = streams(LOCALHOST);
                passive.convert(accepted.into(), responder(startup == 1)).unwrap();
                active.convert(plain.into(), initiator(startup == 1)).unwrap();
            }
        }
        client.established();
        exchange(&client, &server, (&active, &passive), 100);
        server.established();
        [&active, &passive][round % 2].disconnect(Disconnect::Graceful).unwrap();
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
        active.reset().unwrap();
        passive.reset().unwrap();
    }
    assert_eq!(client.completions.queued(), 0);
}

// A raw peer receives exactly the message, then exactly one request.
#[test]
fn the_wire_carries_the_message_then_one_request() {
    let side = Side::new(Policy { revision: 1, ..policy() });
    let (mut one, other) = streams(LOCALHOST);
    let ep = side.ep();
    let params = ConvertParams {
        last_message: b"101 switching".to_vec(),
        private_data: b"mine".to_vec(),
        ..initiator(true)
    };
    ep.convert(other.into(), params).unwrap();
    let mut octets = vec![0; 13 + 24];
    one.read_exact(&mut octets).unwrap();
    assert_eq!(octets, b"101 switchingMPA ID Req Frame\x40\x01\0\x04mine");
    one.write_all(b"MPA ID Rep Frame\x40\x01\0\x05yours").unwrap();
    assert_eq!(side.established().private_data, b"yours");
    side.post_recv(&ep, 1, 0, 100);
    drop(one);
    assert!(matches!(side.conn_event(), ConnEvent::Broken { .. } | ConnEvent::Disconnected { .. }));
    assert_eq!(side.completion().status, WcStatus::Flushed);
}
