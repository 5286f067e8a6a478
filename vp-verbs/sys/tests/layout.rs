//! Our declarations of rdma-core's structures and numbers against the system's headers.
#![allow(clippy::unwrap_used)] // a test fails loudly

use std::mem::{offset_of, size_of};
use std::process::Command;

use ibv_sys::*;

/// C's expression, and our value.
struct Fact(String, u64);

macro_rules! fields {
    ($facts:ident, $($ty:ident { $($field:tt),* })*) => {$($(
        let c_name = stringify!($field).trim_end_matches('_');
        let text = format!("offsetof(struct {}, {c_name})", stringify!($ty));
        $facts.push(Fact(text, offset_of!($ty, $field) as u64));
    )*)*};
}

macro_rules! sizes {
    ($facts:ident, $($ty:ident)*) => {$(
        $facts.push(Fact(format!("sizeof(struct {})", stringify!($ty)), size_of::<$ty>() as u64));
    )*};
}

macro_rules! numbers {
    ($($name:ident)*) => {
        vec![$(Fact(stringify!($name).into(), $name as u64)),*]
    };
}

fn structures() -> Vec<Fact> {
    let mut facts = Vec::new();
    sizes!(facts, ibv_context_ops ibv_device_attr ibv_sge ibv_recv_wr ibv_send_wr ibv_wc
        ibv_qp_cap ibv_qp_init_attr ibv_ah_attr ibv_qp_attr ibv_srq_attr ibv_srq_init_attr
        ibv_async_event ibv_mw_bind ibv_mw_bind_info ibv_pd ibv_mr ibv_mw ibv_comp_channel
        rdma_event_channel rdma_addr rdma_route rdma_conn_param rdma_ud_param rdma_cm_event
        rdma_cm_id rdma_cm_join_mc_attr_ex rdma_addrinfo ibv_sa_path_rec ibv_global_route ibv_ah);
    fields!(facts,
        ibv_device { node_type, transport_type, name }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors }
        ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv,
            post_send, post_recv }
        ibv_device_attr { fw_ver, max_mr_size, vendor_id, max_qp, max_qp_wr, device_cap_flags,
            max_sge, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_qp_init_rd_atom,
            atomic_cap, max_mw, max_srq, max_srq_wr, phys_port_cnt }
        ibv_port_attr { state, active_mtu, gid_tbl_len, max_msg_sz, lid, link_layer, port_cap_flags2 }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_mr { addr, length, lkey, rkey }
        ibv_mw { rkey, type_ }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_comp_channel { fd }
        ibv_cq { channel, cq_context, cqe }
        ibv_srq { srq_context, pd }
        ibv_qp { qp_context, pd, send_cq, recv_cq, srq, qp_num, state, qp_type }
        ibv_sge { addr, length, lkey }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, wr, bind_mw }
        ibv_wc { wr_id, status, opcode, byte_len, qp_num, src_qp, wc_flags, slid, sl, dlid_path_bits }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr { qp_state, qkey, sq_psn, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index,
            max_rd_atomic, max_dest_rd_atomic, port_num, alt_timeout, rate_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_async_event { element, event_type }
        rdma_addr { src_storage, dst_storage }
        rdma_route { addr, path_rec, num_paths }
        rdma_cm_id { verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel,
            send_cq, recv_cq_channel, recv_cq, srq, pd, qp_type }
        rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len,
            ai_src_addr, ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route,
            ai_connect_len, ai_connect, ai_next }
        ibv_sa_path_rec { dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class,
            reversible, numb_path, pkey, sl, mtu_selector, mtu, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference }
        rdma_conn_param { private_data, private_data_len, responder_resources, initiator_depth,
            retry_count, rnr_retry_count, srq, qp_num }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
        rdma_cm_join_mc_attr_ex { comp_mask, join_flags, addr }
    );
    let inner = [
        ("offsetof(struct ibv_send_wr, invalidate_rkey)", offset_of!(ibv_send_wr, imm_or_rkey)),
        (
            "offsetof(struct ibv_send_wr, wr.atomic.swap)",
            offset_of!(ibv_send_wr, wr) + offset_of!(wr_atomic, swap),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.ud.remote_qkey)",
            offset_of!(ibv_send_wr, wr) + offset_of!(wr_ud, remote_qkey),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.rdma.rkey)",
            offset_of!(ibv_send_wr, wr) + offset_of!(wr_rdma, rkey),
        ),
        (
            "offsetof(struct ibv_send_wr, bind_mw.bind_info)",
            offset_of!(ibv_send_wr, bind_mw) + offset_of!(wr_bind_mw, bind_info),
        ),
        ("offsetof(struct ibv_wc, invalidated_rkey)", offset_of!(ibv_wc, imm_or_rkey)),
        ("sizeof(union ibv_gid)", size_of::<ibv_gid>()),
        // Ours has room for the fields of later versions after it.
        ("sizeof(struct ibv_port_attr)", size_of::<ibv_port_attr>() - 12),
        // Where the second name of a device is looked for.
        ("offsetof(struct ibv_device, dev_name)", size_of::<ibv_device>()),
    ];
    facts.extend(inner.map(|(text, value)| Fact(text.into(), value as u64)));
    facts
}

fn enumerations() -> Vec<Fact> {
    numbers!(IBV_TRANSPORT_IWARP IBV_PORT_ACTIVE IBV_DEVICE_SRQ_RESIZE
        IBV_DEVICE_MEM_WINDOW IBV_DEVICE_MEM_MGT_EXTENSIONS IBV_DEVICE_MEM_WINDOW_TYPE_2A
        IBV_DEVICE_MEM_WINDOW_TYPE_2B IBV_ATOMIC_NONE IBV_ACCESS_LOCAL_WRITE
        IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
        IBV_ACCESS_MW_BIND IBV_REREG_MR_CHANGE_TRANSLATION IBV_REREG_MR_CHANGE_PD
        IBV_REREG_MR_CHANGE_ACCESS IBV_WR_RDMA_WRITE IBV_WR_RDMA_WRITE_WITH_IMM IBV_WR_SEND
        IBV_WR_SEND_WITH_IMM IBV_WR_RDMA_READ IBV_WR_ATOMIC_CMP_AND_SWP
        IBV_WR_ATOMIC_FETCH_AND_ADD IBV_WR_LOCAL_INV IBV_WR_BIND_MW IBV_WR_SEND_WITH_INV
        IBV_SEND_FENCE IBV_SEND_SIGNALED IBV_SEND_SOLICITED IBV_SEND_INLINE IBV_WC_SUCCESS
        IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
        IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_LOC_ACCESS_ERR IBV_WC_REM_INV_REQ_ERR
        IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR IBV_WC_RNR_RETRY_EXC_ERR
        IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR IBV_WC_RESP_TIMEOUT_ERR IBV_WC_RECV
        IBV_WC_RECV_RDMA_WITH_IMM IBV_WC_WITH_IMM IBV_WC_WITH_INV IBV_EVENT_CQ_ERR
        IBV_EVENT_QP_FATAL IBV_EVENT_QP_REQ_ERR IBV_EVENT_QP_ACCESS_ERR IBV_EVENT_COMM_EST
        IBV_EVENT_SQ_DRAINED IBV_EVENT_PATH_MIG IBV_EVENT_PATH_MIG_ERR IBV_EVENT_DEVICE_FATAL
        IBV_EVENT_PORT_ACTIVE IBV_EVENT_PORT_ERR IBV_EVENT_SRQ_ERR IBV_EVENT_SRQ_LIMIT_REACHED
        IBV_EVENT_QP_LAST_WQE_REACHED IBV_EVENT_GID_CHANGE IBV_QPT_RC IBV_QPS_INIT IBV_QPS_RTR
        IBV_QPS_RTS IBV_QPS_ERR IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT
        IBV_SRQ_MAX_WR IBV_SRQ_LIMIT IBV_MW_TYPE_1 IBV_MW_TYPE_2 RDMA_PS_TCP
        RDMA_PS_UDP RDMA_UDP_QKEY IBV_QPT_UD IBV_WC_GRH IBV_QP_QKEY IBV_QP_SQ_PSN
        IBV_LINK_LAYER_ETHERNET
        RDMA_CM_EVENT_ADDR_RESOLVED RDMA_CM_EVENT_ADDR_ERROR RDMA_CM_EVENT_ROUTE_RESOLVED
        RDMA_CM_EVENT_ROUTE_ERROR RDMA_CM_EVENT_CONNECT_REQUEST RDMA_CM_EVENT_CONNECT_RESPONSE
        RDMA_CM_EVENT_CONNECT_ERROR RDMA_CM_EVENT_UNREACHABLE RDMA_CM_EVENT_REJECTED
        RDMA_CM_EVENT_ESTABLISHED RDMA_CM_EVENT_DISCONNECTED RDMA_CM_EVENT_DEVICE_REMOVAL
        RDMA_CM_EVENT_MULTICAST_JOIN RDMA_CM_EVENT_MULTICAST_ERROR RDMA_CM_EVENT_ADDR_CHANGE
        RDMA_CM_EVENT_TIMEWAIT_EXIT RDMA_PS_IPOIB RDMA_PS_IB RDMA_MAX_RESP_RES RDMA_MAX_INIT_DEPTH
        RDMA_OPTION_ID RDMA_OPTION_IB RDMA_OPTION_ID_TOS RDMA_OPTION_ID_REUSEADDR
        RDMA_OPTION_ID_AFONLY RDMA_OPTION_ID_ACK_TIMEOUT RDMA_OPTION_IB_PATH RAI_PASSIVE
        RAI_NUMERICHOST RAI_NOROUTE RAI_FAMILY)
}

#[test]
fn declarations_agree_with_the_headers() {
    const TEST: &str = "layout of rdma-core's structures";
    if !std::path::Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return warpline_skip::skip(TEST, warpline_skip::missing("libibverbs-dev"));
    }
    let facts: Vec<Fact> = structures().into_iter().chain(enumerations()).collect();
    let mut source = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
    for (n, Fact(text, value)) in facts.iter().enumerate() {
        let line = format!("_Static_assert({text} == {value}, \"{n}: {text} is not {value}\");\n");
        source.push_str(&line);
    }
    let file = std::env::temp_dir().join(format!("warpline-layout-{}.c", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("cc").args(["-std=c11", "-fsyntax-only"]).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let Ok(compiled) = compiled else {
        return warpline_skip::skip(TEST, warpline_skip::missing("gcc"));
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}
