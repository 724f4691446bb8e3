/*
 * The fuzzers' kept corpus, through the functions that are fuzzed: what was once found stays found,
 * also where there is no libFuzzer. Their sources are taken in as they are, under other names.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LLVMFuzzerTestOneInput kvt_fuzz_trace
#include "tests/fuzz/trace_fuzz.c" /* NOLINT(bugprone-suspicious-include): as said above */
#undef LLVMFuzzerTestOneInput
#undef KVT_FUZZ_H
#define LLVMFuzzerTestOneInput kvt_fuzz_options
#include "tests/fuzz/options_fuzz.c" /* NOLINT(bugprone-suspicious-include) */
#undef LLVMFuzzerTestOneInput

#define FILE_BYTES_MAX (1u << 20)
#define FILES_MIN 10u

static void run_file(const char *path, int (*fuzz)(const uint8_t *, size_t))
{
    unsigned char *data = malloc(FILE_BYTES_MAX);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(data);
    ck_assert_ptr_nonnull(file);
    size_t bytes = fread(data, 1, FILE_BYTES_MAX, file);
    ck_assert_int_eq(ferror(file), 0);
    (void)fclose(file);
    ck_assert_int_eq(fuzz(data, bytes), 0);
    free(data);
}

static unsigned run_folder(const char *folder, int (*fuzz)(const uint8_t *, size_t))
{
    DIR *dir = opendir(folder);
    ck_assert_msg(dir != NULL, "%s is not there: tests run in the repository's root", folder);
    unsigned count = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[512];
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
            run_file(path, fuzz);
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

START_TEST(traces)
{
    ck_assert_uint_ge(run_folder("tests/fuzz/corpus/trace", kvt_fuzz_trace), FILES_MIN);
}
END_TEST

START_TEST(options)
{
    ck_assert_uint_ge(run_folder("tests/fuzz/corpus/options", kvt_fuzz_options), FILES_MIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuzz corpus");
    TCase *tcase = tcase_create("corpus");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, traces);
    tcase_add_test(tcase, options);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
