/*
 * Matrix products through OpenBLAS, loaded at run time; a fixed list of shapes and nothing else.
 *
 * Which kernel OpenBLAS runs depends on a product's shape, so every kind of product has one shape
 * for ever. kvt_ref_blas_open() then proves what the engine relies on, with the library and the
 * processor at hand, bit by bit:
 *   - a row's result depends on no other row of the operand              (else ERR_UNSUPPORTED);
 *   - a score depends on no other key, and a value row whose weight is 0 changes nothing
 *                                                                        (else ERR_UNSUPPORTED);
 *   - a row's result does not depend on its index      (else rows_anywhere is false: see model.h).
 */
#ifndef KVT_REFERENCE_BLAS_H
#define KVT_REFERENCE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvt_status.h"

enum kvt_ref_product {
    KVT_REF_PRODUCT_WIDE,  /* c = a * b: projections, gate and up, logits */
    KVT_REF_PRODUCT_OUT,   /* c += a * b: attention output into the residual stream */
    KVT_REF_PRODUCT_DOWN,  /* c += a * b: one piece of the down product into the residual stream */
    KVT_REF_PRODUCT_SCORE, /* c = a * b: queries by the keys of one tile */
    KVT_REF_PRODUCT_VALUE, /* c = a * b: weights by the values of one tile */
    KVT_REF_PRODUCT_COUNT
};

/* c[rows][columns] (+)= a[rows][depth] * b[depth][columns], row-major. */
struct kvt_ref_shape {
    const char *name;
    int rows, columns, depth;
    int a_stride, b_stride, c_stride; /* floats from row to row */
    float keep;                       /* what c is multiplied by first: 0 or 1 */
};

struct kvt_ref_blas {
    void *library;
    void (*sgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int,
                  float, float *, int);
    char build[256]; /* of OpenBLAS: version, options, processor kernels */
    bool rows_anywhere;
};

extern const struct kvt_ref_shape kvt_ref_shapes[KVT_REF_PRODUCT_COUNT];

/* Loads OpenBLAS, sets it to one thread and probes every shape. ERR_UNSUPPORTED with a sentence in
 * `why` that names the package; NOMEM. May block. */
kvt_status kvt_ref_blas_open(struct kvt_ref_blas *out_blas, char *why, uint64_t why_bytes)
    KVT_MUST_CHECK;
void kvt_ref_blas_close(struct kvt_ref_blas *);
/* The probe alone: sets rows_anywhere. For tests, which bring a product of their own. */
kvt_status kvt_ref_blas_probe(struct kvt_ref_blas *, char *why, uint64_t why_bytes) KVT_MUST_CHECK;

static inline void kvt_ref_multiply(const struct kvt_ref_blas *blas, enum kvt_ref_product kind,
                                    const float *a, const float *b, float *c)
{
    const struct kvt_ref_shape *shape = &kvt_ref_shapes[kind];
    enum { row_major = 101, as_it_is = 111 };
    blas->sgemm(row_major, as_it_is, as_it_is, shape->rows, shape->columns, shape->depth, 1.0f, a,
                shape->a_stride, b, shape->b_stride, shape->keep, c, shape->c_stride);
}

#endif
