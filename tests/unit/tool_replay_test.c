/* kvtier replay with an engine that is made up here: what it asks, compares, prints and answers. */
#include "tools/replay.h"

#include <inttypes.h>
#include <jansson.h>

#include "tests/unit/tool_fake_engine.h"
#include "tools/commands.h"

static int replay_command(int argc, char **argv)
{
    static const struct kvt_replay_engine *const engines[] = {&fake_engine, NULL};
    return kvt_replay_main(engines, argc, argv);
}

/* ---- runs ---- */

#define LINE(time, length, session, turn, more)                                                    \
    "{\"timestamp\":" #time ",\"input_length\":" #length                                           \
    ",\"output_length\":1,\"hash_runs\":[[" #turn ",1]],\"session_id\":\"" session                 \
    "\",\"turn\":" #turn more "}\n"

/* Sessions a, b and c of 3, 1 and 2 turns; a goes on 30 ms after its answers, c has no delay. */
static const char trace_text[] =
    "{\"kvtrace\":{\"block_size\":64,\"tail\":\"floor\"}}\n" LINE(100, 64, "a", 1, "")
        LINE(100, 65, "b", 1, "") LINE(140, 66, "c", 1, "") LINE(110, 70, "a", 2, ",\"delay\":30")
            LINE(141, 80, "c", 2, "") LINE(120, 120, "a", 3, ",\"delay\":30");
#define TRACE_TURNS 6
#define TRACE_TOKENS (64 + 65 + 66 + 70 + 80 + 120)

static char *trace_path;

static void setup(void)
{
    memset(&fake, 0, sizeof(fake));
    trace_path = tool_write(".kvt.jsonl", trace_text);
}

static void teardown(void)
{
    /* Whatever happened: what was opened is closed, and every answer was given back. */
    uint32_t failed_opens =
        fake.fault == FAULT_OPEN_VERSION || fake.fault == FAULT_OPEN_INVAL ? 1 : 0;
    if (fake.opened > 0) {
        ck_assert_uint_eq(fake.closed + failed_opens, fake.opened);
    }
    ck_assert_uint_eq(fake.live_results, 0);
    tool_remove(trace_path);
}

/* Runs "replay TRACE WORDS". */
static struct tool_run replay(const char *words)
{
    char line[1024];
    (void)snprintf(line, sizeof(line), "replay %s%s%s", trace_path, words[0] != '\0' ? " " : "",
                   words);
    return tool_command(replay_command, line);
}

static void expect(const char *words, int status, const char *part)
{
    struct tool_run run = replay(words);
    ck_assert_msg(run.status == status, "%s: status %d, not %d: %s%s", words, run.status, status,
                  run.out, run.err);
    ck_assert_msg(strstr(run.err, part) != NULL, "\"%s\" not in: %s", part, run.err);
    if (status == KVT_EXIT_USAGE) {
        ck_assert_ptr_nonnull(strstr(run.err, "kvtier replay --help"));
    }
    tool_run_free(&run);
}

/* Runs with --json and gives the object. */
static json_t *replay_json(const char *words, int status)
{
    char more[512];
    (void)snprintf(more, sizeof(more), "--json%s%s", words[0] != '\0' ? " " : "", words);
    struct tool_run run = replay(more);
    ck_assert_msg(run.status == status, "status %d: %s", run.status, run.err);
    json_error_t error;
    json_t *root = json_loads(run.out, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(root != NULL, "%s in: %s", error.text, run.out);
    ck_assert(json_is_object(root));
    tool_run_free(&run);
    return root;
}

/* "a.b.c" in an object. */
static json_t *at(json_t *root, const char *path)
{
    char copy[128];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    char *rest = NULL;
    json_t *value = root;
    for (char *key = strtok_r(copy, ".", &rest); key != NULL; key = strtok_r(NULL, ".", &rest)) {
        value = json_object_get(value, key);
    }
    return value;
}

static int64_t integer_at(json_t *root, const char *path)
{
    json_t *value = at(root, path);
    ck_assert_msg(json_is_integer(value), "%s", path);
    return json_integer_value(value);
}

static double number_at(json_t *root, const char *path)
{
    json_t *value = at(root, path);
    ck_assert_msg(json_is_number(value), "%s", path);
    return json_number_value(value);
}

/* ---- good runs ---- */

START_TEST(test_json_has_the_agreed_keys)
{
    json_t *root = replay_json("", KVT_EXIT_DONE);
    const char *name = strrchr(trace_path, '/') + 1;
    ck_assert_str_eq(json_string_value(at(root, "trace")), name);
    ck_assert_int_eq(integer_at(root, "sessions"), 3);
    ck_assert_int_eq(integer_at(root, "turns"), TRACE_TURNS);
    ck_assert_int_eq(integer_at(root, "prompt_tokens"), TRACE_TOKENS);
    static const char *const halves[] = {"without", "with"};
    for (int i = 0; i < 2; i++) {
        static const char *const keys[] = {"ttft_ms.p50", "ttft_ms.p95", "ttft_ms.p99",
                                           "requests_per_hour"};
        char cpu[64];
        (void)snprintf(cpu, sizeof(cpu), "%s.cpu_s", halves[i]);
        ck_assert(number_at(root, cpu) >= 0.0);
        (void)snprintf(cpu, sizeof(cpu), "%s.seconds", halves[i]);
        ck_assert(number_at(root, cpu) >= 0.0);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            char path[64];
            (void)snprintf(path, sizeof(path), "%s.%s", halves[i], keys[k]);
            ck_assert_msg(number_at(root, path) > 0.0, "%s", path);
        }
    }
    ck_assert(number_at(root, "without.ttft_ms.p50") == 10.0);
    ck_assert(number_at(root, "with.ttft_ms.p99") == 2.0);
    ck_assert(number_at(root, "ttft_ratio_p50") == 5.0);
    ck_assert(number_at(root, "requests_ratio") > 0.0);
    /* Half of the prompts in whole pages of 16: 2 2 2 2 2 3 pages, from the host. */
    ck_assert_int_eq(integer_at(root, "with.delivered_tokens.hbm"), 0);
    ck_assert_int_eq(integer_at(root, "with.delivered_tokens.host"), 13 * 16);
    ck_assert_int_eq(integer_at(root, "with.delivered_tokens.nvme"), 0);
    ck_assert_int_eq(integer_at(root, "with.engine_cached_tokens"), 13 * 16);
    ck_assert_int_eq(integer_at(root, "with.computed_tokens"), TRACE_TOKENS - 13 * 16);
    ck_assert_int_eq(integer_at(root, "with.evicted_pages"), 5);
    ck_assert(json_is_true(at(root, "with.conservation")));
    ck_assert(json_is_true(at(root, "outputs_identical")));
    ck_assert_int_eq(integer_at(root, "turns_compared"), TRACE_TURNS);
    ck_assert_int_eq(integer_at(root, "with.missed_pages.never_seen"), TRACE_TURNS);
    ck_assert_ptr_null(at(root, "without.delivered_tokens"));
    /* The half with the cache runs first, so that a bad plug-in shows at once. */
    ck_assert(fake.first_open_had_cache);
    ck_assert_uint_eq(fake.opened, 2);
    json_decref(root);
}
END_TEST

START_TEST(test_json_stands_alone)
{
    struct tool_run run = replay("--json");
    ck_assert_int_eq(run.out[0], '{');
    ck_assert_ptr_eq(strchr(run.out, '\n') + 1, run.out + strlen(run.out));
    ck_assert_ptr_nonnull(strstr(run.err, "budgets"));
    tool_run_free(&run);
    run = replay("--json --quiet");
    ck_assert_str_eq(run.err, "");
    ck_assert_int_eq(run.out[0], '{');
    tool_run_free(&run);
}
END_TEST

START_TEST(test_table_is_readable)
{
    struct tool_run run = replay("");
    static const char *const parts[] = {"3 sessions, 6 turns, 465 prompt tokens",
                                        "made-up, 1 at once, blocks of 4 tokens",
                                        "time to first token, p50, ms",
                                        "10.0            2.0      5.00",
                                        "\nseconds ",
                                        "\nseconds of CPU ",
                                        "delivered tokens   hbm 0, host 208",
                                        "evicted 5",
                                        "never_seen 6",
                                        "conservation       holds",
                                        "identical on all 6 turns compared"};
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    ck_assert_str_eq(run.err, "");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        ck_assert_msg(strstr(run.out, parts[i]) != NULL, "\"%s\" not in:\n%s", parts[i], run.out);
    }
    /* The plan comes before the table. */
    ck_assert(strstr(run.out, "budgets") < strstr(run.out, "without"));
    tool_run_free(&run);
}
END_TEST

START_TEST(test_one_half)
{
    json_t *root = replay_json("--only with", KVT_EXIT_DONE);
    ck_assert_ptr_null(at(root, "without"));
    ck_assert_ptr_nonnull(at(root, "with.ttft_ms"));
    ck_assert(json_is_null(at(root, "ttft_ratio_p50")));
    ck_assert(json_is_null(at(root, "requests_ratio")));
    ck_assert(json_is_null(at(root, "outputs_identical")));
    ck_assert_int_eq(integer_at(root, "turns_compared"), 0);
    json_decref(root);
    ck_assert_uint_eq(fake.opened, 1);
    ck_assert_ptr_nonnull(fake.config.plugin_path);
    root = replay_json("--only without", KVT_EXIT_DONE);
    ck_assert_ptr_null(at(root, "with"));
    ck_assert_ptr_nonnull(at(root, "without.ttft_ms"));
    ck_assert(json_is_null(at(root, "ttft_ratio_p50")));
    json_decref(root);
    ck_assert_ptr_null(fake.config.plugin_path);
    struct tool_run run = replay("--only without");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    ck_assert_ptr_null(strstr(run.out, "identical"));
    tool_run_free(&run);
}
END_TEST

START_TEST(test_settings_reach_the_engine)
{
    struct tool_run run =
        replay("--only with --seed 9 --threads 3 --context 5000 --block-tokens 32 --page-tokens 96 "
               "--concurrency 4 --output-tokens 21 --hbm 1M --host=3M --evict lru --plugin ./x.so");
    ck_assert_msg(run.status == KVT_EXIT_DONE, "%s", run.err);
    tool_run_free(&run);
    ck_assert_uint_eq(fake.config.seed, 9);
    ck_assert_uint_eq(fake.config.threads, 3);
    ck_assert_uint_eq(fake.config.context_tokens, 5000);
    ck_assert_uint_eq(fake.config.block_tokens, 32);
    ck_assert_uint_eq(fake.config.page_tokens, 96);
    ck_assert_uint_eq(fake.config.concurrency, 4);
    ck_assert_uint_eq(fake.config.output_tokens, 21);
    ck_assert_uint_eq(fake.config.hbm_bytes, 1 << 20);
    ck_assert_uint_eq(fake.config.host_bytes, 3 << 20);
    ck_assert(!fake.config.control_foreign_page);
    ck_assert(!fake.config.control_same_page);
    run = replay("--only with --block-tokens 64");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    /* A page is the next multiple of the block when nothing is said. */
    ck_assert_uint_eq(fake.config.page_tokens, 64);
}
END_TEST

START_TEST(test_controls)
{
    /* A control compares; with one half there is nothing to compare. */
    struct tool_run run = replay("--only with --control foreign-page");
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(run.err, "--only both"));
    tool_run_free(&run);
    /* This engine answers alike whatever its pages hold: equality that a foreign page does not
     * disturb is no news to be glad of. */
    run = replay("--control foreign-page");
    ck_assert_int_eq(run.status, KVT_EXIT_FAILED);
    ck_assert_ptr_nonnull(strstr(run.err, "changed nothing"));
    tool_run_free(&run);
    run = replay("--control same-page");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
}
END_TEST

START_TEST(test_default_budgets)
{
    /* Pages of 16, session by session: the largest live set is a's 4 pages of 64 tokens (ids 1),
     * shared by all first turns, then a's and c's second turns ... computed by the first pass. */
    json_t *root = replay_json("--only with", KVT_EXIT_DONE);
    int64_t page = integer_at(root, "pages.bytes");
    int64_t peak = integer_at(root, "pages.peak_live");
    ck_assert_int_eq(page, 16 * PAGE_BYTES_OF_TOKEN);
    ck_assert_int_gt(peak, 4);
    int64_t hbm = integer_at(root, "budgets.hbm_bytes");
    int64_t host = integer_at(root, "budgets.host_bytes");
    ck_assert_int_eq(hbm, (peak + 3) / 4 * page);
    ck_assert_int_eq(hbm + host, peak * page);
    ck_assert_uint_eq(fake.config.hbm_bytes, (uint64_t)hbm);
    ck_assert_uint_eq(fake.config.host_bytes, (uint64_t)host);
    json_decref(root);
    root = replay_json("--only with --budget-percent 50", KVT_EXIT_DONE);
    ck_assert_int_eq(integer_at(root, "budgets.hbm_bytes") + integer_at(root, "budgets.host_bytes"),
                     (peak + 1) / 2 * page);
    json_decref(root);
    root = replay_json("--only with --hbm 100M", KVT_EXIT_DONE);
    ck_assert_int_eq(integer_at(root, "budgets.hbm_bytes"), 100 << 20);
    ck_assert_int_eq(integer_at(root, "budgets.host_bytes"), 0);
    json_decref(root);
}
END_TEST

START_TEST(test_plugin_beside_the_program)
{
    char own[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof(own) - 32);
    ck_assert_int_gt(bytes, 0);
    own[bytes] = '\0';
    (void)snprintf(strrchr(own, '/'), 32, "/libkvtier_plugin.so");
    struct tool_run run = replay("--only with");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    ck_assert_str_eq(fake.plugin_path, own);
    run = replay("--only with --plugin ./other.so");
    tool_run_free(&run);
    ck_assert_str_eq(fake.plugin_path, "./other.so");
}
END_TEST

/* ---- order ---- */

START_TEST(test_policies_are_known)
{
    static const char *const halves[] = {"with", "without", "both"};
    static const struct {
        const char *words, *part;
    } wrong[] = {
        {"--evict nonsense", "--evict: \"nonsense\" is not a policy; there are: lru"},
        {"--evict LRU", "--evict: \"LRU\" is not a policy"},
        {"--evict lru2 --plugin ./x.so", "--evict: \"lru2\" is not a policy"},
        {"--nvme /x:1G --admit nonsense", "--admit: \"nonsense\" is not a policy; there are: "},
    };
    for (size_t h = 0; h < sizeof(halves) / sizeof(halves[0]); h++) {
        char words[256];
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            /* Before any work: a trace that is not there is not even missed. */
            (void)snprintf(words, sizeof(words), "replay /nonexistent/trace --only %s %s",
                           halves[h], wrong[i].words);
            struct tool_run run = tool_command(replay_command, words);
            ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
            ck_assert_msg(strstr(run.err, wrong[i].part) != NULL, "%s: %s", words, run.err);
            tool_run_free(&run);
        }
        (void)snprintf(words, sizeof(words), "--only %s --evict lru", halves[h]);
        struct tool_run run = replay(words);
        ck_assert_msg(run.status == KVT_EXIT_DONE, "%s", run.err);
        tool_run_free(&run);
    }
    struct tool_run run = replay("--only with --nvme /x:1G --admit on-evict");
    ck_assert_msg(run.status == KVT_EXIT_DONE, "%s", run.err);
    tool_run_free(&run);
}
END_TEST

/* ---- names ---- */

static void forget_requests(void)
{
    fake.id_count[0] = 0;
    fake.id_count[1] = 0;
}

/* What the report calls a trace of this name. */
static void expect_name(const char *name, const char *wanted)
{
    char *kept = trace_path;
    char suffix[128];
    (void)snprintf(suffix, sizeof(suffix), ".%s", name);
    trace_path = tool_write(suffix, trace_text);
    forget_requests();
    json_t *root = replay_json("--quiet", KVT_EXIT_DONE);
    const char *said = json_string_value(at(root, "trace"));
    ck_assert_ptr_nonnull(said);
    ck_assert_str_eq(strchr(said, '.') + 1, wanted);
    json_decref(root);
    tool_remove(trace_path);
    trace_path = kept;
}

START_TEST(test_names_that_are_not_text)
{
    static const char *const names[][2] = {
        {"plain", "plain"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"a\xe4"
         "b",
         "a\xef\xbf\xbd"
         "b"},                                    /* Latin-1 */
        {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"}, /* never bytes of UTF-8 */
        {"\xc3", "\xef\xbf\xbd"},                 /* cut */
        {"\xe2\x82"
         "x",
         "\xef\xbf\xbd\xef\xbf\xbdx"}, /* cut, then a letter */
        {"\xf0\x9f\x98", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"q\"\\\x01\t", "q\"\\\x01\t"}, /* JSON's own to escape */
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        expect_name(names[i][0], names[i][1]);
    }
    /* Every pair of bytes that a name can have comes out, as something that JSON takes. */
    for (int first = 0x80; first <= 0xff; first++) {
        for (int second = 0x7f; second <= 0xff; second += 0x20) {
            char name[3] = {(char)first, (char)second, '\0'};
            char *kept = trace_path;
            trace_path = tool_write(name, trace_text);
            forget_requests();
            json_decref(replay_json("--quiet --only without", KVT_EXIT_DONE));
            tool_remove(trace_path);
            trace_path = kept;
        }
    }
}
END_TEST

static void expect_ids(int half, const char *expected)
{
    char text[256] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < fake.id_count[half]; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%" PRIu64 " ", fake.ids[half][i]);
    }
    ck_assert_str_eq(text, expected);
}

START_TEST(test_one_at_a_time)
{
    struct tool_run run = replay("");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    expect_ids(0, "1 2 3 4 5 6 ");
    expect_ids(1, "1 2 3 4 5 6 ");
    ck_assert_uint_eq(fake.outstanding_most, 1);
    for (uint32_t i = 0; i < TRACE_TURNS; i++) {
        ck_assert_uint_eq(fake.dues_ns[1][i], 0);
    }
}
END_TEST

START_TEST(test_several_at_a_time)
{
    /* Rounds: a1 b1 c1 a2 c2 a3. With the newest answered first, a stays out longest: a2 must wait
     * for a1, and nothing overtakes it. */
    fake.last_first = true;
    json_t *root = replay_json("--concurrency 16", KVT_EXIT_DONE);
    json_decref(root);
    expect_ids(1, "1 2 3 4 5 6 ");
    ck_assert_uint_eq(fake.outstanding_most, 3);
    fake.outstanding_most = 0;
    root = replay_json("--concurrency 2", KVT_EXIT_DONE);
    json_decref(root);
    ck_assert_uint_eq(fake.outstanding_most, 2);
}
END_TEST

START_TEST(test_speed_of_the_trace)
{
    json_t *root = replay_json("--only with --speed trace --concurrency 4", KVT_EXIT_DONE);
    ck_assert_str_eq(json_string_value(at(root, "speed")), "trace");
    /* Places in the order of arrival: a1 b1 a2 a3 c1 c2. a2 comes 30 ms after a1's end, a3 30 ms
     * after a2's; c1 at 40 ms, c2 one later, when c1 has been answered. */
    ck_assert_uint_eq(fake.id_count[1], TRACE_TURNS);
    const uint64_t *due = fake.dues_ns[1];
    const uint64_t *ids = fake.ids[1];
    uint64_t start_ns = due[0];
    ck_assert_uint_eq(ids[0], 1);
    ck_assert_uint_eq(ids[1], 2);
    ck_assert_uint_eq(due[1], start_ns);
    for (uint32_t i = 0; i < TRACE_TURNS; i++) {
        ck_assert_uint_ge(fake.submits_ns[1][i], due[i]);
        if (ids[i] == 3) {
            ck_assert_uint_ge(due[i], start_ns + 33 * MS);
        } else if (ids[i] == 4) {
            ck_assert_uint_ge(due[i], start_ns + 66 * MS);
        } else if (ids[i] == 5) {
            ck_assert_uint_eq(due[i], start_ns + 40 * MS);
        } else if (ids[i] == 6) {
            ck_assert_uint_ge(due[i], start_ns + 42 * MS);
        }
    }
    /* From the due time, so at least what the engine took from the submission on. */
    ck_assert(number_at(root, "with.ttft_ms.p50") >= 2.0);
    json_decref(root);
}
END_TEST

START_TEST(test_context_ends_sessions)
{
    json_t *root = replay_json("--context 90 --output-tokens 11", KVT_EXIT_DONE);
    ck_assert_int_eq(integer_at(root, "sessions"), 3);
    ck_assert_int_eq(integer_at(root, "turns"), 4);
    ck_assert_int_eq(integer_at(root, "sessions_ended_by_context"), 2);
    ck_assert_int_eq(integer_at(root, "turns_dropped_by_context"), 2);
    json_decref(root);
    struct tool_run run = replay("--context 90 --output-tokens 11");
    ck_assert_ptr_nonnull(strstr(run.out, "2 sessions end early, 2 turns dropped"));
    tool_run_free(&run);
    expect("--context 70 --output-tokens 7", KVT_EXIT_FAILED, "raise --context or --sessions");
}
END_TEST

START_TEST(test_fewer_sessions)
{
    json_t *root = replay_json("--sessions 2", KVT_EXIT_DONE);
    ck_assert_int_eq(integer_at(root, "sessions"), 2);
    ck_assert_int_eq(integer_at(root, "turns"), 4);
    json_decref(root);
}
END_TEST

/* ---- bad news ---- */

static void expect_bad_news(enum fault fault, bool identical, bool conserved, const char *part)
{
    fake.fault = fault;
    fake.opened = 0;
    fake.closed = 0;
    memset(fake.id_count, 0, sizeof(fake.id_count));
    json_t *root = replay_json("", KVT_EXIT_BAD_NEWS);
    ck_assert(json_is_boolean(at(root, "outputs_identical")));
    ck_assert_int_eq(json_is_true(at(root, "outputs_identical")), identical);
    ck_assert_int_eq(json_is_true(at(root, "with.conservation")), conserved);
    ck_assert_int_eq(integer_at(root, "turns_compared"), TRACE_TURNS);
    json_decref(root);
    memset(fake.id_count, 0, sizeof(fake.id_count));
    struct tool_run run = replay("");
    ck_assert_int_eq(run.status, KVT_EXIT_BAD_NEWS);
    ck_assert_msg(strstr(run.err, part) != NULL, "\"%s\" not in: %s", part, run.err);
    ck_assert_int_eq(strstr(run.out, "DIFFERENT on 1 of 6 turns compared, first on turn 1 of "
                                     "session b") != NULL,
                     !identical);
    ck_assert_int_eq(strstr(run.out, "BROKEN") != NULL, !conserved);
    tool_run_free(&run);
}

START_TEST(test_outputs_differ)
{
    expect_bad_news(FAULT_TOKEN, false, true, "outputs differ on 1 of 6 turns");
    expect_bad_news(FAULT_DIGEST, false, true, "outputs differ on 1 of 6 turns");
    expect_bad_news(FAULT_SHORTER, false, true, "outputs differ on 1 of 6 turns");
}
END_TEST

START_TEST(test_conservation_is_broken)
{
    expect_bad_news(FAULT_BREAKS, true, false, "do not add up");
    expect_bad_news(FAULT_ASKED, true, false, "tokens asked");
    expect_bad_news(FAULT_UNDELIVERED, true, false, "cached as the engine says");
    expect_bad_news(FAULT_UNCOUNTED, true, false, "");
}
END_TEST

/* ---- failures ---- */

START_TEST(test_a_request_fails)
{
    fake.fault = FAULT_REQUEST;
    json_t *root = replay_json("", KVT_EXIT_FAILED);
    ck_assert_int_eq(integer_at(root, "with.failed_requests"), 1);
    ck_assert_int_eq(integer_at(root, "without.failed_requests"), 0);
    ck_assert_int_eq(integer_at(root, "turns_compared"), TRACE_TURNS - 1);
    ck_assert(json_is_true(at(root, "outputs_identical")));
    json_decref(root);
    memset(fake.id_count, 0, sizeof(fake.id_count));
    expect("", KVT_EXIT_FAILED,
           "with the cache: 1 of 6 requests failed, first turn 1 of session b");
}
END_TEST

START_TEST(test_the_engine_fails)
{
    static const struct {
        enum fault fault;
        int status;
        const char *part;
    } cases[] = {
        {FAULT_OPEN_VERSION, KVT_EXIT_FAILED, "with the cache: the plug-in speaks version 7"},
        {FAULT_OPEN_INVAL, KVT_EXIT_USAGE, "no policy has that name"},
        {FAULT_SUBMIT, KVT_EXIT_FAILED, "refused request 1: memory could not be had"},
        {FAULT_NEXT, KVT_EXIT_FAILED, "failed while answering: the device failed"},
        {FAULT_STATS, KVT_EXIT_FAILED, "statistics cannot be had: work is still in flight"},
        {FAULT_UNKNOWN_ID, KVT_EXIT_FAILED, "answered request 77, which was not asked"},
        {FAULT_TWICE, KVT_EXIT_FAILED, "answered request 1, which was not asked"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(&fake, 0, sizeof(fake));
        fake.fault = cases[i].fault;
        expect("", cases[i].status, cases[i].part);
        /* The other half was not begun. */
        ck_assert_uint_eq(fake.opened, 1);
        ck_assert_uint_eq(fake.id_count[0], 0);
        ck_assert_uint_eq(fake.live_results, 0);
        bool refused = fake.fault == FAULT_OPEN_VERSION || fake.fault == FAULT_OPEN_INVAL;
        ck_assert_uint_eq(fake.closed, refused ? 0 : 1);
    }
    fake.fault = FAULT_NONE;
    fake.opened = fake.closed = 0;
}
END_TEST

START_TEST(test_wrong_usage)
{
    expect("--page-tokens 18", KVT_EXIT_USAGE,
           "--page-tokens 18 is not a multiple of the engine's block of 4 tokens");
    expect("--context 16 --output-tokens 16", KVT_EXIT_USAGE,
           "--output-tokens 16 leaves no room for a prompt in --context 16; give 1 to 15");
    expect("--context 100 --page-tokens 128", KVT_EXIT_USAGE,
           "--page-tokens 128 is longer than --context 100");
    expect("--nvme /x:1G --host 0", KVT_EXIT_USAGE, "--host 0 with --nvme");
    expect("--page-tokens 16 --block-tokens 32", KVT_EXIT_USAGE, "block of 32 tokens");
    expect("--hbm 15999", KVT_EXIT_USAGE,
           "--hbm 15999 is smaller than one page, which takes 16000");
    expect("--host 1", KVT_EXIT_USAGE, "--host 1 is smaller than one page");
    expect("--hbm 0 --host 0", KVT_EXIT_USAGE, "leave the cache no memory");
    expect("--engine other", KVT_EXIT_USAGE, "\"other\" is not known; the engines are: made-up");
    expect("--sessions 0", KVT_EXIT_USAGE, "--sessions: \"0\"");
    expect("--concurrency 17", KVT_EXIT_USAGE, "from 1 to 16");
    expect("--control page", KVT_EXIT_USAGE, "none|foreign-page|same-page");
    expect("--bogus", KVT_EXIT_USAGE, "unknown option --bogus");
    ck_assert_uint_eq(fake.opened, 0);
    struct tool_run run = replay("--hbm 16000 --host 0 --only with --quiet");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    run = replay("--hbm 1 --only without --quiet");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    run = replay("--help");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    ck_assert_ptr_nonnull(strstr(run.out, "--budget-percent"));
    tool_run_free(&run);
}
END_TEST

START_TEST(test_traces_that_cannot_be_used)
{
    static const char *const texts[] = {"", "{}\n", "junk\n",
                                        "{\"session_id\":\"a\",\"messages\":[]}"};
    static const char *const parts[] = {"the trace is empty", "unknown trace format", "line 1",
                                        "line 1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *kept = trace_path;
        trace_path = tool_write(".jsonl", texts[i]);
        expect("", KVT_EXIT_FAILED, parts[i]);
        tool_remove(trace_path);
        trace_path = kept;
    }
    char *kept = trace_path;
    trace_path = tool_write(
        ".jsonl", "{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
                  "{\"role\":\"assistant\",\"content\":\"y\"}]}\n");
    expect("--speed trace", KVT_EXIT_USAGE, "has no times");
    struct tool_run run = replay("--only with");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    tool_run_free(&run);
    /* A prompt shorter than a page needs none; the cache still gets one. */
    ck_assert_uint_eq(fake.config.hbm_bytes, 16 * PAGE_BYTES_OF_TOKEN);
    tool_remove(trace_path);
    trace_path = kept;
    run = tool_command(replay_command, "replay /nonexistent/trace");
    ck_assert_int_eq(run.status, KVT_EXIT_FAILED);
    ck_assert_ptr_nonnull(strstr(run.err, "/nonexistent/trace: cannot be opened: No such file"));
    tool_run_free(&run);
    run = tool_command(replay_command, "replay");
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    ck_assert_ptr_nonnull(strstr(run.err, "TRACE is missing"));
    tool_run_free(&run);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_json_has_the_agreed_keys,
                                  test_json_stands_alone,
                                  test_table_is_readable,
                                  test_one_half,
                                  test_settings_reach_the_engine,
                                  test_controls,
                                  test_default_budgets,
                                  test_plugin_beside_the_program,
                                  test_policies_are_known,
                                  test_names_that_are_not_text,
                                  test_one_at_a_time,
                                  test_several_at_a_time,
                                  test_speed_of_the_trace,
                                  test_context_ends_sessions,
                                  test_fewer_sessions,
                                  test_outputs_differ,
                                  test_conservation_is_broken,
                                  test_a_request_fails,
                                  test_the_engine_fails,
                                  test_wrong_usage,
                                  test_traces_that_cannot_be_used};
    return tool_suite_run("replay", tests, sizeof(tests) / sizeof(tests[0]), setup, teardown);
}
