/*
 * kvtier bench open: how long a cache with an nvme tier takes to open, against a plain walk over
 * the same records.
 *
 * The catalog is filled alone, with a part deleted and written anew several times; the data file
 * is there, but nobody wrote it, for opening reads none of it. What the page cache has of the
 * files is dropped before each walk and each opening.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kvt_cache.h"
#include "kvt_store.h"
#include "tools/bench.h"
#include "tools/bench_folder.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/progress.h"

#define COMMAND "bench open"
#define WHY_BYTES 1024u
#define PAGE_TOKENS KVT_BENCH_PAGE_TOKENS
#define PAGE_BYTES 4096u
#define CHURN_ROUNDS 4u
#define HOST_BYTES (UINT64_C(16) << 20)
#define ROUNDS_MAX 100u
#define LOG_WARNING 2

struct open_args {
    const char *store;
    uint64_t pages, rounds;
    bool keep, json;
};

struct open_result {
    uint64_t loaded_pages, records;
    double open_ms, walk_ms;
};

static void on_log(void *ctx, int32_t level, const char *line)
{
    (void)ctx;
    if (level <= LOG_WARNING) {
        (void)fprintf(stderr, "kvtier " COMMAND ": %s\n", line);
    }
}

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)total;
    kvt_progress_step(ctx, done);
}

static kvt_status walk_once(const char *folder, double *out_ms, uint64_t *out_records, char *why)
{
    uint64_t ns = 0;
    kvt_status status = kvt_store_uncache(folder, why, WHY_BYTES);
    if (status == KVT_OK) {
        status = kvt_store_walk(folder, NULL, &ns, out_records, why, WHY_BYTES);
    }
    *out_ms = (double)ns / 1e6;
    return status;
}

static kvt_status open_once(const char *folder, uint64_t store_bytes, double *out_ms,
                            uint64_t *out_pages, char *why)
{
    const struct kvt_cache_store store = {folder, store_bytes};
    const struct kvt_cache_config config = {.page_tokens = PAGE_TOKENS,
                                            .host_bytes = HOST_BYTES,
                                            .log = on_log,
                                            .stores = &store,
                                            .store_count = 1};
    kvt_status status = kvt_store_uncache(folder, why, WHY_BYTES);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache *cache = NULL;
    struct kvt_cache_stats stats;
    uint64_t start_ns = kvt_tool_now_ns();
    status = kvt_cache_create(&config, &cache, why, WHY_BYTES);
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_cache_stats(cache, &stats);
    *out_ms = (double)(kvt_tool_now_ns() - start_ns) / 1e6;
    *out_pages = status == KVT_OK ? stats.nvme_loaded_pages : 0;
    kvt_status closed = kvt_cache_destroy(cache);
    return status == KVT_OK ? closed : status;
}

static kvt_status measure(const struct open_args *args, const char *folder,
                          struct open_result *out_result, char *why)
{
    double opens[ROUNDS_MAX], walks[ROUNDS_MAX];
    uint32_t rounds = (uint32_t)args->rounds;
    uint64_t store_bytes = 0;
    struct kvt_progress progress;
    kvt_progress_start(&progress, "filling the catalog",
                       args->pages + CHURN_ROUNDS * (args->pages / 4), true);
    const struct kvt_store_fill_config fill = {.folder = folder,
                                               .pages = args->pages,
                                               .page_bytes = PAGE_BYTES,
                                               .page_tokens = PAGE_TOKENS,
                                               .churn_rounds = CHURN_ROUNDS,
                                               .seed = 1,
                                               .log = on_log,
                                               .progress = on_progress,
                                               .ctx = &progress};
    kvt_status status = kvt_store_fill(&fill, &store_bytes, why, WHY_BYTES);
    kvt_progress_end(&progress);
    for (uint32_t i = 0; status == KVT_OK && i < rounds; i++) {
        status = walk_once(folder, &walks[i], &out_result->records, why);
        if (status == KVT_OK) {
            status = open_once(folder, store_bytes, &opens[i], &out_result->loaded_pages, why);
        }
    }
    if (status == KVT_OK) {
        out_result->open_ms = kvt_bench_median(opens, rounds);
        out_result->walk_ms = kvt_bench_median(walks, rounds);
    }
    return status;
}

static int report(const struct open_args *args, const struct open_result *result)
{
    double ratio = result->walk_ms > 0 ? result->open_ms / result->walk_ms : 0;
    if (result->loaded_pages != args->pages) {
        kvt_command_error(COMMAND, "%" PRIu64 " of %" PRIu64 " pages were found again",
                          result->loaded_pages, args->pages);
        return KVT_EXIT_BAD_NEWS;
    }
    if (args->json) {
        return kvt_bench_print_json(json_pack("{s:I, s:f, s:f, s:f, s:I}", "pages",
                                              (json_int_t)result->loaded_pages, "open_ms",
                                              result->open_ms, "walk_ms", result->walk_ms, "ratio",
                                              ratio, "rounds", (json_int_t)args->rounds),
                                    COMMAND);
    }
    (void)printf("%" PRIu64 " pages, cold, medians of %" PRIu64 "\n\n"
                 "  open  %8.1f ms, until the cache answers\n"
                 "  walk  %8.1f ms, a plain cursor over the same %" PRIu64 " records\n"
                 "  ratio %8.2f\n",
                 result->loaded_pages, args->rounds, result->open_ms, result->walk_ms,
                 result->records, ratio);
    return KVT_EXIT_DONE;
}

static const struct kvt_option open_options[] = {
    KVT_OPT_TEXT("store", struct open_args, store, "DIR",
                 "make and remove a store in this folder, on the drive that is to be measured"),
    KVT_OPT_COUNT("pages", struct open_args, pages, 1, 50000000, "pages in the store (1000000)"),
    KVT_OPT_COUNT("rounds", struct open_args, rounds, 1, ROUNDS_MAX, "openings and walks (5)"),
    KVT_OPT_FLAG("keep", struct open_args, keep, "leave the store there"),
    KVT_OPT_FLAG("json", struct open_args, json, "print one JSON object"),
};
static const struct kvt_command_line open_line = {
    .command = COMMAND,
    .summary = "Opens a cache whose nvme tier knows many pages, with nothing of it in the page "
               "cache, and compares with a plain walk over the same records.",
    .options = open_options,
    .option_count = sizeof(open_options) / sizeof(open_options[0]),
};

int kvt_bench_open_store(int argc, char **argv)
{
    struct open_args args = {.pages = 1000000, .rounds = 5};
    uint32_t operands = 0;
    enum kvt_parse parse = kvt_options_parse(&open_line, argc, argv, &args, NULL, &operands);
    if (parse != KVT_PARSE_DONE) {
        return parse == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    if (args.store == NULL) {
        kvt_usage_error(COMMAND, "--store is missing: a folder on the drive to measure");
        return KVT_EXIT_USAGE;
    }
    struct kvt_bench_folder folder;
    if (!kvt_bench_folder_open(&folder, COMMAND, args.store, args.keep)) {
        return KVT_EXIT_FAILED;
    }
    struct open_result result = {0};
    char why[WHY_BYTES] = "";
    kvt_status status = measure(&args, folder.store, &result, why);
    int code = KVT_EXIT_FAILED;
    if (status == KVT_OK) {
        code = report(&args, &result);
    } else {
        kvt_command_error(COMMAND, "%s", why[0] != '\0' ? why : kvt_status_sentence(status));
    }
    kvt_bench_folder_close(&folder, COMMAND);
    return code;
}
