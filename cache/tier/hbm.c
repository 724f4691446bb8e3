/* The hbm tier: a pool of device memory that kvtier owns, within a byte budget. */
#include "cache/tier/tier.h"

static void *hbm_map(void *ctx, uint64_t bytes)
{
    struct kvt_tier *tier = ctx;
    void *ptr = tier->device->ops->alloc(tier->device, bytes);
    if (ptr == NULL) {
        kvt_log(tier->log, KVT_LOG_ERROR,
                "hbm tier: %llu bytes of the %s device's memory could not be had: lower the hbm "
                "budget",
                (unsigned long long)bytes, tier->device->ops->name);
    }
    return ptr;
}

static void hbm_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    struct kvt_tier *tier = ctx;
    tier->device->ops->free(tier->device, ptr, bytes);
}

kvt_status kvt_tier_open_hbm(struct kvt_tier *tier, const struct kvt_memory *mem,
                             const struct kvt_log *log, struct kvt_device *device,
                             uint64_t budget_bytes)
{
    *tier = (struct kvt_tier){.name = "hbm", .mem = mem, .log = log, .device = device};
    tier->backing = (struct kvt_backing){.ctx = tier, .map = hbm_map, .unmap = hbm_unmap};
    if (budget_bytes == 0) {
        return KVT_OK;
    }
    return kvt_slab_create(mem, &tier->backing, budget_bytes, &tier->slab);
}
