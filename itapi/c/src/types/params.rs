//! Parameter structures of the query and modify calls. No state.

use super::*;

record! { it_addr_param_t: 104 {
    0 ia: it_ia_handle_t,
    8 pz: it_pz_handle_t,
    16 path: it_path_t,
} }

record! { it_ep_param_t: 256 {
    0 ia: it_ia_handle_t,
    8 spigot_id: usize,
    16 ep_state: it_ep_state_t,
    20 service_type: it_transport_service_type_t,
    24 dst_path: it_path_t,
    112 pz: it_pz_handle_t,
    120 request_sevd: it_evd_handle_t,
    128 recv_sevd: it_evd_handle_t,
    136 connect_sevd: it_evd_handle_t,
    144 attr: it_ep_attributes_t,
} }

record! { it_evd_param_t: 64 {
    0 ia: it_ia_handle_t,
    8 event_number: it_event_type_t,
    12 evd_flag: it_evd_flags_t,
    16 sevd_queue_size: usize,
    24 sevd_threshold: usize,
    32 aevd: it_evd_handle_t,
    40 fd: c_int,
    44 evd_bound: it_boolean_t,
    48 evd_enabled: it_boolean_t,
    52 evd_overflowed: it_boolean_t,
    56 evd_callback: it_boolean_t,
} }

record! { it_interface_t: 140 {
    0 major_version: u32,
    4 minor_version: u32,
    8 transport_type: it_transport_type_t,
    12 name: [c_char; 128],
} }

record! { it_listen_param_t: 104 {
    0 ia_handle: it_ia_handle_t,
    8 spigot_id: usize,
    16 connect_evd: it_evd_handle_t,
    24 connect_qual: it_conn_qual_t,
} }

record! { it_lmr_param_t: 96 {
    0 ia: it_ia_handle_t,
    8 pz: it_pz_handle_t,
    16 addr: *mut c_void,
    24 length: it_length_t,
    32 privs: it_mem_priv_t,
    36 flags: it_lmr_flag_t,
    40 shared_id: u32,
    48 rmr_context: it_rmr_context_t,
    56 actual_addr: *mut c_void,
    64 actual_length: it_length_t,
    72 addr_mode: it_addr_mode_t,
    76 linked: it_boolean_t,
    80 iobl_num_elts: usize,
    88 iobl_type: it_iobl_type_t,
} }

record! { it_pz_param_t: 8 {
    0 ia: it_ia_handle_t,
} }

record! { it_rmr_param_t: 72 {
    0 ia: it_ia_handle_t,
    8 pz: it_pz_handle_t,
    16 linked: it_boolean_t,
    24 lmr: it_lmr_handle_t,
    32 addr: *mut c_void,
    40 length: it_length_t,
    48 privs: it_mem_priv_t,
    56 rmr_context: it_rmr_context_t,
    64 r#type: it_rmr_type_t,
    68 addr_mode: it_addr_mode_t,
} }

record! { it_srq_param_t: 40 {
    0 ia: it_ia_handle_t,
    8 pz: it_pz_handle_t,
    16 max_recv_dtos: usize,
    24 max_recv_segs: usize,
    32 low_watermark: usize,
} }

record! { itw_vendor_calls_t: 16 {
    0 table: *mut c_void,
    8 context: *mut c_void,
} }
