/* Memory that cannot be had, at every place where the index asks for some, and its limits. */
#include "tests/support/index_rig.h"

#include <stdio.h>

#define PAGES_OF_A_CHUNK 4096u /* the index takes memory for so many page records at a time ... */
#define NODES_OF_A_CHUNK 1024u /* ... and for so many nodes */

/* ---- creating ---- */

START_TEST(create_fails)
{
    struct index_rig rig;
    uint64_t k = 1;
    for (;; k++) {
        rig_config(&rig);
        test_memory_fail(&rig.memory, k, false);
        rig.index = NULL;
        kvt_status status = kvt_index_create(&rig.config, &rig.index);
        if (rig.memory.failed == 0) {
            ck_assert_int_eq(status, KVT_OK);
            break;
        }
        ck_assert_int_eq(status, KVT_ERR_NOMEM);
        ck_assert_ptr_null(rig.index);
        ck_assert_uint_eq(rig.memory.live_blocks, 0);
    }
    ck_assert_uint_gt(k, 8);
    kvt_index_destroy(rig.index);
    kvt_index_destroy(NULL);
    ck_assert_uint_eq(rig.memory.live_blocks, 0);
}
END_TEST

START_TEST(create_refused)
{
    struct index_rig rig;
    struct kvt_index *index = NULL;
    rig_config(&rig);
    const struct kvt_index_config good = rig.config;
    struct kvt_index_config bad[] = {good, good, good, good, good, good};
    bad[0].page_tokens = 0;
    bad[1].shards = 0;
    bad[2].shards = KVT_SHARDS_MAX + 1;
    bad[3].pages_max = 0;
    bad[4].pages_max = (1u << 30) + 1;
    bad[5].leases_max = 0;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(kvt_index_create(&bad[i], &index), KVT_ERR_INVAL);
        ck_assert_ptr_null(index);
    }
    ck_assert_int_eq(kvt_index_create(&good, &index), KVT_OK);
    kvt_index_destroy(index);
}
END_TEST

START_TEST(namespace_fails)
{
    struct index_rig rig;
    uint32_t ns = 77;
    rig_open(&rig);
    test_memory_fail(&rig.memory, 1, false);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "other", 5, 7, &ns), KVT_ERR_NOMEM);
    ck_assert_uint_eq(ns, 77);
    ck_assert_uint_eq(rig_stats(&rig).namespaces, 1);
    rig_check(&rig);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "other", 5, 7, &ns), KVT_OK);
    ck_assert_uint_eq(ns, 1);
    rig_close(&rig);
}
END_TEST

/* ---- inserting ---- */

/* One edge of so many pages, whose tokens no letters meet. */
static void put_pages(struct index_rig *rig, uint32_t count)
{
    static uint32_t tokens[2 * PAGES_OF_A_CHUNK];
    static struct kvt_new_page pages[PAGES_OF_A_CHUNK];
    static struct kvt_place places[PAGES_OF_A_CHUNK * RIG_SHARDS_MAX];
    uint32_t duplicates, inserted;
    for (uint32_t i = 0; i < 2 * count; i++) {
        tokens[i] = 1000 + i;
    }
    struct kvt_prompt prompt = {.tokens = tokens, .pages = count};
    uint64_t lease = rig_lease(rig, "");
    rig_new_pages(rig, count, KVT_HOST, pages, places);
    EXPECT(kvt_index_insert(rig->index, lease, RIG_OWNER, &prompt, 0, count, pages, &duplicates,
                            &inserted) == KVT_OK);
    EXPECT(duplicates == 0 && inserted == count);
    rig_release(rig, lease);
}

/* So many edges of one page each. */
static void put_edges(struct index_rig *rig, uint32_t count)
{
    uint64_t lease = rig_lease(rig, "");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t tokens[2] = {1000, i}, duplicates, inserted;
        struct kvt_prompt prompt = {.tokens = tokens, .pages = 1};
        struct kvt_new_page page;
        struct kvt_place places[RIG_SHARDS_MAX];
        rig_new_pages(rig, 1, KVT_HOST, &page, places);
        EXPECT(kvt_index_insert(rig->index, lease, RIG_OWNER, &prompt, 0, 1, &page, &duplicates,
                                &inserted) == KVT_OK);
    }
    rig_release(rig, lease);
}

struct scene {
    const char *name;
    uint32_t pages;      /* in one edge, before */
    uint32_t edges;      /* of one page each, before */
    const char *present; /* and this prompt */
    const char *also;
    const char *lease;  /* where the insert begins */
    const char *insert; /* what is entered */
    bool partly;        /* some k lets a part of the pages in */
};

static const struct scene scenes[] = {
    {"a first child", 0, 0, "", "", "", "AB CD EF", false},
    {"a leaf grows", 0, 0, "AB CD", "", "AB CD", "AB CD EF GH", false},
    {"a branching node", 0, 0, "AB CD EF", "AB CD XX", "AB CD", "AB CD YY ZZ", false},
    {"a split", 0, 0, "AB CD EF GH", "", "AB CD", "AB CD XX YY", false},
    {"a split, after duplicates", 0, 0, "AB CD EF GH", "", "AB", "AB CD EF XX YY", false},
    {"duplicates, then the leaf grows", 0, 0, "AB CD EF", "", "", "AB CD EF GH", false},
    {"several runs", 0, 0, "AB CD EF", "", "AB", "AB CD XX *1AA BB *2CC *3DD EE", true},
    {"a split of an edge with an image", 0, 0, "*1AB CD EF", "", "*1AB", "*1AB XX *2YY", true},
    {"page records run out", PAGES_OF_A_CHUNK - 2, 0, "", "", "", "AB CD EF GH", true},
    {"page records run out, in a leaf", PAGES_OF_A_CHUNK - 3, 0, "AB", "", "AB", "AB CD EF GH",
     true},
    {"page records run out at the first", PAGES_OF_A_CHUNK - 2, 0, "AB CD", "", "AB", "AB XX",
     false},
    {"nodes run out at the child", 0, NODES_OF_A_CHUNK - 4, "AB CD", "", "AB", "AB XX", false},
    {"nodes run out at the split", 0, NODES_OF_A_CHUNK - 3, "AB CD", "", "AB", "AB XX", false},
};

static void scene_open(struct index_rig *rig, const struct scene *scene, uint32_t shards)
{
    rig_config(rig);
    rig->config.shards = shards;
    rig_start(rig);
    if (scene->pages > 0) {
        put_pages(rig, scene->pages);
    }
    put_edges(rig, scene->edges);
    (void)rig_put(rig, scene->present);
    (void)rig_put(rig, scene->also);
}

/* The lease's prefix, and what matched of the letters before, are still there. */
static void scene_try_again(struct index_rig *rig, const struct scene *scene, uint32_t held)
{
    struct text text;
    uint32_t pages = text_make(&text, scene->insert)->pages;
    rig_check(rig);
    EXPECT(rig_match(rig, scene->insert).pages == held);
    EXPECT(rig_match(rig, scene->present).pages == text_make(&text, scene->present)->pages);
    EXPECT(rig_put(rig, scene->insert) == pages - held);
    EXPECT(rig_match(rig, scene->insert).pages == pages);
    uint64_t all = rig_stats(rig).pages;
    EXPECT(kvt_index_evict(rig->index, KVT_HOST, UINT32_MAX) == all);
    EXPECT(rig_stats(rig).nodes == 1);
}

/* Fail the k-th allocation of an insert, for every k until none is left to fail. */
static uint32_t scene_run(const struct scene *scene, uint32_t shards, bool for_good)
{
    uint32_t partly = 0, failures = 0;
    for (uint64_t k = 1;; k++) {
        struct index_rig rig;
        struct text text;
        uint32_t duplicates = 77, inserted = 77;
        scene_open(&rig, scene, shards);
        uint32_t pages = text_make(&text, scene->insert)->pages;
        uint32_t before = rig_match(&rig, scene->insert).pages;
        uint64_t lease = rig_lease(&rig, scene->lease);
        uint32_t from = rig_lease_pages(&rig, lease);
        test_memory_fail(&rig.memory, k, for_good);
        kvt_status status =
            rig_insert(&rig, lease, scene->insert, KVT_HOST, &duplicates, &inserted);
        bool failed = rig.memory.failed > 0;
        test_memory_fail(&rig.memory, 0, false);
        ck_assert_msg(status == KVT_OK || (failed && status == KVT_ERR_NOMEM), "%s: k %u: %s",
                      scene->name, (unsigned)k, kvt_status_name(status));
        ck_assert_msg(duplicates == before - from, "%s: k %u: %u duplicates", scene->name,
                      (unsigned)k, duplicates);
        ck_assert((status == KVT_OK) == (before + inserted == pages));
        partly += inserted > 0 && before + inserted < pages;
        failures += status != KVT_OK;
        ck_assert_uint_eq(rig_lease_pages(&rig, lease), from);
        rig_release(&rig, lease);
        scene_try_again(&rig, scene, before + inserted);
        rig_close(&rig);
        if (!failed) {
            break;
        }
    }
    ck_assert_uint_gt(failures, 0);
    return partly;
}

START_TEST(insert_fails)
{
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        uint32_t partly = scene_run(&scenes[i], 1, false);
        ck_assert_msg((partly > 0) == scenes[i].partly, "%s: partly %u", scenes[i].name, partly);
        (void)scene_run(&scenes[i], 1, true);
        (void)scene_run(&scenes[i], 3, false);
    }
}
END_TEST

START_TEST(namespace_fails_at_its_root)
{
    struct index_rig rig;
    uint32_t ns = 77;
    rig_open(&rig);
    put_edges(&rig, NODES_OF_A_CHUNK - 2);
    uint32_t failures = 0;
    for (uint64_t k = 1; k <= 8 && ns == 77; k++) {
        test_memory_fail(&rig.memory, k, false);
        kvt_status status = kvt_index_namespace(rig.index, "other", 5, 7, &ns);
        test_memory_fail(&rig.memory, 0, false);
        ck_assert(status == KVT_OK || (status == KVT_ERR_NOMEM && ns == 77));
        failures += status != KVT_OK;
        rig_check(&rig);
    }
    ck_assert_uint_eq(failures, 4); /* its name, the chunk of nodes, two policies' states */
    ck_assert_int_eq(kvt_index_namespace(rig.index, "other", 5, 7, &ns), KVT_OK);
    ck_assert_uint_eq(rig_put_in(&rig, ns, "AB CD", KVT_HOST), 2);
    rig_close(&rig);
}
END_TEST

/* Nobody needs memory to give memory back. */
START_TEST(evict_without_memory)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH IJ KL MN OP"), 8);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF XX"), 1);
    test_memory_fail(&rig.memory, 1, true);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 4), 4);
    rig_check(&rig);
    ck_assert_uint_eq(rig_match(&rig, "AB CD EF GH IJ KL MN OP").pages, 4);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 5);
    ck_assert_uint_gt(rig.memory.failed, 0);
    test_memory_fail(&rig.memory, 0, false);
    ck_assert_uint_eq(rig_stats(&rig).token_bytes, 0);
    rig_close(&rig);
}
END_TEST

/* A hash table that cannot grow is slower, and answers the same. */
START_TEST(buckets_fail)
{
    struct index_rig rig;
    rig_open(&rig);
    put_edges(&rig, NODES_OF_A_CHUNK - 2);
    (void)rig_match(&rig, "AB");
    for (uint32_t i = 0; i < 8; i++) {
        char letters[8];
        uint32_t duplicates, inserted;
        (void)snprintf(letters, sizeof(letters), "A%c", 'A' + i);
        uint64_t lease = rig_lease(&rig, letters);
        uint64_t failed = 0;
        /* The block of the edge, the node chunk, ... one of them is the table's. */
        test_memory_fail(&rig.memory, 2 + i / 2, false);
        kvt_status status = rig_insert(&rig, lease, letters, KVT_HOST, &duplicates, &inserted);
        failed = rig.memory.failed;
        test_memory_fail(&rig.memory, 0, false);
        ck_assert(status == KVT_OK || failed > 0);
        rig_release(&rig, lease);
        rig_check(&rig);
        ck_assert_uint_eq(rig_match(&rig, letters).pages, inserted);
    }
    rig_close(&rig);
}
END_TEST

/* ---- limits ---- */

START_TEST(pages_are_limited)
{
    static const uint32_t limits[] = {1, 2, 5, 7};
    static const char letters[] = "AB CD EF GH *1IJ KL MN";
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct index_rig rig;
        uint32_t duplicates, inserted;
        rig_config(&rig);
        rig.config.pages_max = limits[i];
        rig_start(&rig);
        uint64_t lease = rig_lease(&rig, "");
        kvt_status status = rig_insert(&rig, lease, letters, KVT_HOST, &duplicates, &inserted);
        ck_assert_int_eq(status, limits[i] < 7 ? KVT_ERR_LIMIT : KVT_OK);
        ck_assert_uint_eq(inserted, limits[i]);
        ck_assert_uint_eq(rig_stats(&rig).pages, limits[i]);
        ck_assert_uint_eq(rig_stats(&rig).pages_max, limits[i]);
        ck_assert_uint_eq(rig_match(&rig, letters).pages, limits[i]);
        ck_assert_int_eq(rig_insert(&rig, lease, "XX", KVT_HOST, &duplicates, &inserted),
                         KVT_ERR_LIMIT);
        ck_assert_uint_eq(inserted, 0);
        rig_check(&rig);
        rig_release(&rig, lease);
        /* Room for one is room for one. */
        ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 1), 1);
        ck_assert_uint_eq(rig_put(&rig, "XX"), 1);
        lease = rig_lease(&rig, "");
        ck_assert_int_eq(rig_insert(&rig, lease, "YY", KVT_HOST, &duplicates, &inserted),
                         KVT_ERR_LIMIT);
        rig_release(&rig, lease);
        rig_close(&rig);
    }
}
END_TEST

/* Every page an edge of its own: the nodes are enough for the pages, also for a split. */
START_TEST(nodes_suffice)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.pages_max = 2000;
    rig_start(&rig);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t ns; /* roots hold no page */
        ck_assert_int_eq(kvt_index_namespace(rig.index, &i, sizeof(i), 0, &ns), KVT_OK);
    }
    put_edges(&rig, 1997);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    ck_assert_uint_eq(rig_put(&rig, "AB XX"), 1);
    ck_assert_uint_eq(rig_stats(&rig).pages, 2000);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 2101);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 5000), 2000);
    rig_close(&rig);
}
END_TEST

START_TEST(bytes_are_counted)
{
    struct index_rig rig;
    rig_open(&rig);
    uint64_t empty = rig_stats(&rig).bytes;
    ck_assert_uint_eq(empty, rig.memory.live_bytes);
    put_pages(&rig, 1000);
    ck_assert_uint_eq(rig_stats(&rig).token_bytes, 1000 * RIG_PAGE_TOKENS * 4);
    ck_assert_uint_eq(rig_stats(&rig).bytes, rig.memory.live_bytes);
    ck_assert_uint_gt(rig_stats(&rig).bytes, empty);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_fault");
    TCase *tcase = tcase_create("index_fault");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, create_fails);
    tcase_add_test(tcase, create_refused);
    tcase_add_test(tcase, namespace_fails);
    tcase_add_test(tcase, insert_fails);
    tcase_add_test(tcase, namespace_fails_at_its_root);
    tcase_add_test(tcase, evict_without_memory);
    tcase_add_test(tcase, buckets_fail);
    tcase_add_test(tcase, pages_are_limited);
    tcase_add_test(tcase, nodes_suffice);
    tcase_add_test(tcase, bytes_are_counted);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
