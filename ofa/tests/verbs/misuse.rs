//! Refused calls: their error numbers, and that they change nothing.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::cq::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::query::*;
use ofa::verbs::srq::*;

use crate::lab::*;

#[test]
fn queue_pairs_that_cannot_be() {
    let (lab, other) = (Lab::new(), Lab::new());
    let huge = |change: fn(&mut ibv_qp_cap)| {
        let mut init = lab.init();
        change(&mut init.cap);
        init
    };
    for (mut init, expected) in [
        (ibv_qp_init_attr { qp_type: IBV_QPT_UD, ..lab.init() }, libc::EOPNOTSUPP),
        (ibv_qp_init_attr { qp_type: 8, ..lab.init() }, libc::EOPNOTSUPP),
        (ibv_qp_init_attr { send_cq: null_mut(), ..lab.init() }, libc::EINVAL),
        (ibv_qp_init_attr { recv_cq: null_mut(), ..lab.init() }, libc::EINVAL),
        (ibv_qp_init_attr { recv_cq: other.cq, ..lab.init() }, libc::EINVAL),
        (huge(|cap| cap.max_send_wr = u32::MAX), libc::EINVAL),
        (huge(|cap| cap.max_recv_sge = 1000), libc::EINVAL),
        (huge(|cap| cap.max_inline_data = 1 << 20), libc::EINVAL),
    ] {
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        assert_eq!((qp.is_null(), errno()), (true, expected));
    }
    // The maximum and zero are allowed.
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
fn changes_of_state_that_cannot_be() {
    let lab = Lab::new();
    let qp = lab.qp();
    let gid = lab.gid();
    assert_eq!(modify(qp, &mut rtr(gid, 7), RTR), libc::EINVAL);
    assert_eq!(modify(qp, &mut rts(), RTS), libc::EINVAL);
    let mut init = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 2, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut init, INIT), libc::EINVAL, "there is one port");
    init.port_num = 1;
    init.pkey_index = 1;
    assert_eq!(modify(qp, &mut init, INIT), libc::EINVAL, "there is one P_Key");
    assert_eq!(state(qp), IBV_QPS_RESET);
    to_init(qp);
    assert_eq!(state(qp), IBV_QPS_INIT);
    assert_eq!(modify(qp, &mut rtr(gid, 7), RTR & !IBV_QP_DEST_QPN), libc::EINVAL);
    let mut many = ibv_qp_attr { max_dest_rd_atomic: 255, ..rtr(gid, 7) };
    assert_eq!(modify(qp, &mut many, RTR), libc::EINVAL);
    let mut nowhere = rtr(gid, 7);
    (nowhere.ah_attr.is_global, nowhere.ah_attr.dlid) = (0, 1);
    assert_eq!(modify(qp, &mut nowhere, RTR), libc::EINVAL, "no port has this LID");
    assert_eq!(state(qp), IBV_QPS_INIT);
    let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    assert_eq!(state(qp), IBV_QPS_ERR);
    // Requests posted in ERR are flushed.
    assert_eq!(lab.recv(qp, 3, &mut lab.sge(0, 8)), 0);
    let wc = lab.completion();
    assert_eq!((wc.wr_id, wc.status), (3, IBV_WC_WR_FLUSH_ERR));
    reset(qp);
    to_init(qp);
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

#[test]
fn regions_that_cannot_be() {
    let lab = Lab::new();
    let at = lab.memory.cast();
    for (addr, access, expected) in [
        (at, IBV_ACCESS_REMOTE_WRITE, libc::EINVAL),
        (at, 1 << 12, libc::EINVAL),
        (null_mut(), IBV_ACCESS_LOCAL_WRITE, libc::EINVAL),
        (std::ptr::without_provenance_mut(64), IBV_ACCESS_LOCAL_WRITE, libc::EFAULT),
    ] {
        let mr = unsafe { warpline_ibv_reg_mr(lab.pd, addr, 64, access as i32) };
        assert_eq!((mr.is_null(), errno()), (true, expected));
    }
    assert_eq!(unsafe { warpline_ibv_dereg_mr(null_mut()) }, libc::EINVAL);
}

#[test]
fn completion_queues_that_cannot_be() {
    let lab = Lab::new();
    for (depth, vector) in [(0, 0), (-1, 0), (i32::MAX, 0), (16, 1)] {
        let cq =
            unsafe { warpline_ibv_create_cq(lab.context, depth, null_mut(), null_mut(), vector) };
        assert_eq!((cq.is_null(), errno()), (true, libc::EINVAL), "{depth} {vector}");
    }
    assert_eq!(unsafe { warpline_ibv_resize_cq(lab.cq, 0) }, libc::EINVAL);
    assert_eq!(unsafe { warpline_ibv_resize_cq(lab.cq, 512) }, 0);
    assert!(unsafe { (*lab.cq).cqe } >= 512);
    let mut gid = ibv_gid::default();
    let mut attr = unsafe { std::mem::zeroed::<ibv_port_attr>() };
    unsafe {
        assert_eq!(warpline_ibv_query_gid(lab.context, 1, 2, &mut gid), -1);
        assert_eq!(warpline_ibv_query_port(lab.context, 2, &mut attr), libc::EINVAL);
    }
}

/// A call that must be refused, its description, and its error number.
type Row = (&'static str, i32, fn(&Lab) -> i32);

/// The error number of a call that returns NULL when it is refused.
fn none<T>(made: *mut T) -> i32 {
    if made.is_null() { errno() } else { 0 }
}

/// The same of a call that returns -1.
fn minus(result: i32) -> i32 {
    if result == -1 { errno() } else { 0 }
}

fn srq_of(lab: &Lab, max_wr: u32, max_sge: u32) -> *mut ibv_srq {
    let attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    unsafe { warpline_ibv_create_srq(lab.pd, &mut init) }
}

fn limit(lab: &Lab, srq_limit: u32, mask: i32) -> i32 {
    let srq = srq_of(lab, 4, 1);
    let mut attr = ibv_srq_attr { max_wr: u32::MAX, max_sge: 0, srq_limit };
    let refused = unsafe { warpline_ibv_modify_srq(srq, &mut attr, mask) };
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    refused
}

fn extended(lab: &Lab, change: fn(&mut ibv_qp_init_attr_ex)) -> i32 {
    let plain = lab.init();
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.cap, attr.qp_type) =
        (plain.send_cq, plain.recv_cq, plain.cap, plain.qp_type);
    (attr.comp_mask, attr.pd) = (IBV_QP_INIT_ATTR_PD, lab.pd);
    change(&mut attr);
    none(unsafe {
        crate::extended::front(lab.context).create_qp_ex.unwrap()(lab.context, &mut attr)
    })
}

fn queue(lab: &Lab, change: fn(&mut ibv_cq_init_attr_ex)) -> i32 {
    let mut attr: ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.cqe = 4;
    change(&mut attr);
    none(unsafe {
        crate::extended::front(lab.context).create_cq_ex.unwrap()(lab.context, &mut attr)
    })
}

fn rereg(lab: &Lab, flags: i32, access: u32) -> i32 {
    let (at, pd) = (lab.memory.cast(), lab.pd);
    unsafe { warpline_ibv_rereg_mr(lab.mr, flags, pd, at, ROOM, access as i32) }
}

fn bind(lab: &Lab, kind: u32) -> i32 {
    let (qp, ops) = (lab.qp(), lab.ops());
    let mw = unsafe { ops.alloc_mw.unwrap()(lab.pd, kind) };
    let bind_info = ibv_mw_bind_info {
        mr: lab.mr,
        addr: lab.at(0),
        length: 8,
        mw_access_flags: IBV_ACCESS_REMOTE_READ,
    };
    let mut bind = ibv_mw_bind { wr_id: 1, send_flags: 0, bind_info };
    let refused = unsafe { ops.bind_mw.unwrap()(qp, mw, &mut bind) };
    assert_eq!(unsafe { ops.dealloc_mw.unwrap()(mw) }, 0);
    destroy(qp);
    refused
}

#[test]
fn refusals_and_their_errno() {
    let rows: &[Row] = &[
        ("an SRQ deeper than the device's", libc::EINVAL, |lab| none(srq_of(lab, u32::MAX, 1))),
        ("an SRQ with too many elements", libc::EINVAL, |lab| none(srq_of(lab, 1, 1000))),
        ("a limit above the depth", libc::EINVAL, |lab| limit(lab, 5, IBV_SRQ_LIMIT)),
        ("a depth above the device's", libc::EINVAL, |lab| limit(lab, 0, IBV_SRQ_MAX_WR)),
        ("no attribute of an SRQ", libc::EINVAL, |lab| limit(lab, 0, 4)),
        ("a queue pair without a domain", libc::EINVAL, |lab| {
            extended(lab, |attr| attr.comp_mask = 0)
        }),
        ("a queue pair of attributes to come", libc::EOPNOTSUPP, |lab| {
            extended(lab, |attr| attr.comp_mask |= 1 << 20)
        }),
        ("creation flags", libc::EOPNOTSUPP, |lab| {
            extended(lab, |attr| {
                attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
                attr.create_flags = 1 << 1;
            })
        }),
        ("operations of datagrams", libc::EOPNOTSUPP, |lab| {
            extended(lab, |attr| {
                attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
                // TSO.
                attr.send_ops_flags = 1 << 10;
            })
        }),
        ("a queue without entries", libc::EINVAL, |lab| queue(lab, |attr| attr.cqe = 0)),
        ("completions that tell of VLANs", libc::EOPNOTSUPP, |lab| {
            queue(lab, |attr| attr.wc_flags = 1 << 9)
        }),
        ("a queue's attributes to come", libc::EOPNOTSUPP, |lab| {
            queue(lab, |attr| attr.comp_mask = 1 << 20)
        }),
        ("a region is changed in nothing", IBV_REREG_MR_ERR_INPUT, |lab| rereg(lab, 0, 0)),
        ("a region is changed in what there is not", IBV_REREG_MR_ERR_INPUT, |lab| {
            rereg(lab, 1 << 5, 0)
        }),
        ("a region's rights do not go together", IBV_REREG_MR_ERR_INPUT, |lab| {
            rereg(lab, IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_WRITE)
        }),
        ("a window of no type", libc::EINVAL, |lab| {
            none(unsafe { lab.ops().alloc_mw.unwrap()(lab.pd, 9) })
        }),
        ("a window of type 2 is bound by a call", libc::EINVAL, |lab| bind(lab, IBV_MW_TYPE_2)),
        ("an extended queue pair that is none", libc::EOPNOTSUPP, |lab| {
            let qp = lab.qp();
            let refused = none(unsafe { warpline_ibv_qp_to_qp_ex(qp) });
            destroy(qp);
            refused
        }),
        ("a P_Key that is not there", libc::EINVAL, |lab| {
            minus(unsafe { warpline_ibv_query_pkey(lab.context, 1, 1, &mut 0) })
        }),
        ("the index of a P_Key that is not there", libc::EINVAL, |lab| {
            minus(unsafe { warpline_ibv_get_pkey_index(lab.context, 1, 7) })
        }),
        ("a NULL queue pair", libc::EINVAL, |_| unsafe { warpline_ibv_destroy_qp(null_mut()) }),
        ("a NULL queue", libc::EINVAL, |_| unsafe { warpline_ibv_destroy_cq(null_mut()) }),
        ("a NULL domain", libc::EINVAL, |_| unsafe { warpline_ibv_dealloc_pd(null_mut()) }),
        ("a NULL SRQ", libc::EINVAL, |_| unsafe { warpline_ibv_destroy_srq(null_mut()) }),
        ("NULL attributes", libc::EINVAL, |lab| {
            none(unsafe { warpline_ibv_create_qp(lab.pd, null_mut()) })
        }),
    ];
    let lab = Lab::new();
    for (what, expected, call) in rows {
        assert_eq!(call(&lab), *expected, "{what}");
    }
}
