//! Requests that are handed off: to another listener of the same adapter or of another.

use std::net::SocketAddr;

use ual::{
    AcceptParams, ConnEvent, ConnectParams, Ep, Error, EvdInit, FailReason, Handoff, ListenInit,
    Policy, Stream,
};

use crate::common::{LOCALHOST, Side, policy};

fn connecting(client: &Side, to: SocketAddr, data: &[u8]) -> std::sync::Arc<Ep> {
    let ep = client.ep();
    let params = ConnectParams { private_data: data.to_vec(), ..ConnectParams::new(to) };
    ep.connect(params).unwrap();
    ep
}

fn ping(client: &Side, server: &Side, (active, passive): (&Ep, &Ep)) {
    server.post_recv(passive, 1, 0, 100);
    client.send(active, 2, 0, 100);
    assert_eq!((server.success().wr_id, client.success().wr_id), (1, 2));
}

#[test]
fn a_request_goes_to_another_port_of_this_or_another_adapter() {
    let (client, first, second) = (Side::new(policy()), Side::new(policy()), Side::new(policy()));
    let door = first.listen(LOCALHOST);
    let inner_evd = first.ia.create_evd(EvdInit::new(Stream::Request, 8)).unwrap();
    let any = SocketAddr::new(LOCALHOST, 0);
    let inner = first.ia.listen(ListenInit::new(any, &inner_evd)).unwrap();
    let far = second.listen(LOCALHOST);

    let active = connecting(&client, door.addresses()[0], b"who");
    let request = first.request();
    assert_eq!(request.port, door.addresses()[0].port());
    assert_eq!(request.listener, door.id());
    // Within the adapter.
    ual::cm::handoff(request.request, Handoff::new(inner.addresses()[0].port())).unwrap();
    let stale = ual::cm::handoff(request.request, Handoff::new(far.addresses()[0].port()));
    assert!(matches!(stale, Err(Error::Closed(_))));
    let moved = match inner_evd.wait(Some(crate::common::HANG)).unwrap() {
        ual::Event::Request(moved) => *moved,
        other => panic!("{other:?}"),
    };
    assert_ne!(moved.request, request.request);
    assert_eq!((moved.private_data.as_slice(), &moved.ends), (&b"who"[..], &request.ends));
    assert_eq!((moved.port, moved.listener), (inner.addresses()[0].port(), inner.id()));
    assert_eq!(moved.peer_ird_ord, request.peer_ird_ord);
    // To another adapter: then only endpoints of that adapter can accept it.
    let to = Handoff { address: Some(LOCALHOST), ..Handoff::new(far.addresses()[0].port()) };
    ual::cm::handoff(moved.request, to).unwrap();
    let last = second.request();
    assert_eq!(last.listener, far.id());
    let wrong = first.ep().accept(last.request, AcceptParams::default());
    assert!(matches!(wrong, Err(Error::Closed(_))));
    let passive = second.ep();
    passive.accept(last.request, AcceptParams::default()).unwrap();
    let made = second.established();
    assert_eq!(made.ends.local.address, door.addresses()[0]);
    assert_eq!([made.local, client.established().local], [Ok(()), Ok(())]);
    ping(&client, &second, (&active, &passive));
}

#[test]
fn a_request_stays_open_if_the_port_has_no_listener() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let door = server.listen(LOCALHOST);
    let closed = server.listen(LOCALHOST);
    let gone = closed.addresses()[0].port();
    closed.close().unwrap();
    let _active = connecting(&client, door.addresses()[0], b"");
    let request = server.request().request;
    let port = door.addresses()[0].port();
    let elsewhere = Handoff { address: Some("127.0.0.9".parse().unwrap()), port };
    for to in [Handoff::new(gone), Handoff::new(0), elsewhere] {
        let error = ual::cm::handoff(request, to).unwrap_err();
        assert!(matches!(error, Error::NoListener(_)), "{error}");
        assert!(error.to_string().contains(&to.to_string()), "{error}");
    }
    let passive = server.ep();
    passive.accept(request, AcceptParams::default()).unwrap();
    client.established();
    server.established();
}

#[test]
fn any_request_can_be_rejected_by_its_id_alone() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let door = server.listen(LOCALHOST);
    let _active = connecting(&client, door.addresses()[0], b"");
    let request = server.request().request;
    let wrong = client.ep().accept(request, AcceptParams::default());
    assert!(matches!(wrong, Err(Error::Closed(_))));
    ual::cm::reject(request, b"no").unwrap();
    match client.conn_event() {
        ConnEvent::Rejected { private_data, .. } => assert_eq!(private_data, b"no"),
        other => panic!("{other}"),
    }
    assert!(matches!(ual::cm::reject(request, b"no"), Err(Error::Closed(_))));
}

#[test]
fn a_request_without_room_or_listener_is_rejected() {
    let (client, server) = (Side::new(policy()), Side::new(policy()));
    let door = server.listen(LOCALHOST);
    let tiny = server.ia.create_evd(EvdInit::new(Stream::Request, 1)).unwrap();
    let any = SocketAddr::new(LOCALHOST, 0);
    let full = server.ia.listen(ListenInit::new(any, &tiny)).unwrap();
    let _eps = [(); 2].map(|()| {
        let ep = connecting(&client, door.addresses()[0], b"");
        let to = Handoff::new(full.addresses()[0].port());
        ual::cm::handoff(server.request().request, to).unwrap();
        ep
    });
    assert!(matches!(client.conn_event(), ConnEvent::Rejected { .. }));
}

#[test]
fn a_handoff_survives_an_adapter_that_closes() {
    // A second try would be a second request.
    let once = Policy { fall_back: false, ..policy() };
    let (client, first) = (Side::new(once), Side::new(policy()));
    let door = first.listen(LOCALHOST);
    for _ in 0..20 {
        let second = Side::new(policy());
        let far = second.listen(LOCALHOST);
        let port = far.addresses()[0].port();
        let _active = connecting(&client, door.addresses()[0], b"");
        let request = first.request().request;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                far.close().unwrap();
                drop((far, second));
            });
            if ual::cm::handoff(request, Handoff::new(port)).is_err() {
                ual::cm::reject(request, &[]).unwrap();
            }
        });
        match client.conn_event() {
            ConnEvent::Rejected { .. } => {}
            ConnEvent::Failed(error) => {
                assert!(matches!(error.reason, FailReason::PeerClosed { .. }), "{error}");
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn each_handoff_target_has_a_text() {
    let near = Handoff { address: Some(LOCALHOST), port: 7 };
    assert_eq!(
        (near.to_string(), Handoff::new(7).to_string()),
        ("127.0.0.1:7".into(), "port 7".into())
    );
}
