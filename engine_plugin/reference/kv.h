/*
 * Paged KV memory: KVT_REF_REGIONS regions of equal blocks, and the list of free blocks.
 *
 * A block holds the keys (or values) of block_tokens tokens of one layer:
 *   K region  [kv head][dimension][token]   transposed, so that a tile of keys is gathered as the
 *                                           right operand of a plain product
 *   V region  [kv head][token][dimension]
 * Region 2 * layer is K, 2 * layer + 1 is V: the order in which a forward pass needs them.
 *
 * Blocks below bound_blocks are what a plug-in is told of. The rest is a reserve that costs address
 * space only: it is opened when a plug-in does not give blocks back, so that nothing of its making
 * can ever land in a block that is used again.
 *
 * One thread (the scheduler's) allocates and frees.
 */
#ifndef KVT_REFERENCE_KV_H
#define KVT_REFERENCE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine_plugin/reference/geometry.h"
#include "kvt_status.h"

struct kvt_ref_kv {
    uint32_t block_tokens;
    uint32_t bound_blocks;
    uint32_t total_blocks;
    uint64_t block_bytes;
    uint64_t region_bytes;
    unsigned char *regions[KVT_REF_REGIONS];
    uint32_t *free_ids; /* [free_count], shuffled: neighbours in a prompt are not so in memory */
    uint32_t free_count;
    uint64_t random;
    bool reserve_open;
};

/* True for block sizes that tile gathering can do: 16, 32, 64, 128, 256. */
bool kvt_ref_block_tokens_valid(uint32_t block_tokens);

/* NOMEM. */
kvt_status kvt_ref_kv_open(uint32_t block_tokens, uint32_t bound_blocks, uint32_t reserve_blocks,
                           struct kvt_ref_kv *out_kv) KVT_MUST_CHECK;
void kvt_ref_kv_close(struct kvt_ref_kv *);
/* Takes `count` blocks or none; false when there are not enough. */
bool kvt_ref_kv_take(struct kvt_ref_kv *, uint32_t count, uint32_t *out_ids);
void kvt_ref_kv_give(struct kvt_ref_kv *, const uint32_t *ids, uint32_t count);
void kvt_ref_kv_open_reserve(struct kvt_ref_kv *);

static inline unsigned char *kvt_ref_kv_block(const struct kvt_ref_kv *kv, uint32_t region,
                                              uint32_t block)
{
    return kv->regions[region] + (size_t)block * kv->block_bytes;
}

#endif
