/*
 * Opening a trace: format by the first line, every line checked, sessions and turns put in order.
 */
#include "tools/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tools/trace_read.h"

const struct kvt_trace_limits kvt_trace_limits_default = {
    .line_bytes_max = KVT_TRACE_LINE_BYTES_MAX,
    .prompt_tokens_max = KVT_TRACE_PROMPT_TOKENS_MAX,
    .sessions_max = KVT_TRACE_SESSIONS_MAX,
    .turns_max = KVT_TRACE_TURNS_MAX,
};

/* ---- sentences ---- */

kvt_status kvt_trace_fail(struct kvt_trace_build *build, kvt_status status, const char *format, ...)
{
    if (build->why == NULL || build->why_bytes == 0) {
        return status;
    }
    int used = 0;
    if (build->line > 0) {
        used = snprintf(build->why, (size_t)build->why_bytes, "%s, line %" PRIu64 ": ", build->path,
                        build->line);
    } else {
        used = snprintf(build->why, (size_t)build->why_bytes, "%s: ", build->path);
    }
    if (used > 0 && (uint64_t)used < build->why_bytes) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(build->why + used, (size_t)(build->why_bytes - (uint64_t)used), format,
                        args);
        va_end(args);
    }
    return status;
}

static kvt_status fail_memory(struct kvt_trace_build *build)
{
    return kvt_trace_fail(build, KVT_ERR_NOMEM, "memory could not be had");
}

/* ---- values of a line ---- */

kvt_status kvt_trace_number(struct kvt_trace_build *build, const json_t *object, const char *key,
                            uint64_t max, const uint64_t *absent, uint64_t *out_number)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL && absent != NULL) {
        *out_number = *absent;
        return KVT_OK;
    }
    if (value == NULL) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is missing", key);
    }
    if (!json_is_integer(value)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is not a whole number", key);
    }
    json_int_t number = json_integer_value(value);
    if (number < 0) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is negative", key);
    }
    if ((uint64_t)number > max) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "%s is %" PRIu64 ", more than the limit of %" PRIu64, key,
                              (uint64_t)number, max);
    }
    *out_number = (uint64_t)number;
    return KVT_OK;
}

kvt_status kvt_trace_string(struct kvt_trace_build *build, const json_t *object, const char *key,
                            const char **out_string)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL) {
        *out_string = NULL;
        return KVT_OK;
    }
    if (!json_is_string(value)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is not a string", key);
    }
    const char *text = json_string_value(value);
    if (text[0] == '\0' || strlen(text) != json_string_length(value)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is empty or has a NUL byte in it", key);
    }
    *out_string = text;
    return KVT_OK;
}

/* ---- sessions and turns ---- */

static uint64_t hash_id(const char *id) { return XXH3_64bits(id, strlen(id)); }

/* The slot of `id` in the table, or the free one where it belongs. */
static uint64_t table_find(const struct kvt_trace_build *build, const char *id)
{
    uint64_t mask = build->table_slots - 1;
    uint64_t slot = hash_id(id) & mask;
    while (build->table[slot] != 0 &&
           strcmp(build->trace->sessions[build->table[slot] - 1].id, id) != 0) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

/* Keeps the table at most half full. */
static kvt_status table_reserve(struct kvt_trace_build *build)
{
    if (((uint64_t)build->trace->session_count + 1) * 2 <= build->table_slots) {
        return KVT_OK;
    }
    uint64_t slots = build->table_slots == 0 ? 64 : build->table_slots * 2;
    uint32_t *old = build->table;
    uint64_t old_slots = build->table_slots;
    uint32_t *table = calloc((size_t)slots, sizeof(*table));
    if (table == NULL) {
        return fail_memory(build);
    }
    build->table = table;
    build->table_slots = slots;
    for (uint64_t i = 0; i < old_slots; i++) {
        if (old[i] != 0) {
            build->table[table_find(build, build->trace->sessions[old[i] - 1].id)] = old[i];
        }
    }
    free(old);
    return KVT_OK;
}

static kvt_status session_append(struct kvt_trace_build *build, const char *id,
                                 uint32_t *out_session)
{
    struct kvt_trace *trace = build->trace;
    if (trace->session_count >= build->limits->sessions_max) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "more than the limit of %" PRIu32 " sessions",
                              build->limits->sessions_max);
    }
    if (kvt_trace_grow((void **)&trace->sessions, &build->session_capacity,
                       (uint64_t)trace->session_count + 1, sizeof(*trace->sessions)) != KVT_OK) {
        return fail_memory(build);
    }
    char *copy = strdup(id);
    if (copy == NULL) {
        return fail_memory(build);
    }
    struct kvt_trace_session *session = &trace->sessions[trace->session_count];
    *session = (struct kvt_trace_session){.id = copy};
    *out_session = trace->session_count++;
    return KVT_OK;
}

kvt_status kvt_trace_session(struct kvt_trace_build *build, const char *id, uint32_t *out_session,
                             bool *out_is_new)
{
    kvt_status status = table_reserve(build);
    if (status != KVT_OK) {
        return status;
    }
    uint64_t slot = table_find(build, id);
    *out_is_new = build->table[slot] == 0;
    if (!*out_is_new) {
        *out_session = build->table[slot] - 1;
        return KVT_OK;
    }
    status = session_append(build, id, out_session);
    if (status == KVT_OK) {
        build->table[slot] = *out_session + 1;
    }
    return status;
}

kvt_status kvt_trace_session_anonymous(struct kvt_trace_build *build, uint32_t *out_session)
{
    char id[48];
    (void)snprintf(id, sizeof(id), "line %" PRIu64, build->line);
    return session_append(build, id, out_session);
}

kvt_status kvt_trace_turn_add(struct kvt_trace_build *build, const struct kvt_trace_turn *turn)
{
    struct kvt_trace *trace = build->trace;
    if (trace->turn_count >= build->limits->turns_max) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "more than the limit of %" PRIu32 " turns",
                              build->limits->turns_max);
    }
    uint64_t needed = (uint64_t)trace->turn_count + 1;
    if (kvt_trace_grow((void **)&trace->turns, &build->turn_capacity, needed,
                       sizeof(*trace->turns)) != KVT_OK ||
        kvt_trace_grow((void **)&build->turn_lines, &build->turn_lines_capacity, needed,
                       sizeof(*build->turn_lines)) != KVT_OK) {
        return fail_memory(build);
    }
    struct kvt_trace_session *session = &trace->sessions[turn->session];
    session->turn_count++;
    struct kvt_trace_turn *place = &trace->turns[trace->turn_count];
    *place = *turn;
    place->turn = turn->turn != 0 ? turn->turn : session->turn_count;
    build->turn_lines[trace->turn_count] = build->line;
    trace->turn_count++;
    return KVT_OK;
}

struct turn_key {
    uint32_t session, turn, index;
};

static int compare_keys(const void *left, const void *right)
{
    const struct turn_key *a = left;
    const struct turn_key *b = right;
    if (a->session != b->session) {
        return a->session < b->session ? -1 : 1;
    }
    if (a->turn != b->turn) {
        return a->turn < b->turn ? -1 : 1;
    }
    return a->index < b->index ? -1 : a->index > b->index ? 1 : 0;
}

/* Fills turns_by_session and the sessions' first_turn; refuses a turn that is there twice. */
static kvt_status order_turns(struct kvt_trace_build *build)
{
    struct kvt_trace *trace = build->trace;
    struct turn_key *keys = calloc(trace->turn_count, sizeof(*keys));
    uint32_t *by_session = calloc(trace->turn_count, sizeof(*by_session));
    kvt_status status = KVT_OK;
    if (keys == NULL || by_session == NULL) {
        build->line = 0;
        status = fail_memory(build);
        goto undo_arrays;
    }
    for (uint32_t i = 0; i < trace->turn_count; i++) {
        keys[i] = (struct turn_key){trace->turns[i].session, trace->turns[i].turn, i};
    }
    qsort(keys, trace->turn_count, sizeof(*keys), compare_keys);
    for (uint32_t i = 0; i < trace->turn_count; i++) {
        bool first = i == 0 || keys[i - 1].session != keys[i].session;
        if (first) {
            trace->sessions[keys[i].session].first_turn = i;
        } else if (keys[i - 1].turn == keys[i].turn) {
            build->line = build->turn_lines[keys[i].index];
            status = kvt_trace_fail(
                build, KVT_ERR_INVAL,
                "turn %" PRIu32 " of session \"%s\" was already on line %" PRIu64, keys[i].turn,
                trace->sessions[keys[i].session].id, build->turn_lines[keys[i - 1].index]);
            goto undo_arrays;
        }
        by_session[i] = keys[i].index;
    }
    trace->turns_by_session = by_session;
    free(keys);
    return KVT_OK;
undo_arrays:
    free(by_session);
    free(keys);
    return status;
}

/* ---- opening ---- */

static const struct kvt_trace_reader_ops *reader_ops(enum kvt_trace_format format)
{
    return format == KVT_TRACE_TEXT ? &kvt_trace_text_ops : &kvt_trace_blocks_ops;
}

/* The format that the first line speaks. */
static kvt_status detect(struct kvt_trace_build *build, const json_t *object)
{
    static const char *const kvtrace_keys[] = {"kvtrace", "hash_runs", "session_id",
                                               "turn",    "delay",     "stop"};
    struct kvt_trace *trace = build->trace;
    if (json_object_get(object, "messages") != NULL) {
        trace->format = KVT_TRACE_TEXT;
        return KVT_OK;
    }
    bool blocks = json_object_get(object, "kvtrace") != NULL ||
                  json_object_get(object, "hash_runs") != NULL ||
                  json_object_get(object, "hash_ids") != NULL;
    if (!blocks) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "unknown trace format: the first line has none of messages (text), "
                              "hash_ids (mooncake), hash_runs and kvtrace (kvtrace)");
    }
    trace->format = KVT_TRACE_MOONCAKE;
    for (size_t i = 0; i < sizeof(kvtrace_keys) / sizeof(kvtrace_keys[0]); i++) {
        if (json_object_get(object, kvtrace_keys[i]) != NULL) {
            trace->format = KVT_TRACE_KVTRACE;
        }
    }
    return KVT_OK;
}

static bool is_blank(const struct kvt_lines *lines)
{
    for (uint64_t i = 0; i < lines->line_bytes; i++) {
        if (strchr(" \t\r", lines->line[i]) == NULL || lines->line[i] == '\0') {
            return false;
        }
    }
    return true;
}

static kvt_status take_line(struct kvt_trace_build *build, const struct kvt_lines *lines)
{
    json_error_t error;
    json_t *object = json_loadb(lines->line, (size_t)lines->line_bytes,
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (object == NULL) {
        return json_error_code(&error) == json_error_out_of_memory
                   ? fail_memory(build)
                   : kvt_trace_fail(build, KVT_ERR_INVAL, "not a JSON object: %s", error.text);
    }
    kvt_status status = KVT_OK;
    if (!json_is_object(object)) {
        status = kvt_trace_fail(build, KVT_ERR_INVAL, "not a JSON object");
    } else if (build->trace->content == NULL) {
        status = detect(build, object);
        if (status == KVT_OK) {
            status = reader_ops(build->trace->format)->create(build->trace);
            status = status == KVT_OK ? KVT_OK : fail_memory(build);
        }
    }
    if (status == KVT_OK) {
        status = reader_ops(build->trace->format)->line(build, object);
    }
    json_decref(object);
    return status;
}

static kvt_status take_lines(struct kvt_trace_build *build, struct kvt_lines *lines)
{
    for (;;) {
        enum kvt_line_end end = kvt_lines_next(lines);
        build->line = lines->line_number;
        switch (end) {
        case KVT_LINE_GOOD:
            break;
        case KVT_LINE_NONE:
            build->line = 0;
            return KVT_OK;
        case KVT_LINE_TOO_LONG:
            return kvt_trace_fail(build, KVT_ERR_INVAL,
                                  "longer than the limit of %" PRIu64 " bytes a line",
                                  lines->line_bytes_max);
        case KVT_LINE_NOMEM:
            return fail_memory(build);
        case KVT_LINE_BROKEN:
            return kvt_trace_fail(build, KVT_ERR_IO, "cannot be read: %s", kvt_lines_error(lines));
        }
        if (!is_blank(lines)) {
            kvt_status status = take_line(build, lines);
            if (status != KVT_OK) {
                return status;
            }
        }
    }
}

kvt_status kvt_trace_open_limited(const char *path, const struct kvt_trace_limits *limits,
                                  struct kvt_trace *out_trace, char *why, uint64_t why_bytes)
{
    struct kvt_trace trace = {0};
    struct kvt_trace_build build = {
        .trace = &trace, .limits = limits, .path = path, .why = why, .why_bytes = why_bytes};
    struct kvt_lines lines;
    kvt_status status = kvt_lines_open(&lines, path, limits->line_bytes_max);
    if (status != KVT_OK) {
        return kvt_trace_fail(&build, status, "cannot be opened: %s", kvt_lines_error(&lines));
    }
    status = take_lines(&build, &lines);
    kvt_lines_close(&lines);
    if (status == KVT_OK && trace.turn_count == 0) {
        status = kvt_trace_fail(&build, KVT_ERR_INVAL, "the trace is empty");
    }
    if (status == KVT_OK) {
        status = order_turns(&build);
    }
    free(build.table);
    free(build.turn_lines);
    if (status != KVT_OK) {
        kvt_trace_close(&trace);
        return status;
    }
    *out_trace = trace;
    return KVT_OK;
}

kvt_status kvt_trace_open(const char *path, struct kvt_trace *out_trace, char *why,
                          uint64_t why_bytes)
{
    return kvt_trace_open_limited(path, &kvt_trace_limits_default, out_trace, why, why_bytes);
}

void kvt_trace_close(struct kvt_trace *trace)
{
    if (trace->content != NULL) {
        reader_ops(trace->format)->destroy(trace->content);
    }
    for (uint32_t i = 0; i < trace->session_count; i++) {
        free(trace->sessions[i].id);
    }
    free(trace->sessions);
    free(trace->turns);
    free(trace->turns_by_session);
    *trace = (struct kvt_trace){0};
}

void kvt_trace_prompt(const struct kvt_trace *trace, uint32_t turn, uint32_t vocabulary,
                      uint32_t *out_tokens)
{
    reader_ops(trace->format)->prompt(trace, turn, vocabulary, out_tokens);
}
