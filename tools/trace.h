/*
 * Traces: reading them, and turning them into prompts of tokens.
 *
 * Formats, recognised by the first line: text (chat messages), mooncake, kvtrace; plain or gzip.
 * Nothing is cut in silence: what cannot be used is an error with its line number, or counted.
 */
#ifndef KVT_TRACE_H
#define KVT_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "kvt_status.h"

enum kvt_trace_format { KVT_TRACE_TEXT, KVT_TRACE_MOONCAKE, KVT_TRACE_KVTRACE };

/* A turn: one request of a session. */
struct kvt_trace_turn {
    uint32_t session;       /* index into sessions */
    uint32_t turn;          /* 1-based, within its session */
    uint64_t arrival_ms;    /* timestamp; UINT64_MAX where the format has none */
    uint64_t delay_ms;      /* from the end of the previous turn; UINT64_MAX: absent */
    uint32_t prompt_tokens; /* length of the prompt */
    uint32_t output_tokens; /* 0: the format does not say */
};

struct kvt_trace_session {
    char *id;
    uint32_t first_turn; /* index into turns_by_session */
    uint32_t turn_count;
};

struct kvt_trace {
    enum kvt_trace_format format;
    uint32_t session_count;
    uint32_t turn_count;
    struct kvt_trace_session *sessions; /* in order of first appearance */
    struct kvt_trace_turn *turns;       /* in file order */
    uint32_t *turns_by_session;         /* [turn_count] turn indices, each session's in order */
    void *content;                      /* the format's own */
};

/* Reads the whole file. On failure `why` holds one sentence: path, line number, what was wrong.
 * INVAL: unknown format, malformed line, empty trace. IO: cannot be read. May block. */
kvt_status kvt_trace_open(const char *path, struct kvt_trace *out_trace, char *why,
                          uint64_t why_bytes) KVT_MUST_CHECK;
void kvt_trace_close(struct kvt_trace *);

/* Writes the prompt of turn `turn` (index into turns): token ids below `vocabulary`, exactly
 * turns[turn].prompt_tokens of them. Deterministic: equal text, or equal block ids at equal
 * positions, give equal tokens; tails that no block id covers belong to their session alone. */
void kvt_trace_prompt(const struct kvt_trace *, uint32_t turn, uint32_t vocabulary,
                      uint32_t *out_tokens);

#endif
