//! Rows of posts and polls. A refused post names its request.

use std::ptr::null_mut;

use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use super::*;
use crate::extended::front;

/// A queue pair in this state: RESET, INIT, or ERR, where what is posted is flushed.
fn in_state(lab: &Lab, state: u32) -> *mut ibv_qp {
    let qp = lab.qp();
    if state != IBV_QPS_RESET {
        to_init(qp);
    }
    if state == IBV_QPS_ERR {
        let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    }
    qp
}

fn sent(lab: &Lab, state: u32, change: impl FnOnce(&mut ibv_send_wr)) -> i64 {
    let qp = in_state(lab, state);
    let mut sges = [lab.sge(0, 8); 17];
    let mut request = wr(1, IBV_WR_SEND, &mut sges[0]);
    request.sg_list = sges.as_mut_ptr();
    change(&mut request);
    let (at, mut bad): (*mut ibv_send_wr, _) = (&raw mut request, null_mut());
    let result = unsafe { lab.ops().post_send.unwrap()(qp, at, &mut bad) };
    assert_eq!(result != 0, bad == at);
    destroy(qp);
    result.into()
}

fn in_error(lab: &Lab, change: impl FnOnce(&mut ibv_send_wr)) -> i64 {
    sent(lab, IBV_QPS_ERR, change)
}

fn received(lab: &Lab, state: u32, elements: i32) -> i64 {
    let qp = in_state(lab, state);
    let mut sges = [lab.sge(0, 8); 17];
    let mut request =
        ibv_recv_wr { wr_id: 1, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge: elements };
    let (at, mut bad): (*mut ibv_recv_wr, _) = (&raw mut request, null_mut());
    let result = unsafe { lab.ops().post_recv.unwrap()(qp, at, &mut bad) };
    assert_eq!(result != 0, bad == at);
    destroy(qp);
    result.into()
}

/// The last of these posts to a shared queue of 16, with so many elements each.
fn shared(lab: &Lab, posts: u32, elements: i32) -> i64 {
    let srq = lab.srq();
    let mut sges = [lab.sge(0, 8); 2];
    let mut result = 0;
    for _ in 0..posts {
        let mut request = ibv_recv_wr {
            wr_id: 1,
            next: null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: elements,
        };
        let (at, mut bad): (*mut ibv_recv_wr, _) = (&raw mut request, null_mut());
        result = unsafe { lab.ops().post_srq_recv.unwrap()(srq, at, &mut bad) };
        assert_eq!(result != 0, bad == at);
    }
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    result.into()
}

/// The last of as many as the queue is deep, and one.
fn beyond_the_depth(lab: &Lab, post: impl Fn(*mut ibv_qp) -> i32) -> i64 {
    let qp = in_state(lab, IBV_QPS_ERR);
    (0..8).for_each(|_| assert_eq!(post(qp), 0));
    let last = post(qp);
    destroy(qp);
    last.into()
}

/// ibv_wr_complete for a list, of which nothing may have been posted.
fn completed(lab: &Lab, build: fn(&Lab, *mut ibv_qp_ex)) -> i64 {
    let plain = lab.init();
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.cap, attr.qp_type) =
        (plain.send_cq, plain.recv_cq, plain.cap, plain.qp_type);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    (attr.pd, attr.send_ops_flags) = (lab.pd, IBV_QP_EX_WITH_ALL_RC);
    let qp = unsafe { front(lab.context).create_qp_ex.unwrap()(lab.context, &mut attr) };
    let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    let ex = unsafe { warpline_ibv_qp_to_qp_ex(qp) };
    unsafe { (*ex).wr_flags = IBV_SEND_SIGNALED };
    unsafe { (*ex).wr_start.unwrap()(ex) };
    build(lab, ex);
    let result = unsafe { (*ex).wr_complete.unwrap()(ex) };
    assert!(lab.poll().is_none());
    destroy(qp);
    result.into()
}

fn send(ex: *mut ibv_qp_ex) {
    unsafe { (*ex).wr_send.unwrap()(ex) }
}

fn polled(lab: &Lab, most: i32) -> i64 {
    let mut wc = ibv_wc::default();
    unsafe { lab.ops().poll_cq.unwrap()(lab.cq, most, &mut wc) }.into()
}

pub(super) const ROWS: &[Row] = &[
    ("ibv_post_send", "in RESET", INVALID, |lab| sent(lab, IBV_QPS_RESET, |_| ())),
    ("ibv_post_send", "in INIT", INVALID, |lab| sent(lab, IBV_QPS_INIT, |_| ())),
    ("ibv_post_send", "in ERR", DONE, |lab| in_error(lab, |_| ())),
    ("ibv_post_send", "more elements than asked for", INVALID, |lab| {
        in_error(lab, |wr| wr.num_sge = 3)
    }),
    ("ibv_post_send", "more elements than any request has", INVALID, |lab| {
        in_error(lab, |wr| wr.num_sge = 17)
    }),
    ("ibv_post_send", "fewer elements than none", INVALID, |lab| {
        in_error(lab, |wr| wr.num_sge = -1)
    }),
    ("ibv_post_send", "no operation", INVALID, |lab| in_error(lab, |wr| wr.opcode = 99)),
    ("ibv_post_send", "a segmented datagram", INVALID, |lab| {
        in_error(lab, |wr| wr.opcode = IBV_WR_SEND + 8)
    }),
    ("ibv_post_send", "more inline data than asked for", INVALID, |lab| {
        in_error(lab, |wr| {
            wr.send_flags |= IBV_SEND_INLINE;
            unsafe { (*wr.sg_list).length = 2000 };
        })
    }),
    ("ibv_post_send", "inline data of a Read", INVALID, |lab| {
        in_error(lab, |wr| {
            (wr.opcode, wr.send_flags) = (IBV_WR_RDMA_READ, wr.send_flags | IBV_SEND_INLINE);
        })
    }),
    ("ibv_post_send", "a Read into more elements than announced", INVALID, |lab| {
        in_error(lab, |wr| (wr.opcode, wr.num_sge) = (IBV_WR_RDMA_READ, 2))
    }),
    ("ibv_post_send", "a bind of no window", INVALID, |lab| {
        in_error(lab, |wr| wr.opcode = IBV_WR_BIND_MW)
    }),
    ("ibv_post_send", "more than the queue has room for", NO_ROOM, |lab| {
        beyond_the_depth(lab, |qp| lab.send(qp, &mut wr(1, IBV_WR_SEND, &mut lab.sge(0, 8))))
    }),
    ("ibv_post_recv", "in RESET", INVALID, |lab| received(lab, IBV_QPS_RESET, 1)),
    ("ibv_post_recv", "in INIT", DONE, |lab| received(lab, IBV_QPS_INIT, 1)),
    ("ibv_post_recv", "in ERR", DONE, |lab| received(lab, IBV_QPS_ERR, 1)),
    ("ibv_post_recv", "without elements", DONE, |lab| received(lab, IBV_QPS_INIT, 0)),
    ("ibv_post_recv", "more elements than asked for", INVALID, |lab| {
        received(lab, IBV_QPS_INIT, 3)
    }),
    ("ibv_post_recv", "more elements than any request has", INVALID, |lab| {
        received(lab, IBV_QPS_INIT, 17)
    }),
    ("ibv_post_recv", "fewer elements than none", INVALID, |lab| received(lab, IBV_QPS_INIT, -1)),
    ("ibv_post_recv", "more than the queue has room for", NO_ROOM, |lab| {
        beyond_the_depth(lab, |qp| lab.recv(qp, 1, &mut lab.sge(0, 8)))
    }),
    ("ibv_post_recv", "there is an SRQ", INVALID, |lab| {
        let srq = lab.srq();
        let mut init = ibv_qp_init_attr { srq, ..lab.init() };
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        to_init(qp);
        let refused = lab.recv(qp, 1, &mut lab.sge(0, 8));
        destroy(qp);
        assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
        refused.into()
    }),
    ("ibv_post_srq_recv", "as many as it has room for", DONE, |lab| shared(lab, 16, 1)),
    ("ibv_post_srq_recv", "and no more", NO_ROOM, |lab| shared(lab, 17, 1)),
    ("ibv_post_srq_recv", "more elements than asked for", INVALID, |lab| shared(lab, 1, 2)),
    ("ibv_post_srq_recv", "fewer elements than none", INVALID, |lab| shared(lab, 1, -1)),
    ("ibv_wr_post", "more elements than asked for", INVALID, |lab| {
        completed(lab, |lab, ex| {
            send(ex);
            send(ex);
            let sges = [lab.sge(0, 1); 3];
            unsafe { (*ex).wr_set_sge_list.unwrap()(ex, 3, sges.as_ptr()) }
        })
    }),
    ("ibv_wr_post", "more inline data than asked for", INVALID, |lab| {
        completed(lab, |lab, ex| {
            send(ex);
            send(ex);
            unsafe { (*ex).wr_set_inline_data.unwrap()(ex, lab.memory.cast(), 65) }
        })
    }),
    ("ibv_wr_post", "more than the queue has room for", NO_ROOM, |lab| {
        completed(lab, |lab, ex| (0..=lab.init().cap.max_send_wr).for_each(|_| send(ex)))
    }),
    ("ibv_poll_cq", "none", DONE, |lab| polled(lab, 0)),
    ("ibv_poll_cq", "fewer than none", DONE, |lab| polled(lab, -1)),
    ("ibv_poll_cq", "no queue", [-1; 2], |lab| {
        let mut wc = ibv_wc::default();
        unsafe { lab.ops().poll_cq.unwrap()(null_mut(), 1, &mut wc) }.into()
    }),
];
