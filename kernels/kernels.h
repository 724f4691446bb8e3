/*
 * Kernels: the data movements of a device, by themselves, so that each kind of device may have its
 * own and all can be held against one reference.
 *
 * `ref` is that reference: plain C on the calling thread, exact to the byte. The CPU device copies
 * with it; a kernel for an accelerator is right when its bytes are the same.
 *
 * Includes layer 0 only.
 */
#ifndef KVT_KERNELS_H
#define KVT_KERNELS_H

#include <stdint.h>

/*
 * One region of one page in the engine's memory: block j is the `block_bytes` bytes that begin at
 * region_base + ids[j] * stride_bytes. On the cache's side the blocks lie without gaps, in the
 * order of `ids`. No alignment is promised anywhere, and none of the sizes is a multiple of
 * anything; the two sides do not overlap. Bytes between blocks are the engine's: never written, nor
 * read.
 */
struct kvt_kernel_blocks {
    unsigned char *region_base;
    const uint32_t *ids; /* [count] */
    uint32_t count;
    uint64_t stride_bytes; /* at least block_bytes */
    uint64_t block_bytes;
};

/* Engine to cache: writes count * block_bytes bytes. */
void kvt_ref_gather(const struct kvt_kernel_blocks *blocks, unsigned char *out_page);

/* Cache to engine. Where an id comes twice, which bytes end in its block is not promised. */
void kvt_ref_scatter(const struct kvt_kernel_blocks *blocks, const unsigned char *page);

#endif
