//! The layout of the Zurich stack (`ITAPI_ZRL_EXTENSIONS`): cookies of 24 octets, private data of
//! 64 in front of the other members. No state.

use super::*;

pub(crate) const IT_MAX_PRIV_DATA: usize = 64;

// `it_Bit192_t` in C.
record! { it_dto_cookie_t: 24 {
    0 first: u64,
    8 second: u64,
    16 extend: u64,
} }

// Swapped in comparison with the standard.
numbers! { it_ep_state_ud_t {
    IT_EP_STATE_UD_OPERATIONAL = 0,
    IT_EP_STATE_UD_NONOPERATIONAL = 1,
} }

record! { it_connection_event_t: 208 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 private_data: [u8; IT_MAX_PRIV_DATA],
    80 private_data_present: it_boolean_t,
    88 cn_est_id: it_cn_est_identifier_t,
    96 ep: it_ep_handle_t,
    104 rdma_read_ird: u32,
    108 rdma_read_ord: u32,
    112 dst_path: it_path_t,
    200 reject_reason_code: it_conn_reject_code_t,
} }

record! { it_ud_svc_reply_event_t: 200 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 private_data: [u8; IT_MAX_PRIV_DATA],
    80 private_data_present: it_boolean_t,
    88 ud_svc: it_ud_svc_req_handle_t,
    96 status: it_ud_svc_req_status_t,
    100 ep_info: it_remote_ep_info_t,
    112 dst_path: it_path_t,
} }

record! { it_conn_request_event_t: 272 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 private_data: [u8; IT_MAX_PRIV_DATA],
    80 private_data_present: it_boolean_t,
    88 cn_est_id: it_cn_est_identifier_t,
    96 conn_qual: it_conn_qual_t,
    176 source_addr: it_net_addr_t,
    248 spigot_id: usize,
    256 max_message_size: u32,
    260 rdma_read_ird: u32,
    264 rdma_read_ord: u32,
} }

record! { it_ud_svc_request_event_t: 256 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 private_data: [u8; IT_MAX_PRIV_DATA],
    80 private_data_present: it_boolean_t,
    88 ud_svc_req_id: it_ud_svc_req_identifier_t,
    96 conn_qual: it_conn_qual_t,
    176 source_addr: it_net_addr_t,
    248 spigot_id: usize,
} }

record! { it_dto_cmpl_event_t: 64 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ep: it_ep_handle_t,
    24 cookie: it_dto_cookie_t,
    48 dto_status: it_dto_status_t,
    52 transferred_length: u32,
    56 unlinked_mr_handle: it_handle_t,
} }

record! { it_all_dto_cmpl_event_t: 160 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ep: it_ep_handle_t,
    24 cookie: it_dto_cookie_t,
    48 dto_status: it_dto_status_t,
    52 transferred_length: u32,
    56 unlinked_mr_handle: it_handle_t,
    64 flags: it_dto_ud_flags_t,
    68 ud_ep_id: it_ud_ep_id_t,
    72 src_path: it_path_t,
} }

record! { it_event_cm_any_t: 88 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 private_data: [u8; IT_MAX_PRIV_DATA],
    80 private_data_present: it_boolean_t,
} }

choice! { it_event_t: 272 {
    event_number: it_event_type_t,
    any: it_any_event_t,
    cm_any: it_event_cm_any_t,
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

record! { it_ud_svc_req_param_t: 264 {
    0 ia: it_ia_handle_t,
    8 request_id: u32,
    16 reply_evd: it_evd_handle_t,
    24 conn_qual: it_conn_qual_t,
    104 destination_path: it_path_t,
    192 private_data: [u8; IT_MAX_PRIV_DATA],
    256 private_data_length: usize,
} }
