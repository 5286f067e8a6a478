/*
 * Unreliable datagrams, which InfiniBand and RoCE have: supported_service_types of it_ia_info_t.
 * iWARP has none: the calls that make objects return IT_ERR_OP_NOT_SUPPORTED there, so that the others
 * never get a valid handle.
 *
 * A datagram needs an address handle, made of InfiniBand's path (u.ib), and the number and key of the
 * peer's endpoint. A service gives all of them: its listener (it_listen_create()) gets an
 * IT_CM_REQ_UD_SERVICE_REQUEST_EVENT and replies with an endpoint, and the requester gets an
 * IT_CM_MSG_UD_SERVICE_REPLY_EVENT. The completion of a received datagram has all but the key. A
 * service is addressed by an IP address (u.iwarp), as connections are.
 *
 * A datagram is lost without an event if there is no receive or one that is too short, or if it has a wrong
 * key.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 11.
 */
#ifndef ITAPI_DATAGRAM_H
#define ITAPI_DATAGRAM_H

/**
 * Makes an address handle for a path, which is InfiniBand's (u.ib). Of what is 0 in it the library
 * fills in what it can, IT_AH_PATH_COMPLETE or not. IT_ERR_INVALID_ADDRESS: the path is one of IP.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_FLAGS, IT_ERR_INVALID_SOURCE_PATH,
 * IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_ADDRESS, IT_ERR_RESOURCES, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_address_handle_create(IN it_pz_handle_t pz_handle,
                                     IN const it_path_t *destination_path,
                                     IN it_ah_flags_t ah_flags,
                                     OUT it_addr_handle_t *addr_handle);

/**
 * Destroys an address handle.
 *
 * Errors: IT_ERR_INVALID_AH.
 */
it_status_t it_address_handle_free(IN it_addr_handle_t addr_handle);

/**
 * Changes the attributes that mask names, which can be IT_ADDR_PARAM_PATH only.
 *
 * Errors: IT_ERR_INVALID_AH, IT_ERR_INVALID_MASK, IT_ERR_INVALID_SOURCE_PATH,
 * IT_ERR_INVALID_ADDRESS.
 */
it_status_t it_address_handle_modify(IN it_addr_handle_t addr_handle,
                                     IN it_addr_param_mask_t mask,
                                     IN const it_addr_param_t *params);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_AH, IT_ERR_INVALID_MASK.
 */
it_status_t it_address_handle_query(IN it_addr_handle_t addr_handle,
                                    IN it_addr_param_mask_t mask,
                                    OUT it_addr_param_t *params);

/**
 * Sends a datagram to remote_ep_addr. iWARP has none: IT_ERR_OP_NOT_SUPPORTED.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_AH,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_PAYLOAD_SIZE,
 * IT_ERR_TOO_MANY_POSTS, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_post_sendto(IN it_ep_handle_t ep_handle,
                           IN const it_lmr_triplet_t *local_segments,
                           IN size_t num_segments,
                           IN it_dto_cookie_t cookie,
                           IN it_dto_flags_t dto_flags,
                           IN const it_dg_remote_ep_addr_t *remote_ep_addr);

/**
 * Posts a receive for a datagram; ends with IT_DTO_UD_RECV_CMPL_EVENT (it_all_dto_cmpl_event_t). Its
 * first 40 octets are for a global routing header, there or not (IT_UD_IB_GRH_PRESENT), the message
 * is behind; transferred_length counts both. iWARP has none: IT_ERR_OP_NOT_SUPPORTED.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_STATE, IT_ERR_INVALID_EP_TYPE,
 * IT_ERR_INVALID_NUM_SEGMENTS, IT_ERR_INVALID_DTO_FLAGS, IT_ERR_TOO_MANY_POSTS,
 * IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_post_recvfrom(IN it_ep_handle_t ep_handle,
                             IN const it_lmr_triplet_t *local_segments,
                             IN size_t num_segments,
                             IN it_dto_cookie_t cookie,
                             IN it_dto_flags_t dto_flags);

/**
 * Describes a request for a UD endpoint: the service and the host. reply_evd: an SEVD of
 * IT_CM_MSG_EVENT_STREAM.
 *
 * Errors: IT_ERR_INVALID_CONN_QUAL, IT_ERR_INVALID_EVD_TYPE, IT_ERR_INVALID_EVD,
 * IT_ERR_INVALID_SOURCE_PATH, IT_ERR_INVALID_SPIGOT, IT_ERR_PDATA_NOT_SUPPORTED,
 * IT_ERR_INVALID_PDATA_LENGTH, IT_ERR_RESOURCES, IT_ERR_OP_NOT_SUPPORTED.
 */
it_status_t it_ud_service_request_handle_create(IN const it_conn_qual_t *conn_qual,
                                                IN it_evd_handle_t reply_evd,
                                                IN const it_path_t *destination_path,
                                                IN const unsigned char *private_data,
                                                IN size_t private_data_length,
                                                OUT it_ud_svc_req_handle_t *ud_svc_handle);

/**
 * Destroys such a description.
 *
 * Errors: IT_ERR_INVALID_UD_SVC.
 */
it_status_t it_ud_service_request_handle_free(IN it_ud_svc_req_handle_t ud_svc_handle);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_UD_SVC, IT_ERR_INVALID_MASK.
 */
it_status_t it_ud_service_request_handle_query(IN it_ud_svc_req_handle_t ud_svc_handle,
                                               IN it_ud_svc_req_param_mask_t mask,
                                               OUT it_ud_svc_req_param_t *ud_svc_handle_info);

/**
 * Sends the request; the reply is an IT_CM_MSG_UD_SERVICE_REPLY_EVENT on the reply_evd. If the host
 * does not reply in time, the event has IT_UD_SVC_ID_NOT_SUPPORTED.
 *
 * Errors: IT_ERR_INVALID_UD_SVC, IT_ERR_RESOURCES.
 */
it_status_t it_ud_service_request(IN it_ud_svc_req_handle_t ud_svc_handle);

/**
 * Replies to an IT_CM_REQ_UD_SERVICE_REQUEST_EVENT.
 *
 * Errors: IT_ERR_INVALID_UD_SVC_REQ_ID, IT_ERR_INVALID_UD_STATUS, IT_ERR_PDATA_NOT_SUPPORTED,
 * IT_ERR_INVALID_PDATA_LENGTH.
 */
it_status_t it_ud_service_reply(IN it_ud_svc_req_identifier_t ud_svc_req_id,
                                IN it_ud_svc_req_status_t status,
                                IN it_remote_ep_info_t ep_info,
                                IN const unsigned char *private_data,
                                IN size_t private_data_length);

#endif
