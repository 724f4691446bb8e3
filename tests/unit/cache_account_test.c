/* The account of requests: conservation, and one reason for every page that was missed. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

/* As KVT_MISS_x of kvt_engine.h. */
enum {
    NEVER_SEEN,
    EVICTED,
    NOT_ADMITTED,
    DIVERGED,
    OTHER_NAMESPACE,
    IN_FLIGHT,
    TOO_SLOW,
    FAILED,
    DECLINED
};

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t tokens[4096];
static uint32_t blocks[256];
static struct kvt_cache_stats before;

static const struct kvt_rig_shape shape = {
    .block_tokens = 16,
    .block_count = 256,
    .region_count = 2,
    .block_bytes = {4000, 96},
    .stride_bytes = {4000, 100},
};

static void rig_open(uint64_t hbm_pages, uint64_t host_pages)
{
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = hbm_pages * 4096;
    rig.config.host_bytes = host_pages * 4096;
    rig.config.request_ttl_ns = 100 * KVT_RIG_S;
    rig.config.lease_ttl_ns = 60 * KVT_RIG_S;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    kvt_rig_blocks(blocks, 0, 256);
    before = kvt_rig_stats(&rig);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* What was counted since the last time: exactly these reasons, nothing else. */
static void expect_missed(uint32_t reason, uint64_t pages, uint32_t other, uint64_t other_pages)
{
    struct kvt_cache_stats now = kvt_rig_stats(&rig);
    for (uint32_t i = 0; i < KVT_CACHE_MISS_REASONS; i++) {
        uint64_t want = (i == reason ? pages : 0) + (i == other ? other_pages : 0);
        uint64_t got = now.missed_pages[i] - before.missed_pages[i];
        if (got != want) {
            ck_abort_msg("reason %u: %llu pages and not %llu", i, (unsigned long long)got,
                         (unsigned long long)want);
        }
    }
    before = now;
}

static uint64_t missed_sum(const struct kvt_cache_stats *stats)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KVT_CACHE_MISS_REASONS; i++) {
        sum += stats->missed_pages[i];
    }
    return sum;
}

/* ---- why ---- */

START_TEST(never_seen_and_diverged)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    (void)kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    kvt_rig_report(&engine, 1, 161, 0, 161);
    expect_missed(NEVER_SEEN, 10, 0, 0);
    kvt_rig_put(&engine, tokens, 6);
    /* What continues beyond the known is not seen yet ... */
    (void)kvt_rig_serve(&engine, 2, tokens, 161, 0);
    expect_missed(NEVER_SEEN, 4, 0, 0);
    /* ... what turns off inside is diverged ... */
    kvt_rig_tokens(tokens, 100, 161, 2);
    ck_assert_uint_eq(kvt_rig_serve(&engine, 3, tokens, 161, 0), 96);
    expect_missed(DIVERGED, 4, 0, 0);
    /* ... and so is what turns off at a branching point. */
    kvt_rig_tokens(tokens, 96, 161, 3);
    ck_assert_uint_eq(kvt_rig_serve(&engine, 4, tokens, 161, 0), 96);
    expect_missed(DIVERGED, 4, 0, 0);
    /* That other prompts begin otherwise says nothing about this one. */
    kvt_rig_tokens(tokens, 0, 161, 4);
    ck_assert_uint_eq(kvt_rig_serve(&engine, 5, tokens, 161, 0), 0);
    expect_missed(NEVER_SEEN, 10, 0, 0);
    /* And a full hit misses nothing. */
    ck_assert_uint_eq(kvt_rig_serve(&engine, 6, tokens, 161, 0), 160);
    expect_missed(NEVER_SEEN, 0, 0, 0);
    rig_close();
}
END_TEST

START_TEST(evicted_and_by_how_much)
{
    rig_open(0, 8);
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_put(&engine, tokens, 4);
    kvt_rig_tokens(tokens, 0, 129, 2);
    kvt_rig_put(&engine, tokens, 8);
    ck_assert_uint_eq(kvt_rig_stats(&rig).evicted_pages, 4);
    kvt_rig_tokens(tokens, 0, 65, 1);
    (void)kvt_rig_lookup(&engine, 1, tokens, 65, 0);
    kvt_rig_report(&engine, 1, 65, 0, 65);
    expect_missed(EVICTED, 4, 0, 0);
    /* The tail went first and the head last: 3 pages left after the first of them. */
    ck_assert_uint_eq(kvt_rig_stats(&rig).evicted_short_bytes_max, 3 * 4096);
    rig_close();
}
END_TEST

START_TEST(not_admitted)
{
    rig_open(0, 8);
    kvt_rig_tokens(tokens, 0, 193, 1);
    kvt_rig_paint(&engine, tokens, 0, 12, blocks);
    struct kvt_cache_result result = kvt_rig_save(&engine, tokens, 192, blocks);
    ck_assert_int_eq(result.status, KVT_ERR_LIMIT);
    ck_assert_uint_eq(result.tokens_good, 128);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 193, 0);
    ck_assert_uint_eq(kvt_rig_restore(&engine, found.lease, 0, 8, blocks).tokens_good, 128);
    kvt_rig_report(&engine, 1, 193, 0, 65);
    expect_missed(NOT_ADMITTED, 4, 0, 0);
    /* With everything leased not one page gets in. */
    found = kvt_rig_lookup(&engine, 2, tokens, 193, 0);
    uint32_t other[65];
    kvt_rig_tokens(other, 0, 65, 2);
    kvt_rig_paint(&engine, other, 0, 4, blocks);
    result = kvt_rig_save(&engine, other, 64, blocks);
    ck_assert_int_eq(result.status, KVT_ERR_LIMIT);
    ck_assert_uint_eq(result.tokens_good, 0);
    (void)kvt_rig_lookup(&engine, 3, other, 65, 0);
    kvt_rig_report(&engine, 3, 65, 0, 65);
    expect_missed(NOT_ADMITTED, 4, 0, 0);
    kvt_rig_release(&engine, found.lease);
    ck_assert_int_eq(kvt_rig_save(&engine, other, 64, blocks).status, KVT_OK);
    kvt_rig_report(&engine, 2, 193, 0, 193);
    expect_missed(NOT_ADMITTED, 4, DECLINED, 8);
    rig_close();
}
END_TEST

static void lookup_salted(const char *salt, uint64_t id, uint64_t count)
{
    struct kvt_cache_field field = {.tag = 9, .data = salt, .bytes = strlen(salt)};
    struct kvt_cache_found found = {0};
    struct kvt_cache_lookup lookup = {.client = engine.client,
                                      .request_id = id,
                                      .tokens = tokens,
                                      .token_count = count,
                                      .fields = &field,
                                      .field_count = 1};
    ck_assert_int_eq(kvt_cache_lookup(rig.cache, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.lease, 0);
}

START_TEST(other_namespace)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 6);
    lookup_salted("salt", 1, 161);
    kvt_rig_report(&engine, 1, 161, 0, 161);
    expect_missed(OTHER_NAMESPACE, 6, NEVER_SEEN, 4);
    /* The same when that namespace has prompts of its own. */
    struct kvt_cache_field field = {.tag = 9, .data = "salt", .bytes = 4};
    uint64_t job = 0;
    uint32_t other[64];
    kvt_rig_tokens(other, 0, 64, 2);
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = other,
                                  .token_count = 64,
                                  .blocks = blocks,
                                  .block_count = 4,
                                  .fields = &field,
                                  .field_count = 1,
                                  .stream = engine.stream};
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, 64);
    lookup_salted("salt", 2, 161);
    kvt_rig_report(&engine, 2, 161, 0, 161);
    expect_missed(OTHER_NAMESPACE, 6, NEVER_SEEN, 4);
    /* Another tenant is not told. */
    struct kvt_rig_engine stranger;
    kvt_rig_engine_open(&stranger, &rig, &shape, "stranger");
    (void)kvt_rig_lookup(&stranger, 1, tokens, 161, 0);
    kvt_rig_report(&stranger, 1, 161, 0, 161);
    expect_missed(NEVER_SEEN, 10, 0, 0);
    kvt_rig_engine_close(&stranger);
    rig_close();
}
END_TEST

START_TEST(in_flight)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 2);
    kvt_rig_paint(&engine, tokens, 0, 8, blocks);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    uint64_t job = kvt_rig_save_begin(&engine, tokens, 128, blocks, NULL);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    ck_assert_uint_eq(found.matched_tokens, 32);
    /* The same pages behind another second page are other pages. */
    uint32_t other[161];
    memcpy(other, tokens, sizeof(other));
    other[40]++;
    (void)kvt_rig_lookup(&engine, 2, other, 161, 0);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, 128);
    kvt_rig_report(&engine, 1, 161, 32, 129);
    expect_missed(IN_FLIGHT, 6, NEVER_SEEN, 2);
    kvt_rig_report(&engine, 2, 161, 0, 161);
    expect_missed(NEVER_SEEN, 8, DECLINED, 2);
    rig_close();
}
END_TEST

/* The lease is the promise: what arrived since it was taken is told as having been in flight. */
START_TEST(arrived_since_the_lease)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 2);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    kvt_rig_put(&engine, tokens, 7);
    struct kvt_cache_found again = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    ck_assert_uint_eq(again.lease, found.lease);
    ck_assert_uint_eq(again.matched_tokens, 32);
    ck_assert_uint_eq(kvt_rig_restore(&engine, found.lease, 0, 2, blocks).tokens_good, 32);
    kvt_rig_report(&engine, 1, 161, 0, 129);
    expect_missed(IN_FLIGHT, 5, NEVER_SEEN, 3);
    ck_assert_uint_eq(before.conservation_breaks, 0);
    rig_close();
}
END_TEST

START_TEST(failed_and_declined)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 10);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    kvt_rig_quiesce(&rig);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 4);
    struct kvt_cache_result result = kvt_rig_restore(&engine, found.lease, 0, 8, blocks);
    ck_assert_int_eq(result.status, KVT_ERR_IO);
    ck_assert_uint_eq(result.tokens_good, 48);
    kvt_rig_report(&engine, 1, 161, 0, 113);
    expect_missed(FAILED, 5, DECLINED, 2);
    /* Tried again, with success. */
    found = kvt_rig_lookup(&engine, 2, tokens, 161, 0);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 4);
    ck_assert_uint_eq(kvt_rig_restore(&engine, found.lease, 0, 10, blocks).tokens_good, 48);
    ck_assert_uint_eq(kvt_rig_restore(&engine, found.lease, 3, 7, blocks).tokens_good, 112);
    kvt_rig_report(&engine, 2, 161, 0, 1);
    expect_missed(FAILED, 0, DECLINED, 0);
    /* A failed save is why the next request misses. */
    kvt_rig_tokens(tokens, 0, 161, 2);
    kvt_rig_paint(&engine, tokens, 0, 10, blocks);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 7);
    ck_assert_uint_eq(kvt_rig_save(&engine, tokens, 160, blocks).tokens_good, 96);
    (void)kvt_rig_lookup(&engine, 3, tokens, 161, 0);
    kvt_rig_report(&engine, 3, 161, 0, 161);
    expect_missed(FAILED, 4, DECLINED, 6);
    ck_assert_uint_eq(before.conservation_breaks, 0);
    rig_close();
}
END_TEST

/* ---- the engine's own ---- */

/* own at lookup, own as reported; the cache has `match` pages of 10. */
static void own_case(uint64_t id, uint32_t match, uint64_t own, uint64_t own_reported)
{
    kvt_rig_tokens(tokens, 0, 161, 1000 + id);
    if (match > 0) {
        kvt_rig_put(&engine, tokens, match);
    }
    before = kvt_rig_stats(&rig);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, id, tokens, 161, own);
    ck_assert_int_eq(found.lease != 0, match * 16 > own);
    uint32_t first = (uint32_t)(own_reported / 16);
    uint64_t delivered = 0;
    if (found.lease != 0 && own_reported <= own && first < match) {
        delivered = kvt_rig_restore(&engine, found.lease, first, match - first, blocks).tokens_good;
    }
    /* What the engine holds of a page that is then restored is not its own any more. */
    uint64_t own_used = delivered > 0 ? first * 16 : own_reported;
    kvt_rig_report(&engine, id, 161, own_used, 161 - own_used - delivered);
    struct kvt_cache_stats now = kvt_rig_stats(&rig);
    ck_assert_uint_eq(now.conservation_breaks, 0);
    uint64_t had = (own_used + delivered) / 16;
    had = had < 10 ? had : 10;
    if (missed_sum(&now) - missed_sum(&before) != 10 - had) {
        ck_abort_msg("match %u, own %llu, reported %llu: %llu reasons for %llu pages", match,
                     (unsigned long long)own, (unsigned long long)own_reported,
                     (unsigned long long)(missed_sum(&now) - missed_sum(&before)),
                     (unsigned long long)(10 - had));
    }
}

START_TEST(own_tokens)
{
    static const uint64_t owns[] = {0, 16, 20, 64, 96, 100, 159, 160, 161};
    const size_t count = sizeof(owns) / sizeof(owns[0]);
    rig_open(256, 0);
    uint64_t id = 1;
    for (uint32_t match = 0; match <= 10; match += 2) {
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; j < count; j++) {
                own_case(id++, match, owns[i], owns[j]);
            }
        }
    }
    rig_close();
}
END_TEST

/* ---- conservation ---- */

/* Restores in pieces, twice, in the wrong order, short; reported as an engine would. */
static void pieces_case(struct test_random *random, uint64_t id)
{
    uint32_t pages = 1 + test_random_below(random, 10);
    kvt_rig_tokens(tokens, 0, 161, 2000 + id % 16);
    uint64_t own = 16 * (uint64_t)test_random_below(random, pages < 4 ? pages + 1 : 4);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, id, tokens, 16 * pages + 1, own);
    uint32_t hit = (uint32_t)(found.matched_tokens / 16), have = (uint32_t)(own / 16);
    have = have < pages ? have : pages;
    own = 16 * (uint64_t)have;
    while (have < hit && test_random_below(random, 8) > 0) {
        uint32_t rest = hit - have;
        uint32_t first = have, ask = 1 + test_random_below(random, rest);
        if (test_random_below(random, 4) == 0) {
            /* Behind a gap: of no use, whatever comes of it. */
            first += test_random_below(random, rest);
            ask = hit - first;
        }
        if (test_random_below(random, 3) == 0) {
            kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 1 + test_random_below(random, 2 * ask));
        }
        struct kvt_cache_result result = kvt_rig_restore(&engine, found.lease, first, ask, blocks);
        if (first == have) {
            have += (uint32_t)(result.tokens_good / 16);
        } else {
            break; /* an engine stops trusting its account there, and computes the rest */
        }
    }
    struct kvt_cache_stats was = kvt_rig_stats(&rig);
    kvt_rig_report(&engine, id, 16 * pages + 1, own, 16 * pages + 1 - 16 * have);
    struct kvt_cache_stats now = kvt_rig_stats(&rig);
    EXPECT(missed_sum(&now) - missed_sum(&was) == pages - have);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 0);
    if (test_random_below(random, 2) == 0) {
        kvt_rig_paint(&engine, tokens, 0, pages, blocks);
        (void)kvt_rig_save(&engine, tokens, 16 * pages, blocks);
    }
}

START_TEST(conservation)
{
    struct test_random random = test_random_start("cache_account conservation", 3);
    rig_open(24, 24);
    uint64_t count = test_scaled(3000);
    for (uint64_t id = 1; id <= count; id++) {
        pieces_case(&random, id);
        struct kvt_cache_stats stats = kvt_rig_stats(&rig);
        if (stats.conservation_breaks != 0) {
            ck_abort_msg("request %llu broke it", (unsigned long long)id);
        }
        EXPECT(stats.tokens_asked == stats.tokens_own + stats.tokens_computed +
                                         stats.tokens_delivered[0] + stats.tokens_delivered[1]);
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.requests_reported, count);
    ck_assert_uint_gt(stats.tokens_delivered[0], 0);
    ck_assert_uint_gt(stats.tokens_delivered[1], 0);
    ck_assert_uint_gt(stats.missed_pages[FAILED], 0);
    ck_assert_uint_gt(stats.missed_pages[DECLINED], 0);
    /* The control: a report that is wrong by one. */
    (void)kvt_rig_lookup(&engine, 1, tokens, 17, 0);
    kvt_rig_report(&engine, 1, 17, 0, 16);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 1);
    rig_close();
}
END_TEST

/* The same pages restored twice (the request was preempted) were delivered once. */
START_TEST(delivered_once)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 8);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    (void)kvt_rig_restore(&engine, found.lease, 0, 8, blocks);
    kvt_rig_release(&engine, found.lease);
    struct kvt_cache_found again = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    ck_assert_uint_ne(again.lease, found.lease);
    (void)kvt_rig_restore(&engine, again.lease, 0, 8, blocks);
    /* Pieces in the wrong order are one piece in the end. */
    (void)kvt_rig_lookup(&engine, 2, tokens, 161, 0);
    kvt_rig_report(&engine, 1, 161, 0, 33);
    found = kvt_rig_lookup(&engine, 2, tokens, 161, 0);
    (void)kvt_rig_restore(&engine, found.lease, 4, 4, blocks);
    (void)kvt_rig_restore(&engine, found.lease, 0, 4, blocks);
    kvt_rig_report(&engine, 2, 161, 0, 33);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    ck_assert_uint_eq(stats.tokens_delivered[0], 256);
    rig_close();
}
END_TEST

/* A request id that asks for other tokens: its former lease ends, its deliveries are void. */
START_TEST(other_tokens)
{
    rig_open(64, 0);
    uint32_t other[129];
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_tokens(other, 0, 129, 2);
    kvt_rig_put(&engine, tokens, 8);
    kvt_rig_put(&engine, other, 3);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    (void)kvt_rig_restore(&engine, found.lease, 0, 8, blocks);
    struct kvt_cache_found next = kvt_rig_lookup(&engine, 1, other, 129, 0);
    ck_assert_uint_ne(next.lease, found.lease);
    ck_assert_int_eq(kvt_cache_release(rig.cache, engine.client, found.lease), KVT_ERR_STALE);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 1);
    (void)kvt_rig_restore(&engine, next.lease, 0, 3, blocks);
    kvt_rig_report(&engine, 1, 129, 0, 81);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    expect_missed(NEVER_SEEN, 5, 0, 0);
    /* The prompt grew: other tokens too. */
    found = kvt_rig_lookup(&engine, 2, tokens, 129, 0);
    (void)kvt_rig_restore(&engine, found.lease, 0, 8, blocks);
    next = kvt_rig_lookup(&engine, 2, tokens, 161, 0);
    (void)kvt_rig_restore(&engine, next.lease, 0, 8, blocks);
    kvt_rig_report(&engine, 2, 161, 0, 33);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    /* Other tokens of which nothing is known: the former lease ends all the same. */
    found = kvt_rig_lookup(&engine, 3, tokens, 129, 0);
    kvt_rig_tokens(tokens, 0, 129, 3);
    next = kvt_rig_lookup(&engine, 3, tokens, 129, 0);
    ck_assert_uint_eq(next.lease, 0);
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 0);
    ck_assert_int_eq(kvt_cache_release(rig.cache, engine.client, found.lease), KVT_ERR_STALE);
    kvt_rig_report(&engine, 3, 129, 0, 129);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    rig_close();
}
END_TEST

/* ---- requests that come to no end, and reports that cannot be ---- */

START_TEST(unreported)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 4);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    /* The request is given up; its lease, which is in use, is not, and belongs to no request
     * now. */
    for (uint32_t i = 0; i < 3; i++) {
        kvt_rig_advance(&rig, 50 * KVT_RIG_S);
        (void)kvt_rig_restore(&engine, found.lease, 0, 4, blocks);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).requests_unreported, 1);
    ck_assert_int_eq(kvt_cache_report(rig.cache, engine.client, 1, 161, 0, 161), KVT_ERR_STALE);
    uint32_t other[65];
    kvt_rig_tokens(other, 0, 65, 9);
    (void)kvt_rig_lookup(&engine, 2, other, 65, 0); /* takes the place that the first had */
    (void)kvt_rig_restore(&engine, found.lease, 0, 4, blocks);
    kvt_rig_report(&engine, 2, 65, 0, 65);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

START_TEST(reports_that_cannot_be)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    struct kvt_cache *cache = rig.cache;
    (void)kvt_rig_lookup(&engine, 1, tokens, 161, 0);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 1, 160, 0, 160), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 1, 161, 162, 0), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 1, 161, 0, 162), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 2, 161, 0, 161), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 0, 161, 0, 161), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client + 1, 1, 161, 0, 161), KVT_ERR_STALE);
    kvt_rig_report(&engine, 1, 161, 0, 161);
    ck_assert_int_eq(kvt_cache_report(cache, engine.client, 1, 161, 0, 161), KVT_ERR_STALE);
    ck_assert_uint_eq(kvt_rig_stats(&rig).requests_reported, 1);
    rig_close();
}
END_TEST

/* More requests than places: they are served, and not accounted. */
START_TEST(more_requests_than_places)
{
    rig_open(64, 0);
    kvt_rig_tokens(tokens, 0, 161, 1);
    kvt_rig_put(&engine, tokens, 4);
    uint64_t last = 0;
    for (uint64_t id = 1; id <= 70; id++) {
        struct kvt_cache_found found = kvt_rig_lookup(&engine, id, tokens, 161, 64);
        ck_assert_uint_eq(found.lease, 0);
        last = id;
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).limit_requests_hit, 6);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, last, tokens, 161, 0);
    ck_assert_uint_eq(found.matched_tokens, 64);
    (void)kvt_rig_restore(&engine, found.lease, 0, 4, blocks);
    kvt_rig_release(&engine, found.lease);
    ck_assert_int_eq(kvt_cache_report(rig.cache, engine.client, last, 161, 0, 161), KVT_ERR_STALE);
    for (uint64_t id = 1; id <= 64; id++) {
        kvt_rig_report(&engine, id, 161, 64, 97);
    }
    (void)kvt_rig_lookup(&engine, last, tokens, 161, 64);
    kvt_rig_report(&engine, last, 161, 64, 97);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_account");
    TCase *tcase = tcase_create("cache_account");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, never_seen_and_diverged);
    tcase_add_test(tcase, evicted_and_by_how_much);
    tcase_add_test(tcase, not_admitted);
    tcase_add_test(tcase, other_namespace);
    tcase_add_test(tcase, in_flight);
    tcase_add_test(tcase, arrived_since_the_lease);
    tcase_add_test(tcase, failed_and_declined);
    tcase_add_test(tcase, own_tokens);
    tcase_add_test(tcase, conservation);
    tcase_add_test(tcase, delivered_once);
    tcase_add_test(tcase, other_tokens);
    tcase_add_test(tcase, unreported);
    tcase_add_test(tcase, reports_that_cannot_be);
    tcase_add_test(tcase, more_requests_than_places);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
