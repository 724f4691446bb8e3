/* Trace readers: all formats, plain and gzip, the tokens they give, and every malformed kind. */
#include "tools/trace.h"

#include <inttypes.h>

#include "tests/unit/tool_support.h"
#include "tools/trace_read.h"

#define VOCABULARY 50021U

static struct kvt_trace trace;
static char why[512];

static void open_text(const char *text)
{
    char *path = tool_write(".jsonl", text);
    kvt_status status = kvt_trace_open(path, &trace, why, sizeof(why));
    ck_assert_msg(status == KVT_OK, "%s", why);
    tool_remove(path);
}

/* The prompt of a turn; the caller frees it. */
static uint32_t *prompt_of(uint32_t turn)
{
    uint32_t count = trace.turns[turn].prompt_tokens;
    /* Room for the tokens and not one more, so that a sanitizer sees an overrun. */
    uint32_t *tokens = malloc(sizeof(*tokens) * count);
    ck_assert_ptr_nonnull(tokens);
    kvt_trace_prompt(&trace, turn, VOCABULARY, tokens);
    for (uint32_t i = 0; i < count; i++) {
        if (tokens[i] >= VOCABULARY) {
            ck_abort_msg("token %u is outside the vocabulary", i);
        }
    }
    return tokens;
}

/* How many tokens two turns' prompts share from their start. */
static uint32_t shared(uint32_t a, uint32_t b)
{
    uint32_t *left = prompt_of(a);
    uint32_t *right = prompt_of(b);
    uint32_t least = trace.turns[a].prompt_tokens < trace.turns[b].prompt_tokens
                         ? trace.turns[a].prompt_tokens
                         : trace.turns[b].prompt_tokens;
    uint32_t n = 0;
    while (n < least && left[n] == right[n]) {
        n++;
    }
    free(left);
    free(right);
    return n;
}

/* How many of the positions from..to differ. */
static uint32_t different(uint32_t a, uint32_t b, uint32_t from, uint32_t to)
{
    uint32_t *left = prompt_of(a);
    uint32_t *right = prompt_of(b);
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        n += left[i] != right[i] ? 1 : 0;
    }
    free(left);
    free(right);
    return n;
}

/* ---- text ---- */

#define SYSTEM "{\"role\":\"system\",\"content\":\"You are an agent.\"}"
#define USER "{\"role\":\"user\",\"content\":\"Gr\\u00fc\\u00dfe, 16 bytes\"}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"yes\"}"

static const char text_trace[] =
    "{\"session_id\":\"a\",\"messages\":[" SYSTEM "," USER "," ANSWER
    ",{\"role\":\"tool\",\"content\":\"\"}," ANSWER "]}\n"
    "\n"
    "{\"extra\":[1,2],\"session_id\":\"b\",\"messages\":[" SYSTEM "," ANSWER ",{\"role\":\"user\","
    "\"content\":\"a\\u0000b\"}]}";

START_TEST(test_text_is_read)
{
    open_text(text_trace);
    ck_assert_int_eq(trace.format, KVT_TRACE_TEXT);
    ck_assert_uint_eq(trace.session_count, 2);
    ck_assert_uint_eq(trace.turn_count, 3);
    ck_assert_str_eq(trace.sessions[0].id, "a");
    ck_assert_uint_eq(trace.sessions[0].turn_count, 2);
    ck_assert_str_eq(trace.sessions[1].id, "b");
    /* 17 bytes: a role and five pieces; 17 bytes in UTF-8: the same. */
    ck_assert_uint_eq(trace.turns[0].prompt_tokens, 12);
    /* The answer of 3 bytes and an empty tool output more. */
    ck_assert_uint_eq(trace.turns[1].prompt_tokens, 15);
    ck_assert_uint_eq(trace.turns[2].prompt_tokens, 6);
    ck_assert_uint_eq(trace.turns[1].turn, 2);
    ck_assert_uint_eq(trace.turns[1].arrival_ms, UINT64_MAX);
    ck_assert_uint_eq(trace.turns[1].delay_ms, UINT64_MAX);
    ck_assert_uint_eq(shared(0, 1), 12);
    ck_assert_uint_eq(shared(0, 2), 6);
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_text_tokens_are_pinned)
{
    open_text(
        "{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"abcdefg\"}," ANSWER
        "]}\n");
    uint32_t *tokens = prompt_of(0);
    /* XXH3-64("user", seed 1), ("abcd", seed 2), ("efg", seed 2), modulo 50021. */
    static const uint32_t expected[] = {23627, 24722, 483};
    ck_assert_uint_eq(trace.turns[0].prompt_tokens, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(tokens[i], expected[i]);
    }
    free(tokens);
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_roles_and_contents_are_told_apart)
{
    open_text(
        "{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"tooltool\"}," ANSWER
        "]}\n"
        "{\"session_id\":\"b\",\"messages\":[{\"role\":\"tool\",\"content\":\"tooltool\"}," ANSWER
        "]}\n"
        "{\"session_id\":\"c\",\"messages\":[{\"role\":\"user\",\"content\":\"tooltook\"}," ANSWER
        "]}\n");
    uint32_t *tokens = prompt_of(1);
    ck_assert_uint_ne(tokens[0], tokens[1]); /* the role is not the piece of the same letters */
    ck_assert_uint_eq(tokens[1], tokens[2]);
    free(tokens);
    ck_assert_uint_eq(shared(0, 1), 0);
    ck_assert_uint_eq(different(0, 1, 1, 3), 0);
    ck_assert_uint_eq(shared(0, 2), 2);
    kvt_trace_close(&trace);
}
END_TEST

/* ---- blocks ---- */

START_TEST(test_mooncake_is_read)
{
    open_text(
        "{\"timestamp\": 5, \"input_length\": 700, \"output_length\": 3, \"hash_ids\": [4, 5]}\n"
        "{\"timestamp\": 5, \"input_length\": 1024, \"output_length\": 0, \"hash_ids\": [4, 6]}\n"
        "{\"timestamp\": 9, \"input_length\": 700, \"output_length\": 1, \"hash_ids\": [4, 5]}\n"
        "{\"timestamp\": 9, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": "
        "[4, 5, 9]}\n"
        "{\"timestamp\": 9, \"input_length\": 1030, \"output_length\": 1, \"hash_ids\": "
        "[4, 6, 7]}\n"
        "{\"timestamp\": 9, \"input_length\": 701, \"output_length\": 1, \"hash_ids\": [4, 5]}\n");
    ck_assert_int_eq(trace.format, KVT_TRACE_MOONCAKE);
    ck_assert_uint_eq(trace.session_count, 6);
    ck_assert_uint_eq(trace.turn_count, 6);
    ck_assert_uint_eq(trace.turns[1].arrival_ms, 5);
    ck_assert_uint_eq(trace.turns[0].output_tokens, 3);
    ck_assert_uint_eq(trace.turns[1].prompt_tokens, 1024);
    ck_assert_uint_eq(shared(0, 1), 512);
    /* The partial last id at the same length: the whole prompt is the same. */
    ck_assert_uint_eq(shared(0, 2), 700);
    /* A longer prompt that has the id shares nothing of it, whether it covers it or not. */
    ck_assert_uint_eq(shared(0, 3), 512);
    ck_assert_uint_eq(shared(0, 5), 512);
    ck_assert_uint_gt(different(0, 3, 512, 700), 180);
    /* A full last block is shared like any other. */
    ck_assert_uint_eq(shared(1, 4), 1024);
    kvt_trace_close(&trace);
}
END_TEST

#define HEADER "{\"kvtrace\":{\"version\":1,\"block_size\":64,\"tail\":\"floor\"}}\n"
#define REQUEST(time, length, runs, session, turn)                                                 \
    "{\"timestamp\":" #time ",\"input_length\":" #length                                           \
    ",\"output_length\":7,\"hash_runs\":" runs ",\"session_id\":\"" session "\",\"turn\":" #turn

START_TEST(test_kvtrace_is_read)
{
    open_text(HEADER REQUEST(0, 130, "[[0,1],[10,1]]", "x", 1) ",\"type\":\"main\"}\n" REQUEST(
        3, 131, "[[0,1],[10,1]]", "y",
        1) ",\"parent_session_id\":\"x\",\"type\":\"subagent\",\"stop\":\"tool_use\"}"
           "\n" REQUEST(4, 200, "[[0,1],[10,2]]", "x",
                        3) ",\"delay\":250,\"ttft_ms\":1.5}\n" REQUEST(9, 130, "[[0,1],[10,1]]",
                                                                       "x", 2) "}\n");
    ck_assert_int_eq(trace.format, KVT_TRACE_KVTRACE);
    ck_assert_uint_eq(trace.session_count, 2);
    ck_assert_uint_eq(trace.turn_count, 4);
    ck_assert_uint_eq(trace.turns[2].delay_ms, 250);
    ck_assert_uint_eq(trace.turns[0].delay_ms, UINT64_MAX);
    /* Sessions go by their turn numbers, turns stay in file order. */
    ck_assert_uint_eq(trace.sessions[0].turn_count, 3);
    static const uint32_t by_session[] = {0, 3, 2, 1};
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(trace.turns_by_session[i], by_session[i]);
    }
    ck_assert_uint_eq(trace.sessions[1].first_turn, 3);
    /* Blocks are shared, tails are not: not with others, not with the next turn. */
    ck_assert_uint_eq(different(0, 1, 0, 128), 0);
    ck_assert_uint_eq(different(0, 1, 128, 130), 2);
    ck_assert_uint_eq(different(0, 3, 128, 130), 2);
    ck_assert_uint_eq(different(0, 2, 0, 128), 0);
    /* The same prompt again is the same prompt. */
    ck_assert_uint_eq(shared(2, 2), 200);
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_kvtrace_without_first_line)
{
    /* Ids, a partial last block of the 512 that are meant then, and turns without numbers. */
    open_text(
        "{\"timestamp\":1,\"input_length\":513,\"output_length\":7,\"hash_ids\":[8,9],"
        "\"session_id\":\"x\"}\n"
        "{\"timestamp\":2,\"input_length\":513,\"output_length\":7,\"hash_runs\":[[8,1],[9,1]],"
        "\"session_id\":\"x\"}\n"
        "{\"timestamp\":2,\"input_length\":1,\"output_length\":7,\"hash_runs\":[[1,1]]}\n");
    ck_assert_int_eq(trace.format, KVT_TRACE_KVTRACE);
    ck_assert_uint_eq(trace.session_count, 2);
    ck_assert_uint_eq(trace.turns[1].turn, 2);
    ck_assert_uint_eq(shared(0, 1), 513);
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_blocks_shorter_than_one)
{
    open_text(HEADER REQUEST(0, 63, "[]", "x", 1) "}\n");
    ck_assert_uint_eq(trace.turns[0].prompt_tokens, 63);
    free(prompt_of(0));
    kvt_trace_close(&trace);
}
END_TEST

/* ---- files ---- */

START_TEST(test_gzip_is_read_like_plain)
{
    open_text(text_trace);
    struct kvt_trace plain = trace;
    uint32_t *expected = prompt_of(1);
    char *path = tool_write_gzip(".gz", text_trace);
    ck_assert_int_eq(kvt_trace_open(path, &trace, why, sizeof(why)), KVT_OK);
    ck_assert_uint_eq(trace.turn_count, plain.turn_count);
    uint32_t *tokens = prompt_of(1);
    ck_assert_mem_eq(tokens, expected, sizeof(*tokens) * trace.turns[1].prompt_tokens);
    free(tokens);
    free(expected);
    kvt_trace_close(&trace);
    kvt_trace_close(&plain);
    tool_remove(path);
}
END_TEST

static void expect_failure(const char *path, kvt_status expected, const char *part)
{
    struct kvt_trace untouched = {.session_count = 123};
    kvt_status status = kvt_trace_open(path, &untouched, why, sizeof(why));
    ck_assert_msg(status == expected, "status %d, not %d: %s", status, expected, why);
    ck_assert_uint_eq(untouched.session_count, 123);
    ck_assert_msg(strstr(why, path) == why, "no path in: %s", why);
    ck_assert_msg(strstr(why, part) != NULL, "\"%s\" not in: %s", part, why);
    ck_assert_ptr_null(strchr(why, '\n'));
}

START_TEST(test_files_that_cannot_be_read)
{
    expect_failure("/nonexistent/trace.jsonl", KVT_ERR_IO, "No such file");
    expect_failure("/", KVT_ERR_IO, "Is a directory");
    char *whole = tool_write_gzip(".gz", text_trace);
    size_t bytes = 0;
    char *data = tool_read(whole, &bytes);
    char *cut = tool_write_bytes(".gz", data, bytes - 20);
    expect_failure(cut, KVT_ERR_IO, "ends too early");
    data[bytes - 6] = (char)(data[bytes - 6] ^ 1); /* the checksum */
    char *flipped = tool_write_bytes(".gz", data, bytes);
    expect_failure(flipped, KVT_ERR_IO, "damaged");
    free(data);
    tool_remove(whole);
    tool_remove(cut);
    tool_remove(flipped);
}
END_TEST

/* Two files one behind the other, the first cut to `first_bytes` and the second to `second`. */
static char *tool_join(const char *first, size_t first_bytes, const char *second, size_t bytes)
{
    char *both = malloc(first_bytes + bytes);
    ck_assert_ptr_nonnull(both);
    memcpy(both, first, first_bytes);
    memcpy(both + first_bytes, second, bytes);
    char *path = tool_write_bytes(".gz", both, first_bytes + bytes);
    free(both);
    return path;
}

/* A gzip file is members and nothing else. */
START_TEST(test_what_follows_compressed_data)
{
    char *whole = tool_write_gzip(".gz", text_trace);
    char *other =
        tool_write_gzip(".gz", "\n{\"session_id\":\"z\",\"messages\":[" USER "," ANSWER "]}\n");
    size_t bytes = 0, other_bytes = 0;
    char *data = tool_read(whole, &bytes);
    char *more = tool_read(other, &other_bytes);
    char *path = tool_join(data, bytes, more, other_bytes);
    ck_assert_msg(kvt_trace_open(path, &trace, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_uint_eq(trace.session_count, 3);
    ck_assert_str_eq(trace.sessions[2].id, "z");
    kvt_trace_close(&trace);
    tool_remove(path);
    static const struct {
        const char *text;
        size_t bytes;
    } tails[] = {{"garbage", 7}, {"\0", 1},       {"\0\0\0\0\0\0\0\0", 8},
                 {"\x1f", 1},    {"\x1f\x8a", 2}, {"\n", 1}};
    char part[128];
    (void)snprintf(part, sizeof(part),
                   "after the compressed data come bytes that are not gzip, at byte %zu of the "
                   "file",
                   bytes);
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        path = tool_join(data, bytes, tails[i].text, tails[i].bytes);
        expect_failure(path, KVT_ERR_IO, part);
        ck_assert_ptr_nonnull(strstr(why, ", line 4: "));
        tool_remove(path);
    }
    /* Every cut of the second member ends too early, but the one that leaves nothing of it. */
    for (size_t cut = 2; cut < other_bytes; cut++) {
        path = tool_join(data, bytes, more, cut);
        expect_failure(path, KVT_ERR_IO, "the compressed data ends too early");
        tool_remove(path);
    }
    path = tool_join(data, bytes, more, 0);
    ck_assert_msg(kvt_trace_open(path, &trace, why, sizeof(why)) == KVT_OK, "%s", why);
    kvt_trace_close(&trace);
    tool_remove(path);
    free(data);
    free(more);
    tool_remove(whole);
    tool_remove(other);
}
END_TEST

/* Lines and members longer than what is read at once, so that they end anywhere in a chunk. */
START_TEST(test_many_members)
{
    enum { MEMBERS = 300 };
    char *path = tool_path(".gz");
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < MEMBERS; i++) {
        static char line[8192];
        int length = 1 + i * 7919 % 4000;
        int n = snprintf(line, sizeof(line),
                         "{\"session_id\":\"s%d\",\"messages\":[{\"role\":\"user\",\"content\":"
                         "\"%*d\"}," ANSWER "]}\n",
                         i, length, i);
        ck_assert_int_gt(n, 0);
        char *one = tool_write_gzip(".gz", line);
        size_t bytes = 0;
        char *data = tool_read(one, &bytes);
        ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
        free(data);
        tool_remove(one);
    }
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_msg(kvt_trace_open(path, &trace, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_uint_eq(trace.session_count, MEMBERS);
    kvt_trace_close(&trace);
    tool_remove(path);
}
END_TEST

START_TEST(test_small_room_for_the_sentence)
{
    char little[8] = "1234567";
    struct kvt_trace none;
    ck_assert_int_eq(kvt_trace_open("/nonexistent", &none, little, 5), KVT_ERR_IO);
    ck_assert_str_eq(little, "/non");
    ck_assert_int_eq(little[5], '6');
    ck_assert_int_eq(kvt_trace_open("/nonexistent", &none, NULL, 0), KVT_ERR_IO);
}
END_TEST

/* ---- malformed ---- */

struct bad {
    const char *text;
    unsigned line; /* 0: the sentence names none */
    const char *part;
};

#define GOOD "{\"timestamp\":0,\"input_length\":1,\"output_length\":0,\"hash_ids\":[1]}\n"
#define ONE(body) "{\"timestamp\":0,\"output_length\":0," body "}\n"

static const struct bad bads[] = {
    {"", 0, "the trace is empty"},
    {"\n \t\r\n\n", 0, "the trace is empty"},
    {HEADER, 0, "the trace is empty"},
    {"{}", 1, "unknown trace format"},
    {"\n{\"prompt\":\"x\"}\n", 2, "unknown trace format"},
    {"hello\n", 1, "not a JSON object"},
    {"[1]\n", 1, "not a JSON object"},
    {GOOD "{\"timestamp\":0,\n", 2, "not a JSON object"},
    {GOOD GOOD "{} x\n", 3, "not a JSON object"},
    {GOOD "{\"timestamp\":0,\"timestamp\":0}\n", 2, "duplicate"},
    {GOOD "\xff\n", 2, "not a JSON object"},
    {GOOD "{}\n", 2, "timestamp is missing"},
    {GOOD "{\"kvtrace\":{}}\n", 2, "on the first line only"},
    {ONE("\"hash_ids\":[1]"), 1, "input_length is missing"},
    {ONE("\"input_length\":1"), 1, "unknown trace format"},
    {GOOD ONE("\"input_length\":1"), 2, "hash_ids is missing"},
    {ONE("\"input_length\":1,\"hash_ids\":[1],\"hash_runs\":[[1,1]]"), 1, "both"},
    {"{\"timestamp\":0,\"input_length\":1,\"hash_ids\":[1]}\n", 1, "output_length is missing"},
    {"{\"timestamp\":1.5,\"output_length\":0,\"input_length\":1,\"hash_ids\":[1]}", 1,
     "timestamp is not a whole number"},
    {"{\"timestamp\":-1,\"output_length\":0,\"input_length\":1,\"hash_ids\":[1]}", 1,
     "timestamp is negative"},
    {ONE("\"input_length\":\"1\",\"hash_ids\":[1]"), 1, "input_length is not a whole number"},
    {ONE("\"input_length\":0,\"hash_ids\":[]"), 1, "input_length is 0"},
    {ONE("\"input_length\":16777217,\"hash_ids\":[]"), 1, "more than the limit of 16777216"},
    {ONE("\"input_length\":99999999999999999999,\"hash_ids\":[]"), 1, "too big integer"},
    {ONE("\"input_length\":1,\"hash_ids\":7"), 1, "hash_ids is not an array"},
    {ONE("\"input_length\":1,\"hash_ids\":[1.0]"), 1, "at place 1"},
    {ONE("\"input_length\":600,\"hash_ids\":[1,-2]"), 1, "at place 2"},
    {ONE("\"input_length\":513,\"hash_ids\":[1]"), 1, "needs 2"},
    {ONE("\"input_length\":512,\"hash_ids\":[1,2]"), 1, "needs 1"},
    {ONE("\"input_length\":1,\"hash_runs\":{}"), 1, "hash_runs is not an array"},
    {ONE("\"input_length\":1,\"hash_runs\":[[1]]"), 1, "at place 1"},
    {ONE("\"input_length\":1,\"hash_runs\":[[1,1,1]]"), 1, "at place 1"},
    {ONE("\"input_length\":600,\"hash_runs\":[[1,1],5]"), 1, "at place 2"},
    {ONE("\"input_length\":1,\"hash_runs\":[[1,0]]"), 1, "at place 1"},
    {ONE("\"input_length\":1,\"hash_runs\":[[-1,1]]"), 1, "at place 1"},
    {ONE("\"input_length\":1,\"hash_runs\":[[1,16777217]]"), 1, "at place 1"},
    {ONE("\"input_length\":1,\"hash_runs\":[[1,2]]"), 1, "name 2 blocks"},
    {HEADER REQUEST(0, 130, "[[0,3]]", "x", 1) "}", 2, "full blocks only"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "x", 0) "}", 2, "turn is 0"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "", 1) "}", 2, "session_id is empty"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "a\\u0000", 1) "}", 2, "NUL"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "x", 1) ",\"delay\":-1}", 2, "delay is negative"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "x", 1) ",\"type\":1}", 2, "type is not a string"},
    {HEADER REQUEST(0, 130, "[[0,2]]", "x", 1) "}\n" REQUEST(
         0, 130, "[[0,2]]", "y", 1) "}\n" REQUEST(1, 130, "[[0,2]]", "x", 1) "}",
     4, "was already on line 2"},
    {"{\"kvtrace\":1}\n", 1, "kvtrace is not an object"},
    {"{\"kvtrace\":{\"version\":2}}\n", 1, "version 2"},
    {"{\"kvtrace\":{\"block_size\":0}}\n", 1, "block_size is 0"},
    {"{\"kvtrace\":{\"block_size\":-4}}\n", 1, "block_size is negative"},
    {"{\"kvtrace\":{\"block_size\":65537}}\n", 1, "more than the limit"},
    {"{\"kvtrace\":{\"tail\":\"round\"}}\n", 1, "neither floor nor ceil"},
    {"{\"messages\":[]}\n", 1, "session_id is missing"},
    {"{\"session_id\":3,\"messages\":[]}\n", 1, "session_id is not a string"},
    {"{\"session_id\":\"a\",\"messages\":{}}\n", 1, "messages is not an array"},
    {"{\"session_id\":\"a\",\"messages\":[]}\n", 1, "nothing to answer"},
    {"{\"session_id\":\"a\",\"messages\":[" USER "]}\n", 1, "nothing to answer"},
    {"{\"session_id\":\"a\",\"messages\":[" ANSWER "]}\n", 1, "its prompt is empty"},
    {"{\"session_id\":\"a\",\"messages\":[7]}\n", 1, "message 1 is not an object"},
    {"{\"session_id\":\"a\",\"messages\":[" USER ",{\"content\":\"x\"}]}\n", 1,
     "role of message 2 is missing"},
    {"{\"session_id\":\"a\",\"messages\":[{\"role\":1,\"content\":\"x\"}]}\n", 1,
     "role of message 1 is not a string"},
    {"{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\"}]}\n", 1,
     "content of message 1 is missing"},
    {"{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":null}]}\n", 1,
     "content of message 1 is not a string"},
    {"{\"session_id\":\"a\",\"messages\":[" USER "," ANSWER "]}\n"
     "{\"session_id\":\"a\",\"messages\":[" USER "," ANSWER "]}\n",
     2, "already on another line"},
    {"{\"session_id\":\"a\",\"messages\":[" USER "," ANSWER "]}\n" GOOD, 2,
     "session_id is missing"},
};

START_TEST(test_malformed_lines)
{
    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        char *path = tool_write(".jsonl", bads[i].text);
        char place[32] = "";
        expect_failure(path, KVT_ERR_INVAL, bads[i].part);
        (void)snprintf(place, sizeof(place), ", line %u: ", bads[i].line);
        const char *found = strstr(why, ", line ");
        if (bads[i].line == 0) {
            ck_assert_msg(found == NULL, "%s", why);
        } else {
            ck_assert_msg(found != NULL && strncmp(found, place, strlen(place)) == 0,
                          "not on line %u: %s", bads[i].line, why);
        }
        tool_remove(path);
    }
}
END_TEST

/* ---- limits ---- */

static void expect_limit(const struct kvt_trace_limits *limits, const char *text, const char *part)
{
    char *path = tool_write(".jsonl", text);
    kvt_status status = kvt_trace_open_limited(path, limits, &trace, why, sizeof(why));
    if (part == NULL) {
        ck_assert_msg(status == KVT_OK, "%s", why);
        kvt_trace_close(&trace);
    } else {
        ck_assert_int_eq(status, KVT_ERR_INVAL);
        ck_assert_msg(strstr(why, part) != NULL, "\"%s\" not in: %s", part, why);
    }
    tool_remove(path);
}

START_TEST(test_limits_are_kept)
{
    struct kvt_trace_limits limits = kvt_trace_limits_default;
    limits.turns_max = 2;
    expect_limit(&limits, GOOD GOOD, NULL);
    expect_limit(&limits, GOOD GOOD GOOD, "line 3: more than the limit of 2 turns");
    limits = kvt_trace_limits_default;
    limits.sessions_max = 2;
    expect_limit(&limits, GOOD GOOD, NULL);
    expect_limit(&limits, GOOD GOOD GOOD, "line 3: more than the limit of 2 sessions");
    limits = kvt_trace_limits_default;
    limits.line_bytes_max = strlen(GOOD) - 1;
    expect_limit(&limits, GOOD GOOD, NULL);
    limits.line_bytes_max--;
    expect_limit(&limits, "\n" GOOD, "line 2: longer than the limit of");
    limits = kvt_trace_limits_default;
    limits.prompt_tokens_max = 15;
    expect_limit(&limits, text_trace, NULL);
    limits.prompt_tokens_max = 14;
    expect_limit(&limits, text_trace, "line 1: the prompt of message 5 has 15 tokens");
}
END_TEST

START_TEST(test_many_sessions)
{
    /* More than the table of sessions starts with, and a line longer than what is read at once. */
    enum { SESSIONS = 1000, FILLER = 200000 };
    size_t room = (size_t)SESSIONS * 200 + FILLER + 1000;
    char *text = malloc(room);
    ck_assert_ptr_nonnull(text);
    size_t used = 0;
    for (unsigned round = 1; round <= 2; round++) {
        for (unsigned i = 0; i < SESSIONS; i++) {
            used += (size_t)snprintf(text + used, room - used,
                                     "{\"timestamp\":%u,\"input_length\":5,\"output_length\":1,"
                                     "\"hash_ids\":[%u],\"session_id\":\"session %u\"}\n",
                                     round, i, i);
        }
        if (round == 1) {
            memset(text + used, ' ', FILLER);
            used += FILLER;
        }
    }
    text[used] = '\0';
    open_text(text);
    ck_assert_uint_eq(trace.session_count, SESSIONS);
    ck_assert_uint_eq(trace.turn_count, 2 * SESSIONS);
    for (uint32_t s = 0; s < SESSIONS; s++) {
        const struct kvt_trace_session *session = &trace.sessions[s];
        if (session->turn_count != 2 || trace.turns_by_session[session->first_turn] != s ||
            trace.turns_by_session[session->first_turn + 1] != s + SESSIONS) {
            ck_abort_msg("session %" PRIu32 " has the wrong turns", s);
        }
    }
    kvt_trace_close(&trace);
    free(text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_text_is_read,
                                  test_text_tokens_are_pinned,
                                  test_roles_and_contents_are_told_apart,
                                  test_mooncake_is_read,
                                  test_kvtrace_is_read,
                                  test_kvtrace_without_first_line,
                                  test_blocks_shorter_than_one,
                                  test_gzip_is_read_like_plain,
                                  test_files_that_cannot_be_read,
                                  test_what_follows_compressed_data,
                                  test_many_members,
                                  test_small_room_for_the_sentence,
                                  test_malformed_lines,
                                  test_limits_are_kept,
                                  test_many_sessions};
    return tool_suite_run("trace", tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
