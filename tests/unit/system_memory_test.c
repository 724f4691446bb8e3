/* How much memory there is, read from a made-up /proc and /sys. */
#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/base.h"

#define GIB (UINT64_C(1) << 30)

static char root[64];

static void put(const char *path, const char *text)
{
    char full[PATH_MAX];
    (void)snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void begin(void)
{
    (void)snprintf(root, sizeof(root), "/tmp/kvt-memory-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n"
                         "MemAvailable:    8388608 kB\n");
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void end(void) { ck_assert_int_eq(nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0); }

static struct kvt_system_memory found(void)
{
    struct kvt_system_memory memory;
    kvt_system_memory_read(root, &memory);
    return memory;
}

START_TEST(machine_without_cgroups)
{
    begin();
    ck_assert_uint_eq(found().total_bytes, 16 * GIB);
    ck_assert_uint_eq(found().available_bytes, 8 * GIB);
    end();
}
END_TEST

START_TEST(v2_takes_the_least_on_the_way_up)
{
    begin();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "5\n");
    ck_assert_uint_eq(found().total_bytes, 16 * GIB); /* the control: "max" limits nothing */
    put("/sys/fs/cgroup/a/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/a/memory.current", "1073741824\n");
    ck_assert_uint_eq(found().total_bytes, 2 * GIB);
    ck_assert_uint_eq(found().available_bytes, GIB);
    put("/sys/fs/cgroup/a/memory.current", "3221225472\n");
    ck_assert_uint_eq(found().available_bytes, 0);
    end();
}
END_TEST

START_TEST(v1_by_its_own_names)
{
    begin();
    put("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
    put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4294967296\n");
    put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1073741824\n");
    ck_assert_uint_eq(found().total_bytes, 4 * GIB);
    ck_assert_uint_eq(found().available_bytes, 3 * GIB);
    end();
}
END_TEST

START_TEST(what_cannot_be_read_does_not_limit)
{
    (void)snprintf(root, sizeof(root), "/nonexistent");
    ck_assert_uint_eq(found().total_bytes, UINT64_MAX);
    ck_assert_uint_eq(found().available_bytes, UINT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system memory");
    TCase *tcase = tcase_create("system memory");
    tcase_add_test(tcase, machine_without_cgroups);
    tcase_add_test(tcase, v2_takes_the_least_on_the_way_up);
    tcase_add_test(tcase, v1_by_its_own_names);
    tcase_add_test(tcase, what_cannot_be_read_does_not_limit);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
