/* Test that every posted DTO completes exactly once: 64 endpoints, two threads at each event dispatcher,
 * disconnects at random moments.
 *
 *   exactly_once SECONDS
 *
 * 32 pairs of endpoints in one process, connected through loopback, send, RDMA-write and RDMA-read as fast as
 * their queues take it; at random moments an end disconnects, the pair waits until nothing is outstanding,
 * resets and connects again. A DTO's cookie identifies a slot, which is in use while the DTO is outstanding: a
 * completion for a free slot, or a slot that stays in use, ends the program with status 1 and a message.
 *
 * One mutex per endpoint protects its slots; nothing else is shared. */
#define _POSIX_C_SOURCE 200809L
#define ITAPI_ENABLE_V21_BINDINGS
#include <it_api.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAIRS = 32,
    ENDPOINTS = 2 * PAIRS,
    EVDS = 4,
    THREADS_PER_EVD = 2,
    RECEIVES = 16,
    REQUESTS = 32,
    SLOTS = RECEIVES + REQUESTS,
    MESSAGE = 512,
    POSTERS = 2,
    HANG_SECONDS = 60
};

enum slot_state { FREE, UNDER_WAY };
enum phase { DOWN, CONNECTING, UP, LEAVING };

struct endpoint {
    pthread_mutex_t lock;
    it_ep_handle_t ep;
    enum phase phase;
    int over;                     /* its last connection event was taken */
    enum slot_state slot[SLOTS];  /* receives first, then requests */
    int credits;                  /* receives that the peer has posted */
    unsigned char *memory;        /* SLOTS messages, and one for the peer to write and read */
    it_lmr_handle_t lmr;
    it_rmr_context_t context;
};

static struct endpoint endpoints[ENDPOINTS];
static it_evd_handle_t dto_evd[EVDS], connection_evd, request_evd;
static it_conn_qual_t service;
static volatile int leaving, stopping;
static unsigned long completions, connections, flushed;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what, it_status_t status)
{
    char text[512];
    itw_last_error(text, sizeof text);
    fprintf(stderr, "exactly_once: %s: %s: %s\n", what, itw_strerror(status), text);
    exit(1);
}

static void check(it_status_t status, const char *what)
{
    if (status != IT_SUCCESS)
        fail(what, status);
}

static struct endpoint *peer_of(struct endpoint *end)
{
    return &endpoints[(end - endpoints) ^ 1];
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static it_dto_cookie_t cookie_of(struct endpoint *end, int slot)
{
    return (it_dto_cookie_t)(end - endpoints) << 32 | (it_dto_cookie_t)slot;
}

static it_lmr_triplet_t segment_of(struct endpoint *end, int slot)
{
    it_lmr_triplet_t segment;
    segment.lmr = end->lmr;
    segment.addr.abs = end->memory + (size_t)slot * MESSAGE;
    segment.length = MESSAGE;
    return segment;
}

/* Posts a receive into a free slot. The endpoint is locked. */
static void post_receive(struct endpoint *end, int slot)
{
    it_lmr_triplet_t segment = segment_of(end, slot);
    it_dto_flags_t flags = IT_COMPLETION_FLAG | IT_NOTIFY_FLAG;
    end->slot[slot] = UNDER_WAY;
    check(it_post_recv(end->ep, &segment, 1, cookie_of(end, slot), flags), "it_post_recv");
}

/* Posts a random request if a slot is free. The endpoint is locked; no other thread posts on it. */
static void post_request(struct endpoint *end, unsigned *seed)
{
    struct endpoint *peer = peer_of(end);
    it_rdma_addr_t there = it_make_rdma_addr_absolute(peer->memory + SLOTS * MESSAGE);
    it_lmr_triplet_t segment;
    it_dto_flags_t flags = IT_COMPLETION_FLAG | IT_NOTIFY_FLAG;
    it_dto_cookie_t cookie;
    it_status_t status;
    int slot = RECEIVES;
    unsigned kind = next_random(seed) % 4;

    while (slot < SLOTS && end->slot[slot] != FREE)
        slot++;
    if (slot == SLOTS)
        return;
    if (kind == 0 && end->credits == 0)
        kind = 1;
    segment = segment_of(end, slot);
    cookie = cookie_of(end, slot);
    end->slot[slot] = UNDER_WAY;
    switch (kind) {
    case 0:
        status = it_post_send(end->ep, &segment, 1, cookie, flags);
        break;
    case 3:
        status = it_post_rdma_read(end->ep, &segment, 1, cookie, flags, there, peer->context);
        break;
    default:
        status = it_post_rdma_write(end->ep, &segment, 1, cookie, flags, there, peer->context);
    }
    if (status == IT_SUCCESS) {
        end->credits -= kind == 0;
        return;
    }
    end->slot[slot] = FREE;
    if (status != IT_ERR_TOO_MANY_POSTS && status != IT_ERR_INVALID_EP_STATE)
        fail("posting a request", status);
}

/* Handles a completion: its slot must be in use. Posts a receive again. */
static void complete(const it_dto_cmpl_event_t *event)
{
    struct endpoint *end = &endpoints[event->cookie >> 32];
    int slot = (int)(event->cookie & 0xffffffffu);

    pthread_mutex_lock(&end->lock);
    if (event->ep != end->ep || slot >= SLOTS || end->slot[slot] != UNDER_WAY) {
        fprintf(stderr, "exactly_once: a completion that nothing was posted for: endpoint %d, "
                "slot %d, status %d\n", (int)(end - endpoints), slot, (int)event->dto_status);
        exit(1);
    }
    end->slot[slot] = FREE;
    if (slot < RECEIVES && event->dto_status == IT_DTO_SUCCESS
        && (end->phase == UP || end->phase == CONNECTING)) {
        struct endpoint *peer = peer_of(end);
        post_receive(end, slot);
        pthread_mutex_unlock(&end->lock);
        pthread_mutex_lock(&peer->lock);
        peer->credits++;
        pthread_mutex_unlock(&peer->lock);
        return;
    }
    pthread_mutex_unlock(&end->lock);
}

static void *dequeue(void *argument)
{
    it_evd_handle_t evd = *(it_evd_handle_t *)argument;
    unsigned long mine = 0, cut_off = 0;
    it_event_t event;
    size_t more;

    while (!stopping) {
        it_status_t status = it_evd_wait(evd, 100000, &event, &more);
        if (status == IT_ERR_TIMEOUT_EXPIRED)
            continue;
        check(status, "it_evd_wait");
        do {
            mine++;
            cut_off += event.dto_cmpl.dto_status == IT_DTO_ERR_FLUSHED;
            complete(&event.dto_cmpl);
            status = it_evd_dequeue(evd, &event);
        } while (status == IT_SUCCESS);
        if (status != IT_ERR_QUEUE_EMPTY)
            fail("it_evd_dequeue", status);
    }
    pthread_mutex_lock(&count_lock);
    completions += mine;
    flushed += cut_off;
    pthread_mutex_unlock(&count_lock);
    return NULL;
}

static void *post(void *argument)
{
    size_t first = (size_t)argument;
    unsigned seed = (unsigned)first * 7919u + 17u;

    for (;;) {
        int last = leaving, up = 0;
        size_t n;
        for (n = first; n < ENDPOINTS; n += POSTERS) {
            struct endpoint *end = &endpoints[n];
            int burst;
            pthread_mutex_lock(&end->lock);
            for (burst = 0; burst < 4 && end->phase == UP && !last; burst++)
                post_request(end, &seed);
            if (end->phase == UP && (last || next_random(&seed) % 400 == 0)) {
                end->phase = LEAVING;
                check(it_ep_disconnect(end->ep, NULL, 0), "it_ep_disconnect");
            }
            up += !end->over;
            pthread_mutex_unlock(&end->lock);
        }
        if (last && up == 0)
            return NULL;
    }
}

/* Fills the receive queue; the client begins to connect. Both ends are unconnected. */
static void begin(struct endpoint *client, struct endpoint *server)
{
    struct endpoint *ends[2];
    it_path_t path;
    unsigned char number;
    int end, slot;

    ends[0] = client;
    ends[1] = server;
    for (end = 0; end < 2; end++) {
        pthread_mutex_lock(&ends[end]->lock);
        ends[end]->credits = RECEIVES;
        ends[end]->over = 0;
        ends[end]->phase = CONNECTING;
        for (slot = 0; slot < RECEIVES; slot++)
            post_receive(ends[end], slot);
        pthread_mutex_unlock(&ends[end]->lock);
    }
    memset(&path, 0, sizeof path);
    path.u.iwarp.ip_vers = IT_IP_VERS_IPV4;
    path.u.iwarp.raddr.ipv4.s_addr = htonl(INADDR_LOOPBACK);
    number = (unsigned char)((server - endpoints) / 2);
    check(it_ep_connect(client->ep, &path, NULL, &service, IT_CONNECT_FLAG_TWO_WAY, &number, 1),
          "it_ep_connect");
}

static int outstanding(struct endpoint *end)
{
    int slot, count = 0;
    pthread_mutex_lock(&end->lock);
    for (slot = 0; slot < SLOTS; slot++)
        count += end->slot[slot] == UNDER_WAY;
    pthread_mutex_unlock(&end->lock);
    return count;
}

/* After the end's last connection event: waits until nothing is outstanding. */
static void drain(struct endpoint *end)
{
    time_t begun = time(NULL);
    int left;

    while ((left = outstanding(end)) > 0) {
        if (time(NULL) - begun > HANG_SECONDS) {
            fprintf(stderr, "exactly_once: %d DTOs of endpoint %d never completed\n", left,
                    (int)(end - endpoints));
            exit(1);
        }
        sched_yield();
    }
}

/* After the last event of both ends: drains and resets them, and connects again. */
static void restart(struct endpoint *client, struct endpoint *server)
{
    drain(client);
    drain(server);
    check(it_ep_reset(client->ep), "it_ep_reset of the client");
    check(it_ep_reset(server->ep), "it_ep_reset of the server");
    if (!leaving)
        begin(client, server);
}

static struct endpoint *endpoint_of(it_ep_handle_t ep)
{
    int n;
    for (n = 0; n < ENDPOINTS; n++)
        if (endpoints[n].ep == ep)
            return &endpoints[n];
    fprintf(stderr, "exactly_once: an event of an endpoint that does not exist\n");
    exit(1);
}

static void handle_connection(const it_connection_event_t *event)
{
    struct endpoint *end = endpoint_of(event->ep), *peer = peer_of(end);
    char text[512];

    switch (event->event_number) {
    case IT_CM_MSG_CONN_ESTABLISHED_EVENT:
        connections++;
        pthread_mutex_lock(&end->lock);
        end->phase = UP;
        pthread_mutex_unlock(&end->lock);
        return;
    case IT_CM_MSG_CONN_DISCONNECT_EVENT:
    case IT_CM_MSG_CONN_BROKEN_EVENT:
        break;
    case IT_CM_MSG_CONN_NONPEER_REJECT_EVENT:
        /* The other end connected and disconnected before this one was connected. */
        if (peer->over || peer->phase == LEAVING)
            break;
        /* fall through */
    default:
        itw_event_text((const it_event_t *)(const void *)event, text, sizeof text);
        fprintf(stderr, "exactly_once: no connection: %s\n", text);
        exit(1);
    }
    pthread_mutex_lock(&end->lock);
    end->phase = DOWN;
    end->over = 1;
    pthread_mutex_unlock(&end->lock);
    /* Only this thread writes it. */
    if (peer->over)
        restart((end - endpoints) % 2 == 0 ? end : peer, (end - endpoints) % 2 == 0 ? peer : end);
}

/* The thread that takes connection events; ends after the last event of all endpoints. */
static void *connect_and_accept(void *argument)
{
    it_event_t event;
    size_t more;
    int n, over = 0;

    (void)argument;
    for (n = 0; n < ENDPOINTS; n += 2)
        begin(&endpoints[n], &endpoints[n + 1]);
    while (over < ENDPOINTS) {
        it_status_t status = it_evd_dequeue(request_evd, &event);
        if (status == IT_SUCCESS) {
            struct endpoint *server = &endpoints[2 * event.conn_req.private_data[0] + 1];
            check(it_ep_accept(server->ep, event.conn_req.cn_est_id, NULL, 0), "it_ep_accept");
        } else if (status != IT_ERR_QUEUE_EMPTY) {
            fail("it_evd_dequeue of requests", status);
        }
        status = it_evd_wait(connection_evd, 1000, &event, &more);
        if (status == IT_SUCCESS)
            handle_connection(&event.conn);
        else if (status != IT_ERR_TIMEOUT_EXPIRED)
            fail("it_evd_wait for connections", status);
        for (n = over = 0; leaving && n < ENDPOINTS; n++)
            over += endpoints[n].over;
    }
    return NULL;
}

static void create(it_pz_handle_t pz, struct endpoint *end, int number)
{
    it_mem_priv_t all = IT_PRIV_LOCAL | IT_PRIV_REMOTE;
    size_t length = (SLOTS + 1) * MESSAGE;
    it_ep_attributes_t attributes;
    it_evd_handle_t evd = dto_evd[number % EVDS];

    pthread_mutex_init(&end->lock, NULL);
    end->memory = calloc(1, length);
    check(it_lmr_create(pz, end->memory, NULL, length, IT_ADDR_MODE_ABSOLUTE, all,
                        IT_LMR_FLAG_NONE, 0, &end->lmr, &end->context), "it_lmr_create");
    memset(&attributes, 0, sizeof attributes);
    attributes.max_dto_payload_size = MESSAGE;
    attributes.max_request_dtos = REQUESTS;
    attributes.max_recv_dtos = RECEIVES;
    attributes.max_send_segments = 1;
    attributes.max_recv_segments = 1;
    attributes.srv.rc.rdma_read_enable = IT_TRUE;
    attributes.srv.rc.rdma_write_enable = IT_TRUE;
    attributes.srv.rc.max_rdma_read_segments = 1;
    attributes.srv.rc.max_rdma_write_segments = 1;
    attributes.srv.rc.rdma_read_ird = 8;
    attributes.srv.rc.rdma_read_ord = 8;
    attributes.srv.rc.hard_hi_watermark = IT_HARD_HI_WATERMARK_DISABLE;
    check(it_ep_rc_create(pz, evd, evd, connection_evd, IT_EP_NO_FLAG, &attributes, &end->ep),
          "it_ep_rc_create");
}

static it_evd_handle_t new_evd(it_ia_handle_t ia, it_event_type_t stream, size_t depth)
{
    it_evd_handle_t evd;
    check(it_evd_create(ia, stream, IT_EVD_OVERFLOW_DEFAULT, depth, 1, NULL, &evd, NULL),
          "it_evd_create");
    return evd;
}

int main(int argc, char **argv)
{
    int seconds = argc > 1 ? atoi(argv[1]) : 0, n;
    pthread_t dequeuers[EVDS * THREADS_PER_EVD], posters[POSTERS], connector;
    struct timespec pause;
    it_listen_handle_t listen;
    it_ia_handle_t ia;
    it_pz_handle_t pz;

    if (seconds <= 0) {
        fprintf(stderr, "usage: exactly_once SECONDS\n");
        return 2;
    }
    check(it_ia_create("vp_softrdma", 2, 1, &ia), "it_ia_create");
    check(it_pz_create(ia, &pz), "it_pz_create");
    for (n = 0; n < EVDS; n++)
        dto_evd[n] = new_evd(ia, IT_DTO_EVENT_STREAM, ENDPOINTS / EVDS * SLOTS);
    connection_evd = new_evd(ia, IT_CM_MSG_EVENT_STREAM, 4 * ENDPOINTS);
    request_evd = new_evd(ia, IT_CM_REQ_EVENT_STREAM, 4 * ENDPOINTS);
    service.type = IT_IANA_PORT;
    check(it_listen_create(ia, 0, request_evd, IT_LISTEN_NO_FLAG, &service, &listen),
          "it_listen_create");
    for (n = 0; n < ENDPOINTS; n++)
        create(pz, &endpoints[n], n);

    for (n = 0; n < EVDS * THREADS_PER_EVD; n++)
        pthread_create(&dequeuers[n], NULL, dequeue, &dto_evd[n / THREADS_PER_EVD]);
    pthread_create(&connector, NULL, connect_and_accept, NULL);
    for (n = 0; n < POSTERS; n++)
        pthread_create(&posters[n], NULL, post, (void *)(size_t)n);

    pause.tv_sec = seconds;
    pause.tv_nsec = 0;
    nanosleep(&pause, NULL);
    leaving = 1;
    for (n = 0; n < POSTERS; n++)
        pthread_join(posters[n], NULL);
    pthread_join(connector, NULL);
    stopping = 1;
    for (n = 0; n < EVDS * THREADS_PER_EVD; n++)
        pthread_join(dequeuers[n], NULL);
    check(it_ia_free(ia), "it_ia_free");
    for (n = 0; n < ENDPOINTS; n++)
        free(endpoints[n].memory);
    printf("exactly_once: %lu completions (%lu flushed) on %lu connections, each once\n",
           completions, flushed, connections / 2);
    return 0;
}
