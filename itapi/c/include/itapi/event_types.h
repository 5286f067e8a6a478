/*
 * Event streams and event numbers.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_EVENT_TYPES_H
#define ITAPI_EVENT_TYPES_H

/** Event streams and the events in them: event & IT_EVENT_STREAM_MASK is its stream. */
typedef enum {
    IT_DTO_EVENT_STREAM = 0x0, /**< completions */
    IT_DTO_SEND_CMPL_EVENT = 0x1,
    IT_DTO_RC_RECV_CMPL_EVENT = 0x2,
    IT_DTO_UD_RECV_CMPL_EVENT = 0x3,
    IT_DTO_RDMA_WRITE_CMPL_EVENT = 0x4,
    IT_DTO_RDMA_READ_CMPL_EVENT = 0x5,
    IT_RMR_BIND_CMPL_EVENT = 0x6, /**< v1.0 */
    IT_RMR_LINK_CMPL_EVENT = 0x6,
    IT_DTO_FETCH_ADD_CMPL_EVENT = 0x7,
    IT_DTO_CMP_SWAP_CMPL_EVENT = 0x8,
    IT_LMR_LINK_CMPL_EVENT = 0x9,

    IT_CM_REQ_EVENT_STREAM = 0x1000, /**< connection requests */
    IT_CM_REQ_CONN_REQUEST_EVENT = 0x1001,
    IT_CM_REQ_UD_SERVICE_REQUEST_EVENT = 0x1002,

    IT_CM_MSG_EVENT_STREAM = 0x2000, /**< connection events */
    IT_CM_MSG_CONN_ACCEPT_ARRIVAL_EVENT = 0x2001, /**< three-way: the peer accepted */
    IT_CM_MSG_CONN_ESTABLISHED_EVENT = 0x2002, /**< both sides are connected */
    IT_CM_MSG_CONN_DISCONNECT_EVENT = 0x2003, /**< orderly end */
    IT_CM_MSG_CONN_PEER_REJECT_EVENT = 0x2004, /**< the peer's application refused */
    /** network or stack refused: see reject_reason_code */
    IT_CM_MSG_CONN_NONPEER_REJECT_EVENT = 0x2005,
    IT_CM_MSG_CONN_BROKEN_EVENT = 0x2006, /**< the connection was lost */
    IT_CM_MSG_UD_SERVICE_REPLY_EVENT = 0x2007,

    IT_ASYNC_AFF_EVENT_STREAM = 0x4000, /**< errors of one object */
    IT_ASYNC_AFF_SEVD_ENQUEUE_FAILURE = 0x4001, /**< a queue of completions overflowed */
    IT_ASYNC_AFF_EP_SEVD_FULL_ERROR = 0x4001, /**< Zurich name of the same */
    IT_ASYNC_AFF_EP_FAILURE = 0x4002, /**< the endpoint failed */
    IT_ASYNC_AFF_EP_BAD_TRANSPORT_OPCODE = 0x4003, /**< unexpected opcode */
    IT_ASYNC_AFF_EP_REQ_DROPPED = 0x4005, /**< InfiniBand, VIA */
    IT_ASYNC_AFF_EP_RDMAW_ACCESS_VIOLATION = 0x4006, /**< the peer wrote to memory that it may not */
    IT_ASYNC_AFF_EP_RDMAW_CORRUPT_DATA = 0x4007, /**< VIA */
    IT_ASYNC_AFF_EP_RDMAR_ACCESS_VIOLATION = 0x4008, /**< the peer read memory that it may not */
    IT_ASYNC_AFF_EP_LOCAL_ACCESS_VIOLATION = 0x4020, /**< v1.0 */
    IT_ASYNC_AFF_EP_L_ACCESS_VIOLATION = 0x4020, /**< wrong access by the peer, found here */
    IT_ASYNC_AFF_EP_L_RECV_ACCESS_VIOLATION = 0x4021, /**< a message found no receive, or a short one */
    IT_ASYNC_AFF_EP_L_IRRQ_ACCESS_VIOLATION = 0x4022, /**< too many RDMA Reads by the peer */
    IT_ASYNC_AFF_EP_L_TRANSPORT_ERROR = 0x4023, /**< wrong DDP or RDMAP from the peer */
    IT_ASYNC_AFF_EP_L_LLP_ERROR = 0x4024, /**< wrong MPA, CRC, or a lost TCP connection */
    IT_ASYNC_AFF_EP_R_ERROR = 0x4040, /**< the peer terminated the stream */
    IT_ASYNC_AFF_EP_R_ACCESS_VIOLATION = 0x4041, /**< wrong access by us, found by the peer */
    /** our message found no receive at the peer */
    IT_ASYNC_AFF_EP_R_RECV_ACCESS_VIOLATION = 0x4042,
    /** our message was too long for the peer's receive */
    IT_ASYNC_AFF_EP_R_RECV_LENGTH_ERROR = 0x4043,
    /** more receives taken from the SRQ than the soft mark */
    IT_ASYNC_AFF_EP_SOFT_HI_WATERMARK = 0x4060,
    IT_ASYNC_AFF_EP_SRQ_ERROR = 0x4061, /**< the SRQ of the endpoint failed */
    IT_ASYNC_AFF_SRQ_LOW_WATERMARK = 0x4100, /**< fewer receives left than the low mark */
    IT_ASYNC_AFF_SRQ_CATASTROPHIC = 0x4101, /**< Zurich: the SRQ failed */
    IT_ASYNC_AFF_SEVD_FULL_ERROR = 0x4200, /**< Zurich: the SEVD overflowed */
    IT_ASYNC_AFF_SEVD_OP_ERROR = 0x4201, /**< Zurich: the SEVD failed */

    IT_ASYNC_UNAFF_EVENT_STREAM = 0x8000, /**< events of the whole interface adapter */
    IT_ASYNC_UNAFF_SPIGOT_ONLINE = 0x8002, /**< a spigot is online */
    IT_ASYNC_UNAFF_SPIGOT_OFFLINE = 0x8003, /**< a spigot went down */
    IT_ASYNC_UNAFF_SEVD_ENQUEUE_FAILURE = 0x8004, /**< an SEVD of the adapter overflowed */
    /** Warpline: a listener cannot accept because descriptors or memory are exhausted; it resumes later */
    IT_ASYNC_UNAFF_LISTEN_SHORTAGE = 0x8005,

    IT_SOFTWARE_EVENT_STREAM = 0x10000, /**< from it_evd_post_se() */
    IT_SOFTWARE_EVENT = 0x10001,

    IT_AEVD_NOTIFICATION_EVENT_STREAM = 0x20000, /**< notifications of an AEVD */
    IT_AEVD_NOTIFICATION_EVENT = 0x20001
} it_event_type_t;

#endif
