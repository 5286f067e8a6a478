/*
 * Events as they are dequeued.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_EVENTS_H
#define ITAPI_EVENTS_H

/** What all events start with. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
} it_any_event_t;

/** A posted operation is done. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    it_ep_handle_t ep;
    it_dto_cookie_t cookie; /**< of the request */
    it_dto_status_t dto_status;
    uint32_t transferred_length; /**< octets received or read */
    it_handle_t unlinked_mr_handle; /**< what the peer's send unlinked, or IT_NULL_HANDLE */
} it_dto_cmpl_event_t;

/** The same with what only datagrams have. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    it_ep_handle_t ep;
    it_dto_cookie_t cookie; /**< of the request */
    it_dto_status_t dto_status;
    uint32_t transferred_length;
    it_handle_t unlinked_mr_handle;
    it_dto_ud_flags_t flags;
    it_ud_ep_id_t ud_ep_id;
    it_path_t src_path;
} it_all_dto_cmpl_event_t;

/*
 * Connection events carry private data after the other members; in the Zurich layout in front.
 */
#ifdef ITAPI_ZRL_EXTENSIONS
#define ITAPI_PRIVATE_DATA_FIRST                  \
    unsigned char private_data[IT_MAX_PRIV_DATA]; \
    it_boolean_t private_data_present;
#define ITAPI_PRIVATE_DATA_LAST
#else
#define ITAPI_PRIVATE_DATA_FIRST
#define ITAPI_PRIVATE_DATA_LAST                   \
    unsigned char private_data[IT_MAX_PRIV_DATA]; \
    it_boolean_t private_data_present;
#endif

#ifdef ITAPI_ZRL_EXTENSIONS
/** What all connection events of the Zurich layout start with. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    ITAPI_PRIVATE_DATA_FIRST
} it_event_cm_any_t;
#endif

/** A peer's request to connect: accept, reject or hand off cn_est_id. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    ITAPI_PRIVATE_DATA_FIRST
    it_cn_est_identifier_t cn_est_id;
    it_conn_qual_t conn_qual;
    it_net_addr_t source_addr;
    size_t spigot_id;
    uint32_t max_message_size; /**< if max_message_size_support */
    uint32_t rdma_read_ird; /**< RDMA Reads that the peer accepts; 0 with ord 0: unknown */
    uint32_t rdma_read_ord; /**< RDMA Reads that the peer wants to make */
    ITAPI_PRIVATE_DATA_LAST
} it_conn_request_event_t;

/** Something happened to a connection. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    ITAPI_PRIVATE_DATA_FIRST
    it_cn_est_identifier_t cn_est_id; /**< IT_CM_MSG_CONN_ACCEPT_ARRIVAL_EVENT */
    it_ep_handle_t ep;
    uint32_t rdma_read_ird; /**< as negotiated */
    uint32_t rdma_read_ord; /**< as negotiated */
    it_path_t dst_path;
    it_conn_reject_code_t reject_reason_code; /**< IT_CM_MSG_CONN_NONPEER_REJECT_EVENT */
    ITAPI_PRIVATE_DATA_LAST
} it_connection_event_t;

/** A peer's request for a UD endpoint. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    ITAPI_PRIVATE_DATA_FIRST
    it_ud_svc_req_identifier_t ud_svc_req_id;
    it_conn_qual_t conn_qual;
    it_net_addr_t source_addr;
    size_t spigot_id;
    ITAPI_PRIVATE_DATA_LAST
} it_ud_svc_request_event_t;

/** The reply to a UD service request. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    ITAPI_PRIVATE_DATA_FIRST
    it_ud_svc_req_handle_t ud_svc;
    it_ud_svc_req_status_t status;
    it_remote_ep_info_t ep_info;
    it_path_t dst_path;
    ITAPI_PRIVATE_DATA_LAST
} it_ud_svc_reply_event_t;

/** Something happened to one object. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    union { /**< which one: event_number */
        it_evd_handle_t sevd;
        it_ep_handle_t ep;
        it_srq_handle_t srq;
    } cause;
} it_affiliated_event_t;

/** Something happened to the interface adapter. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    it_ia_handle_t ia;
    size_t spigot_id;
} it_unaffiliated_event_t;

/** From it_evd_post_se(). */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t evd;
    void *data; /**< what was posted */
} it_software_event_t;

/** An SEVD that feeds an AEVD met its criteria. */
typedef struct {
    it_event_type_t event_number;
    it_evd_handle_t aevd;
    it_evd_handle_t sevd;
} it_aevd_notification_event_t;

/** Any event: event_number selects the member. */
typedef union {
    it_event_type_t event_number;
    it_any_event_t any;
#ifdef ITAPI_ZRL_EXTENSIONS
    it_event_cm_any_t cm_any;
#endif
    it_dto_cmpl_event_t dto_cmpl;
    it_all_dto_cmpl_event_t all_dto_cmpl;
    it_conn_request_event_t conn_req;
    it_ud_svc_request_event_t ud_svc_request;
    it_connection_event_t conn;
    it_ud_svc_reply_event_t ud_svc_reply;
    it_affiliated_event_t aff_async;
    it_unaffiliated_event_t unaff_async;
    it_software_event_t sw;
    it_aevd_notification_event_t aevd_notify;
} it_event_t;

#undef ITAPI_PRIVATE_DATA_FIRST
#undef ITAPI_PRIVATE_DATA_LAST

/** event_number & this: the stream. */
#define IT_EVENT_STREAM_MASK 0xff000

#endif
