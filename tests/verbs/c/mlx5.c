/* Uses mlx5dv, which only NVIDIA's adapters have. Argument: `open`, as programs that are linked with libmlx5, or `ask`, as
 * those that load it. The exit status is 1 if the first device has none. */

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <stdbool.h>
#include <string.h>

int main(int count, char **arguments)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (count < 2 || !list || !list[0])
        return 2;
    if (!strcmp(arguments[1], "open")) {
        struct mlx5dv_context_attr attr = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
        return !mlx5dv_open_device(list[0], &attr);
    }
    void *library = dlopen("libmlx5.so.1", RTLD_NOW);
    bool (*supported)(struct ibv_device *) =
        library ? (bool (*)(struct ibv_device *))dlsym(library, "mlx5dv_is_supported") : NULL;
    return supported ? !supported(list[0]) : 2;
}
