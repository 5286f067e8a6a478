/*
 * Work requests of connected endpoints.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 7, 10.
 */
#ifndef ITAPI_POST_H
#define ITAPI_POST_H

/**
 * Sends a message into the next receive of the peer; ends with IT_DTO_SEND_CMPL_EVENT.
 *
 * local_segments: num_segments pieces, sent one after the other; NULL if there are none. The array
 * may go when the call returns; the memory must stay until the completion. cookie: returned in
 * the event.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_RANGE,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_TOO_MANY_POSTS.
 */
it_status_t it_post_send(IN it_ep_handle_t ep_handle,
                         IN const it_lmr_triplet_t *local_segments,
                         IN size_t num_segments,
                         IN it_dto_cookie_t cookie,
                         IN it_dto_flags_t dto_flags);

/**
 * As it_post_send(), and unlinks the memory that the peer calls rmr_context, an LMR or a narrow RMR
 * that is linked to its end of this connection; its receive event names it.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_RANGE,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_post_send_and_unlink(IN it_ep_handle_t ep_handle,
                                    IN const it_lmr_triplet_t *local_segments,
                                    IN size_t num_segments,
                                    IN it_dto_cookie_t cookie,
                                    IN it_dto_flags_t dto_flags,
                                    IN it_rmr_context_t rmr_context);

/**
 * Posts a receive to an endpoint or a shared receive queue; ends with IT_DTO_RC_RECV_CMPL_EVENT.
 * Possible in every state of the endpoint; a message longer than the segments breaks the
 * connection.
 *
 * Errors: IT_ERR_INVALID_HANDLE, IT_ERR_INVALID_EP, IT_ERR_INVALID_SRQ, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_RECV_DTO, IT_ERR_INVALID_NUM_SEGMENTS,
 * IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_TOO_MANY_POSTS.
 */
it_status_t it_post_recv(IN it_handle_t handle,
                         IN const it_lmr_triplet_t *local_segments,
                         IN size_t num_segments,
                         IN it_dto_cookie_t cookie,
                         IN it_dto_flags_t dto_flags);

/**
 * Reads from rdma_addr in the memory that the peer calls rmr_context, as many octets as the local
 * segments take; ends with IT_DTO_RDMA_READ_CMPL_EVENT. iWARP takes one segment, whose LMR must
 * have IT_PRIV_REMOTE_WRITE where rdma_read_requires_remote_write is set.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_RANGE,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_TOO_MANY_POSTS.
 */
it_status_t it_post_rdma_read(IN it_ep_handle_t ep_handle,
                              IN const it_lmr_triplet_t *local_segments,
                              IN size_t num_segments,
                              IN it_dto_cookie_t cookie,
                              IN it_dto_flags_t dto_flags,
                              IN it_rdma_addr_t rdma_addr,
                              IN it_rmr_context_t rmr_context);

/**
 * As it_post_rdma_read(), into the memory of an RMR. See rdma_read_local_extensions.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_RMR, IT_ERR_RANGE,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_post_rdma_read_to_rmr(IN it_ep_handle_t ep_handle,
                                     IN const it_rmr_triplet_t *local_segments,
                                     IN size_t num_segments,
                                     IN it_dto_cookie_t cookie,
                                     IN it_dto_flags_t dto_flags,
                                     IN it_rdma_addr_t rdma_addr,
                                     IN it_rmr_context_t rmr_context);

/**
 * Writes the local segments to rdma_addr in the memory that the peer calls rmr_context; ends with
 * IT_DTO_RDMA_WRITE_CMPL_EVENT. The peer gets no event.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_RANGE,
 * IT_ERR_PAYLOAD_SIZE, IT_ERR_TOO_MANY_POSTS.
 */
it_status_t it_post_rdma_write(IN it_ep_handle_t ep_handle,
                               IN const it_lmr_triplet_t *local_segments,
                               IN size_t num_segments,
                               IN it_dto_cookie_t cookie,
                               IN it_dto_flags_t dto_flags,
                               IN it_rdma_addr_t rdma_addr,
                               IN it_rmr_context_t rmr_context);

/**
 * Changes 8 octets at rdma_addr in the peer's memory and returns what they were, all at once; ends
 * with IT_DTO_FETCH_ADD_CMPL_EVENT or IT_DTO_CMP_SWAP_CMPL_EVENT.
 *
 * op: IT_FETCH_AND_ADD adds swap_or_add; IT_COMPARE_AND_SWAP stores swap_or_add if they equal
 * compare. result: 8 octets of an LMR. rdma_addr is a multiple of 8: else the post is refused with
 * IT_ERR_OP_NOT_SUPPORTED. With zero-based addresses that is the offset (InfiniBand volume 1, 9.4.5), and the memory
 * begins at a multiple of 8, too (RFC 7306 5.1): else the peer ends the connection.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_ATOMIC_OP, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_INVALID_LMR, IT_ERR_INVALID_LENGTH,
 * IT_ERR_RANGE, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_post_atomic(IN it_ep_handle_t ep_handle,
                           IN it_atomic_op_t op,
                           IN uint64_t swap_or_add,
                           IN uint64_t compare,
                           IN const it_lmr_triplet_t *result,
                           IN it_dto_cookie_t cookie,
                           IN it_dto_flags_t dto_flags,
                           IN it_rdma_addr_t rdma_addr,
                           IN it_rmr_context_t rmr_context);

#endif
