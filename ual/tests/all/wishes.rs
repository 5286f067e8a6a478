//! Parameters of a connection: local ports, time-outs, limits left out of the start-up.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ual::vp_api::{FpduSize, Role, Rtr, StreamParams, VpStatus};
use ual::{
    AcceptParams, ConnEvent, ConnectParams, Crc, Disconnect, EpState, Error, FailReason,
    ListenInit, Markers, PeerToPeer, Policy,
};

use crate::common::{LOCALHOST, Side, connect, over_tcp, policy};
use crate::fake::{self, Behaviour};

fn failure(side: &Side) -> FailReason {
    match side.conn_event() {
        ConnEvent::Failed(error) => error.reason,
        other => panic!("{other}"),
    }
}

/// A port that is free at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_local_port_is_used_and_used_again() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let local_port = free_port();
    let params = ConnectParams { local_port, ..ConnectParams::new(listen.addresses()[0]) };
    let (active, passive) = (client.ep(), server.ep());
    for _ in 0..3 {
        active.connect(params.clone()).unwrap();
        let request = server.request();
        assert_eq!(request.ends.remote.address, (LOCALHOST, local_port).into());
        passive.accept(request.request, AcceptParams::default()).unwrap();
        assert_eq!(client.established().ends.local.address.port(), local_port);
        server.established();
        // While it is connected, no other endpoint connects from that port to the same peer.
        let other = client.ep();
        let error = other.connect(params.clone()).unwrap_err();
        assert!(matches!(error, Error::AddressInUse(_)), "{error}");
        assert_eq!(other.state(), EpState::Unconnected);
        // The passive end closes first, so that this end has no TIME_WAIT.
        passive.disconnect(Disconnect::Graceful).unwrap();
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        active.reset().unwrap();
        passive.reset().unwrap();
    }
}

#[test]
fn a_bound_address_is_connected_from_or_listened_on() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let any = SocketAddr::new(LOCALHOST, 0);
    let bound = server.ia.bind(&[any]).unwrap();
    let address = bound.addresses()[0];
    assert!(address.port() != 0 && TcpListener::bind(address).is_err());
    let listen = server.ia.listen_on(bound, ListenInit::new(any, &server.requests)).unwrap();
    assert_eq!(listen.addresses(), [address]);
    let bound = client.ia.bind(&[any]).unwrap();
    let from = bound.addresses()[0];
    let ep = client.ep();
    ep.connect_from(bound, ConnectParams::new(address)).unwrap();
    assert_eq!(server.request().ends.remote.address, from);
    let two = client.ia.bind(&[any, "127.0.0.2:0".parse().unwrap()]).unwrap();
    let refused = client.ep().connect_from(two, ConnectParams::new(address));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    assert!(matches!(client.ia.bind(&[]), Err(Error::InvalidArgument(_))));
    let ia = ual::Ual::with_config(ual::Config::default()).open_any().unwrap();
    ia.close().unwrap();
    assert!(matches!(ia.bind(&[any]), Err(Error::Closed(ual::Object::Ia))));
}

#[test]
fn a_port_in_use_is_reported_at_once_and_another_works() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let address = listen.addresses()[0];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let ep = client.ep();
    let busy = ConnectParams { local_port: taken.port(), ..ConnectParams::new(address) };
    for _ in 0..3 {
        let error = ep.connect(busy.clone()).unwrap_err();
        assert!(matches!(error, Error::AddressInUse(_)), "{error}");
        for part in ["connect to", &address.to_string(), &taken.port().to_string(), "in use"] {
            assert!(error.to_string().contains(part), "`{part}` is missing in: {error}");
        }
        assert_eq!(ep.state(), EpState::Unconnected);
    }
    // The same endpoint connects from any other port.
    ep.connect(ConnectParams::new(address)).unwrap();
    let passive = server.ep();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    client.established();
    // Listening on a port in use is reported in the same way.
    for busy in [address, taken] {
        let error = server.ia.listen(ListenInit::new(busy, &server.requests)).unwrap_err();
        assert!(matches!(error, Error::AddressInUse(_)), "{error}");
        assert!(error.to_string().contains(&busy.to_string()), "{error}");
    }
    drop(holder);
    server.ia.listen(ListenInit::new(taken, &server.requests)).unwrap();
}

// [CONN-13]
#[test]
fn a_time_out_bounds_the_whole_attempt() {
    let client = Side::new(policy());
    let short = Duration::from_millis(50);
    // No reply to the start-up; no reply of TCP.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let full = kal_shim::sock::listen("127.0.0.1:0".parse().unwrap(), 0).unwrap();
    let options = kal_shim::sock::Options::default();
    let _queued: Vec<_> =
        (0..4).map(|_| kal_shim::sock::connect(full.address, None, &options).unwrap()).collect();
    let cases = [
        (silent.local_addr().unwrap(), FailReason::ReplyTimeout(short)),
        (full.address, FailReason::ConnectTimeout(short)),
    ];
    for (address, reason) in cases {
        let ep = client.ep();
        let params = ConnectParams { timeout: Some(short), ..ConnectParams::new(address) };
        ep.connect(params).unwrap();
        assert_eq!(failure(&client), reason);
    }
    // A second try does not get a time-out of its own.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closing.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut first, _) = closing.accept().unwrap();
        first.read_exact(&mut [0; 20]).unwrap();
        drop(first);
        closing.accept().unwrap().0
    });
    let ep = client.ep();
    let params = ConnectParams { timeout: Some(short), ..ConnectParams::new(address) };
    ep.connect(params).unwrap();
    assert_eq!(failure(&client), FailReason::ReplyTimeout(short));
    drop(warpline_patience::within("two tries to connect", || peer.join().unwrap()));
    // A deadline that the clock cannot represent is none.
    let mut never = ConnectParams::new(silent.local_addr().unwrap());
    never.timeout = Some(Duration::MAX);
    let ep = client.ep();
    ep.connect(never).unwrap();
    ep.disconnect(Disconnect::Abrupt).unwrap();
    assert_eq!(failure(&client), FailReason::Cancelled);
}

// [CONN-26] [CONN-19]
#[test]
fn limits_left_out_are_not_on_the_wire() {
    let plain = Policy { peer_to_peer: PeerToPeer::default(), ..policy() };
    for (policy, marks) in [(policy(), Some([0x3F, 0xFF])), (plain, None)] {
        let client = Side::new(policy);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ep = client.ep();
        let params = ConnectParams { suppress_ird_ord: true, ..ConnectParams::new(address) };
        ep.connect(params).unwrap();
        let (mut peer, _) =
            warpline_patience::within("the connection", || listener.accept().unwrap());
        peer.set_read_timeout(Some(warpline_patience::HANG)).unwrap();
        let mut request = [0; 20];
        peer.read_exact(&mut request).unwrap();
        match marks {
            Some([high, low]) => {
                let mut block = [0; 4];
                peer.read_exact(&mut block).unwrap();
                // Flags A and C, D are in the top bits.
                assert_eq!(
                    [block[0] & 0x3F, block[1], block[2] & 0x3F, block[3]],
                    [high, low, high, low]
                );
            }
            // Nothing else wanted: revision 1, no block, no private data.
            None => assert_eq!(request[16..], [0x40, 1, 0, 0]),
        }
        peer.write_all(b"no").unwrap();
        assert!(matches!(failure(&client), FailReason::NotMpa(_)));
    }
}

// [CONN-26] [CONN-17]
#[test]
fn either_end_may_leave_limits_out_and_keeps_its_own() {
    for (by_client, by_server) in [(true, false), (false, true), (true, true)] {
        let (client, server) = (Side::new(policy()), Side::new(policy()));
        let any = SocketAddr::new(LOCALHOST, 0);
        let init =
            ListenInit { suppress_ird_ord: by_server, ..ListenInit::new(any, &server.requests) };
        let listen = server.ia.listen(init).unwrap();
        let ep = |side: &Side, ird, ord| {
            let mut init = ual::EpInit::new(&side.completions, &side.connection);
            (init.ird, init.ord) = (ird, ord);
            side.pz.create_ep(init).unwrap()
        };
        let (active, passive) = (ep(&client, 2, 9), ep(&server, 3, 8));
        let params = ConnectParams {
            suppress_ird_ord: by_client,
            ..ConnectParams::new(listen.addresses()[0])
        };
        active.connect(params).unwrap();
        let request = server.request();
        let asked = if by_client { (0x3FFF, 0x3FFF) } else { (2, 9) };
        assert_eq!(request.peer_ird_ord, Some(asked));
        let accept = AcceptParams { ird: Some(1), ..AcceptParams::default() };
        passive.accept(request.request, accept).unwrap();
        let (ours, theirs) = (client.established(), server.established());
        assert_eq!((ours.ird, ours.ord), (2, 9), "{by_client} {by_server}");
        assert_eq!((theirs.ird, theirs.ord), (1, 8), "{by_client} {by_server}");
        assert_eq!(ours.peer_ird_ord, Some((0x3FFF, 0x3FFF)));
        // It works still.
        server.post_recv(&passive, 1, 0, 10);
        client.send(&active, 2, 0, 10);
        assert_eq!((server.success().wr_id, client.success().wr_id), (1, 2));
    }
}

/// The provider gets the policy for streams, and what was negotiated.
#[test]
fn streams_are_as_the_policy_and_the_peer_want_them() {
    let wanted = Policy {
        crc: Crc::Refuse,
        markers: Markers::Require,
        peer_to_peer: PeerToPeer { send: true, write: false, read: false },
        fpdu: FpduSize::Octets(1000),
        extensions: false,
        kick_after: Some(Duration::from_secs(7)),
        probe_after: Some(Duration::from_secs(8)),
        close_timeout: Duration::from_secs(9),
        ..over_tcp()
    };
    let noted: Arc<Mutex<Vec<StreamParams>>> = Arc::default();
    let side = || Side::of(&fake::ual(Behaviour::Noting(noted.clone()), wanted.clone()));
    let (client, server) = (side(), side());
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    let expected = |role| StreamParams {
        crc: false,
        markers_tx: true,
        markers_rx: true,
        rtr: Some(Rtr::Send),
        fpdu: wanted.fpdu,
        extensions: wanted.extensions,
        kick_after: wanted.kick_after,
        probe_after: wanted.probe_after,
        close_timeout: wanted.close_timeout,
        ..StreamParams::new(role)
    };
    let noted = noted.lock().unwrap();
    assert_eq!(*noted, [Role::Responder, Role::Initiator].map(expected));
    drop((active, passive));
}

/// A close that the provider refuses is the caller's error, unless the stream has ended by itself.
// A provider that never reports the end does not keep the application waiting.
#[test]
fn a_close_that_never_ends_is_over_in_time() {
    let short = Policy { close_timeout: Duration::from_millis(1), ..policy() };
    let client = Side::of(&fake::ual(Behaviour::NeverCloses, short));
    let server = Side::new(policy());
    let (active, _passive) = connect(&client, &server, &server.listen(LOCALHOST));
    active.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
}

#[test]
fn a_close_that_the_provider_refuses_is_reported() {
    for status in [VpStatus::InsufficientResources, VpStatus::InvalidState] {
        let client = Side::of(&fake::ual(Behaviour::RefuseClose(status), policy()));
        let server = Side::new(policy());
        let listen = server.listen(LOCALHOST);
        let (active, passive) = connect(&client, &server, &listen);
        let left = active.disconnect(Disconnect::Graceful);
        match status {
            VpStatus::InvalidState => left.unwrap(),
            _ => assert_eq!(left.unwrap_err().verb_status(), Some(status)),
        }
        assert_eq!((active.state(), passive.state()), (EpState::Connected, EpState::Connected));
    }
}
