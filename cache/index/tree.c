/* Namespaces, matching, inserting. The cases M1-M5 and I1-I3 are drawn in index.h. */
#include "cache/index/index_internal.h"

#include <string.h>

/* A mismatch is looked for in steps of so many tokens, then page by page. */
#define COMPARE_STEP_BYTES 4096u

/* ---- namespaces ---- */

kvt_status kvt_index_namespace(struct kvt_index *index, const void *canonical,
                               size_t canonical_bytes, uint64_t group, uint32_t *out_ns)
{
    for (uint32_t i = 0; i < index->namespace_count; i++) {
        const struct ns_entry *entry = &index->namespaces[i];
        if (entry->canonical_bytes == canonical_bytes &&
            memcmp(entry->canonical, canonical, canonical_bytes) == 0) {
            *out_ns = i;
            return KVT_OK;
        }
    }
    if (index->namespace_count == KVT_NAMESPACES_MAX) {
        return KVT_ERR_LIMIT;
    }
    unsigned char *copy = kvt_alloc(&index->mem, canonical_bytes);
    if (copy == NULL) {
        return KVT_ERR_NOMEM;
    }
    uint32_t ns = index->namespace_count;
    uint32_t root = KVT_NODE_NONE;
    kvt_status status = kvt_node_create(index, ns, KVT_NODE_NONE, 0, &root);
    if (status != KVT_OK) {
        kvt_free(&index->mem, copy, canonical_bytes);
        return status;
    }
    memcpy(copy, canonical, canonical_bytes);
    index->namespaces[ns] = (struct ns_entry){
        .canonical = copy,
        .canonical_bytes = canonical_bytes,
        .group = group,
        .key = kvt_key_of_namespace(canonical, canonical_bytes),
        .root = root,
    };
    index->namespace_count++;
    *out_ns = ns;
    return KVT_OK;
}

kvt_status kvt_index_namespace_bytes(struct kvt_index *index, uint32_t ns, uint64_t slot_bytes)
{
    struct ns_entry *entry = &index->namespaces[ns];
    if (entry->slot_bytes == 0) {
        entry->slot_bytes = slot_bytes;
    }
    return entry->slot_bytes == slot_bytes ? KVT_OK : KVT_ERR_INVAL;
}

uint64_t kvt_index_slot_bytes(const struct kvt_index *index, uint32_t ns)
{
    return index->namespaces[ns].slot_bytes;
}

void kvt_index_namespace_get(const struct kvt_index *index, uint32_t ns, const void **out_canonical,
                             uint32_t *out_canonical_bytes, uint64_t *out_group,
                             uint64_t *out_slot_bytes)
{
    const struct ns_entry *entry = &index->namespaces[ns];
    *out_canonical = entry->canonical;
    *out_canonical_bytes = (uint32_t)entry->canonical_bytes;
    *out_group = entry->group;
    *out_slot_bytes = entry->slot_bytes;
}

uint32_t kvt_index_match_elsewhere(struct kvt_index *index, uint32_t ns,
                                   const struct kvt_prompt *prompt)
{
    uint32_t best = 0, looked = 0;
    for (uint32_t i = 0; i < index->namespace_count && looked < KVT_OTHER_NAMESPACES_MAX; i++) {
        if (i != ns && index->namespaces[i].group == index->namespaces[ns].group) {
            struct kvt_match match;
            kvt_index_match(index, i, prompt, &match);
            best = match.pages > best ? match.pages : best;
            looked++;
        }
    }
    return best;
}

/* ---- matching ---- */

uint32_t kvt_prompt_extras(const struct kvt_prompt *prompt, uint32_t page, uint32_t page_tokens,
                           uint32_t *cursor, const struct kvt_extra **out_extras)
{
    uint64_t begin = (uint64_t)page * page_tokens;
    uint64_t end = begin + page_tokens;
    while (*cursor < prompt->extra_count && prompt->extras[*cursor].token_index < begin) {
        (*cursor)++;
    }
    uint32_t first = *cursor;
    while (*cursor < prompt->extra_count && prompt->extras[*cursor].token_index < end) {
        (*cursor)++;
    }
    *out_extras = *cursor > first ? &prompt->extras[first] : NULL;
    return *cursor - first;
}

/* The first page at or behind the cursor that carries an extra key: an edge ends before it. */
static uint32_t next_extra_page(const struct kvt_prompt *prompt, uint32_t page_tokens,
                                uint32_t cursor)
{
    if (cursor == prompt->extra_count) {
        return UINT32_MAX;
    }
    uint64_t page = prompt->extras[cursor].token_index / page_tokens;
    return page < UINT32_MAX ? (uint32_t)page : UINT32_MAX;
}

/* How many of the first `pages` pages at a and b are equal. */
static uint32_t equal_pages(const uint32_t *a, const uint32_t *b, uint32_t pages,
                            uint32_t page_tokens)
{
    size_t page_bytes = page_tokens * sizeof(*a);
    size_t bytes = pages * page_bytes;
    if (memcmp(a, b, bytes) == 0) {
        return pages;
    }
    const unsigned char *x = (const unsigned char *)a;
    const unsigned char *y = (const unsigned char *)b;
    size_t at = 0;
    while (bytes - at > COMPARE_STEP_BYTES && memcmp(x + at, y + at, COMPARE_STEP_BYTES) == 0) {
        at += COMPARE_STEP_BYTES;
    }
    size_t page = at / page_bytes;
    while (memcmp(x + page * page_bytes, y + page * page_bytes, page_bytes) == 0) {
        page++;
    }
    return (uint32_t)page;
}

/* Where a walk down the tree stands. */
struct walk {
    uint32_t node, offset, pages;
    bool diverged;
};

/*
 * Go on from where `walk` stands: the rest of the edge it is in, then child by child, as far as the
 * prompt's pages agree. Adds what it passes to tier_pages when that is not NULL.
 */
static void walk_down(struct kvt_index *index, const struct kvt_prompt *prompt, struct walk *walk,
                      uint32_t *tier_pages)
{
    const uint32_t page_tokens = index->config.page_tokens;
    uint32_t cursor = 0;
    walk->diverged = false;
    while (walk->pages < prompt->pages) {
        const struct node *node = node_at(index, walk->node);
        uint32_t at = walk->offset;
        const struct kvt_extra *extras = NULL;
        uint32_t extra_count =
            kvt_prompt_extras(prompt, walk->pages, page_tokens, &cursor, &extras);
        const uint32_t *tokens = prompt_at(index, prompt, walk->pages);
        if (at == node->page_count) {
            uint32_t child = kvt_node_find_child(index, walk->node, tokens, extras, extra_count);
            if (child == KVT_NODE_NONE) {
                walk->diverged = node->first_child != KVT_NODE_NONE; /* M3, M5 */
                return;
            }
            node = node_at(index, child);
            walk->node = child;
            walk->offset = at = 0;
        } else if (extra_count > 0) {
            walk->diverged = true; /* inside an edge no page has extra keys */
            return;
        }
        uint32_t pages = node->page_count - at;
        uint32_t rest = prompt->pages - walk->pages;
        uint32_t clear = next_extra_page(prompt, page_tokens, cursor) - walk->pages;
        pages = rest < pages ? rest : pages;
        pages = clear < pages ? clear : pages;
        uint32_t equal =
            equal_pages(node->tokens + (size_t)at * page_tokens, tokens, pages, page_tokens);
        walk->offset += equal;
        walk->pages += equal;
        for (uint32_t t = 0;
             tier_pages != NULL && at == 0 && equal == node->page_count && t < KVT_TIERS; t++) {
            tier_pages[t] += node->fastest_pages[t];
        }
        if (equal < pages) {
            walk->diverged = true; /* M2, M4 */
            return;
        }
    }
}

void kvt_match_end_before_lost(const struct kvt_index *index, struct kvt_match *match)
{
    uint32_t passed = match->offset;
    uint32_t at = match->node;
    while (at != KVT_NODE_NONE) {
        const struct node *node = node_at(index, at);
        uint32_t placed = 0;
        for (uint32_t t = 0; t < KVT_TIERS; t++) {
            placed += node->fastest_pages[t];
        }
        for (uint32_t i = 0; placed < node->page_count && i < passed; i++) {
            if (kvt_page_tiers(index, page_at(index, node->pages[i])) == 0) {
                match->node = i > 0 ? at : node->parent;
                match->offset = i > 0 ? i : node_at(index, node->parent)->page_count;
                match->pages = node->depth + i;
                break;
            }
        }
        at = node->parent;
        passed = UINT32_MAX;
        if (at != KVT_NODE_NONE) {
            passed = node_at(index, at)->page_count;
        }
    }
}

/* Page by page, from where the match ends up to the root. */
static void count_tiers(const struct kvt_index *index, struct kvt_match *match)
{
    uint32_t passed = match->offset;
    memset(match->tier_pages, 0, sizeof(match->tier_pages));
    for (uint32_t at = match->node; at != KVT_NODE_NONE;) {
        const struct node *node = node_at(index, at);
        for (uint32_t i = 0; i < passed; i++) {
            uint32_t tiers = kvt_page_tiers(index, page_at(index, node->pages[i]));
            match->tier_pages[__builtin_ctz(tiers)]++;
        }
        at = node->parent;
        passed = at != KVT_NODE_NONE ? node_at(index, at)->page_count : 0;
    }
}

void kvt_index_match(struct kvt_index *index, uint32_t ns, const struct kvt_prompt *prompt,
                     struct kvt_match *out_match)
{
    struct walk walk = {.node = index->namespaces[ns].root};
    *out_match = (struct kvt_match){.ns = ns};
    walk_down(index, prompt, &walk, out_match->tier_pages);
    out_match->node = walk.node;
    out_match->offset = walk.offset;
    out_match->pages = walk.pages;
    out_match->diverged = walk.diverged;
    if (index->lost_pages > 0) {
        kvt_match_end_before_lost(index, out_match);
    }
    if (out_match->pages < walk.pages) {
        count_tiers(index, out_match);
        return;
    }
    /* Edges passed whole were counted by their sums; a last edge that was not, page by page. */
    const struct node *node = node_at(index, walk.node);
    for (uint32_t i = 0; walk.offset < node->page_count && i < walk.offset; i++) {
        uint32_t tiers = kvt_page_tiers(index, page_at(index, node->pages[i]));
        out_match->tier_pages[__builtin_ctz(tiers)]++;
    }
}

struct kvt_key kvt_index_match_key(const struct kvt_index *index, const struct kvt_match *match)
{
    if (match->pages == 0) {
        return index->namespaces[match->ns].key;
    }
    const struct node *node = node_at(index, match->node);
    return page_at(index, node->pages[match->offset - 1])->key;
}

/* ---- inserting ---- */

/* A page record, with its places; counted nowhere yet. */
static kvt_status page_create(struct kvt_index *index, const struct kvt_key *key,
                              const struct kvt_new_page *new_page, uint32_t *out_page)
{
    uint32_t number = 0;
    kvt_status status = kvt_table_take(index, &index->pages, &number);
    if (status != KVT_OK) {
        return status;
    }
    struct page *page = page_at(index, number);
    page->key = *key;
    memcpy(&page->places[(size_t)new_page->tier * index->config.shards], new_page->places,
           index->config.shards * sizeof(*new_page->places));
    *out_page = number;
    return KVT_OK;
}

/* Append pages to an edge that has room for them; stops at the first that cannot be had. */
static kvt_status edge_append(struct kvt_index *index, uint32_t number, struct kvt_key *key,
                              const uint32_t *tokens, uint32_t count,
                              const struct kvt_new_page *pages, uint32_t *inserted)
{
    const uint32_t page_tokens = index->config.page_tokens;
    struct node *node = node_at(index, number);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t *page_start = tokens + (size_t)i * page_tokens;
        bool first = node->page_count == 0;
        struct kvt_key next =
            kvt_key_next(key, page_start, page_tokens, first ? node->extras : NULL,
                         first ? node->extra_count * sizeof(*node->extras) : 0);
        uint32_t page = KVT_PAGE_NONE;
        kvt_status status = page_create(index, &next, &pages[i], &page);
        if (status != KVT_OK) {
            return status;
        }
        page_at(index, page)->node = number;
        memcpy(node->tokens + (size_t)node->page_count * page_tokens, page_start,
               page_tokens * sizeof(*tokens));
        node->pages[node->page_count++] = page;
        kvt_node_count_page(index, number, 1u << pages[i].tier, 1);
        index->page_count++;
        (*inserted)++;
        *key = next;
    }
    return KVT_OK;
}

/* A new child of `parent` for `count` pages, the first of which carries these extra keys. */
static kvt_status child_create(struct kvt_index *index, uint32_t parent, uint32_t count,
                               const struct kvt_extra *extras, uint32_t extra_count,
                               uint32_t *out_child)
{
    const struct node *above = node_at(index, parent);
    uint32_t child = KVT_NODE_NONE;
    kvt_status status =
        kvt_node_create(index, above->ns, parent, above->depth + above->page_count, &child);
    if (status != KVT_OK) {
        return status;
    }
    struct node *node = node_at(index, child);
    if (extra_count > 0) {
        node->extras = kvt_alloc(&index->mem, extra_count * sizeof(*extras));
        if (node->extras == NULL) {
            kvt_node_destroy(index, child);
            return KVT_ERR_NOMEM;
        }
        memcpy(node->extras, extras, extra_count * sizeof(*extras));
        node->extra_count = extra_count;
    }
    status = kvt_node_reserve(index, node, count);
    if (status != KVT_OK) {
        kvt_node_destroy(index, child);
        return status;
    }
    *out_child = child;
    return KVT_OK;
}

/* The edge that takes the next pages: the one the walk stands in (I1), or a new child (I2, I3). */
static kvt_status edge_for(struct kvt_index *index, struct walk *walk, uint32_t count,
                           const struct kvt_extra *extras, uint32_t extra_count, uint32_t *out_node,
                           bool *out_new)
{
    uint32_t edge_max = KVT_EDGE_TOKENS_MAX / index->config.page_tokens;
    struct node *node = node_at(index, walk->node);
    uint32_t number = walk->node;
    if (walk->offset == node->page_count && node->first_child == KVT_NODE_NONE &&
        node->page_count > 0 && extra_count == 0 && node->page_count + count <= edge_max) {
        *out_new = false;
        *out_node = number;
        return kvt_node_reserve(index, node, node->page_count + count);
    }
    if (walk->offset < node->page_count && walk->offset > 0) {
        kvt_status status = kvt_node_split(index, walk->node, walk->offset, &number);
        if (status != KVT_OK) {
            return status;
        }
    }
    *out_new = true;
    return child_create(index, number, count, extras, extra_count, out_node);
}

/* Enter one run of pages with no extra key but in its first. */
static kvt_status insert_run(struct kvt_index *index, struct walk *walk, struct kvt_key *key,
                             const struct kvt_prompt *prompt, uint32_t count, uint32_t *cursor,
                             const struct kvt_new_page *pages, uint32_t *inserted)
{
    const uint32_t page_tokens = index->config.page_tokens;
    const struct kvt_extra *extras = NULL;
    uint32_t extra_count = kvt_prompt_extras(prompt, walk->pages, page_tokens, cursor, &extras);
    uint32_t clear = next_extra_page(prompt, page_tokens, *cursor) - walk->pages;
    uint32_t edge_max = KVT_EDGE_TOKENS_MAX / page_tokens;
    edge_max = edge_max > 0 ? edge_max : 1;
    count = clear < count ? clear : count;
    count = edge_max < count ? edge_max : count;
    uint32_t number = KVT_NODE_NONE;
    bool is_new = false;
    kvt_status status = edge_for(index, walk, count, extras, extra_count, &number, &is_new);
    if (status != KVT_OK) {
        return status;
    }
    uint32_t before = *inserted;
    status = edge_append(index, number, key, prompt_at(index, prompt, walk->pages), count, pages,
                         inserted);
    struct node *node = node_at(index, number);
    if (is_new && node->page_count == 0) {
        kvt_node_destroy(index, number);
        return status;
    }
    if (is_new) {
        kvt_node_link(index, number);
    }
    walk->node = number;
    walk->offset = node->page_count;
    walk->pages += *inserted - before;
    return status;
}

kvt_status kvt_index_insert(struct kvt_index *index, uint64_t handle, uint32_t owner,
                            const struct kvt_prompt *prompt, uint32_t from_page, uint32_t count,
                            const struct kvt_new_page *pages, uint32_t *out_duplicates,
                            uint32_t *out_inserted)
{
    *out_duplicates = 0;
    *out_inserted = 0;
    const struct lease *lease = kvt_lease_find(index, handle, owner);
    if (lease == NULL) {
        return KVT_ERR_STALE;
    }
    struct walk walk = {.node = lease->node, .offset = lease->offset};
    walk.pages = node_at(index, lease->node)->depth + lease->offset;
    if (walk.pages != from_page || prompt->first_page > from_page ||
        prompt->pages < from_page + count) {
        return KVT_ERR_INVAL;
    }
    uint32_t end = from_page + count;
    struct kvt_prompt until = *prompt;
    until.pages = end;
    walk_down(index, &until, &walk, NULL);
    *out_duplicates = walk.pages - from_page;
    struct kvt_match at = {.ns = node_at(index, walk.node)->ns,
                           .node = walk.node,
                           .offset = walk.offset,
                           .pages = walk.pages};
    struct kvt_key key = kvt_index_match_key(index, &at);
    uint32_t cursor = 0;
    kvt_status status = KVT_OK;
    while (status == KVT_OK && walk.pages < end) {
        status = insert_run(index, &walk, &key, prompt, end - walk.pages, &cursor,
                            pages + (walk.pages - from_page), out_inserted);
    }
    return status;
}

uint32_t kvt_index_walk_behind(struct kvt_index *index, uint64_t handle, uint32_t owner,
                               const struct kvt_prompt *prompt, uint32_t from_page, uint32_t count,
                               uint32_t *out_node)
{
    const struct lease *lease = kvt_lease_find(index, handle, owner);
    KVT_ASSERT(lease != NULL);
    struct walk walk = {.node = lease->node, .offset = lease->offset};
    walk.pages = node_at(index, lease->node)->depth + lease->offset;
    KVT_ASSERT(walk.pages == from_page);
    struct kvt_prompt until = *prompt;
    until.pages = from_page + count;
    walk_down(index, &until, &walk, NULL);
    *out_node = walk.node;
    return walk.pages - from_page;
}

/* ---- loading ---- */

/* Where the page that follows `before` stands: behind it. */
static struct walk walk_behind(const struct kvt_index *index, uint32_t ns, uint32_t before)
{
    if (before == KVT_PAGE_NONE) {
        return (struct walk){.node = index->namespaces[ns].root};
    }
    uint32_t number = page_at(index, before)->node;
    const struct node *node = node_at(index, number);
    /* Nearly always the last one: pages come in the order in which they were written. */
    uint32_t at = node->page_count - 1;
    while (node->pages[at] != before) {
        KVT_ASSERT(at > 0);
        at--;
    }
    return (struct walk){.node = number, .offset = at + 1, .pages = node->depth + at + 1};
}

/* Room ahead, so that a long edge is not copied for each of its pages. */
static void reserve_ahead(struct kvt_index *index, const struct walk *walk)
{
    struct node *node = node_at(index, walk->node);
    uint32_t edge_max = KVT_EDGE_TOKENS_MAX / index->config.page_tokens;
    if (walk->offset == node->page_count && node->page_count == node->page_cap &&
        node->page_count > 0) {
        uint32_t cap = node->page_cap > edge_max / 2 ? edge_max : node->page_cap * 2;
        kvt_status status = kvt_node_reserve(index, node, cap);
        (void)status; /* without memory for all of it the edge grows page by page */
    }
}

kvt_status kvt_index_load_page(struct kvt_index *index, uint32_t ns, uint32_t before,
                               const struct kvt_loaded_page *in, uint32_t *out_page)
{
    const uint32_t page_tokens = index->config.page_tokens;
    struct walk walk = walk_behind(index, ns, before);
    struct kvt_match at = {.ns = ns, .node = walk.node, .offset = walk.offset, .pages = walk.pages};
    const struct node *node = node_at(index, walk.node);
    bool inside = walk.offset < node->page_count;
    if (inside ? in->extra_count == 0 && memcmp(node->tokens + (size_t)walk.offset * page_tokens,
                                                in->tokens, page_tokens * sizeof(uint32_t)) == 0
               : node->first_child != KVT_NODE_NONE &&
                     kvt_node_find_child(index, walk.node, in->tokens, in->extras,
                                         in->extra_count) != KVT_NODE_NONE) {
        return KVT_ERR_INVAL; /* the tree has it */
    }
    struct kvt_key key = kvt_index_match_key(index, &at); /* before the edge is split */
    reserve_ahead(index, &walk);
    uint32_t number = KVT_NODE_NONE;
    bool is_new = false;
    kvt_status status = edge_for(index, &walk, 1, in->extras, in->extra_count, &number, &is_new);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_new_page page = {.tier = KVT_NVME, .places = &in->place};
    uint32_t inserted = 0;
    status = edge_append(index, number, &key, in->tokens, 1, &page, &inserted);
    if (status != KVT_OK) {
        if (is_new) {
            kvt_node_destroy(index, number);
        }
        return status;
    }
    if (is_new) {
        kvt_node_link(index, number);
    }
    struct node *edge = node_at(index, number);
    *out_page = edge->pages[edge->page_count - 1];
    return KVT_OK;
}
