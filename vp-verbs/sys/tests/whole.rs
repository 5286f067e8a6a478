//! The whole structures and the numbers of a library in rdma-core's place, against the system's headers.
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::mem::{offset_of, size_of};
use std::process::Command;

use ibv_sys::*;

/// C's expression, and our value.
type Fact = (String, u64);

macro_rules! fields {
    ($facts:ident, $($c:ident as $ty:ident { $($field:ident),* })*) => {$($(
        let c_name = stringify!($field).trim_end_matches('_');
        let text = format!("offsetof(struct {}, {c_name})", stringify!($c));
        $facts.push((text, offset_of!($ty, $field) as u64));
    )*)*};
}

macro_rules! sizes {
    ($facts:ident, $($c:ident as $ty:ident)*) => {$(
        $facts.push((format!("sizeof(struct {})", stringify!($c)), size_of::<$ty>() as u64));
    )*};
}

macro_rules! numbers {
    ($facts:ident, $($name:ident)*) => {
        $($facts.push((stringify!($name).into(), $name as u64));)*
    };
}

fn facts() -> Vec<Fact> {
    let mut facts = Vec::new();
    sizes!(facts, ibv_cq as whole_cq ibv_cq_ex as ibv_cq_ex ibv_srq as whole_srq ibv_qp as whole_qp
        ibv_qp_init_attr_ex as ibv_qp_init_attr_ex ibv_cq_init_attr_ex as ibv_cq_init_attr_ex
        ibv_srq_init_attr_ex as ibv_srq_init_attr_ex ibv_device_attr_ex as ibv_device_attr_ex
        ibv_gid_entry as ibv_gid_entry ibv_poll_cq_attr as ibv_poll_cq_attr
        ibv_wc_tm_info as ibv_wc_tm_info ibv_values_ex as ibv_values_ex ibv_modify_cq_attr as ibv_modify_cq_attr
        ibv_data_buf as ibv_data_buf);
    fields!(facts,
        ibv_device as whole_device { dev_name, dev_path, ibdev_path }
        ibv_cq as whole_cq { mutex, cond, comp_events_completed, async_events_completed }
        ibv_cq_ex as ibv_cq_ex { comp_mask, status, wr_id, start_poll, next_poll, end_poll,
            read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp,
            read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan,
            read_flow_tag, read_tm_info, read_completion_wallclock_ns }
        ibv_srq as whole_srq { mutex, cond, events_completed }
        ibv_qp as whole_qp { mutex, cond, events_completed }
        ibv_qp_ex as ibv_qp_ex { comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add,
            wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send,
            wr_send_imm, wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn,
            wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start,
            wr_complete, wr_abort }
        ibv_qp_init_attr_ex as ibv_qp_init_attr_ex { cap, qp_type, sq_sig_all, comp_mask, pd,
            create_flags, max_tso_header, source_qpn, send_ops_flags }
        ibv_cq_init_attr_ex as ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags,
            comp_mask, flags, parent_domain }
        ibv_srq_init_attr_ex as ibv_srq_init_attr_ex { attr, comp_mask, srq_type, pd, cq }
        ibv_device_attr_ex as ibv_device_attr_ex { comp_mask, odp_caps, completion_timestamp_mask,
            hca_core_clock, device_cap_flags_ex, pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex }
        ibv_values_ex as ibv_values_ex { raw_clock }
        ibv_gid_entry as ibv_gid_entry { gid_index, port_num, gid_type, ndev_ifindex });
    numbers!(facts, IBV_NODE_RNIC IBV_PORT_DOWN IBV_MTU_256 IBV_GID_TYPE_ROCE_V2
        IBV_DEVICE_CURR_QP_STATE_MOD IBV_DEVICE_RESIZE_MAX_WR IBV_ATOMIC_HCA IBV_ACCESS_ZERO_BASED
        IBV_ACCESS_ON_DEMAND IBV_ACCESS_HUGETLB IBV_ACCESS_OPTIONAL_FIRST IBV_QPT_UC
        IBV_QPS_RESET IBV_QPS_SQD IBV_QPS_SQE IBV_QP_CUR_STATE IBV_QP_EN_SQD_ASYNC_NOTIFY IBV_QP_AV
        IBV_QP_PATH_MTU IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN
        IBV_QP_MAX_QP_RD_ATOMIC IBV_QP_ALT_PATH IBV_QP_MIN_RNR_TIMER IBV_QP_MAX_DEST_RD_ATOMIC
        IBV_QP_PATH_MIG_STATE IBV_QP_CAP IBV_QP_DEST_QPN IBV_QP_INIT_ATTR_PD
        IBV_QP_INIT_ATTR_CREATE_FLAGS IBV_QP_INIT_ATTR_SEND_OPS_FLAGS IBV_QP_EX_WITH_SEND IBV_QP_EX_WITH_SEND_WITH_IMM
        IBV_WC_RDMA_WRITE IBV_WC_SEND IBV_WC_RDMA_READ IBV_WC_COMP_SWAP IBV_WC_FETCH_ADD
        IBV_WC_BIND_MW IBV_WC_LOCAL_INV IBV_WC_GENERAL_ERR IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK IBV_WC_STANDARD_FLAGS
        IBV_CQ_INIT_ATTR_MASK_FLAGS IBV_CREATE_CQ_ATTR_SINGLE_THREADED
        IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN IBV_CQ_ATTR_MODERATE IBV_SRQ_INIT_ATTR_TYPE
        IBV_SRQ_INIT_ATTR_PD IBV_SRQT_BASIC IBV_FORK_UNNEEDED IBV_VALUES_MASK_RAW_CLOCK);
    facts.push(("IBV_QP_EX_WITH_SEND_WITH_INV * 2 - 1".into(), IBV_QP_EX_WITH_ALL_RC));
    facts.push(("sizeof(struct ibv_device)".into(), offset_of!(whole_device, behind) as u64));
    let context = offset_of!(verbs_context, context);
    let behind = |field: usize| (field - context) as u64;
    facts.push(("sizeof(struct ibv_context)".into(), behind(offset_of!(verbs_context, behind))));
    let abi_compat = offset_of!(verbs_context, abi_compat);
    facts.push(("offsetof(struct ibv_context, abi_compat)".into(), behind(abi_compat)));
    // The structure grows at its front: distances to the context at its end are what counts.
    macro_rules! slots {
        ($($slot:ident)*) => {$(
            let name = stringify!($slot);
            let text = format!(
                "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, {name})"
            );
            facts.push((text, (context - offset_of!(verbs_context, $slot)) as u64));
        )*};
    }
    slots!(query_port modify_cq query_rt_values create_cq_ex query_device_ex create_qp_ex get_srq_num
        create_srq_ex sz);
    facts
}

#[test]
fn whole_structures_agree_with_the_headers() {
    const TEST: &str = "whole structures of libibverbs";
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").exists() {
        return warpline_skip::skip(TEST, warpline_skip::missing("libibverbs-dev"));
    }
    let mut source = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
    for (n, (text, value)) in facts().iter().enumerate() {
        let line = format!("_Static_assert({text} == {value}, \"{n}: {text} is not {value}\");\n");
        source.push_str(&line);
    }
    let file = std::env::temp_dir().join(format!("warpline-whole-{}.c", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(["-std=c11", "-fsyntax-only"]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let Ok(compiled) = compiled else {
        return warpline_skip::skip(TEST, warpline_skip::missing("gcc"));
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
