/* What the index's files share. Not for others. */
#ifndef KVT_INDEX_INTERNAL_H
#define KVT_INDEX_INTERNAL_H

#include "cache/index/index.h"

#define NODE_CHUNK_SHIFT 10u
#define NODE_CHUNK (1u << NODE_CHUNK_SHIFT)
#define PAGE_CHUNK_SHIFT 12u
#define PAGE_CHUNK (1u << PAGE_CHUNK_SHIFT)
#define LEASE_NONE UINT32_MAX
#define VICTIM_BATCH 64u

/* Tables that grow in chunks: nothing ever moves, and no doubling leaves half of it unused. */
struct table {
    unsigned char **chunks;
    uint32_t chunk_count, chunks_max;
    uint32_t items_max; /* the limit; chunks are rounded up */
    size_t item_bytes;
    uint32_t shift;
    uint32_t used;      /* items handed out so far, free ones included */
    uint32_t free_head; /* first u32 of a free item is the next */
    uint32_t free_count;
};

struct page {
    struct kvt_key key;
    uint32_t node; /* KVT_NODE_NONE: the record is free */
    uint16_t busy;
    uint16_t fetch; /* the caller's number of what brings it up just now; 0: nothing does */
    uint8_t uses;   /* times it was delivered, as far as it is counted */
    uint8_t flags;  /* PAGE_x */
    uint16_t unused;
    struct kvt_place places[]; /* [tier][shard] */
};

/* NVMe may have it, when it comes to that. */
#define PAGE_ADMITTED 1u
/* It is being written: its nvme place is reserved, and is not one that it has. */
#define PAGE_WRITING 2u

struct node {
    uint32_t parent; /* or the next free node */
    uint32_t first_child, next_sibling, prev_sibling;
    uint32_t hash_next;
    uint32_t hash;
    uint32_t ns;
    uint32_t depth; /* pages above this edge */
    uint32_t page_count, page_cap;
    uint32_t lease_head;
    uint32_t tier_pages[KVT_TIERS];    /* pages with places in the tier */
    uint32_t fastest_pages[KVT_TIERS]; /* pages whose fastest tier it is */
    uint32_t *pages;          /* [page_cap] record numbers; behind the tokens, in one block */
    uint32_t *tokens;         /* [page_cap * page_tokens]; owns the block */
    struct kvt_extra *extras; /* of the first page */
    uint32_t extra_count;
    bool used;
    bool queued; /* see kvt_index_queue() */
};

struct lease {
    uint32_t generation; /* odd: in use */
    uint32_t node, offset;
    uint32_t prev, next; /* of the node; or the next free one */
    uint32_t owner;
    uint32_t transfers;
    uint32_t user;
    bool released;
    uint64_t taken_ns, expires_ns;
};

struct ns_entry {
    unsigned char *canonical;
    size_t canonical_bytes;
    uint64_t group;
    uint64_t slot_bytes;
    struct kvt_key key;
    uint32_t root;
};

struct policy_state {
    void *state;
    uint32_t slots;
};

struct kvt_index {
    struct kvt_index_config config;
    struct kvt_memory mem; /* counts into bytes */
    uint64_t bytes, token_bytes;
    struct table nodes, pages;
    uint32_t *buckets;
    uint32_t bucket_count; /* a power of two */
    uint32_t node_count;
    uint32_t hash_mask;
    struct policy_state policies[KVT_TIERS];
    struct ns_entry *namespaces; /* [KVT_NAMESPACES_MAX] */
    uint32_t namespace_count;
    struct lease *leases; /* [leases_max] */
    uint32_t lease_free, lease_count;
    uint64_t leased_pages;
    uint64_t page_count, evicted_pages, key_collisions;
    uint64_t lost_pages; /* in the tree, with no place left */
    uint64_t tier_pages[KVT_TIERS];
};

/* table.c */
kvt_status kvt_table_init(struct kvt_index *, struct table *, size_t item_bytes, uint32_t shift,
                          uint32_t items_max) KVT_MUST_CHECK;
void kvt_table_fini(struct kvt_index *, struct table *);
/* A zeroed item; NOMEM, LIMIT. */
kvt_status kvt_table_take(struct kvt_index *, struct table *, uint32_t *out_number) KVT_MUST_CHECK;
void kvt_table_give(struct table *, uint32_t number);

static inline void *table_at(const struct table *table, uint32_t number)
{
    return table->chunks[number >> table->shift] +
           (size_t)(number & ((1u << table->shift) - 1u)) * table->item_bytes;
}

static inline struct node *node_at(const struct kvt_index *index, uint32_t number)
{
    return (struct node *)(void *)table_at(&index->nodes, number);
}

static inline struct page *page_at(const struct kvt_index *index, uint32_t number)
{
    return (struct page *)(void *)table_at(&index->pages, number);
}

/* Where a page's tokens begin in a prompt. */
static inline const uint32_t *prompt_at(const struct kvt_index *index,
                                        const struct kvt_prompt *prompt, uint32_t page)
{
    return prompt->tokens + (size_t)(page - prompt->first_page) * index->config.page_tokens;
}

static inline bool page_in_tier(const struct kvt_index *index, const struct page *page,
                                uint32_t tier)
{
    return kvt_place_is(page->places[(size_t)tier * index->config.shards]) &&
           (tier != KVT_NVME || (page->flags & PAGE_WRITING) == 0);
}

static inline bool page_in_memory(const struct kvt_index *index, const struct page *page)
{
    return page_in_tier(index, page, KVT_HBM) || page_in_tier(index, page, KVT_HOST);
}

/* The tiers that hold the page, as bits; the fastest is the lowest bit. */
uint32_t kvt_page_tiers(const struct kvt_index *, const struct page *);

/* node.c: nodes, their hash table and the policies' slots */
kvt_status kvt_node_create(struct kvt_index *, uint32_t ns, uint32_t parent, uint32_t depth,
                           uint32_t *out_node) KVT_MUST_CHECK;
/* The node must hold no pages, children or leases. */
void kvt_node_destroy(struct kvt_index *, uint32_t node);
kvt_status kvt_node_reserve(struct kvt_index *, struct node *, uint32_t page_cap) KVT_MUST_CHECK;
void kvt_node_shrink(struct kvt_index *, struct node *);
void kvt_node_link(struct kvt_index *, uint32_t node);
void kvt_node_unlink(struct kvt_index *, uint32_t node);
/* The child of `parent` whose first page is this one; KVT_NODE_NONE. */
uint32_t kvt_node_find_child(struct kvt_index *, uint32_t parent, const uint32_t *tokens,
                             const struct kvt_extra *extras, uint32_t extra_count);
/* Cut the first `at` pages of `node` off into a new node above it. */
kvt_status kvt_node_split(struct kvt_index *, uint32_t node, uint32_t at, uint32_t *out_upper)
    KVT_MUST_CHECK;
/* A page that lies in `tiers` (bits; 0: it is lost) joins (sign +1) or leaves (-1) the node's
 * counts. A node is ranked by a tier's policy while it has pages there or in a faster tier: those
 * may come down, and must then stand where their last use puts them. */
void kvt_node_count_page(struct kvt_index *, uint32_t node, uint32_t tiers, int sign);
/* Pages of this edge that a lease, or a child, holds: none beyond may leave. */
uint32_t kvt_node_pinned(const struct kvt_index *, const struct node *);

/* evict.c: the last page of an edge leaves the cache; the node's arrays are not shrunk. */
void kvt_page_drop_last(struct kvt_index *, uint32_t node);

/* tree.c: the first page on the way from the root to here that has no place left: what is found
 * ends before it. Changes node, offset, pages. */
void kvt_match_end_before_lost(const struct kvt_index *, struct kvt_match *);

/* Walk on from a leased match of exactly from_page pages; how many pages more agree, and where that
 * ends. */
uint32_t kvt_index_walk_behind(struct kvt_index *, uint64_t lease, uint32_t owner,
                               const struct kvt_prompt *, uint32_t from_page, uint32_t count,
                               uint32_t *out_node);
/* Give back what the node's arrays have beyond its pages. */
void kvt_node_fit(struct kvt_index *, struct node *);

/* lease.c */
struct lease *kvt_lease_find(const struct kvt_index *, uint64_t handle, uint32_t owner);
/* Also one that was released while its transfers run. */
struct lease *kvt_lease_find_any(const struct kvt_index *, uint64_t handle);
void kvt_lease_link(struct kvt_index *, uint32_t number, uint32_t node, uint32_t offset);
void kvt_lease_unlink(struct kvt_index *, uint32_t number);
kvt_status kvt_leases_init(struct kvt_index *) KVT_MUST_CHECK;
void kvt_leases_fini(struct kvt_index *);

#endif
