/* What all tiers of memory share. */
#include "cache/tier/tier.h"

void kvt_tier_close(struct kvt_tier *tier)
{
    kvt_slab_destroy(tier->slab);
    tier->slab = NULL;
}

kvt_status kvt_tier_grow(struct kvt_tier *tier, struct kvt_lock *lock, uint64_t slot_bytes)
{
    uint64_t bytes = kvt_slab_grow_begin(tier->slab, slot_bytes);
    if (bytes == 0) {
        return KVT_ERR_LIMIT;
    }
    kvt_lock_give(lock);
    void *base = tier->backing.map(tier->backing.ctx, bytes);
    if (base != NULL && tier->on_map != NULL) {
        tier->on_map(tier->on_map_ctx, base, bytes);
    }
    kvt_lock_take(lock);
    kvt_slab_grow_end(tier->slab, base, bytes);
    return base != NULL ? KVT_OK : KVT_ERR_NOMEM;
}
