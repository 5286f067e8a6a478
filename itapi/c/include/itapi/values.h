/*
 * Enumerations. Each takes 4 octets.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_VALUES_H
#define ITAPI_VALUES_H

/** What local and remote work may do with memory; may be or-ed. A right for the peer needs the
 * same right locally. */
typedef enum {
    IT_PRIV_NONE = 0x0, /**< nothing (v1.0) */
    IT_PRIV_LOCAL_READ = 0x1, /**< sends, RDMA Writes and atomics may read it */
    IT_PRIV_LOCAL_WRITE = 0x2, /**< receives and RDMA Reads may write it */
    IT_PRIV_LOCAL = 0x3,
    IT_PRIV_DEFAULT = 0x3, /**< v1.0 name of IT_PRIV_LOCAL */
    IT_PRIV_REMOTE_READ = 0x4, /**< the peer may read it */
    IT_PRIV_REMOTE_WRITE = 0x8, /**< the peer may write it */
    IT_PRIV_REMOTE = 0xc,
    IT_PRIV_ATOMIC = 0x10, /**< the peer may do atomics on it */
    IT_PRIV_ALL = 0x1f
} it_mem_priv_t;

/** How memory is registered; may be or-ed. */
typedef enum {
    IT_LMR_FLAG_NONE = 0x1, /**< nothing special */
    IT_LMR_FLAG_SHARED = 0x2, /**< shares with the LMRs of the same shared_id */
    IT_LMR_FLAG_NONCOHERENT = 0x4, /**< the caller flushes and refreshes */
    /** v2.1: never shared, so it may be unlinked and linked again */
    IT_LMR_FLAG_NON_SHAREABLE = 0x8
} it_lmr_flag_t;

/** Through which endpoints an RMR works. */
typedef enum {
    IT_RMR_TYPE_DEFAULT = 0, /**< whatever the interface adapter prefers */
    IT_RMR_TYPE_NARROW = 1, /**< one endpoint */
    IT_RMR_TYPE_WIDE = 2 /**< every endpoint of the protection zone */
} it_rmr_type_t;

/** How addresses inside registered memory count. */
typedef enum {
    IT_ADDR_MODE_ABSOLUTE = 0, /**< by virtual address */
    IT_ADDR_MODE_RELATIVE = 1 /**< from 0 at the start of the memory */
} it_addr_mode_t;

/** A truth value of 4 octets. */
typedef enum {
    IT_FALSE = 0,
    IT_TRUE = 1
} it_boolean_t;

/** The kind of an object; see it_get_handle_type(). */
typedef enum {
    IT_HANDLE_TYPE_ADDR = 0,
    IT_HANDLE_TYPE_EP = 1,
    IT_HANDLE_TYPE_EVD = 2,
    IT_HANDLE_TYPE_IA = 3,
    IT_HANDLE_TYPE_LISTEN = 4,
    IT_HANDLE_TYPE_LMR = 5,
    IT_HANDLE_TYPE_PZ = 6,
    IT_HANDLE_TYPE_RMR = 7,
    IT_HANDLE_TYPE_UD_SVC_REQ = 8,
    IT_HANDLE_TYPE_SRQ = 9
} it_handle_type_enum_t;

/** The kind of a connection qualifier; or-ed for the kinds that a spigot accepts. */
typedef enum {
    IT_IANA_PORT = 0x1, /**< a TCP port */
    IT_IB_SERVICEID = 0x2, /**< InfiniBand */
    IT_VIA_DISCRIMINATOR = 0x4, /**< VIA */
    IT_IANA_LR_PORT = 0x8 /**< a local and a remote TCP port */
} it_conn_qual_type_t;

/** How a posted operation ended. */
typedef enum {
    IT_DTO_SUCCESS = 0,
    IT_DTO_ERR_LOCAL_LENGTH = 1, /**< a message was longer than its buffer, or too long to send */
    IT_DTO_ERR_LOCAL_EP = 2, /**< the endpoint failed */
    IT_DTO_ERR_LOCAL_PROTECTION = 3, /**< a local segment is outside its memory or lacks a right */
    IT_DTO_ERR_FLUSHED = 4, /**< the connection ended first */
    IT_RMR_OPERATION_FAILED = 5, /**< a link, unlink or bind of an RMR failed */
    IT_DTO_ERR_BAD_RESPONSE = 6, /**< the peer's response was malformed */
    IT_DTO_ERR_REMOTE_ACCESS = 7, /**< the peer refused access to its memory */
    IT_DTO_ERR_REMOTE_RESPONDER = 8, /**< the peer failed */
    IT_DTO_ERR_TRANSPORT = 9, /**< the transport failed */
    IT_DTO_ERR_RECEIVER_NOT_READY = 10, /**< InfiniBand: no receive was posted in time */
    IT_DTO_ERR_PARTIAL_PACKET = 11, /**< VIA */
    IT_DTO_ERR_LOCAL_MM_OPERATION = 12 /**< a link or unlink failed */
} it_dto_status_t;

/** How a work request is done and reported; may be or-ed. */
typedef enum {
    /** success makes an event too (failure always does); without it the DTO counts as outstanding until
     * the event of a later one of its queue was dequeued */
    IT_COMPLETION_FLAG = 0x1,
    IT_NOTIFY_FLAG = 0x2, /**< that event is a notification event */
    IT_SOLICITED_WAIT_FLAG = 0x4, /**< so is the event of the receive at the peer */
    IT_BARRIER_FENCE_FLAG = 0x8, /**< start after earlier RDMA Reads are done */
    IT_UNLINK_FENCE_FLAG = 0x10, /**< unlink after all earlier requests are done */
    IT_UNLINK_LOCAL_SINK = 0x20, /**< unlink the sink of an RDMA Read when it is done */
    IT_COALESCE_WR_FLAG = 0x40 /**< may be held back until the next request without it */
} it_dto_flags_t;

/** The kind of a network address. */
typedef enum {
    IT_IPV4 = 0x1,
    IT_IPV6 = 0x2,
    IT_IB_GID = 0x3,
    IT_VIA_HOSTADDR = 0x4
} it_net_addr_type_t;

/** The transport of an interface adapter. Ours is IT_IWARP_TCP_TRANSPORT. */
typedef enum {
    IT_IB_TRANSPORT = 1,
    IT_VIA_IP_TRANSPORT = 2,
    IT_VIA_FC_TRANSPORT = 3,
    IT_IWARP_TCP_TRANSPORT = 4,
    IT_VENDOR_TRANSPORT = 1000
} it_transport_type_t;

/** Reliable connections, unreliable datagrams, or both or-ed. */
typedef enum {
    IT_RC_SERVICE = 0x1,
    IT_UD_SERVICE = 0x2
} it_transport_service_type_t;

/** The kind of an I/O buffer list. */
typedef enum {
    IT_IOBL_PAGE_LIST = 0x1, /**< pages of one length */
    IT_IOBL_BLOCK_LIST = 0x2, /**< blocks of one length, at any address */
    IT_IOBL_VE_PAGE_LIST = 0x4 /**< elements of their own lengths */
} it_iobl_type_t;

/** The version of the Internet Protocol in a path. */
typedef enum {
    IT_IP_VERS_IPV4 = 0x1,
    IT_IP_VERS_IPV6 = 0x2
} it_ip_vers_t;

/** Attributes of an endpoint for it_ep_query() and it_ep_modify(); may be or-ed. */
typedef enum {
    IT_EP_PARAM_ALL = 0x1,
    IT_EP_PARAM_IA = 0x2,
    IT_EP_PARAM_SPIGOT = 0x4,
    IT_EP_PARAM_STATE = 0x8,
    IT_EP_PARAM_SERV_TYPE = 0x10,
    IT_EP_PARAM_PATH = 0x20,
    IT_EP_PARAM_PZ = 0x40,
    IT_EP_PARAM_REQ_SEVD = 0x80,
    IT_EP_PARAM_RECV_SEVD = 0x100,
    IT_EP_PARAM_CONN_SEVD = 0x200,
    IT_EP_PARAM_RDMA_RD_ENABLE = 0x400,
    IT_EP_PARAM_RDMA_WR_ENABLE = 0x800,
    IT_EP_PARAM_MAX_RDMA_READ_SEG = 0x1000,
    IT_EP_PARAM_MAX_RDMA_WRITE_SEG = 0x2000,
    IT_EP_PARAM_MAX_IRD = 0x4000,
    IT_EP_PARAM_MAX_ORD = 0x8000,
    IT_EP_PARAM_EP_ID = 0x10000,
    IT_EP_PARAM_EP_KEY = 0x20000,
    IT_EP_PARAM_MAX_PAYLOAD = 0x40000,
    IT_EP_PARAM_MAX_REQ_DTO = 0x80000,
    IT_EP_PARAM_MAX_RECV_DTO = 0x100000,
    IT_EP_PARAM_MAX_SEND_SEG = 0x200000,
    IT_EP_PARAM_MAX_RECV_SEG = 0x400000,
    IT_EP_PARAM_SRQ = 0x800000,
    IT_EP_PARAM_SOFT_HI_WATERMARK = 0x1000000,
    IT_EP_PARAM_HARD_HI_WATERMARK = 0x2000000,
    IT_EP_PARAM_ATOMICS_ENABLE = 0x4000000,
    IT_EP_PARAM_PRIV_OPS_ENABLE = 0x8000000
} it_ep_param_mask_t;

/** Why the network or the peer's stack refused a connection. */
typedef enum {
    IT_CN_REJ_OTHER = 0, /**< another reason */
    IT_CN_REJ_TIMEOUT = 1, /**< no reply in time */
    IT_CN_REJ_BAD_PATH = 2, /**< no way there */
    IT_CN_REJ_STALE_CONN = 3, /**< an older connection is in the way */
    IT_CN_REJ_BAD_ORD = 4, /**< the numbers of RDMA Reads do not fit */
    IT_CN_REJ_RESOURCES = 5, /**< the peer has no room */
    IT_CN_REJ_BAD_CONN_PARMS = 6 /**< the two sides do not agree on parameters */
} it_conn_reject_code_t;

/** The reply to a UD service request. */
typedef enum {
    IT_UD_SVC_EP_INFO_VALID = 0,
    IT_UD_SVC_ID_NOT_SUPPORTED = 1,
    IT_UD_SVC_REQ_REJECTED = 2,
    IT_UD_NO_EP_AVAILABLE = 3,
    IT_UD_REQ_REDIRECTED = 4
} it_ud_svc_req_status_t;

/** About a received datagram. */
typedef enum {
    IT_UD_IB_GRH_PRESENT = 0x1 /**< a global routing header takes the first 40 octets */
} it_dto_ud_flags_t;

/** States of a reliable connected endpoint. */
typedef enum {
    IT_EP_STATE_UNCONNECTED = 0,
    IT_EP_STATE_ACTIVE1_CONNECTION_PENDING = 1, /**< it_ep_connect() was called */
    IT_EP_STATE_ACTIVE2_CONNECTION_PENDING = 2, /**< three-way: to be accepted here */
    IT_EP_STATE_PASSIVE_CONNECTION_PENDING = 3, /**< it_ep_accept() was called */
    IT_EP_STATE_CONNECTED = 4,
    IT_EP_STATE_NONOPERATIONAL = 5, /**< the connection ended */
    IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ = 6 /**< converted, waits for the peer */
} it_ep_state_rc_t;

/** States of an unreliable datagram endpoint; the Zurich stack swapped them. */
#ifdef ITAPI_ZRL_EXTENSIONS
typedef enum {
    IT_EP_STATE_UD_OPERATIONAL = 0,
    IT_EP_STATE_UD_NONOPERATIONAL = 1
} it_ep_state_ud_t;
#else
typedef enum {
    IT_EP_STATE_UD_NONOPERATIONAL = 0,
    IT_EP_STATE_UD_OPERATIONAL = 1
} it_ep_state_ud_t;
#endif

/** The kind of a datagram address. */
typedef enum {
    IT_DG_TYPE_IB_UD = 0
} it_dg_type_t;

/** How an address handle is made. */
typedef enum {
    IT_AH_PATH_COMPLETE = 0x1 /**< the path needs no resolution */
} it_ah_flags_t;

/** Attributes of an address handle; may be or-ed. */
typedef enum {
    IT_ADDR_PARAM_ALL = 0x1,
    IT_ADDR_PARAM_IA = 0x2,
    IT_ADDR_PARAM_PZ = 0x4,
    IT_ADDR_PARAM_PATH = 0x8
} it_addr_param_mask_t;

/** How a connection is made; may be or-ed. 0 is a two-way handshake. */
typedef enum {
    IT_CONNECT_FLAG_TWO_WAY = 0x1, /**< the passive side decides */
    IT_CONNECT_FLAG_THREE_WAY = 0x2, /**< the active side accepts in turn; not on iWARP */
    IT_CONNECT_SUPPRESS_IRD_ORD = 0x4 /**< do not negotiate IRD and ORD */
} it_cn_est_flags_t;

/** How a reliable connected endpoint is made; may be or-ed. */
typedef enum {
    IT_EP_NO_FLAG = 0x0, /**< nothing special */
    IT_EP_REUSEADDR = 0x1, /**< a local port in time-wait may be reused */
    IT_EP_SRQ = 0x2 /**< receives come from a shared receive queue */
} it_ep_rc_creation_flags_t;

/** How an event dispatcher is made; may be or-ed. */
typedef enum {
    /** an AEVD hands out notifications, not the events themselves */
    IT_EVD_DEQUEUE_NOTIFICATIONS = 0x1,
    IT_EVD_CREATE_FD = 0x2, /**< returns a file descriptor */
    IT_EVD_OVERFLOW_DEFAULT = 0x4, /**< as the library thinks best */
    IT_EVD_OVERFLOW_NOTIFY = 0x8, /**< an overflow makes an affiliated event */
    IT_EVD_OVERFLOW_AUTO_RESET = 0x10 /**< an overflow ends by itself when there is room */
} it_evd_flags_t;

/** Attributes of an event dispatcher; may be or-ed. */
typedef enum {
    IT_EVD_PARAM_ALL = 0x1,
    IT_EVD_PARAM_IA = 0x2,
    IT_EVD_PARAM_EVENT_NUMBER = 0x4,
    IT_EVD_PARAM_FLAG = 0x8,
    IT_EVD_PARAM_QUEUE_SIZE = 0x10,
    IT_EVD_PARAM_THRESHOLD = 0x20,
    IT_EVD_PARAM_AEVD_HANDLE = 0x40,
    IT_EVD_PARAM_FD = 0x80,
    IT_EVD_PARAM_BOUND = 0x100,
    IT_EVD_PARAM_ENABLED = 0x200,
    IT_EVD_PARAM_OVERFLOWED = 0x400,
    IT_EVD_PARAM_CALLBACK = 0x800
} it_evd_param_mask_t;

/** How a listener is made; may be or-ed. */
typedef enum {
    IT_LISTEN_NO_FLAG = 0x0, /**< the library picks the port */
    IT_LISTEN_CONN_QUAL_INPUT = 0x1, /**< the caller names the port */
    IT_LISTEN_SUPPRESS_IRD_ORD = 0x2 /**< do not negotiate IRD and ORD */
} it_listen_flags_t;

/** Attributes of a listener; may be or-ed. */
typedef enum {
    IT_LISTEN_PARAM_ALL = 0x1,
    IT_LISTEN_PARAM_IA_HANDLE = 0x2,
    IT_LISTEN_PARAM_SPIGOT_ID = 0x4,
    IT_LISTEN_PARAM_CONNECT_EVD = 0x8,
    IT_LISTEN_PARAM_CONN_QUAL = 0x10
} it_listen_param_mask_t;

/** Attributes of an LMR; may be or-ed. */
typedef enum {
    IT_LMR_PARAM_ALL = 0x1,
    IT_LMR_PARAM_IA = 0x2,
    IT_LMR_PARAM_PZ = 0x4,
    IT_LMR_PARAM_ADDR = 0x8,
    IT_LMR_PARAM_LENGTH = 0x10,
    IT_LMR_PARAM_MEM_PRIV = 0x20,
    IT_LMR_PARAM_FLAG = 0x40,
    IT_LMR_PARAM_SHARED_ID = 0x80,
    IT_LMR_PARAM_RMR_CONTEXT = 0x100,
    IT_LMR_PARAM_ACTUAL_ADDR = 0x200,
    IT_LMR_PARAM_ACTUAL_LENGTH = 0x400,
    IT_LMR_PARAM_ADDR_MODE = 0x800,
    IT_LMR_PARAM_LINKED = 0x1000,
    IT_LMR_PARAM_IOBL_NUM_ELTS = 0x2000,
    IT_LMR_PARAM_IOBL_TYPE = 0x4000
} it_lmr_param_mask_t;

/** Attributes of a protection zone; may be or-ed. */
typedef enum {
    IT_PZ_PARAM_ALL = 0x1,
    IT_PZ_PARAM_IA = 0x2
} it_pz_param_mask_t;

/** Attributes of an RMR; may be or-ed. */
typedef enum {
    IT_RMR_PARAM_ALL = 0x1,
    IT_RMR_PARAM_IA = 0x2,
    IT_RMR_PARAM_PZ = 0x4,
    IT_RMR_PARAM_LINKED = 0x8,
    IT_RMR_PARAM_BOUND = 0x8, /**< v1.0 */
    IT_RMR_PARAM_LMR = 0x10,
    IT_RMR_PARAM_ADDR = 0x20,
    IT_RMR_PARAM_LENGTH = 0x40,
    IT_RMR_PARAM_MEM_PRIV = 0x80,
    IT_RMR_PARAM_RMR_CONTEXT = 0x100,
    IT_RMR_PARAM_TYPE = 0x200,
    IT_RMR_PARAM_ADDR_MODE = 0x400
} it_rmr_param_mask_t;

/** How a socket is converted; see it_socket_convert(). */
typedef enum {
    IT_SC_DEFAULT = 0x0, /**< MPA request and reply are exchanged */
    IT_SC_NO_REQ_REP = 0x1 /**< straight to FPDUs: both sides have agreed */
} it_sc_flags_t;

/** Attributes of a shared receive queue; may be or-ed. */
typedef enum {
    IT_SRQ_PARAM_ALL = 0x1,
    IT_SRQ_PARAM_IA = 0x2,
    IT_SRQ_PARAM_PZ = 0x4,
    IT_SRQ_PARAM_MAX_RECV_DTO = 0x8,
    IT_SRQ_PARAM_MAX_RECV_SEG = 0x10,
    IT_SRQ_PARAM_LOW_WATERMARK = 0x20
} it_srq_param_mask_t;

/** Attributes of a UD service request; may be or-ed. */
typedef enum {
    IT_UD_PARAM_ALL = 0x1,
    IT_UD_PARAM_IA_HANDLE = 0x2,
    IT_UD_PARAM_REQ_ID = 0x4,
    IT_UD_PARAM_REPLY_EVD = 0x8,
    IT_UD_PARAM_CONN_QUAL = 0x10,
    IT_UD_PARAM_DEST_PATH = 0x20,
    IT_UD_PARAM_PRIV_DATA = 0x40,
    IT_UD_PARAM_PRIV_DATA_LENGTH = 0x80
} it_ud_svc_req_param_mask_t;

/** The kind of an atomic operation. */
typedef enum {
    IT_COMPARE_AND_SWAP = 0, /**< swaps if equal */
    IT_FETCH_AND_ADD = 1 /**< adds */
} it_atomic_op_t;

#endif
