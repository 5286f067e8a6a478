/*
 * Test of a program with ports in host byte order.
 */
#include "check.h"

#include <arpa/inet.h>
#include <string.h>

int main(void)
{
    struct side active, passive, other;
    it_conn_qual_t qualifier;
    it_listen_handle_t listener, second;
    it_listen_param_t params;
    it_path_t path = check_loopback();
    it_event_t event;
    it_ud_svc_req_handle_t service;
    it_ud_svc_req_param_t service_params;
    uint16_t port, elsewhere;
    int got;
    char text[200];
    side_open(&active);
    side_open(&passive);
    side_open(&other);

    memset(&qualifier, 0, sizeof qualifier);
    qualifier.type = IT_IANA_PORT;
    MUST(it_listen_create(passive.ia, side_spigot(passive.ia), passive.request, IT_LISTEN_NO_FLAG,
                          &qualifier, &listener));
    port = qualifier.conn_qual.port;
    MUST(it_listen_query(listener, IT_LISTEN_PARAM_ALL, &params));
    CHECK(params.connect_qual.conn_qual.port == port);
    /* check.c was compiled for host order, too, and passes ports unchanged. */
    second = side_listen(&other, &elsewhere);

    memset(&qualifier, 0, sizeof qualifier);
    qualifier.type = IT_IANA_LR_PORT;
    qualifier.conn_qual.lr_port.remote = port;
    MUST(it_ep_connect(active.ep, &path, NULL, &qualifier, IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    CHECK(qualifier.conn_qual.lr_port.remote == port);
    MUST(it_evd_wait(passive.request, 60000000, &event, NULL));
    CHECK(event.event_number == IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(event.conn_req.conn_qual.conn_qual.port == port);
    CHECK(itw_event_text(&event, text, sizeof text) > 0 && strstr(text, "127.0.0.1") != NULL);
    CHECK(itw_event_text(NULL, NULL, 0) > 0);
    MUST(it_handoff(&params.connect_qual, side_spigot(passive.ia), event.conn_req.cn_est_id));
    for (got = 0; got == 0;)
        MUST(it_evd_dequeue_n(passive.request, 1, &event, &got));
    CHECK(event.conn_req.conn_qual.conn_qual.port == port);
    params.connect_qual.conn_qual.port = elsewhere;
    MUST(it_handoff(&params.connect_qual, side_spigot(other.ia), event.conn_req.cn_est_id));
    while (it_evd_dequeue(other.request, &event) == IT_ERR_QUEUE_EMPTY)
        ;
    CHECK(event.conn_req.conn_qual.conn_qual.port == elsewhere);
    EXPECT(IT_SUCCESS, it_reject(event.conn_req.cn_est_id, NULL, 0));

    EXPECT(IT_ERR_OP_NOT_SUPPORTED, it_ud_service_request_handle_create(
                                        &qualifier, active.conn, &path, NULL, 0, &service));
    EXPECT(IT_ERR_INVALID_UD_SVC,
           it_ud_service_request_handle_query(NULL, IT_UD_PARAM_ALL, &service_params));
    EXPECT(IT_ERR_FAULT, it_handoff(NULL, 0, 1));
    EXPECT(IT_SUCCESS, it_listen_free(listener));
    EXPECT(IT_SUCCESS, it_listen_free(second));
    side_close(&active);
    side_close(&passive);
    side_close(&other);
    return checked("host_order");
}
