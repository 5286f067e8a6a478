/*
 * Additions of this library: explanations, immediate data (RFC 7306), socket conversion in full.
 *
 * Part of it_api.h, which includes it. Reference: RFC 7306 section 6, IT-API section 9.
 */
#ifndef ITAPI_WARPLINE_H
#define ITAPI_WARPLINE_H

/** Which side of a connection one is. */
typedef enum {
    ITW_ROLE_INITIATOR = 0, /**< sends the MPA request, and the first FPDU */
    ITW_ROLE_RESPONDER = 1  /**< waits for it */
} itw_role_t;

/**
 * The version of this library, "major.minor.patch"; a constant string.
 */
const char *itw_version(void);

/**
 * Name and meaning of a status: a constant string, also for numbers that are no status.
 */
const char *itw_strerror(IN it_status_t status);

/**
 * Why the last call of this thread that failed did: what was wrong, where, what to do.
 *
 * buf: room for len octets with the NUL; the text is cut to fit. May be NULL if len is 0. Returns
 * the octets of the whole text without NUL, 0 if no call of this thread failed.
 */
size_t itw_last_error(OUT char *buf, IN size_t len);

/**
 * Describes an event in one line.
 *
 * event: as dequeued. buf, len, result: as for itw_last_error(). A NULL event is described too.
 */
size_t itw_event_text(IN const it_event_t *event, OUT char *buf, IN size_t len);

/**
 * Sends 8 octets without memory (RFC 7306 6, Immediate Data); ends with IT_DTO_SEND_CMPL_EVENT. At
 * the peer it takes a receive, whose memory stays as it is, and whose event has the data: see
 * itw_event_immediate().
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_DTO_FLAGS, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t itw_post_immediate(IN it_ep_handle_t ep_handle,
                               IN uint64_t data,
                               IN it_dto_cookie_t cookie,
                               IN it_dto_flags_t dto_flags);

/**
 * As it_post_rdma_write(), followed by itw_post_immediate(): the peer learns that the write is
 * done. One event, IT_DTO_RDMA_WRITE_CMPL_EVENT.
 *
 * Errors: those of it_post_rdma_write(), IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t itw_post_rdma_write_with_immediate(IN it_ep_handle_t ep_handle,
                                               IN const it_lmr_triplet_t *local_segments,
                                               IN size_t num_segments,
                                               IN it_dto_cookie_t cookie,
                                               IN it_dto_flags_t dto_flags,
                                               IN it_rdma_addr_t rdma_addr,
                                               IN it_rmr_context_t rmr_context,
                                               IN uint64_t data);

/**
 * Takes the immediate data out of the event of a receive. IT_ERR_QUEUE_EMPTY: it brought none.
 *
 * event: as dequeued. data: out.
 *
 * Errors: IT_ERR_FAULT, IT_ERR_INVALID_EVD_TYPE (no completion of a receive), IT_ERR_QUEUE_EMPTY.
 */
it_status_t itw_event_immediate(IN const it_event_t *event, OUT uint64_t *data);

/**
 * it_socket_convert() with everything that can be said about it.
 *
 * role: who begins, whether or not there is a msg. private_data: goes into the MPA request or
 * reply, not with IT_SC_NO_REQ_REP. received: received_length octets that the application has read
 * from the socket, but that belong to the RDMA stream; NULL if that is 0.
 *
 * Errors: those of it_socket_convert(), IT_ERR_INVALID_PDATA_LENGTH, IT_ERR_PDATA_NOT_SUPPORTED.
 */
it_status_t itw_socket_convert(IN int sd,
                               IN it_ep_handle_t ep_handle,
                               IN it_sc_flags_t flags,
                               IN itw_role_t role,
                               IN const unsigned char *msg,
                               IN size_t len,
                               IN const unsigned char *private_data,
                               IN size_t private_data_length,
                               IN const unsigned char *received,
                               IN size_t received_length);

#endif
