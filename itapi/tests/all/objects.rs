//! Tests of the attributes of objects, and of changing them.

use std::time::Duration;

use itapi::{
    AsyncSource, Capabilities, ConnectParams, DatagramPath, EpLimits, EpState, Error, MwKind,
    Operation, Policy, VpStatus, Work,
};

use crate::pair::{HANG, Side, connect, open, pair};

// [it_interface_list] [it_ia_create]
#[test]
fn every_listed_interface_opens() {
    let all = itapi::interfaces().unwrap();
    assert!(!all.is_empty());
    for interface in all {
        let name = interface.device.name;
        let ia = itapi::Ia::builder().device(&name).open().unwrap();
        assert_eq!((ia.device(), ia.provider()), (&name[..], &interface.provider[..]));
        assert_eq!(ia.ports().unwrap().len(), interface.device.ports.len());
    }
    let unknown = itapi::Ia::builder().device("no such thing").open().unwrap_err();
    assert!(unknown.to_string().contains("no such thing"), "{unknown}");
}

// [it_ia_query]
#[test]
fn an_adapter_reports_limits_and_ports() {
    let ia = open();
    let attrs = ia.attrs();
    assert!(attrs.max_qp > 0 && attrs.max_ird > 0 && attrs.max_message > 0);
    // The sources of paths are the addresses of its ports.
    let addresses: Vec<_> =
        ia.ports().unwrap().into_iter().flat_map(|port| port.addresses).collect();
    assert!(addresses.iter().any(|address| address.is_loopback()), "{addresses:?}");
    assert_eq!(ia.policy(), &Policy::default());
    // Values beyond the limits are refused.
    let pz = ia.pz().unwrap();
    let evd = ia.evd(16).unwrap();
    assert!(pz.ep(&evd).depth(attrs.max_wr_per_qp + 1, 1).build().is_err());
    assert!(pz.ep(&evd).max_pieces(attrs.max_sge_send + 1).build().is_err());
    assert!(pz.ep(&evd).reads(attrs.max_ird + 1, 1).build().is_err());
    assert!(pz.ep(&evd).reads(attrs.max_ird, attrs.max_ord).build().is_ok());
}

// iWARP has no datagrams: [it_ep_ud_create] [it_post_sendto] [it_post_recvfrom]
// [it_address_handle_create] [it_address_handle_free] [it_address_handle_modify]
// [it_address_handle_query] [it_ud_service_reply] [it_ud_service_request]
// [it_ud_service_request_handle_create] [it_ud_service_request_handle_free]
// [it_ud_service_request_handle_query]
#[test]
fn calls_that_the_transport_lacks_are_refused() {
    let ia = open();
    let has = |what| ia.attrs().capabilities.contains(what);
    assert!(!has(Capabilities::UD));
    assert!(has(Capabilities::SRQ | Capabilities::MW | Capabilities::ATOMICS));
    let (pz, evd) = (ia.pz().unwrap(), ia.evd(4).unwrap());
    let unsupported = |error: Error| match error {
        Error::Access(error) => error.verb_status() == Some(VpStatus::Unsupported),
        _ => false,
    };
    assert!(ia.datagram_attrs().is_none());
    assert!(unsupported(ia.max_datagram(0).unwrap_err()));
    assert!(unsupported(pz.ud(&evd).build().unwrap_err()));
    assert!(unsupported(pz.address_handle(&DatagramPath::default()).unwrap_err()));
    assert!(unsupported(ia.ud_service("127.0.0.1:7", b"").unwrap_err()));
    assert!(unsupported(ia.listen_datagrams("127.0.0.1:0").unwrap_err()));
}

// [it_get_consumer_context] [it_set_consumer_context] [it_pz_query]
#[test]
fn every_object_carries_a_number() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let (lmr, rmr) = (side.pz.lmr(1).register().unwrap(), side.pz.rmr(MwKind::Wide).unwrap());
    let srq = side.pz.srq(1, 1).unwrap();
    let listen = ia.listen("127.0.0.1:0").unwrap();
    macro_rules! carries {
        ($($object:expr),+) => {$(
            assert_eq!($object.context(), 0);
            $object.set_context(u64::MAX);
            assert_eq!($object.clone().context(), u64::MAX);
        )+};
    }
    carries!(side.ep, side.pz, lmr, rmr, srq, listen);
    ia.set_context(5);
    assert_eq!(side.pz.ia().context(), 5);
}

// [it_ep_query] [it_ep_rc_create] [itx_bind_ep_to_device]
#[test]
fn an_endpoint_reports_its_attributes() {
    let ia = open();
    let client = Side::new(&ia, |b| b.depth(10, 20).reads(7, 5));
    let info = client.ep.query().unwrap();
    assert_eq!((info.state, info.ends), (EpState::Unconnected, None));
    assert!(info.qp.send_depth >= 10 && info.qp.recv_depth >= 20);
    let server = Side::new(&ia, |b| b);
    connect(&ia, &client, &server);
    server.ep.post_recv(server.pz.buffer(8).unwrap()).unwrap();
    client.ep.post(Work::send(b"counted")).unwrap();
    client.success();
    let info = client.ep.query().unwrap();
    let established = info.established.unwrap();
    assert_eq!((info.state, established.ends), (EpState::Connected, info.ends.unwrap()));
    assert!(established.ird <= 7 && established.ord <= 5);
    assert!(info.qp.counters.octets_sent >= 7);
    assert!(info.tcp.is_some_and(|tcp| tcp.mss > 0));
    assert_eq!(Some(client.ep.ends().unwrap().remote.address), info.qp.remote);
}

// [it_ep_modify]
#[test]
fn limits_change_while_they_may() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b.depth(2, 2)), Side::new(&ia, |b| b));
    let deeper = EpLimits { send_depth: Some(8), recv_depth: Some(8), ..EpLimits::default() };
    client.ep.modify(deeper).unwrap();
    for buffer in client.pz.buffers(8, 4).unwrap() {
        client.ep.post_recv(buffer).unwrap();
    }
    connect(&ia, &client, &server);
    let refused = client.ep.modify(deeper).unwrap_err();
    assert!(matches!(refused, Error::Access(_)), "{refused}");
    client.ep.modify(EpLimits { ord: Some(1), ..EpLimits::default() }).unwrap();
    assert_eq!(client.ep.query().unwrap().qp.ord, 1);
}

#[test]
fn the_high_watermark_reports_receives_in_flight() {
    let ia = open();
    let events = ia.async_evd(8).unwrap();
    let client = Side::new(&ia, |b| b);
    let server = Side::new(&ia, |b| b.recv_watermark(2));
    for buffer in server.pz.buffers(4, 4).unwrap() {
        server.ep.post_recv(buffer).unwrap();
    }
    connect(&ia, &client, &server);
    for _ in 0..4 {
        client.ep.post(Work::send(b"x")).unwrap();
        client.success();
    }
    let event = events.wait(HANG).unwrap().unwrap();
    assert_eq!(event.source, AsyncSource::Ep(server.ep.id()));
    assert_eq!(event.event, itapi::AsyncEvent::RecvLimit);
    let (text, ends) = (event.to_string(), server.ep.ends().unwrap());
    assert!(text.contains(&ends.to_string()) && text.contains("high watermark"), "{text}");
}

#[test]
fn there_is_one_dispatcher_for_port_events() {
    let ia = open();
    let events = ia.port_evd(4).unwrap();
    assert!(ia.port_evd(4).is_err());
    assert_eq!(events.poll().unwrap(), None);
    drop(events);
    assert!(ia.port_evd(4).is_ok());
}

// [it_srq_query] [it_srq_free]
#[test]
fn a_shared_receive_queue_is_resized() {
    let ia = open();
    let side = Side::new(&ia, |b| b);
    let srq = side.pz.srq(2, 1).unwrap();
    for buffer in side.pz.buffers(2, 4).unwrap() {
        srq.post_recv(buffer).unwrap();
    }
    let full = srq.try_post_recv(side.pz.buffer(4).unwrap()).unwrap_err();
    assert!(srq.resize(8).unwrap().depth >= 8);
    srq.post_recv_quiet(full.given).unwrap();
    let info = srq.info().unwrap();
    assert_eq!((info.posted, info.max_sge, info.limit), (3, 1, 0));
}

// [it_listen_query] [it_listen_free]
#[test]
fn a_listener_knows_its_port_and_frees_it() {
    let ia = open();
    let listen = ia.listen("127.0.0.1:0").unwrap();
    let address = listen.address();
    assert_ne!(address.port(), 0);
    assert_eq!(listen.addresses(), [address]);
    let busy = ia.listen(address).unwrap_err();
    assert!(matches!(busy, Error::Access(itapi::AccessError::AddressInUse(_))), "{busy}");
    drop(listen);
    // The connection thread closes the socket a moment later.
    warpline_patience::until("the address to be free", || ia.listen(address).is_ok());
}

// [it_ep_connect]
#[test]
fn ird_and_ord_can_be_left_out_of_the_startup() {
    let ia = open();
    let (client, server) = (Side::new(&ia, |b| b), Side::new(&ia, |b| b.reads(3, 5)));
    // All ones, or no IRD and ORD at all (RFC 6581 section 9.1).
    let unsaid = |limits: Option<_>| limits.is_none_or(|limits| limits == (0x3fff, 0x3fff));
    let listen = ia.listen_builder("127.0.0.1:0").unwrap().suppress_ird_ord().listen().unwrap();
    let params = ConnectParams {
        suppress_ird_ord: true,
        timeout: Some(HANG),
        local: Some("127.0.0.1".parse().unwrap()),
        ..ConnectParams::new(listen.address())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = listen.request().unwrap();
            assert!(unsaid(request.details().peer_ird_ord));
            request.accept(&server.ep, b"").unwrap();
        });
        let established = client.ep.connect_with(params).unwrap();
        assert!(unsaid(established.peer_ird_ord));
    });
}

#[test]
fn an_attempt_without_a_reply_is_given_up_in_time() {
    let ia = open();
    let client = Side::new(&ia, |b| b);
    // The kernel accepts the TCP connection; no MPA reply comes.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let timeout = Some(Duration::from_millis(50));
    let params = ConnectParams { timeout, ..ConnectParams::new(mute.local_addr().unwrap()) };
    let late = client.ep.connect_with(params).unwrap_err();
    assert!(matches!(late, Error::Connection(_)), "{late}");
}

#[test]
fn an_endpoint_is_used_again_and_again() {
    let (client, server) = pair();
    let ia = client.pz.ia();
    for round in 0..5 {
        server.ep.post_recv(server.pz.buffer(1).unwrap()).unwrap();
        client.ep.post(Work::send(&[round])).unwrap();
        assert_eq!(client.success().operation, Operation::Send);
        assert_eq!(server.success().into_buffer().unwrap().to_vec(), [round]);
        if round % 2 == 0 { &client } else { &server }.ep.disconnect().unwrap();
        for side in [&client, &server] {
            side.ep.ended(HANG).unwrap().unwrap();
            side.ep.reset().unwrap();
        }
        connect(&ia, &client, &server);
    }
}
