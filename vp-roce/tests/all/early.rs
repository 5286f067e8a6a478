//! Requests that an end posts after it accepted and before the peer's last message of the handshake arrives.

use std::net::Ipv4Addr;

use roce_proto::cm::message::Message;
use roce_proto::wire::bth::{Opcode, Operation, Position};
use vp_api::*;

use crate::alone::alone;
use crate::end::End;
use crate::peer::{Peer, STRANGER};

/// An end that has accepted the request of a peer, which sends nothing more.
fn accepted() -> (End, Peer) {
    let end = End::new(4096);
    let to = end.listen("127.0.0.1:0");
    let peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
    peer.send_mad(&Message::Req(peer.request(to, 77, STRANGER)).emit(5));
    let NativeEvent::Request { request, .. } = end.event() else { panic!("a request") };
    let params = NativeParams { private_data: Vec::new(), ird: 4, ord: 4 };
    end.cm.accept(request, end.qp.id(), params).unwrap();
    // Before it, that the application is asked (MRA).
    while !matches!(peer.message(), Message::Rep(_)) {}
    (end, peer)
}

#[test]
fn a_send_leaves_before_the_connection_is_confirmed() {
    alone("early::a_send_leaves_before_the_connection_is_confirmed", || {
        let (end, peer) = accepted();
        end.send(7, end.sge(0, 64));
        // Between repetitions of the reply.
        let mut seen = None;
        warpline_patience::until("the Send", || {
            seen = peer.packet();
            seen.is_some()
        });
        assert!(matches!(
            seen,
            Some((Opcode::Transport(_, Operation::Send(Position::Only, _)), _))
        ));
        assert!(end.is_quiet());
    });
}

#[test]
fn without_a_peer_the_send_and_the_connection_fail() {
    alone("early::without_a_peer_the_send_and_the_connection_fail", || {
        let (end, _peer) = accepted();
        end.send(7, end.sge(0, 64));
        let wc = end.completion();
        assert_eq!(wc.wr_id, 7);
        assert!(matches!(wc.status, WcStatus::LocalCatastrophic | WcStatus::Flushed), "{wc:?}");
        let event = end.event();
        assert!(matches!(event, NativeEvent::Failed { .. }), "{event:?}");
        assert!(end.is_quiet());
    });
}
