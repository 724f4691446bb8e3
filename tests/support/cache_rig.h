/*
 * What tests of the whole cache share: a cache with counted memory and a clock driven by hand, and
 * fake engines on it whose paged memory holds bytes that are a function of all tokens up to the
 * block's end. So a byte from another page, prefix, region or tenant shows, and so does a page that
 * was never filled: destinations are painted with KVT_RIG_UNTOUCHED before each restore.
 *
 * Everything fails the test where it does not succeed, unless its name says otherwise.
 */
#ifndef KVT_TEST_CACHE_RIG_H
#define KVT_TEST_CACHE_RIG_H

#include "cache/base/base.h"
#include "kvt_cache.h"

#define KVT_RIG_UNTOUCHED 0xee
#define KVT_RIG_REGIONS_MAX 4u
#define KVT_RIG_WAIT_NS UINT64_C(60000000000) /* longer than anything takes */
#define KVT_RIG_MS UINT64_C(1000000)
#define KVT_RIG_S UINT64_C(1000000000)
#define KVT_RIG_NO_LEASE UINT64_C(0)

/* Fault kinds, as KVT_FAULT_x of kvt_engine.h. */
#define KVT_RIG_COPY_DELAY_NS 1u
#define KVT_RIG_FAIL_PAGE_COPY 2u
#define KVT_RIG_FAIL_CALL 3u
#define KVT_RIG_HOLD 4u

/* ---- the cache ---- */

struct kvt_rig_cache {
    struct kvt_cache_config config; /* what kvt_rig_cache_open() passes on */
    struct kvt_cache *cache;
    struct kvt_cache_memory hooks;
    _Atomic int64_t live_blocks, live_bytes;
    _Atomic uint64_t calls;     /* allocations asked for */
    _Atomic uint64_t fail_at;   /* k > 0: the k-th from now on fails; counts down to 0 */
    _Atomic bool fail_for_good; /* and all after it */
    _Atomic bool failing;
    _Atomic uint64_t now_ns;
    _Atomic uint64_t mover_rounds; /* how often its thread asked for the time */
    _Atomic uint32_t log_lines;
    char why[512];
};

/* Defaults into rig->config: pages of 16 tokens, 1 MiB of hbm and of host, hooks set. */
void kvt_rig_cache_init(struct kvt_rig_cache *rig);
void kvt_rig_cache_open(struct kvt_rig_cache *rig);
/* Quiesce, check, no leases, no transfers, destroy, no memory left. */
void kvt_rig_cache_close(struct kvt_rig_cache *rig);
/* The k-th allocation from now on fails (0: none does), alone or with all that follow. */
void kvt_rig_cache_fail(struct kvt_rig_cache *rig, uint64_t k, bool for_good);
struct kvt_cache_stats kvt_rig_stats(struct kvt_rig_cache *rig);
void kvt_rig_check(struct kvt_rig_cache *rig);
void kvt_rig_fault(struct kvt_rig_cache *rig, uint32_t kind, uint64_t value);
void kvt_rig_quiesce(struct kvt_rig_cache *rig);
/* Nothing in transfer and no lease in use; waits a while for what expires. */
void kvt_rig_idle(struct kvt_rig_cache *rig);
/* Drives the clock, and waits until the cache has kept house since. */
void kvt_rig_advance(struct kvt_rig_cache *rig, uint64_t ns);

/* ---- engines ---- */

struct kvt_rig_shape {
    uint32_t block_tokens, block_count, region_count;
    uint64_t block_bytes[KVT_RIG_REGIONS_MAX];
    uint64_t stride_bytes[KVT_RIG_REGIONS_MAX];
};
/* Two regions of odd sizes, 8 tokens a block. */
extern const struct kvt_rig_shape kvt_rig_shape_default;

struct kvt_rig_engine {
    struct kvt_rig_cache *on;
    struct kvt_rig_shape shape;
    uint32_t client;
    uint32_t blocks_per_page;
    uint64_t binding;
    uint64_t page_bytes;
    uint64_t weights; /* what the bytes depend on besides the tokens; 0 at first */
    void *stream;
    unsigned char *memory[KVT_RIG_REGIONS_MAX];
    struct kvt_cache_region regions[KVT_RIG_REGIONS_MAX];
};

void kvt_rig_engine_open(struct kvt_rig_engine *engine, struct kvt_rig_cache *on,
                         const struct kvt_rig_shape *shape, const char *tenant);
void kvt_rig_engine_close(struct kvt_rig_engine *engine);
/* The engine's memory alone, for tests that bind themselves. */
void kvt_rig_memory_open(struct kvt_rig_engine *engine, struct kvt_rig_cache *on,
                         const struct kvt_rig_shape *shape);
void kvt_rig_memory_close(struct kvt_rig_engine *engine);

/* ---- tokens and bytes ---- */

/* tokens[from .. to - 1] of the conversation named `seed`. */
void kvt_rig_tokens(uint32_t *tokens, uint64_t from, uint64_t to, uint64_t seed);
/* blocks[i] = first + i. */
void kvt_rig_blocks(uint32_t *blocks, uint32_t first, uint32_t count);
/* "Compute" whole pages: write their bytes. tokens are from the prompt's start, blocks[0] is the
 * first block of first_page; so they are for all that follow. */
void kvt_rig_paint(struct kvt_rig_engine *engine, const uint32_t *tokens, uint32_t first_page,
                   uint32_t pages, const uint32_t *blocks);
void kvt_rig_wipe(struct kvt_rig_engine *engine, const uint32_t *blocks, uint32_t count);
void kvt_rig_wipe_all(struct kvt_rig_engine *engine);
/* How many pages, from the first on, hold exactly their bytes. */
uint32_t kvt_rig_good_pages(const struct kvt_rig_engine *engine, const uint32_t *tokens,
                            uint32_t first_page, uint32_t pages, const uint32_t *blocks);
/* True when these blocks are as kvt_rig_wipe() left them. */
bool kvt_rig_untouched(const struct kvt_rig_engine *engine, const uint32_t *blocks, uint32_t count);
/* True when nothing was written between the blocks. */
bool kvt_rig_gaps_untouched(const struct kvt_rig_engine *engine);

/* ---- calls, that must succeed ---- */

struct kvt_cache_found kvt_rig_lookup(struct kvt_rig_engine *engine, uint64_t request_id,
                                      const uint32_t *tokens, uint64_t token_count,
                                      uint64_t own_tokens);
/* Answers matched tokens and gives the lease back. */
uint64_t kvt_rig_probe(struct kvt_rig_engine *engine, const uint32_t *tokens, uint64_t token_count);
uint64_t kvt_rig_save_begin(struct kvt_rig_engine *engine, const uint32_t *tokens,
                            uint64_t token_count, const uint32_t *blocks, void *stream);
uint64_t kvt_rig_restore_begin(struct kvt_rig_engine *engine, uint64_t lease, uint32_t first_page,
                               uint32_t pages, const uint32_t *blocks, void *stream);
/* Polls to the end. */
struct kvt_cache_result kvt_rig_finish(struct kvt_rig_engine *engine, uint64_t job);
struct kvt_cache_result kvt_rig_save(struct kvt_rig_engine *engine, const uint32_t *tokens,
                                     uint64_t token_count, const uint32_t *blocks);
struct kvt_cache_result kvt_rig_restore(struct kvt_rig_engine *engine, uint64_t lease,
                                        uint32_t first_page, uint32_t pages,
                                        const uint32_t *blocks);
void kvt_rig_release(struct kvt_rig_engine *engine, uint64_t lease);
void kvt_rig_report(struct kvt_rig_engine *engine, uint64_t request_id, uint64_t prompt_tokens,
                    uint64_t own_tokens, uint64_t computed_tokens);

/* Paint and save whole pages with blocks 0, 1, ...; all of them must be held afterwards. */
void kvt_rig_put(struct kvt_rig_engine *engine, const uint32_t *tokens, uint32_t pages);
/* Look up, wipe, restore what was promised into blocks 0, 1, ... and verify it and what lies beside
 * it. Answers the pages that came back; they must be the whole promise. */
uint32_t kvt_rig_get(struct kvt_rig_engine *engine, const uint32_t *tokens, uint64_t token_count);
/* One request as engines live it: lookup, restore, verify, compute the rest, save, report. Answers
 * the tokens delivered. Blocks from first_block on. */
uint64_t kvt_rig_serve(struct kvt_rig_engine *engine, uint64_t request_id, const uint32_t *tokens,
                       uint64_t token_count, uint32_t first_block);

/* ---- work on a stream that waits for the test ---- */

struct kvt_rig_gate {
    struct kvt_lock lock; /* protects: what follows */
    struct kvt_cond cond;
    bool open;
    bool reached;
};
void kvt_rig_gate_init(struct kvt_rig_gate *gate);
void kvt_rig_gate_fini(struct kvt_rig_gate *gate);
/* For a stream; `gate` is a struct kvt_rig_gate. */
void kvt_rig_gate_pass(void *gate);
void kvt_rig_gate_open(struct kvt_rig_gate *gate);

void *kvt_rig_stream(struct kvt_rig_cache *rig);
void kvt_rig_enqueue(struct kvt_rig_cache *rig, void *stream, void (*fn)(void *), void *arg);
void kvt_rig_sync(struct kvt_rig_cache *rig, void *stream);
void kvt_rig_sleep(uint64_t ns);

#endif
