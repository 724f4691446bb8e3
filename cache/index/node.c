/* Nodes: their arrays, their place in the tree and its hash table, their policy slots,
 * splitting. */
#include "cache/index/index_internal.h"

#include <string.h>

#define BUCKET_LOAD_MAX 1u /* nodes a bucket, on average, before the table doubles */

static size_t token_bytes(const struct kvt_index *index, uint32_t pages)
{
    return (size_t)pages * index->config.page_tokens * sizeof(uint32_t);
}

/* Tokens and record numbers lie in one block, so that growing is one allocation: all or nothing. */
static size_t block_bytes(const struct kvt_index *index, uint32_t page_cap)
{
    return token_bytes(index, page_cap) + page_cap * sizeof(uint32_t);
}

/* ---- the policies' slots are node numbers ---- */

/* Make every policy's state large enough for node `number`. */
static kvt_status policies_cover(struct kvt_index *index, uint32_t number)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        struct policy_state *policy = &index->policies[tier];
        if (number < policy->slots) {
            continue;
        }
        uint32_t slots = policy->slots;
        while (slots <= number) {
            /* By a quarter: doubling would leave half unused. */
            slots += slots / 4;
        }
        size_t old_bytes = ops->state_bytes(policy->slots);
        size_t new_bytes = ops->state_bytes(slots);
        unsigned char *state = kvt_resize(&index->mem, policy->state, old_bytes, new_bytes);
        if (state == NULL) {
            return KVT_ERR_NOMEM;
        }
        memset(state + old_bytes, 0, new_bytes - old_bytes);
        policy->state = state;
        policy->slots = slots;
        ops->grow(state, slots);
    }
    return KVT_OK;
}

uint32_t kvt_page_tiers(const struct kvt_index *index, const struct page *page)
{
    uint32_t tiers = 0;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        tiers |= (uint32_t)page_in_tier(index, page, tier) << tier;
    }
    return tiers;
}

/* Pages of the node that are in this tier or a faster one, and so may be victims here one day. */
static uint32_t ranked_pages(const struct node *node, uint32_t tier)
{
    uint32_t pages = 0;
    for (uint32_t t = 0; t <= tier; t++) {
        pages += node->fastest_pages[t];
    }
    return pages;
}

static uint32_t fastest_of(uint32_t tiers)
{
    KVT_ASSERT(tiers != 0 && tiers < (1u << KVT_TIERS));
    return (uint32_t)__builtin_ctz(tiers);
}

void kvt_node_count_page(struct kvt_index *index, uint32_t number, uint32_t tiers, int sign)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    struct node *node = node_at(index, number);
    uint32_t change = (uint32_t)sign; /* wraps for -1, as meant */
    if (tiers == 0) {
        index->lost_pages += (uint64_t)(int64_t)sign;
        return;
    }
    uint32_t fastest = fastest_of(tiers);
    node->fastest_pages[fastest] += change;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        if ((tiers & (1u << tier)) != 0) {
            node->tier_pages[tier] += change;
            index->tier_pages[tier] += (uint64_t)(int64_t)sign;
        }
        if (tier < fastest) {
            continue;
        }
        uint32_t ranked = ranked_pages(node, tier);
        if (sign > 0 && ranked == 1) {
            ops->on_insert(index->policies[tier].state, number);
        } else if (sign < 0 && ranked == 0) {
            ops->on_remove(index->policies[tier].state, number);
        }
    }
}

/* ---- life of a node ---- */

kvt_status kvt_node_create(struct kvt_index *index, uint32_t ns, uint32_t parent, uint32_t depth,
                           uint32_t *out_node)
{
    uint32_t number = 0;
    kvt_status status = kvt_table_take(index, &index->nodes, &number);
    if (status != KVT_OK) {
        return status;
    }
    status = policies_cover(index, number);
    if (status != KVT_OK) {
        kvt_table_give(&index->nodes, number);
        return status;
    }
    struct node *node = node_at(index, number);
    node->used = true;
    node->ns = ns;
    node->parent = parent;
    node->depth = depth;
    node->lease_head = LEASE_NONE;
    index->node_count++;
    *out_node = number;
    return KVT_OK;
}

void kvt_node_destroy(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    KVT_ASSERT(node->page_count == 0 && node->first_child == KVT_NODE_NONE);
    KVT_ASSERT(node->lease_head == LEASE_NONE);
    kvt_free(&index->mem, node->tokens, block_bytes(index, node->page_cap));
    index->token_bytes -= token_bytes(index, node->page_cap);
    kvt_free(&index->mem, node->extras, node->extra_count * sizeof(*node->extras));
    index->node_count--;
    node->used = false;
    kvt_table_give(&index->nodes, number);
}

static kvt_status set_capacity(struct kvt_index *index, struct node *node, uint32_t page_cap)
{
    uint32_t *tokens = NULL;
    uint32_t *pages = NULL;
    if (page_cap > 0) {
        tokens = kvt_alloc(&index->mem, block_bytes(index, page_cap));
        if (tokens == NULL) {
            return KVT_ERR_NOMEM;
        }
        pages = tokens + (size_t)page_cap * index->config.page_tokens;
        if (node->page_count > 0) {
            memcpy(tokens, node->tokens, token_bytes(index, node->page_count));
            memcpy(pages, node->pages, node->page_count * sizeof(*pages));
        }
    }
    kvt_free(&index->mem, node->tokens, block_bytes(index, node->page_cap));
    index->token_bytes += token_bytes(index, page_cap);
    index->token_bytes -= token_bytes(index, node->page_cap);
    node->tokens = tokens;
    node->pages = pages;
    node->page_cap = page_cap;
    return KVT_OK;
}

kvt_status kvt_node_reserve(struct kvt_index *index, struct node *node, uint32_t page_cap)
{
    return page_cap <= node->page_cap ? KVT_OK : set_capacity(index, node, page_cap);
}

void kvt_node_shrink(struct kvt_index *index, struct node *node)
{
    if (node->page_count <= node->page_cap / 2) {
        /* Without memory for the smaller block the larger one stays: nothing is lost. */
        (void)set_capacity(index, node, node->page_count);
    }
}

void kvt_node_fit(struct kvt_index *index, struct node *node)
{
    if (node->page_count < node->page_cap) {
        (void)set_capacity(index, node, node->page_count);
    }
}

/* ---- tree links and hash table ---- */

static uint32_t *bucket_of(const struct kvt_index *index, uint32_t hash)
{
    return &index->buckets[hash & (index->bucket_count - 1u)];
}

static void buckets_grow(struct kvt_index *index)
{
    uint32_t old_count = index->bucket_count;
    uint32_t *old = index->buckets;
    if (index->node_count < old_count * BUCKET_LOAD_MAX || old_count > UINT32_MAX / 2) {
        return;
    }
    uint32_t *buckets = kvt_calloc(&index->mem, (size_t)old_count * 2, sizeof(*buckets));
    if (buckets == NULL) {
        return; /* longer chains, the same answers */
    }
    index->buckets = buckets;
    index->bucket_count = old_count * 2;
    for (uint32_t i = 0; i < old_count; i++) {
        for (uint32_t number = old[i]; number != KVT_NODE_NONE;) {
            struct node *node = node_at(index, number);
            uint32_t next = node->hash_next;
            uint32_t *bucket = bucket_of(index, node->hash);
            node->hash_next = *bucket;
            *bucket = number;
            number = next;
        }
    }
    kvt_free(&index->mem, old, old_count * sizeof(*old));
}

static uint32_t child_hash(const struct kvt_index *index, uint32_t parent, const uint32_t *tokens,
                           const struct kvt_extra *extras, uint32_t extra_count)
{
    uint64_t hash = kvt_hash_child(parent, tokens, index->config.page_tokens, extras,
                                   extra_count * sizeof(*extras));
    return (uint32_t)(hash ^ (hash >> 32)) & index->hash_mask;
}

static void hash_insert(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    node->hash = child_hash(index, node->parent, node->tokens, node->extras, node->extra_count);
    uint32_t *bucket = bucket_of(index, node->hash);
    node->hash_next = *bucket;
    *bucket = number;
}

static void hash_remove(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    uint32_t *link = bucket_of(index, node->hash);
    while (*link != number) {
        KVT_ASSERT(*link != KVT_NODE_NONE);
        link = &node_at(index, *link)->hash_next;
    }
    *link = node->hash_next;
}

static void siblings_insert(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    struct node *parent = node_at(index, node->parent);
    node->prev_sibling = KVT_NODE_NONE;
    node->next_sibling = parent->first_child;
    if (parent->first_child != KVT_NODE_NONE) {
        node_at(index, parent->first_child)->prev_sibling = number;
    }
    parent->first_child = number;
}

static void siblings_remove(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    if (node->prev_sibling != KVT_NODE_NONE) {
        node_at(index, node->prev_sibling)->next_sibling = node->next_sibling;
    } else {
        node_at(index, node->parent)->first_child = node->next_sibling;
    }
    if (node->next_sibling != KVT_NODE_NONE) {
        node_at(index, node->next_sibling)->prev_sibling = node->prev_sibling;
    }
}

void kvt_node_link(struct kvt_index *index, uint32_t number)
{
    siblings_insert(index, number);
    buckets_grow(index);
    hash_insert(index, number);
}

void kvt_node_unlink(struct kvt_index *index, uint32_t number)
{
    hash_remove(index, number);
    siblings_remove(index, number);
}

uint32_t kvt_node_find_child(struct kvt_index *index, uint32_t parent, const uint32_t *tokens,
                             const struct kvt_extra *extras, uint32_t extra_count)
{
    uint32_t hash = child_hash(index, parent, tokens, extras, extra_count);
    uint32_t number = *bucket_of(index, hash);
    for (; number != KVT_NODE_NONE; number = node_at(index, number)->hash_next) {
        const struct node *node = node_at(index, number);
        if (node->hash != hash) {
            continue;
        }
        if (node->parent == parent && node->extra_count == extra_count &&
            memcmp(node->tokens, tokens, token_bytes(index, 1)) == 0 &&
            (extra_count == 0 ||
             memcmp(node->extras, extras, extra_count * sizeof(*extras)) == 0)) {
            return number;
        }
        index->key_collisions++;
    }
    return KVT_NODE_NONE;
}

/* ---- splitting ---- */

/* Leases that end in the upper part go with it; the others learn their new offset. */
static void split_leases(struct kvt_index *index, uint32_t lower, uint32_t upper, uint32_t at)
{
    uint32_t number = node_at(index, lower)->lease_head;
    while (number != LEASE_NONE) {
        struct lease *lease = &index->leases[number];
        uint32_t next = lease->next;
        if (lease->offset <= at) {
            uint32_t offset = lease->offset;
            kvt_lease_unlink(index, number);
            kvt_lease_link(index, number, upper, offset);
        } else {
            lease->offset -= at;
        }
        number = next;
    }
}

/* Policies: the upper part inherits the standing of the lower in every tier it is ranked in. */
static void split_counts(struct kvt_index *index, uint32_t lower_number, uint32_t upper_number)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    struct node *lower = node_at(index, lower_number);
    struct node *upper = node_at(index, upper_number);
    for (uint32_t i = 0; i < upper->page_count; i++) {
        struct page *page = page_at(index, upper->pages[i]);
        uint32_t tiers = kvt_page_tiers(index, page);
        page->node = upper_number;
        if (tiers == 0) {
            continue;
        }
        upper->fastest_pages[fastest_of(tiers)]++;
        lower->fastest_pages[fastest_of(tiers)]--;
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            upper->tier_pages[tier] += (tiers >> tier) & 1u;
            lower->tier_pages[tier] -= (tiers >> tier) & 1u;
        }
    }
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        void *state = index->policies[tier].state;
        if (ranked_pages(upper, tier) > 0) {
            ops->on_split(state, upper_number, lower_number);
            if (ranked_pages(lower, tier) == 0) {
                ops->on_remove(state, lower_number);
            }
        }
    }
}

kvt_status kvt_node_split(struct kvt_index *index, uint32_t number, uint32_t at,
                          uint32_t *out_upper)
{
    struct node *lower = node_at(index, number);
    KVT_ASSERT(at > 0 && at < lower->page_count);
    uint32_t upper_number = KVT_NODE_NONE;
    kvt_status status =
        kvt_node_create(index, lower->ns, lower->parent, lower->depth, &upper_number);
    if (status != KVT_OK) {
        return status;
    }
    struct node *upper = node_at(index, upper_number);
    status = kvt_node_reserve(index, upper, at);
    if (status != KVT_OK) {
        kvt_node_destroy(index, upper_number);
        return status;
    }
    kvt_node_unlink(index, number);
    memcpy(upper->tokens, lower->tokens, token_bytes(index, at));
    memcpy(upper->pages, lower->pages, at * sizeof(*upper->pages));
    upper->page_count = at;
    upper->extras = lower->extras;
    upper->extra_count = lower->extra_count;
    lower->extras = NULL;
    lower->extra_count = 0;
    lower->page_count -= at;
    memmove(lower->tokens, lower->tokens + (size_t)at * index->config.page_tokens,
            token_bytes(index, lower->page_count));
    memmove(lower->pages, lower->pages + at, lower->page_count * sizeof(*lower->pages));
    lower->parent = upper_number;
    lower->depth += at;
    kvt_node_link(index, upper_number);
    kvt_node_link(index, number);
    split_counts(index, number, upper_number);
    split_leases(index, number, upper_number, at);
    /* Exact again: half of a split edge would otherwise stay unused for ever. */
    (void)set_capacity(index, lower, lower->page_count);
    *out_upper = upper_number;
    return KVT_OK;
}

uint32_t kvt_node_pinned(const struct kvt_index *index, const struct node *node)
{
    if (node->first_child != KVT_NODE_NONE) {
        return node->page_count;
    }
    uint32_t pinned = 0;
    for (uint32_t i = node->lease_head; i != LEASE_NONE; i = index->leases[i].next) {
        if (index->leases[i].offset > pinned) {
            pinned = index->leases[i].offset;
        }
    }
    return pinned;
}
