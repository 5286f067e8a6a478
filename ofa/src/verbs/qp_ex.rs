//! The extended queue pair: work requests put together call by call between ibv_wr_start and ibv_wr_complete
//! (ibv_wr_post(3)).

use ibv_sys::*;

/// The operations that may be asked for.
pub(super) const SERVED: u64 = IBV_QP_EX_WITH_ALL_RC & !IBV_QP_EX_WITH_SEND_WITH_IMM;

/// A queue pair's structure, whole. `ops`: what the application asked for; 0: it does not use these calls.
pub(super) fn whole(head: ibv_qp, ops: u64) -> ibv_qp_ex {
    let base = whole_qp { head, mutex: [0; 5], cond: [0; 6], events_completed: 0 };
    ibv_qp_ex {
        base,
        comp_mask: ops,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: None,
        wr_atomic_fetch_add: None,
        wr_bind_mw: None,
        wr_local_inv: None,
        wr_rdma_read: None,
        wr_rdma_write: None,
        wr_rdma_write_imm: None,
        wr_send: None,
        wr_send_imm: None,
        wr_send_inv: None,
        wr_send_tso: None,
        wr_set_ud_addr: None,
        wr_set_xrc_srqn: None,
        wr_set_inline_data: None,
        wr_set_inline_data_list: None,
        wr_set_sge: None,
        wr_set_sge_list: None,
        wr_start: None,
        wr_complete: None,
        wr_abort: None,
        wr_atomic_write: None,
        wr_flush: None,
    }
}
