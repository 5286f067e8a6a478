//! Rows of completion queues, their channels, and shared receive queues.

use std::ptr::null_mut;

use ofa::verbs::channel::*;
use ofa::verbs::cq::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use super::*;
use crate::extended::front;

fn cq(lab: &Lab, depth: i32, vector: i32) -> i64 {
    none(unsafe { warpline_ibv_create_cq(lab.context, depth, null_mut(), null_mut(), vector) })
}

fn cq_ex(lab: &Lab, change: fn(&mut ibv_cq_init_attr_ex)) -> i64 {
    let mut attr: ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.cqe = 4;
    change(&mut attr);
    none(unsafe { front(lab.context).create_cq_ex.unwrap()(lab.context, &mut attr) })
}

fn resized(lab: &Lab, depth: i32) -> i64 {
    unsafe { warpline_ibv_resize_cq(lab.cq, depth) }.into()
}

fn with_qp(lab: &Lab, call: impl FnOnce() -> i32) -> i64 {
    let qp = lab.qp();
    let result = call();
    destroy(qp);
    result.into()
}

fn srq(lab: &Lab, max_wr: u32, max_sge: u32) -> *mut ibv_srq {
    let attr = ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    unsafe { warpline_ibv_create_srq(lab.pd, &mut init) }
}

fn srq_ex(lab: &Lab, comp_mask: u32, srq_type: u32) -> i64 {
    let mut attr: ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.attr.max_wr, attr.attr.max_sge, attr.pd) = (4, 1, lab.pd);
    (attr.comp_mask, attr.srq_type) = (comp_mask, srq_type);
    none(unsafe { front(lab.context).create_srq_ex.unwrap()(lab.context, &mut attr) })
}

/// Changes a queue of 4.
fn modified(lab: &Lab, max_wr: u32, srq_limit: u32, mask: i32) -> i64 {
    let srq = srq(lab, 4, 1);
    let mut attr = ibv_srq_attr { max_wr, max_sge: 0, srq_limit };
    let refused = unsafe { warpline_ibv_modify_srq(srq, &mut attr, mask) };
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    refused.into()
}

pub(super) const ROWS: &[Row] = &[
    ("ibv_create_cq", "no entries", INVALID, |lab| cq(lab, 0, 0)),
    ("ibv_create_cq", "fewer than none", INVALID, |lab| cq(lab, -1, 0)),
    ("ibv_create_cq", "more than the device's", INVALID, |lab| cq(lab, i32::MAX, 0)),
    ("ibv_create_cq", "a vector that there is not", INVALID, |lab| cq(lab, 4, 1)),
    ("ibv_create_cq", "a vector below 0", INVALID, |lab| cq(lab, 4, -1)),
    ("ibv_create_cq_ex", "no entries", INVALID, |lab| cq_ex(lab, |attr| attr.cqe = 0)),
    ("ibv_create_cq_ex", "more than the device's", INVALID, |lab| {
        cq_ex(lab, |attr| attr.cqe = u32::MAX)
    }),
    ("ibv_create_cq_ex", "completions that tell of VLANs", UNSUPPORTED, |lab| {
        cq_ex(lab, |attr| attr.wc_flags = 1 << 9)
    }),
    ("ibv_create_cq_ex", "attributes to come", UNSUPPORTED, |lab| {
        cq_ex(lab, |attr| attr.comp_mask = 1 << 20)
    }),
    ("ibv_create_cq_ex", "flags to come", UNSUPPORTED, |lab| {
        cq_ex(lab, |attr| (attr.comp_mask, attr.flags) = (IBV_CQ_INIT_ATTR_MASK_FLAGS, 1 << 20))
    }),
    ("ibv_resize_cq", "no entries", INVALID, |lab| resized(lab, 0)),
    ("ibv_resize_cq", "fewer than none", INVALID, |lab| resized(lab, -1)),
    ("ibv_resize_cq", "more than the device's", INVALID, |lab| resized(lab, i32::MAX)),
    ("ibv_resize_cq", "as many as wanted", DONE, |lab| resized(lab, 512)),
    ("ibv_destroy_cq", "no queue", INVALID, |_| {
        unsafe { warpline_ibv_destroy_cq(null_mut()) }.into()
    }),
    ("ibv_destroy_cq", "a queue pair uses it", BUSY, |lab| {
        with_qp(lab, || unsafe { warpline_ibv_destroy_cq(lab.cq) })
    }),
    ("ibv_destroy_comp_channel", "a queue uses it", BUSY, |lab| {
        unsafe { warpline_ibv_destroy_comp_channel(lab.channel) }.into()
    }),
    ("ibv_req_notify_cq", "without a channel nobody is notified", DONE, |lab| {
        let cq = unsafe { warpline_ibv_create_cq(lab.context, 1, null_mut(), null_mut(), 0) };
        let result = unsafe { lab.ops().req_notify_cq.unwrap()(cq, 0) };
        assert_eq!(unsafe { warpline_ibv_destroy_cq(cq) }, 0);
        result.into()
    }),
    ("ibv_create_srq", "no requests", INVALID, |lab| none(srq(lab, 0, 1))),
    ("ibv_create_srq", "more than the device's", INVALID, |lab| none(srq(lab, u32::MAX, 1))),
    ("ibv_create_srq", "too many elements", INVALID, |lab| none(srq(lab, 1, 1000))),
    ("ibv_create_srq_ex", "of extended connections", UNSUPPORTED, |lab| {
        srq_ex(lab, IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD, 1)
    }),
    ("ibv_create_srq_ex", "without a domain", INVALID, |lab| srq_ex(lab, 0, IBV_SRQT_BASIC)),
    ("ibv_modify_srq", "a limit above the depth", INVALID, |lab| {
        modified(lab, 0, 5, IBV_SRQ_LIMIT)
    }),
    ("ibv_modify_srq", "deeper than the device's", INVALID, |lab| {
        modified(lab, u32::MAX, 0, IBV_SRQ_MAX_WR)
    }),
    ("ibv_modify_srq", "deeper, as announced", DONE, |lab| modified(lab, 64, 0, IBV_SRQ_MAX_WR)),
    ("ibv_modify_srq", "no attribute of it", INVALID, |lab| modified(lab, 0, 0, 4)),
    ("ibv_destroy_srq", "no queue", INVALID, |_| {
        unsafe { warpline_ibv_destroy_srq(null_mut()) }.into()
    }),
    ("ibv_destroy_srq", "a queue pair uses it", BUSY, |lab| {
        let srq = srq(lab, 1, 1);
        let mut init = ibv_qp_init_attr { srq, ..lab.init() };
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        let result = unsafe { warpline_ibv_destroy_srq(srq) };
        destroy(qp);
        assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
        result.into()
    }),
];
