//! Results and errors that the man pages of libibverbs specify, page by page, as far as no other file here
//! tests them.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::cq::*;
use ofa::verbs::mr::*;
use ofa::verbs::qp::*;
use ofa::verbs::query::*;
use ofa::verbs::rates::*;

use crate::extended::{front, queue, walk};
use crate::lab::*;
use crate::on_roce::on_both;

/// A queue pair in ERR, where what is posted is flushed at once.
fn extended(lab: &Lab) -> (*mut ibv_qp, *mut ibv_qp_ex) {
    let plain = lab.init();
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.cap, attr.qp_type) =
        (plain.send_cq, plain.recv_cq, plain.cap, plain.qp_type);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    (attr.pd, attr.send_ops_flags) = (lab.pd, IBV_QP_EX_WITH_ALL_RC);
    let create = front(lab.context).create_qp_ex.unwrap();
    let qp = unsafe { create(lab.context, &mut attr) };
    let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    let ex = unsafe { warpline_ibv_qp_to_qp_ex(qp) };
    unsafe { (*ex).wr_flags = IBV_SEND_SIGNALED };
    (qp, ex)
}

fn list(ex: *mut ibv_qp_ex, build: impl FnOnce()) -> i32 {
    unsafe { (*ex).wr_start.unwrap()(ex) };
    build();
    unsafe { (*ex).wr_complete.unwrap()(ex) }
}

fn send(ex: *mut ibv_qp_ex) {
    unsafe { (*ex).wr_send.unwrap()(ex) }
}

#[test]
fn rates_are_multiples_of_the_slowest() {
    // Of 28, 1,200 and 400 Gbit/s.
    assert_eq!((warpline_ibv_rate_to_mult(19), warpline_ibv_rate_to_mult(24)), (11, 480));
    assert_eq!(warpline_mult_to_ibv_rate(160), 21);
}

/// ibv_rereg_mr(3): the region must not be used, but ibv_dereg_mr must still be called. Another region may have
/// its key by then.
#[test]
fn a_region_whose_change_failed_is_only_deregistered() {
    let lab = Lab::new();
    let at = lab.memory.cast();
    let all = ALL;
    let failed = unsafe { warpline_ibv_reg_mr(lab.pd, at, 64, all) };
    let nowhere = std::ptr::without_provenance_mut(64);
    let change = IBV_REREG_MR_CHANGE_TRANSLATION;
    let rereg = || unsafe { warpline_ibv_rereg_mr(failed, change, null_mut(), nowhere, 64, 0) };
    assert_eq!((rereg(), errno()), (IBV_REREG_MR_ERR_CMD, libc::EFAULT));
    assert_eq!((rereg(), errno()), (IBV_REREG_MR_ERR_CMD, libc::EINVAL));
    let others: Vec<_> =
        (0..8).map(|_| unsafe { warpline_ibv_reg_mr(lab.pd, at, 64, all) }).collect();
    assert_eq!(unsafe { warpline_ibv_dereg_mr(failed) }, 0);
    for other in others {
        assert_eq!(unsafe { warpline_ibv_dereg_mr(other) }, 0);
    }
}

/// ibv_query_rt_values_ex(3): the clock by which completions have their time stamps, in ticks.
fn clock(lab: &Lab) -> u64 {
    let mut values =
        ibv_values_ex { comp_mask: IBV_VALUES_MASK_RAW_CLOCK, raw_clock: [u64::MAX, 0] };
    let query = front(lab.context).query_rt_values.unwrap();
    assert_eq!(unsafe { query(lab.context, &mut values) }, 0);
    assert_eq!((values.comp_mask, values.raw_clock[0]), (IBV_VALUES_MASK_RAW_CLOCK, 0));
    values.raw_clock[1]
}

#[test]
fn completions_have_their_times_by_the_clock_that_the_device_tells() {
    on_both("man_pages::completions_have_their_times_by_the_clock_that_the_device_tells", || {
        let lab = Lab::new();
        let cq = queue(lab.context, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
        let mut init = ibv_qp_init_attr { recv_cq: cq.cast(), ..lab.init() };
        let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
        let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
        let before = clock(&lab);
        assert_eq!(lab.recv(qp, 1, &mut lab.sge(0, 8)), 0);
        walk(cq);
        let f = unsafe { &*cq };
        let time = unsafe { f.read_completion_ts.unwrap()(cq) };
        unsafe { f.end_poll.unwrap()(cq) };
        assert!((before..=clock(&lab)).contains(&time), "{before} {time}");
        // A value that there is not.
        let mut values = ibv_values_ex { comp_mask: 1 << 1, raw_clock: [0; 2] };
        let query = front(lab.context).query_rt_values.unwrap();
        assert_eq!(unsafe { query(lab.context, &mut values) }, libc::EINVAL);
        destroy(qp);
        assert_eq!(unsafe { warpline_ibv_destroy_cq(cq.cast()) }, 0);
    });
}

/// ibv_create_cq_ex(3): a time stamp belongs to the completion, however often it is read.
#[test]
fn a_completion_has_one_time() {
    let lab = Lab::new();
    let mut attr: ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.cqe = 4;
    attr.wc_flags =
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    let create = front(lab.context).create_cq_ex.unwrap();
    let cq = unsafe { create(lab.context, &mut attr) };
    let mut init = ibv_qp_init_attr { send_cq: cq.cast(), recv_cq: cq.cast(), ..lab.init() };
    let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
    let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    (0..2).for_each(|n| assert_eq!(lab.recv(qp, n, &mut lab.sge(0, 8)), 0));
    let f = unsafe { &*cq };
    let times = || unsafe {
        (f.read_completion_ts.unwrap()(cq), f.read_completion_wallclock_ns.unwrap()(cq))
    };
    assert_eq!(unsafe { f.start_poll.unwrap()(cq, null_mut()) }, 0);
    let first = times();
    assert_eq!(times(), first);
    assert_eq!(unsafe { f.next_poll.unwrap()(cq) }, 0);
    let second = times();
    assert!(second.0 >= first.0 && second.1 > 0, "{first:?} {second:?}");
    assert_eq!(times(), second);
    unsafe { f.end_poll.unwrap()(cq) };
    let mut known: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    let query = front(lab.context).query_device_ex.unwrap();
    let size = size_of::<ibv_device_attr_ex>();
    assert_eq!(unsafe { query(lab.context, null_mut(), &mut known, size) }, 0);
    assert!(known.completion_timestamp_mask != 0 && known.hca_core_clock == 1_000_000);
    destroy(qp);
    assert_eq!(unsafe { warpline_ibv_destroy_cq(cq.cast()) }, 0);
}

/// ibv_query_gid_ex(3): the interface that has the address.
#[test]
fn a_gid_names_its_interface() {
    let lab = Lab::new();
    let mut entry: ibv_gid_entry = unsafe { std::mem::zeroed() };
    let size = size_of::<ibv_gid_entry>();
    let got = unsafe { warpline__ibv_query_gid_ex(lab.context, 1, 1, &mut entry, 0, size) };
    assert_eq!((got, entry.gid.raw), (0, lab.gid().raw));
    let named = std::fs::read_dir("/sys/class/net").unwrap().any(|interface| {
        let index = std::fs::read_to_string(interface.unwrap().path().join("ifindex"));
        index.is_ok_and(|text| text.trim() == entry.ndev_ifindex.to_string())
    });
    assert!(named, "{}", entry.ndev_ifindex);
}

// ibv_wr_post(3): if a list cannot be posted, nothing of it is.
#[test]
fn a_list_is_posted_as_a_whole_or_not_at_all() {
    let lab = Lab::new();
    let (qp, ex) = extended(&lab);
    let post = |count| list(ex, || (0..count).for_each(|_| send(ex)));
    let depth = lab.init().cap.max_send_wr;
    assert_eq!(post(depth - 1), 0);
    // The slots are occupied until their completions are polled.
    assert_eq!((post(2), post(1), post(1)), (libc::ENOMEM, 0, libc::ENOMEM));
    for _ in 0..depth {
        assert_eq!(lab.completion().status, IBV_WC_WR_FLUSH_ERR);
    }
    assert!(lab.poll().is_none());
    assert_eq!(post(depth), 0);
    destroy(qp);
}
