/*
 * An index for tests, small enough to draw: pages of two tokens, a letter a token.
 *
 *     "AB CD EF"        three pages; spaces are for the reader
 *     "AB *1CD EF"      and the extra key 1 begins at the token C
 *
 * Each page that enters gets the next number as its slot (of shard 0), so the pages that leave can
 * be told by number and in order.
 */
#ifndef KVT_INDEX_RIG_H
#define KVT_INDEX_RIG_H

#include "cache/index/index.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_memory.h"

#include <string.h>

#define RIG_PAGE_TOKENS 2u
#define RIG_OWNER 1u
#define RIG_TOKENS_MAX 256u
#define RIG_EXTRAS_MAX 16u
#define RIG_PAGES_MAX (RIG_TOKENS_MAX / RIG_PAGE_TOKENS)
#define RIG_SHARDS_MAX 3u
#define RIG_DROPS_MAX 16384u
#define RIG_NEVER UINT64_MAX

struct text {
    uint32_t tokens[RIG_TOKENS_MAX];
    struct kvt_extra extras[RIG_EXTRAS_MAX];
    struct kvt_prompt prompt;
};

struct index_rig {
    struct test_memory memory;
    struct kvt_index_config config;
    struct kvt_index *index;
    uint32_t ns; /* one namespace is there from the start */
    uint32_t next_slot;
    uint32_t drops[RIG_DROPS_MAX]; /* slots of shard 0, in the order they left */
    uint32_t drop_count;
};

static inline const struct kvt_prompt *text_make(struct text *text, const char *letters)
{
    uint32_t tokens = 0, extras = 0;
    for (const char *c = letters; *c != '\0'; c++) {
        if (*c == '*') {
            EXPECT(extras < RIG_EXTRAS_MAX);
            c++;
            text->extras[extras].token_index = tokens;
            memset(text->extras[extras++].digest, *c, sizeof(text->extras[0].digest));
        } else if (*c != ' ') {
            EXPECT(tokens < RIG_TOKENS_MAX);
            text->tokens[tokens++] = (uint32_t)*c;
        }
    }
    text->prompt = (struct kvt_prompt){.tokens = text->tokens,
                                       .pages = tokens / RIG_PAGE_TOKENS,
                                       .extra_count = extras,
                                       .extras = text->extras};
    return &text->prompt;
}

/* The generation that a slot has in these tests, so that a swapped place shows. */
static inline struct kvt_place rig_place(const struct index_rig *rig, uint32_t page, uint32_t shard)
{
    return (struct kvt_place){.slot = page * rig->config.shards + shard,
                              .generation = 1000 + page + shard};
}

static inline void rig_on_drop(void *ctx, const struct kvt_key *key, const struct kvt_place *places)
{
    struct index_rig *rig = ctx;
    const uint32_t shards = rig->config.shards;
    (void)key;
    uint32_t page = 0;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        for (uint32_t shard = 0; shard < shards; shard++) {
            struct kvt_place place = places[tier * shards + shard];
            EXPECT(kvt_place_is(place) == kvt_place_is(places[tier * shards]));
            if (kvt_place_is(place)) {
                page = place.slot / shards;
                struct kvt_place want = rig_place(rig, page, shard);
                EXPECT(place.slot == want.slot && place.generation == want.generation);
            }
        }
    }
    EXPECT(page > 0 && rig->drop_count < RIG_DROPS_MAX);
    rig->drops[rig->drop_count++] = page;
}

static inline void rig_config(struct index_rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    test_memory_init(&rig->memory);
    rig->config = (struct kvt_index_config){
        .mem = &rig->memory.mem,
        .page_tokens = RIG_PAGE_TOKENS,
        .shards = 1,
        .pages_max = 1u << 20,
        .leases_max = 32,
        .seed = 42,
        .evict = &kvt_policy_lru,
        .on_drop = rig_on_drop,
        .ctx = rig,
    };
}

/* Behind rig_config, and whatever the test changes in it. */
static inline void rig_start(struct index_rig *rig)
{
    ck_assert_int_eq(kvt_index_create(&rig->config, &rig->index), KVT_OK);
    ck_assert_int_eq(kvt_index_namespace(rig->index, "ns", 2, 7, &rig->ns), KVT_OK);
}

static inline void rig_open(struct index_rig *rig)
{
    rig_config(rig);
    rig_start(rig);
}

static inline struct kvt_index_stats rig_stats(const struct index_rig *rig)
{
    struct kvt_index_stats stats;
    kvt_index_stats(rig->index, &stats);
    return stats;
}

static inline void rig_check(const struct index_rig *rig)
{
    char why[200] = "";
    if (!kvt_index_check(rig->index, why, sizeof(why))) {
        ck_abort_msg("%s", why);
    }
    EXPECT(rig_stats(rig).bytes == rig->memory.live_bytes);
}

static inline void rig_close(struct index_rig *rig)
{
    rig_check(rig);
    kvt_index_destroy(rig->index);
    ck_assert_uint_eq(rig->memory.live_blocks, 0);
    ck_assert_uint_eq(rig->memory.live_bytes, 0);
}

static inline struct kvt_match rig_match_in(struct index_rig *rig, uint32_t ns, const char *letters)
{
    struct text text;
    struct kvt_match match;
    kvt_index_match(rig->index, ns, text_make(&text, letters), &match);
    EXPECT(match.ns == ns);
    uint32_t sum = 0;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        sum += match.tier_pages[tier];
    }
    EXPECT(sum == match.pages);
    return match;
}

static inline struct kvt_match rig_match(struct index_rig *rig, const char *letters)
{
    return rig_match_in(rig, rig->ns, letters);
}

/* A lease on what the letters match. */
static inline uint64_t rig_lease_in(struct index_rig *rig, uint32_t ns, const char *letters)
{
    struct kvt_match match = rig_match_in(rig, ns, letters);
    uint64_t lease = 0;
    EXPECT(kvt_lease_acquire(rig->index, &match, RIG_OWNER, 1, RIG_NEVER, &lease) == KVT_OK);
    return lease;
}

static inline uint64_t rig_lease(struct index_rig *rig, const char *letters)
{
    return rig_lease_in(rig, rig->ns, letters);
}

static inline void rig_release(struct index_rig *rig, uint64_t lease)
{
    EXPECT(kvt_lease_release(rig->index, lease, RIG_OWNER) == KVT_OK);
}

static inline uint32_t rig_lease_pages(const struct index_rig *rig, uint64_t lease)
{
    struct kvt_lease_info info;
    EXPECT(kvt_lease_get(rig->index, lease, RIG_OWNER, &info) == KVT_OK);
    return info.at.pages;
}

/* `count` pages to enter, with the next numbers as their slots. */
static inline void rig_new_pages(struct index_rig *rig, uint32_t count, uint32_t tier,
                                 struct kvt_new_page *out_pages, struct kvt_place *out_places)
{
    const uint32_t shards = rig->config.shards;
    for (uint32_t i = 0; i < count; i++) {
        rig->next_slot++;
        for (uint32_t shard = 0; shard < shards; shard++) {
            out_places[i * shards + shard] = rig_place(rig, rig->next_slot, shard);
        }
        out_pages[i] = (struct kvt_new_page){tier, &out_places[i * shards]};
    }
}

/* Enter the rest of the letters behind a lease. */
static inline kvt_status rig_insert(struct index_rig *rig, uint64_t lease, const char *letters,
                                    uint32_t tier, uint32_t *out_duplicates, uint32_t *out_inserted)
{
    struct text text;
    struct kvt_new_page pages[RIG_PAGES_MAX];
    struct kvt_place places[RIG_PAGES_MAX * RIG_SHARDS_MAX];
    const struct kvt_prompt *prompt = text_make(&text, letters);
    uint32_t from = rig_lease_pages(rig, lease);
    rig_new_pages(rig, prompt->pages - from, tier, pages, places);
    return kvt_index_insert(rig->index, lease, RIG_OWNER, prompt, from, prompt->pages - from, pages,
                            out_duplicates, out_inserted);
}

/* Enter what is not there yet; the number of pages that is. */
static inline uint32_t rig_put_in(struct index_rig *rig, uint32_t ns, const char *letters,
                                  uint32_t tier)
{
    uint32_t duplicates = 0, inserted = 0;
    uint64_t lease = rig_lease_in(rig, ns, letters);
    EXPECT(rig_insert(rig, lease, letters, tier, &duplicates, &inserted) == KVT_OK);
    EXPECT(duplicates == 0);
    rig_release(rig, lease);
    rig_check(rig);
    return inserted;
}

static inline uint32_t rig_put(struct index_rig *rig, const char *letters)
{
    return rig_put_in(rig, rig->ns, letters, KVT_HOST);
}

/* The pages of a leased prefix, by the numbers of their slots (which must lie in `tier`). */
static inline void rig_numbers(const struct index_rig *rig, uint64_t lease, uint32_t tier,
                               uint32_t *out_numbers)
{
    uint32_t records[RIG_PAGES_MAX];
    uint32_t pages = rig_lease_pages(rig, lease);
    EXPECT(kvt_index_pages(rig->index, lease, RIG_OWNER, 0, pages, records) == KVT_OK);
    for (uint32_t i = 0; i < pages; i++) {
        out_numbers[i] = kvt_page_place(rig->index, records[i], tier, 0).slot / rig->config.shards;
    }
}

/* True when the pages of the letters have these numbers. */
static inline bool rig_holds(struct index_rig *rig, const char *letters, uint32_t tier,
                             const uint32_t *numbers, uint32_t count)
{
    uint32_t got[RIG_PAGES_MAX];
    uint64_t lease = rig_lease(rig, letters);
    uint32_t pages = rig_lease_pages(rig, lease);
    rig_numbers(rig, lease, tier, got);
    rig_release(rig, lease);
    return pages == count && (count == 0 || memcmp(got, numbers, count * sizeof(*got)) == 0);
}

#define RIG_HOLDS(rig, letters, tier, ...)                                                         \
    rig_holds(rig, letters, tier, (const uint32_t[]){__VA_ARGS__},                                 \
              (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)))

/* True when exactly these pages left since the last time, in this order. */
static inline bool rig_dropped(struct index_rig *rig, const uint32_t *numbers, uint32_t count)
{
    bool same = rig->drop_count == count &&
                (count == 0 || memcmp(rig->drops, numbers, count * sizeof(*numbers)) == 0);
    rig->drop_count = 0;
    return same;
}

#define RIG_DROPPED(rig, ...)                                                                      \
    rig_dropped(rig, (const uint32_t[]){__VA_ARGS__},                                              \
                (uint32_t)(sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)))

/* Give a page (by its record) a place in a tier, or take it away. */
static inline void rig_move(struct index_rig *rig, uint32_t record, uint32_t number, uint32_t tier,
                            bool there)
{
    struct kvt_place places[RIG_SHARDS_MAX] = {{0, 0}};
    for (uint32_t shard = 0; there && shard < rig->config.shards; shard++) {
        places[shard] = rig_place(rig, number, shard);
    }
    kvt_page_set_places(rig->index, record, tier, places);
}

#endif
