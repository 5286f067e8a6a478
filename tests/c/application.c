/*
 * Test with an application in the style of those for the Zurich stack: uninitialised members, messages longer
 * than it requested, private data with a disconnect, a local address in host order, one event dispatcher for
 * both queues, connection events on a dispatcher of requests, zero flags, a repeated connect, polling without a
 * wait.
 */
#include <it_api.h>

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, OUTSTANDING = 64 };

struct node {
    it_ia_handle_t ia;
    it_pz_handle_t pz;
    it_evd_handle_t request_evd, message_evd, transfer_evd, affiliated_evd, unaffiliated_evd;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    it_rmr_context_t context;
    char *buffer;
};

static void give_up(const char *what, it_status_t status)
{
    char why[300];
    itw_last_error(why, sizeof why);
    fprintf(stderr, "application: %s: %s: %s\n", what, itw_strerror(status), why);
    exit(1);
}

#define TRY(call)                                  \
    do {                                           \
        it_status_t tried = (call);                \
        if (tried != IT_SUCCESS)                   \
            give_up(#call, tried);                 \
    } while (0)

static it_evd_handle_t dispatcher(struct node *node, it_event_type_t stream, size_t size)
{
    it_evd_handle_t evd;
    TRY(it_evd_create(node->ia, stream, (it_evd_flags_t)0, size, 1, (it_evd_handle_t)IT_NULL_HANDLE,
                      &evd, NULL));
    return evd;
}

/* The client has one dispatcher for requests and connection events. */
static void start(struct node *node, int one_dispatcher)
{
    it_ep_attributes_t attributes;
    TRY(it_ia_create("vp_softrdma", 2, 0, &node->ia));
    TRY(it_pz_create(node->ia, &node->pz));
    node->request_evd = dispatcher(node, IT_CM_REQ_EVENT_STREAM, 5);
    node->message_evd =
        one_dispatcher ? node->request_evd : dispatcher(node, IT_CM_MSG_EVENT_STREAM, 5);
    node->transfer_evd = dispatcher(node, IT_DTO_EVENT_STREAM, 4000);
    node->affiliated_evd = dispatcher(node, IT_ASYNC_AFF_EVENT_STREAM, 5);
    node->unaffiliated_evd = dispatcher(node, IT_ASYNC_UNAFF_EVENT_STREAM, 5);

    memset(&attributes, 0xa5, sizeof attributes); /* members that are not set have garbage */
    attributes.max_dto_payload_size = 8; /* longer messages follow */
    attributes.max_request_dtos = OUTSTANDING;
    attributes.max_recv_dtos = OUTSTANDING;
    attributes.max_send_segments = 4;
    attributes.max_recv_segments = 4;
    attributes.srv.rc.rdma_read_enable = IT_TRUE;
    attributes.srv.rc.rdma_write_enable = IT_TRUE;
    attributes.srv.rc.max_rdma_read_segments = 16;
    attributes.srv.rc.max_rdma_write_segments = 4;
    attributes.srv.rc.rdma_read_ird = 8;
    attributes.srv.rc.rdma_read_ord = 8;
    attributes.srv.rc.srq = NULL;
    attributes.srv.rc.soft_hi_watermark = 0;
    attributes.srv.rc.hard_hi_watermark = 0;
    TRY(it_ep_rc_create(node->pz, node->transfer_evd, node->transfer_evd, node->message_evd,
                        (it_ep_rc_creation_flags_t)0, &attributes, &node->ep));

    node->buffer = (char *)calloc(1, SIZE);
    TRY(it_lmr_create(node->pz, node->buffer, SIZE, IT_ADDR_MODE_ABSOLUTE,
                      (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE), IT_LMR_FLAG_NONE, 0,
                      &node->lmr, &node->context));
}

/* Polls as those applications do: all dispatchers in turn, without waiting. */
static it_event_t poll_for(struct node *node, it_event_type_t wanted)
{
    it_evd_handle_t all[5];
    it_event_t event;
    unsigned i;
    all[0] = node->unaffiliated_evd;
    all[1] = node->affiliated_evd;
    all[2] = node->request_evd;
    all[3] = node->message_evd;
    all[4] = node->transfer_evd;
    for (;;) {
        for (i = 0; i < 5; i++) {
            it_status_t status = it_evd_dequeue(all[i], &event);
            if (status == IT_ERR_QUEUE_EMPTY)
                continue;
            if (status != IT_SUCCESS)
                give_up("it_evd_dequeue", status);
            if (event.event_number == wanted)
                return event;
            if (event.event_number != IT_ASYNC_UNAFF_SPIGOT_ONLINE) {
                fprintf(stderr, "application: event %#x instead of %#x\n",
                        (unsigned)event.event_number, (unsigned)wanted);
                exit(1);
            }
        }
        sched_yield();
    }
}

static it_dto_cookie_t numbered(uint64_t number)
{
    it_dto_cookie_t cookie, copy;
    cookie.mFirst = number;
    cookie.mSecond = number + 1;
    cookie.mExtend = number + 2;
    CookieAssign(&copy, &cookie);
    return copy;
}

static it_lmr_triplet_t part(const struct node *node, size_t offset, size_t length)
{
    it_lmr_triplet_t triplet;
    triplet.lmr = node->lmr;
    triplet.addr.abs = node->buffer + offset;
    triplet.length = length;
    return triplet;
}

static void connect_nodes(struct node *client, struct node *server)
{
    it_listen_handle_t listener;
    it_conn_qual_t qualifier, remote;
    it_path_t path;
    it_event_t event;
    it_status_t status;
    int tries;
    memset(&qualifier, 0xa5, sizeof qualifier);
    qualifier.type = IT_IANA_PORT;
    qualifier.conn_qual.lr_port.local = 0; /* in a union with the port */
    TRY(it_listen_create(server->ia, 0, server->request_evd, (it_listen_flags_t)0, &qualifier,
                         &listener));

    memset(&path, 0xa5, sizeof path); /* spigot and time-out are never set */
    path.u.iwarp.ip_vers = IT_IP_VERS_IPV4;
    path.u.iwarp.laddr.ipv4.s_addr = INADDR_LOOPBACK; /* without htonl() */
    path.u.iwarp.raddr.ipv4.s_addr = htonl(INADDR_LOOPBACK);
    memset(&remote, 0xa5, sizeof remote);
    remote.type = IT_IANA_LR_PORT;
    remote.conn_qual.lr_port.local = 0;
    remote.conn_qual.lr_port.remote = qualifier.conn_qual.port;

    /* A refused attempt, then another on the same endpoint. */
    status = it_ep_connect(client->ep, &path, NULL, &remote, IT_CONNECT_FLAG_TWO_WAY,
                           (const unsigned char *)client->buffer, 100000);
    if (status == IT_SUCCESS)
        give_up("connect with too much private data", status);
    for (tries = 0; tries < 10; tries++) {
        status = it_ep_connect(client->ep, &path, NULL, &remote, IT_CONNECT_FLAG_TWO_WAY,
                               (const unsigned char *)"client", 6);
        if (status == IT_SUCCESS)
            break;
    }
    if (status != IT_SUCCESS)
        give_up("it_ep_connect", status);
    event = poll_for(server, IT_CM_REQ_CONN_REQUEST_EVENT);
    TRY(it_ep_accept(server->ep, event.conn_req.cn_est_id, NULL, 0));
    poll_for(server, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    poll_for(client, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    TRY(it_listen_free(listener));
}

static void expect(struct node *node, it_event_type_t type, uint64_t number)
{
    it_event_t event = poll_for(node, type);
    it_dto_cookie_t cookie = event.dto_cmpl.cookie;
    if (event.dto_cmpl.dto_status != IT_DTO_SUCCESS || cookie.mFirst != number ||
        cookie.mSecond != number + 1 || cookie.mExtend != number + 2) {
        fprintf(stderr, "application: completion %lu came as status %d, cookie %lu\n",
                (unsigned long)number, (int)event.dto_cmpl.dto_status,
                (unsigned long)cookie.mFirst);
        exit(1);
    }
}

int main(void)
{
    struct node client, server;
    it_lmr_triplet_t segment;
    it_dto_flags_t flags = (it_dto_flags_t)(IT_COMPLETION_FLAG | IT_NOTIFY_FLAG);
    uint64_t round;
    start(&client, 1);
    start(&server, 0);
    connect_nodes(&client, &server);
    for (round = 1; round <= 100; round++) {
        char *there = server.buffer + 1024;
        segment = part(&server, 0, 64);
        TRY(it_post_recv(server.ep, &segment, 1, numbered(round), flags));
        sprintf(client.buffer, "round %u", (unsigned)round);
        segment = part(&client, 0, 32);
        /* A pointer is passed for an it_rdma_addr_t. */
        TRY(it_post_rdma_write(client.ep, &segment, 1, numbered(round), (it_dto_flags_t)0,
                               (it_rdma_addr_t)(uintptr_t)there, server.context));
        TRY(it_post_send(client.ep, &segment, 1, numbered(round), flags));
        expect(&client, IT_DTO_SEND_CMPL_EVENT, round);
        expect(&server, IT_DTO_RC_RECV_CMPL_EVENT, round);
        if (strcmp(there, client.buffer) != 0 || strcmp(server.buffer, client.buffer) != 0) {
            fprintf(stderr, "application: round %u arrived wrong\n", (unsigned)round);
            return 1;
        }
    }
    /* Disconnect with private data, which is never delivered. */
    TRY(it_ep_disconnect(client.ep, (const unsigned char *)"0", 2));
    poll_for(&client, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    poll_for(&server, IT_CM_MSG_CONN_DISCONNECT_EVENT);
    TRY(it_ia_free(client.ia));
    TRY(it_ia_free(server.ia));
    free(client.buffer);
    free(server.buffer);
    printf("application: done\n");
    return 0;
}
