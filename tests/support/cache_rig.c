#include "tests/support/cache_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/test_expect.h"

#define MEMORY_MAGIC UINT64_C(0x6361636865726967)

/* Fails with the names of both statuses. */
static void must(kvt_status got, const char *what)
{
    if (got != KVT_OK) {
        ck_abort_msg("%s answered %s", what, kvt_status_name(got));
    }
}

/* ---- memory that counts, checks and fails ---- */

struct memory_block {
    uint64_t magic, bytes;
};

static bool alloc_fails(struct kvt_rig_cache *rig)
{
    atomic_fetch_add(&rig->calls, 1);
    uint64_t left = atomic_load(&rig->fail_at);
    while (left > 0 && !atomic_compare_exchange_weak(&rig->fail_at, &left, left - 1)) {
    }
    if (left == 1 && atomic_load(&rig->fail_for_good)) {
        atomic_store(&rig->failing, true);
    }
    return left == 1 || atomic_load(&rig->failing);
}

static void *hook_alloc(void *ctx, size_t bytes)
{
    struct kvt_rig_cache *rig = ctx;
    EXPECT(bytes > 0);
    if (alloc_fails(rig)) {
        return NULL;
    }
    struct memory_block *block = malloc(sizeof(*block) + bytes);
    EXPECT(block != NULL);
    *block = (struct memory_block){MEMORY_MAGIC, bytes};
    memset(block + 1, 0xa5, bytes < 4096 ? bytes : 4096);
    atomic_fetch_add(&rig->live_blocks, 1);
    atomic_fetch_add(&rig->live_bytes, (int64_t)bytes);
    return block + 1;
}

static void hook_free(void *ctx, void *ptr, size_t bytes)
{
    struct kvt_rig_cache *rig = ctx;
    if (ptr == NULL) {
        return;
    }
    struct memory_block *block = (struct memory_block *)ptr - 1;
    EXPECT(block->magic == MEMORY_MAGIC);
    EXPECT(block->bytes == bytes);
    block->magic = 0;
    atomic_fetch_sub(&rig->live_blocks, 1);
    atomic_fetch_sub(&rig->live_bytes, (int64_t)bytes);
    free(block);
}

static void *hook_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *moved = hook_alloc(ctx, new_bytes);
    if (moved != NULL && ptr != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        hook_free(ctx, ptr, old_bytes);
    }
    return moved;
}

/* The mover asks for the time once a round, before it keeps house: so its asking is its pulse. */
static void count_mover(struct kvt_rig_cache *rig)
{
    static _Thread_local bool is_mover;
    char name[16] = "";
    if (!is_mover && pthread_getname_np(pthread_self(), name, sizeof(name)) == 0) {
        is_mover = strcmp(name, "kvt-mover") == 0;
    }
    atomic_fetch_add(&rig->mover_rounds, is_mover);
}

static uint64_t hook_now_ns(void *ctx)
{
    struct kvt_rig_cache *rig = ctx;
    count_mover(rig);
    return atomic_load(&rig->now_ns);
}

static void hook_log(void *ctx, int32_t level, const char *line)
{
    struct kvt_rig_cache *rig = ctx;
    EXPECT(level >= KVT_LOG_ERROR && level <= KVT_LOG_DEBUG && line[0] != '\0');
    atomic_fetch_add(&rig->log_lines, 1);
}

/* ---- the cache ---- */

void kvt_rig_cache_init(struct kvt_rig_cache *rig)
{
    memset(rig, 0, sizeof(*rig));
    atomic_store(&rig->now_ns, 1000 * KVT_RIG_S);
    rig->hooks = (struct kvt_cache_memory){rig, hook_alloc, hook_resize, hook_free};
    rig->config = (struct kvt_cache_config){
        .page_tokens = 16,
        .pages_max = 1u << 20,
        .leases_max = 64,
        .jobs_max = 64,
        .requests_max = 64,
        .ghosts_max = 1024,
        .hbm_bytes = 1u << 20,
        .host_bytes = 1u << 20,
        .memory = &rig->hooks,
        .log = hook_log,
        .log_ctx = rig,
        .now_ns = hook_now_ns,
        .now_ctx = rig,
    };
}

void kvt_rig_cache_open(struct kvt_rig_cache *rig)
{
    kvt_status status = kvt_cache_create(&rig->config, &rig->cache, rig->why, sizeof(rig->why));
    if (status != KVT_OK) {
        ck_abort_msg("create answered %s: %s", kvt_status_name(status), rig->why);
    }
}

void kvt_rig_cache_close(struct kvt_rig_cache *rig)
{
    kvt_rig_quiesce(rig);
    kvt_rig_check(rig);
    kvt_rig_idle(rig);
    must(kvt_cache_destroy(rig->cache), "destroy");
    rig->cache = NULL;
    ck_assert_int_eq(atomic_load(&rig->live_blocks), 0);
    ck_assert_int_eq(atomic_load(&rig->live_bytes), 0);
}

void kvt_rig_cache_fail(struct kvt_rig_cache *rig, uint64_t k, bool for_good)
{
    atomic_store(&rig->failing, false);
    atomic_store(&rig->fail_for_good, for_good);
    atomic_store(&rig->fail_at, k);
}

struct kvt_cache_stats kvt_rig_stats(struct kvt_rig_cache *rig)
{
    struct kvt_cache_stats stats;
    must(kvt_cache_stats(rig->cache, &stats), "stats");
    return stats;
}

void kvt_rig_check(struct kvt_rig_cache *rig)
{
    char why[512] = "";
    if (kvt_cache_check(rig->cache, why, sizeof(why)) != KVT_OK) {
        ck_abort_msg("%s", why);
    }
}

void kvt_rig_fault(struct kvt_rig_cache *rig, uint32_t kind, uint64_t value)
{
    must(kvt_cache_fault_set(rig->cache, kind, value), "fault_set");
}

void kvt_rig_quiesce(struct kvt_rig_cache *rig)
{
    must(kvt_cache_quiesce(rig->cache, KVT_RIG_WAIT_NS), "quiesce");
}

void kvt_rig_idle(struct kvt_rig_cache *rig)
{
    struct kvt_cache_stats stats = kvt_rig_stats(rig);
    ck_assert_uint_eq(stats.jobs_running, 0);
    ck_assert_uint_eq(stats.leases, 0);
    ck_assert_uint_eq(stats.leased_pages, 0);
    for (uint32_t tier = 0; tier < KVT_CACHE_TIERS; tier++) {
        ck_assert_uint_eq(stats.tier_slots_in_transfer[tier], 0);
        ck_assert_uint_le(stats.tier_bytes_used[tier], stats.tier_bytes_mapped[tier]);
        ck_assert_uint_le(stats.tier_bytes_mapped[tier], stats.tier_bytes_budget[tier]);
    }
}

/* Three rounds later (one may have been under way, one may have come too soon after the last) the
 * mover has seen the new time and kept house. */
void kvt_rig_advance(struct kvt_rig_cache *rig, uint64_t ns)
{
    atomic_fetch_add(&rig->now_ns, ns);
    uint64_t rounds = atomic_load(&rig->mover_rounds);
    for (uint32_t i = 0; i < 60000 && atomic_load(&rig->mover_rounds) < rounds + 3; i++) {
        kvt_rig_sleep(KVT_RIG_MS);
    }
    EXPECT(atomic_load(&rig->mover_rounds) >= rounds + 3);
}

/* ---- engines ---- */

const struct kvt_rig_shape kvt_rig_shape_default = {
    .block_tokens = 8,
    .block_count = 256,
    .region_count = 2,
    .block_bytes = {72, 40},
    .stride_bytes = {80, 53},
};

void kvt_rig_memory_open(struct kvt_rig_engine *engine, struct kvt_rig_cache *on,
                         const struct kvt_rig_shape *shape)
{
    memset(engine, 0, sizeof(*engine));
    engine->on = on;
    engine->shape = *shape;
    engine->blocks_per_page = on->config.page_tokens / shape->block_tokens;
    for (uint32_t r = 0; r < shape->region_count; r++) {
        engine->memory[r] = malloc(shape->block_count * shape->stride_bytes[r]);
        EXPECT(engine->memory[r] != NULL);
        engine->regions[r] = (struct kvt_cache_region){engine->memory[r], shape->block_bytes[r],
                                                       shape->stride_bytes[r]};
        engine->page_bytes += shape->block_bytes[r] * engine->blocks_per_page;
    }
    kvt_rig_wipe_all(engine);
}

void kvt_rig_memory_close(struct kvt_rig_engine *engine)
{
    ck_assert(kvt_rig_gaps_untouched(engine));
    for (uint32_t r = 0; r < engine->shape.region_count; r++) {
        free(engine->memory[r]);
    }
}

void kvt_rig_engine_open(struct kvt_rig_engine *engine, struct kvt_rig_cache *on,
                         const struct kvt_rig_shape *shape, const char *tenant)
{
    char why[512] = "";
    kvt_rig_memory_open(engine, on, shape);
    must(kvt_cache_client_open(on->cache, tenant, strlen(tenant), NULL, 0, NULL, 0, &engine->client,
                               why, sizeof(why)),
         "client_open");
    kvt_status status =
        kvt_cache_bind(on->cache, engine->client, engine->regions, shape->region_count,
                       shape->block_tokens, shape->block_count, &engine->binding, why, sizeof(why));
    if (status != KVT_OK) {
        ck_abort_msg("bind answered %s: %s", kvt_status_name(status), why);
    }
    engine->stream = kvt_rig_stream(on);
}

void kvt_rig_engine_close(struct kvt_rig_engine *engine)
{
    kvt_rig_quiesce(engine->on);
    kvt_cache_stream_destroy(engine->on->cache, engine->stream);
    must(kvt_cache_unbind(engine->on->cache, engine->client, engine->binding), "unbind");
    must(kvt_cache_client_close(engine->on->cache, engine->client), "client_close");
    kvt_rig_memory_close(engine);
}

/* ---- tokens and bytes ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ (x >> 27)) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ (x >> 33);
}

void kvt_rig_tokens(uint32_t *tokens, uint64_t from, uint64_t to, uint64_t seed)
{
    for (uint64_t i = from; i < to; i++) {
        tokens[i] = (uint32_t)mix(seed * 1000003 + i + 1);
    }
}

void kvt_rig_blocks(uint32_t *blocks, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        blocks[i] = first + i;
    }
}

/* A name for all tokens up to the end of a block: FNV's step is enough, mixed at its use. */
static uint64_t chain(uint64_t name, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        name = (name ^ tokens[i]) * UINT64_C(0x100000001b3);
        name ^= name >> 29;
    }
    return name;
}

static unsigned char *block_at(const struct kvt_rig_engine *engine, uint32_t region, uint32_t block)
{
    EXPECT(block < engine->shape.block_count);
    return engine->memory[region] + block * engine->shape.stride_bytes[region];
}

static void block_bytes(unsigned char *out, uint64_t bytes, uint64_t name, uint32_t region)
{
    uint64_t word = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        if (i % 8 == 0) {
            word = mix(name + i * 16 + region + 1);
        }
        out[i] = (unsigned char)(word >> (i % 8 * 8));
    }
}

static bool block_is(const struct kvt_rig_engine *engine, uint32_t region, uint32_t block,
                     uint64_t name)
{
    unsigned char want[4096];
    uint64_t bytes = engine->shape.block_bytes[region];
    EXPECT(bytes <= sizeof(want));
    block_bytes(want, bytes, name, region);
    return memcmp(block_at(engine, region, block), want, bytes) == 0;
}

void kvt_rig_paint(struct kvt_rig_engine *engine, const uint32_t *tokens, uint32_t first_page,
                   uint32_t pages, const uint32_t *blocks)
{
    const uint32_t per_page = engine->blocks_per_page;
    uint64_t name = engine->weights;
    for (uint32_t b = 0; b < (first_page + pages) * per_page; b++) {
        name = chain(name, tokens + b * engine->shape.block_tokens, engine->shape.block_tokens);
        for (uint32_t r = 0; b >= first_page * per_page && r < engine->shape.region_count; r++) {
            block_bytes(block_at(engine, r, blocks[b - first_page * per_page]),
                        engine->shape.block_bytes[r], name, r);
        }
    }
}

uint32_t kvt_rig_good_pages(const struct kvt_rig_engine *engine, const uint32_t *tokens,
                            uint32_t first_page, uint32_t pages, const uint32_t *blocks)
{
    const uint32_t per_page = engine->blocks_per_page;
    uint64_t name = engine->weights;
    for (uint32_t b = 0; b < (first_page + pages) * per_page; b++) {
        name = chain(name, tokens + b * engine->shape.block_tokens, engine->shape.block_tokens);
        for (uint32_t r = 0; b >= first_page * per_page && r < engine->shape.region_count; r++) {
            if (!block_is(engine, r, blocks[b - first_page * per_page], name)) {
                return b / per_page - first_page;
            }
        }
    }
    return pages;
}

void kvt_rig_wipe(struct kvt_rig_engine *engine, const uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < engine->shape.region_count; r++) {
            memset(block_at(engine, r, blocks[i]), KVT_RIG_UNTOUCHED, engine->shape.block_bytes[r]);
        }
    }
}

void kvt_rig_wipe_all(struct kvt_rig_engine *engine)
{
    for (uint32_t r = 0; r < engine->shape.region_count; r++) {
        memset(engine->memory[r], KVT_RIG_UNTOUCHED,
               engine->shape.block_count * engine->shape.stride_bytes[r]);
    }
}

static bool all_untouched(const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i] != KVT_RIG_UNTOUCHED) {
            return false;
        }
    }
    return true;
}

bool kvt_rig_untouched(const struct kvt_rig_engine *engine, const uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t r = 0; r < engine->shape.region_count; r++) {
            if (!all_untouched(block_at(engine, r, blocks[i]), engine->shape.block_bytes[r])) {
                return false;
            }
        }
    }
    return true;
}

bool kvt_rig_gaps_untouched(const struct kvt_rig_engine *engine)
{
    for (uint32_t r = 0; r < engine->shape.region_count; r++) {
        uint64_t used = engine->shape.block_bytes[r];
        for (uint32_t b = 0; b < engine->shape.block_count; b++) {
            if (!all_untouched(block_at(engine, r, b) + used,
                               engine->shape.stride_bytes[r] - used)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- calls ---- */

struct kvt_cache_found kvt_rig_lookup(struct kvt_rig_engine *engine, uint64_t request_id,
                                      const uint32_t *tokens, uint64_t token_count,
                                      uint64_t own_tokens)
{
    struct kvt_cache_lookup lookup = {.client = engine->client,
                                      .request_id = request_id,
                                      .tokens = tokens,
                                      .token_count = token_count,
                                      .own_tokens = own_tokens};
    struct kvt_cache_found found = {0};
    must(kvt_cache_lookup(engine->on->cache, &lookup, &found), "lookup");
    EXPECT((found.lease != 0) == (found.matched_tokens > 0));
    EXPECT(found.matched_tokens < token_count);
    EXPECT(found.tier_tokens[0] + found.tier_tokens[1] == found.matched_tokens || found.lease == 0);
    return found;
}

uint64_t kvt_rig_probe(struct kvt_rig_engine *engine, const uint32_t *tokens, uint64_t token_count)
{
    struct kvt_cache_found found = kvt_rig_lookup(engine, 0, tokens, token_count, 0);
    if (found.lease != 0) {
        kvt_rig_release(engine, found.lease);
    }
    return found.matched_tokens;
}

uint64_t kvt_rig_save_begin(struct kvt_rig_engine *engine, const uint32_t *tokens,
                            uint64_t token_count, const uint32_t *blocks, void *stream)
{
    uint64_t job = 0;
    struct kvt_cache_save save = {
        .client = engine->client,
        .binding = engine->binding,
        .tokens = tokens,
        .token_count = token_count,
        .blocks = blocks,
        .block_count = (size_t)(token_count / engine->shape.block_tokens),
        .stream = stream != NULL ? stream : engine->stream,
    };
    must(kvt_cache_save(engine->on->cache, &save, &job), "save");
    return job;
}

uint64_t kvt_rig_restore_begin(struct kvt_rig_engine *engine, uint64_t lease, uint32_t first_page,
                               uint32_t pages, const uint32_t *blocks, void *stream)
{
    uint64_t job = 0;
    const uint32_t page_tokens = engine->on->config.page_tokens;
    struct kvt_cache_restore restore = {
        .client = engine->client,
        .lease = lease,
        .binding = engine->binding,
        .first_token = (uint64_t)first_page * page_tokens,
        .token_count = (uint64_t)pages * page_tokens,
        .blocks = blocks,
        .block_count = (size_t)pages * engine->blocks_per_page,
        .stream = stream != NULL ? stream : engine->stream,
    };
    must(kvt_cache_restore(engine->on->cache, &restore, &job), "restore");
    return job;
}

struct kvt_cache_result kvt_rig_finish(struct kvt_rig_engine *engine, uint64_t job)
{
    struct kvt_cache_result result = {0};
    must(kvt_cache_poll(engine->on->cache, engine->client, job, KVT_RIG_WAIT_NS, &result), "poll");
    EXPECT(result.done != 0);
    return result;
}

struct kvt_cache_result kvt_rig_save(struct kvt_rig_engine *engine, const uint32_t *tokens,
                                     uint64_t token_count, const uint32_t *blocks)
{
    return kvt_rig_finish(engine, kvt_rig_save_begin(engine, tokens, token_count, blocks, NULL));
}

struct kvt_cache_result kvt_rig_restore(struct kvt_rig_engine *engine, uint64_t lease,
                                        uint32_t first_page, uint32_t pages, const uint32_t *blocks)
{
    return kvt_rig_finish(engine,
                          kvt_rig_restore_begin(engine, lease, first_page, pages, blocks, NULL));
}

void kvt_rig_release(struct kvt_rig_engine *engine, uint64_t lease)
{
    must(kvt_cache_release(engine->on->cache, engine->client, lease), "release");
}

void kvt_rig_report(struct kvt_rig_engine *engine, uint64_t request_id, uint64_t prompt_tokens,
                    uint64_t own_tokens, uint64_t computed_tokens)
{
    must(kvt_cache_report(engine->on->cache, engine->client, request_id, prompt_tokens, own_tokens,
                          computed_tokens),
         "report");
}

#define RIG_BLOCKS_MAX 4096u

void kvt_rig_put(struct kvt_rig_engine *engine, const uint32_t *tokens, uint32_t pages)
{
    uint32_t blocks[RIG_BLOCKS_MAX];
    uint64_t count = (uint64_t)pages * engine->on->config.page_tokens;
    EXPECT(pages * engine->blocks_per_page <= RIG_BLOCKS_MAX);
    kvt_rig_blocks(blocks, 0, pages * engine->blocks_per_page);
    kvt_rig_paint(engine, tokens, 0, pages, blocks);
    struct kvt_cache_result result = kvt_rig_save(engine, tokens, count, blocks);
    must(result.status, "a save");
    EXPECT(result.tokens_good == count);
}

uint32_t kvt_rig_get(struct kvt_rig_engine *engine, const uint32_t *tokens, uint64_t token_count)
{
    uint32_t blocks[RIG_BLOCKS_MAX];
    struct kvt_cache_found found = kvt_rig_lookup(engine, 0, tokens, token_count, 0);
    kvt_rig_wipe_all(engine);
    if (found.lease == 0) {
        return 0;
    }
    uint32_t pages = (uint32_t)(found.matched_tokens / engine->on->config.page_tokens);
    EXPECT(pages * engine->blocks_per_page <= RIG_BLOCKS_MAX);
    kvt_rig_blocks(blocks, 0, pages * engine->blocks_per_page);
    struct kvt_cache_result result = kvt_rig_restore(engine, found.lease, 0, pages, blocks);
    must(result.status, "a restore");
    EXPECT(result.tokens_good == found.matched_tokens);
    EXPECT(result.bytes_moved == pages * engine->page_bytes);
    EXPECT(result.tier_tokens[0] + result.tier_tokens[1] == result.tokens_good);
    EXPECT(kvt_rig_good_pages(engine, tokens, 0, pages, blocks) == pages);
    EXPECT(kvt_rig_gaps_untouched(engine));
    uint32_t next = pages * engine->blocks_per_page;
    for (uint32_t b = next; b < engine->shape.block_count; b++) {
        EXPECT(kvt_rig_untouched(engine, &b, 1));
    }
    kvt_rig_release(engine, found.lease);
    return pages;
}

uint64_t kvt_rig_serve(struct kvt_rig_engine *engine, uint64_t request_id, const uint32_t *tokens,
                       uint64_t token_count, uint32_t first_block)
{
    const uint32_t page_tokens = engine->on->config.page_tokens;
    const uint32_t per_page = engine->blocks_per_page;
    uint32_t pages = (uint32_t)(token_count / page_tokens);
    uint32_t blocks[RIG_BLOCKS_MAX];
    EXPECT(pages * per_page <= RIG_BLOCKS_MAX);
    kvt_rig_blocks(blocks, first_block, pages * per_page);
    kvt_rig_wipe(engine, blocks, pages * per_page);
    struct kvt_cache_found found = kvt_rig_lookup(engine, request_id, tokens, token_count, 0);
    uint32_t hit = (uint32_t)(found.matched_tokens / page_tokens), good = 0;
    if (hit > 0) {
        struct kvt_cache_result result = kvt_rig_restore(engine, found.lease, 0, hit, blocks);
        good = (uint32_t)(result.tokens_good / page_tokens);
        EXPECT(good <= hit && (result.status == KVT_OK) == (good == hit));
        EXPECT(kvt_rig_good_pages(engine, tokens, 0, good, blocks) == good);
        EXPECT(kvt_rig_untouched(engine, blocks + hit * per_page, (pages - hit) * per_page));
    }
    kvt_rig_paint(engine, tokens, good, pages - good, blocks + good * per_page);
    struct kvt_cache_result saved = kvt_rig_save(engine, tokens, token_count, blocks);
    EXPECT(saved.tokens_good <= token_count);
    kvt_rig_report(engine, request_id, token_count, 0, token_count - good * page_tokens);
    return (uint64_t)good * page_tokens;
}

/* ---- streams ---- */

void kvt_rig_gate_init(struct kvt_rig_gate *gate)
{
    kvt_lock_init(&gate->lock, KVT_RANK_LEAF, "gate");
    kvt_cond_init(&gate->cond);
    gate->open = false;
    gate->reached = false;
}

void kvt_rig_gate_fini(struct kvt_rig_gate *gate)
{
    kvt_cond_fini(&gate->cond);
    kvt_lock_fini(&gate->lock);
}

void kvt_rig_gate_pass(void *arg)
{
    struct kvt_rig_gate *gate = arg;
    kvt_lock_take(&gate->lock);
    gate->reached = true;
    while (!gate->open) {
        (void)kvt_cond_wait(&gate->cond, &gate->lock, UINT64_MAX);
    }
    kvt_lock_give(&gate->lock);
}

void kvt_rig_gate_open(struct kvt_rig_gate *gate)
{
    kvt_lock_take(&gate->lock);
    gate->open = true;
    kvt_cond_broadcast(&gate->cond);
    kvt_lock_give(&gate->lock);
}

void *kvt_rig_stream(struct kvt_rig_cache *rig)
{
    void *stream = NULL;
    must(kvt_cache_stream_create(rig->cache, &stream), "stream_create");
    return stream;
}

void kvt_rig_enqueue(struct kvt_rig_cache *rig, void *stream, void (*fn)(void *), void *arg)
{
    must(kvt_cache_stream_enqueue(rig->cache, stream, fn, arg), "stream_enqueue");
}

void kvt_rig_sync(struct kvt_rig_cache *rig, void *stream)
{
    must(kvt_cache_stream_sync(rig->cache, stream, KVT_RIG_WAIT_NS), "stream_sync");
}

void kvt_rig_sleep(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / KVT_RIG_S), (long)(ns % KVT_RIG_S)};
    while (nanosleep(&left, &left) != 0) {
    }
}
