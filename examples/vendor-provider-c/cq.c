/* vendor_loop: completion queues. */
#include "vendor_loop.h"

static int is_free(struct ri_rnic *rnic, uint32_t slot) { return rnic->cqs[slot] == NULL; }

struct ri_cq *cq_find(ri_rnic *rnic, uint32_t id)
{
    struct ri_cq *cq = rnic->cqs[SLOT(id)];
    return cq != NULL && cq->id == id ? cq : NULL;
}

/* With the lock: queues a completion, and a notification if one is armed. */
void cq_push(struct ri_cq *cq, const ri_wc *wc, uint32_t slots, int solicited, struct later *later)
{
    if (cq->count == cq->depth) {
        cq->overrun = 1;
    } else {
        struct completed *entry = &cq->ring[(cq->head + cq->count++) % cq->depth];
        entry->wc = *wc;
        entry->slots = slots;
    }
    pthread_cond_broadcast(&bell);
    int counts = cq->armed == 1 || (cq->armed == 2 && (solicited || wc->status != RI_WC_SUCCESS));
    if (!counts || cq->call == NULL || later->count == 8)
        return;
    cq->armed = 0;
    if (cq->keep.retain != NULL)
        cq->keep.retain(cq->keep.context);
    later->list[later->count].keep = cq->keep;
    later->list[later->count].call = cq->call;
    later->list[later->count++].cq = cq->id;
}

/* With the lock: removes the completions of a QP; the others keep their order. */
void cq_forget(struct ri_cq *cq, uint32_t qp)
{
    uint32_t count = cq->count;
    cq->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct completed entry = cq->ring[(cq->head + i) % cq->depth];
        if (entry.wc.qp != qp)
            cq->ring[(cq->head + cq->count++) % cq->depth] = entry;
    }
}

static uint32_t depth(ri_cq *cq) { return cq->depth; }

static ri_status poll(ri_cq *cq, ri_wc *wcs, uint32_t wc_size, uint32_t max, uint32_t *count)
{
    ri_status status = RI_OK;
    size_t both = wc_size < sizeof(ri_wc) ? wc_size : sizeof(ri_wc);
    pthread_mutex_lock(&big);
    uint32_t n = cq->count < max ? cq->count : max;
    for (uint32_t i = 0; i < n; i++) {
        const struct completed *entry = &cq->ring[(cq->head + i) % cq->depth];
        struct ri_qp *qp = qp_find(cq->rnic, entry->wc.qp);
        memcpy((char *)wcs + (size_t)i * wc_size, &entry->wc, both);
        if (qp != NULL)
            qp_taken(qp, entry);
    }
    cq->head = (cq->head + n) % cq->depth;
    cq->count -= n;
    if (cq->destroyed)
        status = RI_INVALID_HANDLE;
    else if (n == 0 && cq->overrun)
        status = RI_CQ_OVERRUN;
    pthread_mutex_unlock(&big);
    *count = n;
    return status;
}

static ri_status arm(ri_cq *cq, uint32_t solicited_only)
{
    pthread_mutex_lock(&big);
    ri_status status = cq->destroyed ? RI_INVALID_HANDLE : RI_OK;
    cq->armed = solicited_only != 0 ? 2 : 1;
    pthread_mutex_unlock(&big);
    return status;
}

static ri_status wait(ri_cq *cq, uint64_t spin_ns, uint64_t timeout_ns, uint32_t *ready)
{
    struct timespec room;
    const struct timespec *deadline = deadline_in(&room, timeout_ns);
    (void)spin_ns; /* spinning gains nothing: peers are in this process */
    pthread_mutex_lock(&big);
    uint32_t before = cq->interrupts;
    while (cq->count == 0 && !cq->overrun && !cq->destroyed && cq->interrupts == before)
        if (!wait_until(deadline))
            break;
    *ready = cq->count != 0 || cq->overrun;
    ri_status status = cq->destroyed ? RI_INVALID_HANDLE : RI_OK;
    pthread_mutex_unlock(&big);
    return status;
}

static void interrupt(ri_cq *cq)
{
    pthread_mutex_lock(&big);
    cq->interrupts++;
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&big);
}

/* The object is freed when it is both destroyed and released. */
static void drop(struct ri_cq *cq)
{
    ri_keep keep = cq->keep;
    free(cq->ring);
    free(cq);
    if (keep.release != NULL)
        keep.release(keep.context);
}

static void release(ri_cq *cq)
{
    pthread_mutex_lock(&big);
    int last = cq->destroyed;
    cq->released = 1;
    pthread_mutex_unlock(&big);
    if (last)
        drop(cq);
}

static const ri_cq_ops ops = {
    .size = sizeof ops,
    .release = release,
    .depth = depth,
    .poll = poll,
    .arm = arm,
    .wait = wait,
    .interrupt = interrupt,
};

ri_status cq_create(ri_rnic *rnic, const ri_cq_init *from, ri_cq_made *out, ri_error *error)
{
    TAKE(ri_cq_init, init, from);
    ri_cq_made made = {sizeof made, 0, NULL, &ops};
    if (init.depth == 0)
        return refuse(error, RI_INVALID_MODIFIER, "a CQ has one entry at least");
    if (init.depth > MAX_CQE)
        return refuse(error, RI_INSUFFICIENT_RESOURCES, "a CQ has at most 4096 entries");
    struct ri_cq *cq = calloc(1, sizeof *cq);
    struct completed *ring = calloc(init.depth, sizeof *ring);
    pthread_mutex_lock(&big);
    uint32_t id = cq != NULL && ring != NULL ? new_id(rnic, is_free) : 0;
    if (id != 0) {
        cq->rnic = rnic;
        cq->id = made.id = id;
        cq->depth = init.depth;
        cq->keep = init.keep;
        cq->call = init.call;
        cq->ring = ring;
        rnic->cqs[SLOT(id)] = made.cq = cq;
        if (init.keep.retain != NULL)
            init.keep.retain(init.keep.context);
    }
    pthread_mutex_unlock(&big);
    if (id == 0) {
        free(cq);
        free(ring);
        return refuse(error, RI_INSUFFICIENT_RESOURCES, "no memory or no free CQ");
    }
    GIVE(out, made);
    return RI_OK;
}

ri_status cq_destroy(ri_rnic *rnic, uint32_t id, ri_error *error)
{
    ri_status status = RI_OK;
    pthread_mutex_lock(&big);
    struct ri_cq *cq = cq_find(rnic, id);
    if (cq == NULL)
        status = RI_INVALID_HANDLE;
    else if (cq->users != 0)
        status = RI_IN_USE;
    int last = 0;
    if (status == RI_OK) {
        rnic->cqs[SLOT(id)] = NULL;
        cq->destroyed = 1;
        last = cq->released;
        pthread_cond_broadcast(&bell);
    }
    pthread_mutex_unlock(&big);
    if (last)
        drop(cq);
    return status == RI_OK ? RI_OK : refuse(error, status, "the CQ is in use or does not exist");
}
