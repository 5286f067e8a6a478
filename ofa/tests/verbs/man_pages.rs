//! Results and errors that the man pages of libibverbs specify, page by page, as far as no other file here
//! tests them.

use std::ptr::null_mut;

use ibv_sys::*;
use ofa::verbs::async_event::warpline_ibv_get_async_event;
use ofa::verbs::channel::*;
use ofa::verbs::cq::*;
use ofa::verbs::device::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::query::*;
use ofa::verbs::rates::*;
use ofa::verbs::srq::*;

use crate::extended::{front, queue, walk};
use crate::lab::*;
use crate::on_roce::on_both;

/// The page, what it says, the result expected, and the call.
type Row = (&'static str, &'static str, i64, fn(&Lab) -> i64);

const INVALID: i64 = libc::EINVAL as i64;
const UNSUPPORTED: i64 = libc::EOPNOTSUPP as i64;
const BUSY: i64 = libc::EBUSY as i64;
const NO_ROOM: i64 = libc::ENOMEM as i64;
const AGAIN: i64 = libc::EAGAIN as i64;
const INPUT: i64 = IBV_REREG_MR_ERR_INPUT as i64;

/// The error number of a call that returns NULL when it is refused.
fn none<T>(made: *mut T) -> i64 {
    if made.is_null() { errno().into() } else { 0 }
}

fn registered(lab: &Lab, length: usize, access: u32) -> i64 {
    none(unsafe { warpline_ibv_reg_mr(lab.pd, lab.memory.cast(), length, access as i32) })
}

/// Changes the lab's region, at most to its present attributes.
fn changed(lab: &Lab, flags: i32, pd: *mut ibv_pd, length: usize, access: i32) -> i64 {
    unsafe { warpline_ibv_rereg_mr(lab.mr, flags, pd, lab.memory.cast(), length, access) }.into()
}

fn with_srq(lab: &Lab, qp_type: u32, call: impl FnOnce(*mut ibv_qp) -> i64) -> i64 {
    let attr = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    let srq = unsafe { warpline_ibv_create_srq(lab.pd, &mut init) };
    let mut init = ibv_qp_init_attr { qp_type, srq, ..lab.init() };
    let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
    let result = if qp.is_null() { errno().into() } else { call(qp) };
    if !qp.is_null() {
        destroy(qp);
    }
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    result
}

fn bound(lab: &Lab) -> i64 {
    let (qp, ops) = (lab.qp(), lab.ops());
    let mw = unsafe { ops.alloc_mw.unwrap()(lab.pd, IBV_MW_TYPE_1) };
    let bind_info = ibv_mw_bind_info { mr: lab.mr, addr: lab.at(0), length: 8, mw_access_flags: 0 };
    let mut bind = ibv_mw_bind { wr_id: 1, send_flags: 0, bind_info };
    let refused = unsafe { ops.bind_mw.unwrap()(qp, mw, &mut bind) };
    assert_eq!(unsafe { ops.dealloc_mw.unwrap()(mw) }, 0);
    destroy(qp);
    refused.into()
}

/// The result of freeing a domain in which there is what `make` returns and `free` frees.
fn busy<T: Copy>(lab: &Lab, make: impl Fn(*mut ibv_pd) -> T, free: impl Fn(T) -> i32) -> i64 {
    let pd = unsafe { warpline_ibv_alloc_pd(lab.context) };
    let inside = make(pd);
    let result = unsafe { warpline_ibv_dealloc_pd(pd) };
    assert_eq!(free(inside), 0);
    assert_eq!(unsafe { warpline_ibv_dealloc_pd(pd) }, 0);
    result.into()
}

fn small_srq(pd: *mut ibv_pd) -> *mut ibv_srq {
    let attr = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
    let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
    unsafe { warpline_ibv_create_srq(pd, &mut init) }
}

/// The result of the last of `posts` to an SRQ, with so many elements each; it must name the request.
fn posted_to_srq(lab: &Lab, posts: u32, elements: i32) -> i64 {
    let srq = small_srq(lab.pd);
    let post = lab.ops().post_srq_recv.unwrap();
    let mut sges = [lab.sge(0, 8); 2];
    let mut result = 0;
    for _ in 0..posts {
        let mut wr = ibv_recv_wr {
            wr_id: 1,
            next: null_mut(),
            sg_list: sges.as_mut_ptr(),
            num_sge: elements,
        };
        let (at, mut bad): (*mut ibv_recv_wr, _) = (&raw mut wr, null_mut());
        result = unsafe { post(srq, at, &mut bad) };
        assert_eq!(result != 0, bad == at);
    }
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    result.into()
}

/// The result of a call that returns -1, and its error number.
fn minus(result: i32) -> i64 {
    if result == -1 { errno().into() } else { 0 }
}

/// The same for a call that would wait for an event.
fn without_waiting(fd: i32, call: impl FnOnce() -> i32) -> i64 {
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) }, 0);
    minus(call())
}

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

/// The result of ibv_wr_complete for a list, of which nothing may have been posted.
fn completed(lab: &Lab, build: fn(&Lab, *mut ibv_qp_ex)) -> i64 {
    let (qp, ex) = extended(lab);
    let result = list(ex, || build(lab, ex));
    assert!(lab.poll().is_none());
    destroy(qp);
    result.into()
}

fn send(ex: *mut ibv_qp_ex) {
    unsafe { (*ex).wr_send.unwrap()(ex) }
}

const ROWS: &[Row] = &[
    ("ibv_close_device", "-1 on failure", -1, |_| {
        unsafe { warpline_ibv_close_device(null_mut()) }.into()
    }),
    ("ibv_reg_mr", "no region of no length", INVALID, |lab| registered(lab, 0, 0)),
    ("ibv_reg_mr", "a flag that there is not", INVALID, |lab| registered(lab, 8, 1 << 12)),
    ("ibv_reg_mr", "flags of persistent memory", UNSUPPORTED, |lab| registered(lab, 8, 1 << 8)),
    ("ibv_rereg_mr", "rights, but not to change them", INPUT, |lab| {
        changed(lab, IBV_REREG_MR_CHANGE_TRANSLATION, lab.pd, ROOM, ALL)
    }),
    ("ibv_rereg_mr", "no length", INPUT, |lab| {
        changed(lab, IBV_REREG_MR_CHANGE_TRANSLATION, lab.pd, 0, 0)
    }),
    ("ibv_rereg_mr", "another context's domain", INPUT, |lab| {
        let other = Lab::new();
        changed(lab, IBV_REREG_MR_CHANGE_PD, other.pd, ROOM, 0)
    }),
    ("ibv_bind_mw", "a post, and so not in RESET", INVALID, bound),
    ("ibv_create_qp", "no SRQ for an unreliable connection", INVALID, |lab| {
        with_srq(lab, IBV_QPT_UC, |_| 0)
    }),
    ("ibv_create_qp", "an SRQ for a reliable one", 0, |lab| with_srq(lab, IBV_QPT_RC, |_| 0)),
    ("ibv_destroy_srq", "not while a queue pair uses it", libc::EBUSY as i64, |lab| {
        with_srq(lab, IBV_QPT_RC, |qp| unsafe { warpline_ibv_destroy_srq((*qp).srq) }.into())
    }),
    ("ibv_create_qp", "deeper than the device's", INVALID, |lab| {
        let mut init = lab.init();
        init.cap.max_recv_wr = u32::MAX;
        none(unsafe { warpline_ibv_create_qp(lab.pd, &mut init) })
    }),
    ("ibv_post_recv", "not where there is an SRQ", INVALID, |lab| {
        with_srq(lab, IBV_QPT_RC, |qp| {
            to_init(qp);
            lab.recv(qp, 1, &mut lab.sge(0, 8)).into()
        })
    }),
    ("ibv_dealloc_pd", "not while it has an SRQ", BUSY, |lab| {
        busy(lab, small_srq, |srq| unsafe { warpline_ibv_destroy_srq(srq) })
    }),
    ("ibv_dealloc_pd", "not while it has a window", BUSY, |lab| {
        let make = |pd| unsafe { lab.ops().alloc_mw.unwrap()(pd, IBV_MW_TYPE_1) };
        busy(lab, make, |mw| unsafe { lab.ops().dealloc_mw.unwrap()(mw) })
    }),
    ("ibv_post_srq_recv", "as many as the queue has room for", 0, |lab| posted_to_srq(lab, 1, 1)),
    ("ibv_post_srq_recv", "and no more", NO_ROOM, |lab| posted_to_srq(lab, 2, 1)),
    ("ibv_post_srq_recv", "more elements than its requests have", INVALID, |lab| {
        posted_to_srq(lab, 1, 2)
    }),
    ("ibv_get_cq_event", "-1: no event, and it must not wait", AGAIN, |lab| {
        let (mut cq, mut context) = (null_mut(), null_mut());
        without_waiting(unsafe { (*lab.channel).fd }, || unsafe {
            warpline_ibv_get_cq_event(lab.channel, &mut cq, &mut context)
        })
    }),
    ("ibv_get_async_event", "-1: no event, and it must not wait", AGAIN, |lab| {
        let mut event = unsafe { std::mem::zeroed() };
        without_waiting(unsafe { (*lab.context).async_fd }, || unsafe {
            warpline_ibv_get_async_event(lab.context, &mut event)
        })
    }),
    ("ibv_req_notify_cq", "without a channel nobody is notified", 0, |lab| {
        let cq = unsafe { warpline_ibv_create_cq(lab.context, 1, null_mut(), null_mut(), 0) };
        let result = unsafe { lab.ops().req_notify_cq.unwrap()(cq, 0) };
        assert_eq!(unsafe { warpline_ibv_destroy_cq(cq) }, 0);
        result.into()
    }),
    ("ibv_query_gid", "-1: no such port", INVALID, |lab| {
        minus(unsafe { warpline_ibv_query_gid(lab.context, 2, 0, &mut ibv_gid::default()) })
    }),
    ("ibv_query_gid_ex", "no flags are defined", UNSUPPORTED, |lab| {
        let mut entry = unsafe { std::mem::zeroed() };
        let size = size_of::<ibv_gid_entry>();
        unsafe { warpline__ibv_query_gid_ex(lab.context, 1, 0, &mut entry, 1, size) }.into()
    }),
    ("ibv_modify_cq", "a call that the device has not", 1, |lab| {
        front(lab.context).modify_cq.is_none().into()
    }),
    ("ibv_wr_post", "more elements than were asked for", INVALID, |lab| {
        completed(lab, |lab, ex| {
            send(ex);
            send(ex);
            let sges = [lab.sge(0, 1); 3];
            unsafe { (*ex).wr_set_sge_list.unwrap()(ex, 3, sges.as_ptr()) }
        })
    }),
    ("ibv_wr_post", "more inline data than was asked for", INVALID, |lab| {
        completed(lab, |lab, ex| {
            send(ex);
            send(ex);
            unsafe { (*ex).wr_set_inline_data.unwrap()(ex, lab.memory.cast(), 65) }
        })
    }),
    ("ibv_wr_post", "a list longer than the queue", libc::ENOMEM as i64, |lab| {
        completed(lab, |lab, ex| (0..=lab.init().cap.max_send_wr).for_each(|_| send(ex)))
    }),
    ("ibv_query_gid_ex", "no entry of this index", INVALID, |lab| {
        let mut entry = unsafe { std::mem::zeroed() };
        let size = size_of::<ibv_gid_entry>();
        unsafe { warpline__ibv_query_gid_ex(lab.context, 1, 2, &mut entry, 0, size) }.into()
    }),
    ("ibv_query_gid_table", "negative error number: no room", -INVALID, |lab| {
        let mut entry: ibv_gid_entry = unsafe { std::mem::zeroed() };
        let size = size_of::<ibv_gid_entry>();
        unsafe { warpline__ibv_query_gid_table(lab.context, &mut entry, 1, 0, size) as i64 }
    }),
    ("ibv_get_pkey_index", "the index", 0, |lab| {
        unsafe { warpline_ibv_get_pkey_index(lab.context, 1, u16::MAX) }.into()
    }),
    ("ibv_rate_to_mult", "28 Gbit/s", 11, |_| warpline_ibv_rate_to_mult(19).into()),
    ("ibv_rate_to_mult", "1,200 Gbit/s", 480, |_| warpline_ibv_rate_to_mult(24).into()),
    ("mult_to_ibv_rate", "400 Gbit/s", 21, |_| warpline_mult_to_ibv_rate(160).into()),
];

#[test]
fn calls_return_what_their_manual_page_says() {
    let lab = Lab::new();
    for (page, what, expected, call) in ROWS {
        assert_eq!(call(&lab), *expected, "{page}(3): {what}");
    }
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
