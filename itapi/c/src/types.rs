//! The C types of IT-API in Rust, as `it_api.h` declares them for x86-64 and AArch64. No state.
//!
//! Numbers are `u32`, never Rust enumerations: a caller may pass anything. Every record and union
//! states its size and offsets, which the compiler checks here and the C tests check in the header.
//!
//! Two layouts exist side by side where the Zurich stack differs from the standard:
//! [`std_abi`] (cookies of 8 octets, private data of 256 after the other members) and [`zrl`]
//! (24, 64, in front). Every function that passes a cookie, an event, an `it_ep_param_t` (the
//! states of unreliable endpoints are swapped), private data or its limits, or an
//! `it_ud_svc_req_param_t` therefore has two entry points: `it_x` and `it_x_zrl`.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_ulong, c_void};

#[macro_use]
mod declare;
mod numbers;
mod params;
pub(crate) mod std_abi;
pub(crate) mod zrl;

pub(crate) use numbers::*;
pub(crate) use params::*;

pub(crate) type it_status_t = u32;
pub(crate) type it_rmr_context_t = u64;
pub(crate) type it_length_t = u64;
pub(crate) type it_ud_svc_req_identifier_t = u64;
pub(crate) type it_cn_est_identifier_t = u64;
pub(crate) type it_ib_serviceid_t = u64;
pub(crate) type it_rdma_addr_t = u64;
pub(crate) type it_ud_ep_id_t = u32;
pub(crate) type it_ud_ep_key_t = u32;
pub(crate) type it_ib_gid_t = libc::in6_addr;
pub(crate) type it_via_net_endpoint_t = it_via_net_addr_t;
pub(crate) type it_handle_t = *mut c_void;
pub(crate) type it_evd_callback_rtn_t =
    Option<unsafe extern "C" fn(evd: it_evd_handle_t, arg: *mut c_void)>;

/// A boolean for C.
pub(crate) fn boolean(value: bool) -> it_boolean_t {
    if value { IT_TRUE } else { IT_FALSE }
}

opaque! {
    it_addr_handle_t = *it_addr_handle_s;
    it_ep_handle_t = *it_ep_handle_s;
    it_evd_handle_t = *it_evd_handle_s;
    it_ia_handle_t = *it_ia_handle_s;
    it_listen_handle_t = *it_listen_handle_s;
    it_lmr_handle_t = *it_lmr_handle_s;
    it_pz_handle_t = *it_pz_handle_s;
    it_rmr_handle_t = *it_rmr_handle_s;
    it_ud_svc_req_handle_t = *it_ud_svc_req_handle_s;
    it_srq_handle_t = *it_srq_handle_s;
    it_io_addr_t = *it_io_addr_s;
}

pub(crate) const IT_HARD_HI_WATERMARK_DISABLE: usize = usize::MAX;
pub(crate) const IT_EVENT_STREAM_MASK: u32 = 0xff000;
pub(crate) const IT_TIMEOUT_INFINITE: u64 = u64::MAX;

record! { it_via_discriminator_t: 66 {
    0 len: u16,
    2 discriminator: [u8; 64],
} }

record! { it_iana_lr_port_t: 4 {
    0 local: u16,
    2 remote: u16,
} }

choice! { it_conn_qual_u: 72 {
    port: u16,
    serviceid: it_ib_serviceid_t,
    discriminator: it_via_discriminator_t,
    lr_port: it_iana_lr_port_t,
} }
record! { it_conn_qual_t: 80 {
    0 r#type: it_conn_qual_type_t,
    8 conn_qual: it_conn_qual_u,
} }

choice! { it_context_t: 8 { ptr: *mut c_void, index: u64, } }

record! { it_via_net_addr_t: 66 {
    0 len: u16,
    2 hostaddr: [u8; 64],
} }

choice! { it_net_addr_u: 68 {
    ipv4: libc::in_addr,
    ipv6: libc::in6_addr,
    gid: it_ib_gid_t,
    via: it_via_net_addr_t,
} }
record! { it_net_addr_t: 72 {
    0 addr_type: it_net_addr_type_t,
    4 addr: it_net_addr_u,
} }

record! { it_spigot_info_t: 64 {
    0 spigot_id: usize,
    8 max_rc_send_len: usize,
    16 max_rc_rdma_len: usize,
    24 max_ud_send_len: usize,
    32 spigot_online: it_boolean_t,
    36 active_side_conn_qual: it_conn_qual_type_t,
    40 passive_side_conn_qual: it_conn_qual_type_t,
    48 num_net_addr: usize,
    56 net_addr: *mut it_net_addr_t,
} }

// `vendor` is 24 bits.
record! { it_vendor_ib_t: 12 { 0 vendor: u32, 4 device: u16, 8 revision: u32, } }

record! { it_vendor_via_t: 80 {
    0 name: [c_char; 64],
    64 hardware: c_ulong,
    72 provider: c_ulong,
} }

record! { it_vendor_iwarp_tcp_t: 68 {
    0 valid_vid: it_boolean_t,
    4 vid: [u8; 64],
} }

record! { it_iobl_ve_elt_t: 16 {
    0 io_addr: it_io_addr_t,
    8 elt_len: it_length_t,
} }

record! { it_iobl_ce_list: 16 { 0 list_elt: *mut it_io_addr_t, 8 elt_len: it_length_t, } }
record! { it_iobl_ve_list: 8 { 0 list_elt: *mut it_iobl_ve_elt_t, } }
choice! { it_iobl_list: 16 { ce_list: it_iobl_ce_list, ve_list: it_iobl_ve_list, } }
record! { it_iobl_t: 40 {
    0 iobl_type: it_iobl_type_t,
    8 list: it_iobl_list,
    24 num_elts: usize,
    32 fbo: it_length_t,
} }

choice! { it_vendor_u: 80 {
    ib: it_vendor_ib_t,
    via: it_vendor_via_t,
    iwarp: it_vendor_iwarp_tcp_t,
} }
record! { it_ia_info_t: 336 {
    0 ia_name: *mut c_char,
    8 api_major_version: u32,
    12 api_minor_version: u32,
    16 sw_major_version: u32,
    20 sw_minor_version: u32,
    24 vendor: it_vendor_u,
    104 dto_alignment_hint: u32,
    108 transport_type: it_transport_type_t,
    112 supported_service_types: it_transport_service_type_t,
    116 ep_work_queues_resizable: it_boolean_t,
    120 three_way_handshake_support: it_boolean_t,
    124 private_data_support: it_boolean_t,
    128 max_message_size_support: it_boolean_t,
    132 ird_ord_ia_support: it_boolean_t,
    136 ird_ord_suppressible: it_boolean_t,
    140 spigot_online_support: it_boolean_t,
    144 spigot_offline_support: it_boolean_t,
    152 connect_private_data_len: usize,
    160 accept_private_data_len: usize,
    168 reject_private_data_len: usize,
    176 disconnect_private_data_len: usize,
    184 ud_req_private_data_len: usize,
    192 ud_rep_private_data_len: usize,
    200 num_spigots: usize,
    208 spigot_info: *mut it_spigot_info_t,
    216 affiliated_err_evd: it_evd_handle_t,
    224 unaffiliated_err_evd: it_evd_handle_t,
    232 srq_support: it_boolean_t,
    236 hard_hi_watermark_support: it_boolean_t,
    240 soft_hi_watermark_support: it_boolean_t,
    244 srq_resizable: it_boolean_t,
    248 extended_iwarp_qp_states: it_boolean_t,
    252 socket_conversion_support: it_boolean_t,
    256 rdma_read_ord_increasable: it_boolean_t,
    260 rdma_read_ird_modifiable: it_boolean_t,
    264 rmr_types_supported: it_rmr_type_t,
    268 addr_mode_relative_support: it_boolean_t,
    272 rdma_read_requires_remote_write: it_boolean_t,
    276 ep_rdma_enables_modifiable: it_boolean_t,
    280 rdma_read_local_extensions: it_boolean_t,
    284 dto_evd_overflow_detection: it_boolean_t,
    288 atomic_support: it_boolean_t,
    292 lmr_link_support: it_boolean_t,
    296 direct_lmr_handle_support: it_boolean_t,
    304 direct_lmr_handle: it_lmr_handle_t,
    312 post_send_unlink_remote_support: it_boolean_t,
    316 narrow_rmr_unlink_support: it_boolean_t,
    320 wide_rmr_unlink_support: it_boolean_t,
    324 unlink_fence_support: it_boolean_t,
    328 iobl_types_supported: it_iobl_type_t,
} }

choice! { it_lmr_addr_u: 8 { abs: *mut c_void, rel: it_length_t, io: it_io_addr_t, } }
record! { it_lmr_triplet_t: 24 {
    0 lmr: it_lmr_handle_t,
    8 addr: it_lmr_addr_u,
    16 length: it_length_t,
} }

choice! { it_rmr_addr_u: 8 { abs: *mut c_void, rel: it_length_t, } }
record! { it_rmr_triplet_t: 24 {
    0 rmr: it_rmr_handle_t,
    8 addr: it_rmr_addr_u,
    16 length: it_length_t,
} }

// The bit fields are the octets that hold them.
record! { it_ib_net_endpoint_t: 52 {
    0 partition_key: u16,
    2 path_mtu: u8,
    3 packet_lifetime: u8,
    4 local_port_lid: u16,
    6 remote_port_lid: u16,
    8 local_port_gid: it_ib_gid_t,
    24 remote_port_gid: it_ib_gid_t,
    40 packet_rate: u8,
    41 sl_subnet_local: u8,
    42 unused: [u8; 2],
    44 flow_label: [u8; 3],
    47 traffic_class: u8,
    48 hop_limit: u8,
} }

choice! { it_in_addr_t: 16 { ipv4: libc::in_addr, ipv6: libc::in6_addr, } }

record! { it_iwarp_net_endpoint_t: 36 {
    0 ip_vers: it_ip_vers_t,
    4 laddr: it_in_addr_t,
    20 raddr: it_in_addr_t,
} }

choice! { it_path_u: 68 {
    ib: it_ib_net_endpoint_t,
    via: it_via_net_endpoint_t,
    iwarp: it_iwarp_net_endpoint_t,
} }
record! { it_path_t: 88 {
    0 spigot_id: usize,
    8 timeout: u64,
    16 u: it_path_u,
} }

record! { it_rc_only_attributes_t: 64 {
    0 rdma_read_enable: it_boolean_t,
    4 rdma_write_enable: it_boolean_t,
    8 max_rdma_read_segments: usize,
    16 max_rdma_write_segments: usize,
    24 rdma_read_ird: u32,
    28 rdma_read_ord: u32,
    32 srq: it_srq_handle_t,
    40 soft_hi_watermark: usize,
    48 hard_hi_watermark: usize,
    56 atomics_enable: it_boolean_t,
} }

record! { it_remote_ep_info_t: 8 {
    0 ud_ep_id: it_ud_ep_id_t,
    4 ud_ep_key: it_ud_ep_key_t,
} }

record! { it_ud_only_attributes_t: 8 {
    0 ep_info: it_remote_ep_info_t,
} }

choice! { it_service_attributes_t: 64 {
    rc: it_rc_only_attributes_t,
    ud: it_ud_only_attributes_t,
} }

record! { it_ep_attributes_t: 112 {
    0 max_dto_payload_size: usize,
    8 max_request_dtos: usize,
    16 max_recv_dtos: usize,
    24 max_send_segments: usize,
    32 max_recv_segments: usize,
    40 srv: it_service_attributes_t,
    104 priv_ops_enable: it_boolean_t,
} }

choice! { it_ep_state_t: 4 { rc: it_ep_state_rc_t, ud: it_ep_state_ud_t, } }

record! { it_ib_ud_addr_t: 16 {
    0 addr: it_addr_handle_t,
    8 ep_info: it_remote_ep_info_t,
} }

choice! { it_dg_remote_ep_addr_u: 16 { ud: it_ib_ud_addr_t, } }
record! { it_dg_remote_ep_addr_t: 24 {
    0 r#type: it_dg_type_t,
    8 addr: it_dg_remote_ep_addr_u,
} }

// The bit fields are the octets that hold them.
record! { it_ib_conn_attributes_t: 4 {
    0 remote_cm_timeout: u8,
    1 local_cm_timeout_retry_count: u8,
    2 rnr_retry_count_max_cm_retries: u8,
    3 local_ack_timeout: u8,
} }

record! { it_via_conn_attributes_t: 8 {
    0 unused: *mut c_void,
} }

record! { it_iwarp_conn_attributes_t: 8 {
    0 unused: *mut c_void,
} }

choice! { it_conn_attributes_t: 8 {
    ib: it_ib_conn_attributes_t,
    via: it_via_conn_attributes_t,
    iwarp: it_iwarp_conn_attributes_t,
} }

record! { it_aevd_notification_event_t: 24 {
    0 event_number: it_event_type_t,
    8 aevd: it_evd_handle_t,
    16 sevd: it_evd_handle_t,
} }

choice! { it_affiliated_cause_u: 8 {
    sevd: it_evd_handle_t,
    ep: it_ep_handle_t,
    srq: it_srq_handle_t,
} }
record! { it_affiliated_event_t: 24 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 cause: it_affiliated_cause_u,
} }

record! { it_software_event_t: 24 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 data: *mut c_void,
} }

record! { it_unaffiliated_event_t: 32 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
    16 ia: it_ia_handle_t,
    24 spigot_id: usize,
} }

record! { it_any_event_t: 16 {
    0 event_number: it_event_type_t,
    8 evd: it_evd_handle_t,
} }
