//! Unreliable connections: queue pairs that are brought up by path as such.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use vp_api::*;
use warpline_patience::until;

use crate::alone::alone;
use crate::end::{End, open, pattern};

const LEN: usize = 20_000;

fn connect(from: &End, to: &End) {
    let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    let (paths, id) = (from.paths(), from.qp.id());
    paths.set_unreliable(id).unwrap();
    let peer = PeerPath {
        local_gid: gid,
        remote_gid: gid,
        qpn: to.paths().number(to.qp.id()).unwrap(),
        psn: 9,
        mtu_code: 3,
        ird: 0,
        min_rnr_timer: 0,
    };
    paths.receive(id, &peer).unwrap();
    let sender = PathSender { psn: 9, ack_timeout: 0, retry_count: 0, rnr_retry: 0, ord: 0 };
    paths.send(id, &sender).unwrap();
}

fn pair() -> (End, End) {
    connected(End::new(2 * LEN), End::new(2 * LEN))
}

fn connected(a: End, b: End) -> (End, End) {
    connect(&a, &b);
    connect(&b, &a);
    (a, b)
}

#[test]
fn sends_and_writes_arrive_whole() {
    alone("uc::sends_and_writes_arrive_whole", || {
        let (a, b) = pair();
        for (from, to) in [(&a, &b), (&b, &a)] {
            from.region.write_at(0, &pattern(LEN, 1)).unwrap();
            to.recv(1, to.sge(LEN, LEN));
            from.send(2, from.sge(0, LEN));
            assert_eq!((from.done().wr_id, to.done().octets as usize), (2, LEN));
            assert_eq!(to.read(LEN, LEN), pattern(LEN, 1));
        }
        a.region.write_at(0, &pattern(LEN, 2)).unwrap();
        b.recv(3, b.sge(0, 0));
        let remote = b.remote(LEN);
        a.post(4, SendOp::Write { remote }, a.sge(0, LEN));
        let immediate = SendOp::WriteImmediate { remote, data: 77, solicited: false };
        a.post(5, immediate, a.sge(0, 100));
        assert_eq!([a.done().wr_id, a.done().wr_id], [4, 5]);
        let wc = b.done();
        assert_eq!((wc.wr_id, wc.opcode, wc.immediate), (3, WcOpcode::RecvImmediate, Some(77)));
        assert_eq!(b.read(LEN, LEN), pattern(LEN, 2));
    });
}

// [IBUC-01] [IBUC-03]
#[test]
fn nobody_tells_that_a_message_or_the_peer_is_lost() {
    alone("uc::nobody_tells_that_a_message_or_the_peer_is_lost", || {
        let (rnic, record) = (open(), DeviceRef::default());
        rnic.publish(record.clone());
        let (a, b) = connected(End::new(2 * LEN), End::on(rnic, 2 * LEN));
        // Without a receive, longer than it, and to memory that the key does not name.
        a.send(1, a.sge(0, 10));
        assert_eq!(a.done().wr_id, 1);
        until("the message to be dropped", || {
            b.cq.poll(&mut [WorkCompletion::BLANK]).unwrap();
            record.dropped[2].load(Ordering::Relaxed) == 1
        });
        b.recv(2, b.sge(0, 100));
        a.send(3, a.sge(0, LEN));
        let remote = Remote { stag: Stag(b.stag.0 ^ 0x100), ..b.remote(0) };
        a.post(4, SendOp::Write { remote }, a.sge(0, 10));
        a.send(5, a.sge(0, 50));
        assert_eq!([a.done().wr_id, a.done().wr_id, a.done().wr_id], [3, 4, 5]);
        let wc = b.done();
        assert_eq!((wc.wr_id, wc.octets), (2, 50));
        drop(b);
        a.send(6, a.sge(0, LEN));
        assert_eq!(a.done().wr_id, 6);
        assert_eq!((a.events(), a.qp.query().unwrap().state), (vec![], QpState::Rts));
        // There are no Reads.
        let read = SendOp::Read { remote: a.remote(0), invalidate_sink: false };
        a.post(7, read, a.sge(0, 8));
        assert_eq!(a.completion().status, WcStatus::ZeroReadResources);
    });
}

/// Four megabytes at once, of which the receive buffer holds a tenth.
#[test]
fn a_full_receive_buffer_holds_the_sender_back() {
    alone("uc::a_full_receive_buffer_holds_the_sender_back", || {
        let (a, b) = pair();
        (0..200).for_each(|n| b.recv(n, b.sge(0, LEN)));
        (0..200).for_each(|n| a.send(n, a.sge(0, LEN)));
        (0..200).for_each(|n| assert_eq!(b.done().wr_id, n));
        (0..200).for_each(|n| assert_eq!(a.done().wr_id, n));
    });
}

/// A queue pair that is destroyed or ended with requests that wait for room ends them.
#[test]
fn what_waits_for_room_is_flushed() {
    alone("uc::what_waits_for_room_is_flushed", || {
        let (a, b) = pair();
        (0..250).for_each(|n| a.send(n, a.sge(0, LEN)));
        a.qp.modify(QpChange::Error).unwrap();
        let all: Vec<_> = (0..250).map(|_| a.completion()).collect();
        assert!(all.iter().enumerate().all(|(at, wc)| wc.wr_id == at as u64));
        assert_eq!(all[249].status, WcStatus::Flushed);
        drop(b);
    });
}
