//! What `rdma/rdma_cma.h` and `infiniband/sa.h` have for those who implement librdmacm: address information,
//! path records, options and the rest of the numbers. Plain data, in C's layout and under C's names.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

use crate::{ibv_gid, rdma_addr, rdma_cm_event, rdma_cm_id, rdma_event_channel, rdma_route};

pub const RDMA_PS_IPOIB: c_uint = 0x0002;
pub const RDMA_PS_IB: c_uint = 0x013f;

pub const RDMA_CM_EVENT_MULTICAST_JOIN: c_uint = 12;
pub const RDMA_CM_EVENT_MULTICAST_ERROR: c_uint = 13;
pub const RDMA_CM_EVENT_ADDR_CHANGE: c_uint = 14;

pub const RDMA_MAX_RESP_RES: u8 = 0xff;
pub const RDMA_MAX_INIT_DEPTH: u8 = 0xff;

pub const RDMA_OPTION_ID: c_int = 0;
pub const RDMA_OPTION_IB: c_int = 1;
pub const RDMA_OPTION_ID_TOS: c_int = 0;
pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
pub const RDMA_OPTION_IB_PATH: c_int = 1;

pub const RAI_PASSIVE: c_int = 1;
pub const RAI_NUMERICHOST: c_int = 2;
pub const RAI_NOROUTE: c_int = 4;
pub const RAI_FAMILY: c_int = 8;

pub const RDMA_CM_JOIN_MC_ATTR_ADDRESS: u32 = 1;
pub const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: u32 = 2;
pub const RDMA_MC_JOIN_FLAG_FULLMEMBER: u32 = 0;
pub const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u32 = 1;

/// What `rdma_join_multicast_ex` joins.
#[repr(C)]
pub struct rdma_cm_join_mc_attr_ex {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut libc::sockaddr,
}

/// Lists of addresses as `rdma_getaddrinfo` makes them.
#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: libc::socklen_t,
    pub ai_dst_len: libc::socklen_t,
    pub ai_src_addr: *mut libc::sockaddr,
    pub ai_dst_addr: *mut libc::sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut rdma_addrinfo,
}

/// A path, to which `rdma_route::path_rec` points.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

// Programs read these structures in memory that a library made: x86-64, the same from rdma-core 44 to 65.
const _: () = {
    assert!(size_of::<rdma_event_channel>() == 4);
    assert!(size_of::<rdma_addr>() == 296);
    assert!(offset_of!(rdma_addr, dst_storage) == 128);
    assert!(offset_of!(rdma_addr, ibaddr) == 256);
    assert!(size_of::<rdma_route>() == 312);
    assert!(offset_of!(rdma_route, path_rec) == 296);
    assert!(offset_of!(rdma_route, num_paths) == 304);
    assert!(size_of::<rdma_cm_id>() == 416);
    assert!(offset_of!(rdma_cm_id, verbs) == 0);
    assert!(offset_of!(rdma_cm_id, channel) == 8);
    assert!(offset_of!(rdma_cm_id, context) == 16);
    assert!(offset_of!(rdma_cm_id, qp) == 24);
    assert!(offset_of!(rdma_cm_id, route) == 32);
    assert!(offset_of!(rdma_cm_id, ps) == 344);
    assert!(offset_of!(rdma_cm_id, port_num) == 348);
    assert!(offset_of!(rdma_cm_id, event) == 352);
    assert!(offset_of!(rdma_cm_id, send_cq_channel) == 360);
    assert!(offset_of!(rdma_cm_id, send_cq) == 368);
    assert!(offset_of!(rdma_cm_id, recv_cq_channel) == 376);
    assert!(offset_of!(rdma_cm_id, recv_cq) == 384);
    assert!(offset_of!(rdma_cm_id, srq) == 392);
    assert!(offset_of!(rdma_cm_id, pd) == 400);
    assert!(offset_of!(rdma_cm_id, qp_type) == 408);
    assert!(size_of::<rdma_cm_event>() == 80);
    assert!(offset_of!(rdma_cm_event, event) == 16);
    assert!(offset_of!(rdma_cm_event, status) == 20);
    assert!(offset_of!(rdma_cm_event, param) == 24);
    assert!(size_of::<crate::rdma_conn_param>() == 24);
    assert!(size_of::<rdma_addrinfo>() == 96);
    assert!(offset_of!(rdma_addrinfo, ai_src_len) == 16);
    assert!(offset_of!(rdma_addrinfo, ai_src_addr) == 24);
    assert!(offset_of!(rdma_addrinfo, ai_next) == 88);
    assert!(size_of::<ibv_sa_path_rec>() == 64);
    assert!(offset_of!(ibv_sa_path_rec, mtu) == 58);
};
