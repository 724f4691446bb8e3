/*
 * The model: a decoder-only transformer (RMSNorm, rotary embedding, grouped-query attention,
 * SwiGLU, separate output head) with seeded random weights, and its forward pass over paged KV.
 *
 * Bit-identity. The logits of a token are the same bits whether its prompt was computed in one go,
 * in chunks of any size, resumed from copied KV blocks in other places, alone or beside other
 * sequences, by one thread or many, in prefill or in decode:
 *   - Every matrix product has one fixed shape for its kind (blas.h): KVT_REF_ROWS rows, panels of
 *     KVT_REF_PANEL columns, one depth. Rows that no token uses are padding. OpenBLAS is probed for
 *     what this needs; where a row's bits depend on its index, rows_anywhere is false and a token
 *     at position p must always be computed in row p modulo KVT_REF_ROWS.
 *   - Attention walks keys in tiles at absolute multiples of KVT_REF_TILE, padded with zeros to
 *     whole tiles. The softmax runs over KVT_REF_SPAN_TILES tiles in order (a span), and spans are
 *     merged in order. A row takes part in the tiles and spans that start at or before its own
 *     position and in no others, so that what else is computed beside it changes nothing.
 *   - Everything else works on single rows, in whole vectors (vec.h).
 *   - Threads take panels, tiles and heads; none of them sums over another's part out of order.
 *
 * Life cycle: kvt_ref_model_open -> kvt_ref_compute_open -> passes ... -> close in reverse order.
 */
#ifndef KVT_REFERENCE_MODEL_H
#define KVT_REFERENCE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine_plugin/reference/blas.h"
#include "engine_plugin/reference/geometry.h"
#include "engine_plugin/reference/kv.h"
#include "engine_plugin/reference/pool.h"
#include "engine_plugin/reference/vec.h"

/* Matrices are stored in panels: [column / PANEL][row][column % PANEL], row = input dimension. */
struct kvt_ref_layer {
    float *attention_gain; /* [WIDTH] of the norm */
    float *qkv;            /* [WIDTH] x [QKV_WIDTH]: query heads, key heads, value heads */
    float *out;            /* [QUERY_WIDTH] x [WIDTH] */
    float *hidden_gain;    /* [WIDTH] */
    float *gate, *up;      /* [WIDTH] x [HIDDEN] */
    float *down;           /* [HIDDEN] x [WIDTH] */
};

struct kvt_ref_model {
    float *floats; /* all weights, one allocation */
    size_t float_count;
    float *embedding; /* [VOCABULARY][WIDTH], plain rows */
    struct kvt_ref_layer layers[KVT_REF_LAYERS];
    float *final_gain;        /* [WIDTH] */
    float *head;              /* [WIDTH] x [VOCABULARY] */
    unsigned char digest[16]; /* XXH3-128 over all weights, canonical byte order */
};

/* Makes the weights; immutable after. NOMEM. */
kvt_status kvt_ref_model_open(uint64_t seed, struct kvt_ref_model *out_model) KVT_MUST_CHECK;
void kvt_ref_model_close(struct kvt_ref_model *);
/* An element of a panelled matrix with `rows` rows. */
static inline float kvt_ref_weight(const float *matrix, uint32_t rows, uint32_t row,
                                   uint32_t column)
{
    return matrix[((size_t)(column / KVT_REF_PANEL) * rows + row) * KVT_REF_PANEL +
                  column % KVT_REF_PANEL];
}

/* ---- one forward pass ---- */

/* Consecutive tokens of one sequence in consecutive rows. */
struct kvt_ref_segment {
    const uint32_t *blocks; /* of the sequence, from its first token; borrowed for the pass */
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_position;
};

struct kvt_ref_batch {
    uint32_t segment_count;
    struct kvt_ref_segment segments[KVT_REF_CONCURRENCY_MAX];
    uint32_t tokens[KVT_REF_ROWS];    /* by row; set for rows of segments */
    uint32_t positions[KVT_REF_ROWS]; /* by row; 0 for padding */
    bool row_used[KVT_REF_ROWS];
};

/* Starts an empty batch, and adds a segment to it. Requires: rows free, below KVT_REF_ROWS. */
void kvt_ref_batch_clear(struct kvt_ref_batch *);
void kvt_ref_batch_add(struct kvt_ref_batch *, const uint32_t *tokens, const uint32_t *blocks,
                       uint32_t first_row, uint32_t row_count, uint32_t first_position);

struct kvt_ref_attention_unit {
    uint32_t segment, kv_head, span;
};

/* What passes need beside the model; one pass at a time. Sized at open. */
struct kvt_ref_compute {
    const struct kvt_ref_model *model;
    const struct kvt_ref_blas *blas;
    const struct kvt_ref_kv *kv;
    const struct kvt_ref_vec_ops *vec;
    struct kvt_ref_pool *pool;
    uint32_t context_tokens, spans_max;

    float *angles;   /* [context][cos LANES | sin LANES] */
    float *residual; /* [ROWS][WIDTH] */
    float *normed;   /* [ROWS][WIDTH] */
    float *qkv;      /* [head: query, key, value][ROWS][HEAD] */
    float *attended; /* [ROWS][QUERY_WIDTH] */
    float *hidden;   /* [ROWS][HIDDEN] */
    float *logits;   /* [VOCABULARY / PANEL][ROWS][PANEL] */
    float *workers;  /* [thread]: a worker's own scratch */
    size_t worker_floats;
    /* Spans' results: [query head][span][ROWS], an accumulator [HEAD], a maximum and a sum. */
    float *span_accs, *span_maxs, *span_sums;
    struct kvt_ref_attention_unit *units;

    /* of the pass that runs */
    const struct kvt_ref_batch *batch;
    uint32_t layer;
    uint32_t unit_count;
};

/* All pointers are borrowed until close. NOMEM. */
kvt_status kvt_ref_compute_open(const struct kvt_ref_model *, const struct kvt_ref_blas *,
                                const struct kvt_ref_kv *, uint32_t threads,
                                uint32_t context_tokens, struct kvt_ref_compute *out_compute)
    KVT_MUST_CHECK;
void kvt_ref_compute_close(struct kvt_ref_compute *);

/*
 * A pass in pieces, in this order: start, then for each layer before_attention and from_attention,
 * then logits where they are wanted. Between the two pieces of a layer the keys and values of
 * earlier tokens must have come to be in the layer's regions; the batch's own are stored by the
 * first piece. The batch is borrowed until the last piece has run.
 */
void kvt_ref_pass_start(struct kvt_ref_compute *, const struct kvt_ref_batch *);
void kvt_ref_pass_before_attention(struct kvt_ref_compute *, uint32_t layer);
void kvt_ref_pass_from_attention(struct kvt_ref_compute *, uint32_t layer);
void kvt_ref_pass_logits(struct kvt_ref_compute *);
/* All of it. */
void kvt_ref_pass(struct kvt_ref_compute *, const struct kvt_ref_batch *, bool want_logits);

/* One row's logits, [VOCABULARY], after kvt_ref_pass_logits(). */
void kvt_ref_logits_row(const struct kvt_ref_compute *, uint32_t row, float *out_logits);

/* attention.c: fills `attended` from `qkv` and the KV of compute->layer. */
void kvt_ref_attention(struct kvt_ref_compute *);
size_t kvt_ref_attention_scratch_floats(void);

#endif
