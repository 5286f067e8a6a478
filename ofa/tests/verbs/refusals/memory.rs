//! Rows of protection domains, memory regions and windows.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};

use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use super::*;

const INPUT: [i64; 2] = [IBV_REREG_MR_ERR_INPUT as i64; 2];
const WRITE: u32 = IBV_ACCESS_LOCAL_WRITE;

fn registered(lab: &Lab, at: *mut c_void, length: usize, access: u32) -> i64 {
    let mr = unsafe { warpline_ibv_reg_mr(lab.pd, at, length, access as i32) };
    let refused = none(mr);
    if !mr.is_null() {
        assert_eq!(unsafe { warpline_ibv_dereg_mr(mr) }, 0);
    }
    refused
}

fn with_flags(lab: &Lab, access: u32) -> i64 {
    registered(lab, lab.memory.cast(), 64, access)
}

/// Four parts with these rights, of which the second may be missing.
fn parts(lab: &Lab, rights: i32, is_whole: bool, access: u32) -> i64 {
    const PART: usize = 1 << 16;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = unsafe { libc::mmap(null_mut(), 4 * PART, rights, flags, -1, 0) };
    let second = at.wrapping_byte_add(PART);
    if !is_whole {
        assert_eq!(unsafe { libc::munmap(second, PART) }, 0);
    }
    let refused = registered(lab, at, 4 * PART, access);
    // Another thread may have mapped something there.
    let rest = if is_whole { second } else { second.wrapping_byte_add(PART) };
    let octets = if is_whole { 3 * PART } else { 2 * PART };
    assert_eq!(unsafe { libc::munmap(at, PART) }, 0);
    assert_eq!(unsafe { libc::munmap(rest, octets) }, 0);
    refused
}

/// Changes the lab's region, at most to its present attributes.
fn changed(lab: &Lab, flags: i32, pd: *mut ibv_pd, length: usize, access: i32) -> i64 {
    unsafe { warpline_ibv_rereg_mr(lab.mr, flags, pd, lab.memory.cast(), length, access) }.into()
}

/// Binds a window of this type by a call, in RESET.
fn bound(lab: &Lab, kind: u32) -> i64 {
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
    refused.into()
}

/// Frees a domain in which there is what `make` returns and `free` frees.
fn freed<T: Copy>(lab: &Lab, make: impl Fn(*mut ibv_pd) -> T, free: impl Fn(T) -> i32) -> i64 {
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

pub(super) const ROWS: &[Row] = &[
    ("ibv_dealloc_pd", "no domain", INVALID, |_| {
        unsafe { warpline_ibv_dealloc_pd(null_mut()) }.into()
    }),
    ("ibv_dealloc_pd", "it has a queue pair", BUSY, |lab| {
        let make = |pd| unsafe { warpline_ibv_create_qp(pd, &mut lab.init()) };
        freed(lab, make, |qp| unsafe { warpline_ibv_destroy_qp(qp) })
    }),
    ("ibv_dealloc_pd", "it has an SRQ", BUSY, |lab| {
        freed(lab, small_srq, |srq| unsafe { warpline_ibv_destroy_srq(srq) })
    }),
    ("ibv_dealloc_pd", "it has a window", BUSY, |lab| {
        let make = |pd| unsafe { lab.ops().alloc_mw.unwrap()(pd, IBV_MW_TYPE_1) };
        freed(lab, make, |mw| unsafe { lab.ops().dealloc_mw.unwrap()(mw) })
    }),
    ("ibv_reg_mr", "all the flags that are allowed", DONE, |lab| {
        with_flags(lab, ALL as u32 | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_FIRST)
    }),
    ("ibv_reg_mr", "no length", INVALID, |lab| registered(lab, lab.memory.cast(), 0, WRITE)),
    ("ibv_reg_mr", "a flag that there is not", INVALID, |lab| with_flags(lab, 1 << 12)),
    ("ibv_reg_mr", "remote writes without local ones", INVALID, |lab| {
        with_flags(lab, IBV_ACCESS_REMOTE_WRITE)
    }),
    ("ibv_reg_mr", "remote atomics without local writes", INVALID, |lab| {
        with_flags(lab, IBV_ACCESS_REMOTE_ATOMIC)
    }),
    ("ibv_reg_mr", "flags of persistent memory", UNSUPPORTED, |lab| with_flags(lab, 1 << 8)),
    ("ibv_reg_mr", "paging on demand", UNSUPPORTED, |lab| {
        with_flags(lab, WRITE | IBV_ACCESS_ON_DEMAND)
    }),
    ("ibv_reg_mr", "all memory, on demand", UNSUPPORTED, |lab| {
        registered(lab, null_mut(), usize::MAX, WRITE | IBV_ACCESS_ON_DEMAND)
    }),
    ("ibv_reg_mr", "no address", FAULT, |lab| registered(lab, null_mut(), 64, WRITE)),
    ("ibv_reg_mr", "nothing is there", FAULT, |lab| {
        registered(lab, without_provenance_mut(64), 64, WRITE)
    }),
    ("ibv_reg_mr", "beyond all addresses", INVALID, |lab| {
        registered(lab, lab.memory.cast(), usize::MAX, WRITE)
    }),
    ("ibv_reg_mr", "memory without a hole", DONE, |lab| {
        parts(lab, libc::PROT_READ | libc::PROT_WRITE, true, WRITE)
    }),
    ("ibv_reg_mr", "memory with a hole", FAULT, |lab| {
        parts(lab, libc::PROT_READ | libc::PROT_WRITE, false, WRITE)
    }),
    ("ibv_reg_mr", "memory to be read, with a hole", FAULT, |lab| {
        parts(lab, libc::PROT_READ, false, 0)
    }),
    ("ibv_reg_mr", "memory that may not be written", FAULT, |lab| {
        parts(lab, libc::PROT_READ, true, WRITE)
    }),
    ("ibv_reg_mr", "memory that may not be read", FAULT, |lab| {
        parts(lab, libc::PROT_NONE, true, 0)
    }),
    ("ibv_dereg_mr", "no region", INVALID, |_| unsafe { warpline_ibv_dereg_mr(null_mut()) }.into()),
    ("ibv_rereg_mr", "nothing", INPUT, |lab| changed(lab, 0, lab.pd, ROOM, 0)),
    ("ibv_rereg_mr", "what there is not", INPUT, |lab| changed(lab, 1 << 5, lab.pd, ROOM, 0)),
    ("ibv_rereg_mr", "rights, but not to change them", INPUT, |lab| {
        changed(lab, IBV_REREG_MR_CHANGE_TRANSLATION, lab.pd, ROOM, ALL)
    }),
    ("ibv_rereg_mr", "rights that do not go together", INPUT, |lab| {
        let rights = IBV_ACCESS_REMOTE_WRITE as i32;
        changed(lab, IBV_REREG_MR_CHANGE_ACCESS, lab.pd, ROOM, rights)
    }),
    ("ibv_rereg_mr", "no length", INPUT, |lab| {
        changed(lab, IBV_REREG_MR_CHANGE_TRANSLATION, lab.pd, 0, 0)
    }),
    ("ibv_rereg_mr", "another context's domain", INPUT, |lab| {
        let other = Lab::new();
        changed(lab, IBV_REREG_MR_CHANGE_PD, other.pd, ROOM, 0)
    }),
    ("ibv_alloc_mw", "no type", INVALID, |lab| {
        none(unsafe { lab.ops().alloc_mw.unwrap()(lab.pd, 9) })
    }),
    ("ibv_bind_mw", "a post, and so not in RESET", INVALID, |lab| bound(lab, IBV_MW_TYPE_1)),
    ("ibv_bind_mw", "a window of type 2", INVALID, |lab| bound(lab, IBV_MW_TYPE_2)),
];
