//! Tests of the rendezvous of queue pairs: which ones connect, in which order, and what happens without a peer.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener};

use ibv_sys::*;
use ofa::verbs::qp::*;
use warpline_patience::within;

use crate::lab::*;

/// A Send from one to the other arrives.
fn reaches((near, a): (&Lab, *mut ibv_qp), (far, b): (&Lab, *mut ibv_qp)) {
    assert_eq!(far.recv(b, 21, &mut far.sge(0, 8)), 0);
    assert_eq!(near.send(a, &mut wr(20, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
    near.success(20);
    far.success(21);
}

#[test]
fn either_end_may_be_ready_first() {
    let (near, far) = (Lab::new(), Lab::new());
    for near_first in [true, false] {
        let (a, b) = (near.qp(), far.qp());
        to_init(a);
        to_init(b);
        let mut ends = [(a, far.gid(), number(b)), (b, near.gid(), number(a))];
        if !near_first {
            ends.reverse();
        }
        // Requests posted before the other queue pair exists are sent once it connects.
        let [(first, gid, other), (second, to, first_number)] = ends;
        meet(first, gid, other);
        let (lab, peer) = if near_first { (&near, &far) } else { (&far, &near) };
        assert_eq!(peer.recv(second, 1, &mut peer.sge(0, 8)), 0);
        assert_eq!(lab.send(first, &mut wr(2, IBV_WR_SEND, &mut lab.sge(0, 8))), 0);
        meet(second, to, first_number);
        lab.success(2);
        peer.success(1);
        reaches((&near, a), (&far, b));
        destroy(a);
        destroy(b);
    }
}

/// Its send fails without a peer, and then all receives are flushed.
fn is_given_up(lab: &Lab, qp: *mut ibv_qp) {
    assert_eq!(lab.recv(qp, 31, &mut lab.sge(0, 8)), 0);
    assert_eq!(lab.send(qp, &mut wr(30, IBV_WR_SEND, &mut lab.sge(0, 8))), 0);
    let mut both = [lab.completion(), lab.completion()].map(|wc| (wc.wr_id, wc.status));
    both.sort_unstable();
    assert_eq!(both, [(30, IBV_WC_RETRY_EXC_ERR), (31, IBV_WC_WR_FLUSH_ERR)]);
    let mut event = crate::events::next(lab.context);
    assert_eq!(event.event_type, IBV_EVENT_QP_FATAL);
    crate::events::acknowledge(&mut event);
    assert_eq!(state(qp), IBV_QPS_ERR);
}

#[test]
fn a_send_without_a_peer_is_given_up() {
    let lab = Lab::new();
    let qp = lab.qp();
    to_init(qp);
    // Nothing listens at port 1.
    meet(qp, lab.gid(), 0x01_0001);
    is_given_up(&lab, qp);
    destroy(qp);
}

/// Something else listens where the peer should, and is silent.
#[test]
fn a_reset_cancels_the_attempt_to_meet() {
    let silent = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = u32::from(silent.local_addr().unwrap().port());
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    to_init(a);
    meet(a, near.gid(), 0xff << 16 | port);
    let (mut stream, _) = within("the attempt", || silent.accept()).unwrap();
    reset(a);
    // What was sent before, and the end.
    let end = within("the end", || stream.read_to_end(&mut Vec::new()));
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    meet_and_send(&near, &far, (a, b), 1);
    [a, b].into_iter().for_each(destroy);
}

#[test]
fn an_unexpected_peer_is_not_met() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = pair(&near, &far);
    reaches((&near, a), (&far, b));
    let stranger = Lab::new();
    let c = stranger.qp();
    to_init(c);
    meet(c, far.gid(), number(b));
    is_given_up(&stranger, c);
    reaches((&near, a), (&far, b));
    [a, b, c].into_iter().for_each(destroy);
}

#[test]
fn an_unreliable_connection_has_no_reads() {
    let (near, far) = (Lab::new(), Lab::new());
    let [a, b] = [&near, &far].map(|lab| {
        let mut init = ibv_qp_init_attr { qp_type: IBV_QPT_UC, ..lab.init() };
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        assert!(!qp.is_null());
        to_init(qp);
        qp
    });
    for (qp, gid, other) in [(a, far.gid(), number(b)), (b, near.gid(), number(a))] {
        let mask = RTR & !(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        assert_eq!(modify(qp, &mut rtr(gid, other), mask), 0);
        assert_eq!(modify(qp, &mut rts(), IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    }
    reaches((&near, a), (&far, b));
    let mut sge = near.sge(64, 8);
    let mut read = wr(3, IBV_WR_RDMA_READ, &mut sge);
    read.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(0), rkey: far.rkey() } };
    assert_eq!(near.send(a, &mut read), 0);
    assert_eq!(near.completion().status, IBV_WC_LOC_QP_OP_ERR);
    destroy(a);
    destroy(b);
}
