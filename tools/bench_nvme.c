/*
 * kvtier bench nvme: pages to a drive and back, through the tier itself, against fio.
 *
 * The tier: batches of pages are written, flushed, committed to the catalog; then all pages are
 * read, many at a time, every checksum verified. fio: the same bytes on the same file system,
 * plainly, with the block size and depth that suit the drive best (found by short trials), syncing
 * after as many bytes as the tier does. The two take turns; both files have been written once
 * before; the medians are compared. What is left of 1 is what the tier costs.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "kvt_store.h"
#include "tools/bench.h"
#include "tools/bench_fio.h"
#include "tools/bench_folder.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/progress.h"

#define COMMAND "bench nvme"
#define WHY_BYTES 1024u
#define PAGE_TOKENS KVT_BENCH_PAGE_TOKENS
#define ROUNDS_MAX 100u
#define PAGE_BYTES_MIN 4096u
#define PAGE_BYTES_MAX (UINT64_C(64) << 20)
#define BATCH_BYTES (UINT64_C(64) << 20)
#define TRIAL_BYTES (UINT64_C(512) << 20)
#define CHECKSUM_BYTES (UINT64_C(4) << 30)
#define MIXED_WRITE_PART                                                                           \
    0.6 /* of the rate of writing alone: the half that is asked for, and a bit */
#define LOG_WARNING 2

struct nvme_args {
    const char *store;
    uint64_t bytes, page_bytes, depth, mixed_depth, rounds;
    bool fio, mixed, keep, threads, json;
};

enum value {
    READ,
    WRITE,
    FIO_READ,
    FIO_WRITE,
    ALONE_P99, /* us, as the others */
    MIXED_P99,
    MIXED_READ, /* GB/s, as its write */
    MIXED_WRITE,
    FIO_ALONE_P99,
    FIO_MIXED_P99,
    FIO_MIXED_WRITE,
    VALUES
};

struct nvme_run {
    struct nvme_args args;
    struct kvt_bench_folder folder;
    struct kvt_store_bench *bench;
    struct kvt_store_bench_facts facts;
    struct kvt_fio_job reads, writes; /* with the best of the trials */
    uint32_t rounds;                  /* done */
    double all[VALUES][ROUNDS_MAX];
    double value[VALUES]; /* medians */
    double checksum_gbps;
    struct kvt_progress progress;
};

static void on_log(void *ctx, int32_t level, const char *line)
{
    (void)ctx;
    if (level <= LOG_WARNING) {
        (void)fprintf(stderr, "kvtier " COMMAND ": %s\n", line);
    }
}

static double gbps_of(const struct kvt_store_bench_rate *rate)
{
    return rate->ns > 0 ? (double)rate->bytes / (double)rate->ns : 0;
}

static bool failed(kvt_status status, const char *doing)
{
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "%s failed: %s", doing, kvt_status_sentence(status));
    }
    return status != KVT_OK;
}

/* ---- fio ---- */

static uint64_t min_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Short runs with each block size and depth; the fastest stays in *job. */
static bool trials(struct kvt_fio_job *job)
{
    static const uint64_t blocks[] = {256u << 10, 1u << 20, 2u << 20};
    static const uint32_t depths[] = {8, 32};
    struct kvt_fio_job trial = *job;
    double best = 0;
    trial.io_bytes = min_of(job->file_bytes, TRIAL_BYTES);
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        for (size_t k = 0; k < sizeof(depths) / sizeof(depths[0]); k++) {
            struct kvt_fio_result result;
            trial.block_bytes = blocks[i];
            trial.depth = depths[k];
            if (!kvt_fio_run(&trial, &result)) {
                return false;
            }
            if (result.gbps > best) {
                best = result.gbps;
                job->block_bytes = blocks[i];
                job->depth = depths[k];
            }
        }
    }
    return true;
}

static bool fio_prepare(struct nvme_run *run)
{
    struct kvt_fio_job job = {.command = COMMAND,
                              .file = run->folder.file,
                              .write = true,
                              .direct = run->facts.direct != 0,
                              .file_bytes = run->facts.data_bytes,
                              .io_bytes = run->facts.data_bytes,
                              .block_bytes = 1u << 20,
                              .depth = 8};
    struct kvt_fio_result result;
    /* Both written once before anything is measured. */
    if (!kvt_fio_run(&job, &result)) {
        return false;
    }
    if (run->args.mixed) {
        struct kvt_fio_job another = job;
        another.file = run->folder.another;
        if (!kvt_fio_run(&another, &result)) {
            return false;
        }
    }
    job.sync_bytes = BATCH_BYTES;
    run->writes = job;
    job.write = false;
    run->reads = job;
    return trials(&run->writes) && trials(&run->reads);
}

static bool fio_round(struct nvme_run *run, uint32_t i)
{
    struct kvt_fio_result result;
    if (!kvt_fio_run(&run->writes, &result)) {
        return false;
    }
    run->all[FIO_WRITE][i] = result.gbps;
    if (!kvt_fio_run(&run->reads, &result)) {
        return false;
    }
    run->all[FIO_READ][i] = result.gbps;
    return true;
}

static bool fio_mixed_round(struct nvme_run *run, uint32_t i, double write_gbps)
{
    struct kvt_fio_job job = run->reads;
    struct kvt_fio_result result;
    job.block_bytes = run->args.page_bytes;
    job.depth = (uint32_t)run->args.mixed_depth;
    if (!kvt_fio_run(&job, &result)) {
        return false;
    }
    run->all[FIO_ALONE_P99][i] = result.p99_ns / 1e3;
    job.beside_file = run->folder.another;
    job.beside_file_bytes = run->facts.data_bytes;
    job.beside_block_bytes = run->writes.block_bytes;
    job.beside_depth = run->writes.depth;
    job.beside_bytes_per_s = (uint64_t)(write_gbps * 1e9);
    if (!kvt_fio_run(&job, &result)) {
        return false;
    }
    run->all[FIO_MIXED_P99][i] = result.p99_ns / 1e3;
    run->all[FIO_MIXED_WRITE][i] = result.beside_gbps;
    return true;
}

/* ---- the tier ---- */

static bool tier_open(struct nvme_run *run)
{
    const char *store = run->folder.store;
    const struct kvt_store_bench_config config = {
        .folders = &store,
        .folder_count = 1,
        .flags = run->args.threads ? KVT_STORE_THREADS : 0,
        .bytes = run->args.bytes,
        .page_bytes = run->args.page_bytes,
        .batch_bytes = BATCH_BYTES > run->args.page_bytes ? BATCH_BYTES : run->args.page_bytes,
        .page_tokens = PAGE_TOKENS,
        .depth = (uint32_t)(run->args.depth > run->args.mixed_depth ? run->args.depth
                                                                    : run->args.mixed_depth),
        .log = on_log,
    };
    char why[WHY_BYTES] = "";
    kvt_status status = kvt_store_bench_open(&config, &run->bench, why, sizeof(why));
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "%s", why[0] != '\0' ? why : kvt_status_sentence(status));
        return false;
    }
    kvt_store_bench_facts(run->bench, &run->facts);
    if (run->facts.direct == 0) {
        (void)fprintf(stderr, "kvtier " COMMAND ": no O_DIRECT here: what is measured is the page "
                              "cache as much as the drive\n");
    }
    struct kvt_store_bench_rate rate;
    return !failed(kvt_store_bench_write(run->bench, &rate), "the first writing");
}

static bool tier_round(struct nvme_run *run, uint32_t i)
{
    struct kvt_store_bench_rate rate;
    if (failed(kvt_store_bench_write(run->bench, &rate), "writing")) {
        return false;
    }
    run->all[WRITE][i] = gbps_of(&rate);
    if (failed(kvt_store_bench_read(run->bench, (uint32_t)run->args.depth, &rate), "reading")) {
        return false;
    }
    run->all[READ][i] = gbps_of(&rate);
    return true;
}

static bool mixed_round(struct nvme_run *run, uint32_t i)
{
    struct kvt_store_bench_rate read, write;
    uint32_t depth = (uint32_t)run->args.mixed_depth;
    if (failed(kvt_store_bench_read(run->bench, depth, &read), "reading")) {
        return false;
    }
    run->all[ALONE_P99][i] = (double)read.p99_ns / 1e3;
    double pace_gbps = run->all[WRITE][i] * MIXED_WRITE_PART;
    if (failed(kvt_store_bench_mixed(run->bench, depth, (uint64_t)(pace_gbps * 1e9), &read, &write),
               "reading and writing")) {
        return false;
    }
    run->all[MIXED_P99][i] = (double)read.p99_ns / 1e3;
    run->all[MIXED_READ][i] = gbps_of(&read);
    run->all[MIXED_WRITE][i] = gbps_of(&write);
    return !run->args.fio || fio_mixed_round(run, i, pace_gbps);
}

/* ---- all of it ---- */

/* Who goes first changes: some drives are faster for a while after a pause. */
static bool both_round(struct nvme_run *run, uint32_t i)
{
    bool fio_first = i % 2 == 1;
    return (!run->args.fio || !fio_first || fio_round(run, i)) && tier_round(run, i) &&
           (!run->args.fio || fio_first || fio_round(run, i));
}

static bool checksum_measure(struct nvme_run *run)
{
    uint64_t ns = 0;
    uint64_t bytes = min_of(CHECKSUM_BYTES, 4 * run->args.bytes);
    if (failed(kvt_store_bench_checksum(bytes, run->args.page_bytes, &ns), "the checksum")) {
        return false;
    }
    run->checksum_gbps = ns > 0 ? (double)bytes / (double)ns : 0;
    return true;
}

static bool measure(struct nvme_run *run)
{
    if (!tier_open(run) || !checksum_measure(run) || (run->args.fio && !fio_prepare(run))) {
        return false;
    }
    kvt_progress_start(&run->progress, "rounds", run->args.rounds, true);
    for (uint32_t i = 0; i < run->args.rounds; i++) {
        if (!both_round(run, i) || (run->args.mixed && !mixed_round(run, i))) {
            kvt_progress_end(&run->progress);
            return false;
        }
        run->rounds = i + 1;
        kvt_progress_step(&run->progress, run->rounds);
    }
    kvt_progress_end(&run->progress);
    for (uint32_t v = 0; v < VALUES; v++) {
        run->value[v] = kvt_bench_median(run->all[v], run->rounds);
    }
    return true;
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static json_t *mixed_json(const struct nvme_run *run)
{
    const double *v = run->value;
    json_t *all =
        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "depth", (json_int_t)run->args.mixed_depth,
                  "read_alone_p99_us", v[ALONE_P99], "read_p99_us", v[MIXED_P99], "p99_ratio",
                  ratio(v[MIXED_P99], v[ALONE_P99]), "read_gbps", v[MIXED_READ], "write_gbps",
                  v[MIXED_WRITE], "write_part", ratio(v[MIXED_WRITE], v[WRITE]));
    if (all != NULL && run->args.fio) {
        json_t *more =
            json_pack("{s:f, s:f, s:f, s:f}", "fio_read_alone_p99_us", v[FIO_ALONE_P99],
                      "fio_read_p99_us", v[FIO_MIXED_P99], "fio_write_gbps", v[FIO_MIXED_WRITE],
                      "fio_p99_ratio", ratio(v[MIXED_P99], v[FIO_MIXED_P99]));
        (void)json_object_update_missing(all, more);
        json_decref(more);
    }
    return all;
}

static int report_json(const struct nvme_run *run)
{
    const double *v = run->value;
    json_t *all = json_pack(
        "{s:f, s:f, s:I, s:I, s:b, s:f, s:s, s:b, s:I, s:I, s:I}", "read_gbps", v[READ],
        "write_gbps", v[WRITE], "page_bytes", (json_int_t)run->args.page_bytes, "depth",
        (json_int_t)run->args.depth, "checksum", true, "checksum_gbps", run->checksum_gbps, "io",
        run->facts.io, "direct", run->facts.direct != 0, "bytes", (json_int_t)run->facts.data_bytes,
        "batch_bytes", (json_int_t)BATCH_BYTES, "rounds", (json_int_t)run->rounds);
    if (all != NULL && run->args.fio) {
        json_t *fio = json_pack(
            "{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I}", "fio_read_gbps", v[FIO_READ],
            "fio_write_gbps", v[FIO_WRITE], "read_ratio", ratio(v[READ], v[FIO_READ]),
            "write_ratio", ratio(v[WRITE], v[FIO_WRITE]), "fio_read_block",
            (json_int_t)run->reads.block_bytes, "fio_read_depth", (json_int_t)run->reads.depth,
            "fio_write_block", (json_int_t)run->writes.block_bytes, "fio_write_depth",
            (json_int_t)run->writes.depth);
        (void)json_object_update_missing(all, fio);
        json_decref(fio);
    }
    if (all != NULL && run->args.mixed) {
        (void)json_object_set_new(all, "mixed", mixed_json(run));
    }
    return kvt_bench_print_json(all, COMMAND);
}

static int report_text(const struct nvme_run *run)
{
    const double *v = run->value;
    char page[KVT_SIZE_TEXT_BYTES], all[KVT_SIZE_TEXT_BYTES];
    kvt_size_text(run->args.page_bytes, page);
    kvt_size_text(run->facts.data_bytes, all);
    (void)printf("%s in pages of %s, %" PRIu64 " reads at a time, %s%s, medians of %" PRIu32
                 "\n\n  read      %7.3f GB/s, checksums verified\n"
                 "  write     %7.3f GB/s, synced and committed\n"
                 "  checksum  %7.3f GB/s alone, on one core\n",
                 all, page, run->args.depth, run->facts.io,
                 run->facts.direct != 0 ? ", O_DIRECT" : ", through the page cache", run->rounds,
                 v[READ], v[WRITE], run->checksum_gbps);
    if (run->facts.io_reason[0] != '\0') {
        (void)printf("  no io_uring: %s\n", run->facts.io_reason);
    }
    if (run->args.fio) {
        (void)printf("  fio read  %7.3f GB/s: %.3f of it\n  fio write %7.3f GB/s: %.3f of it\n",
                     v[FIO_READ], ratio(v[READ], v[FIO_READ]), v[FIO_WRITE],
                     ratio(v[WRITE], v[FIO_WRITE]));
    }
    if (run->args.mixed) {
        (void)printf("\n  %" PRIu64 " reads at a time: p99 %.0f us alone, %.0f us (%.2f times) "
                     "beside writes of %.3f GB/s (%.2f of writing alone)\n",
                     run->args.mixed_depth, v[ALONE_P99], v[MIXED_P99],
                     ratio(v[MIXED_P99], v[ALONE_P99]), v[MIXED_WRITE],
                     ratio(v[MIXED_WRITE], v[WRITE]));
    }
    if (run->args.mixed && run->args.fio) {
        (void)printf("  fio: %.0f us alone, %.0f us beside writes of %.3f GB/s\n", v[FIO_ALONE_P99],
                     v[FIO_MIXED_P99], v[FIO_MIXED_WRITE]);
    }
    return KVT_EXIT_DONE;
}

static const struct kvt_option nvme_options[] = {
    KVT_OPT_TEXT("store", struct nvme_args, store, "DIR",
                 "make and remove a store in this folder, on the drive that is to be measured"),
    KVT_OPT_SIZE("bytes", struct nvme_args, bytes, "bytes of pages (2G)"),
    KVT_OPT_SIZE("page-bytes", struct nvme_args, page_bytes, "bytes of a page (2M)"),
    KVT_OPT_COUNT("depth", struct nvme_args, depth, 1, 256, "reads at a time (32)"),
    KVT_OPT_COUNT("rounds", struct nvme_args, rounds, 1, ROUNDS_MAX, "how often (5)"),
    KVT_OPT_FLAG("fio", struct nvme_args, fio, "take turns with fio, and compare"),
    KVT_OPT_FLAG("mixed", struct nvme_args, mixed,
                 "measure how long reads take beside writes, too"),
    KVT_OPT_COUNT("mixed-depth", struct nvme_args, mixed_depth, 1, 256,
                  "reads at a time beside writes (1)"),
    KVT_OPT_FLAG("threads", struct nvme_args, threads, "do without io_uring"),
    KVT_OPT_FLAG("keep", struct nvme_args, keep, "leave the store there"),
    KVT_OPT_FLAG("json", struct nvme_args, json, "print one JSON object"),
};
static const struct kvt_command_line nvme_line = {
    .command = COMMAND,
    .summary = "Writes pages to a drive and reads them again, through the nvme tier: synced, "
               "committed to the catalog, checksums verified.",
    .options = nvme_options,
    .option_count = sizeof(nvme_options) / sizeof(nvme_options[0]),
};

static bool args_good(const struct nvme_args *args)
{
    if (args->store == NULL) {
        kvt_usage_error(COMMAND, "--store is missing: a folder on the drive to measure");
    } else if (args->page_bytes < PAGE_BYTES_MIN || args->page_bytes > PAGE_BYTES_MAX) {
        kvt_usage_error(COMMAND, "--page-bytes: give 4K to 64M");
    } else if (args->bytes < args->page_bytes) {
        kvt_usage_error(COMMAND, "--bytes: give at least a page");
    } else {
        return true;
    }
    return false;
}

int kvt_bench_nvme(int argc, char **argv)
{
    static struct nvme_run run; /* once in a process; too large for a stack */
    run.args = (struct nvme_args){.bytes = UINT64_C(2) << 30,
                                  .page_bytes = 2u << 20,
                                  .depth = 32,
                                  .mixed_depth = 1,
                                  .rounds = 5};
    uint32_t operands = 0;
    enum kvt_parse parse = kvt_options_parse(&nvme_line, argc, argv, &run.args, NULL, &operands);
    if (parse != KVT_PARSE_DONE) {
        return parse == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    if (!args_good(&run.args)) {
        return KVT_EXIT_USAGE;
    }
    if ((run.args.fio && !kvt_fio_is_there(COMMAND)) ||
        !kvt_bench_folder_open(&run.folder, COMMAND, run.args.store, run.args.keep)) {
        return KVT_EXIT_FAILED;
    }
    int code = KVT_EXIT_FAILED;
    if (measure(&run)) {
        code = run.args.json ? report_json(&run) : report_text(&run);
    }
    kvt_store_bench_close(run.bench);
    kvt_bench_folder_close(&run.folder, COMMAND);
    return code;
}
