//! Rows of queue pairs: creation, changes, destruction.

use std::ptr::null_mut;

use ofa::verbs::qp::*;
use ofa::verbs::srq::*;

use super::*;
use crate::extended::front;

fn created(lab: &Lab, change: impl FnOnce(&mut ibv_qp_init_attr)) -> i64 {
    let mut init = lab.init();
    change(&mut init);
    let qp = unsafe { warpline_ibv_create_qp(lab.pd, &mut init) };
    let refused = none(qp);
    if !qp.is_null() {
        destroy(qp);
    }
    refused
}

fn created_ex(lab: &Lab, change: fn(&mut ibv_qp_init_attr_ex)) -> i64 {
    let plain = lab.init();
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.cap, attr.qp_type) =
        (plain.send_cq, plain.recv_cq, plain.cap, plain.qp_type);
    (attr.comp_mask, attr.pd) = (IBV_QP_INIT_ATTR_PD, lab.pd);
    change(&mut attr);
    none(unsafe { front(lab.context).create_qp_ex.unwrap()(lab.context, &mut attr) })
}

fn with_srq(lab: &Lab, qp_type: u32) -> i64 {
    let srq = lab.srq();
    let result = created(lab, |init| (init.qp_type, init.srq) = (qp_type, srq));
    assert_eq!(unsafe { warpline_ibv_destroy_srq(srq) }, 0);
    result
}

/// Changes a queue pair that is in this state; nothing else than the state that is asked for is different then.
fn changed(lab: &Lab, from: u32, mut attr: ibv_qp_attr, mask: i32) -> i64 {
    let qp = lab.qp();
    if from != IBV_QPS_RESET {
        to_init(qp);
    }
    if from == IBV_QPS_ERR {
        let mut err = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
        assert_eq!(modify(qp, &mut err, IBV_QP_STATE), 0);
    }
    let refused = modify(qp, &mut attr, mask);
    assert_eq!(state(qp), if refused == 0 { attr.qp_state } else { from });
    destroy(qp);
    refused.into()
}

fn to_state(lab: &Lab, from: u32, qp_state: u32) -> i64 {
    changed(lab, from, ibv_qp_attr { qp_state, ..ibv_qp_attr::default() }, IBV_QP_STATE)
}

fn to_init_with(lab: &Lab, change: fn(&mut ibv_qp_attr), mask: i32) -> i64 {
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, ..ibv_qp_attr::default() };
    change(&mut attr);
    changed(lab, IBV_QPS_RESET, attr, mask)
}

fn to_rtr_with(lab: &Lab, change: fn(&mut ibv_qp_attr), mask: i32) -> i64 {
    let mut attr = rtr(lab.gid(), 7);
    change(&mut attr);
    changed(lab, IBV_QPS_INIT, attr, mask)
}

/// From RTR, with other attributes of a sender.
fn to_rts_with(lab: &Lab, change: fn(&mut ibv_qp_attr)) -> i64 {
    let qp = lab.qp();
    to_init(qp);
    assert_eq!(modify(qp, &mut rtr(lab.gid(), number(qp)), RTR), 0);
    let mut attr = rts();
    change(&mut attr);
    let refused = modify(qp, &mut attr, RTS);
    destroy(qp);
    refused.into()
}

pub(super) const ROWS: &[Row] = &[
    ("ibv_create_qp", "no attributes", INVALID, |lab| {
        none(unsafe { warpline_ibv_create_qp(lab.pd, null_mut()) })
    }),
    ("ibv_create_qp", "no queue of sends", INVALID, |lab| {
        created(lab, |init| init.send_cq = null_mut())
    }),
    ("ibv_create_qp", "no queue of receives", INVALID, |lab| {
        created(lab, |init| init.recv_cq = null_mut())
    }),
    ("ibv_create_qp", "another device's queue", INVALID, |lab| {
        let other = Lab::new();
        created(lab, |init| init.recv_cq = other.cq)
    }),
    ("ibv_create_qp", "more sends than the device's", INVALID, |lab| {
        created(lab, |init| init.cap.max_send_wr = u32::MAX)
    }),
    ("ibv_create_qp", "more receives than the device's", INVALID, |lab| {
        created(lab, |init| init.cap.max_recv_wr = u32::MAX)
    }),
    ("ibv_create_qp", "too many elements of a send", INVALID, |lab| {
        created(lab, |init| init.cap.max_send_sge = 1000)
    }),
    ("ibv_create_qp", "too many elements of a receive", INVALID, |lab| {
        created(lab, |init| init.cap.max_recv_sge = 1000)
    }),
    ("ibv_create_qp", "too much inline data", INVALID, |lab| {
        created(lab, |init| init.cap.max_inline_data = 1 << 20)
    }),
    ("ibv_create_qp", "no type", UNSUPPORTED, |lab| created(lab, |init| init.qp_type = 77)),
    ("ibv_create_qp", "raw Ethernet", UNSUPPORTED, |lab| created(lab, |init| init.qp_type = 8)),
    ("ibv_create_qp", "datagrams", ROCE, |lab| created(lab, |init| init.qp_type = IBV_QPT_UD)),
    ("ibv_create_qp", "unreliable connections", DONE, |lab| {
        created(lab, |init| init.qp_type = IBV_QPT_UC)
    }),
    ("ibv_create_qp", "an SRQ of a reliable connection", DONE, |lab| with_srq(lab, IBV_QPT_RC)),
    ("ibv_create_qp", "an SRQ of an unreliable one", INVALID, |lab| with_srq(lab, IBV_QPT_UC)),
    ("ibv_create_qp", "an SRQ of datagrams", ROCE, |lab| with_srq(lab, IBV_QPT_UD)),
    ("ibv_create_qp_ex", "no domain", INVALID, |lab| created_ex(lab, |attr| attr.comp_mask = 0)),
    ("ibv_create_qp_ex", "attributes to come", UNSUPPORTED, |lab| {
        created_ex(lab, |attr| attr.comp_mask |= 1 << 20)
    }),
    ("ibv_create_qp_ex", "creation flags", UNSUPPORTED, |lab| {
        created_ex(lab, |attr| {
            attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
            attr.create_flags = 1 << 1;
        })
    }),
    ("ibv_create_qp_ex", "segmentation of datagrams", UNSUPPORTED, |lab| {
        created_ex(lab, |attr| {
            attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = 1 << 10;
        })
    }),
    ("ibv_qp_to_qp_ex", "it was made without operations", UNSUPPORTED, |lab| {
        let qp = lab.qp();
        let refused = none(unsafe { warpline_ibv_qp_to_qp_ex(qp) });
        destroy(qp);
        refused
    }),
    ("ibv_destroy_qp", "no queue pair", INVALID, |_| {
        unsafe { warpline_ibv_destroy_qp(null_mut()) }.into()
    }),
    ("ibv_modify_qp", "RESET to RTR", INVALID, |lab| {
        changed(lab, IBV_QPS_RESET, rtr(lab.gid(), 7), RTR)
    }),
    ("ibv_modify_qp", "RESET to RTS", INVALID, |lab| changed(lab, IBV_QPS_RESET, rts(), RTS)),
    ("ibv_modify_qp", "INIT to RTS", INVALID, |lab| changed(lab, IBV_QPS_INIT, rts(), RTS)),
    ("ibv_modify_qp", "INIT to SQD", INVALID, |lab| to_state(lab, IBV_QPS_INIT, IBV_QPS_SQD)),
    ("ibv_modify_qp", "INIT to no state", INVALID, |lab| to_state(lab, IBV_QPS_INIT, 9)),
    ("ibv_modify_qp", "ERR to INIT", INVALID, |lab| to_state(lab, IBV_QPS_ERR, IBV_QPS_INIT)),
    ("ibv_modify_qp", "RESET to ERR", DONE, |lab| to_state(lab, IBV_QPS_RESET, IBV_QPS_ERR)),
    ("ibv_modify_qp", "ERR to ERR", DONE, |lab| to_state(lab, IBV_QPS_ERR, IBV_QPS_ERR)),
    ("ibv_modify_qp", "ERR to RESET", DONE, |lab| to_state(lab, IBV_QPS_ERR, IBV_QPS_RESET)),
    ("ibv_modify_qp", "to INIT without a port", INVALID, |lab| {
        to_init_with(lab, |_| (), INIT & !IBV_QP_PORT)
    }),
    ("ibv_modify_qp", "to INIT without rights", INVALID, |lab| {
        to_init_with(lab, |_| (), INIT & !IBV_QP_ACCESS_FLAGS)
    }),
    ("ibv_modify_qp", "to INIT at another port", INVALID, |lab| {
        to_init_with(lab, |attr| attr.port_num = 2, INIT)
    }),
    ("ibv_modify_qp", "to INIT with another P_Key", INVALID, |lab| {
        to_init_with(lab, |attr| attr.pkey_index = 1, INIT)
    }),
    ("ibv_modify_qp", "to INIT with a Q_Key", INVALID, |lab| {
        to_init_with(lab, |_| (), INIT | IBV_QP_QKEY)
    }),
    ("ibv_modify_qp", "to RTR without the peer's number", INVALID, |lab| {
        to_rtr_with(lab, |_| (), RTR & !IBV_QP_DEST_QPN)
    }),
    ("ibv_modify_qp", "to RTR without a path", INVALID, |lab| {
        to_rtr_with(lab, |_| (), RTR & !IBV_QP_AV)
    }),
    ("ibv_modify_qp", "a number of more than 24 bits", INVALID, |lab| {
        to_rtr_with(lab, |attr| attr.dest_qp_num = 1 << 24, RTR)
    }),
    ("ibv_modify_qp", "a path from another port", INVALID, |lab| {
        to_rtr_with(lab, |attr| attr.ah_attr.port_num = 2, RTR)
    }),
    ("ibv_modify_qp", "a path from no GID of this end", INVALID, |lab| {
        to_rtr_with(lab, |attr| attr.ah_attr.grh.sgid_index = 200, RTR)
    }),
    ("ibv_modify_qp", "a path to a LID", INVALID, |lab| {
        to_rtr_with(lab, |attr| (attr.ah_attr.is_global, attr.ah_attr.dlid) = (0, 1), RTR)
    }),
    ("ibv_modify_qp", "an MTU that there is not", INVALID, |lab| {
        to_rtr_with(lab, |attr| attr.path_mtu = 6, RTR)
    }),
    ("ibv_modify_qp", "more reads of the peer than the device's", INVALID, |lab| {
        to_rtr_with(lab, |attr| attr.max_dest_rd_atomic = 255, RTR)
    }),
    ("ibv_modify_qp", "more reads than the device's", INVALID, |lab| {
        to_rts_with(lab, |attr| attr.max_rd_atomic = 255)
    }),
    ("ibv_modify_qp", "a time-out of more than 5 bits", INVALID, |lab| {
        to_rts_with(lab, |attr| attr.timeout = 32)
    }),
];
