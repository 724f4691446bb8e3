/*
 * kvtier replay TRACE: the command line, the first pass over the trace, and the course of a replay.
 */
#include "tools/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvt_cache.h"
#include "tools/commands.h"
#include "tools/options.h"

#define COMMAND "replay"
#define PLUGIN_NAME "libkvtier_plugin.so"
#define PLUGIN_INSTALLED "../lib/kvtier" /* from the folder of an installed program */
#define PAGE_TOKENS_DEFAULT 16U
/* What the reference engine and the cache take; tests/unit/tool_ranges_test.c holds them to it. */
#define BLOCK_TOKENS_MIN 16U
#define BLOCK_TOKENS_MAX 256U
#define PAGE_TOKENS_MIN BLOCK_TOKENS_MIN
#define PAGE_TOKENS_MAX KVT_PAGE_TOKENS_MAX
#define CONCURRENCY_MAX 16U
#define THREADS_MAX 64U
#define CONTEXT_TOKENS_MAX (1U << 20)
#define OUTPUT_TOKENS_MAX 65536U
#define BUDGET_BYTES_MAX (UINT64_C(1) << 50) /* what is mapped is far less */
#define BUDGET_HUNDREDTHS_MAX 10000000U
#define POLICIES_BYTES 256U /* of their names */

static const char *const only_names[] = {"with", "without", "both", NULL};
static const char *const baseline_names[] = {"none", "memory", NULL};
static const char *const speed_names[] = {"max", "trace", NULL};
static const char *const control_names[] = {"none", "foreign-page", "same-page", NULL};

/* ---- the command line ---- */

/* As the parser fills it; every number is in its range then. */
struct arguments {
    const char *engine;
    uint64_t only, speed, control;
    uint64_t sessions, concurrency, threads, seed;
    uint64_t block_tokens, page_tokens, output_tokens, context_tokens;
    uint64_t hbm_bytes, host_bytes, budget_hundredths;
    const char *plugin_path, *evict_policy, *admit_policy;
    struct kvt_option_list nvme;
    uint64_t baseline;
    bool load_always;
    bool json, quiet;
};

static const struct kvt_option options[] = {
    KVT_OPT_TEXT("engine", struct arguments, engine, "NAME", "the engine that answers (reference)"),
    KVT_OPT_COUNT("sessions", struct arguments, sessions, 1, UINT32_MAX,
                  "replay the first N sessions of the trace, one turn of each in turn (8)"),
    KVT_OPT_COUNT("concurrency", struct arguments, concurrency, 1, CONCURRENCY_MAX,
                  "requests at once, never two of one session (1)"),
    KVT_OPT_CHOICE("speed", struct arguments, speed, speed_names,
                   "max: ask as soon as answers are there; trace: when the trace's timestamps and "
                   "think times say (max)"),
    KVT_OPT_POWER("block-tokens", struct arguments, block_tokens, BLOCK_TOKENS_MIN,
                  BLOCK_TOKENS_MAX,
                  "tokens of one KV block of the engine, a power of two (the engine's own choice)"),
    KVT_OPT_COUNT("page-tokens", struct arguments, page_tokens, PAGE_TOKENS_MIN, PAGE_TOKENS_MAX,
                  "tokens of one page of the cache, a multiple of the block (16, or the next "
                  "multiple of the block)"),
    KVT_OPT_COUNT("output-tokens", struct arguments, output_tokens, 1, OUTPUT_TOKENS_MAX,
                  "tokens to generate for each turn, fewer than --context (16)"),
    KVT_OPT_CHOICE("only", struct arguments, only, only_names,
                   "run one half, or both and compare (both)"),
    KVT_OPT_SIZE_IN("hbm", struct arguments, hbm_bytes, 0, BUDGET_BYTES_MAX,
                    "budget of the device tier, at least a page; 0: none (a quarter of the live "
                    "working set)"),
    KVT_OPT_SIZE_IN("host", struct arguments, host_bytes, 0, BUDGET_BYTES_MAX,
                    "budget of the host tier, at least a page, and no more than the machine's "
                    "memory; 0: none (the rest of the live working set)"),
    KVT_OPT_PERCENT("budget-percent", struct arguments, budget_hundredths, 1, BUDGET_HUNDREDTHS_MAX,
                    "scale the default budgets (100)"),
    KVT_OPT_COUNT("context", struct arguments, context_tokens, 2, CONTEXT_TOKENS_MAX,
                  "longest prompt and output; a longer one ends its session, and is counted "
                  "(16384)"),
    KVT_OPT_LIST(
        "nvme", struct arguments, nvme, "DIR:SIZE",
        "keep pages in this folder too, at most SIZE bytes of it, 8M or more; what an earlier run "
        "left there is found again; once for each drive, at most 8 times (no such tier)"),
    KVT_OPT_TEXT("admit", struct arguments, admit_policy, "POLICY",
                 "who goes to nvme: through, on-evict or second-touch (the plug-in's default)"),
    KVT_OPT_FLAG("load-always", struct arguments, load_always,
                 "load from nvme also what is computed faster"),
    KVT_OPT_CHOICE("baseline", struct arguments, baseline, baseline_names,
                   "what the half without is without: a cache (none), or its nvme tier (memory) "
                   "(none)"),
    KVT_OPT_TEXT("plugin", struct arguments, plugin_path, "PATH",
                 "the cache's plug-in (" PLUGIN_NAME " beside the program, or in " PLUGIN_INSTALLED
                 " from there)"),
    KVT_OPT_TEXT("evict", struct arguments, evict_policy, "POLICY",
                 "eviction policy (the plug-in's default)"),
    KVT_OPT_COUNT("threads", struct arguments, threads, 0, THREADS_MAX,
                  "compute threads; 0: as many as there are, at most 8 (0)"),
    KVT_OPT_COUNT("seed", struct arguments, seed, 0, UINT64_MAX, "of the engine's weights (1)"),
    KVT_OPT_CHOICE("control", struct arguments, control, control_names,
                   "prove the comparison: overwrite a restored page with another's bytes, which "
                   "must be noticed, or with its own, which must not (none)"),
    KVT_OPT_FLAG("json", struct arguments, json,
                 "print one JSON object and nothing else on standard output"),
    KVT_OPT_FLAG("quiet", struct arguments, quiet, "no plan, no progress and no warnings"),
};

static const struct kvt_command_line command_line = {
    .command = COMMAND,
    .operands = "TRACE",
    .summary = "Answers a trace with an engine, without and with the cache, and compares time to "
               "first token and outputs. The trace is text, mooncake or kvtrace, plain or gzip.",
    .notes = "Exit status: 0 done; 1 outputs differ or tokens are not accounted for; 2 wrong "
             "usage;\n3 the trace, the engine or the plug-in could not be used, or a request "
             "failed.\n",
    .options = options,
    .option_count = (uint32_t)(sizeof(options) / sizeof(options[0])),
    .operands_min = 1,
    .operands_max = 1,
};

/* ---- the plan ---- */

/* PLUGIN_NAME in the program's folder, as built, or else where `make install` puts it; the former
 * where there is neither, so that the error names it. malloc'd. */
static char *plugin_of_program(void)
{
    char path[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (bytes < 0) {
        return NULL;
    }
    path[bytes] = '\0';
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return NULL;
    }
    *slash = '\0';
    char *beside = NULL, *installed = NULL;
    if (asprintf(&beside, "%s/%s", path, PLUGIN_NAME) < 0) {
        return NULL;
    }
    if (access(beside, F_OK) == 0) {
        return beside;
    }
    if (asprintf(&installed, "%s/%s/%s", path, PLUGIN_INSTALLED, PLUGIN_NAME) < 0) {
        return beside;
    }
    if (access(installed, F_OK) != 0) {
        free(installed);
        return beside;
    }
    free(beside);
    return installed;
}

/* The stores as the plug-in takes them: one text, separated by ';'. malloc'd; NULL: none. False
 * when there is no memory. */
static bool join_stores(const struct kvt_option_list *list, char **out_text)
{
    size_t bytes = 0;
    *out_text = NULL;
    for (uint32_t i = 0; i < list->count; i++) {
        bytes += strlen(list->texts[i]) + 1;
    }
    char *text = bytes > 0 ? malloc(bytes) : NULL;
    size_t used = 0;
    for (uint32_t i = 0; text != NULL && i < list->count; i++) {
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ";" : "", list->texts[i]);
    }
    *out_text = text;
    return bytes == 0 || text != NULL;
}

static void fill_plan(const struct arguments *a, const char *trace_path, const char *nvme,
                      const struct kvt_replay_engine *engine, struct kvt_replay_plan *plan)
{
    const char *slash = strrchr(trace_path, '/');
    uint64_t block = a->block_tokens != KVT_NOT_GIVEN ? a->block_tokens : engine->block_tokens;
    uint64_t page = a->page_tokens;
    if (page == KVT_NOT_GIVEN) {
        page = (PAGE_TOKENS_DEFAULT + block - 1) / block * block;
    }
    *plan = (struct kvt_replay_plan){
        .engine = engine,
        .trace_name = slash != NULL ? slash + 1 : trace_path,
        .only = (enum kvt_replay_only)a->only,
        .speed = (enum kvt_replay_speed)a->speed,
        .control = (enum kvt_replay_control)a->control,
        .sessions = (uint32_t)a->sessions,
        .concurrency = (uint32_t)a->concurrency,
        .threads = (uint32_t)a->threads,
        .block_tokens = (uint32_t)block,
        .page_tokens = (uint32_t)page,
        .output_tokens = (uint32_t)a->output_tokens,
        .context_tokens = (uint32_t)a->context_tokens,
        .seed = a->seed,
        .budget_hundredths = a->budget_hundredths,
        .hbm_bytes = a->hbm_bytes,
        .host_bytes = a->host_bytes,
        .hbm_given = a->hbm_bytes != KVT_NOT_GIVEN,
        .host_given = a->host_bytes != KVT_NOT_GIVEN,
        .plugin_path = a->plugin_path,
        .evict_policy = a->evict_policy,
        .nvme = nvme,
        .admit_policy = a->admit_policy,
        .baseline = (enum kvt_replay_baseline)a->baseline,
        .load_always = a->load_always,
        .json = a->json,
        .quiet = a->quiet,
    };
}

/* A quarter of the live working set for hbm, the rest of it for host, in whole pages, where the
 * command line does not say. */
static void default_budgets(struct kvt_replay_plan *plan)
{
    uint64_t page_bytes = plan->engine->page_bytes(plan->page_tokens);
    uint64_t whole =
        (plan->needs.peak_live_pages * plan->budget_hundredths + KVT_REPLAY_HUNDREDTHS - 1) /
        KVT_REPLAY_HUNDREDTHS;
    whole = whole > 0 ? whole : 1;
    if (!plan->hbm_given) {
        plan->hbm_bytes = (whole + 3) / 4 * page_bytes;
    }
    if (!plan->host_given) {
        uint64_t hbm_pages = plan->hbm_bytes / page_bytes;
        plan->host_bytes = whole > hbm_pages ? (whole - hbm_pages) * page_bytes : 0;
    }
}

/* A policy is looked up in the library's list, whether a half with a cache is asked for or not: a
 * name that is wrong is wrong before the work. */
static bool policy_known(const char *option, const char *name, const char *(*list)(uint32_t index))
{
    char known[POLICIES_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; name != NULL && list(i) != NULL; i++) {
        if (strcmp(list(i), name) == 0) {
            return true;
        }
        int n = snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "", list(i));
        used = n > 0 && (size_t)n < sizeof(known) - used ? used + (size_t)n : sizeof(known) - 1;
    }
    if (name != NULL) {
        kvt_usage_error(COMMAND, "--%s: \"%s\" is not a policy; there are: %s", option, name,
                        known);
    }
    return name == NULL;
}

/* "DIR:SIZE", as the plug-in will take it apart: at the last colon, and at every semicolon. */
static bool stores_good(const struct kvt_option_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const char *text = list->texts[i];
        const char *colon = strrchr(text, ':');
        uint64_t bytes = 0;
        if (colon == NULL || colon == text || !kvt_parse_size(colon + 1, &bytes) ||
            bytes < KVT_CACHE_STORE_BYTES_MIN || bytes > BUDGET_BYTES_MAX ||
            strchr(text, ';') != NULL) {
            kvt_usage_error(COMMAND,
                            "--nvme: \"%s\" is not DIR:SIZE with a folder without semicolons and "
                            "a size from 8M to 1024T, such as /mnt/drive:100G",
                            text);
            return false;
        }
    }
    return true;
}

/* What the engine or the cache would refuse when the trace has been read. */
static bool tokens_fit(const struct kvt_replay_plan *plan)
{
    if (plan->page_tokens % plan->block_tokens != 0) {
        kvt_usage_error(COMMAND,
                        "--page-tokens %" PRIu32
                        " is not a multiple of the engine's block of %" PRIu32
                        " tokens (--block-tokens); give one from %" PRIu32 " to %u",
                        plan->page_tokens, plan->block_tokens, plan->block_tokens, PAGE_TOKENS_MAX);
        return false;
    }
    if (plan->output_tokens >= plan->context_tokens) {
        kvt_usage_error(COMMAND,
                        "--output-tokens %" PRIu32 " leaves no room for a prompt in --context "
                        "%" PRIu32 "; give 1 to %" PRIu32,
                        plan->output_tokens, plan->context_tokens, plan->context_tokens - 1);
        return false;
    }
    if (plan->only != KVT_REPLAY_WITHOUT && plan->page_tokens > plan->context_tokens) {
        kvt_usage_error(COMMAND,
                        "--page-tokens %" PRIu32 " is longer than --context %" PRIu32
                        "; give at most that",
                        plan->page_tokens, plan->context_tokens);
        return false;
    }
    return true;
}

/* What no trace is needed to see. KVT_EXIT_DONE: nothing wrong. */
static int check_arguments(const struct kvt_replay_plan *plan)
{
    if (plan->control != KVT_CONTROL_NONE && plan->only != KVT_REPLAY_BOTH) {
        kvt_usage_error(COMMAND, "--control compares both halves: it needs --only both");
        return KVT_EXIT_USAGE;
    }
    if (plan->nvme == NULL &&
        (plan->admit_policy != NULL || plan->load_always || plan->baseline != KVT_BASELINE_NONE)) {
        kvt_usage_error(COMMAND, "--admit, --load-always and --baseline memory are about an nvme "
                                 "tier: give --nvme too");
        return KVT_EXIT_USAGE;
    }
    if (!policy_known("evict", plan->evict_policy, kvt_cache_policy_name) ||
        !policy_known("admit", plan->admit_policy, kvt_cache_admit_name) || !tokens_fit(plan)) {
        return KVT_EXIT_USAGE;
    }
    if (plan->only == KVT_REPLAY_WITHOUT) {
        return KVT_EXIT_DONE;
    }
    uint64_t page_bytes = plan->engine->page_bytes(plan->page_tokens);
    const uint64_t budgets[] = {plan->hbm_bytes, plan->host_bytes};
    const bool given[] = {plan->hbm_given, plan->host_given};
    for (int i = 0; i < 2; i++) {
        if (given[i] && budgets[i] != 0 && budgets[i] < page_bytes) {
            kvt_usage_error(COMMAND,
                            "--%s %" PRIu64 " is smaller than one page, which takes %" PRIu64
                            " bytes; give at least that, or 0 for no such tier",
                            i == 0 ? "hbm" : "host", budgets[i], page_bytes);
            return KVT_EXIT_USAGE;
        }
    }
    if (plan->nvme != NULL && plan->host_given && plan->host_bytes == 0) {
        kvt_usage_error(COMMAND, "--host 0 with --nvme: pages pass through the host tier on their "
                                 "way to nvme; give it at least a page");
        return KVT_EXIT_USAGE;
    }
    if (plan->hbm_given && plan->hbm_bytes == 0 && plan->host_given && plan->host_bytes == 0) {
        kvt_usage_error(COMMAND, "--hbm 0 and --host 0 leave the cache no memory; use --only "
                                 "without to run without a cache");
        return KVT_EXIT_USAGE;
    }
    return KVT_EXIT_DONE;
}

/* The order and what it needs; says what is wrong. */
static int make_order(struct kvt_replay_plan *plan)
{
    enum kvt_order_kind kind =
        plan->speed == KVT_REPLAY_TRACE ? KVT_ORDER_ARRIVAL : KVT_ORDER_ROUNDS;
    kvt_status status = kvt_order_build(plan->trace, kind, plan->sessions, plan->context_tokens,
                                        plan->output_tokens, &plan->order);
    if (status == KVT_ERR_INVAL) {
        kvt_usage_error(COMMAND,
                        "--speed trace: %s has no times, as text traces have none; use "
                        "--speed max",
                        plan->trace_name);
        return KVT_EXIT_USAGE;
    }
    if (status == KVT_OK && plan->order.turn_count == 0) {
        kvt_command_error(COMMAND,
                          "%s: no turn of the first %" PRIu32 " sessions fits into %" PRIu32
                          " tokens with its output; raise --context or --sessions",
                          plan->trace_name, plan->sessions, plan->context_tokens);
        return KVT_EXIT_FAILED;
    }
    if (status == KVT_OK) {
        status = kvt_order_measure(plan->trace, &plan->order, plan->page_tokens,
                                   plan->engine->vocabulary(), &plan->needs);
    }
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "memory could not be had for the first pass over the trace");
        return KVT_EXIT_FAILED;
    }
    default_budgets(plan);
    return KVT_EXIT_DONE;
}

/* ---- running ---- */

/* Says what came of one half. An engine that refuses its settings is a wrong command line. */
static int run_half(const struct kvt_replay_plan *plan, bool with_cache,
                    struct kvt_replay_half *half)
{
    char why[KVT_REPLAY_WHY_BYTES];
    kvt_status status = kvt_replay_run(plan, with_cache, half, why, sizeof(why));
    if (status == KVT_OK) {
        return KVT_EXIT_DONE;
    }
    if (status == KVT_ERR_INVAL && !half->ran) {
        kvt_usage_error(COMMAND, "%s", why);
        return KVT_EXIT_USAGE;
    }
    kvt_command_error(COMMAND, "%s: %s", with_cache ? "with the cache" : "without a cache", why);
    return KVT_EXIT_FAILED;
}

static void say_failures(const struct kvt_replay_plan *plan, const char *name,
                         const struct kvt_replay_half *half)
{
    if (half->failed_count == 0) {
        return;
    }
    const struct kvt_trace_turn *turn = &plan->trace->turns[plan->order.turns[half->failed_first]];
    kvt_command_error(COMMAND,
                      "%s: %" PRIu32 " of %" PRIu32 " requests failed, first turn %" PRIu32
                      " of session %s: %s",
                      name, half->failed_count, half->turn_count, turn->turn,
                      plan->trace->sessions[turn->session].id,
                      kvt_status_sentence(half->results[half->failed_first].status));
}

/* Prints what the halves say and returns the exit status. Wrong answers weigh more than missing
 * ones. */
static int report(const struct kvt_replay_plan *plan, const struct kvt_replay_half *without,
                  const struct kvt_replay_half *with)
{
    struct kvt_replay_verdict verdict;
    kvt_status status = kvt_replay_judge(plan, without, with, &verdict);
    if (status == KVT_OK && plan->json) {
        status = kvt_replay_print_json(plan, without, with, &verdict);
    } else if (status == KVT_OK) {
        kvt_replay_print_table(plan, without, with, &verdict);
    }
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "memory could not be had for the report");
        return KVT_EXIT_FAILED;
    }
    (void)fflush(stdout);
    say_failures(plan, "without a cache", without);
    say_failures(plan, "with the cache", with);
    int exit_status = KVT_EXIT_DONE;
    if (without->failed_count + with->failed_count > 0) {
        exit_status = KVT_EXIT_FAILED;
    }
    if (with->has_stats && !verdict.conserved) {
        kvt_command_error(COMMAND, "conservation is broken: %s", verdict.broken);
        exit_status = KVT_EXIT_BAD_NEWS;
    }
    if (verdict.turns_different > 0) {
        kvt_command_error(COMMAND, "outputs differ on %" PRIu32 " of %" PRIu32 " turns",
                          verdict.turns_different, verdict.turns_compared);
        exit_status = KVT_EXIT_BAD_NEWS;
    } else if (plan->control == KVT_CONTROL_FOREIGN_PAGE) {
        /* Equality that a wrong page does not disturb proves nothing. */
        kvt_command_error(COMMAND, "the control changed nothing: no page was restored in these "
                                   "turns, or the comparison is blind");
        exit_status = KVT_EXIT_FAILED;
    }
    return exit_status;
}

/* The half with the cache runs first: if its plug-in or budgets cannot be used, that is known
 * before minutes are spent on the other half. A warm machine then favours the half without. */
static int run_plan(const struct kvt_replay_plan *plan)
{
    struct kvt_replay_half without = {0};
    struct kvt_replay_half with = {0};
    int exit_status = KVT_EXIT_DONE;
    if (plan->only != KVT_REPLAY_WITHOUT) {
        exit_status = run_half(plan, true, &with);
    }
    if (exit_status == KVT_EXIT_DONE && plan->only != KVT_REPLAY_WITH) {
        exit_status = run_half(plan, false, &without);
    }
    if (exit_status == KVT_EXIT_DONE) {
        exit_status = report(plan, &without, &with);
    }
    kvt_replay_half_fini(plan, &without);
    kvt_replay_half_fini(plan, &with);
    return exit_status;
}

static int replay_trace(const struct kvt_replay_plan *wanted, const char *path)
{
    struct kvt_replay_plan plan = *wanted;
    char why[KVT_REPLAY_WHY_BYTES];
    struct kvt_trace trace;
    if (kvt_trace_open(path, &trace, why, sizeof(why)) != KVT_OK) {
        kvt_command_error(COMMAND, "%s", why);
        return KVT_EXIT_FAILED;
    }
    plan.trace = &trace;
    int exit_status = make_order(&plan);
    if (exit_status == KVT_EXIT_DONE) {
        if (!plan.quiet) {
            kvt_replay_print_plan(&plan, plan.json ? stderr : stdout);
        }
        exit_status = run_plan(&plan);
    }
    kvt_order_destroy(&plan.order);
    kvt_trace_close(&trace);
    return exit_status;
}

/* The engine of that name, or NULL and a sentence. */
static const struct kvt_replay_engine *find_engine(const struct kvt_replay_engine *const *engines,
                                                   const char *name)
{
    char known[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; engines[i] != NULL; i++) {
        if (name == NULL || strcmp(engines[i]->name, name) == 0) {
            return engines[i];
        }
        int n = snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                         engines[i]->name);
        used = n > 0 && (size_t)n < sizeof(known) - used ? used + (size_t)n : sizeof(known) - 1;
    }
    kvt_usage_error(COMMAND, "--engine: \"%s\" is not known; the engines are: %s", name, known);
    return NULL;
}

int kvt_replay_main(const struct kvt_replay_engine *const *engines, int argc, char **argv)
{
    struct arguments arguments = {.only = KVT_REPLAY_BOTH,
                                  .sessions = 8,
                                  .concurrency = 1,
                                  .seed = 1,
                                  .block_tokens = KVT_NOT_GIVEN,
                                  .page_tokens = KVT_NOT_GIVEN,
                                  .output_tokens = 16,
                                  .context_tokens = 16384,
                                  .hbm_bytes = KVT_NOT_GIVEN,
                                  .host_bytes = KVT_NOT_GIVEN,
                                  .budget_hundredths = KVT_REPLAY_HUNDREDTHS};
    const char *trace_path = NULL;
    uint32_t operand_count = 0;
    enum kvt_parse parsed =
        kvt_options_parse(&command_line, argc, argv, &arguments, &trace_path, &operand_count);
    if (parsed != KVT_PARSE_DONE) {
        return parsed == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    const struct kvt_replay_engine *engine = find_engine(engines, arguments.engine);
    if (engine == NULL || !stores_good(&arguments.nvme)) {
        return KVT_EXIT_USAGE;
    }
    char *own_plugin = NULL;
    if (arguments.plugin_path == NULL && arguments.only != KVT_REPLAY_WITHOUT) {
        own_plugin = plugin_of_program();
        if (own_plugin == NULL) {
            kvt_usage_error(COMMAND, "the program's own folder is not known; name the plug-in "
                                     "with --plugin");
            return KVT_EXIT_FAILED;
        }
        arguments.plugin_path = own_plugin;
    }
    struct kvt_replay_plan plan;
    char *nvme = NULL;
    int exit_status = KVT_EXIT_FAILED;
    if (!join_stores(&arguments.nvme, &nvme)) {
        kvt_command_error(COMMAND, "memory could not be had for the names of the stores");
    } else {
        fill_plan(&arguments, trace_path, nvme, engine, &plan);
        exit_status = check_arguments(&plan);
    }
    if (exit_status == KVT_EXIT_DONE) {
        exit_status = replay_trace(&plan, trace_path);
    }
    free(nvme);
    free(own_plugin);
    return exit_status;
}
