/* kvtier bench match, insert: what bench.c's head says. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/progress.h"

#define PAGE_TOKENS KVT_BENCH_PAGE_TOKENS
#define MATCH_PAGES_DEFAULT 1000000u
#define MATCH_SESSIONS_MIN 100u
#define MATCH_ROUNDS_DEFAULT 20u
#define INSERT_SESSIONS 1000u
#define MATCH_TOKENS_MIN 16384u /* shorter prompts would be mostly shared head */
#define WHY_BYTES 256

static int compare_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

/* The quantile q (0..100) of sorted times, in microseconds. */
static double quantile_us(uint64_t *times_ns, size_t count, unsigned q)
{
    qsort(times_ns, count, sizeof(*times_ns), compare_u64);
    size_t at = (count - 1) * q / 100;
    return (double)times_ns[at] / 1000.0;
}

static int print_json(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(object);
    if (text == NULL) {
        return KVT_EXIT_FAILED;
    }
    (void)printf("%s\n", text);
    free(text);
    return KVT_EXIT_DONE;
}

/* ---- match ---- */

struct match_args {
    uint64_t tokens, pages, rounds;
    bool json;
};

struct match_run {
    struct match_args args;
    struct kvt_bench bench;
    uint32_t sessions;
    uint64_t prompt_tokens; /* tokens + 1: the last token of a prompt is never matched */
    uint32_t **prompts, **copies;
    uint64_t *match_ns, *memcmp_ns;
    size_t samples;
    uint64_t allocated_bytes;
    bool allocations_known;
};

static void match_free(struct match_run *run)
{
    for (uint32_t i = 0; run->prompts != NULL && run->copies != NULL && i < run->sessions; i++) {
        free(run->prompts[i]);
        free(run->copies[i]);
    }
    free(run->prompts);
    free(run->copies);
    free(run->match_ns);
    free(run->memcmp_ns);
    kvt_bench_close(&run->bench);
}

static kvt_status match_build(struct match_run *run, char *why, size_t why_bytes)
{
    uint32_t pages = (uint32_t)(run->args.tokens / PAGE_TOKENS);
    /* The shared heads count once. */
    uint64_t sessions = run->args.pages / (pages - KVT_BENCH_HEAD_PAGES) + 1;
    run->sessions = sessions > MATCH_SESSIONS_MIN ? (uint32_t)sessions : MATCH_SESSIONS_MIN;
    run->prompt_tokens = run->args.tokens + 1;
    size_t samples = run->sessions * run->args.rounds;
    run->prompts = calloc(run->sessions, sizeof(*run->prompts));
    run->copies = calloc(run->sessions, sizeof(*run->copies));
    run->match_ns = calloc(samples, sizeof(*run->match_ns));
    run->memcmp_ns = calloc(samples, sizeof(*run->memcmp_ns));
    (void)snprintf(why, why_bytes, "no memory for the prompts");
    if (run->prompts == NULL || run->copies == NULL || run->match_ns == NULL ||
        run->memcmp_ns == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status =
        kvt_bench_open(&run->bench, (uint64_t)run->sessions * pages * 2, why, why_bytes);
    struct kvt_progress progress;
    kvt_progress_start(&progress, "building the tree", run->sessions, true);
    for (uint32_t i = 0; status == KVT_OK && i < run->sessions; i++) {
        size_t bytes = run->prompt_tokens * sizeof(uint32_t);
        run->prompts[i] = malloc(bytes);
        run->copies[i] = malloc(bytes);
        if (run->prompts[i] == NULL || run->copies[i] == NULL) {
            status = KVT_ERR_NOMEM;
            break;
        }
        kvt_bench_prompt(i, run->prompts[i], run->prompt_tokens);
        memcpy(run->copies[i], run->prompts[i], bytes);
        status = kvt_bench_session(&run->bench, i, run->prompts[i], pages);
        kvt_progress_step(&progress, i + 1);
    }
    kvt_progress_end(&progress);
    return status;
}

/* One lookup of a whole prompt, its lease taken and given back inside the time. */
static kvt_status match_once(struct match_run *run, uint32_t session)
{
    struct kvt_cache_lookup lookup = {
        .client = run->bench.client,
        .tokens = run->prompts[session],
        .token_count = run->prompt_tokens,
    };
    struct kvt_cache_found found = {0};
    uint64_t start_ns = kvt_tool_now_ns();
    kvt_status status = kvt_cache_lookup(run->bench.cache, &lookup, &found);
    if (status == KVT_OK) {
        status = kvt_cache_release(run->bench.cache, run->bench.client, found.lease);
    }
    run->match_ns[run->samples] = kvt_tool_now_ns() - start_ns;
    if (status == KVT_OK && found.matched_tokens != run->args.tokens) {
        status = KVT_ERR_CORRUPT; /* all of it was saved: a shorter match is a wrong one */
    }
    return status;
}

static kvt_status match_measure(struct match_run *run)
{
    bool differ = false;
    for (uint64_t round = 0; round < run->args.rounds; round++) {
        size_t first = run->samples;
        uint64_t before = 0, after = 0;
        run->allocations_known = kvt_bench_thread_allocated(&before);
        for (uint32_t i = 0; i < run->sessions; i++) {
            kvt_status status = match_once(run, i);
            if (status != KVT_OK) {
                return status;
            }
            run->samples++;
        }
        if (run->allocations_known && kvt_bench_thread_allocated(&after)) {
            run->allocated_bytes += after - before;
        }
        for (uint32_t i = 0; i < run->sessions; i++) {
            uint64_t start_ns = kvt_tool_now_ns();
            if (memcmp(run->prompts[i], run->copies[i], run->args.tokens * sizeof(uint32_t)) != 0) {
                differ = true;
            }
            run->memcmp_ns[first + i] = kvt_tool_now_ns() - start_ns;
        }
    }
    return differ ? KVT_ERR_CORRUPT : KVT_OK;
}

static int match_report(struct match_run *run)
{
    struct kvt_cache_stats stats;
    if (kvt_cache_stats(run->bench.cache, &stats) != KVT_OK) {
        return KVT_EXIT_FAILED;
    }
    double match_p50 = quantile_us(run->match_ns, run->samples, 50);
    double match_p99 = quantile_us(run->match_ns, run->samples, 99);
    double memcmp_p50 = quantile_us(run->memcmp_ns, run->samples, 50);
    double ratio = match_p50 / memcmp_p50;
    if (run->args.json) {
        json_t *allocations =
            run->allocations_known ? json_integer((json_int_t)run->allocated_bytes) : json_null();
        return print_json(json_pack("{s:I, s:{s:f, s:f}, s:{s:f}, s:f, s:o, s:I, s:I, s:I}",
                                    "tokens", (json_int_t)run->args.tokens, "match_us", "p50",
                                    match_p50, "p99", match_p99, "memcmp_us", "p50", memcmp_p50,
                                    "ratio", ratio, "allocations", allocations, "pages",
                                    (json_int_t)stats.pages, "edges", (json_int_t)stats.nodes,
                                    "sessions", (json_int_t)run->sessions));
    }
    (void)printf("match of %" PRIu64 " tokens in a tree of %" PRIu64 " pages and %" PRIu64
                 " edges, %u sessions in turn\n\n"
                 "  match, lease and release  p50 %8.1f us   p99 %8.1f us\n"
                 "  memcmp of the same tokens p50 %8.1f us\n"
                 "  ratio                     %12.2f\n",
                 run->args.tokens, stats.pages, stats.nodes, run->sessions, match_p50, match_p99,
                 memcmp_p50, ratio);
    if (run->allocations_known) {
        (void)printf("  bytes allocated meanwhile %9" PRIu64 "\n", run->allocated_bytes);
    } else {
        (void)printf("  bytes allocated meanwhile   not known (this build has no jemalloc)\n");
    }
    return KVT_EXIT_DONE;
}

static const struct kvt_option match_options[] = {
    KVT_OPT_COUNT("tokens", struct match_args, tokens, MATCH_TOKENS_MIN, KVT_TOKENS_MAX - 1,
                  "tokens of a prompt, a multiple of 16 (131072)"),
    KVT_OPT_COUNT("pages", struct match_args, pages, 1, 100000000,
                  "pages of the tree, at least (1000000)"),
    KVT_OPT_COUNT("rounds", struct match_args, rounds, 1, 10000,
                  "rotations over all sessions (20)"),
    KVT_OPT_FLAG("json", struct match_args, json, "print one JSON object"),
};
static const struct kvt_command_line match_line = {
    .command = "bench match",
    .summary = "Looks up whole prompts, takes and gives back their leases, and compares the "
               "time with a memcmp of the same tokens over the same rotation.",
    .options = match_options,
    .option_count = sizeof(match_options) / sizeof(match_options[0]),
};

int kvt_bench_match(int argc, char **argv)
{
    struct match_run run = {.args = {131072, MATCH_PAGES_DEFAULT, MATCH_ROUNDS_DEFAULT, false}};
    uint32_t operands = 0;
    enum kvt_parse parse = kvt_options_parse(&match_line, argc, argv, &run.args, NULL, &operands);
    if (parse != KVT_PARSE_DONE) {
        return parse == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    if (run.args.tokens % PAGE_TOKENS != 0) {
        kvt_usage_error("bench match", "--tokens %" PRIu64 " is not a multiple of %u",
                        run.args.tokens, PAGE_TOKENS);
        return KVT_EXIT_USAGE;
    }
    char why[WHY_BYTES] = "";
    kvt_status status = match_build(&run, why, sizeof(why));
    if (status == KVT_OK) {
        status = match_measure(&run);
    }
    int result = KVT_EXIT_FAILED;
    if (status == KVT_OK) {
        result = match_report(&run);
    } else {
        kvt_command_error("bench match", "%s (%s)", kvt_status_sentence(status), why);
    }
    match_free(&run);
    return result;
}

/* ---- insert ---- */

struct insert_args {
    uint64_t pages;
    bool json;
};

static int insert_report(struct kvt_bench *bench, uint64_t before_bytes, uint64_t spent_ns,
                         bool json)
{
    struct kvt_cache_stats stats;
    if (kvt_cache_stats(bench->cache, &stats) != KVT_OK) {
        return KVT_EXIT_FAILED;
    }
    /* Fixed tables (of leases, namespaces) are there before the first page and counted, too. */
    uint64_t bytes = kvt_bench_memory_bytes(&bench->index_memory);
    uint64_t token_bytes = stats.pages * PAGE_TOKENS * sizeof(uint32_t);
    double per_page = (double)(bytes - token_bytes) / (double)stats.pages;
    double rate = (double)stats.pages / ((double)spent_ns / 1e9);
    if (json) {
        return print_json(json_pack(
            "{s:I, s:f, s:f, s:I, s:I, s:s, s:I}", "pages", (json_int_t)stats.pages,
            "index_bytes_per_page", per_page, "pages_per_s", rate, "edges", (json_int_t)stats.nodes,
            "fixed_bytes", (json_int_t)before_bytes, "counted_by",
            kvt_bench_memory_source(&bench->index_memory), "index_bytes", (json_int_t)bytes));
    }
    (void)printf("%" PRIu64 " pages on %" PRIu64 " edges of %u branching sessions\n\n"
                 "  index, without tokens %8.1f bytes a page (%s; %" PRIu64
                 " bytes before the first)\n"
                 "  inserted              %8.0f pages a second, copies included\n",
                 stats.pages, stats.nodes, INSERT_SESSIONS, per_page,
                 kvt_bench_memory_source(&bench->index_memory), before_bytes, rate);
    return KVT_EXIT_DONE;
}

static kvt_status insert_run(struct kvt_bench *bench, uint64_t pages, uint64_t *out_ns)
{
    /* What each adds to the shared heads; the forks come on top. */
    uint32_t session_pages = KVT_BENCH_HEAD_PAGES + (uint32_t)(pages / INSERT_SESSIONS) + 1;
    uint32_t *tokens = malloc((size_t)session_pages * PAGE_TOKENS * sizeof(*tokens));
    kvt_status status = tokens != NULL ? KVT_OK : KVT_ERR_NOMEM;
    struct kvt_progress progress;
    uint64_t start_ns = kvt_tool_now_ns();
    kvt_progress_start(&progress, "inserting", INSERT_SESSIONS, true);
    for (uint32_t i = 0; status == KVT_OK && i < INSERT_SESSIONS; i++) {
        kvt_bench_prompt(i, tokens, (uint64_t)session_pages * PAGE_TOKENS);
        status = kvt_bench_session(bench, i, tokens, session_pages);
        kvt_progress_step(&progress, i + 1);
    }
    kvt_progress_end(&progress);
    *out_ns = kvt_tool_now_ns() - start_ns;
    free(tokens);
    return status;
}

static const struct kvt_option insert_options[] = {
    KVT_OPT_COUNT("pages", struct insert_args, pages, INSERT_SESSIONS, 100000000,
                  "pages to insert (1000000)"),
    KVT_OPT_FLAG("json", struct insert_args, json, "print one JSON object"),
};
static const struct kvt_command_line insert_line = {
    .command = "bench insert",
    .summary = "Fills a tree with branching sessions and counts what the index takes.",
    .options = insert_options,
    .option_count = sizeof(insert_options) / sizeof(insert_options[0]),
};

int kvt_bench_insert(int argc, char **argv)
{
    struct insert_args args = {MATCH_PAGES_DEFAULT, false};
    uint32_t operands = 0;
    enum kvt_parse parse = kvt_options_parse(&insert_line, argc, argv, &args, NULL, &operands);
    if (parse != KVT_PARSE_DONE) {
        return parse == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    struct kvt_bench bench;
    char why[WHY_BYTES] = "";
    kvt_status status = kvt_bench_open(&bench, args.pages * 2, why, sizeof(why));
    int result = KVT_EXIT_FAILED;
    if (status == KVT_OK) {
        uint64_t before_bytes = kvt_bench_memory_bytes(&bench.index_memory);
        uint64_t spent_ns = 1;
        status = insert_run(&bench, args.pages, &spent_ns);
        if (status == KVT_OK) {
            result = insert_report(&bench, before_bytes, spent_ns, args.json);
        }
        kvt_bench_close(&bench);
    }
    if (status != KVT_OK) {
        kvt_command_error("bench insert", "%s (%s)", kvt_status_sentence(status), why);
    }
    return result;
}
