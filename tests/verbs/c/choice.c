/* Prints the devices that libibverbs lists, those that rdma_get_devices opens, and the one that an identifier of each
 * port space gets on its way to the address in the first argument. The devices in the further ones are opened before. */

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

static void choose(const char *name, enum rdma_port_space space, struct sockaddr *to)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(NULL, &id, NULL, space) || rdma_resolve_addr(id, NULL, to, 1000)) {
        printf("%s: none\n", name);
        return;
    }
    printf("%s: %s\n", name, id->verbs ? ibv_get_device_name(id->verbs->device) : "unknown");
    rdma_destroy_id(id);
}

int main(int count, char **arguments)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7)};
    if (count < 2 || inet_pton(AF_INET, arguments[1], &to.sin_addr) != 1)
        return 2;
    struct ibv_device **list = ibv_get_device_list(NULL);
    printf("listed:");
    for (int at = 0; list && list[at]; at++)
        printf(" %s", ibv_get_device_name(list[at]));
    struct ibv_context **opened = rdma_get_devices(NULL);
    printf("\nopened:");
    for (int at = 0; opened && opened[at]; at++)
        printf(" %s", ibv_get_device_name(opened[at]->device));
    printf("\n");
    for (int name = 2; name < count; name++)
        for (int at = 0; list && list[at]; at++)
            if (!strcmp(arguments[name], ibv_get_device_name(list[at])) && !ibv_open_device(list[at]))
                return 1;
    choose("RDMA_PS_TCP", RDMA_PS_TCP, (struct sockaddr *)&to);
    choose("RDMA_PS_UDP", RDMA_PS_UDP, (struct sockaddr *)&to);
    return 0;
}
