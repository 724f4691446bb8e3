/* What fails, fails exactly: shortfalls to the page, jobs that come out whatever happened, nothing
 * that leaks, and a next call that works. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define PAGES 6u
#define TOKENS (PAGES * 16)
#define BLOCKS (PAGES * 2)
#define REGIONS 2u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t tokens[TOKENS + 1];
static uint32_t blocks[BLOCKS];

static const struct kvt_rig_shape shape = {
    .block_tokens = 8,
    .block_count = 256,
    .region_count = REGIONS,
    .block_bytes = {1030, 1018},
    .stride_bytes = {1031, 1100},
};

static void rig_open(uint64_t hbm_pages, uint64_t host_pages)
{
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = hbm_pages * 4096;
    rig.config.host_bytes = host_pages * 4096;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, BLOCKS);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* What the cache holds of these tokens, verified. */
static uint32_t held(const uint32_t *prompt, uint64_t count)
{
    return kvt_rig_get(&engine, prompt, count);
}

/* ---- the k-th page of a copy ---- */

START_TEST(restores_end_at_the_page_that_failed)
{
    /* In one tier, or half in each; with no room to move down, so that faults strike here only. */
    rig_open((uint64_t)_i * 3, 6 - (uint64_t)_i * 3);
    kvt_rig_put(&engine, tokens, PAGES);
    for (uint32_t k = 1; k <= PAGES * REGIONS; k++) {
        struct kvt_cache_found found = kvt_rig_lookup(&engine, k, tokens, TOKENS + 1, 0);
        ck_assert_uint_eq(found.matched_tokens, TOKENS);
        kvt_rig_wipe_all(&engine);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, k);
        struct kvt_cache_result result = kvt_rig_restore(&engine, found.lease, 0, PAGES, blocks);
        uint32_t good = (k - 1) % PAGES;
        ck_assert_int_eq(result.status, KVT_ERR_IO);
        ck_assert_uint_eq(result.tokens_good, good * 16);
        ck_assert_uint_eq(result.tier_tokens[0] + result.tier_tokens[1], good * 16);
        ck_assert_uint_eq(result.bytes_moved, good * engine.page_bytes);
        ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), good);
        kvt_rig_report(&engine, k, TOKENS + 1, 0, TOKENS + 1 - good * 16);
        kvt_rig_idle(&rig);
        kvt_rig_check(&rig);
        ck_assert_uint_eq(held(tokens, TOKENS + 1), PAGES);
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.jobs_failed, PAGES * REGIONS);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    rig_close();
}
END_TEST

START_TEST(saves_publish_what_is_before_the_page_that_failed)
{
    rig_open((uint64_t)_i * 200, 200 - (uint64_t)_i * 200);
    for (uint32_t k = 1; k <= PAGES * REGIONS; k++) {
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 100 + k);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        kvt_rig_quiesce(&rig);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, k);
        struct kvt_cache_result result = kvt_rig_save(&engine, tokens, TOKENS, blocks);
        uint32_t good = (k - 1) % PAGES;
        ck_assert_int_eq(result.status, KVT_ERR_IO);
        ck_assert_uint_eq(result.tokens_good, good * 16);
        kvt_rig_quiesce(&rig);
        kvt_rig_idle(&rig);
        kvt_rig_check(&rig);
        ck_assert_uint_eq(held(tokens, TOKENS + 1), good);
        kvt_rig_put(&engine, tokens, PAGES);
        ck_assert_uint_eq(held(tokens, TOKENS + 1), PAGES);
    }
    rig_close();
}
END_TEST

/* A page whose way down failed stays where it was (F29). */
START_TEST(demotions_that_fail_lose_nothing)
{
    for (uint32_t k = 1; k <= 8; k++) {
        rig_open(16, 64);
        for (uint32_t i = 0; i < 6; i++) {
            kvt_rig_tokens(tokens, 0, 49, i);
            kvt_rig_put(&engine, tokens, 3);
            kvt_rig_quiesce(&rig); /* moves end here */
            /* Two regions of three pages are saved next, then the moves begin. */
            kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 6 + k);
        }
        kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 0);
        kvt_rig_check(&rig);
        struct kvt_cache_stats stats = kvt_rig_stats(&rig);
        ck_assert_uint_eq(stats.pages, 18);
        ck_assert_uint_eq(stats.tier_pages[0] + stats.tier_pages[1], 18);
        for (uint32_t i = 0; i < 6; i++) {
            kvt_rig_tokens(tokens, 0, 49, i);
            ck_assert_uint_eq(held(tokens, 49), 3);
        }
        rig_close();
    }
}
END_TEST

/* ---- the k-th enqueueing call ---- */

static struct kvt_cache_save save_of(const uint32_t *prompt)
{
    return (struct kvt_cache_save){.client = engine.client,
                                   .binding = engine.binding,
                                   .tokens = prompt,
                                   .token_count = TOKENS,
                                   .blocks = blocks,
                                   .block_count = BLOCKS,
                                   .stream = engine.stream};
}

static struct kvt_cache_restore restore_of(uint64_t lease)
{
    return (struct kvt_cache_restore){.client = engine.client,
                                      .lease = lease,
                                      .binding = engine.binding,
                                      .token_count = TOKENS,
                                      .blocks = blocks,
                                      .block_count = BLOCKS,
                                      .stream = engine.stream};
}

#define CALLS_OF_A_JOB (2 + 2 * REGIONS + 1) /* record, wait; copy, record a region; completion */

START_TEST(calls_that_fail)
{
    uint32_t refused = 0, short_jobs = 0, full = 0;
    rig_open(200, 0);
    for (uint32_t k = 1; k <= CALLS_OF_A_JOB + 2; k++) {
        uint64_t job = 0;
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 200 + k);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        struct kvt_cache_save save = save_of(tokens);
        kvt_rig_quiesce(&rig);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, k);
        kvt_status status = kvt_cache_save(rig.cache, &save, &job);
        struct kvt_cache_result result = {0};
        if (status == KVT_OK) {
            result = kvt_rig_finish(&engine, job);
            EXPECT(result.status == KVT_OK
                       ? result.tokens_good == TOKENS
                       : result.status == KVT_ERR_DEVICE && result.tokens_good == 0);
        } else {
            EXPECT(status == KVT_ERR_DEVICE && job == 0);
        }
        refused += status != KVT_OK;
        short_jobs += result.status != KVT_OK;
        full += result.tokens_good == TOKENS;
        kvt_rig_quiesce(&rig);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
        kvt_rig_idle(&rig);
        kvt_rig_check(&rig);
        ck_assert_uint_eq(held(tokens, TOKENS + 1), result.tokens_good / 16);
        kvt_rig_put(&engine, tokens, PAGES);
    }
    ck_assert_uint_eq(refused, 2);
    ck_assert_uint_eq(short_jobs, 2 * REGIONS);
    ck_assert_uint_ge(full, 3);
    for (uint32_t k = 1; k <= CALLS_OF_A_JOB + 2; k++) {
        uint64_t job = 0;
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
        kvt_rig_wipe_all(&engine);
        struct kvt_cache_restore restore = restore_of(found.lease);
        kvt_rig_quiesce(&rig);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, k);
        kvt_status status = kvt_cache_restore(rig.cache, &restore, &job);
        uint64_t good = 0;
        if (status == KVT_OK) {
            struct kvt_cache_result result = kvt_rig_finish(&engine, job);
            good = result.tokens_good;
            EXPECT(result.status == (good == TOKENS ? KVT_OK : KVT_ERR_DEVICE));
        } else {
            EXPECT(status == KVT_ERR_DEVICE && job == 0);
        }
        EXPECT(kvt_rig_good_pages(&engine, tokens, 0, (uint32_t)good / 16, blocks) == good / 16);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
        kvt_rig_release(&engine, found.lease);
        kvt_rig_quiesce(&rig);
        kvt_rig_idle(&rig);
        ck_assert_uint_eq(held(tokens, TOKENS + 1), PAGES);
    }
    rig_close();
}
END_TEST

/* Whatever call it strikes, the mover's own included. */
START_TEST(calls_that_fail_anywhere)
{
    struct test_random random = test_random_start("cache_fault calls", 17);
    rig_open(16, 32);
    for (uint32_t round = 0; round < test_scaled(2000); round++) {
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 1 + test_random_below(&random, 30));
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 300 + test_random_below(&random, 10));
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
        uint64_t job = 0, good = 0;
        kvt_rig_wipe(&engine, blocks, BLOCKS);
        if (found.matched_tokens == TOKENS) {
            struct kvt_cache_restore restore = restore_of(found.lease);
            if (kvt_cache_restore(rig.cache, &restore, &job) == KVT_OK) {
                good = kvt_rig_finish(&engine, job).tokens_good;
            }
            EXPECT(kvt_rig_good_pages(&engine, tokens, 0, (uint32_t)good / 16, blocks) ==
                   good / 16);
        }
        if (found.lease != 0) {
            kvt_rig_release(&engine, found.lease);
        }
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        struct kvt_cache_save save = save_of(tokens);
        if (kvt_cache_save(rig.cache, &save, &job) == KVT_OK) {
            (void)kvt_rig_finish(&engine, job);
        }
        if (round % 50 == 0) {
            kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
            kvt_rig_quiesce(&rig);
            kvt_rig_idle(&rig);
            kvt_rig_check(&rig);
        }
    }
    kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
    ck_assert_uint_gt(kvt_rig_stats(&rig).demoted_pages, 0);
    rig_close();
}
END_TEST

/* ---- cancel ---- */

START_TEST(cancel_before_the_copies)
{
    rig_open(16, 16);
    kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_save_begin(&engine, tokens, TOKENS, blocks, NULL);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client + 1, job), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job ^ 1), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
    /* It is not over before it is over: the blocks are the job's until then. */
    struct kvt_cache_result result;
    ck_assert_int_eq(kvt_cache_poll(rig.cache, engine.client, job, 0, &result), KVT_OK);
    ck_assert_uint_eq(result.done, 0);
    ck_assert_int_eq(kvt_cache_unbind(rig.cache, engine.client, engine.binding), KVT_ERR_BUSY);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    result = kvt_rig_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_ERR_CANCELLED);
    ck_assert_uint_eq(result.tokens_good, 0);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_ERR_STALE);
    ck_assert_uint_eq(held(tokens, TOKENS + 1), 0);
    kvt_rig_idle(&rig);
    kvt_rig_put(&engine, tokens, PAGES);
    /* And a restore. */
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
    kvt_rig_wipe_all(&engine);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    job = kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    result = kvt_rig_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_ERR_CANCELLED);
    ck_assert_uint_eq(result.tokens_good, 0);
    ck_assert(kvt_rig_untouched(&engine, blocks, BLOCKS));
    /* After the end it changes nothing. */
    job = kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL);
    kvt_rig_quiesce(&rig);
    ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
    result = kvt_rig_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), PAGES);
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

/* At any moment (F32): exact answers, and every slot and lease comes back. */
START_TEST(cancel_at_any_moment)
{
    struct test_random random = test_random_start("cache_fault cancel", 19);
    uint32_t cancelled = 0, whole = 0;
    rig_open(16, 64);
    kvt_rig_fault(&rig, KVT_RIG_COPY_DELAY_NS, 50000);
    for (uint32_t round = 0; round < test_scaled(1000); round++) {
        bool late = test_random_below(&random, 2) == 0;
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 400 + round);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        uint64_t job = kvt_rig_save_begin(&engine, tokens, TOKENS, blocks, NULL);
        if (late) {
            kvt_rig_sleep(test_random_below(&random, 300000));
        }
        ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
        struct kvt_cache_result result = kvt_rig_finish(&engine, job);
        EXPECT(result.status == KVT_OK || result.status == KVT_ERR_CANCELLED);
        EXPECT(result.tokens_good == (result.status == KVT_OK ? TOKENS : 0));
        EXPECT(held(tokens, TOKENS + 1) * 16 == result.tokens_good);
        if (result.status != KVT_OK) {
            kvt_rig_put(&engine, tokens, PAGES);
        }
        kvt_rig_wipe_all(&engine);
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
        job = kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL);
        if (test_random_below(&random, 2) == 0) {
            kvt_rig_release(&engine, found.lease);
            found.lease = 0;
        }
        if (late) {
            kvt_rig_sleep(test_random_below(&random, 300000));
        }
        ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, job), KVT_OK);
        result = kvt_rig_finish(&engine, job);
        cancelled += result.status == KVT_ERR_CANCELLED;
        whole += result.status == KVT_OK;
        EXPECT(result.tokens_good == (result.status == KVT_OK ? TOKENS : 0));
        uint32_t good = (uint32_t)result.tokens_good / 16;
        EXPECT(kvt_rig_good_pages(&engine, tokens, 0, good, blocks) == good);
        if (found.lease != 0) {
            kvt_rig_release(&engine, found.lease);
        }
    }
    ck_assert_uint_gt(cancelled, 0);
    ck_assert_uint_gt(whole, 0);
    kvt_rig_fault(&rig, KVT_RIG_COPY_DELAY_NS, 0);
    rig_close();
}
END_TEST

/* ---- jobs that nobody asks about ---- */

START_TEST(detached)
{
    rig_open(64, 0);
    kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
    struct kvt_cache_save save = save_of(tokens);
    save.detached = 1;
    uint64_t job = 7;
    for (uint32_t i = 0; i < 200; i++) { /* more than there are jobs */
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 500 + i % 8);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        ck_assert_int_eq(kvt_cache_save(rig.cache, &save, i % 2 == 0 ? NULL : &job), KVT_OK);
        ck_assert_int_eq(kvt_cache_flush(rig.cache, KVT_RIG_WAIT_NS), KVT_OK);
    }
    struct kvt_cache_result result;
    ck_assert_int_eq(kvt_cache_poll(rig.cache, engine.client, job, 0, &result), KVT_ERR_STALE);
    for (uint32_t i = 0; i < 100; i++) {
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
        struct kvt_cache_restore restore = restore_of(found.lease);
        restore.detached = 1;
        kvt_rig_wipe_all(&engine);
        ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, NULL), KVT_OK);
        kvt_rig_release(&engine, found.lease);
        kvt_rig_quiesce(&rig);
        EXPECT(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks) == PAGES);
    }
    kvt_rig_idle(&rig);
    rig_close();
}
END_TEST

/* Every job in use: busy, not a miss and not a failure (F48). */
START_TEST(all_jobs_in_use)
{
    uint64_t jobs[64], job = 0;
    rig_open(64, 0);
    kvt_rig_put(&engine, tokens, PAGES);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
    struct kvt_cache_restore restore = restore_of(found.lease);
    struct kvt_cache_save save = save_of(tokens);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    for (uint32_t i = 0; i < 64; i++) {
        jobs[i] = kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL);
    }
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_AGAIN);
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_ERR_AGAIN);
    ck_assert_uint_eq(kvt_rig_stats(&rig).limit_jobs_hit, 2);
    ck_assert_uint_eq(kvt_rig_probe(&engine, tokens, TOKENS + 1), TOKENS);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_uint_eq(kvt_rig_finish(&engine, jobs[63]).tokens_good, TOKENS);
    /* One is free at once. */
    ck_assert_uint_eq(kvt_rig_restore(&engine, found.lease, 0, PAGES, blocks).tokens_good, TOKENS);
    for (uint32_t i = 0; i < 63; i++) {
        ck_assert_uint_eq(kvt_rig_finish(&engine, jobs[i]).tokens_good, TOKENS);
    }
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

/* A client that goes while its jobs run: they end by themselves, and everything comes back. */
START_TEST(client_closed_under_its_jobs)
{
    rig_open(16, 16);
    kvt_rig_put(&engine, tokens, PAGES);
    uint32_t other[TOKENS + 1];
    kvt_rig_tokens(other, 0, TOKENS + 1, 9);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, TOKENS + 1, 0);
    (void)kvt_rig_lookup(&engine, 2, tokens, TOKENS, 0);
    uint64_t done = kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL);
    kvt_rig_quiesce(&rig);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    /* Blocks of their own: what one job writes the other must not read at the same time. */
    uint32_t others[BLOCKS];
    kvt_rig_blocks(others, BLOCKS, BLOCKS);
    uint64_t jobs[2] = {kvt_rig_restore_begin(&engine, found.lease, 0, PAGES, blocks, NULL),
                        kvt_rig_save_begin(&engine, other, TOKENS, others, NULL)};
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 3);
    ck_assert_int_eq(kvt_cache_client_close(rig.cache, engine.client), KVT_OK);
    struct kvt_cache_result result;
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(
            kvt_cache_poll(rig.cache, engine.client, i < 2 ? jobs[i] : done, 0, &result),
            KVT_ERR_STALE);
    }
    ck_assert_int_eq(kvt_cache_client_close(rig.cache, engine.client), KVT_ERR_STALE);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.leases, 2); /* of what runs */
    ck_assert_uint_eq(stats.jobs_running, 2);
    ck_assert_uint_eq(stats.requests_unreported, 2);
    ck_assert_int_eq(kvt_cache_destroy(rig.cache), KVT_ERR_BUSY);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    kvt_rig_quiesce(&rig);
    kvt_rig_idle(&rig);
    kvt_cache_stream_destroy(rig.cache, engine.stream);
    ck_assert_int_eq(kvt_cache_unbind(rig.cache, engine.client, engine.binding), KVT_OK);
    kvt_rig_memory_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

/* A cache that goes while results were never fetched: nothing leaks. */
START_TEST(results_that_nobody_fetched)
{
    rig_open(16, 16);
    kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
    for (uint32_t i = 0; i < 10; i++) {
        (void)kvt_rig_save_begin(&engine, tokens, TOKENS, blocks, NULL);
    }
    kvt_rig_quiesce(&rig);
    rig_close();
}
END_TEST

/* Quiesced means quiet: nothing begins by itself behind it, whatever was about to. */
START_TEST(quiet_after_quiesce)
{
    for (uint32_t round = 0; round < test_scaled(100); round++) {
        rig_open(16, 64);
        for (uint32_t i = 0; i < 1 + round % 8; i++) {
            kvt_rig_tokens(tokens, 0, TOKENS + 1, 600 + i);
            kvt_rig_put(&engine, tokens, PAGES);
            if (i % 2 == round % 2) {
                kvt_rig_quiesce(&rig);
                EXPECT(kvt_rig_stats(&rig).jobs_running == 0);
                kvt_rig_sleep(100000);
                EXPECT(kvt_rig_stats(&rig).jobs_running == 0);
            }
        }
        rig_close();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_fault");
    TCase *tcase = tcase_create("cache_fault");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, restores_end_at_the_page_that_failed, 0, 3);
    tcase_add_loop_test(tcase, saves_publish_what_is_before_the_page_that_failed, 0, 2);
    tcase_add_test(tcase, demotions_that_fail_lose_nothing);
    tcase_add_test(tcase, calls_that_fail);
    tcase_add_test(tcase, calls_that_fail_anywhere);
    tcase_add_test(tcase, cancel_before_the_copies);
    tcase_add_test(tcase, cancel_at_any_moment);
    tcase_add_test(tcase, detached);
    tcase_add_test(tcase, all_jobs_in_use);
    tcase_add_test(tcase, client_closed_under_its_jobs);
    tcase_add_test(tcase, results_that_nobody_fetched);
    tcase_add_test(tcase, quiet_after_quiesce);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
