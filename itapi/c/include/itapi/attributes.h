/*
 * What objects are and what can be chosen about them.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_ATTRIBUTES_H
#define ITAPI_ATTRIBUTES_H

/** A spigot: a port of an interface adapter. */
typedef struct {
    size_t spigot_id;
    size_t max_rc_send_len; /**< octets of a send */
    size_t max_rc_rdma_len; /**< octets of an RDMA Read or Write */
    size_t max_ud_send_len; /**< octets of a datagram */
    it_boolean_t spigot_online; /**< the link is up */
    it_conn_qual_type_t active_side_conn_qual; /**< mask of what it_ep_connect() takes */
    it_conn_qual_type_t passive_side_conn_qual; /**< mask of what it_listen_create() takes */
    size_t num_net_addr;
    it_net_addr_t *net_addr;
} it_spigot_info_t;

/** The vendor of an InfiniBand adapter. */
typedef struct {
    uint32_t vendor : 24;
    uint16_t device;
    uint32_t revision;
} it_vendor_ib_t;

/** The vendor of a VIA adapter. */
typedef struct {
    char name[64];
    unsigned long hardware;
    unsigned long provider;
} it_vendor_via_t;

/** The vendor of an iWARP adapter. */
typedef struct {
    it_boolean_t valid_vid; /**< vid is valid */
    unsigned char vid[64]; /**< the vendor, a string */
} it_vendor_iwarp_tcp_t;

/** What an interface adapter is and can do; from it_ia_query(). */
typedef struct {
    char *ia_name;
    uint32_t api_major_version;
    uint32_t api_minor_version;
    uint32_t sw_major_version;
    uint32_t sw_minor_version;
    union { /**< which one: transport_type */
        it_vendor_ib_t ib;
        it_vendor_via_t via;
        it_vendor_iwarp_tcp_t iwarp;
    } vendor;
    uint32_t dto_alignment_hint; /**< buffers aligned so are fastest */
    /** IT_IB_TRANSPORT for RoCE, too; u.iwarp of a path holds the IP addresses of connections there,
     * as everywhere */
    it_transport_type_t transport_type;
    it_transport_service_type_t supported_service_types; /**< mask */
    /** it_ep_modify() may change max_request_dtos and max_recv_dtos */
    it_boolean_t ep_work_queues_resizable;
    it_boolean_t three_way_handshake_support;
    it_boolean_t private_data_support;
    it_boolean_t max_message_size_support; /**< connection requests have max_message_size */
    it_boolean_t ird_ord_ia_support; /**< IRD and ORD are negotiated */
    it_boolean_t ird_ord_suppressible; /**< ... unless the caller does not want that */
    it_boolean_t spigot_online_support;
    it_boolean_t spigot_offline_support;
    size_t connect_private_data_len; /**< octets that it_ep_connect() takes */
    size_t accept_private_data_len; /**< ... it_ep_accept() */
    size_t reject_private_data_len; /**< ... it_reject() */
    size_t disconnect_private_data_len; /**< ... it_ep_disconnect() */
    size_t ud_req_private_data_len; /**< ... it_ud_service_request_handle_create() */
    size_t ud_rep_private_data_len; /**< ... it_ud_service_reply() */
    size_t num_spigots;
    it_spigot_info_t *spigot_info;
    it_evd_handle_t affiliated_err_evd; /**< SEVD of that stream or IT_NULL_HANDLE */
    it_evd_handle_t unaffiliated_err_evd; /**< SEVD of that stream or IT_NULL_HANDLE */
    it_boolean_t srq_support;
    it_boolean_t hard_hi_watermark_support;
    it_boolean_t soft_hi_watermark_support;
    it_boolean_t srq_resizable;
    it_boolean_t extended_iwarp_qp_states; /**< endpoints know more states than the RDMAC verbs */
    it_boolean_t socket_conversion_support; /**< it_socket_convert() works */
    it_boolean_t rdma_read_ord_increasable; /**< it_ep_modify() may raise ORD */
    it_boolean_t rdma_read_ird_modifiable; /**< it_ep_modify() may change IRD */
    it_rmr_type_t rmr_types_supported; /**< mask; 0: there are none */
    it_boolean_t addr_mode_relative_support;
    /** the sink of an RDMA Read needs IT_PRIV_REMOTE_WRITE */
    it_boolean_t rdma_read_requires_remote_write;
    it_boolean_t ep_rdma_enables_modifiable; /**< it_ep_modify() may change the rdma enables */
    /** it_post_rdma_read_to_rmr() and IT_UNLINK_LOCAL_SINK work */
    it_boolean_t rdma_read_local_extensions;
    it_boolean_t dto_evd_overflow_detection; /**< an overflow of completions is noticed */
    it_boolean_t atomic_support;
    it_boolean_t lmr_link_support; /**< it_lmr_link() works */
    it_boolean_t direct_lmr_handle_support; /**< direct_lmr_handle is valid */
    it_lmr_handle_t direct_lmr_handle;
    it_boolean_t post_send_unlink_remote_support; /**< it_post_send_and_unlink() works */
    it_boolean_t narrow_rmr_unlink_support; /**< it_rmr_unlink() works for narrow RMRs */
    it_boolean_t wide_rmr_unlink_support; /**< ... for wide ones */
    it_boolean_t unlink_fence_support; /**< IT_UNLINK_FENCE_FLAG works */
    it_iobl_type_t iobl_types_supported; /**< mask; 0: none */
} it_ia_info_t;

/** An interface that it_ia_create() can open. */
typedef struct {
    uint32_t major_version;
    uint32_t minor_version;
    it_transport_type_t transport_type;
    char name[IT_INTERFACE_NAME_SIZE]; /**< for it_ia_create() */
} it_interface_t;

/** Attributes of reliable connected endpoints. */
typedef struct {
    it_boolean_t rdma_read_enable; /**< the peer may read */
    it_boolean_t rdma_write_enable; /**< the peer may write */
    size_t max_rdma_read_segments;
    size_t max_rdma_write_segments;
    uint32_t rdma_read_ird; /**< RDMA Reads that the peer may have under way */
    uint32_t rdma_read_ord; /**< RDMA Reads that we may have under way */
    it_srq_handle_t srq; /**< with IT_EP_SRQ */
    size_t soft_hi_watermark; /**< receives taken from the SRQ before an event; 0: off */
    size_t hard_hi_watermark; /**< ... before the connection is broken */
    it_boolean_t atomics_enable; /**< the peer may do atomics */
} it_rc_only_attributes_t;

/** Attributes of unreliable datagram endpoints. */
typedef struct {
    it_remote_ep_info_t ep_info;
} it_ud_only_attributes_t;

/** Attributes that depend on the kind of endpoint. */
typedef union {
    it_rc_only_attributes_t rc;
    it_ud_only_attributes_t ud;
} it_service_attributes_t;

/** Attributes of an endpoint that the application chooses. */
typedef struct {
    /** octets of the longest send, RDMA Write or RDMA Read; 0: as many as are possible. The Zurich
     * layout does not enforce it */
    size_t max_dto_payload_size;
    size_t max_request_dtos; /**< sends, RDMA and (un)links under way */
    size_t max_recv_dtos; /**< receives posted */
    size_t max_send_segments;
    size_t max_recv_segments;
    it_service_attributes_t srv;
    it_boolean_t priv_ops_enable; /**< it_lmr_link() may be posted */
} it_ep_attributes_t;

/** State of an endpoint. */
typedef union {
    it_ep_state_rc_t rc;
    it_ep_state_ud_t ud;
} it_ep_state_t;

/** About an endpoint. */
typedef struct {
    it_ia_handle_t ia;
    size_t spigot_id;
    it_ep_state_t ep_state;
    it_transport_service_type_t service_type;
    it_path_t dst_path; /**< once connected */
    it_pz_handle_t pz;
    it_evd_handle_t request_sevd;
    it_evd_handle_t recv_sevd;
    it_evd_handle_t connect_sevd;
    it_ep_attributes_t attr;
} it_ep_param_t;

/** About an event dispatcher. */
typedef struct {
    it_ia_handle_t ia;
    it_event_type_t event_number;
    it_evd_flags_t evd_flag;
    size_t sevd_queue_size;
    size_t sevd_threshold; /**< notification events before it notifies; 0: never */
    it_evd_handle_t aevd;
    int fd; /**< -1: none */
    it_boolean_t evd_bound; /**< other objects use it */
    it_boolean_t evd_enabled; /**< it notifies */
    it_boolean_t evd_overflowed; /**< the queue was full */
    it_boolean_t evd_callback; /**< a callback is attached */
} it_evd_param_t;

/** About a listener. */
typedef struct {
    it_ia_handle_t ia_handle;
    size_t spigot_id;
    it_evd_handle_t connect_evd;
    it_conn_qual_t connect_qual;
} it_listen_param_t;

/** About a protection zone. */
typedef struct {
    it_ia_handle_t ia;
} it_pz_param_t;

/** About an LMR. */
typedef struct {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    void *addr;
    it_length_t length;
    it_mem_priv_t privs;
    it_lmr_flag_t flags;
    uint32_t shared_id;
    it_rmr_context_t rmr_context;
    void *actual_addr; /**< what was registered, rounded */
    it_length_t actual_length;
    it_addr_mode_t addr_mode;
    it_boolean_t linked; /**< it has memory */
    size_t iobl_num_elts;
    it_iobl_type_t iobl_type;
} it_lmr_param_t;

/** About an RMR. */
typedef struct {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
#ifdef ITAPI_ENABLE_V10_BINDINGS
    it_boolean_t bound;
#else
    it_boolean_t linked;
#endif
    it_lmr_handle_t lmr;
    void *addr;
    it_length_t length;
    it_mem_priv_t privs;
    it_rmr_context_t rmr_context;
    it_rmr_type_t type;
    it_addr_mode_t addr_mode;
} it_rmr_param_t;

/** About a shared receive queue. */
typedef struct {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    size_t max_recv_dtos;
    size_t max_recv_segs;
    size_t low_watermark; /**< event when fewer receives are left, once; 0: off */
} it_srq_param_t;

/** About an address handle. */
typedef struct {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    it_path_t path;
} it_addr_param_t;

/** About a UD service request. */
typedef struct {
    it_ia_handle_t ia;
    uint32_t request_id;
    it_evd_handle_t reply_evd;
    it_conn_qual_t conn_qual;
    it_path_t destination_path;
    unsigned char private_data[IT_MAX_PRIV_DATA];
    size_t private_data_length;
} it_ud_svc_req_param_t;

#endif
