/*
 * Shared by the example programs: options, octet order, error messages, listening, and waiting for
 * a connection event. One thread; no state.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#define _POSIX_C_SOURCE 200809L
#define ITAPI_ENABLE_V21_BINDINGS

#include <arpa/inet.h>
#include <it_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Time-out in microseconds, so that nothing hangs. */
#define PATIENCE ((uint64_t)20 * 1000 * 1000)
/* The request has a completion, which notifies a waiting thread. */
#define SIGNALLED (IT_COMPLETION_FLAG | IT_NOTIFY_FLAG)

/* Returns false from the function when a call of the library fails. */
#define TRY(call)                     \
    do {                              \
        if (!succeeded((call), #call)) \
            return false;             \
    } while (0)

static inline bool succeeded(it_status_t status, const char *call)
{
    char why[512] = "";
    if (status == IT_SUCCESS)
        return true;
    itw_last_error(why, sizeof why);
    fprintf(stderr, "%.*s: %s: %s\n", (int)strcspn(call, "("), call, itw_strerror(status), why);
    return false;
}

/* Prints what an unexpected event means. */
static inline bool complain(const it_event_t *event)
{
    char text[512];
    itw_event_text(event, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return false;
}

static inline bool fail(const char *text)
{
    fprintf(stderr, "%s\n", text);
    return false;
}

/* Removes "name value" from the arguments; returns the fallback if it is not there. */
static inline const char *option(int *argc, char **argv, const char *name, const char *fallback)
{
    for (int at = 1; at + 1 < *argc; at++) {
        if (strcmp(argv[at], name) == 0) {
            const char *value = argv[at + 1];
            memmove(argv + at, argv + at + 2, (size_t)(*argc - at - 1) * sizeof *argv);
            *argc -= 2;
            return value;
        }
    }
    return fallback;
}

static inline void put32(unsigned char *at, uint32_t value)
{
    value = htonl(value);
    memcpy(at, &value, sizeof value);
}

static inline uint32_t get32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ntohl(value);
}

static inline void put64(unsigned char *at, uint64_t value)
{
    value = it_hton64(value);
    memcpy(at, &value, sizeof value);
}

static inline uint64_t get64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return it_ntoh64(value);
}

/* Microseconds of the monotonic clock. */
static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Memory of the peer: key (4 octets), address and length (8 each). */
#define RANGE_OCTETS 20

static inline void put_range(unsigned char *at, it_rmr_context_t key, void *memory,
                             size_t length)
{
    put32(at, (uint32_t)key);
    put64(at + 4, it_make_rdma_addr_absolute(memory));
    put64(at + 12, length);
}

/* Connection handling: listens; requests go to an event dispatcher. */
static inline bool listen_at(it_ia_handle_t ia, const char *address, it_evd_handle_t *requests)
{
    char at[64];
    it_listen_handle_t listen;
    TRY(it_evd_create(ia, IT_CM_REQ_EVENT_STREAM, 0, 64, 1, IT_NULL_HANDLE, requests, NULL));
    TRY(itw_listen(ia, address, *requests, &listen));
    itw_listen_address(listen, at, sizeof at);
    printf("listening at %s\n", at);
    fflush(stdout);
    return true;
}

/* Connection handling: waits for a connection event; prints an unexpected one. */
static inline bool expect(it_evd_handle_t events, it_event_type_t wanted, it_event_t *event)
{
    TRY(it_evd_wait(events, PATIENCE, event, NULL));
    return event->event_number == wanted || complain(event);
}

#endif
