/*
 * Row operations: everything of the forward pass that is not a matrix product.
 *
 * They work on whole vectors of KVT_REF_LANES floats in a fixed order, with an exponential of our
 * own: no remainder loops and no libm, so that bits do not depend on where a row stands. There is
 * one variant for each instruction set; which one is used is chosen once and stands in the
 * namespace's build field, because variants may round differently.
 */
#ifndef KVT_REFERENCE_VEC_H
#define KVT_REFERENCE_VEC_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_ref_vec_ops {
    const char *isa;
    /* out[r] = x[r] / rms(x[r]) * gain, for [KVT_REF_ROWS][KVT_REF_WIDTH]. */
    void (*norm_rows)(const float *x, const float *gain, float *out);
    /* Rotate the rows of one head, [KVT_REF_ROWS][KVT_REF_HEAD], in place: row r by the angles of
     * positions[r], [cos KVT_REF_LANES | sin KVT_REF_LANES] in the table. Queries are scaled by
     * log2(e) / sqrt(head), so that the softmax can use powers of two. */
    void (*rope_rows)(float *rows, const uint32_t *positions, const float *table, bool query);
    /* out[r][c] = silu(gate[r][c]) * up[r][c] over one [KVT_REF_ROWS][KVT_REF_PANEL] panel; out has
     * KVT_REF_HIDDEN floats a row. */
    void (*silu_panel)(const float *gate, const float *up, float *out);
    /* Softmax over the first `valid` (1..KVT_REF_TILE) of a tile's scores, in place: they become
     * powers of two below the running maximum, the others 0. Updates the running maximum and sum;
     * out_scale is what earlier accumulations must be multiplied by. */
    void (*softmax_row)(float *scores, uint32_t valid, float *running_max, float *running_sum,
                        float *out_scale);
    /* acc = acc * scale + add, over KVT_REF_HEAD floats. */
    void (*accumulate)(float *acc, float scale, const float *add);
    /* Joins `count` spans of one row and head in their order: accs + i * acc_stride is span i's
     * accumulator, maxs and sums likewise with scalar_stride. out is [KVT_REF_HEAD]. */
    void (*merge_spans)(const float *accs, uint64_t acc_stride, const float *maxs,
                        const float *sums, uint64_t scalar_stride, uint32_t count, float *out);
};

/* The variants that this processor can run, best first, NULL at the end. For tests. */
const struct kvt_ref_vec_ops *const *kvt_ref_vec_list(void);
/* The best variant for this processor. Never NULL; the same answer for the process's life. */
const struct kvt_ref_vec_ops *kvt_ref_vec_select(void);

#endif
