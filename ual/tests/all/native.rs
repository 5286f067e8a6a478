//! Providers with a connection manager of their own: same events, states and errors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ual::vp_api::{NativeEvent, NativeParams};
use ual::{AcceptParams, ConnEvent, ConnectParams, Disconnect, EpState, Error, FailReason, Policy};

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

#[test]
fn connect_is_answered_by_the_managers_events() {
    let (side, manager) = side(policy());
    let ep = side.ep();
    let mut to = ConnectParams::new(peer());
    to.private_data = b"hi".to_vec();
    ep.connect(to).unwrap();
    let wishes = NativeParams { private_data: b"hi".to_vec(), ird: 16, ord: 16 };
    assert_eq!(manager.asked(), Asked::Connect(ep.id(), peer(), wishes));
    manager.say(NativeEvent::Established { qp: ep.id(), params: params(b"yes") });
    let established = side.established();
    assert_eq!((established.ird, established.ord), (3, 4));
    assert_eq!(established.private_data, b"yes");
    assert_eq!(established.ends.remote.address, peer());
    assert_eq!(ep.state(), EpState::Connected);
    ep.disconnect(Disconnect::Graceful).unwrap();
    assert_eq!(manager.asked(), Asked::Disconnect(ep.id()));
    manager.say(NativeEvent::Disconnected { qp: ep.id() });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: false, .. }));
    ep.reset().unwrap();

    ep.connect(ConnectParams::new(peer())).unwrap();
    manager.asked();
    manager.say(NativeEvent::Rejected { qp: ep.id(), private_data: b"no".to_vec() });
    assert!(matches!(
        side.conn_event(),
        ConnEvent::Rejected { private_data, .. } if private_data == b"no"
    ));
    ep.reset().unwrap();

    ep.connect(ConnectParams::new(peer())).unwrap();
    manager.asked();
    manager.say(NativeEvent::Failed { qp: ep.id(), reason: "no route".into() });
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

#[test]
fn requests_are_accepted_rejected_and_die_with_time() {
    let (side, manager) = side(Policy { answer_timeout: Duration::from_secs(20), ..policy() });
    let listen = side.listen(LOCALHOST);
    assert_eq!(listen.addresses()[0].port(), 4711);
    let ask = |request| {
        let event =
            NativeEvent::Request { listener: 0, request, peer: peer(), params: params(b"hi") };
        manager.say(event);
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
    manager.say(NativeEvent::Established { qp: ep.id(), params: params(b"") });
    side.established();
    manager.say(NativeEvent::Disconnected { qp: ep.id() });
    assert!(matches!(side.conn_event(), ConnEvent::Disconnected { by_peer: true, .. }));

    side.ia.reject(ask(8), b"busy").unwrap();
    assert_eq!(manager.asked(), Asked::Reject(8, b"busy".to_vec()));
    listen.close().unwrap();
    assert_eq!(manager.asked(), Asked::Unlisten(0));
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
    manager.say(NativeEvent::Request {
        listener: 0,
        request: 5,
        peer: peer(),
        params: params(b""),
    });
    let request = side.request().request;
    assert_eq!(manager.asked(), Asked::Reject(5, vec![]));
    assert!(matches!(side.ia.reject(request, &[]), Err(Error::Closed(_))));
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
    // What the manager says afterwards is nobody's.
    manager.say(NativeEvent::Established { qp: ep.id(), params: params(b"") });
    ep.reset().unwrap();
    ep.connect(ConnectParams::new(peer())).unwrap();
    assert!(matches!(manager.asked(), Asked::Connect(..)));
}
