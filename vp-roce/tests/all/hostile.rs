//! A peer that sends anything: connections of others go on, and what it leaves is bounded.

use std::net::Ipv4Addr;

use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{ConnectionIds, Message, Private, RejectReason, Rejected};

use crate::alone::alone;
use crate::end::{End, pattern};
use crate::peer::{Peer, STRANGER};
use vp_api::{NativeEvent, NativeParams, VpStatus};

#[test]
fn garbage_disturbs_no_connection() {
    alone("hostile::garbage_disturbs_no_connection", || {
        let (near, far) = (End::new(4096), End::new(4096));
        let there = far.listen("127.0.0.1:0");
        std::thread::scope(|scope| {
            scope.spawn(|| far.accept().unwrap());
            near.connect(there);
        });
        let mut peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), there.ip());
        for round in 0..3000u32 {
            // At least a BTH.
            let len = 12 + peer.random.next() as usize % 400;
            let mut datagram: Vec<u8> = (0..len).map(|_| peer.random.next() as u8).collect();
            match round % 3 {
                0 => {}
                // A packet that is whole, of any meaning.
                1 => peer.seal(&mut datagram),
                // A message of the connection manager that is whole, of any meaning.
                _ => {
                    let mad = peer.request(there, round, STRANGER);
                    let mut octets = Message::Req(mad).emit(round.into()).emit();
                    for _ in 0..4 {
                        let at = 16 + peer.random.next() as usize % 200;
                        octets[at] = peer.random.next() as u8;
                    }
                    if let Ok(mad) = Mad::parse(&octets) {
                        peer.send_mad(&mad);
                    }
                    continue;
                }
            }
            peer.raw(&datagram);
            if round % 100 == 1 {
                far.recv(1, far.sge(0, 64));
                near.region.write_at(0, &pattern(64, round as u8)).unwrap();
                near.send(2, near.sge(0, 64));
                near.done();
                far.done();
                assert_eq!(far.read(0, 64), pattern(64, round as u8));
            }
        }
        assert_eq!((near.events(), far.events()), (vec![], vec![]));
    });
}

/// Requests that the application has not decided are as many as the listener allows.
#[test]
fn requests_beyond_the_backlog_are_dropped() {
    alone("hostile::requests_beyond_the_backlog_are_dropped", || {
        let end = End::new(4096);
        let to = end.listen("127.0.0.1:0");
        let peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
        for id in 1..=100 {
            peer.send_mad(&Message::Req(peer.request(to, id, STRANGER)).emit(id.into()));
        }
        // The backlog of 8, and not one more: a connection that comes later is handled behind all of them.
        let other = End::new(64);
        let elsewhere = other.listen("127.0.0.1:0");
        let client = End::new(64);
        std::thread::scope(|scope| {
            scope.spawn(|| other.accept().unwrap());
            client.connect(elsewhere);
        });
        let requests: Vec<NativeEvent> = (0..8).map(|_| end.event()).collect();
        assert!(requests.iter().all(|event| matches!(event, NativeEvent::Request { .. })));
        assert!(end.is_quiet());
    });
}

/// Who asked and gave up leaves its place in the backlog to others, and its request cannot be accepted any more.
#[test]
fn a_request_that_is_withdrawn_takes_no_place() {
    alone("hostile::a_request_that_is_withdrawn_takes_no_place", || {
        let end = End::new(4096);
        let to = end.listen("127.0.0.1:0");
        let peer = Peer::new(Ipv4Addr::new(127, 0, 0, 3), to.ip());
        let mut withdrawn = None;
        for id in 1..=100 {
            peer.send_mad(&Message::Req(peer.request(to, id, STRANGER)).emit(id.into()));
            let NativeEvent::Request { request, .. } = end.event() else { panic!("no request") };
            if let Some(before) = withdrawn.replace(request) {
                let accepted = end.cm.accept(
                    before,
                    end.qp.id(),
                    NativeParams { private_data: Vec::new(), ird: 0, ord: 0 },
                );
                assert_eq!(accepted.unwrap_err().status, VpStatus::InvalidHandle);
            }
            let ids = ConnectionIds { local: id, remote: 0 };
            let (of, reason) = (Rejected::Req, RejectReason::TIMEOUT);
            let rej = Message::Rej { ids, of, reason, private: Private::default() };
            peer.send_mad(&rej.emit(id.into()));
        }
    });
}
