/* The verbs through the ABI: what they do, what callers get wrong, and structs of every length. */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/plugin_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#define PAGES 4u
#define TOKENS 64u
#define BLOCKS 8u

static struct kvt_plug plug;
static struct kvt_plug_engine engine;
static uint32_t tokens[TOKENS + 1];
static uint32_t blocks[BLOCKS];

static void open_engine(void)
{
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, BLOCKS);
}

static void close_engine(void)
{
    kvt_plug_close(&engine);
    kvt_plug_fini(&plug);
}

static uint64_t lease_on(uint64_t request_id)
{
    kvt_lookup lookup = kvt_plug_lookup(request_id, tokens, TOKENS + 1);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.answer, KVT_ANSWER_HIT);
    ck_assert_uint_eq(found.matched_tokens, TOKENS);
    return found.lease;
}

static void report_done(uint64_t request_id, uint64_t computed)
{
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = request_id;
    report.prompt_tokens = TOKENS + 1;
    report.computed_tokens = computed;
    ck_assert_int_eq(plug.entry->report(engine.engine, &report), KVT_OK);
}

/* ---- a request's life ---- */

START_TEST(a_request)
{
    open_engine();
    kvt_lookup lookup = kvt_plug_lookup(1, tokens, TOKENS + 1);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.answer, KVT_ANSWER_MISS);
    ck_assert_uint_eq(found.lease, 0);
    kvt_plug_put(&engine, tokens, PAGES);
    report_done(1, TOKENS + 1);
    uint64_t lease = lease_on(2);
    ck_assert_uint_eq(lease_on(2), lease);
    uint64_t job = 0;
    kvt_rig_wipe_all(&engine.memory);
    kvt_restore restore = kvt_plug_restore(&engine, lease, TOKENS, blocks);
    ck_assert_int_eq(plug.entry->restore(engine.engine, &restore, &job), KVT_OK);
    for (uint32_t region = 0; region < KVT_PLUG_REGIONS; region++) {
        ck_assert_int_eq(plug.entry->wait_region(engine.engine, job, region, engine.stream),
                         KVT_OK);
    }
    ck_assert_int_eq(engine.streams->sync(engine.engine, engine.stream, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine.memory, tokens, 0, PAGES, blocks), PAGES);
    kvt_job_result result = kvt_plug_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tokens_good, TOKENS);
    ck_assert_uint_eq(result.tier_tokens[KVT_TIER_HBM], TOKENS);
    ck_assert_uint_eq(result.bytes_moved, PAGES * engine.memory.page_bytes);
    report_done(2, 1);
    ck_assert_int_eq(plug.entry->release(engine.engine, lease), KVT_ERR_STALE);
    kvt_stats stats = kvt_plug_stats(&engine);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    ck_assert_uint_eq(stats.requests_reported, 2);
    ck_assert_uint_eq(stats.tokens_asked, 2 * (TOKENS + 1));
    ck_assert_uint_eq(stats.tokens_computed, TOKENS + 2);
    ck_assert_uint_eq(stats.tokens_delivered[KVT_TIER_HBM], TOKENS);
    ck_assert_uint_eq(stats.missed_pages[KVT_MISS_NEVER_SEEN], PAGES);
    ck_assert_uint_eq(stats.saved_pages, PAGES);
    ck_assert_uint_eq(stats.restored_pages, PAGES);
    ck_assert_uint_eq(stats.restored_bytes, PAGES * engine.memory.page_bytes);
    ck_assert_uint_eq(stats.page_tokens, KVT_PLUG_PAGE_TOKENS);
    ck_assert_uint_gt(stats.index_bytes, 0);
    close_engine();
}
END_TEST

/* Salt, adapter and images narrow; the tenant is the config's. */
START_TEST(narrowed)
{
    open_engine();
    uint64_t job = 0;
    const kvt_field salt[1] = {{KVT_FIELD_SALT, 0, "s", 1}};
    const kvt_field other[1] = {{KVT_FIELD_SALT, 0, "t", 1}};
    const kvt_extra_key image[1] = {{.token_index = 40, .digest = {1}}};
    const struct {
        const kvt_field *fields;
        const kvt_extra_key *extras;
        uint64_t matched;
    } asked[] = {{salt, image, TOKENS}, {salt, NULL, 32}, {other, image, 0}, {NULL, image, 0}};
    kvt_rig_paint(&engine.memory, tokens, 0, PAGES, blocks);
    kvt_save save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
    save.fields = salt, save.field_count = 1;
    save.extras = image, save.extra_count = 1;
    ck_assert_int_eq(plug.entry->save(engine.engine, &save, &job), KVT_OK);
    ck_assert_uint_eq(kvt_plug_finish(&engine, job).tokens_good, TOKENS);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        lookup.fields = asked[i].fields, lookup.field_count = asked[i].fields != NULL;
        lookup.extras = asked[i].extras, lookup.extra_count = asked[i].extras != NULL;
        ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
        ck_assert_uint_eq(found.matched_tokens, asked[i].matched);
        if (found.lease != 0) {
            ck_assert_int_eq(plug.entry->release(engine.engine, found.lease), KVT_OK);
        }
    }
    close_engine();
}
END_TEST

/* ---- structs of other lengths ---- */

START_TEST(requests_of_other_lengths)
{
    struct {
        kvt_lookup lookup;
        uint64_t more;
    } long_lookup = {.more = 0};
    struct {
        kvt_save save;
        uint64_t more;
    } long_save = {.more = 0};
    struct {
        kvt_restore restore;
        uint64_t more;
    } long_restore = {.more = 0};
    struct {
        kvt_report report;
        uint64_t more;
    } long_report = {.more = 0};
    uint64_t job = 77;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    open_engine();
    kvt_engine *e = engine.engine;
    long_lookup.lookup = kvt_plug_lookup(1, tokens, TOKENS + 1);
    long_lookup.lookup.struct_size = sizeof(long_lookup);
    long_save.save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
    long_save.save.struct_size = sizeof(long_save);
    /* What is new is not used: accepted. */
    kvt_rig_paint(&engine.memory, tokens, 0, PAGES, blocks);
    ck_assert_int_eq(plug.entry->save(e, &long_save.save, &job), KVT_OK);
    ck_assert_int_eq(kvt_plug_finish(&engine, job).status, KVT_OK);
    ck_assert_int_eq(plug.entry->lookup(e, &long_lookup.lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.matched_tokens, TOKENS);
    long_restore.restore = kvt_plug_restore(&engine, found.lease, TOKENS, blocks);
    long_restore.restore.struct_size = sizeof(long_restore);
    ck_assert_int_eq(plug.entry->restore(e, &long_restore.restore, &job), KVT_OK);
    ck_assert_int_eq(kvt_plug_finish(&engine, job).status, KVT_OK);
    long_report.report = (kvt_report)KVT_REPORT_INIT;
    long_report.report.struct_size = sizeof(long_report);
    long_report.report.request_id = 1;
    long_report.report.prompt_tokens = TOKENS + 1;
    long_report.report.computed_tokens = 1;
    /* It is used: refused, and nothing happens. */
    long_lookup.more = long_save.more = long_restore.more = long_report.more = 1;
    kvt_lookup_result untouched = found;
    job = 77;
    ck_assert_int_eq(plug.entry->lookup(e, &long_lookup.lookup, &found), KVT_ERR_UNSUPPORTED);
    ck_assert_int_eq(plug.entry->save(e, &long_save.save, &job), KVT_ERR_UNSUPPORTED);
    ck_assert_int_eq(plug.entry->restore(e, &long_restore.restore, &job), KVT_ERR_UNSUPPORTED);
    ck_assert_int_eq(plug.entry->report(e, &long_report.report), KVT_ERR_UNSUPPORTED);
    ck_assert_uint_eq(job, 77);
    ck_assert_mem_eq(&found, &untouched, sizeof(found));
    long_report.more = 0;
    ck_assert_int_eq(plug.entry->report(e, &long_report.report), KVT_OK);
    /* An older caller's lookup, without extras, fields and own tokens. */
    kvt_lookup older = kvt_plug_lookup(2, tokens, TOKENS + 1);
    older.struct_size = offsetof(kvt_lookup, own_tokens);
    older.own_tokens = 50, older.field_count = 50, older.extra_count = 50;
    ck_assert_int_eq(plug.entry->lookup(e, &older, &found), KVT_OK);
    ck_assert_uint_eq(found.matched_tokens, TOKENS);
    report_done(2, TOKENS + 1);
    close_engine();
}
END_TEST

START_TEST(results_of_other_lengths)
{
    struct {
        kvt_lookup_result result;
        unsigned char more[16], fence[16];
    } longer;
    open_engine();
    kvt_plug_put(&engine, tokens, PAGES);
    kvt_lookup lookup = kvt_plug_lookup(1, tokens, TOKENS + 1);
    /* A newer caller's: what we do not know is zero. Nothing behind it is written. */
    memset(&longer, 0x77, sizeof(longer));
    longer.result.struct_size = sizeof(longer.result) + sizeof(longer.more);
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &longer.result), KVT_OK);
    ck_assert_uint_eq(longer.result.struct_size, sizeof(longer.result) + sizeof(longer.more));
    ck_assert_uint_eq(longer.result.matched_tokens, TOKENS);
    for (uint32_t i = 0; i < 16; i++) {
        ck_assert_uint_eq(longer.more[i], 0);
        ck_assert_uint_eq(longer.fence[i], 0x77);
    }
    /* An older caller's: as much as fits. */
    memset(&longer, 0x77, sizeof(longer));
    longer.result.struct_size = offsetof(kvt_lookup_result, tier_tokens);
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &longer.result), KVT_OK);
    ck_assert_uint_eq(longer.result.answer, KVT_ANSWER_HIT);
    ck_assert_uint_eq(longer.result.matched_tokens, TOKENS);
    ck_assert_uint_eq(longer.result.tier_tokens[0], UINT64_C(0x7777777777777777));
    report_done(1, TOKENS + 1);
    /* Statistics of an older caller. */
    kvt_stats stats;
    memset(&stats, 0x77, sizeof(stats));
    stats.struct_size = offsetof(kvt_stats, tokens_asked);
    ck_assert_int_eq(plug.entry->stats(engine.engine, &stats), KVT_OK);
    ck_assert_uint_eq(stats.requests_reported, 1);
    ck_assert_uint_eq(stats.tokens_asked, UINT64_C(0x7777777777777777));
    close_engine();
}
END_TEST

/* A result with no room changes nothing: no lease is taken, no handle spent. */
START_TEST(results_with_no_room)
{
    static const uint32_t sizes[] = {0, 4, 7, 65537, UINT32_MAX};
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_stats stats = {0};
    kvt_lease_token token = {0};
    open_engine();
    kvt_engine *e = engine.engine;
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0), job = 0;
    kvt_restore restore = kvt_plug_restore(&engine, lease, TOKENS, blocks);
    ck_assert_int_eq(plug.entry->restore(e, &restore, &job), KVT_OK);
    ck_assert_int_eq(plug.entry->quiesce(e, KVT_RIG_WAIT_NS), KVT_OK);
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        found.struct_size = result.struct_size = stats.struct_size = token.struct_size = sizes[i];
        ck_assert_int_eq(plug.entry->lookup(e, &lookup, &found), KVT_ERR_INVAL);
        ck_assert_int_eq(plug.entry->poll(e, job, 0, &result), KVT_ERR_INVAL);
        ck_assert_int_eq(plug.entry->stats(e, &stats), KVT_ERR_INVAL);
        ck_assert_int_eq(plug.entry->lease_export(e, lease, &token), KVT_ERR_INVAL);
    }
    ck_assert_int_eq(plug.entry->lookup(e, &lookup, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->poll(e, job, 0, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->stats(e, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->lease_export(e, lease, NULL), KVT_ERR_INVAL);
    ck_assert_uint_eq(kvt_plug_stats(&engine).leases, 1);
    ck_assert_uint_eq(kvt_plug_finish(&engine, job).tokens_good, TOKENS);
    ck_assert_int_eq(plug.entry->release(e, lease), KVT_OK);
    close_engine();
}
END_TEST

/* ---- what callers get wrong ---- */

static void all_invalid(const kvt_status *answers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (answers[i] != KVT_ERR_INVAL) {
            ck_abort_msg("call %zu answered %s", i, kvt_status_name(answers[i]));
        }
    }
}

START_TEST(without_an_engine)
{
    uint64_t out = 77;
    void *object = NULL;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_stats stats = {.struct_size = sizeof(stats)};
    kvt_lease_token token = {.struct_size = sizeof(token)};
    open_engine();
    const kvt_plugin_entry *p = plug.entry;
    kvt_lookup lookup = kvt_plug_lookup(1, tokens, TOKENS);
    kvt_save save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
    kvt_restore restore = kvt_plug_restore(&engine, 1, TOKENS, blocks);
    kvt_report report = KVT_REPORT_INIT;
    const kvt_status answers[] = {
        p->close(NULL),
        p->unbind(NULL, 1),
        p->lookup(NULL, &lookup, &found),
        p->release(NULL, 1),
        p->lease_export(NULL, 1, &token),
        p->lease_import(NULL, &token, &out),
        p->restore(NULL, &restore, &out),
        p->save(NULL, &save, &out),
        p->poll(NULL, 1, 0, &result),
        p->wait_region(NULL, 1, 0, engine.stream),
        p->cancel(NULL, 1),
        p->report(NULL, &report),
        p->flush(NULL, 0),
        p->stats(NULL, &stats),
        p->quiesce(NULL, 0),
        engine.streams->stream_create(NULL, &object),
        engine.streams->enqueue(NULL, engine.stream, kvt_rig_gate_pass, NULL),
        engine.streams->event_create(NULL, &object),
        engine.streams->record(NULL, engine.stream, engine.stream),
        engine.streams->wait(NULL, engine.stream, engine.stream),
        engine.streams->sync(NULL, engine.stream, 0),
        engine.faults->set(NULL, 1, 1),
    };
    all_invalid(answers, sizeof(answers) / sizeof(answers[0]));
    engine.streams->stream_destroy(NULL, engine.stream);
    engine.streams->event_destroy(NULL, NULL);
    ck_assert_uint_eq(out, 77);
    ck_assert_int_eq(p->hint(engine.engine, 999, NULL, 0), KVT_ERR_UNSUPPORTED);
    uint64_t value = 1000;
    ck_assert_int_eq(p->hint(engine.engine, KVT_HINT_PREFILL_RATE, NULL, 8), KVT_ERR_INVAL);
    ck_assert_int_eq(p->hint(engine.engine, KVT_HINT_PREFILL_RATE, &value, 4), KVT_ERR_INVAL);
    ck_assert_int_eq(p->hint(NULL, KVT_HINT_PREFILL_RATE, &value, 8), KVT_ERR_INVAL);
    ck_assert_int_eq(p->hint(engine.engine, KVT_HINT_PREFILL_RATE, &value, 8), KVT_OK);
    ck_assert_int_eq(p->hint(engine.engine, KVT_HINT_PREFETCH, &value, 8), KVT_ERR_STALE);
    close_engine();
}
END_TEST

START_TEST(with_nothing_else)
{
    uint64_t out = 77;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_lease_token token = {.struct_size = sizeof(token)};
    kvt_report report = KVT_REPORT_INIT;
    open_engine();
    const kvt_plugin_entry *p = plug.entry;
    const kvt_status answers[] = {
        p->lookup(engine.engine, NULL, &found),
        p->restore(engine.engine, NULL, &out),
        p->save(engine.engine, NULL, &out),
        p->report(engine.engine, NULL),
        p->lease_import(engine.engine, NULL, &out),
        p->lease_import(engine.engine, &token, NULL),
        p->wait_region(engine.engine, 1, 0, NULL),
        engine.streams->stream_create(engine.engine, NULL),
        engine.streams->enqueue(engine.engine, NULL, kvt_rig_gate_pass, NULL),
        engine.streams->enqueue(engine.engine, engine.stream, NULL, NULL),
        engine.streams->event_create(engine.engine, NULL),
        engine.streams->record(engine.engine, NULL, engine.stream),
        engine.streams->wait(engine.engine, engine.stream, NULL),
        engine.streams->sync(engine.engine, NULL, 0),
        engine.faults->set(engine.engine, 0, 1),
        engine.faults->set(engine.engine, 5, 1),
    };
    all_invalid(answers, sizeof(answers) / sizeof(answers[0]));
    engine.streams->stream_destroy(engine.engine, NULL);
    engine.streams->event_destroy(engine.engine, NULL);
    ck_assert_uint_eq(out, 77);
    ck_assert_int_eq(p->unbind(engine.engine, engine.binding + 1), KVT_ERR_STALE);
    ck_assert_int_eq(p->release(engine.engine, 0), KVT_ERR_STALE);
    ck_assert_int_eq(p->cancel(engine.engine, 0), KVT_ERR_STALE);
    ck_assert_int_eq(p->poll(engine.engine, 0, 0, &result), KVT_ERR_STALE);
    ck_assert_int_eq(p->report(engine.engine, &report), KVT_ERR_STALE);
    close_engine();
}
END_TEST

static void lookup_answers(const kvt_lookup *lookup, kvt_status want)
{
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    found.lease = 77;
    kvt_status got = plug.entry->lookup(engine.engine, lookup, &found);
    if (got != want || found.lease != 77) {
        ck_abort_msg("%s and not %s", kvt_status_name(got), kvt_status_name(want));
    }
}

START_TEST(bad_lookups)
{
    kvt_field fields[65];
    open_engine();
    kvt_plug_put(&engine, tokens, PAGES);
    const kvt_lookup good = kvt_plug_lookup(0, tokens, TOKENS + 1);
    kvt_lookup bad = good;
    memset(fields, 0, sizeof(fields));
    for (uint32_t i = 0; i < 65; i++) {
        fields[i].tag = 100 + i;
    }
    bad.struct_size = 0;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad.struct_size = 7;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.tokens = NULL;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = 0;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = KVT_PROMPT_TOKENS_MAX + 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.own_tokens = TOKENS + 2;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.field_count = 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad.fields = fields, bad.field_count = 65;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad.field_count = UINT64_MAX;
    lookup_answers(&bad, KVT_ERR_INVAL);
    fields[1].tag = fields[0].tag;
    bad.field_count = 2;
    lookup_answers(&bad, KVT_ERR_INVAL);
    fields[0].reserved0 = 1;
    bad.field_count = 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.extra_count = 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad.extra_count = UINT64_MAX;
    lookup_answers(&bad, KVT_ERR_INVAL);
    ck_assert_uint_eq(kvt_plug_stats(&engine).leases, 0);
    close_engine();
}
END_TEST

START_TEST(bad_jobs)
{
    open_engine();
    kvt_engine *e = engine.engine;
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0), job = 77;
    const kvt_save good_save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
    const kvt_restore good = kvt_plug_restore(&engine, lease, TOKENS, blocks);
    kvt_save save = good_save;
    kvt_restore restore = good;
#define SAVE plug.entry->save(e, &save, &job)
#define RESTORE plug.entry->restore(e, &restore, &job)
    save.flags = restore.flags = 2;
    ck_assert_int_eq(SAVE, KVT_ERR_UNSUPPORTED);
    ck_assert_int_eq(RESTORE, KVT_ERR_UNSUPPORTED);
    save = good_save, save.struct_size = 0;
    ck_assert_int_eq(SAVE, KVT_ERR_INVAL);
    restore = good, restore.struct_size = UINT32_MAX;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL);
    save = good_save, save.stream = NULL;
    ck_assert_int_eq(SAVE, KVT_ERR_INVAL);
    restore = good, restore.stream = NULL;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL);
    save = good_save, save.field_count = 1;
    ck_assert_int_eq(SAVE, KVT_ERR_INVAL);
    save = good_save, save.block_count = BLOCKS - 1;
    ck_assert_int_eq(SAVE, KVT_ERR_INVAL);
    save = good_save, save.binding = 0;
    ck_assert_int_eq(SAVE, KVT_ERR_STALE);
    restore = good, restore.binding = 0;
    ck_assert_int_eq(RESTORE, KVT_ERR_STALE);
    restore = good, restore.lease++;
    ck_assert_int_eq(RESTORE, KVT_ERR_STALE);
    restore = good, restore.first_token = 16;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL); /* beyond the lease */
    restore = good, restore.token_count = 8;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL);
    restore = good, restore.block_count = 1;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL);
    uint32_t beyond[BLOCKS];
    kvt_rig_blocks(beyond, kvt_rig_shape_default.block_count - BLOCKS + 1, BLOCKS);
    restore = good, restore.blocks = beyond;
    ck_assert_int_eq(RESTORE, KVT_ERR_INVAL);
    save = good_save, save.blocks = beyond;
    ck_assert_int_eq(SAVE, KVT_ERR_INVAL);
#undef SAVE
#undef RESTORE
    ck_assert_int_eq(plug.entry->restore(e, &good, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->save(e, &good_save, NULL), KVT_ERR_INVAL);
    ck_assert_uint_eq(job, 77);
    ck_assert_int_eq(plug.entry->release(e, lease), KVT_OK);
    close_engine();
}
END_TEST

/* ---- leases that travel ---- */

START_TEST(lease_tokens)
{
    uint64_t out = 77;
    kvt_lease_token token = {.struct_size = sizeof(token)};
    open_engine();
    kvt_engine *e = engine.engine;
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0);
    ck_assert_int_eq(plug.entry->lease_export(e, lease + 1, &token), KVT_ERR_STALE);
    ck_assert_int_eq(plug.entry->lease_export(e, lease, &token), KVT_OK);
    ck_assert_int_eq(plug.entry->lease_import(e, &token, &out), KVT_OK);
    ck_assert_uint_eq(out, lease);
    out = 77;
    for (uint32_t word = 0; word < 4; word++) {
        for (uint32_t bit = 0; bit < 64; bit++) {
            kvt_lease_token bad = token;
            bad.words[word] ^= UINT64_C(1) << bit;
            ck_assert_int_eq(plug.entry->lease_import(e, &bad, &out), KVT_ERR_STALE);
        }
    }
    struct {
        kvt_lease_token token;
        uint64_t more;
    } longer = {token, 1};
    longer.token.struct_size = sizeof(longer);
    ck_assert_int_eq(plug.entry->lease_import(e, &longer.token, &out), KVT_ERR_UNSUPPORTED);
    token.struct_size = 8;
    ck_assert_int_eq(plug.entry->lease_import(e, &token, &out), KVT_ERR_STALE);
    token.struct_size = sizeof(token);
    ck_assert_int_eq(plug.entry->release(e, lease), KVT_OK);
    ck_assert_int_eq(plug.entry->lease_import(e, &token, &out), KVT_ERR_STALE);
    ck_assert_uint_eq(out, 77);
    close_engine();
}
END_TEST

/* ---- faults, cancel ---- */

START_TEST(short_and_cancelled_jobs)
{
    uint64_t job = 0;
    open_engine();
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(1);
    kvt_restore restore = kvt_plug_restore(&engine, lease, TOKENS, blocks);
    kvt_rig_wipe_all(&engine.memory);
    ck_assert_int_eq(engine.faults->set(engine.engine, KVT_FAULT_FAIL_PAGE_COPY, 3), KVT_OK);
    ck_assert_int_eq(plug.entry->restore(engine.engine, &restore, &job), KVT_OK);
    kvt_job_result result = kvt_plug_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_ERR_IO);
    ck_assert_uint_eq(result.tokens_good, 32);
    ck_assert_uint_eq(kvt_rig_good_pages(&engine.memory, tokens, 0, PAGES, blocks), 2);
    ck_assert_int_eq(engine.faults->set(engine.engine, KVT_FAULT_HOLD_COPIES, 1), KVT_OK);
    ck_assert_int_eq(plug.entry->restore(engine.engine, &restore, &job), KVT_OK);
    ck_assert_int_eq(plug.entry->poll(engine.engine, job, 1000, &result), KVT_OK);
    ck_assert_uint_eq(result.state, KVT_JOB_RUNNING);
    ck_assert_uint_eq(result.tokens_good, 0);
    ck_assert_int_eq(plug.entry->cancel(engine.engine, job), KVT_OK);
    ck_assert_int_eq(plug.entry->flush(engine.engine, 0), KVT_OK);
    ck_assert_int_eq(engine.faults->set(engine.engine, KVT_FAULT_HOLD_COPIES, 0), KVT_OK);
    result = kvt_plug_finish(&engine, job);
    ck_assert_int_eq(result.status, KVT_ERR_CANCELLED);
    ck_assert_uint_eq(result.tokens_good, 0);
    ck_assert_int_eq(plug.entry->poll(engine.engine, job, 0, &result), KVT_ERR_STALE);
    report_done(1, TOKENS + 1 - 32);
    ck_assert_uint_eq(kvt_plug_stats(&engine).conservation_breaks, 0);
    ck_assert_uint_eq(kvt_plug_stats(&engine).jobs_failed, 2);
    close_engine();
}
END_TEST

/* ---- threads, and a fork ---- */

struct caller {
    pthread_t thread;
    uint32_t number;
};

static void *caller_main(void *arg)
{
    struct caller *caller = arg;
    uint32_t mine[TOKENS + 1], my_blocks[BLOCKS];
    kvt_rig_blocks(my_blocks, 16 * caller->number, BLOCKS);
    for (uint64_t i = 0; i < test_scaled(400); i++) {
        uint64_t id = 1 + caller->number + 4 * i, job = 0, good = 0;
        kvt_rig_tokens(mine, 0, TOKENS + 1, i % 7);
        kvt_lookup lookup = kvt_plug_lookup(id, mine, TOKENS + 1);
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        EXPECT(plug.entry->lookup(engine.engine, &lookup, &found) == KVT_OK);
        kvt_rig_wipe(&engine.memory, my_blocks, BLOCKS);
        if (found.answer == KVT_ANSWER_HIT) {
            kvt_restore restore =
                kvt_plug_restore(&engine, found.lease, found.matched_tokens, my_blocks);
            EXPECT(plug.entry->restore(engine.engine, &restore, &job) == KVT_OK);
            good = kvt_plug_finish(&engine, job).tokens_good;
            EXPECT(good == found.matched_tokens);
            EXPECT(kvt_rig_good_pages(&engine.memory, mine, 0, (uint32_t)good / 16, my_blocks) ==
                   good / 16);
        } else {
            kvt_rig_paint(&engine.memory, mine, 0, PAGES, my_blocks);
            kvt_save save = kvt_plug_save(&engine, mine, TOKENS, my_blocks);
            EXPECT(plug.entry->save(engine.engine, &save, &job) == KVT_OK);
            EXPECT(kvt_plug_finish(&engine, job).tokens_good == TOKENS);
        }
        kvt_report report = KVT_REPORT_INIT;
        report.request_id = id;
        report.prompt_tokens = TOKENS + 1;
        report.computed_tokens = TOKENS + 1 - good;
        EXPECT(plug.entry->report(engine.engine, &report) == KVT_OK);
        (void)kvt_plug_stats(&engine);
    }
    return NULL;
}

START_TEST(several_threads)
{
    struct caller callers[4];
    open_engine();
    for (uint32_t i = 0; i < 4; i++) {
        callers[i].number = i;
        ck_assert_int_eq(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(callers[i].thread, NULL), 0);
    }
    kvt_stats stats = kvt_plug_stats(&engine);
    ck_assert_uint_eq(stats.requests_reported, 4 * test_scaled(400));
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    close_engine();
}
END_TEST

START_TEST(after_a_fork)
{
    open_engine();
    kvt_plug_put(&engine, tokens, PAGES);
    uint64_t lease = lease_on(0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        uint64_t job = 0;
        kvt_engine *e = engine.engine;
        kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        kvt_lease_token token = {.struct_size = sizeof(token)};
        kvt_save save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
        kvt_restore restore = kvt_plug_restore(&engine, lease, TOKENS, blocks);
        kvt_stats stats = {.struct_size = sizeof(stats)};
        (void)alarm(20);
        const kvt_status answers[] = {
            plug.entry->lookup(e, &lookup, &found),
            plug.entry->save(e, &save, &job),
            plug.entry->restore(e, &restore, &job),
            plug.entry->release(e, lease),
            plug.entry->lease_export(e, lease, &token),
            plug.entry->stats(e, &stats),
            plug.entry->flush(e, 1000),
            plug.entry->quiesce(e, 1000),
            plug.entry->unbind(e, engine.binding),
            plug.entry->close(e),
            engine.streams->enqueue(e, engine.stream, kvt_rig_gate_pass, NULL),
            engine.streams->sync(e, engine.stream, 1000),
        };
        int wrong = 0;
        for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
            wrong += answers[i] != KVT_ERR_PROCESS;
        }
        engine.streams->stream_destroy(e, engine.stream);
        _exit(wrong);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_int_eq(plug.entry->release(engine.engine, lease), KVT_OK);
    ck_assert_uint_eq(kvt_plug_get(&engine, tokens, TOKENS + 1), PAGES);
    close_engine();
}
END_TEST

int main(void)
{
    kvt_plug_load();
    Suite *suite = suite_create("plugin_calls");
    TCase *tcase = tcase_create("plugin_calls");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, a_request);
    tcase_add_test(tcase, narrowed);
    tcase_add_test(tcase, requests_of_other_lengths);
    tcase_add_test(tcase, results_of_other_lengths);
    tcase_add_test(tcase, results_with_no_room);
    tcase_add_test(tcase, without_an_engine);
    tcase_add_test(tcase, with_nothing_else);
    tcase_add_test(tcase, bad_lookups);
    tcase_add_test(tcase, bad_jobs);
    tcase_add_test(tcase, lease_tokens);
    tcase_add_test(tcase, short_and_cancelled_jobs);
    tcase_add_test(tcase, several_threads);
    const char *variant = getenv("KVT_VARIANT");
    if (variant == NULL || strcmp(variant, "tsan") != 0) {
        /* Forking a program with threads is what the thread sanitizer cannot do. */
        tcase_add_test(tcase, after_a_fork);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
