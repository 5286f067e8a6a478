/*
 * Test that posting and dequeuing allocate nothing: two endpoints of one process send, write and read while
 * this program counts its thread's allocations; alone, and while other threads keep the processors busy, so
 * that the engine's thread runs, too.
 */
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* The C library's allocator under other names, because this program defines the usual ones. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t number, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static __thread unsigned long asked;

void *malloc(size_t size)
{
    asked++;
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    asked++;
    return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size)
{
    asked++;
    return __libc_realloc(memory, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    asked++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    asked++;
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}

enum { MESSAGE = MEMORY / 2 };

/* The next completion, polled or waited for. */
static void complete(it_evd_handle_t evd, int polled)
{
    it_event_t event;
    if (polled) {
        it_status_t status;
        while ((status = it_evd_dequeue(evd, &event)) == IT_ERR_QUEUE_EMPTY)
            ;
        MUST(status);
    } else {
        MUST(it_evd_wait(evd, 60000000, &event, NULL));
    }
    CHECK(event.dto_cmpl.dto_status == IT_DTO_SUCCESS);
}

static void message(const struct side *from, const struct side *to, int polled)
{
    it_lmr_triplet_t out = piece(from, 0, MESSAGE), in = piece(to, 0, MESSAGE);
    MUST(it_post_recv(to->ep, &in, 1, cookie(1), SIGNALLED));
    MUST(it_post_send(from->ep, &out, 1, cookie(2), SIGNALLED));
    complete(from->sends, polled);
    complete(to->receives, polled);
}

/* One Send each way, an RDMA Write and an RDMA Read, repeatedly. */
static unsigned long rounds(const struct side *a, const struct side *b, int number, int polled)
{
    it_lmr_triplet_t local = piece(a, 0, MESSAGE);
    unsigned long before = asked;
    int n;
    for (n = 0; n < number; n++) {
        message(a, b, polled);
        message(b, a, polled);
        MUST(it_post_rdma_write(a->ep, &local, 1, cookie(3), SIGNALLED, address(b, MESSAGE),
                                b->rmr_context));
        complete(a->sends, polled);
        MUST(it_post_rdma_read(a->ep, &local, 1, cookie(4), SIGNALLED, address(b, MESSAGE),
                               b->rmr_context));
        complete(a->sends, polled);
    }
    return asked - before;
}

static int over;

static void *spin(void *unused)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        ;
    return unused;
}

/* One spinning thread per processor. */
static void busy_rounds(const struct side *a, const struct side *b)
{
    pthread_t threads[64];
    long number = sysconf(_SC_NPROCESSORS_ONLN), n;
    number = number > 64 ? 64 : number;
    for (n = 0; n < number; n++)
        CHECK(pthread_create(&threads[n], NULL, spin, NULL) == 0);
    CHECK(rounds(a, b, 300, 1) == 0);
    CHECK(rounds(a, b, 300, 0) == 0);
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (n = 0; n < number; n++)
        pthread_join(threads[n], NULL);
}

int main(void)
{
    struct side a, b;
    asked = 0;
    sides_open(&a, &b);
    /* Checks that allocations are counted at all. */
    CHECK(asked > 100);
    /* Warm up, so that queues and buffers have their final sizes. */
    rounds(&a, &b, 200, 1);
    rounds(&a, &b, 200, 0);
    CHECK(rounds(&a, &b, 1000, 1) == 0);
    CHECK(rounds(&a, &b, 1000, 0) == 0);
    busy_rounds(&a, &b);
    side_close(&a);
    side_close(&b);
    return checked("no_allocation");
}
