/* Leases: a fixed pool, handles with generations, a list at the edge each ends in. */
#include "cache/index/index_internal.h"

/* A handle: generation above, number below. The generation is odd while the lease is in use. */
static uint64_t handle_of(const struct kvt_index *index, const struct lease *lease)
{
    return ((uint64_t)lease->generation << 32) | (uint32_t)(lease - index->leases);
}

struct lease *kvt_lease_find_any(const struct kvt_index *index, uint64_t handle)
{
    uint32_t number = (uint32_t)handle;
    uint32_t generation = (uint32_t)(handle >> 32);
    if (number >= index->config.leases_max || (generation & 1u) == 0) {
        return NULL;
    }
    struct lease *lease = &index->leases[number];
    return lease->generation == generation ? lease : NULL;
}

struct lease *kvt_lease_find(const struct kvt_index *index, uint64_t handle, uint32_t owner)
{
    struct lease *lease = kvt_lease_find_any(index, handle);
    return lease != NULL && lease->owner == owner && !lease->released ? lease : NULL;
}

kvt_status kvt_leases_init(struct kvt_index *index)
{
    uint32_t count = index->config.leases_max;
    index->leases = kvt_calloc(&index->mem, count, sizeof(*index->leases));
    if (index->leases == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        /* Generations start at a seeded value, so that a handle is not worth guessing. */
        uint64_t seed[2] = {index->config.seed, i};
        index->leases[i].generation = (uint32_t)kvt_hash_bytes(seed, sizeof(seed)) & ~1u;
        index->leases[i].next = i + 1 < count ? i + 1 : LEASE_NONE;
    }
    index->lease_free = 0;
    return KVT_OK;
}

void kvt_leases_fini(struct kvt_index *index)
{
    kvt_free(&index->mem, index->leases, index->config.leases_max * sizeof(*index->leases));
}

void kvt_lease_link(struct kvt_index *index, uint32_t number, uint32_t node_number, uint32_t offset)
{
    struct lease *lease = &index->leases[number];
    struct node *node = node_at(index, node_number);
    lease->node = node_number;
    lease->offset = offset;
    lease->prev = LEASE_NONE;
    lease->next = node->lease_head;
    if (node->lease_head != LEASE_NONE) {
        index->leases[node->lease_head].prev = number;
    }
    node->lease_head = number;
}

void kvt_lease_unlink(struct kvt_index *index, uint32_t number)
{
    struct lease *lease = &index->leases[number];
    if (lease->prev != LEASE_NONE) {
        index->leases[lease->prev].next = lease->next;
    } else {
        node_at(index, lease->node)->lease_head = lease->next;
    }
    if (lease->next != LEASE_NONE) {
        index->leases[lease->next].prev = lease->prev;
    }
}

static uint32_t pages_of(const struct kvt_index *index, const struct lease *lease)
{
    return node_at(index, lease->node)->depth + lease->offset;
}

kvt_status kvt_lease_acquire(struct kvt_index *index, const struct kvt_match *match, uint32_t owner,
                             uint64_t now_ns, uint64_t expires_ns, uint64_t *out_handle)
{
    uint32_t number = index->lease_free;
    if (number == LEASE_NONE) {
        return KVT_ERR_LIMIT;
    }
    struct lease *lease = &index->leases[number];
    index->lease_free = lease->next;
    index->lease_count++;
    lease->generation++;
    lease->owner = owner;
    lease->transfers = 0;
    lease->user = 0;
    lease->released = false;
    lease->taken_ns = now_ns;
    lease->expires_ns = expires_ns;
    kvt_lease_link(index, number, match->node, match->offset);
    index->leased_pages += pages_of(index, lease);
    *out_handle = handle_of(index, lease);
    return KVT_OK;
}

static void lease_free(struct kvt_index *index, struct lease *lease)
{
    uint32_t number = (uint32_t)(lease - index->leases);
    index->leased_pages -= pages_of(index, lease);
    kvt_lease_unlink(index, number);
    lease->generation++;
    lease->next = index->lease_free;
    index->lease_free = number;
    index->lease_count--;
}

/* Give the lease up; with transfers under way it lives on until the last has ended. */
static void give_up(struct kvt_index *index, struct lease *lease)
{
    lease->released = true;
    if (lease->transfers == 0) {
        lease_free(index, lease);
    }
}

kvt_status kvt_lease_release(struct kvt_index *index, uint64_t handle, uint32_t owner)
{
    struct lease *lease = kvt_lease_find(index, handle, owner);
    if (lease == NULL) {
        return KVT_ERR_STALE;
    }
    give_up(index, lease);
    return KVT_OK;
}

kvt_status kvt_lease_get(const struct kvt_index *index, uint64_t handle, uint32_t owner,
                         struct kvt_lease_info *out_info)
{
    const struct lease *lease = kvt_lease_find(index, handle, owner);
    if (lease == NULL) {
        return KVT_ERR_STALE;
    }
    const struct node *node = node_at(index, lease->node);
    *out_info = (struct kvt_lease_info){
        .at = {.ns = node->ns,
               .node = lease->node,
               .offset = lease->offset,
               .pages = node->depth + lease->offset},
        .owner = lease->owner,
        .transfers = lease->transfers,
        .user = lease->user,
    };
    return KVT_OK;
}

kvt_status kvt_lease_begin(struct kvt_index *index, uint64_t handle, uint32_t owner)
{
    struct lease *lease = kvt_lease_find(index, handle, owner);
    if (lease == NULL) {
        return KVT_ERR_STALE;
    }
    lease->transfers++;
    return KVT_OK;
}

void kvt_lease_end(struct kvt_index *index, uint64_t handle)
{
    struct lease *lease = kvt_lease_find_any(index, handle);
    KVT_ASSERT(lease != NULL && lease->transfers > 0);
    lease->transfers--;
    if (lease->released && lease->transfers == 0) {
        lease_free(index, lease);
    }
}

void kvt_lease_extend(struct kvt_index *index, uint64_t handle, uint64_t expires_ns)
{
    struct lease *lease = kvt_lease_find_any(index, handle);
    if (lease != NULL && expires_ns > lease->expires_ns) {
        lease->expires_ns = expires_ns;
    }
}

void kvt_lease_set_user(struct kvt_index *index, uint64_t handle, uint32_t user)
{
    struct lease *lease = kvt_lease_find_any(index, handle);
    KVT_ASSERT(lease != NULL);
    lease->user = user;
}

bool kvt_lease_covers(const struct kvt_index *index, uint64_t handle, uint32_t owner,
                      const struct kvt_match *match)
{
    const struct lease *lease = kvt_lease_find(index, handle, owner);
    uint32_t number = match->node;
    uint32_t offset = match->offset;
    while (lease != NULL && number != KVT_NODE_NONE) {
        if (number == lease->node) {
            return lease->offset <= offset;
        }
        number = node_at(index, number)->parent;
        offset = UINT32_MAX;
    }
    return false;
}

uint32_t kvt_lease_expire(struct kvt_index *index, uint64_t now_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < index->config.leases_max; i++) {
        struct lease *lease = &index->leases[i];
        if ((lease->generation & 1u) != 0 && !lease->released && lease->transfers == 0 &&
            lease->expires_ns <= now_ns) {
            lease_free(index, lease);
            count++;
        }
    }
    return count;
}

uint32_t kvt_lease_drop_owner(struct kvt_index *index, uint32_t owner)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < index->config.leases_max; i++) {
        struct lease *lease = &index->leases[i];
        if ((lease->generation & 1u) != 0 && !lease->released && lease->owner == owner) {
            give_up(index, lease);
            count++;
        }
    }
    return count;
}

void kvt_lease_stats(const struct kvt_index *index, struct kvt_lease_stats *out_stats)
{
    *out_stats = (struct kvt_lease_stats){
        .leases = index->lease_count,
        .leases_max = index->config.leases_max,
        .leased_pages = index->leased_pages,
        .oldest_ns = UINT64_MAX,
    };
    for (uint32_t i = 0; i < index->config.leases_max; i++) {
        const struct lease *lease = &index->leases[i];
        if ((lease->generation & 1u) != 0 && lease->taken_ns < out_stats->oldest_ns) {
            out_stats->oldest_ns = lease->taken_ns;
        }
    }
}
