/* Generated traces: the same bytes for a seed, readable, and distributed as documented. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "tests/unit/tool_support.h"
#include "tools/commands.h"
#include "tools/generate.h"
#include "tools/trace_order.h"

static const struct kvt_generate_settings coding = {.profile = "coding",
                                                    .seed = 3,
                                                    .sessions = 400,
                                                    .turns = 70,
                                                    .system_prompts = 50,
                                                    .gap_ms = 120000,
                                                    .scale = KVT_GENERATE_HUNDREDTHS,
                                                    .sub_agents = 100,
                                                    .forked = 5000,
                                                    .resumed = 4500,
                                                    .edits = 280,
                                                    .block_tokens = 64};

static struct tool_run generate(const char *words) { return tool_command(kvt_cmd_generate, words); }

START_TEST(test_same_seed_same_bytes)
{
    struct tool_run one = generate("generate --seed 5");
    struct tool_run two = generate("generate --seed 5");
    struct tool_run other = generate("generate --seed 6");
    ck_assert_int_eq(one.status, KVT_EXIT_DONE);
    ck_assert_str_eq(one.err, "");
    ck_assert_str_eq(one.out, two.out);
    ck_assert_str_ne(one.out, other.out);
    /* What was made once is made for ever, on every machine. Who changes the draws changes this. */
    ck_assert_uint_eq(XXH3_64bits(one.out, strlen(one.out)), UINT64_C(7592579470620850784));
    char *plain_path = tool_path(".jsonl");
    char *gzip_path = tool_path(".jsonl.gz");
    char words[512];
    (void)snprintf(words, sizeof(words), "generate --seed 5 --out %s", plain_path);
    struct tool_run run = generate(words);
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    ck_assert_str_eq(run.out, "");
    char *plain = tool_read(plain_path, NULL);
    ck_assert_str_eq(plain, one.out);
    tool_run_free(&run);
    (void)snprintf(words, sizeof(words), "generate --seed 5 --out=%s", gzip_path);
    run = generate(words);
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    size_t bytes = 0;
    char *packed = tool_read(gzip_path, &bytes);
    ck_assert_int_eq((unsigned char)packed[0], 0x1f);
    ck_assert_uint_lt(bytes, strlen(plain));
    /* The reader finds the same in both. */
    struct kvt_trace a;
    struct kvt_trace b;
    char why[512] = "";
    ck_assert_msg(kvt_trace_open(plain_path, &a, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_msg(kvt_trace_open(gzip_path, &b, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_uint_eq(a.turn_count, b.turn_count);
    ck_assert_uint_gt(a.turn_count, 10);
    kvt_trace_close(&a);
    kvt_trace_close(&b);
    tool_run_free(&run);
    tool_run_free(&one);
    tool_run_free(&two);
    tool_run_free(&other);
    free(plain);
    free(packed);
    tool_remove(plain_path);
    tool_remove(gzip_path);
}
END_TEST

START_TEST(test_more_sessions_leave_the_first_ones_as_they_are)
{
    struct tool_run few = generate("generate --seed 5 --sessions 1 --sub-agents 0");
    struct tool_run many = generate("generate --seed 5 --sessions 9 --sub-agents 0");
    char *rest = NULL;
    uint32_t lines = 0;
    for (char *line = strtok_r(few.out, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        ck_assert_msg(strstr(many.out, line) != NULL, "%s", line);
        lines++;
    }
    ck_assert_uint_gt(lines, 1);
    tool_run_free(&few);
    tool_run_free(&many);
}
END_TEST

START_TEST(test_what_cannot_be_written)
{
    struct tool_run run = generate("generate --out /nonexistent/x.jsonl");
    ck_assert_int_eq(run.status, KVT_EXIT_FAILED);
    ck_assert_ptr_nonnull(strstr(run.err, "/nonexistent/x.jsonl cannot be written: No such file"));
    tool_run_free(&run);
    run = generate("generate --out /nonexistent/x.jsonl.gz");
    ck_assert_int_eq(run.status, KVT_EXIT_FAILED);
    ck_assert_ptr_nonnull(strstr(run.err, "No such file"));
    tool_run_free(&run);
    run = generate("generate here");
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    tool_run_free(&run);
    run = generate("generate --seed 9223372036854775808");
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    tool_run_free(&run);
    run = generate("generate --sessions 100000 --turns 10000 --scale 0.01");
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(run.err, "4194304 turns"));
    tool_run_free(&run);
    run = generate("generate --help");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    ck_assert_ptr_nonnull(strstr(run.out, "--system-prompts"));
    tool_run_free(&run);
}
END_TEST

/* ---- the file ---- */

#define FOLDER_BYTES 256

/* A folder of this test's own, and how many files lie in it. */
static void make_folder(char folder[FOLDER_BYTES])
{
    char *path = tool_path(".d");
    (void)snprintf(folder, FOLDER_BYTES, "%s", path);
    free(path);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}

static unsigned files_in(const char *folder)
{
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    unsigned count = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 ? 1 : 0;
    }
    (void)closedir(dir);
    return count;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* generate --seed 5 --out PATH, with the status it must end with. */
static void generate_to(const char *path, int status, const char *part)
{
    char words[512];
    (void)snprintf(words, sizeof(words), "generate --seed 5 --out %s", path);
    struct tool_run run = generate(words);
    ck_assert_msg(run.status == status, "%s: status %d: %s", path, run.status, run.err);
    ck_assert_msg(strstr(run.err, part) != NULL, "\"%s\" not in: %s", part, run.err);
    tool_run_free(&run);
}

START_TEST(test_a_whole_file_or_none)
{
    static const char *const names[] = {"trace.jsonl", "trace.jsonl.gz"};
    for (size_t i = 0; i < 2; i++) {
        char folder[FOLDER_BYTES], path[512];
        make_folder(folder);
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        /* A file that may not grow: what is there stays, and nothing lies beside it. */
        write_text(path, "older\n");
        struct rlimit kept, small = {1000, 1000};
        ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &kept), 0);
        small.rlim_max = kept.rlim_max;
        void (*action)(int) = signal(SIGXFSZ, SIG_IGN);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
        char words[1024];
        (void)snprintf(words, sizeof(words), "generate --seed 5 --out %s", path);
        struct tool_run run = generate(words);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &kept), 0);
        (void)signal(SIGXFSZ, action);
        ck_assert_int_eq(run.status, KVT_EXIT_FAILED);
        ck_assert_msg(strstr(run.err, "cannot be written: File too large") != NULL, "%s", run.err);
        tool_run_free(&run);
        ck_assert_uint_eq(files_in(folder), 1);
        char *text = tool_read(path, NULL);
        ck_assert_str_eq(text, "older\n");
        free(text);
        /* The control: with room it is another file, of the same mode. */
        ck_assert_int_eq(chmod(path, 0640), 0);
        generate_to(path, KVT_EXIT_DONE, "turns");
        struct stat now;
        ck_assert_int_eq(stat(path, &now), 0);
        ck_assert_uint_eq(now.st_mode & 0777, 0640);
        ck_assert_uint_gt((uint64_t)now.st_size, 1000);
        ck_assert_uint_eq(files_in(folder), 1);
        (void)unlink(path);
        ck_assert_int_eq(rmdir(folder), 0);
    }
}
END_TEST

START_TEST(test_modes_and_links)
{
    char folder[FOLDER_BYTES], path[512], link[512];
    make_folder(folder);
    (void)snprintf(path, sizeof(path), "%s/real", folder);
    (void)snprintf(link, sizeof(link), "%s/link", folder);
    mode_t mask = umask(027);
    generate_to(path, KVT_EXIT_DONE, "turns");
    (void)umask(mask);
    struct stat now;
    ck_assert_int_eq(stat(path, &now), 0);
    ck_assert_uint_eq(now.st_mode & 0777, 0640);
    /* A link stays one, and what it names is written. */
    write_text(path, "older\n");
    ck_assert_int_eq(symlink("real", link), 0);
    generate_to(link, KVT_EXIT_DONE, "turns");
    ck_assert_int_eq(lstat(link, &now), 0);
    ck_assert(S_ISLNK(now.st_mode));
    ck_assert_int_eq(lstat(path, &now), 0);
    ck_assert(S_ISREG(now.st_mode));
    ck_assert_uint_gt((uint64_t)now.st_size, 1000);
    /* So does one to nothing yet. */
    (void)unlink(path);
    generate_to(link, KVT_EXIT_DONE, "turns");
    ck_assert_int_eq(stat(path, &now), 0);
    ck_assert_uint_eq(files_in(folder), 2);
    generate_to(folder, KVT_EXIT_FAILED, "Is a directory");
    if (geteuid() != 0) {
        ck_assert_int_eq(chmod(path, 0444), 0);
        generate_to(path, KVT_EXIT_FAILED, "Permission denied");
    }
    (void)unlink(path);
    (void)unlink(link);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(test_what_is_no_file_is_written_as_it_is)
{
    struct tool_run plain = generate("generate --seed 5");
    struct tool_run dash = generate("generate --seed 5 --out -");
    ck_assert_int_eq(dash.status, KVT_EXIT_DONE);
    ck_assert_str_eq(dash.out, plain.out);
    ck_assert_str_eq(dash.err, "");
    ck_assert_int_ne(access("-", F_OK), 0);
    tool_run_free(&dash);
    /* By the descriptor's name: the file that standard output is, and no other in its place. */
    struct tool_run named = generate("generate --seed 5 --out /dev/stdout");
    ck_assert_int_eq(named.status, KVT_EXIT_DONE);
    ck_assert_str_eq(named.out, plain.out);
    tool_run_free(&named);
    generate_to("/dev/null", KVT_EXIT_DONE, "turns");
    struct stat null;
    ck_assert_int_eq(stat("/dev/null", &null), 0);
    ck_assert(S_ISCHR(null.st_mode));
    generate_to("/dev/full", KVT_EXIT_FAILED, "No space left on device");
    /* A named pipe. It is open at both ends before, and has room for all of it. */
    char *pipe_path = tool_path(".pipe");
    ck_assert_int_eq(mkfifo(pipe_path, 0600), 0);
    int fd = open(pipe_path, O_RDWR | O_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ge(fcntl(fd, F_SETPIPE_SZ, 1 << 20), 0);
    generate_to(pipe_path, KVT_EXIT_DONE, "turns");
    size_t length = strlen(plain.out);
    char *got = calloc(length + 2, 1);
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq((int)read(fd, got, length + 1), (int)length);
    ck_assert_str_eq(got, plain.out);
    free(got);
    (void)close(fd);
    struct stat now;
    ck_assert_int_eq(lstat(pipe_path, &now), 0);
    ck_assert(S_ISFIFO(now.st_mode));
    tool_remove(pipe_path);
    tool_run_free(&plain);
}
END_TEST

START_TEST(test_extremes_are_readable)
{
    static const char *const lines[] = {
        "generate --sessions 1 --turns 1 --sub-agents 0 --gap 0",
        "generate --scale 0.01 --block-size 1 --edits 100 --sessions 3",
        "generate --scale 0.01 --block-size 4096 --edits 100 --sessions 3",
        "generate --scale 1000 --sessions 40 --turns 300 --resumed 100",
        "generate --sub-agents 10000 --forked 100 --sessions 2 --turns 20",
        "generate --sub-agents 10000 --forked 0 --resumed 50 --sessions 2 --turns 20",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct tool_run run = generate(lines[i]);
        ck_assert_msg(run.status == KVT_EXIT_DONE, "%s: %s", lines[i], run.err);
        char *path = tool_write(".jsonl", run.out);
        struct kvt_trace trace;
        char why[512] = "";
        ck_assert_msg(kvt_trace_open(path, &trace, why, sizeof(why)) == KVT_OK, "%s: %s", lines[i],
                      why);
        kvt_trace_close(&trace);
        tool_remove(path);
        tool_run_free(&run);
    }
}
END_TEST

/* ---- distributions ---- */

static void near(const char *what, double got, double expected, double tolerance)
{
    ck_assert_msg(got >= expected * (1.0 - tolerance) && got <= expected * (1.0 + tolerance),
                  "%s: %.3f, expected %.3f within %.0f %%", what, got, expected, tolerance * 100);
}

/* The documented numbers, from the tables that the draws use. */
START_TEST(test_tables_are_what_was_measured)
{
    near("growth",
         kvt_quantiles_mean(&kvt_generate_output_tokens) +
             kvt_quantiles_mean(&kvt_generate_result_tokens),
         1738.0, 0.05);
    near("turns", kvt_quantiles_mean(&kvt_generate_turns_permille), 1000.0, 0.02);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_tool_delay_ms, 500000), 8000);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_tool_delay_ms, 900000), 71000);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_answer_delay_ms, 500000), 216000);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_answer_delay_ms, 900000), 2785000);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_output_tokens, 500000), 213);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_result_tokens, 0), 0);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_result_tokens, 1000000), 50000);
    ck_assert_uint_eq(kvt_quantiles_at(&kvt_generate_output_tokens, 550000), 242);
}
END_TEST

START_TEST(test_draws)
{
    enum { DRAWS = 100000 };
    struct kvt_draw draw;
    kvt_draw_seed(&draw, 1, 2);
    double sum = 0.0;
    uint32_t long_ones = 0;
    uint32_t firsts = 0;
    uint32_t chances = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        uint64_t gap = kvt_draw_exponential(&draw, 1000);
        sum += (double)gap;
        long_ones += gap > 2000 ? 1 : 0;
        firsts += kvt_draw_zipf(&draw, 4) == 0 ? 1 : 0;
        chances += kvt_draw_chance(&draw, 28, 1000) ? 1 : 0;
    }
    near("exponential, mean", sum / DRAWS, 1000.0, 0.02);
    near("exponential, above twice the mean", (double)long_ones / DRAWS, 0.1353, 0.03);
    near("zipf of four, the first", (double)firsts / DRAWS, 0.48, 0.02);
    near("chance", (double)chances / DRAWS, 0.028, 0.05);
}
END_TEST

struct measured {
    uint64_t *growths, *tool_delays, *answer_delays, *outputs;
    uint32_t growth_count, tool_count, answer_count, output_count;
    uint32_t turns, sub_turns, main_turns, broken;
    uint32_t mains, subs, sub_shares_parent, first_shared;
    double growth_sum;
    uint64_t last_start_ms;
};

/* The blocks that two turns share from their start. */
static uint64_t shared_blocks(const json_t *a, const json_t *b)
{
    uint64_t n = 0;
    size_t i = 0;
    json_int_t used = 0;
    size_t k = 0;
    json_int_t taken = 0;
    while (i < json_array_size(a) && k < json_array_size(b)) {
        json_int_t first = json_integer_value(json_array_get(json_array_get(a, i), 0)) + used;
        json_int_t count = json_integer_value(json_array_get(json_array_get(a, i), 1)) - used;
        json_int_t other = json_integer_value(json_array_get(json_array_get(b, k), 0)) + taken;
        json_int_t left = json_integer_value(json_array_get(json_array_get(b, k), 1)) - taken;
        if (first != other) {
            break;
        }
        json_int_t step = count < left ? count : left;
        n += (uint64_t)step;
        used = step == count ? 0 : used + step;
        taken = step == left ? 0 : taken + step;
        i += step == count ? 1 : 0;
        k += step == left ? 1 : 0;
    }
    return n;
}

static uint64_t number(const json_t *line, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(line, key));
}

static void measure_pair(struct measured *m, const json_t *before, const json_t *line,
                         uint32_t block)
{
    uint64_t full = number(before, "input_length") / block;
    uint64_t shared =
        shared_blocks(json_object_get(before, "hash_runs"), json_object_get(line, "hash_runs"));
    const char *stop = json_string_value(json_object_get(before, "stop"));
    uint64_t delay = number(line, "delay");
    if (shared + 1 < full) {
        m->broken++;
    } else {
        uint64_t growth = number(line, "input_length") - number(before, "input_length");
        m->growths[m->growth_count++] = growth;
        m->growth_sum += (double)growth;
    }
    if (strcmp(stop, "tool_use") == 0) {
        m->tool_delays[m->tool_count++] = delay;
    } else if (strcmp(stop, "end_turn") == 0) {
        m->answer_delays[m->answer_count++] = delay;
    }
}

/* Reads the lines with a parser of our own, so that the trace reader is not its own judge. */
static void measure(struct measured *m, const char *text, uint64_t bytes, uint32_t block)
{
    json_t *last_of = json_object();
    const char *end = text + bytes;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        json_error_t error;
        json_t *line = json_loadb(at, (size_t)(newline - at), 0, &error);
        ck_assert_ptr_nonnull(line);
        at = newline + 1;
        if (json_object_get(line, "kvtrace") != NULL) {
            json_decref(line);
            continue;
        }
        const char *id = json_string_value(json_object_get(line, "session_id"));
        const char *parent = json_string_value(json_object_get(line, "parent_session_id"));
        const json_t *before = json_object_get(last_of, id);
        m->turns++;
        m->outputs[m->output_count++] = number(line, "output_length");
        m->sub_turns += parent != NULL ? 1 : 0;
        m->main_turns += parent == NULL ? 1 : 0;
        if (before == NULL) {
            m->mains += parent == NULL ? 1 : 0;
            m->subs += parent != NULL ? 1 : 0;
            m->last_start_ms = parent == NULL ? number(line, "timestamp") : m->last_start_ms;
            if (parent != NULL) {
                uint64_t shared =
                    shared_blocks(json_object_get(line, "hash_runs"),
                                  json_object_get(json_object_get(last_of, parent), "hash_runs"));
                m->sub_shares_parent += shared > 0 ? 1 : 0;
            }
        } else if (parent == NULL) {
            measure_pair(m, before, line, block);
        }
        (void)json_object_set_new(last_of, id, line);
    }
    json_decref(last_of);
}

START_TEST(test_a_large_trace_is_as_documented)
{
    struct kvt_generated generated;
    ck_assert_int_eq(kvt_generate_trace(&coding, &generated), KVT_OK);
    struct measured m = {0};
    m.growths = calloc(generated.turns, sizeof(uint64_t));
    m.tool_delays = calloc(generated.turns, sizeof(uint64_t));
    m.answer_delays = calloc(generated.turns, sizeof(uint64_t));
    m.outputs = calloc(generated.turns, sizeof(uint64_t));
    measure(&m, generated.text, generated.bytes, coding.block_tokens);
    ck_assert_uint_eq(m.turns, generated.turns);
    ck_assert_uint_eq(m.mains, coding.sessions);
    ck_assert_uint_eq(m.mains + m.subs, generated.sessions);
    kvt_sort_u64(m.growths, m.growth_count);
    kvt_sort_u64(m.tool_delays, m.tool_count);
    kvt_sort_u64(m.answer_delays, m.answer_count);
    kvt_sort_u64(m.outputs, m.output_count);
    near("turns of a session", (double)m.main_turns / m.mains, 70.0, 0.15);
    near("growth, mean", m.growth_sum / m.growth_count, 1738.0, 0.07);
    near("outputs, p50", (double)kvt_percentile(m.outputs, m.output_count, 50), 213.0, 0.05);
    near("outputs, p90", (double)kvt_percentile(m.outputs, m.output_count, 90), 898.0, 0.1);
    near("tool delay, p50", (double)kvt_percentile(m.tool_delays, m.tool_count, 50), 8000.0, 0.05);
    /* A parent waits for its sub-agents, of which this trace has many: the tail is longer. */
    near("tool delay, p90", (double)kvt_percentile(m.tool_delays, m.tool_count, 90), 80000.0, 0.2);
    near("answer delay, p50", (double)kvt_percentile(m.answer_delays, m.answer_count, 50), 216000.0,
         0.2);
    near("answer delay, p90", (double)kvt_percentile(m.answer_delays, m.answer_count, 90),
         2785000.0, 0.2);
    near("edits", (double)m.broken / (m.broken + m.growth_count), 0.028, 0.1);
    near("sub-agents", (double)m.subs / m.mains, 1.0, 0.2);
    near("turns of a sub-agent", (double)m.sub_turns / m.subs, 11.0, 0.1);
    near("forked", (double)m.sub_shares_parent / m.subs, 0.5, 0.15);
    near("starts", (double)m.last_start_ms / (m.mains - 1), (double)coding.gap_ms, 0.15);
    free(m.growths);
    free(m.tool_delays);
    free(m.answer_delays);
    free(m.outputs);
    free(generated.text);
}
END_TEST

START_TEST(test_sessions_share_their_starts)
{
    /* With one shared start the sessions' first prompts have it in common; with fifty, few do. */
    struct kvt_generate_settings settings = coding;
    uint64_t distinct[2];
    for (int i = 0; i < 2; i++) {
        settings.sessions = 30;
        settings.turns = 1;
        settings.sub_agents = 0;
        settings.resumed = 0;
        settings.system_prompts = i == 0 ? 1 : 50;
        struct kvt_generated generated;
        struct kvt_trace trace;
        struct kvt_order order;
        struct kvt_order_needs needs;
        char why[512] = "";
        ck_assert_int_eq(kvt_generate_trace(&settings, &generated), KVT_OK);
        char *path = tool_write_bytes(".jsonl", generated.text, generated.bytes);
        ck_assert_msg(kvt_trace_open(path, &trace, why, sizeof(why)) == KVT_OK, "%s", why);
        ck_assert_int_eq(kvt_order_build(&trace, KVT_ORDER_ROUNDS, 30, 1 << 24, 0, &order), KVT_OK);
        ck_assert_int_eq(kvt_order_measure(&trace, &order, 64, 50021, &needs), KVT_OK);
        distinct[i] = needs.distinct_pages;
        kvt_order_destroy(&order);
        kvt_trace_close(&trace);
        tool_remove(path);
        free(generated.text);
    }
    ck_assert_uint_lt(distinct[0] + 1000, distinct[1]);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_same_seed_same_bytes,
                                  test_more_sessions_leave_the_first_ones_as_they_are,
                                  test_what_cannot_be_written,
                                  test_a_whole_file_or_none,
                                  test_modes_and_links,
                                  test_what_is_no_file_is_written_as_it_is,
                                  test_extremes_are_readable,
                                  test_tables_are_what_was_measured,
                                  test_draws,
                                  test_a_large_trace_is_as_documented,
                                  test_sessions_share_their_starts};
    return tool_suite_run("generate", tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
