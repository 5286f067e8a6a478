//! Tests of datagram services over a provider that records its calls: requests, replies and time-outs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ual::resource::{Serves, UdService, UdServiceInit};
use ual::vp_api::{ServiceEvent, ServiceRefusal, UdAddress};
use ual::{
    Error, EvdInit, Event, Handoff, Listen, ListenInit, Policy, ServiceReply, ServiceRequest,
    Stream,
};

use crate::common::{HANG, LOCALHOST, Side, policy};
use crate::fake::{self, Behaviour, Served, ServiceBook};

fn side(policy: Policy) -> (Side, Arc<ServiceBook>) {
    let services = Arc::new(ServiceBook::default());
    let ual = fake::ual(Behaviour::Datagrams(services.clone()), policy);
    (Side::of(&ual), services)
}

fn peer() -> SocketAddr {
    ([192, 0, 2, 9], 18515).into()
}

/// A service request, and its token.
fn asked(side: &Side, services: &ServiceBook) -> (Arc<UdService>, u64) {
    let (evd, private_data) = (side.connection.clone(), Vec::new());
    let init = UdServiceInit { peer: peer(), evd, private_data };
    let service = side.ia.create_ud_service(init).unwrap();
    service.request().unwrap();
    match services.served() {
        Some(Served::Resolve(token, to)) if to == peer() => (service, token),
        other => panic!("{other:?}"),
    }
}

fn failed(token: u64, reason: &str) -> ServiceEvent {
    ServiceEvent::Failed { token, reason: reason.to_owned() }
}

fn wait_reply(side: &Side) -> String {
    match side.connection.wait(Some(HANG)).unwrap() {
        Event::ServiceReply { reply, .. } => reply.to_string(),
        other => panic!("{other:?}"),
    }
}

fn listen_at(side: &Side, serves: Serves, port: u16) -> ual::Result<Arc<Listen>> {
    let init = ListenInit::new(SocketAddr::new(LOCALHOST, port), &side.requests);
    side.ia.listen(ListenInit { serves, ..init })
}

fn listen(side: &Side, serves: Serves) -> ual::Result<Arc<Listen>> {
    listen_at(side, serves, 0)
}

/// Listens for datagrams; returns the token that requests carry.
fn offered(side: &Side, services: &ServiceBook) -> (Arc<Listen>, u64) {
    let listen = listen(side, Serves::Datagrams).unwrap();
    match services.served() {
        Some(Served::Listen(token, address)) if listen.addresses() == [address] => (listen, token),
        other => panic!("{other:?}"),
    }
}

fn asks(listener: u64, request: u64) -> ServiceEvent {
    ServiceEvent::Request { listener, request, peer: peer(), port: 0, private_data: vec![7] }
}

fn request(side: &Side) -> ServiceRequest {
    match side.requests.wait(Some(HANG)).unwrap() {
        Event::ServiceRequest(request) => *request,
        other => panic!("{other:?}"),
    }
}

/// The next call of the services.
fn served(services: &ServiceBook) -> Served {
    let mut next = None;
    warpline_patience::until("a call of the services", || {
        next = services.served();
        next.is_some()
    });
    next.unwrap()
}

#[test]
fn a_closed_service_gives_up_its_own_requests() {
    let (side, services) = side(policy());
    let (first, first_token) = asked(&side, &services);
    let (second, second_token) = asked(&side, &services);
    assert_ne!(first_token, second_token);
    first.close().unwrap();
    assert_eq!(services.served(), Some(Served::Cancel(first_token)));
    assert_eq!(services.served(), None);
    // Later events of it are dropped.
    services.report(failed(first_token, "late"));
    services.report(failed(second_token, "no route"));
    assert_eq!(wait_reply(&side), "no reply from the service: no route");
    drop(second);
    assert_eq!(services.served(), None, "it had its reply");
    assert_eq!(side.connection.queued(), 0);
}

#[test]
fn a_dropped_service_drops_its_requests_and_replies() {
    let (side, services) = side(policy());
    let (service, token) = asked(&side, &services);
    services.report(failed(token, "no route"));
    assert!(side.connection.wait_ready(Some(HANG)).unwrap());
    service.request().unwrap();
    let Some(Served::Resolve(again, _)) = services.served() else { panic!("not asked") };
    drop(service);
    assert_eq!(services.served(), Some(Served::Cancel(again)));
    assert_eq!(side.connection.queued(), 0);
    side.connection.close().unwrap();
}

#[test]
fn a_refused_request_for_a_service_is_not_kept() {
    let (side, services) = side(policy());
    let (service, token) = asked(&side, &services);
    services.refusals.store(2, Ordering::Release);
    assert!(matches!(service.request(), Err(Error::Verb { .. })));
    assert!(matches!(listen(&side, Serves::Datagrams), Err(Error::AddressInUse(_))));
    service.close().unwrap();
    assert_eq!(services.served(), Some(Served::Cancel(token)));
    assert_eq!(services.served(), None);
}

#[test]
fn each_refusal_has_its_own_text() {
    let (side, services) = side(policy());
    let mut texts = std::collections::BTreeSet::new();
    for why in [
        ServiceRefusal::NotSupported,
        ServiceRefusal::Rejected,
        ServiceRefusal::NoQueuePair,
        ServiceRefusal::Redirected,
    ] {
        let (_service, token) = asked(&side, &services);
        services.report(ServiceEvent::Refused { token, why, private_data: Vec::new() });
        let text = wait_reply(&side);
        assert!(text.contains("service"), "{text}");
        assert!(texts.insert(text));
    }
    let (address, path) = (UdAddress::default(), Default::default());
    assert_ne!(ServiceReply::Resolved { address, path, private_data: Vec::new() }.to_string(), "");
}

#[test]
fn a_request_gets_one_reply() {
    let (side, services) = side(policy());
    let (listen, token) = offered(&side, &services);
    services.report(asks(token, 1));
    let first = request(&side);
    assert_eq!((first.listener, first.port), (listen.id(), listen.addresses()[0].port()));
    assert_eq!((first.ends.remote.address, first.private_data), (peer(), vec![7]));
    ual::cm::reply(first.request, Ok(UdAddress::default()), &[]).unwrap();
    assert_eq!(services.served(), Some(Served::Accept(1, UdAddress::default())));
    let again = ual::cm::reply(first.request, Err(ServiceRefusal::Rejected), &[]);
    assert!(matches!(again, Err(Error::Closed(_))), "{again:?}");
    assert_eq!(services.served(), None);
}

#[test]
fn a_closed_listener_gets_no_requests() {
    let (side, services) = side(policy());
    let (listen, token) = offered(&side, &services);
    let (other, of_other) = offered(&side, &services);
    drop(listen);
    assert_eq!(served(&services), Served::Unlisten(token));
    services.report(asks(token, 5));
    assert_eq!(served(&services), Served::Reject(5, ServiceRefusal::NotSupported));
    // The other one gets its own events.
    services.report(asks(of_other, 6));
    assert_eq!(request(&side).listener, other.id());
    assert_eq!(services.served(), None);
}

#[test]
fn a_request_without_room_is_refused() {
    let (side, services) = side(policy());
    let narrow = side.ia.create_evd(EvdInit::new(Stream::Request, 1)).unwrap();
    let init = ListenInit::new(SocketAddr::new(LOCALHOST, 0), &narrow);
    let _listen = side.ia.listen(ListenInit { serves: Serves::Datagrams, ..init }).unwrap();
    let Some(Served::Listen(token, _)) = services.served() else { panic!("not listening") };
    services.report(asks(token, 1));
    services.report(asks(token, 2));
    assert_eq!(served(&services), Served::Reject(2, ServiceRefusal::NoQueuePair));
    assert_eq!(narrow.queued(), 1);
}

// The same port for both: any one that is free for both, or the chosen one, which must be free for both.
#[test]
fn a_listener_for_both_has_one_port_and_gets_service_requests() {
    let (side, services) = side(policy());
    services.refusals.store(2, Ordering::Release);
    let both = listen(&side, Serves::Both).unwrap();
    let Some(Served::Listen(token, address)) = services.served() else { panic!("not listening") };
    assert_eq!(both.addresses(), [address]);
    std::net::TcpStream::connect(address).unwrap();
    services.report(asks(token, 4));
    assert_eq!(request(&side).listener, both.id());
    drop(both);
    assert_eq!(served(&services), Served::Unlisten(token));
    let free = std::net::TcpListener::bind((LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    services.refusals.store(1, Ordering::Release);
    let taken = listen_at(&side, Serves::Both, free);
    assert!(matches!(taken, Err(Error::AddressInUse(_))), "{taken:?}");
    // The number of tries is bounded.
    services.refusals.store(u64::MAX, Ordering::Release);
    let crowded = warpline_patience::within("the tries to end", || listen(&side, Serves::Both));
    assert!(matches!(crowded, Err(Error::AddressInUse(_))), "{crowded:?}");
    assert_eq!(services.served(), None);
}

#[test]
fn a_request_goes_to_another_listener_for_datagrams() {
    let (side, services) = side(policy());
    let (first, token) = offered(&side, &services);
    let init = ListenInit::new(SocketAddr::new(LOCALHOST, 4712), &side.requests);
    let second = side.ia.listen(ListenInit { serves: Serves::Datagrams, ..init }).unwrap();
    services.report(asks(token, 8));
    let asked = request(&side);
    assert_eq!(asked.listener, first.id());
    ual::cm::handoff(asked.request, Handoff::new(4712)).unwrap();
    let moved = request(&side);
    assert_eq!((moved.listener, moved.private_data), (second.id(), vec![7]));
    ual::cm::reply(moved.request, Ok(UdAddress::default()), &[]).unwrap();
    assert!(matches!(
        ual::cm::reply(asked.request, Ok(UdAddress::default()), &[]),
        Err(Error::Closed(_))
    ));
}

// The thread that keeps it has ended.
#[test]
fn a_request_ends_with_its_adapter() {
    let (side, services) = side(policy());
    let (listen, token) = offered(&side, &services);
    services.report(asks(token, 2));
    let request = request(&side).request;
    drop(listen);
    let ia = side.ia.clone();
    drop(side);
    // The connection thread may have the dispatcher in hand for a moment.
    warpline_patience::until("the adapter to be closed", || ia.close().is_ok());
    let late = ual::cm::reply(request, Ok(UdAddress::default()), &[]);
    assert!(matches!(late, Err(Error::Closed(_))), "{late:?}");
}

#[test]
fn a_request_without_a_decision_is_refused_in_time() {
    let hurried = Policy { answer_timeout: Duration::from_millis(1), ..policy() };
    let (side, services) = side(hurried);
    let (_listen, token) = offered(&side, &services);
    services.report(asks(token, 3));
    let late = request(&side).request;
    assert!(matches!(served(&services), Served::Reject(3, _)));
    assert!(matches!(ual::cm::reply(late, Ok(UdAddress::default()), &[]), Err(Error::Closed(_))));
}

#[test]
fn a_closed_adapter_leaves_its_provider_no_handler() {
    let (side, services) = side(policy());
    assert!(services.has_handler());
    let ia = side.ia.clone();
    drop(side);
    // The connection thread may have the dispatcher in hand for a moment.
    warpline_patience::until("the adapter to be closed", || ia.close().is_ok());
    assert!(!services.has_handler());
    // To drop it closes it.
    let (side, services) = self::side(policy());
    drop(side);
    warpline_patience::until("the adapter to be closed", || !services.has_handler());
}
