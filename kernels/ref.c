/* The reference: what every other kernel must do, byte by byte. */
#include "kernels/kernels.h"

#include <string.h>

/* Offsets are 64 bits wide before they are multiplied: regions are larger than 4 GiB. */
static unsigned char *block_at(const struct kvt_kernel_blocks *blocks, uint32_t j)
{
    return blocks->region_base + (uint64_t)blocks->ids[j] * blocks->stride_bytes;
}

void kvt_ref_gather(const struct kvt_kernel_blocks *blocks, unsigned char *out_page)
{
    for (uint32_t j = 0; j < blocks->count; j++) {
        memcpy(out_page + j * blocks->block_bytes, block_at(blocks, j), blocks->block_bytes);
    }
}

void kvt_ref_scatter(const struct kvt_kernel_blocks *blocks, const unsigned char *page)
{
    for (uint32_t j = 0; j < blocks->count; j++) {
        memcpy(block_at(blocks, j), page + j * blocks->block_bytes, blocks->block_bytes);
    }
}
