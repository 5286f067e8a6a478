/*
 * Preloaded allocator that fails on purpose: counts the allocations of the process once it is armed, and
 * refuses number FAIL_AT; with FAIL_ON set, also all later ones. With FAIL_OVER it counts only larger
 * allocations. At exit it writes the number to the file FAIL_COUNT, if set. A program starts and stops refusing
 * all by refuse_memory().
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t number, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static unsigned long fail_at, fail_on, fail_over, count;
static int refusing;

__attribute__((constructor)) static void read_environment(void)
{
    const char *at = getenv("FAIL_AT"), *over = getenv("FAIL_OVER");
    fail_on = getenv("FAIL_ON") != NULL;
    fail_at = at == NULL ? 0 : strtoul(at, NULL, 10);
    fail_over = over == NULL ? 0 : strtoul(over, NULL, 10);
    __atomic_store_n(&count, 0, __ATOMIC_RELAXED);
}

__attribute__((destructor)) static void write_count(void)
{
    const char *name = getenv("FAIL_COUNT");
    int file = name == NULL ? -1 : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file >= 0) {
        dprintf(file, "%lu\n", count);
        close(file);
    }
}

void refuse_memory(int refuse)
{
    __atomic_store_n(&refusing, refuse, __ATOMIC_SEQ_CST);
}

static int fails(size_t size)
{
    unsigned long number;
    if (size <= fail_over)
        return 0;
    if (__atomic_load_n(&refusing, __ATOMIC_RELAXED))
        return 1;
    number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return number == fail_at || (fail_on != 0 && fail_at != 0 && number > fail_at);
}

void *malloc(size_t size)
{
    if (!fails(size))
        return __libc_malloc(size);
    errno = ENOMEM;
    return NULL;
}

void *calloc(size_t number, size_t size)
{
    if (!fails(number * size))
        return __libc_calloc(number, size);
    errno = ENOMEM;
    return NULL;
}

void *realloc(void *memory, size_t size)
{
    if (!fails(size))
        return __libc_realloc(memory, size);
    errno = ENOMEM;
    return NULL;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (!fails(size))
        return __libc_memalign(alignment, size);
    errno = ENOMEM;
    return NULL;
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    if (fails(size))
        return ENOMEM;
    *memory = __libc_memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}
