/* What is saved comes back, byte for byte, from whichever tier, at every shape and under
 * pressure. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define BLOCKS_MAX 1024u
#define TOKENS_MAX 4096u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t tokens[TOKENS_MAX];
static uint32_t blocks[BLOCKS_MAX];

static void rig_open(uint64_t hbm_pages, uint64_t host_pages)
{
    kvt_rig_cache_init(&rig);
    /* 4,096 bytes a page make budgets exact: one page fills a chunk. */
    static const struct kvt_rig_shape shape = {
        .block_tokens = 8,
        .block_count = 512,
        .region_count = 2,
        .block_bytes = {1030, 1018},
        .stride_bytes = {1030, 1100},
    };
    rig.config.hbm_bytes = hbm_pages * 4096;
    rig.config.host_bytes = host_pages * 4096;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    ck_assert_uint_eq(engine.page_bytes, 4096);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* ---- shapes ---- */

static const struct {
    uint32_t page_tokens;
    struct kvt_rig_shape shape;
} shapes[] = {
    {16, {16, 64, 1, {64}, {64}}},
    {16, {8, 64, 2, {72, 40}, {80, 53}}},
    {16, {1, 256, 4, {1, 3, 129, 4095}, {1, 4, 131, 4097}}},
    {1, {1, 64, 1, {7}, {9}}},
    {48, {16, 64, 3, {100, 1, 333}, {100, 5, 1024}}},
    {5, {5, 64, 2, {2048, 2049}, {2048, 3000}}},
    {4096, {2048, 16, 1, {512}, {600}}},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))
#define SHAPE_PAGES 5u

/* Tier by tier: hbm only, host only, both. */
static void round_trip(uint32_t shape, uint32_t tiers)
{
    uint32_t *long_tokens = calloc((SHAPE_PAGES + 1) * shapes[shape].page_tokens, sizeof(uint32_t));
    EXPECT(long_tokens != NULL);
    const uint32_t page_tokens = shapes[shape].page_tokens;
    kvt_rig_cache_init(&rig);
    rig.config.page_tokens = page_tokens;
    rig.config.hbm_bytes = (tiers & 1u) != 0 ? 1u << 20 : 0;
    rig.config.host_bytes = (tiers & 2u) != 0 ? 1u << 20 : 0;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shapes[shape].shape, "tenant");
    kvt_rig_tokens(long_tokens, 0, (SHAPE_PAGES + 1) * page_tokens, shape);
    const uint64_t count = (uint64_t)SHAPE_PAGES * page_tokens;
    ck_assert_uint_eq(kvt_rig_get(&engine, long_tokens, count), 0);
    kvt_rig_put(&engine, long_tokens, SHAPE_PAGES);
    /* The last token is never promised (F22). */
    ck_assert_uint_eq(kvt_rig_get(&engine, long_tokens, count + 1), SHAPE_PAGES);
    ck_assert_uint_eq(kvt_rig_get(&engine, long_tokens, count), SHAPE_PAGES - 1);
    ck_assert_uint_eq(kvt_rig_get(&engine, long_tokens, count + page_tokens), SHAPE_PAGES);
    for (uint64_t n = 1; n <= count; n += page_tokens / 3 + 1) {
        ck_assert_uint_eq(kvt_rig_get(&engine, long_tokens, n), (n - 1) / page_tokens);
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.saved_pages, SHAPE_PAGES);
    ck_assert_uint_eq(stats.tier_pages[0] + stats.tier_pages[1], SHAPE_PAGES);
    ck_assert((tiers & 1u) == 0 || stats.tier_pages[0] == SHAPE_PAGES);
    kvt_rig_check(&rig);
    /* Again: everything is held, nothing is copied. */
    kvt_rig_put(&engine, long_tokens, SHAPE_PAGES);
    ck_assert_uint_eq(kvt_rig_stats(&rig).saved_pages, SHAPE_PAGES);
    free(long_tokens);
    rig_close();
}

START_TEST(round_trips)
{
    for (uint32_t tiers = 1; tiers <= 3; tiers++) {
        round_trip((uint32_t)_i, tiers);
    }
}
END_TEST

/* The verification itself must be able to fail. */
START_TEST(controls)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 96, 1);
    kvt_rig_put(&engine, tokens, 5);
    kvt_rig_wipe_all(&engine);
    kvt_rig_blocks(blocks, 0, 10);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 5, blocks), 0);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, 81, 0);
    struct kvt_cache_result result = kvt_rig_restore(&engine, found.lease, 0, 5, blocks);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 5, blocks), 5);
    /* Two blocks of a page swapped. */
    blocks[6] = 7;
    blocks[7] = 6;
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 5, blocks), 3);
    kvt_rig_blocks(blocks, 0, 10);
    /* One byte. */
    engine.memory[1][engine.shape.stride_bytes[1] * 9 + 1017] ^= 1;
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 5, blocks), 4);
    /* A page of another prompt that differs in one early token: same tokens in the page itself. */
    uint32_t other[96];
    memcpy(other, tokens, sizeof(other));
    other[3]++;
    kvt_rig_paint(&engine, other, 2, 1, blocks + 4);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 5, blocks), 2);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 2, 1, blocks + 4), 0);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine, other, 2, 1, blocks + 4), 1);
    /* Written between blocks. */
    ck_assert(kvt_rig_gaps_untouched(&engine));
    engine.memory[1][engine.shape.stride_bytes[1] - 1] = 0;
    ck_assert(!kvt_rig_gaps_untouched(&engine));
    engine.memory[1][engine.shape.stride_bytes[1] - 1] = KVT_RIG_UNTOUCHED;
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

/* Restores of parts, into blocks in any order. */
START_TEST(parts_into_scattered_blocks)
{
    struct test_random random = test_random_start("cache_move parts", 7);
    rig_open(16, 16);
    kvt_rig_tokens(tokens, 0, 321, 2);
    kvt_rig_put(&engine, tokens, 20);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, 321, 0);
    ck_assert_uint_eq(found.matched_tokens, 320);
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t first = test_random_below(&random, 20);
        uint32_t pages = 1 + test_random_below(&random, 20 - first);
        uint32_t start = test_random_below(&random, 512);
        for (uint32_t i = 0; i < 2 * pages; i++) {
            blocks[i] = (start + i * 37) % 512; /* 37 and 512 have no common factor */
        }
        kvt_rig_wipe_all(&engine);
        struct kvt_cache_result result =
            kvt_rig_restore(&engine, found.lease, first, pages, blocks);
        ck_assert_int_eq(result.status, KVT_OK);
        EXPECT(result.tokens_good == pages * 16u);
        EXPECT(kvt_rig_good_pages(&engine, tokens, first, pages, blocks) == pages);
        EXPECT(kvt_rig_gaps_untouched(&engine));
    }
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

/* A save takes only what is new, and reads no block before valid_from. */
START_TEST(saves_of_tails)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 200, 3);
    kvt_rig_put(&engine, tokens, 4);
    kvt_rig_wipe_all(&engine);
    for (uint32_t i = 0; i < 24; i++) {
        blocks[i] = i < 8 ? UINT32_MAX : i; /* not even looked at */
    }
    kvt_rig_paint(&engine, tokens, 4, 8, blocks + 8);
    uint64_t job = 0;
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = tokens,
                                  .token_count = 200, /* 12 pages and a half */
                                  .blocks = blocks,
                                  .block_count = 24,
                                  .valid_from_token = 64,
                                  .stream = engine.stream};
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    struct kvt_cache_result result = kvt_rig_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tokens_good, 192);
    ck_assert_uint_eq(kvt_rig_get(&engine, tokens, 193), 12);
    /* A gap: what lies before is not held, so nothing can be. */
    kvt_rig_tokens(tokens, 0, 200, 4);
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    result = kvt_rig_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tokens_good, 0);
    /* Valid from inside the last page, which is not whole: nothing to do, and no error. */
    save.valid_from_token = 197;
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    result = kvt_rig_finish(&engine, job);
    ck_assert_uint_eq(result.tokens_good, 0);
    ck_assert_uint_eq(kvt_rig_stats(&rig).saved_pages, 12);
    rig_close();
}
END_TEST

/* Fewer than a page, exactly none (F60). */
START_TEST(small_prompts)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 16, 5);
    kvt_rig_blocks(blocks, 0, 2);
    for (uint32_t n = 1; n < 16; n++) {
        struct kvt_cache_result result = kvt_rig_save(&engine, tokens, n, blocks);
        ck_assert_int_eq(result.status, KVT_OK);
        ck_assert_uint_eq(result.tokens_good, 0);
        ck_assert_uint_eq(kvt_rig_probe(&engine, tokens, n), 0);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).pages, 0);
    rig_close();
}
END_TEST

/* ---- pressure ---- */

START_TEST(demotion)
{
    rig_open(16, 64);
    for (uint32_t round = 0; round < 10; round++) {
        kvt_rig_tokens(tokens, 0, 65, 100 + round);
        kvt_rig_put(&engine, tokens, 4);
    }
    kvt_rig_quiesce(&rig);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_gt(stats.demoted_pages, 0);
    ck_assert_uint_eq(stats.evicted_pages, 0);
    ck_assert_uint_eq(stats.tier_pages[0] + stats.tier_pages[1], 40);
    kvt_rig_check(&rig);
    uint64_t from_host = 0;
    for (uint32_t round = 0; round < 10; round++) {
        kvt_rig_tokens(tokens, 0, 65, 100 + round);
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, 65, 0);
        from_host += found.tier_tokens[1];
        kvt_rig_release(&engine, found.lease);
        ck_assert_uint_eq(kvt_rig_get(&engine, tokens, 65), 4);
    }
    /* More may have come down meanwhile, but nothing went up. */
    ck_assert_uint_ge(from_host, stats.tier_pages[1] * 16);
    rig_close();
}
END_TEST

START_TEST(eviction)
{
    rig_open(8, 8);
    for (uint32_t round = 0; round < 20; round++) {
        kvt_rig_tokens(tokens, 0, 49, 200 + round);
        kvt_rig_put(&engine, tokens, 3);
        ck_assert_uint_eq(kvt_rig_get(&engine, tokens, 49), 3);
        kvt_rig_check(&rig);
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.saved_pages, 60);
    ck_assert_uint_eq(stats.pages, 60 - stats.evicted_pages);
    ck_assert_uint_le(stats.pages, 16);
    ck_assert_uint_ge(stats.pages, 12);
    for (uint32_t round = 0; round < 20; round++) {
        kvt_rig_tokens(tokens, 0, 49, 200 + round);
        uint32_t pages = kvt_rig_get(&engine, tokens, 49);
        ck_assert(round < 16 || pages == 3);
        ck_assert(round > 13 || pages == 0);
    }
    rig_close();
}
END_TEST

/* What was delivered stays, what was only saved long ago goes. */
START_TEST(delivery_moves_recency)
{
    rig_open(0, 16);
    uint32_t kept[49];
    kvt_rig_tokens(kept, 0, 49, 300);
    kvt_rig_put(&engine, kept, 3);
    for (uint32_t round = 1; round < 20; round++) {
        kvt_rig_tokens(tokens, 0, 49, 300 + round);
        kvt_rig_put(&engine, tokens, 3);
        ck_assert_uint_eq(kvt_rig_get(&engine, kept, 49), 3);
    }
    ck_assert_uint_gt(kvt_rig_stats(&rig).evicted_pages, 30);
    /* The control: without deliveries it goes. */
    for (uint32_t round = 30; round < 36; round++) {
        kvt_rig_tokens(tokens, 0, 49, 300 + round);
        kvt_rig_put(&engine, tokens, 3);
        (void)kvt_rig_probe(&engine, kept, 49); /* asking alone does not keep it (F35) */
    }
    ck_assert_uint_eq(kvt_rig_get(&engine, kept, 49), 0);
    rig_close();
}
END_TEST

/* The same when the lease was given back while the copy was still under way. */
START_TEST(delivery_after_release_moves_recency)
{
    rig_open(0, 16);
    uint32_t kept[49];
    kvt_rig_tokens(kept, 0, 49, 400);
    kvt_rig_put(&engine, kept, 3);
    for (uint32_t round = 1; round < 20; round++) {
        kvt_rig_tokens(tokens, 0, 49, 400 + round);
        kvt_rig_put(&engine, tokens, 3);
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, kept, 49, 0);
        ck_assert_uint_eq(found.matched_tokens, 48);
        kvt_rig_blocks(blocks, 0, 6);
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
        uint64_t job = kvt_rig_restore_begin(&engine, found.lease, 0, 3, blocks, NULL);
        kvt_rig_release(&engine, found.lease);
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
        ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, 48);
    }
    rig_close();
}
END_TEST

/* Larger than everything: the longest prefix that fits stays (F37), and the budget holds. */
START_TEST(larger_than_the_cache)
{
    rig_open(10, 22);
    for (uint32_t round = 0; round < 3; round++) {
        kvt_rig_tokens(tokens, 0, 100 * 16 + 1, 500 + round);
        kvt_rig_blocks(blocks, 0, 200);
        kvt_rig_paint(&engine, tokens, 0, 100, blocks);
        struct kvt_cache_result result = kvt_rig_save(&engine, tokens, 1600, blocks);
        ck_assert_int_eq(result.status, KVT_ERR_LIMIT);
        ck_assert_uint_eq(result.tokens_good, 32 * 16);
        ck_assert_uint_eq(kvt_rig_get(&engine, tokens, 1601), 32);
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.not_admitted_pages, 3 * 68);
    ck_assert_uint_eq(stats.tier_bytes_mapped[0], 10 * 4096);
    ck_assert_uint_eq(stats.tier_bytes_mapped[1], 22 * 4096);
    rig_close();
}
END_TEST

/* Shared heads and branches under pressure: a page is never there without what precedes it
 * (F76). */
START_TEST(branches_under_pressure)
{
    struct test_random random = test_random_start("cache_move branches", 11);
    rig_open(12, 12);
    for (uint32_t round = 0; round < test_scaled(2000); round++) {
        uint32_t cut = test_random_below(&random, 6), branch = test_random_below(&random, 8);
        uint32_t pages = 1 + test_random_below(&random, 10);
        kvt_rig_tokens(tokens, 0, 16 * cut, 600);
        kvt_rig_tokens(tokens, 16 * cut, 16 * pages + 1, 700 + branch);
        (void)kvt_rig_get(&engine, tokens, 16 * pages + 1);
        if (test_random_below(&random, 2) == 0) {
            kvt_rig_put(&engine, tokens, pages);
            EXPECT(kvt_rig_get(&engine, tokens, 16 * pages + 1) == pages);
        }
        if (round % 64 == 0) {
            kvt_rig_quiesce(&rig);
            kvt_rig_check(&rig);
        }
    }
    ck_assert_uint_gt(kvt_rig_stats(&rig).evicted_pages, 10);
    ck_assert_uint_gt(kvt_rig_stats(&rig).demoted_pages, 0);
    rig_close();
}
END_TEST

/* Pages of several sizes in one cache: two engines of one tenant but of other layouts. */
START_TEST(several_page_sizes)
{
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = 200000;
    rig.config.host_bytes = 300000;
    kvt_rig_cache_open(&rig);
    struct kvt_rig_engine engines[SHAPES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SHAPES; i++) {
        if (shapes[i].page_tokens == 16) {
            char tenant[2] = {(char)('a' + i), '\0'};
            kvt_rig_engine_open(&engines[count++], &rig, &shapes[i].shape, tenant);
        }
    }
    struct test_random random = test_random_start("cache_move sizes", 13);
    uint64_t delivered = 0;
    for (uint32_t round = 0; round < test_scaled(600); round++) {
        struct kvt_rig_engine *e = &engines[test_random_below(&random, count)];
        kvt_rig_tokens(tokens, 0, 65, 800 + test_random_below(&random, 8));
        delivered += kvt_rig_serve(e, 1 + round, tokens, 65, 0);
    }
    ck_assert_uint_gt(delivered, 0);
    ck_assert_uint_gt(kvt_rig_stats(&rig).evicted_pages, 0);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    for (uint32_t i = 0; i < count; i++) {
        kvt_rig_engine_close(&engines[i]);
    }
    kvt_rig_cache_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_move");
    TCase *tcase = tcase_create("cache_move");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, round_trips, 0, (int)SHAPES);
    tcase_add_test(tcase, controls);
    tcase_add_test(tcase, parts_into_scattered_blocks);
    tcase_add_test(tcase, saves_of_tails);
    tcase_add_test(tcase, small_prompts);
    tcase_add_test(tcase, demotion);
    tcase_add_test(tcase, eviction);
    tcase_add_test(tcase, delivery_moves_recency);
    tcase_add_test(tcase, delivery_after_release_moves_recency);
    tcase_add_test(tcase, larger_than_the_cache);
    tcase_add_test(tcase, branches_under_pressure);
    tcase_add_test(tcase, several_page_sizes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
