/* Memory and threads that are not to be had, at every single place: no crash, no leak, no wrong
 * byte, and a next call that works. */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define PAGES 4u
#define TOKENS (PAGES * 16)
#define BLOCKS (PAGES * 2)
#define SAVES 6u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t blocks[BLOCKS];

static const struct kvt_rig_shape shape = {
    .block_tokens = 8,
    .block_count = 64,
    .region_count = 2,
    .block_bytes = {1030, 1018},
    .stride_bytes = {1031, 1100},
};

/* What a call may answer when there is no memory. */
static bool in_want(kvt_status status)
{
    return status == KVT_OK || status == KVT_ERR_NOMEM || status == KVT_ERR_AGAIN ||
           status == KVT_ERR_LIMIT;
}

/* ---- a life in which anything may fail ---- */

static void life_save(uint32_t name)
{
    uint32_t tokens[TOKENS + 1];
    uint64_t job = 0, held = 0;
    kvt_rig_tokens(tokens, 0, TOKENS + 1, name);
    kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = tokens,
                                  .token_count = TOKENS,
                                  .blocks = blocks,
                                  .block_count = BLOCKS,
                                  .stream = engine.stream};
    kvt_status status = kvt_cache_save(rig.cache, &save, &job);
    EXPECT(in_want(status));
    if (status == KVT_OK) {
        struct kvt_cache_result result = kvt_rig_finish(&engine, job);
        EXPECT(in_want(result.status));
        EXPECT((result.tokens_good == TOKENS) == (result.status == KVT_OK));
        held = result.tokens_good;
    }
    struct kvt_cache_found found = {0};
    struct kvt_cache_lookup lookup = {.client = engine.client,
                                      .request_id = 1 + name,
                                      .tokens = tokens,
                                      .token_count = TOKENS + 1};
    status = kvt_cache_lookup(rig.cache, &lookup, &found);
    EXPECT(status == KVT_OK && found.matched_tokens == held);
    uint64_t good = 0;
    if (held > 0) {
        kvt_rig_wipe_all(&engine);
        struct kvt_cache_restore restore = {.client = engine.client,
                                            .lease = found.lease,
                                            .binding = engine.binding,
                                            .token_count = held,
                                            .blocks = blocks,
                                            .block_count = (size_t)held / 8,
                                            .stream = engine.stream};
        status = kvt_cache_restore(rig.cache, &restore, &job);
        EXPECT(in_want(status));
        if (status == KVT_OK) {
            struct kvt_cache_result result = kvt_rig_finish(&engine, job);
            EXPECT(in_want(result.status));
            good = result.tokens_good;
            EXPECT((good == held) == (result.status == KVT_OK));
        }
        EXPECT(kvt_rig_good_pages(&engine, tokens, 0, (uint32_t)good / 16, blocks) == good / 16);
    }
    kvt_rig_report(&engine, 1 + name, TOKENS + 1, 0, TOKENS + 1 - good);
}

static void life_lookup_narrowed(void)
{
    uint32_t tokens[TOKENS];
    struct kvt_cache_field field = {.tag = 9, .data = "salt", .bytes = 4};
    struct kvt_cache_lookup lookup = {.client = engine.client,
                                      .tokens = tokens,
                                      .token_count = TOKENS,
                                      .fields = &field,
                                      .field_count = 1};
    struct kvt_cache_found found = {0};
    kvt_rig_tokens(tokens, 0, TOKENS, 0);
    EXPECT(in_want(kvt_cache_lookup(rig.cache, &lookup, &found)) && found.lease == 0);
}

/* As far as it comes; afterwards, with memory again, everything works and everything is given
 * back. */
static void life(uint64_t k, bool for_good)
{
    uint64_t binding = 0;
    void *event = NULL;
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = 8 * 4096;
    rig.config.host_bytes = 12 * 4096;
    kvt_rig_cache_fail(&rig, k, for_good);
    kvt_status status = kvt_cache_create(&rig.config, &rig.cache, rig.why, sizeof(rig.why));
    if (status != KVT_OK) {
        ck_assert_int_eq(status, KVT_ERR_NOMEM);
        ck_assert_ptr_nonnull(strstr(rig.why, "memory"));
        ck_assert_int_eq(atomic_load(&rig.live_blocks), 0);
        kvt_rig_cache_fail(&rig, 0, false);
        kvt_rig_cache_open(&rig);
    }
    kvt_rig_memory_open(&engine, &rig, &shape);
    while (kvt_cache_client_open(rig.cache, "t", 1, NULL, 0, NULL, 0, &engine.client, rig.why,
                                 sizeof(rig.why)) != KVT_OK) {
        kvt_rig_cache_fail(&rig, 0, false);
    }
    while (kvt_cache_bind(rig.cache, engine.client, engine.regions, 2, 8, 64, &binding, rig.why,
                          sizeof(rig.why)) != KVT_OK) {
        ck_assert_ptr_nonnull(strstr(rig.why, "memory"));
        kvt_rig_cache_fail(&rig, 0, false);
    }
    engine.binding = binding;
    while (kvt_cache_stream_create(rig.cache, &engine.stream) != KVT_OK) {
        kvt_rig_cache_fail(&rig, 0, false);
    }
    status = kvt_cache_event_create(rig.cache, &event);
    EXPECT(in_want(status));
    if (status == KVT_OK) {
        EXPECT(in_want(kvt_cache_event_record(rig.cache, event, engine.stream)));
        EXPECT(in_want(kvt_cache_stream_wait(rig.cache, engine.stream, event)));
    }
    life_lookup_narrowed();
    for (uint32_t i = 0; i < SAVES; i++) {
        life_save(i);
    }
    kvt_rig_quiesce(&rig);
    kvt_rig_check(&rig);
    kvt_rig_idle(&rig);
    kvt_rig_cache_fail(&rig, 0, false);
    uint32_t tokens[TOKENS + 1];
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 99);
    kvt_rig_put(&engine, tokens, PAGES);
    ck_assert_uint_eq(kvt_rig_get(&engine, tokens, TOKENS + 1), PAGES);
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    kvt_cache_event_destroy(rig.cache, event);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

START_TEST(each_allocation_fails)
{
    bool for_good = _i == 1;
    kvt_rig_blocks(blocks, 0, BLOCKS);
    life(0, false);
    uint64_t calls = atomic_load(&rig.calls);
    ck_assert_uint_gt(calls, 100);
    const uint64_t step = test_scaled(1000) < 1000 ? 2 : 1; /* slow variants take every other */
    for (uint64_t k = 1; k <= calls; k += step) {
        life(k, for_good);
    }
}
END_TEST

/* The index's memory apart from the rest. */
START_TEST(each_allocation_of_the_index_fails)
{
    for (uint64_t k = 1;; k++) {
        struct kvt_rig_cache other;
        kvt_rig_cache_init(&rig);
        kvt_rig_cache_init(&other);
        rig.config.index_memory = &other.hooks;
        rig.config.hbm_bytes = 1u << 20;
        uint32_t tokens[TOKENS + 1];
        kvt_rig_blocks(blocks, 0, BLOCKS);
        kvt_rig_cache_fail(&other, k, false);
        kvt_status status = kvt_cache_create(&rig.config, &rig.cache, NULL, 0);
        if (status != KVT_OK) {
            ck_assert_int_eq(status, KVT_ERR_NOMEM);
            ck_assert_int_eq(atomic_load(&rig.live_blocks), 0);
            ck_assert_int_eq(atomic_load(&other.live_blocks), 0);
            continue;
        }
        while (kvt_cache_client_open(rig.cache, "t", 1, NULL, 0, NULL, 0, &engine.client, NULL,
                                     0) != KVT_OK) {
        }
        uint32_t client = engine.client;
        kvt_rig_memory_open(&engine, &rig, &shape);
        engine.client = client;
        ck_assert_int_eq(kvt_cache_bind(rig.cache, engine.client, engine.regions, 2, 8, 64,
                                        &engine.binding, NULL, 0),
                         KVT_OK);
        engine.stream = kvt_rig_stream(&rig);
        for (uint32_t i = 0; i < SAVES; i++) {
            kvt_rig_tokens(tokens, 0, 16 * (i % 3), 1);
            kvt_rig_tokens(tokens, 16 * (i % 3), TOKENS + 1, 10 + i);
            kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
            struct kvt_cache_result result = kvt_rig_save(&engine, tokens, TOKENS, blocks);
            EXPECT(result.status == KVT_OK || result.status == KVT_ERR_NOMEM);
            EXPECT((result.tokens_good == TOKENS) == (result.status == KVT_OK));
            EXPECT(kvt_rig_get(&engine, tokens, TOKENS + 1) * 16 == result.tokens_good);
            kvt_rig_check(&rig);
        }
        ck_assert_uint_eq(kvt_rig_stats(&rig).index_bytes,
                          (uint64_t)atomic_load(&other.live_bytes));
        bool through = atomic_load(&other.fail_at) > 0;
        kvt_rig_engine_close(&engine);
        kvt_rig_cache_close(&rig);
        ck_assert_int_eq(atomic_load(&other.live_blocks), 0);
        if (through) {
            ck_assert_uint_gt(k, 15);
            break;
        }
    }
}
END_TEST

/* ---- threads ---- */

static _Atomic uint32_t threads_until_failure;
static _Atomic uint32_t threads_failed;

static int thread_hook(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    if (atomic_load(&threads_until_failure) > 0 &&
        atomic_fetch_sub(&threads_until_failure, 1) == 1) {
        atomic_fetch_add(&threads_failed, 1);
        return EAGAIN;
    }
    return pthread_create(id, attr, fn, arg);
}

START_TEST(each_thread_fails)
{
    uint32_t tokens[TOKENS + 1];
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_thread_create_hook = thread_hook;
    for (uint32_t k = 1; k <= 7; k++) {
        uint64_t binding = 0;
        kvt_rig_cache_init(&rig);
        atomic_store(&threads_until_failure, k);
        uint32_t failed = atomic_load(&threads_failed);
        kvt_status status = kvt_cache_create(&rig.config, &rig.cache, rig.why, sizeof(rig.why));
        ck_assert_int_eq(status, k <= 2 ? KVT_ERR_NOMEM : KVT_OK);
        if (status != KVT_OK) {
            ck_assert_ptr_nonnull(strstr(rig.why, "thread"));
            ck_assert_int_eq(atomic_load(&rig.live_blocks), 0);
            kvt_rig_cache_open(&rig);
        }
        kvt_rig_memory_open(&engine, &rig, &shape);
        ck_assert_int_eq(
            kvt_cache_client_open(rig.cache, "t", 1, NULL, 0, NULL, 0, &engine.client, NULL, 0),
            KVT_OK);
        status = kvt_cache_bind(rig.cache, engine.client, engine.regions, 2, 8, 64, &binding,
                                rig.why, sizeof(rig.why));
        ck_assert_int_eq(status, k >= 3 && k <= 5 ? KVT_ERR_NOMEM : KVT_OK);
        if (status != KVT_OK) {
            ck_assert_uint_eq(binding, 0);
            ck_assert_int_eq(kvt_cache_bind(rig.cache, engine.client, engine.regions, 2, 8, 64,
                                            &binding, NULL, 0),
                             KVT_OK);
        }
        engine.binding = binding;
        status = kvt_cache_stream_create(rig.cache, &engine.stream);
        ck_assert_int_eq(status, k == 6 ? KVT_ERR_NOMEM : KVT_OK);
        if (status != KVT_OK) {
            engine.stream = kvt_rig_stream(&rig);
        }
        ck_assert_uint_eq(atomic_load(&threads_failed), failed + (k <= 6));
        atomic_store(&threads_until_failure, 0);
        kvt_rig_put(&engine, tokens, PAGES);
        ck_assert_uint_eq(kvt_rig_get(&engine, tokens, TOKENS + 1), PAGES);
        kvt_rig_engine_close(&engine);
        kvt_rig_cache_close(&rig);
    }
    kvt_thread_create_hook = NULL;
}
END_TEST

/* ---- the arena ---- */

/* Host memory that cannot be mapped: the other tier goes on, the log says so, and later it is tried
 * again. */
START_TEST(host_memory_that_cannot_be_had)
{
    struct rlimit former, none;
    uint32_t tokens[TOKENS + 1];
    void (*former_handler)(int) = signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &former), 0);
    kvt_rig_blocks(blocks, 0, BLOCKS);
    kvt_rig_cache_init(&rig);
    rig.config.hbm_bytes = _i == 0 ? 6 * 4096 : 0;
    rig.config.host_bytes = 64 * 4096;
    kvt_rig_cache_open(&rig);
    none = former;
    none.rlim_cur = 0;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    uint32_t room = _i == 0 ? 6 : 0;
    for (uint32_t i = 0; i < 4; i++) {
        kvt_rig_tokens(tokens, 0, TOKENS + 1, i);
        kvt_rig_paint(&engine, tokens, 0, PAGES, blocks);
        struct kvt_cache_result result = kvt_rig_save(&engine, tokens, TOKENS, blocks);
        /* Not Check's own assertions, which write to a file. */
        EXPECT(result.status == (room >= PAGES ? KVT_OK : KVT_ERR_LIMIT));
        EXPECT(kvt_rig_get(&engine, tokens, TOKENS + 1) == result.tokens_good / 16);
    }
    kvt_rig_quiesce(&rig);
    uint64_t mapped = kvt_rig_stats(&rig).tier_bytes_mapped[1];
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &former), 0);
    (void)signal(SIGXFSZ, former_handler);
    ck_assert_uint_eq(mapped, 0);
    ck_assert_uint_ge(atomic_load(&rig.log_lines), 1);
    ck_assert_uint_le(atomic_load(&rig.log_lines), 8); /* said, and not again and again */
    kvt_rig_advance(&rig, 2 * KVT_RIG_S);
    for (uint32_t i = 10; i < 20; i++) {
        kvt_rig_tokens(tokens, 0, TOKENS + 1, i);
        kvt_rig_put(&engine, tokens, PAGES);
    }
    ck_assert_uint_gt(kvt_rig_stats(&rig).tier_pages[1], 20);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_memory");
    TCase *tcase = tcase_create("cache_memory");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, each_allocation_fails, 0, 2);
    tcase_add_test(tcase, each_allocation_of_the_index_fails);
    tcase_add_test(tcase, each_thread_fails);
    tcase_add_loop_test(tcase, host_memory_that_cannot_be_had, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
