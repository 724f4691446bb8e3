/*
 * The reference engine's log: one line a fact, to the host's function; and its clock.
 */
#ifndef KVT_REFERENCE_LOG_H
#define KVT_REFERENCE_LOG_H

#include <stdint.h>
#include <time.h>

#include "kvt_status.h"

enum { KVT_REF_ERROR = 1, KVT_REF_WARNING = 2, KVT_REF_INFO = 3, KVT_REF_DEBUG = 4 };

struct kvt_ref_log {
    void (*fn)(void *ctx, int32_t level, const char *line); /* may be NULL */
    void *ctx;
};

#define KVT_REF_LOG_LINE_BYTES_MAX 512
void kvt_ref_log(const struct kvt_ref_log *, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The name of a status, as kvt_status.h has it. */
const char *kvt_ref_status_name(kvt_status status);

static inline uint64_t kvt_ref_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
