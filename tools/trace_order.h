/*
 * In which order a trace is replayed, and what that order needs of a cache.
 *
 * Order by rounds: the first N sessions in order of appearance, as agents that live at the same
 * time; a round takes one turn of each session that still has one, so that between two turns of a
 * session there is a turn of every other. Order by arrival: the turns of the same sessions as the
 * timestamps say, ties in file order.
 *
 * A session ends before its first turn whose prompt plus output is longer than the context; that
 * turn and those after it are dropped, and counted.
 *
 * A session is alive from its first to its last turn in the order. The live working set after a
 * turn is the set of distinct pages in the longest prompt so far of every session alive then: what
 * a cache must hold to lose nothing of the conversations that go on. A page is `page_tokens`
 * tokens, whole pages only, known by the XXH3-128 chained over all tokens up to its end.
 */
#ifndef KVT_TRACE_ORDER_H
#define KVT_TRACE_ORDER_H

#include "tools/trace.h"

enum kvt_order_kind { KVT_ORDER_ROUNDS, KVT_ORDER_ARRIVAL };

struct kvt_order {
    uint32_t *turns; /* [turn_count] indices into trace->turns */
    uint32_t turn_count;
    uint32_t session_count;  /* with at least one turn in the order */
    uint32_t sessions_ended; /* by the context limit, before their end */
    uint32_t turns_dropped;
};

/* INVAL: order by arrival of a trace that has no times. NOMEM. */
kvt_status kvt_order_build(const struct kvt_trace *, enum kvt_order_kind, uint32_t sessions_max,
                           uint64_t context_tokens, uint64_t output_tokens,
                           struct kvt_order *out_order) KVT_MUST_CHECK;
void kvt_order_destroy(struct kvt_order *);

struct kvt_order_needs {
    uint64_t prompt_tokens;     /* of all turns */
    uint64_t prompt_tokens_max; /* of one */
    uint64_t peak_live_pages;   /* the live working set at its largest */
    uint64_t distinct_pages;    /* of all prompts */
    uint64_t prompt_tokens_p50;
    /* With a cache that keeps everything: tokens a turn has to compute. Whole pages are found, and
     * never the prompt's last token, which must be computed for its logits. */
    uint64_t new_tokens;
    uint64_t new_tokens_p50;
    double token_bound; /* prompt_tokens_p50 / new_tokens_p50 */
};

/* Walks the order once. The order has at least one turn. NOMEM. */
kvt_status kvt_order_measure(const struct kvt_trace *, const struct kvt_order *,
                             uint32_t page_tokens, uint32_t vocabulary,
                             struct kvt_order_needs *out_needs) KVT_MUST_CHECK;

/* The smallest value with at least `percent` of the values at or below it (nearest rank); `values`
 * rise. count > 0. */
uint64_t kvt_percentile(const uint64_t *values, uint64_t count, uint32_t percent);
/* Sorts, rising. */
void kvt_sort_u64(uint64_t *values, uint64_t count);

#endif
