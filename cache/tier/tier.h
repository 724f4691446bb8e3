/*
 * The places pages live in: hbm (memory of the device), host (an arena of memfd chunks), nvme.
 *
 * A tier of memory is a slab over a backing; nvme has a store of its own (nvme.h).
 *
 * Layer 2. Requires: KVT_RANK_CACHE held for everything but open and close.
 */
#ifndef KVT_TIER_H
#define KVT_TIER_H

#include "cache/base/base.h"
#include "cache/device/device.h"
#include "cache/tier/slab.h"

/* From the fastest to the slowest; numbers as KVT_TIER_x of the plug-in ABI. */
enum { KVT_HBM = 0, KVT_HOST = 1, KVT_NVME = 2, KVT_TIERS = 3 };
/* hbm and host are memory: a slab over a backing each. nvme has a store of its own (nvme.h). */
#define KVT_MEMORY_TIERS 2

struct kvt_tier {
    const char *name;
    struct kvt_slab *slab; /* NULL: this tier is not there */
    struct kvt_backing backing;
    const struct kvt_memory *mem;
    const struct kvt_log *log;
    struct kvt_device *device;   /* hbm */
    _Atomic uint32_t next_chunk; /* host: for the memfd's name */
    _Atomic bool huge_pages;     /* host: the latest chunk lies in huge pages */
    _Atomic bool huge_warned;
    /* Told of each chunk when it was mapped, with no lock held; may block. NULL: nobody. */
    void (*on_map)(void *ctx, void *base, uint64_t bytes);
    void *on_map_ctx;
};

/*
 * Open a tier in the caller's memory (which must not move until close). A budget of 0 gives a tier
 * that is not there. Maps nothing yet; chunks are mapped as they are needed and counted against the
 * budget before. Borrowed until close: mem, log, device. INVAL, NOMEM.
 */
kvt_status kvt_tier_open_host(struct kvt_tier *, const struct kvt_memory *mem,
                              const struct kvt_log *log, uint64_t budget_bytes) KVT_MUST_CHECK;
kvt_status kvt_tier_open_hbm(struct kvt_tier *, const struct kvt_memory *mem,
                             const struct kvt_log *log, struct kvt_device *device,
                             uint64_t budget_bytes) KVT_MUST_CHECK;
void kvt_tier_close(struct kvt_tier *);

/*
 * Map one more chunk for slots of slot_bytes, if the budget allows. May block.
 * Requires: KVT_RANK_CACHE (`lock`) held once. Drops and retakes it. LIMIT: the budget is used up;
 * NOMEM: it is not, but there was no memory (logged).
 */
kvt_status kvt_tier_grow(struct kvt_tier *, struct kvt_lock *lock, uint64_t slot_bytes)
    KVT_MUST_CHECK;

#endif
