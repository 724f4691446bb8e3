/* The walk over everything that tests run: every counter is counted again. */
#include "cache/index/index_internal.h"

#include <stdio.h>
#include <string.h>

struct check {
    const struct kvt_index *index;
    char *why;
    size_t why_bytes;
    bool good;
    uint64_t pages, nodes, token_bytes, lost;
    uint64_t tier_pages[KVT_TIERS];
};

#define CHECK(check, cond, number)                                                                 \
    do {                                                                                           \
        if (!(cond) && (check)->good) {                                                            \
            (check)->good = false;                                                                 \
            (void)snprintf((check)->why, (check)->why_bytes, "node %u: not so: %s",                \
                           (unsigned)(number), #cond);                                             \
        }                                                                                          \
    } while (0)

static void check_pages(struct check *check, uint32_t number)
{
    const struct kvt_index *index = check->index;
    const struct node *node = node_at(index, number);
    uint32_t tier_pages[KVT_TIERS] = {0}, fastest[KVT_TIERS] = {0};
    for (uint32_t i = 0; i < node->page_count; i++) {
        const struct page *page = page_at(index, node->pages[i]);
        uint32_t tiers = kvt_page_tiers(index, page);
        CHECK(check, page->node == number, number);
        CHECK(check, (page->flags & PAGE_WRITING) == 0 || page->busy > 0, number);
        if (tiers == 0) {
            check->lost++;
            continue;
        }
        fastest[__builtin_ctz(tiers)]++;
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            tier_pages[tier] += (tiers >> tier) & 1u;
        }
    }
    CHECK(check, memcmp(tier_pages, node->tier_pages, sizeof(tier_pages)) == 0, number);
    CHECK(check, memcmp(fastest, node->fastest_pages, sizeof(fastest)) == 0, number);
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        check->tier_pages[tier] += tier_pages[tier];
    }
    check->pages += node->page_count;
    check->token_bytes += (uint64_t)node->page_cap * index->config.page_tokens * sizeof(uint32_t);
}

/* Keys are recomputed from the tokens: a record that stands at the wrong place shows. */
static void check_keys(struct check *check, uint32_t number)
{
    const struct kvt_index *index = check->index;
    const struct node *node = node_at(index, number);
    const struct node *parent = node_at(index, node->parent);
    struct kvt_match before = {
        .ns = node->ns, .node = node->parent, .pages = node->depth, .offset = parent->page_count};
    struct kvt_key key = kvt_index_match_key(index, &before);
    for (uint32_t i = 0; i < node->page_count; i++) {
        key = kvt_key_next(&key, node->tokens + (size_t)i * index->config.page_tokens,
                           index->config.page_tokens, i == 0 ? node->extras : NULL,
                           i == 0 ? node->extra_count * sizeof(*node->extras) : 0);
        CHECK(check, memcmp(&key, &page_at(index, node->pages[i])->key, sizeof(key)) == 0, number);
    }
}

/* Children of one parent differ in their first page or in its extra keys. */
static bool same_first_page(const struct kvt_index *index, const struct node *a,
                            const struct node *b)
{
    return a->extra_count == b->extra_count &&
           memcmp(a->tokens, b->tokens, index->config.page_tokens * sizeof(*a->tokens)) == 0 &&
           (a->extra_count == 0 ||
            memcmp(a->extras, b->extras, a->extra_count * sizeof(*a->extras)) == 0);
}

static void check_links(struct check *check, uint32_t number)
{
    const struct kvt_index *index = check->index;
    const struct node *node = node_at(index, number);
    const struct node *parent = node_at(index, node->parent);
    CHECK(check, parent->used && parent->ns == node->ns, number);
    CHECK(check, node->depth == parent->depth + parent->page_count, number);
    CHECK(check, node->page_count > 0 && node->page_count <= node->page_cap, number);
    uint32_t found = index->buckets[node->hash & (index->bucket_count - 1u)];
    while (found != KVT_NODE_NONE && found != number) {
        found = node_at(index, found)->hash_next;
    }
    CHECK(check, found == number, number);
    uint32_t before = KVT_NODE_NONE;
    uint32_t sibling = parent->first_child;
    while (sibling != KVT_NODE_NONE && sibling != number) {
        CHECK(check, node_at(index, sibling)->parent == node->parent, number);
        CHECK(check, !same_first_page(index, node_at(index, sibling), node), number);
        before = sibling;
        sibling = node_at(index, sibling)->next_sibling;
    }
    CHECK(check, sibling == number && node->prev_sibling == before, number);
}

static void check_leases(struct check *check)
{
    const struct kvt_index *index = check->index;
    uint32_t in_use = 0, linked = 0;
    uint64_t pages = 0;
    for (uint32_t i = 0; i < index->config.leases_max; i++) {
        const struct lease *lease = &index->leases[i];
        if ((lease->generation & 1u) != 0) {
            const struct node *node = node_at(index, lease->node);
            in_use++;
            pages += node->depth + lease->offset;
            CHECK(check, node->used && lease->offset <= node->page_count, lease->node);
            CHECK(check, lease->offset > 0 || node->page_count == 0, lease->node);
        }
    }
    for (uint32_t i = 1; i < index->nodes.used; i++) {
        const struct node *node = node_at(index, i);
        for (uint32_t l = node->used ? node->lease_head : LEASE_NONE; l != LEASE_NONE;
             l = index->leases[l].next) {
            CHECK(check, index->leases[l].node == i, i);
            linked++;
        }
    }
    CHECK(check, in_use == index->lease_count && in_use == linked, 0);
    CHECK(check, pages == index->leased_pages, 0);
}

/* Every ranked node is in its policy exactly once. */
static void check_policies(struct check *check)
{
    const struct kvt_index *index = check->index;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        uint64_t expected = 0, listed = 0;
        for (uint32_t i = 1; i < index->nodes.used; i++) {
            const struct node *node = node_at(index, i);
            uint32_t ranked = 0;
            for (uint32_t t = 0; t <= tier; t++) {
                ranked += node->used ? node->fastest_pages[t] : 0;
            }
            expected += ranked > 0;
        }
        uint32_t slot = 0, after = UINT32_MAX;
        while (index->config.evict->victims(index->policies[tier].state, after, &slot, 1) == 1) {
            CHECK(check, node_at(index, slot)->used, slot);
            after = slot;
            if (++listed > expected) {
                break;
            }
        }
        CHECK(check, listed == expected, 0);
    }
}

bool kvt_index_check(const struct kvt_index *index, char *why, size_t why_bytes)
{
    struct check check = {.index = index, .why = why, .why_bytes = why_bytes, .good = true};
    for (uint32_t i = 1; i < index->nodes.used && check.good; i++) {
        const struct node *node = node_at(index, i);
        if (!node->used) {
            continue;
        }
        check.nodes++;
        if (i == index->namespaces[node->ns].root) {
            CHECK(&check, node->page_count == 0 && node->parent == KVT_NODE_NONE, i);
            continue;
        }
        check_pages(&check, i);
        check_links(&check, i);
        check_keys(&check, i);
    }
    CHECK(&check, check.nodes == index->node_count, 0);
    CHECK(&check, check.nodes + 1 == index->nodes.used - index->nodes.free_count, 0);
    CHECK(&check, check.pages == index->page_count, 0);
    CHECK(&check, check.pages == index->pages.used - index->pages.free_count, 0);
    CHECK(&check, check.token_bytes == index->token_bytes, 0);
    CHECK(&check, check.lost == index->lost_pages, 0);
    CHECK(&check, memcmp(check.tier_pages, index->tier_pages, sizeof(check.tier_pages)) == 0, 0);
    if (check.good) {
        check_leases(&check);
        check_policies(&check);
    }
    return check.good;
}
