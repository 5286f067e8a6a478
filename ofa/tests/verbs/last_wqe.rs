//! `IBV_EVENT_QP_LAST_WQE_REACHED` on both devices: exactly once whenever a queue pair with a shared receive queue goes
//! to ERR, by whatever cause.

use ibv_sys::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use crate::events::{acknowledge, next, readable};
use crate::lab::*;
use crate::on_roce::on_both;

const LAST: u32 = IBV_EVENT_QP_LAST_WQE_REACHED;

/// A queue pair of this end with a shared receive queue.
fn with_srq(lab: &Lab, srq: *mut ibv_srq) -> *mut ibv_qp {
    let mut init = ibv_qp_init_attr { srq, ..lab.init() };
    let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
    assert!(!qp.is_null());
    qp
}

fn connect(near: &Lab, a: *mut ibv_qp, far: &Lab, b: *mut ibv_qp) {
    [a, b].into_iter().for_each(to_init);
    meet(a, far.gid(), number(b));
    meet(b, near.gid(), number(a));
}

fn to_error(qp: *mut ibv_qp) {
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut attr, IBV_QP_STATE), 0);
}

/// The event for this queue pair; the kinds of events before it.
fn last(lab: &Lab, qp: *mut ibv_qp) -> Vec<u32> {
    let mut before = Vec::new();
    loop {
        let mut event = next(lab.context);
        acknowledge(&mut event);
        assert_eq!(unsafe { event.element.qp }, qp);
        match event.event_type {
            LAST => return before,
            other => before.push(other),
        }
    }
}

/// No further one is queued.
fn none(lab: &Lab) {
    while readable(unsafe { (*lab.context).async_fd }) {
        let mut event = next(lab.context);
        acknowledge(&mut event);
        assert_ne!(event.event_type, LAST);
    }
}

fn end(srq: *mut ibv_srq) {
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
}

#[test]
fn a_program_that_moves_a_queue_pair_to_err_gets_the_event() {
    on_both("last_wqe::a_program_that_moves_a_queue_pair_to_err_gets_the_event", || {
        let (near, far) = (Lab::new(), Lab::new());
        let srq = near.srq();
        let (a, b) = (with_srq(&near, srq), far.qp());
        (0..2).for_each(|n| assert_eq!(near.recv_shared(srq, n, &mut near.sge(64, 64)), 0));
        for _ in 0..3 {
            connect(&near, a, &far, b);
            to_error(a);
            assert!(last(&near, a).is_empty());
            to_error(a);
            // Requests that are posted in ERR, too.
            assert_eq!(near.send(a, &mut wr(7, IBV_WR_SEND, &mut near.sge(0, 8))), 0);
            let wc = near.completion();
            assert_eq!((wc.wr_id, wc.status), (7, IBV_WC_WR_FLUSH_ERR));
            reset(a);
            reset(b);
            none(&near);
        }
        // In a state without a peer as well. Destroying the queue pair takes the event away.
        to_error(a);
        assert!(last(&near, a).is_empty());
        reset(a);
        to_init(a);
        to_error(a);
        destroy(a);
        none(&near);
        assert!(near.poll().is_none(), "a receive of the shared queue was flushed");
        // Another queue pair has the receives.
        let c = with_srq(&near, srq);
        connect(&near, c, &far, b);
        for n in 0..2 {
            assert_eq!(far.send(b, &mut wr(n, IBV_WR_SEND, &mut far.sge(0, 8))), 0);
            far.success(n);
            assert_eq!((near.success(n).qp_num, n), (number(c), n));
        }
        // Without a shared queue there is none.
        to_error(b);
        none(&far);
        [b, c].into_iter().for_each(destroy);
        end(srq);
    });
}

#[test]
fn a_queue_pair_whose_peer_is_gone_gets_the_event_with_its_failed_send() {
    on_both(
        "last_wqe::a_queue_pair_whose_peer_is_gone_gets_the_event_with_its_failed_send",
        || {
            let (near, far) = (Lab::new(), Lab::new());
            let srq = near.srq();
            let (a, b) = (with_srq(&near, srq), far.qp());
            connect(&near, a, &far, b);
            assert_eq!(near.send(a, &mut wr(1, IBV_WR_RDMA_WRITE, &mut near.sge(0, 0))), 0);
            near.success(1);
            destroy(b);
            warpline_patience::until("a send that is lost", || {
                let posted = near.send(a, &mut wr(2, IBV_WR_SEND, &mut near.sge(0, 8)));
                posted == 0 && near.completion().status != IBV_WC_SUCCESS
            });
            last(&near, a);
            to_error(a);
            none(&near);
            assert_eq!(state(a), IBV_QPS_ERR);
            destroy(a);
            end(srq);
        },
    );
}

#[test]
fn a_queue_pair_that_refuses_its_peer_gets_the_event() {
    on_both("last_wqe::a_queue_pair_that_refuses_its_peer_gets_the_event", || {
        let (near, far) = (Lab::new(), Lab::new());
        let srq = near.srq();
        let (a, b) = (with_srq(&near, srq), far.qp());
        connect(&near, a, &far, b);
        let mut sge = far.sge(0, 8);
        let mut write = wr(1, IBV_WR_RDMA_READ, &mut sge);
        write.wr = wr_union { rdma: wr_rdma { remote_addr: near.at(ROOM), rkey: near.rkey() } };
        assert_eq!(far.send(b, &mut write), 0);
        assert_eq!(far.completion().status, IBV_WC_REM_ACCESS_ERR);
        let mut kinds = last(&near, a);
        if kinds.is_empty() {
            let mut event = next(near.context);
            acknowledge(&mut event);
            kinds.push(event.event_type);
        }
        assert_eq!(kinds, [IBV_EVENT_QP_ACCESS_ERR]);
        to_error(a);
        none(&near);
        [a, b].into_iter().for_each(destroy);
        end(srq);
    });
}
