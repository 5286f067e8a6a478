/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * rnicpi_cm.h: the part of rnicpi.h about providers with a connection manager of their own. Include
 * rnicpi.h, which includes this; its rules hold here, too.
 */
#ifndef WARPLINE_RNICPI_CM_H
#define WARPLINE_RNICPI_CM_H

#ifndef WARPLINE_RNICPI_H
#error "include rnicpi.h"
#endif

typedef struct ri_cm_params {
    uint32_t size;
    uint32_t ird, ord, private_len;
    const uint8_t *private_data;
} ri_cm_params;

/* In the order in which they happen: nothing of a connection comes before its ESTABLISHED [RI-146]. */
#define RI_CM_REQUEST 1      /* listener, request, peer, params: IRD and ORD are the peer's [RI-114] */
#define RI_CM_ESTABLISHED 2  /* qp, params: IRD and ORD are this end's, as they are now in force
                              * [RI-115] */
#define RI_CM_REJECTED 3     /* qp, params.private_data [RI-116] */
#define RI_CM_FAILED 4       /* qp, reason: a sentence [RI-117] */
#define RI_CM_DISCONNECTED 5 /* qp; once for each connection that was established, whichever end ended it
                              * [RI-118] */

typedef struct ri_cm_event {
    uint32_t size;
    uint32_t kind;
    uint64_t listener, request;
    uint32_t qp;
    uint32_t reserved;
    ri_address peer;
    const ri_cm_params *params; /* NULL: none */
    ri_string reason;
    /* Since 1.4, of RI_CM_REQUEST and RI_CM_ESTABLISHED: the address of this end, of the very connection
     * [RI-161]; family 0: not known. */
    ri_address local;
} ri_cm_event;

typedef void (*ri_cm_event_fn)(void *receiver, const ri_cm_event *event);

/* All entries required. */
typedef struct ri_cm_ops {
    uint32_t size;
    uint32_t reserved;
    void (*release)(ri_cm *cm);
    /* bound: address with the real port [RI-119]. */
    ri_status (*listen)(ri_cm *cm, const ri_address *address, uint32_t backlog,
                        uint64_t *listener, ri_address *bound, ri_error *error);
    /* No peer connects to it any more [RI-147]. Requests that were reported stay until they are
     * accepted or rejected [RI-205]; the provider rejects the others, or still reports them. */
    ri_status (*unlisten)(ri_cm *cm, uint64_t listener, ri_error *error);
    ri_status (*connect)(ri_cm *cm, uint32_t qp, const ri_address *peer,
                         const ri_cm_params *params, ri_error *error);
    ri_status (*accept)(ri_cm *cm, uint64_t request, uint32_t qp, const ri_cm_params *params,
                        ri_error *error);
    ri_status (*reject)(ri_cm *cm, uint64_t request, const uint8_t *private_data, uint32_t len,
                        ri_error *error);
    ri_status (*disconnect)(ri_cm *cm, uint32_t qp, ri_error *error);
    /* Gives the next event, if any, to fn, once [RI-120]. */
    void (*poll_event)(ri_cm *cm, void *receiver, ri_cm_event_fn fn);
    /* Waits for an event; *ready 0 after the time-out [RI-121]. Nothing interrupts it: the host waits for a
     * fraction of a second at a time, and releases the manager when no wait is under way. */
    ri_status (*wait_event)(ri_cm *cm, uint64_t timeout_ns, uint32_t *ready, ri_error *error);
} ri_cm_ops;

typedef struct ri_cm_made {
    uint32_t size;
    uint32_t reserved;
    ri_cm *cm;
    const ri_cm_ops *ops;
} ri_cm_made;

#endif
