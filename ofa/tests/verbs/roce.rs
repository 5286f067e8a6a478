//! Queue pairs that are connected by path on RoCE. Each test runs again in a process of its own, whose device is of RoCE.

use ibv_sys::*;
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
