/* Leases: one for each question, taken back when they should be, and never by a guess. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define PAGES 4u
#define TOKENS (PAGES * 16)
#define BLOCKS (PAGES * 2)
#define TTL_NS (60 * KVT_RIG_S)

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t tokens[4096];
static uint32_t blocks[64];

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
    rig.config.lease_ttl_ns = TTL_NS;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, 64);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

static uint64_t lease_on(uint64_t request_id)
{
    struct kvt_cache_found found = kvt_rig_lookup(&engine, request_id, tokens, TOKENS + 1, 0);
    ck_assert_uint_eq(found.matched_tokens, TOKENS);
    return found.lease;
}

static kvt_status lease_check(uint64_t lease)
{
    return kvt_cache_lease_check(rig.cache, engine.client, lease);
}

START_TEST(the_same_question_the_same_lease)
{
    rig_open(64, 0);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(1);
    for (uint32_t i = 0; i < 100; i++) {
        EXPECT(lease_on(1) == lease);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 1);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leased_pages, PAGES);
    uint64_t other = lease_on(2);
    ck_assert_uint_ne(other, lease);
    uint64_t anonymous = lease_on(0);
    ck_assert_uint_ne(lease_on(0), anonymous);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 4);
    /* Given back and asked again: another one. */
    kvt_rig_release(&engine, lease);
    ck_assert_uint_ne(lease_on(1), lease);
    ck_assert_int_eq(lease_check(lease), KVT_ERR_STALE);
    /* The report gives it back too, whoever released it before. */
    lease = lease_on(1);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, TOKENS + 1);
    ck_assert_int_eq(lease_check(lease), KVT_ERR_STALE);
    kvt_rig_release(&engine, other);
    kvt_rig_report(&engine, 2, TOKENS + 1, 0, TOKENS + 1);
    kvt_rig_advance(&rig, TTL_NS + 1);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases_expired, 2);
    rig_close();
}
END_TEST

START_TEST(spent_leases)
{
    uint64_t job = 0;
    rig_open(64, 0);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0);
    struct kvt_cache_restore restore = {.client = engine.client,
                                        .lease = lease,
                                        .binding = engine.binding,
                                        .token_count = TOKENS,
                                        .blocks = blocks,
                                        .block_count = BLOCKS,
                                        .stream = engine.stream};
    kvt_rig_release(&engine, lease);
    ck_assert_int_eq(kvt_cache_release(rig.cache, engine.client, lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_STALE);
    ck_assert_uint_eq(job, 0);
    /* Another client's. */
    struct kvt_rig_engine other;
    kvt_rig_engine_open(&other, &rig, &shape, "tenant");
    restore.lease = lease = lease_on(0);
    restore.client = other.client;
    restore.binding = other.binding;
    ck_assert_int_eq(kvt_cache_lease_check(rig.cache, other.client, lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_release(rig.cache, other.client, lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_release(rig.cache, 0, lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_STALE);
    restore.client = engine.client; /* with another client's binding */
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_STALE);
    restore.binding = engine.binding;
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_OK);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
    /* More than was promised. */
    restore.token_count = TOKENS + 16;
    restore.block_count = BLOCKS + 2;
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_INVAL);
    restore.token_count = 16;
    restore.block_count = 2;
    restore.first_token = TOKENS;
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &restore, &job), KVT_ERR_INVAL);
    kvt_rig_release(&engine, lease);
    kvt_rig_engine_close(&other);
    rig_close();
}
END_TEST

/* ---- time ---- */

START_TEST(unused_leases_expire)
{
    rig_open(0, PAGES);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(1);
    kvt_rig_advance(&rig, TTL_NS / 2);
    ck_assert_uint_eq(lease_on(1), lease); /* asked again: it has its whole time again */
    kvt_rig_advance(&rig, TTL_NS / 2 + KVT_RIG_S);
    ck_assert_int_eq(lease_check(lease), KVT_OK);
    ck_assert_uint_ge(kvt_rig_stats(&rig).lease_age_ns_max, TTL_NS);
    kvt_rig_advance(&rig, TTL_NS / 2);
    ck_assert_int_eq(lease_check(lease), KVT_ERR_STALE);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases_expired, 1);
    ck_assert_uint_eq(kvt_rig_stats(&rig).lease_age_ns_max, 0);
    /* The request lives on, and gets another. */
    uint64_t again = lease_on(1);
    ck_assert_uint_ne(again, lease);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, TOKENS + 1);
    rig_close();
}
END_TEST

START_TEST(no_lease_expires_under_a_transfer)
{
    rig_open(0, PAGES);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0);
    kvt_rig_wipe_all(&engine);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_restore_begin(&engine, lease, 0, PAGES, blocks, NULL);
    kvt_rig_advance(&rig, 10 * TTL_NS);
    ck_assert_int_eq(lease_check(lease), KVT_OK);
    /* Nor does room that is needed take its pages. */
    uint32_t other[TOKENS];
    kvt_rig_tokens(other, 0, TOKENS, 2);
    uint64_t save = kvt_rig_save_begin(&engine, other, TOKENS, blocks + 16, NULL);
    struct kvt_cache_result result = kvt_rig_finish(&engine, save);
    ck_assert_int_eq(result.status, KVT_ERR_LIMIT);
    ck_assert_uint_eq(result.tokens_good, 0);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), PAGES);
    /* From its end on it has its time again. */
    kvt_rig_advance(&rig, TTL_NS / 2);
    ck_assert_int_eq(lease_check(lease), KVT_OK);
    kvt_rig_advance(&rig, TTL_NS);
    ck_assert_int_eq(lease_check(lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_rig_save(&engine, other, TOKENS, blocks).status, KVT_OK);
    rig_close();
}
END_TEST

/* Released under its transfer: the pages stay for it, and go after it. */
START_TEST(released_under_a_transfer)
{
    rig_open(0, PAGES);
    uint32_t other[TOKENS];
    kvt_rig_tokens(other, 0, TOKENS, 2);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0);
    kvt_rig_wipe_all(&engine);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_restore_begin(&engine, lease, 0, PAGES, blocks, NULL);
    uint64_t second = kvt_rig_restore_begin(&engine, lease, 0, 1, blocks + 16, NULL);
    kvt_rig_release(&engine, lease);
    ck_assert_int_eq(kvt_cache_release(rig.cache, engine.client, lease), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_rig_save(&engine, other, TOKENS, blocks + 32).status, KVT_ERR_LIMIT);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.leases, 1);
    ck_assert_uint_eq(stats.tier_slots_in_transfer[1], PAGES + 1);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_uint_eq(kvt_rig_finish(&engine, second).tokens_good, 16);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), PAGES);
    kvt_rig_idle(&rig);
    ck_assert_int_eq(kvt_rig_save(&engine, other, TOKENS, blocks).status, KVT_OK);
    rig_close();
}
END_TEST

/* ---- what a lease pins, and what not ---- */

START_TEST(a_lease_pins_existence_not_the_tier)
{
    rig_open(8, 64);
    kvt_rig_put(&engine, tokens, PAGES);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, TOKENS + 1, 0);
    ck_assert_uint_eq(found.tier_tokens[0], TOKENS);
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t other[TOKENS];
        kvt_rig_tokens(other, 0, TOKENS, 100 + i);
        kvt_rig_put(&engine, other, PAGES);
    }
    kvt_rig_quiesce(&rig);
    struct kvt_cache_found now = kvt_rig_lookup(&engine, 1, tokens, TOKENS + 1, 0);
    ck_assert_uint_eq(now.lease, found.lease);
    ck_assert_uint_gt(now.tier_tokens[1], 0);
    kvt_rig_wipe_all(&engine);
    struct kvt_cache_result result = kvt_rig_restore(&engine, now.lease, 0, PAGES, blocks);
    ck_assert_uint_eq(result.tokens_good, TOKENS);
    ck_assert_uint_eq(result.tier_tokens[1], now.tier_tokens[1]);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), PAGES);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, 1);
    rig_close();
}
END_TEST

/* Pinned by its lookup before any store runs (F67): whatever is saved then, it is there. */
START_TEST(saves_do_not_take_what_was_promised)
{
    rig_open(4, 8);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(1);
    for (uint32_t i = 0; i < 30; i++) {
        uint32_t other[TOKENS];
        kvt_rig_tokens(other, 0, TOKENS, 200 + i);
        kvt_rig_paint(&engine, other, 0, PAGES, blocks);
        ck_assert_int_eq(kvt_rig_save(&engine, other, TOKENS, blocks).status, KVT_OK);
    }
    ck_assert_uint_gt(kvt_rig_stats(&rig).evicted_pages, 50);
    kvt_rig_wipe_all(&engine);
    ck_assert_uint_eq(kvt_rig_restore(&engine, lease, 0, PAGES, blocks).tokens_good, TOKENS);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, PAGES, blocks), PAGES);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, 1);
    rig_close();
}
END_TEST

START_TEST(all_leases_in_use)
{
    uint64_t leases[64];
    rig_open(64, 0);
    kvt_rig_put(&engine, tokens, PAGES);
    for (uint32_t i = 0; i < 64; i++) {
        leases[i] = lease_on(0);
    }
    struct kvt_cache_lookup lookup = {
        .client = engine.client, .tokens = tokens, .token_count = TOKENS + 1};
    struct kvt_cache_found found = {.lease = 77};
    ck_assert_int_eq(kvt_cache_lookup(rig.cache, &lookup, &found), KVT_ERR_AGAIN);
    ck_assert_uint_eq(found.lease, 77);
    ck_assert_uint_ge(kvt_rig_stats(&rig).limit_leases_hit, 1);
    /* A miss needs none. */
    lookup.token_count = 16;
    ck_assert_int_eq(kvt_cache_lookup(rig.cache, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.lease, 0);
    /* Nor does a request that has one, nor a save that has nothing to do; one that has needs
     * one. */
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t job = 0;
    uint32_t other[TOKENS];
    kvt_rig_tokens(other, 0, TOKENS, 2);
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = other,
                                  .token_count = TOKENS,
                                  .blocks = blocks,
                                  .block_count = BLOCKS,
                                  .stream = engine.stream};
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_ERR_AGAIN);
    kvt_rig_release(&engine, leases[5]);
    leases[5] = lease_on(1);
    ck_assert_uint_eq(lease_on(1), leases[5]);
    /* What expired is to be had at once. */
    atomic_fetch_add(&rig.now_ns, TTL_NS + 1);
    leases[0] = lease_on(0);
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    ck_assert_int_eq(kvt_rig_finish(&engine, job).status, KVT_OK);
    kvt_rig_release(&engine, leases[0]);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, TOKENS + 1);
    rig_close();
}
END_TEST

/* A third of the lookups is followed by a restore, a third by a release, a third by nothing
 * (F33). */
START_TEST(lookups_that_come_to_nothing)
{
    struct test_random random = test_random_start("cache_lease nothing", 23);
    uint64_t served = 0, hits = 0, first_hits = 0, last_hits = 0;
    const uint64_t rounds = test_scaled(20000);
    rig_open(0, 64);
    for (uint64_t round = 0; round < rounds; round++) {
        atomic_fetch_add(&rig.now_ns, 2 * KVT_RIG_S); /* 30 leases forgotten within a TTL at most */
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 300 + test_random_below(&random, 16));
        struct kvt_cache_lookup lookup = {
            .client = engine.client, .tokens = tokens, .token_count = TOKENS + 1};
        struct kvt_cache_found found = {0};
        EXPECT(kvt_cache_lookup(rig.cache, &lookup, &found) == KVT_OK);
        hits = found.lease != 0;
        served += hits;
        first_hits += round < rounds / 10 ? hits : 0;
        last_hits += round >= rounds - rounds / 10 ? hits : 0;
        uint32_t what = test_random_below(&random, 3);
        if (found.lease == 0) {
            kvt_rig_put(&engine, tokens, PAGES);
        } else if (what == 0) {
            (void)kvt_rig_restore(&engine, found.lease, 0, PAGES, blocks);
            kvt_rig_release(&engine, found.lease);
        } else if (what == 1) {
            kvt_rig_release(&engine, found.lease);
        }
    }
    ck_assert_uint_gt(served, rounds / 2);
    ck_assert_uint_ge(last_hits + rounds / 100 + 1, first_hits);
    kvt_rig_advance(&rig, TTL_NS + 1);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 0);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leased_pages, 0);
    rig_close();
}
END_TEST

/* ---- guesses ---- */

/* Everything but what moves by itself. */
static struct kvt_cache_stats quiet_stats(void)
{
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    stats.limit_jobs_hit = 0;
    return stats;
}

static void guess(uint64_t handle, uint32_t client)
{
    struct kvt_cache_result result;
    uint64_t job = 0;
    struct kvt_cache *cache = rig.cache;
    struct kvt_cache_restore restore = {.client = client,
                                        .lease = handle,
                                        .binding = engine.binding,
                                        .token_count = 16,
                                        .blocks = blocks,
                                        .block_count = 2,
                                        .stream = engine.stream};
    struct kvt_cache_save save = {.client = client,
                                  .binding = handle,
                                  .tokens = tokens,
                                  .token_count = 16,
                                  .blocks = blocks,
                                  .block_count = 2,
                                  .stream = engine.stream};
    EXPECT(kvt_cache_release(cache, client, handle) == KVT_ERR_STALE);
    EXPECT(kvt_cache_lease_check(cache, client, handle) == KVT_ERR_STALE);
    EXPECT(kvt_cache_restore(cache, &restore, &job) == KVT_ERR_STALE);
    EXPECT(kvt_cache_save(cache, &save, &job) == KVT_ERR_STALE);
    EXPECT(kvt_cache_poll(cache, client, handle, 0, &result) == KVT_ERR_STALE);
    EXPECT(kvt_cache_cancel(cache, client, handle) == KVT_ERR_STALE);
    EXPECT(kvt_cache_wait_region(cache, client, handle, 0, engine.stream) == KVT_ERR_STALE);
    EXPECT(kvt_cache_unbind(cache, client, handle) == KVT_ERR_STALE);
}

START_TEST(guessed_handles)
{
    struct test_random random = test_random_start("cache_lease guesses", 29);
    rig_open(64, 0);
    kvt_rig_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(1), job = 0;
    job = kvt_rig_restore_begin(&engine, lease, 0, PAGES, blocks, NULL);
    kvt_rig_quiesce(&rig); /* done, not told yet */
    struct kvt_cache_stats before = quiet_stats();
    for (uint64_t i = 0; i < test_scaled(100000); i++) {
        uint64_t handle = test_random_u64(&random);
        if (i % 2 == 0) {
            handle = (handle << 32) | test_random_below(&random, 70); /* numbers that there are */
        }
        guess(handle, engine.client);
    }
    /* Near the real ones, and other clients with the real ones. */
    const uint64_t real[] = {lease, job, engine.binding};
    for (uint32_t i = 0; i < 3; i++) {
        for (uint64_t near = 1; near <= 4; near++) {
            guess(real[i] + (near << 32), engine.client);
            guess(real[i] - (near << 32), engine.client);
            if (real[i] + near != job && real[i] + near != lease) {
                guess(real[i] + near, engine.client);
            }
        }
        guess(real[i], 0);
        guess(real[i], engine.client + 1);
        guess(real[i], UINT32_MAX);
    }
    guess(0, engine.client);
    guess(UINT64_MAX, engine.client);
    struct kvt_cache_stats after = quiet_stats();
    ck_assert_mem_eq(&before, &after, sizeof(before));
    ck_assert_int_eq(lease_check(lease), KVT_OK);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
    kvt_rig_report(&engine, 1, TOKENS + 1, 0, 1);
    rig_close();
}
END_TEST

/* A job's handle is nobody's before the call that makes it has returned: not even the next one that
 * can be foreseen finds it while its save looks for room. */
START_TEST(foreseen_handles)
{
    rig_open(16, 16);
    uint64_t job = 0;
    struct kvt_cache_result result;
    for (uint32_t i = 0; i < 50; i++) {
        kvt_rig_tokens(tokens, 0, TOKENS + 1, 400 + i);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        job = kvt_rig_save_begin(&engine, tokens, TOKENS, blocks, NULL);
        uint64_t next = job + (UINT64_C(2) << 32);
        ck_assert_int_eq(kvt_cache_poll(rig.cache, engine.client, next, 0, &result), KVT_ERR_STALE);
        ck_assert_int_eq(kvt_cache_cancel(rig.cache, engine.client, next), KVT_ERR_STALE);
        (void)kvt_rig_finish(&engine, job);
        ck_assert_int_eq(kvt_cache_poll(rig.cache, engine.client, job, 0, &result), KVT_ERR_STALE);
    }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_lease");
    TCase *tcase = tcase_create("cache_lease");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, the_same_question_the_same_lease);
    tcase_add_test(tcase, spent_leases);
    tcase_add_test(tcase, unused_leases_expire);
    tcase_add_test(tcase, no_lease_expires_under_a_transfer);
    tcase_add_test(tcase, released_under_a_transfer);
    tcase_add_test(tcase, a_lease_pins_existence_not_the_tier);
    tcase_add_test(tcase, saves_do_not_take_what_was_promised);
    tcase_add_test(tcase, all_leases_in_use);
    tcase_add_test(tcase, lookups_that_come_to_nothing);
    tcase_add_test(tcase, guessed_handles);
    tcase_add_test(tcase, foreseen_handles);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
