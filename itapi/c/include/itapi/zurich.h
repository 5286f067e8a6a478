/*
 * Additions of the Zurich stack.
 *
 * The loss of a stream (reset by the peer, timed out, or closed in the middle of work) is
 * IT_CM_MSG_CONN_BROKEN_EVENT alone: event dispatchers that it_evd_create() of this profile makes get
 * no IT_ASYNC_AFF_EP_L_LLP_ERROR for it, which the standard has in addition. Nothing is queued, counted
 * or woken for it. All other affiliated events come, among them IT_ASYNC_AFF_EP_L_LLP_ERROR for a
 * wrong FPDU.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 12.
 */
#ifndef ITAPI_ZURICH_H
#define ITAPI_ZURICH_H

/**
 * Returns the rmr_context by which the peer of ep_handle names an LMR.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_LMR, IT_ERR_ABORT.
 */
it_status_t itx_get_rmr_context_for_ep(IN it_ep_handle_t ep_handle,
                                       IN it_lmr_handle_t lmr,
                                       OUT it_rmr_context_t *rmr_context);

/**
 * Ties an endpoint to the device at which a connection request arrived. Here an endpoint belongs to its
 * device from its creation; cn_id is ignored.
 *
 * Errors: IT_ERR_INVALID_EP.
 */
it_status_t itx_bind_ep_to_device(IN it_ep_handle_t ep_handle, IN it_cn_est_identifier_t cn_id);

/**
 * As it_ep_accept(), with private data that describes lmr: rmr_context, address, length, each 64
 * bits, big endian. rmr_context: out. If either is NULL, there is no private data.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_CN_EST_ID, IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_PDATA_LENGTH,
 * IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES, IT_ERR_INVALID_LMR, IT_ERR_RANGE.
 */
it_status_t itx_ep_accept_with_rmr(IN it_ep_handle_t ep_handle,
                                   IN it_cn_est_identifier_t cn_est_id,
                                   IN it_lmr_triplet_t *lmr,
                                   OUT it_rmr_context_t *rmr_context);

/**
 * As it_ep_connect(), with 20 octets after the private data that describe lmr: length (32 bits),
 * rmr_context and address (64 bits), big endian. rmr_context: out. If either is NULL, nothing is
 * added.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_SOURCE_PATH, IT_ERR_INVALID_ADDRESS,
 * IT_ERR_INVALID_CONN_QUAL, IT_ERR_CONN_QUAL_BUSY, IT_ERR_INVALID_CN_EST_FLAGS,
 * IT_ERR_INVALID_PDATA_LENGTH, IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_ATIMEOUT,
 * IT_ERR_INVALID_LTIMEOUT, IT_ERR_INVALID_RTIMEOUT, IT_ERR_INVALID_RETRY,
 * IT_ERR_INVALID_RNR_RETRY, IT_ERR_INVALID_CM_RETRY, IT_ERR_EP_TIMEWAIT, IT_ERR_RESOURCES,
 * IT_ERR_NO_PERMISSION, IT_ERR_INVALID_LMR, IT_ERR_RANGE.
 */
it_status_t itx_ep_connect_with_rmr(IN it_ep_handle_t ep_handle,
                                    IN const it_path_t *path,
                                    IN const it_conn_attributes_t *conn_attr,
                                    IN const it_conn_qual_t *connect_qual,
                                    IN it_cn_est_flags_t cn_est_flags,
                                    IN const unsigned char *private_data,
                                    IN size_t private_data_length,
                                    IN it_lmr_triplet_t *lmr,
                                    OUT it_rmr_context_t *rmr_context);

/**
 * Waits on an AEVD and takes up to max_event_count events of its SEVDs: affiliated events first,
 * then those of connections, then completions. Nothing in time is IT_SUCCESS with *events_count 0.
 *
 * timeout: milliseconds, 0 not to wait, IT_TIMEOUT_INFINITE without end.
 *
 * Errors: IT_ERR_INVALID_EVD, IT_ERR_INVALID_AEVD, IT_ERR_INTERRUPT, IT_ERR_ABORT.
 */
it_status_t itx_aevd_wait(IN it_evd_handle_t evd_handle,
                          IN uint64_t timeout,
                          IN size_t max_event_count,
                          OUT it_event_t *events,
                          OUT size_t *events_count);

/**
 * Names this process in the library's log.
 *
 * Errors: IT_ERR_FAULT.
 */
it_status_t itx_init_tracing(IN const char *aContextName, IN int aTraceRank);

#endif
