//! Ends of this provider recognise each other by a mark in the reserved bits of their packets; strangers get as many
//! packets in one call.

use std::net::Ipv4Addr;

use roce_proto::rc::{Post, SendOp};
use roce_proto::wire::bth::OWN_MARK;
use vp_api::SendOp as Operation;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{OURS, Peer};

/// What an end sends to a peer of which it has had a packet.
fn message(is_stranger: bool, host: u8) -> (Vec<Vec<u8>>, u8, bool) {
    const LEN: usize = 8_192;
    let end = End::new(LEN);
    let to = end.listen("127.0.0.1:0");
    let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, host), to.ip());
    peer.is_stranger = is_stranger;
    let private = std::thread::scope(|scope| {
        scope.spawn(|| end.accept());
        peer.connect(to, OURS)
    });
    let rkey = u32::from_be_bytes(*private.first_chunk().unwrap());
    let address = u64::from_be_bytes(*private[4..].first_chunk().unwrap());
    peer.memory.local = vec![pattern(8, 1)];
    let op = SendOp::Write { address, rkey, immediate: None };
    peer.qp.as_mut().unwrap().post(Post { slot: 0, op, len: 8, solicited: false }).unwrap();
    until("the Write", || {
        peer.step();
        peer.qp.as_mut().unwrap().poll_completion().is_some()
    });
    peer.join();
    let op = Operation::Send { solicited: false, invalidate: None };
    end.post(1, op, end.sge(0, LEN));
    peer.together()
}

// [IBRC-24]
#[test]
fn only_own_ends_get_packets_that_routers_may_mark() {
    alone("own_ends::only_own_ends_get_packets_that_routers_may_mark", || {
        for (is_stranger, host, class) in [(false, 3, 2), (true, 4, 0)] {
            let (datagrams, found, whole) = message(is_stranger, host);
            assert!(whole, "the identifications of one call count from 0");
            assert_eq!(datagrams.len(), 8, "one call takes the message");
            assert_eq!(found, class, "stranger: {is_stranger}");
            assert!(datagrams.iter().all(|one| one[4] == OWN_MARK));
        }
    });
}
