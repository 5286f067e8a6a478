/*
 * Making, accepting and ending connections.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 7, 9.
 */
#ifndef ITAPI_CONNECTION_H
#define ITAPI_CONNECTION_H

/**
 * Listens for connection requests.
 *
 * spigot_id: where. connect_evd: an SEVD of IT_CM_REQ_EVENT_STREAM, which gets an
 * IT_CM_REQ_CONN_REQUEST_EVENT for each request. flags: with IT_LISTEN_CONN_QUAL_INPUT, conn_qual
 * says which port; else the library picks one and writes it there. IT_LISTEN_SUPPRESS_IRD_ORD:
 * requests do not negotiate IRD and ORD. conn_qual: in and out; may be NULL if the port is not
 * wanted. IT_ERR_CONN_QUAL_BUSY: the port is in use.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_CONN_EVD,
 * IT_ERR_INVALID_EVD_TYPE, IT_ERR_INVALID_FLAGS, IT_ERR_INVALID_CONN_QUAL, IT_ERR_CONN_QUAL_BUSY,
 * IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES.
 */
it_status_t it_listen_create(IN it_ia_handle_t ia_handle,
                             IN size_t spigot_id,
                             IN it_evd_handle_t connect_evd,
                             IN it_listen_flags_t flags,
                             IN OUT it_conn_qual_t *conn_qual,
                             OUT it_listen_handle_t *listen_handle);

/**
 * Stops listening. Requests that were delivered stay valid.
 *
 * Errors: IT_ERR_INVALID_LISTEN.
 */
it_status_t it_listen_free(IN it_listen_handle_t listen_handle);

/**
 * Returns the attributes that mask selects.
 *
 * Errors: IT_ERR_INVALID_LISTEN, IT_ERR_INVALID_MASK.
 */
it_status_t it_listen_query(IN it_listen_handle_t listen_handle,
                            IN it_listen_param_mask_t mask,
                            OUT it_listen_param_t *params);

/**
 * Connects an endpoint that is unconnected. The outcome is an event on its connect SEVD:
 * IT_CM_MSG_CONN_ESTABLISHED_EVENT, IT_CM_MSG_CONN_PEER_REJECT_EVENT or
 * IT_CM_MSG_CONN_NONPEER_REJECT_EVENT. A failed call leaves the endpoint unconnected.
 *
 * path: where to; its timeout (microseconds) bounds the whole attempt. conn_attr: NULL for what
 * the transport thinks best. connect_qual: which port there, and here if IT_IANA_LR_PORT names a
 * local one. cn_est_flags: it_cn_est_flags_t. private_data: private_data_length octets for the
 * peer; NULL if that is 0.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_SOURCE_PATH, IT_ERR_INVALID_ADDRESS,
 * IT_ERR_INVALID_CONN_QUAL, IT_ERR_CONN_QUAL_BUSY, IT_ERR_INVALID_CN_EST_FLAGS,
 * IT_ERR_INVALID_PDATA_LENGTH, IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_ATIMEOUT,
 * IT_ERR_INVALID_LTIMEOUT, IT_ERR_INVALID_RTIMEOUT, IT_ERR_INVALID_RETRY,
 * IT_ERR_INVALID_RNR_RETRY, IT_ERR_INVALID_CM_RETRY, IT_ERR_EP_TIMEWAIT, IT_ERR_RESOURCES,
 * IT_ERR_NO_PERMISSION.
 */
it_status_t it_ep_connect(IN it_ep_handle_t ep_handle,
                          IN const it_path_t *path,
                          IN const it_conn_attributes_t *conn_attr,
                          IN const it_conn_qual_t *connect_qual,
                          IN it_cn_est_flags_t cn_est_flags,
                          IN const unsigned char *private_data,
                          IN size_t private_data_length);

/**
 * Accepts a connection request with an unconnected endpoint, of the interface adapter that the
 * request arrived at. The peer and this side then get IT_CM_MSG_CONN_ESTABLISHED_EVENT. Post receives
 * before: the peer may send at once.
 *
 * cn_est_id: from the IT_CM_REQ_CONN_REQUEST_EVENT; used up by success. private_data: as for
 * it_ep_connect().
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_CN_EST_ID, IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_PDATA_LENGTH,
 * IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES.
 */
it_status_t it_ep_accept(IN it_ep_handle_t ep_handle,
                         IN it_cn_est_identifier_t cn_est_id,
                         IN const unsigned char *private_data,
                         IN size_t private_data_length);

/**
 * Rejects a connection request; the peer gets IT_CM_MSG_CONN_PEER_REJECT_EVENT with the private
 * data. cn_est_id is used up.
 *
 * Errors: IT_ERR_INVALID_CN_EST_ID, IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_PDATA_LENGTH.
 */
it_status_t it_reject(IN it_cn_est_identifier_t cn_est_id,
                      IN const unsigned char *private_data,
                      IN size_t private_data_length);

/**
 * Gives a connection request to the listener of another port of this process, on this or another
 * interface adapter. That listener gets a new IT_CM_REQ_CONN_REQUEST_EVENT; cn_est_id is used up.
 * IT_ERR_INVALID_CONN_QUAL: there is no listener.
 *
 * Errors: IT_ERR_INVALID_CN_EST_ID, IT_ERR_INVALID_CONN_QUAL, IT_ERR_INVALID_SPIGOT,
 * IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES.
 */
it_status_t it_handoff(IN const it_conn_qual_t *conn_qual,
                       IN size_t spigot_id,
                       IN it_cn_est_identifier_t cn_est_id);

/**
 * Ends a connection, or an attempt to make one. The endpoint becomes nonoperational, its requests
 * complete with IT_DTO_ERR_FLUSHED, and both sides get IT_CM_MSG_CONN_DISCONNECT_EVENT. iWARP
 * carries no private data here: private_data_length must be 0; the Zurich layout ignores the data.
 * A connection that is over already is no error.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_PDATA_NOT_SUPPORTED, IT_ERR_INVALID_PDATA_LENGTH.
 */
it_status_t it_ep_disconnect(IN it_ep_handle_t ep_handle,
                             IN const unsigned char *private_data,
                             IN size_t private_data_length);

/**
 * Makes a connected TCP socket into the connection of an unconnected endpoint (late RDMA
 * transition). The outcome is an event on the connect SEVD, as for it_ep_connect().
 *
 * sd: the socket. After success it belongs to the library: do not use or close it. After failure
 * it is as it was. flags: IT_SC_DEFAULT exchanges MPA request and reply; IT_SC_NO_REQ_REP does
 * not, because both sides agreed on everything before. msg: the last len octets of the streaming
 * protocol, sent before the change; NULL if len is 0. The side that gives msg waits for the peer
 * to begin (IT_EP_STATE_PASSIVE_WAIT_RDMA_TRANS_REQ); the other one begins. To begin, to wait, or
 * to hand over received octets irrespective of that: itw_socket_convert().
 *
 * IT_ERR_MISMATCH_FD: not a connected TCP socket of this process.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE,
 * IT_ERR_INVALID_FLAGS, IT_ERR_INVALID_LENGTH, IT_ERR_MISMATCH_FD, IT_ERR_OP_NOT_SUPPORTED,
 * IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES.
 */
it_status_t it_socket_convert(IN int sd,
                              IN it_ep_handle_t ep_handle,
                              IN it_sc_flags_t flags,
                              IN const unsigned char *msg,
                              IN size_t len);

#endif
