/*
 * Tests of connecting and listening by text addresses, and of default attributes.
 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

static void attributes(void)
{
    it_ep_attributes_t attr;
    it_conn_attributes_t conn;
    memset(&attr, 0xcd, sizeof attr);
    MUST(itw_ep_attributes_init(&attr));
    CHECK(attr.max_request_dtos == 64 && attr.max_recv_dtos == 64);
    CHECK(attr.srv.rc.rdma_read_enable == IT_TRUE && attr.srv.rc.atomics_enable == IT_FALSE);
    CHECK(attr.priv_ops_enable == IT_FALSE && attr.srv.rc.srq == NULL);
    memset(&attr, 0xcd, sizeof attr);
    MUST(itw_ud_ep_attributes_init(&attr));
    CHECK(attr.max_recv_segments == 4 && attr.srv.ud.ep_info.ud_ep_key == 0);
    memset(&conn, 0xcd, sizeof conn);
    MUST(itw_conn_attributes_init(&conn));
    CHECK(conn.iwarp.unused == NULL);
    EXPECT(IT_ERR_FAULT, itw_ep_attributes_init(NULL));
    EXPECT(IT_ERR_FAULT, itw_ud_ep_attributes_init(NULL));
    EXPECT(IT_ERR_FAULT, itw_conn_attributes_init(NULL));
}

/* The text of the failure says what to write instead. */
static void says(const char *part)
{
    char why[512];
    itw_last_error(why, sizeof why);
    CHECK(strstr(why, part) != NULL);
    if (strstr(why, part) == NULL)
        fprintf(stderr, "    wanted: %s\n    got:    %s\n", part, why);
}

static void refused(const struct side *side)
{
    unsigned char large[IT_MAX_PRIV_DATA + 1000];
    it_listen_handle_t listen, second;
    char text[64];
    memset(large, 7, sizeof large);
    EXPECT(IT_ERR_INVALID_EP, itw_connect(NULL, "127.0.0.1:1", NULL, 0));
    EXPECT(IT_ERR_FAULT, itw_connect(side->ep, NULL, NULL, 0));
    EXPECT(IT_ERR_FAULT, itw_connect(side->ep, "127.0.0.1:1", NULL, 4));
    EXPECT(IT_ERR_INVALID_PDATA_LENGTH,
           itw_connect(side->ep, "127.0.0.1:1", large, sizeof large));
    EXPECT(IT_ERR_INVALID_CONN_QUAL, itw_connect(side->ep, "127.0.0.1", NULL, 0));
    says("`127.0.0.1` names no port");
    EXPECT(IT_ERR_INVALID_CONN_QUAL, itw_connect(side->ep, "127.0.0.1:0", NULL, 0));
    EXPECT(IT_ERR_INVALID_ADDRESS, itw_connect(side->ep, "[::1:7174", NULL, 0));
    says("`[` without `]`; an address is HOST:PORT");
    EXPECT(IT_ERR_INVALID_ADDRESS, itw_connect(side->ep, "127.0.0.1:http", NULL, 0));
    says("`127.0.0.1:http`: the port is not a number");
    EXPECT(IT_ERR_INVALID_ADDRESS, itw_connect(side->ep, "0.0.0.0:7174", NULL, 0));
    EXPECT(IT_ERR_INVALID_ADDRESS, itw_connect(side->ep, "none-such.invalid:7174", NULL, 0));
    says("no address for `none-such.invalid`");
    EXPECT(IT_ERR_INVALID_IA, itw_listen(NULL, "127.0.0.1:0", side->request, &listen));
    EXPECT(IT_ERR_INVALID_EVD_TYPE, itw_listen(side->ia, "127.0.0.1:0", side->sends, &listen));
    EXPECT(IT_ERR_FAULT, itw_listen(side->ia, "127.0.0.1:0", side->request, NULL));
    EXPECT(IT_ERR_FAULT, itw_listen(side->ia, NULL, side->request, &listen));
    EXPECT(IT_ERR_INVALID_ADDRESS, itw_listen(side->ia, ":7174", side->request, &listen));
    says("the host is missing");
    EXPECT(IT_ERR_ADDRESS, itw_listen(side->ia, "192.0.2.1:0", side->request, &listen));
    MUST(itw_listen(side->ia, "127.0.0.1", side->request, &listen));
    CHECK(itw_listen_address(listen, text, sizeof text) == strlen(text));
    EXPECT(IT_ERR_CONN_QUAL_BUSY, itw_listen(side->ia, text, side->request, &second));
    MUST(it_listen_free(listen));
    CHECK(itw_listen_address(listen, text, sizeof text) == 0 && text[0] == 0);
    CHECK(itw_listen_address(NULL, NULL, 0) == 0);
}

/* The carrier of a connection of this process with itself: a local stream unless the policy says no, or the
 * machine, or valgrind, was too slow for the rendezvous, which takes at most 50 ms. */
static int is_due(const char *carrier)
{
    const char *local = getenv("WARPLINE_LOCAL");
    if (local != NULL && strcmp(local, "off") == 0)
        return strcmp(carrier, "TCP (policy): the policy says local = \"off\"") == 0;
    return strcmp(carrier, "local stream") == 0 || strncmp(carrier, "TCP (timed-out)", 15) == 0 ||
           strncmp(carrier, "TCP (peer-left)", 15) == 0;
}

/* One connection to the address that the listener reports. */
static void connects(const char *at)
{
    struct side active, passive;
    it_listen_handle_t listen;
    it_event_t event;
    char text[64], carrier[128], peers_carrier[128];
    side_open(&active);
    side_open(&passive);
    MUST(itw_listen(passive.ia, at, passive.request, &listen));
    CHECK(itw_listen_address(listen, text, sizeof text) > 0);
    CHECK(itw_ep_carrier(active.ep, carrier, sizeof carrier) == 0 && carrier[0] == 0);
    MUST(itw_connect(active.ep, text, (const unsigned char *)"hello", 5));
    event = check_event(passive.request, IT_CM_REQ_CONN_REQUEST_EVENT);
    CHECK(memcmp(event.conn_req.private_data, "hello", 5) == 0);
    MUST(it_ep_accept(passive.ep, event.conn_req.cn_est_id, NULL, 0));
    check_event(active.conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    check_event(passive.conn, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    CHECK(itw_ep_carrier(active.ep, carrier, sizeof carrier) == strlen(carrier));
    CHECK(itw_ep_carrier(passive.ep, peers_carrier, sizeof peers_carrier) == strlen(peers_carrier));
    CHECK(is_due(carrier) && is_due(peers_carrier) && (carrier[0] == 'l') == (peers_carrier[0] == 'l'));
    EXPECT(IT_ERR_INVALID_EP_STATE, itw_connect(active.ep, text, NULL, 0));
    MUST(it_ep_disconnect(active.ep, NULL, 0));
    check_event(active.conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    check_event(passive.conn, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    CHECK(itw_ep_carrier(NULL, carrier, sizeof carrier) == 0 && carrier[0] == 0);
    MUST(it_listen_free(listen));
    side_close(&active);
    side_close(&passive);
}

int main(void)
{
    struct side side;
    attributes();
    side_open(&side);
    refused(&side);
    side_close(&side);
    connects("127.0.0.1:0");
    connects("localhost:0");
    connects("[::1]:0");
    return checked("address");
}
