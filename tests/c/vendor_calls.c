/*
 * Tests of a provider's vendor calls. Arguments: an adapter, and the name of its counters; without the name it
 * must have none.
 */
#include "../../examples/vendor-provider-c/vendor_loop_calls.h"
#include "check.h"

#include <pthread.h>
#include <string.h>

static void *count(void *calls)
{
    const itw_vendor_calls_t *found = calls;
    const vendor_loop_counters *counters = found->table;
    return counters->made(found->context) > 0 ? calls : NULL;
}

static void use(it_ia_handle_t ia, const char *name)
{
    itw_vendor_calls_t calls;
    const vendor_loop_counters *counters;
    it_pz_handle_t pz;
    pthread_t thread;
    void *counted;
    uint32_t before;
    MUST(itw_ia_vendor_calls(ia, name, &calls));
    counters = calls.table;
    before = counters->made(calls.context);
    MUST(it_pz_create(ia, &pz));
    CHECK(counters->made(calls.context) == before + 1);
    CHECK(counters->queue_pairs(calls.context) == 0);
    CHECK(pthread_create(&thread, NULL, count, &calls) == 0);
    CHECK(pthread_join(thread, &counted) == 0 && counted != NULL);
    EXPECT(IT_SUCCESS, it_pz_free(pz));
    EXPECT(IT_ERR_FAULT, itw_ia_vendor_calls(ia, name, NULL));
}

int main(int argc, char **argv)
{
    const char *known = argc > 2 ? argv[2] : "no vendor calls";
    it_ia_handle_t ia;
    itw_vendor_calls_t calls = {NULL, NULL};
    char text[400];
    MUST(it_ia_create(argv[1], 2, 1, &ia));
    if (argc > 2)
        use(ia, argv[2]);
    EXPECT(IT_ERR_OP_NOT_SUPPORTED, itw_ia_vendor_calls(ia, "nobody.has/7", &calls));
    CHECK(itw_last_error(text, sizeof text) < sizeof text);
    CHECK(strstr(text, "`nobody.has/7`") != NULL && strstr(text, known) != NULL);
    EXPECT(IT_ERR_FAULT, itw_ia_vendor_calls(ia, NULL, &calls));
    EXPECT(IT_SUCCESS, it_ia_free(ia));
    EXPECT(IT_ERR_INVALID_IA, itw_ia_vendor_calls(ia, "nobody.has/7", &calls));
    CHECK(calls.table == NULL && calls.context == NULL);
    return checked("vendor_calls");
}
