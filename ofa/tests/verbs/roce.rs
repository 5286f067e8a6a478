//! Queue pairs that are connected by path on RoCE. Each test runs again in a process of its own, whose device is of RoCE.

use ibv_sys::*;
use ofa::verbs::ah::*;
use ofa::verbs::mr::*;
use ofa::verbs::pd::*;
use ofa::verbs::query::*;

use crate::lab::*;
use crate::on_roce::on_roce;

#[test]
fn a_send_to_a_peer_that_is_gone_exceeds_its_retries() {
    on_roce("roce::a_send_to_a_peer_that_is_gone_exceeds_its_retries", || {
        let lab = Lab::new();
        let (qp, gone) = (lab.qp(), lab.qp());
        let mut gid = ibv_gid::default();
        assert_eq!(unsafe { warpline_ibv_query_gid(lab.context, 1, 0, &mut gid) }, 0);
        to_init(qp);
        meet(qp, gid, number(gone));
        destroy(gone);
        for id in [30, 31] {
            assert_eq!(lab.send(qp, &mut wr(id, IBV_WR_SEND, &mut lab.sge(0, 8))), 0);
        }
        let both = [lab.completion(), lab.completion()].map(|wc| (wc.wr_id, wc.status));
        assert_eq!(both, [(30, IBV_WC_RETRY_EXC_ERR), (31, IBV_WC_WR_FLUSH_ERR)]);
        assert_eq!(query(qp).qp_state, IBV_QPS_ERR);
        destroy(qp);
    });
}

/// The status of a Write that the far end refuses once it was `changed`.
fn refusal(change: impl FnOnce(&Lab, *mut ibv_qp)) -> u32 {
    let (near, far) = (Lab::new(), Lab::new());
    let (a, b) = (near.qp(), far.qp());
    let mut gid = ibv_gid::default();
    assert_eq!(unsafe { warpline_ibv_query_gid(near.context, 1, 0, &mut gid) }, 0);
    [a, b].into_iter().for_each(to_init);
    meet(a, gid, number(b));
    meet(b, gid, number(a));
    change(&far, b);
    let mut sge = near.sge(0, 8);
    let mut write = wr(1, IBV_WR_RDMA_WRITE, &mut sge);
    write.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(0), rkey: far.rkey() } };
    assert_eq!(near.send(a, &mut write), 0);
    let status = near.completion().status;
    [a, b].into_iter().for_each(destroy);
    status
}

#[test]
fn a_refusal_tells_whether_the_queue_pair_or_the_region_refused() {
    on_roce("roce::a_refusal_tells_whether_the_queue_pair_or_the_region_refused", || {
        let by_region = refusal(|far, _| {
            let (flags, null) = (IBV_REREG_MR_CHANGE_ACCESS, std::ptr::null_mut());
            let rights = IBV_ACCESS_LOCAL_WRITE as i32;
            let done =
                unsafe { warpline_ibv_rereg_mr(far.mr, flags, null, null.cast(), 0, rights) };
            assert_eq!(done, 0);
        });
        let by_queue_pair = refusal(|_, qp| {
            let qp_access_flags = IBV_ACCESS_REMOTE_READ;
            let mut attr = ibv_qp_attr { qp_access_flags, ..ibv_qp_attr::default() };
            assert_eq!(modify(qp, &mut attr, IBV_QP_ACCESS_FLAGS), 0);
        });
        assert_eq!(
            (by_region, by_queue_pair, refusal(|_, _| {})),
            (IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_SUCCESS)
        );
    });
}

#[test]
fn a_domain_with_a_region_is_busy() {
    on_roce("roce::a_domain_with_a_region_is_busy", || {
        let lab = Lab::new();
        let dealloc = |pd| unsafe { warpline_ibv_dealloc_pd(pd) };
        let region = |pd| {
            let (at, access) = (lab.memory.cast(), IBV_ACCESS_LOCAL_WRITE as i32);
            unsafe { warpline_ibv_reg_mr(pd, at, ROOM, access) }
        };
        let [pd, other] = [(); 2].map(|()| unsafe { warpline_ibv_alloc_pd(lab.context) });
        let [first, second] = [region(pd), region(pd)];
        assert_eq!(dealloc(pd), libc::EBUSY);
        assert_eq!(unsafe { warpline_ibv_dereg_mr(first) }, 0);
        assert_eq!(dealloc(pd), libc::EBUSY);
        // It goes with its region to another domain.
        let (flags, null) = (IBV_REREG_MR_CHANGE_PD, std::ptr::null_mut());
        assert_eq!(unsafe { warpline_ibv_rereg_mr(second, flags, other, null, 0, 0) }, 0);
        assert_eq!((dealloc(other), dealloc(pd)), (libc::EBUSY, 0));
        assert_eq!(unsafe { warpline_ibv_dereg_mr(second) }, 0);
        assert_eq!(dealloc(other), 0);
    });
}

#[test]
fn a_reset_of_a_queue_pair_for_datagrams_leaves_nothing_of_before() {
    on_roce("roce::a_reset_of_a_queue_pair_for_datagrams_leaves_nothing_of_before", || {
        let lab = Lab::new();
        let (qp, ah) = datagrams(&lab);
        for round in 0..3 {
            ready_for_datagrams(qp);
            // Not polled: one that was received, and all that are flushed.
            (0..8).for_each(|id| assert_eq!(lab.recv(qp, id, &mut lab.sge(64, 100)), 0));
            send_datagram(&lab, qp, ah, 100);
            // Its receive may complete before.
            while lab.completion().wr_id != 100 {}
            if round == 1 {
                let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
                assert_eq!(modify(qp, &mut attr, IBV_QP_STATE), 0);
            }
            reset(qp);
            assert!(lab.poll().is_none(), "a completion of before the reset");
        }
        ready_for_datagrams(qp);
        assert_eq!(lab.recv(qp, 20, &mut lab.sge(64, 100)), 0);
        send_datagram(&lab, qp, ah, 10);
        let mut both = [lab.completion(), lab.completion()].map(|wc| (wc.wr_id, wc.status));
        both.sort_unstable();
        assert_eq!(both, [(10, IBV_WC_SUCCESS), (20, IBV_WC_SUCCESS)]);
        assert_eq!(unsafe { warpline_ibv_destroy_ah(ah) }, 0);
        destroy(qp);
    });
}
