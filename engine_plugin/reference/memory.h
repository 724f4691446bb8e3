/*
 * Small helpers of the reference engine: aligned memory and a repeatable source of random numbers.
 */
#ifndef KVT_REFERENCE_MEMORY_H
#define KVT_REFERENCE_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define KVT_REF_ALIGNMENT_BYTES 64u

/* Zeroed floats at a cache line; NULL when there is no memory. free() gives them back. */
static inline float *kvt_ref_floats(size_t count)
{
    if (count > (SIZE_MAX - KVT_REF_ALIGNMENT_BYTES) / sizeof(float)) return NULL;
    size_t bytes = count * sizeof(float) + KVT_REF_ALIGNMENT_BYTES - 1;
    bytes -= bytes % KVT_REF_ALIGNMENT_BYTES;
    float *floats = aligned_alloc(KVT_REF_ALIGNMENT_BYTES, bytes);
    if (floats) memset(floats, 0, bytes);
    return floats;
}

/* The next of a sequence of 64-bit numbers: a Weyl sequence through a mixing function. */
static inline uint64_t kvt_ref_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0xd1342543de82ef95);
    x = (x ^ (x >> 32)) * UINT64_C(0xaef17502108ef2d9);
    x = (x ^ (x >> 32)) * UINT64_C(0xaef17502108ef2d9);
    return x ^ (x >> 32);
}

/* Even over [-1, 1). */
static inline float kvt_ref_random_float(uint64_t *state)
{
    return (float)((int32_t)(kvt_ref_random(state) >> 32)) * (1.0f / 2147483648.0f);
}

#endif
