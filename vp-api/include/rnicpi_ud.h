/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rnicpi_ud.h: the part of rnicpi.h about unreliable datagrams, since 1.3. Include rnicpi.h, which
 * includes this; its rules hold here, too.
 */
#ifndef WARPLINE_RNICPI_UD_H
#define WARPLINE_RNICPI_UD_H

#ifndef WARPLINE_RNICPI_H
#error "include rnicpi.h"
#endif

typedef struct ri_ud_qp ri_ud_qp;

/* What names a queue pair to peers, beside the path. Fixed. */
typedef struct ri_ud_address {
    uint32_t qpn;
    uint32_t qkey; /* datagrams with another one are dropped [RI-163] */
} ri_ud_address;

/* Path to a port, in InfiniBand's terms (which RoCE shares). Fixed. */
typedef struct ri_ud_path {
    uint32_t port; /* local, as an index into the ports */
    uint32_t flow_label;
    uint8_t local_gid[16]; /* all zeros: the port's first */
    uint8_t remote_gid[16];
    uint16_t local_lid; /* RoCE: 0 */
    uint16_t remote_lid;
    uint16_t partition_key; /* 0: the port's first */
    uint8_t mtu_code;       /* InfiniBand's: 1: 256 octets, 5: 4096; 0: not known */
    uint8_t rate;           /* InfiniBand's code; 0: that of the port */
    uint8_t packet_lifetime; /* InfiniBand's code */
    uint8_t service_level;
    uint8_t subnet_local; /* 1: no global route header is needed; never on RoCE */
    uint8_t traffic_class;
    uint8_t hop_limit; /* 0: the provider's choice */
    uint8_t reserved[3];
} ri_ud_path;

#define RI_UD_SOURCE_IS 1u   /* the completion is that of a received datagram [RI-164] */
#define RI_UD_SOURCE_GRH 2u  /* the receive begins with a global route header */
#define RI_UD_SOURCE_PATH 4u /* path, the way back, is meaningful [RI-165] */

/* Source of a received datagram. In a list every one has the size of the first [RI-198]. */
typedef struct ri_ud_source {
    uint32_t size;
    uint32_t flags;
    uint32_t qpn;
    uint32_t reserved;
    ri_ud_path path;
} ri_ud_source;

#define RI_SEND_IMMEDIATE 64u /* of ri_ud_send_wr: sends immediate to the peer [RI-166] */

/* Datagram to send. In a list every request has the size of the first [RI-199]. */
typedef struct ri_ud_send_wr {
    uint32_t size;
    uint32_t flags; /* SIGNALED, SOLICITED, INLINE, IMMEDIATE */
    uint64_t wr_id;
    const void *data; /* ri_sge[count], or octets */
    uint32_t count;   /* SGEs, or octets with INLINE */
    uint32_t immediate;
    uint32_t ah;
    ri_ud_address to;
    uint32_t reserved;
} ri_ud_send_wr;

/* ---- Queue pairs for datagrams, and datagram services (since 1.3) --------------------------- */

/* Octets of a receive before the message: a global route header, or undefined.
 * ri_wc.octets counts both [RI-167]. */
#define RI_GRH_OCTETS 40

#define RI_UD_QKEY 1u /* qkey is its key; else it is ri_ud_attrs.usual_qkey [RI-168] */

typedef struct ri_ud_qp_init {
    uint32_t size;
    uint32_t flags, pd, send_cq, recv_cq;
    uint32_t send_depth, recv_depth, max_send_sge, max_recv_sge;
    uint32_t max_inline, port, qkey;
} ri_ud_qp_init;

#define RI_UD_OPERATIONAL 1
#define RI_UD_ERROR 2

typedef struct ri_ud_qp_info {
    uint32_t size;
    uint32_t id, state, port;
    ri_ud_address address;
    uint32_t send_depth, recv_depth, sends_outstanding, recvs_outstanding;
} ri_ud_qp_info;

/* All entries required but set_qkey and reset. */
typedef struct ri_ud_qp_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_ud_qp *qp);
    void (*address)(ri_ud_qp *qp, ri_ud_address *address);
    /* The first *posted requests are queued, whatever the status [RI-169]. What is too long for the
     * port is RI_INVALID_SGL [RI-170]. Slots are free when those of connected queue pairs are
     * [RI-194]. */
    ri_status (*post_send)(ri_ud_qp *qp, const ri_ud_send_wr *wrs, uint32_t count,
                           uint32_t *posted);
    ri_status (*post_recv)(ri_ud_qp *qp, const ri_recv_wr *wrs, uint32_t count, uint32_t *posted);
    /* To RI_UD_ERROR: flushes [RI-171]. Back to RI_UD_OPERATIONAL: once what was posted is flushed,
     * else RI_STILL_FLUSHING [RI-172]; the address may be another one then. */
    ri_status (*modify)(ri_ud_qp *qp, uint32_t state, ri_error *error);
    ri_status (*query)(ri_ud_qp *qp, ri_ud_qp_info *info, ri_error *error);
    /* Since 1.4: changes its key: from then on datagrams with another one are dropped [RI-237]. NULL: the key
     * cannot change after creation. */
    ri_status (*set_qkey)(ri_ud_qp *qp, uint32_t qkey, ri_error *error);
    /* Since 1.4: as after creation, in any state: what is posted is gone, and no completion of an earlier request
     * comes any more [RI-239]. NULL: the host goes through RI_UD_ERROR, and polls. */
    ri_status (*reset)(ri_ud_qp *qp, ri_error *error);
} ri_ud_qp_ops;

typedef struct ri_ud_qp_made {
    uint32_t size;
    uint32_t id; /* of the same kind as those of other queue pairs, and another one [RI-173] */
    ri_ud_qp *qp;
    const ri_ud_qp_ops *ops;
} ri_ud_qp_made;

typedef struct ri_ud_attrs {
    uint32_t size;
    uint32_t max_ah;
    uint32_t max_private_request, max_private_reply; /* octets */
    uint32_t usual_qkey;
} ri_ud_attrs;

typedef struct ri_ah_info {
    uint32_t size;
    uint32_t pd;
    ri_ud_path path;
} ri_ah_info;

/* Why a service request is refused; InfiniBand's numbers. */
#define RI_SERVICE_NOT_SUPPORTED 1
#define RI_SERVICE_REJECTED 2
#define RI_SERVICE_NO_QUEUE_PAIR 3
#define RI_SERVICE_REDIRECTED 4

#define RI_SERVICE_REQUEST 1  /* token of the listener, request, peer, port, private_data [RI-181] */
#define RI_SERVICE_RESOLVED 2 /* token, address, path, private_data [RI-182] */
#define RI_SERVICE_REFUSED 3  /* token, why, private_data [RI-183] */
#define RI_SERVICE_FAILED 4   /* token, reason: a sentence [RI-206] */

typedef struct ri_service_event {
    uint32_t size;
    uint32_t kind;
    uint64_t token, request;
    ri_address peer;
    uint32_t port, why;
    ri_ud_address address;
    ri_ud_path path;
    uint32_t private_len;
    uint32_t reserved;
    const uint8_t *private_data;
    ri_string reason;
} ri_service_event;

/* Receiver of service events; call NULL: none. The provider retains keep while it may call
 * [RI-174]. */
typedef struct ri_service_handler {
    uint32_t size;
    uint32_t reserved;
    ri_keep keep;
    void (*call)(void *context, const ri_service_event *event);
} ri_service_handler;

/* All entries required. A token is the host's: it names a listener, or a question, as long as there
 * is one; another one with the same is RI_IN_USE [RI-176]. */
typedef struct ri_ud_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_ud *ud);
    void (*attrs)(ri_ud *ud, ri_ud_attrs *attrs);
    /* Octets of the longest message through a port, now [RI-185]. */
    ri_status (*max_payload)(ri_ud *ud, uint32_t port, uint32_t *octets, ri_error *error);
    ri_status (*create_qp)(ri_ud *ud, const ri_ud_qp_init *init, ri_ud_qp_made *made,
                           ri_error *error);
    ri_status (*destroy_qp)(ri_ud *ud, uint32_t qp, ri_error *error);
    ri_status (*create_ah)(ri_ud *ud, uint32_t pd, const ri_ud_path *path, uint32_t *ah,
                           ri_error *error);
    ri_status (*query_ah)(ri_ud *ud, uint32_t ah, ri_ah_info *info, ri_error *error);
    /* Sends that are posted with it go out or complete in error [RI-177]. */
    ri_status (*destroy_ah)(ri_ud *ud, uint32_t ah, ri_error *error);
    /* Replaces the handler [RI-175]; events before the first one are lost. */
    void (*set_service_handler)(ri_ud *ud, const ri_service_handler *handler);
    /* bound: address with the real port [RI-178]. */
    ri_status (*listen)(ri_ud *ud, uint64_t token, const ri_address *address, uint32_t backlog,
                        ri_address *bound, ri_error *error);
    ri_status (*unlisten)(ri_ud *ud, uint64_t token, ri_error *error);
    /* Exactly one event other than a request follows [RI-179], unless cancelled [RI-180]. */
    ri_status (*resolve)(ri_ud *ud, uint64_t token, const ri_address *peer,
                         const uint8_t *private_data, uint32_t len, ri_error *error);
    ri_status (*cancel)(ri_ud *ud, uint64_t token, ri_error *error);
    ri_status (*accept)(ri_ud *ud, uint64_t request, const ri_ud_address *answer,
                        const uint8_t *private_data, uint32_t len, ri_error *error);
    ri_status (*reject)(ri_ud *ud, uint64_t request, uint32_t why, const uint8_t *private_data,
                        uint32_t len, ri_error *error);
} ri_ud_ops;

typedef struct ri_ud_made {
    uint32_t size;
    uint32_t reserved;
    ri_ud *ud;
    const ri_ud_ops *ops;
} ri_ud_made;

#endif
