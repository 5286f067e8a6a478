//! The privileged verbs: limits, lifetimes, refusals.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Buffer, End, open};
use vp_api::*;
use vp_softrdma::SoftRdma;

fn cq(rnic: &Arc<dyn Rnic>) -> Arc<dyn Cq> {
    rnic.create_cq(&CqInit { depth: 4, handler: None }).expect("room")
}

fn mr(pd: PdId, buffer: &Arc<Buffer>) -> MrInit {
    MrInit {
        pd,
        range: buffer.range(),
        addressing: Addressing::Absolute,
        access: Access::LOCAL,
        key: 1,
        pin: false,
    }
}

#[test]
fn the_device_has_ports() {
    let devices = SoftRdma.devices().unwrap();
    assert_eq!(devices.len(), 1);
    assert_eq!((devices[0].name.as_str(), SoftRdma.name()), ("vp_softrdma", "vp_softrdma"));
    assert!(devices[0].ports.iter().any(|port| port.addresses.iter().any(|a| a.is_loopback())));
    assert_eq!(open().ports().unwrap(), devices[0].ports);
    let unknown = SoftRdma.open("eth0", Arc::new(common::Host)).err().unwrap();
    assert_eq!(unknown.status, VpStatus::InvalidHandle);
    assert!(unknown.detail.contains("vp_softrdma"), "{unknown}");
}

#[test]
fn the_provider_has_the_version_of_its_package() {
    assert_eq!(SoftRdma.version(), env!("CARGO_PKG_VERSION"));
}

/// Descriptors of this process that a program started by it would inherit.
fn inherited() -> usize {
    let numbers = std::fs::read_dir("/proc/self/fdinfo").expect("proc(5)");
    let info = numbers.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let flags = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        i32::from_str_radix(line.trim(), 8).ok()
    };
    info.filter_map(flags).filter(|flags| flags & libc::O_CLOEXEC == 0).count()
}

// Other tests, and the library itself, have only such as are closed, too.
#[test]
fn a_program_that_is_started_inherits_no_descriptor() {
    let before = inherited();
    let (near, far) = common::pair(&common::Setup::default());
    assert_eq!(inherited(), before);
    drop((near, far));
}

// The limits that Query RNIC reports hold: the maximum works, one more is refused.
#[test]
fn limits_are_true() {
    let rnic = open();
    let attrs = rnic.attrs().clone();
    let pd = rnic.alloc_pd().unwrap();
    // STags have 24 bits of index, of which half are handed out [SEC-07].
    assert_eq!((attrs.max_mr, attrs.max_mw), (1 << 22, 1 << 22));
    let cq = rnic.create_cq(&CqInit { depth: attrs.max_cqe, handler: None }).unwrap();
    assert!(cq.depth() >= attrs.max_cqe);
    assert!(rnic.create_cq(&CqInit { depth: attrs.max_cqe + 1, handler: None }).is_err());
    let largest = || QpInit {
        send_depth: attrs.max_wr_per_qp,
        recv_depth: attrs.max_wr_per_qp,
        max_send_sge: attrs.max_sge_send,
        max_recv_sge: attrs.max_sge_recv,
        max_inline: attrs.max_inline,
        ird: attrs.max_ird,
        ord: attrs.max_ord,
        ..QpInit::new(pd, cq.id(), cq.id())
    };
    rnic.create_qp(&largest()).unwrap();
    let status = |init: QpInit| rnic.create_qp(&init).err().map(|error| error.status);
    let too_much = [
        (QpInit { send_depth: attrs.max_wr_per_qp + 1, ..largest() }, VpStatus::TooManyWrs),
        (QpInit { recv_depth: attrs.max_wr_per_qp + 1, ..largest() }, VpStatus::TooManyWrs),
        (QpInit { max_send_sge: attrs.max_sge_send + 1, ..largest() }, VpStatus::InvalidSgl),
        (QpInit { max_recv_sge: attrs.max_sge_recv + 1, ..largest() }, VpStatus::InvalidSgl),
        (QpInit { max_inline: attrs.max_inline + 1, ..largest() }, VpStatus::InvalidModifier),
        (QpInit { ird: attrs.max_ird + 1, ..largest() }, VpStatus::InvalidIrdOrd),
        (QpInit { ord: attrs.max_ord + 1, ..largest() }, VpStatus::InvalidIrdOrd),
        (QpInit { send_depth: 0, ..largest() }, VpStatus::InvalidModifier),
        (QpInit { recv_limit: 9, recv_depth: 8, ..largest() }, VpStatus::InvalidModifier),
    ];
    for (init, expected) in too_much {
        assert_eq!(status(init), Some(expected));
    }
    let srq = SrqInit { pd, depth: attrs.max_wr_per_srq, max_sge: attrs.max_sge_recv, limit: 0 };
    rnic.create_srq(&srq).unwrap();
    assert!(rnic.create_srq(&SrqInit { depth: srq.depth + 1, ..srq }).is_err());
    assert!(rnic.create_srq(&SrqInit { limit: srq.depth + 1, ..srq }).is_err());
}

// An object in use cannot be destroyed.
#[test]
fn objects_in_use_stay() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let (send_cq, recv_cq) = (cq(&rnic), cq(&rnic));
    let srq = rnic.create_srq(&SrqInit { pd, depth: 4, max_sge: 1, limit: 0 }).unwrap();
    let init = QpInit { srq: Some(srq.id()), ..QpInit::new(pd, send_cq.id(), recv_cq.id()) };
    let qp = rnic.create_qp(&init).unwrap();
    let in_use = |result: VpResult<()>| {
        assert_eq!(result.unwrap_err().status, VpStatus::InUse);
    };
    in_use(rnic.destroy_cq(send_cq.id()));
    in_use(rnic.destroy_cq(recv_cq.id()));
    in_use(rnic.destroy_srq(srq.id()));
    in_use(rnic.dealloc_pd(pd));
    rnic.destroy_qp(qp.id()).unwrap();
    rnic.destroy_cq(send_cq.id()).unwrap();
    rnic.destroy_cq(recv_cq.id()).unwrap();
    in_use(rnic.dealloc_pd(pd));
    rnic.destroy_srq(srq.id()).unwrap();
    drop(srq);
    let region = rnic.register_mr(&mr(pd, &Buffer::new(8))).unwrap();
    in_use(rnic.dealloc_pd(pd));
    rnic.dealloc_stag(region).unwrap();
    let stag = rnic.alloc_stag(pd, true).unwrap();
    in_use(rnic.dealloc_pd(pd));
    rnic.dealloc_stag(stag).unwrap();
    let window = rnic.alloc_mw(pd, MwKind::Narrow).unwrap();
    in_use(rnic.dealloc_pd(pd));
    rnic.dealloc_mw(window).unwrap();
    rnic.dealloc_pd(pd).unwrap();
}

#[test]
fn stale_ids_are_errors() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let queue = cq(&rnic);
    let qp = rnic.create_qp(&QpInit::new(pd, queue.id(), queue.id())).unwrap();
    let srq = rnic.create_srq(&SrqInit { pd, depth: 1, max_sge: 1, limit: 0 }).unwrap();
    rnic.destroy_qp(qp.id()).unwrap();
    rnic.destroy_srq(srq.id()).unwrap();
    rnic.destroy_cq(queue.id()).unwrap();
    let gone = |status: Option<VpStatus>| assert_eq!(status, Some(VpStatus::InvalidHandle));
    gone(rnic.destroy_qp(qp.id()).err().map(|e| e.status));
    gone(rnic.destroy_cq(queue.id()).err().map(|e| e.status));
    gone(rnic.destroy_srq(srq.id()).err().map(|e| e.status));
    gone(qp.query().err().map(|e| e.status));
    gone(qp.modify(QpChange::Error).err().map(|e| e.status));
    gone(qp.post_recv(&[RecvWr { wr_id: 0, sgl: &[] }]).err().map(|e| e.status));
    gone(srq.query().err().map(|e| e.status));
    gone(queue.poll(&mut [WorkCompletion::BLANK]).err());
    gone(queue.arm(false).err());
    gone(queue.wait(Duration::ZERO, None).err());
    gone(queue.resize(8).err().map(|e| e.status));
    let again = rnic.create_qp(&QpInit::new(pd, queue.id(), queue.id()));
    gone(again.err().map(|e| e.status));
    rnic.dealloc_pd(pd).unwrap();
    let orphan = rnic.register_mr(&mr(pd, &Buffer::new(8))).unwrap_err();
    assert_eq!(orphan.status, VpStatus::InvalidPd);
    assert_eq!(rnic.alloc_mw(pd, MwKind::Wide).unwrap_err().status, VpStatus::InvalidPd);
    assert_eq!(rnic.alloc_stag(pd, true).unwrap_err().status, VpStatus::InvalidPd);
}

/// A handler that is released when its CQ and the CQ's QPs are destroyed.
#[derive(Debug)]
struct Deaf;

impl CqHandler for Deaf {
    fn on_completion(&self, _: CqId) {}
}

// Destroyed objects hold no references, and the RNIC's thread has ended.
#[test]
fn no_state_of_destroyed_objects_is_left() {
    let (near_told, services) = (Arc::new(Deaf), Arc::new(common::Host));
    let rnic = SoftRdma.open("vp_softrdma", services.clone()).unwrap();
    let handler: Arc<dyn CqHandler> = near_told.clone();
    let near = End::on(rnic.clone(), CqInit { depth: 64, handler: Some(handler) }, |_| {});
    let far = End::new(|_| {});
    common::connect((&near, &far), &common::Setup::default());
    rnic.destroy_qp(near.qp.id()).unwrap();
    rnic.destroy_cq(near.cq.id()).unwrap();
    drop(near);
    warpline_patience::until("the CQ and its QP to be let go of", || {
        Arc::strong_count(&near_told) == 1
    });
    rnic.set_async_handler(None);
    drop(rnic);
    assert_eq!(Arc::strong_count(&services), 1, "the thread has ended");
}

// Without work the RNIC's thread costs nothing.
#[test]
fn an_idle_engine_sleeps() {
    let _rnic = open();
    let sleeps = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.ok()?.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let stat = std::fs::read_to_string(path.join("stat")).ok()?;
        Some(name.trim_end() == "softrdma" && stat.contains(") S "))
    };
    warpline_patience::until("the engine's thread to sleep", || {
        std::fs::read_dir("/proc/self/task").unwrap().any(|task| sleeps(task) == Some(true))
    });
}

// Reregistration into a destroyed PD destroys the region, like any other error (RDMAC 9.2.6).
#[test]
fn failed_reregistration_destroys_the_region() {
    let rnic = open();
    let pd = rnic.alloc_pd().unwrap();
    let buffer = Buffer::new(8);
    let stag = rnic.register_mr(&mr(pd, &buffer)).unwrap();
    let refused = rnic.reregister_mr(stag, &mr(PdId(pd.0 + 1), &buffer)).unwrap_err();
    assert_eq!(refused.status, VpStatus::InvalidPd);
    assert_eq!(rnic.query_mr(stag).unwrap_err().status, VpStatus::InvalidStag);
    assert_eq!(Arc::strong_count(&buffer), 1);
    rnic.dealloc_pd(pd).unwrap();
}

// [SEC-08]: objects of an RNIC are not reachable through another one.
#[test]
fn rnics_are_independent() {
    let (one, other) = (open(), open());
    let pd = one.alloc_pd().unwrap();
    other.alloc_pd().unwrap();
    let buffer = Buffer::new(8);
    let stag = one.register_mr(&mr(pd, &buffer)).unwrap();
    assert_eq!(other.query_mr(stag).unwrap_err().status, VpStatus::InvalidStag);
    assert_eq!(other.destroy_cq(cq(&one).id()).unwrap_err().status, VpStatus::InvalidHandle);
}

// Close RNIC frees everything (RDMAC 9.2.1).
#[test]
fn closing_ends_everything() {
    let buffer = Buffer::new(8);
    let end = End::new(|_| {});
    let region = end.region(buffer.clone());
    let End { rnic, cq, qp, .. } = end;
    drop((region, rnic));
    assert_eq!(qp.query().unwrap_err().status, VpStatus::InvalidHandle);
    assert_eq!(cq.poll(&mut [WorkCompletion::BLANK]).unwrap_err(), VpStatus::InvalidHandle);
    drop((qp, cq));
    assert_eq!(Arc::strong_count(&buffer), 1);
}
