/*
 * Memory regions, windows into them, addresses.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 10.
 */
#ifndef ITAPI_MEMORY_H
#define ITAPI_MEMORY_H

/**
 * Registers memory, with absolute addresses (version 1.0). See it_lmr_create21().
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_FAULT, IT_ERR_INVALID_LENGTH, IT_ERR_RESOURCE_LMR_LENGTH,
 * IT_ERR_INVALID_PRIVS, IT_ERR_INVALID_FLAGS, IT_ERR_ACCESS, IT_ERR_RESOURCES.
 */
it_status_t it_lmr_create10(IN it_pz_handle_t pz_handle,
                            IN void *addr,
                            IN it_length_t length,
                            IN it_mem_priv_t privs,
                            IN it_lmr_flag_t flags,
                            IN uint32_t shared_id,
                            OUT it_lmr_handle_t *lmr_handle,
                            IN OUT it_rmr_context_t *rmr_context);

/**
 * Registers memory (version 2.0). See it_lmr_create21().
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_FAULT, IT_ERR_INVALID_LENGTH, IT_ERR_RESOURCE_LMR_LENGTH,
 * IT_ERR_INVALID_PRIVS, IT_ERR_INVALID_FLAGS, IT_ERR_ACCESS, IT_ERR_RESOURCES,
 * IT_ERR_INVALID_ADDR_MODE.
 */
it_status_t it_lmr_create20(IN it_pz_handle_t pz_handle,
                            IN void *addr,
                            IN it_length_t length,
                            IN it_addr_mode_t addr_mode,
                            IN it_mem_priv_t privs,
                            IN it_lmr_flag_t flags,
                            IN uint32_t shared_id,
                            OUT it_lmr_handle_t *lmr_handle,
                            IN OUT it_rmr_context_t *rmr_context);

/**
 * Registers length octets at addr, for local work and, if privs allows it, for peers.
 *
 * iobl: NULL, or an I/O buffer list to use instead of addr, whose elements follow each other in
 * memory. addr_mode: how triplets and peers address it. shared_id: which LMRs share, with
 * IT_LMR_FLAG_SHARED. rmr_context: out, what the peer needs; may be NULL. The memory must stay
 * mapped until it_lmr_free(): a peer may use it at any time.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_FAULT, IT_ERR_INVALID_LENGTH, IT_ERR_RESOURCE_LMR_LENGTH,
 * IT_ERR_INVALID_PRIVS, IT_ERR_INVALID_FLAGS, IT_ERR_ACCESS, IT_ERR_RESOURCES,
 * IT_ERR_INVALID_ADDR_MODE, IT_ERR_INVALID_IOBL, IT_ERR_NO_PERMISSION.
 */
it_status_t it_lmr_create21(IN it_pz_handle_t pz_handle,
                            IN void *addr,
                            IN it_iobl_t *iobl,
                            IN it_length_t length,
                            IN it_addr_mode_t addr_mode,
                            IN it_mem_priv_t privs,
                            IN it_lmr_flag_t flags,
                            IN uint32_t shared_id,
                            OUT it_lmr_handle_t *lmr_handle,
                            IN OUT it_rmr_context_t *rmr_context);

/**
 * Makes an LMR without memory, for it_lmr_link().
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_FLAGS, IT_ERR_RESOURCES, IT_ERR_NO_PERMISSION,
 * IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_lmr_create_unlinked(IN it_pz_handle_t pz_handle,
                                   IN size_t iobl_num_elts,
                                   IN it_lmr_flag_t flags,
                                   IN uint32_t shared_id,
                                   OUT it_lmr_handle_t *lmr_handle);

/**
 * Ends a registration. When it returns, no peer reads or writes the memory any more.
 * IT_ERR_LMR_BUSY while RMRs are linked to it.
 *
 * Errors: IT_ERR_INVALID_LMR, IT_ERR_LMR_BUSY.
 */
it_status_t it_lmr_free(IN it_lmr_handle_t lmr_handle);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_LMR, IT_ERR_INVALID_MASK.
 */
it_status_t it_lmr_query(IN it_lmr_handle_t lmr_handle,
                         IN it_lmr_param_mask_t mask,
                         OUT it_lmr_param_t *params);

/**
 * Changes protection zone, memory, addressing or privileges as in mask; IT_ERR_LMR_BUSY while
 * RMRs are linked. The rmr_context changes.
 *
 * Errors: IT_ERR_INVALID_LMR, IT_ERR_INVALID_MASK, IT_ERR_INVALID_PZ, IT_ERR_INVALID_PRIVS,
 * IT_ERR_LMR_BUSY, IT_ERR_RESOURCES, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_lmr_modify(IN it_lmr_handle_t lmr_handle,
                          IN it_lmr_param_mask_t mask,
                          IN const it_lmr_param_t *params);

/**
 * Posts a request that gives memory to an unlinked LMR; ends with IT_LMR_LINK_CMPL_EVENT. The
 * endpoint must have priv_ops_enable.
 *
 * Errors: IT_ERR_INVALID_LMR, IT_ERR_INVALID_IOBL, IT_ERR_INVALID_LENGTH,
 * IT_ERR_INVALID_ADDR_MODE, IT_ERR_INVALID_PRIVS, IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_PRIV_OPS_UNAVAILABLE,
 * IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_lmr_link(IN it_lmr_handle_t lmr_handle,
                        IN const void *addr,
                        IN const it_iobl_t *iobl,
                        IN it_length_t length,
                        IN it_addr_mode_t addr_mode,
                        IN it_mem_priv_t privs,
                        IN it_ep_handle_t ep_handle,
                        IN it_dto_cookie_t cookie,
                        IN it_dto_flags_t dto_flags,
                        OUT it_rmr_context_t *rmr_context);

/**
 * Posts a request that takes the memory from an LMR: its rmr_context becomes invalid.
 *
 * Errors: IT_ERR_INVALID_LMR, IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_DTO_FLAGS, IT_ERR_LMR_BUSY, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_lmr_unlink(IN it_lmr_handle_t lmr_handle,
                          IN it_ep_handle_t ep_handle,
                          IN it_dto_cookie_t cookie,
                          IN it_dto_flags_t dto_flags);

/**
 * Makes what the processor wrote visible to the interface adapter, for non-coherent LMRs. Call it
 * before the peer reads or a send is posted. Does nothing where all is coherent.
 *
 * Errors: IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_LMR, IT_ERR_RANGE.
 */
it_status_t it_lmr_flush_to_mem(IN const it_lmr_triplet_t *local_segments, IN size_t num_segments);

/**
 * Makes what the interface adapter wrote visible to the processor, for non-coherent LMRs.
 *
 * Errors: IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_LMR, IT_ERR_RANGE.
 */
it_status_t it_lmr_refresh_from_mem(IN const it_lmr_triplet_t *local_segments,
                                    IN size_t num_segments);

/**
 * Makes an RMR of type IT_RMR_TYPE_DEFAULT (version 1.0).
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_RESOURCES.
 */
it_status_t it_rmr_create10(IN it_pz_handle_t pz_handle, OUT it_rmr_handle_t *rmr_handle);

/**
 * Makes an RMR.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_RMR_TYPE, IT_ERR_RESOURCES.
 */
it_status_t it_rmr_create20(IN it_pz_handle_t pz_handle,
                            IN it_rmr_type_t rmr_type,
                            OUT it_rmr_handle_t *rmr_handle);

/**
 * Destroys an RMR, linked or not. When it returns, no peer reads or writes through it any more.
 *
 * Errors: IT_ERR_INVALID_RMR.
 */
it_status_t it_rmr_free(IN it_rmr_handle_t rmr_handle);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_RMR, IT_ERR_INVALID_MASK.
 */
it_status_t it_rmr_query(IN it_rmr_handle_t rmr_handle,
                         IN it_rmr_param_mask_t mask,
                         OUT it_rmr_param_t *params);

/**
 * Links an RMR, with absolute addresses (version 1.0). See it_rmr_link().
 *
 * Errors: IT_ERR_INVALID_RMR, IT_ERR_INVALID_LMR, IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_PRIVS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_RANGE,
 * IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_rmr_bind10(IN it_rmr_handle_t rmr_handle,
                          IN it_lmr_handle_t lmr_handle,
                          IN void *addr,
                          IN it_length_t length,
                          IN it_mem_priv_t privs,
                          IN it_ep_handle_t ep_handle,
                          IN it_dto_cookie_t cookie,
                          IN it_dto_flags_t dto_flags,
                          OUT it_rmr_context_t *rmr_context);

/**
 * Posts a request that opens a part of an LMR to the peer: length octets at addr. Ends with
 * IT_RMR_LINK_CMPL_EVENT.
 *
 * privs: a part of what the LMR's own registration allows locally. rmr_context: out, valid for the
 * peer when the request is done. A length of 0 with a wide RMR unlinks it.
 *
 * Errors: IT_ERR_INVALID_RMR, IT_ERR_INVALID_LMR, IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_ADDR_MODE, IT_ERR_INVALID_PRIVS,
 * IT_ERR_INVALID_DTO_FLAGS, IT_ERR_RANGE, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_rmr_link(IN it_rmr_handle_t rmr_handle,
                        IN it_lmr_handle_t lmr_handle,
                        IN void *addr,
                        IN it_length_t length,
                        IN it_addr_mode_t addr_mode,
                        IN it_mem_priv_t privs,
                        IN it_ep_handle_t ep_handle,
                        IN it_dto_cookie_t cookie,
                        IN it_dto_flags_t dto_flags,
                        OUT it_rmr_context_t *rmr_context);

/**
 * Posts a request that closes an RMR: its rmr_context becomes invalid.
 *
 * Errors: IT_ERR_INVALID_RMR, IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_DTO_FLAGS, IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_rmr_unlink(IN it_rmr_handle_t rmr_handle,
                          IN it_ep_handle_t ep_handle,
                          IN it_dto_cookie_t cookie,
                          IN it_dto_flags_t dto_flags);

/**
 * The form of an address in an LMR or RMR with absolute addresses that is sent to the peer.
 */
it_rdma_addr_t it_make_rdma_addr_absolute(IN void *addr);

/**
 * The form of an offset in an LMR or RMR with relative addresses that is sent to the peer.
 */
it_rdma_addr_t it_make_rdma_addr_relative(IN it_length_t offset);

/**
 * Maps memory for the I/O bus and returns its address there, for I/O buffer lists. In user
 * space that is the virtual address.
 *
 * vaddr: len octets from there. aspace_id: 0, this process. io_addr: out. mapped_len: out, how
 * many octets are mapped, at most len.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_ADDRESS, IT_ERR_INVALID_LENGTH, IT_ERR_NO_PERMISSION,
 * IT_ERR_RESOURCES.
 */
it_status_t it_mem_map(IN it_ia_handle_t ia_handle,
                       IN void *vaddr,
                       IN uint64_t aspace_id,
                       IN size_t len,
                       OUT it_io_addr_t *io_addr,
                       OUT size_t *mapped_len);

/**
 * Undoes it_mem_map(): io_addr and mapped_len as it returned them.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_ADDRESS, IT_ERR_NO_PERMISSION.
 */
it_status_t it_mem_unmap(IN it_ia_handle_t ia_handle,
                         IN it_io_addr_t io_addr,
                         IN size_t mapped_len);

#endif
