/* vendor_loop's own functions, for applications: a table that itw_ia_vendor_calls (in Rust
 * Ia::vendor_calls) finds by the name below. Another layout would have another name. Each function
 * takes the context that came with the table, from any thread, until the adapter is freed. */
#ifndef VENDOR_LOOP_CALLS_H
#define VENDOR_LOOP_CALLS_H

#include <stdint.h>

#define VENDOR_LOOP_COUNTERS "vendor_loop.counters/1"

typedef struct vendor_loop_counters {
    uint32_t (*made)(void *context);        /* objects made since the device was opened */
    uint32_t (*queue_pairs)(void *context); /* queue pairs that exist now */
} vendor_loop_counters;

#endif
