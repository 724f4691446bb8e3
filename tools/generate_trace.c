/*
 * The sessions of a generated trace.
 *
 * A conversation is a number of tokens and the ids of its full blocks. Growing gives new ids to the
 * blocks that become full; an edit cuts the ids at a point and grows again; a copy shares what is
 * there already. So equal ids mean equal tokens and an equal prompt before them, as the format
 * says.
 */
#include "tools/generate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace_read.h"

/* What an engine would have taken to answer, for timestamps only: until the first token, then for
 * each token. Measured: 5.9 s at the median, at 213 tokens. */
#define SERVICE_BASE_MS 1000U
#define SERVICE_TOKEN_MS 23U
/* Turns of a resumed session, in hundreds of the mean of all: most of them lie behind it. */
#define RESUMED_TURNS_PERCENT 57U
/* How turns end, in thousandths; the last turn of a session always ends with an answer. */
#define STOP_TOOL_PERMILLE 856U
#define STOP_STREAM_PERMILLE 92U
/* Edits that make the prompt shorter (compaction), in hundreds, and what of the lost part they put
 * in its place. The others put as much as they took. */
#define COMPACTIONS_PERCENT 40U
#define COMPACTED_PERCENT_MIN 5U
#define COMPACTED_PERCENT_MAX 50U
/* The start that fresh sub-agents share. */
#define SUB_SYSTEM_TOKENS 8900U
/* An edit takes more than a block. */
#define EDIT_BLOCKS_MIN 2U
#define LINE_BYTES_MAX 512U

struct run {
    uint64_t first_block, block_count;
};

struct context {
    struct run *runs;
    uint64_t run_count, run_capacity;
    uint64_t block_count;
    uint64_t tokens;
};

/* A line of the trace: sorted by arrival, ties as they were made. */
struct record {
    uint64_t arrival_ms, sequence;
    uint64_t first_byte, byte_count;
};

struct maker {
    const struct kvt_generate_settings *settings;
    uint64_t next_block;
    struct context *systems; /* [settings->system_prompts] */
    struct context sub_system;
    char *text;
    uint64_t text_bytes, text_capacity;
    struct record *records;
    uint64_t record_count, record_capacity;
    uint32_t sessions;
};

struct agent {
    struct maker *maker;
    struct kvt_draw draw;
    char id[48];
    const char *parent; /* NULL: a main session */
    uint64_t number;    /* of the main session */
    struct context context;
    uint64_t arrival_ms, delay_ms;
    uint32_t turn, turns;
    uint32_t sub_agents;
};

static uint64_t scaled(const struct maker *maker, uint64_t tokens)
{
    uint64_t result = tokens * maker->settings->scale / KVT_GENERATE_HUNDREDTHS;
    return result > 0 ? result : 1;
}

/* ---- conversations ---- */

static void context_fini(struct context *context)
{
    free(context->runs);
    *context = (struct context){0};
}

/* Grows by `tokens`; blocks that become full get new ids. */
static kvt_status context_grow(struct maker *maker, struct context *context, uint64_t tokens)
{
    uint64_t blocks = (context->tokens + tokens) / maker->settings->block_tokens;
    uint64_t more = blocks - context->block_count;
    context->tokens += tokens;
    if (more == 0) {
        return KVT_OK;
    }
    struct run *last = context->run_count > 0 ? &context->runs[context->run_count - 1] : NULL;
    if (last != NULL && last->first_block + last->block_count == maker->next_block) {
        last->block_count += more;
    } else {
        kvt_status status = kvt_trace_grow((void **)&context->runs, &context->run_capacity,
                                           context->run_count + 1, sizeof(*context->runs));
        if (status != KVT_OK) {
            return status;
        }
        context->runs[context->run_count++] = (struct run){maker->next_block, more};
    }
    context->block_count = blocks;
    maker->next_block += more;
    return KVT_OK;
}

/* Cuts off the last `tokens` tokens, and every block that is not full then. */
static void context_cut(const struct maker *maker, struct context *context, uint64_t tokens)
{
    context->tokens -= tokens;
    uint64_t excess = context->block_count - context->tokens / maker->settings->block_tokens;
    context->block_count -= excess;
    while (excess > 0) {
        struct run *last = &context->runs[context->run_count - 1];
        uint64_t take = last->block_count < excess ? last->block_count : excess;
        last->block_count -= take;
        excess -= take;
        if (last->block_count == 0) {
            context->run_count--;
        }
    }
}

static kvt_status context_copy(const struct context *from, struct context *out_context)
{
    struct context copy = *from;
    copy.runs = NULL;
    copy.run_capacity = 0;
    kvt_status status = kvt_trace_grow((void **)&copy.runs, &copy.run_capacity, from->run_count + 1,
                                       sizeof(*copy.runs));
    if (status != KVT_OK) {
        return status;
    }
    if (from->run_count > 0) {
        memcpy(copy.runs, from->runs, (size_t)from->run_count * sizeof(*copy.runs));
    }
    *out_context = copy;
    return KVT_OK;
}

/* ---- lines ---- */

static kvt_status append(struct maker *maker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends at most LINE_BYTES_MAX bytes. */
static kvt_status append(struct maker *maker, const char *format, ...)
{
    kvt_status status = kvt_trace_grow((void **)&maker->text, &maker->text_capacity,
                                       maker->text_bytes + LINE_BYTES_MAX, 1);
    if (status != KVT_OK) {
        return status;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(maker->text + maker->text_bytes, LINE_BYTES_MAX, format, args);
    va_end(args);
    maker->text_bytes += n > 0 ? (uint64_t)n : 0;
    return KVT_OK;
}

static kvt_status append_runs(struct maker *maker, const struct context *context)
{
    kvt_status status = append(maker, "\"hash_runs\":[");
    for (uint64_t i = 0; status == KVT_OK && i < context->run_count; i++) {
        status = append(maker, "%s[%" PRIu64 ",%" PRIu64 "]", i > 0 ? "," : "",
                        context->runs[i].first_block, context->runs[i].block_count);
    }
    return status == KVT_OK ? append(maker, "],") : status;
}

/* The line of the agent's present turn. */
static kvt_status append_turn(struct agent *agent, uint64_t output_tokens, const char *stop)
{
    struct maker *maker = agent->maker;
    uint64_t first_byte = maker->text_bytes;
    if (maker->record_count >= KVT_TRACE_TURNS_MAX) {
        return KVT_ERR_LIMIT;
    }
    kvt_status status = append(maker,
                               "{\"timestamp\":%" PRIu64 ",\"input_length\":%" PRIu64
                               ",\"output_length\":%" PRIu64 ",",
                               agent->arrival_ms, agent->context.tokens, output_tokens);
    if (status == KVT_OK) {
        status = append_runs(maker, &agent->context);
    }
    if (status == KVT_OK) {
        status =
            append(maker, "\"session_id\":\"%s\",\"turn\":%" PRIu32 ",", agent->id, agent->turn);
    }
    if (status == KVT_OK && agent->parent != NULL) {
        status = append(maker, "\"parent_session_id\":\"%s\",", agent->parent);
    }
    if (status == KVT_OK) {
        status = append(maker, "\"type\":\"%s\",\"stop\":\"%s\"",
                        agent->parent != NULL ? "subagent" : "main", stop);
    }
    if (status == KVT_OK && agent->turn > 1) {
        status = append(maker, ",\"delay\":%" PRIu64, agent->delay_ms);
    }
    if (status == KVT_OK) {
        status = append(maker, "}\n");
    }
    if (status == KVT_OK) {
        status = kvt_trace_grow((void **)&maker->records, &maker->record_capacity,
                                maker->record_count + 1, sizeof(*maker->records));
    }
    if (status != KVT_OK) {
        return status;
    }
    maker->records[maker->record_count] = (struct record){
        agent->arrival_ms, maker->record_count, first_byte, maker->text_bytes - first_byte};
    maker->record_count++;
    return KVT_OK;
}

/* ---- agents ---- */

/* Throws away the end of the prompt and writes something else in its place. */
static kvt_status edit(struct agent *agent)
{
    struct maker *maker = agent->maker;
    uint64_t least = (uint64_t)EDIT_BLOCKS_MIN * maker->settings->block_tokens;
    uint64_t lost = agent->context.tokens *
                    kvt_draw_quantiles(&agent->draw, &kvt_generate_lost_permille) / 1000;
    lost = lost > least ? lost : least;
    uint64_t percent = 100;
    if (kvt_draw_chance(&agent->draw, COMPACTIONS_PERCENT, 100)) {
        percent = COMPACTED_PERCENT_MIN +
                  kvt_draw_below(&agent->draw, COMPACTED_PERCENT_MAX - COMPACTED_PERCENT_MIN + 1);
    }
    if (lost >= agent->context.tokens) {
        return KVT_OK;
    }
    context_cut(maker, &agent->context, lost);
    return context_grow(maker, &agent->context, lost * percent / 100);
}

/* What the turn before left behind: its output, a tool's output or a user's words, an edit. */
static kvt_status grow_by_turn(struct agent *agent, uint64_t output_tokens)
{
    struct maker *maker = agent->maker;
    uint64_t result = scaled(maker, kvt_draw_quantiles(&agent->draw, &kvt_generate_result_tokens));
    if (kvt_draw_chance(&agent->draw, maker->settings->edits, KVT_GENERATE_HUNDREDTHS)) {
        kvt_status status = edit(agent);
        if (status != KVT_OK) {
            return status;
        }
    }
    return context_grow(maker, &agent->context, output_tokens + result);
}

static const struct kvt_quantiles *draw_stop(struct agent *agent, const char **out_stop)
{
    uint32_t at = kvt_draw_below(&agent->draw, 1000);
    if (agent->turn == agent->turns || at >= STOP_TOOL_PERMILLE + STOP_STREAM_PERMILLE) {
        *out_stop = "end_turn";
        return &kvt_generate_answer_delay_ms;
    }
    *out_stop = at < STOP_TOOL_PERMILLE ? "tool_use" : "stream";
    return at < STOP_TOOL_PERMILLE ? &kvt_generate_tool_delay_ms : &kvt_generate_stream_delay_ms;
}

static kvt_status run_agent(struct agent *agent, uint64_t *out_end_ms);

/* A sub-agent that starts when the parent's turn ends, and for which the parent waits. It goes on
 * from the parent's prompt, or starts afresh as its kind always does. */
static kvt_status spawn(struct agent *parent, uint64_t start_ms, uint64_t *out_end_ms)
{
    struct maker *maker = parent->maker;
    const struct kvt_generate_settings *settings = maker->settings;
    struct agent child = {.maker = maker, .parent = parent->id, .number = parent->number};
    parent->sub_agents++;
    (void)snprintf(child.id, sizeof(child.id), "s%04" PRIu64 "/%" PRIu32, parent->number + 1,
                   parent->sub_agents);
    kvt_draw_seed(&child.draw, settings->seed,
                  ((uint64_t)parent->sub_agents << 32) + parent->number + 1);
    bool forked = kvt_draw_chance(&child.draw, settings->forked, KVT_GENERATE_HUNDREDTHS);
    kvt_status status =
        context_copy(forked ? &parent->context : &maker->sub_system, &child.context);
    if (status != KVT_OK) {
        return status;
    }
    uint64_t turns = settings->turns *
                     (uint64_t)kvt_draw_quantiles(&child.draw, &kvt_generate_sub_turns_permille);
    child.turns = turns >= 2000 ? (uint32_t)(turns / 1000) : 2;
    child.arrival_ms = start_ms;
    status =
        context_grow(maker, &child.context,
                     scaled(maker, kvt_draw_quantiles(&child.draw, &kvt_generate_task_tokens)));
    if (status == KVT_OK) {
        status = run_agent(&child, out_end_ms);
    }
    context_fini(&child.context);
    return status;
}

/* All turns of an agent, from its first prompt in agent->context on. Recursion: a sub-agent has no
 * sub-agents. */
static kvt_status run_agent(struct agent *agent, uint64_t *out_end_ms)
{
    struct maker *maker = agent->maker;
    const struct kvt_generate_settings *settings = maker->settings;
    kvt_status status = KVT_OK;
    uint64_t end_ms = agent->arrival_ms;
    maker->sessions++;
    for (agent->turn = 1; agent->turn <= agent->turns; agent->turn++) {
        const char *stop = NULL;
        uint64_t output_tokens =
            scaled(maker, kvt_draw_quantiles(&agent->draw, &kvt_generate_output_tokens));
        const struct kvt_quantiles *delays = draw_stop(agent, &stop);
        if (agent->context.tokens > KVT_TRACE_PROMPT_TOKENS_MAX) {
            break;
        }
        status = append_turn(agent, output_tokens, stop);
        if (status != KVT_OK) {
            return status;
        }
        end_ms = agent->arrival_ms + SERVICE_BASE_MS + SERVICE_TOKEN_MS * output_tokens;
        uint64_t resume_ms = end_ms;
        if (agent->parent == NULL && delays == &kvt_generate_tool_delay_ms &&
            kvt_draw_chance(&agent->draw, settings->sub_agents, (uint64_t)settings->turns * 100)) {
            status = spawn(agent, end_ms, &resume_ms);
            if (status != KVT_OK) {
                return status;
            }
        }
        resume_ms += kvt_draw_quantiles(&agent->draw, delays);
        agent->delay_ms = resume_ms - end_ms;
        agent->arrival_ms = resume_ms;
        status = grow_by_turn(agent, output_tokens);
        if (status != KVT_OK) {
            return status;
        }
    }
    *out_end_ms = end_ms;
    return KVT_OK;
}

/* The mean turns of a main session, so that over both kinds it is what was asked for. */
static uint64_t mean_turns(const struct kvt_generate_settings *settings, bool resumed)
{
    const uint64_t whole = KVT_GENERATE_HUNDREDTHS;
    if (resumed && settings->resumed < whole) {
        return settings->turns * (uint64_t)RESUMED_TURNS_PERCENT / 100;
    }
    if (resumed || settings->resumed == 0) {
        return settings->turns;
    }
    uint64_t taken = (uint64_t)settings->resumed * RESUMED_TURNS_PERCENT / 100;
    return settings->turns * (whole - taken) / (whole - settings->resumed);
}

static kvt_status run_main(struct maker *maker, uint64_t number, uint64_t start_ms)
{
    const struct kvt_generate_settings *settings = maker->settings;
    struct agent agent = {.maker = maker, .number = number, .arrival_ms = start_ms};
    uint64_t end_ms = 0;
    (void)snprintf(agent.id, sizeof(agent.id), "s%04" PRIu64, number + 1);
    kvt_draw_seed(&agent.draw, settings->seed, number + 1);
    uint32_t system = kvt_draw_zipf(&agent.draw, settings->system_prompts);
    bool resumed = kvt_draw_chance(&agent.draw, settings->resumed, KVT_GENERATE_HUNDREDTHS);
    uint64_t turns = mean_turns(settings, resumed) *
                     kvt_draw_quantiles(&agent.draw, &kvt_generate_turns_permille);
    agent.turns = turns >= 1000 ? (uint32_t)(turns / 1000) : 1;
    uint64_t own = kvt_draw_quantiles(&agent.draw, resumed ? &kvt_generate_resumed_tokens
                                                           : &kvt_generate_fresh_tokens);
    kvt_status status = context_copy(&maker->systems[system], &agent.context);
    if (status != KVT_OK) {
        return status;
    }
    status = context_grow(maker, &agent.context, scaled(maker, own));
    if (status == KVT_OK) {
        status = run_agent(&agent, &end_ms);
    }
    context_fini(&agent.context);
    return status;
}

/* ---- the trace ---- */

/* The starts that are shared: whole blocks, so that sharing shows in the ids. */
static kvt_status make_systems(struct maker *maker)
{
    const struct kvt_generate_settings *settings = maker->settings;
    uint64_t block = settings->block_tokens;
    struct kvt_draw draw;
    kvt_draw_seed(&draw, settings->seed, 0);
    maker->systems = calloc(settings->system_prompts, sizeof(*maker->systems));
    if (maker->systems == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status = KVT_OK;
    for (uint32_t i = 0; status == KVT_OK && i <= settings->system_prompts; i++) {
        bool sub = i == settings->system_prompts;
        uint64_t tokens =
            sub ? SUB_SYSTEM_TOKENS : kvt_draw_quantiles(&draw, &kvt_generate_system_tokens);
        tokens = scaled(maker, tokens) / block * block;
        status = context_grow(maker, sub ? &maker->sub_system : &maker->systems[i],
                              tokens > 0 ? tokens : block);
    }
    return status;
}

static int compare_records(const void *left, const void *right)
{
    const struct record *a = left;
    const struct record *b = right;
    if (a->arrival_ms != b->arrival_ms) {
        return a->arrival_ms < b->arrival_ms ? -1 : 1;
    }
    return a->sequence < b->sequence ? -1 : a->sequence > b->sequence ? 1 : 0;
}

/* The first line, then every record in the order of arrival. */
static kvt_status collect(struct maker *maker, struct kvt_generated *out_generated)
{
    const struct kvt_generate_settings *s = maker->settings;
    char header[LINE_BYTES_MAX];
    int n = snprintf(header, sizeof(header),
                     "{\"kvtrace\":{\"version\":1,\"block_size\":%" PRIu32
                     ",\"tail\":\"floor\",\"source\":\"kvtier generate\",\"profile\":\"%s\","
                     "\"seed\":%" PRIu64 ",\"gap_s\":%" PRIu64 "}}\n",
                     s->block_tokens, s->profile, s->seed, s->gap_ms / 1000);
    uint64_t header_bytes = n > 0 ? (uint64_t)n : 0;
    char *text = malloc((size_t)(header_bytes + maker->text_bytes));
    if (text == NULL) {
        return KVT_ERR_NOMEM;
    }
    memcpy(text, header, (size_t)header_bytes);
    uint64_t at = header_bytes;
    qsort(maker->records, (size_t)maker->record_count, sizeof(*maker->records), compare_records);
    for (uint64_t i = 0; i < maker->record_count; i++) {
        const struct record *record = &maker->records[i];
        memcpy(text + at, maker->text + record->first_byte, (size_t)record->byte_count);
        at += record->byte_count;
    }
    *out_generated = (struct kvt_generated){.text = text,
                                            .bytes = at,
                                            .sessions = maker->sessions,
                                            .turns = (uint32_t)maker->record_count};
    return KVT_OK;
}

static void maker_fini(struct maker *maker)
{
    for (uint32_t i = 0; maker->systems != NULL && i < maker->settings->system_prompts; i++) {
        context_fini(&maker->systems[i]);
    }
    free(maker->systems);
    context_fini(&maker->sub_system);
    free(maker->text);
    free(maker->records);
}

kvt_status kvt_generate_trace(const struct kvt_generate_settings *settings,
                              struct kvt_generated *out_generated)
{
    struct maker maker = {.settings = settings};
    struct kvt_draw starts;
    uint64_t start_ms = 0;
    /* Known to come to it in the mean: say so before the memory is filled. */
    if ((uint64_t)settings->sessions * settings->turns > KVT_TRACE_TURNS_MAX) {
        return KVT_ERR_LIMIT;
    }
    kvt_draw_seed(&starts, settings->seed, UINT64_MAX);
    kvt_status status = make_systems(&maker);
    for (uint32_t i = 0; status == KVT_OK && i < settings->sessions; i++) {
        status = run_main(&maker, i, start_ms);
        start_ms += kvt_draw_exponential(&starts, settings->gap_ms);
    }
    if (status == KVT_OK) {
        status = collect(&maker, out_generated);
    }
    maker_fini(&maker);
    return status;
}
