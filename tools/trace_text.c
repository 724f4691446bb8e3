/*
 * Text traces: {"session_id", "messages": [{"role", "content"}, ...]}, one conversation a line.
 *
 * Each assistant message is one request whose prompt is every message before it. The rule that
 * cuts messages into tokens, about four characters a token:
 *
 *   message = role token, piece, piece, ...     in this order
 *   role token = XXH3-64 of the whole role, seed 1, modulo the vocabulary
 *   piece = the next 4 bytes of the content, the last piece what is left (1 to 4 bytes)
 *   its token = XXH3-64 of the piece's bytes, seed 2, modulo the vocabulary
 *
 * Pieces never cross a message's end, so the tokens of a conversation start with the tokens of any
 * shorter one that it continues. Bytes, not characters: a piece may end inside a UTF-8 sequence,
 * which changes nothing for a cache. Only the text is kept; tokens are made on demand.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "tools/trace_read.h"

#define PIECE_BYTES 4U
#define SEED_ROLE 1U
#define SEED_PIECE 2U

struct message {
    uint64_t role_hash;
    uint64_t first_byte; /* in `bytes` */
    uint64_t byte_count;
};

struct text_turn {
    uint64_t first_message; /* in `messages` */
    uint64_t message_count; /* of the prompt */
};

struct text_content {
    char *bytes;
    uint64_t byte_count, byte_capacity;
    struct message *messages;
    uint64_t message_count, message_capacity;
    struct text_turn *turns; /* as trace->turns */
    uint64_t turn_capacity;
};

static kvt_status text_create(struct kvt_trace *trace)
{
    trace->content = calloc(1, sizeof(struct text_content));
    return trace->content != NULL ? KVT_OK : KVT_ERR_NOMEM;
}

static void text_destroy(void *ptr)
{
    struct text_content *content = ptr;
    if (content == NULL) {
        return;
    }
    free(content->bytes);
    free(content->messages);
    free(content->turns);
    free(content);
}

static kvt_status fail_memory(struct kvt_trace_build *build)
{
    return kvt_trace_fail(build, KVT_ERR_NOMEM, "memory could not be had");
}

static uint64_t message_tokens(uint64_t byte_count)
{
    return 1 + (byte_count + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* Appends a message's bytes; `out_is_turn` says that it is an assistant's. */
static kvt_status add_message(struct kvt_trace_build *build, const json_t *value, size_t number,
                              bool *out_is_turn)
{
    struct text_content *content = build->trace->content;
    const json_t *role = json_object_get(value, "role");
    const json_t *text = json_object_get(value, "content");
    if (!json_is_object(value)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "message %zu is not an object", number);
    }
    if (!json_is_string(role)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "role of message %zu is %s", number,
                              role == NULL ? "missing" : "not a string");
    }
    if (!json_is_string(text)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "content of message %zu is %s", number,
                              text == NULL ? "missing" : "not a string");
    }
    uint64_t bytes = json_string_length(text);
    /* One more than needed, so that the array exists for empty messages too. */
    if (kvt_trace_grow((void **)&content->bytes, &content->byte_capacity,
                       content->byte_count + bytes + 1, 1) != KVT_OK ||
        kvt_trace_grow((void **)&content->messages, &content->message_capacity,
                       content->message_count + 1, sizeof(*content->messages)) != KVT_OK) {
        return fail_memory(build);
    }
    memcpy(content->bytes + content->byte_count, json_string_value(text), (size_t)bytes);
    const char *role_text = json_string_value(role);
    content->messages[content->message_count++] = (struct message){
        .role_hash = XXH3_64bits_withSeed(role_text, json_string_length(role), SEED_ROLE),
        .first_byte = content->byte_count,
        .byte_count = bytes};
    content->byte_count += bytes;
    *out_is_turn = strcmp(role_text, "assistant") == 0;
    return KVT_OK;
}

/* Adds the turn whose prompt is the `message_count` messages from `first_message` on. */
static kvt_status add_turn(struct kvt_trace_build *build, uint32_t session, uint64_t first_message,
                           uint64_t message_count, uint64_t prompt_tokens)
{
    struct text_content *content = build->trace->content;
    if (message_count == 0) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "message 1 is the assistant's, so its prompt is empty");
    }
    if (prompt_tokens > build->limits->prompt_tokens_max) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "the prompt of message %" PRIu64 " has %" PRIu64
                              " tokens, more than the limit of %" PRIu32,
                              message_count + 1, prompt_tokens, build->limits->prompt_tokens_max);
    }
    uint32_t index = build->trace->turn_count;
    if (kvt_trace_grow((void **)&content->turns, &content->turn_capacity, (uint64_t)index + 1,
                       sizeof(*content->turns)) != KVT_OK) {
        return fail_memory(build);
    }
    const struct kvt_trace_turn turn = {.session = session,
                                        .arrival_ms = UINT64_MAX,
                                        .delay_ms = UINT64_MAX,
                                        .prompt_tokens = (uint32_t)prompt_tokens};
    kvt_status status = kvt_trace_turn_add(build, &turn);
    if (status == KVT_OK) {
        content->turns[index] = (struct text_turn){first_message, message_count};
    }
    return status;
}

static kvt_status text_line(struct kvt_trace_build *build, const json_t *object)
{
    struct text_content *content = build->trace->content;
    const char *id = NULL;
    kvt_status status = kvt_trace_string(build, object, "session_id", &id);
    if (status != KVT_OK) {
        return status;
    }
    const json_t *messages = json_object_get(object, "messages");
    if (id == NULL || messages == NULL) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "%s is missing",
                              id == NULL ? "session_id" : "messages");
    }
    if (!json_is_array(messages)) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "messages is not an array");
    }
    uint32_t session = 0;
    bool is_new = false;
    status = kvt_trace_session(build, id, &session, &is_new);
    if (status != KVT_OK) {
        return status;
    }
    if (!is_new) {
        return kvt_trace_fail(build, KVT_ERR_INVAL, "session \"%s\" was already on another line",
                              id);
    }
    uint64_t first = content->message_count;
    uint64_t tokens = 0;
    uint32_t turns_before = build->trace->turn_count;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        bool is_turn = false;
        status = add_message(build, json_array_get(messages, i), i + 1, &is_turn);
        if (status == KVT_OK && is_turn) {
            status = add_turn(build, session, first, i, tokens);
        }
        if (status != KVT_OK) {
            return status;
        }
        tokens += message_tokens(content->messages[first + i].byte_count);
    }
    if (build->trace->turn_count == turns_before) {
        return kvt_trace_fail(build, KVT_ERR_INVAL,
                              "no message is the assistant's, so there is nothing to answer");
    }
    return KVT_OK;
}

static void text_prompt(const struct kvt_trace *trace, uint32_t turn, uint32_t vocabulary,
                        uint32_t *out_tokens)
{
    const struct text_content *content = trace->content;
    const struct text_turn *place = &content->turns[turn];
    uint32_t *token = out_tokens;
    for (uint64_t i = 0; i < place->message_count; i++) {
        const struct message *message = &content->messages[place->first_message + i];
        *token++ = (uint32_t)(message->role_hash % vocabulary);
        const char *bytes = content->bytes + message->first_byte;
        for (uint64_t at = 0; at < message->byte_count; at += PIECE_BYTES) {
            uint64_t left = message->byte_count - at;
            size_t piece = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
            *token++ = (uint32_t)(XXH3_64bits_withSeed(bytes + at, piece, SEED_PIECE) % vocabulary);
        }
    }
}

const struct kvt_trace_reader_ops kvt_trace_text_ops = {
    .create = text_create, .line = text_line, .prompt = text_prompt, .destroy = text_destroy};
