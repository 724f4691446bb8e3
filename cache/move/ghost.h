/*
 * Ghosts: keys of pages that are not in the cache any more, or never got in, and why. They answer
 * "why was this a miss, and would more memory have helped?".
 *
 * A fixed table of buckets; the oldest of a bucket makes room. A ghost is a hint for statistics: it
 * is named by half a page key, and nothing is served because of it.
 *
 * Requires: KVT_RANK_CACHE held. Layer 4.
 */
#ifndef KVT_GHOST_H
#define KVT_GHOST_H

#include "cache/base/base.h"
#include "cache/index/key.h"

enum kvt_ghost_kind { KVT_GHOST_NONE, KVT_GHOST_EVICTED, KVT_GHOST_NOT_ADMITTED, KVT_GHOST_FAILED };

#define KVT_GHOSTS_PER_BUCKET 8u

struct kvt_ghosts {
    const struct kvt_memory *mem;
    struct kvt_ghost *ghosts; /* [bucket_count][KVT_GHOSTS_PER_BUCKET] */
    uint32_t bucket_count;    /* a power of two */
    uint64_t clock;           /* bytes that have left the cache so far */
};

kvt_status kvt_ghosts_init(struct kvt_ghosts *, const struct kvt_memory *mem, uint32_t ghosts_max)
    KVT_MUST_CHECK;
void kvt_ghosts_fini(struct kvt_ghosts *);
/* `bytes` left the cache with it (0 for pages that never got in). */
void kvt_ghosts_add(struct kvt_ghosts *, const struct kvt_key *, enum kvt_ghost_kind,
                    uint64_t bytes);
/* What is known of this page. For an evicted one *out_short_bytes is how many bytes have left
 * since: with so many more the page would still be there. */
enum kvt_ghost_kind kvt_ghosts_find(const struct kvt_ghosts *, const struct kvt_key *,
                                    uint64_t *out_short_bytes);

#endif
