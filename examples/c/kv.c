/*
 * A key-value store: clients read values by RDMA Read of the server's hash table, which takes no
 * processor time there; they write values by Sends.
 *
 * "kv [--ia NAME] serve HOST:PORT"; "kv [--ia NAME] connect HOST:PORT put KEY VALUE", "... get
 * KEY", "... stress KEY COUNT".
 *
 * A read during a write returns a mix of old and new ("torn"). Every entry therefore has a version
 * and a checksum over all of it: the reader checks it, and reads again. Each connection belongs to
 * one thread, which ends when the client disconnects or dies; a lock covers changes of the table,
 * but not reads by RDMA.
 */
#include "example.h"

#include <pthread.h>

/* Octets of an entry: version and checksum (8 each), lengths of key and value (4 each), both. */
#define ENTRY 1024u
#define HEAD 24u
#define ROOM (ENTRY - HEAD)
/* Entries of the table, and how many are searched for a key, from its hash on. */
#define ENTRIES 4096u
#define PROBES 8u
/* Octets of a reply: the new version, 0 if the table has no room. */
#define ANSWER 8u

/* One connection; memory is a sink for entries, a message, and a reply. */
struct peer {
    it_evd_handle_t work, events;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    unsigned char memory[2 * ENTRY + ANSWER];
    it_cn_est_identifier_t request;
    /* The last event of the connection. */
    it_event_t event;
    /* Of a client: the table's address, what has completed, and the number of torn reads. */
    unsigned char table[RANGE_OCTETS];
    bool read;
    uint64_t version;
    unsigned long torn;
};

static it_ia_handle_t ia;
static it_pz_handle_t pz;
static it_rmr_context_t table_key;
static unsigned char *table;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

#define SINK(peer) ((peer)->memory)
#define MESSAGE(peer) ((peer)->memory + ENTRY)
#define REPLY(peer) ((peer)->memory + 2 * ENTRY)

/* FNV-1a, 64 bits. */
static uint64_t fnv(uint64_t sum, const unsigned char *octets, size_t length)
{
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ octets[at]) * 0x100000001b3u;
    return sum;
}

#define EMPTY_SUM 0xcbf29ce484222325u

static uint64_t sum_of(const unsigned char *entry)
{
    return fnv(fnv(EMPTY_SUM, entry, 8), entry + 16, ENTRY - 16);
}

/* True if all of it is of one version. */
static bool is_whole(const unsigned char *entry)
{
    return get64(entry) == 0 || get64(entry + 8) == sum_of(entry);
}

static bool is_well_formed(const unsigned char *entry)
{
    return get32(entry + 16) <= ROOM && get32(entry + 20) <= ROOM - get32(entry + 16);
}

static bool has_key(const unsigned char *entry, const void *key, size_t length)
{
    return get32(entry + 16) == length && memcmp(entry + HEAD, key, length) == 0;
}

/* The entries that may have a key. */
static size_t place(const void *key, size_t length, size_t probe)
{
    return (fnv(EMPTY_SUM, key, length) + probe) % ENTRIES * ENTRY;
}

static bool receive(struct peer *peer, void *at, size_t length)
{
    it_lmr_triplet_t room = { peer->lmr, { at }, length };
    TRY(it_post_recv(peer->ep, &room, 1, 0, SIGNALLED));
    return true;
}

static bool send_from(struct peer *peer, void *at, size_t length)
{
    it_lmr_triplet_t part = { peer->lmr, { at }, length };
    TRY(it_post_send(peer->ep, &part, 1, 0, SIGNALLED));
    return true;
}

/* Makes the objects of a connection. The sink of an RDMA Read is written by the peer. */
static bool prepare(struct peer *peer)
{
    it_ep_attributes_t attr;
    it_mem_priv_t privs = (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_WRITE);
    memset(&attr, 0, sizeof attr);
    attr.max_dto_payload_size = ENTRY;
    attr.max_request_dtos = 4;
    attr.max_recv_dtos = attr.max_send_segments = attr.max_recv_segments = 1;
    attr.srv.rc.rdma_read_enable = attr.srv.rc.rdma_write_enable = IT_TRUE;
    attr.srv.rc.max_rdma_read_segments = attr.srv.rc.max_rdma_write_segments = 1;
    attr.srv.rc.rdma_read_ird = attr.srv.rc.rdma_read_ord = 1;
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 8, 1, IT_NULL_HANDLE, &peer->work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &peer->events, NULL));
    TRY(it_ep_rc_create(pz, peer->work, peer->work, peer->events, IT_EP_NO_FLAG, &attr, &peer->ep));
    TRY(it_lmr_create(pz, peer->memory, NULL, sizeof peer->memory, IT_ADDR_MODE_ABSOLUTE, privs,
                      IT_LMR_FLAG_NONE, 0, &peer->lmr, NULL));
    return true;
}

static void release(struct peer *peer)
{
    it_ep_free(peer->ep);
    it_lmr_free(peer->lmr);
    it_evd_free(peer->work);
    it_evd_free(peer->events);
    free(peer);
}

/* Connection handling: accepts; the private data is the key of the table. */
static bool accept_from(struct peer *peer)
{
    unsigned char range[RANGE_OCTETS];
    put_range(range, table_key, table, (size_t)ENTRIES * ENTRY);
    TRY(it_ep_accept(peer->ep, peer->request, range, sizeof range));
    return expect(peer->events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &peer->event);
}

/* Connection handling: connects. */
static bool connect_to(struct peer *peer, const char *server)
{
    TRY(itw_connect(peer->ep, server, NULL, 0));
    if (!expect(peer->events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &peer->event))
        return false;
    memcpy(peer->table, peer->event.conn.private_data, RANGE_OCTETS);
    return get64(peer->table + 12) == (uint64_t)ENTRIES * ENTRY || fail("the server is no kv");
}

/* Connection handling: ends the connection in order. */
static bool disconnect(struct peer *peer)
{
    TRY(it_ep_disconnect(peer->ep, NULL, 0));
    return expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &peer->event);
}

/* Waits for the next completion. False, without a message, if the peer is gone. */
static bool next(struct peer *peer, uint64_t patience, it_event_t *event)
{
    TRY(it_evd_wait(peer->work, patience, event, NULL));
    if (event->dto_cmpl.dto_status == IT_DTO_SUCCESS)
        return true;
    if (event->dto_cmpl.dto_status != IT_DTO_ERR_FLUSHED)
        complain(event);
    expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &peer->event);
    return false;
}

/* Puts an entry into the table; returns its version, 0 if there is no room or it is malformed. */
static uint64_t put(unsigned char *entry)
{
    uint32_t length = get32(entry + 16);
    if (!is_well_formed(entry))
        return 0;
    for (size_t probe = 0; probe < PROBES; probe++) {
        unsigned char *old = table + place(entry + HEAD, length, probe);
        if (get64(old) != 0 && !has_key(old, entry + HEAD, length))
            continue;
        put64(entry, get64(old) + 1);
        put64(entry + 8, sum_of(entry));
        /* A read during this copy is torn, which its checksum shows. */
        memcpy(old, entry, ENTRY);
        return get64(entry);
    }
    return 0;
}

/* A thread of the server: executes its client's messages until it disconnects. */
static void *keep(void *argument)
{
    struct peer *peer = argument;
    it_event_t event;
    bool well = prepare(peer) && receive(peer, MESSAGE(peer), ENTRY) && accept_from(peer);
    while (well && next(peer, IT_TIMEOUT_INFINITE, &event)) {
        if (event.event_number != IT_DTO_RC_RECV_CMPL_EVENT)
            continue;
        uint32_t length = event.dto_cmpl.transferred_length;
        memcpy(SINK(peer), MESSAGE(peer), length);
        memset(SINK(peer) + length, 0, ENTRY - length);
        pthread_mutex_lock(&table_lock);
        put64(REPLY(peer), put(SINK(peer)));
        pthread_mutex_unlock(&table_lock);
        well = receive(peer, MESSAGE(peer), ENTRY) && send_from(peer, REPLY(peer), ANSWER);
    }
    release(peer);
    return NULL;
}

static bool serve(const char *address)
{
    it_evd_handle_t requests;
    it_lmr_handle_t lmr;
    table = calloc(ENTRIES, ENTRY);
    if (table == NULL)
        return fail("out of memory");
    TRY(it_lmr_create(pz, table, NULL, (it_length_t)ENTRIES * ENTRY, IT_ADDR_MODE_ABSOLUTE,
                      (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_READ), IT_LMR_FLAG_NONE, 0,
                      &lmr, &table_key));
    if (!listen_at(ia, address, &requests))
        return false;
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        it_event_t event;
        TRY(it_evd_wait(requests, IT_TIMEOUT_INFINITE, &event, NULL));
        struct peer *peer = calloc(1, sizeof *peer);
        if (peer == NULL)
            return fail("out of memory");
        peer->request = event.conn_req.cn_est_id;
        if (pthread_create(&thread, NULL, keep, peer) == 0) {
            pthread_detach(thread);
            continue;
        }
        fail("cannot start a thread; the client is rejected");
        it_reject(peer->request, NULL, 0);
        free(peer);
    }
}

/* Takes the next completion. */
static bool step(struct peer *peer)
{
    it_event_t event;
    if (!next(peer, PATIENCE, &event))
        return fail("the server disconnected");
    if (event.event_number == IT_DTO_RDMA_READ_CMPL_EVENT)
        peer->read = true;
    if (event.event_number != IT_DTO_RC_RECV_CMPL_EVENT)
        return true;
    peer->version = get64(REPLY(peer));
    if (peer->version == 0)
        return fail("the table has no room for this key");
    return receive(peer, REPLY(peer), ANSWER);
}

/* Sends a value; step() takes the reply, the new version. */
static bool send_value(struct peer *peer, const char *key, const void *value, size_t length)
{
    if (strlen(key) > ROOM || length > ROOM - strlen(key))
        return fail("key and value are too long");
    peer->version = 0;
    put32(MESSAGE(peer) + 16, (uint32_t)strlen(key));
    put32(MESSAGE(peer) + 20, (uint32_t)length);
    memcpy(MESSAGE(peer) + HEAD, key, strlen(key));
    memcpy(MESSAGE(peer) + HEAD + strlen(key), value, length);
    return send_from(peer, MESSAGE(peer), HEAD + strlen(key) + length);
}

static bool put_value(struct peer *peer, const char *key, const void *value, size_t length)
{
    bool well = send_value(peer, key, value, length);
    while (well && peer->version == 0)
        well = step(peer);
    return well;
}

/* Reads an entry until it is not torn. */
static bool read_entry(struct peer *peer, size_t at)
{
    it_lmr_triplet_t sink = { peer->lmr, { SINK(peer) }, ENTRY };
    for (;; peer->torn++) {
        peer->read = false;
        TRY(it_post_rdma_read(peer->ep, &sink, 1, 0, SIGNALLED, get64(peer->table + 4) + at,
                              get32(peer->table)));
        while (!peer->read)
            if (!step(peer))
                return false;
        if (is_whole(SINK(peer)))
            return true;
    }
}

/* Finds a key by RDMA Reads; its entry is in the sink then. */
static bool get(struct peer *peer, const char *key)
{
    for (size_t probe = 0; probe < PROBES; probe++) {
        if (!read_entry(peer, place(key, strlen(key), probe)))
            return false;
        if (get64(SINK(peer)) == 0)
            break;
        if (is_well_formed(SINK(peer)) && has_key(SINK(peer), key, strlen(key)))
            return true;
    }
    return fail("there is no such key");
}

/* Writes the key count times and reads it meanwhile. */
static bool stress(struct peer *peer, const char *key, unsigned long count)
{
    unsigned char value[ROOM];
    size_t length = strlen(key) < ROOM ? ROOM - strlen(key) : 0;
    unsigned long reads = 0;
    memset(value, 'a', sizeof value);
    if (!put_value(peer, key, value, length))
        return false;
    for (unsigned long turn = 0; turn < count; turn++) {
        uint64_t known = peer->version;
        memset(value, 'a' + (int)(turn % 26), sizeof value);
        if (!send_value(peer, key, value, length))
            return false;
        for (; peer->version == 0; reads++) {
            const unsigned char *got = SINK(peer) + HEAD + strlen(key);
            if (!get(peer, key))
                return false;
            if (get64(SINK(peer)) < known || (length > 0 && memcmp(got, got + 1, length - 1) != 0))
                return fail("a value is stale or torn");
        }
    }
    printf("%lu writes, %lu reads; %lu torn reads were noticed and repeated\n", count, reads,
           peer->torn);
    return true;
}

/* Executes the action of the command line. */
static bool act(struct peer *peer, int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "put") == 0) {
        if (!put_value(peer, argv[1], argv[2], strlen(argv[2])))
            return false;
        printf("%s: version %llu\n", argv[1], (unsigned long long)peer->version);
        return true;
    }
    if (argc == 2 && strcmp(argv[0], "get") == 0) {
        if (!get(peer, argv[1]))
            return false;
        printf("%.*s\n", (int)get32(SINK(peer) + 20), (char *)SINK(peer) + HEAD + strlen(argv[1]));
        return true;
    }
    if (argc == 3 && strcmp(argv[0], "stress") == 0)
        return stress(peer, argv[1], strtoul(argv[2], NULL, 10));
    return fail("expected put KEY VALUE, get KEY, or stress KEY COUNT");
}

/* Disconnect also if the action failed. */
static bool use_server(const char *server, int argc, char **argv)
{
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL || !prepare(peer) || !receive(peer, REPLY(peer), ANSWER) ||
        !connect_to(peer, server))
        return false;
    bool well = act(peer, argc, argv);
    well = disconnect(peer) && well;
    release(peer);
    return well;
}

int main(int argc, char **argv)
{
    const char *name = option(&argc, argv, "--ia", "vp_softrdma");
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!serves && !(argc > 3 && strcmp(argv[1], "connect") == 0)) {
        fputs("usage: kv [--ia NAME] serve HOST:PORT\n"
              "       kv [--ia NAME] connect HOST:PORT put KEY VALUE|get KEY|stress KEY COUNT\n",
              stderr);
        return 2;
    }
    if (!succeeded(it_ia_create(name, 2, 1, &ia), "it_ia_create") ||
        !succeeded(it_pz_create(ia, &pz), "it_pz_create"))
        return 1;
    bool well = serves ? serve(argv[2]) : use_server(argv[2], argc - 3, argv + 3);
    it_ia_free(ia);
    return well ? 0 : 1;
}
