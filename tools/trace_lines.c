/*
 * Lines of a plain or gzip file; zlib tells the two apart by the first bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/trace_read.h"

#define CHUNK_BYTES 65536U

kvt_status kvt_trace_grow(void **array, uint64_t *capacity, uint64_t needed, size_t element_bytes)
{
    if (needed <= *capacity) {
        return KVT_OK;
    }
    uint64_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > UINT64_MAX / 2) {
            return KVT_ERR_NOMEM;
        }
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / element_bytes) {
        return KVT_ERR_NOMEM;
    }
    void *grown = realloc(*array, (size_t)wanted * element_bytes);
    if (grown == NULL) {
        return KVT_ERR_NOMEM;
    }
    *array = grown;
    *capacity = wanted;
    return KVT_OK;
}

static void set_error(struct kvt_lines *lines, const char *text)
{
    (void)snprintf(lines->error, sizeof(lines->error), "%s", text);
}

kvt_status kvt_lines_open(struct kvt_lines *lines, const char *path, uint64_t line_bytes_max)
{
    memset(lines, 0, sizeof(*lines));
    lines->line_bytes_max = line_bytes_max;
    lines->chunk = malloc(CHUNK_BYTES);
    if (lines->chunk == NULL) {
        set_error(lines, "memory could not be had");
        return KVT_ERR_NOMEM;
    }
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (file == NULL) {
        set_error(lines, errno != 0 ? strerror(errno) : "memory could not be had");
        free(lines->chunk);
        lines->chunk = NULL;
        return errno != 0 ? KVT_ERR_IO : KVT_ERR_NOMEM;
    }
    lines->file = file;
    return KVT_OK;
}

void kvt_lines_close(struct kvt_lines *lines)
{
    if (lines->file != NULL) {
        (void)gzclose(lines->file);
    }
    free(lines->chunk);
    free(lines->line);
    lines->file = NULL;
    lines->chunk = NULL;
    lines->line = NULL;
}

const char *kvt_lines_error(const struct kvt_lines *lines) { return lines->error; }

/* Reads the next chunk. At the end of the file chunk_bytes is 0. */
static enum kvt_line_end refill(struct kvt_lines *lines)
{
    lines->chunk_at = 0;
    lines->chunk_bytes = 0;
    errno = 0;
    int got = gzread(lines->file, lines->chunk, CHUNK_BYTES);
    if (got > 0) {
        lines->chunk_bytes = (size_t)got;
        return KVT_LINE_GOOD;
    }
    int system_error = errno;
    int code = Z_OK;
    (void)gzerror(lines->file, &code);
    if (code == Z_BUF_ERROR) {
        set_error(lines, "the compressed data ends too early");
        return KVT_LINE_BROKEN;
    }
    if (got == 0 && code == Z_OK) {
        return KVT_LINE_NONE;
    }
    if (code == Z_ERRNO && system_error != 0) {
        set_error(lines, strerror(system_error));
    } else {
        set_error(lines, "the compressed data is damaged");
    }
    return KVT_LINE_BROKEN;
}

enum kvt_line_end kvt_lines_next(struct kvt_lines *lines)
{
    lines->line_bytes = 0;
    bool any = false;
    for (;;) {
        if (lines->chunk_at == lines->chunk_bytes) {
            enum kvt_line_end end = refill(lines);
            if (end == KVT_LINE_NONE && any) {
                return KVT_LINE_GOOD;
            }
            if (end != KVT_LINE_GOOD) {
                lines->line_number += end == KVT_LINE_BROKEN ? 1 : 0;
                return end;
            }
        }
        if (!any) {
            lines->line_number++;
            any = true;
        }
        const char *from = lines->chunk + lines->chunk_at;
        size_t left = lines->chunk_bytes - lines->chunk_at;
        const char *newline = memchr(from, '\n', left);
        size_t take = newline != NULL ? (size_t)(newline - from) : left;
        if (take > lines->line_bytes_max - lines->line_bytes) {
            return KVT_LINE_TOO_LONG;
        }
        if (kvt_trace_grow((void **)&lines->line, &lines->line_capacity,
                           lines->line_bytes + take + 1, 1) != KVT_OK) {
            return KVT_LINE_NOMEM;
        }
        memcpy(lines->line + lines->line_bytes, from, take);
        lines->line_bytes += take;
        lines->chunk_at += take + (newline != NULL ? 1 : 0);
        if (newline != NULL) {
            return KVT_LINE_GOOD;
        }
    }
}
