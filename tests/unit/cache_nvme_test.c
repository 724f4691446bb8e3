/* The nvme tier through the public calls: what goes down comes up again, with the same bytes, also
 * after a restart; who goes down, what is left there, and what is refused. */
#include "tests/support/cache_nvme_rig.h"

#define VARIANTS 4

/* ---- down and up ---- */

START_TEST(comes_back)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.nvme_state, 1);
    ck_assert(!((_i & 1) != 0 && stats.nvme_uring != 0));
    ck_assert(!((_i & 2) != 0 && stats.nvme_direct != 0));
    nvrig_put(&rig.engine, 1, 40);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.tier_pages[2], 40);
    ck_assert_uint_eq(stats.nvme_written_pages, 40);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 40).from[1], 40); /* memory has it too */
    nvrig_push_out(&rig, 100);
    nvrig_check(&rig);
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 40);
    ck_assert_int_eq(got.status, KVT_OK);
    ck_assert_uint_eq(got.good, 40);
    ck_assert_uint_gt(got.from[2], 0);
    stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.nvme_read_pages, got.from[2]);
    ck_assert_uint_eq(stats.nvme_promoted_pages, got.from[2]);
    /* The control: these are not the bytes of another conversation. */
    uint32_t blocks[80];
    kvt_rig_blocks(blocks, 0, 80);
    ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, nvrig_tokens(1), 0, 40, blocks), 40);
    ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, nvrig_tokens(2), 0, 40, blocks), 0);
    got = nvrig_get(&rig.engine, 1, 40); /* they stayed in memory */
    ck_assert_uint_eq(got.from[1], 40);
    nvrig_check(&rig);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(accounts)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    uint32_t blocks[80];
    kvt_rig_blocks(blocks, 0, 80);
    nvrig_put(&rig.engine, 1, 40);
    nvrig_push_out(&rig, 100);
    const uint32_t *tokens = nvrig_tokens(1);
    struct kvt_cache_found found = nvrig_lookup(&rig.engine, 7, tokens, 40);
    uint64_t promised = found.tier_tokens[2];
    ck_assert_uint_gt(promised, 0);
    struct kvt_cache_result result = kvt_rig_restore(&rig.engine, found.lease, 0, 40, blocks);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tier_tokens[2], promised);
    kvt_rig_report(&rig.engine, 7, 641, 0, 1);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.tokens_delivered[2], promised);
    ck_assert_uint_eq(stats.tokens_delivered[1] + stats.tokens_delivered[2], 640);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    ck_assert_uint_eq(stats.tokens_asked, 641);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(reads_are_shared)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    uint32_t blocks[160];
    kvt_rig_blocks(blocks, 0, 160);
    nvrig_put(&rig.engine, 1, 40);
    nvrig_push_out(&rig, 100);
    const uint32_t *tokens = nvrig_tokens(1);
    struct kvt_cache_found a = nvrig_lookup(&rig.engine, 0, tokens, 40);
    struct kvt_cache_found b = nvrig_lookup(&rig.engine, 0, tokens, 40);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_HOLD, 1);
    kvt_rig_wipe_all(&rig.engine);
    uint64_t one = kvt_rig_restore_begin(&rig.engine, a.lease, 0, 40, blocks, NULL);
    void *stream = kvt_rig_stream(&rig.cache);
    uint64_t two = kvt_rig_restore_begin(&rig.engine, b.lease, 0, 40, blocks + 80, stream);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_HOLD, 0);
    ck_assert_int_eq(kvt_rig_finish(&rig.engine, one).status, KVT_OK);
    ck_assert_int_eq(kvt_rig_finish(&rig.engine, two).status, KVT_OK);
    ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, tokens, 0, 40, blocks), 40);
    ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, tokens, 0, 40, blocks + 80), 40);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.nvme_read_pages * NVRIG_PAGE_TOKENS, a.tier_tokens[2]);
    kvt_rig_release(&rig.engine, a.lease);
    kvt_rig_release(&rig.engine, b.lease);
    kvt_cache_stream_destroy(rig.cache.cache, stream);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(prefetched)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    uint32_t blocks[80];
    kvt_rig_blocks(blocks, 0, 80);
    nvrig_put(&rig.engine, 1, 40);
    nvrig_push_out(&rig, 100);
    struct kvt_cache_found found = nvrig_lookup(&rig.engine, 0, nvrig_tokens(1), 40);
    uint64_t below = found.tier_tokens[2] / NVRIG_PAGE_TOKENS;
    ck_assert_uint_gt(below, 0);
    ck_assert_int_eq(kvt_cache_prefetch(rig.cache.cache, rig.engine.client, found.lease), KVT_OK);
    NVRIG_WAIT_FOR(&rig, now.nvme_promoted_pages == below);
    struct kvt_cache_result result = kvt_rig_restore(&rig.engine, found.lease, 0, 40, blocks);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tier_tokens[1], 640);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_read_pages, below);
    kvt_rig_release(&rig.engine, found.lease);
    ck_assert_int_eq(kvt_cache_prefetch(rig.cache.cache, rig.engine.client, found.lease),
                     KVT_ERR_STALE);
    nvrig_stop(&rig);
}
END_TEST

/* A restore of more than host memory holds ends short, and says how far it came. */
START_TEST(larger_than_memory)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 100);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_put(&rig.engine, 1, 200); /* the second half: the first goes down for it */
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).tier_pages[2], 200);
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 200);
    ck_assert_uint_eq(got.matched, 200);
    ck_assert_uint_lt(got.good, 200);
    ck_assert_uint_gt(got.good, 0);
    nvrig_check(&rig);
    /* Piece by piece it all comes. */
    uint32_t blocks[80];
    kvt_rig_blocks(blocks, 0, 80);
    struct kvt_cache_found found = nvrig_lookup(&rig.engine, 0, nvrig_tokens(1), 200);
    for (uint32_t first = 0; first < 200; first += 40) {
        kvt_rig_wipe_all(&rig.engine);
        struct kvt_cache_result result =
            kvt_rig_restore(&rig.engine, found.lease, first, 40, blocks);
        ck_assert_int_eq(result.status, KVT_OK);
        ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, nvrig_tokens(1), first, 40, blocks), 40);
    }
    kvt_rig_release(&rig.engine, found.lease);
    nvrig_stop(&rig);
}
END_TEST

/* ---- restart ---- */

START_TEST(found_after_a_restart)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 60);
    nvrig_put(&rig.engine, 2, 30);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_put(&rig.engine, 3, 100);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    for (uint32_t round = 0; round < 2; round++) {
        nvrig_again(&rig);
        struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
        ck_assert_uint_eq(stats.nvme_loaded_pages, 190);
        ck_assert_uint_eq(stats.pages, 190);
        ck_assert_uint_eq(nvrig_probe(&rig.engine, 9, 60), 0);
        ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 60).from[2], 60);
        ck_assert_uint_eq(nvrig_get(&rig.engine, 2, 30).from[2], 30);
        ck_assert_uint_eq(nvrig_get(&rig.engine, 2, 40).from[1], 30);
        ck_assert_uint_eq(nvrig_get(&rig.engine, 3, 100).good, 100);
    }
    nvrig_put(&rig.engine, 1, 70); /* what was found goes on */
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 80).from[2], 70);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(destroyed_without_a_flush)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 100);
    nvrig_again(&rig);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_le(stats.nvme_loaded_pages, 100);
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 100); /* whatever is offered is right */
    ck_assert_int_eq(got.status, KVT_OK);
    ck_assert_uint_eq(got.good, stats.nvme_loaded_pages);
    nvrig_put(&rig.engine, 1, 100);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 100).from[2], 100);
    nvrig_stop(&rig);
}
END_TEST

static const struct kvt_rig_shape other_shape = {
    .block_tokens = 16,
    .block_count = 128,
    .region_count = 1,
    .block_bytes = {4000},
    .stride_bytes = {4096},
};

START_TEST(namespaces_and_sizes)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    struct kvt_rig_engine other;
    kvt_rig_engine_open(&other, &rig.cache, &other_shape, "other");
    other.weights = 5;
    nvrig_put(&rig.engine, 1, 30);
    nvrig_put(&other, 1, 50);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    kvt_rig_engine_close(&other);
    nvrig_again(&rig);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_loaded_pages, 80);
    struct kvt_rig_engine third;
    kvt_rig_engine_open(&third, &rig.cache, &nvrig_shape, "third");
    kvt_rig_engine_open(&other, &rig.cache, &other_shape, "other");
    other.weights = 5;
    ck_assert_uint_eq(nvrig_probe(&third, 1, 60), 0);
    ck_assert_uint_eq(nvrig_probe(&rig.engine, 1, 60), 30);
    ck_assert_uint_eq(nvrig_probe(&other, 1, 60), 50);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 60).from[2], 30);
    struct kvt_cache_found found = nvrig_lookup(&other, 0, nvrig_tokens(1), 60);
    uint32_t blocks[50];
    kvt_rig_blocks(blocks, 0, 50);
    ck_assert_int_eq(kvt_rig_restore(&other, found.lease, 0, 50, blocks).status, KVT_OK);
    ck_assert_uint_eq(kvt_rig_good_pages(&other, nvrig_tokens(1), 0, 50, blocks), 50);
    other.weights = 6;
    ck_assert_uint_eq(kvt_rig_good_pages(&other, nvrig_tokens(1), 0, 50, blocks), 0);
    kvt_rig_release(&other, found.lease);
    kvt_rig_engine_close(&third);
    kvt_rig_engine_close(&other);
    nvrig_stop(&rig);
}
END_TEST

static uint64_t matched_with(struct nvrig *rig, unsigned char digest)
{
    struct kvt_cache_extra extra = {.token_index = 5 * NVRIG_PAGE_TOKENS + 3};
    memset(extra.digest, digest, sizeof(extra.digest));
    struct kvt_cache_lookup lookup = {.client = rig->engine.client,
                                      .tokens = nvrig_tokens(1),
                                      .token_count = 20 * NVRIG_PAGE_TOKENS + 1,
                                      .extras = &extra,
                                      .extra_count = digest != 0};
    struct kvt_cache_found found = {0};
    EXPECT(kvt_cache_lookup(rig->cache.cache, &lookup, &found) == KVT_OK);
    if (found.lease != 0) {
        kvt_rig_release(&rig->engine, found.lease);
    }
    return found.matched_tokens / NVRIG_PAGE_TOKENS;
}

START_TEST(extra_keys)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    uint32_t blocks[40];
    struct kvt_cache_extra extra = {.token_index = 5 * NVRIG_PAGE_TOKENS + 3};
    memset(extra.digest, 3, sizeof(extra.digest));
    kvt_rig_blocks(blocks, 0, 40);
    struct kvt_cache_save save = {.client = rig.engine.client,
                                  .binding = rig.engine.binding,
                                  .tokens = nvrig_tokens(1),
                                  .token_count = 20 * NVRIG_PAGE_TOKENS,
                                  .blocks = blocks,
                                  .block_count = 40,
                                  .extras = &extra,
                                  .extra_count = 1,
                                  .stream = rig.engine.stream};
    uint64_t job = 0;
    ck_assert_int_eq(kvt_cache_save(rig.cache.cache, &save, &job), KVT_OK);
    ck_assert_int_eq(kvt_rig_finish(&rig.engine, job).status, KVT_OK);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    ck_assert_uint_eq(matched_with(&rig, 3), 20);
    ck_assert_uint_eq(matched_with(&rig, 4), 5);
    ck_assert_uint_eq(matched_with(&rig, 0), 5);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(several_stores)
{
    struct nvrig rig;
    nvrig_init(&rig, 3, _i);
    nvrig_open(&rig);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        nvrig_put(&rig.engine, seed, 30);
        ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    }
    nvrig_again(&rig);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_loaded_pages, 180);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        ck_assert_uint_eq(nvrig_get(&rig.engine, seed, 30).good, 30);
    }
    nvrig_stop(&rig);
}
END_TEST

/* ---- three tiers ---- */

START_TEST(hbm_and_host_and_nvme)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.hbm_bytes = NVRIG_HOST_BYTES;
    nvrig_open(&rig);
    for (uint64_t seed = 1; seed <= 9; seed++) {
        nvrig_put(&rig.engine, seed, 40);
        nvrig_check(&rig);
        ck_assert_int_eq(nvrig_flush(&rig), KVT_OK); /* also what lies in hbm only */
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.tier_pages[2], stats.pages);
    uint32_t from[3] = {0}, good = 0;
    for (uint64_t seed = 1; seed <= 9; seed++) {
        struct nvrig_got got = nvrig_get(&rig.engine, seed, 40);
        ck_assert_int_eq(got.status, KVT_OK);
        good += got.good;
        for (uint32_t tier = 0; tier < 3; tier++) {
            from[tier] += got.from[tier];
        }
    }
    ck_assert_uint_eq(good, 360);
    ck_assert_uint_gt(from[0], 0);
    ck_assert_uint_gt(from[2], 0);
    nvrig_again(&rig);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_loaded_pages, 360);
    nvrig_stop(&rig);
}
END_TEST

/* ---- who goes down ---- */

static uint64_t written(struct nvrig *rig)
{
    kvt_rig_advance(&rig->cache, KVT_RIG_MS);
    nvrig_check(rig);
    return kvt_rig_stats(&rig->cache).nvme_written_pages;
}

START_TEST(policy_through)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.admit_policy = "through";
    nvrig_open(&rig);
    nvrig_put(&rig.engine, 1, 20);
    NVRIG_WAIT_FOR(&rig, now.nvme_written_pages == 20);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(policy_on_evict)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.admit_policy = "on-evict";
    nvrig_open(&rig);
    nvrig_put(&rig.engine, 1, 20);
    (void)nvrig_get(&rig.engine, 1, 20);
    ck_assert_uint_eq(written(&rig), 0);
    nvrig_put(&rig.engine, 2, 100); /* memory is nearly full now */
    NVRIG_WAIT_FOR(&rig, now.nvme_written_pages >= 20);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK); /* whatever the policy says */
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).tier_pages[2], 120);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(policy_second_touch)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.admit_policy = "second-touch";
    nvrig_open(&rig);
    nvrig_put(&rig.engine, 1, 20);
    nvrig_put(&rig.engine, 2, 20);
    ck_assert_uint_eq(written(&rig), 0);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 10).good, 10);
    NVRIG_WAIT_FOR(&rig, now.nvme_written_pages == 10);
    ck_assert_uint_eq(written(&rig), 10);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(unknown_policy)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.admit_policy = "always";
    char why[512] = "";
    ck_assert_int_eq(kvt_cache_create(&rig.cache.config, &rig.cache.cache, why, sizeof(why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "always"));
    nvrig_fini(&rig);
}
END_TEST

/* ---- what is left there ---- */

START_TEST(computing_is_faster)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 40);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    ck_assert_int_eq(kvt_cache_client_prefill(rig.cache.cache, rig.engine.client, 0), KVT_OK);
    ck_assert_uint_eq(nvrig_probe(&rig.engine, 1, 40), 40);
    /* Sixteen tokens take 16 ns: no drive is as fast. */
    ck_assert_int_eq(
        kvt_cache_client_prefill(rig.cache.cache, rig.engine.client, UINT64_C(1000000000)), KVT_OK);
    struct kvt_cache_found found = nvrig_lookup(&rig.engine, 5, nvrig_tokens(1), 40);
    ck_assert_uint_eq(found.matched_tokens, 0);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.nvme_too_slow_pages, 40);
    kvt_rig_report(&rig.engine, 5, 641, 0, 641);
    /* What was computed instead lies in memory, and is not on nvme twice. */
    nvrig_put(&rig.engine, 1, 40);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 40).from[1], 40);
    stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.pages, 40);
    ck_assert_uint_eq(stats.tier_pages[1], 40);
    ck_assert_uint_eq(stats.tier_pages[2], 40);
    ck_assert_uint_eq(stats.nvme_read_pages, 0);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    /* A lease ends where loading begins not to pay. */
    nvrig_put(&rig.engine, 1, 60);
    nvrig_check(&rig);
    ck_assert_int_eq(kvt_cache_client_prefill(rig.cache.cache, rig.engine.client, 1), KVT_OK);
    ck_assert_uint_eq(nvrig_probe(&rig.engine, 1, 60), 60);
    nvrig_stop(&rig);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refused)
{
    struct nvrig rig;
    char why[512] = "";
    struct kvt_cache *second = NULL;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 10);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    ck_assert_int_ne(kvt_cache_create(&rig.cache.config, &second, why, sizeof(why)), KVT_OK);
    ck_assert_uint_gt(strlen(why), 0);
    ck_assert_ptr_null(second);
    rig.cache.config.nvme_flags |= KVT_CACHE_NVME_OPTIONAL;
    ck_assert_int_eq(kvt_cache_create(&rig.cache.config, &second, why, sizeof(why)), KVT_OK);
    struct kvt_cache_stats stats;
    ck_assert_int_eq(kvt_cache_stats(second, &stats), KVT_OK);
    ck_assert_uint_eq(stats.nvme_state, 0);
    ck_assert_int_eq(kvt_cache_drive_fault(second, KVT_CACHE_DRIVE_HOLD, 0), KVT_ERR_UNSUPPORTED);
    ck_assert_int_eq(kvt_cache_destroy(second), KVT_OK);
    rig.cache.config.nvme_flags &= ~KVT_CACHE_NVME_OPTIONAL;
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 10).good, 10);
    nvrig_close(&rig);
    /* Pages of another length. */
    rig.cache.config.page_tokens = 32;
    why[0] = '\0';
    ck_assert_int_ne(kvt_cache_create(&rig.cache.config, &second, why, sizeof(why)), KVT_OK);
    ck_assert_uint_gt(strlen(why), 0);
    rig.cache.config.page_tokens = 16;
    nvrig_open(&rig);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 10).from[2], 10);
    nvrig_stop(&rig);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("cache_nvme");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, comes_back, 0, VARIANTS);
    tcase_add_loop_test(tcase, accounts, 0, VARIANTS);
    tcase_add_loop_test(tcase, reads_are_shared, 0, VARIANTS);
    tcase_add_loop_test(tcase, prefetched, 0, VARIANTS);
    tcase_add_loop_test(tcase, larger_than_memory, 0, VARIANTS);
    tcase_add_loop_test(tcase, found_after_a_restart, 0, VARIANTS);
    tcase_add_loop_test(tcase, destroyed_without_a_flush, 0, VARIANTS);
    tcase_add_loop_test(tcase, namespaces_and_sizes, 0, VARIANTS);
    tcase_add_loop_test(tcase, extra_keys, 0, VARIANTS);
    tcase_add_loop_test(tcase, several_stores, 0, VARIANTS);
    tcase_add_loop_test(tcase, hbm_and_host_and_nvme, 0, VARIANTS);
    tcase_add_loop_test(tcase, policy_through, 0, VARIANTS);
    tcase_add_loop_test(tcase, policy_on_evict, 0, VARIANTS);
    tcase_add_loop_test(tcase, policy_second_touch, 0, VARIANTS);
    tcase_add_test(tcase, unknown_policy);
    tcase_add_loop_test(tcase, computing_is_faster, 0, VARIANTS);
    tcase_add_test(tcase, refused); /* each refusal waits for the lock */
    Suite *suite = suite_create("cache_nvme");
    suite_add_tcase(suite, tcase);
    return nvrig_suite_run(suite);
}
