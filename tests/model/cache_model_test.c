/*
 * Random operations on a whole cache against a model that knows only what was saved: three
 * namespaces of conversations that are paths in a tree of WAYS choices a page. Every byte that
 * comes back is verified; where nothing is evicted the promise must be exact; what is leased must
 * come back whole.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define WAYS 3u
#define DEPTH 7u
#define NODES 3280u /* 1 + 3 + 9 + ... + 3^7 */
#define SPACES 3u
#define PAGE_TOKENS 16u
#define PAGE_BLOCKS 2u
#define SLOTS 16u /* places in the engine's memory, one a job */
#define SLOT_BLOCKS (DEPTH * PAGE_BLOCKS)
#define LEASES 24u
#define TTL_NS (60 * KVT_RIG_S)

struct path {
    uint32_t space;
    uint32_t pages;
    uint32_t nodes[DEPTH]; /* of the tree, page by page */
    uint32_t tokens[DEPTH * PAGE_TOKENS + 1];
};

struct job {
    uint64_t handle; /* 0: none */
    bool save, cancelled, faulty;
    uint32_t lease; /* restore: whose */
    uint32_t first, pages;
    struct path path;
};

struct lease {
    uint64_t handle; /* 0: none */
    uint64_t request_id, expires_ns;
    uint32_t pages, transfers;
    bool released;
    struct path path;
};

struct world {
    struct kvt_rig_cache rig;
    struct kvt_rig_engine engines[SPACES]; /* two tenants, and a salted client of the first */
    struct test_random random;
    bool evicts, faults;
    bool held, armed;
    uint64_t next_request, restored, saved, shortfalls;
    unsigned char kept[SPACES][NODES];    /* has been saved with success */
    unsigned char pending[SPACES][NODES]; /* saves under way */
    struct job jobs[SLOTS];
    struct lease leases[LEASES];
};

static uint32_t below(struct world *world, uint32_t limit)
{
    return test_random_below(&world->random, limit);
}

static uint64_t now_ns(struct world *world) { return atomic_load(&world->rig.now_ns); }

/* ---- paths ---- */

/* Pages of one level differ in their first token, in their last, or in the middle. */
static void page_tokens(uint32_t *tokens, uint32_t level, uint32_t choice)
{
    static const uint32_t where[WAYS] = {0, PAGE_TOKENS - 1, 7};
    kvt_rig_tokens(tokens, 0, PAGE_TOKENS, level);
    tokens[where[choice]] ^= 1;
}

static void path_make(struct world *world, struct path *path, uint32_t pages)
{
    uint32_t node = 0;
    path->space = below(world, SPACES);
    path->pages = pages;
    for (uint32_t i = 0; i < pages; i++) {
        /* Some choices more often than others, so that there is something to hit. */
        uint32_t choice = below(world, WAYS * WAYS);
        choice = choice < WAYS ? choice : 0;
        node = node * WAYS + 1 + choice;
        path->nodes[i] = node;
        page_tokens(path->tokens + (size_t)i * PAGE_TOKENS, i, choice);
    }
    path->tokens[pages * PAGE_TOKENS] = below(world, 5);
}

static void slot_blocks(uint32_t slot, uint32_t *blocks)
{
    kvt_rig_blocks(blocks, slot * SLOT_BLOCKS, SLOT_BLOCKS);
}

static uint32_t free_job(const struct world *world)
{
    uint32_t slot = 0;
    while (slot < SLOTS && world->jobs[slot].handle != 0) {
        slot++;
    }
    return slot;
}

static uint32_t free_lease(const struct world *world)
{
    uint32_t i = 0;
    while (i < LEASES && world->leases[i].handle != 0) {
        i++;
    }
    return i;
}

/* ---- operations ---- */

/* How deep a prefix is known for sure, and how deep at most. */
static void bounds(const struct world *world, const struct path *path, uint32_t *least,
                   uint32_t *most)
{
    const unsigned char *kept = world->kept[path->space];
    const unsigned char *pending = world->pending[path->space];
    *least = 0;
    *most = 0;
    while (*least < path->pages && kept[path->nodes[*least]] != 0) {
        ++*least;
    }
    while (*most < path->pages &&
           (kept[path->nodes[*most]] != 0 || pending[path->nodes[*most]] != 0)) {
        ++*most;
    }
}

static void op_lookup(struct world *world)
{
    uint32_t at = free_lease(world);
    struct path path;
    path_make(world, &path, 1 + below(world, DEPTH));
    struct kvt_rig_engine *engine = &world->engines[path.space];
    if (at == LEASES) {
        (void)kvt_rig_probe(engine, path.tokens, path.pages * PAGE_TOKENS + 1);
        return;
    }
    uint64_t id = below(world, 2) == 0 ? 0 : ++world->next_request;
    struct kvt_cache_found found =
        kvt_rig_lookup(engine, id, path.tokens, path.pages * PAGE_TOKENS + 1, 0);
    uint32_t least = 0, most = 0, pages = (uint32_t)(found.matched_tokens / PAGE_TOKENS);
    bounds(world, &path, &least, &most);
    EXPECT(pages <= most);
    EXPECT(world->evicts || pages >= least);
    if (found.lease == 0) {
        if (id != 0) {
            kvt_rig_report(engine, id, path.pages * PAGE_TOKENS + 1, 0,
                           path.pages * PAGE_TOKENS + 1);
        }
        return;
    }
    world->leases[at] = (struct lease){.handle = found.lease,
                                       .request_id = id,
                                       .expires_ns = now_ns(world) + TTL_NS,
                                       .pages = pages,
                                       .path = path};
}

/* A lease in use, or NULL. */
static struct lease *some_lease(struct world *world)
{
    struct lease *lease = &world->leases[below(world, LEASES)];
    return lease->handle != 0 && !lease->released ? lease : NULL;
}

/* Unused for its whole time: it may be gone by now. (A transfer that we have not asked about may
 * have ended long ago.) */
static bool may_be_gone(struct world *world, const struct lease *lease)
{
    return lease->expires_ns <= now_ns(world);
}

static void lease_forget(struct lease *lease)
{
    if (lease->released && lease->transfers == 0) {
        lease->handle = 0;
    }
}

/* It has expired: its request ends too. */
static void lease_gone(struct world *world, struct lease *lease)
{
    uint64_t count = lease->path.pages * PAGE_TOKENS + 1;
    if (lease->request_id != 0) {
        kvt_rig_report(&world->engines[lease->path.space], lease->request_id, count, 0, count);
    }
    lease->released = true;
    lease_forget(lease);
}

static void op_restore(struct world *world)
{
    struct lease *lease = some_lease(world);
    uint32_t slot = free_job(world), blocks[SLOT_BLOCKS];
    if (lease == NULL || slot == SLOTS) {
        return;
    }
    struct kvt_rig_engine *engine = &world->engines[lease->path.space];
    struct job *job = &world->jobs[slot];
    slot_blocks(slot, blocks);
    kvt_rig_wipe(engine, blocks, SLOT_BLOCKS);
    uint32_t first = below(world, 3) == 0 ? below(world, lease->pages) : 0;
    *job = (struct job){.lease = (uint32_t)(lease - world->leases),
                        .first = first,
                        .pages = 1 + below(world, lease->pages - first),
                        .faulty = world->armed,
                        .path = lease->path};
    struct kvt_cache_restore restore = {.client = engine->client,
                                        .lease = lease->handle,
                                        .binding = engine->binding,
                                        .first_token = first * PAGE_TOKENS,
                                        .token_count = job->pages * PAGE_TOKENS,
                                        .blocks = blocks,
                                        .block_count = job->pages * PAGE_BLOCKS,
                                        .stream = engine->stream};
    kvt_status status = kvt_cache_restore(world->rig.cache, &restore, &job->handle);
    if (status == KVT_OK) {
        lease->transfers++;
        lease->expires_ns = now_ns(world) + TTL_NS; /* from its end on, which is not before now */
    } else {
        EXPECT(status == KVT_ERR_STALE && may_be_gone(world, lease));
        lease_gone(world, lease);
    }
}

static void op_save(struct world *world)
{
    uint32_t slot = free_job(world), blocks[SLOT_BLOCKS];
    if (slot == SLOTS) {
        return;
    }
    struct job *job = &world->jobs[slot];
    *job = (struct job){.save = true, .faulty = world->armed};
    path_make(world, &job->path, 1 + below(world, DEPTH));
    struct kvt_rig_engine *engine = &world->engines[job->path.space];
    slot_blocks(slot, blocks);
    kvt_rig_paint(engine, job->path.tokens, 0, job->path.pages, blocks);
    job->handle = kvt_rig_save_begin(engine, job->path.tokens,
                                     job->path.pages * PAGE_TOKENS + below(world, 2), blocks, NULL);
    for (uint32_t i = 0; i < job->path.pages; i++) {
        world->pending[job->path.space][job->path.nodes[i]]++;
    }
}

static void saved(struct world *world, struct job *job, const struct kvt_cache_result *result)
{
    uint32_t good = (uint32_t)(result->tokens_good / PAGE_TOKENS);
    EXPECT(good <= job->path.pages);
    EXPECT((result->status == KVT_OK) == (good == job->path.pages));
    EXPECT(result->status != KVT_ERR_CANCELLED || job->cancelled);
    EXPECT(result->status == KVT_OK || job->cancelled || job->faulty || world->evicts);
    for (uint32_t i = 0; i < job->path.pages; i++) {
        world->pending[job->path.space][job->path.nodes[i]]--;
        if (i < good) {
            world->kept[job->path.space][job->path.nodes[i]] = 1;
        }
    }
    world->saved += good;
}

static void restored(struct world *world, struct job *job, uint32_t slot,
                     const struct kvt_cache_result *result)
{
    uint32_t good = (uint32_t)(result->tokens_good / PAGE_TOKENS), blocks[SLOT_BLOCKS];
    struct kvt_rig_engine *engine = &world->engines[job->path.space];
    struct lease *lease = &world->leases[job->lease];
    slot_blocks(slot, blocks);
    EXPECT(good <= job->pages);
    EXPECT((result->status == KVT_OK) == (good == job->pages));
    EXPECT(result->status == KVT_OK || job->cancelled || job->faulty);
    EXPECT(kvt_rig_good_pages(engine, job->path.tokens, job->first, good, blocks) == good);
    EXPECT(kvt_rig_untouched(engine, blocks + job->pages * PAGE_BLOCKS,
                             SLOT_BLOCKS - job->pages * PAGE_BLOCKS));
    world->restored += good;
    world->shortfalls += good < job->pages;
    lease->transfers--;
    lease_forget(lease);
}

/* Ask for a job's end: now, or until it comes. */
static void job_poll(struct world *world, uint32_t slot, bool wait)
{
    struct job *job = &world->jobs[slot];
    struct kvt_rig_engine *engine = &world->engines[job->path.space];
    struct kvt_cache_result result = {0};
    if (job->handle == 0) {
        return;
    }
    EXPECT(kvt_cache_poll(world->rig.cache, engine->client, job->handle, wait ? KVT_RIG_WAIT_NS : 0,
                          &result) == KVT_OK);
    if (result.done == 0) {
        EXPECT(!wait);
        return;
    }
    if (job->save) {
        saved(world, job, &result);
    } else {
        restored(world, job, slot, &result);
    }
    job->handle = 0;
}

static void op_cancel(struct world *world)
{
    struct job *job = &world->jobs[below(world, SLOTS)];
    if (job->handle != 0) {
        job->cancelled = true;
        EXPECT(kvt_cache_cancel(world->rig.cache, world->engines[job->path.space].client,
                                job->handle) == KVT_OK);
    }
}

static void op_release(struct world *world)
{
    struct lease *lease = some_lease(world);
    if (lease == NULL) {
        return;
    }
    struct kvt_rig_engine *engine = &world->engines[lease->path.space];
    uint64_t count = lease->path.pages * PAGE_TOKENS + 1;
    if (lease->request_id != 0) {
        /* What was delivered is the cache's to say; here only the tokens must be the request's. */
        kvt_rig_report(engine, lease->request_id, count, 0, count);
        EXPECT(kvt_cache_lease_check(world->rig.cache, engine->client, lease->handle) ==
               KVT_ERR_STALE);
    } else {
        kvt_status status = kvt_cache_release(world->rig.cache, engine->client, lease->handle);
        EXPECT(status == KVT_OK || (status == KVT_ERR_STALE && may_be_gone(world, lease)));
        EXPECT(kvt_cache_release(world->rig.cache, engine->client, lease->handle) == KVT_ERR_STALE);
    }
    lease->released = true;
    lease_forget(lease);
}

/* The same request asks again: the same lease, unless that has expired. */
static void op_ask_again(struct world *world)
{
    struct lease *lease = some_lease(world);
    if (lease == NULL || lease->request_id == 0) {
        return;
    }
    struct kvt_cache_found found =
        kvt_rig_lookup(&world->engines[lease->path.space], lease->request_id, lease->path.tokens,
                       lease->path.pages * PAGE_TOKENS + 1, 0);
    EXPECT(found.lease == lease->handle || may_be_gone(world, lease));
    if (found.lease == 0) {
        lease->pages = 0;
        lease_gone(world, lease);
    } else if (found.lease != lease->handle) {
        lease->handle = found.lease;
        lease->pages = (uint32_t)(found.matched_tokens / PAGE_TOKENS);
    }
    EXPECT(found.matched_tokens == lease->pages * PAGE_TOKENS);
    lease->expires_ns = now_ns(world) + TTL_NS;
}

static void op_fault(struct world *world)
{
    world->armed = world->faults && !world->armed;
    kvt_rig_fault(&world->rig, KVT_RIG_FAIL_PAGE_COPY, world->armed ? 1 + below(world, 20) : 0);
    for (uint32_t slot = 0; world->armed && slot < SLOTS; slot++) {
        world->jobs[slot].faulty = true; /* it may strike what runs, or what begins */
    }
}

static void check_all(struct world *world)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        job_poll(world, slot, true);
    }
    kvt_rig_quiesce(&world->rig);
    kvt_rig_check(&world->rig);
    struct kvt_cache_stats stats = kvt_rig_stats(&world->rig);
    EXPECT(stats.saved_pages == stats.pages + stats.evicted_pages);
    EXPECT(world->evicts || stats.evicted_pages == 0);
    EXPECT(stats.tier_slots_in_transfer[0] + stats.tier_slots_in_transfer[1] == 0);
    if (!world->evicts) {
        uint64_t kept = 0;
        for (uint32_t i = 0; i < SPACES * NODES; i++) {
            kept += world->kept[i / NODES][i % NODES];
        }
        EXPECT(stats.pages == kept);
    }
}

static void op(struct world *world)
{
    uint32_t what = below(world, 100);
    if (what < 25) {
        op_lookup(world);
    } else if (what < 45) {
        op_restore(world);
    } else if (what < 62) {
        op_save(world);
    } else if (what < 82) {
        job_poll(world, below(world, SLOTS), !world->held && below(world, 4) == 0);
    } else if (what < 85) {
        op_cancel(world);
    } else if (what < 93) {
        op_release(world);
    } else if (what < 96) {
        op_ask_again(world);
    } else if (what < 97) {
        op_fault(world);
    } else if (what < 98) {
        world->held = !world->held;
        kvt_rig_fault(&world->rig, KVT_RIG_HOLD, world->held);
    } else {
        atomic_fetch_add(&world->rig.now_ns, below(world, 20) * KVT_RIG_S);
    }
}

/* ---- runs ---- */

static void world_open(struct world *world, uint64_t hbm_pages, uint64_t host_pages)
{
    static const struct kvt_rig_shape shape = {
        .block_tokens = 8,
        .block_count = SLOTS * SLOT_BLOCKS,
        .region_count = 2,
        .block_bytes = {1030, 1018},
        .stride_bytes = {1031, 1100},
    };
    kvt_rig_cache_init(&world->rig);
    world->rig.config.hbm_bytes = hbm_pages * 4096;
    world->rig.config.host_bytes = host_pages * 4096;
    world->rig.config.lease_ttl_ns = TTL_NS;
    world->rig.config.request_ttl_ns = UINT64_MAX / 2;
    kvt_rig_cache_open(&world->rig);
    for (uint32_t i = 0; i < SPACES; i++) {
        kvt_rig_engine_open(&world->engines[i], &world->rig, &shape, i == 0 ? "a" : "b");
        world->engines[i].weights = i;
    }
    /* The third: the second tenant with a salt. */
    struct kvt_cache_field salt = {.tag = 9, .data = "salt", .bytes = 4};
    struct kvt_rig_engine *engine = &world->engines[2];
    EXPECT(kvt_cache_unbind(world->rig.cache, engine->client, engine->binding) == KVT_OK);
    EXPECT(kvt_cache_client_close(world->rig.cache, engine->client) == KVT_OK);
    EXPECT(kvt_cache_client_open(world->rig.cache, "b", 1, &salt, 1, NULL, 0, &engine->client, NULL,
                                 0) == KVT_OK);
    EXPECT(kvt_cache_bind(world->rig.cache, engine->client, engine->regions, 2, 8,
                          shape.block_count, &engine->binding, NULL, 0) == KVT_OK);
}

static void world_close(struct world *world)
{
    check_all(world);
    for (uint32_t i = 0; i < LEASES; i++) {
        struct lease *lease = &world->leases[i];
        if (lease->handle != 0) {
            struct kvt_rig_engine *engine = &world->engines[lease->path.space];
            kvt_status status = kvt_cache_release(world->rig.cache, engine->client, lease->handle);
            EXPECT(status == KVT_OK || may_be_gone(world, lease));
        }
    }
    kvt_rig_idle(&world->rig);
    for (uint32_t i = 0; i < SPACES; i++) {
        kvt_rig_engine_close(&world->engines[i]);
    }
    kvt_rig_cache_close(&world->rig);
}

static void world_run(struct world *world, uint64_t ops)
{
    for (uint64_t i = 0; i < ops; i++) {
        op(world);
        if (i % 2000 == 1999) {
            world->held = false;
            kvt_rig_fault(&world->rig, KVT_RIG_HOLD, 0);
            world->armed = false;
            kvt_rig_fault(&world->rig, KVT_RIG_FAIL_PAGE_COPY, 0);
            check_all(world);
        }
    }
    world->held = false;
    kvt_rig_fault(&world->rig, KVT_RIG_HOLD, 0);
    kvt_rig_fault(&world->rig, KVT_RIG_FAIL_PAGE_COPY, 0);
    check_all(world);
    ck_assert_uint_gt(world->restored, 0);
    ck_assert_uint_gt(world->saved, 0);
}

/* The control: bytes of other weights under these tokens are not taken for right. */
static void wrong_bytes_show(struct world *world)
{
    uint32_t blocks[SLOT_BLOCKS], tokens[2 * PAGE_TOKENS + 1];
    struct kvt_rig_engine other = world->engines[0];
    slot_blocks(0, blocks);
    kvt_rig_tokens(tokens, 0, 2 * PAGE_TOKENS + 1, 4711);
    other.weights = 99;
    kvt_rig_paint(&other, tokens, 0, 2, blocks);
    ck_assert_uint_eq(kvt_rig_save(&world->engines[0], tokens, 2 * PAGE_TOKENS, blocks).tokens_good,
                      2 * PAGE_TOKENS);
    kvt_rig_wipe(&other, blocks, SLOT_BLOCKS);
    struct kvt_cache_found found =
        kvt_rig_lookup(&world->engines[0], 0, tokens, 2 * PAGE_TOKENS + 1, 0);
    (void)kvt_rig_restore(&world->engines[0], found.lease, 0, 2, blocks);
    kvt_rig_release(&world->engines[0], found.lease);
    ck_assert_uint_eq(kvt_rig_good_pages(&world->engines[0], tokens, 0, 2, blocks), 0);
    ck_assert_uint_eq(kvt_rig_good_pages(&other, tokens, 0, 2, blocks), 2);
}

static void run(const char *what, uint64_t hbm_pages, uint64_t host_pages, bool evicts, bool faults)
{
    struct world *world = calloc(1, sizeof(*world));
    EXPECT(world != NULL);
    world->random = test_random_start(what, 37);
    world->evicts = evicts;
    world->faults = faults;
    world_open(world, hbm_pages, host_pages);
    world_run(world, test_scaled(100000));
    struct kvt_cache_stats stats = kvt_rig_stats(&world->rig);
    ck_assert(!evicts || stats.evicted_pages > 0);
    ck_assert(hbm_pages == 0 || host_pages == 0 || stats.demoted_pages > 0);
    ck_assert_uint_eq(stats.key_collisions, 0);
    if (!evicts) {
        wrong_bytes_show(world);
        world->evicts = true; /* the control is not in the model */
    }
    world_close(world);
    free(world);
}

START_TEST(nothing_is_evicted) { run("cache_model exact", 200, 3 * NODES, false, false); }
END_TEST

START_TEST(nothing_is_evicted_and_copies_fail)
{
    run("cache_model exact with faults", 100, 3 * NODES, false, true);
}
END_TEST

START_TEST(both_tiers_are_full) { run("cache_model both", 40, 60, true, true); }
END_TEST

START_TEST(one_tier_is_full) { run("cache_model one", 0, 48, true, true); }
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_model");
    TCase *tcase = tcase_create("cache_model");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, nothing_is_evicted);
    tcase_add_test(tcase, nothing_is_evicted_and_copies_fail);
    tcase_add_test(tcase, both_tiers_are_full);
    tcase_add_test(tcase, one_tier_is_full);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
