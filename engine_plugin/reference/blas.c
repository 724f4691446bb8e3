#include "engine_plugin/reference/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_plugin/reference/geometry.h"
#include "engine_plugin/reference/memory.h"

#define KVT_OPENBLAS_LIBRARY "libopenblas.so.0"
#define KVT_PROBE_ROUNDS 1

/* Panels of weights are stored apart, so b is always dense; so is c, but in the residual stream. */
const struct kvt_ref_shape kvt_ref_shapes[KVT_REF_PRODUCT_COUNT] = {
    [KVT_REF_PRODUCT_WIDE] = {"wide", KVT_REF_ROWS, KVT_REF_PANEL, KVT_REF_WIDTH, KVT_REF_WIDTH,
                              KVT_REF_PANEL, KVT_REF_PANEL, 0.0f},
    [KVT_REF_PRODUCT_OUT] = {"out", KVT_REF_ROWS, KVT_REF_PANEL, KVT_REF_QUERY_WIDTH,
                             KVT_REF_QUERY_WIDTH, KVT_REF_PANEL, KVT_REF_WIDTH, 1.0f},
    [KVT_REF_PRODUCT_DOWN] = {"down", KVT_REF_ROWS, KVT_REF_PANEL, KVT_REF_DEPTH, KVT_REF_HIDDEN,
                              KVT_REF_PANEL, KVT_REF_WIDTH, 1.0f},
    [KVT_REF_PRODUCT_SCORE] = {"score", KVT_REF_HEAD_ROWS, KVT_REF_TILE, KVT_REF_HEAD, KVT_REF_HEAD,
                               KVT_REF_TILE, KVT_REF_TILE, 0.0f},
    [KVT_REF_PRODUCT_VALUE] = {"value", KVT_REF_HEAD_ROWS, KVT_REF_HEAD, KVT_REF_TILE, KVT_REF_TILE,
                               KVT_REF_HEAD, KVT_REF_HEAD, 0.0f},
};

/* ---- the probe ---- */

struct probe {
    const struct kvt_ref_blas *blas;
    const struct kvt_ref_shape *shape;
    enum kvt_ref_product kind;
    uint64_t random;
    float *a, *b, *c;  /* operands of the product under test */
    float *row, *base; /* the row under test, and what c held for it before */
    float *expected;   /* its result */
};

static void fill(uint64_t *random, float *to, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] = kvt_ref_random_float(random);
}

static size_t floats_of(int rows, int stride) { return (size_t)rows * (size_t)stride; }

/* One product with `row` at index `at` among other rows, which are random or zero. */
static void multiply_at(struct probe *p, int at, bool others_zero)
{
    const struct kvt_ref_shape *s = p->shape;
    size_t a_floats = floats_of(s->rows, s->a_stride), c_floats = floats_of(s->rows, s->c_stride);
    if (others_zero) {
        memset(p->a, 0, a_floats * sizeof(float));
        memset(p->c, 0, c_floats * sizeof(float));
    } else {
        fill(&p->random, p->a, a_floats);
        fill(&p->random, p->c, c_floats);
    }
    memcpy(p->a + floats_of(at, s->a_stride), p->row, (size_t)s->depth * sizeof(float));
    memcpy(p->c + floats_of(at, s->c_stride), p->base, (size_t)s->columns * sizeof(float));
    kvt_ref_multiply(p->blas, p->kind, p->a, p->b, p->c);
}

static bool as_expected(const struct probe *p, int at, int columns)
{
    return memcmp(p->c + floats_of(at, p->shape->c_stride), p->expected,
                  (size_t)columns * sizeof(float)) == 0;
}

/* The row at index `at` gives p->expected, whatever the other rows hold. */
static bool others_do_not_matter(struct probe *p, int at)
{
    multiply_at(p, at, true);
    if (!as_expected(p, at, p->shape->columns)) return false;
    multiply_at(p, at, false);
    return as_expected(p, at, p->shape->columns);
}

/* Keys after the first half change: scores of the first half must not. */
static bool other_keys_do_not_matter(struct probe *p)
{
    const struct kvt_ref_shape *s = p->shape;
    int half = s->columns / 2;
    for (int k = 0; k < s->depth; k++)
        memset(p->b + floats_of(k, s->b_stride) + half, 0, (size_t)half * sizeof(float));
    multiply_at(p, 1, false);
    return as_expected(p, 1, half);
}

/* Weights of the second half are 0: the values there must not matter. */
static bool unweighted_values_do_not_matter(struct probe *p)
{
    const struct kvt_ref_shape *s = p->shape;
    int half = s->depth / 2;
    memset(p->row + half, 0, (size_t)half * sizeof(float));
    multiply_at(p, 1, false);
    memcpy(p->expected, p->c + s->c_stride, (size_t)s->columns * sizeof(float));
    memset(p->b + floats_of(half, s->b_stride), 0, floats_of(half, s->b_stride) * sizeof(float));
    multiply_at(p, 1, false);
    return as_expected(p, 1, s->columns);
}

/* False when a result depends on what it must not; clears *rows_anywhere when it depends on the
 * row's index only. */
static bool probe_round(struct probe *p, bool *rows_anywhere)
{
    const struct kvt_ref_shape *s = p->shape;
    fill(&p->random, p->b, floats_of(s->depth, s->b_stride));
    fill(&p->random, p->row, (size_t)s->depth);
    fill(&p->random, p->base, (size_t)s->columns);
    for (int at = 0; at < s->rows; at++) {
        multiply_at(p, at, false);
        if (at > 0 && !as_expected(p, at, s->columns)) *rows_anywhere = false;
        memcpy(p->expected, p->c + floats_of(at, s->c_stride), (size_t)s->columns * sizeof(float));
        if (!others_do_not_matter(p, at)) return false;
    }
    multiply_at(p, 1, false);
    memcpy(p->expected, p->c + s->c_stride, (size_t)s->columns * sizeof(float));
    if (p->kind == KVT_REF_PRODUCT_SCORE && !other_keys_do_not_matter(p)) return false;
    if (p->kind == KVT_REF_PRODUCT_VALUE && !unweighted_values_do_not_matter(p)) return false;
    return true;
}

static kvt_status probe_shape(struct kvt_ref_blas *blas, enum kvt_ref_product kind, char *why,
                              uint64_t why_bytes)
{
    const struct kvt_ref_shape *s = &kvt_ref_shapes[kind];
    size_t a_floats = floats_of(s->rows, s->a_stride), b_floats = floats_of(s->depth, s->b_stride);
    size_t c_floats = floats_of(s->rows, s->c_stride);
    size_t row_floats = (size_t)s->depth + 2 * (size_t)s->columns;
    float *all = kvt_ref_floats(a_floats + b_floats + c_floats + row_floats);
    if (!all) return KVT_ERR_NOMEM;
    struct probe p = {.blas = blas, .shape = s, .kind = kind, .random = 1 + (uint64_t)kind};
    p.a = all;
    p.b = p.a + a_floats;
    p.c = p.b + b_floats;
    p.row = p.c + c_floats;
    p.base = p.row + s->depth;
    p.expected = p.base + s->columns;
    kvt_status status = KVT_OK;
    for (int round = 0; round < KVT_PROBE_ROUNDS && status == KVT_OK; round++)
        if (!probe_round(&p, &blas->rows_anywhere)) {
            snprintf(why, why_bytes,
                     "this OpenBLAS (%s) gives a row of the %s product different bits when other "
                     "rows change, so equal prompts would not give equal KV",
                     blas->build, s->name);
            status = KVT_ERR_UNSUPPORTED;
        }
    free(all);
    return status;
}

kvt_status kvt_ref_blas_probe(struct kvt_ref_blas *blas, char *why, uint64_t why_bytes)
{
    blas->rows_anywhere = true;
    for (int kind = 0; kind < KVT_REF_PRODUCT_COUNT; kind++) {
        kvt_status status = probe_shape(blas, (enum kvt_ref_product)kind, why, why_bytes);
        if (status == KVT_ERR_NOMEM) snprintf(why, why_bytes, "no memory for probing OpenBLAS");
        if (status != KVT_OK) return status;
    }
    return KVT_OK;
}

/* ---- loading ---- */

static void describe_build(struct kvt_ref_blas *blas)
{
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    *(void **)&config = dlsym(blas->library, "openblas_get_config");
    *(void **)&core = dlsym(blas->library, "openblas_get_corename");
    snprintf(blas->build, sizeof(blas->build), "%s; %s", config ? config() : "OpenBLAS",
             core ? core() : "unknown processor");
}

kvt_status kvt_ref_blas_open(struct kvt_ref_blas *out_blas, char *why, uint64_t why_bytes)
{
    struct kvt_ref_blas blas = {.library = NULL};
    /* Our own pool does the parallel work. It starts threads when it is loaded, unless told before;
     * where they cannot be had it never gives up. */
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0) {
        snprintf(why, why_bytes, "no memory for an environment variable");
        return KVT_ERR_NOMEM;
    }
    /* It keeps threads and fork handlers of its own, so it is never unmapped. */
    blas.library = dlopen(KVT_OPENBLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!blas.library) {
        snprintf(why, why_bytes,
                 "%s cannot be loaded; the reference engine needs OpenBLAS (Debian and Ubuntu: "
                 "libopenblas0)",
                 KVT_OPENBLAS_LIBRARY);
        return KVT_ERR_UNSUPPORTED;
    }
    void (*set_threads)(int) = NULL;
    *(void **)&blas.sgemm = dlsym(blas.library, "cblas_sgemm");
    *(void **)&set_threads = dlsym(blas.library, "openblas_set_num_threads");
    if (!blas.sgemm || !set_threads) {
        snprintf(why, why_bytes, "%s lacks cblas_sgemm or openblas_set_num_threads",
                 KVT_OPENBLAS_LIBRARY);
        kvt_ref_blas_close(&blas);
        return KVT_ERR_UNSUPPORTED;
    }
    set_threads(1);
    describe_build(&blas);
    kvt_status status = kvt_ref_blas_probe(&blas, why, why_bytes);
    if (status != KVT_OK) {
        kvt_ref_blas_close(&blas);
        return status;
    }
    *out_blas = blas;
    return KVT_OK;
}

void kvt_ref_blas_close(struct kvt_ref_blas *blas)
{
    if (blas->library) dlclose(blas->library);
    blas->library = NULL;
}
