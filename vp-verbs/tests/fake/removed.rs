//! Devices that are removed while they are open.

use ibv_sys as sys;
use kal_shim::Region;
use vp_api::*;

use crate::common::{Failing, Fake};
use crate::faults::Pair;

/// Commands that the kernel refuses for a device that it has removed.
const COMMANDS: [&str; 9] = [
    "ibv_query_device",
    "ibv_modify_qp",
    "ibv_create_qp",
    "ibv_destroy_qp",
    "ibv_reg_mr",
    "ibv_dereg_mr",
    "ibv_destroy_cq",
    "ibv_dealloc_pd",
    "ibv_req_notify_cq",
];

fn refused(fake: &Fake) -> Vec<Failing<'_>> {
    COMMANDS.map(|command| Failing::new(fake, command, libc::EIO)).into()
}

fn receives(qp: &dyn Qp, count: u64) {
    for wr_id in 0..count {
        qp.post_recv(&[RecvWr { wr_id, sgl: &[] }]).unwrap();
    }
}

fn both_end(pair: &Pair) {
    let mut ended = [pair.next(), pair.next()].map(|event| match event {
        NativeEvent::Disconnected { qp } => qp,
        other => panic!("{other:?}"),
    });
    ended.sort();
    assert_eq!(ended, [pair.near.id(), pair.far.id()]);
}

/// The kernel completes nothing of it any more.
#[test]
fn all_work_of_a_device_that_is_gone_is_flushed_and_everything_can_be_destroyed() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let memory = Region::new(64).unwrap();
    let range = memory.mem_range();
    let (access, addressing) = (Access::LOCAL, Addressing::Absolute);
    let init = MrInit { pd: pair.pd, range, addressing, access, key: 0, pin: false };
    let stag = pair.rnic.register_mr(&init).unwrap();
    receives(&*pair.near, 3);
    receives(&*pair.far, 2);
    let faults = refused(&fake);
    fake.raise(sys::IBV_EVENT_DEVICE_FATAL);
    pair.awaits(|event| *event == (EventSource::Rnic, AsyncEvent::Catastrophic));
    both_end(&pair);
    let mut flushed: Vec<_> = (0..5).map(|_| pair.completion()).collect();
    assert!(flushed.iter().all(|wc| wc.status == WcStatus::Flushed), "{flushed:?}");
    flushed.sort_by_key(|wc| (wc.qp, wc.wr_id));
    let order: Vec<_> = flushed.iter().map(|wc| (wc.qp, wc.wr_id)).collect();
    let (near, far) = (pair.near.id(), pair.far.id());
    assert_eq!(order, [(near, 0), (near, 1), (near, 2), (far, 0), (far, 1)]);
    // After the end, as of any other connection.
    pair.send().unwrap();
    assert_eq!(pair.completion().status, WcStatus::Flushed);
    let none = std::time::Duration::from_millis(1);
    assert_eq!(pair.cq.wait(std::time::Duration::ZERO, Some(none)), Ok(false));
    let why = pair.near.modify(QpChange::Idle).unwrap_err();
    assert!(why.detail.contains("was removed"), "{why}");
    let why = pair.cm.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap_err();
    assert!(why.detail.contains("was removed"), "{why}");
    for qp in [near, far] {
        pair.rnic.destroy_qp(qp).unwrap();
    }
    pair.rnic.dealloc_stag(stag).unwrap();
    pair.rnic.destroy_cq(pair.cq.id()).unwrap();
    pair.rnic.dealloc_pd(pair.pd).unwrap();
    drop(faults);
}

/// Commands and posts are refused before the kernel says why.
#[test]
fn posts_to_a_device_that_is_being_removed_are_flushed() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    let faults = refused(&fake);
    let post = Failing::new(&fake, "ibv_post_send", libc::EIO);
    pair.send().unwrap();
    fake.raise(sys::IBV_EVENT_DEVICE_FATAL);
    let wc = pair.completion();
    assert_eq!((wc.wr_id, wc.status), (9, WcStatus::Flushed));
    both_end(&pair);
    drop((faults, post));
}

/// As long as the device itself is there, it flushes.
#[test]
fn connections_end_when_the_connection_manager_says_that_their_device_is_removed() {
    let fake = Fake::new();
    let pair = Pair::new(&fake);
    receives(&*pair.near, 2);
    fake.cm_event(sys::RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
    pair.awaits(|event| *event == (EventSource::Rnic, AsyncEvent::Catastrophic));
    both_end(&pair);
    for wr_id in 0..2 {
        let wc = pair.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Flushed));
    }
}
