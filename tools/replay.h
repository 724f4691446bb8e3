/*
 * Inside `kvtier replay`: an engine answers the turns of a trace, without and with the cache, and
 * the two halves are compared.
 *
 * replay.c reads the command line and makes the plan; replay_run.c runs one half of it;
 * replay_report.c judges the halves and writes the table or the JSON.
 */
#ifndef KVT_REPLAY_H
#define KVT_REPLAY_H

#include <stdio.h>

#include "engine_plugin/reference/engine.h"
#include "tools/trace_order.h"

/* What replay asks of an engine; the reference engine's functions, or what stands in for them.
 * Immutable. */
struct kvt_replay_engine {
    const char *name;
    uint32_t block_tokens; /* of a KV block, when the command line does not say */
    uint64_t (*page_bytes)(uint32_t page_tokens);
    uint32_t (*vocabulary)(void);
    kvt_status (*open)(const struct kvt_ref_config *, struct kvt_ref_engine **out_engine, char *why,
                       uint64_t why_bytes);
    void (*close)(struct kvt_ref_engine *);
    kvt_status (*submit)(struct kvt_ref_engine *, uint64_t request_id, const uint32_t *tokens,
                         uint32_t token_count, uint64_t due_ns);
    kvt_status (*next)(struct kvt_ref_engine *, uint64_t timeout_ns,
                       struct kvt_ref_result *out_result);
    void (*result_fini)(struct kvt_ref_result *);
    kvt_status (*cache_stats)(struct kvt_ref_engine *, kvt_stats *out_stats);
};

enum kvt_replay_only { KVT_REPLAY_WITH, KVT_REPLAY_WITHOUT, KVT_REPLAY_BOTH };
/* What the half "without" is without: any cache, or the nvme tier. */
enum kvt_replay_baseline { KVT_BASELINE_NONE, KVT_BASELINE_MEMORY };
enum kvt_replay_speed { KVT_REPLAY_MAX, KVT_REPLAY_TRACE };
enum kvt_replay_control { KVT_CONTROL_NONE, KVT_CONTROL_FOREIGN_PAGE, KVT_CONTROL_SAME_PAGE };

#define KVT_REPLAY_HUNDREDTHS 10000U /* of a per cent, in the whole */

/* A sentence of an engine, a trace or ours. */
#define KVT_REPLAY_WHY_BYTES 512

struct kvt_replay_plan {
    const struct kvt_replay_engine *engine;
    const struct kvt_trace *trace;
    const char *trace_name; /* the file's base name */
    struct kvt_order order;
    struct kvt_order_needs needs;
    /* as on the command line */
    enum kvt_replay_only only;
    enum kvt_replay_speed speed;
    enum kvt_replay_control control;
    uint32_t sessions;
    uint32_t concurrency, threads;
    uint32_t block_tokens, page_tokens, output_tokens, context_tokens;
    uint64_t seed;
    uint64_t budget_hundredths; /* of a percent, of the default budgets */
    uint64_t hbm_bytes, host_bytes;
    bool hbm_given, host_given;
    const char *plugin_path, *evict_policy;
    const char *nvme, *admit_policy; /* NULL: no such tier; the plug-in's choice */
    enum kvt_replay_baseline baseline;
    bool load_always;
    bool json, quiet;
};

/* One half of a replay. */
struct kvt_replay_half {
    bool ran;
    uint32_t turn_count;
    struct kvt_ref_result *results; /* [turn_count], by place in the order */
    uint64_t *ttft_ns;              /* [turn_count] */
    bool *answered;                 /* [turn_count] */
    uint32_t answered_count;        /* with status KVT_OK */
    uint32_t failed_count;
    uint32_t failed_first; /* place in the order of the first one that failed */
    uint64_t wall_ns;      /* from the first submission to the last answer */
    uint64_t cpu_ns;       /* of all threads of the process meanwhile */
    bool has_stats;
    kvt_stats stats;
};

/* Runs one half. On failure `why` holds one sentence, and the half holds what was answered so far.
 * May block for as long as the engine answers. */
kvt_status kvt_replay_run(const struct kvt_replay_plan *, bool with_cache,
                          struct kvt_replay_half *out_half, char *why, uint64_t why_bytes)
    KVT_MUST_CHECK;
void kvt_replay_half_fini(const struct kvt_replay_plan *, struct kvt_replay_half *);

/* What a half says, in numbers. */
struct kvt_replay_summary {
    bool has_times; /* at least one request was answered */
    double ttft_ms_p50, ttft_ms_p95, ttft_ms_p99;
    double requests_per_hour;
    uint64_t prompt_tokens, cached_tokens, computed_tokens; /* as the engine counted them */
};

struct kvt_replay_verdict {
    struct kvt_replay_summary without, with;
    uint32_t turns_compared;
    uint32_t turns_different;
    uint32_t first_different; /* place in the order */
    bool conserved;
    char broken[KVT_REPLAY_WHY_BYTES]; /* which sum does not add up, when not conserved */
};

/* NOMEM. */
kvt_status kvt_replay_judge(const struct kvt_replay_plan *, const struct kvt_replay_half *without,
                            const struct kvt_replay_half *with,
                            struct kvt_replay_verdict *out_verdict) KVT_MUST_CHECK;
/* The plan, with the budgets that were computed, for people. */
void kvt_replay_print_plan(const struct kvt_replay_plan *, FILE *out);
void kvt_replay_print_table(const struct kvt_replay_plan *, const struct kvt_replay_half *without,
                            const struct kvt_replay_half *with, const struct kvt_replay_verdict *);
/* One JSON object and a newline. NOMEM. */
kvt_status kvt_replay_print_json(const struct kvt_replay_plan *,
                                 const struct kvt_replay_half *without,
                                 const struct kvt_replay_half *with,
                                 const struct kvt_replay_verdict *) KVT_MUST_CHECK;

/* The command with the engines that it may choose from; NULL-terminated. */
int kvt_replay_main(const struct kvt_replay_engine *const *engines, int argc, char **argv);

#endif
