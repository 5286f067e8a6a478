/*
 * Test that dlclose() leaves the library in the process, whose threads run: a program loads it, opens an
 * adapter, closes the library, and goes on.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <it_api.h>
#include <stdio.h>

typedef it_status_t (*create_t)(const char *, uint32_t, uint32_t, it_ia_handle_t *);
typedef it_status_t (*free_t)(it_ia_handle_t);

static int failed(const char *what)
{
    const char *why = dlerror();
    fprintf(stderr, "%s: %s\n", what, why == NULL ? "" : why);
    return 1;
}

int main(int count, char **names)
{
    void *library, *again, *create, *release;
    it_ia_handle_t ia;
    int round;
    for (round = 0; round < 3; round++) {
        if (count != 2 || (library = dlopen(names[1], RTLD_NOW | RTLD_LOCAL)) == NULL)
            return failed("dlopen");
        create = dlsym(library, "it_ia_create");
        release = dlsym(library, "it_ia_free");
        if (create == NULL || release == NULL)
            return failed("dlsym");
        if ((*(create_t *)&create)("vp_softrdma", 2, 1, &ia) != IT_SUCCESS)
            return failed("it_ia_create");
        if (dlclose(library) != 0)
            return failed("dlclose");
        /* Still mapped, with its threads and open objects. */
        if ((again = dlopen(names[1], RTLD_NOW | RTLD_NOLOAD)) == NULL)
            return failed("the library is gone, and its threads run");
        if ((*(free_t *)&release)(ia) != IT_SUCCESS)
            return failed("it_ia_free");
        dlclose(again);
    }
    puts("closed_library: done");
    return 0;
}
