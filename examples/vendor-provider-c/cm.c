/* vendor_loop: the connection manager. Listeners and requests are shared by the process. */
#include "vendor_loop.h"

enum { MAX_WAITING = 64 };

static struct {
    ri_rnic *rnic; /* NULL: free */
    ri_address at;
    uint64_t id;
} listeners[MAX_WAITING];

static struct {
    struct ri_qp *caller; /* NULL: free */
    ri_rnic *rnic;        /* the listener's */
    ri_address at;        /* the listener's */
    uint64_t id;
    uint32_t ird, ord;
} requests[MAX_WAITING];

enum { CALLER = 1 }; /* port of every connecting end; it has no listener */

static uint64_t request_count, listener_count;
static uint16_t next_port = 49152;

/* With the lock: queues an event. */
void cm_tell(ri_rnic *rnic, uint32_t kind, uint32_t qp, const ri_cm_event *more,
             const ri_cm_params *params)
{
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return; /* out of memory: the event is lost */
    if (more != NULL)
        event->said = *more;
    event->said.size = sizeof event->said;
    event->said.kind = kind;
    event->said.qp = qp;
    if (params != NULL) {
        memcpy(&event->params, params,
               params->size < sizeof event->params ? params->size : sizeof event->params);
        event->params.size = sizeof event->params;
        if (event->params.private_len != 0)
            memcpy(event->data, params->private_data, event->params.private_len);
    }
    *rnic->cm.last = event;
    rnic->cm.last = &event->next;
    pthread_cond_broadcast(&bell);
}

void cm_forget_qp(struct ri_qp *qp)
{
    for (int i = 0; i < MAX_WAITING; i++)
        if (requests[i].caller == qp)
            requests[i].caller = NULL;
}

void cm_forget(ri_rnic *rnic)
{
    for (int i = 0; i < MAX_WAITING; i++) {
        if (listeners[i].rnic == rnic)
            listeners[i].rnic = NULL;
        if (requests[i].rnic == rnic)
            requests[i].caller = NULL;
    }
    while (rnic->cm.first != NULL) {
        struct event *event = rnic->cm.first;
        rnic->cm.first = event->next;
        free(event);
    }
}

/* The handle of a manager is that of its RNIC. */
static ri_rnic *rnic_of(ri_cm *cm) { return (ri_rnic *)(void *)cm; }

static void release(ri_cm *cm) { (void)cm; }

static ri_status cm_listen(ri_cm *cm, const ri_address *address, uint32_t backlog,
                           uint64_t *listener, ri_address *bound, ri_error *error)
{
    ri_status status = RI_INSUFFICIENT_RESOURCES;
    (void)backlog;
    pthread_mutex_lock(&big);
    for (int i = 0; i < MAX_WAITING && status != RI_OK; i++) {
        if (listeners[i].rnic != NULL)
            continue;
        listeners[i].rnic = rnic_of(cm);
        listeners[i].at = *address;
        if (address->port == 0)
            listeners[i].at.port = next_port++;
        *bound = listeners[i].at;
        *listener = listeners[i].id = ++listener_count;
        status = RI_OK;
    }
    pthread_mutex_unlock(&big);
    return status == RI_OK ? RI_OK : refuse(error, status, "there are 64 listeners already");
}

static ri_status cm_unlisten(ri_cm *cm, uint64_t listener, ri_error *error)
{
    ri_status status = RI_INVALID_HANDLE;
    pthread_mutex_lock(&big);
    for (int i = 0; i < MAX_WAITING; i++)
        if (listeners[i].rnic == rnic_of(cm) && listeners[i].id == listener) {
            listeners[i].rnic = NULL;
            status = RI_OK;
        }
    pthread_mutex_unlock(&big);
    return status == RI_OK ? RI_OK : refuse(error, status, "there is no such listener");
}

static int find_listener(const ri_address *at)
{
    for (int i = 0; i < MAX_WAITING; i++)
        if (listeners[i].rnic != NULL && listeners[i].at.port == at->port
            && listeners[i].at.family == at->family
            && memcmp(listeners[i].at.octets, at->octets, sizeof at->octets) == 0)
            return i;
    return -1;
}

/* Both ends have the listener's address; the connecting end has the port CALLER. */
static ri_address calling(ri_address at)
{
    at.port = CALLER;
    return at;
}

static void at(ri_cm_event *event, ri_address local)
{
#if RI_MINOR >= 4
    event->local = local;
#else
    (void)event;
    (void)local;
#endif
}

static ri_status too_long(ri_error *error)
{
    return refuse(error, RI_INVALID_MODIFIER, "private data is at most 256 octets");
}

static ri_status cm_connect(ri_cm *cm, uint32_t qp, const ri_address *peer,
                            const ri_cm_params *from, ri_error *error)
{
    TAKE(ri_cm_params, params, from);
    ri_status status = RI_INVALID_STATE;
    if (params.private_len > MAX_PRIVATE)
        return too_long(error);
    pthread_mutex_lock(&big);
    struct ri_qp *caller = qp_find(rnic_of(cm), qp);
    int to = find_listener(peer), slot = 0;
    while (slot < MAX_WAITING && requests[slot].caller != NULL)
        slot++;
    if (caller != NULL && caller->state == RI_QP_IDLE) {
        status = RI_OK;
        if (to < 0 || slot == MAX_WAITING) {
            ri_cm_event why;
            memset(&why, 0, sizeof why);
            why.reason = (ri_string){"no listener there", 17};
            cm_tell(rnic_of(cm), RI_CM_FAILED, qp, &why, NULL);
        } else {
            ri_cm_event request;
            memset(&request, 0, sizeof request);
            request.listener = listeners[to].id;
            request.request = ++request_count;
            request.peer = calling(listeners[to].at);
            at(&request, listeners[to].at);
            requests[slot].caller = caller;
            requests[slot].rnic = listeners[to].rnic;
            requests[slot].at = listeners[to].at;
            requests[slot].id = request_count;
            requests[slot].ird = params.ird;
            requests[slot].ord = params.ord;
            cm_tell(listeners[to].rnic, RI_CM_REQUEST, 0, &request, &params);
        }
    }
    pthread_mutex_unlock(&big);
    return status == RI_OK ? RI_OK : refuse(error, status, "the QP is not in Idle");
}

/* Removes and returns the request of an id. */
static int take_request(ri_rnic *rnic, uint64_t id)
{
    for (int i = 0; i < MAX_WAITING; i++)
        if (requests[i].caller != NULL && requests[i].id == id && requests[i].rnic == rnic)
            return i;
    return -1;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

static ri_status cm_accept(ri_cm *cm, uint64_t request, uint32_t id, const ri_cm_params *from,
                           ri_error *error)
{
    TAKE(ri_cm_params, params, from);
    ri_status status = RI_INVALID_HANDLE;
    if (params.private_len > MAX_PRIVATE)
        return too_long(error);
    pthread_mutex_lock(&big);
    int slot = take_request(rnic_of(cm), request);
    struct ri_qp *qp = qp_find(rnic_of(cm), id);
    if (slot >= 0 && qp != NULL && qp->state == RI_QP_IDLE) {
        struct ri_qp *caller = requests[slot].caller;
        /* Reads that one end may have outstanding, the other must serve. */
        uint32_t there = least(requests[slot].ord, params.ird);
        uint32_t back = least(params.ord, requests[slot].ird);
        ri_cm_params ours = {sizeof ours, there, back, 0, NULL};
        ri_cm_event here, away;
        memset(&here, 0, sizeof here);
        memset(&away, 0, sizeof away);
        at(&here, requests[slot].at);
        at(&away, calling(requests[slot].at));
        params.ird = back;
        params.ord = there;
        requests[slot].caller = NULL;
        qp->peer = caller;
        caller->peer = qp;
        qp->state = caller->state = RI_QP_RTS;
        qp->ird = caller->ord = there;
        qp->ord = caller->ird = back;
        cm_tell(caller->rnic, RI_CM_ESTABLISHED, caller->id, &away, &params);
        cm_tell(qp->rnic, RI_CM_ESTABLISHED, qp->id, &here, &ours);
        status = RI_OK;
    }
    pthread_mutex_unlock(&big);
    return status == RI_OK ? RI_OK
                           : refuse(error, status, "no such request, or the QP is not in Idle");
}

static ri_status cm_reject(ri_cm *cm, uint64_t request, const uint8_t *data, uint32_t len,
                           ri_error *error)
{
    ri_cm_params params = {sizeof params, 0, 0, len, data};
    if (len > MAX_PRIVATE)
        return too_long(error);
    pthread_mutex_lock(&big);
    int slot = take_request(rnic_of(cm), request);
    if (slot >= 0) {
        struct ri_qp *caller = requests[slot].caller;
        requests[slot].caller = NULL;
        cm_tell(caller->rnic, RI_CM_REJECTED, caller->id, NULL, &params);
    }
    pthread_mutex_unlock(&big);
    return slot >= 0 ? RI_OK : refuse(error, RI_INVALID_HANDLE, "there is no such request");
}

static ri_status cm_disconnect(ri_cm *cm, uint32_t id, ri_error *error)
{
    struct later later = {0};
    pthread_mutex_lock(&big);
    struct ri_qp *qp = qp_find(rnic_of(cm), id);
    int connected = qp != NULL && qp->state == RI_QP_RTS;
    if (connected) {
        cm_tell(qp->rnic, RI_CM_DISCONNECTED, qp->id, NULL, NULL);
        qp_break(qp, &later);
    }
    pthread_mutex_unlock(&big);
    run_later(&later);
    return connected ? RI_OK : refuse(error, RI_INVALID_STATE, "the QP is not connected");
}

static void poll_event(ri_cm *cm, void *receiver, ri_cm_event_fn fn)
{
    pthread_mutex_lock(&big);
    struct event *event = rnic_of(cm)->cm.first;
    if (event != NULL && (rnic_of(cm)->cm.first = event->next) == NULL)
        rnic_of(cm)->cm.last = &rnic_of(cm)->cm.first;
    pthread_mutex_unlock(&big);
    if (event == NULL)
        return;
    event->params.private_data = event->data;
    event->said.params = event->params.size != 0 ? &event->params : NULL;
    fn(receiver, &event->said);
    free(event);
}

static ri_status wait_event(ri_cm *cm, uint64_t timeout_ns, uint32_t *ready, ri_error *error)
{
    struct timespec room;
    const struct timespec *deadline = deadline_in(&room, timeout_ns);
    (void)error;
    pthread_mutex_lock(&big);
    while (rnic_of(cm)->cm.first == NULL)
        if (!wait_until(deadline))
            break;
    *ready = rnic_of(cm)->cm.first != NULL;
    pthread_mutex_unlock(&big);
    return RI_OK;
}

static const ri_cm_ops ops = {
    .size = sizeof ops,
    .release = release,
    .listen = cm_listen,
    .unlisten = cm_unlisten,
    .connect = cm_connect,
    .accept = cm_accept,
    .reject = cm_reject,
    .disconnect = cm_disconnect,
    .poll_event = poll_event,
    .wait_event = wait_event,
};

ri_status cm_make(ri_rnic *rnic, ri_cm_made *out, ri_error *error)
{
    ri_cm_made made = {sizeof made, 0, (ri_cm *)(void *)rnic, &ops};
    (void)error;
    GIVE(out, made);
    return RI_OK;
}
