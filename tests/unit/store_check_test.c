/*
 * kvt_store_check(): what it must find, what it must not call damage, and what is left after
 * repair.
 *
 * A set of two stores is made once, through the tier, with the keys that a cache would give its
 * pages; every case damages a copy of it in one way.
 */
#include "tests/support/check_rig.h"

/* ---- cases ---- */

START_TEST(test_untouched)
{
    is_clean(&original, PAGES);
    struct kvt_store_check_result result = look_good(&original, 0);
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.verified, 0);
    ck_assert_uint_eq(result.stores, STORES);
    ck_assert_uint_eq(result.namespaces, 1);
    ck_assert_uint_eq(result.owner_pid, 0);
    struct set set;
    set_copy(&set);
    /* Repair of what is whole changes nothing. */
    result = look_good(&set, KVT_STORE_REPAIR | KVT_STORE_VERIFY);
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.repaired, 0);
    ck_assert_uint_eq(count_page(&set), PAGES);
    set_remove(&set);
}
END_TEST

START_TEST(test_data_bits)
{
    struct test_random random = test_random_start("data bits", 11);
    for (uint64_t round = 0; round < test_scaled(12); round++) {
        struct set set;
        set_copy(&set);
        const struct loaded *loaded = records_read(&set);
        uint64_t i = test_random_below(&random, PAGES);
        uint64_t lost = 1 + behind(loaded, i);
        uint32_t store;
        char path[PATH_BYTES + 64];
        off_t at = page_offset(&set, loaded, i, &store);
        path_of(&set, store, KVT_STORE_DATA_FILE, path);
        /* Behind the payload nothing counts: the control. */
        byte_flip(path, at + PAGE_BYTES, 1);
        is_clean(&set, PAGES);
        byte_flip(path, at + (off_t)test_random_below(&random, PAGE_BYTES),
                  (unsigned char)(1u << test_random_below(&random, 8)));
        struct kvt_store_check_result result = look_good(&set, 0);
        ck_assert_uint_eq(result.damaged, 0);
        result = look_good(&set, KVT_STORE_VERIFY);
        ck_assert_uint_eq(result.damaged, 1);
        ck_assert_uint_eq(result.corrupt_pages, 1);
        ck_assert_uint_eq(result.dependent_pages, lost - 1);
        ck_assert_uint_eq(result.verified_pages, PAGES - 1);
        result = look_good(&set, KVT_STORE_VERIFY | KVT_STORE_REPAIR);
        ck_assert_uint_eq(result.damaged, 1);
        ck_assert_uint_eq(result.repaired, 1);
        ck_assert_uint_eq(result.removed_pages, lost);
        is_clean(&set, PAGES - lost);
        ck_assert_uint_eq(count_page(&set), PAGES - lost);
        set_remove(&set);
    }
}
END_TEST

START_TEST(test_record_bits)
{
    struct test_random random = test_random_start("record bits", 12);
    for (uint64_t round = 0; round < test_scaled(12); round++) {
        struct set set;
        set_copy(&set);
        const struct loaded *loaded = records_read(&set);
        uint64_t i = test_random_below(&random, PAGES);
        uint64_t after = behind(loaded, i);
        record_flip(&set, loaded, i, test_random_below(&random, loaded->page[i].record_bytes));
        struct kvt_store_check_result result = look_good(&set, 0);
        ck_assert_uint_eq(result.damaged, 1);
        ck_assert_uint_eq(result.damaged_records, 1);
        ck_assert_uint_eq(result.orphaned_pages, after > 0);
        ck_assert_uint_eq(result.dependent_pages, after > 0 ? after - 1 : 0);
        result = look_good(&set, KVT_STORE_REPAIR);
        ck_assert_uint_eq(result.repaired, 1);
        is_clean(&set, PAGES - 1 - after);
        ck_assert_uint_eq(count_page(&set), PAGES - 1 - after);
        set_remove(&set);
    }
}
END_TEST

/* Any bit of the catalog's file: found, or of no consequence; repair gets it clean. */
START_TEST(test_catalog_bits)
{
    struct test_random random = test_random_start("catalog bits", 13);
    uint64_t found = 0, rounds = test_scaled(40);
    for (uint64_t round = 0; round < rounds; round++) {
        struct set set;
        struct said said;
        struct kvt_store_check_result result;
        struct stat is;
        char path[PATH_BYTES + 64];
        set_copy(&set);
        path_of(&set, 0, KVT_STORE_CATALOG_DATA, path);
        EXPECT(stat(path, &is) == 0);
        for (uint32_t k = 0; k < 8; k++) {
            byte_flip(path, (off_t)test_random_below(&random, (uint32_t)is.st_size),
                      (unsigned char)(1u << test_random_below(&random, 8)));
        }
        kvt_status status = look(set.folders, STORES, KVT_STORE_VERIFY, &result, &said);
        if (status == KVT_OK && result.damaged == 0) {
            ck_assert_uint_eq(result.verified_pages, PAGES);
        } else {
            found++;
            status = look(set.folders, STORES, KVT_STORE_VERIFY | KVT_STORE_REPAIR, &result, &said);
            if (status != KVT_OK) {
                ck_abort_msg("round %llu: %s\n%s", (unsigned long long)round, why, said.text);
            }
            ck_assert_uint_eq(result.repaired, 1);
            uint64_t left = look_good(&set, 0).pages;
            is_clean(&set, left);
            ck_assert_uint_eq(count_page(&set), left);
        }
        set_remove(&set);
    }
    (void)printf("%llu of %llu were damage\n", (unsigned long long)found,
                 (unsigned long long)rounds);
    EXPECT(found > 0);
}
END_TEST

enum blow {
    HEADER_BIT,
    HEADER_GONE,
    SECOND_HEADER_BIT,
    BOTH_HEADERS,
    DATA_CUT,
    DATA_GONE,
    CATALOG_GONE,
    CATALOG_EMPTY,
    CATALOG_ZEROES,
    BLOWS
};

/* Pages that must be there after repair: all, some, none. */
enum { ALL, SOME, NONE };
static const struct {
    int left;
    const char *says;
} blows[BLOWS] = {
    [HEADER_BIT] = {ALL, "store.kvt is damaged"},
    [HEADER_GONE] = {ALL, "store.kvt is missing"},
    [SECOND_HEADER_BIT] = {ALL, "store.kvt is damaged"},
    [BOTH_HEADERS] = {ALL, "store.kvt is damaged"},
    [DATA_CUT] = {SOME, "data.kvt was cut"},
    [DATA_GONE] = {SOME, "data.kvt is missing"},
    [CATALOG_GONE] = {NONE, "catalog cannot be opened"},
    [CATALOG_EMPTY] = {NONE, "catalog cannot be opened"},
    [CATALOG_ZEROES] = {NONE, "catalog cannot be opened"},
};

static void strike(const struct set *set, enum blow blow)
{
    char path[PATH_BYTES + 64], second[PATH_BYTES + 64], data[PATH_BYTES + 64];
    char catalog[PATH_BYTES + 64];
    path_of(set, 0, KVT_STORE_HEADER_FILE, path);
    path_of(set, 1, KVT_STORE_HEADER_FILE, second);
    path_of(set, 1, KVT_STORE_DATA_FILE, data);
    path_of(set, 0, KVT_STORE_CATALOG_DATA, catalog);
    switch (blow) {
    case HEADER_BIT:
        byte_flip(path, 60, 4);
        break;
    case HEADER_GONE:
        EXPECT(unlink(path) == 0);
        break;
    case SECOND_HEADER_BIT:
        byte_flip(second, 4000, 1);
        break;
    case BOTH_HEADERS:
        byte_flip(path, 20, 4);
        byte_flip(second, 0, 1);
        break;
    case DATA_CUT:
        EXPECT(truncate(data, 10 * 12288) == 0);
        break;
    case DATA_GONE:
        EXPECT(unlink(data) == 0);
        break;
    case CATALOG_GONE:
        EXPECT(unlink(catalog) == 0);
        break;
    case CATALOG_EMPTY:
        EXPECT(truncate(catalog, 0) == 0);
        break;
    case CATALOG_ZEROES:
        EXPECT(truncate(catalog, 0) == 0 && truncate(catalog, 65536) == 0);
        break;
    case BLOWS:
        break;
    }
}

START_TEST(test_blows)
{
    enum blow blow = (enum blow)_i;
    struct set set;
    struct said said;
    struct kvt_store_check_result result;
    set_copy(&set);
    strike(&set, blow);
    kvt_status status = look(set.folders, STORES, 0, &result, &said);
    if (status != KVT_OK || result.damaged != 1 || result.damaged_files == 0 ||
        strstr(said.text, blows[blow].says) == NULL) {
        ck_abort_msg("blow %d: %s '%s': %s", (int)blow, kvt_status_name(status), why, said.text);
    }
    status = look(set.folders, STORES, KVT_STORE_REPAIR, &result, &said);
    if (status != KVT_OK || result.repaired != 1 || said.kinds[KVT_STORE_FOUND_REPAIR] == 0) {
        ck_abort_msg("blow %d: %s '%s': %s", (int)blow, kvt_status_name(status), why, said.text);
    }
    uint64_t left = look_good(&set, 0).pages;
    EXPECT(blows[blow].left != ALL || left == PAGES);
    EXPECT(blows[blow].left != SOME || (left > 0 && left < PAGES));
    EXPECT(blows[blow].left != NONE || left == 0);
    is_clean(&set, left);
    ck_assert_uint_eq(count_page(&set), left);
    set_remove(&set);
}
END_TEST

START_TEST(test_nothing_left)
{
    struct set set;
    struct said said;
    struct kvt_store_check_result result;
    char path[PATH_BYTES + 64];
    set_copy(&set);
    strike(&set, BOTH_HEADERS);
    strike(&set, CATALOG_ZEROES);
    ck_assert_int_eq(look(set.folders, STORES, KVT_STORE_REPAIR, &result, &said), KVT_ERR_CORRUPT);
    EXPECT(strstr(why, "nothing was changed") != NULL);
    /* And an empty folder where a drive should be mounted is never filled. */
    set_remove(&set);
    set_copy(&set);
    path_of(&set, 1, KVT_STORE_DATA_FILE, path);
    EXPECT(unlink(path) == 0);
    path_of(&set, 1, KVT_STORE_HEADER_FILE, path);
    EXPECT(unlink(path) == 0);
    ck_assert_int_eq(look(set.folders, STORES, KVT_STORE_REPAIR, &result, &said), KVT_ERR_STALE);
    EXPECT(strstr(why, "mount its drive") != NULL && access(path, F_OK) != 0);
    set_remove(&set);
}
END_TEST

/* ---- input ---- */

START_TEST(test_input)
{
    static const uint32_t flags[] = {0, KVT_STORE_VERIFY, KVT_STORE_REPAIR,
                                     KVT_STORE_VERIFY | KVT_STORE_REPAIR | KVT_STORE_BUFFERED};
    struct set set, empty;
    set_copy(&set);
    set_name(&empty);
    char long_name[PATH_BYTES * 4];
    char file[PATH_BYTES + 64];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    path_of(&set, 0, KVT_STORE_DATA_FILE, file);
    const char *null_list[] = {set.folders[0], NULL};
    const char *blank_list[] = {""};
    const char *long_list[] = {long_name};
    const char *none_list[] = {"/none/such"};
    const char *file_list[] = {file};
    const char *empty_list[] = {empty.root};
    const char *swapped[] = {set.folders[1], set.folders[0]};
    const char *twice[] = {set.folders[0], set.folders[0]};
    const char *foreign[] = {set.folders[0], original.folders[0]};
    const char *third[] = {set.folders[0], set.folders[1], set.folders[1]};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        refused(NULL, 1, flags[i], KVT_ERR_INVAL, "give 1 to 8");
        refused(set.folders, 0, flags[i], KVT_ERR_INVAL, "give 1 to 8");
        refused(set.folders, KVT_STORE_SET_MAX + 1, flags[i], KVT_ERR_INVAL, "give 1 to 8");
        refused(set.folders, STORES, flags[i] | 64u, KVT_ERR_INVAL, "known flags");
        refused(null_list, 2, flags[i], KVT_ERR_INVAL, "store 2 has no folder");
        refused(blank_list, 1, flags[i], KVT_ERR_INVAL, "store 1 has no folder");
        refused(long_list, 1, flags[i], KVT_ERR_INVAL, "too long");
        refused(none_list, 1, flags[i], KVT_ERR_IO, "No such file");
        refused(file_list, 1, flags[i], KVT_ERR_IO, "Not a directory");
        refused(empty_list, 1, flags[i], KVT_ERR_STALE, "there is no store");
        refused(set.folders, 1, flags[i], KVT_ERR_INVAL, "store 2");
        refused(set.folders + 1, 1, flags[i], KVT_ERR_INVAL, "it is store 2 of its set");
        refused(swapped, 2, flags[i], KVT_ERR_INVAL, "in the order");
    }
    refused(twice, 2, 0, KVT_ERR_INVAL, "in the order");
    refused(foreign, 2, 0, KVT_ERR_INVAL, "in the order");
    refused(third, 3, 0, KVT_ERR_INVAL, "in the order");
    is_clean(&set, PAGES);
    set_remove(&set);
    set_remove(&empty);
}
END_TEST

/* The right number of another set. */
START_TEST(test_foreign)
{
    struct set set, other;
    struct said said;
    struct kvt_store_check_result result;
    struct kvt_store_bench *bench = NULL;
    set_copy(&set);
    set_name(&other);
    const struct kvt_store_bench_config config = bench_config(&other);
    EXPECT(kvt_store_bench_open(&config, &bench, why, sizeof(why)) == KVT_OK);
    kvt_store_bench_close(bench);
    const char *mixed[] = {set.folders[0], other.folders[1]};
    ck_assert_int_eq(look(mixed, 2, 0, &result, &said), KVT_OK);
    ck_assert_uint_eq(result.damaged, 1);
    EXPECT(strstr(said.text, "it is not the store 2 that the catalog knows") != NULL);
    refused(mixed, 2, KVT_STORE_REPAIR, KVT_ERR_INVAL, "nothing was changed");
    is_clean(&set, PAGES);
    is_clean(&other, 0);
    set_remove(&set);
    set_remove(&other);
}
END_TEST

/* ---- reading only ---- */

START_TEST(test_leftovers)
{
    struct set set;
    char path[PATH_BYTES + 64], from[PATH_BYTES + 64];
    set_copy(&set);
    path_of(&set, 1, KVT_STORE_HEADER_FILE, from);
    path_of(&set, 1, KVT_STORE_HEADER_FILE ".new", path);
    program_run("cp", "-a", from, path);
    path_of(&set, 0, KVT_STORE_DATA_FILE, path);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    EXPECT(fd >= 0 && write(fd, path, 8) == 8 && close(fd) == 0);
    struct kvt_store_check_result result = look_good(&set, KVT_STORE_VERIFY);
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.leftovers, 2);
    set_remove(&set);
}
END_TEST

/* A sum over names, times and sizes of all files below. */
static uint64_t folder_sum(const char *folder)
{
    uint64_t sum = 0;
    DIR *dir = opendir(folder);
    EXPECT(dir != NULL);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[PATH_BYTES * 2];
        struct stat is;
        if (strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        EXPECT(lstat(path, &is) == 0);
        struct test_random mixed = {(uint64_t)is.st_ino * 31 + (uint64_t)is.st_mtim.tv_nsec * 7 +
                                    (uint64_t)is.st_mtim.tv_sec + (uint64_t)is.st_ctim.tv_nsec * 3 +
                                    (uint64_t)is.st_size + is.st_mode};
        sum += test_random_u64(&mixed);
        if (S_ISDIR(is.st_mode) && strcmp(entry->d_name, ".") != 0) {
            sum += folder_sum(path);
        }
    }
    (void)closedir(dir);
    return sum;
}

START_TEST(test_read_only)
{
    struct set set;
    set_copy(&set);
    for (int blow = -1; blow < (int)BLOWS; blow++) {
        if (blow >= 0) {
            set_remove(&set);
            set_copy(&set);
            strike(&set, (enum blow)blow);
        }
        struct kvt_store_check_result result;
        struct said said;
        uint64_t before = folder_sum(set.root);
        EXPECT(look(set.folders, STORES, KVT_STORE_VERIFY, &result, &said) == KVT_OK);
        EXPECT(folder_sum(set.root) == before);
    }
    /* The control: repair is seen. */
    uint64_t before = folder_sum(set.root);
    EXPECT(look_good(&set, KVT_STORE_REPAIR).repaired == 1);
    EXPECT(folder_sum(set.root) != before);
    set_remove(&set);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("store check");
    TCase *looks = tcase_create("looks");
    tcase_add_unchecked_fixture(looks, original_make, original_remove);
    tcase_add_test(looks, test_untouched);
    tcase_add_test(looks, test_data_bits);
    tcase_add_test(looks, test_record_bits);
    tcase_add_test(looks, test_catalog_bits);
    tcase_add_loop_test(looks, test_blows, 0, BLOWS);
    tcase_add_test(looks, test_nothing_left);
    tcase_add_test(looks, test_input);
    tcase_add_test(looks, test_foreign);
    tcase_add_test(looks, test_read_only);
    tcase_add_test(looks, test_leftovers);
    suite_add_tcase(all, looks);
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
