/*
 * What the example programs share and what is not about RDMA: options, addresses, octet order,
 * complaints. One thread; no state.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#define _POSIX_C_SOURCE 200809L
#define ITAPI_ENABLE_V21_BINDINGS

#include <arpa/inet.h>
#include <it_api.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Microseconds; far more than any answer takes. */
#define PATIENCE ((uint64_t)20 * 1000 * 1000)
/* The completion is an event, and wakes whoever waits. */
#define SIGNALLED (IT_COMPLETION_FLAG | IT_NOTIFY_FLAG)

/* Leaves the function, which returns bool, when a call of the library does not succeed. */
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

/* Says what an unwelcome event means. */
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

/* Takes "name value" out of the arguments; the fallback if it is not there. */
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

static inline bool wrong_address(const char *text, const char *why)
{
    fprintf(stderr, "`%s`: %s; an address is HOST:PORT, such as 127.0.0.1:7174\n", text, why);
    return false;
}

/* An address "HOST:PORT", IPv4. */
static inline bool parse_address(const char *text, struct sockaddr_in *address)
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

/* Memory of the peer: key (4 octets), address and length (8 each). */
#define RANGE_OCTETS 20

static inline void put_range(unsigned char *at, it_rmr_context_t key, void *memory,
                             size_t length)
{
    put32(at, (uint32_t)key);
    put64(at + 4, it_make_rdma_addr_absolute(memory));
    put64(at + 12, length);
}

/* Connection handling: the spigot that has an address; 0 if none has. */
static inline size_t spigot_of(it_ia_handle_t ia, struct in_addr ip)
{
    it_ia_info_t *info;
    size_t spigot = 0;
    if (!succeeded(it_ia_query(ia, &info), "it_ia_query"))
        return 0;
    for (size_t at = 0; at < info->num_spigots; at++)
        for (size_t n = 0; n < info->spigot_info[at].num_net_addr; n++)
            if (info->spigot_info[at].net_addr[n].addr.ipv4.s_addr == ip.s_addr)
                spigot = info->spigot_info[at].spigot_id;
    it_ia_info_free(info);
    return spigot;
}

#endif
