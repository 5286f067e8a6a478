//! A face for these tests connects, listens, gets events, and reuses its endpoints.

use std::net::SocketAddr;

use ual_cm::{
    AcceptParams, ConnEvent, ConnState, ConnectParams, Disconnect, Error, FailReason, Policy,
    Serves, Sharing,
};
use vp_api::{RecvWr, WcStatus};

use crate::common::{HANG, Machine, anywhere, as_connectee, next, send};

/// Connects, sends both ways, disconnects and connects the same endpoints again.
#[test]
fn a_face_of_its_own_connects_again_and_again() {
    let (near, far) = (Machine::new(), Machine::new());
    let listener = far.listener();
    let ((active, active_events), (passive, passive_events)) = (near.endpoint(), far.endpoint());
    for turn in 0..3 {
        near.cm.connect(&as_connectee(&active), ConnectParams::new(listener.address)).unwrap();
        let request = next(&listener.requests, "request");
        assert_eq!((request.listener, request.port), (listener.id, listener.address.port()));
        let accept = AcceptParams { private_data: b"come in".into(), ..AcceptParams::default() };
        far.cm.accept(&as_connectee(&passive), request.request, accept).unwrap();
        let event = next(&active_events, "event of the active end");
        let ConnEvent::Established(made) = event else { panic!("{event}") };
        assert_eq!(made.private_data, b"come in");
        let event = next(&passive_events, "event of the passive end");
        assert!(matches!(event, ConnEvent::Established(_)), "{event}");
        for (from, from_at, to, to_at) in
            [(&active, &near, &passive, &far), (&passive, &far, &active, &near)]
        {
            to.qp.post_recv(&[RecvWr { wr_id: turn, sgl: &[] }]).unwrap();
            send(from);
            assert_eq!(from_at.completion().wr_id, 7);
            assert_eq!(to_at.completion().wr_id, turn);
        }
        near.cm.disconnect(&as_connectee(&active), Disconnect::Graceful).unwrap();
        let event = next(&active_events, "end of the active end");
        assert!(matches!(event, ConnEvent::Disconnected { by_peer: false, .. }), "{event}");
        let event = next(&passive_events, "end of the passive end");
        assert!(matches!(event, ConnEvent::Disconnected { by_peer: true, .. }), "{event}");
        for (machine, endpoint) in [(&near, &active), (&far, &passive)] {
            assert_eq!(machine.cm.reset(&**endpoint).unwrap(), 0);
            assert_eq!(endpoint.connection.state(), ConnState::Unconnected);
        }
    }
    far.cm.unlisten(listener.id);
}

/// Bind, listen and connect are steps of their own.
#[test]
fn a_bound_address_is_listened_on_or_connected_from_later() {
    let (near, far) = (Machine::new(), Machine::new());
    let listener = far.listener();
    let bound = near.cm.bind(&[anywhere()], Serves::Connections).unwrap();
    let address = bound.addresses()[0];
    assert_ne!(address.port(), 0);
    // No other socket can bind it, in this process or another.
    let taken = far.cm.bind(&[address], Serves::Connections);
    assert!(matches!(taken, Err(Error::AddressInUse(_))), "{:?}", taken.err());
    assert!(std::net::TcpListener::bind(address).is_err());
    let (active, events) = near.endpoint();
    // The local address in `params` is ignored.
    let params = ConnectParams { local_port: 1, ..ConnectParams::new(listener.address) };
    near.cm.connect_from(&as_connectee(&active), bound, params).unwrap();
    let request = next(&listener.requests, "request");
    assert_eq!(request.ends.remote.address, address);
    let (passive, _told) = far.endpoint();
    far.cm.accept(&as_connectee(&passive), request.request, AcceptParams::default()).unwrap();
    let event = next(&events, "event");
    assert!(matches!(event, ConnEvent::Established(_)), "{event}");

    // Released when it is dropped; bound again, and then listened on.
    let bound = near.cm.bind(&[anywhere()], Serves::Connections).unwrap();
    let address = bound.addresses()[0];
    drop(bound);
    let bound = near.cm.bind(&[address], Serves::Connections).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing listens there yet");
    let _listening = near.cm.listen(bound).unwrap();
    assert!(std::net::TcpStream::connect(address).is_ok());
}

#[test]
fn an_address_is_free_when_its_listener_is_closed() {
    let machine = Machine::new();
    let mut listener = machine.listener();
    let address = listener.address;
    for _ in 0..50 {
        machine.cm.unlisten(listener.id);
        let bound = machine.cm.bind(&[address], Serves::Connections).unwrap();
        listener = machine.listener_of(bound, |_| true);
    }
}

#[test]
fn one_address_of_the_peers_family_is_needed_to_connect_from() {
    let machine = Machine::new();
    let (endpoint, _told) = machine.endpoint();
    let two = [anywhere(), "127.0.0.2:0".parse().unwrap()];
    for (addresses, remote) in [(&two[..], "127.0.0.1:9"), (&two[..1], "[::1]:9")] {
        let bound = machine.cm.bind(addresses, Serves::Connections).unwrap();
        let params = ConnectParams::new(remote.parse().unwrap());
        let error = machine.cm.connect_from(&as_connectee(&endpoint), bound, params).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert_eq!(endpoint.connection.state(), ConnState::Unconnected);
    }
    let none = machine.cm.bind(&[], Serves::Connections);
    assert!(matches!(none, Err(Error::InvalidArgument(_))), "{:?}", none.err());
}

#[test]
fn a_refused_connection_is_tried_again_for_a_while() {
    let patient = Policy { refused_for: HANG, ..Policy::default() };
    let (near, far) = (Machine::with(patient), Machine::new());
    let closed = far.cm.bind(&[anywhere()], Serves::Connections).unwrap();
    let address = closed.addresses()[0];
    let ((active, events), mine) =
        (near.endpoint(), near.cm.bind(&[anywhere()], Serves::Connections).unwrap());
    let from = mine.addresses()[0];
    near.cm.connect_from(&as_connectee(&active), mine, ConnectParams::new(address)).unwrap();
    // After a pause it is refused again.
    std::net::TcpStream::connect(address).unwrap_err();
    let listener = far.listener_of(closed, |_| true);
    let request = next(&listener.requests, "request");
    assert_eq!(request.ends.remote.address, from);
    let (passive, _told) = far.endpoint();
    far.cm.accept(&as_connectee(&passive), request.request, AcceptParams::default()).unwrap();
    let event = next(&events, "event");
    assert!(matches!(event, ConnEvent::Established(_)), "{event}");

    // Cancelled meanwhile; without retries it is an error at once.
    let nobody = far.cm.bind(&[anywhere()], Serves::Connections).unwrap();
    for (machine, cancel) in [(&near, true), (&far, false)] {
        let (active, events) = machine.endpoint();
        let params = ConnectParams::new(nobody.addresses()[0]);
        machine.cm.connect(&as_connectee(&active), params).unwrap();
        if cancel {
            machine.cm.disconnect(&as_connectee(&active), Disconnect::Abrupt).unwrap();
        }
        let event = next(&events, "event");
        let ConnEvent::Failed(error) = event else { panic!("{event}") };
        let reason = if cancel { FailReason::Cancelled } else { FailReason::Refused };
        assert_eq!(error.reason, reason);
    }
}

#[test]
fn an_address_is_shared_as_far_as_all_its_users_say() {
    let machine = Machine::new();
    let sharing = Sharing { address: true, ..Sharing::default() };
    let first = machine.cm.bind_shared(anywhere(), sharing).unwrap();
    let address = first.addresses()[0];
    let second = machine.cm.bind_shared(address, sharing).unwrap();
    let _listening = machine.cm.listen(first).unwrap();
    let both = machine.cm.listen(second);
    assert!(matches!(both, Err(Error::AddressInUse(_))), "{:?}", both.err());

    let v6 = Sharing { v6_only: true, ..Sharing::default() };
    let of_v4 = machine.cm.bind_shared("0.0.0.0:0".parse().unwrap(), Sharing::default()).unwrap();
    let port = of_v4.addresses()[0].port();
    let everywhere = SocketAddr::new("::".parse().unwrap(), port);
    let both = machine.cm.bind_shared(everywhere, Sharing::default());
    assert!(matches!(both, Err(Error::AddressInUse(_))), "{:?}", both.err());
    machine.cm.bind_shared(everywhere, v6).unwrap();
}

/// Work posted before a drained disconnect arrives, however much of it is outstanding.
#[test]
fn a_drained_disconnect_waits_for_outstanding_work() {
    let (near, far) = (Machine::new(), Machine::new());
    let listener = far.listener();
    let ((active, active_events), (passive, passive_events)) = (near.endpoint(), far.endpoint());
    near.cm.connect(&as_connectee(&active), ConnectParams::new(listener.address)).unwrap();
    let request = next(&listener.requests, "request");
    far.cm.accept(&as_connectee(&passive), request.request, AcceptParams::default()).unwrap();
    next(&active_events, "event");
    next(&passive_events, "event");
    for turn in 0..32 {
        passive.qp.post_recv(&[RecvWr { wr_id: turn, sgl: &[] }]).unwrap();
        send(&active);
    }
    near.cm.disconnect(&as_connectee(&active), Disconnect::Drained).unwrap();
    for (machine, ids) in [(&near, vec![7; 32]), (&far, (0..32).collect::<Vec<u64>>())] {
        for id in ids {
            let done = machine.completion();
            assert_eq!((done.wr_id, done.status), (id, WcStatus::Success));
        }
    }
    for (events, by_peer) in [(&active_events, false), (&passive_events, true)] {
        let event = next(events, "end");
        assert!(
            matches!(event, ConnEvent::Disconnected { by_peer: of, .. } if of == by_peer),
            "{event}"
        );
    }
}

/// Requests and events are delivered outside the manager's lock: a handler may call it at once.
#[test]
fn an_event_handler_may_call_the_manager() {
    let (near, far) = (Machine::new(), Machine::new());
    let far_cm = far.cm.clone();
    let (passive, passive_events) = far.endpoint_that(move |endpoint, event| {
        if matches!(event, ConnEvent::Established(_)) {
            far_cm.disconnect(&as_connectee(endpoint), Disconnect::Graceful).unwrap();
        }
    });
    let (far_cm, accepting) = (far.cm.clone(), passive.clone());
    let listener = far.listener_that(move |request| {
        let accept = AcceptParams::default();
        far_cm.accept(&as_connectee(&accepting), request.request, accept).is_ok()
    });
    let (active, active_events) = near.endpoint();
    near.cm.connect(&as_connectee(&active), ConnectParams::new(listener.address)).unwrap();
    for (events, by_peer) in [(&active_events, true), (&passive_events, false)] {
        let event = next(events, "event");
        assert!(matches!(event, ConnEvent::Established(_)), "{event}");
        let event = next(events, "end");
        assert!(
            matches!(event, ConnEvent::Disconnected { by_peer: of, .. } if of == by_peer),
            "{event}"
        );
    }
}

#[test]
fn a_request_that_is_not_taken_is_rejected() {
    let (near, far) = (Machine::new(), Machine::new());
    let listener = far.listener_that(|_| false);
    for _ in 0..2 {
        let (active, events) = near.endpoint();
        near.cm.connect(&as_connectee(&active), ConnectParams::new(listener.address)).unwrap();
        let event = next(&events, "event");
        assert!(matches!(event, ConnEvent::Rejected { .. }), "{event}");
    }
    warpline_patience::until("the rejections to be counted", || far.cm.counters().rejected == 2);
    // Its id is stale.
    assert!(listener.requests.try_recv().is_err());
}
