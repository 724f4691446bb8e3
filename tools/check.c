/*
 * kvtier check: looks at the stores of the nvme tier, and repairs them on request.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvt_store.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/progress.h"

#define COMMAND "check"
#define WHY_BYTES 1024u
#define LOG_WARNING 2

struct check_args {
    bool verify, repair, json, buffered;
};

struct check_out {
    struct check_args args;
    struct kvt_progress progress;
    bool bar; /* is on the screen */
    json_t *findings;
};

static const char *kind_name(uint32_t kind)
{
    switch (kind) {
    case KVT_STORE_FOUND_DAMAGE:
        return "damage";
    case KVT_STORE_FOUND_LEFTOVER:
        return "leftover";
    case KVT_STORE_FOUND_NOTE:
        return "note";
    default:
        return "repair";
    }
}

static void bar_off(struct check_out *out)
{
    if (out->bar) {
        kvt_progress_end(&out->progress);
        out->bar = false;
    }
}

static void on_found(void *ctx, uint32_t kind, const char *sentence)
{
    struct check_out *out = ctx;
    bar_off(out);
    if (out->args.json) {
        json_t *one = json_pack("{s:s, s:s}", "kind", kind_name(kind), "sentence", sentence);
        if (one == NULL || json_array_append_new(out->findings, one) != 0) {
            kvt_command_error(COMMAND, "no memory for: %s", sentence);
        }
        return;
    }
    (void)printf("%s: %s\n", kind_name(kind), sentence);
}

static void on_log(void *ctx, int32_t level, const char *line)
{
    (void)ctx;
    if (level <= LOG_WARNING) {
        (void)fprintf(stderr, "kvtier check: %s\n", line);
    }
}

static void on_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    struct check_out *out = ctx;
    if (!out->bar) {
        kvt_progress_start(&out->progress, "verifying", total_bytes, true);
        out->bar = true;
    }
    kvt_progress_step(&out->progress, done_bytes);
}

/* ---- what is printed at the end ---- */

static int print_json(const struct check_out *out, const struct kvt_store_check_result *r)
{
    json_t *all = json_pack(
        "{s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
        " s:O}",
        "ok", r->damaged == 0 || r->repaired != 0, "damaged", r->damaged != 0, "repaired",
        r->repaired != 0, "verified", r->verified != 0, "stores", (json_int_t)r->stores,
        "owner_pid", (json_int_t)r->owner_pid, "namespaces", (json_int_t)r->namespaces, "pages",
        (json_int_t)r->pages, "page_bytes", (json_int_t)r->page_bytes, "damaged_files",
        (json_int_t)r->damaged_files, "damaged_records", (json_int_t)r->damaged_records,
        "misplaced_pages", (json_int_t)r->misplaced_pages, "orphaned_pages",
        (json_int_t)r->orphaned_pages, "corrupt_pages", (json_int_t)r->corrupt_pages,
        "dependent_pages", (json_int_t)r->dependent_pages, "leftovers", (json_int_t)r->leftovers,
        "verified_pages", (json_int_t)r->verified_pages, "removed_pages",
        (json_int_t)r->removed_pages, "findings", out->findings);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    if (text == NULL) {
        kvt_command_error(COMMAND, "no memory for the result");
        return KVT_EXIT_FAILED;
    }
    (void)puts(text);
    free(text);
    return r->damaged != 0 ? KVT_EXIT_BAD_NEWS : KVT_EXIT_DONE;
}

static void print_count(uint64_t count, const char *what)
{
    if (count > 0) {
        (void)printf("  %10" PRIu64 " %s\n", count, what);
    }
}

static int print_text(const struct kvt_store_check_result *r)
{
    char size[KVT_SIZE_TEXT_BYTES];
    kvt_size_text(r->page_bytes, size);
    (void)printf("%" PRIu64 " %s, %" PRIu64 " pages of %s in %" PRIu64 " namespaces\n", r->stores,
                 r->stores == 1 ? "store" : "stores", r->pages, size, r->namespaces);
    print_count(r->damaged_files, "damaged files");
    print_count(r->damaged_records, "damaged records");
    print_count(r->misplaced_pages, "misplaced pages");
    print_count(r->orphaned_pages, "pages whose parent or namespace is gone");
    print_count(r->corrupt_pages, "pages whose bytes are wrong");
    print_count(r->dependent_pages, "good pages behind those");
    print_count(r->leftovers, "leftovers, which opening cleans up");
    if (r->verified != 0) {
        print_count(r->verified_pages, "pages verified");
    }
    if (r->damaged == 0) {
        (void)printf("no damage%s\n",
                     r->verified != 0 ? "" : " to what was looked at; --verify reads the data too");
        return KVT_EXIT_DONE;
    }
    if (r->repaired != 0) {
        (void)printf("damaged, and repaired: %" PRIu64 " pages taken out\n", r->removed_pages);
    } else {
        (void)printf("damaged; --repair takes out what is lost\n");
    }
    return KVT_EXIT_BAD_NEWS;
}

/* ---- the command ---- */

static const struct kvt_option check_options[] = {
    KVT_OPT_FLAG("verify", struct check_args, verify,
                 "read all data and compare it with its checksums"),
    KVT_OPT_FLAG("repair", struct check_args, repair,
                 "remove what is damaged and make the stores open again; nothing is touched while "
                 "an owner lives"),
    KVT_OPT_FLAG("buffered", struct check_args, buffered, "read through the page cache"),
    KVT_OPT_FLAG("json", struct check_args, json, "print one JSON object"),
};
static const struct kvt_command_line check_line = {
    .command = COMMAND,
    .operands = "STORE...",
    .summary = "Looks at the stores of the nvme tier: their headers, every record of the catalog, "
               "and, with --verify, all data. Give all folders of a set, in the order in which "
               "--nvme was given them. Changes nothing without --repair.",
    .notes =
        "Exit status: 0 no damage; 1 damage was found, repaired or not; 2 wrong usage; 3 could "
        "not do it.\n",
    .options = check_options,
    .option_count = sizeof(check_options) / sizeof(check_options[0]),
    .operands_min = 1,
    .operands_max = KVT_STORE_SET_MAX,
};

static int run(struct check_out *out, const char *const *folders, uint32_t count)
{
    struct kvt_store_check_config config = {
        .folders = folders,
        .folder_count = count,
        .flags = (out->args.verify ? KVT_STORE_VERIFY : 0) |
                 (out->args.repair ? KVT_STORE_REPAIR : 0) |
                 (out->args.buffered ? KVT_STORE_BUFFERED : 0),
        .log = on_log,
        .found = on_found,
        .progress = on_progress,
        .ctx = out,
    };
    struct kvt_store_check_result result;
    char why[WHY_BYTES] = "";
    kvt_status status = kvt_store_check(&config, &result, why, sizeof(why));
    bar_off(out);
    if (status == KVT_ERR_INVAL) {
        kvt_usage_error(COMMAND, "%s", why);
        return KVT_EXIT_USAGE;
    }
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "%s", why[0] != '\0' ? why : kvt_status_sentence(status));
        return KVT_EXIT_FAILED;
    }
    return out->args.json ? print_json(out, &result) : print_text(&result);
}

int kvt_cmd_check(int argc, char **argv)
{
    struct check_out out = {0};
    const char *folders[KVT_STORE_SET_MAX];
    uint32_t count = 0;
    enum kvt_parse parse = kvt_options_parse(&check_line, argc, argv, &out.args, folders, &count);
    if (parse != KVT_PARSE_DONE) {
        return parse == KVT_PARSE_HELP ? KVT_EXIT_DONE : KVT_EXIT_USAGE;
    }
    out.findings = json_array();
    if (out.findings == NULL) {
        kvt_command_error(COMMAND, "no memory");
        return KVT_EXIT_FAILED;
    }
    int status = run(&out, folders, count);
    json_decref(out.findings);
    return status;
}
