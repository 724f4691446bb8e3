/*
 * Block traces: mooncake, and kvtrace, which is mooncake with more keys.
 *
 * A request names its prompt by block ids, one for every `block_size` tokens; equal ids mean equal
 * tokens and an equal prompt before them. The ids are kept as runs of consecutive numbers, and
 * tokens are made when they are asked for:
 *
 *   token of a whole block = f(block id, position in the prompt)
 *   token of a partial last block = g(block id, tokens that it covers, position)
 *   token that no block id covers = h(session, turn, position)      each modulo the vocabulary
 *
 * The last block of a prompt is partial where ids are given for it too (tail "ceil", and mooncake)
 * and the length is no multiple of the block. Such an id names a content that ends there: two
 * prompts that end with the same id at the same length are equal to their last token, but a longer
 * prompt that carries the id has other tokens from that block's start on, so nothing of it can be
 * taken for the partial one. Where the last block is full, its id is like any other.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace_read.h"

#define BLOCK_TOKENS_DEFAULT 512U
#define OUTPUT_TOKENS_MAX UINT32_MAX
#define TIME_MS_MAX (UINT64_C(1) << 50)
#define KVTRACE_VERSION 1U

/* Constants that keep the three kinds of tokens apart. */
#define SALT_BLOCK UINT64_C(0x6b76742e626c6f63)
#define SALT_PARTIAL UINT64_C(0x6b76742e70617274)
#define SALT_TAIL UINT64_C(0x6b76742e7461696c)

struct run {
    uint64_t first_block;
    uint64_t block_count;
};

struct block_turn {
    uint64_t first_run;
    uint64_t run_count;
};

struct blocks_content {
    uint32_t block_tokens;
    bool tail_is_partial; /* ids cover the tail too ("ceil") */
    bool header_may_come; /* no line was read yet */
    struct run *runs;
    uint64_t run_count, run_capacity;
    struct block_turn *turns; /* as trace->turns */
    uint64_t turn_capacity;
};

static kvt_status blocks_create(struct kvt_trace *trace)
{
    struct blocks_content *content = calloc(1, sizeof(*content));
    if (content == NULL) {
        return KVT_ERR_NOMEM;
    }
    content->block_tokens = BLOCK_TOKENS_DEFAULT;
    content->tail_is_partial = true;
    content->header_may_come = true;
    trace->content = content;
    return KVT_OK;
}

static void blocks_destroy(void *ptr)
{
    struct blocks_content *content = ptr;
    if (content == NULL) {
        return;
    }
    free(content->runs);
    free(content->turns);
    free(content);
}

static kvt_status fail_memory(struct kvt_trace_build *build)
{
    return kvt_trace_fail(build, KVT_ERR_NOMEM, "memory could not be had");
}

/* ---- the first line of a kvtrace ---- */

static kvt_status take_header(struct kvt_trace_build *build, const json_t *header)
{
    struct blocks_content *content = build->trace->content;
    if (!json_is_object(header)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "kvtrace is not an object");
    }
    uint64_t number = 0;
    const uint64_t version_absent = KVTRACE_VERSION;
    kvt_status status =
        kvt_trace_number(build, header, "version", INT64_MAX, &version_absent, &number);
    if (status != KVT_OK) {
        return status;
    }
    if (number != KVTRACE_VERSION) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "version %" PRIu64 " of the format is not known; this reads version "
                              "%u",
                              number, KVTRACE_VERSION);
    }
    const uint64_t block_absent = BLOCK_TOKENS_DEFAULT;
    status = kvt_trace_number(build, header, "block_size", KVT_TRACE_BLOCK_TOKENS_MAX,
                              &block_absent, &number);
    if (status != KVT_OK) {
        return status;
    }
    if (number == 0) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "block_size is 0");
    }
    content->block_tokens = (uint32_t)number;
    const char *tail = NULL;
    status = kvt_trace_string(build, header, "tail", &tail);
    if (status != KVT_OK) {
        return status;
    }
    if (tail != NULL && strcmp(tail, "floor") != 0 && strcmp(tail, "ceil") != 0) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "tail is neither floor nor ceil");
    }
    content->tail_is_partial = tail == NULL || strcmp(tail, "ceil") == 0;
    return KVT_OK;
}

/* ---- block ids ---- */

/* Appends blocks to the turn that starts at run `first_run`, joining runs that continue. */
static kvt_status add_blocks(struct kvt_trace_build *build, uint64_t first_run,
                             uint64_t first_block, uint64_t block_count)
{
    struct blocks_content *content = build->trace->content;
    if (content->run_count > first_run) {
        struct run *last = &content->runs[content->run_count - 1];
        if (last->first_block + last->block_count == first_block) {
            last->block_count += block_count;
            return KVT_OK;
        }
    }
    if (kvt_trace_grow((void **)&content->runs, &content->run_capacity, content->run_count + 1,
                       sizeof(*content->runs)) != KVT_OK) {
        return fail_memory(build);
    }
    content->runs[content->run_count++] = (struct run){first_block, block_count};
    return KVT_OK;
}

static kvt_status take_ids(struct kvt_trace_build *build, const json_t *ids, uint64_t first_run,
                           uint64_t *out_blocks)
{
    if (!json_is_array(ids)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "hash_ids is not an array");
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            return kvt_trace_fail(build, KVT_ERR_INVAL,
                                  "hash_ids holds something that is not a whole number of 0 or "
                                  "more, at place %zu",
                                  i + 1);
        }
        kvt_status status = add_blocks(build, first_run, (uint64_t)json_integer_value(id), 1);
        if (status != KVT_OK) {
            return status;
        }
    }
    *out_blocks = json_array_size(ids);
    return KVT_OK;
}

static kvt_status take_runs(struct kvt_trace_build *build, const json_t *runs, uint64_t first_run,
                            uint64_t *out_blocks)
{
    if (!json_is_array(runs)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "hash_runs is not an array");
    }
    uint64_t blocks = 0;
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *pair = json_array_get(runs, i);
        const json_t *first = json_array_get(pair, 0);
        const json_t *count = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(count) ||
            json_integer_value(first) < 0 || json_integer_value(count) < 1 ||
            json_integer_value(count) > (json_int_t)KVT_TRACE_PROMPT_TOKENS_MAX) {
            return kvt_trace_fail(build, KVT_ERR_INVAL,
                                  "hash_runs holds something that is not [first id of 0 or more, "
                                  "count of 1 to %" PRIu32 "], at place %zu",
                                  KVT_TRACE_PROMPT_TOKENS_MAX, i + 1);
        }
        uint64_t block_count = (uint64_t)json_integer_value(count);
        kvt_status status =
            add_blocks(build, first_run, (uint64_t)json_integer_value(first), block_count);
        if (status != KVT_OK) {
            return status;
        }
        blocks += block_count;
    }
    *out_blocks = blocks;
    return KVT_OK;
}

static kvt_status take_blocks(struct kvt_trace_build *build, const json_t *object,
                              uint32_t prompt_tokens, uint64_t *out_first_run)
{
    struct blocks_content *content = build->trace->content;
    const json_t *ids = json_object_get(object, "hash_ids");
    const json_t *runs = json_object_get(object, "hash_runs");
    if (ids == NULL && runs == NULL) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "hash_ids is missing, and hash_runs too");
    }
    if (ids != NULL && runs != NULL) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "hash_ids and hash_runs are both there");
    }
    uint64_t first_run = content->run_count;
    uint64_t blocks = 0;
    kvt_status status = ids != NULL ? take_ids(build, ids, first_run, &blocks)
                                    : take_runs(build, runs, first_run, &blocks);
    if (status != KVT_OK) {
        return status;
    }
    uint64_t expected = prompt_tokens / content->block_tokens;
    if (content->tail_is_partial && prompt_tokens % content->block_tokens != 0) {
        expected++;
    }
    if (blocks != expected) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "%s name %" PRIu64 " blocks, but input_length %" PRIu32
                              " needs %" PRIu64 " (blocks of %" PRIu32 " tokens, %s)",
                              ids != NULL ? "hash_ids" : "hash_runs", blocks, prompt_tokens,
                              expected, content->block_tokens,
                              content->tail_is_partial ? "the last one may be partial"
                                                       : "full blocks only");
    }
    *out_first_run = first_run;
    return KVT_OK;
}

/* ---- a request ---- */

static kvt_status take_session(struct kvt_trace_build *build, const json_t *object,
                               struct kvt_trace_turn *turn)
{
    const char *id = NULL;
    const char *ignored = NULL;
    uint64_t number = 0;
    const uint64_t absent = 0;
    kvt_status status = kvt_trace_string(build, object, "session_id", &id);
    if (status == KVT_OK) {
        status = kvt_trace_string(build, object, "parent_session_id", &ignored);
    }
    if (status == KVT_OK) {
        status = kvt_trace_string(build, object, "type", &ignored);
    }
    if (status == KVT_OK) {
        status = kvt_trace_string(build, object, "stop", &ignored);
    }
    if (status == KVT_OK) {
        status = kvt_trace_number(build, object, "turn", UINT32_MAX, &absent, &number);
    }
    if (status != KVT_OK) {
        return status;
    }
    if (number == 0 && json_object_get(object, "turn") != NULL) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "turn is 0; turns count from 1");
    }
    turn->turn = (uint32_t)number;
    if (id == NULL) {
        return kvt_trace_session_anonymous(build, &turn->session);
    }
    bool is_new = false;
    return kvt_trace_session(build, id, &turn->session, &is_new);
}

static kvt_status take_numbers(struct kvt_trace_build *build, const json_t *object,
                               struct kvt_trace_turn *turn)
{
    uint64_t number = 0;
    const uint64_t absent = UINT64_MAX;
    kvt_status status =
        kvt_trace_number(build, object, "timestamp", TIME_MS_MAX, NULL, &turn->arrival_ms);
    if (status == KVT_OK) {
        status = kvt_trace_number(build, object, "delay", TIME_MS_MAX, &absent, &turn->delay_ms);
    }
    if (status == KVT_OK) {
        status = kvt_trace_number(build, object, "output_length", OUTPUT_TOKENS_MAX, NULL, &number);
        turn->output_tokens = (uint32_t)number;
    }
    if (status == KVT_OK) {
        status = kvt_trace_number(build, object, "input_length", build->limits->prompt_tokens_max,
                                  NULL, &number);
        turn->prompt_tokens = (uint32_t)number;
    }
    if (status == KVT_OK && number == 0) {
        status = kvt_trace_fail(build, KVT_ERR_INVAL, "input_length is 0; a prompt has tokens");
    }
    return status;
}

static kvt_status blocks_line(struct kvt_trace_build *build, const json_t *object)
{
    struct blocks_content *content = build->trace->content;
    const json_t *header = json_object_get(object, "kvtrace");
    bool header_may_come = content->header_may_come;
    content->header_may_come = false;
    if (header != NULL) {
        return header_may_come ? take_header(build, header)
                               : kvt_trace_fail(build, KVT_ERR_INVAL,
                                                "kvtrace may stand on the first line only");
    }
    struct kvt_trace_turn turn = {0};
    uint64_t first_run = 0;
    kvt_status status = take_numbers(build, object, &turn);
    if (status == KVT_OK) {
        status = take_blocks(build, object, turn.prompt_tokens, &first_run);
    }
    if (status == KVT_OK) {
        status = take_session(build, object, &turn);
    }
    if (status != KVT_OK) {
        return status;
    }
    uint32_t index = build->trace->turn_count;
    if (kvt_trace_grow((void **)&content->turns, &content->turn_capacity, (uint64_t)index + 1,
                       sizeof(*content->turns)) != KVT_OK) {
        return fail_memory(build);
    }
    content->turns[index] = (struct block_turn){first_run, content->run_count - first_run};
    return kvt_trace_turn_add(build, &turn);
}

/* ---- prompts ---- */

/* A bijection that spreads every input bit over all output bits. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

/* Positions `from`..`to` of a prompt, drawn from `source`. */
static void fill(uint64_t source, uint32_t from, uint32_t to, uint32_t vocabulary,
                 uint32_t *out_tokens)
{
    for (uint32_t position = from; position < to; position++) {
        uint64_t bits = mix(source + (uint64_t)position * UINT64_C(0x9e3779b97f4a7c15));
        out_tokens[position] = (uint32_t)(bits >> 32) % vocabulary;
    }
}

static void blocks_prompt(const struct kvt_trace *trace, uint32_t turn, uint32_t vocabulary,
                          uint32_t *out_tokens)
{
    const struct blocks_content *content = trace->content;
    const struct block_turn *place = &content->turns[turn];
    uint32_t total = trace->turns[turn].prompt_tokens;
    uint32_t position = 0;
    for (uint64_t i = 0; i < place->run_count; i++) {
        const struct run *run = &content->runs[place->first_run + i];
        for (uint64_t k = 0; k < run->block_count; k++) {
            uint64_t block = run->first_block + k;
            uint32_t covered = total - position;
            uint64_t source = mix(block ^ SALT_BLOCK);
            if (covered < content->block_tokens) {
                source = mix(mix(block ^ SALT_PARTIAL) + covered);
            } else {
                covered = content->block_tokens;
            }
            fill(source, position, position + covered, vocabulary, out_tokens);
            position += covered;
        }
    }
    /* The index, not the id: a session without an id is still like no other. */
    uint64_t session = mix(trace->turns[turn].session ^ SALT_TAIL);
    fill(mix(session + trace->turns[turn].turn), position, total, vocabulary, out_tokens);
}

const struct kvt_trace_reader_ops kvt_trace_blocks_ops = {.create = blocks_create,
                                                          .line = blocks_line,
                                                          .prompt = blocks_prompt,
                                                          .destroy = blocks_destroy};
