/*
 * plan: decides. It holds the index, the tiers' slot tables, leases, requests and statistics under
 * one lock, turns what engines ask for into jobs for exec, and publishes what came out of them.
 *
 * Rules it keeps
 *   - A page becomes visible only when its bytes have landed (a save inserts at its end, F20).
 *   - A slot in transfer is not handed out again; leased and busy pages are not evicted.
 *   - A restore ends with the exact number of pages that are good, from the first on (F01, F08,
 * F09).
 *   - New pages go to hbm while it has room, else to host; when host has free room, the pages of
 *     hbm that were used longest ago move down; when both are full the worst leaves leave the
 *     cache.
 *
 * Layer 4. Every function takes KVT_RANK_CACHE itself.
 */
#ifndef KVT_PLAN_H
#define KVT_PLAN_H

#include "cache/base/base.h"
#include "cache/device/device.h"
#include "cache/index/index.h"
#include "cache/move/account.h"
#include "cache/move/exec.h"
#include "cache/tier/nvme.h"
#include "policies/admit.h"
#include "policies/policy.h"

/* Leases that saves take for themselves. Clients' numbers begin at 1. */
#define KVT_OWNER_INTERNAL 0u

struct kvt_plan_config {
    const struct kvt_memory *mem;       /* of everything but the index */
    const struct kvt_memory *index_mem; /* of the index */
    struct kvt_log log;
    struct kvt_clock clock;
    struct kvt_device *device; /* borrowed */
    uint32_t page_tokens;
    uint64_t hbm_bytes, host_bytes;
    uint32_t pages_max, leases_max, jobs_max, requests_max, ghosts_max;
    uint64_t lease_ttl_ns, request_ttl_ns;
    uint64_t seed;
    const struct kvt_evict_ops *evict;
    /* nvme; store_count 0: no such tier */
    const struct kvt_nvme_store *stores;
    uint32_t store_count;
    const struct kvt_admit_ops *admit;
    const char *catalog_program;
    uint64_t nvme_read_late_ns, nvme_write_bytes_per_day;
    bool nvme_threads_only, nvme_buffered;
};

struct kvt_plan;

/* `why` gets a sentence on failure. INVAL, NOMEM. May block. */
kvt_status kvt_plan_create(const struct kvt_plan_config *, struct kvt_plan **out_plan, char *why,
                           size_t why_bytes) KVT_MUST_CHECK;
/* Requires: kvt_plan_quiesce() answered OK, all bindings gone, nothing was submitted since. */
void kvt_plan_destroy(struct kvt_plan *);

/* ---- who asks ---- */

kvt_status kvt_plan_namespace(struct kvt_plan *, const void *canonical, size_t canonical_bytes,
                              uint64_t group, uint32_t *out_ns) KVT_MUST_CHECK;
/* The slot bytes of this namespace's pages, set by the first who says; INVAL when they differ. */
kvt_status kvt_plan_namespace_bytes(struct kvt_plan *, uint32_t ns, uint64_t slot_bytes)
    KVT_MUST_CHECK;
kvt_status kvt_plan_bind(struct kvt_plan *, const struct kvt_exec_region *regions,
                         uint32_t region_count, uint32_t block_tokens, uint64_t block_count,
                         struct kvt_binding **out_binding) KVT_MUST_CHECK;
/* BUSY while jobs use it. */
kvt_status kvt_plan_unbind(struct kvt_plan *, struct kvt_binding *) KVT_MUST_CHECK;
/* Take back leases, requests and finished jobs of a client that goes. */
void kvt_plan_drop_client(struct kvt_plan *, uint32_t client);

/* ---- lookup ---- */

struct kvt_plan_lookup {
    uint32_t client, ns;
    uint64_t request_id; /* 0: not accounted */
    const uint32_t *tokens;
    uint64_t token_count;
    uint64_t own_tokens;
    const struct kvt_extra *extras;
    uint32_t extra_count;
    uint64_t prefill_tokens_per_s; /* what computing runs at; 0: not known */
};

struct kvt_plan_found {
    uint64_t lease; /* 0: nothing that the engine does not hold itself */
    uint32_t pages;
    uint32_t tier_pages[KVT_TIERS];
};

/* AGAIN when every lease is in use. No-block. */
kvt_status kvt_plan_lookup(struct kvt_plan *, const struct kvt_plan_lookup *,
                           struct kvt_plan_found *out_found) KVT_MUST_CHECK;
kvt_status kvt_plan_release(struct kvt_plan *, uint32_t client, uint64_t lease) KVT_MUST_CHECK;
/* STALE when this client does not hold it. */
kvt_status kvt_plan_lease_check(struct kvt_plan *, uint32_t client, uint64_t lease) KVT_MUST_CHECK;
kvt_status kvt_plan_report(struct kvt_plan *, uint32_t client, uint64_t request_id,
                           uint64_t prompt_tokens, uint64_t own_tokens, uint64_t computed_tokens)
    KVT_MUST_CHECK;

/* ---- jobs ---- */

struct kvt_plan_restore {
    uint32_t client;
    bool detached;
    uint64_t lease;
    struct kvt_binding *binding;
    uint32_t first_page, page_count;
    const uint32_t *blocks; /* [page_count * blocks_per_page] */
    struct kvt_stream *after;
};

struct kvt_plan_save {
    uint32_t client, ns;
    bool detached;
    struct kvt_binding *binding;
    const uint32_t *tokens; /* from the start of the prompt */
    uint32_t pages;         /* whole pages of it */
    uint32_t valid_from_page;
    const uint32_t *blocks; /* [pages * blocks_per_page] */
    const struct kvt_extra *extras;
    uint32_t extra_count;
    struct kvt_stream *after;
};

struct kvt_plan_result {
    bool done;
    kvt_status status;
    uint64_t tokens_good;
    uint64_t tier_tokens[KVT_TIERS];
    uint64_t bytes_moved;
};

/* Arguments are copied. No-block. STALE, INVAL, AGAIN, NOMEM, DEVICE. */
kvt_status kvt_plan_restore(struct kvt_plan *, const struct kvt_plan_restore *, uint64_t *out_job)
    KVT_MUST_CHECK;
kvt_status kvt_plan_save(struct kvt_plan *, const struct kvt_plan_save *, uint64_t *out_job)
    KVT_MUST_CHECK;
/* A handle is spent once `done` was told. */
kvt_status kvt_plan_poll(struct kvt_plan *, uint32_t client, uint64_t job, uint64_t timeout_ns,
                         struct kvt_plan_result *out_result) KVT_MUST_CHECK;
kvt_status kvt_plan_wait_region(struct kvt_plan *, uint32_t client, uint64_t job, uint32_t region,
                                struct kvt_stream *stream) KVT_MUST_CHECK;
kvt_status kvt_plan_cancel(struct kvt_plan *, uint32_t client, uint64_t job) KVT_MUST_CHECK;
/* Bring up what a lease has on nvme, before it is asked for. STALE. No-block. */
kvt_status kvt_plan_prefetch(struct kvt_plan *, uint32_t client, uint64_t lease) KVT_MUST_CHECK;
/* Wait for the saves submitted so far, and until nvme has, durably, all that is in memory (IO where
 * it takes no writes); for everything. TIMEOUT. */
kvt_status kvt_plan_flush(struct kvt_plan *, uint64_t timeout_ns) KVT_MUST_CHECK;
kvt_status kvt_plan_quiesce(struct kvt_plan *, uint64_t timeout_ns) KVT_MUST_CHECK;

/* ---- what is visible ---- */

struct kvt_plan_stats {
    struct kvt_totals totals;
    struct kvt_index_stats index;
    struct kvt_lease_stats leases;
    struct kvt_slab_stats tiers[KVT_MEMORY_TIERS];
    struct kvt_nvme_stats nvme;
    uint64_t fetched_pages, fetch_failed_pages, promoted_pages; /* nvme to host */
    uint64_t spilled_pages, spill_failed_pages, spill_queue_full;
    uint64_t too_slow_pages; /* of lookups: nvme has them, computing is faster */
    uint64_t loaded_pages;   /* from the catalog, at the start */
    uint32_t spill_queue;
    bool nvme_there;
    uint64_t now_ns;
    uint64_t evicted_short_bytes_max;
    uint64_t demoted_pages, saved_pages, duplicate_pages, restored_pages, restored_bytes;
    uint64_t not_admitted_pages;
    uint64_t leases_expired, jobs_running, jobs_failed;
    uint64_t limit_leases_hit, limit_jobs_hit, limit_requests_hit, limit_pages_hit;
    bool huge_pages;
};
/* Of the drives' queue; NULL without nvme. Tests only. */
struct kvt_io_faults *kvt_plan_drive_faults(struct kvt_plan *);
void kvt_plan_stats(struct kvt_plan *, struct kvt_plan_stats *out_stats);
/* kvt_index_check() and the slabs' counts against the index's. For tests, when quiet. */
bool kvt_plan_check(struct kvt_plan *, char *why, size_t why_bytes);

#endif
