/* What the host gives, and what becomes of it: memory, its clock, its log; and the extensions. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plugin_rig.h"
#include "tests/support/test_expect.h"

#define PAGES 4u
#define TOKENS 64u
#define BLOCKS 8u

static struct kvt_plug plug;
static struct kvt_plug_engine engine;
static uint32_t tokens[TOKENS + 1];
static uint32_t blocks[BLOCKS];

static void names_init(void)
{
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, BLOCKS);
}

static void close_engine(void)
{
    kvt_plug_close(&engine);
    kvt_plug_fini(&plug);
}

/* ---- memory ---- */

/* The k-th allocation of open fails. False when it has fewer. */
static bool open_fails(uint64_t k)
{
    kvt_engine *opened = NULL;
    kvt_plug_init(&plug);
    kvt_rig_cache_fail(&plug.memory, k, false);
    kvt_status status =
        plug.entry->open(&plug.host, &plug.config, &opened, plug.why, sizeof(plug.why));
    if (status != KVT_OK) {
        ck_assert_int_eq(status, KVT_ERR_NOMEM);
        ck_assert_ptr_nonnull(strstr(plug.why, "memory"));
        ck_assert_ptr_null(opened);
    } else {
        ck_assert_int_eq(plug.entry->close(opened), KVT_OK);
    }
    kvt_plug_fini(&plug);
    return atomic_load(&plug.memory.fail_at) == 0;
}

/* The k-th allocation of what comes after open fails. */
static bool calls_fail(uint64_t k)
{
    uint64_t job = 0, binding = 0;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_rig_cache_fail(&plug.memory, k, false);
    kvt_status status =
        plug.entry->bind(engine.engine, &engine.layout, &binding, plug.why, sizeof(plug.why));
    if (status == KVT_OK) {
        ck_assert_int_eq(plug.entry->unbind(engine.engine, binding), KVT_OK);
    } else {
        ck_assert_ptr_nonnull(strstr(plug.why, "memory"));
    }
    kvt_rig_paint(&engine.memory, tokens, 0, PAGES, blocks);
    kvt_save save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
    status = plug.entry->save(engine.engine, &save, &job);
    if (status == KVT_OK) {
        status = kvt_plug_finish(&engine, job).status;
    }
    EXPECT(status == KVT_OK || status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT);
    const kvt_field salt[1] = {{KVT_FIELD_SALT, 0, "s", 1}};
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
    lookup.fields = salt, lookup.field_count = 1;
    status = plug.entry->lookup(engine.engine, &lookup, &found);
    EXPECT(status == KVT_OK || status == KVT_ERR_NOMEM);
    bool struck = atomic_load(&plug.memory.fail_at) == 0;
    kvt_rig_cache_fail(&plug.memory, 0, false);
    kvt_plug_put(&engine, tokens, PAGES);
    ck_assert_uint_eq(kvt_plug_get(&engine, tokens, TOKENS + 1), PAGES);
    close_engine();
    return struck;
}

START_TEST(each_allocation_fails)
{
    uint64_t k = 1;
    names_init();
    while (open_fails(k)) {
        k++;
    }
    ck_assert_uint_gt(k, 20);
    k = 1;
    while (calls_fail(k)) {
        k++;
    }
    ck_assert_uint_gt(k, 20);
}
END_TEST

/* A host need not be able to resize: what grows is moved. */
START_TEST(tables_grow)
{
    uint32_t prompt[17];
    const uint32_t count = 3000;
    kvt_plug_init(&plug);
    plug.config.host_bytes = 8u << 20;
    kvt_plug_open(&engine, &plug);
    for (uint32_t i = 0; i < count; i++) {
        kvt_rig_tokens(prompt, 0, 17, i);
        kvt_plug_put(&engine, prompt, 1);
    }
    ck_assert_uint_eq(kvt_plug_stats(&engine).pages, count);
    for (uint32_t i = 0; i < count; i += 7) {
        kvt_rig_tokens(prompt, 0, 17, i);
        EXPECT(kvt_plug_get(&engine, prompt, 17) == 1);
    }
    close_engine();
}
END_TEST

/* A host that gives nothing. */
START_TEST(nothing_from_the_host)
{
    names_init();
    kvt_plug_init(&plug);
    plug.host = (kvt_host)KVT_HOST_INIT;
    kvt_plug_open(&engine, &plug);
    kvt_plug_put(&engine, tokens, PAGES);
    ck_assert_uint_eq(kvt_plug_get(&engine, tokens, TOKENS + 1), PAGES);
    close_engine();
    ck_assert_uint_eq(atomic_load(&plug.memory.calls), 0);
}
END_TEST

/* ---- clock and log ---- */

START_TEST(the_hosts_clock)
{
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    names_init();
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_plug_put(&engine, tokens, PAGES);
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
    atomic_fetch_add(&plug.memory.now_ns, 59 * KVT_RIG_S);
    kvt_rig_sleep(250 * KVT_RIG_MS);
    ck_assert_uint_eq(kvt_plug_stats(&engine).leases, 1);
    ck_assert_uint_eq(kvt_plug_stats(&engine).lease_age_ns_max, 59 * KVT_RIG_S);
    atomic_fetch_add(&plug.memory.now_ns, 2 * KVT_RIG_S);
    for (uint32_t i = 0; i < 1000 && kvt_plug_stats(&engine).leases > 0; i++) {
        kvt_rig_sleep(10 * KVT_RIG_MS);
    }
    ck_assert_uint_eq(kvt_plug_stats(&engine).leases_expired, 1);
    ck_assert_int_eq(plug.entry->release(engine.engine, found.lease), KVT_ERR_STALE);
    close_engine();
}
END_TEST

/* Chunks of whole huge pages: either they lie in some, or one warning says that they do not. */
START_TEST(no_fallback_in_silence)
{
    names_init();
    kvt_plug_init(&plug);
    plug.config.hbm_bytes = 0;
    plug.config.host_bytes = 64u << 20;
    kvt_plug_open(&engine, &plug);
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t huge = kvt_plug_stats(&engine).huge_pages;
    ck_assert_uint_le(huge, 1);
    ck_assert_uint_eq(atomic_load(&plug.log_lines), 1 - huge);
    close_engine();
}
END_TEST

/* ---- extensions ---- */

static void count_up(void *arg) { atomic_fetch_add((_Atomic uint32_t *)arg, 1); }

START_TEST(streams_and_events)
{
    struct kvt_rig_gate gate;
    _Atomic uint32_t count = 0;
    void *other = NULL, *event = NULL;
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_engine *e = engine.engine;
    const kvt_cpu_stream_ext *streams = engine.streams;
    ck_assert_uint_eq(streams->struct_size, sizeof(*streams));
    ck_assert_uint_eq(engine.faults->struct_size, sizeof(*engine.faults));
    kvt_rig_gate_init(&gate);
    ck_assert_int_eq(streams->stream_create(e, &other), KVT_OK);
    ck_assert_int_eq(streams->event_create(e, &event), KVT_OK);
    ck_assert_int_eq(streams->enqueue(e, other, kvt_rig_gate_pass, &gate), KVT_OK);
    ck_assert_int_eq(streams->enqueue(e, other, count_up, &count), KVT_OK);
    ck_assert_int_eq(streams->record(e, event, other), KVT_OK);
    ck_assert_int_eq(streams->wait(e, engine.stream, event), KVT_OK);
    ck_assert_int_eq(streams->enqueue(e, engine.stream, count_up, &count), KVT_OK);
    ck_assert_int_eq(streams->sync(e, engine.stream, 20 * KVT_RIG_MS), KVT_ERR_TIMEOUT);
    ck_assert_uint_eq(atomic_load(&count), 0);
    kvt_rig_gate_open(&gate);
    ck_assert_int_eq(streams->sync(e, engine.stream, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_uint_eq(atomic_load(&count), 2);
    streams->event_destroy(e, event);
    streams->stream_destroy(e, other);
    close_engine();
    kvt_rig_gate_fini(&gate);
}
END_TEST

int main(void)
{
    kvt_plug_load();
    Suite *suite = suite_create("plugin_host");
    TCase *tcase = tcase_create("plugin_host");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, each_allocation_fails);
    tcase_add_test(tcase, tables_grow);
    tcase_add_test(tcase, nothing_from_the_host);
    tcase_add_test(tcase, the_hosts_clock);
    tcase_add_test(tcase, no_fallback_in_silence);
    tcase_add_test(tcase, streams_and_events);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
