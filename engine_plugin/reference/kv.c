#include "engine_plugin/reference/kv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine_plugin/reference/memory.h"

#define KVT_SHUFFLE_SEED UINT64_C(0x6b762d626c6f636b)

bool kvt_ref_block_tokens_valid(uint32_t block_tokens)
{
    return block_tokens >= KVT_REF_LANES && block_tokens <= KVT_REF_TILE &&
           (block_tokens & (block_tokens - 1)) == 0;
}

/* Puts an id at a random place among the free ones. */
static void add_free(struct kvt_ref_kv *kv, uint32_t id)
{
    uint32_t place = (uint32_t)(kvt_ref_random(&kv->random) % (kv->free_count + 1));
    kv->free_ids[kv->free_count++] = kv->free_ids[place];
    kv->free_ids[place] = id;
}

kvt_status kvt_ref_kv_open(uint32_t block_tokens, uint32_t bound_blocks, uint32_t reserve_blocks,
                           struct kvt_ref_kv *out_kv)
{
    struct kvt_ref_kv kv = {
        .block_tokens = block_tokens,
        .bound_blocks = bound_blocks,
        .total_blocks = bound_blocks + reserve_blocks,
        .block_bytes = (uint64_t)KVT_REF_KV_WIDTH * block_tokens * sizeof(float),
        .random = KVT_SHUFFLE_SEED,
    };
    kv.region_bytes = kv.total_blocks * kv.block_bytes;
    kv.free_ids = calloc(kv.total_blocks, sizeof(*kv.free_ids));
    if (!kv.free_ids) return KVT_ERR_NOMEM;
    for (uint32_t region = 0; region < KVT_REF_REGIONS; region++) {
        void *map = mmap(NULL, kv.region_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) {
            kvt_ref_kv_close(&kv);
            return KVT_ERR_NOMEM;
        }
        kv.regions[region] = map;
    }
    for (uint32_t id = 0; id < bound_blocks; id++) add_free(&kv, id);
    *out_kv = kv;
    return KVT_OK;
}

void kvt_ref_kv_close(struct kvt_ref_kv *kv)
{
    for (uint32_t region = 0; region < KVT_REF_REGIONS; region++)
        if (kv->regions[region]) munmap(kv->regions[region], kv->region_bytes);
    free(kv->free_ids);
    memset(kv, 0, sizeof(*kv));
}

bool kvt_ref_kv_take(struct kvt_ref_kv *kv, uint32_t count, uint32_t *out_ids)
{
    if (kv->free_count < count) return false;
    kv->free_count -= count;
    memcpy(out_ids, kv->free_ids + kv->free_count, count * sizeof(*out_ids));
    return true;
}

void kvt_ref_kv_give(struct kvt_ref_kv *kv, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) add_free(kv, ids[i]);
}

void kvt_ref_kv_open_reserve(struct kvt_ref_kv *kv)
{
    if (kv->reserve_open) return;
    kv->reserve_open = true;
    for (uint32_t id = kv->bound_blocks; id < kv->total_blocks; id++) add_free(kv, id);
}
