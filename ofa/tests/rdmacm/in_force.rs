//! What ibv_query_qp(3) returns of a queue pair that an identifier connected: what is in force there.

use std::ffi::c_int;

use ibv_sys::*;
use ofa::rdmacm::calls::option::warpline_rdma_set_option;
use ofa::verbs::qp::{warpline_ibv_modify_qp, warpline_ibv_query_qp};

use crate::common::*;
use crate::on_roce::on_roce;

fn query(id: *mut rdma_cm_id) -> ibv_qp_attr {
    let mut known = ibv_qp_attr::default();
    // SAFETY: zeroes are a value of every field.
    let mut init = unsafe { std::mem::zeroed() };
    done!(warpline_ibv_query_qp(shown(id).qp, &raw mut known, c_int::MAX, &raw mut init));
    known
}

/// Two ends, of which the active one has this acknowledge timeout.
fn pair(mut timeout: u8) -> Pair {
    let (near, far) = (channel(), channel());
    let (listener, at) = listener(far);
    let active = resolved(near, &at);
    let (level, option) = (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT);
    done!(warpline_rdma_set_option(active, level, option, (&raw mut timeout).cast(), 1));
    done!(warpline_rdma_connect(active, &mut params(&[])));
    let passive = requested(far);
    done!(warpline_rdma_accept(passive, &mut params(&[])));
    assert_eq!(expect(near, RDMA_CM_EVENT_ESTABLISHED), active);
    assert_eq!(expect(far, RDMA_CM_EVENT_ESTABLISHED), passive);
    Pair { near, far, listener, active, passive }
}

#[test]
fn reads_are_those_that_both_ends_agreed_on() {
    let pair = pair(17);
    for id in [pair.active, pair.passive] {
        let known = query(id);
        assert_eq!(known.qp_state, IBV_QPS_RTS);
        assert_eq!((known.max_rd_atomic, known.max_dest_rd_atomic), (2, 4));
    }
    assert_eq!(query(pair.active).timeout, 17);
    pair.end();
}

#[test]
fn on_roce_all_of_infinibands_attributes_are_known() {
    on_roce("in_force::on_roce_all_of_infinibands_attributes_are_known", || {
        let pair = pair(17);
        let [active, passive] = [query(pair.active), query(pair.passive)];
        for known in [&active, &passive] {
            assert_eq!(known.qp_state, IBV_QPS_RTS);
            assert_eq!((known.max_rd_atomic, known.max_dest_rd_atomic), (2, 2));
            assert_eq!((known.retry_cnt, known.rnr_retry), (7, 7));
            assert!(known.min_rnr_timer != 0 && known.path_mtu != 0);
            assert_eq!((known.ah_attr.is_global, known.ah_attr.port_num), (1, 1));
        }
        // The passive end has the usual one.
        assert_eq!((active.timeout, passive.timeout), (17, 16));
        assert_eq!((active.sq_psn, active.rq_psn), (passive.rq_psn, passive.sq_psn));
        assert!(active.dest_qp_num != 0 && passive.dest_qp_num != active.dest_qp_num);
        assert_eq!(active.ah_attr.grh.dgid.raw[10..], [0xff, 0xff, 127, 0, 0, 1]);
        let mut change = ibv_qp_attr { min_rnr_timer: 5, timeout: 12, ..ibv_qp_attr::default() };
        let qp = shown(pair.active).qp;
        done!(warpline_ibv_modify_qp(qp, &raw mut change, IBV_QP_MIN_RNR_TIMER));
        assert_eq!(query(pair.active).min_rnr_timer, 5);
        let refused = call!(warpline_ibv_modify_qp(qp, &raw mut change, IBV_QP_TIMEOUT));
        assert_eq!((refused, query(pair.active).timeout), (libc::EINVAL, 17));
        pair.end();
    });
}

/// 0: packets are not repeated.
#[test]
fn on_roce_a_timeout_has_a_least_value() {
    on_roce("in_force::on_roce_a_timeout_has_a_least_value", || {
        for (asked, granted) in [(1, 12), (14, 14), (20, 20), (0, 0)] {
            let pair = pair(asked);
            assert_eq!(query(pair.active).timeout, granted);
            pair.end();
        }
    });
}
