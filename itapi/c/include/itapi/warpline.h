/*
 * Additions of this library: explanations, vendor calls, immediate data (RFC 7306), socket conversion in
 * full.
 *
 * Part of it_api.h, which includes it. Reference: RFC 7306 section 6, IT-API section 9.
 */
#ifndef ITAPI_WARPLINE_H
#define ITAPI_WARPLINE_H

/** The role of an end of a connection in the MPA start-up. */
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
 * Why the last failed call of this thread failed: what was wrong, where, what to do.
 *
 * It is also set by a call that dequeues the event of a work request that did not succeed
 * (it_evd_dequeue(), it_evd_dequeue_n(), it_evd_wait()), although that call returns IT_SUCCESS: then it
 * contains the request's result, how the connection ended, and which end ended it.
 *
 * buf: room for len octets with the NUL; the text is cut to fit. May be NULL if len is 0. Returns
 * the octets of the whole text without NUL, 0 if no call of this thread failed.
 */
size_t itw_last_error(OUT char *buf, IN size_t len);

/** How important a log line is. */
typedef enum {
    ITW_LOG_ERROR = 1,
    ITW_LOG_WARN = 2,
    ITW_LOG_INFO = 3, /**< among others one line per connection made and one per connection ended */
    ITW_LOG_DEBUG = 4,
    ITW_LOG_TRACE = 5
} itw_log_level_t;

/**
 * Gets a log line: its level (itw_log_level_t), its text without a line end, which lives until the
 * function returns, and what itw_log_callback() was given.
 */
typedef void (*itw_log_callback_t)(int level, const char *text, void *context);

/**
 * Hands the library's log lines to a function; NULL: to standard error, as at first.
 *
 * The environment variable WARPLINE_LOG selects the lines (error, warn, info, debug, trace, or more
 * finely as in RUST_LOG: "ual=debug"); without it filter in section [log] of the configuration file
 * does, without both there are warnings. format = "json" there makes each line a JSON object. Both are
 * read by the first call of this function or of it_ia_create(). Lines are never coloured.
 *
 * callback: called from any thread, also from several at once, and inside other calls; it must not call
 * the library, and must return soon. A callback that is replaced may still run when this returns.
 */
it_status_t itw_log_callback(IN itw_log_callback_t callback, IN void *context);

/** Functions of a provider's own: itw_ia_vendor_calls(). */
typedef struct {
    const void *table; /**< a struct of functions, as the vendor's header declares it for the name */
    void *context;     /**< their first argument; may be NULL */
} itw_vendor_calls_t;

/**
 * Finds a table of functions that the adapter's provider offers beside IT-API.
 *
 * name: the vendor's, with its version, e.g. "acme.telemetry/1". calls: out. The table and its
 * context stay valid until the adapter is freed; any thread may call the functions. The vendor defines
 * what they do and return.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_FAULT, IT_ERR_OP_NOT_SUPPORTED (the provider has no table of this
 * name; itw_last_error() lists those that it has).
 */
it_status_t itw_ia_vendor_calls(IN it_ia_handle_t ia_handle,
                                IN const char *name,
                                OUT itw_vendor_calls_t *calls);

/**
 * Describes an event in one line. Of an endpoint's asynchronous events and of work requests that did
 * not succeed it names the peer and the cause, as of connection events.
 *
 * event: as dequeued. buf, len, result: as for itw_last_error(). A NULL event is described too.
 */
size_t itw_event_text(IN const it_event_t *event, OUT char *buf, IN size_t len);

/**
 * Writes what carries the octets of an endpoint's connection: "local stream" (memory that both ends share,
 * since they are on one host), "TCP (peer-plain): the peer does not look for a local stream", with the code
 * and the text of the reason why there is no local stream, or "device" (it has connections of its own).
 * itw_event_text() has the same of IT_CM_MSG_CONN_ESTABLISHED_EVENT. The environment variable WARPLINE_LOCAL,
 * and local in [policy] of the configuration, choose: auto, off, require.
 *
 * buf, len, result: as for itw_last_error(). 0: ep_handle is no endpoint for connections, or it never had one.
 */
size_t itw_ep_carrier(IN it_ep_handle_t ep_handle, OUT char *buf, IN size_t len);

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
 * Returns the immediate data of the event of a receive. IT_ERR_QUEUE_EMPTY: the event has none.
 *
 * event: as dequeued. data: out.
 *
 * Errors: IT_ERR_FAULT, IT_ERR_INVALID_EVD_TYPE (no completion of a receive), IT_ERR_QUEUE_EMPTY.
 */
it_status_t itw_event_immediate(IN const it_event_t *event, OUT uint64_t *data);

/**
 * it_socket_convert() with all options.
 *
 * role: which side begins, with or without a msg. private_data: sent in the MPA request or
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
