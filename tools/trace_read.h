/*
 * Inside the trace reader: lines of a plain or gzip file, the trace under construction, and what
 * each family of formats does with a line and with a prompt.
 *
 * Not for users of traces; they include trace.h.
 */
#ifndef KVT_TRACE_READ_H
#define KVT_TRACE_READ_H

#include <jansson.h>
#include <stddef.h>

#include "tools/trace.h"

/* ---- limits ---- */

#define KVT_TRACE_LINE_BYTES_MAX (UINT64_C(1) << 27)
#define KVT_TRACE_PROMPT_TOKENS_MAX (UINT32_C(1) << 24)
#define KVT_TRACE_SESSIONS_MAX (UINT32_C(1) << 20)
#define KVT_TRACE_TURNS_MAX (UINT32_C(1) << 22)
#define KVT_TRACE_BLOCK_TOKENS_MAX (UINT32_C(1) << 16)

struct kvt_trace_limits {
    uint64_t line_bytes_max;
    uint32_t prompt_tokens_max;
    uint32_t sessions_max;
    uint32_t turns_max;
};
extern const struct kvt_trace_limits kvt_trace_limits_default;

/* kvt_trace_open() with other limits, so that tests can reach them. */
kvt_status kvt_trace_open_limited(const char *path, const struct kvt_trace_limits *limits,
                                  struct kvt_trace *out_trace, char *why, uint64_t why_bytes)
    KVT_MUST_CHECK;

/* ---- arrays that grow ---- */

/* Makes room for `needed` elements, at least doubling. On NOMEM the array is as it was. The new
 * elements are not initialised. */
kvt_status kvt_trace_grow(void **array, uint64_t *capacity, uint64_t needed, size_t element_bytes)
    KVT_MUST_CHECK;

/* ---- lines ---- */

enum kvt_line_end {
    KVT_LINE_GOOD,     /* a line was read */
    KVT_LINE_NONE,     /* the file is over */
    KVT_LINE_TOO_LONG, /* longer than the limit */
    KVT_LINE_NOMEM,
    KVT_LINE_BROKEN /* the file cannot be read further; see kvt_lines_error() */
};

struct kvt_trace_source; /* the file, plain or gzip */
struct kvt_lines {
    struct kvt_trace_source *source;
    char *chunk;
    size_t chunk_bytes, chunk_at;
    char *line; /* not terminated; valid until the next call */
    uint64_t line_bytes, line_capacity;
    uint64_t line_bytes_max;
    uint64_t line_number; /* of `line`, from 1 */
    char error[160];
};

kvt_status kvt_lines_open(struct kvt_lines *, const char *path, uint64_t line_bytes_max)
    KVT_MUST_CHECK;
void kvt_lines_close(struct kvt_lines *);
enum kvt_line_end kvt_lines_next(struct kvt_lines *) KVT_MUST_CHECK;
/* Why opening or reading failed, without the path. */
const char *kvt_lines_error(const struct kvt_lines *);

/* ---- a trace under construction ---- */

struct kvt_trace_build {
    struct kvt_trace *trace;
    const struct kvt_trace_limits *limits;
    const char *path;
    uint64_t line; /* now being read, for sentences; 0: none */
    char *why;
    uint64_t why_bytes;
    uint64_t session_capacity, turn_capacity;
    uint64_t *turn_lines; /* [turn_capacity] where each turn stood */
    uint64_t turn_lines_capacity;
    uint32_t *table; /* open addressing: session index + 1, 0 free; anonymous ones are not in it */
    uint64_t table_slots;
};

/* Writes "PATH, line N: MESSAGE" to build->why and returns `status`. */
kvt_status kvt_trace_fail(struct kvt_trace_build *, kvt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The session of this id, made when it is new. NOMEM, INVAL (limit). */
kvt_status kvt_trace_session(struct kvt_trace_build *, const char *id, uint32_t *out_session,
                             bool *out_is_new) KVT_MUST_CHECK;
/* A session that no other line can name. */
kvt_status kvt_trace_session_anonymous(struct kvt_trace_build *, uint32_t *out_session)
    KVT_MUST_CHECK;
/* Appends a turn; turn->turn 0 means: the next of its session. */
kvt_status kvt_trace_turn_add(struct kvt_trace_build *, const struct kvt_trace_turn *turn)
    KVT_MUST_CHECK;

/* ---- values of a line ---- */

/* The whole number `key`, 0..max. Absent: `absent` when it is not NULL, else an error. */
kvt_status kvt_trace_number(struct kvt_trace_build *, const json_t *object, const char *key,
                            uint64_t max, const uint64_t *absent, uint64_t *out_number)
    KVT_MUST_CHECK;
/* The string `key` without NUL bytes, or NULL when it is absent. Borrowed from `object`. */
kvt_status kvt_trace_string(struct kvt_trace_build *, const json_t *object, const char *key,
                            const char **out_string) KVT_MUST_CHECK;

/* ---- what a family of formats does ---- */

struct kvt_trace_reader_ops {
    /* Sets trace->content. */
    kvt_status (*create)(struct kvt_trace *);
    kvt_status (*line)(struct kvt_trace_build *, const json_t *object);
    void (*prompt)(const struct kvt_trace *, uint32_t turn, uint32_t vocabulary,
                   uint32_t *out_tokens);
    void (*destroy)(void *content); /* NULL is a no-op */
};

extern const struct kvt_trace_reader_ops kvt_trace_text_ops;
extern const struct kvt_trace_reader_ops kvt_trace_blocks_ops; /* mooncake and kvtrace */

#endif
