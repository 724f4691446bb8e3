/*
 * The shape of the reference model, as constants: every loop and every matrix product below has a
 * fixed size, which is what makes a row's bits independent of how rows are batched (model.h).
 *
 * Attention is kept narrow and the feed-forward part wide on purpose: the cost of a token then
 * depends little on how much context it sees, so that tokens saved are time saved.
 */
#ifndef KVT_REFERENCE_GEOMETRY_H
#define KVT_REFERENCE_GEOMETRY_H

enum {
    KVT_REF_LAYERS = 2,
    KVT_REF_WIDTH = 512, /* of the residual stream */
    KVT_REF_QUERY_HEADS = 4,
    KVT_REF_KV_HEADS = 2,
    KVT_REF_GROUP = KVT_REF_QUERY_HEADS / KVT_REF_KV_HEADS, /* query heads that share one KV head */
    KVT_REF_HEAD = 32,
    KVT_REF_HIDDEN = 3072, /* of the SwiGLU part */
    KVT_REF_VOCABULARY = 2048,
    KVT_REF_QUERY_WIDTH = KVT_REF_QUERY_HEADS * KVT_REF_HEAD,
    KVT_REF_KV_WIDTH = KVT_REF_KV_HEADS * KVT_REF_HEAD,
    KVT_REF_QKV_WIDTH = KVT_REF_QUERY_WIDTH + 2 * KVT_REF_KV_WIDTH,
    KVT_REF_REGIONS = 2 * KVT_REF_LAYERS, /* K and V of each layer apart, in the order they run */
    KVT_REF_ROPE_BASE = 10000,

    /* Fixed shapes of the products. Small enough (rows * columns * depth <= 10^6) for OpenBLAS to
     * take its kernels that read the operands in place: packing 32 rows' worth of weights would
     * cost as much as multiplying them. */
    KVT_REF_ROWS = 32,      /* rows of one forward pass */
    KVT_REF_PANEL = 32,     /* columns of weights in one product; the unit of parallel work */
    KVT_REF_DEPTH = 512,    /* longest depth of one product; longer ones are summed in this order */
    KVT_REF_TILE = 256,     /* keys in one attention tile, at absolute multiples */
    KVT_REF_SPAN_TILES = 4, /* tiles whose softmax is accumulated before the spans are merged */
    KVT_REF_SPAN = KVT_REF_TILE * KVT_REF_SPAN_TILES,
    KVT_REF_HEAD_ROWS = KVT_REF_GROUP * KVT_REF_ROWS, /* rows of an attention product */
    KVT_REF_LANES = 16,                               /* floats that row operations take at once */

    KVT_REF_CONCURRENCY_MAX = 16,
    KVT_REF_THREADS_MAX = 64,
    KVT_REF_CONTEXT_MAX = 1 << 20
};

_Static_assert(KVT_REF_WIDTH == KVT_REF_DEPTH, "the wide products take the width in one piece");
_Static_assert(KVT_REF_HIDDEN % KVT_REF_DEPTH == 0, "the down product is summed in whole pieces");
_Static_assert(KVT_REF_HEAD == 2 * KVT_REF_LANES, "a head is two vectors: one rotary pair");
_Static_assert(KVT_REF_PANEL % KVT_REF_LANES == 0, "panels are whole vectors");
_Static_assert(KVT_REF_QKV_WIDTH % KVT_REF_PANEL == 0, "projections are whole panels");
_Static_assert(KVT_REF_CONCURRENCY_MAX <= KVT_REF_ROWS, "a decode batch is one pass");

#endif
