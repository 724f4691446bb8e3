/* Pages after they were entered: their places, recency, and leaving. */
#include "cache/index/index_internal.h"

#include <string.h>

kvt_status kvt_index_pages(const struct kvt_index *index, uint64_t handle, uint32_t owner,
                           uint32_t first, uint32_t count, uint32_t *out_pages)
{
    const struct lease *lease = kvt_lease_find(index, handle, owner);
    if (lease == NULL) {
        return KVT_ERR_STALE;
    }
    const struct node *node = node_at(index, lease->node);
    if ((uint64_t)first + count > (uint64_t)node->depth + lease->offset) {
        return KVT_ERR_INVAL;
    }
    /* From the deepest edge up; each edge fills its part of the range. */
    uint32_t end = first + count;
    while (end > first) {
        uint32_t begin = node->depth > first ? node->depth : first;
        if (begin < end) {
            memcpy(out_pages + (begin - first), node->pages + (begin - node->depth),
                   (end - begin) * sizeof(*out_pages));
            end = begin;
        }
        node = node_at(index, node->parent);
    }
    return KVT_OK;
}

struct kvt_place kvt_page_place(const struct kvt_index *index, uint32_t page, uint32_t tier,
                                uint32_t shard)
{
    const struct page *record = page_at(index, page);
    const struct kvt_place nowhere = {0, 0};
    return page_in_tier(index, record, tier)
               ? record->places[(size_t)tier * index->config.shards + shard]
               : nowhere;
}

uint64_t kvt_page_slot_bytes(const struct kvt_index *index, uint32_t page)
{
    return index->namespaces[node_at(index, page_at(index, page)->node)->ns].slot_bytes;
}

void kvt_page_set_places(struct kvt_index *index, uint32_t number, uint32_t tier,
                         const struct kvt_place *places)
{
    struct page *page = page_at(index, number);
    uint32_t before = kvt_page_tiers(index, page);
    memcpy(&page->places[(size_t)tier * index->config.shards], places,
           index->config.shards * sizeof(*places));
    /* Joins before it leaves, so that a policy does not see the edge go and come back. */
    kvt_node_count_page(index, page->node, kvt_page_tiers(index, page), 1);
    kvt_node_count_page(index, page->node, before, -1);
}

void kvt_page_set_busy(struct kvt_index *index, uint32_t number, bool busy)
{
    struct page *page = page_at(index, number);
    KVT_ASSERT(busy ? page->busy < UINT16_MAX : page->busy > 0);
    page->busy = (uint16_t)(page->busy + (busy ? 1 : -1));
}

void kvt_index_touch(struct kvt_index *index, uint64_t handle, uint32_t owner)
{
    /* What was released meanwhile was delivered all the same. */
    const struct lease *lease = kvt_lease_find_any(index, handle);
    if (lease == NULL || lease->owner != owner) {
        return;
    }
    const struct kvt_evict_ops *ops = index->config.evict;
    for (uint32_t number = lease->node; number != KVT_NODE_NONE;
         number = node_at(index, number)->parent) {
        const struct node *node = node_at(index, number);
        uint32_t ranked = 0;
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            ranked += node->fastest_pages[tier];
            if (ranked > 0) {
                ops->on_hit(index->policies[tier].state, number);
            }
        }
    }
}

/* The last page of an edge leaves the cache. */
void kvt_page_drop_last(struct kvt_index *index, uint32_t node_number)
{
    struct node *node = node_at(index, node_number);
    uint32_t number = node->pages[node->page_count - 1];
    struct page *page = page_at(index, number);
    KVT_ASSERT(page->busy == 0);
    kvt_node_count_page(index, node_number, kvt_page_tiers(index, page), -1);
    page->node = KVT_NODE_NONE;
    node->page_count--;
    index->page_count--;
    index->evicted_pages++;
    index->config.on_drop(index->config.ctx, &page->key, page->places);
    kvt_table_give(&index->pages, number);
}

/* Drop pages from an edge's tail while they lie in `tier` (KVT_TIERS: any) and nobody holds
 * them. */
static uint32_t trim(struct kvt_index *index, uint32_t node_number, uint32_t tier, uint32_t count)
{
    struct node *node = node_at(index, node_number);
    uint32_t pinned = kvt_node_pinned(index, node);
    uint32_t dropped = 0;
    while (dropped < count && node->page_count > pinned) {
        const struct page *page = page_at(index, node->pages[node->page_count - 1]);
        if (page->busy > 0 || (tier < KVT_TIERS && !page_in_tier(index, page, tier))) {
            break;
        }
        if (node->page_count == 1) {
            kvt_node_unlink(index, node_number); /* while it still has its first page's hash */
        }
        kvt_page_drop_last(index, node_number);
        dropped++;
    }
    if (node->page_count == 0) {
        kvt_node_destroy(index, node_number);
    } else if (dropped > 0) {
        kvt_node_shrink(index, node);
    }
    return dropped;
}

uint32_t kvt_index_evict(struct kvt_index *index, uint32_t tier, uint32_t count)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    /* The slowest tier's policy ranks every edge. */
    const void *state = index->policies[tier < KVT_TIERS ? tier : KVT_TIERS - 1].state;
    uint32_t dropped = 0;
    uint32_t after = UINT32_MAX;
    uint32_t victims[VICTIM_BATCH];
    while (dropped < count) {
        uint32_t found = ops->victims(state, after, victims, VICTIM_BATCH);
        if (found == 0) {
            break;
        }
        uint32_t before = dropped;
        for (uint32_t i = 0; i < found && dropped < count; i++) {
            dropped += trim(index, victims[i], tier, count - dropped);
        }
        /* Whatever went changed the ranking (a parent may be a leaf now): begin again. */
        after = dropped > before ? UINT32_MAX : victims[found - 1];
    }
    return dropped;
}

uint32_t kvt_index_demotable(struct kvt_index *index, uint32_t tier, uint32_t count,
                             uint32_t *out_pages)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    uint32_t taken = 0;
    uint32_t after = UINT32_MAX;
    uint32_t victims[VICTIM_BATCH];
    while (taken < count) {
        uint32_t found = ops->victims(index->policies[tier].state, after, victims, VICTIM_BATCH);
        if (found == 0) {
            break;
        }
        for (uint32_t i = 0; i < found && taken < count; i++) {
            const struct node *node = node_at(index, victims[i]);
            if (node->tier_pages[tier] == 0) {
                continue;
            }
            for (uint32_t j = node->page_count; j > 0 && taken < count; j--) {
                const struct page *page = page_at(index, node->pages[j - 1]);
                if (page->busy == 0 && page_in_tier(index, page, tier)) {
                    out_pages[taken++] = node->pages[j - 1];
                }
            }
        }
        after = victims[found - 1];
    }
    return taken;
}
