//! Numbers of `infiniband/verbs.h` that only a library in rdma-core's place needs. The test `whole`
//! compares them with the system's headers.

use std::ffi::{c_int, c_uint};

pub const IBV_NODE_CA: c_int = 1;
pub const IBV_NODE_RNIC: c_int = 4;
pub const IBV_TRANSPORT_IB: c_int = 0;

pub const IBV_PORT_DOWN: c_uint = 1;
pub const IBV_MTU_256: c_uint = 1;
pub const IBV_GID_TYPE_ROCE_V2: u32 = 2;
/// `ibv_query_gid_type` has numbers of its own: `IBV_GID_TYPE_SYSFS_ROCE_V2`.
pub const IBV_GID_TYPE_SYSFS_ROCE_V2: c_uint = 1;

pub const IBV_DEVICE_CURR_QP_STATE_MOD: c_uint = 1 << 7;
pub const IBV_DEVICE_RESIZE_MAX_WR: c_uint = 1;
pub const IBV_ATOMIC_HCA: c_uint = 1;

pub const IBV_ACCESS_ZERO_BASED: c_uint = 1 << 5;
pub const IBV_ACCESS_ON_DEMAND: c_uint = 1 << 6;
pub const IBV_ACCESS_HUGETLB: c_uint = 1 << 7;
/// Bits from here on are wishes that a device may not know.
pub const IBV_ACCESS_OPTIONAL_FIRST: c_uint = 1 << 20;

pub const IBV_QPT_UC: c_uint = 3;

pub const IBV_QPS_RESET: c_uint = 0;
pub const IBV_QPS_SQD: c_uint = 4;
pub const IBV_QPS_SQE: c_uint = 5;

pub const IBV_QP_CUR_STATE: c_int = 1 << 1;
pub const IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
pub const IBV_QP_AV: c_int = 1 << 7;
pub const IBV_QP_PATH_MTU: c_int = 1 << 8;
pub const IBV_QP_TIMEOUT: c_int = 1 << 9;
pub const IBV_QP_RETRY_CNT: c_int = 1 << 10;
pub const IBV_QP_RNR_RETRY: c_int = 1 << 11;
pub const IBV_QP_RQ_PSN: c_int = 1 << 12;
pub const IBV_QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const IBV_QP_ALT_PATH: c_int = 1 << 14;
pub const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const IBV_QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const IBV_QP_PATH_MIG_STATE: c_int = 1 << 18;
pub const IBV_QP_CAP: c_int = 1 << 19;
pub const IBV_QP_DEST_QPN: c_int = 1 << 20;

pub const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

pub const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
pub const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
/// Every operation of [`crate::ibv_qp_ex`] from RDMA Write to Send with Invalidate.
pub const IBV_QP_EX_WITH_ALL_RC: u64 = (1 << 10) - 1;

pub const IBV_WC_RDMA_WRITE: c_uint = 1;
pub const IBV_WC_SEND: c_uint = 0;
pub const IBV_WC_RDMA_READ: c_uint = 2;
pub const IBV_WC_COMP_SWAP: c_uint = 3;
pub const IBV_WC_FETCH_ADD: c_uint = 4;
pub const IBV_WC_BIND_MW: c_uint = 5;
pub const IBV_WC_LOCAL_INV: c_uint = 6;
pub const IBV_WC_GENERAL_ERR: c_uint = 21;

pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;
/// What a completion of any queue pair can tell: `IBV_WC_STANDARD_FLAGS`.
pub const IBV_WC_STANDARD_FLAGS: u64 = (1 << 7) - 1;

pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 2;
pub const IBV_CQ_ATTR_MODERATE: u32 = 1;

pub const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
pub const IBV_SRQ_INIT_ATTR_PD: u32 = 2;
pub const IBV_SRQT_BASIC: c_uint = 0;

pub const IBV_FORK_UNNEEDED: c_uint = 2;
pub const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1 << 0;
pub const IBV_REREG_MR_ERR_INPUT: c_int = -1;
pub const IBV_REREG_MR_ERR_CMD: c_int = -4;
