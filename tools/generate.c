/*
 * kvtier generate: seeded multi-turn agent traces in the kvtrace format.
 *
 * What is drawn, and from what. The tables (generate_tables.c) are quantiles measured on 346
 * sessions, 29 sub-agents and 24,650 calls of real coding agents (callanjfox/kv-cache-tester,
 * Apache-2.0); between two quantiles a draw is uniform. Token counts are multiplied by --scale.
 *
 *   session starts     Poisson, mean gap --gap (an assumption: hit rates depend on it)
 *   shared start       one of --system-prompts, Zipf with exponent 1; 12.5k tokens at the median
 *   first prompt       shared start and a new conversation (6k at the median), or one that goes on
 *                      from an older one (--resumed of the sessions; 110k at the median)
 *   turns              0.62 of the mean (--turns) at the median, 2.4 at p90, 7 at most; real mean
 *                      70; sessions that go on from an older conversation have 0.57 of it
 *   growth of a turn   the last output (213 tokens at the median, mean 450) and a tool's output or
 *                      a user's words (285 at the median, p90 2,788, p99 15,803); together 1,738 in
 *                      the mean, within some per cent
 *   how a turn ends    tool_use 85.6 %, stream 9.2 %, end_turn 5.2 % and every session's last
 *   think time         after tool_use 8 s at the median and 71 s at p90, after stream 94 s and
 *                      23 min, after end_turn 216 s and 46 min
 *   edits              --edits of the turns (real: 2.8 %) throw away the end of the prompt, more
 *                      than a block, 84 % of it at the median; four in ten put 5 to 50 % of it in
 *                      its place (compaction), the others as much as they took
 *   sub-agents         --sub-agents for 100 sessions (real: 8), spawned by a tool_use turn, which
 *                      waits for it; 0.16 of --turns in the mean; --forked of them go on from the
 *                      parent's prompt, the others from a start that all sub-agents share (in the
 *                      real trace: all of them)
 *   service time       1 s and 23 ms for each output token, for timestamps only
 *
 * Draws are independent of each other, which real agents are not: they compact as their window
 * fills. So prompts come out longer, 120k tokens at the median where the real trace has 99k.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/generate.h"
#include "tools/generate_file.h"
#include "tools/options.h"
#include "tools/trace_read.h"

#define COMMAND "generate"
#define SESSIONS_MAX 100000U
#define TURNS_MAX 10000U
#define SYSTEM_PROMPTS_MAX 10000U
#define GAP_S_MAX 1000000U
#define SCALE_HUNDREDTHS_MAX 100000U
#define SUB_AGENTS_MAX 10000U
#define BLOCK_TOKENS_MAX 4096U

static const char *const profile_names[] = {"small", "coding", NULL};

/* As the parser fills it. */
struct arguments {
    uint64_t seed, profile, sessions, turns, system_prompts, gap_s, scale;
    uint64_t sub_agents, forked, resumed, edits, block_tokens;
    const char *out_path;
};

/* What a profile says where the command line does not. */
static const struct arguments profiles[] = {
    /* Small enough for a model on a CPU, and to look at. */
    {.sessions = 6,
     .turns = 12,
     .system_prompts = 2,
     .gap_s = 5,
     .scale = 500,
     .sub_agents = 50,
     .forked = 5000,
     .resumed = 0,
     .edits = 280,
     .block_tokens = 16},
    /* As measured. */
    {.sessions = 346,
     .turns = 70,
     .system_prompts = 100,
     .gap_s = 120,
     .scale = 10000,
     .sub_agents = 8,
     .forked = 0,
     .resumed = 4500,
     .edits = 280,
     .block_tokens = 64},
};

static const struct kvt_option options[] = {
    KVT_OPT_CHOICE("profile", struct arguments, profile, profile_names,
                   "where the other options start from: small, for a demonstration; coding, as "
                   "measured on real coding agents (small)"),
    KVT_OPT_COUNT("seed", struct arguments, seed, 0, INT64_MAX,
                  "the same seed gives the same trace (1)"),
    KVT_OPT_COUNT("sessions", struct arguments, sessions, 1, SESSIONS_MAX,
                  "main sessions (small 6, coding 346)"),
    KVT_OPT_COUNT("turns", struct arguments, turns, 1, TURNS_MAX,
                  "mean turns of a main session (small 12, coding 70)"),
    KVT_OPT_COUNT("system-prompts", struct arguments, system_prompts, 1, SYSTEM_PROMPTS_MAX,
                  "starts that sessions share, the popular ones more often (small 2, coding 100)"),
    KVT_OPT_COUNT("gap", struct arguments, gap_s, 0, GAP_S_MAX,
                  "mean seconds between session starts (small 5, coding 120)"),
    KVT_OPT_PERCENT("scale", struct arguments, scale, 1, SCALE_HUNDREDTHS_MAX,
                    "token counts, against the measured ones (small 5, coding 100)"),
    KVT_OPT_COUNT("sub-agents", struct arguments, sub_agents, 0, SUB_AGENTS_MAX,
                  "mean sub-agents of 100 main sessions (small 50, coding 8)"),
    KVT_OPT_PERCENT("forked", struct arguments, forked, 0, 10000,
                    "sub-agents that go on from their parent's prompt (small 50, coding 0)"),
    KVT_OPT_PERCENT("resumed", struct arguments, resumed, 0, 10000,
                    "main sessions that start with an older conversation (small 0, coding 45)"),
    KVT_OPT_PERCENT("edits", struct arguments, edits, 0, 10000,
                    "turns that break the prefix (2.8)"),
    KVT_OPT_COUNT("block-size", struct arguments, block_tokens, 1, BLOCK_TOKENS_MAX,
                  "tokens of a block id (small 16, coding 64)"),
    KVT_OPT_TEXT("out", struct arguments, out_path, "FILE",
                 "where to; .gz at its end: compressed; a whole file or none (-, standard output)"),
};

static const struct kvt_command_line command_line = {
    .command = COMMAND,
    .operands = NULL,
    .summary = "Makes a multi-turn agent trace: conversations that grow turn by turn, shared "
               "system prompts, tool outputs, sub-agents, edits that break a prefix, think times.",
    .notes =
        "Measured on 24,650 calls of real coding agents, and what the draws follow:\n"
        "  growth of a turn   1,738 tokens in the mean, 500 at the median\n"
        "  outputs            213 tokens at the median, 898 at p90\n"
        "  tool outputs       285 tokens at the median, 2,788 at p90, 15,803 at p99\n"
        "  think time         after a tool call 8 s at the median, 71 s at p90; after an answer\n"
        "                     216 s and 46 min\n"
        "  edits              2.8 % of the turns, which lose 84 % of the prompt at the median\n"
        "  sub-agents         8 for 100 sessions\n"
        "Session starts are a Poisson process: an assumption, and hit rates depend on it.\n",
    .options = options,
    .option_count = (uint32_t)(sizeof(options) / sizeof(options[0])),
};

/* ---- writing ---- */

static int write_out(const char *path, const struct kvt_generated *generated)
{
    char why[KVT_GENERATE_WHY_BYTES];
    size_t length = path != NULL ? strlen(path) : 0;
    bool gzip = length >= 3 && strcmp(path + length - 3, ".gz") == 0;
    if (kvt_generate_write(path, gzip, generated->text, generated->bytes, why, sizeof(why))) {
        return KVT_EXIT_DONE;
    }
    kvt_command_error(COMMAND, "%s cannot be written: %s", path != NULL ? path : "standard output",
                      why);
    return KVT_EXIT_FAILED;
}

/* ---- the command ---- */

static uint64_t choose(uint64_t given, uint64_t otherwise)
{
    return given != KVT_NOT_GIVEN ? given : otherwise;
}

static struct kvt_generate_settings settings_of(const struct arguments *given)
{
    const struct arguments *profile = &profiles[given->profile];
    return (struct kvt_generate_settings){
        .profile = profile_names[given->profile],
        .seed = given->seed,
        .sessions = (uint32_t)choose(given->sessions, profile->sessions),
        .turns = (uint32_t)choose(given->turns, profile->turns),
        .system_prompts = (uint32_t)choose(given->system_prompts, profile->system_prompts),
        .gap_ms = choose(given->gap_s, profile->gap_s) * 1000,
        .scale = choose(given->scale, profile->scale),
        .sub_agents = (uint32_t)choose(given->sub_agents, profile->sub_agents),
        .forked = (uint32_t)choose(given->forked, profile->forked),
        .resumed = (uint32_t)choose(given->resumed, profile->resumed),
        .edits = (uint32_t)choose(given->edits, profile->edits),
        .block_tokens = (uint32_t)choose(given->block_tokens, profile->block_tokens),
    };
}

int kvt_cmd_generate(int argc, char **argv)
{
    struct arguments arguments = {.seed = 1,
                                  .sessions = KVT_NOT_GIVEN,
                                  .turns = KVT_NOT_GIVEN,
                                  .system_prompts = KVT_NOT_GIVEN,
                                  .gap_s = KVT_NOT_GIVEN,
                                  .scale = KVT_NOT_GIVEN,
                                  .sub_agents = KVT_NOT_GIVEN,
                                  .forked = KVT_NOT_GIVEN,
                                  .resumed = KVT_NOT_GIVEN,
                                  .edits = KVT_NOT_GIVEN,
                                  .block_tokens = KVT_NOT_GIVEN};
    uint32_t operand_count = 0;
    enum kvt_parse parsed =
        kvt_options_parse(&command_line, argc, argv, &arguments, NULL, &operand_count);
    if (parsed != KVT_PARSE_DONE) {
        return parsed == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    if (arguments.out_path != NULL && strcmp(arguments.out_path, "-") == 0) {
        arguments.out_path = NULL;
    }
    struct kvt_generate_settings settings = settings_of(&arguments);
    struct kvt_generated generated;
    kvt_status status = kvt_generate_trace(&settings, &generated);
    if (status == KVT_ERR_LIMIT) {
        kvt_usage_error(COMMAND,
                        "--sessions %" PRIu32 " with --turns %" PRIu32
                        " make more than the %" PRIu32 " turns that a trace may have",
                        settings.sessions, settings.turns, KVT_TRACE_TURNS_MAX);
        return KVT_EXIT_USAGE;
    }
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "memory could not be had for %" PRIu32 " sessions",
                          settings.sessions);
        return KVT_EXIT_FAILED;
    }
    int exit_status = write_out(arguments.out_path, &generated);
    if (exit_status == KVT_EXIT_DONE && arguments.out_path != NULL) {
        (void)fprintf(stderr, "%s: %" PRIu32 " sessions, %" PRIu32 " turns\n", arguments.out_path,
                      generated.sessions, generated.turns);
    }
    free(generated.text);
    return exit_status;
}
