/*
 * kvt_engine.h - the contract between an inference engine and a kvtier plug-in, version 0.
 *
 * A plug-in is a shared library that exports exactly one symbol, `kvt_plugin_entry_v0`: constant
 * data, a table of functions. Everything else goes through that table. Plain C, usable from C++ and
 * by any language with a C foreign-function interface. ABI.md says what may change and how.
 *
 * The rule above all others: a cache may always answer "miss". Whatever fails below this line, the
 * engine computes; it never gets wrong bytes, and it never waits without a deadline.
 *
 * Invariants
 *   - Every struct starts with `struct_size`, set by whoever fills it (KVT_x_INIT does it).
 *     There is no implicit padding; holes are named and zero. Structs grow at the end, in 8-byte
 *     units.
 *   - What a caller passes is borrowed for the call; what must live longer says so. Handles are
 *     64-bit numbers with a generation inside: a spent, guessed or foreign one is refused with
 *     KVT_ERR_STALE and changes nothing.
 *   - Streams are `void *`: of the CPU device from the extension `kvt.cpu_stream/1`, of CUDA a
 *     CUstream.
 *   - Outputs are written only on success.
 *
 * Life cycle (per engine)
 *
 *     open --> [lookup, release, report, poll ...] --> quiesce (KVT_OK) --> close
 *      |                                                  ^
 *      +--> bind --> [restore, save, wait_region ...] -> unbind
 *
 *   close() is legal only after quiesce() returned KVT_OK and nothing was submitted since.
 *
 * Thread tags: [any-thread] may be called from several threads at once; [init] from one thread, not
 * beside other calls on this engine. `no-block` never waits for I/O, a device or another engine;
 * `may-block` waits at most for the deadline given.
 */
#ifndef KVT_ENGINE_H
#define KVT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "kvt_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_ABI_MAJOR 0
#define KVT_ABI_MINOR 1
#define KVT_PLUGIN_ENTRY_NAME "kvt_plugin_entry_v0"

/* True when the struct that `p` points to is long enough to hold `field`. */
#define KVT_HAS(type, p, field) ((p)->struct_size >= offsetof(type, field) + sizeof((p)->field))

/* ---- capabilities ----
 * Offered bits that a side does not know are ignored; required bits that it does not know or offer
 * make open() fail with KVT_ERR_UNSUPPORTED, naming the bit. */
#define KVT_CAP_CPU_DEVICE (UINT64_C(1) << 0)  /* binds engine memory of the CPU */
#define KVT_CAP_CUDA_DEVICE (UINT64_C(1) << 1) /* binds engine memory of CUDA devices */
#define KVT_CAP_REGION_WAIT (UINT64_C(1) << 2) /* wait_region() waits for one region only */
#define KVT_CAP_EXTRA_KEYS (UINT64_C(1) << 3)  /* lookups and saves may carry extra keys */
#define KVT_CAP_HBM_TIER (UINT64_C(1) << 4)
#define KVT_CAP_HOST_TIER (UINT64_C(1) << 5)
#define KVT_CAP_NVME_TIER (UINT64_C(1) << 6)
#define KVT_CAP_MULTI_RANK (UINT64_C(1) << 7) /* groups of more than one rank */

#define KVT_TIER_HBM 0
#define KVT_TIER_HOST 1
#define KVT_TIER_NVME 2
#define KVT_TIER_COUNT 4 /* the fourth is reserved for a remote tier */

typedef struct kvt_engine kvt_engine; /* opaque; owned by the plug-in from open to close */

/* ---- what the host gives ---- */

typedef struct kvt_host {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t caps_offered;
    uint64_t caps_required; /* of the plug-in */
    void *ctx;
    /* log, alloc, free and now_ns are called from any thread, the plug-in's own too, and must not
     * call back into the plug-in: alloc, free and now_ns run while it holds locks. */
    /* Optional. One line, UTF-8, not terminated; level 1 error .. 4 debug. No lock is held. */
    void (*log)(void *ctx, int32_t level, const char *line, uint64_t line_bytes);
    /* Optional, both or none: memory for everything but page pools. */
    void *(*alloc)(void *ctx, uint64_t bytes);
    void (*free)(void *ctx, void *ptr, uint64_t bytes);
    /* Optional: a monotonic clock in ns, for tests that drive time by hand. */
    uint64_t (*now_ns)(void *ctx);
    /* Optional: extensions of the host by name; NULL when unknown. */
    const void *(*get_extension)(void *ctx, const char *id);
} kvt_host;
/* clang-format off */
#define KVT_HOST_INIT {(uint32_t)sizeof(kvt_host), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL}
/* clang-format on */

/* ---- namespaces ----
 * Everything that makes KV bytes interchangeable, as tagged fields. Absent differs from empty. What
 * cannot be named must not be cached: the four REQUIRED tags have no default. Each tag at most once
 * per list; order does not matter. */
#define KVT_FIELD_WEIGHTS 1u      /* REQUIRED: digest of the weights, at least 16 bytes */
#define KVT_FIELD_KV_DTYPE 2u     /* REQUIRED: e.g. "f32", "bf16", "q8_0/q4_0" */
#define KVT_FIELD_ROPE 3u         /* REQUIRED: all position-encoding values, or empty for none */
#define KVT_FIELD_LAYOUT 4u       /* REQUIRED: fingerprint of the page's byte layout */
#define KVT_FIELD_EPOCH 5u        /* bumped when weights change in place */
#define KVT_FIELD_ENGINE_BUILD 6u /* engine and version; kernels that round otherwise differ */
#define KVT_FIELD_WINDOW 7u       /* sliding window */
#define KVT_FIELD_ADAPTER 8u      /* digest of the adapter's bytes and its scale */
#define KVT_FIELD_SALT 9u         /* narrows within a tenant */
#define KVT_FIELD_TOKENIZER 10u
#define KVT_FIELD_CUSTOM_FIRST 1024u /* free for engines */

typedef struct kvt_field {
    uint32_t tag;
    uint32_t reserved0;
    const void *data; /* may be NULL when bytes is 0 */
    uint64_t bytes;   /* at most KVT_FIELD_BYTES_MAX */
} kvt_field;
#define KVT_FIELD_BYTES_MAX 4096u
#define KVT_FIELDS_MAX 64u

/* An extra key at a token position: the digest of the image (or other input) that starts there. */
typedef struct kvt_extra_key {
    uint64_t token_index;
    uint8_t digest[32]; /* cryptographic, compared whole */
} kvt_extra_key;

/* ---- opening ---- */

#define KVT_ROLE_SCHEDULER 1u /* looks up, releases, reports */
#define KVT_ROLE_RANK 2u      /* binds, restores, saves */
#define KVT_ROLE_BOTH 3u

#define KVT_OPEN_MAGIC 0x4b565430u /* "KVT0" */

typedef struct kvt_open_config {
    uint32_t struct_size;
    uint32_t magic;  /* KVT_OPEN_MAGIC: catches structs that nobody initialised */
    const char *uri; /* "embedded:" ; NULL with 0 bytes means the same */
    uint64_t uri_bytes;
    uint32_t role;        /* KVT_ROLE_x */
    uint32_t page_tokens; /* 0: 16; a multiple of every binding's block_tokens */
    uint32_t group_ranks; /* ranks of the engine group; 0: 1 */
    uint32_t rank;        /* of this process, below group_ranks */
    const kvt_field *fields;
    uint64_t field_count;
    const char *tenant; /* of an embedded cache; a service takes the connection's */
    uint64_t tenant_bytes;
    uint64_t hbm_bytes;       /* budgets of an embedded cache's tiers; 0: no such tier */
    uint64_t host_bytes;      /* at least one of the two must hold a page */
    uint64_t lease_ttl_ns;    /* an unused lease expires after this; 0: 60 s */
    const char *evict_policy; /* NULL with 0 bytes: "lru" */
    uint64_t evict_policy_bytes;
    uint64_t flags; /* KVT_OPEN_x; unknown bits are refused */
    /* The nvme tier of an embedded cache: "FOLDER:SIZE", several (one a drive) separated by ';'.
     * SIZE takes K, M, G, T. A folder is made, for its owner alone, when it is missing. NULL with 0
     * bytes: no such tier. Needs a host tier, and the program kvtier-catalog. */
    const char *nvme;
    uint64_t nvme_bytes;
    const char *admit_policy; /* who goes to nvme; NULL with 0 bytes: "through" */
    uint64_t admit_policy_bytes;
    uint64_t nvme_write_bytes_per_day; /* wear budget; 0: none */
} kvt_open_config;
/* A store that cannot be opened is a warning, and the cache does without it. */
#define KVT_OPEN_NVME_OPTIONAL (UINT64_C(1) << 0)
/* clang-format off */
#define KVT_OPEN_CONFIG_INIT                                                                      \
    {(uint32_t)sizeof(kvt_open_config), KVT_OPEN_MAGIC, NULL, 0, KVT_ROLE_BOTH, 0, 1, 0, NULL, 0, \
     NULL, 0, 0, 0, 0, NULL, 0, 0, NULL, 0, NULL, 0, 0}
/* clang-format on */

/* ---- binding: where a rank's KV lives ---- */

#define KVT_MEMORY_CPU 0u
#define KVT_MEMORY_CUDA 1u

/* One contiguous family of KV blocks: block b lies at base + b * stride_bytes. The bytes are opaque
 * and moved as they are. */
typedef struct kvt_region {
    uint32_t struct_size;
    uint32_t memory_kind; /* KVT_MEMORY_x */
    uint64_t base;        /* address; stays valid until unbind */
    uint64_t block_bytes;
    uint64_t stride_bytes; /* >= block_bytes */
    uint32_t group;        /* layers with the same retention share one; 0 */
    uint32_t reserved0;
} kvt_region;
#define KVT_REGIONS_MAX 4096u

typedef struct kvt_layout {
    uint32_t struct_size;
    uint32_t device_kind; /* KVT_MEMORY_x of the device */
    int32_t device_ordinal;
    uint32_t block_tokens;     /* tokens of one engine block; divides page_tokens */
    uint64_t block_count;      /* block ids are below this */
    const kvt_region *regions; /* in the order in which layers run */
    uint64_t region_count;
} kvt_layout;
/* clang-format off */
#define KVT_LAYOUT_INIT {(uint32_t)sizeof(kvt_layout), KVT_MEMORY_CPU, 0, 0, 0, NULL, 0}
/* clang-format on */

/* ---- lookup and leases ---- */

#define KVT_ANSWER_MISS 0u
#define KVT_ANSWER_HIT 1u
#define KVT_ANSWER_AGAIN 2u /* not known yet: ask again with the same request id */

#define KVT_PROMPT_TOKENS_MAX (UINT64_C(1) << 24)

typedef struct kvt_lookup {
    uint32_t struct_size;
    uint32_t reserved0;
    /* The engine's name for the request, at most one prompt at a time; 0: anonymous, not accounted.
     * The same id with the same tokens answers the same lease, however often it is asked. With
     * other tokens the id's former lease ends and a new one is given. */
    uint64_t request_id;
    const uint32_t *tokens;  /* [token_count] the whole prompt */
    uint64_t token_count;    /* 1 .. KVT_PROMPT_TOKENS_MAX */
    uint64_t own_tokens;     /* how many the engine holds itself; they need no restore */
    const kvt_field *fields; /* narrow the namespace: adapter, salt */
    uint64_t field_count;
    const kvt_extra_key *extras; /* rising token_index */
    uint64_t extra_count;
} kvt_lookup;
/* clang-format off */
#define KVT_LOOKUP_INIT {(uint32_t)sizeof(kvt_lookup), 0, 0, NULL, 0, 0, NULL, 0, NULL, 0}
/* clang-format on */

typedef struct kvt_lookup_result {
    uint32_t struct_size;
    uint32_t answer; /* KVT_ANSWER_x */
    uint64_t lease;  /* 0 unless HIT */
    /* Tokens from the start that the lease covers: whole pages, at most token_count - 1 (the last
     * token must be computed for its logits). */
    uint64_t matched_tokens;
    uint64_t tier_tokens[KVT_TIER_COUNT]; /* of them, by the cheapest tier that has them now */
} kvt_lookup_result;
/* clang-format off */
#define KVT_LOOKUP_RESULT_INIT {(uint32_t)sizeof(kvt_lookup_result), 0, 0, 0, {0, 0, 0, 0}}
/* clang-format on */

/* A lease in a form that can travel to another process of the engine group. */
typedef struct kvt_lease_token {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t words[4];
} kvt_lease_token;

/* ---- moving ---- */

/* The job needs no poll: it ends by itself, and its outcome is seen in the statistics only. */
#define KVT_JOB_DETACHED (1u << 0)

typedef struct kvt_restore {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t binding;
    uint64_t lease;       /* stays valid while the job runs, also after release() */
    uint64_t first_token; /* multiple of page_tokens */
    uint64_t token_count; /* multiple of page_tokens; first_token + token_count <= matched_tokens */
    const uint32_t *blocks; /* [block_count] engine blocks of the tokens, in order; copied */
    uint64_t block_count;   /* token_count / block_tokens */
    /* The copies start after all work enqueued on this stream so far. Required. */
    void *stream;
} kvt_restore;
/* clang-format off */
#define KVT_RESTORE_INIT {(uint32_t)sizeof(kvt_restore), 0, 0, 0, 0, 0, NULL, 0, NULL}
/* clang-format on */

typedef struct kvt_save {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t binding;
    uint64_t request_id;    /* 0: anonymous */
    const uint32_t *tokens; /* [token_count] from the start of the prompt; copied */
    uint64_t token_count;   /* rounded down to whole pages */
    const uint32_t *blocks; /* [block_count] engine blocks from the start of the prompt; copied */
    uint64_t block_count;   /* >= token_count / block_tokens, rounded down to whole pages */
    /* KV of tokens from here on is in the blocks (blocks before are not read); 0: all of it. */
    uint64_t valid_from_token;
    const kvt_field *fields;
    uint64_t field_count;
    const kvt_extra_key *extras;
    uint64_t extra_count;
    /* The stream that produces the bytes: what is enqueued on it so far runs first. Required. The
     * blocks must not be overwritten before the job ends, or before wait_region() on every region
     * has been enqueued on the stream that overwrites them. */
    void *stream;
} kvt_save;
/* clang-format off */
#define KVT_SAVE_INIT                                                                             \
    {(uint32_t)sizeof(kvt_save), 0, 0, 0, NULL, 0, NULL, 0, 0, NULL, 0, NULL, 0, NULL}
/* clang-format on */

#define KVT_JOB_RUNNING 0u
#define KVT_JOB_DONE 1u

typedef struct kvt_job_result {
    uint32_t struct_size;
    uint32_t state;
    kvt_status status; /* of a job that is done: KVT_OK, or why it stopped short */
    uint32_t reserved0;
    /* Restore: the tokens from the job's first_token on that are good in the engine's memory; the
     * engine computes the rest. Save: the tokens from the start of the prompt that the cache holds
     * because of this job or already held. */
    uint64_t tokens_good;
    uint64_t tier_tokens[KVT_TIER_COUNT]; /* restore: of tokens_good, by tier they came from */
    uint64_t bytes_moved;
} kvt_job_result;
/* clang-format off */
#define KVT_JOB_RESULT_INIT {(uint32_t)sizeof(kvt_job_result), 0, 0, 0, 0, {0, 0, 0, 0}, 0}
/* clang-format on */

/* ---- reporting ---- */

typedef struct kvt_report {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t request_id;
    uint64_t prompt_tokens;   /* as asked for in lookup */
    uint64_t own_tokens;      /* taken from the engine's own cache */
    uint64_t computed_tokens; /* prompt tokens that the engine really computed, the first time */
} kvt_report;
/* clang-format off */
#define KVT_REPORT_INIT {(uint32_t)sizeof(kvt_report), 0, 0, 0, 0, 0}
/* clang-format on */

/* Why a page was not delivered; every missed page has exactly one reason. */
#define KVT_MISS_NEVER_SEEN 0
#define KVT_MISS_EVICTED 1
#define KVT_MISS_NOT_ADMITTED 2
#define KVT_MISS_DIVERGED 3
#define KVT_MISS_OTHER_NAMESPACE 4
#define KVT_MISS_IN_FLIGHT 5
#define KVT_MISS_TOO_SLOW 6 /* matched, but loading would not have paid */
#define KVT_MISS_FAILED 7   /* matched, but the transfer failed or was cancelled */
#define KVT_MISS_DECLINED 8 /* matched, but the engine did not restore it */
#define KVT_MISS_REASON_COUNT 12

typedef struct kvt_stats {
    uint32_t struct_size;
    uint32_t page_tokens;
    /* conservation: asked = own + delivered by tier + computed, over reported requests */
    uint64_t requests_reported;
    uint64_t requests_unreported; /* looked up, never reported, given up */
    uint64_t conservation_breaks; /* reported requests whose numbers do not add up */
    uint64_t tokens_asked;
    uint64_t tokens_own;
    uint64_t tokens_computed;
    uint64_t tokens_delivered[KVT_TIER_COUNT];
    uint64_t missed_pages[KVT_MISS_REASON_COUNT];
    uint64_t evicted_short_bytes_max; /* most bytes that one evicted page lacked to be kept */
    /* pages and bytes */
    uint64_t pages;
    uint64_t tier_pages[KVT_TIER_COUNT];
    uint64_t tier_bytes_used[KVT_TIER_COUNT];
    uint64_t tier_bytes_mapped[KVT_TIER_COUNT];
    uint64_t tier_bytes_budget[KVT_TIER_COUNT];
    uint64_t index_bytes;
    uint64_t evicted_pages; /* left the cache altogether */
    uint64_t demoted_pages; /* moved to a lower tier */
    uint64_t saved_pages;
    uint64_t duplicate_pages; /* saved twice at the same time; one copy kept */
    uint64_t restored_pages;
    uint64_t restored_bytes;
    uint64_t not_admitted_pages;
    /* handles now in use, and how often a limit was hit */
    uint64_t leases;
    uint64_t leased_pages;
    uint64_t lease_age_ns_max;
    uint64_t leases_expired;
    uint64_t jobs_running;
    uint64_t jobs_failed;
    uint64_t limit_leases_hit;
    uint64_t limit_jobs_hit;
    uint64_t limit_requests_hit;
    uint64_t limit_pages_hit;
    uint64_t key_collisions; /* hash said yes, tokens said no */
    uint64_t huge_pages;     /* 1: the host arena lies in huge pages */
    /* nvme */
    uint64_t nvme_state;        /* 0: no such tier; 1: works; 2: takes no writes; 3: off */
    uint64_t nvme_loaded_pages; /* known from an earlier run */
    uint64_t nvme_written_bytes;
    uint64_t nvme_read_bytes;
    uint64_t nvme_checksum_failures; /* content that was wrong: missed, never delivered */
    uint64_t nvme_errors;            /* reads and writes that the drive refused or did not end */
    uint64_t nvme_too_slow_pages;    /* found there, and left: computing is faster */
} kvt_stats;
/* Filled to the caller's struct_size; fields that the plug-in does not know are zero. */

/* ---- hints ---- */

/* data: a uint64_t, what this engine computes a prompt at now, in tokens a second (0: not known).
 * The cache then leaves on a drive what is computed faster than it is loaded. */
#define KVT_HINT_PREFILL_RATE 1u
/* data: a uint64_t, a lease: its pages will be restored soon, bring them up from the drive. */
#define KVT_HINT_PREFETCH 2u

/* ---- the table ---- */

typedef struct kvt_plugin_entry {
    uint32_t struct_size;
    uint32_t abi_minor; /* informative: presence is decided by struct_size */
    uint64_t caps_offered;
    uint64_t caps_required; /* of the host */

    /*
     * Open one engine (or one process of an engine group).
     * host, config     borrowed; host functions and ctx must live until close()
     * why, why_bytes   on failure gets a terminated sentence that names what was wrong and what to
     *                  do; may be NULL with 0
     * [init] may-block. Errors: INVAL, UNSUPPORTED (a required capability, flag or uri), VERSION,
     * NOMEM, LIMIT.                                                                  Since 0.1
     */
    kvt_status (*open)(const kvt_host *host, const kvt_open_config *config, kvt_engine **out_engine,
                       char *why, uint64_t why_bytes);
    /* Free everything. Requires: quiesce() answered KVT_OK and nothing was submitted since;
     * otherwise it answers KVT_ERR_BUSY and frees nothing. [init] may-block.        Since 0.1 */
    kvt_status (*close)(kvt_engine *);
    /*
     * Declare the engine's KV memory. layout is copied; the memory stays the engine's and must stay
     * mapped until unbind(). Errors: INVAL (a layout that cannot be, or another page size than
     * earlier bindings of this namespace), UNSUPPORTED (device kind), NOMEM, LIMIT.
     * [any-thread] may-block.                                                       Since 0.1
     */
    kvt_status (*bind)(kvt_engine *, const kvt_layout *layout, uint64_t *out_binding, char *why,
                       uint64_t why_bytes);
    /* BUSY while jobs use it; waits for its streams to end. [any-thread] may-block. Since 0.1 */
    kvt_status (*unbind)(kvt_engine *, uint64_t binding);
    /*
     * How much of this prompt is known? On HIT the result carries a lease: the pages stay until
     * release(), until its time to live passes unused, or until this engine is closed.
     * A miss is KVT_OK. [any-thread] no-block. Errors: INVAL, AGAIN (a pool is full; treat as a
     * miss or ask again).                                                           Since 0.1
     */
    kvt_status (*lookup)(kvt_engine *, const kvt_lookup *, kvt_lookup_result *out_result);
    /* Give a lease back; jobs that use it keep what they need. STALE when it is not one of this
     * engine group's. [any-thread] no-block.                                        Since 0.1 */
    kvt_status (*release)(kvt_engine *, uint64_t lease);
    /* A lease to hand to another process of the group, and back. STALE. [any-thread]  Since 0.1 */
    kvt_status (*lease_export)(kvt_engine *, uint64_t lease, kvt_lease_token *out_token);
    kvt_status (*lease_import)(kvt_engine *, const kvt_lease_token *, uint64_t *out_lease);
    /*
     * Start copying leased pages into engine blocks; ordered behind `stream`. Until the job is done
     * the blocks hold nothing that may be used, but for regions waited for.
     * out_job may be NULL with KVT_JOB_DETACHED only. [any-thread] no-block.
     * Errors: INVAL, STALE (lease or binding), AGAIN (jobs), NOMEM, DEVICE.         Since 0.1
     */
    kvt_status (*restore)(kvt_engine *, const kvt_restore *, uint64_t *out_job);
    /* Start saving the whole pages of a prompt prefix; what the cache already has is not copied.
     * Errors as restore, and LIMIT (its fields name one more namespace than there can be).
     * [any-thread] no-block.                                                        Since 0.1 */
    kvt_status (*save)(kvt_engine *, const kvt_save *, uint64_t *out_job);
    /*
     * Ask for a job's outcome, waiting at most timeout_ns. KVT_OK with state RUNNING or DONE; a
     * handle is spent once DONE was reported. STALE. [any-thread] may-block.        Since 0.1
     */
    kvt_status (*poll)(kvt_engine *, uint64_t job, uint64_t timeout_ns, kvt_job_result *out_result);
    /*
     * Make `stream` wait until region `region` (index in the layout) of this job has been copied.
     * Only enqueues. The status of the copy is poll()'s to tell: an engine that used a region looks
     * at tokens_good before it trusts the result. A spent handle answers STALE: nothing to wait
     * for. [any-thread] no-block. Errors: INVAL, STALE, NOMEM, DEVICE.              Since 0.1
     */
    kvt_status (*wait_region)(kvt_engine *, uint64_t job, uint32_t region, void *stream);
    /* Ask a job to end early; it still must be polled to DONE, and its blocks are its own until
     * then. STALE. [any-thread] no-block.                                           Since 0.1 */
    kvt_status (*cancel)(kvt_engine *, uint64_t job);
    /* Close a request's account; its id is free again, its lease is released. STALE when the id is
     * not known, INVAL when the numbers cannot be. Poll the request's restores to DONE before:
     * what ends later is in no account. [any-thread] no-block.                      Since 0.1 */
    kvt_status (*report)(kvt_engine *, const kvt_report *);
    /* Tell the cache something, KVT_HINT_x. UNSUPPORTED for kinds it does not know; INVAL for data
     * that is not what the kind says; STALE. [any-thread] no-block.                 Since 0.1 */
    kvt_status (*hint)(kvt_engine *, uint32_t kind, const void *data, uint64_t bytes);
    /* Wait until every save submitted before is held (or has failed); with an nvme tier, until all
     * that is in memory is there too, durably. TIMEOUT; IO when the drive takes no writes.
     * [any-thread] may-block.                                                       Since 0.1 */
    kvt_status (*flush)(kvt_engine *, uint64_t timeout_ns);
    /* [any-thread] no-block.                                                        Since 0.1 */
    kvt_status (*stats)(kvt_engine *, kvt_stats *out_stats);
    /* Wait until no job is in flight; what was detached included. TIMEOUT. [init] may-block.
     *                                                                               Since 0.1 */
    kvt_status (*quiesce)(kvt_engine *, uint64_t timeout_ns);
    /* Extensions of the plug-in by name, NULL when unknown; a table of functions, valid until
     * close(). engine may be NULL for extensions that need none. [any-thread]       Since 0.1 */
    const void *(*get_extension)(kvt_engine *, const char *id);
} kvt_plugin_entry;

/* ---- extension "kvt.cpu_stream/1": streams of the CPU device ----
 * Work runs later, in order, on a thread of the stream's own. */
#define KVT_EXT_CPU_STREAM "kvt.cpu_stream/1"

typedef struct kvt_cpu_stream_ext {
    uint32_t struct_size;
    uint32_t reserved0;
    /* [any-thread] may-block. NOMEM. */
    kvt_status (*stream_create)(kvt_engine *, void **out_stream);
    /* Waits for what was enqueued. Every stream must be destroyed before close(). */
    void (*stream_destroy)(kvt_engine *, void *stream);
    /* Run fn(arg) in stream order, on the stream's thread. no-block. NOMEM. */
    kvt_status (*enqueue)(kvt_engine *, void *stream, void (*fn)(void *), void *arg);
    kvt_status (*event_create)(kvt_engine *, void **out_event);
    void (*event_destroy)(kvt_engine *, void *event);
    kvt_status (*record)(kvt_engine *, void *event, void *stream);
    /* Work enqueued on `stream` from now on waits for the latest record of `event`. */
    kvt_status (*wait)(kvt_engine *, void *stream, void *event);
    /* Wait on the calling thread until everything enqueued has run. TIMEOUT. */
    kvt_status (*sync)(kvt_engine *, void *stream, uint64_t timeout_ns);
} kvt_cpu_stream_ext;

/* ---- extension "kvt.cpu_fault/1": for tests only ---- */
#define KVT_EXT_CPU_FAULT "kvt.cpu_fault/1"
#define KVT_FAULT_COPY_DELAY_NS 1u  /* each copy first sleeps so long; 0 ends it */
#define KVT_FAULT_FAIL_PAGE_COPY 2u /* the k-th page copied from now on fails; 0 disarms */
#define KVT_FAULT_FAIL_CALL 3u      /* the k-th enqueueing call from now on fails; 0 disarms */
#define KVT_FAULT_HOLD_COPIES 4u    /* 1: copies do not start; 0: they go on */

typedef struct kvt_cpu_fault_ext {
    uint32_t struct_size;
    uint32_t reserved0;
    kvt_status (*set)(kvt_engine *, uint32_t kind, uint64_t value);
} kvt_cpu_fault_ext;

/* The one exported symbol. Hosts usually find it with dlsym(KVT_PLUGIN_ENTRY_NAME). */
extern const kvt_plugin_entry kvt_plugin_entry_v0;

#ifdef __cplusplus
}
#endif
#endif
