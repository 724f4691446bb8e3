/*
 * The reference engine: a small, real decoder-only transformer on the CPU with a paged KV cache,
 * chunked prefill, greedy decoding and several sequences at once. It knows kvtier only through
 * kvt_engine.h and dlopen, as any engine would.
 *
 * With and without a cache its logits are bit-identical: see model.h for how. Without one, or when
 * the cache has failed, its forward passes run on a queue thread of its own; with one, on a stream
 * of the plug-in's CPU device. The work is the same, cut in the same pieces.
 *
 * Life cycle: open -> submit / next ... -> close. One scheduler thread inside; submit and next may
 * be called from any thread.
 */
#ifndef KVT_REFERENCE_ENGINE_H
#define KVT_REFERENCE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvt_engine.h"

#define KVT_REF_TRANSFER_DEADLINE_NS UINT64_C(10000000000)

struct kvt_ref_config {
    uint64_t seed;           /* of the weights */
    uint32_t threads;        /* compute threads; 0: as many as the process may use, at most 8 */
    uint32_t context_tokens; /* longest prompt plus output */
    uint32_t block_tokens;   /* tokens of one KV block; 0: 16 */
    uint32_t concurrency;    /* sequences at once, 1..16 */
    uint32_t output_tokens;  /* generated for each request, >= 1 */
    /* The cache: NULL means none. */
    const char *plugin_path;              /* libkvtier_plugin.so */
    const kvt_plugin_entry *plugin_entry; /* tests: taken instead of what plugin_path exports */
    const char *plugin_uri;               /* NULL: "embedded:" */
    uint32_t page_tokens;                 /* 0: 16 */
    uint64_t hbm_bytes, host_bytes;
    const char *evict_policy; /* NULL: the plug-in's default */
    const char *nvme;         /* "FOLDER:SIZE;..." (kvt_engine.h); NULL: no such tier */
    const char *admit_policy; /* NULL: the plug-in's default */
    bool load_always;         /* do not tell the cache how fast prompts are computed */
    /* A control for equality tests: after each restore, one restored page is overwritten with a
     * page of other tokens. Outputs must differ then. */
    bool control_foreign_page;
    /* A control that must change nothing: the control above, but the page is overwritten with its
     * own bytes. */
    bool control_same_page;
    /* How long a restore or save may take before it is cancelled, and how long a cancelled one may
     * take to end before the engine goes on without the cache; 0: KVT_REF_TRANSFER_DEADLINE_NS. */
    uint64_t transfer_deadline_ns;
    /* Tests: compute every token in the row that its position names, as is done where OpenBLAS
     * gives rows different bits (model.h). Outputs are then those of such a machine. */
    bool aligned_rows;
    /* Tests: a fault of kvt.cpu_fault/1, armed before each request's lookup, from the
     * fault_from_request'th (counted from 1) on; kind 0: none. */
    uint32_t fault_kind;
    uint32_t fault_from_request;
    uint64_t fault_value;
    void (*log)(void *ctx, int32_t level, const char *line); /* may be NULL */
    void *log_ctx;
};

struct kvt_ref_result {
    uint64_t request_id;
    kvt_status status; /* KVT_ERR_LIMIT: prompt plus output exceed the context */
    uint32_t prompt_tokens;
    uint32_t computed_tokens; /* prompt tokens computed, recomputation after a shortfall excluded */
    uint32_t cached_tokens;   /* prompt tokens taken from the cache */
    uint32_t output_count;
    uint32_t *outputs;              /* [output_count], owned by the result */
    unsigned char logit_digest[16]; /* XXH3-128 over the bits of the first token's logits */
    uint64_t submit_ns, first_token_ns, done_ns; /* CLOCK_MONOTONIC */
};

struct kvt_ref_engine;

/* What one page of the KV cache takes, in bytes; what the vocabulary has, in tokens. */
uint64_t kvt_ref_page_bytes(uint32_t page_tokens);
uint32_t kvt_ref_vocabulary(void);

/* Opens OpenBLAS at run time; ERR_UNSUPPORTED with a sentence that names the package when it is
 * not there. On failure `why` holds one sentence. May block. */
kvt_status kvt_ref_open(const struct kvt_ref_config *, struct kvt_ref_engine **out_engine,
                        char *why, uint64_t why_bytes) KVT_MUST_CHECK;
/* Waits for what was submitted, quiesces and closes the plug-in. NULL is a no-op. */
void kvt_ref_close(struct kvt_ref_engine *);

/* Queue one request; tokens ([token_count] ids, taken modulo the vocabulary) are copied. TTFT
 * counts from here; due_ns, when not 0, counts instead (a trace's arrival time). No-block. NOMEM,
 * INVAL. */
kvt_status kvt_ref_submit(struct kvt_ref_engine *, uint64_t request_id, const uint32_t *tokens,
                          uint32_t token_count, uint64_t due_ns) KVT_MUST_CHECK;
/* The next finished request, in order of completion; waits at most timeout_ns. TIMEOUT. Ownership
 * of out_result->outputs passes to the caller: kvt_ref_result_fini(). With a cache, a request is
 * finished when its save has ended too (done_ns does not count that): whoever sends the next turn
 * when it sees this one's result finds this one's pages. */
kvt_status kvt_ref_next(struct kvt_ref_engine *, uint64_t timeout_ns,
                        struct kvt_ref_result *out_result) KVT_MUST_CHECK;
void kvt_ref_result_fini(struct kvt_ref_result *);

/* The cache's statistics (kvt_stats of kvt_engine.h). ERR_UNSUPPORTED without a cache. */
kvt_status kvt_ref_cache_stats(struct kvt_ref_engine *, kvt_stats *out_stats) KVT_MUST_CHECK;

#endif
