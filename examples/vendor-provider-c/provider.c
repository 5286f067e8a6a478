/* vendor_loop: a complete small provider in C99. It connects QPs of one process by copying memory,
 * which a vendor replaces by hardware. This file: the descriptor, the device, the RNIC. */
#include "vendor_loop.h"

pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t bell;

static const ri_address addresses[] = {{4, 0, 0, {127, 0, 0, 1}}};
static const ri_port port = {sizeof port, 1, 65536, 1, addresses, {"loop", 4}};
static const ri_port *const ports[] = {&port};
/* Its own protocol: RI_TRANSPORT_OTHER, which is 0. */
static const ri_device device = {
    .size = sizeof device,
    .port_count = 1,
    .ports = ports,
    .name = {"vendor_loop", 11},
};

ri_status refuse(ri_error *error, ri_status status, const char *detail)
{
    if (error != NULL)
        snprintf(error->detail, sizeof error->detail, "%s", detail);
    return status;
}

const struct timespec *deadline_in(struct timespec *room, uint64_t timeout_ns)
{
    if (timeout_ns == RI_WAIT_FOR_EVER)
        return NULL;
    clock_gettime(CLOCK_MONOTONIC, room);
    uint64_t ns = (uint64_t)room->tv_nsec + timeout_ns % 1000000000u;
    room->tv_sec += (time_t)(timeout_ns / 1000000000u + ns / 1000000000u);
    room->tv_nsec = (long)(ns % 1000000000u);
    return room;
}

int wait_until(const struct timespec *deadline)
{
    if (deadline == NULL)
        return pthread_cond_wait(&bell, &big) == 0;
    return pthread_cond_timedwait(&bell, &big, deadline) == 0;
}

void run_later(struct later *later)
{
    for (int i = 0; i < later->count; i++) {
        if (later->list[i].call != NULL)
            later->list[i].call(later->list[i].keep.context, later->list[i].cq);
        if (later->list[i].keep.release != NULL)
            later->list[i].keep.release(later->list[i].keep.context);
    }
    later->count = 0;
}

uint32_t new_id(struct ri_rnic *rnic, int (*is_free)(struct ri_rnic *rnic, uint32_t slot))
{
    for (uint32_t tries = 0; tries < MAX_OBJECTS; tries++) {
        uint32_t id = ++rnic->made;
        if (SLOT(id) != 0 && is_free(rnic, SLOT(id)))
            return id;
    }
    return 0;
}

static int pd_is_free(struct ri_rnic *rnic, uint32_t slot) { return !rnic->pds[slot].used; }

static ri_status pd_alloc(ri_rnic *rnic, uint32_t *pd, ri_error *error)
{
    pthread_mutex_lock(&big);
    uint32_t slot = SLOT(new_id(rnic, pd_is_free));
    rnic->pds[slot].used = slot != 0;
    pthread_mutex_unlock(&big);
    *pd = slot;
    return slot != 0 ? RI_OK : refuse(error, RI_INSUFFICIENT_RESOURCES, "all PDs are in use");
}

static ri_status pd_dealloc(ri_rnic *rnic, uint32_t pd, ri_error *error)
{
    ri_status status = RI_OK;
    pthread_mutex_lock(&big);
    if (pd == 0 || pd >= MAX_OBJECTS || !rnic->pds[pd].used)
        status = RI_INVALID_PD;
    else if (rnic->pds[pd].users != 0)
        status = RI_IN_USE;
    else
        rnic->pds[pd].used = 0;
    pthread_mutex_unlock(&big);
    return status == RI_OK ? RI_OK : refuse(error, status, "the PD is in use or does not exist");
}

static void rnic_close(ri_rnic *rnic)
{
    ri_error error;
    memset(&error, 0, sizeof error);
    /* The host has released all handles; frees the objects that it did not destroy. */
    for (uint32_t slot = 1; slot < MAX_OBJECTS; slot++) {
        struct region *region = &rnic->regions[slot];
        if (region->used)
            mr_dealloc(rnic, slot << 8 | region->key, &error);
        if (rnic->qps[slot] != NULL)
            qp_destroy(rnic, rnic->qps[slot]->id, &error);
    }
    for (uint32_t slot = 1; slot < MAX_OBJECTS; slot++)
        if (rnic->cqs[slot] != NULL)
            cq_destroy(rnic, rnic->cqs[slot]->id, &error);
    pthread_mutex_lock(&big);
    cm_forget(rnic);
    pthread_mutex_unlock(&big);
    free(rnic);
}

static void rnic_attrs(ri_rnic *rnic, ri_rnic_attrs *out)
{
    ri_rnic_attrs a;
    memset(&a, 0, sizeof a);
    a.size = sizeof a;
    a.connection_model = RI_MODEL_NATIVE;
    a.capabilities = 0;
    a.vendor = (ri_string){"Example Vendor", 14};
    a.model = (ri_string){"memory copy", 11};
    a.firmware = (ri_string){"none", 4};
    a.max_mr_octets = UINT64_C(1) << 40;
    a.max_cq = a.max_pd = a.max_mr = MAX_OBJECTS - 1;
    a.max_qp = rnic->most_qps;
    a.max_wr_per_qp = MAX_DEPTH;
    a.max_sge_send = a.max_sge_recv = a.max_sge_write = MAX_SGE;
    a.max_sge_read = 1;
    a.max_inline = MAX_INLINE;
    a.max_cqe = MAX_CQE;
    a.max_ird = a.max_ord = MAX_READS;
    a.max_message = UINT32_C(1) << 30;
#if RI_MINOR >= 2 /* this provider builds with older headers, too */
    a.max_private_connect = a.max_private_accept = a.max_private_reject = MAX_PRIVATE;
#endif
    GIVE(out, a);
}

static void rnic_ports(ri_rnic *rnic, void *receiver, ri_port_fn fn)
{
    (void)rnic;
    fn(receiver, &port);
}

#if RI_MINOR >= 4
static ri_status vendor_calls(ri_rnic *rnic, ri_string name, ri_vendor_calls *out, ri_error *error)
{
    ri_vendor_calls calls = {sizeof calls, 0, calls_named(name.data, name.len), rnic};
    if (calls.table == NULL)
        return refuse(error, RI_UNSUPPORTED, "the only vendor calls are vendor_loop.counters/1");
    GIVE(out, calls);
    return RI_OK;
}
#endif

/* Entries that are not named are NULL: not supported. */
static const ri_rnic_ops rnic_ops = {
    .size = sizeof rnic_ops,
    .close = rnic_close,
    .attrs = rnic_attrs,
    .ports = rnic_ports,
    .alloc_pd = pd_alloc,
    .dealloc_pd = pd_dealloc,
    .create_cq = cq_create,
    .destroy_cq = cq_destroy,
    .create_qp = qp_create,
    .destroy_qp = qp_destroy,
    .register_mr = mr_register,
    .dealloc_stag = mr_dealloc,
    .native_cm = cm_make,
#if RI_MINOR >= 4
    .vendor_calls = vendor_calls,
#endif
};

static ri_status list_devices(void *context, void *receiver, ri_device_fn fn, ri_error *error)
{
    (void)context;
    (void)error;
    fn(receiver, &device);
    return RI_OK;
}

/* Reads this provider's configuration: `max_qp` lowers that limit. */
static ri_status configure(ri_rnic *rnic, const ri_services *from, ri_error *error)
{
    rnic->most_qps = MAX_OBJECTS - 1;
#if RI_MINOR >= 4
    TAKE(ri_services, services, from);
    for (uint32_t i = 0; i < services.setting_count; i++) {
        ri_string key = services.settings[i].key, value = services.settings[i].value;
        uint32_t number = 0;
        if (key.len != 6 || memcmp(key.data, "max_qp", 6) != 0)
            return refuse(error, RI_INVALID_MODIFIER, "the only key of vendor_loop is max_qp");
        for (size_t at = 0; at < value.len && number < MAX_OBJECTS; at++)
            number = value.data[at] < '0' || value.data[at] > '9'
                         ? MAX_OBJECTS
                         : number * 10 + (uint32_t)(value.data[at] - '0');
        if (number == 0 || number >= MAX_OBJECTS)
            return refuse(error, RI_INVALID_MODIFIER, "max_qp is a number from 1 to 255");
        rnic->most_qps = number;
    }
#else
    (void)from;
    (void)error;
#endif
    return RI_OK;
}

static ri_status open_device(void *context, ri_string name, const ri_services *services,
                             ri_rnic_made *out, ri_error *error)
{
    ri_rnic_made made = {sizeof made, 0, NULL, &rnic_ops};
    (void)context;
    if (name.len != device.name.len || memcmp(name.data, device.name.data, name.len) != 0)
        return refuse(error, RI_INVALID_HANDLE, "the only device is vendor_loop");
    made.rnic = calloc(1, sizeof *made.rnic);
    if (made.rnic == NULL)
        return refuse(error, RI_INSUFFICIENT_RESOURCES, "no memory for an RNIC");
    made.rnic->cm.last = &made.rnic->cm.first;
    ri_status status = configure(made.rnic, services, error);
    if (status != RI_OK) {
        free(made.rnic);
        return status;
    }
    GIVE(out, made);
    return RI_OK;
}

static const ri_provider_ops ops = {
    .size = sizeof ops,
    .devices = list_devices,
    .open = open_device,
};

const ri_provider_descriptor warpline_provider = {
    .size = sizeof warpline_provider,
    .magic = RI_MAGIC,
    .major = RI_MAJOR,
    .minor = RI_MINOR,
    .reserved = 0,
    .name = "vendor_loop",
    .version = "1.0",
    .capabilities = 0,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_bell(void)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&bell, &attr);
    pthread_condattr_destroy(&attr);
}

const ri_provider_ops *warpline_provider_get_ops(uint32_t host_minor)
{
    (void)host_minor; /* any is accepted */
    pthread_once(&once, make_bell);
    return &ops;
}
