/* vendor_loop: shared declarations. One lock, `big`, protects all state; calls to the host
 * (notifications, releases) are deferred until it is unlocked. */
#ifndef VENDOR_LOOP_H
#define VENDOR_LOOP_H

#define _POSIX_C_SOURCE 200809L
#define RI_BUILDING_PROVIDER
#include <pthread.h>
#include <rnicpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_OBJECTS = 256, MAX_DEPTH = 1024, MAX_CQE = 4096, MAX_SGE = 4, MAX_INLINE = 64 };
enum { MAX_READS = 16 };     /* IRD and ORD */
enum { MAX_PRIVATE = 256 }; /* octets of private data */

/* Copies a struct of the host, up to the smaller of both sizes; the rest is zero. */
#define TAKE(type, name, from)                                                                     \
    type name;                                                                                     \
    memset(&name, 0, sizeof name);                                                                 \
    memcpy(&name, from, (from)->size < sizeof name ? (from)->size : sizeof name)

/* Copies a struct to the host, up to the smaller of both sizes. */
#define GIVE(to, name)                                                                             \
    do {                                                                                           \
        uint32_t both = (to)->size < sizeof name ? (to)->size : (uint32_t)sizeof name;             \
        memcpy(to, &name, both);                                                                   \
        (to)->size = both;                                                                         \
    } while (0)

/* The lock, and the condition variable of all waits. */
extern pthread_mutex_t big;
extern pthread_cond_t bell;

struct pd {
    int used;
    uint32_t users;
};

struct region {
    int used;
    uint32_t key, pd, access;
    ri_range range;
};

/* A completion, and how many slots of its queue polling it frees. */
struct completed {
    ri_wc wc;
    uint32_t slots;
};

struct ri_cq {
    struct ri_rnic *rnic;
    uint32_t id, depth, users, head, count, armed, interrupts;
    int destroyed, released, overrun;
    ri_keep keep;
    void (*call)(void *context, uint32_t cq);
    struct completed *ring;
};

struct receive {
    uint64_t wr_id;
    uint32_t count;
    ri_sge sgl[MAX_SGE];
};

struct ri_qp {
    struct ri_rnic *rnic;
    struct ri_qp *peer;
    struct ri_cq *send_cq, *recv_cq;
    uint32_t id, pd, state, send_depth, recv_depth, allow, head, count;
    uint32_t most_ird, most_ord; /* as created */
    uint32_t ird, ord;           /* those in force; both ends agree on them when they connect */
    /* Slots in use: of sends; of those, the ones that ended without a completion; of receives that
     * completed and whose completions were not polled. */
    uint32_t sends, silent, recvs_waiting;
    uint32_t sends_lost, recvs_lost; /* of this stream */
    int destroyed, released;
    struct receive *ring;
};

struct event {
    struct event *next;
    ri_cm_event said;
    ri_cm_params params;
    uint8_t data[MAX_PRIVATE];
};

struct ri_cm {
    struct event *first, **last;
};

struct ri_rnic {
    struct ri_rnic *next;
    struct ri_cm cm;
    struct pd pds[MAX_OBJECTS];
    struct region regions[MAX_OBJECTS];
    struct ri_cq *cqs[MAX_OBJECTS];
    struct ri_qp *qps[MAX_OBJECTS];
    uint32_t most_qps; /* as configured */
    uint32_t qp_count;
    uint32_t made; /* counts objects, so that ids are not reused soon */
};

/* Calls to the host that are deferred until the lock is released. */
struct later {
    int count;
    struct {
        ri_keep keep;
        void (*call)(void *context, uint32_t cq);
        uint32_t cq;
    } list[8];
};

/* Ids are slot + MAX_OBJECTS * a number that counts up. */
uint32_t new_id(struct ri_rnic *rnic, int (*is_free)(struct ri_rnic *rnic, uint32_t slot));
#define SLOT(id) ((id) % MAX_OBJECTS)

ri_status refuse(ri_error *error, ri_status status, const char *detail);
int wait_until(const struct timespec *deadline); /* with `big` locked; 0 after the deadline */
const struct timespec *deadline_in(struct timespec *room, uint64_t timeout_ns);
void run_later(struct later *later);

/* cq.c */
ri_status cq_create(ri_rnic *, const ri_cq_init *, ri_cq_made *, ri_error *);
ri_status cq_destroy(ri_rnic *, uint32_t, ri_error *);
struct ri_cq *cq_find(ri_rnic *, uint32_t id);
void cq_push(struct ri_cq *, const ri_wc *, uint32_t slots, int solicited, struct later *);
void cq_forget(struct ri_cq *, uint32_t qp);

/* qp.c */
ri_status qp_create(ri_rnic *, const ri_qp_init *, ri_qp_made *, ri_error *);
ri_status qp_destroy(ri_rnic *, uint32_t, ri_error *);
struct ri_qp *qp_find(ri_rnic *, uint32_t id);
void qp_break(struct ri_qp *, struct later *); /* to Error, flushing, with its peer */
void qp_taken(struct ri_qp *, const struct completed *); /* one of its completions was polled */

/* memory.c */
ri_status mr_register(ri_rnic *, const ri_mr_init *, uint32_t *, ri_error *);
ri_status mr_dealloc(ri_rnic *, uint32_t, ri_error *);
/* The memory of an element, or NULL and sets the status. */
unsigned char *mr_reach(ri_rnic *, uint32_t pd, const ri_sge *, uint32_t access, uint32_t *why);

/* calls.c: the table of vendor calls of that name, or NULL */
const void *calls_named(const char *name, size_t len);

/* cm.c */
ri_status cm_make(ri_rnic *, ri_cm_made *, ri_error *);
void cm_tell(ri_rnic *, uint32_t kind, uint32_t qp, const ri_cm_event *, const ri_cm_params *);
void cm_forget(ri_rnic *);
void cm_forget_qp(struct ri_qp *);

#endif
