/*
 * The reference model: that it is a transformer (against a plain one in double precision), and that
 * the bits of a token's logits depend on nothing but the tokens before it.
 *
 * Every way of computing a prompt is compared with computing it in one go, all logits of all
 * tokens, bit by bit; controls show that the comparison sees a page that is not what it should be.
 */
#include "engine_plugin/reference/model.h"

#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test_random.h"

#define CONTEXT 1536u
#define BLOCK 16u
#define BLOCKS (CONTEXT / BLOCK)
#define SEQUENCES 3u

struct rig {
    struct kvt_ref_blas blas;
    struct kvt_ref_model model;
    struct kvt_ref_kv kv;
    struct kvt_ref_compute compute;
    uint32_t tokens[SEQUENCES][CONTEXT];
    uint32_t blocks[SEQUENCES][BLOCKS];
};
static struct rig *rig;

static void open_rig(uint32_t threads, uint32_t block_tokens)
{
    char why[256] = "";
    rig = calloc(1, sizeof(*rig));
    ck_assert_ptr_nonnull(rig);
    ck_assert_msg(kvt_ref_blas_open(&rig->blas, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_int_eq(kvt_ref_model_open(7, &rig->model), KVT_OK);
    ck_assert_int_eq(kvt_ref_kv_open(block_tokens, (SEQUENCES + 1) * BLOCKS, 0, &rig->kv), KVT_OK);
    ck_assert_int_eq(
        kvt_ref_compute_open(&rig->model, &rig->blas, &rig->kv, threads, CONTEXT, &rig->compute),
        KVT_OK);
    /* What was never written must never be read: it is not a number. */
    for (uint32_t i = 0; i < KVT_REF_REGIONS; i++)
        memset(rig->kv.regions[i], 0xff, rig->kv.region_bytes);
    struct test_random random = {99};
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t i = 0; i < CONTEXT; i++)
            rig->tokens[s][i] = test_random_below(&random, KVT_REF_VOCABULARY);
        ck_assert(kvt_ref_kv_take(&rig->kv, BLOCKS, rig->blocks[s]));
    }
}

static void open_rig_default(void) { open_rig(2, BLOCK); }

static void close_rig(void)
{
    kvt_ref_compute_close(&rig->compute);
    kvt_ref_kv_close(&rig->kv);
    kvt_ref_model_close(&rig->model);
    kvt_ref_blas_close(&rig->blas);
    free(rig);
    rig = NULL;
}

/* ---- computing, and all logits ---- */

static float *logits_for(uint32_t tokens)
{
    float *logits = calloc((size_t)tokens * KVT_REF_VOCABULARY, sizeof(*logits));
    ck_assert_ptr_nonnull(logits);
    return logits;
}

static void pass(uint32_t sequence, uint32_t from, uint32_t count, uint32_t first_row,
                 float *logits)
{
    struct kvt_ref_batch batch;
    kvt_ref_batch_clear(&batch);
    kvt_ref_batch_add(&batch, rig->tokens[sequence] + from, rig->blocks[sequence], first_row, count,
                      from);
    kvt_ref_pass(&rig->compute, &batch, logits != NULL);
    for (uint32_t i = 0; logits && i < count; i++)
        kvt_ref_logits_row(&rig->compute, first_row + i,
                           logits + (size_t)(from + i) * KVT_REF_VOCABULARY);
}

/* Computes tokens [from, from + count) of a sequence; logits may be NULL. In one pass, but where
 * this OpenBLAS wants rows by position and the tokens do not lie so. */
static void chunk(uint32_t sequence, uint32_t from, uint32_t count, uint32_t first_row,
                  float *logits)
{
    while (!rig->blas.rows_anywhere && count > 0) {
        uint32_t row = from % KVT_REF_ROWS, room = KVT_REF_ROWS - row;
        uint32_t now = count < room ? count : room;
        pass(sequence, from, now, row, logits);
        from += now;
        count -= now;
    }
    if (count > 0) pass(sequence, from, count, first_row, logits);
}

static void in_one_go(uint32_t sequence, uint32_t tokens, float *logits)
{
    for (uint32_t from = 0; from < tokens; from += KVT_REF_ROWS)
        chunk(sequence, from, tokens - from < KVT_REF_ROWS ? tokens - from : KVT_REF_ROWS, 0,
              logits);
}

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

/* The first token in [from, to) whose logits differ, or `to`. */
static uint32_t first_difference(const float *a, const float *b, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        size_t at = (size_t)i * KVT_REF_VOCABULARY;
        if (!same_bits(a + at, b + at, KVT_REF_VOCABULARY * sizeof(float))) return i;
    }
    return to;
}

static void assert_same(const float *a, const float *b, uint32_t from, uint32_t to)
{
    ck_assert_uint_eq(first_difference(a, b, from, to), to);
}

/* ---- it is a transformer ---- */

static double norm_scale(const double *x)
{
    double sum = 0;
    for (int i = 0; i < KVT_REF_WIDTH; i++) sum += x[i] * x[i];
    return 1.0 / sqrt(sum / KVT_REF_WIDTH + 1e-5);
}

/* out[columns] (+)= x[rows] * matrix */
static void naive_product(const double *x, const float *matrix, uint32_t rows, uint32_t columns,
                          bool add, double *out)
{
    for (uint32_t c = 0; c < columns; c++) {
        double sum = add ? out[c] : 0;
        for (uint32_t r = 0; r < rows; r++)
            sum += x[r] * (double)kvt_ref_weight(matrix, rows, r, c);
        out[c] = sum;
    }
}

static void naive_rotate(double *head, uint32_t position)
{
    const int half = KVT_REF_HEAD / 2;
    for (int i = 0; i < half; i++) {
        double angle = position * pow(KVT_REF_ROPE_BASE, -(double)i / half);
        double low = head[i], high = head[i + half];
        head[i] = low * cos(angle) - high * sin(angle);
        head[i + half] = low * sin(angle) + high * cos(angle);
    }
}

#define NAIVE_TOKENS 24u
typedef double naive_qkv[KVT_REF_QKV_WIDTH];

static void naive_attention(naive_qkv *qkv, uint32_t position, double *out)
{
    for (int q = 0; q < KVT_REF_QUERY_HEADS; q++) {
        const double *query = qkv[position] + q * KVT_REF_HEAD;
        int key_at = KVT_REF_QUERY_WIDTH + q / KVT_REF_GROUP * KVT_REF_HEAD;
        double weights[NAIVE_TOKENS], total = 0;
        for (uint32_t t = 0; t <= position; t++) {
            double score = 0;
            for (int d = 0; d < KVT_REF_HEAD; d++) score += query[d] * qkv[t][key_at + d];
            total += weights[t] = exp(score / sqrt(KVT_REF_HEAD));
        }
        for (int d = 0; d < KVT_REF_HEAD; d++) {
            double sum = 0;
            for (uint32_t t = 0; t <= position; t++)
                sum += weights[t] * qkv[t][key_at + KVT_REF_KV_WIDTH + d];
            out[q * KVT_REF_HEAD + d] = sum / total;
        }
    }
}

static void naive_layer(const struct kvt_ref_layer *layer, double (*x)[KVT_REF_WIDTH],
                        naive_qkv *qkv, uint32_t position)
{
    static double normed[KVT_REF_WIDTH], attended[KVT_REF_QUERY_WIDTH];
    static double gate[KVT_REF_HIDDEN], up[KVT_REF_HIDDEN];
    double *row = x[position], scale = norm_scale(row);
    for (int i = 0; i < KVT_REF_WIDTH; i++)
        normed[i] = row[i] * scale * (double)layer->attention_gain[i];
    naive_product(normed, layer->qkv, KVT_REF_WIDTH, KVT_REF_QKV_WIDTH, false, qkv[position]);
    for (int h = 0; h < KVT_REF_QUERY_HEADS + KVT_REF_KV_HEADS; h++)
        naive_rotate(qkv[position] + h * KVT_REF_HEAD, position);
    naive_attention(qkv, position, attended);
    naive_product(attended, layer->out, KVT_REF_QUERY_WIDTH, KVT_REF_WIDTH, true, row);
    scale = norm_scale(row);
    for (int i = 0; i < KVT_REF_WIDTH; i++)
        normed[i] = row[i] * scale * (double)layer->hidden_gain[i];
    naive_product(normed, layer->gate, KVT_REF_WIDTH, KVT_REF_HIDDEN, false, gate);
    naive_product(normed, layer->up, KVT_REF_WIDTH, KVT_REF_HIDDEN, false, up);
    for (int i = 0; i < KVT_REF_HIDDEN; i++) gate[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
    naive_product(gate, layer->down, KVT_REF_HIDDEN, KVT_REF_WIDTH, true, row);
}

START_TEST(agrees_with_a_plain_transformer)
{
    static double x[NAIVE_TOKENS][KVT_REF_WIDTH], logits[KVT_REF_VOCABULARY];
    static naive_qkv qkv[KVT_REF_LAYERS][NAIVE_TOKENS];
    const uint32_t last = NAIVE_TOKENS - 1;
    for (uint32_t t = 0; t < NAIVE_TOKENS; t++) {
        for (int i = 0; i < KVT_REF_WIDTH; i++)
            x[t][i] = (double)rig->model.embedding[rig->tokens[0][t] * KVT_REF_WIDTH + (uint32_t)i];
        for (int i = 0; i < KVT_REF_LAYERS; i++) naive_layer(&rig->model.layers[i], x, qkv[i], t);
    }
    double scale = norm_scale(x[last]);
    for (int i = 0; i < KVT_REF_WIDTH; i++) x[last][i] *= scale * (double)rig->model.final_gain[i];
    naive_product(x[last], rig->model.head, KVT_REF_WIDTH, KVT_REF_VOCABULARY, false, logits);

    float *ours = logits_for(NAIVE_TOKENS);
    in_one_go(0, NAIVE_TOKENS, ours);
    const float *row = ours + (size_t)last * KVT_REF_VOCABULARY;
    const float *other = ours + (size_t)(last - 1) * KVT_REF_VOCABULARY;
    double worst = 0, spread = 0, control = 0;
    for (int i = 0; i < KVT_REF_VOCABULARY; i++) {
        worst = fmax(worst, fabs((double)row[i] - logits[i]));
        spread = fmax(spread, fabs(logits[i]));
        control = fmax(control, fabs((double)other[i] - logits[i]));
    }
    ck_assert_double_gt(spread, 1.0);
    ck_assert_double_lt(worst, 1e-3);
    /* The control: another token's logits are not nearly the same. */
    ck_assert_double_gt(control, 0.5);
    free(ours);
}
END_TEST

/* Attention across tiles and spans, against a plain softmax over the same keys and values. */
START_TEST(long_attention_is_a_softmax)
{
    const uint32_t tokens = KVT_REF_SPAN + KVT_REF_TILE + 37, layer = KVT_REF_LAYERS - 1;
    in_one_go(0, tokens, NULL);
    const uint32_t row = (tokens - 1) % KVT_REF_ROWS;
    double worst = 0, largest = 0;
    for (uint32_t q = 0; q < KVT_REF_QUERY_HEADS; q++) {
        const float *query = rig->compute.qkv + ((size_t)q * KVT_REF_ROWS + row) * KVT_REF_HEAD;
        double sums[KVT_REF_HEAD] = {0}, total = 0;
        for (uint32_t t = 0; t < tokens; t++) {
            uint32_t block = rig->blocks[0][t / BLOCK],
                     at = q / KVT_REF_GROUP * KVT_REF_HEAD * BLOCK;
            float keys[KVT_REF_KV_WIDTH * BLOCK], values[KVT_REF_KV_WIDTH * BLOCK];
            memcpy(keys, kvt_ref_kv_block(&rig->kv, 2 * layer, block), sizeof(keys));
            memcpy(values, kvt_ref_kv_block(&rig->kv, 2 * layer + 1, block), sizeof(values));
            double score = 0;
            for (uint32_t d = 0; d < KVT_REF_HEAD; d++)
                score += (double)query[d] * (double)keys[at + d * BLOCK + t % BLOCK];
            double weight = exp2(score); /* queries carry log2(e) / sqrt(head) */
            total += weight;
            for (uint32_t d = 0; d < KVT_REF_HEAD; d++)
                sums[d] += weight * (double)values[at + t % BLOCK * KVT_REF_HEAD + d];
        }
        const float *ours =
            rig->compute.attended + (size_t)row * KVT_REF_QUERY_WIDTH + q * KVT_REF_HEAD;
        for (uint32_t d = 0; d < KVT_REF_HEAD; d++) {
            worst = fmax(worst, fabs((double)ours[d] - sums[d] / total));
            largest = fmax(largest, fabs(sums[d] / total));
        }
    }
    ck_assert_double_gt(largest, 0.02);
    ck_assert_double_lt(worst, 1e-5);
}
END_TEST

/* ---- bits ---- */

START_TEST(chunks_of_any_size)
{
    const uint32_t tokens = KVT_REF_SPAN + 300;
    float *whole = logits_for(tokens), *pieces = logits_for(tokens);
    in_one_go(0, tokens, whole);
    /* Multiples of a block first; then any size, in any row that has room. */
    struct test_random random = test_random_start("chunks", 3);
    for (int any = 0; any < 2; any++) {
        memset(pieces, 0, (size_t)tokens * KVT_REF_VOCABULARY * sizeof(float));
        for (uint32_t from = 0, count; from < tokens; from += count) {
            count = any ? 1 + test_random_below(&random, KVT_REF_ROWS)
                        : BLOCK * (1 + test_random_below(&random, KVT_REF_ROWS / BLOCK));
            if (count > tokens - from) count = tokens - from;
            uint32_t room = KVT_REF_ROWS - count + 1;
            chunk(0, from, count, any ? test_random_below(&random, room) : 0, pieces);
        }
        assert_same(whole, pieces, 0, tokens);
    }
    /* The control: one other token, and everything from it on differs, nothing before. */
    rig->tokens[0][700] ^= 1;
    in_one_go(0, tokens, pieces);
    ck_assert_uint_eq(first_difference(whole, pieces, 0, tokens), 700);
    for (uint32_t i = 700; i < tokens; i++)
        ck_assert_uint_eq(first_difference(whole, pieces, i, i + 1), i);
    free(whole);
    free(pieces);
}
END_TEST

/* Rows by position: what is done where OpenBLAS gives rows different bits. */
START_TEST(rows_by_position)
{
    const uint32_t tokens = 400, resume = 176;
    float *whole = logits_for(tokens), *aligned = logits_for(tokens);
    in_one_go(0, tokens, whole);
    chunk(0, resume, KVT_REF_ROWS - resume % KVT_REF_ROWS, resume % KVT_REF_ROWS, aligned);
    for (uint32_t from = resume + KVT_REF_ROWS - resume % KVT_REF_ROWS; from < tokens;
         from += KVT_REF_ROWS)
        chunk(0, from, tokens - from < KVT_REF_ROWS ? tokens - from : KVT_REF_ROWS, 0, aligned);
    assert_same(whole, aligned, resume, tokens);
    free(whole);
    free(aligned);
}
END_TEST

/* Copies a block of every region. */
static void copy_block(uint32_t to, uint32_t from)
{
    for (uint32_t region = 0; region < KVT_REF_REGIONS; region++)
        memcpy(kvt_ref_kv_block(&rig->kv, region, to), kvt_ref_kv_block(&rig->kv, region, from),
               rig->kv.block_bytes);
}

START_TEST(resumed_from_copied_blocks)
{
    const uint32_t tokens = KVT_REF_SPAN + 100, cut = KVT_REF_SPAN - 48;
    float *whole = logits_for(tokens), *resumed = logits_for(tokens);
    in_one_go(0, tokens, whole);
    /* Sequence 1 gets the same tokens, the KV of the first `cut` of them, and blocks of its own. */
    memcpy(rig->tokens[1], rig->tokens[0], sizeof(rig->tokens[0]));
    for (uint32_t i = 0; i < cut / BLOCK; i++) copy_block(rig->blocks[1][i], rig->blocks[0][i]);
    for (uint32_t from = cut; from < tokens; from += BLOCK)
        chunk(1, from, tokens - from < BLOCK ? tokens - from : BLOCK, 0, resumed);
    assert_same(whole, resumed, cut, tokens);

    /* Two blocks that change places, ids and contents: nothing changes. */
    uint32_t spare;
    ck_assert(kvt_ref_kv_take(&rig->kv, 1, &spare));
    uint32_t a = rig->blocks[1][3], b = rig->blocks[1][20];
    copy_block(spare, a);
    copy_block(a, b);
    copy_block(b, spare);
    rig->blocks[1][3] = b;
    rig->blocks[1][20] = a;
    chunk(1, cut, BLOCK, 0, resumed);
    assert_same(whole, resumed, cut, cut + BLOCK);

    /* Contents alone: the control. And back. */
    rig->blocks[1][3] = a;
    rig->blocks[1][20] = b;
    chunk(1, cut, BLOCK, 0, resumed);
    for (uint32_t i = cut; i < cut + BLOCK; i++)
        ck_assert_uint_eq(first_difference(whole, resumed, i, i + 1), i);
    rig->blocks[1][3] = b;
    rig->blocks[1][20] = a;
    chunk(1, cut, BLOCK, 0, resumed);
    assert_same(whole, resumed, cut, cut + BLOCK);

    /* A block of other tokens in one place: the other control. */
    in_one_go(2, 64, NULL);
    copy_block(rig->blocks[1][8], rig->blocks[2][1]);
    chunk(1, cut, BLOCK, 0, resumed);
    for (uint32_t i = cut; i < cut + BLOCK; i++)
        ck_assert_uint_eq(first_difference(whole, resumed, i, i + 1), i);
    free(whole);
    free(resumed);
}
END_TEST

/* Token by token, several sequences in one pass, in rows that change. */
START_TEST(decode_is_prefill)
{
    const uint32_t starts[SEQUENCES] = {KVT_REF_SPAN - 5, 250, 31}, steps = 12;
    float *whole[SEQUENCES], *decoded[SEQUENCES];
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        whole[s] = logits_for(starts[s] + steps);
        decoded[s] = logits_for(starts[s] + steps);
        in_one_go(s, starts[s] + steps, whole[s]);
    }
    for (uint32_t i = 0; i < KVT_REF_REGIONS; i++)
        memset(rig->kv.regions[i], 0xff, rig->kv.region_bytes);
    for (uint32_t s = 0; s < SEQUENCES; s++) in_one_go(s, starts[s], NULL);
    for (uint32_t step = 0; step < steps; step++) {
        struct kvt_ref_batch batch;
        uint32_t rows[SEQUENCES];
        kvt_ref_batch_clear(&batch);
        for (uint32_t s = 0; s < SEQUENCES; s++) {
            rows[s] = rig->blas.rows_anywhere ? (step * 7 + s * 11) % KVT_REF_ROWS
                                              : (starts[s] + step) % KVT_REF_ROWS;
            kvt_ref_batch_add(&batch, rig->tokens[s] + starts[s] + step, rig->blocks[s], rows[s], 1,
                              starts[s] + step);
        }
        kvt_ref_pass(&rig->compute, &batch, true);
        for (uint32_t s = 0; s < SEQUENCES; s++)
            kvt_ref_logits_row(&rig->compute, rows[s],
                               decoded[s] + (size_t)(starts[s] + step) * KVT_REF_VOCABULARY);
    }
    for (uint32_t s = 0; s < SEQUENCES; s++)
        assert_same(whole[s], decoded[s], starts[s], starts[s] + steps);
    /* The control: another sequence's logits at the same position are others. */
    ck_assert_uint_eq(first_difference(whole[0], whole[1], 40, 41), 40);
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        free(whole[s]);
        free(decoded[s]);
    }
}
END_TEST

static float *computed_with(uint32_t threads, uint32_t block_tokens, uint32_t tokens)
{
    open_rig(threads, block_tokens);
    float *logits = logits_for(tokens);
    in_one_go(0, tokens, logits);
    close_rig();
    return logits;
}

START_TEST(any_number_of_threads_and_block_size)
{
    const uint32_t tokens = 600;
    float *one = computed_with(1, 16, tokens), *two = computed_with(2, 16, tokens);
    float *three = computed_with(3, 16, tokens), *large = computed_with(2, 64, tokens);
    assert_same(one, two, 0, tokens);
    assert_same(one, three, 0, tokens);
    assert_same(one, large, 0, tokens);
    free(one);
    free(two);
    free(three);
    free(large);
}
END_TEST

/* The row operations of every instruction set that is here do the same, but for rounding. */
START_TEST(instruction_sets_agree)
{
    const uint32_t tokens = 300;
    float *first = logits_for(tokens), *other = logits_for(tokens);
    in_one_go(0, tokens, first);
    for (const struct kvt_ref_vec_ops *const *ops = kvt_ref_vec_list() + 1; *ops; ops++) {
        rig->compute.vec = *ops;
        in_one_go(0, tokens, other);
        double worst = 0;
        for (size_t i = 0; i < (size_t)tokens * KVT_REF_VOCABULARY; i++)
            worst = fmax(worst, fabs((double)first[i] - (double)other[i]));
        ck_assert_msg(worst < 1e-3, "%s: %g", (*ops)->isa, worst);
    }
    free(first);
    free(other);
}
END_TEST

START_TEST(seeds_make_models)
{
    struct kvt_ref_model a, b;
    ck_assert_int_eq(kvt_ref_model_open(7, &a), KVT_OK);
    ck_assert_int_eq(kvt_ref_model_open(8, &b), KVT_OK);
    ck_assert_mem_eq(a.digest, rig->model.digest, sizeof(a.digest));
    ck_assert_mem_ne(b.digest, rig->model.digest, sizeof(b.digest));
    kvt_ref_model_close(&a);
    kvt_ref_model_close(&b);
}
END_TEST

/* ---- the probe of OpenBLAS ---- */

enum quirk { QUIRK_NONE, QUIRK_ROW_INDEX, QUIRK_OTHER_ROWS };
static enum quirk quirk;

/* A plain product that can be told to have the faults which the probe is there to find. */
static void quirky_sgemm(int order, int a_turned, int b_turned, int rows, int columns, int depth,
                         float alpha, const float *a, int a_stride, const float *b, int b_stride,
                         float beta, float *c, int c_stride)
{
    (void)order, (void)a_turned, (void)b_turned;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++) {
            float sum = 0;
            for (int k = 0; k < depth; k++) sum += a[r * a_stride + k] * b[k * b_stride + i];
            float *to = &c[r * c_stride + i];
            *to = (beta != 0.0f ? *to : 0.0f) + alpha * sum;
            if (quirk == QUIRK_ROW_INDEX && r == rows - 1) *to *= 1.0f + 1e-6f;
            if (quirk == QUIRK_OTHER_ROWS && r > 0) *to += a[0] * 1e-3f;
        }
}

START_TEST(probe_finds_what_it_looks_for)
{
    char why[256] = "";
    struct kvt_ref_blas blas = {.sgemm = quirky_sgemm, .build = "quirky"};
    quirk = QUIRK_NONE;
    ck_assert_int_eq(kvt_ref_blas_probe(&blas, why, sizeof(why)), KVT_OK);
    ck_assert(blas.rows_anywhere);
    quirk = QUIRK_ROW_INDEX;
    ck_assert_int_eq(kvt_ref_blas_probe(&blas, why, sizeof(why)), KVT_OK);
    ck_assert(!blas.rows_anywhere);
    quirk = QUIRK_OTHER_ROWS;
    ck_assert_int_eq(kvt_ref_blas_probe(&blas, why, sizeof(why)), KVT_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(why, "quirky"));
}
END_TEST

int main(void)
{
    void *openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!openblas) {
        printf("libopenblas.so.0 is not there (Debian and Ubuntu: libopenblas0)\n");
        return 77;
    }
    dlclose(openblas);
    Suite *suite = suite_create("ref_model");
    TCase *bits = tcase_create("bits");
    tcase_add_checked_fixture(bits, open_rig_default, close_rig);
    tcase_add_test(bits, agrees_with_a_plain_transformer);
    tcase_add_test(bits, long_attention_is_a_softmax);
    tcase_add_test(bits, chunks_of_any_size);
    tcase_add_test(bits, rows_by_position);
    tcase_add_test(bits, resumed_from_copied_blocks);
    tcase_add_test(bits, decode_is_prefill);
    tcase_add_test(bits, instruction_sets_agree);
    tcase_add_test(bits, seeds_make_models);
    suite_add_tcase(suite, bits);
    TCase *alone = tcase_create("alone");
    tcase_add_test(alone, any_number_of_threads_and_block_size);
    tcase_add_test(alone, probe_finds_what_it_looks_for);
    suite_add_tcase(suite, alone);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
