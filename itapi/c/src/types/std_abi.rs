//! The standard layout: cookies of 8 octets, private data of 256 after the rest. No state.

use super::*;

pub(crate) const IT_MAX_PRIV_DATA: usize = 256;

pub(crate) type it_dto_cookie_t = u64;

record! { it_connection_event_t: 392 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 cn_est_id: it_cn_est_identifier_t,
    24 ep: it_ep_handle_t,
    32 rdma_read_ird: u32,
    36 rdma_read_ord: u32,
    40 dst_path: it_path_t,
    128 reject_reason_code: it_conn_reject_code_t,
    132 private_data: [u8; IT_MAX_PRIV_DATA],
    388 private_data_present: it_boolean_t,
} }

record! { it_ud_svc_reply_event_t: 392 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ud_svc: it_ud_svc_req_handle_t,
    24 status: it_ud_svc_req_status_t,
    28 ep_info: it_remote_ep_info_t,
    40 dst_path: it_path_t,
    128 private_data: [u8; IT_MAX_PRIV_DATA],
    384 private_data_present: it_boolean_t,
} }

record! { it_conn_request_event_t: 456 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 cn_est_id: it_cn_est_identifier_t,
    24 conn_qual: it_conn_qual_t,
    104 source_addr: it_net_addr_t,
    176 spigot_id: usize,
    184 max_message_size: u32,
    188 rdma_read_ird: u32,
    192 rdma_read_ord: u32,
    196 private_data: [u8; IT_MAX_PRIV_DATA],
    452 private_data_present: it_boolean_t,
} }

record! { it_ud_svc_request_event_t: 448 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ud_svc_req_id: it_ud_svc_req_identifier_t,
    24 conn_qual: it_conn_qual_t,
    104 source_addr: it_net_addr_t,
    176 spigot_id: usize,
    184 private_data: [u8; IT_MAX_PRIV_DATA],
    440 private_data_present: it_boolean_t,
} }

record! { it_dto_cmpl_event_t: 48 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ep: it_ep_handle_t,
    24 cookie: it_dto_cookie_t,
    32 dto_status: it_dto_status_t,
    36 transferred_length: u32,
    40 unlinked_mr_handle: it_handle_t,
} }

record! { it_all_dto_cmpl_event_t: 144 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ep: it_ep_handle_t,
    24 cookie: it_dto_cookie_t,
    32 dto_status: it_dto_status_t,
    36 transferred_length: u32,
    40 unlinked_mr_handle: it_handle_t,
    48 flags: it_dto_ud_flags_t,
    52 ud_ep_id: it_ud_ep_id_t,
    56 src_path: it_path_t,
} }

record! { it_ud_svc_req_param_t: 456 {
    0 ia: it_ia_handle_t,
    8 request_id: u32,
    16 reply_evd: it_evd_handle_t,
    24 conn_qual: it_conn_qual_t,
    104 destination_path: it_path_t,
    192 private_data: [u8; IT_MAX_PRIV_DATA],
    448 private_data_length: usize,
} }

choice! { it_event_t: 456 {
    event_number: it_event_type_t,
    any: it_any_event_t,
    dto_cmpl: it_dto_cmpl_event_t,
    all_dto_cmpl: it_all_dto_cmpl_event_t,
    conn_req: it_conn_request_event_t,
    ud_svc_request: it_ud_svc_request_event_t,
    conn: it_connection_event_t,
    ud_svc_reply: it_ud_svc_reply_event_t,
    aff_async: it_affiliated_event_t,
    unaff_async: it_unaffiliated_event_t,
    sw: it_software_event_t,
    aevd_notify: it_aevd_notification_event_t,
} }
