/*
 * The index against a dumb model: prompts as agents send them (sessions that grow, shared heads,
 * branches, edits, images), leases in any order, faults. Every answer is compared.
 *
 *   KVT_SEED=N KVT_TEST_SCALE=N build/.../index_model_test
 */
#include "tests/support/index_world.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define OPERATIONS 1000000u
#ifdef KVT_DEBUG
#define CHECK_EVERY 100u
#else
#define CHECK_EVERY 500u
#endif
#define COMPARE_EVERY 10000u
#define PHASE 16384u /* operations */

/* ---- the run ---- */

static void compare_stats(struct world *world)
{
    const struct model *model = &world->model;
    struct kvt_index_stats stats;
    struct kvt_lease_stats leases;
    kvt_index_stats(world->index, &stats);
    kvt_lease_stats(world->index, &leases);
    uint64_t oldest_ns = UINT64_MAX;
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        const struct model_lease *lease = &model->leases[i];
        oldest_ns = lease->used && lease->taken_ns < oldest_ns ? lease->taken_ns : oldest_ns;
    }
    SAME(world, stats.pages == model->page_count && stats.pages <= PAGES_MAX);
    SAME(world, stats.evicted_pages == model->evicted_pages);
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        SAME(world, stats.tier_pages[tier] == model->tier_pages[tier]);
    }
    SAME(world, stats.bytes == world->memory.live_bytes);
    SAME(world, leases.leases == model->lease_count);
    SAME(world, leases.leased_pages == model->leased_pages);
    SAME(world, leases.oldest_ns == oldest_ns);
}

/* Every lease, and every page of every path, with all its places. */
static void compare_all(struct world *world)
{
    static uint32_t tokens[TOKENS_MAX];
    struct kvt_extra extras[MODEL_EXTRAS_MAX];
    uint32_t records[MODEL_DEPTH_MAX], path[MODEL_DEPTH_MAX];
    struct model *model = &world->model;
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        const struct model_lease *lease = &model->leases[i];
        struct kvt_lease_info info;
        if (lease->used && !lease->released) {
            SAME(world, kvt_lease_get(world->index, lease->handle, lease->owner, &info) == KVT_OK);
            SAME(world, info.at.pages == model->pages[lease->page].depth);
            SAME(world, info.at.ns == model->pages[lease->page].ns);
            SAME(world, info.transfers == lease->transfers && info.owner == lease->owner);
            (void)do_pages(world, lease, records, path);
        }
    }
    if (model->lease_count == MODEL_LEASES_MAX) {
        return; /* no lease to look through */
    }
    for (uint32_t page = MODEL_NAMESPACES; page < MODEL_PAGES && world->wrong[0] == '\0'; page++) {
        if (model->pages[page].live && model->pages[page].first_child == MODEL_NONE) {
            struct kvt_match match;
            struct kvt_prompt prompt = model_prompt(model, page, tokens, extras);
            struct model_answer answer = do_match(world, model->pages[page].ns, &prompt, &match);
            SAME(world, answer.page == page);
            struct model_lease *lease = do_acquire(world, &match, page);
            if (lease != NULL) {
                (void)do_pages(world, lease, records, path);
                do_release(world, lease);
            }
        }
    }
    compare_stats(world);
}

static void do_one(struct world *world)
{
    uint32_t choice = below(world, 100);
    struct model_lease *lease = NULL;
    world->now_ns += below(world, 20);
    world->operation++;
    if (choice < 42) {
        do_prompt(world);
    } else if (choice < 50) {
        do_late_insert(world);
    } else if (choice < 57) {
        lease = pick_lease(world, false);
        if (lease != NULL) {
            do_release(world, lease);
        }
    } else if (choice < 62) {
        do_refused(world);
    } else if (choice < 72) {
        do_transfer(world);
    } else if (choice < 75) {
        do_take_back(world);
    } else if (choice < 83) {
        /* In turns the cache fills, up to its limit, and is kept small. */
        if (world->operation / PHASE % 2 == 1 || chance(world, 10)) {
            do_evict(world, below(world, chance(world, 2) ? 500 : 12));
        }
    } else if (choice < 89) {
        do_move(world);
    } else if (choice < 92) {
        do_busy(world);
    } else if (choice < 96) {
        lease = pick_lease(world, false);
        if (lease != NULL) {
            kvt_index_touch(world->index, lease->handle, lease->owner);
        }
    } else if (choice < 98) {
        do_demotable(world);
    } else if (choice < 99) {
        do_elsewhere(world);
    } else {
        do_covers(world);
    }
    compare_stats(world);
}

static void check_tree(struct world *world)
{
    char why[120] = "";
    if (!kvt_index_check(world->index, why, sizeof(why)) && world->wrong[0] == '\0') {
        (void)snprintf(world->wrong, sizeof(world->wrong), "operation %llu: %s",
                       (unsigned long long)world->operation, why);
    }
}

static struct world *world_new(uint32_t page_tokens, uint32_t shards, uint32_t hash_bits,
                               uint64_t seed)
{
    struct world *world = calloc(1, sizeof(*world));
    ck_assert_ptr_nonnull(world);
    test_memory_init(&world->memory);
    world->random = (struct test_random){seed};
    model_init(&world->model, page_tokens, shards);
    const struct kvt_index_config config = {
        .mem = &world->memory.mem,
        .page_tokens = page_tokens,
        .shards = shards,
        .pages_max = PAGES_MAX,
        .leases_max = MODEL_LEASES_MAX,
        .hash_bits = hash_bits,
        .seed = seed,
        .evict = &kvt_policy_lru,
        .on_drop = on_drop,
        .ctx = world,
    };
    ck_assert_int_eq(kvt_index_create(&config, &world->index), KVT_OK);
    for (uint32_t i = 0; i < MODEL_NAMESPACES; i++) {
        uint32_t ns;
        ck_assert_int_eq(kvt_index_namespace(world->index, &i, sizeof(i), i / 2, &ns), KVT_OK);
        ck_assert_uint_eq(ns, i);
        world->model.pages[i].key = kvt_key_of_namespace(&i, sizeof(i));
    }
    for (uint32_t i = 0; i < HEADS; i++) {
        session_append(world, &world->heads[i], 8 + below(world, 24));
    }
    return world;
}

static void world_run(struct world *world, uint64_t operations)
{
    for (uint64_t i = 1; i <= operations && world->wrong[0] == '\0'; i++) {
        do_one(world);
        if (i % CHECK_EVERY == 0) {
            check_tree(world);
        }
        if (i % COMPARE_EVERY == 0) {
            compare_all(world);
        }
    }
}

/* Give everything up; then everything can be evicted, and nothing leaks. */
static void world_end(struct world *world)
{
    struct model *model = &world->model;
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        struct model_lease *lease = &model->leases[i];
        if (lease->used && !lease->released) {
            do_release(world, lease);
        }
        while (lease->used && lease->transfers > 0) {
            kvt_lease_end(world->index, lease->handle);
            if (--lease->transfers == 0) {
                model_lease_free(model, lease);
            }
        }
    }
    while (world->busy_count > 0) {
        world->busy_count--;
        kvt_page_set_busy(world->index, world->busy[world->busy_count].record, false);
        model->pages[world->busy[world->busy_count].page].busy--;
    }
    compare_all(world);
    check_tree(world);
    world->evict_tier = KVT_TIERS;
    world->dropped = 0;
    SAME(world, kvt_index_evict(world->index, KVT_TIERS, UINT32_MAX) == world->dropped);
    struct kvt_index_stats stats;
    kvt_index_stats(world->index, &stats);
    SAME(world, stats.pages == 0 && model->page_count == 0 && stats.token_bytes == 0);
    SAME(world, stats.nodes == MODEL_NAMESPACES);
    compare_stats(world);
    check_tree(world);
}

static void world_free(struct world *world)
{
    kvt_index_destroy(world->index);
    ck_assert_uint_eq(world->memory.live_blocks, 0);
    free(world);
}

static void run_model(uint32_t page_tokens, uint32_t shards, uint32_t hash_bits,
                      uint64_t operations, uint64_t seed)
{
    struct world *world = world_new(page_tokens, shards, hash_bits, seed);
    world_run(world, operations);
    if (world->wrong[0] == '\0') {
        world_end(world);
    }
    (void)printf("  page_tokens %u, shards %u, hash_bits %u: %llu operations, %llu evicted, limit "
                 "%llu, no memory %llu, partly %llu, duplicates %llu, released late %llu\n",
                 page_tokens, shards, hash_bits, (unsigned long long)world->operation,
                 (unsigned long long)world->model.evicted_pages,
                 (unsigned long long)world->met_limit, (unsigned long long)world->met_nomem,
                 (unsigned long long)world->met_partly, (unsigned long long)world->met_duplicates,
                 (unsigned long long)world->met_deferred);
    (void)fflush(stdout);
    ck_assert_msg(world->wrong[0] == '\0', "seed %llu: %s", (unsigned long long)seed, world->wrong);
    /* The run went where it should. */
    ck_assert(operations < 20000 ||
              (world->met_limit > 0 && world->met_nomem > 0 && world->met_partly > 0 &&
               world->met_duplicates > 0 && world->met_deferred > 0));
    world_free(world);
}

START_TEST(index_is_its_model)
{
    struct test_random random = test_random_start("index model", 20260301);
    uint64_t operations = test_scaled(OPERATIONS);
    run_model(4, 1, 0, operations - operations / 2, random.state);
    run_model(2, 3, 6, operations / 4, random.state + 1);
    run_model(1, 1, 2, operations / 2 - operations / 4, random.state + 2);
}
END_TEST

/* ---- the controls: a model that is wrong in one place is told apart ---- */

static uint32_t pick_page(struct world *world, bool leaf)
{
    const struct model *model = &world->model;
    uint32_t page = below(world, MODEL_PAGES);
    while (!model->pages[page].live || model->pages[page].depth < 2 ||
           (leaf && model->pages[page].first_child != MODEL_NONE)) {
        page = (page + 1) % MODEL_PAGES;
    }
    return page;
}

static void plant_swapped_places(struct world *world)
{
    struct model *model = &world->model;
    uint32_t a = pick_page(world, false), tier = model_fastest(model, a);
    uint32_t b = a;
    while (b == a || model->pages[b].serial[tier] == 0) {
        b = pick_page(world, false);
    }
    uint32_t serial = model->pages[a].serial[tier];
    model->pages[a].serial[tier] = model->pages[b].serial[tier];
    model->pages[b].serial[tier] = serial;
}

static void plant_wrong_token(struct world *world)
{
    world->model.pages[pick_page(world, false)].tokens[0] ^= 0x100;
}

static void plant_wrong_key(struct world *world)
{
    world->model.pages[pick_page(world, true)].key.bytes[5] ^= 1;
}

static void plant_missing_page(struct world *world)
{
    struct model *model = &world->model;
    uint32_t page = pick_page(world, true);
    while (model->pages[page].leases > 0 || model->pages[page].busy > 0) {
        page = pick_page(world, true);
    }
    model_leave(model, page);
}

static void plant_other_tier(struct world *world)
{
    struct model_page *page = &world->model.pages[pick_page(world, false)];
    uint32_t serial = page->serial[0];
    page->serial[0] = page->serial[1];
    page->serial[1] = page->serial[2];
    page->serial[2] = serial;
}

static void plant_lease_elsewhere(struct world *world)
{
    struct model *model = &world->model;
    uint32_t page = pick_page(world, false);
    struct model_lease *lease = model_lease_take(model, page);
    ck_assert_ptr_nonnull(lease);
    lease->owner = 0;
    lease->handle = 12345;
}

START_TEST(wrong_models_are_noticed)
{
    static void (*const plants[])(struct world *) = {
        plant_swapped_places, plant_wrong_token, plant_wrong_key,
        plant_missing_page,   plant_other_tier,  plant_lease_elsewhere,
    };
    for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++) {
        struct world *world = world_new(4, 1, 0, 500 + i);
        world_run(world, 5000);
        struct model_lease *lease = pick_lease(world, false);
        if (lease != NULL && world->model.lease_count == MODEL_LEASES_MAX) {
            do_release(world, lease);
        }
        compare_all(world);
        ck_assert_msg(world->wrong[0] == '\0', "%s", world->wrong);
        plants[i](world);
        compare_all(world);
        ck_assert_msg(world->wrong[0] != '\0', "plant %zu was not noticed", i);
        world_free(world);
    }
}
END_TEST

/* And the random operations meet such a place by themselves. */
START_TEST(operations_notice)
{
    struct world *world = world_new(4, 1, 0, 600);
    world_run(world, 5000);
    ck_assert_msg(world->wrong[0] == '\0', "%s", world->wrong);
    plant_swapped_places(world);
    for (uint32_t i = 0; i < 100000 && world->wrong[0] == '\0'; i++) {
        do_one(world);
    }
    ck_assert_msg(world->wrong[0] != '\0', "swapped places were not noticed");
    world_free(world);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_model");
    TCase *tcase = tcase_create("index_model");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, index_is_its_model);
    tcase_add_test(tcase, wrong_models_are_noticed);
    tcase_add_test(tcase, operations_notice);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
