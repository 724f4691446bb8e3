/*
 * Inside `kvtier generate`: generate.c reads the command line, generate_trace.c makes the sessions,
 * generate_file.c writes them.
 */
#ifndef KVT_GENERATE_H
#define KVT_GENERATE_H

#include "kvt_status.h"
#include "tools/generate_draw.h"

#define KVT_GENERATE_HUNDREDTHS 10000U /* of a per cent, in the whole */

struct kvt_generate_settings {
    const char *profile; /* named in the trace's first line */
    uint64_t seed;
    uint32_t sessions;
    uint32_t turns; /* mean, of a main session */
    uint32_t system_prompts;
    uint64_t gap_ms;     /* mean, between session starts */
    uint64_t scale;      /* of token counts, in hundredths of a percent */
    uint32_t sub_agents; /* mean, of 100 main sessions */
    uint32_t forked;     /* hundredths of a percent of the sub-agents */
    uint32_t resumed;    /* hundredths of a percent of the main sessions */
    uint32_t edits;      /* hundredths of a percent of the turns */
    uint32_t block_tokens;
};

/* The distributions, each of what the comment in generate.c says. */
extern const struct kvt_quantiles kvt_generate_system_tokens;
extern const struct kvt_quantiles kvt_generate_fresh_tokens;
extern const struct kvt_quantiles kvt_generate_resumed_tokens;
extern const struct kvt_quantiles kvt_generate_task_tokens;
extern const struct kvt_quantiles kvt_generate_output_tokens;
extern const struct kvt_quantiles kvt_generate_result_tokens;
extern const struct kvt_quantiles kvt_generate_turns_permille;
extern const struct kvt_quantiles kvt_generate_sub_turns_permille;
extern const struct kvt_quantiles kvt_generate_tool_delay_ms;
extern const struct kvt_quantiles kvt_generate_stream_delay_ms;
extern const struct kvt_quantiles kvt_generate_answer_delay_ms;
extern const struct kvt_quantiles kvt_generate_lost_permille;

/* The lines of a trace, in order. */
struct kvt_generated {
    char *text; /* malloc'd, not terminated */
    uint64_t bytes;
    uint32_t sessions, turns; /* sub-agents included */
};

/* NOMEM; LIMIT: more turns than a reader takes. */
kvt_status kvt_generate_trace(const struct kvt_generate_settings *,
                              struct kvt_generated *out_generated) KVT_MUST_CHECK;

#endif
