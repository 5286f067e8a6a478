/* Asks the libibverbs of the file in the argument for its devices, as programs with a copy of their own do, and prints
 * how many there are. */

#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    void **(*list)(int *) = library ? (void **(*)(int *))dlsym(library, "ibv_get_device_list") : NULL;
    if (!list) {
        printf("%s\n", dlerror());
        return 1;
    }
    int found = 0;
    list(&found);
    printf("%d devices\n", found);
    return 0;
}
