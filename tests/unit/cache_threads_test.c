/* Several engines at once on one small cache, every byte verified; and calls that race each
 * other. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define THREADS 4u
#define THREAD_PAGES 8u
#define TOKENS_MAX (THREAD_PAGES * 16 + 1)
#define THREAD_BLOCKS (THREAD_PAGES * 2)

static struct kvt_rig_cache rig;

static const struct kvt_rig_shape shape = {
    .block_tokens = 8,
    .block_count = 256,
    .region_count = 2,
    .block_bytes = {1030, 1018},
    .stride_bytes = {1031, 1100},
};

static void rig_open(uint64_t hbm_pages, uint64_t host_pages)
{
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = hbm_pages * 4096;
    rig.config.host_bytes = host_pages * 4096;
    kvt_rig_cache_open(&rig);
}

/* ---- engines beside each other ---- */

struct worker {
    struct kvt_thread thread;
    struct kvt_rig_engine *engine;
    uint32_t number, first_block;
    uint64_t seed, rounds, delivered;
};

/* Prompts of a few conversations that share heads and branch. */
static uint64_t prompt_of(struct test_random *random, uint32_t *tokens)
{
    uint32_t cut = 16 * test_random_below(random, THREAD_PAGES);
    uint64_t count = 17 + test_random_below(random, TOKENS_MAX - 16);
    kvt_rig_tokens(tokens, 0, cut, 1 + test_random_below(random, 2));
    kvt_rig_tokens(tokens, cut, TOKENS_MAX, 10 + test_random_below(random, 3));
    return count < TOKENS_MAX ? count : TOKENS_MAX;
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct test_random random = {worker->seed};
    uint32_t tokens[TOKENS_MAX];
    for (uint64_t i = 0; i < worker->rounds; i++) {
        uint64_t count = prompt_of(&random, tokens);
        uint64_t id = 1 + worker->number + i * THREADS;
        if (test_random_below(&random, 4) == 0) {
            (void)kvt_rig_probe(worker->engine, tokens, count);
        }
        worker->delivered += kvt_rig_serve(worker->engine, id, tokens, count, worker->first_block);
    }
    return NULL;
}

/* Who looks on, and asks for everything to be finished again and again. */
static _Atomic bool over;

static void *onlooker_main(void *arg)
{
    uint64_t *rounds = arg;
    while (!atomic_load(&over)) {
        struct kvt_cache_stats stats = kvt_rig_stats(&rig);
        EXPECT(stats.tokens_asked == stats.tokens_own + stats.tokens_computed +
                                         stats.tokens_delivered[0] + stats.tokens_delivered[1]);
        for (uint32_t tier = 0; tier < KVT_CACHE_TIERS; tier++) {
            EXPECT(stats.tier_bytes_used[tier] <= stats.tier_bytes_mapped[tier]);
            EXPECT(stats.tier_bytes_mapped[tier] <= stats.tier_bytes_budget[tier]);
        }
        kvt_status status = kvt_cache_flush(rig.cache, *rounds % 2 * KVT_RIG_MS);
        EXPECT(status == KVT_OK || status == KVT_ERR_TIMEOUT);
        status = kvt_cache_quiesce(rig.cache, *rounds % 3 * KVT_RIG_MS);
        EXPECT(status == KVT_OK || status == KVT_ERR_TIMEOUT);
        ++*rounds;
        kvt_rig_sleep(KVT_RIG_MS);
    }
    return NULL;
}

static void workers_run(struct worker *workers, uint64_t rounds)
{
    struct kvt_thread onlooker;
    uint64_t looks = 0;
    atomic_store(&over, false);
    ck_assert_int_eq(kvt_thread_start(&onlooker, "onlooker", onlooker_main, &looks), KVT_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].number = i;
        workers[i].rounds = rounds;
        workers[i].delivered = 0;
        ck_assert_int_eq(kvt_thread_start(&workers[i].thread, "worker", worker_main, &workers[i]),
                         KVT_OK);
    }
    uint64_t delivered = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_thread_join(&workers[i].thread);
        delivered += workers[i].delivered;
    }
    atomic_store(&over, true);
    kvt_thread_join(&onlooker);
    kvt_rig_quiesce(&rig);
    kvt_rig_check(&rig);
    kvt_rig_idle(&rig);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.requests_reported, rounds * THREADS);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    ck_assert_uint_eq(stats.tokens_delivered[0] + stats.tokens_delivered[1], delivered);
    ck_assert_uint_eq(stats.restored_pages * 16, delivered);
    ck_assert_uint_eq(stats.saved_pages, stats.pages + stats.evicted_pages);
    ck_assert_uint_gt(delivered, 0);
    ck_assert_uint_gt(stats.evicted_pages, 0);
    ck_assert_uint_gt(looks, 0);
}

static uint64_t seed_of(const char *what)
{
    struct test_random random = test_random_start(what, 31);
    return test_random_u64(&random);
}

START_TEST(engines_of_one_tenant)
{
    static struct kvt_rig_engine engines[THREADS];
    struct worker workers[THREADS];
    uint64_t seed = seed_of("cache_threads one tenant");
    /* Room in both, hbm only, host only. */
    rig_open(_i == 2 ? 0 : 16, _i == 1 ? 0 : 20);
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_rig_engine_open(&engines[i], &rig, &shape, "tenant");
        workers[i] = (struct worker){.engine = &engines[i], .seed = seed + i};
    }
    workers_run(workers, test_scaled(1000));
    ck_assert(_i != 0 || kvt_rig_stats(&rig).demoted_pages > 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_rig_engine_close(&engines[i]);
    }
    kvt_rig_cache_close(&rig);
}
END_TEST

/* The same prompts, other bytes: what one tenant saved never comes back to the other (F18). */
START_TEST(engines_of_two_tenants)
{
    static struct kvt_rig_engine engines[THREADS];
    struct worker workers[THREADS];
    uint64_t seed = seed_of("cache_threads two tenants");
    rig_open(24, 24);
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_rig_engine_open(&engines[i], &rig, &shape, i % 2 == 0 ? "even" : "odd");
        engines[i].weights = i % 2;
        workers[i] = (struct worker){.engine = &engines[i], .seed = seed + i};
    }
    workers_run(workers, test_scaled(1000));
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_rig_engine_close(&engines[i]);
    }
    kvt_rig_cache_close(&rig);
}
END_TEST

/* Several threads of one engine: one client, one binding, one stream. */
START_TEST(threads_of_one_engine)
{
    static struct kvt_rig_engine engine;
    struct worker workers[THREADS];
    uint64_t seed = seed_of("cache_threads one engine");
    rig_open(16, 16);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker){.engine = &engine, .seed = seed + i, .first_block = i * THREAD_BLOCKS};
    }
    workers_run(workers, test_scaled(1000));
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* ---- probes (F35) ---- */

static void *prober_main(void *arg)
{
    struct kvt_rig_engine *engine = arg;
    uint32_t tokens[65];
    for (uint32_t i = 0; !atomic_load(&over); i++) {
        kvt_rig_tokens(tokens, 0, 65, i % 64);
        (void)kvt_rig_probe(engine, tokens, 65);
    }
    return NULL;
}

START_TEST(probes_do_not_stop_eviction)
{
    static struct kvt_rig_engine engine;
    struct kvt_thread threads[THREADS];
    uint32_t tokens[65];
    rig_open(32, 32);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    atomic_store(&over, false);
    for (uint32_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(kvt_thread_start(&threads[i], "prober", prober_main, &engine), KVT_OK);
    }
    for (uint32_t i = 0; i < test_scaled(2000); i++) {
        kvt_rig_tokens(tokens, 0, 65, i % 64);
        kvt_rig_put(&engine, tokens, 4); /* never refused */
    }
    atomic_store(&over, true);
    for (uint32_t i = 0; i < THREADS; i++) {
        kvt_thread_join(&threads[i]);
    }
    ck_assert_uint_gt(kvt_rig_stats(&rig).evicted_pages, 100);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* ---- one job, many callers ---- */

struct race {
    struct kvt_thread thread;
    struct kvt_rig_engine *engine;
    void *stream;
    _Atomic uint64_t *job;
    _Atomic uint64_t *told; /* how many were told that it is done */
    uint32_t what;
};

static void *racer_main(void *arg)
{
    struct race *race = arg;
    struct kvt_rig_engine *engine = race->engine;
    struct kvt_cache *cache = engine->on->cache;
    struct kvt_cache_result result;
    while (!atomic_load(&over)) {
        uint64_t job = atomic_load(race->job);
        kvt_status status = KVT_OK;
        if (race->what == 0) {
            status = kvt_cache_wait_region(cache, engine->client, job, 1, race->stream);
        } else if (race->what == 1) {
            status = kvt_cache_cancel(cache, engine->client, job);
        } else if (race->what == 2) {
            /* The handle that comes next, before its call has returned. */
            status = kvt_cache_wait_region(cache, engine->client, job + (UINT64_C(2) << 32), 0,
                                           race->stream);
        } else {
            status = kvt_cache_poll(cache, engine->client, job, 10000, &result);
            if (status == KVT_OK && result.done != 0) {
                atomic_fetch_add(race->told, 1);
            }
        }
        EXPECT(status == KVT_OK || status == KVT_ERR_STALE);
    }
    return NULL;
}

START_TEST(one_job_many_callers)
{
    static struct kvt_rig_engine engine;
    struct race races[6];
    _Atomic uint64_t job = 0, told = 0;
    uint32_t tokens[65], blocks[8];
    rig_open(32, 32);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_blocks(blocks, 0, 8);
    atomic_store(&over, false);
    for (uint32_t i = 0; i < 6; i++) {
        races[i] = (struct race){.engine = &engine,
                                 .stream = kvt_rig_stream(&rig),
                                 .job = &job,
                                 .told = &told,
                                 .what = i};
        ck_assert_int_eq(kvt_thread_start(&races[i].thread, "racer", racer_main, &races[i]),
                         KVT_OK);
    }
    const uint64_t rounds = test_scaled(1000);
    for (uint64_t i = 0; i < rounds; i++) {
        kvt_rig_tokens(tokens, 0, 65, i);
        kvt_rig_paint(&engine, tokens, 0, 4, blocks);
        atomic_store(&job, kvt_rig_save_begin(&engine, tokens, 64, blocks, NULL));
        while (atomic_load(&told) <= i) {
            kvt_rig_sleep(10000);
        }
        EXPECT(atomic_load(&told) == i + 1);
        if (i % 16 == 0) {
            for (uint32_t r = 0; r < 6; r++) {
                kvt_rig_sync(&rig, races[r].stream);
            }
        }
    }
    atomic_store(&over, true);
    for (uint32_t i = 0; i < 6; i++) {
        kvt_thread_join(&races[i].thread);
        kvt_cache_stream_destroy(rig.cache, races[i].stream);
    }
    ck_assert_uint_eq(atomic_load(&told), rounds);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* ---- bindings come and go ---- */

/* Binds and unbinds one's own, while another one in use is asked to go again and again. */
static void *binder_main(void *arg)
{
    struct kvt_rig_engine *engine = arg;
    struct kvt_cache *cache = engine->on->cache;
    for (uint64_t i = 0; i < test_scaled(400); i++) {
        uint64_t binding = 0;
        EXPECT(kvt_cache_bind(cache, engine->client, engine->regions, 2, 8, 256, &binding, NULL,
                              0) == KVT_OK);
        EXPECT(binding != engine->binding);
        EXPECT(kvt_cache_unbind(cache, engine->client, binding) == KVT_OK);
        EXPECT(kvt_cache_unbind(cache, engine->client, binding) == KVT_ERR_STALE);
    }
    return NULL;
}

static void *unbinder_main(void *arg)
{
    struct kvt_rig_engine *engine = arg;
    uint32_t seen = 0;
    while (!atomic_load(&over)) {
        kvt_status status = kvt_cache_unbind(engine->on->cache, engine->client, engine->binding);
        /* Two who ask at once: the later finds it gone for a moment. */
        EXPECT(status == KVT_ERR_BUSY || status == KVT_ERR_STALE);
        seen += status == KVT_ERR_BUSY;
    }
    EXPECT(seen > 0);
    return NULL;
}

START_TEST(bindings_come_and_go)
{
    static struct kvt_rig_engine engine;
    struct kvt_thread binders[2], unbinders[2];
    uint32_t tokens[65], blocks[8];
    rig_open(32, 32);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_blocks(blocks, 0, 8);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_save_begin(&engine, tokens, 64, blocks, NULL);
    atomic_store(&over, false);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(kvt_thread_start(&unbinders[i], "unbinder", unbinder_main, &engine),
                         KVT_OK);
        ck_assert_int_eq(kvt_thread_start(&binders[i], "binder", binder_main, &engine), KVT_OK);
    }
    for (uint32_t i = 0; i < 2; i++) {
        kvt_thread_join(&binders[i]);
    }
    atomic_store(&over, true);
    for (uint32_t i = 0; i < 2; i++) {
        kvt_thread_join(&unbinders[i]);
    }
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_int_eq(kvt_rig_finish(&engine, job).status, KVT_OK);
    kvt_rig_engine_close(&engine); /* it is still bound */
    kvt_rig_cache_close(&rig);
}
END_TEST

/* ---- clients go while they call ---- */

struct leaver {
    struct kvt_rig_engine *engine;
    uint64_t binding;
    uint32_t client;
    _Atomic uint32_t calls;
};

static void *leaver_main(void *arg)
{
    struct leaver *leaver = arg;
    struct kvt_rig_engine *engine = leaver->engine;
    uint32_t tokens[65], blocks[8];
    kvt_rig_blocks(blocks, 0, 8);
    kvt_status status = KVT_OK;
    for (uint32_t i = 0; status == KVT_OK || status == KVT_ERR_AGAIN; i++) {
        uint64_t job = 0;
        kvt_rig_tokens(tokens, 0, 65, 1000 + i);
        struct kvt_cache_save save = {.client = leaver->client,
                                      .binding = leaver->binding,
                                      .tokens = tokens,
                                      .token_count = 64,
                                      .blocks = blocks,
                                      .block_count = 8,
                                      .stream = engine->stream};
        struct kvt_cache_lookup lookup = {
            .client = leaver->client, .request_id = i + 1, .tokens = tokens, .token_count = 65};
        struct kvt_cache_found found;
        status = kvt_cache_lookup(engine->on->cache, &lookup, &found);
        EXPECT(status == KVT_OK || status == KVT_ERR_STALE);
        status = kvt_cache_save(engine->on->cache, &save, &job);
        atomic_fetch_add(&leaver->calls, 1);
    }
    EXPECT(status == KVT_ERR_STALE);
    return NULL;
}

/* Jobs, leases and requests of a client that went are not lost, whenever it went. */
START_TEST(clients_go_while_they_call)
{
    static struct kvt_rig_engine engine;
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = 16 * 4096;
    rig.config.host_bytes = 16 * 4096;
    rig.config.jobs_max = 8;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    for (uint64_t round = 0; round < test_scaled(300); round++) {
        struct leaver leaver = {.engine = &engine};
        struct kvt_thread thread;
        ck_assert_int_eq(kvt_cache_client_open(rig.cache, "tenant", 6, NULL, 0, NULL, 0,
                                               &leaver.client, NULL, 0),
                         KVT_OK);
        ck_assert_int_eq(kvt_cache_bind(rig.cache, leaver.client, engine.regions, 2, 8, 256,
                                        &leaver.binding, NULL, 0),
                         KVT_OK);
        ck_assert_int_eq(kvt_thread_start(&thread, "leaver", leaver_main, &leaver), KVT_OK);
        while (atomic_load(&leaver.calls) < 1 + round % 7) {
            kvt_rig_sleep(10000);
        }
        ck_assert_int_eq(kvt_cache_client_close(rig.cache, leaver.client), KVT_OK);
        kvt_thread_join(&thread);
        kvt_rig_quiesce(&rig);
        ck_assert_int_eq(kvt_cache_unbind(rig.cache, leaver.client, leaver.binding), KVT_OK);
    }
    /* What was asked for in the very moment of the closing is nobody's, and expires. */
    kvt_rig_advance(&rig, 2 * KVT_REQUEST_TTL_NS_DEFAULT);
    kvt_rig_idle(&rig);
    /* All jobs are to be had. */
    uint32_t tokens[65], blocks[8];
    uint64_t jobs[8];
    kvt_rig_blocks(blocks, 0, 8);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    for (uint32_t i = 0; i < 8; i++) {
        kvt_rig_tokens(tokens, 0, 65, i);
        jobs[i] = kvt_rig_save_begin(&engine, tokens, 64, blocks, NULL);
    }
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    for (uint32_t i = 0; i < 8; i++) {
        (void)kvt_rig_finish(&engine, jobs[i]);
    }
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* ---- deadlines ---- */

#define DEADLINE_NS (50 * KVT_RIG_MS)
#define SLOW_NS (20 * KVT_RIG_S) /* what a busy machine may add */

START_TEST(no_wait_without_a_deadline)
{
    static struct kvt_rig_engine engine;
    uint32_t tokens[65], blocks[8];
    struct kvt_cache_result result = {.done = 7};
    rig_open(32, 32);
    struct kvt_cache *cache = rig.cache;
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_blocks(blocks, 0, 8);
    kvt_rig_paint(&engine, tokens, 0, 4, blocks);
    ck_assert_int_eq(kvt_cache_flush(cache, 0), KVT_OK);
    ck_assert_int_eq(kvt_cache_quiesce(cache, 0), KVT_OK);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_save_begin(&engine, tokens, 64, blocks, NULL);
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    ck_assert_int_eq(kvt_cache_poll(cache, engine.client, job, DEADLINE_NS, &result), KVT_OK);
    ck_assert_uint_eq(result.done, 0);
    ck_assert_int_eq(kvt_cache_flush(cache, DEADLINE_NS), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_cache_quiesce(cache, DEADLINE_NS), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_cache_flush(cache, 0), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_cache_quiesce(cache, 0), KVT_ERR_TIMEOUT);
    uint64_t took_ns = kvt_now_ns(&kvt_clock_monotonic) - start_ns;
    ck_assert_uint_ge(took_ns, 3 * DEADLINE_NS);
    ck_assert_uint_lt(took_ns, 3 * DEADLINE_NS + SLOW_NS);
    ck_assert_int_eq(kvt_cache_unbind(cache, engine.client, engine.binding), KVT_ERR_BUSY);
    ck_assert_int_eq(kvt_cache_destroy(cache), KVT_ERR_BUSY);
    /* Nothing else waits for what is held: a miss is answered, a report taken. */
    ck_assert_uint_eq(kvt_rig_probe(&engine, tokens, 65), 0);
    (void)kvt_rig_lookup(&engine, 1, tokens, 65, 0);
    kvt_rig_report(&engine, 1, 65, 0, 65);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_int_eq(kvt_cache_flush(cache, UINT64_MAX), KVT_OK);
    ck_assert_int_eq(kvt_cache_poll(cache, engine.client, job, UINT64_MAX, &result), KVT_OK);
    ck_assert_uint_eq(result.done, 1);
    ck_assert_int_eq(kvt_cache_quiesce(cache, UINT64_MAX), KVT_OK);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* A flush waits for what was submitted before it, not for what comes after. */
START_TEST(flush_waits_for_what_was_before)
{
    static struct kvt_rig_engine engine;
    struct kvt_rig_gate gate;
    uint32_t tokens[65], other[65], blocks[16];
    rig_open(32, 32);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_tokens(other, 0, 65, 2);
    kvt_rig_blocks(blocks, 0, 16);
    kvt_rig_put(&engine, tokens, 4);
    kvt_rig_gate_init(&gate);
    kvt_rig_enqueue(&rig, engine.stream, kvt_rig_gate_pass, &gate);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, 65, 0);
    uint64_t restore = kvt_rig_restore_begin(&engine, found.lease, 0, 4, blocks, NULL);
    ck_assert_int_eq(kvt_cache_flush(rig.cache, 0), KVT_OK); /* restores are not its business */
    uint64_t save = kvt_rig_save_begin(&engine, other, 64, blocks + 8, NULL);
    ck_assert_int_eq(kvt_cache_flush(rig.cache, KVT_RIG_MS), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_cache_quiesce(rig.cache, KVT_RIG_MS), KVT_ERR_TIMEOUT);
    kvt_rig_gate_open(&gate);
    ck_assert_int_eq(kvt_cache_flush(rig.cache, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_uint_eq(kvt_rig_probe(&engine, other, 65), 64);
    (void)kvt_rig_finish(&engine, save);
    (void)kvt_rig_finish(&engine, restore);
    kvt_rig_release(&engine, found.lease);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
    kvt_rig_gate_fini(&gate);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_threads");
    TCase *tcase = tcase_create("cache_threads");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, engines_of_one_tenant, 0, 3);
    tcase_add_test(tcase, engines_of_two_tenants);
    tcase_add_test(tcase, threads_of_one_engine);
    tcase_add_test(tcase, probes_do_not_stop_eviction);
    tcase_add_test(tcase, one_job_many_callers);
    tcase_add_test(tcase, bindings_come_and_go);
    tcase_add_test(tcase, clients_go_while_they_call);
    tcase_add_test(tcase, no_wait_without_a_deadline);
    tcase_add_test(tcase, flush_waits_for_what_was_before);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
