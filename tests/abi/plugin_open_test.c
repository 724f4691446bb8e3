/* Opening, binding and closing through the ABI: structs of every length, and what hosts get
 * wrong. */
#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plugin_rig.h"
#include "tests/support/test_expect.h"

static struct kvt_plug plug;

/* ---- what is found ---- */

START_TEST(the_entry)
{
    kvt_plug_init(&plug);
    const kvt_plugin_entry *entry = plug.entry;
    ck_assert_uint_eq(entry->struct_size, sizeof(kvt_plugin_entry));
    ck_assert_uint_eq(entry->abi_minor, KVT_ABI_MINOR);
    ck_assert_uint_eq(entry->caps_required, 0);
    ck_assert_uint_eq(entry->caps_offered, KVT_CAP_CPU_DEVICE | KVT_CAP_REGION_WAIT |
                                               KVT_CAP_EXTRA_KEYS | KVT_CAP_HBM_TIER |
                                               KVT_CAP_HOST_TIER | KVT_CAP_NVME_TIER);
    /* Every function of the table is there. */
    const unsigned char *begin = (const unsigned char *)entry + offsetof(kvt_plugin_entry, open);
    for (size_t at = offsetof(kvt_plugin_entry, open); at < sizeof(*entry); at += sizeof(void *)) {
        void *function = NULL;
        memcpy(&function, begin + (at - offsetof(kvt_plugin_entry, open)), sizeof(function));
        ck_assert_ptr_nonnull(function);
    }
    /* A host of another version does not find its symbol, and nothing of ours is visible. */
    ck_assert_ptr_null(dlsym(plug.library, "kvt_plugin_entry_v1"));
    ck_assert_ptr_null(dlsym(plug.library, "kvt_plugin_open"));
    ck_assert_ptr_null(dlsym(plug.library, "kvt_cache_create"));
    ck_assert_ptr_nonnull(entry->get_extension(NULL, KVT_EXT_CPU_STREAM));
    ck_assert_ptr_null(entry->get_extension(NULL, "kvt.cpu_stream/2"));
    ck_assert_ptr_null(entry->get_extension(NULL, ""));
    ck_assert_ptr_null(entry->get_extension(NULL, NULL));
}
END_TEST

/* ---- open ---- */

/* Open with plug.host and plug.config fails so, and says it with these words; then all is as it
 * was. */
static void refused(kvt_status want, const char *words)
{
    kvt_engine *engine = NULL;
    plug.why[0] = '\0';
    kvt_status got =
        plug.entry->open(&plug.host, &plug.config, &engine, plug.why, sizeof(plug.why));
    if (got != want || engine != NULL || strstr(plug.why, words) == NULL) {
        ck_abort_msg("%s and not %s: '%s' does not name '%s'", kvt_status_name(got),
                     kvt_status_name(want), plug.why, words);
    }
    ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, &engine, NULL, 0), want);
    kvt_plug_fini(&plug);
    kvt_plug_init(&plug);
}

static void opens(void)
{
    kvt_engine *engine = NULL;
    kvt_status status =
        plug.entry->open(&plug.host, &plug.config, &engine, plug.why, sizeof(plug.why));
    if (status != KVT_OK) {
        ck_abort_msg("%s: %s", kvt_status_name(status), plug.why);
    }
    ck_assert_int_eq(plug.entry->close(engine), KVT_OK);
    kvt_plug_fini(&plug);
    kvt_plug_init(&plug);
}

START_TEST(configs)
{
    kvt_engine *engine = NULL;
    kvt_plug_init(&plug);
    opens();
    ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, NULL, plug.why, sizeof(plug.why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(plug.why, "out_engine"));
    ck_assert_int_eq(plug.entry->open(&plug.host, NULL, &engine, plug.why, sizeof(plug.why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(plug.why, "config"));
    plug.config.magic = 0;
    refused(KVT_ERR_INVAL, "KVT_OPEN_CONFIG_INIT");
    memset(&plug.config, 0xa5, sizeof(plug.config));
    refused(KVT_ERR_INVAL, "KVT_OPEN_CONFIG_INIT");
    memset(&plug.config, 0, sizeof(plug.config));
    refused(KVT_ERR_INVAL, "KVT_OPEN_CONFIG_INIT");
    plug.config.uri = "unix:/run/kvtier.sock", plug.config.uri_bytes = 21;
    refused(KVT_ERR_UNSUPPORTED, "unix:/run/kvtier.sock");
    plug.config.uri = "embedded", plug.config.uri_bytes = 8;
    refused(KVT_ERR_UNSUPPORTED, "'embedded'");
    plug.config.uri_bytes = 8;
    refused(KVT_ERR_INVAL, "uri is NULL");
    plug.config.uri = "embedded:", plug.config.uri_bytes = 9;
    opens();
    plug.config.role = 0;
    refused(KVT_ERR_INVAL, "role 0");
    plug.config.role = 4;
    refused(KVT_ERR_INVAL, "role 4");
    plug.config.rank = 1;
    refused(KVT_ERR_INVAL, "rank 1");
    plug.config.group_ranks = 2;
    refused(KVT_ERR_UNSUPPORTED, "2 ranks");
    plug.config.group_ranks = 0;
    opens();
    plug.config.flags = 5;
    refused(KVT_ERR_UNSUPPORTED, "0x5");
    plug.config.page_tokens = 4097;
    refused(KVT_ERR_INVAL, "4097");
    plug.config.page_tokens = 0;
    opens();
    plug.config.hbm_bytes = plug.config.host_bytes = 0;
    refused(KVT_ERR_INVAL, "budgets");
    plug.config.hbm_bytes = 100;
    refused(KVT_ERR_INVAL, "hbm budget of 100 bytes");
    plug.config.host_bytes = 100;
    refused(KVT_ERR_INVAL, "host budget of 100 bytes");
    plug.config.evict_policy = "most", plug.config.evict_policy_bytes = 4;
    refused(KVT_ERR_INVAL, "'most'");
    plug.config.evict_policy_bytes = 3;
    refused(KVT_ERR_INVAL, "policy");
    plug.config.evict_policy = "lru", plug.config.evict_policy_bytes = 65;
    refused(KVT_ERR_INVAL, "policy");
    plug.config.evict_policy = "lru, and more", plug.config.evict_policy_bytes = 3;
    opens();
    plug.config.tenant = NULL;
    refused(KVT_ERR_INVAL, "tenant");
    plug.config.tenant_bytes = 2000;
    plug.config.tenant = plug.why; /* any bytes */
    refused(KVT_ERR_INVAL, "tenant");
    plug.config.tenant = NULL, plug.config.tenant_bytes = 0;
    opens();
}
END_TEST

START_TEST(namespace_fields)
{
    static const char *const required[4] = {"field 1", "field 2", "field 3", "field 4"};
    char digest[5000];
    kvt_plug_init(&plug);
    memset(digest, 1, sizeof(digest));
    plug.config.fields = NULL;
    refused(KVT_ERR_INVAL, "fields");
    plug.config.field_count = 0;
    refused(KVT_ERR_INVAL, "field 1");
    for (uint32_t i = 0; i < 4; i++) {
        plug.fields[i].tag = 100;
        refused(KVT_ERR_INVAL, required[i]);
    }
    plug.config.field_count = 65;
    refused(KVT_ERR_INVAL, "65");
    plug.config.field_count = UINT64_MAX;
    refused(KVT_ERR_INVAL, "fields");
    plug.fields[0].bytes = 15;
    refused(KVT_ERR_INVAL, "15 bytes");
    plug.fields[0].bytes = 0;
    refused(KVT_ERR_INVAL, "0 bytes");
    plug.fields[0].reserved0 = 1;
    refused(KVT_ERR_INVAL, "reserved0");
    plug.fields[2].bytes = 1;
    refused(KVT_ERR_INVAL, "no data");
    plug.fields[3] = (kvt_field){KVT_FIELD_LAYOUT, 0, digest, 4097};
    refused(KVT_ERR_INVAL, "field 4 has 4097 bytes");
    plug.fields[3] = (kvt_field){KVT_FIELD_LAYOUT, 0, digest, 4096};
    opens();
    kvt_field five[5];
    memcpy(five, plug.fields, sizeof(plug.fields));
    five[4] = five[1];
    plug.config.fields = five, plug.config.field_count = 5;
    refused(KVT_ERR_INVAL, "field 2 is given twice");
    five[4].tag = 0;
    plug.config.fields = five, plug.config.field_count = 5;
    refused(KVT_ERR_INVAL, "field 4 has no tag");
    five[4].tag = KVT_FIELD_CUSTOM_FIRST;
    plug.config.fields = five, plug.config.field_count = 5;
    opens();
}
END_TEST

START_TEST(hosts)
{
    kvt_engine *engine = NULL;
    kvt_plug_init(&plug);
    ck_assert_int_eq(plug.entry->open(NULL, &plug.config, &engine, plug.why, sizeof(plug.why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(plug.why, "KVT_HOST_INIT"));
    plug.host.struct_size = 8;
    refused(KVT_ERR_INVAL, "KVT_HOST_INIT");
    plug.host.caps_required = KVT_CAP_CUDA_DEVICE | KVT_CAP_CPU_DEVICE;
    refused(KVT_ERR_UNSUPPORTED, "bit 1");
    plug.host.caps_required = UINT64_C(1) << 63;
    refused(KVT_ERR_UNSUPPORTED, "bit 63");
    plug.host.caps_required = plug.entry->caps_offered;
    opens();
    plug.host.caps_offered = UINT64_MAX; /* what we do not know is not ours to judge */
    opens();
    plug.host.alloc = NULL;
    refused(KVT_ERR_INVAL, "alloc and free");
    plug.host.free = NULL;
    refused(KVT_ERR_INVAL, "alloc and free");
    /* An older host, which gives nothing but its capabilities. */
    plug.host.struct_size = offsetof(kvt_host, ctx);
    opens();
    /* And one with a context and a log only. */
    plug.host.struct_size = offsetof(kvt_host, alloc);
    opens();
    /* A newer one: functions that we do not know are ignored. */
    struct {
        kvt_host host;
        void *more[4];
    } newer;
    memset(&newer, 0x5a, sizeof(newer));
    newer.host = plug.host;
    newer.host.struct_size = sizeof(newer);
    ck_assert_int_eq(plug.entry->open(&newer.host, &plug.config, &engine, NULL, 0), KVT_OK);
    ck_assert_int_eq(plug.entry->close(engine), KVT_OK);
    kvt_plug_fini(&plug);
}
END_TEST

/* A config of an older, a newer, and a newer caller that uses what is new. */
START_TEST(configs_of_other_lengths)
{
    kvt_engine *engine = NULL;
    struct {
        kvt_open_config config;
        uint64_t more[2];
    } newer = {0};
    kvt_plug_init(&plug);
    newer.config = plug.config;
    newer.config.struct_size = sizeof(newer);
    ck_assert_int_eq(plug.entry->open(&plug.host, &newer.config, &engine, NULL, 0), KVT_OK);
    ck_assert_int_eq(plug.entry->close(engine), KVT_OK);
    engine = NULL;
    newer.more[1] = 1;
    ck_assert_int_eq(
        plug.entry->open(&plug.host, &newer.config, &engine, plug.why, sizeof(plug.why)),
        KVT_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(plug.why, "does not know"));
    ck_assert_ptr_null(engine);
    /* Everything behind host_bytes is as if it were zero. */
    plug.config.struct_size = offsetof(kvt_open_config, lease_ttl_ns);
    plug.config.flags = 77;
    plug.config.evict_policy_bytes = 77;
    ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, &engine, NULL, 0), KVT_OK);
    ck_assert_int_eq(plug.entry->close(engine), KVT_OK);
    /* Too short for anything, or never set. */
    plug.config.struct_size = 4;
    ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, &engine, NULL, 0), KVT_ERR_INVAL);
    plug.config.struct_size = 1u << 30;
    ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, &engine, NULL, 0), KVT_ERR_INVAL);
    kvt_plug_fini(&plug);
}
END_TEST

/* ---- bind ---- */

static struct kvt_plug_engine engine;

static void bind_refused(kvt_status want, const char *words)
{
    uint64_t binding = 77;
    plug.why[0] = '\0';
    kvt_status got =
        plug.entry->bind(engine.engine, &engine.layout, &binding, plug.why, sizeof(plug.why));
    if (got != want || binding != 77 || strstr(plug.why, words) == NULL) {
        ck_abort_msg("%s and not %s: '%s' does not name '%s'", kvt_status_name(got),
                     kvt_status_name(want), plug.why, words);
    }
    ck_assert_int_eq(plug.entry->bind(engine.engine, &engine.layout, &binding, NULL, 0), want);
    kvt_plug_close_unbound(&engine);
    kvt_plug_open_unbound(&engine, &plug);
}

START_TEST(layouts)
{
    uint64_t binding = 77;
    kvt_plug_init(&plug);
    kvt_plug_open_unbound(&engine, &plug);
    ck_assert_int_eq(plug.entry->bind(NULL, &engine.layout, &binding, NULL, 0), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->bind(engine.engine, &engine.layout, NULL, NULL, 0), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->bind(engine.engine, NULL, &binding, plug.why, sizeof(plug.why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(plug.why, "KVT_LAYOUT_INIT"));
    engine.layout.struct_size = 0;
    bind_refused(KVT_ERR_INVAL, "KVT_LAYOUT_INIT");
    engine.layout.regions = NULL;
    bind_refused(KVT_ERR_INVAL, "regions");
    engine.layout.region_count = 0;
    bind_refused(KVT_ERR_INVAL, "regions");
    engine.layout.region_count = KVT_REGIONS_MAX + 1;
    bind_refused(KVT_ERR_INVAL, "4096 regions");
    engine.layout.device_kind = KVT_MEMORY_CUDA;
    bind_refused(KVT_ERR_UNSUPPORTED, "device kind 1");
    engine.layout.block_tokens = 7;
    bind_refused(KVT_ERR_INVAL, "block of 7 tokens");
    engine.layout.block_tokens = 0;
    bind_refused(KVT_ERR_INVAL, "block of 0 tokens");
    engine.layout.block_count = 0;
    bind_refused(KVT_ERR_INVAL, "0 blocks");
    engine.regions[1].memory_kind = KVT_MEMORY_CUDA;
    bind_refused(KVT_ERR_UNSUPPORTED, "region 1");
    engine.regions[1].group = 3;
    bind_refused(KVT_ERR_UNSUPPORTED, "group 3");
    engine.regions[1].base = 0;
    bind_refused(KVT_ERR_INVAL, "region 1");
    engine.regions[0].block_bytes = 0;
    bind_refused(KVT_ERR_INVAL, "region 0");
    engine.regions[0].stride_bytes = engine.regions[0].block_bytes - 1;
    bind_refused(KVT_ERR_INVAL, "region 0");
    engine.regions[0].block_bytes = engine.regions[0].stride_bytes = 1u << 20;
    bind_refused(KVT_ERR_INVAL, "does not hold one page");
    engine.regions[0].struct_size = 4;
    bind_refused(KVT_ERR_INVAL, "region 0 has a struct_size");
    engine.regions[1].struct_size = sizeof(kvt_region) - 8;
    bind_refused(KVT_ERR_INVAL, "region 1 has a struct_size");
    kvt_plug_close_unbound(&engine);
    kvt_plug_fini(&plug);
}
END_TEST

/* Regions of a newer engine are longer; stepped by what the first says. */
START_TEST(regions_of_other_lengths)
{
    struct {
        kvt_region region;
        uint64_t more;
    } newer[KVT_PLUG_REGIONS];
    uint32_t tokens[65];
    kvt_plug_init(&plug);
    kvt_plug_open_unbound(&engine, &plug);
    memset(newer, 0, sizeof(newer));
    for (uint32_t i = 0; i < KVT_PLUG_REGIONS; i++) {
        newer[i].region = engine.regions[i];
        newer[i].region.struct_size = sizeof(newer[i]);
    }
    engine.layout.regions = &newer[0].region;
    ck_assert_int_eq(plug.entry->bind(engine.engine, &engine.layout, &engine.binding, plug.why,
                                      sizeof(plug.why)),
                     KVT_OK);
    ck_assert_int_eq(engine.streams->stream_create(engine.engine, &engine.stream), KVT_OK);
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_plug_put(&engine, tokens, 4);
    ck_assert_uint_eq(kvt_plug_get(&engine, tokens, 65), 4);
    newer[1].more = 1;
    uint64_t binding = 77;
    ck_assert_int_eq(
        plug.entry->bind(engine.engine, &engine.layout, &binding, plug.why, sizeof(plug.why)),
        KVT_ERR_UNSUPPORTED);
    ck_assert_uint_eq(binding, 77);
    kvt_plug_close(&engine);
    kvt_plug_fini(&plug);
}
END_TEST

/* ---- roles, and closing ---- */

START_TEST(roles)
{
    uint32_t tokens[65], blocks[8];
    uint64_t job = 0;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_plug_init(&plug);
    plug.config.role = KVT_ROLE_SCHEDULER;
    kvt_plug_open_unbound(&engine, &plug);
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_blocks(blocks, 0, 8);
    ck_assert_int_eq(plug.entry->bind(engine.engine, &engine.layout, &engine.binding, plug.why,
                                      sizeof(plug.why)),
                     KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(plug.why, "rank"));
    kvt_save save = kvt_plug_save(&engine, tokens, 64, blocks);
    kvt_restore restore = kvt_plug_restore(&engine, 1, 64, blocks);
    ck_assert_int_eq(plug.entry->save(engine.engine, &save, &job), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->restore(engine.engine, &restore, &job), KVT_ERR_INVAL);
    kvt_lookup lookup = kvt_plug_lookup(1, tokens, 65);
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = 1, report.prompt_tokens = report.computed_tokens = 65;
    ck_assert_int_eq(plug.entry->report(engine.engine, &report), KVT_OK);
    kvt_plug_close_unbound(&engine);
    plug.config.role = KVT_ROLE_RANK;
    kvt_plug_open(&engine, &plug);
    kvt_plug_put(&engine, tokens, 4);
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->report(engine.engine, &report), KVT_ERR_INVAL);
    kvt_plug_close(&engine);
    kvt_plug_fini(&plug);
}
END_TEST

/* Closing while anything is left frees nothing. */
START_TEST(closing_too_early)
{
    uint32_t tokens[65], blocks[8];
    uint64_t job = 0;
    void *event = NULL;
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_rig_tokens(tokens, 0, 65, 1);
    kvt_rig_blocks(blocks, 0, 8);
    ck_assert_int_eq(plug.entry->close(NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(plug.entry->close(engine.engine), KVT_ERR_BUSY);
    ck_assert_int_eq(engine.faults->set(engine.engine, KVT_FAULT_HOLD_COPIES, 1), KVT_OK);
    kvt_rig_paint(&engine.memory, tokens, 0, 4, blocks);
    kvt_save save = kvt_plug_save(&engine, tokens, 64, blocks);
    save.flags = KVT_JOB_DETACHED;
    ck_assert_int_eq(plug.entry->save(engine.engine, &save, NULL), KVT_OK);
    ck_assert_int_eq(plug.entry->unbind(engine.engine, engine.binding), KVT_ERR_BUSY);
    ck_assert_int_eq(plug.entry->quiesce(engine.engine, KVT_RIG_MS), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(plug.entry->close(engine.engine), KVT_ERR_BUSY);
    ck_assert_int_eq(engine.faults->set(engine.engine, KVT_FAULT_HOLD_COPIES, 0), KVT_OK);
    ck_assert_int_eq(plug.entry->quiesce(engine.engine, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_int_eq(plug.entry->close(engine.engine), KVT_ERR_BUSY);
    ck_assert_int_eq(engine.streams->event_create(engine.engine, &event), KVT_OK);
    ck_assert_uint_eq(kvt_plug_get(&engine, tokens, 65), 4);
    engine.streams->stream_destroy(engine.engine, engine.stream);
    ck_assert_int_eq(plug.entry->unbind(engine.engine, engine.binding), KVT_OK);
    ck_assert_int_eq(plug.entry->close(engine.engine), KVT_ERR_BUSY);
    engine.streams->event_destroy(engine.engine, event);
    kvt_plug_close_unbound(&engine);
    kvt_plug_fini(&plug);
    ck_assert_uint_eq(job, 0);
}
END_TEST

/* Several engines in one process know nothing of each other. */
START_TEST(several_engines)
{
    static struct kvt_plug_engine engines[3];
    uint32_t tokens[65];
    uint64_t lease_imported = 77;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_lease_token token = {.struct_size = sizeof(token)};
    kvt_plug_init(&plug);
    kvt_rig_tokens(tokens, 0, 65, 1);
    for (uint32_t i = 0; i < 3; i++) {
        kvt_plug_open(&engines[i], &plug);
        engines[i].memory.weights = i;
        ck_assert_uint_eq(kvt_plug_get(&engines[i], tokens, 65), 0);
        kvt_plug_put(&engines[i], tokens, 4);
    }
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(kvt_plug_get(&engines[i], tokens, 65), 4);
    }
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, 65);
    ck_assert_int_eq(plug.entry->lookup(engines[0].engine, &lookup, &found), KVT_OK);
    ck_assert_int_eq(plug.entry->lease_export(engines[0].engine, found.lease, &token), KVT_OK);
    ck_assert_int_eq(plug.entry->lease_import(engines[1].engine, &token, &lease_imported),
                     KVT_ERR_STALE);
    ck_assert_uint_eq(lease_imported, 77);
    ck_assert_int_eq(plug.entry->release(engines[1].engine, found.lease), KVT_ERR_STALE);
    ck_assert_int_eq(plug.entry->release(engines[0].engine, found.lease), KVT_OK);
    for (uint32_t i = 0; i < 3; i++) {
        kvt_plug_close(&engines[i]);
    }
    kvt_plug_fini(&plug);
}
END_TEST

int main(void)
{
    kvt_plug_load();
    Suite *suite = suite_create("plugin_open");
    TCase *tcase = tcase_create("plugin_open");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, the_entry);
    tcase_add_test(tcase, configs);
    tcase_add_test(tcase, namespace_fields);
    tcase_add_test(tcase, hosts);
    tcase_add_test(tcase, configs_of_other_lengths);
    tcase_add_test(tcase, layouts);
    tcase_add_test(tcase, regions_of_other_lengths);
    tcase_add_test(tcase, roles);
    tcase_add_test(tcase, closing_too_early);
    tcase_add_test(tcase, several_engines);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
