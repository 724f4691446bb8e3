/*
 * Stores beside an owner, after one that was killed, and those that the benchmarks make.
 */
#include "tests/support/check_rig.h"

#include <signal.h>
#include <time.h>

START_TEST(test_owner)
{
    struct set set;
    struct said said;
    struct kvt_store_check_result result;
    struct kvt_store_bench *bench = NULL;
    struct kvt_store_bench_rate rate;
    set_name(&set);
    const struct kvt_store_bench_config config = bench_config(&set);
    EXPECT(kvt_store_bench_open(&config, &bench, why, sizeof(why)) == KVT_OK);
    EXPECT(kvt_store_bench_write(bench, &rate) == KVT_OK);
    ck_assert_int_eq(look(set.folders, STORES, KVT_STORE_VERIFY, &result, &said), KVT_OK);
    ck_assert_uint_eq(result.owner_pid, (uint64_t)getpid());
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.verified_pages, PAGES);
    EXPECT(said.kinds[KVT_STORE_FOUND_NOTE] > 0 && strstr(said.text, "of a moment ago") != NULL);
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "process %d has it open", (int)getpid());
    refused(set.folders, STORES, KVT_STORE_REPAIR, KVT_ERR_BUSY, pid);
    EXPECT(kvt_store_bench_read(bench, 4, &rate) == KVT_OK);
    kvt_store_bench_close(bench);
    is_clean(&set, PAGES);
    set_remove(&set);
}
END_TEST

_Noreturn static void owner_main(const struct set *set)
{
    const struct kvt_store_bench_config config = bench_config(set);
    struct kvt_store_bench *bench = NULL;
    struct kvt_store_bench_rate rate;
    if (kvt_store_bench_open(&config, &bench, why, sizeof(why)) == KVT_OK) {
        while (kvt_store_bench_write(bench, &rate) == KVT_OK) {
        }
    }
    _exit(1);
}

START_TEST(test_killed_owner)
{
    struct test_random random = test_random_start("killed owner", 14);
    for (uint64_t round = 0; round < test_scaled(8); round++) {
        struct set set;
        struct said said;
        struct kvt_store_check_result result;
        set_name(&set);
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0) {
            owner_main(&set);
        }
        const struct timespec pause = {0, 200000000 + test_random_below(&random, 790000000)};
        (void)nanosleep(&pause, NULL);
        EXPECT(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
        kvt_status status = look(set.folders, STORES, KVT_STORE_VERIFY, &result, &said);
        for (uint32_t i = 0; i < 100 && status == KVT_ERR_BUSY; i++) {
            (void)nanosleep(&(struct timespec){0, 50000000}, NULL);
            status = look(set.folders, STORES, KVT_STORE_VERIFY, &result, &said);
        }
        /* Killed while it was being made: there is no store yet. */
        if (status != KVT_ERR_STALE && status != KVT_ERR_IO &&
            (status != KVT_OK || result.damaged != 0)) {
            ck_abort_msg("round %llu: %s '%s': %s", (unsigned long long)round,
                         kvt_status_name(status), why, said.text);
        }
        set_remove(&set);
    }
}
END_TEST

/* ---- a catalog alone ---- */

START_TEST(test_fill)
{
    struct set set;
    struct said said;
    struct kvt_store_check_result result;
    uint64_t bytes = 0, ns = 0, records = 0;
    set_name(&set);
    struct kvt_store_fill_config config = {.folder = set.folders[0],
                                           .pages = 5000,
                                           .page_bytes = 4096,
                                           .page_tokens = PAGE_TOKENS,
                                           .churn_rounds = 3,
                                           .seed = 5};
    EXPECT(kvt_store_fill(&config, &bytes, why, sizeof(why)) == KVT_OK && bytes > 5000u * 4096u);
    EXPECT(kvt_store_uncache(set.folders[0], why, sizeof(why)) == KVT_OK);
    EXPECT(kvt_store_walk(set.folders[0], NULL, &ns, &records, why, sizeof(why)) == KVT_OK);
    ck_assert_uint_eq(records, 5000 + 1);
    ck_assert_int_eq(look(set.folders, 1, 0, &result, &said), KVT_OK);
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.pages, 5000);
    /* Nobody wrote the pages: the control of verifying. */
    ck_assert_int_eq(look(set.folders, 1, KVT_STORE_VERIFY, &result, &said), KVT_OK);
    ck_assert_uint_eq(result.corrupt_pages, 5000);
    EXPECT(kvt_store_walk(set.root, NULL, &ns, &records, why, sizeof(why)) != KVT_OK);
    EXPECT(kvt_store_uncache(set.root, why, sizeof(why)) == KVT_ERR_IO);
    config.pages = 0;
    EXPECT(kvt_store_fill(&config, &bytes, why, sizeof(why)) == KVT_ERR_INVAL);
    set_remove(&set);
}
END_TEST

START_TEST(test_bench_input)
{
    struct set set;
    struct kvt_store_bench *bench = NULL;
    struct kvt_store_bench_rate read, write;
    set_name(&set);
    const struct kvt_store_bench_config good = bench_config(&set);
    struct kvt_store_bench_config bad[9] = {good, good, good, good, good, good, good, good, good};
    bad[0].folders = NULL;
    bad[1].folder_count = 0;
    bad[2].folder_count = KVT_STORE_SET_MAX + 1;
    bad[3].bytes = PAGE_BYTES - 1;
    bad[4].page_bytes = 100;
    bad[5].batch_bytes = PAGE_BYTES - 1;
    bad[6].page_tokens = 0;
    bad[7].depth = 0;
    bad[8].depth = 257;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(kvt_store_bench_open(&bad[i], &bench, why, sizeof(why)), KVT_ERR_INVAL);
    }
    kvt_store_bench_close(NULL);
    EXPECT(kvt_store_bench_open(&good, &bench, why, sizeof(why)) == KVT_OK);
    EXPECT(kvt_store_bench_read(bench, 4, &read) == KVT_ERR_INVAL); /* nothing is written */
    EXPECT(kvt_store_bench_write(bench, &write) == KVT_OK);
    EXPECT(kvt_store_bench_read(bench, 0, &read) == KVT_ERR_INVAL);
    EXPECT(kvt_store_bench_read(bench, 5, &read) ==
           KVT_ERR_INVAL); /* more than it was opened for */
    EXPECT(kvt_store_bench_mixed(bench, 2, 0, &read, &write) == KVT_OK);
    ck_assert_uint_eq(read.pages, PAGES);
    EXPECT(read.p99_ns >= read.p50_ns && read.p50_ns > 0);
    kvt_store_bench_close(bench);
    is_clean(&set, PAGES);
    set_remove(&set);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("store bench");
    TCase *lives = tcase_create("lives");
    tcase_add_test(lives, test_owner);
    tcase_add_test(lives, test_killed_owner);
    tcase_add_test(lives, test_fill);
    tcase_add_test(lives, test_bench_input);
    suite_add_tcase(all, lives);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
