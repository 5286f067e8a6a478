/*
 * Ports and service ids in host byte order, for programs that asked for it: the calls that pass
 * connection qualifiers are wrapped and converted. The library itself knows network order only.
 *
 * Part of it_api.h, which includes it.
 */
#ifndef ITAPI_HOST_ORDER_H
#define ITAPI_HOST_ORDER_H

/* There and back. */
static inline void itapi_turn_qualifier(it_conn_qual_t *qualifier)
{
#ifdef ITAPI_IANA_PORT_HOST_BYTE_ORDER
    if (qualifier->type == IT_IANA_PORT) {
        qualifier->conn_qual.port = htons(qualifier->conn_qual.port);
    } else if (qualifier->type == IT_IANA_LR_PORT) {
        qualifier->conn_qual.lr_port.local = htons(qualifier->conn_qual.lr_port.local);
        qualifier->conn_qual.lr_port.remote = htons(qualifier->conn_qual.lr_port.remote);
    }
#endif
#ifdef ITAPI_SERVICE_ID_HOST_BYTE_ORDER
    if (qualifier->type == IT_IB_SERVICEID)
        qualifier->conn_qual.serviceid = it_hton64(qualifier->conn_qual.serviceid);
#endif
}

/* A converted copy in `room`, or NULL of NULL. */
static inline const it_conn_qual_t *itapi_turned(const it_conn_qual_t *qualifier,
                                                 it_conn_qual_t *room)
{
    if (qualifier == NULL)
        return NULL;
    *room = *qualifier;
    itapi_turn_qualifier(room);
    return room;
}

static inline void itapi_turn_event(it_event_t *event)
{
    if (event->event_number == IT_CM_REQ_CONN_REQUEST_EVENT)
        itapi_turn_qualifier(&event->conn_req.conn_qual);
    else if (event->event_number == IT_CM_REQ_UD_SERVICE_REQUEST_EVENT)
        itapi_turn_qualifier(&event->ud_svc_request.conn_qual);
}

static inline it_status_t itapi_ep_connect(it_ep_handle_t ep_handle, const it_path_t *path,
                                           const it_conn_attributes_t *conn_attr,
                                           const it_conn_qual_t *connect_qual,
                                           it_cn_est_flags_t cn_est_flags,
                                           const unsigned char *private_data,
                                           size_t private_data_length)
{
    it_conn_qual_t room;
    return it_ep_connect(ep_handle, path, conn_attr, itapi_turned(connect_qual, &room),
                         cn_est_flags, private_data, private_data_length);
}
#undef it_ep_connect
#define it_ep_connect itapi_ep_connect

static inline it_status_t itapi_listen_create(it_ia_handle_t ia_handle, size_t spigot_id,
                                              it_evd_handle_t connect_evd, it_listen_flags_t flags,
                                              it_conn_qual_t *conn_qual,
                                              it_listen_handle_t *listen_handle)
{
    it_status_t status;
    if (conn_qual != NULL)
        itapi_turn_qualifier(conn_qual);
    status = it_listen_create(ia_handle, spigot_id, connect_evd, flags, conn_qual, listen_handle);
    if (conn_qual != NULL)
        itapi_turn_qualifier(conn_qual);
    return status;
}
#define it_listen_create itapi_listen_create

static inline it_status_t itapi_listen_query(it_listen_handle_t listen_handle,
                                             it_listen_param_mask_t mask,
                                             it_listen_param_t *params)
{
    it_status_t status = it_listen_query(listen_handle, mask, params);
    if (status == IT_SUCCESS)
        itapi_turn_qualifier(&params->connect_qual);
    return status;
}
#define it_listen_query itapi_listen_query

static inline it_status_t itapi_handoff(const it_conn_qual_t *conn_qual, size_t spigot_id,
                                        it_cn_est_identifier_t cn_est_id)
{
    it_conn_qual_t room;
    return it_handoff(itapi_turned(conn_qual, &room), spigot_id, cn_est_id);
}
#define it_handoff itapi_handoff

static inline it_status_t itapi_ud_service_request_handle_create(
    const it_conn_qual_t *conn_qual, it_evd_handle_t reply_evd, const it_path_t *destination_path,
    const unsigned char *private_data, size_t private_data_length,
    it_ud_svc_req_handle_t *ud_svc_handle)
{
    it_conn_qual_t room;
    return it_ud_service_request_handle_create(itapi_turned(conn_qual, &room), reply_evd,
                                               destination_path, private_data,
                                               private_data_length, ud_svc_handle);
}
#define it_ud_service_request_handle_create itapi_ud_service_request_handle_create

static inline it_status_t itapi_ud_service_request_handle_query(it_ud_svc_req_handle_t handle,
                                                                it_ud_svc_req_param_mask_t mask,
                                                                it_ud_svc_req_param_t *info)
{
    it_status_t status = it_ud_service_request_handle_query(handle, mask, info);
    if (status == IT_SUCCESS)
        itapi_turn_qualifier(&info->conn_qual);
    return status;
}
#undef it_ud_service_request_handle_query
#define it_ud_service_request_handle_query itapi_ud_service_request_handle_query

static inline it_status_t itapi_evd_dequeue(it_evd_handle_t evd_handle, it_event_t *event)
{
    it_status_t status = it_evd_dequeue(evd_handle, event);
    if (status == IT_SUCCESS)
        itapi_turn_event(event);
    return status;
}
#undef it_evd_dequeue
#define it_evd_dequeue itapi_evd_dequeue

static inline it_status_t itapi_evd_dequeue_n(it_evd_handle_t evd_handle, int deque_count,
                                              it_event_t *events, int *dequed_count)
{
    it_status_t status = it_evd_dequeue_n(evd_handle, deque_count, events, dequed_count);
    int n;
    for (n = 0; status == IT_SUCCESS && n < *dequed_count; n++)
        itapi_turn_event(&events[n]);
    return status;
}
#undef it_evd_dequeue_n
#define it_evd_dequeue_n itapi_evd_dequeue_n

static inline it_status_t itapi_evd_wait(it_evd_handle_t evd_handle, uint64_t timeout,
                                         it_event_t *event, size_t *nmore)
{
    it_status_t status = it_evd_wait(evd_handle, timeout, event, nmore);
    if (status == IT_SUCCESS)
        itapi_turn_event(event);
    return status;
}
#undef it_evd_wait
#define it_evd_wait itapi_evd_wait

static inline size_t itapi_event_text(const it_event_t *event, char *buf, size_t len)
{
    it_event_t room;
    if (event == NULL)
        return itw_event_text(event, buf, len);
    room = *event;
    itapi_turn_event(&room);
    return itw_event_text(&room, buf, len);
}
#undef itw_event_text
#define itw_event_text itapi_event_text

#ifdef ITAPI_ZRL_EXTENSIONS
static inline it_status_t itapi_ep_connect_with_rmr(
    it_ep_handle_t ep_handle, const it_path_t *path, const it_conn_attributes_t *conn_attr,
    const it_conn_qual_t *connect_qual, it_cn_est_flags_t cn_est_flags,
    const unsigned char *private_data, size_t private_data_length, it_lmr_triplet_t *lmr,
    it_rmr_context_t *rmr_context)
{
    it_conn_qual_t room;
    return itx_ep_connect_with_rmr(ep_handle, path, conn_attr, itapi_turned(connect_qual, &room),
                                   cn_est_flags, private_data, private_data_length, lmr,
                                   rmr_context);
}
#define itx_ep_connect_with_rmr itapi_ep_connect_with_rmr

static inline it_status_t itapi_aevd_wait(it_evd_handle_t evd_handle, uint64_t timeout,
                                          size_t max_event_count, it_event_t *events,
                                          size_t *events_count)
{
    it_status_t status = itx_aevd_wait(evd_handle, timeout, max_event_count, events, events_count);
    size_t n;
    for (n = 0; status == IT_SUCCESS && n < *events_count; n++)
        itapi_turn_event(&events[n]);
    return status;
}
#define itx_aevd_wait itapi_aevd_wait
#endif

#endif
