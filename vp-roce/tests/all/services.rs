//! Datagram services with a peer that repeats, floods and sends anything.

use std::net::{Ipv4Addr, SocketAddr};

use roce_proto::cm::addresses::{Addresses, Pair};
use roce_proto::cm::mad::Mad;
use roce_proto::cm::message::{Message, SidrStatus};
use roce_proto::cm::udp_service;
use vp_api::*;

use crate::alone::alone;
use crate::peer::Peer;
use crate::ud_end::UdEnd;

const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Sends a request with this id to a service.
fn ask(peer: &Peer, id: u32, at: SocketAddr) {
    let pair = Pair::V4 { source: HERE.octets(), destination: [127, 0, 0, 1] };
    let private = Addresses { source_port: 9, pair }.with(b"where").unwrap();
    let service = udp_service(at.port());
    let message = Message::SidrReq { request: id, pkey: 0xffff, service, private };
    peer.send_mad(&message.emit(id.into()));
}

/// The id, the status and the queue pair of the next reply.
fn reply(peer: &Peer) -> (u32, SidrStatus, u32) {
    match peer.message() {
        Message::SidrRep { request, status, qpn, .. } => (request, status, qpn),
        other => panic!("{other:?}"),
    }
}

// [IBCM-09]
#[test]
fn a_repeated_request_is_one_request() {
    alone("services::a_repeated_request_is_one_request", || {
        let (end, at) = UdEnd::listening("127.0.0.1:0");
        let peer = Peer::new(HERE, at.ip());
        ask(&peer, 77, at);
        ask(&peer, 77, at);
        // A service that does not exist is refused at once, and behind both requests.
        ask(&peer, 78, SocketAddr::new(at.ip(), at.port() + 1));
        assert_eq!(reply(&peer), (78, SidrStatus::UNSUPPORTED_SERVICE, 0));
        let ServiceEvent::Request { request, peer: from, .. } = end.event() else { panic!() };
        assert_eq!(from, SocketAddr::new(HERE.into(), 9));
        end.ud.accept(request, UdAddress { qpn: 5, qkey: 6 }, b"").unwrap();
        assert_eq!(reply(&peer), (77, SidrStatus::VALID, 5));
        // The reply may be lost: it is sent again.
        ask(&peer, 77, at);
        assert_eq!(reply(&peer), (77, SidrStatus::VALID, 5));
        assert!(end.is_quiet());
    });
}

#[test]
fn requests_beyond_the_backlog_are_dropped() {
    alone("services::requests_beyond_the_backlog_are_dropped", || {
        // The backlog is 4.
        let (end, at) = UdEnd::listening("127.0.0.1:0");
        let peer = Peer::new(HERE, at.ip());
        (1..=100).for_each(|id| ask(&peer, id, at));
        // Handled behind all of them.
        ask(&peer, 101, SocketAddr::new(at.ip(), at.port() + 1));
        assert_eq!(reply(&peer), (101, SidrStatus::UNSUPPORTED_SERVICE, 0));
        let ids: Vec<u64> = (0..4)
            .map(|_| match end.event() {
                ServiceEvent::Request { request, .. } => request,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(end.is_quiet());
        // Each reply makes room.
        end.ud.reject(ids[0], ServiceRefusal::NoQueuePair, b"").unwrap();
        assert_eq!(reply(&peer), (1, SidrStatus::NO_QP, 0));
        ask(&peer, 102, at);
        assert!(matches!(end.event(), ServiceEvent::Request { .. }));
    });
}

#[test]
fn replies_that_nobody_asked_for_are_ignored() {
    alone("services::replies_that_nobody_asked_for_are_ignored", || {
        let (end, at) = UdEnd::listening("127.0.0.1:0");
        let asker = UdEnd::new();
        asker.ud.resolve(2, at, b"where").unwrap();
        let ServiceEvent::Request { request, .. } = end.event() else { panic!() };
        // From another address than the service's, whatever the id.
        let peer = Peer::new(HERE, at.ip());
        for id in 0..1000 {
            let (status, qpn, qkey) = (SidrStatus::VALID, 666, 1);
            let (service, private) = (udp_service(at.port()), Default::default());
            let forged = Message::SidrRep { request: id, status, qpn, service, qkey, private };
            peer.send_mad(&forged.emit(id.into()));
        }
        end.ud.accept(request, end.qp.address(), b"here").unwrap();
        match asker.event() {
            ServiceEvent::Resolved { token: 2, address, private_data, .. } => {
                assert_eq!((address, &private_data[..]), (end.qp.address(), &b"here"[..]));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_service_that_nobody_has_fails_in_bounded_time() {
    alone("services::a_service_that_nobody_has_fails_in_bounded_time", || {
        let end = UdEnd::new();
        end.ud.resolve(3, "127.0.0.9:7".parse().unwrap(), b"").unwrap();
        let ServiceEvent::Failed { token: 3, reason } = end.event() else { panic!() };
        assert!(reason.contains("127.0.0.9 does not reply"), "{reason}");
    });
}

/// Messages of any meaning, and datagrams of any content, at a service and its queue pair.
#[test]
fn garbage_disturbs_no_service() {
    alone("services::garbage_disturbs_no_service", || {
        let (end, at) = UdEnd::listening("127.0.0.1:0");
        let mut peer = Peer::new(HERE, at.ip());
        let UdAddress { qpn, .. } = end.qp.address();
        for round in 0..3000u32 {
            if round % 2 == 0 {
                // Whole messages of SIDR with a few octets changed. Not the service's port: a request for it is no
                // garbage.
                let (request, pkey) = (round, 0xffff);
                let service = udp_service(at.port()) ^ 1;
                let message = match round % 4 {
                    0 => Message::SidrReq { request, pkey, service, private: Default::default() },
                    _ => {
                        let (status, qpn, qkey) = (SidrStatus(round as u8), round, round);
                        let private = Default::default();
                        Message::SidrRep { request, status, qpn, service, qkey, private }
                    }
                };
                let mut octets = message.emit(round.into()).emit();
                for _ in 0..4 {
                    // Behind the service.
                    let at = 40 + peer.random.next() as usize % 200;
                    octets[at] = peer.random.next() as u8;
                }
                if let Ok(mad) = Mad::parse(&octets) {
                    peer.send_mad(&mad);
                }
            } else {
                let len = 12 + peer.random.next() as usize % 400;
                let mut datagram: Vec<u8> = (0..len).map(|_| peer.random.next() as u8).collect();
                datagram[4..8].copy_from_slice(&qpn.to_be_bytes());
                peer.seal(&mut datagram);
                peer.raw(&datagram);
            }
            if round % 300 == 1 {
                let asker = UdEnd::new();
                asker.ud.resolve(2, at, b"where").unwrap();
                end.answer();
                assert!(matches!(asker.event(), ServiceEvent::Resolved { token: 2, .. }));
            }
        }
        assert!(end.is_quiet());
        assert_eq!(end.qp.query().unwrap().state, UdState::Operational);
    });
}
