/*
 * Slots of exact size in chunks of memory: the allocator of a tier.
 *
 * A chunk is mapped from a backing (host arena, device pool) within a byte budget and holds
 * slots of one size. Slots are named by (slot, generation); the generation changes whenever a
 * slot is handed out, so a stale name is recognised. Metadata lies outside the chunks, which
 * others may write.
 *
 * A slot's states, and who moves it:
 *
 *     free --reserve--> reserved --commit--> held --free--> free
 *                          |                  |
 *                          +------abort------>+--free while transfers > 0--> doomed --last unref-->
 *                                                                             free
 *
 * Two-phase writes: nothing reads a reserved slot. A slot in transfer is never handed out again
 * before its last transfer ended: free() is deferred.
 *
 * Requires: KVT_RANK_CACHE held for every function. Layer 2.
 */
#ifndef KVT_SLAB_H
#define KVT_SLAB_H

#include "cache/base/base.h"

/* Where a page's shard lies in a tier. generation 0: nowhere. */
struct kvt_place {
    uint32_t slot;
    uint32_t generation;
};
static inline bool kvt_place_is(struct kvt_place place) { return place.generation != 0; }

struct kvt_backing {
    void *ctx;
    /* Memory of exactly `bytes` (a multiple of KVT_CHUNK_ALIGN_BYTES), or NULL. May block: called
     * with no lock held, by whoever grows the slab. */
    void *(*map)(void *ctx, uint64_t bytes);
    void (*unmap)(void *ctx, void *ptr, uint64_t bytes);
};

#define KVT_CHUNK_ALIGN_BYTES 4096u
#define KVT_CHUNK_BYTES_MAX (UINT64_C(64) << 20) /* unless one slot is larger */
#define KVT_CHUNK_HUGE_BYTES (UINT64_C(2) << 20) /* of a huge page */
#define KVT_CHUNK_WASTE_DIVISOR 16u              /* at most this part is left over for them */
#define KVT_CHUNKS_MAX 4096u                     /* 12 bits of a slot number */
#define KVT_CHUNK_SLOTS_MAX (1u << 20)           /* the other 20 */
#define KVT_CHUNKS_PER_BUDGET_MIN 8u             /* small budgets still serve several sizes */

struct kvt_slab;

/* `mem` and `backing` are borrowed until destroy. Maps nothing yet. NOMEM; INVAL for a budget that
 * does not hold one aligned chunk. */
kvt_status kvt_slab_create(const struct kvt_memory *mem, const struct kvt_backing *backing,
                           uint64_t budget_bytes, struct kvt_slab **out_slab) KVT_MUST_CHECK;
/* Unmaps everything, whatever its state. NULL is a no-op. */
void kvt_slab_destroy(struct kvt_slab *);

/*
 * Growing is in two steps, because mapping memory blocks and no lock may be held over it: begin
 * answers the bytes of the next chunk that slots of this size want and counts them against the
 * budget (0: the budget is used up); end hands the mapped chunk in, or NULL when there was none to
 * be had.
 */
uint64_t kvt_slab_grow_begin(struct kvt_slab *, uint64_t slot_bytes) KVT_MUST_CHECK;
void kvt_slab_grow_end(struct kvt_slab *, void *base, uint64_t bytes);

/* A reserved slot of slot_bytes. LIMIT: every mapped chunk is full, grow or free first; NOMEM. */
kvt_status kvt_slab_reserve(struct kvt_slab *, uint64_t slot_bytes, struct kvt_place *out_place)
    KVT_MUST_CHECK;
void kvt_slab_commit(struct kvt_slab *, struct kvt_place);
/* For reserved and held slots alike; deferred while transfers run. A stale place is a no-op that
 * answers false. */
bool kvt_slab_free(struct kvt_slab *, struct kvt_place);
/* A transfer to or from the slot begins, ends. Requires: the place is valid. */
void kvt_slab_ref(struct kvt_slab *, struct kvt_place);
void kvt_slab_unref(struct kvt_slab *, struct kvt_place);
/* NULL when the place is stale. Stable until the slot is free. */
void *kvt_slab_addr(const struct kvt_slab *, struct kvt_place);
/* The size of the slot; 0 when the place is stale. */
uint64_t kvt_slab_slot_bytes(const struct kvt_slab *, struct kvt_place);
/* True when a reserve of this size would find a slot. */
bool kvt_slab_has_room(const struct kvt_slab *, uint64_t slot_bytes);

struct kvt_slab_stats {
    uint64_t bytes_budget, bytes_mapped, bytes_used; /* used: reserved, held and doomed slots */
    uint64_t slots_used, slots_in_transfer, bytes_meta, slots_free; /* free: of mapped chunks */
};
void kvt_slab_stats(const struct kvt_slab *, struct kvt_slab_stats *out_stats);

#endif
