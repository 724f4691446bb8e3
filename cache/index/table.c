/* Tables in chunks, the counting allocator, and the index's life cycle. */
#include "cache/index/index_internal.h"

#include <string.h>

#define BUCKETS_MIN 1024u

/* ---- every byte of the index is counted where it is asked for ---- */

static void *counted_alloc(void *ctx, size_t bytes)
{
    struct kvt_index *index = ctx;
    void *ptr = index->config.mem->alloc(index->config.mem->ctx, bytes);
    index->bytes += ptr != NULL ? bytes : 0;
    return ptr;
}

static void *counted_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct kvt_index *index = ctx;
    void *moved = index->config.mem->resize(index->config.mem->ctx, ptr, old_bytes, new_bytes);
    if (moved != NULL) {
        index->bytes += new_bytes;
        index->bytes -= old_bytes;
    }
    return moved;
}

static void counted_free(void *ctx, void *ptr, size_t bytes)
{
    struct kvt_index *index = ctx;
    index->config.mem->free(index->config.mem->ctx, ptr, bytes);
    index->bytes -= ptr != NULL ? bytes : 0;
}

/* ---- tables ---- */

kvt_status kvt_table_init(struct kvt_index *index, struct table *table, size_t item_bytes,
                          uint32_t shift, uint32_t items_max)
{
    *table = (struct table){
        .items_max = items_max, .item_bytes = item_bytes, .shift = shift, .free_head = UINT32_MAX};
    table->chunks_max = (uint32_t)(((uint64_t)items_max + (1u << shift) - 1) >> shift);
    table->chunks = kvt_calloc(&index->mem, table->chunks_max, sizeof(*table->chunks));
    return table->chunks != NULL ? KVT_OK : KVT_ERR_NOMEM;
}

void kvt_table_fini(struct kvt_index *index, struct table *table)
{
    for (uint32_t i = 0; i < table->chunk_count; i++) {
        kvt_free(&index->mem, table->chunks[i], table->item_bytes << table->shift);
    }
    kvt_free(&index->mem, table->chunks, table->chunks_max * sizeof(*table->chunks));
}

kvt_status kvt_table_take(struct kvt_index *index, struct table *table, uint32_t *out_number)
{
    uint32_t number = table->free_head;
    if (number != UINT32_MAX) {
        memcpy(&table->free_head, table_at(table, number), sizeof(table->free_head));
        table->free_count--;
    } else {
        if (table->used == table->items_max) {
            return KVT_ERR_LIMIT;
        }
        if (table->used == table->chunk_count << table->shift) {
            void *chunk = kvt_alloc(&index->mem, table->item_bytes << table->shift);
            if (chunk == NULL) {
                return KVT_ERR_NOMEM;
            }
            table->chunks[table->chunk_count++] = chunk;
        }
        number = table->used++;
    }
    memset(table_at(table, number), 0, table->item_bytes);
    *out_number = number;
    return KVT_OK;
}

void kvt_table_give(struct table *table, uint32_t number)
{
    memcpy(table_at(table, number), &table->free_head, sizeof(table->free_head));
    table->free_head = number;
    table->free_count++;
}

/* ---- life cycle ---- */

static kvt_status policies_init(struct kvt_index *index)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        struct policy_state *policy = &index->policies[tier];
        policy->slots = NODE_CHUNK;
        policy->state = kvt_calloc(&index->mem, 1, ops->state_bytes(policy->slots));
        if (policy->state == NULL) {
            return KVT_ERR_NOMEM;
        }
        ops->init(policy->state, policy->slots, index->config.seed);
    }
    return KVT_OK;
}

static kvt_status index_init(struct kvt_index *index)
{
    const struct kvt_index_config *config = &index->config;
    size_t page_bytes =
        sizeof(struct page) + (size_t)KVT_TIERS * config->shards * sizeof(struct kvt_place);
    /* Every node but the roots holds a page; node 0 stands for "none", and one may be about to get
     * its first page. */
    uint32_t nodes_max = config->pages_max + KVT_NAMESPACES_MAX + 2;
    kvt_status status =
        kvt_table_init(index, &index->nodes, sizeof(struct node), NODE_CHUNK_SHIFT, nodes_max);
    if (status == KVT_OK) {
        status =
            kvt_table_init(index, &index->pages, page_bytes, PAGE_CHUNK_SHIFT, config->pages_max);
    }
    if (status == KVT_OK) {
        status = kvt_leases_init(index);
    }
    if (status == KVT_OK) {
        status = policies_init(index);
    }
    if (status != KVT_OK) {
        return status;
    }
    index->bucket_count = BUCKETS_MIN;
    index->buckets = kvt_calloc(&index->mem, BUCKETS_MIN, sizeof(*index->buckets));
    index->namespaces = kvt_calloc(&index->mem, KVT_NAMESPACES_MAX, sizeof(*index->namespaces));
    if (index->buckets == NULL || index->namespaces == NULL) {
        return KVT_ERR_NOMEM;
    }
    uint32_t none = 0;
    status = kvt_table_take(index, &index->nodes, &none);
    KVT_ASSERT(status != KVT_OK || none == KVT_NODE_NONE);
    return status;
}

kvt_status kvt_index_create(const struct kvt_index_config *config, struct kvt_index **out_index)
{
    if (config->page_tokens == 0 || config->shards == 0 || config->shards > KVT_SHARDS_MAX ||
        config->pages_max == 0 || config->pages_max > (1u << 30) || config->leases_max == 0) {
        return KVT_ERR_INVAL;
    }
    struct kvt_index *index = kvt_calloc(config->mem, 1, sizeof(*index));
    if (index == NULL) {
        return KVT_ERR_NOMEM;
    }
    index->config = *config;
    index->mem = (struct kvt_memory){index, counted_alloc, counted_resize, counted_free};
    index->bytes = sizeof(*index);
    index->hash_mask = config->hash_bits == 0 || config->hash_bits > 31
                           ? UINT32_MAX
                           : (1u << config->hash_bits) - 1u;
    kvt_status status = index_init(index);
    if (status != KVT_OK) {
        kvt_index_destroy(index);
        return status;
    }
    *out_index = index;
    return KVT_OK;
}

static void nodes_fini(struct kvt_index *index)
{
    for (uint32_t i = 1; i < index->nodes.used; i++) {
        struct node *node = node_at(index, i);
        if (node->used) {
            size_t page_bytes = (index->config.page_tokens + (size_t)1) * sizeof(uint32_t);
            kvt_free(&index->mem, node->tokens, node->page_cap * page_bytes);
            kvt_free(&index->mem, node->extras, node->extra_count * sizeof(*node->extras));
        }
    }
}

void kvt_index_destroy(struct kvt_index *index)
{
    if (index == NULL) {
        return;
    }
    if (index->nodes.chunks != NULL) {
        nodes_fini(index);
        kvt_table_fini(index, &index->nodes);
    }
    if (index->pages.chunks != NULL) {
        kvt_table_fini(index, &index->pages);
    }
    kvt_leases_fini(index);
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        struct policy_state *policy = &index->policies[tier];
        kvt_free(&index->mem, policy->state, index->config.evict->state_bytes(policy->slots));
    }
    kvt_free(&index->mem, index->buckets, index->bucket_count * sizeof(*index->buckets));
    for (uint32_t i = 0; i < index->namespace_count; i++) {
        kvt_free(&index->mem, index->namespaces[i].canonical, index->namespaces[i].canonical_bytes);
    }
    kvt_free(&index->mem, index->namespaces, KVT_NAMESPACES_MAX * sizeof(*index->namespaces));
    kvt_free(index->config.mem, index, sizeof(*index));
}

void kvt_index_stats(const struct kvt_index *index, struct kvt_index_stats *out_stats)
{
    *out_stats = (struct kvt_index_stats){
        .pages = index->page_count,
        .pages_max = index->config.pages_max,
        .nodes = index->node_count,
        .namespaces = index->namespace_count,
        .evicted_pages = index->evicted_pages,
        .key_collisions = index->key_collisions,
        .bytes = index->bytes,
        .token_bytes = index->token_bytes,
    };
    out_stats->lost_pages = index->lost_pages;
    memcpy(out_stats->tier_pages, index->tier_pages, sizeof(out_stats->tier_pages));
}
