/* Eviction policies: what every policy must keep, and the exact order of each. */
#include "policies/policy.h"
#include "tests/support/test_random.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 64u
#define NONE UINT32_MAX

static const struct kvt_evict_ops *const lru = &kvt_policy_lru;

static void *state_new(const struct kvt_evict_ops *ops, uint32_t slots, uint64_t seed)
{
    void *state = calloc(1, ops->state_bytes(slots));
    ck_assert_ptr_nonnull(state);
    ops->init(state, slots, seed);
    return state;
}

/* The whole ranking, asked for in pieces of `step`. */
static uint32_t ranking(const struct kvt_evict_ops *ops, const void *state, uint32_t step,
                        uint32_t *out_slots, uint32_t max)
{
    uint32_t count = 0;
    uint32_t after = NONE;
    while (count < max) {
        uint32_t want = step < max - count ? step : max - count;
        uint32_t got = ops->victims(state, after, out_slots + count, want);
        if (got == 0) {
            break;
        }
        count += got;
        after = out_slots[count - 1];
    }
    return count;
}

static bool ranking_is(const void *state, const uint32_t *slots, uint32_t count)
{
    uint32_t got[SLOTS + 1];
    uint32_t found = ranking(lru, state, SLOTS + 1, got, SLOTS + 1);
    return found == count && (count == 0 || memcmp(got, slots, count * sizeof(*slots)) == 0);
}

START_TEST(registry)
{
    const struct kvt_evict_ops *const *list = kvt_evict_policy_list();
    ck_assert_ptr_nonnull(list[0]);
    for (size_t i = 0; list[i] != NULL; i++) {
        const struct kvt_evict_ops *ops = list[i];
        ck_assert_ptr_eq(kvt_evict_policy_find(ops->name), ops);
        ck_assert(strlen(ops->summary) > 0);
        ck_assert(ops->state_bytes && ops->init && ops->grow && ops->on_insert && ops->on_split);
        ck_assert(ops->on_hit && ops->on_remove && ops->victims);
        ck_assert_uint_gt(ops->state_bytes(2000), ops->state_bytes(1000));
    }
    ck_assert_ptr_eq(kvt_evict_policy_find("lru"), lru);
    ck_assert_ptr_null(kvt_evict_policy_find("lr"));
    ck_assert_ptr_null(kvt_evict_policy_find(""));
}
END_TEST

START_TEST(lru_order)
{
    void *state = state_new(lru, SLOTS, 1);
    ck_assert(ranking_is(state, NULL, 0));
    for (uint32_t slot = 10; slot < 15; slot++) {
        lru->on_insert(state, slot);
    }
    ck_assert(ranking_is(state, (const uint32_t[]){10, 11, 12, 13, 14}, 5));
    lru->on_hit(state, 11);
    ck_assert(ranking_is(state, (const uint32_t[]){10, 12, 13, 14, 11}, 5));
    lru->on_hit(state, 11); /* the newest stays the newest */
    ck_assert(ranking_is(state, (const uint32_t[]){10, 12, 13, 14, 11}, 5));
    lru->on_hit(state, 10); /* the oldest */
    ck_assert(ranking_is(state, (const uint32_t[]){12, 13, 14, 11, 10}, 5));
    ck_assert(!ranking_is(state, (const uint32_t[]){13, 12, 14, 11, 10}, 5)); /* the control */
    free(state);
}
END_TEST

START_TEST(lru_remove)
{
    void *state = state_new(lru, SLOTS, 1);
    for (uint32_t slot = 0; slot < 5; slot++) {
        lru->on_insert(state, slot);
    }
    lru->on_remove(state, 2);
    ck_assert(ranking_is(state, (const uint32_t[]){0, 1, 3, 4}, 4));
    lru->on_remove(state, 0);
    lru->on_remove(state, 4);
    ck_assert(ranking_is(state, (const uint32_t[]){1, 3}, 2));
    lru->on_insert(state, 0); /* what went may come back, as the newest */
    ck_assert(ranking_is(state, (const uint32_t[]){1, 3, 0}, 3));
    lru->on_remove(state, 1);
    lru->on_remove(state, 0);
    lru->on_remove(state, 3);
    ck_assert(ranking_is(state, NULL, 0));
    lru->on_insert(state, 3);
    ck_assert(ranking_is(state, (const uint32_t[]){3}, 1));
    free(state);
}
END_TEST

START_TEST(lru_split)
{
    void *state = state_new(lru, SLOTS, 1);
    for (uint32_t slot = 0; slot < 3; slot++) {
        lru->on_insert(state, slot);
    }
    lru->on_split(state, 7, 1); /* in the middle */
    ck_assert(ranking_is(state, (const uint32_t[]){0, 1, 7, 2}, 4));
    lru->on_split(state, 8, 2); /* of the newest */
    ck_assert(ranking_is(state, (const uint32_t[]){0, 1, 7, 2, 8}, 5));
    lru->on_split(state, 9, 0); /* of the oldest */
    ck_assert(ranking_is(state, (const uint32_t[]){0, 9, 1, 7, 2, 8}, 6));
    lru->on_split(state, 10, 1); /* again: between the lower and the upper cut before */
    ck_assert(ranking_is(state, (const uint32_t[]){0, 9, 1, 10, 7, 2, 8}, 7));
    lru->on_remove(state, 1);
    ck_assert(ranking_is(state, (const uint32_t[]){0, 9, 10, 7, 2, 8}, 6));
    lru->on_insert(state, 20);
    ck_assert(ranking_is(state, (const uint32_t[]){0, 9, 10, 7, 2, 8, 20}, 7));
    free(state);
}
END_TEST

START_TEST(lru_walk)
{
    void *state = state_new(lru, SLOTS, 1);
    for (uint32_t slot = 0; slot < 10; slot++) {
        lru->on_insert(state, slot);
    }
    uint32_t out[4] = {99, 99, 99, 99};
    ck_assert_uint_eq(lru->victims(state, NONE, out, 0), 0);
    ck_assert_uint_eq(out[0], 99);
    ck_assert_uint_eq(lru->victims(state, NONE, out, 3), 3);
    ck_assert_mem_eq(out, ((const uint32_t[]){0, 1, 2, 99}), sizeof(out));
    ck_assert_uint_eq(lru->victims(state, 2, out, 4), 4);
    ck_assert_mem_eq(out, ((const uint32_t[]){3, 4, 5, 6}), sizeof(out));
    ck_assert_uint_eq(lru->victims(state, 8, out, 4), 1);
    ck_assert_uint_eq(out[0], 9);
    ck_assert_uint_eq(lru->victims(state, 9, out, 4), 0);
    free(state);
}
END_TEST

/* ---- a dumb model: an array in order ---- */

struct model {
    uint32_t slots[SLOTS];
    uint32_t count;
};

static uint32_t model_find(const struct model *model, uint32_t slot)
{
    uint32_t i = 0;
    while (i < model->count && model->slots[i] != slot) {
        i++;
    }
    return i;
}

static void model_insert(struct model *model, uint32_t at, uint32_t slot)
{
    for (uint32_t i = model->count++; i > at; i--) {
        model->slots[i] = model->slots[i - 1];
    }
    model->slots[at] = slot;
}

static void model_remove(struct model *model, uint32_t at)
{
    model->count--;
    for (uint32_t i = at; i < model->count; i++) {
        model->slots[i] = model->slots[i + 1];
    }
}

/* One random step on the policy and on the model. */
static void step(const struct kvt_evict_ops *ops, void *state, struct model *model,
                 struct test_random *random)
{
    uint32_t slot = test_random_below(random, SLOTS);
    uint32_t at = model_find(model, slot);
    if (at < model->count) {
        if (test_random_below(random, 3) > 0) {
            ops->on_hit(state, slot);
            model_remove(model, at);
            model_insert(model, model->count, slot);
        } else {
            ops->on_remove(state, slot);
            model_remove(model, at);
        }
    } else if (model->count > 0 && test_random_below(random, 2) > 0) {
        uint32_t lower = test_random_below(random, model->count);
        ops->on_split(state, slot, model->slots[lower]);
        model_insert(model, lower + 1, slot);
    } else {
        ops->on_insert(state, slot);
        model_insert(model, model->count, slot);
    }
}

START_TEST(lru_is_its_model)
{
    struct test_random random = test_random_start("lru_is_its_model", 5);
    struct model model = {.count = 0};
    void *state = state_new(lru, SLOTS, 1);
    uint64_t steps = test_scaled(100000);
    for (uint64_t i = 0; i < steps; i++) {
        step(lru, state, &model, &random);
        ck_assert(ranking_is(state, model.slots, model.count));
    }
    while (model.count < 2) {
        step(lru, state, &model, &random);
    }
    /* The control: two slots in the wrong order are noticed. */
    uint32_t first = model.slots[0];
    model.slots[0] = model.slots[1];
    model.slots[1] = first;
    ck_assert(!ranking_is(state, model.slots, model.count));
    free(state);
}
END_TEST

/* Drift in the order that lru gives shows as a number. */
START_TEST(lru_golden)
{
    static const uint32_t golden[] = {
        38, 23, 33, 3,  25, 45, 48, 1,  42, 18, 59, 57, 30, 16, 40, 10, 63, 44, 15, 37, 41, 35,
        46, 55, 60, 49, 62, 5,  0,  12, 20, 8,  14, 53, 19, 26, 21, 28, 31, 9,  7,  27, 22, 56,
    };
    struct test_random random = {2024};
    struct model model = {.count = 0};
    void *state = state_new(lru, SLOTS, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        step(lru, state, &model, &random);
    }
    uint32_t got[SLOTS + 1];
    uint32_t count = ranking(lru, state, 7, got, SLOTS + 1);
    const uint32_t want = sizeof(golden) / sizeof(golden[0]);
    if (count != want || memcmp(got, golden, sizeof(golden)) != 0) {
        (void)printf("the new sequence, to paste when it is meant:\n");
        for (uint32_t i = 0; i < count; i++) {
            (void)printf("%u, ", got[i]);
        }
        (void)printf("\n");
        (void)fflush(stdout);
        ck_abort_msg("the victims of lru changed");
    }
    free(state);
}
END_TEST

/* ---- what every policy must keep ---- */

/* Each slot of the model stands in the ranking exactly once, and asking changes nothing. */
static void check_contract(const struct kvt_evict_ops *ops, const void *state,
                           const struct model *model, uint32_t slots)
{
    uint32_t got[SLOTS + 1], again[SLOTS + 1];
    bool seen[SLOTS] = {false};
    size_t bytes = ops->state_bytes(slots);
    void *copy = malloc(bytes);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, state, bytes);
    uint32_t count = ranking(ops, state, 5, got, SLOTS + 1);
    ck_assert_uint_eq(count, model->count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_lt(model_find(model, got[i]), model->count);
        ck_assert(!seen[got[i]]);
        seen[got[i]] = true;
    }
    ck_assert_uint_eq(ranking(ops, state, SLOTS + 1, again, SLOTS + 1), count);
    ck_assert_mem_eq(got, again, count * sizeof(*got));
    ck_assert_mem_eq(copy, state, bytes);
    free(copy);
}

static void run_contract(const struct kvt_evict_ops *ops)
{
    struct test_random random = {77}, twin_random = {77};
    struct model model = {.count = 0}, twin_model = {.count = 0};
    uint32_t slots = SLOTS;
    void *state = state_new(ops, slots, 3);
    void *twin = state_new(ops, SLOTS, 3); /* the same calls and seed: the same victims */
    for (uint32_t i = 0; i < 3000; i++) {
        step(ops, state, &model, &random);
        step(ops, twin, &twin_model, &twin_random);
        if (i % 500 == 499) {
            size_t old_bytes = ops->state_bytes(slots);
            slots += 100;
            void *moved = calloc(1, ops->state_bytes(slots));
            ck_assert_ptr_nonnull(moved);
            memcpy(moved, state, old_bytes);
            memset(state, 0xee, old_bytes);
            free(state);
            state = moved;
            ops->grow(state, slots);
        }
        check_contract(ops, state, &model, slots);
        uint32_t a[SLOTS + 1], b[SLOTS + 1];
        uint32_t count = ranking(ops, state, 9, a, SLOTS + 1);
        ck_assert_uint_eq(ranking(ops, twin, 9, b, SLOTS + 1), count);
        ck_assert_mem_eq(a, b, count * sizeof(*a));
    }
    free(state);
    free(twin);
}

/* The upper part of a split edge comes out after the lower. */
static void run_split_order(const struct kvt_evict_ops *ops)
{
    struct test_random random = {78};
    struct model model = {.count = 0};
    void *state = state_new(ops, SLOTS, 3);
    for (uint32_t i = 0; i < 2000; i++) {
        step(ops, state, &model, &random);
        uint32_t upper = test_random_below(&random, SLOTS);
        if (model.count == 0 || model_find(&model, upper) < model.count) {
            continue;
        }
        uint32_t lower_at = test_random_below(&random, model.count);
        uint32_t lower = model.slots[lower_at];
        ops->on_split(state, upper, lower);
        model_insert(&model, lower_at + 1, upper);
        uint32_t got[SLOTS + 1], upper_at = NONE;
        uint32_t count = ranking(ops, state, SLOTS + 1, got, SLOTS + 1);
        lower_at = NONE;
        for (uint32_t j = 0; j < count; j++) {
            upper_at = got[j] == upper ? j : upper_at;
            lower_at = got[j] == lower ? j : lower_at;
        }
        ck_assert_uint_ne(lower_at, NONE);
        ck_assert_uint_ne(upper_at, NONE);
        ck_assert_uint_lt(lower_at, upper_at);
    }
    free(state);
}

START_TEST(contract)
{
    const struct kvt_evict_ops *const *list = kvt_evict_policy_list();
    for (size_t i = 0; list[i] != NULL; i++) {
        run_contract(list[i]);
        run_split_order(list[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tcase = tcase_create("policy");
    tcase_add_test(tcase, registry);
    tcase_add_test(tcase, lru_order);
    tcase_add_test(tcase, lru_remove);
    tcase_add_test(tcase, lru_split);
    tcase_add_test(tcase, lru_walk);
    tcase_add_test(tcase, lru_is_its_model);
    tcase_add_test(tcase, lru_golden);
    tcase_add_test(tcase, contract);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
