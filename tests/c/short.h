/*
 * Shared by programs that run without memory: they report failures without allocating, and exit with status 3
 * if a call returned an error, 4 if a wait timed out.
 */
#ifndef SHORT_H
#define SHORT_H

#include <it_api.h>

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* stdio would allocate. */
static inline void print(const char *text)
{
    if (write(2, text, strlen(text)) < 0)
        _exit(5);
}

/* The provider's name: SoftRDMA's, or another that the environment gives. */
static inline const char *provider(void)
{
    const char *name = getenv("PROVIDER");
    return name == NULL ? "vp_softrdma" : name;
}

/* Prints the reason and exits in order: the library closes open objects. */
static inline int failed(const char *what, it_status_t status)
{
    char why[600];
    itw_last_error(why, sizeof why);
    print(what);
    print(": ");
    print(itw_strerror(status));
    print("; ");
    print(why);
    print("\n");
    return status == IT_ERR_TIMEOUT_EXPIRED ? 4 : 3;
}

#define TRY(call)                                                                                   \
    do {                                                                                            \
        it_status_t status = (call);                                                                \
        if (status != IT_SUCCESS)                                                                   \
            return failed(#call, status);                                                           \
    } while (0)

/* Attributes of an endpoint for messages of some octets and some outstanding requests. */
static inline it_ep_attributes_t attributes(size_t octets, size_t depth)
{
    it_ep_attributes_t wanted;
    memset(&wanted, 0, sizeof wanted);
    wanted.max_dto_payload_size = octets;
    wanted.max_request_dtos = depth;
    wanted.max_recv_dtos = depth;
    wanted.max_send_segments = wanted.max_recv_segments = 2;
    wanted.srv.rc.rdma_read_enable = wanted.srv.rc.rdma_write_enable = IT_TRUE;
    wanted.srv.rc.max_rdma_read_segments = wanted.srv.rc.max_rdma_write_segments = 1;
    wanted.srv.rc.rdma_read_ird = wanted.srv.rc.rdma_read_ord = 4;
    wanted.srv.rc.hard_hi_watermark = IT_HARD_HI_WATERMARK_DISABLE;
    return wanted;
}

/* A path to this machine. */
static inline it_path_t path_here(uint64_t timeout)
{
    it_path_t path;
    memset(&path, 0, sizeof path);
    path.timeout = timeout;
    path.remote.iwarp.ip_vers = IT_IP_VERS_IPV4;
    path.remote.iwarp.raddr.ipv4.s_addr = htonl(INADDR_LOOPBACK);
    return path;
}

#endif
