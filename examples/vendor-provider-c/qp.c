/* vendor_loop: queue pairs. A post executes the request at once, under the lock. */
#include "vendor_loop.h"

static int is_free(struct ri_rnic *rnic, uint32_t slot) { return rnic->qps[slot] == NULL; }

struct ri_qp *qp_find(ri_rnic *rnic, uint32_t id)
{
    struct ri_qp *qp = rnic->qps[SLOT(id)];
    return qp != NULL && qp->id == id ? qp : NULL;
}

static ri_wc completion(const struct ri_qp *qp, uint64_t wr_id, uint32_t opcode, uint32_t status)
{
    ri_wc wc;
    memset(&wc, 0, sizeof wc);
    wc.size = sizeof wc;
    wc.opcode = opcode;
    wc.wr_id = wr_id;
    wc.qp = qp->id;
    wc.status = status;
    return wc;
}

void qp_taken(struct ri_qp *qp, const struct completed *entry)
{
    if (entry->wc.opcode == RI_WC_RECV)
        qp->recvs_waiting -= entry->slots;
    else
        qp->sends -= entry->slots;
}

static void complete_recv(struct ri_qp *qp, const ri_wc *wc, int solicited, struct later *later)
{
    qp->recvs_waiting++;
    qp->recvs_lost += wc->status != RI_WC_SUCCESS;
    cq_push(qp->recv_cq, wc, 1, solicited, later);
}

static void flush(struct ri_qp *qp, struct later *later)
{
    for (; qp->count != 0; qp->count--, qp->head = (qp->head + 1) % qp->recv_depth) {
        ri_wc wc = completion(qp, qp->ring[qp->head].wr_id, RI_WC_RECV, RI_WC_FLUSHED);
        complete_recv(qp, &wc, 0, later);
    }
}

void qp_break(struct ri_qp *qp, struct later *later)
{
    struct ri_qp *peer = qp->peer;
    qp->peer = NULL;
    qp->state = RI_QP_ERROR;
    flush(qp, later);
    if (peer != NULL) {
        peer->peer = NULL;
        flush(peer, later);
        peer->state = RI_QP_ERROR;
        cm_tell(peer->rnic, RI_CM_DISCONNECTED, peer->id, NULL, NULL);
    }
}

/* Copies between a scatter/gather list and one piece of memory. Returns the octets, or -1 and sets
 * the status. */
static int64_t gather(struct ri_qp *qp, const ri_sge *sgl, uint32_t count, unsigned char *out,
                      uint64_t room, uint32_t *why)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sgl[i].len == 0)
            continue;
        unsigned char *from = mr_reach(qp->rnic, qp->pd, &sgl[i], RI_ACCESS_LOCAL_READ, why);
        if (from == NULL)
            return -1;
        if (sgl[i].len > room - done) {
            *why = RI_WC_INVALID_LENGTH;
            return -1;
        }
        if (out != NULL)
            memcpy(out + done, from, sgl[i].len);
        done += sgl[i].len;
    }
    return (int64_t)done;
}

static uint64_t total(const ri_sge *sgl, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += sgl[i].len;
    return sum;
}

/* The payload of a request in one allocated piece, or NULL and sets the status. */
static unsigned char *payload(struct ri_qp *qp, const ri_send_wr *wr, uint32_t *len, uint32_t *why)
{
    uint64_t sum = (wr->flags & RI_SEND_INLINE) ? wr->count : total(wr->data, wr->count);
    unsigned char *out = malloc(sum + 1);
    *len = (uint32_t)sum;
    *why = RI_WC_LOCAL_CATASTROPHIC;
    if (out == NULL || sum > UINT32_C(1) << 30) {
        free(out);
        return NULL;
    }
    if ((wr->flags & RI_SEND_INLINE) != 0) {
        memcpy(out, wr->data, sum);
    } else if (gather(qp, wr->data, wr->count, out, sum, why) < 0) {
        free(out);
        return NULL;
    }
    return out;
}

static uint32_t do_send(struct ri_qp *qp, const ri_send_wr *wr, struct later *later)
{
    struct ri_qp *peer = qp->peer;
    uint32_t len, why;
    unsigned char *octets = payload(qp, wr, &len, &why);
    if (octets == NULL)
        return why;
    if (peer->count == 0) {
        free(octets);
        return RI_WC_REMOTE_TERMINATION;
    }
    struct receive *receive = &peer->ring[peer->head];
    uint32_t status = total(receive->sgl, receive->count) < len ? RI_WC_BOUNDS : RI_WC_SUCCESS;
    uint32_t done = 0;
    for (uint32_t i = 0; i < receive->count && done < len && status == RI_WC_SUCCESS; i++) {
        ri_sge piece = receive->sgl[i];
        piece.len = piece.len < len - done ? piece.len : len - done;
        if (piece.len == 0)
            continue;
        unsigned char *to = mr_reach(peer->rnic, peer->pd, &piece, RI_ACCESS_LOCAL_WRITE, &status);
        if (to != NULL)
            memcpy(to, octets + done, piece.len);
        done += piece.len;
    }
    free(octets);
    ri_wc wc = completion(peer, receive->wr_id, RI_WC_RECV, status);
    wc.octets = len;
    wc.flags = (wr->flags & RI_SEND_SOLICITED) != 0 ? RI_WC_FLAG_SOLICITED : 0;
    peer->head = (peer->head + 1) % peer->recv_depth;
    peer->count--;
    complete_recv(peer, &wc, wc.flags != 0, later);
    return status == RI_WC_SUCCESS ? RI_WC_SUCCESS : RI_WC_REMOTE_TERMINATION;
}

static uint32_t do_write(struct ri_qp *qp, const ri_send_wr *wr)
{
    uint32_t len, why;
    unsigned char *octets = payload(qp, wr, &len, &why);
    if (octets == NULL)
        return why;
    ri_sge at = {wr->stag, len, wr->to};
    unsigned char *to = NULL;
    if (len != 0 && (qp->peer->allow & RI_ACCESS_REMOTE_WRITE) != 0)
        to = mr_reach(qp->peer->rnic, qp->peer->pd, &at, RI_ACCESS_REMOTE_WRITE, &why);
    if (to != NULL)
        memcpy(to, octets, len);
    free(octets);
    return len == 0 || to != NULL ? RI_WC_SUCCESS : RI_WC_REMOTE_TERMINATION;
}

static uint32_t do_read(struct ri_qp *qp, const ri_send_wr *wr)
{
    uint32_t why = RI_WC_INVALID_WQE;
    const ri_sge *sink = wr->data;
    if (wr->count != 1)
        return why;
    if (sink->len == 0)
        return RI_WC_SUCCESS;
    ri_sge at = {wr->stag, sink->len, wr->to};
    unsigned char *to = mr_reach(qp->rnic, qp->pd, sink, RI_ACCESS_LOCAL_WRITE, &why);
    if (to == NULL)
        return why;
    unsigned char *from = NULL;
    if ((qp->peer->allow & RI_ACCESS_REMOTE_READ) != 0)
        from = mr_reach(qp->peer->rnic, qp->peer->pd, &at, RI_ACCESS_REMOTE_READ, &why);
    if (from == NULL)
        return RI_WC_REMOTE_TERMINATION;
    memmove(to, from, sink->len);
    return RI_WC_SUCCESS;
}

static void execute(struct ri_qp *qp, const ri_send_wr *wr, struct later *later)
{
    static const uint32_t kinds[] = {0, RI_WC_SEND, RI_WC_WRITE, 0, 0, RI_WC_READ};
    uint32_t status = RI_WC_FLUSHED;
    if (qp->state == RI_QP_RTS && wr->opcode == RI_OP_SEND)
        status = do_send(qp, wr, later);
    else if (qp->state == RI_QP_RTS && wr->opcode == RI_OP_WRITE)
        status = do_write(qp, wr);
    else if (qp->state == RI_QP_RTS)
        status = do_read(qp, wr);
    qp->sends++;
    qp->silent++;
    qp->sends_lost += status != RI_WC_SUCCESS;
    if (status != RI_WC_SUCCESS || (wr->flags & RI_SEND_SIGNALED) != 0) {
        ri_wc wc = completion(qp, wr->wr_id, kinds[wr->opcode], status);
        if (wr->opcode == RI_OP_READ && status == RI_WC_SUCCESS)
            wc.octets = ((const ri_sge *)wr->data)->len;
        /* Polling it also frees the slots of the unsignalled requests before it. */
        uint32_t slots = qp->silent;
        qp->silent = 0;
        cq_push(qp->send_cq, &wc, slots, 0, later);
    }
    if (status != RI_WC_SUCCESS && qp->state == RI_QP_RTS) {
        cm_tell(qp->rnic, RI_CM_DISCONNECTED, qp->id, NULL, NULL);
        qp_break(qp, later);
    }
}

static ri_status acceptable(const struct ri_qp *qp, const ri_send_wr *wr)
{
    uint32_t known = RI_SEND_SIGNALED | RI_SEND_READ_FENCE | RI_SEND_LOCAL_FENCE
                     | RI_SEND_SOLICITED | RI_SEND_INLINE;
    if (qp->destroyed)
        return RI_INVALID_HANDLE;
    if (qp->state == RI_QP_IDLE)
        return RI_INVALID_STATE;
    if (wr->opcode != RI_OP_SEND && wr->opcode != RI_OP_WRITE && wr->opcode != RI_OP_READ)
        return RI_INVALID_WR;
    if ((wr->flags & ~known) != 0 || wr->reserved != 0)
        return RI_INVALID_WR;
    if (wr->count > ((wr->flags & RI_SEND_INLINE) ? MAX_INLINE : MAX_SGE))
        return RI_INVALID_SGL;
    return qp->sends == qp->send_depth ? RI_TOO_MANY_WRS : RI_OK;
}

static ri_status post_send(ri_qp *qp, const ri_send_wr *wrs, uint32_t count, uint32_t *posted)
{
    ri_status status = RI_OK;
    uint32_t stride = count != 0 ? wrs->size : 0;
    for (*posted = 0; *posted < count && status == RI_OK; *posted += status == RI_OK) {
        const ri_send_wr *from = (const void *)((const char *)wrs + (size_t)*posted * stride);
        TAKE(ri_send_wr, wr, from);
        struct later later = {0};
        pthread_mutex_lock(&big);
        status = acceptable(qp, &wr);
        if (status == RI_OK)
            execute(qp, &wr, &later);
        pthread_mutex_unlock(&big);
        run_later(&later);
    }
    return status;
}

static ri_status take_receive(struct ri_qp *qp, const ri_recv_wr *wr, struct later *later)
{
    if (qp->destroyed)
        return RI_INVALID_HANDLE;
    if (wr->count > MAX_SGE)
        return RI_INVALID_SGL;
    if (qp->count + qp->recvs_waiting == qp->recv_depth)
        return RI_TOO_MANY_WRS;
    struct receive *receive = &qp->ring[(qp->head + qp->count++) % qp->recv_depth];
    receive->wr_id = wr->wr_id;
    receive->count = wr->count;
    if (wr->count != 0)
        memcpy(receive->sgl, wr->sgl, wr->count * sizeof *wr->sgl);
    if (qp->state == RI_QP_ERROR)
        flush(qp, later);
    return RI_OK;
}

static ri_status post_recv(ri_qp *qp, const ri_recv_wr *wrs, uint32_t count, uint32_t *posted)
{
    ri_status status = RI_OK;
    uint32_t stride = count != 0 ? wrs->size : 0;
    for (*posted = 0; *posted < count && status == RI_OK; *posted += status == RI_OK) {
        const ri_recv_wr *from = (const void *)((const char *)wrs + (size_t)*posted * stride);
        TAKE(ri_recv_wr, wr, from);
        struct later later = {0};
        pthread_mutex_lock(&big);
        status = take_receive(qp, &wr, &later);
        pthread_mutex_unlock(&big);
        run_later(&later);
    }
    return status;
}

static ri_status modify(ri_qp *qp, const ri_qp_change *from, ri_error *error)
{
    TAKE(ri_qp_change, change, from);
    struct later later = {0};
    ri_status status = RI_OK;
    pthread_mutex_lock(&big);
    if (qp->destroyed)
        status = RI_INVALID_HANDLE;
    else if (change.kind == RI_QP_TO_ERROR || change.kind == RI_QP_TO_TERMINATE
             || change.kind == RI_QP_TO_CLOSING) {
        if (qp->peer != NULL)
            cm_tell(qp->rnic, RI_CM_DISCONNECTED, qp->id, NULL, NULL);
        qp_break(qp, &later);
    } else if (change.kind == RI_QP_TO_IDLE && qp->state == RI_QP_ERROR) {
        qp->state = RI_QP_IDLE;
        qp->sends -= qp->silent;
        qp->silent = qp->sends_lost = qp->recvs_lost = 0;
        qp->ird = qp->most_ird;
        qp->ord = qp->most_ord;
    } else if (change.kind == RI_QP_LIMITS)
        status = RI_CANNOT_CHANGE;
    else /* of a newer header, or of a capability that there is not */
        status = change.kind > RI_QP_LIMITS ? RI_UNSUPPORTED : RI_INVALID_STATE;
    pthread_mutex_unlock(&big);
    run_later(&later);
    return status == RI_OK ? RI_OK : refuse(error, status, "the QP cannot change so");
}

static ri_status query(ri_qp *qp, ri_qp_info *out, ri_error *error)
{
    ri_qp_info info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    pthread_mutex_lock(&big);
    int destroyed = qp->destroyed;
    info.id = qp->id;
    info.state = qp->state;
    info.send_depth = qp->send_depth;
    info.recv_depth = qp->recv_depth;
    info.recvs_outstanding = qp->count;
    info.sends_lost = qp->sends_lost;
    info.recvs_lost = qp->recvs_lost;
    info.ird = qp->ird;
    info.ord = qp->ord;
    pthread_mutex_unlock(&big);
    if (destroyed)
        return refuse(error, RI_INVALID_HANDLE, "the QP was destroyed");
    GIVE(out, info);
    return RI_OK;
}

/* The object is freed when it is both destroyed and released. */
static void drop(struct ri_qp *qp)
{
    free(qp->ring);
    free(qp);
}

static void release(ri_qp *qp)
{
    pthread_mutex_lock(&big);
    int last = qp->destroyed;
    qp->released = 1;
    pthread_mutex_unlock(&big);
    if (last)
        drop(qp);
}

static const ri_qp_ops ops = {
    .size = sizeof ops,
    .release = release,
    .post_send = post_send,
    .post_recv = post_recv,
    .modify = modify,
    .query = query,
};

static const char *impossible(ri_rnic *rnic, const ri_qp_init *init)
{
    if (cq_find(rnic, init->send_cq) == NULL || cq_find(rnic, init->recv_cq) == NULL)
        return "there is no such CQ";
    if (init->flags != 0)
        return "SRQs, privileged QPs and held Sends are not supported";
    if (init->recv_limit != 0)
        return "receive limit events are not supported";
    if (init->send_depth - 1 >= MAX_DEPTH || init->recv_depth - 1 >= MAX_DEPTH)
        return "a queue has 1 to 1024 entries";
    if (init->max_send_sge > MAX_SGE || init->max_recv_sge > MAX_SGE)
        return "a request has at most 4 elements";
    return init->max_inline > MAX_INLINE ? "at most 64 octets go inline" : NULL;
}

ri_status qp_create(ri_rnic *rnic, const ri_qp_init *from, ri_qp_made *out, ri_error *error)
{
    TAKE(ri_qp_init, init, from);
    ri_qp_made made = {sizeof made, 0, NULL, &ops};
    struct ri_qp *qp = calloc(1, sizeof *qp);
    pthread_mutex_lock(&big);
    const char *why = qp == NULL ? "no memory" : impossible(rnic, &init);
    ri_status status = RI_INVALID_MODIFIER;
    if (why == NULL && (init.pd == 0 || init.pd >= MAX_OBJECTS || !rnic->pds[init.pd].used)) {
        why = "there is no such PD";
        status = RI_INVALID_PD;
    }
    if (why == NULL && (init.ird > MAX_READS || init.ord > MAX_READS)) {
        why = "at most 16 reads may be outstanding";
        status = RI_INVALID_IRD_ORD;
    }
    if (why == NULL && (qp->ring = calloc(init.recv_depth, sizeof *qp->ring)) == NULL)
        why = "no memory";
    if (why == NULL && (rnic->qp_count == rnic->most_qps || (made.id = new_id(rnic, is_free)) == 0))
        why = "all QPs are in use";
    if (why == NULL) {
        qp->rnic = rnic;
        qp->id = made.id;
        qp->state = RI_QP_IDLE;
        qp->pd = init.pd;
        qp->allow = init.allow;
        qp->send_depth = init.send_depth;
        qp->recv_depth = init.recv_depth;
        qp->ird = qp->most_ird = init.ird;
        qp->ord = qp->most_ord = init.ord;
        qp->send_cq = cq_find(rnic, init.send_cq);
        qp->recv_cq = cq_find(rnic, init.recv_cq);
        qp->send_cq->users++;
        qp->recv_cq->users++;
        rnic->pds[init.pd].users++;
        rnic->qps[SLOT(made.id)] = made.qp = qp;
        rnic->qp_count++;
    }
    pthread_mutex_unlock(&big);
    if (why != NULL) {
        if (qp != NULL)
            drop(qp);
        return refuse(error, status, why);
    }
    GIVE(out, made);
    return RI_OK;
}

ri_status qp_destroy(ri_rnic *rnic, uint32_t id, ri_error *error)
{
    struct later later = {0};
    int last = 0;
    pthread_mutex_lock(&big);
    struct ri_qp *qp = qp_find(rnic, id);
    if (qp != NULL) {
        qp->count = 0; /* no completion follows */
        qp_break(qp, &later);
        cm_forget_qp(qp);
        cq_forget(qp->send_cq, id);
        cq_forget(qp->recv_cq, id);
        qp->send_cq->users--;
        qp->recv_cq->users--;
        rnic->pds[qp->pd].users--;
        rnic->qps[SLOT(id)] = NULL;
        rnic->qp_count--;
        qp->destroyed = 1;
        last = qp->released;
    }
    pthread_mutex_unlock(&big);
    run_later(&later);
    if (last)
        drop(qp);
    return qp != NULL ? RI_OK : refuse(error, RI_INVALID_HANDLE, "there is no such QP");
}
