/* The index as it grows: colliding hashes, long edges, tables and policies' states that move. */
#include "tests/support/index_rig.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- collisions ---- */

/* Many children of many parents under hashes of few bits: never a wrong answer. */
static void check_collisions(uint32_t hash_bits, bool expect_collisions)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.hash_bits = hash_bits;
    rig_start(&rig);
    uint64_t before = rig_stats(&rig).key_collisions;
    char letters[16];
    for (uint32_t a = 0; a < 20; a++) {
        for (uint32_t b = 0; b < 20; b++) {
            (void)snprintf(letters, sizeof(letters), "%c%c %c%c", 'A' + a, 'A' + b, 'A' + b,
                           'A' + a);
            EXPECT(rig_match(&rig, letters).pages == 0);
            EXPECT(rig_put(&rig, letters) == 2);
        }
    }
    ck_assert_uint_eq(rig_stats(&rig).nodes, 401);
    for (uint32_t a = 0; a < 20; a++) {
        for (uint32_t b = 0; b < 20; b++) {
            uint32_t number = 1 + 2 * (20 * a + b);
            (void)snprintf(letters, sizeof(letters), "%c%c %c%c", 'A' + a, 'A' + b, 'A' + b,
                           'A' + a);
            EXPECT(RIG_HOLDS(&rig, letters, KVT_HOST, number, number + 1));
            (void)snprintf(letters, sizeof(letters), "%c%c %c%c", 'A' + a, 'a' + b, 'A' + b,
                           'A' + a);
            struct kvt_match match = rig_match(&rig, letters);
            EXPECT(match.pages == 0 && match.diverged);
        }
    }
    uint64_t collisions = rig_stats(&rig).key_collisions - before;
    ck_assert(expect_collisions ? collisions > 400 : collisions == 0);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 1000), 800);
    rig_close(&rig);
}

START_TEST(hash_collisions)
{
    check_collisions(8, true);
    check_collisions(1, true);
    check_collisions(0, false);
    check_collisions(32, false);
}
END_TEST

/* ---- long edges, and the hash table that grows ---- */

/* Enter `count` pages of distinct tokens in one call, and look at what became of them. */
static void check_long(uint32_t page_tokens, uint32_t count, uint32_t want_edges)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.page_tokens = page_tokens;
    rig_start(&rig);
    uint32_t *tokens = malloc((size_t)count * page_tokens * sizeof(*tokens));
    struct kvt_new_page *pages = malloc(count * sizeof(*pages));
    struct kvt_place *places = malloc(count * sizeof(*places));
    uint32_t *records = malloc(count * sizeof(*records));
    ck_assert(tokens != NULL && pages != NULL && places != NULL && records != NULL);
    for (uint32_t i = 0; i < count * page_tokens; i++) {
        tokens[i] = i * 2654435761u;
    }
    struct kvt_prompt prompt = {.tokens = tokens, .pages = count};
    struct kvt_match match;
    uint64_t lease = 0;
    uint32_t duplicates, inserted;
    kvt_index_match(rig.index, rig.ns, &prompt, &match);
    ck_assert_int_eq(kvt_lease_acquire(rig.index, &match, RIG_OWNER, 1, RIG_NEVER, &lease), KVT_OK);
    rig_new_pages(&rig, count, KVT_HOST, pages, places);
    ck_assert_int_eq(kvt_index_insert(rig.index, lease, RIG_OWNER, &prompt, 0, count, pages,
                                      &duplicates, &inserted),
                     KVT_OK);
    ck_assert_uint_eq(inserted, count);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 1 + want_edges);
    rig_check(&rig);
    rig_release(&rig, lease);
    kvt_index_match(rig.index, rig.ns, &prompt, &match);
    ck_assert_uint_eq(match.pages, count);
    ck_assert_uint_eq(match.tier_pages[KVT_HOST], count);
    ck_assert_int_eq(kvt_lease_acquire(rig.index, &match, RIG_OWNER, 1, RIG_NEVER, &lease), KVT_OK);
    /* Every range of pages, across the edges' ends. */
    for (uint32_t first = 0; first < count; first += count / 7 + 1) {
        ck_assert_int_eq(
            kvt_index_pages(rig.index, lease, RIG_OWNER, first, count - first, records), KVT_OK);
        for (uint32_t i = 0; i < count - first; i++) {
            EXPECT(kvt_page_place(rig.index, records[i], KVT_HOST, 0).slot == 1 + first + i);
        }
    }
    rig_release(&rig, lease);
    /* A change anywhere is found at its page. */
    for (uint32_t page = 0; page < count; page += count / 50 + 1) {
        uint32_t *token = &tokens[page * page_tokens + (page * 7) % page_tokens];
        *token ^= 0x10000;
        kvt_index_match(rig.index, rig.ns, &prompt, &match);
        EXPECT(match.pages == page && match.diverged);
        *token ^= 0x10000;
    }
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, count), count);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT(rig.drops[i] == count - i); /* the deepest first */
    }
    rig_close(&rig);
    free(tokens);
    free(pages);
    free(places);
    free(records);
}

START_TEST(long_edges)
{
    check_long(16, 4096, 1); /* exactly one full edge */
    check_long(16, 4097, 2);
    check_long(16, 10000, 3);
    check_long(7, 9362 + 5, 2); /* a limit that no page divides */
    check_long(KVT_EDGE_TOKENS_MAX, 3, 3);
    check_long(KVT_EDGE_TOKENS_MAX + 1, 3, 3); /* a page longer than an edge may be */
}
END_TEST

/* An edge that grows page by page is continued by a child in the end. */
START_TEST(edge_grows_to_its_limit)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.page_tokens = KVT_EDGE_TOKENS_MAX / 4;
    rig_start(&rig);
    static uint32_t tokens[KVT_EDGE_TOKENS_MAX / 4 * 9];
    for (uint32_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
        tokens[i] = i;
    }
    for (uint32_t page = 0; page < 9; page++) {
        struct kvt_prompt prompt = {.tokens = tokens, .pages = page + 1};
        struct kvt_match match;
        struct kvt_new_page new_page;
        struct kvt_place place;
        uint64_t lease = 0;
        uint32_t duplicates, inserted;
        kvt_index_match(rig.index, rig.ns, &prompt, &match);
        ck_assert_uint_eq(match.pages, page);
        ck_assert_int_eq(kvt_lease_acquire(rig.index, &match, RIG_OWNER, 1, RIG_NEVER, &lease),
                         KVT_OK);
        rig_new_pages(&rig, 1, KVT_HOST, &new_page, &place);
        ck_assert_int_eq(kvt_index_insert(rig.index, lease, RIG_OWNER, &prompt, page, 1, &new_page,
                                          &duplicates, &inserted),
                         KVT_OK);
        rig_release(&rig, lease);
        ck_assert_uint_eq(rig_stats(&rig).nodes, 2 + page / 4);
        rig_check(&rig);
    }
    rig_close(&rig);
}
END_TEST

START_TEST(hash_table_grows)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.page_tokens = 1;
    rig_start(&rig);
    uint64_t root = rig_lease(&rig, "");
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t token = i, duplicates, inserted;
        struct kvt_prompt prompt = {.tokens = &token, .pages = 1};
        struct kvt_new_page page;
        struct kvt_place place;
        rig_new_pages(&rig, 1, KVT_HOST, &page, &place);
        EXPECT(kvt_index_insert(rig.index, root, RIG_OWNER, &prompt, 0, 1, &page, &duplicates,
                                &inserted) == KVT_OK);
        EXPECT(inserted == 1);
    }
    for (uint32_t i = 0; i < 6000; i++) {
        uint32_t token = i;
        struct kvt_prompt prompt = {.tokens = &token, .pages = 1};
        struct kvt_match match;
        kvt_index_match(rig.index, rig.ns, &prompt, &match);
        EXPECT(match.pages == (i < 5000) && match.diverged == (i >= 5000));
    }
    rig_release(&rig, root);
    rig_close(&rig);
}
END_TEST

/* A policy's state that moved to a larger place is its old one, with zeroes behind. The states of
 * all tiers grow at once; the first is looked at. */
static uint32_t grown_slots;

static void grow_noted(void *state, uint32_t slots_max)
{
    const unsigned char *bytes = state;
    for (size_t i = kvt_policy_lru.state_bytes(grown_slots);
         i < kvt_policy_lru.state_bytes(slots_max); i++) {
        EXPECT(bytes[i] == 0);
    }
    grown_slots = slots_max;
    kvt_policy_lru.grow(state, slots_max);
}

static void init_noted(void *state, uint32_t slots_max, uint64_t seed)
{
    grown_slots = slots_max;
    kvt_policy_lru.init(state, slots_max, seed);
}

START_TEST(policy_state_grows)
{
    struct index_rig rig;
    struct kvt_evict_ops noted = kvt_policy_lru;
    char letters[16];
    noted.init = init_noted;
    noted.grow = grow_noted;
    rig_config(&rig);
    rig.config.evict = &noted;
    rig_start(&rig);
    const uint32_t before = grown_slots;
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t noted_slots = grown_slots;
        (void)snprintf(letters, sizeof(letters), "%c%c%c%c", 'A' + i % 20, 'A' + i / 20 % 20,
                       'A' + i / 400, 'x');
        uint64_t lease = rig_lease(&rig, "");
        uint32_t duplicates, inserted;
        EXPECT(rig_insert(&rig, lease, letters, KVT_HBM, &duplicates, &inserted) == KVT_OK);
        rig_release(&rig, lease);
        if (grown_slots != noted_slots) {
            rig_check(&rig);
        }
    }
    ck_assert_uint_gt(grown_slots, before);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_growth");
    TCase *tcase = tcase_create("index_growth");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, hash_collisions);
    tcase_add_test(tcase, long_edges);
    tcase_add_test(tcase, edge_grows_to_its_limit);
    tcase_add_test(tcase, hash_table_grows);
    tcase_add_test(tcase, policy_state_grows);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
