/*
 * The whole cache with an nvme tier, for tests: stores in a folder of their own, host memory for
 * KVT_NVRIG_HOST_PAGES pages, a log that remembers, and requests that say where pages came from.
 */
#ifndef KVT_TEST_CACHE_NVME_RIG_H
#define KVT_TEST_CACHE_NVME_RIG_H

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NVRIG_STORES_MAX 3u
#define NVRIG_STORE_BYTES (UINT64_C(64) << 20)
#define NVRIG_HOST_BYTES (UINT64_C(1) << 20)
#define NVRIG_PAGE_TOKENS 16u
#define NVRIG_PAGES_MAX 400u
#define NVRIG_BLOCKS_MAX (2 * NVRIG_PAGES_MAX)
#define NVRIG_TOKENS_MAX (NVRIG_PAGES_MAX * NVRIG_PAGE_TOKENS + 1)
#define NVRIG_PATH_BYTES 300
#define NVRIG_LOG_BYTES 16384

/* A page takes 5,600 bytes of the engine, and a slot of 8 KiB: host memory holds 128. */
#define NVRIG_HOST_PAGES 128u
static const struct kvt_rig_shape nvrig_shape = {
    .block_tokens = 8,
    .block_count = NVRIG_BLOCKS_MAX,
    .region_count = 2,
    .block_bytes = {1800, 1000},
    .stride_bytes = {1811, 1024},
};

struct nvrig {
    struct kvt_rig_cache cache;
    struct kvt_rig_engine engine;
    char root[NVRIG_PATH_BYTES];
    char folders[NVRIG_STORES_MAX][NVRIG_PATH_BYTES + 16];
    struct kvt_cache_store stores[NVRIG_STORES_MAX];
    pthread_mutex_t log_mutex;
    char log_text[NVRIG_LOG_BYTES];
    size_t log_bytes;
    uint32_t warnings;
};

static inline void nvrig_log(void *ctx, int32_t level, const char *line)
{
    struct nvrig *rig = ctx;
    (void)pthread_mutex_lock(&rig->log_mutex);
    rig->warnings += level <= KVT_LOG_WARNING;
    int more = snprintf(rig->log_text + rig->log_bytes, sizeof(rig->log_text) - rig->log_bytes,
                        "%s\n", line);
    rig->log_bytes += (size_t)more;
    if (rig->log_bytes >= sizeof(rig->log_text)) {
        rig->log_bytes = sizeof(rig->log_text) - 1;
    }
    (void)pthread_mutex_unlock(&rig->log_mutex);
}

/* How many lines of the log have this text in them. */
static inline uint32_t nvrig_said(struct nvrig *rig, const char *text)
{
    uint32_t count = 0;
    (void)pthread_mutex_lock(&rig->log_mutex);
    for (const char *at = rig->log_text; (at = strstr(at, text)) != NULL; at++) {
        count++;
    }
    (void)pthread_mutex_unlock(&rig->log_mutex);
    return count;
}

static inline int nvrig_unlink(const char *path, const struct stat *stat, int type, struct FTW *at)
{
    (void)stat;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void nvrig_remove(const char *path)
{
    (void)nftw(path, nvrig_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

/* A folder with stores; the cache is not opened. variant: bit 0 threads, bit 1 buffered. */
static inline void nvrig_init(struct nvrig *rig, uint32_t store_count, int variant)
{
    const char *base = getenv("TMPDIR");
    memset(rig, 0, sizeof(*rig));
    (void)snprintf(rig->root, sizeof(rig->root), "%s/kvt_nvme_XXXXXX",
                   base != NULL ? base : "/tmp");
    EXPECT(mkdtemp(rig->root) != NULL);
    EXPECT(pthread_mutex_init(&rig->log_mutex, NULL) == 0);
    kvt_rig_cache_init(&rig->cache);
    for (uint32_t i = 0; i < store_count; i++) {
        (void)snprintf(rig->folders[i], sizeof(rig->folders[i]), "%s/store%u", rig->root,
                       (unsigned)i);
        rig->stores[i] = (struct kvt_cache_store){rig->folders[i], NVRIG_STORE_BYTES};
    }
    struct kvt_cache_config *config = &rig->cache.config;
    config->hbm_bytes = 0;
    config->host_bytes = NVRIG_HOST_BYTES;
    config->stores = rig->stores;
    config->store_count = store_count;
    config->nvme_flags = ((variant & 1) != 0 ? KVT_CACHE_NVME_THREADS : 0) |
                         ((variant & 2) != 0 ? KVT_CACHE_NVME_BUFFERED : 0);
    config->catalog_program = getenv("KVT_CATALOG_PROGRAM");
    config->log = nvrig_log;
    config->log_ctx = rig;
}

static inline void nvrig_fini(struct nvrig *rig)
{
    nvrig_remove(rig->root);
    (void)pthread_mutex_destroy(&rig->log_mutex);
}

/* Cache and one engine, on whatever is in the stores. */
static inline void nvrig_open(struct nvrig *rig)
{
    kvt_rig_cache_open(&rig->cache);
    kvt_rig_engine_open(&rig->engine, &rig->cache, &nvrig_shape, "tenant");
}

static inline void nvrig_close(struct nvrig *rig)
{
    kvt_rig_engine_close(&rig->engine);
    kvt_rig_cache_close(&rig->cache);
}

static inline void nvrig_start(struct nvrig *rig, int variant)
{
    nvrig_init(rig, 1, variant);
    nvrig_open(rig);
}

static inline void nvrig_stop(struct nvrig *rig)
{
    nvrig_close(rig);
    nvrig_fini(rig);
}

/* The same folder, after a destroy. */
static inline void nvrig_again(struct nvrig *rig)
{
    nvrig_close(rig);
    nvrig_open(rig);
}

static inline kvt_status nvrig_flush(struct nvrig *rig)
{
    return kvt_cache_flush(rig->cache.cache, KVT_RIG_WAIT_NS);
}

static inline void nvrig_drive(struct nvrig *rig, uint32_t kind, uint64_t value)
{
    EXPECT(kvt_cache_drive_fault(rig->cache.cache, kind, value) == KVT_OK);
}

/* Quiet, and everything holds. */
static inline void nvrig_check(struct nvrig *rig)
{
    kvt_rig_quiesce(&rig->cache);
    kvt_rig_check(&rig->cache);
}

/* ---- requests ---- */

/* The conversation named `seed`, whole. */
static inline const uint32_t *nvrig_tokens(uint64_t seed)
{
    static uint32_t tokens[NVRIG_TOKENS_MAX];
    kvt_rig_tokens(tokens, 0, NVRIG_TOKENS_MAX, seed);
    return tokens;
}

static inline struct kvt_cache_found nvrig_lookup(struct kvt_rig_engine *engine, uint64_t request,
                                                  const uint32_t *tokens, uint32_t pages)
{
    struct kvt_cache_lookup lookup = {.client = engine->client,
                                      .request_id = request,
                                      .tokens = tokens,
                                      .token_count = (uint64_t)pages * NVRIG_PAGE_TOKENS + 1};
    struct kvt_cache_found found = {0};
    EXPECT(kvt_cache_lookup(engine->on->cache, &lookup, &found) == KVT_OK);
    EXPECT((found.lease != 0) == (found.matched_tokens > 0));
    EXPECT(found.tier_tokens[0] + found.tier_tokens[1] + found.tier_tokens[2] ==
           found.matched_tokens);
    return found;
}

/* Answers matched pages and gives the lease back. */
static inline uint32_t nvrig_probe(struct kvt_rig_engine *engine, uint64_t seed, uint32_t pages)
{
    struct kvt_cache_found found = nvrig_lookup(engine, 0, nvrig_tokens(seed), pages);
    if (found.lease != 0) {
        kvt_rig_release(engine, found.lease);
    }
    return (uint32_t)(found.matched_tokens / NVRIG_PAGE_TOKENS);
}

/* Compute and save the first pages of a conversation; all of them are held then. */
static inline void nvrig_put(struct kvt_rig_engine *engine, uint64_t seed, uint32_t pages)
{
    kvt_rig_put(engine, nvrig_tokens(seed), pages);
}

struct nvrig_got {
    kvt_status status;
    uint32_t matched, good; /* pages */
    uint32_t from[3];       /* pages of them, by tier */
};

/* Look up, restore what was promised, and compare every byte of what is said to be good. */
static inline struct nvrig_got nvrig_get(struct kvt_rig_engine *engine, uint64_t seed,
                                         uint32_t pages)
{
    static uint32_t blocks[NVRIG_BLOCKS_MAX];
    const uint32_t *tokens = nvrig_tokens(seed);
    struct kvt_cache_found found = nvrig_lookup(engine, 0, tokens, pages);
    struct nvrig_got got = {.matched = (uint32_t)(found.matched_tokens / NVRIG_PAGE_TOKENS)};
    if (found.lease == 0) {
        return got;
    }
    kvt_rig_blocks(blocks, 0, NVRIG_BLOCKS_MAX);
    kvt_rig_wipe_all(engine);
    struct kvt_cache_result result = kvt_rig_restore(engine, found.lease, 0, got.matched, blocks);
    got.status = result.status;
    got.good = (uint32_t)(result.tokens_good / NVRIG_PAGE_TOKENS);
    EXPECT(got.good <= got.matched && (got.status == KVT_OK) == (got.good == got.matched));
    EXPECT(kvt_rig_good_pages(engine, tokens, 0, got.good, blocks) == got.good);
    EXPECT(kvt_rig_gaps_untouched(engine));
    EXPECT(kvt_rig_untouched(engine, blocks + 2 * (size_t)got.matched,
                             NVRIG_BLOCKS_MAX - 2 * got.matched));
    EXPECT(result.bytes_moved == got.good * engine->page_bytes);
    uint32_t sum = 0;
    for (uint32_t tier = 0; tier < 3; tier++) {
        got.from[tier] = (uint32_t)(result.tier_tokens[tier] / NVRIG_PAGE_TOKENS);
        sum += got.from[tier];
    }
    EXPECT(sum == got.good);
    kvt_rig_release(engine, found.lease);
    return got;
}

/* Other conversations take all of host memory: what is on nvme as well leaves it. */
static inline void nvrig_push_out(struct nvrig *rig, uint64_t seed)
{
    for (uint32_t i = 0; i < 4; i++) {
        EXPECT(nvrig_flush(rig) == KVT_OK); /* what is being written cannot leave */
        nvrig_put(&rig->engine, seed + i, 40);
    }
    EXPECT(nvrig_flush(rig) == KVT_OK);
}

/* Until this holds of `now`, the statistics; fails when that takes a minute. */
#define NVRIG_WAIT_FOR(rig, cond)                                                                  \
    do {                                                                                           \
        struct kvt_cache_stats now = kvt_rig_stats(&(rig)->cache);                                 \
        for (uint32_t nvrig_i = 0; nvrig_i < 60000 && !(cond); nvrig_i++) {                        \
            kvt_rig_sleep(KVT_RIG_MS);                                                             \
            now = kvt_rig_stats(&(rig)->cache);                                                    \
        }                                                                                          \
        EXPECT(cond);                                                                              \
    } while (0)

/* What a program's exit status says of a suite. */
static inline int nvrig_suite_run(Suite *suite)
{
    const char *program = getenv("KVT_CATALOG_PROGRAM");
    if (access(program != NULL ? program : "build/kvtier-catalog", X_OK) != 0) {
        (void)printf("skipped: kvtier-catalog is not built\n");
        return 77;
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
