/* The radix tree: every case drawn in index.h, extra keys, namespaces, and the check itself. */
#include "cache/index/index_internal.h"
#include "tests/support/index_rig.h"

#include <stdio.h>

/* The tree of the drawing: 7 = [AB CD EF] with the children 8 = [GH IJ] and 9 = [GK].
 * The pages have the numbers 1 2 3, 4 5 and 9 (6 to 8 were duplicates of 1 to 3, had they come). */
static void put_drawing(struct index_rig *rig)
{
    ck_assert_uint_eq(rig_put(rig, "AB CD EF GH IJ"), 5);
    ck_assert_uint_eq(rig_stats(rig).nodes, 2);
    ck_assert_uint_eq(rig_put(rig, "AB CD EF GK"), 1);
    ck_assert_uint_eq(rig_stats(rig).nodes, 4);
}

struct want {
    const char *letters;
    uint32_t pages;
    bool diverged;
    uint32_t offset; /* in the edge where it ended */
};

static void check_matches(struct index_rig *rig, const struct want *wants, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct want *want = &wants[i];
        struct kvt_match match = rig_match(rig, want->letters);
        ck_assert_msg(match.pages == want->pages && match.diverged == want->diverged &&
                          match.offset == want->offset,
                      "'%s': %u pages, diverged %d, offset %u", want->letters, match.pages,
                      match.diverged, match.offset);
        ck_assert_uint_eq(match.tier_pages[KVT_HOST], want->pages);
    }
}

START_TEST(match_drawn)
{
    static const struct want wants[] = {
        {"AB CD EF GH", 4, false, 1},          /* M1: the prompt ends inside an edge */
        {"AB CD EF GH I", 4, false, 1},        /* ... half a page is no page */
        {"AB CD EF GH IJ", 5, false, 2},       /* ... at the end of the leaf */
        {"AB CD EF GH IJ KL MN", 5, false, 2}, /* ... beyond it: nothing else is known there */
        {"AB CD EF", 3, false, 3},             /* ... where it branches */
        {"AB", 1, false, 1},
        {"AB CD XY", 2, true, 2},       /* M2 */
        {"AB CD XY EF GH", 2, true, 2}, /* ... what follows does not matter */
        {"AB CD EF GH XY", 4, true, 1},
        {"AB CD EF GZ", 3, true, 3}, /* M3 */
        {"AB CD EF ZG", 3, true, 3},
        {"AB CX", 1, true, 1}, /* M4 */
        {"AB XD EF", 1, true, 1},
        {"QQ", 0, true, 0}, /* M5 */
        {"AQ CD", 0, true, 0},
        {"BA", 0, true, 0},
        {"CD EF", 0, true, 0}, /* a prefix, not any run */
        {"", 0, false, 0},
        {"A", 0, false, 0},
    };
    struct index_rig rig;
    rig_config(&rig);
    rig.config.hash_bits = (uint32_t)_i; /* 0: all; 1: everything collides */
    rig_start(&rig);
    ck_assert(!rig_match(&rig, "QQ").diverged); /* an empty tree holds no other continuation */
    put_drawing(&rig);
    check_matches(&rig, wants, sizeof(wants) / sizeof(wants[0]));
    ck_assert(RIG_HOLDS(&rig, "AB CD EF GH IJ", KVT_HOST, 1, 2, 3, 4, 5));
    ck_assert(RIG_HOLDS(&rig, "AB CD EF GK", KVT_HOST, 1, 2, 3, 6));
    ck_assert(!RIG_HOLDS(&rig, "AB CD EF GK", KVT_HOST, 1, 2, 3, 4)); /* the control */
    rig_close(&rig);
}
END_TEST

static void check_key(struct index_rig *rig, const char *letters)
{
    struct text text;
    const struct kvt_prompt *prompt = text_make(&text, letters);
    struct kvt_match match = rig_match(rig, letters);
    struct kvt_key want = kvt_key_of_namespace("ns", 2);
    uint32_t cursor = 0;
    for (uint32_t page = 0; page < match.pages; page++) {
        const struct kvt_extra *extras = NULL;
        uint32_t count = kvt_prompt_extras(prompt, page, RIG_PAGE_TOKENS, &cursor, &extras);
        want = kvt_key_next(&want, prompt->tokens + page * RIG_PAGE_TOKENS, RIG_PAGE_TOKENS, extras,
                            count * sizeof(*extras));
    }
    struct kvt_key key = kvt_index_match_key(rig->index, &match);
    ck_assert_mem_eq(&key, &want, sizeof(key));
    want.bytes[0] ^= 1;
    ck_assert_mem_ne(&key, &want, sizeof(key));
}

START_TEST(match_keys)
{
    struct index_rig rig;
    rig_open(&rig);
    check_key(&rig, "AB");
    put_drawing(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD *1PQ RS *2TU *3V*4W"), 4);
    check_key(&rig, "QQ");
    check_key(&rig, "AB");
    check_key(&rig, "AB CD XY");
    check_key(&rig, "AB CD EF");
    check_key(&rig, "AB CD EF GH IJ");
    check_key(&rig, "AB CD EF GK");
    check_key(&rig, "AB CD *1PQ RS");
    check_key(&rig, "AB CD *1PQ RS *2TU *3V*4W");
    rig_close(&rig);
}
END_TEST

START_TEST(insert_drawn)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2); /* below the root: a new child */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 2);
    struct kvt_match before = rig_match(&rig, "AB CD");
    ck_assert_uint_eq(rig_put(&rig, "AB CD NN"), 1); /* I1: the edge grows in place */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 2);
    ck_assert_uint_eq(rig_match(&rig, "AB CD NN").node, before.node);
    ck_assert_uint_eq(rig_put(&rig, "AB CD MM"), 1); /* I3: inside an edge */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 4);
    /* The lower part keeps its number, the upper has a new one. */
    ck_assert_uint_eq(rig_match(&rig, "AB CD NN").node, before.node);
    ck_assert_uint_ne(rig_match(&rig, "AB CD").node, before.node);
    ck_assert_uint_eq(rig_match(&rig, "AB CD NN").offset, 1);
    ck_assert_uint_eq(rig_put(&rig, "AB CD OO PP"), 2); /* I2: at a branching node */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 5);
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 1); /* and at the root */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 6);
    ck_assert(RIG_HOLDS(&rig, "AB CD NN", KVT_HOST, 1, 2, 3));
    ck_assert(RIG_HOLDS(&rig, "AB CD MM", KVT_HOST, 1, 2, 4));
    ck_assert(RIG_HOLDS(&rig, "AB CD OO PP", KVT_HOST, 1, 2, 5, 6));
    ck_assert(RIG_HOLDS(&rig, "QQ", KVT_HOST, 7));
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 0); /* nothing new */
    ck_assert_uint_eq(rig_stats(&rig).pages, 7);
    ck_assert_uint_eq(rig_stats(&rig).token_bytes, 7 * 8);
    rig_close(&rig);
}
END_TEST

/* Split one edge again and again, at every place of it. */
START_TEST(insert_splits_everywhere)
{
    static const char spine[] = "AB CD EF GH IJ KL MN OP";
    for (uint32_t order = 0; order < 3; order++) {
        struct index_rig rig;
        rig_open(&rig);
        ck_assert_uint_eq(rig_put(&rig, spine), 8);
        for (uint32_t i = 1; i < 8; i++) {
            uint32_t at = order == 0 ? i : order == 1 ? 8 - i : 1 + (i * 3) % 7;
            char branch[64];
            (void)snprintf(branch, sizeof(branch), "%.*s%c%c", (int)(3 * at), spine, '1', 'x');
            ck_assert_uint_eq(rig_put(&rig, branch), 1);
        }
        ck_assert_uint_eq(rig_stats(&rig).nodes, 1 + 8 + 7);
        ck_assert_uint_eq(rig_stats(&rig).pages, 15);
        ck_assert(RIG_HOLDS(&rig, spine, KVT_HOST, 1, 2, 3, 4, 5, 6, 7, 8));
        ck_assert_uint_eq(rig_stats(&rig).token_bytes, 15 * 8);
        rig_close(&rig);
    }
}
END_TEST

/* Others may have entered the same pages since the lease was taken. */
START_TEST(insert_duplicates)
{
    struct index_rig rig;
    uint32_t duplicates = 9, inserted = 9;
    rig_open(&rig);
    uint64_t a = rig_lease(&rig, "AB CD EF");
    uint64_t b = rig_lease(&rig, "AB CD EF");
    ck_assert_int_eq(rig_insert(&rig, a, "AB CD EF", KVT_HOST, &duplicates, &inserted), KVT_OK);
    ck_assert_uint_eq(duplicates, 0);
    ck_assert_uint_eq(inserted, 3);
    ck_assert_int_eq(rig_insert(&rig, b, "AB CD EF", KVT_HOST, &duplicates, &inserted), KVT_OK);
    ck_assert_uint_eq(duplicates, 3); /* 4 5 6 stay the caller's */
    ck_assert_uint_eq(inserted, 0);
    ck_assert_int_eq(rig_insert(&rig, b, "AB CD EF GH", KVT_HBM, &duplicates, &inserted), KVT_OK);
    ck_assert_uint_eq(duplicates, 3);
    ck_assert_uint_eq(inserted, 1);
    ck_assert_int_eq(rig_insert(&rig, a, "AB CD XY", KVT_HOST, &duplicates, &inserted), KVT_OK);
    ck_assert_uint_eq(duplicates, 2); /* and then it splits */
    ck_assert_uint_eq(inserted, 1);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 4);
    ck_assert(RIG_HOLDS(&rig, "AB CD EF", KVT_HOST, 1, 2, 3));
    ck_assert_uint_eq(rig_stats(&rig).pages, 5);
    struct kvt_match match = rig_match(&rig, "AB CD EF GH");
    ck_assert_uint_eq(match.tier_pages[KVT_HOST], 3);
    ck_assert_uint_eq(match.tier_pages[KVT_HBM], 1);
    rig_release(&rig, a);
    rig_release(&rig, b);
    rig_close(&rig);
}
END_TEST

START_TEST(insert_refused)
{
    struct index_rig rig;
    struct text text;
    struct kvt_new_page pages[RIG_PAGES_MAX];
    struct kvt_place places[RIG_PAGES_MAX];
    uint32_t duplicates = 9, inserted = 9;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t lease = rig_lease(&rig, "AB CD");
    const struct kvt_prompt *prompt = text_make(&text, "AB CD EF");
    rig_new_pages(&rig, 8, KVT_HOST, pages, places);
    const struct {
        uint64_t lease;
        uint32_t owner, from, count;
        kvt_status status;
    } cases[] = {
        {lease, RIG_OWNER, 1, 1, KVT_ERR_INVAL}, /* the lease says 2 */
        {lease, RIG_OWNER, 3, 0, KVT_ERR_INVAL},
        {lease, RIG_OWNER, 2, 2, KVT_ERR_INVAL}, /* the prompt has 3 */
        {lease, RIG_OWNER + 1, 2, 1, KVT_ERR_STALE},
        {lease + 1, RIG_OWNER, 2, 1, KVT_ERR_STALE},
        {0, RIG_OWNER, 2, 1, KVT_ERR_STALE},
        {lease, RIG_OWNER, 2, 0, KVT_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        duplicates = inserted = 9;
        ck_assert_int_eq(kvt_index_insert(rig.index, cases[i].lease, cases[i].owner, prompt,
                                          cases[i].from, cases[i].count, pages, &duplicates,
                                          &inserted),
                         cases[i].status);
        ck_assert_uint_eq(duplicates, 0);
        ck_assert_uint_eq(inserted, 0);
        ck_assert_uint_eq(rig_stats(&rig).pages, 2);
    }
    ck_assert_int_eq(
        kvt_index_insert(rig.index, lease, RIG_OWNER, prompt, 2, 1, pages, &duplicates, &inserted),
        KVT_OK);
    ck_assert_uint_eq(inserted, 1); /* the control */
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

/* Who saves knows the tokens from his first page on, and the extra keys of the whole prompt. */
START_TEST(insert_from_the_middle)
{
    static const char letters[] = "AB *1CD EF *2GH IJ";
    for (uint32_t first = 0; first <= 2; first++) {
        struct index_rig rig;
        struct text text;
        struct kvt_new_page pages[RIG_PAGES_MAX];
        struct kvt_place places[RIG_PAGES_MAX];
        uint32_t duplicates, inserted;
        rig_open(&rig);
        ck_assert_uint_eq(rig_put(&rig, "AB *1CD"), 2);
        uint64_t lease = rig_lease(&rig, "AB *1CD");
        ck_assert_uint_eq(rig_put(&rig, "AB *1CD EF *2GX"), 2);
        struct kvt_prompt prompt = *text_make(&text, letters);
        prompt.first_page = first;
        prompt.tokens += first * RIG_PAGE_TOKENS;
        rig_new_pages(&rig, 3, KVT_HOST, pages, places);
        ck_assert_int_eq(kvt_index_insert(rig.index, lease, RIG_OWNER, &prompt, 2, 3, pages,
                                          &duplicates, &inserted),
                         KVT_OK);
        ck_assert_uint_eq(duplicates, 1);
        ck_assert_uint_eq(inserted, 2);
        ck_assert(RIG_HOLDS(&rig, letters, KVT_HOST, 1, 2, 3, 6, 7));
        check_key(&rig, letters);
        prompt.first_page = 3; /* behind the first page that is asked for */
        ck_assert_int_eq(kvt_index_insert(rig.index, lease, RIG_OWNER, &prompt, 2, 3, pages,
                                          &duplicates, &inserted),
                         KVT_ERR_INVAL);
        rig_release(&rig, lease);
        rig_close(&rig);
    }
}
END_TEST

/* ---- extra keys ---- */

START_TEST(extras_begin_edges)
{
    static const struct want wants[] = {
        {"AB CD *1EF GH IJ *2KL", 6, false, 1},
        {"AB CD EF GH", 2, true, 2},             /* no image: shared up to it */
        {"AB CD *3EF GH IJ *2KL", 2, true, 2},   /* another image */
        {"AB CD E*1F GH IJ *2KL", 2, true, 2},   /* the same, a token later */
        {"AB CD *1EF GH IJ *1KL", 5, true, 3},   /* the second differs */
        {"AB CD *1EF GH IJ KL", 5, true, 3},     /* ... or is not there */
        {"AB CD *1EF *1GH IJ *2KL", 3, true, 1}, /* one too many, inside an edge */
        {"AB *1CD EF", 1, true, 1},
        {"*1AB CD EF", 0, true, 0},
        {"AB CD *1EF GX", 3, true, 1},
        {"AB CD *1EF", 3, false, 1},
        {"AB CD *1EF*9", 3, false, 1}, /* begins behind the last whole page */
        {"AB CD *1EX", 2, true, 2},
    };
    struct index_rig rig;
    rig_config(&rig);
    rig.config.hash_bits = (uint32_t)_i;
    rig_start(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD *1EF GH IJ *2KL"), 6);
    /* Root, [AB CD], [*EF GH IJ], [*KL]: an edge begins with each, and does not grow into one. */
    ck_assert_uint_eq(rig_stats(&rig).nodes, 4);
    check_matches(&rig, wants, sizeof(wants) / sizeof(wants[0]));
    for (int other = 'a'; other <= 'z'; other++) {
        char letters[] = "AB CD *?EF GH"; /* one of them has the hash of the right one */
        letters[7] = (char)other;
        ck_assert_uint_eq(rig_match(&rig, letters).pages, 2);
    }
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
        (void)rig_put(&rig, wants[i].letters);
        struct text text;
        struct kvt_match match = rig_match(&rig, wants[i].letters);
        ck_assert_uint_eq(match.pages, text_make(&text, wants[i].letters)->pages);
        ck_assert(!match.diverged);
    }
    ck_assert(RIG_HOLDS(&rig, "AB CD *1EF GH IJ *2KL", KVT_HOST, 1, 2, 3, 4, 5, 6));
    rig_close(&rig);
}
END_TEST

START_TEST(extras_split)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "*1A*2B CD EF"), 3); /* two in one page */
    ck_assert_uint_eq(rig_put(&rig, "*1A*2B CD XY"), 1); /* the upper part keeps them */
    ck_assert_uint_eq(rig_put(&rig, "*1A*2B QQ"), 1);
    ck_assert_uint_eq(rig_put(&rig, "*1A*3B CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "*1AB CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "A*2B CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    ck_assert(RIG_HOLDS(&rig, "*1A*2B CD EF", KVT_HOST, 1, 2, 3));
    ck_assert(RIG_HOLDS(&rig, "*1A*2B CD XY", KVT_HOST, 1, 2, 4));
    ck_assert(RIG_HOLDS(&rig, "*1A*2B QQ", KVT_HOST, 1, 5));
    ck_assert(RIG_HOLDS(&rig, "AB CD EF", KVT_HOST, 15, 16, 17));
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 100), 17);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 1);
    rig_close(&rig);
}
END_TEST

/* An extra key far behind everything, where page numbers of 32 bits would wrap, changes nothing. */
START_TEST(extras_out_of_reach)
{
    static const uint64_t far[] = {8, UINT64_C(1) << 32, UINT64_C(1) << 33, (UINT64_C(1) << 33) + 4,
                                   UINT64_MAX};
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH"), 4);
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        struct text text;
        struct kvt_match match;
        (void)text_make(&text, "AB CD EF GH*1");
        text.extras[0].token_index = far[i];
        kvt_index_match(rig.index, rig.ns, &text.prompt, &match);
        ck_assert_uint_eq(match.pages, 4);
        ck_assert(!match.diverged);
    }
    rig_close(&rig);
}
END_TEST

/* ---- namespaces ---- */

START_TEST(namespaces_never_share)
{
    struct index_rig rig;
    uint32_t a, b, again;
    rig_open(&rig);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "a", 1, 7, &a), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "a\0", 2, 7, &b), KVT_OK);
    ck_assert_uint_ne(a, b);
    ck_assert_uint_ne(a, rig.ns);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "a\0", 2, 7, &again), KVT_OK);
    ck_assert_uint_eq(again, b);
    ck_assert_uint_eq(rig_stats(&rig).namespaces, 3);
    ck_assert_uint_eq(rig_put_in(&rig, a, "AB CD EF", KVT_HOST), 3);
    ck_assert_uint_eq(rig_match_in(&rig, b, "AB CD EF").pages, 0);
    ck_assert(!rig_match_in(&rig, b, "AB CD EF").diverged);
    ck_assert_uint_eq(rig_put_in(&rig, b, "AB CD XY", KVT_HOST), 3);
    ck_assert_uint_eq(rig_match_in(&rig, b, "AB CD EF").pages, 2);
    ck_assert_uint_eq(rig_match_in(&rig, a, "AB CD EF").pages, 3);
    struct kvt_match in_a = rig_match_in(&rig, a, "AB");
    struct kvt_match in_b = rig_match_in(&rig, b, "AB");
    struct kvt_key key_a = kvt_index_match_key(rig.index, &in_a);
    struct kvt_key key_b = kvt_index_match_key(rig.index, &in_b);
    ck_assert_mem_ne(&key_a, &key_b, sizeof(key_a));
    rig_close(&rig);
}
END_TEST

START_TEST(namespace_slot_bytes)
{
    struct index_rig rig;
    uint32_t other, record = 0;
    rig_open(&rig);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "other", 5, 7, &other), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace_bytes(rig.index, rig.ns, 4096), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace_bytes(rig.index, rig.ns, 4096), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace_bytes(rig.index, rig.ns, 4097), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_index_namespace_bytes(rig.index, other, 100), KVT_OK);
    ck_assert_uint_eq(rig_put(&rig, "AB"), 1);
    uint64_t lease = rig_lease(&rig, "AB");
    ck_assert_int_eq(kvt_index_pages(rig.index, lease, RIG_OWNER, 0, 1, &record), KVT_OK);
    ck_assert_uint_eq(kvt_page_slot_bytes(rig.index, record), 4096);
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

START_TEST(elsewhere_respects_groups)
{
    struct index_rig rig; /* its own namespace is of group 7 */
    struct text text;
    uint32_t same, longer, foreign;
    rig_open(&rig);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "same", 4, 7, &same), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "longer", 6, 7, &longer), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "foreign", 7, 8, &foreign), KVT_OK);
    const struct kvt_prompt *prompt = text_make(&text, "AB CD EF GH IJ");
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, rig.ns, prompt), 0);
    (void)rig_put_in(&rig, foreign, "AB CD EF GH IJ", KVT_HOST);
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, rig.ns, prompt), 0);
    (void)rig_put_in(&rig, same, "AB CD", KVT_HOST);
    (void)rig_put_in(&rig, longer, "AB CD EF", KVT_HOST);
    (void)rig_put(&rig, "AB CD EF GH"); /* its own does not count */
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, rig.ns, prompt), 3);
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, longer, prompt), 4);
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, foreign, prompt), 0);
    rig_close(&rig);
}
END_TEST

START_TEST(elsewhere_looks_at_few)
{
    struct index_rig rig;
    struct text text;
    uint32_t ns = 0;
    rig_open(&rig);
    for (uint32_t i = 0; i < KVT_OTHER_NAMESPACES_MAX + 1; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "%u", i);
        ck_assert_int_eq(kvt_index_namespace(rig.index, name, strlen(name), 7, &ns), KVT_OK);
        if (i + 1 == KVT_OTHER_NAMESPACES_MAX) {
            (void)rig_put_in(&rig, ns, "AB CD", KVT_HOST);
        }
    }
    (void)rig_put_in(&rig, ns, "AB CD EF", KVT_HOST); /* one too far */
    ck_assert_uint_eq(kvt_index_match_elsewhere(rig.index, rig.ns, text_make(&text, "AB CD EF")),
                      2);
    rig_close(&rig);
}
END_TEST

START_TEST(namespaces_are_limited)
{
    struct index_rig rig;
    uint32_t ns = 0;
    rig_open(&rig);
    for (uint32_t i = 1; i < KVT_NAMESPACES_MAX; i++) {
        EXPECT(kvt_index_namespace(rig.index, &i, sizeof(i), 0, &ns) == KVT_OK);
        EXPECT(ns == i);
    }
    ck_assert_int_eq(kvt_index_namespace(rig.index, "more", 4, 0, &ns), KVT_ERR_LIMIT);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "ns", 2, 0, &ns), KVT_OK);
    ck_assert_uint_eq(ns, rig.ns);
    (void)rig_put(&rig, "AB CD");
    rig_close(&rig);
}
END_TEST

/* ---- the check itself ---- */

static bool notices(const struct index_rig *rig)
{
    char why[200] = "";
    bool good = kvt_index_check(rig->index, why, sizeof(why));
    ck_assert(good == (why[0] == '\0'));
    return !good;
}

/* The control of every test here that ends with the check: planted faults are noticed. */
START_TEST(check_notices)
{
    struct index_rig rig;
    rig_open(&rig);
    put_drawing(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB *1CD"), 1);
    uint64_t lease = rig_lease(&rig, "AB CD EF GH");
    struct kvt_match match = rig_match(&rig, "AB CD EF GH IJ");
    struct kvt_index *index = rig.index;
    struct node *node = node_at(index, match.node);
    struct node *parent = node_at(index, node->parent);
    struct page *page = page_at(index, node->pages[1]);
    ck_assert(!notices(&rig));
#define PLANT(where, value)                                                                        \
    do {                                                                                           \
        __typeof__(where) plant_old = (where);                                                     \
        (where) = (value);                                                                         \
        ck_assert_msg(notices(&rig), "not noticed: %s", #where);                                   \
        (where) = plant_old;                                                                       \
        ck_assert(!notices(&rig));                                                                 \
    } while (0)
    PLANT(node->tier_pages[KVT_HOST], 1);
    PLANT(node->fastest_pages[KVT_HBM], 1);
    PLANT(node->depth, 2);
    PLANT(node->page_count, 1);
    PLANT(node->tokens[2], 'X');
    PLANT(node->pages[1], node->pages[0]);
    PLANT(node->hash, node->hash + 1);
    PLANT(node->prev_sibling, 99);
    PLANT(node->lease_head, LEASE_NONE);
    PLANT(parent->first_child, KVT_NODE_NONE);
    PLANT(page->node, node->parent);
    PLANT(page->key.bytes[3], (unsigned char)~page->key.bytes[3]);
    PLANT(page->places[KVT_HOST].generation, 0);
    PLANT(index->page_count, 3);
    PLANT(index->node_count, 3);
    PLANT(index->tier_pages[KVT_HOST], 3);
    PLANT(index->token_bytes, 3);
    PLANT(index->leased_pages, 3);
    PLANT(index->lease_count, 3);
    PLANT(index->pages.free_count, 1);
    PLANT(index->leases[(uint32_t)lease].offset, 2);
    PLANT(index->leases[(uint32_t)lease].node, node->parent);
#undef PLANT
    index->config.evict->on_remove(index->policies[KVT_HOST].state, match.node);
    ck_assert(notices(&rig));
    index->config.evict->on_insert(index->policies[KVT_HOST].state, match.node);
    ck_assert(!notices(&rig));
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index");
    TCase *tcase = tcase_create("index");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, match_drawn, 0, 2);
    tcase_add_test(tcase, match_keys);
    tcase_add_test(tcase, insert_drawn);
    tcase_add_test(tcase, insert_splits_everywhere);
    tcase_add_test(tcase, insert_duplicates);
    tcase_add_test(tcase, insert_refused);
    tcase_add_test(tcase, insert_from_the_middle);
    tcase_add_loop_test(tcase, extras_begin_edges, 0, 2);
    tcase_add_test(tcase, extras_split);
    tcase_add_test(tcase, extras_out_of_reach);
    tcase_add_test(tcase, namespaces_never_share);
    tcase_add_test(tcase, namespace_slot_bytes);
    tcase_add_test(tcase, elsewhere_respects_groups);
    tcase_add_test(tcase, elsewhere_looks_at_few);
    tcase_add_test(tcase, namespaces_are_limited);
    tcase_add_test(tcase, check_notices);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
