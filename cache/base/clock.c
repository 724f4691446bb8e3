/* The system's monotonic clock behind the table. */
#include "cache/base/base.h"

#include <time.h>

static uint64_t monotonic_now_ns(void *ctx)
{
    (void)ctx;
    struct timespec now = {0, 0};
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    KVT_ASSERT(rc == 0);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

const struct kvt_clock kvt_clock_monotonic = {NULL, monotonic_now_ns};
