/*
 * A dialogue over a plain TCP socket that switches to RDMA over the same socket, if both sides
 * agree.
 *
 * "late_transition [--ia NAME] serve HOST:PORT [--decline]" serves HTTP to one client after the
 * other; "late_transition [--ia NAME] connect HOST:PORT" asks for an upgrade and fetches two
 * documents, over RDMA or, if the server declines, over the socket as it is.
 *
 * The client's upgrade request describes its memory. Over RDMA it sends the name of a document, and
 * the server writes the document there and sends its length. One thread owns all objects. When the
 * peer dies, reads end, or requests complete as flushed.
 */
#include "example.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

/* Longest head of a request or response, and longest document, in octets. */
#define HEAD 1024
#define DOCUMENT 4096
/* Octets of a message over RDMA: a name or a length. */
#define MESSAGE 128

/* One side of the connection; memory is a document and two messages: to receive and to send. */
struct peer {
    it_pz_handle_t pz;
    it_evd_handle_t work, events;
    it_ep_handle_t ep;
    it_lmr_handle_t lmr;
    it_rmr_context_t key;
    char memory[DOCUMENT + 2 * MESSAGE];
    /* Of the server: the client's memory for documents. */
    unsigned long long sink_addr;
    unsigned sink_key;
};

#define RECEIVED(peer) ((peer)->memory + DOCUMENT)
#define SENT(peer) ((peer)->memory + DOCUMENT + MESSAGE)

static bool receive(struct peer *peer)
{
    it_lmr_triplet_t room = { peer->lmr, { RECEIVED(peer) }, MESSAGE };
    TRY(it_post_recv(peer->ep, &room, 1, 0, SIGNALLED));
    return true;
}

static bool send_message(struct peer *peer, const void *octets, size_t length)
{
    it_lmr_triplet_t part = { peer->lmr, { SENT(peer) }, length };
    memcpy(SENT(peer), octets, length);
    TRY(it_post_send(peer->ep, &part, 1, 0, SIGNALLED));
    return true;
}

/* Makes an unconnected endpoint and posts its receive. */
static bool prepare(struct peer *peer, it_ia_handle_t ia)
{
    it_ep_attributes_t attr;
    it_mem_priv_t privs = (it_mem_priv_t)(IT_PRIV_LOCAL | IT_PRIV_REMOTE_WRITE);
    memset(peer, 0, sizeof *peer);
    memset(&attr, 0, sizeof attr);
    attr.max_dto_payload_size = DOCUMENT;
    attr.max_request_dtos = 4;
    attr.max_recv_dtos = attr.max_send_segments = attr.max_recv_segments = 1;
    attr.srv.rc.max_rdma_write_segments = 1;
    attr.srv.rc.rdma_write_enable = IT_TRUE;
    TRY(it_pz_create(ia, &peer->pz));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, 0, 8, 1, IT_NULL_HANDLE, &peer->work, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, 0, 4, 1, IT_NULL_HANDLE, &peer->events, NULL));
    TRY(it_ep_rc_create(peer->pz, peer->work, peer->work, peer->events, IT_EP_NO_FLAG, &attr,
                        &peer->ep));
    TRY(it_lmr_create(peer->pz, peer->memory, NULL, sizeof peer->memory, IT_ADDR_MODE_ABSOLUTE,
                      privs, IT_LMR_FLAG_NONE, 0, &peer->lmr, &peer->key));
    return receive(peer);
}

static void release(struct peer *peer)
{
    it_ep_free(peer->ep);
    it_lmr_free(peer->lmr);
    it_evd_free(peer->work);
    it_evd_free(peer->events);
    it_pz_free(peer->pz);
}

/* Connection handling: converts the socket to the endpoint's connection. The server passes its last
 * response, which the stack sends; the client sends first over RDMA. */
static bool convert(struct peer *peer, int sd, const char *last_words)
{
    it_event_t event;
    TRY(it_socket_convert(sd, peer->ep, IT_SC_DEFAULT, (const unsigned char *)last_words,
                          last_words == NULL ? 0 : strlen(last_words)));
    return expect(peer->events, IT_CM_MSG_CONN_ESTABLISHED_EVENT, &event);
}

static bool wrong_address(const char *text, const char *why)
{
    fprintf(stderr, "`%s`: %s; an address is HOST:PORT, such as 127.0.0.1:7174\n", text, why);
    return false;
}

/* An address "HOST:PORT", IPv4: the sockets are not the library's. */
static bool parse_address(const char *text, struct sockaddr_in *address)
{
    char host[256];
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
    const char *colon = strrchr(text, ':');
    if (colon == NULL || (size_t)(colon - text) >= sizeof host)
        return wrong_address(text, "it has no port");
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error != 0)
        return wrong_address(text, gai_strerror(error));
    memcpy(address, found->ai_addr, sizeof *address);
    freeaddrinfo(found);
    return true;
}

/* Connection handling: a socket that listens. */
static int listen_plain(struct sockaddr_in at)
{
    socklen_t length = sizeof at;
    int yes = 1, sd = socket(AF_INET, SOCK_STREAM, 0);
    if (sd < 0 || setsockopt(sd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(sd, (struct sockaddr *)&at, sizeof at) != 0 || listen(sd, 16) != 0 ||
        getsockname(sd, (struct sockaddr *)&at, &length) != 0) {
        perror("cannot listen");
        return -1;
    }
    printf("listening at %s:%u\n", inet_ntoa(at.sin_addr), ntohs(at.sin_port));
    fflush(stdout);
    return sd;
}

/* Waits for a message, and for the completion of what was sent before. */
static bool next_message(struct peer *peer, uint64_t patience, it_event_t *event)
{
    do {
        TRY(it_evd_wait(peer->work, patience, event, NULL));
        if (event->dto_cmpl.dto_status != IT_DTO_SUCCESS) {
            if (event->dto_cmpl.dto_status != IT_DTO_ERR_FLUSHED)
                complain(event);
            expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, event);
            return false;
        }
    } while (event->event_number != IT_DTO_RC_RECV_CMPL_EVENT);
    return true;
}

static bool write_all(int sd, const char *octets, size_t length)
{
    while (length > 0) {
        ssize_t count = send(sd, octets, length, MSG_NOSIGNAL);
        if (count <= 0)
            return fail("the peer has stopped reading");
        octets += count;
        length -= (size_t)count;
    }
    return true;
}

/* Reads a head up to its empty line and not an octet more: what follows may belong to RDMA. */
static bool read_head(int sd, char *head)
{
    size_t length = 0;
    while (length + 1 < HEAD && read(sd, head + length, 1) == 1) {
        head[++length] = '\0';
        if (length >= 4 && strcmp(head + length - 4, "\r\n\r\n") == 0)
            return true;
    }
    return false;
}

/* The content of a document. */
static size_t document(const char *name, char *out)
{
    return (size_t)snprintf(out, DOCUMENT, "This is document %.100s.\n", name);
}

/* The server after the transition. */
static bool serve_rdma(struct peer *peer)
{
    it_event_t event;
    while (next_message(peer, IT_TIMEOUT_INFINITE, &event)) {
        char name[MESSAGE + 1] = "";
        unsigned char answer[4];
        memcpy(name, RECEIVED(peer), event.dto_cmpl.transferred_length);
        size_t length = document(name, peer->memory);
        it_lmr_triplet_t part = { peer->lmr, { peer->memory }, length };
        TRY(it_post_rdma_write(peer->ep, &part, 1, 0, 0, peer->sink_addr, peer->sink_key));
        put32(answer, (uint32_t)length);
        if (!receive(peer) || !send_message(peer, answer, sizeof answer))
            return false;
    }
    return true;
}

/* The server's side of the dialogue; takes the socket. */
static bool dialogue(int sd, it_ia_handle_t ia, bool decline)
{
    char head[HEAD], name[MESSAGE], body[DOCUMENT], answer[HEAD];
    while (read_head(sd, head)) {
        struct peer peer;
        const char *sink = strstr(head, "\r\nRDMA-Sink: ");
        if (sink != NULL && !decline && prepare(&peer, ia) &&
            sscanf(sink, " RDMA-Sink: %x %llx", &peer.sink_key, &peer.sink_addr) == 2) {
            printf("a client switches to RDMA\n");
            bool well = convert(&peer, sd,
                                "HTTP/1.1 101 Switching Protocols\r\n"
                                "Connection: Upgrade\r\nUpgrade: rdma\r\n\r\n") &&
                        serve_rdma(&peer);
            release(&peer);
            return well;
        }
        size_t length = 0;
        if (sscanf(head, "GET %100s", name) == 1)
            length = document(name, body);
        snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", length);
        if (!write_all(sd, answer, strlen(answer)) || !write_all(sd, body, length))
            break;
    }
    close(sd);
    return true;
}

static bool serve(it_ia_handle_t ia, struct sockaddr_in at, bool decline)
{
    int listener = listen_plain(at);
    if (listener < 0)
        return false;
    for (;;) {
        int sd = accept(listener, NULL, NULL);
        if (sd < 0)
            return fail("cannot accept");
        dialogue(sd, ia, decline);
        fflush(stdout);
    }
}

/* Fetches a document by HTTP over the socket. */
static bool fetch_plain(int sd, const char *name)
{
    char head[HEAD], body[DOCUMENT];
    size_t length, have = 0;
    snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: example\r\n\r\n", name);
    if (!write_all(sd, head, strlen(head)) || !read_head(sd, head))
        return fail("no answer");
    const char *field = strstr(head, "\r\nContent-Length: ");
    if (field == NULL || sscanf(field, " Content-Length: %zu", &length) != 1 || length > DOCUMENT)
        return fail("a response without a valid length");
    while (have < length) {
        ssize_t count = read(sd, body + have, length - have);
        if (count <= 0)
            return fail("half an answer");
        have += (size_t)count;
    }
    printf("plain: %.*s", (int)length, body);
    return true;
}

/* Fetches a document over RDMA. */
static bool fetch_rdma(struct peer *peer, const char *name)
{
    it_event_t event;
    if (!send_message(peer, name, strlen(name)) || !next_message(peer, PATIENCE, &event))
        return fail("no answer");
    uint32_t length = get32((unsigned char *)RECEIVED(peer));
    if (length > DOCUMENT)
        return fail("a document that is too long");
    printf("RDMA: %.*s", (int)length, peer->memory);
    return receive(peer);
}

/* The client's side of the dialogue. */
static bool fetch(int sd, struct peer *peer)
{
    char head[HEAD];
    snprintf(head, sizeof head,
             "OPTIONS * HTTP/1.1\r\nHost: example\r\nConnection: Upgrade\r\nUpgrade: rdma\r\n"
             "RDMA-Sink: %x %llx\r\n\r\n",
             (unsigned)peer->key, (unsigned long long)it_make_rdma_addr_absolute(peer->memory));
    if (!write_all(sd, head, strlen(head)) || !read_head(sd, head))
        return fail("no answer");
    if (strncmp(head, "HTTP/1.1 101 ", 13) != 0) {
        printf("the server declines; going on with HTTP\n");
        bool well = fetch_plain(sd, "/first") && fetch_plain(sd, "/second");
        close(sd);
        return well;
    }
    if (!convert(peer, sd, NULL) || !fetch_rdma(peer, "/first") || !fetch_rdma(peer, "/second"))
        return false;
    it_event_t event;
    TRY(it_ep_disconnect(peer->ep, NULL, 0));
    return expect(peer->events, IT_CM_MSG_CONN_DISCONNECT_EVENT, &event);
}

static bool connect_and_fetch(it_ia_handle_t ia, struct sockaddr_in at)
{
    struct peer peer;
    int sd = socket(AF_INET, SOCK_STREAM, 0);
    if (sd < 0 || connect(sd, (struct sockaddr *)&at, sizeof at) != 0) {
        perror("cannot connect");
        return false;
    }
    bool well = prepare(&peer, ia) && fetch(sd, &peer);
    release(&peer);
    return well;
}

int main(int argc, char **argv)
{
    const char *name = option(&argc, argv, "--ia", "vp_softrdma");
    bool decline = argc > 1 && strcmp(argv[argc - 1], "--decline") == 0;
    argc -= decline;
    struct sockaddr_in at;
    it_ia_handle_t ia;
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!serves && !(argc == 3 && strcmp(argv[1], "connect") == 0)) {
        fputs("usage: late_transition [--ia NAME] serve HOST:PORT [--decline]\n"
              "       late_transition [--ia NAME] connect HOST:PORT\n",
              stderr);
        return 2;
    }
    if (!parse_address(argv[2], &at) || !succeeded(it_ia_create(name, 2, 1, &ia), "it_ia_create"))
        return 1;
    bool well = serves ? serve(ia, at, decline) : connect_and_fetch(ia, at);
    it_ia_free(ia);
    return well ? 0 : 1;
}
