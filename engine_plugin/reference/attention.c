/*
 * Attention over paged keys and values, in tiles (model.h says why in that order).
 *
 * A unit of work is one sequence's segment, one KV head, one span of tiles. It computes for all
 * rows of the batch and both query heads of the group, because the products' shape is fixed, but
 * keeps only what belongs to the segment's rows. Queries lie as [query head][ROWS][HEAD], so a
 * group of them is the left operand of the score product as it stands.
 */
#include <float.h>
#include <string.h>

#include "engine_plugin/reference/model.h"

#define KVT_KEYS_FLOATS ((size_t)KVT_REF_HEAD * KVT_REF_TILE)
#define KVT_SCORES_FLOATS ((size_t)KVT_REF_HEAD_ROWS * KVT_REF_TILE)
#define KVT_ACC_FLOATS ((size_t)KVT_REF_HEAD_ROWS * KVT_REF_HEAD)

struct scratch {
    float *keys;   /* [HEAD][TILE] */
    float *values; /* [TILE][HEAD] */
    float *scores; /* [HEAD_ROWS][TILE] */
    float *added;  /* [HEAD_ROWS][HEAD]: one tile's contribution */
};

size_t kvt_ref_attention_scratch_floats(void)
{
    return 2 * KVT_KEYS_FLOATS + KVT_SCORES_FLOATS + KVT_ACC_FLOATS;
}

/* Keys and values of tokens [start, start + TILE) of one head; zeros from `end` on. */
static void gather_tile(const struct kvt_ref_compute *c, const struct kvt_ref_segment *segment,
                        uint32_t kv_head, uint32_t start, uint32_t end, const struct scratch *to)
{
    const struct kvt_ref_kv *kv = c->kv;
    const uint32_t block_tokens = kv->block_tokens;
    size_t head_bytes = (size_t)kv_head * KVT_REF_HEAD * block_tokens * sizeof(float);
    for (uint32_t at = 0; at < KVT_REF_TILE; at += block_tokens) {
        float *values = to->values + (size_t)at * KVT_REF_HEAD;
        uint32_t known = start + at >= end ? 0 : end - (start + at);
        if (known > block_tokens) known = block_tokens;
        const unsigned char *key_head = NULL;
        if (known > 0) {
            uint32_t block = segment->blocks[(start + at) / block_tokens];
            key_head = kvt_ref_kv_block(kv, 2 * c->layer, block) + head_bytes;
            memcpy(values, kvt_ref_kv_block(kv, 2 * c->layer + 1, block) + head_bytes,
                   (size_t)known * KVT_REF_HEAD * sizeof(float));
        }
        if (known == KVT_REF_LANES && block_tokens == KVT_REF_LANES) {
            /* The usual case, with a size that the compiler knows. */
            for (size_t d = 0; d < KVT_REF_HEAD; d++)
                memcpy(to->keys + d * KVT_REF_TILE + at,
                       key_head + d * KVT_REF_LANES * sizeof(float), KVT_REF_LANES * sizeof(float));
            continue;
        }
        for (size_t d = 0; d < KVT_REF_HEAD; d++) {
            float *keys = to->keys + d * KVT_REF_TILE + at;
            if (known > 0)
                memcpy(keys, key_head + d * block_tokens * sizeof(float), known * sizeof(float));
            memset(keys + known, 0, (block_tokens - known) * sizeof(float));
        }
        memset(values + (size_t)known * KVT_REF_HEAD, 0,
               (size_t)(block_tokens - known) * KVT_REF_HEAD * sizeof(float));
    }
}

/* Where the results of (query head, span, row) lie, counted in rows. */
static size_t span_row(const struct kvt_ref_compute *c, uint32_t query_head, uint32_t span,
                       uint32_t row)
{
    return ((size_t)query_head * c->spans_max + span) * KVT_REF_ROWS + row;
}

/* Joins one tile to the running softmax of the segment's rows that can see it. */
static void add_tile(const struct kvt_ref_compute *c, const struct kvt_ref_segment *segment,
                     uint32_t kv_head, uint32_t span, uint32_t start, const struct scratch *scratch)
{
    float scales[KVT_REF_HEAD_ROWS];
    bool seen[KVT_REF_HEAD_ROWS] = {false};
    for (uint32_t g = 0; g < KVT_REF_GROUP; g++)
        for (uint32_t i = 0; i < segment->row_count; i++) {
            uint32_t position = segment->first_position + i, row = segment->first_row + i;
            if (position < start) continue;
            uint32_t valid = position - start + 1;
            if (valid > KVT_REF_TILE) valid = KVT_REF_TILE;
            size_t at = span_row(c, kv_head * KVT_REF_GROUP + g, span, row);
            uint32_t head_row = g * KVT_REF_ROWS + row;
            c->vec->softmax_row(scratch->scores + (size_t)head_row * KVT_REF_TILE, valid,
                                &c->span_maxs[at], &c->span_sums[at], &scales[head_row]);
            seen[head_row] = true;
        }
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_VALUE, scratch->scores, scratch->values,
                     scratch->added);
    for (uint32_t head_row = 0; head_row < KVT_REF_HEAD_ROWS; head_row++) {
        if (!seen[head_row]) continue;
        size_t at = span_row(c, kv_head * KVT_REF_GROUP + head_row / KVT_REF_ROWS, span,
                             head_row % KVT_REF_ROWS);
        c->vec->accumulate(c->span_accs + at * KVT_REF_HEAD, scales[head_row],
                           scratch->added + (size_t)head_row * KVT_REF_HEAD);
    }
}

static void attend_span(void *ctx, uint32_t unit_index, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    const struct kvt_ref_attention_unit *unit = &c->units[unit_index];
    const struct kvt_ref_segment *segment = &c->batch->segments[unit->segment];
    struct scratch scratch = {.keys = c->workers + worker * c->worker_floats};
    scratch.values = scratch.keys + KVT_KEYS_FLOATS;
    scratch.scores = scratch.values + KVT_KEYS_FLOATS;
    scratch.added = scratch.scores + KVT_SCORES_FLOATS;

    for (uint32_t g = 0; g < KVT_REF_GROUP; g++)
        for (uint32_t i = 0; i < segment->row_count; i++) {
            size_t at =
                span_row(c, unit->kv_head * KVT_REF_GROUP + g, unit->span, segment->first_row + i);
            c->span_maxs[at] = -FLT_MAX;
            c->span_sums[at] = 0.0f;
            memset(c->span_accs + at * KVT_REF_HEAD, 0, KVT_REF_HEAD * sizeof(float));
        }
    const float *queries = c->qkv + (size_t)unit->kv_head * KVT_ACC_FLOATS;
    uint32_t end = segment->first_position + segment->row_count;
    uint32_t start = unit->span * KVT_REF_SPAN;
    for (uint32_t tile = 0; tile < KVT_REF_SPAN_TILES && start < end; tile++) {
        gather_tile(c, segment, unit->kv_head, start, end, &scratch);
        kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_SCORE, queries, scratch.keys, scratch.scores);
        add_tile(c, segment, unit->kv_head, unit->span, start, &scratch);
        start += KVT_REF_TILE;
    }
}

/* Merges the spans of all rows for one query head. */
static void merge_head(void *ctx, uint32_t query_head, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    (void)worker;
    for (uint32_t row = 0; row < KVT_REF_ROWS; row++) {
        if (!c->batch->row_used[row]) continue;
        uint32_t spans = c->batch->positions[row] / KVT_REF_SPAN + 1;
        size_t at = span_row(c, query_head, 0, row);
        c->vec->merge_spans(c->span_accs + at * KVT_REF_HEAD, (uint64_t)KVT_REF_ROWS * KVT_REF_HEAD,
                            c->span_maxs + at, c->span_sums + at, KVT_REF_ROWS, spans,
                            c->attended + (size_t)row * KVT_REF_QUERY_WIDTH +
                                (size_t)query_head * KVT_REF_HEAD);
    }
}

void kvt_ref_attention(struct kvt_ref_compute *c)
{
    c->unit_count = 0;
    for (uint32_t s = 0; s < c->batch->segment_count; s++) {
        const struct kvt_ref_segment *segment = &c->batch->segments[s];
        uint32_t last = segment->first_position + segment->row_count - 1;
        for (uint32_t span = 0; span <= last / KVT_REF_SPAN; span++)
            for (uint32_t kv_head = 0; kv_head < KVT_REF_KV_HEADS; kv_head++)
                c->units[c->unit_count++] = (struct kvt_ref_attention_unit){s, kv_head, span};
    }
    kvt_ref_pool_run(c->pool, attend_span, c, c->unit_count);
    kvt_ref_pool_run(c->pool, merge_head, c, KVT_REF_QUERY_HEADS);
}
