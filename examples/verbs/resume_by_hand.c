/* What a verbs program does when its connection is lost, with one-sided work alone: a new id and queue pair with the same
 * protection domain and completion queue, then it asks the peer's memory what has arrived, and goes on from there.
 *
 * `resume_by_hand serve ADDRESS PORT` prints its port, takes 1000 records of one session, whatever connections they come by,
 * and checks them; `resume_by_hand connect ADDRESS PORT N` writes them, and loses its connection N times with work under way;
 * `resume_by_hand stranger ADDRESS PORT` tries to take the session over, and must be refused. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <rdma/rdma_cma.h>

enum { RECORDS = 1000, RECORD = 64, BATCH = 10 };  /* records that are written before the count is */
enum { ATTEMPTS = 8, PAUSE_MS = 10, STEP_MS = 5000, AWAY_MS = 5000 };

/* In the memory of each end: how many records have arrived whole, the records, and at the client what a Read brought. */
struct memory {
    uint64_t count;
    unsigned char records[RECORDS][RECORD];
    uint64_t found;
};

enum purpose { NEW = 1, RESUME = 2 };
enum reason { UNKNOWN = 1, OCCUPIED = 2, OTHER_DEVICE = 3, NO_MEMORY = 4 };

static const char *const reasons[] = {
    [UNKNOWN] = "it knows no session by this token; to do: begin a new one",
    [OCCUPIED] = "it serves another session; to do: wait for its end",
    [OTHER_DEVICE] = "its memory is registered with another device; to do: use the device of the first connection",
    [NO_MEMORY] = "it lacks memory",
};

/* Private data of a request. A token that nobody can guess names the session. */
struct question {
    char magic[7];
    uint8_t purpose;
    unsigned char token[16];
};

/* Of an acceptance: where the memory is. Of a reject: the reason. In network order. */
struct answer {
    char magic[7];
    uint8_t reason;
    uint64_t address;
    uint32_t rkey;
};

static const char MAGIC[7] = "by-hand";

/* What outlives connections: everything but id and queue pair. */
struct session {
    struct ibv_context *verbs;
    struct ibv_pd *pd;
    struct ibv_comp_channel *news;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct memory *memory;
    unsigned char token[16];
};

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return -1;
}

static void fill(unsigned char *record, unsigned n)
{
    for (unsigned at = 0; at < RECORD; at++)
        record[at] = n * 31 + at;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

/* Makes what outlives connections, on the device of the first one. */
static int begin_session(struct session *s, struct ibv_context *verbs, int access)
{
    s->verbs = verbs;
    s->memory = calloc(1, sizeof *s->memory);
    if (!s->memory)
        return failed("memory for the records");
    s->pd = ibv_alloc_pd(verbs);
    if (!s->pd)
        return failed("ibv_alloc_pd");
    s->news = ibv_create_comp_channel(verbs);
    if (!s->news)
        return failed("ibv_create_comp_channel");
    s->cq = ibv_create_cq(verbs, 64, NULL, s->news, 0);
    if (!s->cq)
        return failed("ibv_create_cq");
    s->mr = ibv_reg_mr(s->pd, s->memory, sizeof *s->memory, access);
    return s->mr ? 0 : failed("ibv_reg_mr");
}

static void end_session(struct session *s)
{
    if (s->mr)
        ibv_dereg_mr(s->mr);
    if (s->cq)
        ibv_destroy_cq(s->cq);
    if (s->news)
        ibv_destroy_comp_channel(s->news);
    if (s->pd)
        ibv_dealloc_pd(s->pd);
    free(s->memory);
    memset(s, 0, sizeof *s);
}

/* A queue pair for one connection. */
static int give_qp(struct rdma_cm_id *id, struct session *s)
{
    struct ibv_qp_init_attr attr = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC};
    attr.cap = (struct ibv_qp_cap){.max_send_wr = 32, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    return rdma_create_qp(id, s->pd, &attr) ? failed("rdma_create_qp") : 0;
}

/* Ends a connection: the id cannot connect again. Completions of the queue pair that are left go with it. */
static void drop(struct rdma_cm_id **id)
{
    if (!*id)
        return;
    if ((*id)->qp)
        rdma_destroy_qp(*id);
    rdma_destroy_id(*id);
    *id = NULL;
}

static struct addrinfo *address_of(const char *host, const char *port, int passive)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0}, *found;
    int why = getaddrinfo(host, port, &hints, &found);
    if (why) {
        fprintf(stderr, "%s port %s: %s\n", host, port, gai_strerror(why));
        exit(2);
    }
    return found;
}

/* --- The server --- */

static int refuse(struct rdma_cm_id *id, enum reason reason)
{
    struct answer answer = {.reason = reason};
    memcpy(answer.magic, MAGIC, sizeof MAGIC);
    fprintf(stderr, "refused a request: %s\n", reasons[reason]);
    rdma_reject(id, &answer, sizeof answer);
    rdma_destroy_id(id);
    return -1;
}

/* Whether a request may have the session: it is of a new one, or shows the token of the one that there is. 0: yes. */
static enum reason judge(struct session *s, struct rdma_cm_id *id, const struct question *question)
{
    if (memcmp(question->magic, MAGIC, sizeof MAGIC))
        return UNKNOWN;
    if (s->mr && !memcmp(question->token, s->token, sizeof s->token))
        return id->verbs == s->verbs ? 0 : OTHER_DEVICE;
    if (question->purpose != NEW)
        return UNKNOWN;
    if (s->mr)
        return OCCUPIED;
    memcpy(s->token, question->token, sizeof s->token);
    if (begin_session(s, id->verbs, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)) {
        end_session(s);
        return NO_MEMORY;
    }
    return 0;
}

/* Accepts or rejects a request. `former`: the session's connection so far, which ends if it is accepted. */
static int admit(struct session *s, struct rdma_cm_id *id, const struct question *question, struct rdma_cm_id **former)
{
    enum reason reason = judge(s, id, question);
    if (reason)
        return refuse(id, reason);
    /* Its Writes must not arrive after those of the next one, and it may seem to live although the client has lost it. */
    drop(former);
    if (give_qp(id, s))
        return refuse(id, NO_MEMORY);
    struct answer answer = {.address = htobe64((uintptr_t)s->memory), .rkey = htobe32(s->mr->rkey)};
    memcpy(answer.magic, MAGIC, sizeof MAGIC);
    struct rdma_conn_param param = {.private_data = &answer, .private_data_len = sizeof answer,
                                    .responder_resources = 1, .rnr_retry_count = 7};
    if (rdma_accept(id, &param)) {
        failed("rdma_accept");
        drop(&id);
        return -1;
    }
    return 0;
}

static uint64_t count_of(const struct session *s)
{
    /* A device writes it. */
    return s->mr ? be64toh(__atomic_load_n(&s->memory->count, __ATOMIC_ACQUIRE)) : 0;
}

static int check(const struct session *s)
{
    for (unsigned n = 0; n < RECORDS; n++) {
        unsigned char expected[RECORD];
        fill(expected, n);
        if (memcmp(s->memory->records[n], expected, RECORD)) {
            fprintf(stderr, "record %u is not what was written\n", n);
            return 1;
        }
    }
    return 0;
}

static int serve(const char *host, const char *port)
{
    struct session s = {0};
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *door, *id = NULL;
    struct addrinfo *address = address_of(host, port, 1);
    int connections = 0;
    if (!events || rdma_create_id(events, &door, NULL, RDMA_PS_TCP))
        return failed("rdma_create_id");
    if (rdma_bind_addr(door, address->ai_addr) || rdma_listen(door, 4))
        return failed(host);
    freeaddrinfo(address);
    printf("listening at port %d\n", ntohs(rdma_get_src_port(door)));
    fflush(stdout);
    /* Until everything is there and the client has gone. */
    for (long long gone_at = 0; id || count_of(&s) < RECORDS;) {
        struct pollfd ready = {.fd = events->fd, .events = POLLIN};
        /* Without a session, and with a connection, it waits as long as it takes. */
        long long left = gone_at + AWAY_MS - now_ms();
        int found = poll(&ready, 1, !s.mr || id ? -1 : left > 0 ? (int)left : 0);
        if (found == 0) {
            fprintf(stderr, "nobody came back within %d s; %llu of %d records have arrived\n", AWAY_MS / 1000,
                    (unsigned long long)count_of(&s), RECORDS);
            break;
        }
        struct rdma_cm_event *event;
        if (found < 0 || rdma_get_cm_event(events, &event)) {
            if (errno == EINTR)
                continue;
            failed("rdma_get_cm_event");
            break;
        }
        struct rdma_cm_id *of = event->id, *before = id;
        enum rdma_cm_event_type kind = event->event;
        int status = event->status, requests = kind == RDMA_CM_EVENT_CONNECT_REQUEST;
        struct question question = {.purpose = 0};
        if (requests && event->param.conn.private_data_len >= sizeof question)
            memcpy(&question, event->param.conn.private_data, sizeof question);
        /* It has the private data; before an id is destroyed its events must be acknowledged. */
        rdma_ack_cm_event(event);
        if (requests && admit(&s, of, &question, &id) == 0) {
            id = of;
            printf("connection %d: %llu records are here\n", ++connections, (unsigned long long)count_of(&s));
            fflush(stdout);
        } else if (!requests && of == id && kind != RDMA_CM_EVENT_ESTABLISHED) {
            fprintf(stderr, "connection %d: %s, status %d\n", connections, rdma_event_str(kind), status);
            drop(&id);
        }
        if (before && !id)
            gone_at = now_ms();
    }
    int wrong = count_of(&s) < RECORDS || check(&s);
    if (!wrong)
        printf("%d records arrived, by %d connections\n", RECORDS, connections);
    drop(&id);
    end_session(&s);
    rdma_destroy_id(door);
    rdma_destroy_event_channel(events);
    return wrong;
}

/* --- The client --- */

/* Where the peer's memory is: the same for all connections of a session. */
struct place {
    uint64_t address;
    uint32_t rkey;
};

enum outcome { GOES_ON, LOST, OVER };

/* Waits for an event of the id; others are an error, which is printed. */
static enum outcome expect(struct rdma_event_channel *events, enum rdma_cm_event_type kind, struct place *place)
{
    struct pollfd ready = {.fd = events->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&ready, 1, STEP_MS) != 1) {
        fprintf(stderr, "no %s within %d s\n", rdma_event_str(kind), STEP_MS / 1000);
        return LOST;
    }
    if (rdma_get_cm_event(events, &event)) {
        failed("rdma_get_cm_event");
        return LOST;
    }
    struct answer answer = {.reason = 0};
    int told = event->param.conn.private_data && event->param.conn.private_data_len >= sizeof answer &&
               (event->event == RDMA_CM_EVENT_ESTABLISHED || event->event == RDMA_CM_EVENT_REJECTED);
    if (told)
        memcpy(&answer, event->param.conn.private_data, sizeof answer);
    told = told && !memcmp(answer.magic, MAGIC, sizeof MAGIC);
    enum outcome outcome = GOES_ON;
    if (event->event != kind) {
        fprintf(stderr, "%s, status %d, in place of %s\n", rdma_event_str(event->event), event->status,
                rdma_event_str(kind));
        outcome = LOST;
        if (event->event == RDMA_CM_EVENT_REJECTED && told && answer.reason < sizeof reasons / sizeof *reasons &&
            answer.reason) {
            fprintf(stderr, "the server refused: %s\n", reasons[answer.reason]);
            /* That does not change by itself. */
            outcome = OVER;
        }
    } else if (kind == RDMA_CM_EVENT_ESTABLISHED) {
        if (told) {
            *place = (struct place){be64toh(answer.address), be32toh(answer.rkey)};
        } else {
            fprintf(stderr, "the server sent no place of its memory\n");
            outcome = OVER;
        }
    }
    rdma_ack_cm_event(event);
    return outcome;
}

/* Connects by a new id and queue pair. */
static enum outcome connect_once(struct session *s, struct rdma_event_channel *events, struct rdma_cm_id **id,
                                 const struct addrinfo *to, enum purpose purpose, struct place *place)
{
    if (rdma_create_id(events, id, NULL, RDMA_PS_TCP)) {
        *id = NULL;
        failed("rdma_create_id");
        return LOST;
    }
    if (rdma_resolve_addr(*id, NULL, to->ai_addr, STEP_MS)) {
        failed("rdma_resolve_addr");
        return LOST;
    }
    enum outcome outcome = expect(events, RDMA_CM_EVENT_ADDR_RESOLVED, NULL);
    if (outcome != GOES_ON)
        return outcome;
    if (s->mr && (*id)->verbs != s->verbs) {
        fprintf(stderr, "the address leads over another device now\n");
        return OVER;
    }
    if (!s->mr && begin_session(s, (*id)->verbs, IBV_ACCESS_LOCAL_WRITE))
        return OVER;
    if (rdma_resolve_route(*id, STEP_MS)) {
        failed("rdma_resolve_route");
        return LOST;
    }
    outcome = expect(events, RDMA_CM_EVENT_ROUTE_RESOLVED, NULL);
    if (outcome != GOES_ON)
        return outcome;
    if (give_qp(*id, s))
        return LOST;
    struct question question = {.purpose = purpose};
    memcpy(question.magic, MAGIC, sizeof MAGIC);
    memcpy(question.token, s->token, sizeof s->token);
    struct rdma_conn_param param = {.private_data = &question, .private_data_len = sizeof question,
                                    .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    if (rdma_connect(*id, &param)) {
        failed("rdma_connect");
        return LOST;
    }
    return expect(events, RDMA_CM_EVENT_ESTABLISHED, place);
}

static int post(struct rdma_cm_id *id, struct session *s, enum ibv_wr_opcode opcode, void *here, unsigned octets,
                uint64_t there, uint32_t rkey)
{
    struct ibv_sge sge = {(uintptr_t)here, octets, s->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
    /* Only Reads have a completion: it says that the Writes before are done, too. */
    wr.send_flags = opcode == IBV_WR_RDMA_READ ? IBV_SEND_SIGNALED : 0;
    wr.wr.rdma.remote_addr = there;
    wr.wr.rdma.rkey = rkey;
    int why = ibv_post_send(id->qp, &wr, &bad);
    if (why) {
        errno = why;
        failed("ibv_post_send");
    }
    return why;
}

/* Waits for the completion of the Read. The connection's end completes it, too, as flushed. */
static enum outcome completed(struct rdma_cm_id *id, struct session *s, struct rdma_event_channel *events)
{
    for (long long until = now_ms() + STEP_MS; now_ms() < until;) {
        struct ibv_wc wc;
        int found = ibv_poll_cq(s->cq, 1, &wc);
        if (found == 0) {
            if (ibv_req_notify_cq(s->cq, 0))
                break;
            found = ibv_poll_cq(s->cq, 1, &wc);
        }
        if (found < 0)
            break;
        if (found == 1 && wc.status != IBV_WC_SUCCESS) {
            fprintf(stderr, "a request: %s\n", ibv_wc_status_str(wc.status));
            return LOST;
        }
        if (found == 1)
            return GOES_ON;
        struct pollfd ready[2] = {{.fd = s->news->fd, .events = POLLIN}, {.fd = events->fd, .events = POLLIN}};
        if (poll(ready, 2, STEP_MS) < 0 && errno != EINTR)
            break;
        struct ibv_cq *cq;
        void *context;
        if (ready[0].revents && !ibv_get_cq_event(s->news, &cq, &context))
            ibv_ack_cq_events(cq, 1);
        struct rdma_cm_event *event;
        if (ready[1].revents && !rdma_get_cm_event(events, &event)) {
            fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
            rdma_ack_cm_event(event);
            /* Has what is outstanding flushed. */
            rdma_disconnect(id);
        }
    }
    fprintf(stderr, "no completion within %d s\n", STEP_MS / 1000);
    return LOST;
}

/* Reads the peer's count. What was written before is in its memory when this has completed: RFC 5040 section 5.5. */
static enum outcome arrived(struct rdma_cm_id *id, struct session *s, struct rdma_event_channel *events,
                            struct place there, uint64_t *count)
{
    uint64_t *found = &s->memory->found;
    if (post(id, s, IBV_WR_RDMA_READ, found, sizeof *found, there.address, there.rkey))
        return LOST;
    enum outcome outcome = completed(id, s, events);
    if (outcome == GOES_ON)
        *count = be64toh(__atomic_load_n(found, __ATOMIC_ACQUIRE));
    return outcome;
}

/* Posts Writes of the next records. */
static int post_batch(struct rdma_cm_id *id, struct session *s, struct place there, uint64_t from)
{
    for (uint64_t n = from; n < from + BATCH; n++) {
        void *record = s->memory->records[n];
        uint64_t place = there.address + offsetof(struct memory, records) + n * RECORD;
        if (post(id, s, IBV_WR_RDMA_WRITE, record, RECORD, place, there.rkey))
            return -1;
    }
    return 0;
}

/* Writes by one connection, from where the peer's memory is. `until`: it loses the connection there, in one of two ways. */
static enum outcome write_records(struct rdma_cm_id *id, struct session *s, struct rdma_event_channel *events,
                                  struct place there, uint64_t until, int how, uint64_t *done)
{
    enum outcome outcome = arrived(id, s, events, there, done);
    while (outcome == GOES_ON && *done < RECORDS) {
        if (post_batch(id, s, there, *done))
            return LOST;
        if (*done >= until) {
            struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
            fprintf(stderr, "drops its connection by %s\n", how ? "ibv_modify_qp" : "rdma_disconnect");
            /* The second way tells the peer nothing. What was under way completes, or is flushed. */
            return (how ? ibv_modify_qp(id->qp, &error, IBV_QP_STATE) : rdma_disconnect(id)) ? OVER : LOST;
        }
        uint64_t before;
        outcome = arrived(id, s, events, there, &before);
        if (outcome != GOES_ON)
            break;
        /* Only records that are there are counted. The memory of the last count is free: its Write is done. */
        *done += BATCH;
        s->memory->count = htobe64(*done);
        if (post(id, s, IBV_WR_RDMA_WRITE, &s->memory->count, sizeof s->memory->count, there.address, there.rkey))
            return LOST;
        if (*done == RECORDS)
            outcome = arrived(id, s, events, there, done);
    }
    return outcome;
}

static int connect_to(const char *host, const char *port, int losses)
{
    struct session s = {0};
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    struct addrinfo *to = address_of(host, port, 0);
    struct place there = {0}, first = {0};
    uint64_t done = 0;
    int connections = 0, lost = 0, attempts = 0, pause = PAUSE_MS;
    enum outcome outcome = LOST;
    if (!events)
        return failed("rdma_create_event_channel");
    if (getrandom(s.token, sizeof s.token, 0) != sizeof s.token)
        return failed("getrandom");
    while (outcome == LOST && attempts++ < ATTEMPTS) {
        uint64_t before = done;
        outcome = connect_once(&s, events, &id, to, connections ? RESUME : NEW, &there);
        if (outcome == GOES_ON && connections++ == 0) {
            first = there;
            for (unsigned n = 0; n < RECORDS; n++)
                fill(s.memory->records[n], n);
        } else if (outcome == GOES_ON && (there.address != first.address || there.rkey != first.rkey)) {
            fprintf(stderr, "the server's memory is another one now\n");
            outcome = OVER;
        }
        if (outcome == GOES_ON) {
            uint64_t until = lost < losses ? RECORDS * (lost + 1) / (losses + 1) : RECORDS;
            outcome = write_records(id, &s, events, there, until, lost % 2, &done);
            lost += outcome == LOST;
        }
        if (outcome == LOST) {
            fprintf(stderr, "attempt %d of %d ended after %llu records\n", attempts, ATTEMPTS,
                    (unsigned long long)done);
            drop(&id);
            pause_ms(pause);
            pause = pause < 1000 ? 2 * pause : pause;
        }
        /* One that has led further begins to count anew. */
        if (done > before)
            attempts = 0, pause = PAUSE_MS;
    }
    int ended = outcome == GOES_ON && done == RECORDS;
    if (ended && !rdma_disconnect(id))
        expect(events, RDMA_CM_EVENT_DISCONNECTED, NULL);
    if (ended)
        printf("written by %d connections\n", connections);
    else
        fprintf(stderr, "given up after %d connections: %llu of %d records are there\n", connections,
                (unsigned long long)done, RECORDS);
    drop(&id);
    end_session(&s);
    freeaddrinfo(to);
    rdma_destroy_event_channel(events);
    return !ended;
}

/* Shows a token of its own for a session that it does not have. */
static int intrude(const char *host, const char *port)
{
    struct session s = {0};
    struct rdma_event_channel *events = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    struct addrinfo *to = address_of(host, port, 0);
    struct place there;
    if (!events || getrandom(s.token, sizeof s.token, 0) != sizeof s.token)
        return failed("a token");
    enum outcome outcome = connect_once(&s, events, &id, to, RESUME, &there);
    drop(&id);
    end_session(&s);
    freeaddrinfo(to);
    rdma_destroy_event_channel(events);
    return outcome != OVER;
}

int main(int count, char **words)
{
    if (count == 4 && !strcmp(words[1], "serve"))
        return serve(words[2], words[3]) != 0;
    if (count == 5 && !strcmp(words[1], "connect") && atoi(words[4]) >= 0 && atoi(words[4]) < RECORDS / BATCH)
        return connect_to(words[2], words[3], atoi(words[4])) != 0;
    if (count == 4 && !strcmp(words[1], "stranger"))
        return intrude(words[2], words[3]) != 0;
    fprintf(stderr, "usage: resume_by_hand serve ADDRESS PORT | resume_by_hand connect ADDRESS PORT N | "
                    "resume_by_hand stranger ADDRESS PORT\n");
    return 2;
}
