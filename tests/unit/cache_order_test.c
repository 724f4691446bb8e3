/* Copies are ordered by streams and by nothing else: what is saved is what the stream produces
 * (F02), what waits in a queue has its own arguments (F12), and nothing lands before its turn. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define LANES 8u
#define LANE_PAGES 3u
#define LANE_TOKENS (LANE_PAGES * 16)
#define LANE_BLOCKS (LANE_PAGES * 2)
#define STEPS 6u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;

static void rig_open(void)
{
    kvt_rig_cache_init(&rig);
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &kvt_rig_shape_default, "tenant");
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* ---- work that takes a while and then writes pages ---- */

struct work {
    uint64_t delay_ns;
    uint32_t tokens[LANE_TOKENS + 1];
    uint32_t blocks[LANE_BLOCKS];
};

static void work_init(struct work *work, uint64_t name, uint32_t first_block, uint64_t delay_ns)
{
    work->delay_ns = delay_ns;
    kvt_rig_tokens(work->tokens, 0, LANE_TOKENS + 1, name);
    kvt_rig_blocks(work->blocks, first_block, LANE_BLOCKS);
}

static void work_run(void *arg)
{
    struct work *work = arg;
    kvt_rig_sleep(work->delay_ns);
    kvt_rig_paint(&engine, work->tokens, 0, LANE_PAGES, work->blocks);
}

/* What the cache holds under these tokens, restored beside everything else. */
static uint32_t pages_held(const uint32_t *tokens)
{
    uint32_t blocks[LANE_BLOCKS];
    kvt_rig_blocks(blocks, 240, LANE_BLOCKS);
    kvt_rig_wipe(&engine, blocks, LANE_BLOCKS);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, LANE_TOKENS + 1, 0);
    EXPECT(found.matched_tokens == LANE_TOKENS);
    struct kvt_cache_result result = kvt_rig_restore(&engine, found.lease, 0, LANE_PAGES, blocks);
    EXPECT(result.status == KVT_OK && result.tokens_good == LANE_TOKENS);
    kvt_rig_release(&engine, found.lease);
    return kvt_rig_good_pages(&engine, tokens, 0, LANE_PAGES, blocks);
}

/* F02: the work is under way when save() is called. */
START_TEST(the_produced_bytes_are_saved)
{
    static struct work works[LANES];
    void *streams[LANES];
    uint64_t jobs[LANES];
    struct test_random random = test_random_start("cache_order produced", 5);
    rig_open();
    for (uint32_t lane = 0; lane < LANES; lane++) {
        streams[lane] = kvt_rig_stream(&rig);
    }
    const uint64_t rounds = (test_scaled(1000) + LANES - 1) / LANES;
    for (uint64_t round = 0; round < rounds; round++) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            struct work *work = &works[lane];
            work_init(work, round * LANES + lane, lane * LANE_BLOCKS,
                      test_random_below(&random, 2000) * UINT64_C(1000));
            kvt_rig_wipe(&engine, work->blocks, LANE_BLOCKS);
            kvt_rig_enqueue(&rig, streams[lane], work_run, work);
            jobs[lane] =
                kvt_rig_save_begin(&engine, work->tokens, LANE_TOKENS, work->blocks, streams[lane]);
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            EXPECT(kvt_rig_finish(&engine, jobs[lane]).status == KVT_OK);
            EXPECT(pages_held(works[lane].tokens) == LANE_PAGES);
        }
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        kvt_cache_stream_destroy(rig.cache, streams[lane]);
    }
    rig_close();
}
END_TEST

/* The control: with a stream that does not produce the bytes, what was there before is saved. */
START_TEST(another_stream_saves_something_else)
{
    struct work work;
    struct kvt_rig_gate gate;
    kvt_rig_gate_init(&gate);
    rig_open();
    work_init(&work, 1, 0, 0);
    void *other = kvt_rig_stream(&rig);
    kvt_rig_enqueue(&rig, other, kvt_rig_gate_pass, &gate);
    kvt_rig_enqueue(&rig, other, work_run, &work);
    EXPECT(kvt_rig_save(&engine, work.tokens, LANE_TOKENS, work.blocks).status == KVT_OK);
    kvt_rig_gate_open(&gate);
    kvt_rig_sync(&rig, other);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, work.tokens, 0, LANE_PAGES, work.blocks),
                      LANE_PAGES);
    ck_assert_uint_eq(pages_held(work.tokens), 0);
    kvt_cache_stream_destroy(rig.cache, other);
    rig_close();
    kvt_rig_gate_fini(&gate);
}
END_TEST

static void wait_for_all_regions(uint64_t job, void *stream)
{
    for (uint32_t region = 0; region < engine.shape.region_count; region++) {
        ck_assert_int_eq(kvt_cache_wait_region(rig.cache, engine.client, job, region, stream),
                         KVT_OK);
    }
}

/* F12: steps that overwrite each other's blocks, all behind a held stream; each waits for the save
 * before it on the device only. */
static void steps_of_saves(bool same_blocks)
{
    static struct work works[STEPS];
    uint64_t jobs[STEPS];
    struct kvt_rig_gate gate;
    kvt_rig_gate_init(&gate);
    rig_open();
    kvt_rig_enqueue(&rig, engine.stream, kvt_rig_gate_pass, &gate);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t tokens[LANE_TOKENS], blocks[LANE_BLOCKS];
        work_init(&works[step], 50 + step, same_blocks ? 0 : step * LANE_BLOCKS, 0);
        kvt_rig_enqueue(&rig, engine.stream, work_run, &works[step]);
        memcpy(tokens, works[step].tokens, sizeof(tokens));
        memcpy(blocks, works[step].blocks, sizeof(blocks));
        jobs[step] = kvt_rig_save_begin(&engine, tokens, LANE_TOKENS, blocks, NULL);
        wait_for_all_regions(jobs[step], engine.stream);
        /* Borrowed for the call: what becomes of them now must not matter. */
        memset(tokens, 0xff, sizeof(tokens));
        memset(blocks, 0xff, sizeof(blocks));
    }
    struct kvt_cache_result result;
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert_int_eq(kvt_cache_poll(rig.cache, engine.client, jobs[step], 0, &result), KVT_OK);
        ck_assert_uint_eq(result.done, 0);
        ck_assert_uint_eq(kvt_rig_probe(&engine, works[step].tokens, LANE_TOKENS + 1), 0);
    }
    kvt_rig_gate_open(&gate);
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert_int_eq(kvt_rig_finish(&engine, jobs[step]).status, KVT_OK);
        ck_assert_uint_eq(pages_held(works[step].tokens), LANE_PAGES);
    }
    rig_close();
    kvt_rig_gate_fini(&gate);
}

START_TEST(steps_of_saves_have_their_own_data) { steps_of_saves(_i == 1); }
END_TEST

START_TEST(steps_of_restores_have_their_own_data)
{
    static struct work works[STEPS];
    struct kvt_rig_gate gate;
    uint64_t jobs[STEPS], leases[STEPS];
    kvt_rig_gate_init(&gate);
    rig_open();
    for (uint32_t step = 0; step < STEPS; step++) {
        work_init(&works[step], 70 + step, step * LANE_BLOCKS, 0);
        kvt_rig_put(&engine, works[step].tokens, LANE_PAGES);
    }
    kvt_rig_wipe_all(&engine);
    kvt_rig_enqueue(&rig, engine.stream, kvt_rig_gate_pass, &gate);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t blocks[LANE_BLOCKS];
        memcpy(blocks, works[step].blocks, sizeof(blocks));
        leases[step] = kvt_rig_lookup(&engine, 0, works[step].tokens, LANE_TOKENS + 1, 0).lease;
        jobs[step] = kvt_rig_restore_begin(&engine, leases[step], 0, LANE_PAGES, blocks, NULL);
        memset(blocks, 0xff, sizeof(blocks));
        /* The lease may go, the job keeps what it needs. */
        kvt_rig_release(&engine, leases[step]);
        ck_assert_int_eq(kvt_cache_lease_check(rig.cache, engine.client, leases[step]),
                         KVT_ERR_STALE);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, STEPS);
    kvt_rig_sleep(5 * KVT_RIG_MS);
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert(kvt_rig_untouched(&engine, works[step].blocks, LANE_BLOCKS));
    }
    kvt_rig_gate_open(&gate);
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert_uint_eq(kvt_rig_finish(&engine, jobs[step]).tokens_good, LANE_TOKENS);
    }
    for (uint32_t step = 0; step < STEPS; step++) {
        ck_assert_uint_eq(
            kvt_rig_good_pages(&engine, works[step].tokens, 0, LANE_PAGES, works[step].blocks),
            LANE_PAGES);
    }
    rig_close();
    kvt_rig_gate_fini(&gate);
}
END_TEST

/* ---- waiting for one region ---- */

struct look {
    const uint32_t *tokens, *blocks;
    uint32_t region;
    _Atomic uint32_t right, wrong;
};

/* On the stream: is this region there, whatever of the others? */
static void look_at_region(void *arg)
{
    struct look *look = arg;
    struct kvt_rig_engine one = engine;
    one.shape.region_count = look->region + 1;
    uint32_t good = kvt_rig_good_pages(&one, look->tokens, 0, LANE_PAGES, look->blocks);
    atomic_fetch_add(good == LANE_PAGES ? &look->right : &look->wrong, 1);
}

START_TEST(regions_arrive_in_order)
{
    struct work work;
    struct look looks[2];
    void *reader = NULL;
    rig_open();
    work_init(&work, 1, 0, 0);
    kvt_rig_put(&engine, work.tokens, LANE_PAGES);
    reader = kvt_rig_stream(&rig);
    for (uint32_t round = 0; round < 20; round++) {
        kvt_rig_wipe_all(&engine);
        uint64_t lease = kvt_rig_lookup(&engine, 0, work.tokens, LANE_TOKENS + 1, 0).lease;
        bool waits = round % 2 == 0;
        kvt_rig_fault(&rig, KVT_RIG_COPY_DELAY_NS, KVT_RIG_MS);
        kvt_rig_fault(&rig, KVT_RIG_HOLD, waits ? 0 : 1);
        uint64_t job = kvt_rig_restore_begin(&engine, lease, 0, LANE_PAGES, work.blocks, NULL);
        for (uint32_t region = 0; region < 2; region++) {
            looks[region] = (struct look){work.tokens, work.blocks, region, 0, 0};
            if (waits) {
                ck_assert_int_eq(
                    kvt_cache_wait_region(rig.cache, engine.client, job, region, reader), KVT_OK);
            }
            kvt_rig_enqueue(&rig, reader, look_at_region, &looks[region]);
        }
        kvt_rig_sync(&rig, reader);
        for (uint32_t region = 0; region < 2; region++) {
            /* The control, in odd rounds: without the wait it is not there yet. */
            EXPECT(atomic_load(&looks[region].right) == (waits ? 1u : 0u));
        }
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
        kvt_rig_fault(&rig, KVT_RIG_COPY_DELAY_NS, 0);
        ck_assert_int_eq(kvt_rig_finish(&engine, job).status, KVT_OK);
        kvt_rig_release(&engine, lease);
    }
    kvt_cache_stream_destroy(rig.cache, reader);
    rig_close();
}
END_TEST

START_TEST(wait_region_answers)
{
    struct work work;
    rig_open();
    struct kvt_cache *cache = rig.cache;
    work_init(&work, 1, 0, 0);
    kvt_rig_put(&engine, work.tokens, LANE_PAGES);
    uint64_t lease = kvt_rig_lookup(&engine, 0, work.tokens, LANE_TOKENS + 1, 0).lease;
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_restore_begin(&engine, lease, 0, LANE_PAGES, work.blocks, NULL);
    void *stream = kvt_rig_stream(&rig);
    uint32_t client = engine.client;
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 2, stream), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 0, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client + 1, job, 0, stream), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job + 1, 0, stream), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 1, stream), KVT_OK);
    ck_assert_int_eq(kvt_cache_stream_sync(cache, stream, 20 * KVT_RIG_MS), KVT_ERR_TIMEOUT);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    kvt_rig_sync(&rig, stream);
    kvt_rig_quiesce(&rig); /* done, not told yet */
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 1, stream), KVT_OK);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 2, stream), KVT_ERR_INVAL);
    kvt_rig_sync(&rig, stream);
    ck_assert_int_eq(kvt_rig_finish(&engine, job).status, KVT_OK);
    ck_assert_int_eq(kvt_cache_wait_region(cache, client, job, 0, stream), KVT_ERR_STALE);
    kvt_rig_release(&engine, lease);
    kvt_cache_stream_destroy(cache, stream);
    rig_close();
}
END_TEST

/* ---- restores wait for what reads the blocks ---- */

static void expect_untouched(void *arg)
{
    struct look *look = arg;
    kvt_rig_sleep(5 * KVT_RIG_MS);
    bool still = kvt_rig_untouched(&engine, look->blocks, LANE_BLOCKS);
    atomic_fetch_add(still ? &look->right : &look->wrong, 1);
}

START_TEST(restores_wait_for_readers)
{
    struct work work;
    rig_open();
    work_init(&work, 1, 0, 0);
    kvt_rig_put(&engine, work.tokens, LANE_PAGES);
    for (uint32_t round = 0; round < 20; round++) {
        struct look look = {work.tokens, work.blocks, 0, 0, 0};
        kvt_rig_wipe_all(&engine);
        uint64_t lease = kvt_rig_lookup(&engine, 0, work.tokens, LANE_TOKENS + 1, 0).lease;
        kvt_rig_enqueue(&rig, engine.stream, expect_untouched, &look);
        uint64_t job = kvt_rig_restore_begin(&engine, lease, 0, LANE_PAGES, work.blocks, NULL);
        ck_assert_int_eq(kvt_rig_finish(&engine, job).status, KVT_OK);
        kvt_rig_sync(&rig, engine.stream);
        ck_assert_uint_eq(atomic_load(&look.right), 1);
        ck_assert(!kvt_rig_untouched(&engine, work.blocks, LANE_BLOCKS));
        kvt_rig_release(&engine, lease);
    }
    rig_close();
}
END_TEST

/* ---- events of engines ---- */

static void count_up(void *arg) { atomic_fetch_add((_Atomic uint32_t *)arg, 1); }

START_TEST(events)
{
    struct kvt_rig_gate gate;
    _Atomic uint32_t count = 0;
    void *event = NULL;
    kvt_rig_gate_init(&gate);
    rig_open();
    struct kvt_cache *cache = rig.cache;
    void *other = kvt_rig_stream(&rig);
    ck_assert_int_eq(kvt_cache_event_create(cache, &event), KVT_OK);
    kvt_rig_enqueue(&rig, other, kvt_rig_gate_pass, &gate);
    kvt_rig_enqueue(&rig, other, count_up, &count);
    ck_assert_int_eq(kvt_cache_event_record(cache, event, other), KVT_OK);
    ck_assert_int_eq(kvt_cache_stream_wait(cache, engine.stream, event), KVT_OK);
    kvt_rig_enqueue(&rig, engine.stream, count_up, &count);
    ck_assert_int_eq(kvt_cache_stream_sync(cache, engine.stream, 20 * KVT_RIG_MS), KVT_ERR_TIMEOUT);
    ck_assert_uint_eq(atomic_load(&count), 0);
    /* Streams and events that are left keep the cache. */
    ck_assert_int_eq(kvt_cache_destroy(cache), KVT_ERR_BUSY);
    kvt_rig_gate_open(&gate);
    kvt_rig_sync(&rig, engine.stream);
    ck_assert_uint_eq(atomic_load(&count), 2);
    kvt_cache_event_destroy(cache, event);
    kvt_cache_event_destroy(cache, NULL);
    kvt_cache_stream_destroy(cache, other);
    kvt_cache_stream_destroy(cache, NULL);
    rig_close();
    kvt_rig_gate_fini(&gate);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_order");
    TCase *tcase = tcase_create("cache_order");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, the_produced_bytes_are_saved);
    tcase_add_test(tcase, another_stream_saves_something_else);
    tcase_add_loop_test(tcase, steps_of_saves_have_their_own_data, 0, 2);
    tcase_add_test(tcase, steps_of_restores_have_their_own_data);
    tcase_add_test(tcase, regions_arrive_in_order);
    tcase_add_test(tcase, wait_region_answers);
    tcase_add_test(tcase, restores_wait_for_readers);
    tcase_add_test(tcase, events);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
