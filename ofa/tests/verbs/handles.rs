//! Invalid handles: destroyed twice, of another kind, or no handle at all. In debug builds each ends the
//! process with a message; a second process of this program makes the mistake.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr::null_mut;

use ibv_sys::*;
use ofa::rdmacm::calls::channel::*;
use ofa::verbs::channel::*;
use ofa::verbs::cq::*;
use ofa::verbs::device::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use crate::lab::*;

const MISTAKE: &str = "OFA_TEST_MISTAKE";

/// The mistake, and the kind of handle that the message names.
type Mistake = (&'static str, &'static str, fn(&Lab));

const MISTAKES: [Mistake; 11] = [
    ("a queue pair is destroyed twice", "struct ibv_qp", |lab| unsafe {
        let qp = lab.qp();
        destroy(qp);
        warpline_ibv_destroy_qp(qp);
    }),
    ("a domain is freed twice", "struct ibv_pd", |lab| unsafe {
        let pd = warpline_ibv_alloc_pd(lab.context);
        warpline_ibv_dealloc_pd(pd);
        warpline_ibv_dealloc_pd(pd);
    }),
    ("a completion queue is destroyed twice", "struct ibv_cq", |lab| unsafe {
        let cq = warpline_ibv_create_cq(lab.context, 1, null_mut(), null_mut(), 0);
        warpline_ibv_destroy_cq(cq);
        warpline_ibv_destroy_cq(cq);
    }),
    ("a region is deregistered twice", "struct ibv_mr", |lab| unsafe {
        let mr = warpline_ibv_reg_mr(lab.pd, lab.memory.cast(), 8, 0);
        warpline_ibv_dereg_mr(mr);
        warpline_ibv_dereg_mr(mr);
    }),
    ("a shared receive queue is destroyed twice", "struct ibv_srq", |lab| unsafe {
        let attr = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: null_mut(), attr };
        let srq = warpline_ibv_create_srq(lab.pd, &mut init);
        warpline_ibv_destroy_srq(srq);
        warpline_ibv_destroy_srq(srq);
    }),
    ("a window is freed twice", "struct ibv_mw", |lab| unsafe {
        let mw = lab.ops().alloc_mw.unwrap()(lab.pd, IBV_MW_TYPE_2);
        lab.ops().dealloc_mw.unwrap()(mw);
        lab.ops().dealloc_mw.unwrap()(mw);
    }),
    ("a channel is destroyed twice", "struct ibv_comp_channel", |lab| unsafe {
        let channel = warpline_ibv_create_comp_channel(lab.context);
        warpline_ibv_destroy_comp_channel(channel);
        warpline_ibv_destroy_comp_channel(channel);
    }),
    ("a device is closed twice", "struct ibv_context", |_| unsafe {
        let context = open();
        warpline_ibv_close_device(context);
        warpline_ibv_close_device(context);
    }),
    ("an event channel is destroyed twice", "struct rdma_event_channel", |_| unsafe {
        let channel = warpline_rdma_create_event_channel();
        warpline_rdma_destroy_event_channel(channel);
        warpline_rdma_destroy_event_channel(channel);
    }),
    ("a queue of another kind", "struct ibv_cq", |lab| unsafe {
        warpline_ibv_destroy_cq(lab.pd.cast());
    }),
    ("memory that is no handle", "struct ibv_pd", |lab| unsafe {
        warpline_ibv_dealloc_pd(lab.memory.cast());
    }),
];

/// Only in the process that the test below starts.
#[test]
fn a_mistake_is_made() {
    let Ok(asked) = std::env::var(MISTAKE) else { return };
    let (.., make) = MISTAKES.iter().find(|(what, ..)| *what == asked).unwrap();
    make(&Lab::new());
}

#[test]
fn a_handle_that_is_none_is_named_in_debug_builds() {
    for (what, handle, _) in MISTAKES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "handles::a_mistake_is_made", "--nocapture"]).env(MISTAKE, what);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{what}: {printed}");
        assert!(printed.contains(&format!("a {handle} was passed")), "{what}: {printed}");
    }
}
