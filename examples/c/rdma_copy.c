/*
 * Copies files by RDMA Write, many chunks in flight, and verifies what arrived.
 *
 * "rdma_copy [--ia NAME] serve HOST:PORT DIRECTORY" stores files of one client after the other;
 * "rdma_copy [--ia NAME] connect HOST:PORT FILE..." sends them.
 *
 * The server offers a window of slots. The client writes a chunk into the next slot and sends a
 * header of 16 octets; the server takes the chunk and replies, which frees the slot. One thread
 * owns all objects. When the client dies, its incomplete file is removed.
 */
#include "example.h"

#include <time.h>

/* Octets of a slot. */
#define SLOT ((size_t)256 * 1024)
/* Slots of a connection: chunks in flight. */
#define SLOTS 16u
/* Octets of the Send after a chunk: kind and length (4 each), value (8). */
#define HEADER 16
/* Octets of a reply: 0 if the chunk is taken, else 1 and the reason. */
#define ANSWER 64

/* A chunk is a file's name (value: its size), octets of it, or its end (value: its checksum). */
enum { OPEN = 1, DATA = 2, CLOSE = 3 };

/* One connection: the slots (the server's, or the client's copies), then the messages. */
struct peer {
    it_pz_handle_t pz;
    it_evd_handle_t work, events;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    it_rmr_context_t key;
    unsigned char *slots, *received, *sent;
    /* Sends that are complete. */
    unsigned long completed;
    /* Of the client: the server's slots, and the numbers of chunks sent and acknowledged. */
    unsigned char window[RANGE_OCTETS];
    unsigned long posted, answered;
};

/* FNV-1a, 64 bits: detects accidental damage. */
#define EMPTY_SUM 0xcbf29ce484222325u

static uint64_t add(uint64_t sum, const unsigned char *octets, size_t length)
{
    for (size_t at = 0; at < length; at++)
        sum = (sum ^ octets[at]) * 0x100000001b3u;
    return sum;
}

static bool receive(struct peer *peer, uint64_t message)
{
    it_lmr_triplet_t room = { peer->lmr, { peer->received + message * ANSWER }, ANSWER };
    TRY(it_post_recv(peer->ep, &room, 1, message, SIGNALLED));
    return true;
}

static bool send_message(struct peer *peer, uint64_t message, size_t length)
{
    it_lmr_triplet_t part = { peer->lmr, { peer->sent + message * ANSWER }, length };
    TRY(it_post_send(peer->ep, &part, 1, message, SIGNALLED));
    return true;
}

/* Makes the objects of a connection and posts its receives. */
static bool prepare(struct peer *peer, it_ia_handle_t ia)
{
    it_ep_attributes_t attr;
    size_t octets = SLOTS * SLOT + 3 * SLOTS * ANSWER;
    it_mem_priv_t privs = (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_WRITE);
    memset(&attr, 0, sizeof attr);
    attr.max_dto_payload_size = SLOT;
    attr.max_request_dtos = 4 * SLOTS;
    attr.max_recv_dtos = SLOTS;
    attr.max_send_segments = attr.max_recv_segments = attr.srv.rc.max_rdma_write_segments = 1;
    attr.srv.rc.rdma_write_enable = IT_TRUE;
    peer->slots = calloc(1, octets);
    if (peer->slots == NULL)
        return fail("out of memory");
    peer->received = peer->slots + SLOTS * SLOT;
    peer->sent = peer->received + SLOTS * ANSWER;
    TRY(it_pz_create(ia, &peer->pz));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 8 * SLOTS, 1, IT_NULL_HANDLE, &peer->work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &peer->events, NULL));
    TRY(it_ep_rc_create(peer->pz, peer->work, peer->work, peer->events, IT_EP_NO_FLAG, &attr,
                        &peer->ep));
    TRY(it_lmr_create(peer->pz, peer->slots, NULL, octets, IT_ADDR_MODE_ABSOLUTE, privs,
                      IT_LMR_FLAG_NONE, 0, &peer->lmr, &peer->key));
    for (uint64_t message = 0; message < SLOTS; message++)
        if (!receive(peer, message))
            return false;
    return true;
}

static void release(struct peer *peer)
{
    it_ep_free(peer->ep);
    it_lmr_free(peer->lmr);
    it_evd_free(peer->work);
    it_evd_free(peer->events);
    it_pz_free(peer->pz);
    free(peer->slots);
}

/* Connection handling: accepts; the private data is the key of the slots. */
static bool accept_from(struct peer *peer, it_cn_est_identifier_t request)
{
    it_event_t event;
    unsigned char range[RANGE_OCTETS];
    put_range(range, peer->key, peer->slots, SLOTS * SLOT);
    TRY(it_ep_accept(peer->ep, request, range, sizeof range));
    return expect(peer->events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event);
}

/* Connection handling: connects. */
static bool connect_to(struct peer *peer, const char *server)
{
    it_event_t event;
    TRY(itw_connect(peer->ep, server, NULL, 0));
    if (!expect(peer->events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event))
        return false;
    memcpy(peer->window, event.conn.private_data, RANGE_OCTETS);
    return get64(peer->window + 12) == SLOTS * SLOT || fail("the server is not rdma_copy");
}

/* Waits for the next completion. Sets gone when the peer has disconnected in order. */
static bool next_completion(struct peer *peer, uint64_t patience, it_event_t *event, bool *gone)
{
    TRY(it_evd_wait(peer->work, patience, event, NULL));
    *gone = event->dto_cmpl.dto_status == IT_DTO_ERR_FLUSHED;
    if (*gone)
        return expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, event);
    if (event->dto_cmpl.dto_status != IT_DTO_SUCCESS) {
        complain(event);
        expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, event);
        return false;
    }
    peer->completed += event->event_number == IT_DTO_SEND_CMPL_EVENT;
    return true;
}

/* The same for the next message. */
static bool next_message(struct peer *peer, uint64_t patience, it_event_t *event, bool *gone)
{
    do {
        if (!next_completion(peer, patience, event, gone))
            return false;
    } while (!*gone && event->event_number != IT_DTO_RC_RECV_CMPL_EVENT);
    return true;
}

/* A file that the server receives; file is NULL if there is none. */
struct incoming {
    FILE *file;
    char part[4096], path[4096];
    uint64_t left, sum;
};

/* Creates the file. Only plain names, so that no client chooses another directory. Returns the
 * reason of a failure, or NULL. */
static const char *create(struct incoming *in, const char *directory, const unsigned char *name,
                          size_t length, uint64_t size)
{
    if (length == 0 || length > 255 || memchr(name, '/', length) || memchr(name, '\0', length) ||
        (name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.'))))
        return "that is no file name";
    snprintf(in->path, sizeof in->path, "%s/%.*s", directory, (int)length, (const char *)name);
    if (snprintf(in->part, sizeof in->part, "%s.part", in->path) >= (int)sizeof in->part)
        return "the name is too long";
    in->file = fopen(in->part, "wbx");
    in->left = size;
    in->sum = EMPTY_SUM;
    return in->file == NULL ? "cannot create the file" : NULL;
}

/* Removes the file unless it is complete. */
static void give_up(struct incoming *in)
{
    if (in->file == NULL)
        return;
    fclose(in->file);
    remove(in->part);
    in->file = NULL;
}

static const char *finish(struct incoming *in, uint64_t sum)
{
    if (in->left != 0 || in->sum != sum) {
        give_up(in);
        return "checksum mismatch";
    }
    int closed = fclose(in->file);
    in->file = NULL;
    if (closed != 0 || rename(in->part, in->path) != 0)
        return "cannot write the file";
    printf("%s\n", in->path);
    fflush(stdout);
    return NULL;
}

/* Processes one chunk. Returns the reason of a failure, or NULL. */
static const char *take(struct incoming *in, const char *directory, const unsigned char *header,
                        const unsigned char *chunk)
{
    uint32_t kind = get32(header), length = get32(header + 4);
    uint64_t value = get64(header + 8);
    if (length > SLOT || (kind == OPEN) != (in->file == NULL))
        return "a chunk out of order";
    if (kind == OPEN)
        return create(in, directory, chunk, length, value);
    if (kind == CLOSE)
        return finish(in, value);
    if (kind != DATA || length > in->left)
        return "more octets than announced";
    in->left -= length;
    in->sum = add(in->sum, chunk, length);
    return fwrite(chunk, 1, length, in->file) == length ? NULL : "cannot write the file";
}

/* Stores the client's files until it disconnects. */
static bool keep(struct peer *peer, const char *directory, struct incoming *in)
{
    for (unsigned long chunk = 0;; chunk++) {
        bool gone;
        it_event_t event;
        if (!next_message(peer, IT_TIMEOUT_INFINITE, &event, &gone) || gone)
            return gone;
        uint64_t message = event.dto_cmpl.cookie;
        /* Twice the slots, so that no reply is overwritten before it is sent. */
        unsigned char *answer = peer->sent + chunk % (2 * SLOTS) * ANSWER;
        const char *why = take(in, directory, peer->received + message * ANSWER,
                               peer->slots + chunk % SLOTS * SLOT);
        put32(answer, why != NULL);
        snprintf((char *)answer + 4, ANSWER - 4, "%s", why == NULL ? "" : why);
        if (!receive(peer, message) || !send_message(peer, chunk % (2 * SLOTS), ANSWER))
            return false;
    }
}

static bool serve(it_ia_handle_t ia, const char *address, const char *directory)
{
    it_evd_handle_t requests;
    if (!listen_at(ia, address, &requests))
        return false;
    fflush(stdout);
    for (;;) {
        struct peer peer = { 0 };
        struct incoming in = { 0 };
        it_event_t event;
        TRY(it_evd_wait(requests, IT_TIMEOUT_INFINITE, &event, NULL));
        if (prepare(&peer, ia) && accept_from(&peer, event.conn_req.cn_est_id))
            keep(&peer, directory, &in);
        give_up(&in);
        release(&peer);
    }
}

/* Waits for the next reply, or for the completion of a Send. */
static bool take_event(struct peer *peer)
{
    bool gone;
    it_event_t event;
    if (!next_completion(peer, PATIENCE, &event, &gone))
        return false;
    if (gone)
        return fail("the server disconnected");
    if (event.event_number != IT_DTO_RC_RECV_CMPL_EVENT)
        return true;
    unsigned char *answer = peer->received + event.dto_cmpl.cookie * ANSWER;
    if (get32(answer) != 0) {
        fprintf(stderr, "the server says: %.*s\n", ANSWER - 4, (char *)answer + 4);
        return false;
    }
    peer->answered++;
    return receive(peer, event.dto_cmpl.cookie);
}

/* The next free slot. On RoCE a chunk's reply may come before the Send of its header is complete. */
static unsigned char *next_slot(struct peer *peer)
{
    while (peer->posted - peer->answered == SLOTS || peer->posted - peer->completed == SLOTS)
        if (!take_event(peer))
            return NULL;
    return peer->slots + peer->posted % SLOTS * SLOT;
}

/* Writes the chunk in the next slot to the server and sends its header. */
static bool push(struct peer *peer, uint32_t kind, uint64_t value, size_t length)
{
    uint64_t slot = peer->posted++ % SLOTS;
    unsigned char *header = peer->sent + slot * ANSWER;
    it_lmr_triplet_t chunk = { peer->lmr, { peer->slots + slot * SLOT }, length };
    if (length > 0)
        TRY(it_post_rdma_write(peer->ep, &chunk, 1, slot, 0, get64(peer->window + 4) + slot * SLOT,
                               get32(peer->window)));
    put32(header, kind);
    put32(header + 4, (uint32_t)length);
    put64(header + 8, value);
    return send_message(peer, slot, HEADER);
}

/* Sends one file; adds its size to octets. */
static bool send_file(struct peer *peer, const char *path, FILE *file, uint64_t *octets)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    unsigned char *slot = next_slot(peer);
    uint64_t sum = EMPTY_SUM;
    if (slot == NULL)
        return false;
    if (fseek(file, 0, SEEK_END) != 0)
        return fail("cannot read the file");
    uint64_t left = (uint64_t)ftell(file);
    rewind(file);
    *octets += left;
    memcpy(slot, name, strlen(name));
    if (!push(peer, OPEN, left, strlen(name)))
        return false;
    while (left > 0) {
        size_t length = left < SLOT ? (size_t)left : SLOT;
        if ((slot = next_slot(peer)) == NULL)
            return false;
        if (fread(slot, 1, length, file) != length)
            return fail("the file became shorter");
        sum = add(sum, slot, length);
        if (!push(peer, DATA, 0, length))
            return false;
        left -= length;
    }
    return next_slot(peer) != NULL && push(peer, CLOSE, sum, 0);
}

static bool bring(struct peer *peer, int count, char **paths)
{
    struct timespec begin, end;
    uint64_t octets = 0;
    it_event_t event;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int n = 0; n < count; n++) {
        FILE *file = fopen(paths[n], "rb");
        bool well = file != NULL && send_file(peer, paths[n], file, &octets);
        if (file != NULL)
            fclose(file);
        if (!well)
            return fail(paths[n]);
    }
    while (peer->answered < peer->posted)
        if (!take_event(peer))
            return false;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec);
    seconds += (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%d files, %llu octets, %.0f MB/s, verified\n", count, (unsigned long long)octets,
           (double)octets / seconds / 1e6);
    TRY(it_ep_disconnect(peer->ep, NULL, 0));
    return expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &event);
}

int main(int argc, char **argv)
{
    const char *name = option(&argc, argv, "--ia", "vp_softrdma");
    struct peer peer = { 0 };
    it_ia_handle_t ia;
    bool serves = argc == 4 && strcmp(argv[1], "serve") == 0;
    bool brings = argc >= 4 && strcmp(argv[1], "connect") == 0;
    if (!serves && !brings) {
        fputs("usage: rdma_copy [--ia NAME] serve HOST:PORT DIRECTORY\n"
              "       rdma_copy [--ia NAME] connect HOST:PORT FILE...\n",
              stderr);
        return 2;
    }
    if (!succeeded(it_ia_create(name, 2, 1, &ia), "it_ia_create"))
        return 1;
    bool well = serves ? serve(ia, argv[2], argv[3])
                       : prepare(&peer, ia) && connect_to(&peer, argv[2]) &&
                             bring(&peer, argc - 3, argv + 3);
    it_ia_free(ia);
    return well ? 0 : 1;
}
