/*
 * Endpoints and shared receive queues.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 7, 11.
 */
#ifndef ITAPI_EP_H
#define ITAPI_EP_H

/**
 * Makes a reliable connected endpoint, unconnected.
 *
 * request_sevd_handle, recv_sevd_handle: SEVDs of IT_DTO_EVENT_STREAM, may be the same one.
 * connect_sevd_handle: an SEVD of IT_CM_MSG_EVENT_STREAM (one of IT_CM_REQ_EVENT_STREAM is taken
 * too). flags: it_ep_rc_creation_flags_t, 0 for none; with IT_EP_SRQ receives come from
 * ep_attr->srv.rc.srq. ep_attr: what the endpoint must be able to do, at least; segments beyond
 * what the transport has are cut down.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_REQ_EVD, IT_ERR_INVALID_RECV_EVD,
 * IT_ERR_INVALID_CONN_EVD, IT_ERR_INVALID_EVD_TYPE, IT_ERR_INVALID_REQ_EVD_STATE,
 * IT_ERR_INVALID_RECV_EVD_STATE, IT_ERR_INVALID_FLAGS, IT_ERR_INVALID_EP_ATTR, IT_ERR_INVALID_SRQ,
 * IT_ERR_SRQ_NOT_SUPPORTED, IT_ERR_INVALID_WATERMARK, IT_ERR_PAYLOAD_SIZE, IT_ERR_NO_PERMISSION,
 * IT_ERR_PRIV_OPS_UNAVAILABLE, IT_ERR_RESOURCES, IT_ERR_RESOURCE_IRD, IT_ERR_RESOURCE_ORD,
 * IT_ERR_RESOURCE_REQ_DTO, IT_ERR_RESOURCE_RECV_DTO, IT_ERR_RESOURCE_SSEG, IT_ERR_RESOURCE_RSEG,
 * IT_ERR_RESOURCE_RRSEG, IT_ERR_RESOURCE_RWSEG.
 */
it_status_t it_ep_rc_create(IN it_pz_handle_t pz_handle,
                            IN it_evd_handle_t request_sevd_handle,
                            IN it_evd_handle_t recv_sevd_handle,
                            IN it_evd_handle_t connect_sevd_handle,
                            IN it_ep_rc_creation_flags_t flags,
                            IN const it_ep_attributes_t *ep_attr,
                            OUT it_ep_handle_t *ep_handle);

/**
 * Makes an unreliable datagram endpoint, operational at once. srv.ud.ep_info.ud_ep_key of ep_attr is its key, 0
 * for the usual one; it_ep_query() returns number and key. iWARP has no datagrams: IT_ERR_OP_NOT_SUPPORTED.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_REQ_EVD, IT_ERR_INVALID_RECV_EVD,
 * IT_ERR_INVALID_EVD_TYPE, IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_EP_ATTR, IT_ERR_OP_NOT_SUPPORTED,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_RESOURCES, IT_ERR_RESOURCE_REQ_DTO, IT_ERR_RESOURCE_RECV_DTO,
 * IT_ERR_RESOURCE_SSEG, IT_ERR_RESOURCE_RSEG.
 */
it_status_t it_ep_ud_create(IN it_pz_handle_t pz_handle,
                            IN it_evd_handle_t request_sevd_handle,
                            IN it_evd_handle_t recv_sevd_handle,
                            IN const it_ep_attributes_t *ep_attr,
                            IN size_t spigot_id,
                            OUT it_ep_handle_t *ep_handle);

/**
 * Destroys an endpoint in any state. Completions that were not dequeued may be lost. What has
 * completed still arrives at the peer, unless the peer does not take it in time; the call does not wait
 * for that. Then the connection is closed, or broken if data transfers were still under way.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_EP_BUSY.
 */
it_status_t it_ep_free(IN it_ep_handle_t ep_handle);

/**
 * Changes the attributes that mask names, as far as state and interface adapter allow: see
 * it_ia_info_t. IT_ERR_EP_BUSY: a queue is to be resized whose completions are not dequeued.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_MASK, IT_ERR_INVALID_EP_ATTR,
 * IT_ERR_EP_BUSY,
 * IT_ERR_INVALID_EP_KEY, IT_ERR_PAYLOAD_SIZE, IT_ERR_INVALID_WATERMARK, IT_ERR_HARD_HI_WATERMARK,
 * IT_ERR_SOFT_HI_WATERMARK, IT_ERR_OP_NOT_SUPPORTED, IT_ERR_RESOURCES, IT_ERR_RESOURCE_IRD,
 * IT_ERR_RESOURCE_ORD, IT_ERR_RESOURCE_REQ_DTO, IT_ERR_RESOURCE_RECV_DTO, IT_ERR_RESOURCE_SSEG,
 * IT_ERR_RESOURCE_RSEG, IT_ERR_RESOURCE_RRSEG, IT_ERR_RESOURCE_RWSEG.
 */
it_status_t it_ep_modify(IN it_ep_handle_t ep_handle,
                         IN it_ep_param_mask_t mask,
                         IN const it_ep_attributes_t *ep_attr);

/**
 * Returns the attributes that mask selects. dst_path is valid once the endpoint was connected.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_MASK.
 */
it_status_t it_ep_query(IN it_ep_handle_t ep_handle,
                        IN it_ep_param_mask_t mask,
                        OUT it_ep_param_t *params);

/**
 * Makes a nonoperational endpoint unconnected, to be connected again. IT_ERR_EP_TIMEWAIT while its
 * connection is not gone, IT_ERR_CANNOT_RESET while its work is flushed: try again.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE, IT_ERR_EP_TIMEWAIT,
 * IT_ERR_CANNOT_RESET.
 */
it_status_t it_ep_reset(IN it_ep_handle_t ep_handle);

/**
 * Makes a shared receive queue. Mind the order: segments, then receives.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_SRQ_SIZE, IT_ERR_SRQ_NOT_SUPPORTED, IT_ERR_RESOURCES,
 * IT_ERR_RESOURCE_RSEG, IT_ERR_RESOURCE_RECV_DTO.
 */
it_status_t it_srq_create(IN it_pz_handle_t pz_handle,
                          IN size_t max_recv_segments,
                          IN size_t max_recv_dtos,
                          OUT it_srq_handle_t *srq_handle);

/**
 * Destroys a shared receive queue; IT_ERR_SRQ_BUSY while endpoints use it. Receives in it do not
 * complete.
 *
 * Errors: IT_ERR_INVALID_SRQ, IT_ERR_SRQ_BUSY.
 */
it_status_t it_srq_free(IN it_srq_handle_t srq_handle);

/**
 * Resizes a shared receive queue or arms its low watermark, which makes one
 * IT_ASYNC_AFF_SRQ_LOW_WATERMARK event when fewer receives are left.
 *
 * Errors: IT_ERR_INVALID_SRQ, IT_ERR_INVALID_MASK, IT_ERR_INVALID_SRQ_SIZE,
 * IT_ERR_SRQ_LOW_WATERMARK, IT_ERR_INVALID_WATERMARK, IT_ERR_RESOURCES, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_srq_modify(IN it_srq_handle_t srq_handle,
                          IN it_srq_param_mask_t mask,
                          IN const it_srq_param_t *params);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_SRQ, IT_ERR_INVALID_MASK.
 */
it_status_t it_srq_query(IN it_srq_handle_t srq_handle,
                         IN it_srq_param_mask_t mask,
                         OUT it_srq_param_t *params);

#endif
