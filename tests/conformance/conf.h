/*
 * conf.h - what the clauses of the conformance program share.
 *
 * Each clause runs in a process of its own, forked before anything was opened: a clause that fails
 * leaves at once, without tidying up, and a plug-in that crashes or hangs breaks one clause and not
 * the program. Needs kvt_engine.h and kvt_status.h, nothing else of kvtier.
 */
#ifndef KVT_CONF_H
#define KVT_CONF_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "kvt_engine.h"

#define KVT_CONF_PAGE_TOKENS 16u
#define KVT_CONF_BLOCK_TOKENS 8u
#define KVT_CONF_PAGE_BLOCKS (KVT_CONF_PAGE_TOKENS / KVT_CONF_BLOCK_TOKENS)
#define KVT_CONF_BLOCKS 256u
#define KVT_CONF_REGIONS 4u
#define KVT_CONF_PAGES_MAX 64u
#define KVT_CONF_WAIT_NS UINT64_C(20000000000)
#define KVT_CONF_MS UINT64_C(1000000)
#define KVT_CONF_WIPED 0xeeu
/* How long a plug-in that does not wait for a stream is given to show it. */
#define KVT_CONF_HASTE_NS (30 * KVT_CONF_MS)

/* The host as a clause gives it: counted memory, a clock that can be turned by hand. */
struct kvt_conf {
    const kvt_plugin_entry *entry;
    kvt_host host;
    kvt_field fields[4];
    kvt_open_config config;
    char why[512];
    _Atomic int64_t live_blocks, live_bytes;
    _Atomic uint64_t now_ns;
    _Atomic int64_t fail_in; /* the so many-th allocation from now on fails; 0: none */
    _Atomic uint64_t log_lines;
};

/* One engine with memory of its own. */
struct kvt_conf_rig {
    struct kvt_conf *conf;
    const kvt_plugin_entry *entry;
    kvt_engine *engine;
    const kvt_cpu_stream_ext *streams;
    const kvt_cpu_fault_ext *faults; /* NULL: not offered */
    unsigned char *memory[KVT_CONF_REGIONS];
    kvt_region regions[KVT_CONF_REGIONS];
    kvt_layout layout;
    uint64_t binding;
    void *stream;
};

/* Work that a stream does not get past before it is opened. */
struct kvt_conf_gate {
    sem_t opened;
    void (*then)(void *arg); /* may be NULL */
    void *arg;
};

struct kvt_conf_clause {
    const char *id, *what;
    void (*run)(struct kvt_conf *conf);
};

extern const struct kvt_conf_clause kvt_conf_open_clauses[], kvt_conf_size_clauses[],
    kvt_conf_lease_clauses[], kvt_conf_data_clauses[], kvt_conf_job_clauses[],
    kvt_conf_order_clauses[], kvt_conf_fault_clauses[], kvt_conf_limit_clauses[],
    kvt_conf_life_clauses[], kvt_conf_stats_clauses[];

/* Both end the clause's process. [any-thread] */
void kvt_conf_fail(int line, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void kvt_conf_skip(const char *reason) __attribute__((noreturn));

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            kvt_conf_fail(__LINE__, __VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)
#define WANT(call, wanted, what) kvt_conf_want(__LINE__, (call), (wanted), (what))
#define GOOD(call, what) WANT(call, KVT_OK, what)
/* Any error will do. */
#define REFUSED(call, what)                                                                        \
    do {                                                                                           \
        kvt_status refused_ = (call);                                                              \
        NEED(refused_ < 0, "%s answered %s", (what), kvt_conf_name(refused_));                     \
    } while (0)

const char *kvt_conf_name(kvt_status status);
void kvt_conf_want(int line, kvt_status got, kvt_status wanted, const char *what);
void kvt_conf_sleep(uint64_t ns);

/* ---- the host and engines ---- */

void kvt_conf_init(struct kvt_conf *conf, const kvt_plugin_entry *entry, const char *uri);
/* Everything closed: what the plug-in took from the host, it gave back. */
void kvt_conf_balanced(struct kvt_conf *conf);
void kvt_conf_open(struct kvt_conf *conf, struct kvt_conf_rig *out_rig);
void kvt_conf_bind(struct kvt_conf_rig *rig);
/* open and bind, and a stream; and the way back. */
void kvt_conf_begin(struct kvt_conf *conf, struct kvt_conf_rig *out_rig);
void kvt_conf_end(struct kvt_conf_rig *rig);

/* ---- bytes: those of a page are a function of all tokens up to its end ---- */

void kvt_conf_tokens(uint32_t *out_tokens, uint64_t count, uint32_t seed);
void kvt_conf_blocks(uint32_t *out_blocks, uint32_t first, uint32_t pages);
void kvt_conf_paint(struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                    const uint32_t *blocks);
void kvt_conf_wipe(struct kvt_conf_rig *rig, const uint32_t *blocks, uint32_t pages);
/* How many pages from `first` on are right, in one region or in all (KVT_CONF_REGIONS). */
uint32_t kvt_conf_right(const struct kvt_conf_rig *rig, uint32_t region, const uint32_t *tokens,
                        uint32_t first, uint32_t pages, const uint32_t *blocks);
/* No byte between the blocks was written. */
void kvt_conf_gaps(const struct kvt_conf_rig *rig);

/* ---- calls ---- */

kvt_lookup kvt_conf_ask(uint64_t request_id, const uint32_t *tokens, uint64_t token_count);
kvt_lookup_result kvt_conf_look(struct kvt_conf_rig *rig, const kvt_lookup *lookup);
/* A lookup that must match exactly so many tokens; answers the lease. */
uint64_t kvt_conf_hit(struct kvt_conf_rig *rig, uint64_t request_id, const uint32_t *tokens,
                      uint64_t token_count, uint64_t matched);
kvt_save kvt_conf_saving(const struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                         const uint32_t *blocks);
kvt_restore kvt_conf_restoring(const struct kvt_conf_rig *rig, uint64_t lease, uint32_t pages,
                               const uint32_t *blocks);
kvt_job_result kvt_conf_finish(struct kvt_conf_rig *rig, uint64_t job);
/* Paint and save so many pages; restore and verify them. Blocks from first_block on are used. */
void kvt_conf_put(struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                  uint32_t first_block);
void kvt_conf_get(struct kvt_conf_rig *rig, uint64_t lease, const uint32_t *tokens, uint32_t pages,
                  uint32_t first_block);
kvt_stats kvt_conf_stats(struct kvt_conf_rig *rig);

/* Close a stream's way; open it. The gate lives until the stream was synced. */
void kvt_conf_shut(struct kvt_conf_rig *rig, void *stream, struct kvt_conf_gate *gate);
void kvt_conf_pass(struct kvt_conf_gate *gate);
void kvt_conf_sync(struct kvt_conf_rig *rig, void *stream);

#endif
