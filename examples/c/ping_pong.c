/*
 * Round trips of Sends: how long does a message take?
 *
 * "ping_pong [--ia NAME] serve HOST:PORT" echoes, for one client after the other; "ping_pong [--ia
 * NAME] connect HOST:PORT [--size OCTETS] [--count N]" measures. One thread owns all. When the peer
 * dies its receive comes back flushed, and the connection's last event says why.
 */
#include "example.h"

#include <time.h>

/* Octets of a message at most. */
#define LONGEST (1u << 20)

/* One connection with two buffers, one of which is posted as a receive. */
struct peer {
    it_pz_handle_t pz;
    it_evd_handle_t work, events;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    unsigned char *memory;
    uint32_t size;
};

static bool receive(struct peer *peer, uint64_t buffer)
{
    it_lmr_triplet_t all = { peer->lmr, { peer->memory + buffer * peer->size }, peer->size };
    TRY(it_post_recv(peer->ep, &all, 1, buffer, SIGNALLED));
    return true;
}

static bool send_back(struct peer *peer, uint64_t buffer, uint32_t length)
{
    it_lmr_triplet_t part = { peer->lmr, { peer->memory + buffer * peer->size }, length };
    TRY(it_post_send(peer->ep, &part, 1, buffer, SIGNALLED));
    return true;
}

/* Makes the objects of a connection and posts the first receive. */
static bool prepare(struct peer *peer, it_ia_handle_t ia, uint32_t size)
{
    it_ep_attributes_t attr;
    memset(&attr, 0, sizeof attr);
    attr.max_dto_payload_size = size;
    attr.max_request_dtos = attr.max_recv_dtos = 1;
    attr.max_send_segments = attr.max_recv_segments = 1;
    memset(peer, 0, sizeof *peer);
    peer->size = size;
    peer->memory = calloc(2, size);
    if (peer->memory == NULL)
        return fail("out of memory");
    TRY(it_pz_create(ia, &peer->pz));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &peer->work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &peer->events, NULL));
    TRY(it_ep_rc_create(peer->pz, peer->work, peer->work, peer->events, 0, &attr, &peer->ep));
    TRY(it_lmr_create(peer->pz, peer->memory, NULL, 2 * (it_length_t)size, IT_ADDR_MODE_ABSOLUTE,
                      IT_PRIV_LOCAL, IT_LMR_FLAG_NONE, 0, &peer->lmr, NULL));
    return receive(peer, 0);
}

static void release(struct peer *peer)
{
    it_ep_free(peer->ep);
    it_lmr_free(peer->lmr);
    it_evd_free(peer->work);
    it_evd_free(peer->events);
    it_pz_free(peer->pz);
    free(peer->memory);
}

/* Connection handling: listens; requests come out of an event dispatcher. */
static bool listen_at(it_ia_handle_t ia, struct sockaddr_in at, it_evd_handle_t *requests)
{
    it_listen_handle_t listen;
    it_conn_qual_t qual = { IT_IANA_PORT, { at.sin_port } };
    it_listen_flags_t flags = at.sin_port ? IT_LISTEN_CONN_QUAL_INPUT : IT_LISTEN_NO_FLAG;
    TRY(it_evd_create(ia, IT_CM_REQ_EVENT_STREAM, 0, 16, 1, IT_NULL_HANDLE, requests, NULL));
    TRY(it_listen_create(ia, spigot_of(ia, at.sin_addr), *requests, flags, &qual, &listen));
    printf("listening at %s:%u\n", inet_ntoa(at.sin_addr), ntohs(qual.conn_qual.port));
    return true;
}

/* Connection handling: waits for an event of the connection. */
static bool expect(struct peer *peer, it_event_type_t wanted)
{
    it_event_t event;
    TRY(it_evd_wait(peer->events, PATIENCE, &event, NULL));
    return event.event_number == wanted || complain(&event);
}

/* Connection handling: accepts or rejects; the private data is the size of the messages. */
static bool accept_from(struct peer *peer, it_ia_handle_t ia,
                        const it_conn_request_event_t *request)
{
    uint32_t size = get32(request->private_data);
    if (size == 0 || size > LONGEST) {
        TRY(it_reject(request->cn_est_id, (const unsigned char *)"which size?", 11));
        return fail("rejected a client that asks for no proper size");
    }
    if (!prepare(peer, ia, size))
        return false;
    TRY(it_ep_accept(peer->ep, request->cn_est_id, NULL, 0));
    return expect(peer, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
}

/* Connection handling: connects; the private data is the size of the messages. */
static bool connect_to(struct peer *peer, struct sockaddr_in at)
{
    unsigned char size[4];
    it_conn_qual_t qual = { IT_IANA_PORT, { at.sin_port } };
    it_path_t path = { .timeout = PATIENCE };
    path.remote.iwarp.ip_vers = IT_IP_VERS_IPV4;
    path.remote.iwarp.raddr.ipv4 = at.sin_addr;
    put32(size, peer->size);
    TRY(it_ep_connect(peer->ep, &path, NULL, &qual, IT_CONNECT_FLAG_TWO_WAY, size, sizeof size));
    return expect(peer, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
}

/* A request did not succeed: says so, and why the connection ended. */
static bool broken(struct peer *peer, const it_event_t *event)
{
    complain(event);
    expect(peer, IT_CM_MSG_CONN_ESTABLISHED_EVENT);
    return false;
}

/* Sends everything back until the client goes. */
static bool echo(struct peer *peer)
{
    /* The buffer that nobody uses and the one with a message; -1: none. */
    int64_t spare = 1, message = -1;
    uint32_t length = 0;
    for (;;) {
        it_event_t event;
        TRY(it_evd_wait(peer->work, IT_TIMEOUT_INFINITE, &event, NULL));
        if (event.dto_cmpl.dto_status == IT_DTO_ERR_FLUSHED)
            return expect(peer, IT_CM_MSG_CONN_DISCONNECT_EVENT);
        if (event.dto_cmpl.dto_status != IT_DTO_SUCCESS)
            return broken(peer, &event);
        if (event.event_number == IT_DTO_RC_RECV_CMPL_EVENT) {
            message = (int64_t)event.dto_cmpl.cookie;
            length = event.dto_cmpl.transferred_length;
        } else {
            spare = (int64_t)event.dto_cmpl.cookie;
        }
        if (spare < 0 || message < 0)
            continue;
        /* The next receive stands before the answer goes out that makes the client send again. */
        if (!receive(peer, (uint64_t)spare) || !send_back(peer, (uint64_t)message, length))
            return false;
        spare = message = -1;
    }
}

static bool serve(it_ia_handle_t ia, struct sockaddr_in at)
{
    it_evd_handle_t requests;
    if (!listen_at(ia, at, &requests))
        return false;
    fflush(stdout);
    for (;;) {
        struct peer peer = { 0 };
        it_event_t request;
        TRY(it_evd_wait(requests, IT_TIMEOUT_INFINITE, &request, NULL));
        if (accept_from(&peer, ia, &request.conn_req) && echo(&peer))
            printf("served a client\n");
        release(&peer);
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Waits until a Send is done and its echo there; answers the echo's buffer. */
static bool both(struct peer *peer, uint64_t *echoed)
{
    for (int left = 2; left > 0; left--) {
        it_event_t event;
        TRY(it_evd_wait(peer->work, PATIENCE, &event, NULL));
        if (event.dto_cmpl.dto_status != IT_DTO_SUCCESS)
            return broken(peer, &event);
        if (event.event_number != IT_DTO_RC_RECV_CMPL_EVENT)
            continue;
        *echoed = event.dto_cmpl.cookie;
        if (event.dto_cmpl.transferred_length != peer->size)
            return fail("the echo is not as long as the message");
    }
    return true;
}

static bool measure(struct peer *peer, unsigned long count)
{
    uint64_t ball = 1;
    double begin = now();
    for (unsigned long lap = 0; lap < count; lap++) {
        uint64_t echoed = 0;
        if (!send_back(peer, ball, peer->size) || !both(peer, &echoed) || !receive(peer, ball))
            return false;
        ball = echoed;
    }
    printf("%lu round trips of %u octets: mean %.1f us\n", count, peer->size,
           (now() - begin) * 1e6 / (double)count);
    TRY(it_ep_disconnect(peer->ep, NULL, 0));
    return expect(peer, IT_CM_MSG_CONN_DISCONNECT_EVENT);
}

int main(int argc, char **argv)
{
    const char *name = option(&argc, argv, "--ia", "vp_softrdma");
    unsigned long size = strtoul(option(&argc, argv, "--size", "64"), NULL, 10);
    unsigned long count = strtoul(option(&argc, argv, "--count", "10000"), NULL, 10);
    struct sockaddr_in at;
    struct peer peer;
    it_ia_handle_t ia;
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    bool measures = argc == 3 && strcmp(argv[1], "connect") == 0;
    if ((!serves && !measures) || size == 0 || size > LONGEST || count == 0) {
        fputs("usage: ping_pong [--ia NAME] serve HOST:PORT\n"
              "       ping_pong [--ia NAME] connect HOST:PORT [--size OCTETS] [--count N]\n",
              stderr);
        return 2;
    }
    if (!parse_address(argv[2], &at) || !succeeded(it_ia_create(name, 2, 1, &ia), "it_ia_create"))
        return 1;
    bool well = serves ? serve(ia, at)
                       : prepare(&peer, ia, (uint32_t)size) && connect_to(&peer, at) &&
                             measure(&peer, count);
    it_ia_free(ia);
    return well ? 0 : 1;
}
