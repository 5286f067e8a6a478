//! Queue pairs that their consumer brings up by path, without the connection manager.

use std::net::Ipv4Addr;

use vp_api::*;

use crate::alone::alone;
use crate::end::{End, pattern};

const LEN: usize = 20_000;

fn gid(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

fn number(of: &End) -> u32 {
    of.paths().number(of.qp.id()).unwrap()
}

/// The path to an end whose first PSN is `psn`.
fn to(peer: &End, psn: u32) -> PeerPath {
    PeerPath {
        local_gid: gid(Ipv4Addr::LOCALHOST),
        remote_gid: gid(Ipv4Addr::LOCALHOST),
        qpn: number(peer),
        psn,
        mtu_code: 3,
        ird: 4,
        min_rnr_timer: 12,
    }
}

fn sender(psn: u32) -> PathSender {
    PathSender { psn, ack_timeout: 14, retry_count: 2, rnr_retry: 7, ord: 4 }
}

fn receive(end: &End, peer: &PeerPath) -> VpResult<()> {
    end.paths().receive(end.qp.id(), peer)
}

fn send(end: &End, psn: u32) -> VpResult<()> {
    end.paths().send(end.qp.id(), &sender(psn))
}

/// One message from one end to the other.
fn message(from: &End, other: &End, wr_id: u64) {
    let octets = pattern(LEN, wr_id as u8);
    from.region.write_at(0, &octets).unwrap();
    other.recv(wr_id, other.sge(LEN, LEN));
    from.send(wr_id, from.sge(0, LEN));
    assert_eq!((from.done().wr_id, other.done().wr_id), (wr_id, wr_id));
    assert_eq!(other.read(LEN, LEN), octets);
}

#[test]
fn an_end_receives_before_it_may_send_and_is_used_again() {
    alone("paths::an_end_receives_before_it_may_send_and_is_used_again", || {
        let (mut a, mut b) = (End::new(2 * LEN), End::new(2 * LEN));
        let numbers = (number(&a), number(&b));
        for psn in [0xff_fffe, 77] {
            receive(&a, &to(&b, psn + 1)).unwrap();
            receive(&b, &to(&a, psn)).unwrap();
            send(&b, psn + 1).unwrap();
            // The other end is ready to receive only.
            message(&b, &a, 1);
            assert!(a.qp.post_send(&[]).is_err(), "it may not send yet");
            send(&a, psn).unwrap();
            message(&a, &b, 2);
            let read = SendOp::Read { remote: b.remote(LEN), invalidate_sink: false };
            a.post(3, read, a.sge(LEN, LEN));
            assert_eq!(a.done().wr_id, 3);
            assert_eq!(a.read(LEN, LEN), pattern(LEN, 2));
            let ends = [&a, &b].map(|end| end.qp.query().unwrap());
            assert!(ends.iter().all(|info| info.state == QpState::Rts && info.ord == 4));
            [&a, &b].iter().for_each(|end| end.qp.modify(QpChange::Error).unwrap());
            (a, b) = (a.renewed(), b.renewed());
            assert_eq!((number(&a), number(&b)), numbers, "a reset changes no number");
        }
    });
}

#[test]
fn a_peer_that_is_gone_fails_the_request_and_nothing_else_tells() {
    alone("paths::a_peer_that_is_gone_fails_the_request_and_nothing_else_tells", || {
        let (a, b) = (End::new(2 * LEN), End::new(2 * LEN));
        receive(&a, &to(&b, 5)).unwrap();
        send(&a, 6).unwrap();
        drop(b);
        assert_eq!(a.events(), []);
        a.send(1, a.sge(0, LEN));
        assert_ne!(a.completion().status, WcStatus::Success);
        assert_eq!(a.qp.query().unwrap().ended, Some(AsyncEvent::ConnectionLost));
    });
}

#[test]
fn wrong_steps_and_paths_are_refused_and_change_nothing() {
    alone("paths::wrong_steps_and_paths_are_refused_and_change_nothing", || {
        let (a, b) = (End::new(2 * LEN), End::new(2 * LEN));
        let good = to(&b, 7);
        let status = |result: VpResult<()>| result.unwrap_err().status;
        assert_eq!(status(send(&a, 1)), VpStatus::InvalidState);
        let v6 = std::net::Ipv6Addr::LOCALHOST.octets();
        for (wrong, why) in [
            (PeerPath { mtu_code: 6, ..good }, VpStatus::InvalidModifier),
            (PeerPath { mtu_code: 0, ..good }, VpStatus::InvalidModifier),
            (PeerPath { remote_gid: v6, ..good }, VpStatus::InvalidModifier),
            (PeerPath { remote_gid: [0; 16], ..good }, VpStatus::InvalidModifier),
            (PeerPath { ird: 200, ..good }, VpStatus::InvalidIrdOrd),
            // An address of another machine.
            (PeerPath { local_gid: gid([192, 0, 2, 1].into()), ..good }, VpStatus::Os),
        ] {
            assert_eq!(status(receive(&a, &wrong)), why, "{wrong:?}");
        }
        receive(&a, &good).unwrap();
        assert_eq!(status(receive(&a, &good)), VpStatus::InvalidState);
        send(&a, 1).unwrap();
        assert_eq!(status(send(&a, 1)), VpStatus::InvalidState);
        receive(&b, &to(&a, 1)).unwrap();
        message(&a, &b, 9);
    });
}
