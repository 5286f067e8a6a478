/* vendor_loop: memory regions. A region holds a reference to the memory's owner while it exists. */
#include "vendor_loop.h"

static int is_free(struct ri_rnic *rnic, uint32_t slot) { return !rnic->regions[slot].used; }

/* Each remote right needs the local one, and at least one local right is required. */
static int rights_fit(uint32_t access)
{
    if ((access & (RI_ACCESS_LOCAL_READ | RI_ACCESS_LOCAL_WRITE)) == 0)
        return 0;
    if ((access & RI_ACCESS_REMOTE_WRITE) != 0 && (access & RI_ACCESS_LOCAL_WRITE) == 0)
        return 0;
    return (access & RI_ACCESS_REMOTE_READ) == 0 || (access & RI_ACCESS_LOCAL_READ) != 0;
}

ri_status mr_register(ri_rnic *rnic, const ri_mr_init *from, uint32_t *stag, ri_error *error)
{
    TAKE(ri_mr_init, init, from);
    uint32_t slot = 0;
    if (!rights_fit(init.access))
        return refuse(error, RI_INVALID_ACCESS, "a remote right needs its local one");
    if (init.addressing != RI_ADDRESSING_ABSOLUTE || init.key > 255)
        return refuse(error, RI_INVALID_MODIFIER, "absolute addresses and an octet of key only");
    pthread_mutex_lock(&big);
    int has_pd = init.pd != 0 && init.pd < MAX_OBJECTS && rnic->pds[init.pd].used;
    if (has_pd)
        slot = SLOT(new_id(rnic, is_free));
    if (slot != 0) {
        struct region region = {1, init.key, init.pd, init.access, init.range};
        rnic->regions[slot] = region;
        rnic->pds[init.pd].users++;
        if (init.range.owner.retain != NULL)
            init.range.owner.retain(init.range.owner.context);
        *stag = slot << 8 | init.key;
    }
    pthread_mutex_unlock(&big);
    if (!has_pd)
        return refuse(error, RI_INVALID_PD, "there is no such PD");
    return slot != 0 ? RI_OK : refuse(error, RI_INSUFFICIENT_RESOURCES, "all regions are in use");
}

ri_status mr_dealloc(ri_rnic *rnic, uint32_t stag, ri_error *error)
{
    uint32_t slot = stag >> 8;
    ri_keep owner = {NULL, NULL, NULL};
    pthread_mutex_lock(&big);
    int found = slot < MAX_OBJECTS && rnic->regions[slot].used
                && rnic->regions[slot].key == (stag & 255);
    if (found) {
        owner = rnic->regions[slot].range.owner;
        rnic->pds[rnic->regions[slot].pd].users--;
        rnic->regions[slot].used = 0;
    }
    pthread_mutex_unlock(&big);
    /* Copies are made under the lock, so none is in progress. */
    if (owner.release != NULL)
        owner.release(owner.context);
    return found ? RI_OK : refuse(error, RI_INVALID_STAG, "no region has this STag");
}

unsigned char *mr_reach(ri_rnic *rnic, uint32_t pd, const ri_sge *at, uint32_t access,
                        uint32_t *why)
{
    uint32_t slot = at->stag >> 8;
    struct region *region = slot < MAX_OBJECTS ? &rnic->regions[slot] : NULL;
    if (region == NULL || !region->used || region->key != (at->stag & 255)) {
        *why = RI_WC_INVALID_STAG;
        return NULL;
    }
    uint64_t base = (uint64_t)(uintptr_t)region->range.addr;
    if (region->pd != pd)
        *why = RI_WC_INVALID_PD;
    else if ((region->access & access) != access)
        *why = RI_WC_ACCESS_VIOLATION;
    else if (at->to < base || at->to - base > region->range.len
             || at->len > region->range.len - (at->to - base))
        *why = RI_WC_BOUNDS;
    else
        return (unsigned char *)region->range.addr + (at->to - base);
    return NULL;
}
