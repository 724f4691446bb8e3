/*
 * What the benchmarks share: a cache whose pages are as small as can be, and sessions to fill it.
 */
#ifndef KVT_BENCH_H
#define KVT_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvt_cache.h"

#define KVT_BENCH_PAGE_TOKENS 16u
#define KVT_BENCH_HEAD_PAGES 512u /* of a shared system prompt */

/* Memory of the index: a jemalloc arena of its own where the program has jemalloc (its release
 * builds), else libc with a count of what was asked for. */
struct kvt_bench_memory {
    struct kvt_cache_memory hooks;
    bool arena_used;
    uint32_t arena;
    uint64_t asked_bytes;
};
void kvt_bench_memory_open(struct kvt_bench_memory *);
void kvt_bench_memory_close(struct kvt_bench_memory *);
/* What the allocator has given out for it, by its own count. */
uint64_t kvt_bench_memory_bytes(const struct kvt_bench_memory *);
/* "jemalloc arena" or "bytes asked of libc". */
const char *kvt_bench_memory_source(const struct kvt_bench_memory *);
/* Bytes that this thread has ever allocated by malloc and friends; false where nobody counts. */
bool kvt_bench_thread_allocated(uint64_t *out_bytes);

struct kvt_bench {
    struct kvt_cache *cache;
    uint32_t client;
    uint64_t binding;
    void *stream;
    struct kvt_bench_memory index_memory;
    unsigned char block[64];
};

kvt_status kvt_bench_open(struct kvt_bench *, uint64_t pages, char *why, size_t why_bytes)
    KVT_MUST_CHECK;
void kvt_bench_close(struct kvt_bench *);
/* The prompt of a session; sessions share one of a few heads. */
void kvt_bench_prompt(uint32_t session, uint32_t *out_tokens, uint64_t token_count);
/* Grow a session to `pages` pages turn by turn, with forks. `tokens` is changed and put back. */
kvt_status kvt_bench_session(struct kvt_bench *, uint32_t session, uint32_t *tokens, uint32_t pages)
    KVT_MUST_CHECK;

int kvt_bench_match(int argc, char **argv);
int kvt_bench_insert(int argc, char **argv);
int kvt_bench_nvme(int argc, char **argv);
int kvt_bench_open_store(int argc, char **argv);

#endif
