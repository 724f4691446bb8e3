/*
 * A host that was compiled from a next version's header (next/, made by next.awk: members at the
 * end of structs, a function at the end of the table) works with today's plug-in and with an old
 * one, and learns what they do not know.
 */
#include "tests/abi/next/kvt_engine.h"

#include "tests/abi/small_host.h"

static struct small_host small;

static const char *plugin_path(int which) { return which == 0 ? NULL : small_old_plugin(); }

START_TEST(what_is_zero_is_accepted)
{
    small_load(&small, plugin_path(_i));
    EXPECT(small.entry->struct_size < sizeof(kvt_plugin_entry));
    small_open(&small);
    small_course(&small);
    small_close(&small);
}
END_TEST

START_TEST(what_is_not_known_is_refused)
{
    kvt_engine *none = NULL;
    small_load(&small, plugin_path(_i));
    kvt_open_config config = small_config(&small);
    config.next_member = 1;
    ck_assert_int_eq(small.entry->open(&small.host, &config, &none, small.why, sizeof(small.why)),
                     KVT_ERR_UNSUPPORTED);
    ck_assert_ptr_null(none);
    ck_assert_str_ne(small.why, "");
    small_open(&small);
    kvt_lookup lookup = small_lookup(&small, 9);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT, untouched = KVT_LOOKUP_RESULT_INIT;
    lookup.next_member = UINT64_C(1) << 63;
    ck_assert_int_eq(small.entry->lookup(small.engine, &lookup, &found), KVT_ERR_UNSUPPORTED);
    ck_assert_mem_eq(&found, &untouched, sizeof(found));
    lookup.next_member = 0; /* the control */
    ck_assert_int_eq(small.entry->lookup(small.engine, &lookup, &found), KVT_OK);
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = 9;
    report.prompt_tokens = report.computed_tokens = SMALL_TOKENS + 1;
    ck_assert_int_eq(small.entry->report(small.engine, &report), KVT_OK);
    small_close(&small);
}
END_TEST

START_TEST(what_is_not_known_is_zero_in_results)
{
    kvt_stats stats;
    small_load(&small, plugin_path(_i));
    small_open(&small);
    memset(&stats, 0xff, sizeof(stats));
    stats.struct_size = (uint32_t)sizeof(stats);
    ck_assert_int_eq(small.entry->stats(small.engine, &stats), KVT_OK);
    ck_assert_uint_eq(stats.next_member, 0);
    /* The control: a host that does not have the member keeps what lies behind its struct. */
    memset(&stats, 0xff, sizeof(stats));
    stats.struct_size = (uint32_t)offsetof(kvt_stats, next_member);
    ck_assert_int_eq(small.entry->stats(small.engine, &stats), KVT_OK);
    ck_assert_uint_eq(stats.next_member, UINT64_MAX);
    ck_assert_uint_eq(stats.huge_pages <= 1, 1);
    small_close(&small);
}
END_TEST

START_TEST(what_is_not_there_shows)
{
    small_load(&small, plugin_path(_i));
    EXPECT(!KVT_HAS(kvt_plugin_entry, small.entry, next_function));
    EXPECT(KVT_HAS(kvt_plugin_entry, small.entry, get_extension)); /* the control */
    (void)dlclose(small.library);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_loop_test(tcase, what_is_zero_is_accepted, 0, 2);
    tcase_add_loop_test(tcase, what_is_not_known_is_refused, 0, 2);
    tcase_add_loop_test(tcase, what_is_not_known_is_zero_in_results, 0, 2);
    tcase_add_loop_test(tcase, what_is_not_there_shows, 0, 2);
}

int main(void) { return small_main("next_host", add); }
