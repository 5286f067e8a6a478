//! Providers with a connection manager of their own: same events, states and errors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ual::vp_api::{NativeEvent, NativeParams, Role, VpStatus};
use ual::{
    AcceptParams, ConnEvent, ConnectParams, ConvertParams, Disconnect, EpState, Error, FailReason,
    Handoff, ListenInit, Policy,
};

use crate::common::{LOCALHOST, Side, policy};
use crate::fake::{self, Asked, Behaviour, Manager};

fn side(policy: Policy) -> (Side, Arc<Manager>) {
    let manager = Arc::new(Manager::default());
    let ual = fake::ual(Behaviour::Native(manager.clone()), policy);
    (Side::of(&ual), manager)
}

fn params(data: &[u8]) -> NativeParams {
    NativeParams { private_data: data.to_vec(), ird: 3, ord: 4 }
}

fn peer() -> SocketAddr {
    "192.0.2.9:99".parse().unwrap()
}

fn request_event(request: u64, local: Option<SocketAddr>, data: &[u8]) -> NativeEvent {
    NativeEvent::Request { listener: 0, request, peer: peer(), local, params: params(data) }
}

/// A listener at any address learns the address of each request and connection; an initiator learns its own
/// port.
#[test]
fn the_local_address_is_that_of_the_connection() {
    let (side, manager) = side(policy());
    let _listen = side.listen(std::net::Ipv4Addr::UNSPECIFIED.into());
    let at: SocketAddr = "198.51.100.7:4711".parse().unwrap();
    manager.report(request_event(7, Some(at), b""));
    let request = side.request();
    assert_eq!(request.ends.local.address, at);
    let ep = side.ep();
    ep.accept(request.request, AcceptParams::default()).unwrap();
    manager.asked();
    // The queue pair reports another one (`fake::HERE`), but that of the connection counts.
    manager.report(NativeEvent::Established { qp: ep.id(), local: Some(at), params: params(b"") });
    assert_eq!(side.established().ends.local.address, at);
    let ep = side.ep();
    ep.connect(ConnectParams::new(peer())).unwrap();
    manager.asked();
    let mine = "198.51.100.7:50123".parse().unwrap();
    manager.report(NativeEvent::Established {
        qp: ep.id(),
        local: Some(mine),
        params: params(b""),
    });
    assert_eq!(side.established().ends.local.address, mine);
}

#[test]
fn the_managers_events_report_the_outcome_of_connect() {
    let (side, manager) = side(policy());
    let ep = side.ep();
    let mut to = ConnectParams::new(peer());
    to.private_data = b"hi".to_vec();
    ep.connect(to).unwrap();
    let wishes = NativeParams { private_data: b"hi".to_vec(), ird: 16, ord: 16 };
    assert_eq!(manager.asked(), Asked::Connect(ep.id(), peer(), wishes));
    manager.report(NativeEvent::Established { qp: ep.id(), local: None, params: params(b"yes") });
    let established = side.established();
    assert_eq!((established.ird, established.ord), (3, 4));
    assert_eq!(established.private_data, b"yes");
    assert_eq!(established.ends.remote.address, peer());
    // The caller named none: it is that of the device.
    assert_eq!(established.ends.local.address, fake::HERE.into());
    assert_eq!(ep.state(), EpState::Connected);
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert_eq!(manager.asked(), Asked::Disconnect(ep.id()));
    manager.report(NativeEvent::Disconnected { qp: ep.id() });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
    ep.reset().unwrap();

    ep.connect(ConnectParams::new(peer())).unwrap();
    manager.asked();
    manager.report(NativeEvent::Rejected { qp: ep.id(), private_data: b"no".to_vec() });
    assert!(matches!(
        side.conn_event(),
        ConnEvent::Rejected { private_data, .. } if private_data == b"no"
    ));
    ep.reset().unwrap();

    ep.connect(ConnectParams::new(peer())).unwrap();
    manager.asked();
    manager.report(NativeEvent::Failed { qp: ep.id(), reason: "no route".into() });
    match side.conn_event() {
        ConnEvent::Failed(error) => {
            assert_eq!(error.reason, FailReason::Native("no route".into()));
        }
        other => panic!("{other}"),
    }
    ep.reset().unwrap();

    manager.refuse.store(true, Ordering::Release);
    ep.connect(ConnectParams::new(peer())).unwrap();
    match side.conn_event() {
        ConnEvent::Failed(error) => assert!(error.to_string().contains("not today"), "{error}"),
        other => panic!("{other}"),
    }
}

/// A server may listen anew between two connections: a policy can have attempts repeated.
#[test]
fn an_attempt_that_fails_early_is_repeated_if_the_policy_says_so() {
    let (side, manager) = side(policy());
    let ep = side.ep();
    let again = Policy { refused_for: Duration::from_secs(60), ..policy() };
    let to = |policy| ConnectParams { policy: Some(policy), ..ConnectParams::new(peer()) };
    ep.connect(to(again)).unwrap();
    let first = manager.asked();
    manager.report(NativeEvent::Failed { qp: ep.id(), reason: "no listener".into() });
    assert_eq!(manager.asked(), first);
    manager.report(NativeEvent::Established { qp: ep.id(), local: None, params: params(b"") });
    side.established();
    manager.report(NativeEvent::Disconnected { qp: ep.id() });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));
    ep.reset().unwrap();

    // Not if its time is over.
    let soon = Policy { refused_for: Duration::from_nanos(1), ..policy() };
    ep.connect(to(soon)).unwrap();
    manager.asked();
    manager.report(NativeEvent::Failed { qp: ep.id(), reason: "no listener".into() });
    assert!(matches!(side.conn_event(), ConnEvent::Failed(_)));
}

#[test]
fn requests_are_accepted_rejected_and_die_with_time() {
    let (side, manager) = side(Policy { answer_timeout: Duration::from_secs(20), ..policy() });
    let listen = side.listen(LOCALHOST);
    assert_eq!(listen.addresses()[0].port(), 4711);
    let ask = |request| {
        manager.report(request_event(request, None, b"hi"));
        let arrived = side.request();
        assert_eq!(arrived.private_data, b"hi");
        assert_eq!(arrived.peer_ird_ord, Some((3, 4)));
        assert_eq!(arrived.ends.local.address, listen.addresses()[0]);
        arrived.request
    };
    let ep = side.ep();
    let id = ask(7);
    ep.accept(id, AcceptParams::default()).unwrap();
    assert!(matches!(side.ia.reject(id, &[]), Err(Error::Closed(_))));
    let wishes = NativeParams { private_data: vec![], ird: 16, ord: 16 };
    assert_eq!(manager.asked(), Asked::Accept(7, ep.id(), wishes));
    assert_eq!(ep.state(), EpState::PassivePending);
    manager.report(NativeEvent::Established { qp: ep.id(), local: None, params: params(b"") });
    side.established();
    manager.report(NativeEvent::Disconnected { qp: ep.id() });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));

    side.ia.reject(ask(8), b"busy").unwrap();
    // The process may end now: no other thread has work left.
    assert_eq!(manager.was_asked(), Some(Asked::Reject(8, b"busy".to_vec())));
    warpline_patience::until("the reject to be counted", || side.ia.cm_counters().rejected == 1);
    listen.close().unwrap();
    assert_eq!(manager.asked(), Asked::Unlisten(0));
}

// A manager may report a request before the call that listens has returned.
#[test]
fn a_request_reported_before_its_listener_is_known_is_delivered() {
    let (side, manager) = side(policy());
    manager.report(request_event(7, None, b"hi"));
    warpline_patience::until("the request to be taken", || manager.is_quiet());
    let listen = side.listen(LOCALHOST);
    let arrived = side.request();
    assert_eq!((arrived.listener, arrived.private_data.as_slice()), (listen.id(), &b"hi"[..]));
}

#[test]
fn a_silent_manager_is_given_up() {
    let soon = Duration::from_millis(20);
    let (side, manager) = side(Policy { connect_timeout: soon, answer_timeout: soon, ..policy() });
    let ep = side.ep();
    ep.connect(ConnectParams::new(peer())).unwrap();
    match side.conn_event() {
        ConnEvent::Failed(error) => {
            assert!(matches!(error.reason, FailReason::ConnectTimeout(_)), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(matches!(manager.asked(), Asked::Connect(..)));
    assert_eq!(manager.asked(), Asked::Disconnect(ep.id()));
    let _listen = side.listen(LOCALHOST);
    manager.report(request_event(5, None, b""));
    let request = side.request().request;
    assert_eq!(manager.asked(), Asked::Reject(5, vec![]));
    assert!(matches!(side.ia.reject(request, &[]), Err(Error::Closed(_))));
}

// Nothing else would reject it.
#[test]
fn a_request_for_a_listener_that_has_ended_is_rejected() {
    let (side, manager) = side(policy());
    let (first, second) = (side.listen(LOCALHOST), side.listen(LOCALHOST));
    drop(first);
    assert_eq!(manager.asked(), Asked::Unlisten(0));
    manager.report(request_event(5, None, b"late"));
    assert_eq!(manager.asked(), Asked::Reject(5, vec![]));
    let of_second = NativeEvent::Request {
        listener: 1,
        request: 6,
        peer: peer(),
        local: None,
        params: params(b"in time"),
    };
    manager.report(of_second);
    assert_eq!(side.request().listener, second.id());
}

// A listener gets all of its addresses, or none.
#[test]
fn a_listener_that_lacks_an_address_releases_the_others() {
    let (side, manager) = side(policy());
    manager.only.store(true, Ordering::Release);
    let addresses = vec![(LOCALHOST, 0).into(), (std::net::Ipv6Addr::LOCALHOST, 0).into()];
    let init = ListenInit { addresses, ..ListenInit::new(peer(), &side.requests) };
    assert!(matches!(side.ia.listen(init), Err(Error::AddressInUse(_))));
    assert_eq!(manager.was_asked(), Some(Asked::Unlisten(0)));
    assert_eq!(manager.was_asked(), None);
}

// The thread that would have accepted it has ended.
#[test]
fn a_request_ends_with_its_adapter() {
    let (side, manager) = side(policy());
    let listen = side.listen(LOCALHOST);
    manager.report(request_event(7, None, b"hi"));
    let request = side.request().request;
    drop(listen);
    let ia = side.ia.clone();
    drop(side);
    // The connection thread may use the dispatcher for a moment.
    warpline_patience::until("the adapter to be closed", || ia.close().is_ok());
    assert!(matches!(ia.reject(request, &[]), Err(Error::Closed(_))));
    assert!(std::iter::from_fn(|| manager.was_asked()).all(|asked| asked == Asked::Unlisten(0)));
}

#[test]
fn an_attempt_can_be_cancelled() {
    let (side, manager) = side(policy());
    let ep = side.ep();
    ep.connect(ConnectParams::new(peer())).unwrap();
    ep.disconnect(Disconnect::Graceful).unwrap();
    match side.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason, FailReason::Cancelled),
        other => panic!("{other}"),
    }
    assert!(matches!(manager.asked(), Asked::Connect(..)));
    assert_eq!(manager.asked(), Asked::Disconnect(ep.id()));
    // Later events of the manager are dropped.
    manager.report(NativeEvent::Established { qp: ep.id(), local: None, params: params(b"") });
    ep.reset().unwrap();
    ep.connect(ConnectParams::new(peer())).unwrap();
    assert!(matches!(manager.asked(), Asked::Connect(..)));
}

// An event of an earlier connection may still be undelivered when the endpoint is used again: it must not
// end the later one.
#[test]
fn events_of_an_earlier_attempt_do_not_end_a_later_one() {
    let (side, manager) = side(policy());
    let ep = side.ep();
    let qp = ep.id();
    let connect = || {
        ep.connect(ConnectParams::new(peer())).unwrap();
        assert!(matches!(manager.asked(), Asked::Connect(..)));
    };
    let again_behind = |event: NativeEvent| {
        manager.late.store(true, Ordering::Release);
        manager.report(event);
        ep.reset().unwrap();
        connect();
        manager.late.store(false, Ordering::Release);
        manager.report(NativeEvent::Established { qp, local: None, params: params(b"") });
        side.established();
    };
    connect();
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(side.conn_event(), ConnEvent::Failed(_)));
    manager.asked();
    again_behind(NativeEvent::Failed { qp, reason: "too late".into() });
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert_eq!(manager.asked(), Asked::Disconnect(qp));
    manager.report(NativeEvent::Disconnected { qp });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { .. }));
    again_behind(NativeEvent::Disconnected { qp });
    // No other call came before this one.
    let other = side.ep();
    other.connect(ConnectParams::new(peer())).unwrap();
    manager.report(NativeEvent::Rejected { qp: other.id(), private_data: b"no".to_vec() });
    assert!(matches!(side.conn_event(), ConnEvent::Rejected { .. }));
    assert_eq!(ep.state(), EpState::Connected);
}

#[test]
fn socket_calls_are_unsupported_and_time_outs_are_the_callers() {
    let (side, _manager) = side(policy());
    let ep = side.ep();
    let params = ConnectParams { local_port: 4242, ..ConnectParams::new(peer()) };
    let error = ep.connect(params).unwrap_err();
    assert_eq!(error.verb_status(), Some(VpStatus::Unsupported), "{error}");
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = ep.convert(socket.into(), ConvertParams::new(Role::Initiator)).unwrap_err();
    assert_eq!(error.error.verb_status(), Some(VpStatus::Unsupported), "{error}");
    assert_eq!(ep.state(), EpState::Unconnected);
    let timeout = Duration::from_millis(20);
    let params = ConnectParams { timeout: Some(timeout), ..ConnectParams::new(peer()) };
    ep.connect(params).unwrap();
    match side.conn_event() {
        ConnEvent::Failed(error) => assert_eq!(error.reason, FailReason::ConnectTimeout(timeout)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_request_is_handed_to_another_listener_of_the_adapter_only() {
    let (side, manager) = side(policy());
    let [first, second] = [4242, 4243].map(|port| {
        let init = ListenInit::new((LOCALHOST, port).into(), &side.requests);
        side.ia.listen(init).unwrap()
    });
    let elsewhere = Side::new(policy());
    let far = elsewhere.listen(LOCALHOST);
    manager.report(request_event(7, None, b"hi"));
    let request = side.request();
    assert_eq!(request.listener, first.id());
    let to = |listen: &ual::Listen| Handoff::new(listen.addresses()[0].port());
    let error = ual::cm::handoff(request.request, to(&far)).unwrap_err();
    assert!(matches!(error, Error::NoListener(_)), "{error}");
    ual::cm::handoff(request.request, to(&second)).unwrap();
    let moved = side.request();
    assert_eq!((moved.listener, moved.private_data.as_slice()), (second.id(), &b"hi"[..]));
    ual::cm::reject(moved.request, b"").unwrap();
    assert!(matches!(ual::cm::reject(request.request, b""), Err(Error::Closed(_))));
}
