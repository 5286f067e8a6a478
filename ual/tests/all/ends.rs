//! Tests of what an endpoint reports about its connection: its two ends, how it ended, and its state.

use std::net::TcpListener;
use std::sync::Arc;

use ual::vp_api::{Role, WcStatus};
use ual::{
    BrokenCause, ConnEvent, ConnectParams, ConnectionEnd, ConvertParams, Disconnect, Ep, EpInit,
    EpState, SrqParams,
};

use crate::common::{LOCALHOST, Side, connect, policy};
use crate::fake::{self, Behaviour};

fn pair() -> (Side, Side) {
    (Side::new(policy()), Side::new(policy()))
}

fn end(ep: &Ep) -> ConnectionEnd {
    ep.connection_end().unwrap()
}

#[test]
fn a_connection_has_no_end_while_it_stands_and_one_when_it_was_closed() {
    let (client, server) = pair();
    let listen = server.listen(LOCALHOST);
    let fresh = client.ep();
    assert!(fresh.ends().is_none() && fresh.connection_end().is_none());
    let (active, passive) = connect(&client, &server, &listen);
    let ends = active.ends().unwrap();
    assert_eq!(ends.remote.address, listen.addresses()[0]);
    assert_eq!(passive.ends().unwrap().local.address, listen.addresses()[0]);
    assert!(active.connection_end().is_none() && passive.connection_end().is_none());
    active.disconnect(Disconnect::Graceful).unwrap();
    assert!(matches!(client.conn_event(), ConnEvent::Disconnected { .. }));
    assert!(matches!(server.conn_event(), ConnEvent::Disconnected { .. }));
    assert_eq!(end(&active), ConnectionEnd::Closed { ends, by_peer: false });
    assert!(matches!(end(&passive), ConnectionEnd::Closed { by_peer: true, .. }));
    let (ours, theirs) = (end(&active).to_string(), end(&passive).to_string());
    assert!(ours.ends_with("was closed by this end"), "{ours}");
    assert!(theirs.ends_with("was closed by the peer"), "{theirs}");
}

#[test]
fn a_broken_connection_reports_which_end_found_the_error() {
    let (client, server) = pair();
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    // No receive is posted for it.
    client.send(&active, 1, 0, 10);
    for side in [&client, &server] {
        assert!(matches!(side.conn_event(), ConnEvent::Broken { .. }));
    }
    let (ours, theirs) = (end(&active), end(&passive));
    let by_peer = |cause| matches!(cause, BrokenCause::TerminatedByPeer(t) if !t.sent);
    assert!(matches!(&ours, ConnectionEnd::Broken { cause, .. } if by_peer(*cause)), "{ours}");
    let by_this = |cause| matches!(cause, BrokenCause::Terminated(t) if t.sent);
    assert!(matches!(&theirs, ConnectionEnd::Broken { cause, .. } if by_this(*cause)), "{theirs}");
    assert!(ours.to_string().starts_with("cm-terminated-by-peer: the connection of "), "{ours}");
}

// As with a provider that reports no more.
#[test]
fn a_terminate_without_details_names_the_end_that_sent_it() {
    let side = || Side::of(&fake::ual(Behaviour::TerminateOnly, policy()));
    let (client, server) = (side(), side());
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    client.send(&active, 1, 0, 10);
    for side in [&client, &server] {
        assert!(matches!(side.conn_event(), ConnEvent::Broken { .. }));
    }
    let (ours, theirs) = (end(&active).to_string(), end(&passive).to_string());
    assert!(ours.starts_with("cm-terminated-by-peer: "), "{ours}");
    assert!(theirs.starts_with("cm-terminated: "), "{theirs}");
}

#[test]
fn a_lost_connection_counts_failed_and_outstanding_work() {
    let client = Side::of(&fake::ual(Behaviour::Losing, policy()));
    let server = Side::new(policy());
    let (active, _passive) = connect(&client, &server, &server.listen(LOCALHOST));
    client.send(&active, 1, 0, 10);
    match client.conn_event() {
        ConnEvent::Broken { lost, .. } => assert_eq!((lost.sends, lost.recvs), (5, 7)),
        other => panic!("{other}"),
    }
}

#[test]
fn an_abrupt_end_is_a_close_here_and_a_reset_there() {
    let (client, server) = pair();
    let (active, passive) = connect(&client, &server, &server.listen(LOCALHOST));
    active.disconnect(Disconnect::Abrupt).unwrap();
    client.conn_event();
    server.conn_event();
    assert!(matches!(end(&active), ConnectionEnd::Closed { by_peer: false, .. }));
    let there = end(&passive);
    assert!(matches!(there, ConnectionEnd::Broken { cause: BrokenCause::Reset, .. }), "{there}");
}

#[test]
fn an_attempt_that_failed_is_a_refusal_until_the_reset() {
    let (client, _) = pair();
    let nobody = TcpListener::bind((LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let ep = client.ep();
    client.post_recv(&ep, 1, 0, 10);
    ep.connect(ConnectParams::new(nobody)).unwrap();
    let event = client.conn_event();
    assert!(matches!(event, ConnEvent::Failed(_)), "{event}");
    assert_eq!(end(&ep).to_string(), event.to_string());
    assert_eq!(end(&ep), ConnectionEnd::Refused(event));
    assert_eq!(client.completion().status, WcStatus::Flushed);
    ep.reset().unwrap();
    assert!(ep.connection_end().is_none());
    // Without any work the queue pair is still idle.
    ep.connect(ConnectParams::new(nobody)).unwrap();
    client.conn_event();
    ep.reset().unwrap();
}

#[test]
fn an_endpoint_names_its_shared_queue_and_waits_in_a_state_of_its_own() {
    let side = Side::new(policy());
    assert!(side.ep().srq().is_none());
    let params = SrqParams { depth: 8, max_sge: 1, low_watermark: 0 };
    let shared = side.pz.create_srq(params).unwrap();
    let init =
        EpInit { srq: Some(shared.clone()), ..EpInit::new(&side.completions, &side.connection) };
    let ep = side.pz.create_ep(init).unwrap();
    assert!(ep.srq().is_some_and(|srq| Arc::ptr_eq(srq, &shared)));
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let _peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    ep.convert(socket.into(), ConvertParams::new(Role::Responder)).unwrap();
    assert_eq!(ep.state(), EpState::PassiveWait);
}
