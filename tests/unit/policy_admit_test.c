/* Who may go down to nvme, and how much of a hit is worth bringing up again. */
#include "policies/admit.h"
#include "policies/restore.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <stdlib.h>
#include <string.h>

/* ---- admission ---- */

START_TEST(admission_tables)
{
    static const struct {
        const char *name;
        enum kvt_admit_event event;
        uint32_t uses;
        bool admitted;
    } rows[] = {
        {"through", KVT_ADMIT_SAVED, 0, true},
        {"through", KVT_ADMIT_DELIVERED, 1, true},
        {"through", KVT_ADMIT_LEAVING, 0, true},
        {"through", KVT_ADMIT_LEAVING, 255, true},
        {"on-evict", KVT_ADMIT_SAVED, 0, false},
        {"on-evict", KVT_ADMIT_SAVED, 9, false},
        {"on-evict", KVT_ADMIT_DELIVERED, 1, false},
        {"on-evict", KVT_ADMIT_DELIVERED, 255, false},
        {"on-evict", KVT_ADMIT_LEAVING, 0, true},
        {"on-evict", KVT_ADMIT_LEAVING, 9, true},
        {"second-touch", KVT_ADMIT_SAVED, 0, false},
        {"second-touch", KVT_ADMIT_SAVED, 9, false},
        {"second-touch", KVT_ADMIT_DELIVERED, 0, false},
        {"second-touch", KVT_ADMIT_DELIVERED, 1, true},
        {"second-touch", KVT_ADMIT_DELIVERED, 255, true},
        {"second-touch", KVT_ADMIT_LEAVING, 0, false},
        {"second-touch", KVT_ADMIT_LEAVING, 1, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct kvt_admit_ops *ops = kvt_admit_policy_find(rows[i].name);
        ck_assert_ptr_nonnull(ops);
        ck_assert_msg(ops->admit(rows[i].event, rows[i].uses) == rows[i].admitted, "row %zu", i);
    }
}
END_TEST

START_TEST(admission_list)
{
    const struct kvt_admit_ops *const *list = kvt_admit_policy_list();
    uint32_t count = 0;
    for (; list[count] != NULL; count++) {
        ck_assert_ptr_eq(kvt_admit_policy_find(list[count]->name), list[count]);
        ck_assert_uint_gt(strlen(list[count]->summary), 0);
        for (uint32_t i = 0; i < count; i++) {
            ck_assert_str_ne(list[i]->name, list[count]->name);
        }
    }
    ck_assert_uint_eq(count, 3);
    ck_assert_str_eq(list[0]->name, "through"); /* the default */
    ck_assert_ptr_null(kvt_admit_policy_find("throug"));
    ck_assert_ptr_null(kvt_admit_policy_find("through "));
    ck_assert_ptr_null(kvt_admit_policy_find(""));
}
END_TEST

/* ---- restoring ---- */

#define RUNS_MAX 12u

/* What cutting after `pages` pages saves. Whole numbers, so that nothing is rounded. */
static int64_t gain(const struct kvt_restore_run *runs, uint32_t count,
                    const struct kvt_restore_cost *cost, uint32_t pages)
{
    int64_t saved = 0;
    bool slow = false;
    for (uint32_t r = 0, at = 0; r < count; at += runs[r++].pages) {
        for (uint32_t p = 0; p < runs[r].pages && at + p < pages; p++) {
            saved += (int64_t)cost->compute_ns_per_page;
            if (runs[r].slow) {
                saved -= (int64_t)cost->load_ns_per_page;
                saved -= slow ? 0 : (int64_t)cost->load_ns_once;
                slow = true;
            }
        }
    }
    return saved;
}

static uint32_t pages_of(const struct kvt_restore_run *runs, uint32_t count)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < count; i++) {
        pages += runs[i].pages;
    }
    return pages;
}

static uint32_t random_runs(struct test_random *random, struct kvt_restore_run *runs)
{
    uint32_t count = 1 + test_random_below(random, RUNS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        runs[i].pages = 1 + test_random_below(random, 20);
        runs[i].slow = test_random_below(random, 2) == 0;
    }
    return count;
}

static struct kvt_restore_cost random_cost(struct test_random *random)
{
    return (struct kvt_restore_cost){
        .compute_ns_per_page = test_random_below(random, 1000),
        .load_ns_once = test_random_below(random, 3) == 0 ? 0 : test_random_below(random, 20000),
        .load_ns_per_page = test_random_below(random, 1000),
    };
}

START_TEST(best_of_all_cuts)
{
    struct test_random random = test_random_start("policy_admit", 7);
    uint64_t cut_inside = 0, none = 0, all = 0, worse = 0;
    for (uint64_t n = test_scaled(20000); n > 0; n--) {
        struct kvt_restore_run runs[RUNS_MAX];
        uint32_t count = random_runs(&random, runs);
        const struct kvt_restore_cost cost = random_cost(&random);
        uint32_t pages = pages_of(runs, count);
        uint32_t got = kvt_restore_pages(runs, count, &cost);
        EXPECT(got <= pages);
        int64_t best = 0;
        for (uint32_t cut = 0; cut <= pages; cut++) {
            int64_t saved = gain(runs, count, &cost, cut);
            best = saved > best ? saved : best;
        }
        EXPECT(gain(runs, count, &cost, got) == best);
        none += got == 0;
        all += got == pages;
        cut_inside += got > 0 && got < pages;
        /* The control: one page less is seldom as good. */
        worse += got > 0 && gain(runs, count, &cost, got - 1) < best;
    }
    EXPECT(none > 0 && all > 0 && cut_inside > 0 && worse > 0);
}
END_TEST

START_TEST(cheaper_loads_never_load_less)
{
    struct test_random random = test_random_start("policy_admit", 8);
    uint64_t more = 0;
    for (uint64_t n = test_scaled(20000); n > 0; n--) {
        struct kvt_restore_run runs[RUNS_MAX];
        uint32_t count = random_runs(&random, runs);
        struct kvt_restore_cost cost = random_cost(&random);
        uint32_t before = kvt_restore_pages(runs, count, &cost);
        cost.load_ns_per_page -= test_random_below(&random, (uint32_t)cost.load_ns_per_page + 1);
        cost.load_ns_once -= test_random_below(&random, (uint32_t)cost.load_ns_once + 1);
        uint32_t cheaper = kvt_restore_pages(runs, count, &cost);
        cost.compute_ns_per_page += test_random_below(&random, 1000);
        uint32_t dearer_compute = kvt_restore_pages(runs, count, &cost);
        EXPECT(before <= cheaper && cheaper <= dearer_compute);
        more += before < dearer_compute;
    }
    EXPECT(more > 0);
}
END_TEST

START_TEST(ends_of_the_scale)
{
    struct test_random random = test_random_start("policy_admit", 9);
    for (uint32_t n = 0; n < 2000; n++) {
        struct kvt_restore_run runs[RUNS_MAX];
        uint32_t count = random_runs(&random, runs), head = 0, any = 0;
        while (head < count && !runs[head].slow) {
            any += runs[head++].pages;
        }
        /* Free: all of it. Slower than computing: what lies in memory before the first slow one,
         * and nothing where that is the first. */
        const struct kvt_restore_cost free_load = {.compute_ns_per_page = 1};
        EXPECT(kvt_restore_pages(runs, count, &free_load) == pages_of(runs, count));
        const struct kvt_restore_cost slow_load = {
            .compute_ns_per_page = 10, .load_ns_once = UINT64_C(1) << 40, .load_ns_per_page = 11};
        EXPECT(kvt_restore_pages(runs, count, &slow_load) == any);
        const struct kvt_restore_cost compute_free = {.load_ns_per_page = 1};
        EXPECT(kvt_restore_pages(runs, count, &compute_free) == 0);
    }
    const struct kvt_restore_cost cost = {.compute_ns_per_page = 1};
    EXPECT(kvt_restore_pages(NULL, 0, &cost) == 0);
    /* Memory behind a slow run pays for it, or does not. */
    const struct kvt_restore_run runs[] = {{4, false}, {2, true}, {6, false}};
    const struct kvt_restore_cost pays = {10, 70, 12};
    EXPECT(kvt_restore_pages(runs, 3, &pays) == 4);
    const struct kvt_restore_cost does = {10, 50, 12};
    EXPECT(kvt_restore_pages(runs, 3, &does) == 12);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("policy_admit");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, admission_tables);
    tcase_add_test(tcase, admission_list);
    tcase_add_test(tcase, best_of_all_cuts);
    tcase_add_test(tcase, cheaper_loads_never_load_less);
    tcase_add_test(tcase, ends_of_the_scale);
    Suite *suite = suite_create("policy_admit");
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
