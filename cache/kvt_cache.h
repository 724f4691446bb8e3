/*
 * kvt_cache.h - the cache as a library: what libkvtier offers to programs that link it.
 *
 * Engines use the plug-in ABI (kvt_engine.h); the plug-in, the tools and, later, the daemon use
 * this. One kvt_cache holds a radix tree, an hbm and a host tier, and the threads that move
 * pages. Several clients (engines) may share one.
 *
 * Invariants
 *   - A miss is a result, not an error. Whatever fails, a caller is never told that bytes are good
 *     that are not.
 *   - Handles (leases, bindings, jobs) carry generations: spent, guessed and foreign ones are
 *     refused with KVT_ERR_STALE and change nothing.
 *   - Outputs are written only on success.
 *
 * Life cycle: create -> client_open -> bind -> lookup / restore / save / poll / report ... ->
 * quiesce -> unbind -> client_close -> destroy.
 *
 * Every function is [any-thread] and takes a lock of the cache; none waits for I/O or a device but
 * those that take a timeout, create, destroy, bind and unbind.
 *
 * Caveats
 *   - After fork() the child must not use a cache of its parent: calls answer KVT_ERR_PROCESS.
 *   - The host tier maps memory chunk by chunk up to its budget; before each, what is
 *     left in the machine and its cgroup is looked at, and it is claimed when mapped: too little
 *     is a logged error and fewer hits, not SIGBUS in the middle of a copy. A budget above what
 *     there is at all is refused.
 */
#ifndef KVT_CACHE_H
#define KVT_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "kvt_status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvt_cache;

/* Memory hooks: see kvt_cache_config. `bytes` is what was asked for. resize keeps the contents
 * and on NULL leaves the old block valid; it must be able to shrink. [any-thread] */
struct kvt_cache_memory {
    void *ctx;
    void *(*alloc)(void *ctx, size_t bytes);
    void *(*resize)(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes);
    void (*free)(void *ctx, void *ptr, size_t bytes);
};

#define KVT_CACHE_TIERS 3 /* 0 hbm, 1 host, 2 nvme */
#define KVT_CACHE_MISS_REASONS 9

/* Named limits and their defaults (0 in the config means the default). */
#define KVT_PAGE_TOKENS_DEFAULT 16u
#define KVT_PAGE_TOKENS_MAX 4096u
#define KVT_PAGES_MAX_DEFAULT (1u << 26)
#define KVT_LEASES_MAX_DEFAULT 4096u
#define KVT_JOBS_MAX_DEFAULT 1024u
#define KVT_REQUESTS_MAX_DEFAULT 16384u
#define KVT_GHOSTS_MAX_DEFAULT (1u << 18)
#define KVT_LEASE_TTL_NS_DEFAULT UINT64_C(60000000000)
#define KVT_REQUEST_TTL_NS_DEFAULT UINT64_C(600000000000)
#define KVT_BINDINGS_MAX 64u
#define KVT_CLIENTS_MAX 64u
#define KVT_CACHE_FIELDS_MAX 64u
#define KVT_CACHE_FIELD_BYTES_MAX 4096u
#define KVT_TOKENS_MAX (UINT64_C(1) << 24)
#define KVT_CACHE_REGIONS_MAX 4096u
#define KVT_EXTRAS_MAX 65536u
#define KVT_CACHE_STORES_MAX 8u
#define KVT_CACHE_STORE_BYTES_MIN (UINT64_C(8) << 20)
#define KVT_CACHE_READ_LATE_NS_DEFAULT UINT64_C(5000000000)

/* One folder of the nvme tier, for one drive. It is made, for its owner alone, when it is missing;
 * bytes is all that it may take there, catalog included. */
struct kvt_cache_store {
    const char *folder;
    uint64_t bytes;
};

struct kvt_cache_config {
    uint32_t page_tokens; /* tokens of a page */
    uint32_t pages_max, leases_max, jobs_max, requests_max, ghosts_max;
    uint64_t hbm_bytes, host_bytes; /* budgets; 0: no such tier; not both 0 */
    uint64_t lease_ttl_ns;          /* an unused lease is taken back after this */
    uint64_t request_ttl_ns;        /* a request that nobody reports is given up after this */
    const char *evict_policy;       /* NULL: "lru" */
    /* Borrowed until destroy; NULL: libc. The index's memory apart, so that it can be counted. */
    const struct kvt_cache_memory *memory;
    const struct kvt_cache_memory *index_memory;
    void (*log)(void *ctx, int32_t level, const char *line); /* NULL: silent. [any-thread] */
    void *log_ctx;
    uint64_t (*now_ns)(void *ctx); /* NULL: CLOCK_MONOTONIC. [any-thread] */
    void *now_ctx;
    /* nvme: what was saved is found again after a restart, a crash, a power cut. Needs a host tier.
     * The first folder holds the catalog of all, which a process of its own, kvtier-catalog, keeps.
     * */
    const struct kvt_cache_store *stores; /* [store_count]; borrowed for the call */
    uint32_t store_count;                 /* 0: no such tier */
    uint32_t nvme_flags;                  /* KVT_CACHE_NVME_x */
    const char *admit_policy;             /* who may go there; NULL: "through" */
    const char *catalog_program;          /* path of kvtier-catalog; NULL: looked for */
    uint64_t read_late_ns;                /* a read that takes longer is given up; 0: default */
    uint64_t write_bytes_per_day;         /* wear budget; 0: none */
};
#define KVT_CACHE_NVME_OPTIONAL                                                                    \
    1u                            /* a store that cannot be opened is a warning, and no such tier */
#define KVT_CACHE_NVME_THREADS 2u /* never io_uring */
#define KVT_CACHE_NVME_BUFFERED 4u /* through the page cache: for tests */

/* On failure `why` holds one sentence that names what was wrong and what to do. INVAL, NOMEM.
 * May block. */
kvt_status kvt_cache_create(const struct kvt_cache_config *config, struct kvt_cache **out_cache,
                            char *why, size_t why_bytes) KVT_MUST_CHECK;
/* BUSY (and nothing is freed) while jobs run or bindings or streams are left: quiesce and unbind
 * before. May block. NULL is a no-op. */
kvt_status kvt_cache_destroy(struct kvt_cache *cache) KVT_MUST_CHECK;

/* ---- clients and namespaces ---- */

/* One tagged field of a namespace; tags as KVT_FIELD_x of kvt_engine.h. */
struct kvt_cache_field {
    uint32_t tag;
    uint32_t reserved0;
    const void *data;
    uint64_t bytes;
};

/*
 * A client: a lease owner with a base namespace of the tenant, the page size and these fields, of
 * which those of `required` tags must be there. Fields are copied. INVAL (with `why`), NOMEM,
 * LIMIT.
 */
kvt_status kvt_cache_client_open(struct kvt_cache *cache, const char *tenant, size_t tenant_bytes,
                                 const struct kvt_cache_field *fields, size_t field_count,
                                 const uint32_t *required, size_t required_count,
                                 uint32_t *out_client, char *why, size_t why_bytes) KVT_MUST_CHECK;
/* Takes back its leases, requests and finished jobs. STALE. */
kvt_status kvt_cache_client_close(struct kvt_cache *cache, uint32_t client) KVT_MUST_CHECK;

/* What this client computes a prompt at, tokens a second, so that the cache knows when loading from
 * a drive does not pay. 0: not known, everything is loaded. STALE. */
kvt_status kvt_cache_client_prefill(struct kvt_cache *cache, uint32_t client, uint64_t tokens_per_s)
    KVT_MUST_CHECK;

/* ---- engine memory ---- */

struct kvt_cache_region {
    void *base;
    uint64_t block_bytes;
    uint64_t stride_bytes;
};

/* Declare paged KV memory: block b of region r lies at base + b * stride_bytes. block_tokens
 * divides page_tokens. The memory stays the caller's. INVAL (with `why`), NOMEM, LIMIT. May
 * block. */
kvt_status kvt_cache_bind(struct kvt_cache *cache, uint32_t client,
                          const struct kvt_cache_region *regions, size_t region_count,
                          uint32_t block_tokens, uint64_t block_count, uint64_t *out_binding,
                          char *why, size_t why_bytes) KVT_MUST_CHECK;
/* BUSY while jobs use it; STALE. May block. */
kvt_status kvt_cache_unbind(struct kvt_cache *cache, uint32_t client, uint64_t binding)
    KVT_MUST_CHECK;

/* ---- lookup ---- */

/* The digest of an input (image) that starts at a token. */
struct kvt_cache_extra {
    uint64_t token_index;
    unsigned char digest[32];
};

struct kvt_cache_lookup {
    uint32_t client;
    uint32_t reserved0;
    uint64_t request_id; /* 0: not accounted */
    const uint32_t *tokens;
    uint64_t token_count; /* 1 .. KVT_TOKENS_MAX */
    uint64_t own_tokens;
    const struct kvt_cache_field *fields; /* narrow the client's namespace */
    size_t field_count;
    const struct kvt_cache_extra *extras; /* rising token_index */
    size_t extra_count;
};

struct kvt_cache_found {
    uint64_t lease; /* 0: nothing that the engine does not hold itself */
    uint64_t matched_tokens;
    uint64_t tier_tokens[KVT_CACHE_TIERS];
};

/* The longest known prefix, at most token_count - 1 tokens, leased. The same request id with the
 * same tokens answers the same lease. Allocates nothing where fields is empty. INVAL, STALE
 * (client), AGAIN (every lease is in use), PROCESS. */
kvt_status kvt_cache_lookup(struct kvt_cache *cache, const struct kvt_cache_lookup *lookup,
                            struct kvt_cache_found *out_found) KVT_MUST_CHECK;
/* STALE. */
kvt_status kvt_cache_release(struct kvt_cache *cache, uint32_t client, uint64_t lease)
    KVT_MUST_CHECK;
/* KVT_OK while this client holds the lease, STALE otherwise. */
kvt_status kvt_cache_lease_check(struct kvt_cache *cache, uint32_t client, uint64_t lease)
    KVT_MUST_CHECK;
/* Begin to bring up what a lease has on nvme, before a restore asks for it. STALE, AGAIN, NOMEM. */
kvt_status kvt_cache_prefetch(struct kvt_cache *cache, uint32_t client, uint64_t lease)
    KVT_MUST_CHECK;
/* Close a request's account and release its lease. Poll its restores before: what
 * ends later is in no account. STALE, INVAL. */
kvt_status kvt_cache_report(struct kvt_cache *cache, uint32_t client, uint64_t request_id,
                            uint64_t prompt_tokens, uint64_t own_tokens, uint64_t computed_tokens)
    KVT_MUST_CHECK;

/* ---- moving ---- */

struct kvt_cache_restore {
    uint32_t client;
    uint32_t detached; /* 1: nobody polls */
    uint64_t lease, binding;
    uint64_t first_token, token_count; /* multiples of page_tokens, within the lease */
    const uint32_t *blocks;            /* [block_count], copied */
    size_t block_count;                /* token_count / block_tokens */
    void *stream;                      /* copies start behind its work */
};

struct kvt_cache_save {
    uint32_t client;
    uint32_t detached;
    uint64_t binding;
    const uint32_t *tokens; /* from the start of the prompt; copied */
    uint64_t token_count;   /* rounded down to whole pages */
    const uint32_t *blocks; /* [block_count] from the start of the prompt; copied */
    size_t block_count;
    uint64_t valid_from_token; /* blocks of tokens before are not read */
    const struct kvt_cache_field *fields;
    size_t field_count;
    const struct kvt_cache_extra *extras;
    size_t extra_count;
    void *stream; /* the bytes are produced by its work so far */
};

struct kvt_cache_result {
    uint32_t done;
    kvt_status status;
    uint64_t tokens_good; /* see kvt_job_result of kvt_engine.h */
    uint64_t tier_tokens[KVT_CACHE_TIERS];
    uint64_t bytes_moved;
};

/* out_job may be NULL when detached. INVAL, STALE, AGAIN, NOMEM, DEVICE, PROCESS; and a save LIMIT,
 * where its fields name a namespace and no more can be had. */
kvt_status kvt_cache_restore(struct kvt_cache *cache, const struct kvt_cache_restore *restore,
                             uint64_t *out_job) KVT_MUST_CHECK;
kvt_status kvt_cache_save(struct kvt_cache *cache, const struct kvt_cache_save *save,
                          uint64_t *out_job) KVT_MUST_CHECK;
/* Waits at most timeout_ns. A handle is spent once `done` was told. STALE. */
kvt_status kvt_cache_poll(struct kvt_cache *cache, uint32_t client, uint64_t job,
                          uint64_t timeout_ns, struct kvt_cache_result *out_result) KVT_MUST_CHECK;
kvt_status kvt_cache_wait_region(struct kvt_cache *cache, uint32_t client, uint64_t job,
                                 uint32_t region, void *stream) KVT_MUST_CHECK;
kvt_status kvt_cache_cancel(struct kvt_cache *cache, uint32_t client, uint64_t job) KVT_MUST_CHECK;
/* Wait for the saves submitted so far, and, with an nvme tier, until everything that is in memory
 * is there too, durably (whatever the admission policy says); IO when the drive takes no writes.
 * quiesce: wait for everything in flight. TIMEOUT. */
kvt_status kvt_cache_flush(struct kvt_cache *cache, uint64_t timeout_ns) KVT_MUST_CHECK;
kvt_status kvt_cache_quiesce(struct kvt_cache *cache, uint64_t timeout_ns) KVT_MUST_CHECK;

/* ---- streams of the CPU device (see kvt_cpu_stream_ext of kvt_engine.h) ---- */

kvt_status kvt_cache_stream_create(struct kvt_cache *cache, void **out_stream) KVT_MUST_CHECK;
void kvt_cache_stream_destroy(struct kvt_cache *cache, void *stream);
kvt_status kvt_cache_stream_enqueue(struct kvt_cache *cache, void *stream, void (*fn)(void *),
                                    void *arg) KVT_MUST_CHECK;
kvt_status kvt_cache_event_create(struct kvt_cache *cache, void **out_event) KVT_MUST_CHECK;
void kvt_cache_event_destroy(struct kvt_cache *cache, void *event);
kvt_status kvt_cache_event_record(struct kvt_cache *cache, void *event, void *stream)
    KVT_MUST_CHECK;
kvt_status kvt_cache_stream_wait(struct kvt_cache *cache, void *stream, void *event) KVT_MUST_CHECK;
kvt_status kvt_cache_stream_sync(struct kvt_cache *cache, void *stream, uint64_t timeout_ns)
    KVT_MUST_CHECK;
/* Tests only: kinds as KVT_FAULT_x of kvt_engine.h. INVAL. */
kvt_status kvt_cache_fault_set(struct kvt_cache *cache, uint32_t kind, uint64_t value)
    KVT_MUST_CHECK;

/* ---- what is visible ---- */

struct kvt_cache_stats {
    uint32_t page_tokens;
    uint32_t huge_pages;
    /* conservation: asked = own + delivered + computed, over reported requests */
    uint64_t requests_reported, requests_unreported, conservation_breaks;
    uint64_t tokens_asked, tokens_own, tokens_computed;
    uint64_t tokens_delivered[KVT_CACHE_TIERS];
    uint64_t missed_pages[KVT_CACHE_MISS_REASONS]; /* as KVT_MISS_x of kvt_engine.h */
    uint64_t evicted_short_bytes_max;
    uint64_t pages, pages_max, nodes, namespaces;
    uint64_t tier_pages[KVT_CACHE_TIERS];
    uint64_t tier_bytes_used[KVT_CACHE_TIERS];
    uint64_t tier_bytes_mapped[KVT_CACHE_TIERS];
    uint64_t tier_bytes_budget[KVT_CACHE_TIERS];
    uint64_t tier_slots_in_transfer[KVT_CACHE_TIERS];
    uint64_t index_bytes, index_token_bytes; /* asked of index_memory; tokens are part of it */
    uint64_t evicted_pages, demoted_pages, saved_pages, duplicate_pages;
    uint64_t restored_pages, restored_bytes, not_admitted_pages;
    uint64_t leases, leased_pages, lease_age_ns_max, leases_expired;
    uint64_t jobs_running, jobs_failed;
    uint64_t limit_leases_hit, limit_jobs_hit, limit_requests_hit, limit_pages_hit;
    uint64_t key_collisions;
    /* nvme */
    uint32_t nvme_state;        /* 0: no such tier; 1: works; 2: takes no writes; 3: off */
    uint32_t nvme_uring;        /* 1: io_uring, 0: threads */
    uint32_t nvme_direct;       /* 1: past the page cache */
    uint32_t nvme_spill_queue;  /* edges that wait to be written */
    uint64_t nvme_loaded_pages; /* known from the catalog at the start */
    uint64_t nvme_written_pages, nvme_written_bytes, nvme_write_failed_pages;
    uint64_t nvme_read_pages, nvme_read_bytes, nvme_read_failed_pages;
    uint64_t nvme_checksum_failures, nvme_read_errors, nvme_write_errors, nvme_reads_late;
    uint64_t nvme_slots_bad, nvme_lost_pages; /* set aside; in the tree with no place left */
    uint64_t nvme_budget_refusals;            /* writes put off by the wear budget */
    uint64_t nvme_damaged_records, nvme_orphans_dropped;
    uint64_t nvme_catalog_restarts;
    uint64_t nvme_read_bytes_per_s; /* as measured */
    uint64_t nvme_too_slow_pages;   /* found there, and left: computing is faster */
    uint64_t nvme_promoted_pages;
};
kvt_status kvt_cache_stats(struct kvt_cache *cache, struct kvt_cache_stats *out_stats)
    KVT_MUST_CHECK;
/* A slow walk over all structures, for tests and when nothing runs: KVT_OK, or CORRUPT with a
 * sentence that says what does not hold. */
kvt_status kvt_cache_check(struct kvt_cache *cache, char *why, size_t why_bytes) KVT_MUST_CHECK;

/* NULL-terminated lists of eviction policies, for help texts; summary NULL when unknown. */
const char *kvt_cache_policy_name(uint32_t index);
const char *kvt_cache_policy_summary(uint32_t index);
/* ... and of admission policies. */
const char *kvt_cache_admit_name(uint32_t index);
const char *kvt_cache_admit_summary(uint32_t index);
/* Tests only: what the drive does next. kind: KVT_CACHE_DRIVE_x. UNSUPPORTED without nvme. */
#define KVT_CACHE_DRIVE_READ_ERRNO 1u
#define KVT_CACHE_DRIVE_WRITE_ERRNO 2u
#define KVT_CACHE_DRIVE_FLUSH_ERRNO 3u
#define KVT_CACHE_DRIVE_FAIL_AFTER 4u
#define KVT_CACHE_DRIVE_SHORT_BYTES 5u
#define KVT_CACHE_DRIVE_DELAY_NS 6u
#define KVT_CACHE_DRIVE_REORDER 7u
#define KVT_CACHE_DRIVE_HOLD 8u
kvt_status kvt_cache_drive_fault(struct kvt_cache *cache, uint32_t kind, uint64_t value)
    KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
