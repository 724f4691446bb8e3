/*
 * The reference engine from its door: the same answers without a cache, with one, beside other
 * sequences, and whatever the cache's device does.
 *
 * Tests that need the plug-in find it by KVT_PLUGIN; without it, or without OpenBLAS, all of this
 * is skipped.
 */
#include "engine_plugin/reference/engine.h"

#include <check.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test_random.h"

#define SESSIONS 3u
#define TURNS 3u
#define OUTPUTS 3u
#define CONTEXT 384u
#define FIRST_TOKENS 120u
#define TURN_TOKENS 50u /* a turn adds some around so many */
#define MS UINT64_C(1000000)
#define PATIENCE (UINT64_C(60000) * MS)

static const char *plugin;
static uint32_t prompts[SESSIONS][CONTEXT];
static _Atomic uint32_t warnings;

struct outcome {
    struct kvt_ref_result results[TURNS][SESSIONS];
    uint32_t outputs[TURNS][SESSIONS][OUTPUTS];
    kvt_stats stats; /* zero without a cache */
    uint32_t warnings;
};

static struct outcome *baseline; /* without a cache */
static struct outcome *good;     /* with one, and nothing wrong */

static void log_line(void *ctx, int32_t level, const char *line)
{
    (void)ctx;
    if (level <= 2) atomic_fetch_add(&warnings, 1);
    printf("  log %d: %s\n", level, line);
}

static struct kvt_ref_config config_without(void)
{
    return (struct kvt_ref_config){
        .seed = 5,
        .threads = 2,
        .context_tokens = CONTEXT,
        .concurrency = SESSIONS,
        .output_tokens = OUTPUTS,
        .log = log_line,
    };
}

static struct kvt_ref_config config_with(void)
{
    struct kvt_ref_config config = config_without();
    config.plugin_path = plugin;
    config.host_bytes = UINT64_C(16) << 20;
    return config;
}

/* Half of the first prompt is common to all sessions; each turn continues its own last prompt. */
static void make_prompts(void)
{
    struct test_random random = {11};
    for (uint32_t s = 0; s < SESSIONS; s++)
        for (uint32_t i = 0; i < CONTEXT; i++)
            prompts[s][i] = s > 0 && i < FIRST_TOKENS / 2
                                ? prompts[0][i]
                                : test_random_below(&random, kvt_ref_vocabulary());
}

static uint32_t prompt_tokens(uint32_t session, uint32_t turn)
{
    return FIRST_TOKENS + turn * TURN_TOKENS + session * 7;
}

static struct kvt_ref_engine *open_engine(const struct kvt_ref_config *config)
{
    char why[512] = "";
    struct kvt_ref_engine *engine = NULL;
    kvt_status status = kvt_ref_open(config, &engine, why, sizeof(why));
    ck_assert_msg(status == KVT_OK, "%d: %s", status, why);
    return engine;
}

/* Every session's turns, a turn of all sessions at a time; results by request id. */
static struct outcome *run(const struct kvt_ref_config *config)
{
    struct outcome *outcome = calloc(1, sizeof(*outcome));
    ck_assert_ptr_nonnull(outcome);
    atomic_store(&warnings, 0);
    struct kvt_ref_engine *engine = open_engine(config);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t s = 0; s < SESSIONS; s++)
            ck_assert_int_eq(kvt_ref_submit(engine, s, prompts[s], prompt_tokens(s, turn), 0),
                             KVT_OK);
        for (uint32_t i = 0; i < SESSIONS; i++) {
            struct kvt_ref_result result;
            ck_assert_int_eq(kvt_ref_next(engine, PATIENCE, &result), KVT_OK);
            uint32_t s = (uint32_t)result.request_id;
            ck_assert_uint_lt(s, SESSIONS);
            ck_assert_int_eq(result.status, KVT_OK);
            ck_assert_uint_eq(result.output_count, OUTPUTS);
            ck_assert_uint_eq(result.prompt_tokens, prompt_tokens(s, turn));
            ck_assert_uint_eq(result.computed_tokens + result.cached_tokens, result.prompt_tokens);
            ck_assert(result.submit_ns <= result.first_token_ns);
            ck_assert(result.first_token_ns <= result.done_ns);
            memcpy(outcome->outputs[turn][s], result.outputs, sizeof(outcome->outputs[turn][s]));
            kvt_ref_result_fini(&result);
            outcome->results[turn][s] = result;
        }
    }
    kvt_status stats = kvt_ref_cache_stats(engine, &outcome->stats);
    ck_assert_int_eq(stats, config->plugin_path ? KVT_OK : KVT_ERR_UNSUPPORTED);
    kvt_ref_close(engine);
    outcome->warnings = atomic_load(&warnings);
    return outcome;
}

static bool same_answer(const struct outcome *a, const struct outcome *b, uint32_t turn, uint32_t s)
{
    return memcmp(a->results[turn][s].logit_digest, b->results[turn][s].logit_digest,
                  sizeof(a->results[turn][s].logit_digest)) == 0 &&
           memcmp(a->outputs[turn][s], b->outputs[turn][s], sizeof(a->outputs[turn][s])) == 0;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t s = 0; s < SESSIONS; s++)
            ck_assert_msg(same_answer(a, b, turn, s), "turn %u of session %u differs", turn, s);
}

static uint64_t cached_tokens(const struct outcome *outcome)
{
    uint64_t sum = 0;
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t s = 0; s < SESSIONS; s++) sum += outcome->results[turn][s].cached_tokens;
    return sum;
}

/* What the cache counted is what the engine saw. */
static void assert_conserved(const struct outcome *outcome)
{
    const kvt_stats *stats = &outcome->stats;
    uint64_t delivered = 0, asked = 0;
    for (int tier = 0; tier < KVT_TIER_COUNT; tier++) delivered += stats->tokens_delivered[tier];
    for (uint32_t turn = 0; turn < TURNS; turn++)
        for (uint32_t s = 0; s < SESSIONS; s++) asked += prompt_tokens(s, turn);
    ck_assert_uint_eq(stats->requests_reported, TURNS * SESSIONS);
    ck_assert_uint_eq(stats->conservation_breaks, 0);
    ck_assert_uint_eq(stats->tokens_asked, asked);
    ck_assert_uint_eq(delivered, cached_tokens(outcome));
    ck_assert_uint_eq(stats->tokens_own + delivered + stats->tokens_computed, asked);
    ck_assert_uint_eq(stats->leases, 0);
    ck_assert_uint_eq(stats->jobs_running, 0);
}

/* ---- without a cache ---- */

START_TEST(one_at_a_time_and_together)
{
    struct kvt_ref_config config = config_without();
    struct outcome *together = run(&config);
    config.concurrency = 1;
    config.threads = 1;
    struct outcome *alone = run(&config);
    assert_same(together, alone);
    ck_assert_uint_eq(cached_tokens(alone), 0);
    config.seed++;
    struct outcome *other = run(&config); /* the control */
    for (uint32_t s = 0; s < SESSIONS; s++) ck_assert(!same_answer(together, other, 0, s));
    free(together);
    free(alone);
    free(other);
}
END_TEST

START_TEST(refuses_what_cannot_be)
{
    struct kvt_ref_config config = config_without();
    struct kvt_ref_engine *engine = open_engine(&config);
    struct kvt_ref_result result;
    ck_assert_int_eq(kvt_ref_submit(engine, 1, prompts[0], 0, 0), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_ref_next(engine, 0, &result), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_ref_submit(engine, 2, prompts[0], CONTEXT - OUTPUTS + 1, 0), KVT_OK);
    ck_assert_int_eq(kvt_ref_next(engine, PATIENCE, &result), KVT_OK);
    ck_assert_int_eq(result.status, KVT_ERR_LIMIT);
    kvt_ref_result_fini(&result);
    ck_assert_int_eq(kvt_ref_submit(engine, 3, prompts[0], CONTEXT - OUTPUTS, 0), KVT_OK);
    ck_assert_int_eq(kvt_ref_next(engine, PATIENCE, &result), KVT_OK);
    ck_assert_int_eq(result.status, KVT_OK);
    kvt_ref_result_fini(&result);
    /* Close with a request under way and a result that nobody fetched. */
    ck_assert_int_eq(kvt_ref_submit(engine, 4, prompts[1], 200, 0), KVT_OK);
    kvt_ref_close(engine);
    kvt_ref_close(NULL);

    char why[256] = "";
    config.block_tokens = 24;
    ck_assert_int_eq(kvt_ref_open(&config, &engine, why, sizeof(why)), KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "block_tokens"));
    config = config_without();
    config.plugin_path = "/nonexistent/libkvtier_plugin.so";
    config.host_bytes = UINT64_C(1) << 20;
    ck_assert_int_eq(kvt_ref_open(&config, &engine, why, sizeof(why)), KVT_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(why, "plug-in"));
}
END_TEST

/* ---- with one ---- */

/* What varies: [0] the plain case. */
static const struct variant {
    const char *name;
    uint64_t hbm_bytes, host_bytes;
    uint32_t page_tokens, block_tokens, concurrency;
    bool aligned_rows;
} variants[] = {
    {"host", 0, UINT64_C(16) << 20, 16, 16, SESSIONS, false},
    {"hbm and host", UINT64_C(1) << 20, UINT64_C(16) << 20, 16, 16, SESSIONS, false},
    {"hbm", UINT64_C(16) << 20, 0, 16, 16, 1, false},
    {"pages of four blocks", 0, UINT64_C(16) << 20, 64, 16, 2, false},
    {"large blocks", 0, UINT64_C(16) << 20, 64, 64, SESSIONS, false},
    {"rows by position", 0, UINT64_C(16) << 20, 16, 16, SESSIONS, true},
};

static void assert_variant(const struct variant *variant)
{
    printf("%s\n", variant->name);
    struct kvt_ref_config config = config_with();
    config.hbm_bytes = variant->hbm_bytes;
    config.host_bytes = variant->host_bytes;
    config.page_tokens = variant->page_tokens;
    config.block_tokens = variant->block_tokens;
    config.concurrency = variant->concurrency;
    config.aligned_rows = variant->aligned_rows;
    struct outcome *with = run(&config);
    assert_same(baseline, with);
    assert_conserved(with);
    /* Every turn after the first finds all whole pages of the one before. */
    for (uint32_t turn = 1; turn < TURNS; turn++)
        for (uint32_t s = 0; s < SESSIONS; s++) {
            uint32_t last = prompt_tokens(s, turn - 1);
            ck_assert_uint_eq(with->results[turn][s].cached_tokens,
                              last - last % variant->page_tokens);
        }
    free(with);
}

START_TEST(same_with_and_without)
{
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        assert_variant(&variants[i]);
}
END_TEST

START_TEST(controls)
{
    struct kvt_ref_config config = config_with();
    config.control_same_page = true;
    struct outcome *same = run(&config);
    assert_same(baseline, same);
    ck_assert_uint_gt(cached_tokens(same), 0);
    config.control_same_page = false;
    config.control_foreign_page = true;
    struct outcome *foreign = run(&config);
    bool outputs_differ = false;
    for (uint32_t s = 0; s < SESSIONS; s++) {
        for (uint32_t turn = 0; turn < TURNS; turn++)
            ck_assert(same_answer(baseline, foreign, turn, s) ==
                      (foreign->results[turn][s].cached_tokens == 0));
        outputs_differ = outputs_differ || memcmp(baseline->outputs[1][s], foreign->outputs[1][s],
                                                  sizeof(baseline->outputs[1][s])) != 0;
    }
    ck_assert(outputs_differ);
    free(same);
    free(foreign);
}
END_TEST

/* What the device does wrong, before each request anew; the answers are the same. */
static const struct fault {
    uint64_t value;
    uint32_t kind;
    bool costs_hits;
} faults[] = {
    {2 * MS, KVT_FAULT_COPY_DELAY_NS, false}, {1, KVT_FAULT_FAIL_PAGE_COPY, true},
    {23, KVT_FAULT_FAIL_PAGE_COPY, true},     {1, KVT_FAULT_FAIL_CALL, false},
    {2, KVT_FAULT_FAIL_CALL, false},          {5, KVT_FAULT_FAIL_CALL, false},
    {9, KVT_FAULT_FAIL_CALL, false},          {14, KVT_FAULT_FAIL_CALL, false},
};

static void assert_fault(const struct fault *fault)
{
    printf("fault %u, value %llu\n", fault->kind, (unsigned long long)fault->value);
    struct kvt_ref_config config = config_with();
    config.fault_kind = fault->kind;
    config.fault_value = fault->value;
    struct outcome *with = run(&config);
    assert_same(baseline, with);
    assert_conserved(with);
    if (fault->costs_hits) ck_assert_uint_lt(cached_tokens(with), cached_tokens(good));
    free(with);
}

START_TEST(faults_change_no_answer)
{
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) assert_fault(&faults[i]);
}
END_TEST

/* Copies that never start, from the first request on or from the second turn on: first saves, then
 * restores are given up, with the pass that waits for them; every request is answered. */
static void assert_held_from(uint32_t request)
{
    struct kvt_ref_config config = config_with();
    config.fault_kind = KVT_FAULT_HOLD_COPIES;
    config.fault_value = 1;
    config.fault_from_request = request;
    config.transfer_deadline_ns = 200 * MS;
    struct outcome *with = run(&config);
    assert_same(baseline, with);
    ck_assert_uint_eq(cached_tokens(with), 0);
    ck_assert_uint_gt(with->warnings, good->warnings);
    free(with);
}

START_TEST(held_copies_lose_nothing)
{
    assert_held_from(1);
    assert_held_from(SESSIONS + 1);
}
END_TEST

/* ---- a plug-in with manners of its own ---- */

/* The real one with a function or two in front: what a plug-in may answer, and what it may not. */
enum manner {
    LOOKUP_AGAIN, /* twice for each request, then as it is */
    LOOKUP_FAILS,
    LOOKUP_TOO_MUCH, /* matched more than can be: no hit */
    NO_REGION_WAIT,  /* the whole restore is waited for */
    RESTORE_FAILS,
    RESTORE_SPENT, /* the outcome is gone when it is asked for */
    RESTORE_SHORT, /* half of it is good */
    SAVE_FAILS,
    CLOSE_BUSY, /* twice */
    MANNERS
};
static const char *const manner_names[MANNERS] = {
    "lookup: again",  "lookup: fails",  "lookup: too much", "no wait for regions", "restore: fails",
    "restore: spent", "restore: short", "save: fails",      "close: busy",
};
static const kvt_plugin_entry *real;
static enum manner manner;
static _Atomic uint32_t manner_calls;
static uint64_t restore_job;

static kvt_status mannered_lookup(kvt_engine *engine, const kvt_lookup *lookup,
                                  kvt_lookup_result *out_result)
{
    uint32_t call = atomic_fetch_add(&manner_calls, 1);
    if (manner == LOOKUP_FAILS) return KVT_ERR_UNAVAILABLE;
    if (manner == LOOKUP_AGAIN && call % 3 == 0) return KVT_ERR_AGAIN;
    if (manner == LOOKUP_AGAIN && call % 3 == 1) {
        out_result->answer = KVT_ANSWER_AGAIN;
        return KVT_OK;
    }
    kvt_status status = real->lookup(engine, lookup, out_result);
    if (manner == LOOKUP_TOO_MUCH && status == KVT_OK && out_result->answer == KVT_ANSWER_HIT)
        out_result->matched_tokens = lookup->token_count;
    return status;
}

static kvt_status mannered_restore(kvt_engine *engine, const kvt_restore *restore,
                                   uint64_t *out_job)
{
    if (manner == RESTORE_FAILS) return KVT_ERR_DEVICE;
    kvt_status status = real->restore(engine, restore, out_job);
    if (status == KVT_OK) restore_job = *out_job;
    return status;
}

static kvt_status mannered_poll(kvt_engine *engine, uint64_t job, uint64_t timeout_ns,
                                kvt_job_result *out_result)
{
    kvt_status status = real->poll(engine, job, timeout_ns, out_result);
    if (job != restore_job || status != KVT_OK || out_result->state != KVT_JOB_DONE) return status;
    if (manner == RESTORE_SPENT) return KVT_ERR_STALE;
    if (manner == RESTORE_SHORT) out_result->tokens_good /= 2;
    return KVT_OK;
}

static kvt_status mannered_save(kvt_engine *engine, const kvt_save *save, uint64_t *out_job)
{
    return manner == SAVE_FAILS ? KVT_ERR_AGAIN : real->save(engine, save, out_job);
}

static kvt_status mannered_wait(kvt_engine *engine, uint64_t job, uint32_t region, void *stream)
{
    return manner == NO_REGION_WAIT ? KVT_ERR_UNSUPPORTED
                                    : real->wait_region(engine, job, region, stream);
}

static kvt_status mannered_close(kvt_engine *engine)
{
    bool busy = manner == CLOSE_BUSY && atomic_fetch_add(&manner_calls, 1) < 2;
    return busy ? KVT_ERR_BUSY : real->close(engine);
}

static void assert_manner(const kvt_plugin_entry *entry)
{
    printf("%s\n", manner_names[manner]);
    atomic_store(&manner_calls, 0);
    restore_job = 0;
    struct kvt_ref_config config = config_with();
    config.plugin_entry = entry;
    config.concurrency = 1; /* one restore at a time */
    struct outcome *with = run(&config);
    assert_same(baseline, with);
    switch (manner) {
    case LOOKUP_AGAIN:
    case NO_REGION_WAIT:
    case CLOSE_BUSY:
        ck_assert_uint_ge(cached_tokens(with), cached_tokens(good));
        assert_conserved(with);
        break;
    case RESTORE_SHORT:
        ck_assert_uint_gt(cached_tokens(with), 0);
        ck_assert_uint_lt(cached_tokens(with), cached_tokens(good));
        break;
    case LOOKUP_FAILS:
    case LOOKUP_TOO_MUCH:
    case RESTORE_FAILS:
    case RESTORE_SPENT:
    case SAVE_FAILS:
    case MANNERS:
        ck_assert_uint_eq(cached_tokens(with), 0);
        break;
    }
    free(with);
}

START_TEST(any_manners_are_lived_with)
{
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    ck_assert_ptr_nonnull(library);
    real = dlsym(library, KVT_PLUGIN_ENTRY_NAME);
    ck_assert_ptr_nonnull(real);
    kvt_plugin_entry entry = *real;
    entry.lookup = mannered_lookup;
    entry.restore = mannered_restore;
    entry.poll = mannered_poll;
    entry.save = mannered_save;
    entry.wait_region = mannered_wait;
    entry.close = mannered_close;
    for (int i = 0; i < MANNERS; i++) {
        manner = (enum manner)i;
        assert_manner(&entry);
    }
    /* What cannot be worked with is refused. */
    char why[256] = "";
    struct kvt_ref_engine *engine = NULL;
    struct kvt_ref_config config = config_with();
    config.plugin_entry = &entry;
    entry.caps_required = UINT64_C(1) << 63;
    ck_assert_int_eq(kvt_ref_open(&config, &engine, why, sizeof(why)), KVT_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(why, "0x8000000000000000"));
    entry.caps_required = 0;
    entry.save = NULL;
    ck_assert_int_eq(kvt_ref_open(&config, &engine, why, sizeof(why)), KVT_ERR_VERSION);
    dlclose(library);
}
END_TEST

/* What many tests compare with. Computed in each test's own process. */
static void open_baseline(void)
{
    struct kvt_ref_config config = config_without();
    baseline = run(&config);
    config = config_with();
    good = run(&config);
}

static void close_baseline(void)
{
    free(baseline);
    free(good);
}

int main(void)
{
    plugin = getenv("KVT_PLUGIN");
    void *openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!plugin || !openblas) {
        if (openblas) dlclose(openblas);
        printf("%s\n", plugin ? "libopenblas.so.0 is not there (Debian and Ubuntu: libopenblas0)"
                              : "KVT_PLUGIN does not name the plug-in");
        return 77;
    }
    dlclose(openblas);
    make_prompts();
    Suite *suite = suite_create("ref_engine");
    TCase *alone = tcase_create("without a cache");
    tcase_add_test(alone, one_at_a_time_and_together);
    tcase_add_test(alone, refuses_what_cannot_be);
    suite_add_tcase(suite, alone);
    TCase *cached = tcase_create("with a cache");
    tcase_add_checked_fixture(cached, open_baseline, close_baseline);
    tcase_add_test(cached, same_with_and_without);
    tcase_add_test(cached, controls);
    tcase_add_test(cached, faults_change_no_answer);
    tcase_add_test(cached, held_copies_lose_nothing);
    tcase_add_test(cached, any_manners_are_lived_with);
    suite_add_tcase(suite, cached);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
