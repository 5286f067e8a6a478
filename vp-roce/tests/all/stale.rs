//! Packets of another partition, and requests by a queue pair that is connected already.

use std::net::Ipv4Addr;

use roce_proto::cm::message::{Message, RejectReason};
use vp_api::QpState;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::End;
use crate::peer::{Peer, STRANGER};

/// An end and a peer that are connected.
fn connected() -> (End, Peer, std::net::SocketAddr) {
    let end = End::new(4096);
    let to = end.listen("127.0.0.1:0");
    let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
    std::thread::scope(|scope| {
        scope.spawn(|| end.accept());
        peer.connect(to, STRANGER)
    });
    (end, peer, to)
}

// [IBCM-19]
#[test]
fn a_request_by_a_connected_queue_pair_is_stale() {
    alone("stale::a_request_by_a_connected_queue_pair_is_stale", || {
        let (end, peer, to) = connected();
        peer.send_mad(&Message::Req(peer.request(to, 78, STRANGER)).emit(9));
        until("the refusal", || match peer.message() {
            Message::Rej { reason, .. } => {
                assert_eq!(reason, RejectReason::STALE_CONNECTION);
                true
            }
            // One datagram, which anybody may have sent, ends no connection.
            Message::Dreq { .. } => panic!("the connection is ended"),
            _ => false,
        });
        assert_eq!(end.qp.query().unwrap().state, QpState::Rts);
        drop(end);
    });
}

// [IBRC-27]
#[test]
fn a_packet_of_another_partition_is_dropped() {
    alone("stale::a_packet_of_another_partition_is_dropped", || {
        let (end, peer, to) = connected();
        let mut mad = peer.mad(&Message::Req(peer.request(to, 79, STRANGER)).emit(9));
        mad[2] = 0x81;
        mad.truncate(mad.len() - 4);
        peer.seal(&mut mad);
        peer.raw(&mad);
        // One with the limited key is taken, and refused: its queue pair is connected.
        let mut mad = peer.mad(&Message::Req(peer.request(to, 80, STRANGER)).emit(10));
        mad[2] = 0x7f;
        mad.truncate(mad.len() - 4);
        peer.seal(&mut mad);
        peer.raw(&mad);
        until("the refusal", || match peer.message() {
            Message::Rej { ids, .. } => {
                assert_eq!(ids.remote, 80);
                true
            }
            _ => false,
        });
        drop(end);
    });
}
