/* The smallest provider: steps 1 and 2 of spec/provider-guide.md. It has no device yet, and says so. Replace "acme" by your
 * name, and go on with step 3 in open_device. */
#include <stdio.h>

#define RI_BUILDING_PROVIDER
#include "rnicpi.h"

static ri_status refuse(ri_error *error, const char *detail, const char *remedy)
{
    if (error != NULL) {
        snprintf(error->detail, sizeof error->detail, "%s", detail);
        snprintf(error->remedy, sizeof error->remedy, "%s", remedy);
    }
    return RI_UNSUPPORTED;
}

/* Calls fn once for each device that can be used. */
static ri_status list_devices(void *context, void *receiver, ri_device_fn fn, ri_error *error)
{
    (void)context;
    (void)receiver;
    (void)fn;
    return refuse(error, "there is no ACME adapter in this machine", "insert one, and load its driver");
}

static ri_status open_device(void *context, ri_string name, const ri_services *services,
                             ri_rnic_made *out, ri_error *error)
{
    (void)context;
    (void)name;
    (void)services;
    (void)out;
    return refuse(error, "no ACME adapter can be opened yet", "implement step 3 of the guide");
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
    .name = "acme",
    .version = "0.1",
};

const ri_provider_ops *warpline_provider_get_ops(uint32_t host_minor)
{
    (void)host_minor; /* any is accepted */
    return &ops;
}
