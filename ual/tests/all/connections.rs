//! Connections between two adapters: every way to establish and to end one.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

use ual::vp_api::{self, Role, SendOp, VpStatus, WcStatus};
use ual::{
    AcceptParams, BrokenCause, ConnEvent, ConnectParams, Crc, Disconnect, EpState, Error,
    FailReason, Markers, PeerToPeer, Policy, RequestId,
};

use crate::common::{HANG, LOCALHOST, Side, connect, is_alone, over_tcp, policy};

fn pair() -> (Side, Side) {
    (Side::new(policy()), Side::new(policy()))
}

/// Sends 100 octets each way.
fn exchange(client: &Side, server: &Side, ends: (&ual::Ep, &ual::Ep)) {
    let (active, passive) = ends;
    server.post_recv(passive, 1, 0, 100);
    client.post_recv(active, 2, 0, 100);
    client.send(active, 3, 1000, 100);
    assert_eq!(server.success().wr_id, 1);
    server.send(passive, 4, 1000, 100);
    let mut done = [client.success().wr_id, client.success().wr_id];
    done.sort_unstable();
    assert_eq!(done, [2, 3]);
    assert_eq!(server.success().wr_id, 4);
}

#[test]
fn both_families_and_the_wildcard_work() {
    let (client, server) = pair();
    let mut open = Vec::new();
    for (bind, target) in [
        (IpAddr::V6(Ipv6Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), LOCALHOST),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ] {
        let listen = server.listen(bind);
        let address = SocketAddr::new(target, listen.addresses()[0].port());
        let (active, passive) = (client.ep(), server.ep());
        active.connect(ConnectParams::new(address)).unwrap();
        let request = server.request();
        assert_eq!(request.ends.remote.address.ip(), target);
        assert_eq!(request.ends.local.address, address);
        passive.accept(request.request, AcceptParams::default()).unwrap();
        let established = client.established();
        assert_eq!(established.ends.remote.address, address);
        assert_eq!(server.established().ends.local.address, address);
        exchange(&client, &server, (&active, &passive));
        open.push((active, passive));
    }
}

// [CONN-11] [CONN-29]: peer-to-peer, the accepting side may send first.
#[test]
fn the_accepting_side_may_send_first() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    client.post_recv(&active, 1, 0, 100);
    active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    assert!(server.established().rtr.is_some());
    server.send(&passive, 2, 0, 100);
    assert_eq!(client.success().wr_id, 1);
    assert_eq!(server.success().wr_id, 2);
}

// [CONN-07] [CONN-09] [CONN-10]
#[test]
fn private_data_is_complete_in_every_frame() {
    let plain = Policy { revision: 1, ..policy() };
    for (policy, most) in [(policy(), 508), (plain, 512)] {
        let (client, server) = (Side::new(policy), Side::new(self::policy()));
        let listen = server.listen(LOCALHOST);
        let address = listen.addresses()[0];
        let data: Vec<u8> = (0..most).map(|i| i as u8).collect();
        let reply: Vec<u8> = data.iter().map(|octet| !octet).collect();

        let ep = client.ep();
        let params = ConnectParams { private_data: data.clone(), ..ConnectParams::new(address) };
        ep.connect(params.clone()).unwrap();
        let request = server.request();
        assert_eq!(request.private_data, data);
        assert_eq!(request.max_private_data, most);
        let accept = AcceptParams { private_data: reply.clone(), ..AcceptParams::default() };
        let passive = server.ep();
        passive.accept(request.request, accept).unwrap();
        assert_eq!(client.established().private_data, reply);
        server.established();

        let ep = client.ep();
        ep.connect(params.clone()).unwrap();
        let request = server.request().request;
        let long = vec![0; most + 1];
        let error = server.ia.reject(request, &long).unwrap_err();
        assert!(
            matches!(error, Error::PrivateDataTooLong { len, max } if (len, max) == (most + 1, most))
        );
        server.ia.reject(request, &reply).unwrap();
        match next(&client, &ep) {
            ConnEvent::Rejected { private_data, ends, .. } => {
                assert_eq!(private_data, reply);
                assert_eq!(ends.remote.address, address);
            }
            other => panic!("{other}"),
        }
        assert_eq!(ep.state(), EpState::Nonoperational);
        let params = ConnectParams { private_data: long, ..params };
        assert!(matches!(client.ep().connect(params), Err(Error::PrivateDataTooLong { .. })));
    }
}

/// The next event of one endpoint; others are dropped.
fn next(side: &Side, ep: &ual::Ep) -> ConnEvent {
    let bound = warpline_patience::Bound::new("an event of the endpoint");
    loop {
        bound.check();
        match side.connection.wait(Some(HANG)).unwrap() {
            ual::Event::Connection { qp, event, .. } if qp == ep.id() => return *event,
            _ => {}
        }
    }
}

// [CONN-20] [CONN-21] [CONN-24] [CONN-25]
#[test]
fn ird_and_ord_fit_together_at_both_ends() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let mut open = Vec::new();
    for (ird, ord) in [(0, 0), (0, 5), (1, 1), (3, 9), (9, 3), (16, 16)] {
        for (peer_ird, peer_ord) in [(0, 0), (2, 7), (7, 2), (16, 16)] {
            let ep = |side: &Side, ird, ord| {
                let mut init = ual::EpInit::new(&side.completions, &side.connection);
                (init.ird, init.ord) = (ird, ord);
                side.pz.create_ep(init).unwrap()
            };
            let (active, passive) = (ep(&client, ird, ord), ep(&server, peer_ird, peer_ord));
            active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
            let request = server.request();
            assert_eq!(request.peer_ird_ord, Some((ird, ord)));
            passive.accept(request.request, AcceptParams::default()).unwrap();
            let (theirs, ours) = (server.established(), client.established());
            let case = format!("{ird}/{ord} with {peer_ird}/{peer_ord}: {ours:?} {theirs:?}");
            assert!(ours.ord <= theirs.ird && theirs.ord <= ours.ird, "{case}");
            assert!(ours.ord <= ord && theirs.ord <= peer_ord, "{case}");
            assert_eq!(ours.peer_ird_ord, Some((theirs.ird, theirs.ord)), "{case}");
            open.push((active, passive));
        }
    }
}

// [CONN-29] [CONN-30]: the initiator's RTR, of any kind, allows the responder to send.
#[test]
fn a_responder_may_send_first_behind_each_rtr() {
    for (send, write, read) in [(true, false, false), (false, true, false), (false, false, true)] {
        let only = Policy {
            peer_to_peer: PeerToPeer { send, write, read },
            kick_after: None,
            probe_after: None,
            ..policy()
        };
        let (client, server) = (Side::new(only.clone()), Side::new(only));
        let listen = server.listen(LOCALHOST);
        let (active, passive) = (client.ep(), server.ep());
        client.post_recv(&active, 1, 0, 8);
        if send {
            // It takes a receive.
            server.post_recv(&passive, 3, 0, 8);
        }
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        assert!(client.established().rtr.is_some());
        server.established();
        server.send(&passive, 2, 0, 8);
        assert_eq!(client.success().wr_id, 1);
    }
}

// [CONN-26]
#[test]
fn negotiation_can_be_switched_off() {
    let off = Policy { negotiate_ird_ord: false, ..policy() };
    let (client, server) = (Side::new(off), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let request = server.request();
    assert_eq!(request.peer_ird_ord, Some((0x3FFF, 0x3FFF)));
    let passive = server.ep();
    passive.accept(request.request, AcceptParams::default()).unwrap();
    assert_eq!((client.established().ird, server.established().ird), (16, 16));
}

// [MPA-13] [CONN-02] [CONN-03]
#[test]
fn crc_and_markers_follow_both_policies() {
    let crcs = [Crc::Require, Crc::Prefer, Crc::Off];
    let markers = [Markers::Off, Markers::Prefer, Markers::Require];
    for (ours, theirs) in crcs.iter().flat_map(|a| crcs.map(|b| (*a, b))) {
        for (our_markers, their_markers) in markers.iter().zip(markers.iter().rev()) {
            let client = Side::new(Policy { crc: ours, markers: *our_markers, ..over_tcp() });
            let server = Side::new(Policy { crc: theirs, markers: *their_markers, ..over_tcp() });
            let listen = server.listen(LOCALHOST);
            let (active, passive) = (client.ep(), server.ep());
            active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
            passive.accept(server.request().request, AcceptParams::default()).unwrap();
            let (active_view, passive_view) = (client.established(), server.established());
            assert_eq!(active_view.crc, ours != Crc::Off || theirs != Crc::Off);
            assert_eq!(passive_view.crc, active_view.crc);
            assert_eq!(active_view.markers_rx, *our_markers != Markers::Off);
            assert_eq!(active_view.markers_tx, *their_markers != Markers::Off);
            assert_eq!(passive_view.markers_tx, active_view.markers_rx);
            exchange(&client, &server, (&active, &passive));
        }
    }
}

// [IOP-01]
#[test]
fn policies_that_do_not_go_together_are_named() {
    let cases = [
        (Policy { crc: Crc::Refuse, ..policy() }, Policy::default(), Some(FailReason::CrcPolicy)),
        (Policy::default(), Policy { crc: Crc::Refuse, ..policy() }, None),
        (
            Policy { markers: Markers::Require, ..policy() },
            Policy { markers: Markers::Refuse, ..policy() },
            None,
        ),
    ];
    for (ours, theirs, reason) in cases {
        let (client, server) = (Side::new(ours), Side::new(theirs));
        let listen = server.listen(LOCALHOST);
        let ep = client.ep();
        ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        if let Some(reason) = reason {
            let passive = server.ep();
            passive.accept(server.request().request, AcceptParams::default()).unwrap();
            match client.conn_event() {
                ConnEvent::Failed(error) => assert_eq!(error.reason, reason),
                other => panic!("{other}"),
            }
        } else {
            assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
        }
    }
    // Markers that are only preferred are not used.
    let client = Side::new(Policy { markers: Markers::Prefer, ..policy() });
    let server = Side::new(Policy { markers: Markers::Refuse, ..policy() });
    let listen = server.listen(LOCALHOST);
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let passive = server.ep();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    assert!(!client.established().markers_rx);
}

// [CONN-18] [CONN-19]
#[test]
fn old_and_new_peers_connect() {
    let old = Policy { revision: 1, ..policy() };
    let simple =
        Policy { negotiate_ird_ord: false, peer_to_peer: PeerToPeer::default(), ..policy() };
    for (ours, theirs, revision) in [
        (policy(), old.clone(), 1),
        (old.clone(), policy(), 1),
        (simple.clone(), policy(), 1),
        (policy(), simple, 2),
        (policy(), policy(), 2),
    ] {
        let (client, server) = (Side::new(ours), Side::new(theirs));
        let listen = server.listen(LOCALHOST);
        let (active, passive) = (client.ep(), server.ep());
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        assert_eq!(client.established().revision, revision);
        server.established();
        exchange(&client, &server, (&active, &passive));
    }
}

#[test]
fn both_ends_get_a_disconnect_and_the_endpoint_can_be_reused() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    for round in 0..3 {
        exchange(&client, &server, (&active, &passive));
        client.post_recv(&active, 77, 0, 10);
        active.disconnect(Disconnect::Graceful).unwrap();
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));
        let flushed = client.completion();
        assert_eq!((flushed.wr_id, flushed.status), (77, WcStatus::Flushed), "round {round}");
        // Further disconnects change nothing.
        active.disconnect(Disconnect::Abrupt).unwrap();
        for ep in [&active, &passive] {
            assert_eq!(ep.state(), EpState::Nonoperational);
            ep.reset().unwrap();
            assert_eq!(ep.state(), EpState::Unconnected);
            assert!(matches!(ep.reset(), Err(Error::InvalidState { .. })));
        }
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        server.established();
        client.established();
    }
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    for _ in 0..50 {
        let (active, passive) = connect(&client, &server, &listen);
        std::thread::scope(|scope| {
            scope.spawn(|| active.disconnect(Disconnect::Graceful).unwrap());
            scope.spawn(|| passive.disconnect(Disconnect::Graceful).unwrap());
        });
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
    }
    assert_eq!(client.connection.queued() + server.connection.queued(), 0);
    let counters = client.ia.cm_counters();
    assert_eq!((counters.established, counters.disconnected, counters.broken), (50, 50, 0));
}

#[test]
fn a_reset_waits_for_the_last_event() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    for _ in 0..50 {
        let (active, passive) = connect(&client, &server, &listen);
        active.disconnect(Disconnect::Graceful).unwrap();
        // Refused when it is too early; once it succeeds, the event is queued, or will be at once.
        warpline_patience::until("the reset to be accepted", || active.reset().is_ok());
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
        passive.close().unwrap();
    }
}

#[test]
fn an_abrupt_disconnect_flushes_and_breaks_the_peer() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    for wr_id in 0..20 {
        client.post_recv(&active, wr_id, 0, 10);
        server.post_recv(&passive, wr_id, 0, 10);
    }
    active.disconnect(Disconnect::Abrupt).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
    match server.conn_event() {
        ConnEvent::Broken { ends, .. } => {
            assert_eq!(ends.local.address, listen.addresses()[0]);
        }
        other => panic!("{other}"),
    }
    for side in [&client, &server] {
        for wr_id in 0..20 {
            let completion = side.completion();
            assert_eq!((completion.wr_id, completion.status), (wr_id, WcStatus::Flushed));
        }
    }
    // Work posted afterwards completes as flushed.
    client.send(&active, 99, 0, 10);
    assert_eq!(client.completion().status, WcStatus::Flushed);
}

#[test]
fn a_query_reports_what_was_negotiated_and_the_state_of_tcp() {
    let (client, server) = (Side::new(over_tcp()), Side::new(over_tcp()));
    let listen = server.listen(LOCALHOST);
    let ep = client.ep();
    let info = ep.query().unwrap();
    assert!(info.tcp.is_none() && info.ends.is_none() && info.established.is_none());
    let (active, passive) = connect(&client, &server, &listen);
    exchange(&client, &server, (&active, &passive));
    for (ep, role) in [(&active, Role::Initiator), (&passive, Role::Responder)] {
        let info = ep.query().unwrap();
        let tcp = info.tcp.unwrap();
        assert!(tcp.mss >= 500 && tcp.rtt > Duration::ZERO && tcp.congestion_window > 0);
        let established = info.established.unwrap();
        assert_eq!((established.role, established.crc), (role, true));
        assert_eq!(info.ends.unwrap(), established.ends);
    }
    active.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
    let info = active.query().unwrap();
    assert!(info.tcp.is_none() && info.ends.is_some());
}

/// How a connection broke.
fn cause(side: &Side) -> BrokenCause {
    match side.conn_event() {
        ConnEvent::Broken { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

#[test]
fn both_ends_learn_which_end_found_which_error() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let (active, passive) = connect(&client, &server, &listen);
    // No receive is posted for it.
    client.send(&active, 1, 0, 10);
    let (theirs, ours) = (cause(&server), cause(&client));
    match (theirs, ours) {
        (BrokenCause::Terminated(sent), BrokenCause::TerminatedByPeer(got)) => {
            assert_eq!((sent.layer, sent.etype, sent.code), (got.layer, got.etype, got.code));
        }
        other => panic!("{other:?}"),
    }
    let (active_again, passive_again) = connect(&client, &server, &listen);
    passive_again.disconnect(Disconnect::Abrupt).unwrap();
    assert_eq!(cause(&client), BrokenCause::Reset);
    let codes = [theirs, ours, BrokenCause::Reset].map(|cause| cause.code());
    assert_eq!(codes, ["cm-terminated", "cm-terminated-by-peer", "cm-reset"]);
    drop((active, passive, active_again, passive_again));
}

#[test]
fn both_ends_may_connect_to_each_other_at_once() {
    let (one, two) = pair();
    let (first, second) = (one.listen(LOCALHOST), two.listen(LOCALHOST));
    for _ in 0..20 {
        let (a, b) = (one.ep(), two.ep());
        a.connect(ConnectParams::new(second.addresses()[0])).unwrap();
        b.connect(ConnectParams::new(first.addresses()[0])).unwrap();
        let (c, d) = (one.ep(), two.ep());
        c.accept(one.request().request, AcceptParams::default()).unwrap();
        d.accept(two.request().request, AcceptParams::default()).unwrap();
        for side in [&one, &two] {
            side.established();
            side.established();
        }
        exchange(&one, &two, (&a, &d));
        exchange(&two, &one, (&b, &c));
        for ep in [a, b, c, d] {
            ep.close().unwrap();
        }
        while one.connection.dequeue().unwrap().is_some() {}
        while two.connection.dequeue().unwrap().is_some() {}
    }
}

#[test]
fn failures_are_distinguished_and_name_both_ends() {
    let client = Side::new(policy());
    let nobody = {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap()
    };
    let ep = client.ep();
    let mut params = ConnectParams::new(nobody);
    params.remote_name = Some("alpha".into());
    ep.connect(params).unwrap();
    let error = match client.conn_event() {
        ConnEvent::Failed(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(error.reason, FailReason::Refused);
    let text = error.to_string();
    let node = kal_shim::names::node_name();
    for part in ["cm-refused", "alpha", &nobody.to_string(), node, "127.0.0.1", "start the server"]
    {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
    // A local address that this machine does not have.
    let ep = client.ep();
    let mut params = ConnectParams::new(nobody);
    params.local = Some("192.0.2.1".parse().unwrap());
    ep.connect(params).unwrap();
    match client.conn_event() {
        ConnEvent::Failed(error) => {
            assert!(matches!(error.reason, FailReason::Unreachable(_)), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn further_addresses_are_tried_before_the_attempt_fails() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let nobody: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut params = ConnectParams::new(nobody);
    params.alternatives = vec![nobody, listen.addresses()[0]];
    params.timeout = Some(HANG);
    let (active, passive) = (client.ep(), server.ep());
    // Posted before: it stays posted when attempts fail.
    client.post_recv(&active, 5, 0, 10);
    active.connect(params.clone()).unwrap();
    passive.accept(server.request().request, AcceptParams::default()).unwrap();
    server.established();
    assert_eq!(client.established().ends.remote.address, listen.addresses()[0]);
    server.send(&passive, 6, 0, 10);
    assert_eq!(client.success().wr_id, 5);
    // With no address left the last failure is reported, and posted requests are flushed.
    params.alternatives = vec![nobody];
    let alone = client.ep();
    client.post_recv(&alone, 7, 0, 10);
    alone.connect(params).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Failed(e) if e.reason == FailReason::Refused));
    let flushed = client.completion();
    assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::Flushed));
    alone.reset().unwrap();
}

#[test]
fn misuse_is_refused_without_effect() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let address = listen.addresses()[0];
    let zero = SocketAddr::new(LOCALHOST, 0);
    let ep = client.ep();
    assert!(matches!(ep.connect(ConnectParams::new(zero)), Err(Error::InvalidArgument(_))));
    let mut mixed = ConnectParams::new(address);
    mixed.local = Some("::1".parse().unwrap());
    assert!(matches!(ep.connect(mixed), Err(Error::InvalidArgument(_))));
    assert!(matches!(ep.disconnect(Disconnect::Graceful), Err(Error::InvalidState { .. })));
    let stale = RequestId::from_raw(12345);
    let error = ep.accept(stale, AcceptParams::default()).unwrap_err();
    assert_eq!(error.to_string(), "the connection request is closed already");
    assert!(client.ia.reject(stale, &[]).is_err());
    // A send before the connection is refused, a receive is not.
    let failure = ep
        .post_send(&[vp_api::SendWr {
            wr_id: ual::NOTIFY,
            op: SendOp::Send { solicited: false, invalidate: None },
            data: vp_api::Data::Inline(b"x"),
            flags: vp_api::SendFlags::SIGNALED,
        }])
        .unwrap_err();
    assert_eq!((failure.posted, failure.status), (0, VpStatus::InvalidState));
    client.post_recv(&ep, 5, 0, 10);
    // It connects in spite of these errors; a second connect is refused.
    ep.connect(ConnectParams::new(address)).unwrap();
    assert!(matches!(ep.connect(ConnectParams::new(address)), Err(Error::InvalidState { .. })));
    let passive = server.ep();
    let request = server.request().request;
    passive.accept(request, AcceptParams::default()).unwrap();
    assert!(matches!(server.ep().accept(request, AcceptParams::default()), Err(Error::Closed(_))));
    client.established();
    server.established();
    server.send(&passive, 1, 0, 10);
    assert_eq!(client.success().wr_id, 5);
}

#[test]
fn an_attempt_can_be_cancelled_and_its_request_is_dead() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let request = server.request().request;
    ep.disconnect(Disconnect::Graceful).unwrap();
    match client.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason, FailReason::Cancelled),
        other => panic!("{other}"),
    }
    // The server gets the event soon; before that an accepted connection breaks at once, after it an accept is refused.
    let passive = server.ep();
    match passive.accept(request, AcceptParams::default()) {
        Err(Error::Closed(_)) => assert_eq!(passive.state(), EpState::Unconnected),
        Err(other) => panic!("{other}"),
        Ok(()) => loop {
            match server.conn_event() {
                ConnEvent::Established(_) => {}
                ConnEvent::Broken { .. }
                | ConnEvent::Failed(_)
                | ConnEvent::Disconnected { by_peer: true, .. } => break,
                other => panic!("{other}"),
            }
        },
    }
}

#[test]
fn an_endpoint_can_be_closed_in_every_state() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    client.ep().close().unwrap();
    let connecting = client.ep();
    connecting.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    connecting.close().unwrap();
    assert!(matches!(connecting.close(), Err(Error::Closed(_))));
    let refused = connecting.connect(ConnectParams::new(listen.addresses()[0]));
    assert!(matches!(refused, Err(Error::Closed(_))));
    while let Ok(Some(_)) = server.requests.dequeue() {}
    let (active, passive) = connect_past(&client, &server, &listen);
    active.close().unwrap();
    assert!(matches!(server.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));
    passive.close().unwrap();
    assert_eq!(client.connection.queued(), 0);
}

/// As `connect`, but skips requests of connections that were given up.
fn connect_past(
    client: &Side,
    server: &Side,
    listen: &ual::Listen,
) -> (std::sync::Arc<ual::Ep>, std::sync::Arc<ual::Ep>) {
    let (active, passive) = (client.ep(), server.ep());
    let mut params = ConnectParams::new(listen.addresses()[0]);
    params.private_data = b"mine".to_vec();
    active.connect(params).unwrap();
    let bound = warpline_patience::Bound::new("the expected request");
    let request = loop {
        bound.check();
        let request = server.request();
        if request.private_data == b"mine" {
            break request;
        }
    };
    passive.accept(request.request, AcceptParams::default()).unwrap();
    server.established();
    client.established();
    (active, passive)
}

#[test]
fn requests_beyond_the_dispatchers_depth_are_rejected() {
    let (client, server) = pair();
    let requests = server.ia.create_evd(ual::EvdInit::new(ual::Stream::Request, 2)).unwrap();
    let any = SocketAddr::new(LOCALHOST, 0);
    let listen = server.ia.listen(ual::ListenInit::new(any, &requests)).unwrap();
    let eps: Vec<_> = (0..3).map(|_| client.ep()).collect();
    for ep in &eps {
        ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    }
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    assert_eq!(requests.queued(), 2);
}

#[test]
fn a_request_without_a_decision_is_rejected_in_time() {
    let hurried = Policy { answer_timeout: Duration::from_millis(20), ..policy() };
    let (client, server) = (Side::new(policy()), Side::new(hurried));
    let listen = server.listen(LOCALHOST);
    let ep = client.ep();
    ep.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
    let request = server.request().request;
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
    assert!(matches!(server.ia.reject(request, &[]), Err(Error::Closed(_))));
}

#[test]
fn delivered_requests_stay_open_when_the_listener_closes() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let address = listen.addresses()[0];
    let ep = client.ep();
    ep.connect(ConnectParams::new(address)).unwrap();
    let request = server.request().request;
    listen.close().unwrap();
    assert!(matches!(listen.close(), Err(Error::Closed(_))));
    let passive = server.ep();
    passive.accept(request, AcceptParams::default()).unwrap();
    client.established();
    let late = client.ep();
    late.connect(ConnectParams::new(address)).unwrap();
    match next(&client, &late) {
        ConnEvent::Failed(error) => assert!(
            matches!(error.reason, FailReason::Refused | FailReason::PeerClosed { .. }),
            "{error}"
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn two_thousand_connections_live_side_by_side() {
    // The descriptors and the local streams of a process are limited: other tests would lack them.
    if !is_alone("connections::two_thousand_connections_live_side_by_side") {
        return;
    }
    const CONNECTIONS: u64 = 2000;
    // Two descriptors each, because both ends are in this process.
    let limit = ual::raise_descriptors().unwrap().unwrap_or(u64::MAX);
    let count = CONNECTIONS.min(limit.saturating_sub(200) / 2);
    if count < CONNECTIONS {
        warpline_skip::skip("two_thousand_connections_live_side_by_side", "`ulimit -n` is too low");
    }
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let pairs: Vec<_> = (0..count).map(|_| connect(&client, &server, &listen)).collect();
    for (index, (active, passive)) in pairs.iter().enumerate() {
        server.post_recv(passive, index as u64, 0, 100);
        client.send(active, 1_000_000 + index as u64, 0, 100);
    }
    let mut got: Vec<_> = pairs.iter().map(|_| server.success().wr_id).collect();
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..count));
    for (active, _) in &pairs {
        active.disconnect(Disconnect::Graceful).unwrap();
    }
    for _ in &pairs {
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
    }
}

// Requests that ended with a broken connection are counted exactly, however many were flushed by then.
#[test]
fn every_lost_receive_is_counted() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let listen = server.listen(LOCALHOST);
    for round in 0..3 {
        let (active, passive) = connect(&client, &server, &listen);
        for wr_id in 0..5 {
            server.post_recv(&passive, wr_id, 0, 10);
        }
        // One of them is used.
        client.send(&active, 7, 0, 10);
        client.success();
        assert_eq!(server.success().wr_id, 0);
        active.disconnect(Disconnect::Abrupt).unwrap();
        match server.conn_event() {
            ConnEvent::Broken { lost, .. } => {
                assert_eq!((lost.sends, lost.recvs), (0, 4), "round {round}");
                assert!(lost.octets_received >= 10);
            }
            other => panic!("{other}"),
        }
        for wr_id in 1..5 {
            let flushed = server.completion();
            assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::Flushed));
        }
        assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
        active.close().unwrap();
        passive.close().unwrap();
    }
}

// [it_ep_reset]: once the end was reported there is nothing to wait for, at either end.
#[test]
fn an_endpoint_can_be_reset_as_soon_as_its_end_was_reported() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let (active, passive) = (client.ep(), server.ep());
    let nowhere = vp_api::Remote { stag: vp_api::Stag(0xdead_0000), to: 0 };
    for round in 0..50 {
        active.connect(ConnectParams::new(listen.addresses()[0])).unwrap();
        passive.accept(server.request().request, AcceptParams::default()).unwrap();
        client.established();
        server.established();
        client.post(&active, 1, SendOp::Write { remote: nowhere }, 0, 8);
        for (side, ep) in [(&client, &active), (&server, &passive)] {
            match side.conn_event() {
                ConnEvent::Broken {
                    cause: BrokenCause::Terminated(_) | BrokenCause::TerminatedByPeer(_),
                    ..
                } => {}
                other => panic!("round {round}: {other}"),
            }
            ep.reset().unwrap();
        }
        client.completion();
    }
}
