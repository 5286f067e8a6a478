/*
 * The short way: connecting and listening by "HOST:PORT", attributes that suit most programs.
 *
 * Part of it_api.h, which includes it. Reference: Warpline; not in the standard. What these calls do is
 * what it_ep_connect(), it_listen_create() and a filled-in structure do, in fewer lines.
 */
#ifndef ITAPI_ADDRESS_H
#define ITAPI_ADDRESS_H

/**
 * Connects an endpoint that is unconnected to "HOST:PORT"; the events are those of it_ep_connect().
 *
 * address: HOST is a name for the system's resolver, which this call waits for, or an address; one of
 * IPv6 stands in brackets: "server:7174", "192.0.2.1:7174", "[2001:db8::1]:7174". Where a name has
 * several addresses they are tried in turn. PORT is a number. The time-out is connect_timeout of
 * [policy] in the configuration. private_data: private_data_length octets for the peer; NULL if that
 * is 0.
 *
 * Errors: IT_ERR_INVALID_EP, IT_ERR_INVALID_EP_TYPE, IT_ERR_INVALID_EP_STATE, IT_ERR_FAULT,
 * IT_ERR_INVALID_ADDRESS (no such host), IT_ERR_INVALID_CONN_QUAL (no port),
 * IT_ERR_INVALID_PDATA_LENGTH, IT_ERR_RESOURCES, IT_ERR_NO_PERMISSION.
 */
it_status_t itw_connect(IN it_ep_handle_t ep_handle,
                        IN const char *address,
                        IN const unsigned char *private_data,
                        IN size_t private_data_length);

/**
 * Listens at "HOST:PORT"; the events are those of it_listen_create().
 *
 * address: as for itw_connect(). The host is one of this machine; "0.0.0.0" and "[::]" stand for all its
 * addresses. Port 0, or none, picks a free one: itw_listen_address() returns it. connect_evd: an SEVD of
 * IT_CM_REQ_EVENT_STREAM. listen_handle: out.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_CONN_EVD, IT_ERR_INVALID_EVD_TYPE, IT_ERR_FAULT,
 * IT_ERR_INVALID_ADDRESS (no such host), IT_ERR_ADDRESS (it is not of this machine),
 * IT_ERR_CONN_QUAL_BUSY (the port is in use), IT_ERR_NO_PERMISSION, IT_ERR_RESOURCES.
 */
it_status_t itw_listen(IN it_ia_handle_t ia_handle,
                       IN const char *address,
                       IN it_evd_handle_t connect_evd,
                       OUT it_listen_handle_t *listen_handle);

/**
 * Writes where a listener listens, "192.0.2.1:7174" or "[2001:db8::1]:7174", with the port that it
 * has got.
 *
 * buf, len, result: as for itw_last_error(). 0: listen_handle is no listener.
 */
size_t itw_listen_address(IN it_listen_handle_t listen_handle, OUT char *buf, IN size_t len);

/**
 * Fills in attributes for it_ep_rc_create(): 64 requests and 64 receives under way, 4 segments each;
 * messages as long as the adapter can; the peer may read and write memory that is registered for
 * that; 16 RDMA Reads under way each way; no shared receive queue, no watermarks, no atomics, no
 * privileged operations. Change what is different, then create the endpoint.
 *
 * Errors: IT_ERR_FAULT.
 */
it_status_t itw_ep_attributes_init(OUT it_ep_attributes_t *attr);

/**
 * Fills in attributes for it_ep_ud_create(): queues as by itw_ep_attributes_init(), the key that the
 * library picks.
 *
 * Errors: IT_ERR_FAULT.
 */
it_status_t itw_ud_ep_attributes_init(OUT it_ep_attributes_t *attr);

/**
 * Fills in connection attributes for it_ep_connect(): what the transport thinks best, as NULL there.
 *
 * Errors: IT_ERR_FAULT.
 */
it_status_t itw_conn_attributes_init(OUT it_conn_attributes_t *conn_attr);

#endif
