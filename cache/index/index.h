/*
 * The index: a radix tree of token pages for each namespace, page records, leases.
 *
 * An edge is a run of whole pages with their tokens stored. What we call a node is an edge and the
 * branching point at its end; each namespace has a root node of no pages.
 *
 *      root                          page_tokens = 2 for the drawing
 *       |
 *     [A B|C D|E F]        node 7: 3 pages, depth 0
 *       |       \
 *   [G H|I J]   [G K]      node 8: 2 pages, depth 3;  node 9: 1 page, depth 3
 *
 * Children of a node differ somewhere in their first page, not necessarily in their first token
 * (G H, G K): a child is found by a hash over (parent, first page) and then compared token by
 * token.
 *
 * How a match ends, by example on the tree above (prompts cut to whole pages):
 *   M1 A B C D E F G H ...   walks 7, then 8: ends where the prompt, or the leaf, ends
 *   M2 A B C D X Y           ends inside edge 7 after 2 pages ("diverged": the cache holds another
 *                            continuation there)
 *   M3 A B C D E F G Z       no child has this first page: ends at the end of 7, diverged
 *   M4 A B C X               C X differs inside page 1: one page matched, diverged
 *   M5 Q ...                 nothing: ends at the root
 *
 * How an insert behind a match ends (pages new to the tree are N):
 *   I1 at the end of a leaf  the edge grows in place:       [A B|C D] -> [A B|C D|N]
 *   I2 at a branching node   a new child                     7 -> [N]
 *   I3 inside an edge        the edge is split first:        [A B|C D|E F] -> [A B|C D] -> [E F]
 *                                                                              \-> [N]
 *   A split makes a new node for the upper part; the lower keeps its number, so its children need
 *   no change, and leases and policies that stand on it only learn their new offset.
 *   Extra keys (images) begin a new edge: only the first page of an edge may carry them.
 *
 * A page is in the tree only when every shard of it has a place in some tier (it is inserted at
 * commit, never before), and it leaves the tree only after all that continues it: so whatever the
 * tree matches can be restored, and a lease on the deepest page holds the whole prefix.
 *
 * What stands on edges and not on pages: matching (one memcmp an edge), residency (a count a tier),
 * leases (a list at the edge they end in), recency (a policy slot an edge). A match therefore reads
 * no page record unless it ends inside an edge.
 *
 * Requires: KVT_RANK_CACHE held for every function. Layer 3.
 */
#ifndef KVT_INDEX_H
#define KVT_INDEX_H

#include "cache/base/base.h"
#include "cache/index/key.h"
#include "cache/tier/slab.h"
#include "cache/tier/tier.h"
#include "policies/policy.h"

#define KVT_NODE_NONE 0u
#define KVT_PAGE_NONE UINT32_MAX
/* An edge longer than this is continued by a child, so that no insert moves more than 256 KiB. */
#define KVT_EDGE_TOKENS_MAX 65536u
#define KVT_NAMESPACES_MAX 4096u
#define KVT_SHARDS_MAX 64u

/* One extra key: the digest of what starts at a token. Same bytes as kvt_extra_key of the ABI. */
struct kvt_extra {
    uint64_t token_index;
    unsigned char digest[32];
};

struct kvt_prompt {
    const uint32_t *tokens; /* of pages first_page .. pages - 1 */
    uint32_t first_page;    /* 0 for a match; an insert may begin where its first new page does */
    uint32_t pages;         /* whole pages of the prompt */
    const struct kvt_extra *extras; /* [extra_count], rising token_index, of the whole prompt */
    uint32_t extra_count;
    uint32_t reserved0;
};

/* How many extra keys begin in page `page`, and which; moves the cursor behind them (begin with 0,
 * ask for rising pages). */
uint32_t kvt_prompt_extras(const struct kvt_prompt *, uint32_t page, uint32_t page_tokens,
                           uint32_t *cursor, const struct kvt_extra **out_extras);

struct kvt_index_config {
    const struct kvt_memory *mem; /* of everything the index holds; borrowed until destroy */
    uint32_t page_tokens;
    uint32_t shards;
    uint32_t pages_max; /* a limit of the table, at most 2^30 */
    uint32_t leases_max;
    uint32_t hash_bits; /* of child hashes; 0: all. Tests set few, to force collisions */
    uint64_t seed;      /* of lease handles */
    const struct kvt_evict_ops *evict;
    /* The page leaves the cache: free its places (out of `places`, [tier][shard]). */
    void (*on_drop)(void *ctx, const struct kvt_key *key, const struct kvt_place *places);
    /* The page loses one place and stays: free it. Needed by what is declared under "nvme" only. */
    void (*on_strip)(void *ctx, uint32_t tier, struct kvt_place place);
    void *ctx;
};

struct kvt_index;

kvt_status kvt_index_create(const struct kvt_index_config *, struct kvt_index **out_index)
    KVT_MUST_CHECK;
/* Frees the index; places are not handed to on_drop. NULL is a no-op. */
void kvt_index_destroy(struct kvt_index *);

/* ---- namespaces ---- */

/* Find or make the namespace of these canonical bytes (compared whole). `group` says which ones may
 * be told about each other (same tenant). NOMEM, LIMIT. */
kvt_status kvt_index_namespace(struct kvt_index *, const void *canonical, size_t canonical_bytes,
                               uint64_t group, uint32_t *out_ns) KVT_MUST_CHECK;
/* The slot bytes of this namespace's pages, 0 while nobody has said; set once, then it must agree:
 * INVAL. */
kvt_status kvt_index_namespace_bytes(struct kvt_index *, uint32_t ns, uint64_t slot_bytes)
    KVT_MUST_CHECK;
/* The slot bytes of a namespace's pages, 0 while nobody has said. */
uint64_t kvt_index_slot_bytes(const struct kvt_index *, uint32_t ns);
/* What a namespace is; borrowed from the index, for as long as it lives. */
void kvt_index_namespace_get(const struct kvt_index *, uint32_t ns, const void **out_canonical,
                             uint32_t *out_canonical_bytes, uint64_t *out_group,
                             uint64_t *out_slot_bytes);
/* The longest match of the prompt in any other namespace of the same group, in pages; looks at no
 * more than KVT_OTHER_NAMESPACES_MAX of them. */
#define KVT_OTHER_NAMESPACES_MAX 8u
uint32_t kvt_index_match_elsewhere(struct kvt_index *, uint32_t ns, const struct kvt_prompt *);

/* ---- matching ---- */

struct kvt_match {
    uint32_t ns;
    uint32_t node;                  /* where it ended ... */
    uint32_t offset;                /* ... after so many of that edge's pages */
    uint32_t pages;                 /* from the root */
    uint32_t tier_pages[KVT_TIERS]; /* of them, by the fastest tier that has every shard */
    bool diverged;                  /* the cache holds another continuation from here */
};

/* Never allocates. */
void kvt_index_match(struct kvt_index *, uint32_t ns, const struct kvt_prompt *,
                     struct kvt_match *out_match);
/* The key of the last page matched (of the namespace when none was). */
struct kvt_key kvt_index_match_key(const struct kvt_index *, const struct kvt_match *);

/* ---- leases ---- */

struct kvt_lease_info {
    struct kvt_match at; /* tier_pages and diverged are not filled */
    uint32_t owner;
    uint32_t transfers;
    uint32_t user; /* as set by kvt_lease_set_user(), 0 at first */
};

/*
 * Pin what a match found until release. The handle carries a generation: guessed, spent and foreign
 * handles are refused. Never allocates. LIMIT: every lease is in use.
 * expires_ns: an unused lease (no transfer) may be taken back from then on.
 */
kvt_status kvt_lease_acquire(struct kvt_index *, const struct kvt_match *, uint32_t owner,
                             uint64_t now_ns, uint64_t expires_ns, uint64_t *out_handle)
    KVT_MUST_CHECK;
/* STALE. While transfers run the lease lives on without its owner, and goes with the last. */
kvt_status kvt_lease_release(struct kvt_index *, uint64_t handle, uint32_t owner) KVT_MUST_CHECK;
/* STALE. */
kvt_status kvt_lease_get(const struct kvt_index *, uint64_t handle, uint32_t owner,
                         struct kvt_lease_info *out_info) KVT_MUST_CHECK;
/* A transfer under the lease begins, ends. end also for leases that were released meanwhile. */
kvt_status kvt_lease_begin(struct kvt_index *, uint64_t handle, uint32_t owner) KVT_MUST_CHECK;
void kvt_lease_end(struct kvt_index *, uint64_t handle);
void kvt_lease_extend(struct kvt_index *, uint64_t handle, uint64_t expires_ns);
/* A number of the caller's to remember with the lease. */
void kvt_lease_set_user(struct kvt_index *, uint64_t handle, uint32_t user);
/* True when the lease pins a prefix of what this match found. */
bool kvt_lease_covers(const struct kvt_index *, uint64_t handle, uint32_t owner,
                      const struct kvt_match *);
/* Take back what expired; what this owner held (those in transfer: with their last). The number. */
uint32_t kvt_lease_expire(struct kvt_index *, uint64_t now_ns);
uint32_t kvt_lease_drop_owner(struct kvt_index *, uint32_t owner);

struct kvt_lease_stats {
    uint32_t leases, leases_max;
    uint64_t leased_pages; /* summed over leases: a page under two of them counts twice */
    uint64_t oldest_ns;    /* when the oldest was taken; UINT64_MAX when there is none */
};
void kvt_lease_stats(const struct kvt_index *, struct kvt_lease_stats *out_stats);

/* ---- pages ---- */

/* A page about to enter: every shard of it lies in one tier. */
struct kvt_new_page {
    uint32_t tier;
    const struct kvt_place *places; /* [shards] */
};

/*
 * Enter pages from_page .. from_page + count - 1 of the prompt behind a leased match of exactly
 * from_page pages. Pages that others entered meanwhile are found first: *out_duplicates of them
 * stay the caller's to free, then *out_inserted belong to the tree; what is left (after NOMEM or
 * LIMIT) is the caller's too. Both are written in every case.
 */
kvt_status kvt_index_insert(struct kvt_index *, uint64_t lease, uint32_t owner,
                            const struct kvt_prompt *, uint32_t from_page, uint32_t count,
                            const struct kvt_new_page *pages, uint32_t *out_duplicates,
                            uint32_t *out_inserted) KVT_MUST_CHECK;

/* The record numbers of pages first .. first + count - 1 of a leased prefix, into out_pages. A
 * number stays good while the lease lives. INVAL when the lease is shorter. */
kvt_status kvt_index_pages(const struct kvt_index *, uint64_t lease, uint32_t owner, uint32_t first,
                           uint32_t count, uint32_t *out_pages) KVT_MUST_CHECK;
struct kvt_place kvt_page_place(const struct kvt_index *, uint32_t page, uint32_t tier,
                                uint32_t shard);
/* Move a page: give it a place in a tier, or take it away (a place with generation 0). All shards
 * of a tier change together. Never allocates. */
void kvt_page_set_places(struct kvt_index *, uint32_t page, uint32_t tier,
                         const struct kvt_place *places);
/* While busy a page does not leave the cache. */
void kvt_page_set_busy(struct kvt_index *, uint32_t page, bool busy);
uint64_t kvt_page_slot_bytes(const struct kvt_index *, uint32_t page);

/* Bytes of this leased prefix were delivered: recency moves, once an edge. */
void kvt_index_touch(struct kvt_index *, uint64_t lease, uint32_t owner);

/*
 * Drop pages from the cache until `count` pages that had a place in `tier` (KVT_TIERS: in any) are
 * gone; worst first by the tier's policy, leaves only, never a leased or busy page. Returns how
 * many of them went.
 */
uint32_t kvt_index_evict(struct kvt_index *, uint32_t tier, uint32_t count);
/* Up to `count` pages that could move from `tier` to a lower one, worst first. */
uint32_t kvt_index_demotable(struct kvt_index *, uint32_t tier, uint32_t count,
                             uint32_t *out_pages);

/*
 * ---- nvme ----
 *
 * A page goes to nvme only behind all that comes before it, and leaves it only after all that
 * continues it there: so the pages of an edge that nvme has, or is writing, are its first ones, and
 * every prefix found after a restart is whole. In memory a page that nvme has may come and go in
 * any order. One shard only, so far.
 *
 * A page whose last place failed its check is lost: it stays in the tree while something holds it,
 * matches end before it, and a save of the same tokens gives it a place again.
 */

struct kvt_loaded_page {
    const uint32_t *tokens; /* [page_tokens] */
    const struct kvt_extra *extras;
    uint32_t extra_count;
    struct kvt_place place;
};
/* Enter a page behind the page `before` (KVT_PAGE_NONE: the namespace's first). INVAL: the tree has
 * it already; NOMEM, LIMIT. Finish with load_end(), which gives back what was reserved ahead. */
kvt_status kvt_index_load_page(struct kvt_index *, uint32_t ns, uint32_t before,
                               const struct kvt_loaded_page *, uint32_t *out_page) KVT_MUST_CHECK;
void kvt_index_load_end(struct kvt_index *);

/* Pages of the tree that continue a leased match of exactly from_page pages along this prompt, at
 * most `count`: their records. Lost ones too. */
uint32_t kvt_index_pages_behind(struct kvt_index *, uint64_t lease, uint32_t owner,
                                const struct kvt_prompt *, uint32_t from_page, uint32_t count,
                                uint32_t *out_pages);
/* How many of a match's first pages all lie in memory. */
uint32_t kvt_index_memory_pages(const struct kvt_index *, const struct kvt_match *);
/* A match as runs of pages that lie in memory or do not, from the start. 0 when more than `max`. */
struct kvt_segment {
    uint32_t pages;
    bool memory;
};
uint32_t kvt_index_segments(const struct kvt_index *, const struct kvt_match *,
                            struct kvt_segment *out_segments, uint32_t max);

/* A number of the caller's: what brings this page up just now (0: nothing). */
uint16_t kvt_page_fetch(const struct kvt_index *, uint32_t page);
void kvt_page_set_fetch(struct kvt_index *, uint32_t page, uint16_t fetch);
/* Count a delivery; how often, up to 255. */
uint32_t kvt_page_use(struct kvt_index *, uint32_t page);
uint32_t kvt_page_uses(const struct kvt_index *, uint32_t page);
uint32_t kvt_page_node(const struct kvt_index *, uint32_t page);
const struct kvt_key *kvt_page_key(const struct kvt_index *, uint32_t page);

/* nvme may have this page. False when it has, or is writing it. */
bool kvt_page_admit(struct kvt_index *, uint32_t page);
/* Ask for each page of an edge that nvme does not have; the number admitted. */
uint32_t kvt_index_admit_edge(struct kvt_index *, uint32_t node,
                              bool (*admit)(void *ctx, uint32_t uses), void *ctx);
/* Admit all pages of the next edge, in the order of numbers behind `after` (0: from the start),
 * that has some in memory that could be written; its number, or KVT_NODE_NONE. */
uint32_t kvt_index_next_unwritten(struct kvt_index *, uint32_t after);
/* A mark on an edge: it is in the caller's queue. True when it was not (queue); when it was, and
 * the edge still is one (unqueue). */
bool kvt_index_queue(struct kvt_index *, uint32_t node);
bool kvt_index_unqueue(struct kvt_index *, uint32_t node);
/* The first edges of the host tier's ranking, worst first, that nvme does not have all of. */
uint32_t kvt_index_cold_unwritten(struct kvt_index *, uint32_t max, uint32_t *out_nodes);

struct kvt_unwritten {
    uint32_t *pages; /* the caller's, for `max` */
    uint32_t ns;
    uint32_t before;                /* the page before the first, KVT_PAGE_NONE */
    const uint32_t *tokens;         /* of the first page on; good until the tree changes */
    const struct kvt_extra *extras; /* of the first page */
    uint32_t extra_count;
};
/* The next pages that must be written so that this edge's admitted pages are on nvme: of the
 * topmost edge above it, or of itself. They lie in memory and nothing moves them. */
uint32_t kvt_index_unwritten(struct kvt_index *, uint32_t node, uint32_t max,
                             struct kvt_unwritten *out);
/* The place a page has on nvme or is being written to. */
struct kvt_place kvt_page_nvme_name(const struct kvt_index *, uint32_t page);
/* While it is written a page is busy, and its place is not one that it has. */
void kvt_page_write_begin(struct kvt_index *, uint32_t page, struct kvt_place place);
void kvt_page_write_end(struct kvt_index *, uint32_t page, bool durable);

/* Free up to `count` pages' places in a tier of memory (KVT_TIERS: in any), worst first: a page
 * that nvme has loses them, another leaves the cache, as kvt_index_evict() would have it; one that
 * is admitted to nvme only when nothing else can go. The number freed. */
uint32_t kvt_index_shed(struct kvt_index *, uint32_t tier, uint32_t count);
/* The same, but no page leaves the cache for it: only those that nvme has lose a place. */
uint32_t kvt_index_strip(struct kvt_index *, uint32_t tier, uint32_t count);
/* Free up to `count` places on nvme, worst first: a page that is in memory stays there. */
uint32_t kvt_index_nvme_room(struct kvt_index *, uint32_t count);
/* What nvme holds of this page is wrong: it, and all that continues it, loses its place there. */
void kvt_index_lose(struct kvt_index *, uint32_t page);
/* Lost pages that nothing holds any more leave the tree. Slow when there are any. */
uint32_t kvt_index_drop_lost(struct kvt_index *);

struct kvt_index_stats {
    uint64_t pages, pages_max, nodes, namespaces;
    uint64_t lost_pages;            /* in the tree with no place left */
    uint64_t tier_pages[KVT_TIERS]; /* a page in two tiers counts in both */
    uint64_t evicted_pages;
    uint64_t key_collisions; /* the hash said yes, the tokens said no */
    uint64_t bytes;          /* asked of the allocator, tokens included */
    uint64_t token_bytes;
};
void kvt_index_stats(const struct kvt_index *, struct kvt_index_stats *out_stats);

/* A walk over everything: counters against recounts, links, hashes, leases. Slow; for tests.
 * False, with one sentence in `why`. */
bool kvt_index_check(const struct kvt_index *, char *why, size_t why_bytes);

#endif
