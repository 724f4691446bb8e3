#include "engine_plugin/reference/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "engine_plugin/reference/memory.h"

/* Queries and keys are drawn wider than the rest, so that attention picks tokens out rather than
 * averaging over all of them: a wrong page then shows in the output. */
#define KVT_QUERY_KEY_GAIN 1.6f
#define KVT_WEIGHT_GAIN 1.0f

/* ---- weights ---- */

/* The length of every tensor, in the order in which they lie in memory. */
#define KVT_LAYER_FLOATS                                                                           \
    (2 * (size_t)KVT_REF_WIDTH + (size_t)KVT_REF_WIDTH * KVT_REF_QKV_WIDTH +                       \
     (size_t)KVT_REF_QUERY_WIDTH * KVT_REF_WIDTH + 3 * (size_t)KVT_REF_WIDTH * KVT_REF_HIDDEN)
#define KVT_MODEL_FLOATS                                                                           \
    (2 * (size_t)KVT_REF_VOCABULARY * KVT_REF_WIDTH + KVT_REF_WIDTH +                              \
     KVT_REF_LAYERS * KVT_LAYER_FLOATS)

static float *draw(float **next, uint64_t *random, size_t count, float middle, float spread)
{
    float *at = *next;
    for (size_t i = 0; i < count; i++) at[i] = middle + spread * kvt_ref_random_float(random);
    *next += count;
    return at;
}

/* A matrix whose products keep the variance of their input, times gain squared. */
static float *draw_matrix(float **next, uint64_t *random, size_t rows, size_t columns, float gain)
{
    return draw(next, random, rows * columns, 0.0f, gain * sqrtf(3.0f / (float)rows));
}

static void draw_layer(struct kvt_ref_layer *layer, float **next, uint64_t *random)
{
    const size_t width = KVT_REF_WIDTH, hidden = KVT_REF_HIDDEN;
    layer->attention_gain = draw(next, random, width, 1.0f, 0.1f);
    layer->qkv = draw_matrix(next, random, width, KVT_REF_QUERY_WIDTH + KVT_REF_KV_WIDTH,
                             KVT_QUERY_KEY_GAIN);
    draw_matrix(next, random, width, KVT_REF_KV_WIDTH, KVT_WEIGHT_GAIN);
    layer->out = draw_matrix(next, random, KVT_REF_QUERY_WIDTH, width, KVT_WEIGHT_GAIN);
    layer->hidden_gain = draw(next, random, width, 1.0f, 0.1f);
    layer->gate = draw_matrix(next, random, width, hidden, KVT_WEIGHT_GAIN);
    layer->up = draw_matrix(next, random, width, hidden, KVT_WEIGHT_GAIN);
    layer->down = draw_matrix(next, random, hidden, width, KVT_WEIGHT_GAIN);
}

kvt_status kvt_ref_model_open(uint64_t seed, struct kvt_ref_model *out_model)
{
    struct kvt_ref_model model = {.float_count = KVT_MODEL_FLOATS};
    model.floats = kvt_ref_floats(model.float_count);
    if (!model.floats) return KVT_ERR_NOMEM;
    float *next = model.floats;
    uint64_t random = seed;
    model.embedding = draw(&next, &random, (size_t)KVT_REF_VOCABULARY * KVT_REF_WIDTH, 0.0f, 1.7f);
    for (int i = 0; i < KVT_REF_LAYERS; i++) draw_layer(&model.layers[i], &next, &random);
    model.final_gain = draw(&next, &random, KVT_REF_WIDTH, 1.0f, 0.1f);
    model.head = draw_matrix(&next, &random, KVT_REF_WIDTH, KVT_REF_VOCABULARY, KVT_WEIGHT_GAIN);

    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits(model.floats, model.float_count * sizeof(*model.floats)));
    memcpy(model.digest, canonical.digest, sizeof(model.digest));
    *out_model = model;
    return KVT_OK;
}

void kvt_ref_model_close(struct kvt_ref_model *model)
{
    free(model->floats);
    memset(model, 0, sizeof(*model));
}

/* ---- batches ---- */

void kvt_ref_batch_clear(struct kvt_ref_batch *batch) { memset(batch, 0, sizeof(*batch)); }

void kvt_ref_batch_add(struct kvt_ref_batch *batch, const uint32_t *tokens, const uint32_t *blocks,
                       uint32_t first_row, uint32_t row_count, uint32_t first_position)
{
    struct kvt_ref_segment *segment = &batch->segments[batch->segment_count++];
    *segment = (struct kvt_ref_segment){.blocks = blocks,
                                        .first_row = first_row,
                                        .row_count = row_count,
                                        .first_position = first_position};
    for (uint32_t i = 0; i < row_count; i++) {
        batch->tokens[first_row + i] = tokens[i];
        batch->positions[first_row + i] = first_position + i;
        batch->row_used[first_row + i] = true;
    }
}

/* ---- memory of a pass ---- */

/* One parallel section needs at most this much of a worker's scratch: gate and up panels. */
#define KVT_PANELS_FLOATS (2 * (size_t)KVT_REF_ROWS * KVT_REF_PANEL)

static void fill_angles(float *angles, uint32_t context_tokens)
{
    for (int i = 0; i < KVT_REF_LANES; i++) {
        double step = pow((double)KVT_REF_ROPE_BASE, -(double)i / KVT_REF_LANES);
        for (uint32_t position = 0; position < context_tokens; position++) {
            float *at = angles + (size_t)position * 2 * KVT_REF_LANES;
            at[i] = (float)cos(step * position);
            at[KVT_REF_LANES + i] = (float)sin(step * position);
        }
    }
}

kvt_status kvt_ref_compute_open(const struct kvt_ref_model *model, const struct kvt_ref_blas *blas,
                                const struct kvt_ref_kv *kv, uint32_t threads,
                                uint32_t context_tokens, struct kvt_ref_compute *out_compute)
{
    const size_t rows = KVT_REF_ROWS;
    struct kvt_ref_compute c = {
        .model = model,
        .blas = blas,
        .kv = kv,
        .vec = kvt_ref_vec_select(),
        .context_tokens = context_tokens,
        .spans_max = (context_tokens + KVT_REF_SPAN - 1) / KVT_REF_SPAN,
        .worker_floats = kvt_ref_attention_scratch_floats(),
    };
    if (c.worker_floats < KVT_PANELS_FLOATS) c.worker_floats = KVT_PANELS_FLOATS;
    size_t span_rows = (size_t)KVT_REF_QUERY_HEADS * c.spans_max * rows;
    kvt_status status = kvt_ref_pool_open(threads, &c.pool);
    if (status != KVT_OK) return status;
    c.angles = kvt_ref_floats((size_t)context_tokens * 2 * KVT_REF_LANES);
    c.residual = kvt_ref_floats(rows * KVT_REF_WIDTH);
    c.normed = kvt_ref_floats(rows * KVT_REF_WIDTH);
    c.qkv = kvt_ref_floats(rows * KVT_REF_QKV_WIDTH);
    c.attended = kvt_ref_floats(rows * KVT_REF_QUERY_WIDTH);
    c.hidden = kvt_ref_floats(rows * KVT_REF_HIDDEN);
    c.logits = kvt_ref_floats(rows * KVT_REF_VOCABULARY);
    c.workers = kvt_ref_floats(threads * c.worker_floats);
    c.span_accs = kvt_ref_floats(span_rows * KVT_REF_HEAD);
    c.span_maxs = kvt_ref_floats(span_rows);
    c.span_sums = kvt_ref_floats(span_rows);
    c.units =
        calloc((size_t)KVT_REF_CONCURRENCY_MAX * KVT_REF_KV_HEADS * c.spans_max, sizeof(*c.units));
    if (!c.angles || !c.residual || !c.normed || !c.qkv || !c.attended || !c.hidden || !c.logits ||
        !c.workers || !c.span_accs || !c.span_maxs || !c.span_sums || !c.units) {
        kvt_ref_compute_close(&c);
        return KVT_ERR_NOMEM;
    }
    fill_angles(c.angles, context_tokens);
    *out_compute = c;
    return KVT_OK;
}

void kvt_ref_compute_close(struct kvt_ref_compute *c)
{
    kvt_ref_pool_close(c->pool);
    free(c->angles);
    free(c->residual);
    free(c->normed);
    free(c->qkv);
    free(c->attended);
    free(c->hidden);
    free(c->logits);
    free(c->workers);
    free(c->span_accs);
    free(c->span_maxs);
    free(c->span_sums);
    free(c->units);
    memset(c, 0, sizeof(*c));
}

/* ---- the pass ---- */

static float *worker_scratch(const struct kvt_ref_compute *c, uint32_t worker)
{
    return c->workers + worker * c->worker_floats;
}

void kvt_ref_pass_start(struct kvt_ref_compute *c, const struct kvt_ref_batch *batch)
{
    c->batch = batch;
    for (uint32_t r = 0; r < KVT_REF_ROWS; r++) {
        float *row = c->residual + (size_t)r * KVT_REF_WIDTH;
        if (batch->row_used[r]) {
            memcpy(row, c->model->embedding + (size_t)batch->tokens[r] * KVT_REF_WIDTH,
                   KVT_REF_WIDTH * sizeof(*row));
        } else {
            memset(row, 0, KVT_REF_WIDTH * sizeof(*row));
            memset(c->attended + (size_t)r * KVT_REF_QUERY_WIDTH, 0,
                   KVT_REF_QUERY_WIDTH * sizeof(float));
        }
    }
}

/* Puts one key or value head of the batch's rows where the sequences' blocks are. */
static void store_head(const struct kvt_ref_compute *c, const float *rows, uint32_t kv_head,
                       bool is_key)
{
    const struct kvt_ref_kv *kv = c->kv;
    uint32_t region = 2 * c->layer + (is_key ? 0 : 1);
    size_t head_offset = (size_t)kv_head * KVT_REF_HEAD * kv->block_tokens;
    for (uint32_t s = 0; s < c->batch->segment_count; s++) {
        const struct kvt_ref_segment *segment = &c->batch->segments[s];
        for (uint32_t i = 0; i < segment->row_count; i++) {
            uint32_t position = segment->first_position + i;
            uint32_t slot = position % kv->block_tokens;
            unsigned char *block =
                kvt_ref_kv_block(kv, region, segment->blocks[position / kv->block_tokens]);
            unsigned char *head = block + head_offset * sizeof(float);
            const float *row = rows + (size_t)(segment->first_row + i) * KVT_REF_HEAD;
            if (!is_key) {
                memcpy(head + (size_t)slot * KVT_REF_HEAD * sizeof(float), row,
                       KVT_REF_HEAD * sizeof(float));
                continue;
            }
            for (uint32_t d = 0; d < KVT_REF_HEAD; d++)
                memcpy(head + ((size_t)d * kv->block_tokens + slot) * sizeof(float), row + d,
                       sizeof(float));
        }
    }
}

_Static_assert(KVT_REF_PANEL == KVT_REF_HEAD, "a panel of the projections is one head");

static void project_head(void *ctx, uint32_t head, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    const struct kvt_ref_layer *layer = &c->model->layers[c->layer];
    float *rows = c->qkv + (size_t)head * KVT_REF_ROWS * KVT_REF_HEAD;
    (void)worker;
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_WIDE, c->normed,
                     layer->qkv + (size_t)head * KVT_REF_WIDTH * KVT_REF_PANEL, rows);
    bool is_query = head < KVT_REF_QUERY_HEADS;
    bool is_value = head >= KVT_REF_QUERY_HEADS + KVT_REF_KV_HEADS;
    if (!is_value) c->vec->rope_rows(rows, c->batch->positions, c->angles, is_query);
    if (!is_query) store_head(c, rows, (head - KVT_REF_QUERY_HEADS) % KVT_REF_KV_HEADS, !is_value);
}

void kvt_ref_pass_before_attention(struct kvt_ref_compute *c, uint32_t layer)
{
    c->layer = layer;
    c->vec->norm_rows(c->residual, c->model->layers[layer].attention_gain, c->normed);
    kvt_ref_pool_run(c->pool, project_head, c, KVT_REF_QKV_WIDTH / KVT_REF_PANEL);
}

static void project_out(void *ctx, uint32_t panel, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    (void)worker;
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_OUT, c->attended,
                     c->model->layers[c->layer].out +
                         (size_t)panel * KVT_REF_QUERY_WIDTH * KVT_REF_PANEL,
                     c->residual + (size_t)panel * KVT_REF_PANEL);
}

static void gate_and_up(void *ctx, uint32_t panel, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    const struct kvt_ref_layer *layer = &c->model->layers[c->layer];
    size_t offset = (size_t)panel * KVT_REF_WIDTH * KVT_REF_PANEL;
    float *gate = worker_scratch(c, worker), *up = gate + (size_t)KVT_REF_ROWS * KVT_REF_PANEL;
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_WIDE, c->normed, layer->gate + offset, gate);
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_WIDE, c->normed, layer->up + offset, up);
    c->vec->silu_panel(gate, up, c->hidden + (size_t)panel * KVT_REF_PANEL);
}

static void project_down(void *ctx, uint32_t panel, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    const float *weights =
        c->model->layers[c->layer].down + (size_t)panel * KVT_REF_HIDDEN * KVT_REF_PANEL;
    (void)worker;
    for (size_t depth = 0; depth < KVT_REF_HIDDEN; depth += KVT_REF_DEPTH)
        kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_DOWN, c->hidden + depth,
                         weights + depth * KVT_REF_PANEL,
                         c->residual + (size_t)panel * KVT_REF_PANEL);
}

void kvt_ref_pass_from_attention(struct kvt_ref_compute *c, uint32_t layer)
{
    c->layer = layer;
    kvt_ref_attention(c);
    kvt_ref_pool_run(c->pool, project_out, c, KVT_REF_WIDTH / KVT_REF_PANEL);
    c->vec->norm_rows(c->residual, c->model->layers[layer].hidden_gain, c->normed);
    kvt_ref_pool_run(c->pool, gate_and_up, c, KVT_REF_HIDDEN / KVT_REF_PANEL);
    kvt_ref_pool_run(c->pool, project_down, c, KVT_REF_WIDTH / KVT_REF_PANEL);
}

static void project_logits(void *ctx, uint32_t panel, uint32_t worker)
{
    const struct kvt_ref_compute *c = ctx;
    (void)worker;
    kvt_ref_multiply(c->blas, KVT_REF_PRODUCT_WIDE, c->normed,
                     c->model->head + (size_t)panel * KVT_REF_WIDTH * KVT_REF_PANEL,
                     c->logits + (size_t)panel * KVT_REF_ROWS * KVT_REF_PANEL);
}

void kvt_ref_pass_logits(struct kvt_ref_compute *c)
{
    c->vec->norm_rows(c->residual, c->model->final_gain, c->normed);
    kvt_ref_pool_run(c->pool, project_logits, c, KVT_REF_VOCABULARY / KVT_REF_PANEL);
}

void kvt_ref_pass(struct kvt_ref_compute *c, const struct kvt_ref_batch *batch, bool want_logits)
{
    kvt_ref_pass_start(c, batch);
    for (uint32_t layer = 0; layer < KVT_REF_LAYERS; layer++) {
        kvt_ref_pass_before_attention(c, layer);
        kvt_ref_pass_from_attention(c, layer);
    }
    if (want_logits) kvt_ref_pass_logits(c);
}

void kvt_ref_logits_row(const struct kvt_ref_compute *c, uint32_t row, float *out_logits)
{
    for (size_t panel = 0; panel < KVT_REF_VOCABULARY / KVT_REF_PANEL; panel++)
        memcpy(out_logits + panel * KVT_REF_PANEL,
               c->logits + (panel * KVT_REF_ROWS + row) * KVT_REF_PANEL,
               KVT_REF_PANEL * sizeof(*out_logits));
}
