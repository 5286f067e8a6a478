/* Test program: loads the verbs libraries as collective libraries do: by dlopen, each function by dlvsym. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

static int failures;

static void *find(void *library, const char *name, const char *node)
{
    void *found = dlvsym(library, name, node);
    if (!found) {
        fprintf(stderr, "%s@%s: %s\n", name, node, dlerror());
        failures++;
    }
    return found;
}

int main(void)
{
    static const char *const wanted[][2] = {
        {"ibv_get_device_list", "IBVERBS_1.1"}, {"ibv_create_comp_channel", "IBVERBS_1.0"},
        {"ibv_reg_mr", "IBVERBS_1.1"},          {"ibv_reg_mr_iova2", "IBVERBS_1.8"},
        {"ibv_query_ece", "IBVERBS_1.10"},      {"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
        {"ibv_query_port_speed", "IBVERBS_1.16"},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_22"},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_33"},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_34"},
        {"ibv_query_gid_type", "IBVERBS_PRIVATE_65"},
        {"verbs_register_driver_25", "IBVERBS_PRIVATE_25"},
        {"verbs_register_driver_33", "IBVERBS_PRIVATE_33"},
        {"verbs_register_driver_34", "IBVERBS_PRIVATE_34"},
        {"verbs_register_driver_65", "IBVERBS_PRIVATE_65"},
    };
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!verbs) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    for (unsigned i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        find(verbs, wanted[i][0], wanted[i][1]);
    if (dlvsym(verbs, "ibv_reg_mr", "IBVERBS_1.8")) {
        fprintf(stderr, "ibv_reg_mr has a version that it never had\n");
        failures++;
    }
    if (dlsym(verbs, "ibv_query_gid_type") != dlvsym(verbs, "ibv_query_gid_type", "IBVERBS_PRIVATE_34")) {
        fprintf(stderr, "the default version is not that of Debian 12\n");
        failures++;
    }
    /* Unsupported calls are refused. */
    int (*speed)(void *, unsigned, void *) =
        (int (*)(void *, unsigned, void *))find(verbs, "ibv_query_port_speed", "IBVERBS_1.16");
    errno = 0;
    if (speed && (speed(NULL, 1, NULL) != EOPNOTSUPP || errno != EOPNOTSUPP)) {
        fprintf(stderr, "ibv_query_port_speed is not refused\n");
        failures++;
    }
    void *rdmacm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!rdmacm) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    find(rdmacm, "rdma_create_id", "RDMACM_1.0");
    find(rdmacm, "rdma_establish", "RDMACM_1.2");
    int (*wait)(int, void *, int, int) =
        (int (*)(int, void *, int, int))find(rdmacm, "repoll_wait", "RDMACM_1.5");
    errno = 0;
    if (wait && (wait(-1, NULL, 1, 0) != -1 || errno != EOPNOTSUPP)) {
        fprintf(stderr, "repoll_wait is not refused\n");
        failures++;
    }
    return failures != 0;
}
