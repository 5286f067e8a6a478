//! Refused calls: their error numbers, and that they change nothing.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::cq::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::query::*;

use crate::lab::*;

#[test]
fn queue_pairs_may_have_all_that_the_device_has_or_nothing() {
    let lab = Lab::new();
    let mut attr = unsafe { std::mem::zeroed::<ibv_device_attr>() };
    assert_eq!(unsafe { warpline_ibv_query_device(lab.context, &mut attr) }, 0);
    let most = ibv_qp_cap {
        max_send_wr: attr.max_qp_wr as u32,
        max_recv_wr: attr.max_qp_wr as u32,
        max_send_sge: attr.max_sge as u32,
        max_recv_sge: attr.max_sge as u32,
        max_inline_data: 0,
    };
    for cap in [most, ibv_qp_cap::default()] {
        let mut init = ibv_qp_init_attr { cap, ..lab.init() };
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        assert!(!qp.is_null());
        destroy(qp);
    }
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let lab = Lab::new();
    let qp = lab.qp();
    unsafe {
        assert_eq!(warpline_ibv_destroy_cq(lab.cq), libc::EBUSY);
        assert_eq!(warpline_ibv_dealloc_pd(lab.pd), libc::EBUSY);
        let channel = ofa::verbs::channel::warpline_ibv_destroy_comp_channel(lab.channel);
        assert_eq!(channel, libc::EBUSY);
    }
    destroy(qp);
}

#[test]
fn a_queue_pair_is_used_again_after_a_reset() {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    for turn in 0..3 {
        meet_and_send(&near, &far, (a, b), turn);
        reset(a);
        reset(b);
    }
    destroy(a);
    destroy(b);
}

#[test]
fn posts_that_cannot_be_name_the_request() {
    let lab = Lab::new();
    let qp = lab.qp();
    let post = lab.ops().post_send.unwrap();
    let refused = |list: &mut ibv_send_wr| {
        let mut bad = null_mut();
        let code = unsafe { post(qp, list, &mut bad) };
        (code, bad)
    };
    let mut sge = lab.sge(0, 8);
    let mut send = wr(1, IBV_WR_SEND, &mut sge);
    let at: *mut ibv_send_wr = &mut send;
    assert_eq!(refused(&mut send), (libc::EINVAL, at), "in RESET");
    assert_eq!(lab.recv(qp, 1, &mut sge), libc::EINVAL, "in RESET");
    to_init(qp);
    assert_eq!(refused(&mut send), (libc::EINVAL, at), "in INIT");
    let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    // The second of three has more elements than the queue pair takes.
    let mut sges = [sge; 3];
    let mut last = wr(4, IBV_WR_SEND, &mut sge);
    let mut wrong = wr(3, IBV_WR_SEND, &mut sges[0]);
    (wrong.sg_list, wrong.num_sge, wrong.next) = (sges.as_mut_ptr(), 3, &mut last);
    let mut first = wr(2, IBV_WR_SEND, &mut sge);
    first.next = &mut wrong;
    let at: *mut ibv_send_wr = &mut wrong;
    assert_eq!(refused(&mut first), (libc::EINVAL, at));
    assert_eq!(lab.completion().wr_id, 2);
    assert_eq!(refused(&mut wr(5, 99, &mut sge)).0, libc::EINVAL);
    // As many as its depth.
    let depth = lab.init().cap.max_recv_wr as u64;
    for n in 0..depth {
        assert_eq!(lab.recv(qp, n, &mut sge), 0);
    }
    assert_eq!(lab.recv(qp, depth, &mut sge), libc::ENOMEM);
    (0..depth).for_each(|n| assert_eq!(lab.completion().wr_id, n));
    destroy(qp);
}
