/* Words that are reserved must be zero: what is not is refused and changes nothing, so that a later
 * version can give them a meaning. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plugin_rig.h"
#include "tests/support/test_expect.h"

#define PAGES 2u
#define TOKENS (PAGES * KVT_PLUG_PAGE_TOKENS)

static struct kvt_plug plug;
static struct kvt_plug_engine engine;
static uint32_t tokens[TOKENS + 1];
/* The last one is the control. */
static const uint32_t reserved[] = {1, UINT32_C(1) << 31, UINT32_MAX, 0};
#define RESERVED (sizeof(reserved) / sizeof(reserved[0]))

static void open_engine(void)
{
    kvt_plug_init(&plug);
    kvt_plug_open(&engine, &plug);
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_plug_put(&engine, tokens, PAGES);
}

static void close_engine(void)
{
    kvt_plug_close(&engine);
    kvt_plug_fini(&plug);
}

static kvt_status wanted(size_t i) { return reserved[i] != 0 ? KVT_ERR_INVAL : KVT_OK; }

START_TEST(of_a_host)
{
    kvt_plug_init(&plug);
    for (size_t i = 0; i < RESERVED; i++) {
        kvt_engine *opened = NULL;
        char why[256] = "";
        plug.host.reserved0 = reserved[i];
        ck_assert_int_eq(plug.entry->open(&plug.host, &plug.config, &opened, why, sizeof(why)),
                         wanted(i));
        if (opened != NULL) {
            ck_assert_int_eq(plug.entry->close(opened), KVT_OK);
        } else {
            ck_assert_ptr_nonnull(strstr(why, "reserved0"));
        }
    }
    kvt_plug_fini(&plug);
}
END_TEST

START_TEST(of_a_region)
{
    open_engine();
    for (uint32_t region = 0; region < KVT_PLUG_REGIONS; region++) {
        for (size_t i = 0; i < RESERVED; i++) {
            uint64_t binding = 77;
            char why[256] = "";
            engine.regions[region].reserved0 = reserved[i];
            ck_assert_int_eq(
                plug.entry->bind(engine.engine, &engine.layout, &binding, why, sizeof(why)),
                wanted(i));
            if (reserved[i] == 0) {
                ck_assert_int_eq(plug.entry->unbind(engine.engine, binding), KVT_OK);
            } else {
                ck_assert_uint_eq(binding, 77);
                ck_assert_ptr_nonnull(strstr(why, "reserved0"));
            }
        }
    }
    close_engine();
}
END_TEST

START_TEST(of_a_lookup_and_its_report)
{
    open_engine();
    for (size_t i = 0; i < RESERVED; i++) {
        kvt_lookup lookup = kvt_plug_lookup(1, tokens, TOKENS + 1);
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        found.lease = 77;
        lookup.reserved0 = reserved[i];
        ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), wanted(i));
        ck_assert_int_eq(found.lease == 77, reserved[i] != 0);
        ck_assert_uint_eq(kvt_plug_stats(&engine).leases, reserved[i] == 0);
    }
    for (size_t i = 0; i < RESERVED; i++) {
        kvt_report report = KVT_REPORT_INIT;
        report.request_id = 1;
        report.prompt_tokens = report.computed_tokens = TOKENS + 1;
        report.reserved0 = reserved[i];
        ck_assert_int_eq(plug.entry->report(engine.engine, &report), wanted(i));
        ck_assert_uint_eq(kvt_plug_stats(&engine).requests_reported, reserved[i] == 0);
    }
    close_engine();
}
END_TEST

START_TEST(of_a_lease_token)
{
    open_engine();
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), KVT_OK);
    kvt_lease_token token = {.struct_size = sizeof(token), .reserved0 = 5};
    ck_assert_int_eq(plug.entry->lease_export(engine.engine, found.lease, &token), KVT_OK);
    ck_assert_uint_eq(token.reserved0, 0);
    for (size_t i = 0; i < RESERVED; i++) {
        uint64_t lease = 77;
        token.reserved0 = reserved[i];
        ck_assert_int_eq(plug.entry->lease_import(engine.engine, &token, &lease), wanted(i));
        ck_assert_uint_eq(lease, reserved[i] != 0 ? 77 : found.lease);
    }
    ck_assert_int_eq(plug.entry->release(engine.engine, found.lease), KVT_OK);
    close_engine();
}
END_TEST

START_TEST(of_a_field)
{
    open_engine();
    for (size_t i = 0; i < RESERVED; i++) {
        const kvt_field salt = {KVT_FIELD_SALT, reserved[i], "s", 1};
        const uint32_t blocks[2 * PAGES] = {0, 1, 2, 3};
        uint64_t job = 77;
        kvt_lookup lookup = kvt_plug_lookup(0, tokens, TOKENS + 1);
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        lookup.fields = &salt, lookup.field_count = 1;
        ck_assert_int_eq(plug.entry->lookup(engine.engine, &lookup, &found), wanted(i));
        kvt_save save = kvt_plug_save(&engine, tokens, TOKENS, blocks);
        save.fields = &salt, save.field_count = 1;
        ck_assert_int_eq(plug.entry->save(engine.engine, &save, &job), wanted(i));
        if (reserved[i] == 0) {
            ck_assert_int_eq(kvt_plug_finish(&engine, job).status, KVT_OK);
        } else {
            ck_assert_uint_eq(job, 77);
        }
    }
    close_engine();
}
END_TEST

int main(void)
{
    kvt_plug_load();
    Suite *suite = suite_create("plugin_reserved");
    TCase *tcase = tcase_create("plugin_reserved");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, of_a_host);
    tcase_add_test(tcase, of_a_region);
    tcase_add_test(tcase, of_a_lookup_and_its_report);
    tcase_add_test(tcase, of_a_lease_token);
    tcase_add_test(tcase, of_a_field);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
