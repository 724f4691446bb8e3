#include "engine_plugin/reference/vec.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine_plugin/reference/geometry.h"

typedef float kvt_f16 __attribute__((vector_size(64)));
typedef int32_t kvt_i16 __attribute__((vector_size(64)));
typedef uint32_t kvt_u16 __attribute__((vector_size(64)));
_Static_assert(sizeof(kvt_f16) == KVT_REF_LANES * sizeof(float), "one vector, all lanes");

/* memcpy says that neither alignment nor aliasing is assumed; compilers make one move of it. */
#define KVT_LOAD(v, from) memcpy(&(v), (from), sizeof(v))
#define KVT_STORE(to, v) memcpy((to), &(v), sizeof(v))

#define KVT_LOG2_E 1.44269504f
#define KVT_QUERY_SCALE (1.44269504f * 0.17677669530f) /* log2(e) / sqrt(KVT_REF_HEAD) */
_Static_assert(KVT_REF_HEAD == 32, "KVT_QUERY_SCALE holds 1/sqrt(32)");
#define KVT_NORM_EPSILON 1e-5f
#define KVT_EXPONENT_MIN (-110.0f)
#define KVT_BITS_126 0x42fc0000                            /* 126.0f */
#define KVT_BITS_MINUS_126 ((int32_t)UINT32_C(0xc2fc0000)) /* -126.0f */
#define KVT_BITS_LOWEST ((int32_t)UINT32_C(0xff7fffff))    /* -FLT_MAX */

#define KVT_VEC(name) kvt_baseline_##name
#define KVT_VEC_TARGET
#define KVT_VEC_NAME "baseline"
#include "engine_plugin/reference/vec.inc"
#undef KVT_VEC
#undef KVT_VEC_TARGET
#undef KVT_VEC_NAME

#if defined(__x86_64__)

#define KVT_VEC(name) kvt_avx2_##name
#define KVT_VEC_TARGET __attribute__((target("avx2,fma")))
#define KVT_VEC_NAME "avx2"
#include "engine_plugin/reference/vec.inc"
#undef KVT_VEC
#undef KVT_VEC_TARGET
#undef KVT_VEC_NAME

#define KVT_VEC(name) kvt_avx512_##name
#define KVT_VEC_TARGET __attribute__((target("avx512f")))
#define KVT_VEC_NAME "avx512"
#include "engine_plugin/reference/vec.inc"
#undef KVT_VEC
#undef KVT_VEC_TARGET
#undef KVT_VEC_NAME

static const struct kvt_ref_vec_ops *const all_variants[] = {
    &kvt_avx512_ops,
    &kvt_avx2_ops,
    &kvt_baseline_ops,
    NULL,
};

const struct kvt_ref_vec_ops *const *kvt_ref_vec_list(void)
{
    if (__builtin_cpu_supports("avx512f")) return &all_variants[0];
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &all_variants[1];
    return &all_variants[2];
}

#else

static const struct kvt_ref_vec_ops *const all_variants[] = {&kvt_baseline_ops, NULL};

const struct kvt_ref_vec_ops *const *kvt_ref_vec_list(void) { return all_variants; }

#endif

const struct kvt_ref_vec_ops *kvt_ref_vec_select(void) { return *kvt_ref_vec_list(); }
