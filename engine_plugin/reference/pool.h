/*
 * A few threads that share the units of one piece of work: panels of a product, tiles of attention.
 * Which thread takes which unit changes nothing in the results.
 *
 * The caller works too: it may be any thread, a stream's own included, but one at a time. Workers
 * spin for a moment between pieces, because a forward pass is a dense row of them, and then sleep.
 */
#ifndef KVT_REFERENCE_POOL_H
#define KVT_REFERENCE_POOL_H

#include <stdint.h>

#include "kvt_status.h"

struct kvt_ref_pool;

/* worker is below the pool's thread count and names scratch memory; 0 is the caller. */
typedef void kvt_ref_unit_fn(void *ctx, uint32_t unit, uint32_t worker);

/* threads >= 1 counts the caller. NOMEM. May block. */
kvt_status kvt_ref_pool_open(uint32_t threads, struct kvt_ref_pool **out_pool) KVT_MUST_CHECK;
/* NULL is a no-op. */
void kvt_ref_pool_close(struct kvt_ref_pool *);
uint32_t kvt_ref_pool_threads(const struct kvt_ref_pool *);
/* Runs fn for units 0 .. unit_count-1 and returns when all have run. */
void kvt_ref_pool_run(struct kvt_ref_pool *, kvt_ref_unit_fn *fn, void *ctx, uint32_t unit_count);

#endif
