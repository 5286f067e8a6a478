//! Rows of completions that are no success: the status of a request between two queue pairs that are connected by path.

use ofa::verbs::mr::*;

use super::*;

const fn both(status: u32) -> [i64; 2] {
    [status as i64; 2]
}

/// The status of a request, of which this is changed, at a peer that has a receive.
fn near(lab: &Lab, change: impl FnOnce(&Lab, &mut ibv_send_wr)) -> i64 {
    ended(lab, 64, false, change)
}

/// The same, or that of the peer's receive of so many octets.
fn ended(lab: &Lab, room: u32, is_far: bool, change: impl FnOnce(&Lab, &mut ibv_send_wr)) -> i64 {
    let far = Lab::new();
    let (a, b) = pair(lab, &far);
    assert_eq!(far.recv(b, 2, &mut far.sge(0, room)), 0);
    let mut sge = lab.sge(0, 8);
    let mut request = wr(1, IBV_WR_SEND, &mut sge);
    request.wr = wr_union { rdma: wr_rdma { remote_addr: far.at(0), rkey: far.rkey() } };
    change(&far, &mut request);
    assert_eq!(lab.send(a, &mut request), 0);
    let status = if is_far { far.completion().status } else { lab.completion().status };
    [a, b].into_iter().for_each(destroy);
    status.into()
}

fn first(wr: &mut ibv_send_wr) -> &mut ibv_sge {
    unsafe { &mut *wr.sg_list }
}

fn remote(wr: &mut ibv_send_wr, opcode: u32, change: impl FnOnce(&mut wr_rdma)) {
    wr.opcode = opcode;
    let mut rdma = unsafe { wr.wr.rdma };
    change(&mut rdma);
    wr.wr = wr_union { rdma };
}

/// The region of the peer allows this only.
fn only(far: &Lab, rights: u32) {
    let null = std::ptr::null_mut();
    let change = IBV_REREG_MR_CHANGE_ACCESS;
    let done =
        unsafe { warpline_ibv_rereg_mr(far.mr, change, null, null.cast(), 0, rights as i32) };
    assert_eq!(done, 0);
}

pub(super) const ROWS: &[Row] = &[
    ("ibv_poll_cq", "a Send", both(IBV_WC_SUCCESS), |lab| near(lab, |_, _| ())),
    ("ibv_poll_cq", "a Send by no key", both(IBV_WC_LOC_PROT_ERR), |lab| {
        near(lab, |_, wr| first(wr).lkey ^= 0x55)
    }),
    ("ibv_poll_cq", "a Send from beyond its region", both(IBV_WC_LOC_PROT_ERR), |lab| {
        near(lab, |_, wr| first(wr).addr += ROOM as u64 - 4)
    }),
    ("ibv_poll_cq", "a Read by no key", both(IBV_WC_LOC_PROT_ERR), |lab| {
        near(lab, |_, wr| {
            first(wr).lkey ^= 0x55;
            remote(wr, IBV_WR_RDMA_READ, |_| ());
        })
    }),
    ("ibv_poll_cq", "a receive that is too short", both(IBV_WC_LOC_LEN_ERR), |lab| {
        ended(lab, 4, true, |_, _| ())
    }),
    // On iWARP it was sent, and so has completed.
    ("ibv_poll_cq", "its Send", [IBV_WC_SUCCESS as i64, IBV_WC_REM_INV_REQ_ERR as i64], |lab| {
        ended(lab, 4, false, |_, _| ())
    }),
    ("ibv_poll_cq", "a Read beyond the region", both(IBV_WC_REM_ACCESS_ERR), |lab| {
        near(lab, |_, wr| {
            remote(wr, IBV_WR_RDMA_READ, |rdma| rdma.remote_addr += ROOM as u64 - 4);
        })
    }),
    ("ibv_poll_cq", "a Read of a region of writers", both(IBV_WC_REM_ACCESS_ERR), |lab| {
        near(lab, |far, wr| {
            only(far, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
            remote(wr, IBV_WR_RDMA_READ, |_| ());
        })
    }),
    ("ibv_poll_cq", "posted in ERR", both(IBV_WC_WR_FLUSH_ERR), |lab| {
        let qp = lab.qp();
        let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
        assert_eq!(lab.recv(qp, 3, &mut lab.sge(0, 8)), 0);
        let status = lab.completion().status;
        destroy(qp);
        status.into()
    }),
];
