/* Lists the devices, opens none, and goes on for so many milliseconds, as a program that transfers by other means. */

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **arguments)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    if (count < 2 || !list || !list[0])
        return 2;
    ibv_free_device_list(list);
    long milliseconds = atol(arguments[1]);
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest))
        ;
    return 0;
}
