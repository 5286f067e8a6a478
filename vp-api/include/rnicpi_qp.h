/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rnicpi_qp.h: the part of rnicpi.h about queue pairs. Include rnicpi.h, which includes this; its
 * rules hold here, too.
 */
#ifndef WARPLINE_RNICPI_QP_H
#define WARPLINE_RNICPI_QP_H

#ifndef WARPLINE_RNICPI_H
#error "include rnicpi.h"
#endif

#define RI_QP_PRIVILEGED 1u /* STag 0 and fast registration */
#define RI_QP_SRQ 2u        /* receives come from srq, and none is posted to the QP [RI-99] */
/* Since 1.4, with RI_CAP_HOLD, else RI_UNSUPPORTED [RI-222]: a Send of any kind, or Immediate Data, that
 * finds no receive, of the QP's own or of its SRQ [RI-219], waits and ends nothing [RI-216]. It and those
 * after it take receives in their order when there are some [RI-217]. Writes and Reads after them do
 * not wait [RI-218]. What waits when the stream ends is lost. */
#define RI_QP_HOLD 4u

/* A depth of 0, of a queue of any kind, is RI_INVALID_MODIFIER [RI-242]. With an SRQ recv_depth means nothing. */
typedef struct ri_qp_init {
    uint32_t size;
    uint32_t flags, pd, send_cq, recv_cq; /* each queue completes to its own [RI-140] */
    uint32_t srq, send_depth, recv_depth, max_send_sge;
    /* ord: Reads and atomics under way at most; those beyond wait in the queue, in their order [RI-248]. */
    uint32_t max_recv_sge, max_inline, ird, ord;
    uint32_t allow; /* of peers: REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC [RI-100]; BIND */
    uint32_t recv_limit; /* RI_EVENT_RECV_LIMIT; 0: not armed [RI-101] */
    /* Since 1.4, for RI_QP_HOLD: octets of the stream that are kept at most; beyond, the provider stops
     * reading. And how long a message waits; then, as without the flag, Terminate
     * 1/2/2 [RI-220]. 0 octets, no time, or more than the provider can: RI_INVALID_MODIFIER [RI-221]. */
    uint32_t hold_octets;
    uint64_t hold_time_ns;
} ri_qp_init;

#define RI_ROLE_INITIATOR 1
#define RI_ROLE_RESPONDER 2

#define RI_RTR_NONE 0
#define RI_RTR_SEND 1
#define RI_RTR_WRITE 2
#define RI_RTR_READ 3

#define RI_STREAM_CRC 1u
#define RI_STREAM_MARKERS_TX 2u
#define RI_STREAM_MARKERS_RX 4u
#define RI_STREAM_EXTENSIONS 8u /* RFC 7306 operations */
/* Since 1.4, with RI_CAP_SEND_IMMEDIATE: both ends agreed on RI_OP_SEND_IMMEDIATE; without it one of the
 * peer's ends the stream. */
#define RI_STREAM_SEND_IMMEDIATES 16u
/* Since 1.4, with RI_CAP_LOCAL_STREAM: both ends are on one host, and memory that they share carries the
 * octets in place of TCP, both ways, from the first FPDU on. received is empty; last_message is still sent
 * by TCP, and nothing else. The socket stays open: an end of it ends the stream, and octets there are an error of
 * the peer, which writes into the memory what it likes, at any moment. */
#define RI_STREAM_LOCAL 32u

#define RI_SIDE_MAKER 1 /* this end made the memory */
#define RI_SIDE_OTHER 2

/* An established TCP stream, and what MPA start-up settled. The socket is the provider's from the
 * moment of the call; it closes it if it refuses [RI-102]. */
typedef struct ri_stream {
    uint32_t size;
    int32_t socket; /* connected, nonblocking */
    const uint8_t *received; /* octets behind the start-up frame, before those of the socket [RI-103] */
    uint64_t received_len;
    const uint8_t *last_message; /* to be sent in streaming mode before anything else [RI-104] */
    uint64_t last_message_len;
    uint32_t role, flags, ird, ord;
    uint32_t rtr;
    uint32_t fpdu_octets; /* 0: follow the EMSS */
    uint64_t nudge_ns;    /* 0: never */
    uint64_t probe_ns;    /* 0: never */
    uint64_t close_timeout_ns; /* the longest that a close waits for the peer; then it is CONNECTION_LOST [RI-249] */
    /* Since 1.4, for RI_STREAM_LOCAL; the provider's, as the socket. memory: a memfd with two rings, sealed and
     * verified; its layout, by version, is that of Warpline's crate shm-ring. The doorbells: eventfds with
     * EFD_SEMAPHORE whose counter is near its maximum. An end that sleeps watches doorbell for edges of
     * EPOLLOUT; the end that wakes it takes 1 from its peer_doorbell: preadv2(fd, iov of 8 octets, 1, -1,
     * RWF_NOWAIT). The peer shares flags and counter: write(2), and read(2) without that flag, could block. */
    int32_t memory, doorbell, peer_doorbell;
    uint32_t side; /* RI_SIDE_* */
} ri_stream;

#define RI_QP_TO_RTS 1       /* Idle -> RTS over stream */
/* Graceful: what completed arrives [RI-106]; with work under way it is reset after that, and the
 * event is BAD_CLOSE [RI-204]. */
#define RI_QP_TO_CLOSING 2
#define RI_QP_TO_TERMINATE 3 /* Terminate 0/0/0, then close [RI-107] */
#define RI_QP_TO_ERROR 4     /* reset at once, flush [RI-108]; in Error: RI_OK, nothing [RI-208] */
/* From Error, once flushed; then anew [RI-109]. No event of the earlier stream is on its way to the
 * handler any more [RI-153]: the call waits for that, or is refused as RI_STILL_FLUSHING. */
#define RI_QP_TO_IDLE 5
#define RI_QP_LIMITS 6       /* the limits named by which [RI-110] */
/* Since 1.4: as RI_QP_TO_CLOSING, once no work is under way [RI-211], or close_timeout_ns is over. Until
 * then the state is RTS, and posts to the send queue are refused as RI_INVALID_STATE [RI-212], since they
 * cannot complete before what is under way. A provider without it returns RI_UNSUPPORTED. */
#define RI_QP_DRAIN 7
/* Since 1.4, with RI_CAP_ALLOW, else RI_UNSUPPORTED [RI-246]; in every state: peers may use the rights of allow through the QP from now
 * on, in place of those of ri_qp_init [RI-229]; RI_ACCESS_BIND in it does not count. */
#define RI_QP_ALLOW 8
/* Since 1.4, with RI_CAP_DISCARD, else RI_UNSUPPORTED [RI-247]; in Idle: the completions of the QP leave its CQs, as when it is destroyed. A
 * poll that begins afterwards finds none, and they occupy no slots of its queues; receives that are posted
 * stay, and later completions come as ever [RI-238]. */
#define RI_QP_DISCARD 9

/* In RTS it goes down only, else it is RI_INVALID_IRD_ORD; there the others, but for the receive limit, are
 * RI_CANNOT_CHANGE [RI-251]. */
#define RI_LIMIT_ORD 1u
#define RI_LIMIT_IRD 2u
#define RI_LIMIT_SEND_DEPTH 4u
#define RI_LIMIT_RECV_DEPTH 8u
#define RI_LIMIT_RECV_LIMIT 16u

/* Modify QP: all or nothing [RI-111]. */
typedef struct ri_qp_change {
    uint32_t size;
    uint32_t kind;
    const ri_stream *stream;
    uint32_t which, ord, ird, send_depth;
    uint32_t recv_depth, recv_limit;
    uint32_t allow; /* RI_ACCESS_*; since 1.4 */
    uint32_t reserved;
} ri_qp_change;

#define RI_QP_IDLE 1
#define RI_QP_RTS 2
#define RI_QP_CLOSING 3
#define RI_QP_TERMINATE 4
#define RI_QP_ERROR 5

#define RI_CARRIER_TCP 0
#define RI_CARRIER_LOCAL 1
#define RI_CARRIER_LOCAL_CORRUPT 2 /* local, until the peer broke the rules of the memory; the event is a reset */

/* A QP as it is now [RI-112]. */
typedef struct ri_qp_info {
    uint32_t size;
    uint32_t id, state, send_depth, recv_depth;
    /* Outstanding: posted and not completed [RI-209]. Lost: of the last stream, completed otherwise than
     * with success [RI-210]; both are 0 again after RI_QP_TO_IDLE, and when the next stream begins [RI-243]. */
    uint32_t sends_outstanding, recvs_outstanding, sends_lost, recvs_lost;
    uint32_t recv_limit, ird, ord, has_terminate;
    ri_terminate terminate;
    ri_address local;
    ri_address remote;
    uint64_t fpdus_sent, fpdus_received, octets_sent, octets_received;
    uint64_t send_calls, recv_calls, send_stalls, ord_stalls;
    /* Since 1.1: what TCP knows of the stream; mss 0: nothing. */
    uint32_t tcp_mss;
    uint32_t tcp_congestion_window; /* segments */
    uint32_t tcp_retransmitted;     /* segments */
    uint32_t reserved;
    uint64_t tcp_rtt_ns, tcp_rtt_variation_ns;
    uint32_t carrier; /* since 1.4: of the stream, or the last one; RI_CARRIER_* */
    uint32_t tcp_unsent; /* since 1.4: octets in the socket that are not sent yet */
    /* Since 1.4: time with octets in flight, and of it time limited by the peer's window, by the send buffer. */
    uint64_t tcp_busy_ns, tcp_rwnd_limited_ns, tcp_sndbuf_limited_ns;
    uint64_t tcp_delivery_rate; /* octets per second */
    uint64_t tcp_min_rtt_ns; /* the shortest round trip of late; 0: not known */
} ri_qp_info;

typedef struct ri_qp_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_qp *qp); /* Required. */
    /* Required. The first *posted are queued, whatever the status [RI-113]; no slot:
     * RI_TOO_MANY_WRS. What is RI_INVALID_SGL or RI_INVALID_WR with free slots is so with none, too [RI-245].
     * A slot is free when its completion, flushed or not, was polled, and not before [RI-186]; unsignaled: when a
     * later one was, or back in Idle [RI-192]. If the later one is queued and not polled, Idle does not free them
     * [RI-244]. A completion that an overrun lost frees no slot while the QP is in Error [RI-241]. */
    ri_status (*post_send)(ri_qp *qp, const ri_send_wr *wrs, uint32_t count, uint32_t *posted);
    /* Required. Refusals and slots are those of post_send. With an SRQ: RI_INVALID_WR [RI-99]. */
    ri_status (*post_recv)(ri_qp *qp, const ri_recv_wr *wrs, uint32_t count, uint32_t *posted);
    ri_status (*modify)(ri_qp *qp, const ri_qp_change *change, ri_error *error); /* Required. */
    ri_status (*query)(ri_qp *qp, ri_qp_info *info, ri_error *error);            /* Required. */
} ri_qp_ops;

typedef struct ri_qp_made {
    uint32_t size;
    uint32_t id;
    ri_qp *qp;
    const ri_qp_ops *ops;
} ri_qp_made;

#endif
