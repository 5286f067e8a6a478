/*
 * Program for runs in which memory is refused: makes so many endpoints, dispatchers that feed one, listeners,
 * regions and connections that each table of the library outgrows the reserve. Exits as short.h says; 0 on
 * success.
 *
 * With the argument `peers`: listens, writes the port, refuses all memory until a line is read, and then takes
 * a request.
 */
#include "short.h"

#include <stdio.h>
#include <stdlib.h>

enum { MANY = 1500, DEPTH = 1, LONGEST = 10000000 };

static it_ia_handle_t ia;
static it_pz_handle_t pz;
static it_evd_handle_t dto, conn, request, aggregate, fed[MANY];
static it_ep_handle_t eps[MANY];
static it_listen_handle_t listeners[MANY];
static it_lmr_handle_t lmrs[MANY];
static it_conn_qual_t ports[MANY];
static it_cn_est_identifier_t requests[MANY];
static unsigned char memory[16];

/* As many as the environment says, where a listener costs much. */
static int listening = MANY;

/* From failing_malloc.c, if that is preloaded. */
extern void refuse_memory(int refuse) __attribute__((weak));

static int open_queues(void)
{
    const it_evd_flags_t none = (it_evd_flags_t)0;
    TRY(it_ia_create(provider(), 2, 0, &ia));
    TRY(it_pz_create(ia, &pz));
    TRY(it_evd_create(ia, IT_DTO_EVENT_STREAM, none, 2 * MANY * DEPTH, 1, NULL, &dto, NULL));
    TRY(it_evd_create(ia, IT_CM_MSG_EVENT_STREAM, none, 2 * MANY, 1, NULL, &conn, NULL));
    TRY(it_evd_create(ia, IT_CM_REQ_EVENT_STREAM, none, MANY, 1, NULL, &request, NULL));
    return 0;
}

static int listen_at(int number, it_conn_qual_t *port)
{
    memset(port, 0, sizeof *port);
    port->type = IT_IANA_PORT;
    TRY(it_listen_create(ia, 0, request, IT_LISTEN_NO_FLAG, port, &listeners[number]));
    return 0;
}

static int open_many(void)
{
    const it_evd_flags_t none = (it_evd_flags_t)0;
    it_ep_attributes_t wanted = attributes(sizeof memory, DEPTH);
    it_rmr_context_t context;
    it_event_t event;
    int i, status;
    TRY(it_evd_create(ia, IT_AEVD_NOTIFICATION_EVENT_STREAM, IT_EVD_DEQUEUE_NOTIFICATIONS, 0, 1, NULL,
                      &aggregate, NULL));
    for (i = 0; i < MANY; i++) {
        TRY(it_evd_create(ia, IT_SOFTWARE_EVENT_STREAM, none, 1, 1, aggregate, &fed[i], NULL));
        TRY(it_lmr_create(pz, memory, NULL, sizeof memory, IT_ADDR_MODE_ABSOLUTE, IT_PRIV_ALL,
                          IT_LMR_FLAG_SHARED, 1, &lmrs[i], &context));
        TRY(it_ep_rc_create(pz, dto, dto, conn, IT_EP_NO_FLAG, &wanted, &eps[i]));
        if (i < listening && (status = listen_at(i, &ports[i])) != 0)
            return status;
    }
    /* Each dispatcher would notify, so that the list of the one that they feed is as long as possible. */
    for (i = 0; i < MANY; i++) {
        TRY(it_evd_post_se(fed[i], NULL));
    }
    for (i = 0; i < MANY; i++)
        TRY(it_evd_dequeue(aggregate, &event));
    return 0;
}

/* Half of the endpoints connect to the other half, all requests before the first reply. */
static int connect_many(void)
{
    const it_path_t path = path_here(LONGEST);
    it_event_t event;
    int i;
    for (i = 0; i < MANY / 2; i++)
        TRY(it_ep_connect(eps[i], &path, NULL, &ports[i % listening], IT_CONNECT_FLAG_TWO_WAY, NULL, 0));
    for (i = 0; i < MANY / 2; i++) {
        TRY(it_evd_wait(request, LONGEST, &event, NULL));
        requests[i] = event.conn_req.cn_est_id;
    }
    for (i = 0; i < MANY / 2; i++)
        TRY(it_ep_accept(eps[MANY / 2 + i], requests[i], NULL, 0));
    for (i = 0; i < MANY / 2 * 2; i++) {
        TRY(it_evd_wait(conn, LONGEST, &event, NULL));
        if (event.event_number != IT_CM_MSG_CONN_ESTABLISHED_EVENT) {
            char text[600];
            itw_event_text(&event, text, sizeof text);
            print("a connection that was not made: ");
            print(text);
            print("\n");
            return 3;
        }
    }
    return 0;
}

static int close_many(void)
{
    int i;
    for (i = 0; i < MANY; i++) {
        if (i < listening)
            TRY(it_listen_free(listeners[i]));
        TRY(it_ep_free(eps[i]));
        TRY(it_lmr_free(lmrs[i]));
        TRY(it_evd_free(fed[i]));
    }
    return 0;
}

static int run_many(void)
{
    int status;
    if ((status = open_queues()) != 0 || (status = open_many()) != 0 ||
        (status = connect_many()) != 0)
        return status;
    return close_many();
}

static int run_peers(void)
{
    it_conn_qual_t port;
    it_event_t event;
    char line[16];
    int status, length;
    if ((status = open_queues()) != 0 || (status = listen_at(0, &port)) != 0)
        return status;
    length = snprintf(line, sizeof line, "%u\n", ntohs(port.conn_qual.port));
    refuse_memory(1);
    if (write(1, line, (size_t)length) != length || read(0, line, 1) < 0)
        return 5;
    refuse_memory(0);
    TRY(it_evd_wait(request, LONGEST, &event, NULL));
    return 0;
}

int main(int count, char **arguments)
{
    const char *few = getenv("LISTENERS");
    int status;
    if (few != NULL)
        listening = atoi(few);
    status = count == 2 && strcmp(arguments[1], "peers") == 0 ? run_peers() : run_many();
    /* Closes all open objects, also while memory is refused. */
    if (ia != NULL)
        it_ia_free(ia);
    return status;
}
